"""The reader of Every Eval Ever. A record of schema 0.2.0 to 0.3.0 gives one `Run` for each evaluation. Pure.

A record is second-hand. A record with the `source_type` `documentation` has numbers copied from a page; it is refused.
The source of each claim in a converted run:

* revisions and the command: only `additional_details`, under the names of run claims and as full commits, as `issuer
  results export` writes them. The `sha` there is not used: for a PEFT run it is the base model's commit.
* completeness: a run is full if `samples_number` and `num_samples` are equal, and partial if `num_samples` is less. It
  is not known if one is missing, or if `num_samples` is more, as converters count a sample once for each epoch.
* metrics: `metric_name`, or else `metric_id`. Converters rename metrics: `exact_match` becomes `exact-match`.
* `model_repo`: `model_info.id` if an inference engine loaded it. `anthropic/claude-...` is the name of an API's model.
* `benchmark_repo`: `hf_repo`. `framework`: `eval_library`. In a list of packages, `inspect_ai` gives the version.
* reducers: records lack them. Results with the same name are numbered in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from issuer.adapters import evidence
from issuer.adapters.evidence import Octets, broken, commit_of, reason, repo_of, said, words
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score, shown
from issuer.errors import Fault
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.times import show_time
from issuer.results.claims import is_repo

# The frameworks' names in converted records, and in claims.
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
# A text that is searched again for each run of a record.
_Short: TypeAlias = Annotated[str, Meta(max_length=4096)]


class _Source(Struct, frozen=True):
    source_type: str


class _LibraryWords(Struct, frozen=True):
    command: str | None = None


class _Library(Struct, frozen=True):
    name: str
    version: _Short
    additional_details: _LibraryWords = _LibraryWords()


class _Engine(Struct, frozen=True):
    name: str | None = None
    version: str | None = None


class _ModelWords(Struct, frozen=True):
    model_repo: str | None = None
    model_revision: str | None = None


class _Model(Struct, frozen=True):
    id: _Short
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
    schema_version: str
    source_metadata: _Source
    model_info: _Model
    evaluation_results: Annotated[tuple[_Result, ...], Meta(min_length=1, max_length=5000)]
    eval_library: _Library | None = None
    evaluation_timestamp: str | None = None


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one record: a run for each evaluation (name and dataset), in the record's order. Raises InputError as
    `read_json`, and `file.rule` for other schema versions and for copied numbers."""
    record = evidence.read_json(raw, _Record, name)
    if not _SCHEMA.fullmatch(record.schema_version):
        raise broken(name, "/schema_version", "only records of schema 0.2.0 to 0.3.0 are read")
    if record.source_metadata.source_type != "evaluation_run":
        rule = "the record has copied numbers, not those of a run: its source_type must be evaluation_run"
        raise broken(name, "/source_metadata/source_type", rule)
    evaluations: dict[tuple[str, str | None], list[int]] = {}
    for index, result in enumerate(record.evaluation_results):
        evaluations.setdefault((result.evaluation_name, result.source_data.hf_repo), []).append(index)
    artifact = evidence.artifact(raw, name)
    return tuple(_run(record, indexes, artifact, name) for indexes in evaluations.values())


def _run(record: _Record, indexes: list[int], artifact: dict[str, JSON], name: str) -> Run:
    first = pointer_to("/evaluation_results", indexes[0])
    result = record.evaluation_results[indexes[0]]
    library = record.eval_library or _Library("", "")
    framework = FRAMEWORKS.get(library.name, library.name)
    task, model_words = result.evaluation_name, record.model_info.additional_details
    task_id = task.rpartition("/")[2] if framework == "inspect-ai" else task
    exported, exported_at = result.source_data.additional_details, f"{first}/source_data/additional_details"
    return Run(
        name=name,
        task=task,
        framework_name=said("" if library.name in _UNKNOWN else framework, "/eval_library/name"),
        framework_version=said(_version(library.version), "/eval_library/version"),
        model_repo=_model_repo(record.model_info),
        model_revision=said(commit_of(model_words.model_revision), f"{_MODEL_WORDS}/model_revision"),
        benchmark_repo=said(repo_of(result.source_data.hf_repo), f"{first}/source_data/hf_repo"),
        benchmark_revision=said(commit_of(exported.benchmark_revision), f"{exported_at}/benchmark_revision"),
        task_id=said(exported.task_id, f"{exported_at}/task_id") or said(task_id, f"{first}/evaluation_name"),
        command=said(library.additional_details.command, "/eval_library/additional_details/command"),
        mock=next(_mocks(record, indexes), None),
        remarks=tuple(_elsewhere(record.model_info)),
        scores=tuple(_score(record, index) for index in indexes),
        details=_details(record, task, artifact),
    )


