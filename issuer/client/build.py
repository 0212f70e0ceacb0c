"""Finished runs become result files without tokens, and the claims with which their tokens are requested.

    options = BuildOptions(Supplied(model_repo="acme/open-model", command="inspect eval ..."))
    results = build_results(read_all("logs/"), Path("out"), options)
    write_results(results)

Nothing is invented: what a run does not say is supplied, and must not contradict it. Every run is looked at, whatever
is wrong with another one; nothing is written while one is bad, unless its caller leaves it out.
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
from issuer.results.benchmark import Benchmark, demand_defined
from issuer.results.details import read_details
from issuer.results.entry import Profile, content_digest, read_entries, result_file_name, target_entry, write_entry

_LOCK_S = 30.0  # jobs that build into one place take turns
_YAML = frozenset({".yaml", ".yml"})
_NUMBER = re.compile(r"([0-9]{4,9})-")  # how the file of a result's claims begins


class BuildOptions(Struct, frozen=True):
    """What the owner of runs supplies, for all of them and by a mapping file for each; and which runs are taken.
    `allow_mock` names the mock models whose runs are taken, `allow_partial` takes limited runs, and those not known to
    be whole. Entries are written in the `profile`; `both` and `hub` need the `benchmark`, which must define what is
    built, and is for runs of one. `reproduces` is the content digest of the result that the one run reproduces."""

    supplied: Supplied = Supplied()
    mapping: RunMapping | None = None
    allow_mock: frozenset[str] = frozenset()
    allow_partial: bool = False
    profile: Profile = "target"
    benchmark: Benchmark | None = None
    reproduces: str = ""

    def claims(self, run: Run) -> Built:
        """Bring together what the run says and what its owner says. Raises InputError."""
        supplied = self.supplied
        if self.mapping is not None:
            supplied = together(supplied, self.mapping.supplied(run), Place(self.mapping.document.name))
        built = run.claims(supplied, allow_mock=self.allow_mock, allow_partial=self.allow_partial)
        return built.reproducing(self.reproduces) if self.reproduces else built


class Result(Struct, frozen=True):
    """One run's result: its entry without a token, as the target form and as it is written, and where it goes."""

    run: Run
    built: Built
    entry: dict[str, JSON]
    written: str
    file: Path
    claims_file: Path

    @property
    def request(self) -> bytes:
        """The body of its token request (contract section 5), as its claims file has it."""
        return jcs.canonical(request_of(self.built)) + b"\n"


class Unbuilt(Struct, frozen=True):
    """A run of which no result can be built, and everything that was found."""

    run: Run
    error: InputError


def build_results(
    runs: Sequence[Run], out: Path, options: BuildOptions | None = None, *, tasks: Sequence[str] = ()
) -> tuple[Result, ...]:
    """Build the results of runs, or of those of `tasks` (the runs' words for them). Nothing is written yet. `out` is a
    result file (`*.yaml`), or a folder for `MODEL/.eval_results/BENCHMARK.yaml`. The claims go to a folder `claims` in
    it, or beside the file. Raises InputError with what is wrong with each run that cannot be used, one result twice
    among it, and for results that do not belong in one file."""
    results, unbuilt = build_each(runs, out, options, tasks=tasks)
    if unbuilt:
        raise InputError.of([each.error for each in unbuilt])
    return results


def build_each(
    runs: Sequence[Run], out: Path, options: BuildOptions | None = None, *, tasks: Sequence[str] = ()
) -> tuple[tuple[Result, ...], tuple[Unbuilt, ...]]:
    """Do the same, and return beside the results the runs that have none. Raises InputError for what is nobody's run:
    the mapping file, and results that do not belong in one file."""
    options = options or BuildOptions()
    if options.mapping is not None:
        options.mapping.demand_all_fit(runs)
    chosen = [run for run in runs if not tasks or run.task in tasks]
    if options.reproduces and len(chosen) > 1:
        rule = f"--reproduces is for one run, and these are {len(chosen)}: say which (--task)"
        raise InputError(Code.FILE_RULE, rule, Place(chosen[0].name))
    results: dict[tuple[Path, str], Result] = {}
    unbuilt = []
    for number, run in enumerate(chosen, 1):
        try:
            result = _build(run, options, out, number)
            key = result.file, content_digest(result.entry)
            if key in results:
                rule = f"this result is given twice, the other time by {results[key].run.name}"
                unbuilt.append(Unbuilt(run, InputError(Code.FILE_RULE, rule, Place(run.name))))
            results.setdefault(key, result)
        except InputError as error:
            unbuilt.append(Unbuilt(run, error))
    _demand_one_subject(list(results.values()), out, options)
    return tuple(results.values()), tuple(unbuilt)


