"""The build of result files without tokens from finished runs, and of the claims for their token requests.

    options = BuildOptions(Supplied(model_repo="acme/open-model", command="inspect eval ..."))
    results = build_results(read_all("logs/"), Path("out"), options)
    write_results(results)

The owner supplies values that a run lacks; they must not contradict the run. Every run is checked, even after errors in
others. No file is written until all runs are good, or the caller leaves out the bad ones.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from issuer.adapters import Built, Run, Supplied
from issuer.adapters.mapping import Mapping as RunMapping
from issuer.adapters.mapping import together
from issuer.client.files import read_text
from issuer.client.tokens import request_of
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.io import files
from issuer.results import edit
from issuer.results.benchmark import Benchmark, demand_defined, named_primary
from issuer.results.details import read_details
from issuer.results.entry import (
    Profile,
    content_digest,
    default_profile,
    read_entries,
    result_file_name,
    target_entry,
    write_entry,
)

_LOCK_S = 30.0  # jobs that build into the same place take turns
_YAML = frozenset({".yaml", ".yml"})
_NUMBER = re.compile(r"([0-9]{4,9})-")  # the names of claims files begin with a number


class BuildOptions(Struct, frozen=True):
    """The values that the owner supplies, for all runs and by a mapping file for each, and the permitted runs.

    `allow_mock` has the names of permitted mock models. `allow_partial` permits runs that are partial or not known to
    be full. Entries are written in the `profile`, by default `default_profile`. `both` and `hub` need the primary
    metric: the one of the `benchmark`, the stated `primary`, or the only one. A `benchmark` must define the built tasks
    and metrics; all runs must then be of it. `reproduces` is the content digest of the result that the run reproduces.
    """

    supplied: Supplied = Supplied()
    mapping: RunMapping | None = None
    allow_mock: frozenset[str] = frozenset()
    allow_partial: bool = False
    profile: Profile | None = None
    benchmark: Benchmark | None = None
    primary: str | None = None
    reproduces: str = ""

    def claims(self, run: Run) -> Built:
        """Return the claims of a run with the supplied values. Raises InputError."""
        supplied = self.supplied
        if self.mapping is not None:
            supplied = together(supplied, self.mapping.supplied(run), Place(self.mapping.document.name))
        built = run.claims(supplied, allow_mock=self.allow_mock, allow_partial=self.allow_partial)
        return built.reproducing(self.reproduces) if self.reproduces else built


class Result(Struct, frozen=True):
    """One run's result: its entry without a token, in the target form and as written, and the paths of its files. If
    nobody chose the profile and today's readers cannot read the entry, `unread` is the reason."""

    run: Run
    built: Built
    entry: dict[str, JSON]
    written: str
    file: Path
    claims_file: Path
    unread: str = ""

    @property
    def request(self) -> bytes:
        """The body of its token request (contract section 5), as its claims file has it."""
        return jcs.canonical(request_of(self.built)) + b"\n"


class Unbuilt(Struct, frozen=True):
    """A run without a result, and all its errors."""

    run: Run
    error: InputError


def build_results(
    runs: Sequence[Run], out: Path, options: BuildOptions | None = None, *, tasks: Sequence[str] = ()
) -> tuple[Result, ...]:
    """Build the results of all runs, or of the runs of `tasks` (in the runs' words), without writing them. `out` is a
    result file (`*.yaml`), or a folder for `MODEL/.eval_results/BENCHMARK.yaml`. The claims go to a folder `claims` in
    it, or beside the file. Raises InputError with the errors of all runs, also for a result that occurs twice, and for
    results that do not belong in one file."""
    results, unbuilt = build_each(runs, out, options, tasks=tasks)
    if unbuilt:
        raise InputError.of([run.error for run in unbuilt])
    return results


def build_each(
    runs: Sequence[Run], out: Path, options: BuildOptions | None = None, *, tasks: Sequence[str] = ()
) -> tuple[tuple[Result, ...], tuple[Unbuilt, ...]]:
    """Build like `build_results`, but return the runs with errors beside the results. Raises InputError only for errors
    outside the runs: in the mapping file, and for results that do not belong in one file."""
    options = options or BuildOptions()
    if options.mapping is not None:
        options.mapping.demand_all_fit(runs)
    chosen = [run for run in runs if not tasks or run.task in tasks]
    if options.reproduces and len(chosen) > 1:
        rule = f"--reproduces is for one run, and these are {len(chosen)}: choose one with --task"
        raise InputError(Code.FILE_RULE, rule, Place(chosen[0].name))
    results: dict[tuple[Path, str], Result] = {}
    unbuilt = []
    for number, run in enumerate(chosen, 1):
        try:
            result = _build(run, options, out, number)
            key = result.file, content_digest(result.entry)
            if key in results:
                rule = f"two runs give this result; the other is {results[key].run.name}"
                unbuilt.append(Unbuilt(run, InputError(Code.FILE_RULE, rule, Place(run.name))))
            results.setdefault(key, result)
        except InputError as error:
            unbuilt.append(Unbuilt(run, error))
    _demand_one_subject(list(results.values()), out, options)
    return tuple(results.values()), tuple(unbuilt)


