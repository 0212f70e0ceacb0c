"""Reads this project's own JSON of finished runs: for any harness that has no reader here. Pure.

    {"format": "eval-token-issuer/run/v1", "runs": [{"metrics": [{"metric_id": "acc", "value": 0.5}], ...}]}

A run has the members of run claims, each of which may be missing and is then supplied; beside them what a framework's
own file would tell a reader: which score a number is, of how many samples, whether of all, and the details. The types
here are the format (`plain_schema.py` makes the JSON Schema of them), unknown members are refused, and the file is
believed, as a framework's log is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from issuer.adapters.evidence import Octets, artifact
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Answer, Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, Refused, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON, MAX_EXACT_INTEGER, pointer_to
from issuer.results.details import Details, read_details

FORMAT = "eval-token-issuer/run/v1"
MAX_BYTES = 8 * 2**20
MAX_DEPTH = 24
MAX_RUNS = 2000

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_EXACT_INTEGER)]


class PlainMetric(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number to claim, and which of the harness's scores it is."""

    metric_id: _Text
    value: int | float
    slice: _Text | UnsetType = UNSET
    value_type: Literal["float", "int", "percentage", "rank"] | UnsetType = UNSET
    sample_size: _Count | UnsetType = UNSET
    scorer: _Text | UnsetType = UNSET
    reducer: _Text | UnsetType = UNSET
    epochs: _Count | UnsetType = UNSET
    split: _Text | UnsetType = UNSET


class PlainFramework(Struct, frozen=True, forbid_unknown_fields=True):
    """The harness that made the run, and its command line."""

    name: _Text | UnsetType = UNSET
    version: _Text | UnsetType = UNSET
    command: _Text | UnsetType = UNSET


class PlainCompleteness(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the numbers are of the whole benchmark."""

    answer: Answer
    reason: _Text | UnsetType = UNSET


class PlainRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One finished run: one model, one benchmark, one task."""

    metrics: Annotated[tuple[PlainMetric, ...], Meta(min_length=1, max_length=256)]
    completeness: PlainCompleteness
    framework: PlainFramework = PlainFramework()
    model_repo: _Text | UnsetType = UNSET
    model_revision: _Text | UnsetType = UNSET
    benchmark_repo: _Text | UnsetType = UNSET
    benchmark_revision: _Text | UnsetType = UNSET
    task_id: _Text | UnsetType = UNSET
    task: _Text | UnsetType = UNSET
    mock: _Text | UnsetType = UNSET
    details: Details | UnsetType = UNSET


class PlainFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of finished runs."""

    format: Literal["eval-token-issuer/run/v1"]
    runs: Annotated[tuple[PlainRun, ...], Meta(min_length=1, max_length=MAX_RUNS)]
    schema: str | UnsetType = field(name="$schema", default=UNSET)


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read a file of runs, in its order; `name` is what it is called in errors and in `details.artifacts`.

    Raises InputError: `file.*` of the strict reader, `file.schema` for a member that is missing, unknown or of the
    wrong type, `file.rule` for an incomplete run without its reason, `details.invalid`.
    """
    with reading(name):
        tree = strict_json.loads(bytes(raw), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
        file = strict_json.convert(tree, PlainFile)
    written: Any = tree
    evidence = artifact(raw, name)
    return tuple(_run(run, written["runs"][at], f"/runs/{at}", evidence, name) for at, run in enumerate(file.runs))


def _run(run: PlainRun, written: Mapping[str, JSON], place: str, evidence: dict[str, JSON], name: str) -> Run:
    framework = run.framework
    partial, unknown = _completeness(run.completeness, place, name)
    details = _details(written.get("details", {}), place, name)
    notes = details.pop("notes", None)
    given = details.get("artifacts", [])
    task = run.task or run.task_id or ""
    words = details.get("run", {})
    return Run(
        name=name,
        task=task,
        framework_name=_said(framework.name, f"{place}/framework/name"),
        framework_version=_said(framework.version, f"{place}/framework/version"),
        command=_said(framework.command, f"{place}/framework/command"),
        model_repo=_said(run.model_repo, f"{place}/model_repo"),
        model_revision=_said(run.model_revision, f"{place}/model_revision"),
        benchmark_repo=_said(run.benchmark_repo, f"{place}/benchmark_repo"),
        benchmark_revision=_said(run.benchmark_revision, f"{place}/benchmark_revision"),
        task_id=_said(run.task_id or run.task, f"{place}/{'task_id' if run.task_id else 'task'}"),
        mock=_said(run.mock, f"{place}/mock"),
        partial=partial,
        unknown=unknown,
        remarks=(notes,) if isinstance(notes, str) else (),
        scores=tuple(_scores(run, place)),
        all_chosen=True,
        details={
            **details,
            "artifacts": [*(given if isinstance(given, list) else [given]), evidence],
            "run": {**({"task": task} if task else {}), **(words if isinstance(words, dict) else {})},
        },
    )


def _said(text: str | UnsetType, pointer: str) -> Said | None:
    return Said(text, pointer) if text else None


def _details(written: JSON, place: str, name: str) -> dict[str, JSON]:
    try:
        return read_details(written, f"{place}/details")
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, fault.detail, Place(name), fault.pointer) from None


def _completeness(said: PlainCompleteness, place: str, name: str) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Return why the run is not whole, and why nobody knows; nothing where it is."""
    pointer = f"{place}/completeness"
    if said.answer == "full":
        if said.reason:
            raise InputError(Code.FILE_RULE, "is for an answer other than full", Place(name), f"{pointer}/reason")
        return (), ()
    if not said.reason:
        rule = "needs `reason`: which samples are missing, or why nobody knows"
        raise InputError(Code.FILE_RULE, rule, Place(name), pointer)
    fault = Fault(Code.FILE_RULE, f"{pointer}/reason", said.reason)
    return ((fault,), ()) if said.answer == "partial" else ((), (fault,))


def _scores(run: PlainRun, place: str) -> Iterator[Score]:
    for at, metric in enumerate(run.metrics):
        yield Score(
            scorer=metric.scorer or "",
            reducer=metric.reducer or "",
            metric=metric.metric_id,
            slice=metric.slice or "",
            value_type=metric.value_type or "",
            value=metric.value,
            pointer=f"{pointer_to(f'{place}/metrics', at)}/value",
            samples=metric.sample_size or None,
            epochs=metric.epochs or None,
            split=metric.split or "",
        )
