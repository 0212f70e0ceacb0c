"""The comparison of our readers with a framework's own report of the same runs: each value, its count, and so on."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct

from issuer import adapters
from issuer.adapters import Supplied
from issuer.adapters.load import SourceName
from issuer.adapters.run import MEMBERS, Run
from issuer.adapters.score import Score, names
from issuer.errors import InputError
from tests.support import frameworks
from tests.support.runs import ALL

COLUMNS = ("selection", "value", "count", "completeness", "arguments")
WORDS = {True: "full", False: "partial", None: "not known"}


class Difference(Struct, frozen=True):
    """One of COLUMNS in which we and the framework differ, for one number of a kind of run."""

    kind: str
    column: str
    number: str
    ours: object
    theirs: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.number}: {self.column}: ours {self.ours!r}, the framework's {self.theirs!r}"


class Kind(Struct):
    """A kind of run: its runs, the numbers that were compared, and the differences."""

    name: str
    runs: int = 0
    numbers: int = 0
    different: list[Difference] = []


def make(python: object, program: str, folder: Path) -> None:
    """Make a framework's runs in a folder. The program is copied there: a task in a checkout is one of its commit."""
    for file in Path(__file__).parent.glob("*_runs.py"):
        shutil.copy(file, folder)
    frameworks.run(folder, python, folder / program, folder, timeout_s=1800)


def compare(folder: Path, source: SourceName) -> list[Kind]:
    """Compare every run in FOLDER/reports.json. A report has `kind`, `path`, and why the run must be `refused`, or else its
    `task`, `epochs`, `arguments` and `scores`, as the framework has them."""
    kinds: dict[str, Kind] = {}
    for report in json.loads((folder / "reports.json").read_text()):
        kind = kinds.setdefault(report["kind"], Kind(report["kind"]))
        kind.runs += 1
        kind.numbers += len(report.get("scores", ()))
        kind.different += _different(report, folder / report["path"], source)
    return list(kinds.values())


def _different(report: dict[str, Any], path: Path, source: SourceName) -> Iterator[Difference]:
    kind, task = report["kind"], report.get("task", "")
    try:
        run = adapters.read(path, source, task=task)
    except InputError as error:
        if "refused" not in report:
            yield Difference(kind, "selection", task, f"refused at {error.pointer}: {error.detail}", "a finished run")
        return
    if "refused" in report:
        yield Difference(kind, "completeness", task, "a finished run", report["refused"])
        return
    ours, theirs = names(run.scores), report["scores"]
    if [_name(score) for score in ours.values()] != [[one[part] for part in PARTS] for one in theirs]:
        yield Difference(kind, "selection", task, list(ours), [one["metric"] for one in theirs])
        return
    for argument, mine, other in _arguments(run.arguments, dict(dotted(report["arguments"]))):
        yield Difference(kind, "arguments", f"{task} {argument}".strip(), mine, other)
    for (name, score), one in zip(ours.items(), theirs, strict=True):
        for column, mine, other in _facts(run, name, score, one, report):
            if mine != other:
                yield Difference(kind, column, f"{task} {name}".strip(), mine, other)


PARTS = ("scorer", "reducer", "metric", "slice")


def _name(score: Score) -> list[str]:
    return [getattr(score, part) for part in PARTS]


def _facts(
    run: Run, name: str, score: Score, theirs: dict[str, Any], report: dict[str, Any]
) -> Iterator[tuple[str, object, object]]:
    """Yield each column with our fact and the framework's. A number that the framework has as NaN we must not claim."""
    measured = isinstance(theirs["value"], int | float) and math.isfinite(theirs["value"]) and not theirs.get("changed")
    if score.fault or not measured:
        yield "value", score.fault is None, measured
        return
    yield "value", score.value, theirs["value"]
    missing = {member: getattr(ALL, member) or "acme" for member in MEMBERS if getattr(run, member) is None}
    supplied = Supplied(**missing, metrics={"x": name})
    built = run.claims(supplied, allow_mock=True, allow_partial=True)
    (metric,) = built.claims.metrics
    words: Any = built.details["run"]
    yield "arguments", words.get("arguments", {}), dict(run.arguments)
    yield "selection", list(words["selection"].values()), [name]
    yield "count", metric.sample_size or None, theirs["samples"]
    yield "count", words.get("num_samples"), theirs["samples"]
    epochs = theirs.get("epochs", report.get("epochs", 1))
    yield "count", words.get("epochs"), epochs if epochs > 1 else None
    yield "completeness", words["completeness"], WORDS[theirs["whole"]]


def _arguments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the arguments that differ. `sha256:` accepts any digest, where the framework has only its parts."""
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(name), theirs.get(name)
        if mine != other and not (other == "sha256:" and str(mine).startswith(other)):
            yield name, mine, other


def dotted(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the scalars of nested arguments by dotted name (contract, section 3), without nulls and empty ones."""
    if isinstance(value, dict | list):
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from dotted(item, f"{name}.{part}" if name else str(part))
    elif value is not None:
        long = isinstance(value, str) and len(value) > 256
        yield name, f"sha256:{sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()}" if long else value


def table(kinds: Iterable[Kind]) -> Iterator[str]:
    """Yield the lines of a table: for each kind of run, the equal columns (=) and the different ones (≠)."""
    yield f"{'kind of run':44}{'runs':>5}{'numbers':>8}  {'  '.join(COLUMNS)}"
    for kind in kinds:
        wrong = {difference.column for difference in kind.different}
        marks = "  ".join(("≠" if column in wrong else "=").ljust(len(column)) for column in COLUMNS)
        yield f"{kind.name:44}{kind.runs:>5}{kind.numbers:>8}  {marks}".rstrip()
