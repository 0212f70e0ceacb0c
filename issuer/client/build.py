"""Finished runs become result files without tokens, and the claims with which their tokens are requested.

    options = BuildOptions(Supplied(model_repo="acme/open-model", command="inspect eval ..."))
    results = build_results(read_all("logs/"), Path("out"), options)
    write_results(results)

Nothing is invented: what a run does not say is supplied, and must not contradict it. One bad run stops all of them, and
no existing file is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from issuer.adapters import Built, Run, Supplied
from issuer.adapters.mapping import Mapping as RunMapping
from issuer.adapters.mapping import together
from issuer.client.request import request_of
from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.files import create, make_folder
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.results.details import read_details
from issuer.results.entry import content_digest, read_entries, result_file_name, target_entry, write_entry

_YAML = frozenset({".yaml", ".yml"})


class BuildOptions(Struct, frozen=True):
    """What the owner of runs supplies, for all of them and by a mapping file for each; and which runs are taken.

    `allow_mock` names the mock models whose runs are taken, `allow_partial` takes limited runs.
    """

    supplied: Supplied = Supplied()
    mapping: RunMapping | None = None
    allow_mock: frozenset[str] = frozenset()
    allow_partial: bool = False

    def claims(self, run: Run) -> Built:
        """Bring together what the run says and what its owner says. Raises InputError."""
        supplied = self.supplied
        if self.mapping is not None:
            supplied = together(supplied, self.mapping.supplied(run), Place(self.mapping.document.name))
        return run.claims(supplied, allow_mock=self.allow_mock, allow_partial=self.allow_partial)


class Result(Struct, frozen=True):
    """One run's result: its entry, without a token, and where the entry and the claims go."""

    run: Run
    built: Built
    entry: dict[str, JSON]
    file: Path
    claims_file: Path


def build_results(
    runs: Sequence[Run], out: Path, options: BuildOptions | None = None, *, tasks: Sequence[str] = ()
) -> tuple[Result, ...]:
    """Build the results of runs, or of those of `tasks` (the runs' words for them). Nothing is written yet.

    `out` is a result file (`*.yaml`), or a folder for `MODEL/.eval_results/BENCHMARK.yaml`. The claims go to a folder
    `claims` in it, or beside the file. Raises InputError for the first run that cannot be used, for one result twice,
    and for results that do not belong in one file.
    """
    options = options or BuildOptions()
    if options.mapping is not None:
        options.mapping.demand_all_fit(runs)
    chosen = [run for run in runs if not tasks or run.task in tasks]
    results = tuple(_build(run, options.claims(run), out, number) for number, run in enumerate(chosen, 1))
    _demand_no_result_twice(results)
    if out.suffix in _YAML:
        _demand_one_subject(results, out)
    return results


def write_results(results: Sequence[Result]) -> None:
    """Write the result files, and for each result the body of its token request (contract section 5).

    Raises InputError, before anything is written, where one of the files is there already or would not be readable as a
    result file; OSError as the system has it.
    """
    files = _result_files(results)
    files |= {each.claims_file: jcs.canonical(request_of(each.built)) + b"\n" for each in results}
    for path in files:
        if path.exists():
            rule = "is there already: a build makes new files only; remove it, or choose another OUT"
            raise InputError(Code.FILE_RULE, rule, Place(str(path)))
    for path, raw in files.items():
        make_folder(path.parent, mode=0o777, follow=False)
        create(path, raw, mode=None, durable=False, follow=False)


def _build(run: Run, built: Built, out: Path, number: int) -> Result:
    try:
        details = read_details(built.details)
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, f"details{fault.pointer}: {fault.detail}", Place(run.name)) from None
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", built.claims.task_id).strip(".")[:64]
    claims = f"{number:04}-{word}.json"
    file, claims_file = out, out.with_suffix(".claims") / claims
    if out.suffix not in _YAML:
        file = out / built.claims.model_repo / result_file_name(built.claims.benchmark_repo)
        claims_file = out / "claims" / claims
    return Result(run, built, target_entry(built.claims, details), file, claims_file)


def _demand_no_result_twice(results: Sequence[Result]) -> None:
    seen: set[tuple[Path, str]] = set()
    for each in results:
        if (key := (each.file, content_digest(each.entry))) in seen:
            raise InputError(Code.FILE_RULE, "this result is given twice", Place(each.run.name))
        seen.add(key)


def _demand_one_subject(results: Sequence[Result], out: Path) -> None:
    for member in ("model_repo", "benchmark_repo"):
        if len(names := {getattr(each.built.claims, member) for each in results}) > 1:
            rule = f"one file is of one {member}, not of {', '.join(sorted(names)[:5])}: give a folder"
            raise InputError(Code.FILE_RULE, rule, Place(str(out)))


def _result_files(results: Sequence[Result]) -> dict[Path, bytes]:
    """Write the entries of each file, and read them back as their reader will. Raises InputError."""
    files: dict[Path, bytes] = {}
    for each in results:
        files[each.file] = files.get(each.file, b"") + write_entry(each.entry).encode()
    for path, raw in files.items():
        read_entries(raw, str(path))
    return files
