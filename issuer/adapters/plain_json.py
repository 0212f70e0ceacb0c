"""The reader of this project's JSON format for finished runs, for harnesses without a reader here. Pure.

    {"format": "eval-token-issuer/run/v1", "runs": [{"metrics": [{"metric_id": "acc", "value": 0.5}], ...}]}

A run has the members of run claims; the owner supplies missing ones. It also has the facts that other readers find in a
framework's file: the score behind each number, sample counts, completeness and details. The types here define the
format, and `schema` makes its JSON Schema from them. Unknown members are refused. The file is believed, like a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from issuer.adapters.evidence import MAX_BYTES, MAX_VALUES, Octets, artifact, broken, reason, said
from issuer.adapters.run import Run
from issuer.adapters.score import CompletenessWord, Score
from issuer.errors import Fault, InputError, Place, Refused, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON, MAX_EXACT_INTEGER, pointer_to
from issuer.results import arguments
from issuer.results.claims import REVISION
from issuer.results.details import Details, read_details

FORMAT = "eval-token-issuer/run/v1"
MAX_DEPTH = 24
MAX_RUNS = 2000

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_EXACT_INTEGER)]


class PlainMetric(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number to claim, and the harness's score that it comes from."""

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
    """Whether the numbers cover the whole benchmark."""

    answer: CompletenessWord
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
    arguments: dict[str, Any] | UnsetType = UNSET
    details: Details | UnsetType = UNSET


class PlainFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file of finished runs."""

    format: Literal["eval-token-issuer/run/v1"]
    runs: Annotated[tuple[PlainRun, ...], Meta(min_length=1, max_length=MAX_RUNS)]
    schema: str | UnsetType = field(name="$schema", default=UNSET)


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read a file of runs, in its order; `name` is the file's name in errors and in `details.artifacts`. Raises
    InputError: `file.*` of the strict reader, `file.schema` for a member that is missing, unknown or of the wrong type,
    `file.rule` for an incomplete run without a reason, `details.invalid`."""
    with reading(name):
        tree = strict_json.loads(bytes(raw), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
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
    if run.arguments and isinstance(words, dict) and "arguments" in words:
        raise broken(name, f"{place}/details/run/arguments", "the run has `arguments`: give one of the two")
    if isinstance(words, dict) and "reproduces" in words:
        rule = "is stated by the party that submits the run, with --reproduces: remove it here"
        raise broken(name, f"{place}/details/run/reproduces", rule)
    return Run(
        name=name,
        task=task,
        framework_name=said(framework.name or "", f"{place}/framework/name"),
        framework_version=said(framework.version or "", f"{place}/framework/version"),
        command=said(framework.command or "", f"{place}/framework/command"),
        model_repo=said(run.model_repo or "", f"{place}/model_repo"),
        model_revision=said(run.model_revision or "", f"{place}/model_revision"),
        benchmark_repo=said(run.benchmark_repo or "", f"{place}/benchmark_repo"),
        benchmark_revision=said(run.benchmark_revision or "", f"{place}/benchmark_revision"),
        task_id=said(run.task_id or run.task or "", f"{place}/{'task_id' if run.task_id else 'task'}"),
        mock=said(run.mock or "", f"{place}/mock"),
        partial=partial,
        unknown=unknown,
        arguments=arguments.bounded(arguments.flat(run.arguments or {})),
        remarks=(notes,) if isinstance(notes, str) else (),
        scores=tuple(_scores(run, place)),
        all_chosen=True,
        details={
            **details,
            "artifacts": [*(given if isinstance(given, list) else [given]), evidence],
            "run": {**({"task": task} if task else {}), **(words if isinstance(words, dict) else {})},
        },
    )


def _details(written: JSON, place: str, name: str) -> dict[str, JSON]:
    try:
        return read_details(written, f"{place}/details")
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, fault.detail, Place(name), fault.pointer) from None


