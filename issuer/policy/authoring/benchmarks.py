"""The reader of registered benchmarks: `eval.yaml` files under `benchmarks/`, for `registered_only`.

`benchmarks/OWNER/NAME/REVISION.yaml` is the file at that full commit; `benchmarks/OWNER/NAME/eval.yaml` counts for
every commit without its own file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats import jcs
from issuer.formats.findings import Findings
from issuer.formats.strict_yaml import MAX_BYTES, Document
from issuer.io import files
from issuer.policy.model import RegisteredBenchmarks, RegisteredFile
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.claims import REVISION, is_repo

ANY_COMMIT = "eval"
# OWNER, NAME, and one more to find misplaced files. Bounded, because a link may put a folder inside itself.
LEVELS = 3


def read_registered(folder: Path, findings: Findings) -> tuple[RegisteredBenchmarks, dict[str, RegisteredFile]]:
    """Return the registered benchmarks of a folder, and each file by its path there. The folder may be absent."""
    at_commit: dict[tuple[str, str], Benchmark] = {}
    at_any: dict[str, Benchmark] = {}
    read: dict[str, RegisteredFile] = {}
    for path in _yaml_files(folder, LEVELS, findings) if folder.exists() else ():
        repo = path.parent.relative_to(folder).as_posix()
        document = Document(str(path), None)
        placed = path.suffix == ".yaml" and is_repo(repo) and (path.stem == ANY_COMMIT or REVISION.fullmatch(path.stem))
        rule = "must be OWNER/NAME/eval.yaml or OWNER/NAME/<full commit>.yaml: it would be overlooked"
        if not findings.demand(document, "", placed, rule):
            continue
        try:
            raw = files.read(path, MAX_BYTES)
            benchmark = read_benchmark(raw, str(path))
        except InputError as error:
            findings.refuse(error)
            continue
        read[f"{repo}/{path.name}"] = RegisteredFile(repo, raw, jcs.digest_of_bytes(raw))
        if path.stem == ANY_COMMIT:
            at_any[repo] = benchmark
        else:
            at_commit[repo, path.stem] = benchmark
    return RegisteredBenchmarks(at_commit, at_any), read


def _yaml_files(folder: Path, levels: int, findings: Findings) -> Iterator[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        findings.refuse(InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(folder))))
        return
    for path in paths:
        if path.is_dir():
            yield from _yaml_files(path, levels - 1, findings) if levels else ()
        elif path.suffix.lower() in {".yaml", ".yml"}:
            yield path