def _details(record: _Record, task: str, artifact: dict[str, JSON]) -> dict[str, JSON]:
    details: dict[str, JSON] = {"artifacts": [artifact], "run": words({"task": task, "model": record.model_info.id})}
    engine = record.model_info.inference_engine or _Engine()
    if context := words({"inference_engine": engine.name, "inference_engine_version": engine.version}):
        details["runtime_context"] = context
    if date := _date(record.evaluation_timestamp):
        details["date"] = date
    return details


def _version(version: str) -> str:
    """Return the library's version. Inspect AI's converter writes a list: `inspect_ai:0.3.285,inspect_evals:0.3.1`."""
    listed = [part.removeprefix("inspect_ai:") for part in version.split(",") if part.startswith("inspect_ai:")]
    return "" if version in _UNKNOWN else (listed or [version])[0]


def _mocks(record: _Record, indexes: list[int]) -> Iterator[RunText]:
    """Yield the mock models that the run evaluated, or that graded it."""
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
            yield RunText(model, pointer)


def _model_repo(model: _Model) -> RunText | None:
    engine = (model.inference_engine.name if model.inference_engine else None) or ""
    if engine in HUB_ENGINES and is_repo(model.id):
        return RunText(model.id, "/model_info/id")
    return said(repo_of(model.additional_details.model_repo), f"{_MODEL_WORDS}/model_repo")


def _elsewhere(model: _Model) -> Iterator[str]:
    """Yield a remark if the weights may differ from the named model's."""
    if (platform := model.inference_platform or "") not in _UNKNOWN:
        yield f"The model was reached at {shown(platform)}; the record does not say which weights were served there."


def _score(record: _Record, index: int) -> Score:
    result = record.evaluation_results[index]
    place = pointer_to("/evaluation_results", index)
    pointer = f"{place}/score_details/score"
    value, fault = evidence.measured(result.score_details.score, pointer)
    spelling = result.evaluation_result_id or ""
    available, used = _samples(result)
    return Score(
        scorer=spelling.rpartition(":")[0],
        metric=result.metric_config.metric_name or result.metric_config.metric_id or "",
        spelling=spelling,
        value=value,
        pointer=pointer,
        fault=fault,
        partial=_partial(available, used, place),
        unknown=_unknown(available, used, place),
        samples=used if used is not None and (available is None or used <= available) else None,
        split=result.source_data.hf_split or "",
    )


def _samples(result: _Result) -> tuple[int | None, int | None]:
    """Return how many samples the benchmark has, and how many the score covers. A converter's 0 means unknown."""
    uncertainty = result.score_details.uncertainty
    return result.source_data.samples_number, (uncertainty.num_samples if uncertainty else None) or None


def _partial(available: int | None, used: int | None, place: str) -> Fault | None:
    if available is None or used is None or used >= available:
        return None
    pointer = f"{place}/score_details/uncertainty/num_samples"
    return reason(pointer, f"{used} of {available} samples were used")


def _unknown(available: int | None, used: int | None, place: str) -> Fault | None:
    if available is None:
        rule = "the record does not say how many samples the benchmark has"
        return reason(f"{place}/source_data/samples_number", rule)
    if used is not None and used <= available:
        return None
    rule = "the record does not say how many samples were used"
    if used is not None:
        rule = f"{used} uses of {available} samples are recorded; the record does not say how often each was used"
    return reason(f"{place}/score_details/uncertainty/num_samples", rule)


def _date(seconds: str | None) -> str:
    """Return the time of the evaluation; the record has Unix seconds as text. Never `retrieved_timestamp`."""
    if seconds is None or not _SECONDS.fullmatch(seconds):
        return ""
    return show_time(int(seconds.partition(".")[0]))