def write_results(results: Sequence[Result], *, update: bool = False) -> tuple[Result, ...]:
    """Write the result files, and the claims of each result; return the results that are new.

    Each file is replaced in one step, and processes take turns. Without `update`, no file may exist. With it, existing
    entries stay: a result with an entry, signed or not, is not new. Other results are added, and their claims get free
    numbers. Raises InputError, before any write, if a file exists or would not be readable as a result file; OSError of
    the system.
    """
    if not update:
        _demand_absent(results)
    before = _texts(results)
    texts, new = _added(results, before)
    if not new:
        return ()
    with _locked(new):
        if not update:
            _demand_absent(results)
        if (now := _texts(results)) != before:  # another process wrote in between
            texts, new = _added(results, now)
        new = _renumbered(new) if update else new
        # The claims first: after a crash in between, an update finds no entry, and adds it to the existing claims.
        claims = {result.claims_file: result.request for result in new}
        for path, raw in {**claims, **{path: text.encode() for path, text in texts.items()}}.items():
            files.make_folder(path.parent, mode=0o777, follow=False)
            files.replace(path, raw, mode=None, durable=False, follow=False)
    return tuple(new)


@contextlib.contextmanager
def _locked(results: Iterable[Result]) -> Iterator[None]:
    """Lock the folder of claims, which all builds into the same place share, until the block ends."""
    with contextlib.ExitStack() as locks:
        for folder in sorted({result.claims_file.parent for result in results}):
            files.make_folder(folder, mode=0o777, follow=False)
            locks.enter_context(files.folder_locked(folder, wait_s=_LOCK_S))
        yield


def _build(run: Run, options: BuildOptions, out: Path, number: int) -> Result:
    built = options.claims(run)
    demand_defined(options.benchmark, built.claims, Place(run.name))
    primary = named_primary(options.benchmark, options.primary, Place(run.name))
    try:
        details = read_details(built.details)
        entry = target_entry(built.claims, details)
        default, why = default_profile(entry, primary)
        unread = why if options.profile is None and default == "target" else ""
        written = write_entry(entry, profile=options.profile or default, primary=primary)
        read_entries(written.encode(), run.name)  # an unreadable entry is an error of this run, not of its file
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, f"details{fault.pointer}: {fault.detail}", Place(run.name)) from None
    except FormatError as error:
        raise error.located(Place(run.name)) from None
    except InputError as error:  # its place is in the built text, which is in no file
        raise InputError(error.code, f"its entry: {error.detail}", Place(run.name)) from None
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", built.claims.task_id).strip(".")[:64]
    claims = f"{number:04}-{word}.json"
    if out.suffix in _YAML:
        return Result(run, built, entry, written, out, out.with_suffix(".claims") / claims, unread)
    file = out / built.claims.model_repo / result_file_name(built.claims.benchmark_repo)
    return Result(run, built, entry, written, file, out / "claims" / claims, unread)


def _demand_one_subject(results: Sequence[Result], out: Path, options: BuildOptions) -> None:
    for member in ("model_repo", "benchmark_repo") if out.suffix in _YAML else ():
        if len(names := {getattr(result.built.claims, member) for result in results}) > 1:
            rule = f"a file is for one {member}, not for {', '.join(sorted(names)[:5])}: give a folder"
            raise InputError(Code.FILE_RULE, rule, Place(str(out)))
    benchmarks = {result.built.claims.benchmark_repo for result in results}
    if options.benchmark is not None and len(benchmarks) > 1:
        rule = f"--benchmark is for runs of one benchmark, not of {', '.join(sorted(benchmarks)[:5])}"
        raise InputError(Code.FILE_RULE, rule, Place(str(out)))


# -- writing ----------------------------------------------------------------------------------------------------------


def _texts(results: Iterable[Result]) -> dict[Path, str]:
    """Read the results' files; "" for a file that does not exist. Raises InputError."""
    return {path: read_text(path) for path in dict.fromkeys(result.file for result in results)}


def _added(results: Iterable[Result], before: dict[Path, str]) -> tuple[dict[Path, str], list[Result]]:
    """Return the changed texts of the results' files, and the results that are new in them. Raises InputError, also for
    a text that its reader would refuse."""
    by_file: dict[Path, list[Result]] = {}
    for result in results:
        by_file.setdefault(result.file, []).append(result)
    texts, new = {}, []
    for path, group in by_file.items():
        lacking = edit.lacks(before[path], "".join(result.written for result in group), str(path))
        if added := [result for result, lacks in zip(group, lacking, strict=True) if lacks]:
            texts[path] = edit.extend(before[path], "".join(result.written for result in added), str(path))
            new += added
    return texts, new


def _demand_absent(results: Iterable[Result]) -> None:
    for path in (path for result in results for path in (result.file, result.claims_file)):
        if path.exists():
            rule = "exists already: --update adds new results to it; or remove it, or choose another OUT"
            raise InputError(Code.FILE_RULE, rule, Place(str(path)))


def _renumbered(results: Iterable[Result]) -> list[Result]:
    """Return the results with the next free number for claims, if another run's claims have their number."""
    taken: dict[Path, set[int]] = {}
    renumbered = []
    for result in results:
        path, folder = result.claims_file, result.claims_file.parent
        if folder not in taken:
            taken[folder] = set(_numbers(folder))
        first, _, word = path.name.partition("-")
        number = int(first)
        is_written = path.is_file() and files.read(path, MAX_BYTES, follow=False) == result.request
        if number in taken[folder] and not is_written:
            number = max(taken[folder]) + 1
        taken[folder].add(number)
        renumbered.append(replace(result, claims_file=folder / f"{number:04}-{word}"))
    return renumbered


def _numbers(folder: Path) -> Iterator[int]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _NUMBER.match(path.name):
            yield int(match[1])
