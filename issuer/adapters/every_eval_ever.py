"""The reader of Every Eval Ever. A record of schema 0.2.0 to 0.3.0 gives one `Run` for each evaluation. Pure.

A record is second-hand. A record with the `source_type` `documentation` has numbers copied from a page; it is refused.
The source of each claim in a converted run:

* revisions and the command: only `additional_details`, under the names of run claims and as full commits, as `issuer
  results export` writes them. The `sha` there is not used: for a PEFT run it is the base model's commit.
* completeness: a record that `issuer results export` wrote has it, with the epochs and the arguments. Of any other
  record a run is partial if `num_samples` is less than `samples_number`, and otherwise not known: converters write the
  number of the samples that were run as that of the benchmark, and count a sample once for each epoch.
* metrics: `metric_name`, or else `metric_id`. Converters rename metrics: `exact_match` becomes `exact-match`.
* `model_repo`: `model_info.id` if an inference engine loaded it. `anthropic/claude-...` is the name of an API's model.
* `benchmark_repo`: `hf_repo`. `framework`: `eval_library`. In a list of packages, `inspect_ai` gives the version.
* reducers: records lack them, except HELM's perturbations. Results with the same name are numbered in their order.
* a filter of lm-evaluation-harness is the scorer; the converter appends it to the task's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from issuer.adapters import evidence
from issuer.adapters.evidence import Octets, broken, commit_of, reason, repo_of, said, words
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score, shown
from issuer.errors import Fault, FormatError, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.times import show_time
from issuer.results import arguments
from issuer.results.claims import is_repo
from issuer.results.every_eval_ever import is_export

# The frameworks' names in converted records, and in claims.
FRAMEWORKS = {
    "helm": "helm", "inspect": "inspect-ai", "inspect_ai": "inspect-ai", "lm_eval": "lm-eval",
    "lm-evaluation-harness": "lm-eval",
}  # fmt: skip
HUB_ENGINES = frozenset({"sglang", "transformers", "vllm"})
MOCK_OWNERS = frozenset({"dummy", "mockllm", "simple"})

_SCHEMA = re.compile(r"0\.2\.[0-9]{1,3}|0\.3\.0")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
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
    details: object = None

    def text(self, name: str) -> str:
        """Return a detail, which is text; "" without it."""
        stated = self.details.get(name) if isinstance(self.details, dict) else None
        return stated if isinstance(stated, str) else ""


class _Result(Struct, frozen=True):
    evaluation_name: str
    metric_config: _Metric
    score_details: _Details
    source_data: _Data = _Data()
    evaluation_result_id: str | None = None
    generation_config: object = None


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
    members = evidence.read_json(raw, dict[str, Any], name)
    if not _SCHEMA.fullmatch(str(members.get("schema_version"))):
        raise broken(name, "/schema_version", "only records of schema 0.2.0 to 0.3.0 are read")
    with reading(name):
        record = strict_json.convert(members, _Record)
    if record.source_metadata.source_type != "evaluation_run":
        rule = "the record has copied numbers, not those of a run: its source_type must be evaluation_run"
        raise broken(name, "/source_metadata/source_type", rule)
    exported, evaluations = is_export(members), dict[tuple[str, str | None], list[int]]()
    for index, result in enumerate(record.evaluation_results):
        evaluations.setdefault((_task(record, result), result.source_data.hf_repo), []).append(index)
    artifact = evidence.artifact(raw, name)
    return tuple(_run(record, indexes, artifact, name, exported=exported) for indexes in evaluations.values())


def _framework(record: _Record) -> str:
    library = record.eval_library.name if record.eval_library else ""
    return FRAMEWORKS.get(library, library)


def _filter(record: _Record, result: _Result) -> str:
    """Return the filter of a result of lm-evaluation-harness, the end of its id: `exact_match:strict-match`."""
    return (result.evaluation_result_id or "").partition(":")[2] if _framework(record) == "lm-eval" else ""


def _task(record: _Record, result: _Result) -> str:
    """Return the framework's name for the task, without the filter: `gsm8k` for `gsm8k/strict-match`."""
    filter_ = _filter(record, result)
    return result.evaluation_name.removesuffix(f"/{filter_}") if filter_ else result.evaluation_name


