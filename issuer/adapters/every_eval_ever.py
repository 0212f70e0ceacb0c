"""Reads a record of Every Eval Ever (schema 0.2.0 to 0.3.0) into one `Run` an evaluation. Pure.

A record is second-hand. Its `source_type` decides: `documentation` is a number that somebody copied from a page, and
never becomes claims. Of a converted run it has:

* no revisions, unless they stand under `additional_details`, with the names of run claims and as full commits, as
  `issuer results export` writes them; so does the command. The `sha` there is not taken: for a PEFT run it is the base
  model's.
* limits only by accident: a run is full where `samples_number` and `num_samples` agree, and partial where fewer were
  used. It is not known where one is missing, or where more were used: converters count a sample once for each epoch.
* renamed metrics (`exact_match` becomes `exact-match`): `metric_name` is taken, or `metric_id` in its absence.
* `model_repo`: `model_info.id` where an inference engine loaded it; `anthropic/claude-...` is an API's, not a Hub name.
* `benchmark_repo`: `hf_repo`. `framework`: `eval_library`; of Inspect AI's list of packages `inspect_ai`'s version.
* no names of reducers: results of one name are told apart by their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from issuer.adapters.evidence import Octets, artifact, broken, measured, read_json, said, words
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Score, shown
from issuer.codes import Code
from issuer.errors import Fault
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.times import show_time
from issuer.results.claims import REVISION, is_repo

# The converters' names of the frameworks, and the names in claims.
FRAMEWORKS = {
    "helm": "helm", "inspect": "inspect-ai", "inspect_ai": "inspect-ai", "lm_eval": "lm-eval",
    "lm-evaluation-harness": "lm-eval",
}  # fmt: skip
HUB_ENGINES = frozenset({"sglang", "transformers", "vllm"})
MOCK_OWNERS = frozenset({"dummy", "mockllm", "simple"})

_SCHEMA = re.compile(r"0\.2\.[0-9]{1,3}|0\.3\.0")
_SECONDS = re.compile(r"[0-9]{9,11}(?:\.[0-9]{1,9})?")
_MODEL_WORDS = "/model_info/additional_details"
_UNKNOWN = frozenset({"", "unknown"})


class _Source(Struct, frozen=True):
    source_type: str


class _LibraryWords(Struct, frozen=True):
    command: str | None = None


class _Library(Struct, frozen=True):
    name: str
    version: str
    additional_details: _LibraryWords = _LibraryWords()


class _Engine(Struct, frozen=True):
    name: str | None = None
    version: str | None = None


class _ModelWords(Struct, frozen=True):
    model_repo: str | None = None
    model_revision: str | None = None


class _Model(Struct, frozen=True):
    id: str
    additional_details: _ModelWords = _ModelWords()
    inference_engine: _Engine | None = None
    inference_platform: str | None = None


class _DataWords(Struct, frozen=True):
    benchmark_revision: str | None = None
    task_id: str | None = None


class _Data(Struct, frozen=True):
    additional_details: _DataWords = _DataWords()
    hf_repo: str | None = None
    hf_split: str | None = None
    samples_number: int | None = None


class _Judge(Struct, frozen=True):
    model_info: _Model


class _Judges(Struct, frozen=True):
    judges: tuple[_Judge, ...] = ()


class _Metric(Struct, frozen=True):
    metric_id: str | None = None
    metric_name: str | None = None
    llm_scoring: _Judges | None = None


class _Uncertainty(Struct, frozen=True):
    num_samples: int | None = None


class _Details(Struct, frozen=True):
    score: object
    uncertainty: _Uncertainty | None = None


class _Result(Struct, frozen=True):
    evaluation_name: str
    metric_config: _Metric
    score_details: _Details
    source_data: _Data = _Data()
    evaluation_result_id: str | None = None


class _Record(Struct, frozen=True):
    """The members that are read; unknown ones are skipped."""

    schema_version: str
    source_metadata: _Source
    model_info: _Model
    evaluation_results: Annotated[tuple[_Result, ...], Meta(min_length=1, max_length=5000)]
    eval_library: _Library | None = None
    evaluation_timestamp: str | None = None


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one record: a run for each evaluation in it (name and dataset), in the record's order. Raises InputError as
    `read_json`, and `file.rule` for another schema version and for scraped numbers."""
    record = read_json(raw, _Record, name)
    if not _SCHEMA.fullmatch(record.schema_version):
        raise broken(name, "/schema_version", "only records of schema 0.2.0 to 0.3.0 are read")
    if record.source_metadata.source_type != "evaluation_run":
        rule = "a number copied from somewhere, not a run: its source_type must be evaluation_run"
        raise broken(name, "/source_metadata/source_type", rule)
    evaluations: dict[tuple[str, str | None], list[int]] = {}
    for index, result in enumerate(record.evaluation_results):
        evaluations.setdefault((result.evaluation_name, result.source_data.hf_repo), []).append(index)
    evidence = artifact(raw, name)
    return tuple(_run(record, indexes, evidence, name) for indexes in evaluations.values())