def _completeness(stated: PlainCompleteness, place: str, name: str) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Return why the run is partial, and why its completeness is not known; both are empty for a full run."""
    pointer = f"{place}/completeness"
    if stated.answer == "full":
        if stated.reason:
            raise broken(name, f"{pointer}/reason", "is only for an answer other than full")
        return (), ()
    if not stated.reason:
        raise broken(name, pointer, "needs `reason`: which samples are missing, or why that is not known")
    fault = reason(f"{pointer}/reason", stated.reason)
    return ((fault,), ()) if stated.answer == "partial" else ((), (fault,))


def _scores(run: PlainRun, place: str) -> Iterator[Score]:
    for at, metric in enumerate(run.metrics):
        yield Score(
            scorer=metric.scorer or "", reducer=metric.reducer or "", metric=metric.metric_id, slice=metric.slice or "",
            value_type=metric.value_type or "", value=metric.value,
            pointer=f"{pointer_to(f'{place}/metrics', at)}/value", samples=metric.sample_size or None,
            epochs=metric.epochs or None, split=metric.split or "",
        )  # fmt: skip


DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID = "urn:eval-token-issuer:schema:run:1"
_COMMIT = {"pattern": f"^(?:{REVISION.pattern})$", "description": "A full commit: 40 or 64 lowercase hex characters."}
_REPO = {"pattern": "^[^/]+/[^/]+$", "description": "`owner/name` on the Hub."}

# The parts of each member's schema that its type does not contain.
MEMBERS: dict[str, dict[str, dict[str, Any]]] = {
    "PlainFile": {
        "format": {"description": "This format and its version."},
        "runs": {"description": "The runs, in the order in which their results are written."},
        "$schema": {"description": "For editors; not read."},
    },
    "PlainRun": {
        "metrics": {"description": "The numbers to claim. Two with the same metric id need different slices."},
        "completeness": {"description": "Whether the numbers cover all samples of the task."},
        "framework": {"description": "The harness."},
        "model_repo": {**_REPO, "description": "The model that was measured, `owner/name` on the Hub."},
        "model_revision": _COMMIT,
        "benchmark_repo": {**_REPO, "description": "The benchmark's dataset, `owner/name` on the Hub."},
        "benchmark_revision": _COMMIT,
        "task_id": {"description": "A task id of the benchmark's eval.yaml."},
        "task": {"description": "The harness's name for the task, if it differs."},
        "mock": {"description": "The name of the mock model, if the run used one."},
        "arguments": {
            "description": "Settings that can change a score: shots, generation, task arguments. Nested ones get "
            "dotted names, and long texts, secrets and local paths become digests."
        },
        "details": {"description": "The members of the entry that are not claims."},
    },
    "PlainMetric": {
        "metric_id": {"description": "A metric id of the benchmark's eval.yaml: printable ASCII without space."},
        "value": {"description": "The number, with at most 17 significant digits."},
        "slice": {"description": "The subset of the benchmark that the number covers."},
        "value_type": {"description": "The type of the number; int and rank require an integer."},
        "sample_size": {"description": "The number of samples behind the value, each counted once."},
        "scorer": {"description": "The scorer or filter that made the number."},
        "reducer": {"description": "The function that reduced several epochs or perturbations to one number."},
        "epochs": {"description": "How often each sample was run."},
        "split": {"description": "The benchmark's split that has the samples."},
    },
    "PlainFramework": {
        "name": {"description": "The name of its package, at most 64 printable ASCII characters."},
        "version": {"description": "The version of that package, or the commit of its code."},
        "command": {"description": "The command line of the run, without secrets, at most 4096 characters."},
    },
    "PlainCompleteness": {
        "answer": {"description": "Whether all samples, a part, or an unknown part of the task was run."},
        "reason": {"description": "The missing samples, or why they are not known. Required unless it is full."},
    },
    "Details": {
        "date": {"description": "The time at which the run ended, ISO 8601."},
        "source": {"description": "The place where the result is published."},
        "notes": {"description": "Remarks for readers of the number."},
        "run": {"description": "Facts in the harness's words: model, seed, batch_size, code_revision ..."},
        "artifacts": {"description": "Files of evidence, each with name and sha256; this file is added."},
        "runtime_context": {"description": "The software and hardware of the run."},
        "benchmark_subset": {"description": "The dataset's configuration."},
        "normalization": {"description": "How answers were normalised."},
    },
    "Source": {
        "url": {"description": "Absolute, http or https, without credentials."},
        "name": {"description": "The name of the source."},
        "user": {"description": "The account on the Hub that owns the source."},
        "org": {"description": "The organization on the Hub that owns the source."},
    },
}  # fmt: skip


def schema() -> bytes:
    """Return the schema as indented JSON with a final newline."""
    _, types = msgspec.json.schema_components([PlainFile], ref_template="#/$defs/{name}")
    described = {name: _described(name, part) for name, part in types.items()}
    root = described.pop("PlainFile")
    whole = {"$schema": DIALECT, "$id": SCHEMA_ID, **root, "title": "Finished runs", "$defs": described}
    return msgspec.json.format(msgspec.json.encode(whole)) + b"\n"


def _described(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    members = {member: {**part, **MEMBERS[name][member]} for member, part in schema["properties"].items()}
    return {**schema, "description": " ".join(schema["description"].split()), "properties": members}