def _run(record: _Record, indexes: list[int], artifact: dict[str, JSON], name: str, *, exported: bool) -> Run:
    first = pointer_to("/evaluation_results", indexes[0])
    result = record.evaluation_results[indexes[0]]
    library = record.eval_library or _Library("", "")
    framework = _framework(record)
    task, model_words = _task(record, result), record.model_info.additional_details
    task_id = task.rpartition("/")[2] if framework == "inspect-ai" else task
    if framework == "inspect-ai" and record.schema_version == "0.2.0":
        task_id = ""  # converters of that time wrote the scorer's name
    data_words, data_words_at = result.source_data.additional_details, f"{first}/source_data/additional_details"
    return Run(
        name=name,
        task=task,
        framework_name=said("" if library.name in _UNKNOWN else framework, "/eval_library/name"),
        framework_version=said(_version(library.version), "/eval_library/version"),
        model_repo=_model_repo(record.model_info),
        model_revision=said(commit_of(model_words.model_revision), f"{_MODEL_WORDS}/model_revision"),
        benchmark_repo=said(repo_of(result.source_data.hf_repo), f"{first}/source_data/hf_repo"),
        benchmark_revision=said(commit_of(data_words.benchmark_revision), f"{data_words_at}/benchmark_revision"),
        task_id=said(data_words.task_id, f"{data_words_at}/task_id") or said(task_id, f"{first}/evaluation_name"),
        command=said(library.additional_details.command, "/eval_library/additional_details/command"),
        mock=next(_mocks(record, indexes), None),
        arguments=_arguments([record.evaluation_results[index] for index in indexes], exported=exported),
        remarks=tuple(_elsewhere(record.model_info)),
        scores=tuple(_score(record, index, exported=exported) for index in indexes),
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


def _arguments(results: list[_Result], *, exported: bool) -> dict[str, JSON]:
    """Return the arguments of an exported entry, or the settings of generation in a converted record."""
    first = results[0]
    if not exported:
        stated = [result.generation_config for result in results]
        return arguments.bounded(
            arguments.flat({"generation": first.generation_config if stated[1:] == stated[:-1] else stated})
        )
    try:
        made = strict_json.loads(
            first.score_details.text("arguments").encode(), max_bytes=evidence.MAX_BYTES, max_depth=2
        )
    except FormatError:
        made = None
    return made if isinstance(made, dict) else {}


def _score(record: _Record, index: int, *, exported: bool) -> Score:
    result = record.evaluation_results[index]
    place = pointer_to("/evaluation_results", index)
    pointer = f"{place}/score_details/score"
    value, fault = evidence.measured(result.score_details.score, pointer)
    spelling, stated = result.evaluation_result_id or "", result.score_details.text
    partial, unknown = _completeness(result, place, exported=exported)
    epochs = stated("epochs") if exported else ""
    return Score(
        scorer=_filter(record, result) if _framework(record) == "lm-eval" else spelling.rpartition(":")[0],
        reducer=stated("perturbation") if _framework(record) == "helm" else "",
        metric=result.metric_config.metric_name or result.metric_config.metric_id or "",
        spelling=spelling,
        value=value,
        pointer=pointer,
        fault=fault,
        partial=partial,
        unknown=unknown,
        samples=_samples(record, result),
        epochs=int(epochs) if _COUNT.fullmatch(epochs) else None,
        split=result.source_data.hf_split or (stated("split") if _framework(record) == "helm" else ""),
    )


def _counts(result: _Result) -> tuple[int | None, int | None]:
    """Return how many samples the record says that there are, and that were used. A converter's 0 means unknown."""
    uncertainty = result.score_details.uncertainty
    return result.source_data.samples_number, (uncertainty.num_samples if uncertainty else None) or None


def _samples(record: _Record, result: _Result) -> int | None:
    """Return how many samples the score covers. The converter of lm-evaluation-harness counts all samples of a group,
    also of tasks without the metric; a group has no dataset."""
    available, used = _counts(result)
    of_group = _framework(record) == "lm-eval" and result.source_data.hf_repo is None
    return None if of_group or (used and available is not None and used > available) else used


def _completeness(result: _Result, place: str, *, exported: bool) -> tuple[Fault | None, Fault | None]:
    """Return why the score is partial, and why its completeness is not known."""
    available, used = _counts(result)
    pointer = f"{place}/score_details/uncertainty/num_samples"
    if exported:
        answer, pointer = result.score_details.text("completeness"), f"{place}/score_details/details/completeness"
        if answer == "partial":
            return reason(pointer, "the exported entry says so"), None
        return None, None if answer == "full" else reason(pointer, "the exported entry does not say so")
    if available is not None and used is not None and used < available:
        return reason(pointer, f"{used} of {available} samples were used"), None
    if available is None:
        pointer = f"{place}/source_data/samples_number"
        rule = "the record does not say how many samples the benchmark has"
    elif used is None:
        rule = "the record does not say how many samples were used"
    elif used > available:
        rule = f"{used} uses of {available} samples are recorded; the record does not say how often each was used"
    else:
        rule = "the record was converted, and does not prove how many samples the benchmark has"
    return None, reason(pointer, rule)


def _date(seconds: str | None) -> str:
    """Return the time of the evaluation; the record has Unix seconds as text. Never `retrieved_timestamp`."""
    if seconds is None or not _SECONDS.fullmatch(seconds):
        return ""
    return show_time(int(seconds.partition(".")[0]))
