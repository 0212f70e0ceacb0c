"""The search for runs in files and folders: it recognises their format and calls its reader. Writes no files.

File sizes are checked before reading. The names of a document's members decide its format, never the file's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from issuer.adapters import every_eval_ever, helm, inspect_ai, large_json, lighteval, lm_eval, plain_json, verievals
from issuer.adapters.eval_zip import is_zip
from issuer.adapters.evidence import MAX_BYTES, broken, too_large
from issuer.adapters.run import Run
from issuer.adapters.verievals import Anchors
from issuer.errors import InputError
from issuer.io import files

SourceName: TypeAlias = Literal["auto", "inspect", "lm-eval", "lighteval", "helm", "eee", "verievals", "json"]

MAX_FILES = 10_000


class _Format(Struct, frozen=True):
    """A source. `marks` are the members that identify its JSON documents, and `patterns` the names of its files in a
    folder. `reader` takes a file's bytes and name, and returns its runs; None for a source that needs more."""

    marks: frozenset[str]
    patterns: tuple[str, ...]
    reader: Callable[[bytearray, str], tuple[Run, ...]] | None = None
    max_bytes: int = MAX_BYTES


_LOGS, _RESULTS, _JSON = ("*.json", "*.eval"), ("results*.json",), ("*.json",)
_FORMATS: dict[str, _Format] = {
    "auto": _Format(frozenset(), _LOGS, max_bytes=inspect_ai.MAX_BYTES),
    "inspect": _Format(frozenset({"status", "eval"}), _LOGS, max_bytes=inspect_ai.MAX_BYTES),
    "lm-eval": _Format(frozenset({"results", "configs", "n-shot"}), _RESULTS, lm_eval.read),
    "lighteval": _Format(frozenset({"config_general", "results", "config_tasks"}), _RESULTS, lighteval.read),
    "helm": _Format(frozenset(), ()),
    "eee": _Format(frozenset({"schema_version", "source_metadata", "evaluation_results"}), _JSON, every_eval_ever.read),
    "verievals": _Format(frozenset({"body", "content_hash", "signature"}), _JSON, max_bytes=verievals.MAX_BYTES),
    "json": _Format(frozenset({"format", "runs"}), _JSON, plain_json.read),
}
SOURCES: Final = tuple(_FORMATS)


def read(path: Path | str, source: SourceName = "auto", *, task: str = "", anchors: Anchors | None = None) -> Run:
    """Read the only run in a file or folder, or its only run with this task. Raises InputError as `read_all` does, and
    `file.rule` if there is no such run or several."""
    runs = [run for run in read_all(path, source, anchors=anchors) if task in {"", run.task}]
    if len(runs) != 1:
        tasks = ", ".join(repr(run.task[:64]) for run in runs[:20])
        raise broken(str(path), "", f"{len(runs)} runs in place of exactly one: {tasks}")
    return runs[0]


def read_all(path: Path | str, source: SourceName = "auto", *, anchors: Anchors | None = None) -> tuple[Run, ...]:
    """Read every run in a file, in a run directory of HELM, or in a folder of these. verievals records are checked
    against `anchors`. Raises InputError: `file.unreadable`, `file.too_large`, `file.rule` for an unknown format, and
    the errors of the format's reader."""
    return tuple(run for file in _files(Path(path), source) for run in _read_one(file, source, anchors))


def read_each(
    path: Path | str, source: SourceName = "auto", *, anchors: Anchors | None = None
) -> Iterator[tuple[Run, ...] | InputError]:
    """Read file by file: yield the runs of each file, or the error of a file that cannot be read."""
    try:
        paths = _files(Path(path), source)
    except InputError as error:
        yield error
        return
    for file in paths:
        try:
            yield _read_one(file, source, anchors)
        except InputError as error:
            yield error


def _files(path: Path, source: SourceName) -> list[Path]:
    """Return the files and run directories to read, in the order of their names. Links are skipped."""
    if not path.is_dir() or (path / "run_spec.json").is_file():
        return [path]
    plain = sorted(file for file in files.find(path) if not file.is_symlink())
    runs = [file.parent for file in plain if file.name == "run_spec.json"]
    matching = [file for file in plain if any(map(file.match, _FORMATS[source].patterns))]
    outside = [file for file in matching if not set(file.parents) & set(runs)]
    paths = [*(runs if source in {"auto", "helm"} else []), *outside]
    if not paths:
        raise broken(str(path), "", f"no file in this folder looks like a run ({source})")
    if len(paths) > MAX_FILES:
        raise too_large(str(path), f"more than {MAX_FILES} runs")
    return paths


def _read_one(path: Path, source: SourceName, anchors: Anchors | None) -> tuple[Run, ...]:
    name = str(path)
    if path.is_dir():
        if source not in {"auto", "helm"}:
            raise broken(name, "", f"a run directory of HELM, not a file of {source}")
        return (helm.read(_helm_files(path), name),)
    raw = read_file(path, _FORMATS[source].max_bytes)
    kind = _recognised(raw, name) if source == "auto" else source
    if kind == "inspect":
        return (inspect_ai.read(raw, name),)
    if reader := _FORMATS[kind].reader:
        return reader(raw, name)
    if kind == "helm":
        raise broken(name, "", "a run of HELM is a folder with run_spec.json and stats.json: give the folder")
    if anchors is None:
        rule = "a verievals record must be checked: give --verievals-key, --verievals-ledger and --verievals-root"
        raise broken(name, "", rule)
    return (verievals.read(raw, name, anchors=anchors),)


def _helm_files(folder: Path) -> dict[str, bytearray]:
    """Read the files of a run directory. The file of all instances is used only for counts, so it may be too
    large to read."""
    limits = dict.fromkeys((*helm.REQUIRED, *helm.OPTIONAL), MAX_BYTES)
    instances = folder / helm.PER_INSTANCE
    if instances.exists() and instances.stat().st_size <= helm.MAX_PER_INSTANCE:
        limits[helm.PER_INSTANCE] = helm.MAX_PER_INSTANCE
    return {
        file: read_file(folder / file, limit, follow=False)
        for file, limit in limits.items()
        if (folder / file).exists()
    }


def _recognised(raw: bytearray, name: str) -> str:
    if is_zip(raw):
        return "inspect"
    members = large_json.members(raw, name)
    kinds = [kind for kind, known in _FORMATS.items() if known.marks and known.marks <= members]
    if len(kinds) != 1:
        fault = "it fits several formats" if kinds else "it is not a run of a known format"
        raise broken(name, "", f"{fault}: name the format with --from")
    return kinds[0]


def read_file(path: Path, max_bytes: int, *, follow: bool = True) -> bytearray:
    """Read a plain file of at most `max_bytes`. Raises InputError. The result is a bytearray, unlike that of
    `files.read`: `large_json` writes into it, which saves a copy of half a gigabyte."""
    with files.open_plain(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise too_large(str(path), f"larger than {max_bytes} bytes")
        raw = bytearray(size)
        if file.readinto(raw) != size:
            raise files.unreadable(path, "the file shrank while it was read")
    return raw