def write_results(results: Sequence[Result], *, update: bool = False) -> tuple[Result, ...]:
    """Write the result files, and for each result its claims; return the results that are new.

    Each file is put in its place in one step, by one process after the other. Without `update` nothing may be there.
    With it, what is there stays: a result that has its entry, signed or not, is not new; others are added, and their
    claims under free numbers. Raises InputError, before anything is written, where a file is there or would not be
    readable as a result file; OSError as the system has it.
    """
    if not update:
        _demand_absent(path for each in results for path in (each.file, each.claims_file))
    before = _texts(results)
    texts, new = _added(results, before)
    if not new:
        return ()
    with _turn(new):
        if not update:
            _demand_absent(path for each in results for path in (each.file, each.claims_file))
        if (now := _texts(results)) != before:  # another process has written meanwhile
            texts, new = _added(results, now)
        new = _renumbered(new) if update else new
        # The claims first: where a crash comes between, an update finds the entry missing, and these good.
        claims = {each.claims_file: each.request for each in new}
        for path, raw in {**claims, **{path: text.encode() for path, text in texts.items()}}.items():
            files.make_folder(path.parent, mode=0o777, follow=False)
            files.replace(path, raw, mode=None, durable=False, follow=False)
    return tuple(new)


@contextlib.contextmanager
def _turn(results: Iterable[Result]) -> Iterator[None]:
    """Keep waiting who builds into the same place: that has one folder of claims, whatever its files are."""
    with contextlib.ExitStack() as locks:
        for folder in sorted({each.claims_file.parent for each in results}):
            files.make_folder(folder, mode=0o777, follow=False)
            locks.enter_context(files.folder_locked(folder, wait_s=_LOCK_S))
        yield


def _build(run: Run, options: BuildOptions, out: Path, number: int) -> Result:
    built = options.claims(run)
    demand_defined(options.benchmark, built.claims, Place(run.name))
    try:
        details = read_details(built.details)
        entry = target_entry(built.claims, details)
        primary = options.benchmark.primary if options.benchmark else None
        written = write_entry(entry, profile=options.profile, primary=primary)
        read_entries(written.encode(), run.name)  # what no reader takes is this run's fault, not its file's
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, f"details{fault.pointer}: {fault.detail}", Place(run.name)) from None
    except FormatError as error:
        raise error.located(Place(run.name)) from None
    except InputError as error:  # its place is in a text that is nowhere
        raise InputError(error.code, f"its entry: {error.detail}", Place(run.name)) from None
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", built.claims.task_id).strip(".")[:64]
    claims = f"{number:04}-{word}.json"
    if out.suffix in _YAML:
        return Result(run, built, entry, written, out, out.with_suffix(".claims") / claims)
    file = out / built.claims.model_repo / result_file_name(built.claims.benchmark_repo)
    return Result(run, built, entry, written, file, out / "claims" / claims)


def _demand_one_subject(results: Sequence[Result], out: Path, options: BuildOptions) -> None:
    members = ["model_repo", "benchmark_repo"] if out.suffix in _YAML else []
    for member in members:
        if len(names := {getattr(each.built.claims, member) for each in results}) > 1:
            rule = f"one file is of one {member}, not of {', '.join(sorted(names)[:5])}: give a folder"
            raise InputError(Code.FILE_RULE, rule, Place(str(out)))
    benchmarks = {each.built.claims.benchmark_repo for each in results}
    if options.benchmark is not None and len(benchmarks) > 1:
        rule = f"--benchmark is for runs of one benchmark, not of {', '.join(sorted(benchmarks)[:5])}"
        raise InputError(Code.FILE_RULE, rule, Place(str(out)))


# -- writing ----------------------------------------------------------------------------------------------------------


def _texts(results: Iterable[Result]) -> dict[Path, str]:
    """Read the files that results go to; "" for one that is not there. Raises InputError."""
    return {path: read_text(path) for path in dict.fromkeys(each.file for each in results)}


def _added(results: Iterable[Result], there: dict[Path, str]) -> tuple[dict[Path, str], list[Result]]:
    """Add the entries to their files, as they are `there`, which are read back as their reader will; return the files
    that change, and the results that are new in them. Raises InputError."""
    by_file: dict[Path, list[Result]] = {}
    for each in results:
        by_file.setdefault(each.file, []).append(each)
    texts, new = {}, []
    for path, group in by_file.items():
        before = there[path]
        lacking = edit.lacks(before, "".join(each.written for each in group), str(path))
        added = [each for each, lacks in zip(group, lacking, strict=True) if lacks]
        if added:
            texts[path] = edit.extend(before, "".join(each.written for each in added), str(path))
            new += added
    return texts, new


def _demand_absent(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            rule = "is there already: --update adds what is new to it; or remove it, or choose another OUT"
            raise InputError(Code.FILE_RULE, rule, Place(str(path)))


def _renumbered(results: Iterable[Result]) -> list[Result]:
    """Give the claims of each result the next number that is free, where another run's are under its own."""
    taken: dict[Path, set[int]] = {}
    placed = []
    for each in results:
        folder, name = each.claims_file.parent, each.claims_file.name
        if folder not in taken:
            taken[folder] = set(_numbers(folder))
        number, word = int(name.partition("-")[0]), name.partition("-")[2]
        if number in taken[folder] and not _has_claims(each):
            number = max(taken[folder]) + 1
        taken[folder].add(number)
        placed.append(replace(each, claims_file=folder / f"{number:04}-{word}"))
    return placed


def _has_claims(result: Result) -> bool:
    """Say whether the claims of this result are in their place already."""
    path, request = result.claims_file, result.request
    return path.is_file() and files.read(path, MAX_BYTES, follow=False) == request


def _numbers(folder: Path) -> Iterator[int]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _NUMBER.match(path.name):
            yield int(match[1])