def _run(record: _Record, indexes: list[int], evidence: dict[str, JSON], name: str) -> Run:
    first = pointer_to("/evaluation_results", indexes[0])
    result = record.evaluation_results[indexes[0]]
    library = record.eval_library or _Library("", "")
    framework = FRAMEWORKS.get(library.name, library.name)
    task = result.evaluation_name
    task_id = task.rpartition("/")[2] if framework == "inspect-ai" else task
    exported, exported_at = result.source_data.additional_details, f"{first}/source_data/additional_details"
    return Run(
        name=name,
        task=task,
        framework_name=said("" if library.name in _UNKNOWN else framework, "/eval_library/name"),
        framework_version=said(_version(library.version), "/eval_library/version"),
        model_repo=_model_repo(record.model_info),
        model_revision=_commit(record.model_info.additional_details.model_revision, f"{_MODEL_WORDS}/model_revision"),
        benchmark_repo=_benchmark_repo(result.source_data, first),
        benchmark_revision=_commit(exported.benchmark_revision, f"{exported_at}/benchmark_revision"),
        task_id=said(exported.task_id, f"{exported_at}/task_id") or said(task_id, f"{first}/evaluation_name"),
        command=said(library.additional_details.command, "/eval_library/additional_details/command"),
        mock=next(_mocks(record, indexes), None),
        remarks=tuple(_elsewhere(record.model_info)),
        scores=tuple(_score(record, index) for index in indexes),
        details=_details(record, task, evidence),
    )


def _details(record: _Record, task: str, evidence: dict[str, JSON]) -> dict[str, JSON]:
    details: dict[str, JSON] = {"artifacts": [evidence], "run": words({"task": task, "model": record.model_info.id})}
    engine = record.model_info.inference_engine or _Engine()
    if context := words({"inference_engine": engine.name, "inference_engine_version": engine.version}):
        details["runtime_context"] = context
    if date := _date(record.evaluation_timestamp):
        details["date"] = date
    return details


def _version(version: str) -> str:
    """Return the library's version; Inspect AI's converter lists packages: `inspect_ai:0.3.285,inspect_evals:0.3.1`."""
    listed = [part.removeprefix("inspect_ai:") for part in version.split(",") if part.startswith("inspect_ai:")]
    return "" if version in _UNKNOWN else (listed or [version])[0]


def _mocks(record: _Record, indexes: list[int]) -> Iterator[Said]:
    """Yield the mock models: the one that was evaluated, and those that graded it."""
    named = [(record.model_info.id, "/model_info/id")]
    for index in indexes:
        place = f"{pointer_to('/evaluation_results', index)}/metric_config/llm_scoring/judges"
        scoring = record.evaluation_results[index].metric_config.llm_scoring or _Judges()
        named += [
            (judge.model_info.id, f"{pointer_to(place, number)}/model_info/id")
            for number, judge in enumerate(scoring.judges)
        ]
    for model, pointer in named:
        if model.partition("/")[0] in MOCK_OWNERS:
            yield Said(model, pointer)


def _model_repo(model: _Model) -> Said | None:
    engine = (model.inference_engine.name if model.inference_engine else None) or ""
    if engine in HUB_ENGINES and is_repo(model.id):
        return Said(model.id, "/model_info/id")
    exported = model.additional_details.model_repo or ""
    return Said(exported, f"{_MODEL_WORDS}/model_repo") if is_repo(exported) else None


def _elsewhere(model: _Model) -> Iterator[str]:
    """Yield a sentence where the weights may not be those that the model's name stands for."""
    if (platform := model.inference_platform or "") not in _UNKNOWN:
        yield f"The model was reached at {shown(platform)}: which weights were served there, the record does not say."


def _commit(text: str | None, pointer: str) -> Said | None:
    return Said(text, pointer) if text and REVISION.fullmatch(text) else None


def _benchmark_repo(data: _Data, place: str) -> Said | None:
    if data.hf_repo and is_repo(data.hf_repo):
        return Said(data.hf_repo, f"{place}/source_data/hf_repo")
    return None


def _score(record: _Record, index: int) -> Score:
    result = record.evaluation_results[index]
    place = pointer_to("/evaluation_results", index)
    pointer = f"{place}/score_details/score"
    value, fault = measured(result.score_details.score, pointer)
    spelling = result.evaluation_result_id or ""
    there, used = _samples(result)
    return Score(
        scorer=spelling.rpartition(":")[0],
        metric=result.metric_config.metric_name or result.metric_config.metric_id or "",
        spelling=spelling,
        value=value,
        pointer=pointer,
        fault=fault,
        partial=_partial(there, used, place),
        unknown=_unknown(there, used, place),
        samples=used if used is not None and (there is None or used <= there) else None,
        split=result.source_data.hf_split or "",
    )


def _samples(result: _Result) -> tuple[int | None, int | None]:
    """Return how many samples the benchmark has, and how many the score is of; a converter's 0 says neither."""
    uncertainty = result.score_details.uncertainty
    return result.source_data.samples_number, (uncertainty.num_samples if uncertainty else None) or None


def _partial(there: int | None, used: int | None, place: str) -> Fault | None:
    if there is None or used is None or used >= there:
        return None
    pointer = f"{place}/score_details/uncertainty/num_samples"
    return Fault(Code.FILE_RULE, pointer, f"{used} of {there} samples were used")


def _unknown(there: int | None, used: int | None, place: str) -> Fault | None:
    if there is None or used is None:
        rule = f"the record does not say how many samples {'the benchmark has' if there is None else 'were used'}"
        pointer = "source_data/samples_number" if there is None else "score_details/uncertainty/num_samples"
        return Fault(Code.FILE_RULE, f"{place}/{pointer}", rule)
    if used > there:
        rule = f"{used} samples were used of {there}: the record does not say how often each"
        return Fault(Code.FILE_RULE, f"{place}/score_details/uncertainty/num_samples", rule)
    return None


def _date(seconds: str | None) -> str:
    """Return the evaluation's time, Unix seconds as text in the record; never `retrieved_timestamp`."""
    if seconds is None or not _SECONDS.fullmatch(seconds):
        return ""
    return show_time(int(seconds.partition(".")[0]))
