"""Reads the logs of Inspect AI (log format 2), JSON or `.eval`, into a `Run`. Pure; does not import inspect_ai.

Where each claim comes from, and what is never taken for it:

* `model_repo`: `eval.model` under a provider whose model names are Hub names, unless weights were loaded from a path.
  `anthropic/claude-...` looks like a Hub name and is not.
* `model_revision`, `benchmark_revision`: `eval.metadata`, by the convention that a task or `inspect eval --metadata
  model_revision=<commit>` writes them there; also a full commit in `eval.model_args.revision`, which the provider
  loads. Never `eval.revision`: that is the commit of the evaluation's code.
* `benchmark_repo`: `eval.dataset.location` in the shape `owner/name`; not a data file's path, which can have it too.
* `task_id`: `eval.task` without its package (`inspect_evals/arc_easy` is `arc_easy`); never the random `eval.task_id`.
* `framework.version`: `eval.packages.inspect_ai`. No log has the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from issuer.adapters import eval_zip, large_json
from issuer.adapters.evidence import (
    Octets,
    artifact,
    broken,
    is_moment,
    lenient_number,
    measured,
    said,
    words,
)  # fmt: skip
from issuer.adapters.run import Run, Said, Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import pointer_to
from issuer.results.claims import REVISION, is_repo

FRAMEWORK = "inspect-ai"
MAX_BYTES = 512 * 2**20
MAX_HEADER = 8 * 2**20  # what is parsed: all but the samples
MAX_DEPTH = 128  # the deepest of the sample logs is 11; tool calls nest what the tools take
HUB_PROVIDERS = frozenset({"hf", "hf-inference-providers", "sglang", "vllm", "vllm-completions"})
MOCK_PROVIDER = "mockllm"
PASSED_OVER = frozenset({"samples", "reductions"})  # one item a sample each: nearly all of a log

_DATA_FILE = re.compile(r".*\.(?:arrow|csv|gz|jsonl?|parquet|tsv|txt|ya?ml|zip)", re.IGNORECASE)


class _Dataset(Struct, frozen=True):
    location: str | None = None


class _Config(Struct, frozen=True):
    limit: object = None
    sample_id: object = None


class _Revision(Struct, frozen=True):
    dirty: bool | None = None


class _Packages(Struct, frozen=True):
    inspect_ai: str | None = None


class _Metadata(Struct, frozen=True):
    model_revision: str | None = None
    benchmark_revision: str | None = None


class _ModelArgs(Struct, frozen=True):
    model_path: object = None
    revision: object = None


class _Eval(Struct, frozen=True):
    created: str
    task: str
    model: str
    dataset: _Dataset
    config: _Config
    packages: _Packages = _Packages()
    metadata: _Metadata | None = None  # null where a task has none
    model_args: _ModelArgs = _ModelArgs()
    revision: _Revision | None = None


class _Metric(Struct, frozen=True):
    value: object


class _Score(Struct, frozen=True):
    name: str
    metrics: Annotated[dict[str, _Metric], Meta(max_length=256)]
    reducer: str | None = None
    unscored_samples: int | None = None


class _Results(Struct, frozen=True):
    total_samples: int
    completed_samples: int
    scores: Annotated[tuple[_Score, ...], Meta(max_length=256)] = ()
    logged_samples: int | None = None
    early_stopping: object = None


class _Stats(Struct, frozen=True):
    completed_at: str | None = None


class _Log(Struct, frozen=True):
    """The members that are read. A log has many more, and every release adds some: unknown ones are skipped."""

    status: str
    eval: _Eval
    version: Literal[2] = 2
    results: _Results | None = None
    stats: _Stats | None = None
    invalidated: bool = False


def read(raw: Octets, name: str = "") -> Run:
    """Read one log, JSON or `.eval`; `name` is what the file is called in errors and in `details.artifacts`.

    The samples of a JSON log are skipped (a bytearray is scanned in place); of an `.eval` only `header.json` is
    unpacked. Raises InputError: `file.*` of the readers (numbers that are not used may be NaN), `file.schema` for a
    member of the wrong type, `file.rule` for a run that failed, was invalidated or never finished, or whose code had
    uncommitted changes. The log is believed otherwise: it is not signed.
    """
    if len(raw) > MAX_BYTES:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES} bytes", Place(name))
    header = _eval_header(raw, name) if eval_zip.is_zip(raw) else large_json.without(raw, PASSED_OVER, name=name)
    with reading(name):
        tree = strict_json.loads(header, max_bytes=MAX_HEADER, max_depth=MAX_DEPTH, number=lenient_number)
        log = strict_json.convert(tree, _Log)
    results = _finished(log, name)
    task = log.eval.task
    return Run(
        name=name,
        task=task,
        framework_name=Said(FRAMEWORK, ""),
        framework_version=said(log.eval.packages.inspect_ai, "/eval/packages/inspect_ai"),
        model_repo=_model_repo(log.eval),
        model_revision=_model_revision(log.eval, name),
        benchmark_repo=_benchmark_repo(log.eval.dataset),
        benchmark_revision=said(_metadata(log.eval).benchmark_revision, "/eval/metadata/benchmark_revision"),
        task_id=said(task.rpartition("/")[2], "/eval/task"),
        mock=Said(log.eval.model, "/eval/model") if _provider(log.eval) == MOCK_PROVIDER else None,
        partial=tuple(Fault(Code.FILE_RULE, pointer, rule) for pointer, rule in _gaps(log, results)),
        scores=tuple(_scores(results)),
        details={
            "date": _date(log, name),
            "artifacts": [artifact(raw, name)],
            # The run's own words, which claims may rename; samples are counted with every epoch, as the log does.
            "run": words({"num_samples": results.total_samples, "task": task, "model": log.eval.model}),
        },
    )


def _eval_header(raw: Octets, name: str) -> bytes:
    members = eval_zip.directory(raw, name)
    if "header.json" not in members:
        # Inspect AI writes this last, when the run has ended.
        raise broken(name, "", "the archive has no header.json: the run never finished, or it is no .eval log")
    return eval_zip.unpack(raw, members["header.json"], max_bytes=MAX_HEADER, name=name)


def _finished(log: _Log, name: str) -> _Results:
    """Return the results of a run that may be used. Raises InputError(`file.rule`); no flag allows another."""
    if log.status != "success":
        raise broken(name, "/status", "the run did not succeed: its status must be success")
    if log.invalidated:
        raise broken(name, "/invalidated", "the run was invalidated")
    if log.eval.revision and log.eval.revision.dirty:
        rule = "the evaluation's code had uncommitted changes: no commit names what ran"
        raise broken(name, "/eval/revision/dirty", rule)
    if log.results is None:
        raise broken(name, "/results", "the run has no results")
    if log.results.total_samples < 1:
        raise broken(name, "/results/total_samples", "the run has no samples")
    if log.results.completed_samples > log.results.total_samples:
        raise broken(name, "/results/completed_samples", "more samples were completed than there are")
    return log.results


def _gaps(log: _Log, results: _Results) -> Iterator[tuple[str, str]]:
    """Yield the reasons why the run is not one of the whole benchmark."""
    done, total = results.completed_samples, results.total_samples
    if log.eval.config.limit is not None:
        yield "/eval/config/limit", "the run was limited to a part of the benchmark"
    if log.eval.config.sample_id is not None:
        yield "/eval/config/sample_id", "the run was limited to chosen samples"
    if done != total:
        yield "/results/completed_samples", f"{done} of {total} samples were completed"
    if results.logged_samples not in {None, total}:
        yield "/results/logged_samples", f"{results.logged_samples} of {total} samples were resolved"
    if results.early_stopping is not None:
        yield "/results/early_stopping", "the run was stopped early"


def _metadata(spec: _Eval) -> _Metadata:
    return spec.metadata or _Metadata()


def _provider(spec: _Eval) -> str:
    return spec.model.partition("/")[0]


def _model_repo(spec: _Eval) -> Said | None:
    provider, _, model = spec.model.partition("/")
    # With model_path the weights come from there, and the name after hf/ is only a label.
    if provider in HUB_PROVIDERS and spec.model_args.model_path is None and is_repo(model):
        return Said(model, "/eval/model")
    return None


def _model_revision(spec: _Eval, name: str) -> Said | None:
    """Return the revision in the metadata, or else the commit that the provider had to load."""
    noted = said(_metadata(spec).model_revision, "/eval/metadata/model_revision")
    loaded = spec.model_args.revision
    if _provider(spec) not in HUB_PROVIDERS or not isinstance(loaded, str) or not REVISION.fullmatch(loaded):
        return noted
    if noted and noted.text != loaded:
        rule = f"the metadata names another revision than the one that was loaded, {loaded}"
        raise InputError(Code.FILE_RULE, rule, Place(name), noted.pointer)
    return noted or Said(loaded, "/eval/model_args/revision")


def _benchmark_repo(dataset: _Dataset) -> Said | None:
    location = dataset.location or ""
    # json_dataset("data/test.jsonl") is logged as exactly that, which looks like `owner/name`.
    if is_repo(location) and not _DATA_FILE.fullmatch(location):
        return Said(location, "/eval/dataset/location")
    return None


def _scores(results: _Results) -> Iterator[Score]:
    for index, score in enumerate(results.scores):
        place = pointer_to("/results/scores", index)
        partial = None
        if score.unscored_samples:
            rule = f"{score.unscored_samples} samples were not scored by {score.name!r}"
            partial = Fault(Code.FILE_RULE, pointer_to(place, "unscored_samples"), rule)
        # By key, not by the metric's `name`: Inspect AI makes only the keys unique.
        for metric, found in score.metrics.items():
            pointer = pointer_to(pointer_to(pointer_to(place, "metrics"), metric), "value")
            value, fault = measured(found.value, pointer)
            yield Score(
                scorer=score.name,
                reducer=score.reducer or "",
                metric=metric,
                value=value,
                pointer=pointer,
                fault=fault,
                partial=partial,
            )


def _date(log: _Log, name: str) -> str:
    """Return when the run was completed, or else created, as the log spells it."""
    completed_at = log.stats.completed_at if log.stats else None
    date, pointer = (completed_at, "/stats/completed_at") if completed_at else (log.eval.created, "/eval/created")
    if not is_moment(date):
        raise broken(name, pointer, "must be an ISO 8601 time with its offset")
    return date
