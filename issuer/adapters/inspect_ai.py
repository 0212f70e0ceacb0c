"""Reads the logs of Inspect AI (log format 2), JSON or `.eval`, into a `Run`. Pure; does not import inspect_ai.

Where each claim comes from, and what is never taken for it:

* `model_repo`: `eval.model` under a provider whose model names are Hub names, unless the weights came from elsewhere: a
  path, a server that ran already, an adapter. `anthropic/claude-...` looks like a Hub name and is not.
* `model_revision`, `benchmark_revision`: `eval.metadata`, by the convention that a task or `inspect eval --metadata
  model_revision=<commit>` writes them there; also a full commit in `eval.model_args.revision`, which the provider
  loads. Never `eval.revision`: that is the commit of the evaluation's code.
* `benchmark_repo`: `eval.dataset.location` in the shape `owner/name`; not a data file's path, which can have it too.
* `task_id`: `eval.task` without its package (`inspect_evals/arc_easy` is `arc_easy`); never the random `eval.task_id`.
* `framework.version`: `eval.packages.inspect_ai`. No log has the command.
* a score's samples: `scored_samples`, which counts a sample once, however many epochs it ran. Whether the run was whole
  is by the dataset's count and the results', which count each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from issuer.adapters.evidence import Octets, artifact, broken, is_moment, measured, said, words
from issuer.adapters.inspect_log import Log, LogDataset, LogResults, LogScore, Metadata, Samples, Spec, load
from issuer.adapters.run import Run, Said
from issuer.adapters.score import MAX_SHOWN, Score, shown
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results.claims import REVISION, is_repo

FRAMEWORK = "inspect-ai"
MAX_BYTES = 512 * 2**20
# Providers whose model names are Hub names, and those of them that load `model_args.revision` themselves.
HUB_PROVIDERS = frozenset({"hf", "hf-inference-providers", "sglang", "vllm", "vllm-completions"})
LOADERS = HUB_PROVIDERS - {"hf-inference-providers"}
MOCK_PROVIDER = "mockllm"
# The model arguments that say what a run ran on. No other is written into an entry: it may be private.
RUNTIME_ARGS = (
    "attn_implementation", "device", "dtype", "load_in_4bit", "load_in_8bit", "max_model_len", "quantization",
    "tensor_parallel_size", "torch_dtype",
)  # fmt: skip

_DATA_FILE = re.compile(r".*\.(?:arrow|csv|gz|jsonl?|parquet|tsv|txt|ya?ml|zip)", re.IGNORECASE)
_ADAPTER_ARG = re.compile(r"lora|peft|adapter", re.IGNORECASE)


def read(raw: Octets, name: str = "") -> Run:
    """Read one log, JSON or `.eval`; `name` is what the file is called in errors and in `details.artifacts`. Raises
    InputError: what `inspect_log.load` raises, `file.too_large`, and `file.rule` for a run that failed, was invalidated
    or never finished, or whose code had uncommitted changes. The log is believed otherwise: it is not signed."""
    if len(raw) > MAX_BYTES:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES} bytes", Place(name))
    log, samples = load(raw, name)
    results, spec = _finished(log, name), log.eval
    return Run(
        name=name,
        task=spec.task,
        framework_name=Said(FRAMEWORK, ""),
        framework_version=said(spec.packages.get("inspect_ai"), "/eval/packages/inspect_ai"),
        model_repo=_model_repo(spec),
        model_revision=_model_revision(spec, name),
        benchmark_repo=_benchmark_repo(spec.dataset),
        benchmark_revision=said(_metadata(spec).benchmark_revision, "/eval/metadata/benchmark_revision"),
        task_id=said(spec.task.rpartition("/")[2], "/eval/task"),
        mock=next(_mocks(log, results), None),
        partial=tuple(_partial(spec, results)),
        unknown=tuple(_unknown(spec, results)),
        remarks=(*_elsewhere(spec), *_unseen(samples)),
        scores=tuple(_scores(spec, results, samples)),
        details=_details(log, artifact(raw, name), name),
    )


def _finished(log: Log, name: str) -> LogResults:
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


# -- whether it was the whole benchmark -------------------------------------------------------------------------------


def _partial(spec: Spec, results: LogResults) -> Iterator[Fault]:
    """Yield the signs that the run is not one of the whole dataset that its task loaded."""
    done, total, limit = results.completed_samples, results.total_samples, spec.config.limit
    there, epochs = spec.dataset.samples, spec.config.epochs or 1
    if spec.config.sample_id is not None:
        yield Fault(Code.FILE_RULE, "/eval/config/sample_id", "the run was limited to chosen samples")
    if there is not None and (total < there * epochs or (limit is not None and _allows(limit) < there)):
        place = "/results/total_samples" if limit is None else "/eval/config/limit"
        cause = "" if limit is None else "the run was limited: "
        yield Fault(Code.FILE_RULE, place, f"{cause}{_ran(total, there, epochs)} were run")
    if done != total:
        yield Fault(Code.FILE_RULE, "/results/completed_samples", f"{done} of {total} samples were completed")
    if results.logged_samples not in {None, total}:
        rule = f"{results.logged_samples} of {total} samples were resolved"
        yield Fault(Code.FILE_RULE, "/results/logged_samples", rule)
    if results.early_stopping is not None:
        yield Fault(Code.FILE_RULE, "/results/early_stopping", "the run was stopped early")


def _unknown(spec: Spec, results: LogResults) -> Iterator[Fault]:
    """Yield the reasons why it cannot be told whether the run was one of the whole dataset."""
    total, there, epochs = results.total_samples, spec.dataset.samples, spec.config.epochs or 1
    if there is None:
        rule = "the log does not say how many samples the dataset has"
        place = "/eval/dataset" if spec.config.limit is None else "/eval/config/limit"
        yield Fault(Code.FILE_RULE, place, rule)
    elif total > there * epochs:
        rule = f"{_ran(total, there, epochs)} were run, more than there are"
        yield Fault(Code.FILE_RULE, "/results/total_samples", rule)


def _allows(limit: object) -> int:
    """Return how many samples a limit allows. It is a count, or a pair [begin, end) of indexes; 0 for anything else."""
    match limit if isinstance(limit, list) else [0, limit]:
        case [int(begin), int(end)] if bool not in {type(begin), type(end)}:
            return end - begin
    return 0


def _ran(total: int, there: int, epochs: int) -> str:
    if epochs == 1:
        return f"{total} of {there} samples"
    return f"{total} of {there * epochs} samples ({there} in each of {epochs} epochs)"


# -- model and benchmark ----------------------------------------------------------------------------------------------


def _metadata(spec: Spec) -> Metadata:
    return spec.metadata or Metadata()


def _elsewhere(spec: Spec) -> Iterator[str]:
    """Yield a sentence for each sign that the weights may not be those that the model's name stands for."""
    if spec.model_base_url or spec.model_args.get("base_url") or spec.model_args.get("port"):
        yield "The model was reached at a server's address: which weights were served there, the log does not say."
    if spec.model_args.get("model_path"):
        yield "The weights were loaded from a path: the model's name is a label."
    if found := sorted(name for name, value in spec.model_args.items() if _ADAPTER_ARG.search(name) and value):
        arguments = ", ".join(map(shown, found[:MAX_SHOWN]))
        yield f"An adapter was loaded ({arguments}): the weights are not those of the model's name alone."


def _model_repo(spec: Spec) -> Said | None:
    provider, _, model = spec.model.partition("/")
    if provider in HUB_PROVIDERS and is_repo(model) and not any(_elsewhere(spec)):
        return Said(model, "/eval/model")
    return None


def _model_revision(spec: Spec, name: str) -> Said | None:
    """Return the revision in the metadata, or else the commit that the provider had to load."""
    noted = said(_metadata(spec).model_revision, "/eval/metadata/model_revision")
    loaded = spec.model_args.get("revision")
    if spec.model.partition("/")[0] not in LOADERS or not isinstance(loaded, str) or not REVISION.fullmatch(loaded):
        return noted
    if noted and noted.text != loaded:
        rule = f"the metadata names another revision than the one that was loaded, {loaded}"
        raise InputError(Code.FILE_RULE, rule, Place(name), noted.pointer)
    if any(_elsewhere(spec)):
        return noted
    return noted or Said(loaded, "/eval/model_args/revision")


def _benchmark_repo(dataset: LogDataset) -> Said | None:
    location = dataset.location or ""
    # json_dataset("data/test.jsonl") is logged as exactly that, which looks like `owner/name`.
    if is_repo(location) and not _DATA_FILE.fullmatch(location):
        return Said(location, "/eval/dataset/location")
    return None


def _mocks(log: Log, results: LogResults) -> Iterator[Said]:
    """Yield the mock models that took part: the model itself, one that graded it, or one that was used at all."""
    named = {"/eval/model": [log.eval.model]}
    for role, value in (log.eval.model_roles or {}).items():
        named[pointer_to("/eval/model_roles", role)] = _models(value)
    for index, score in enumerate(results.scores):
        place = f"{pointer_to('/results/scores', index)}/params"
        named |= {pointer_to(place, param): _models(value) for param, value in score.params.items()}
    used = log.stats.model_usage if log.stats else {}
    named |= {pointer_to("/stats/model_usage", model): [model] for model in used}
    for pointer, models in named.items():
        yield from (Said(model, pointer) for model in models if model.partition("/")[0] == MOCK_PROVIDER)


def _models(value: object) -> list[str]:
    """Return the models' names in an argument: a name, a map with one as its `model`, or a list of these."""
    if isinstance(value, list):
        return [name for each in value for name in _models(each)]
    name = value.get("model") if isinstance(value, dict) else value
    return [name] if isinstance(name, str) else []


# -- scores -----------------------------------------------------------------------------------------------------------


def _scores(spec: Spec, results: LogResults, samples: Samples) -> Iterator[Score]:
    epochs = spec.config.epochs or 1
    for index, score in enumerate(results.scores):
        place = pointer_to("/results/scores", index)
        edited = _edited(score, samples)
        # By key, not by the metric's `name`: Inspect AI makes only the keys unique.
        for metric, found in score.metrics.items():
            pointer = pointer_to(pointer_to(pointer_to(place, "metrics"), metric), "value")
            value, fault = measured(found.value, pointer)
            yield Score(
                scorer=score.name,
                reducer=score.reducer or _reducer(spec),
                metric=metric,
                value=value,
                pointer=pointer,
                fault=edited or fault,
                partial=next(_unscored(score, spec, results, samples, place), None),
                unknown=next(_uncounted(score, spec, results, samples, place), None),
                samples=None if _overcounted(score, spec, results) else score.scored_samples,
                epochs=epochs if epochs > 1 else None,
            )


def _reducer(spec: Spec) -> str:
    """Return what made one score of a sample's epochs, where the log names it for the whole run only."""
    reducers = spec.config.epochs_reducer or ()
    return reducers[0] if len(reducers) == 1 and (spec.config.epochs or 1) > 1 else ""


def _edited(score: LogScore, samples: Samples) -> Fault | None:
    if samples.any_edited or {score.name, score.scorer} & samples.edited:
        return Fault(Code.FILE_RULE, "/samples", "scores of samples were edited by hand after the run")
    return None


def _unseen(samples: Samples) -> Iterator[str]:
    if samples.unseen:
        yield "Whether scores were edited by hand after the run is not known: the log is too large to look."


def _unscored(score: LogScore, spec: Spec, results: LogResults, samples: Samples, place: str) -> Iterator[Fault]:
    """Say that samples have no score: those that Inspect AI counts as unscored, and those that it does not count. A
    scorer that gives none is not counted at all; where it gave one in another epoch, only the samples show it."""
    epochs, total = spec.config.epochs or 1, results.total_samples
    if score.unscored_samples:
        rule = f"{score.unscored_samples} samples were not scored by {shown(score.name)}"
        yield Fault(Code.FILE_RULE, pointer_to(place, "unscored_samples"), rule)
    if score.scored_samples is not None and score.scored_samples < total // epochs:
        rule = f"{score.scored_samples} of {total // epochs} samples were scored by {shown(score.name)}"
        yield Fault(Code.FILE_RULE, pointer_to(place, "scored_samples"), rule)
    scored = total if samples.scored is None else samples.scored.get(score.scorer or score.name, 0)
    if scored < total:
        rule = f"{scored} of {total} samples, in all epochs, were scored by {shown(score.name)}"
        yield Fault(Code.FILE_RULE, "/samples", rule)


def _uncounted(score: LogScore, spec: Spec, results: LogResults, samples: Samples, place: str) -> Iterator[Fault]:
    if score.scored_samples is None:
        yield Fault(Code.FILE_RULE, place, f"the log does not say how many samples {shown(score.name)} scored")
    if _overcounted(score, spec, results):
        ran = results.total_samples // (spec.config.epochs or 1)
        rule = f"{score.scored_samples} of {ran} samples were scored by {shown(score.name)}, more than were run"
        yield Fault(Code.FILE_RULE, pointer_to(place, "scored_samples"), rule)
    if (spec.config.epochs or 1) > 1 and samples.scored is None:
        rule = f"the log has no samples that say whether {shown(score.name)} scored them in each epoch"
        yield Fault(Code.FILE_RULE, "/samples", rule)


def _overcounted(score: LogScore, spec: Spec, results: LogResults) -> bool:
    """Say whether more samples are said to be scored than were run: then nobody knows of how many the score is."""
    return (score.scored_samples or 0) > results.total_samples // (spec.config.epochs or 1)


# -- details ----------------------------------------------------------------------------------------------------------


def _details(log: Log, evidence: dict[str, JSON], name: str) -> dict[str, JSON]:
    """Return what goes beside the claims: the run's own words, which claims may rename, and what it ran on."""
    spec, batch_size = log.eval, log.eval.model_args.get("batch_size")
    run = words({
        "task": spec.task,
        "model": spec.model,
        "code_revision": spec.revision.commit if spec.revision else None,
        "seed": _seed(log),
        "batch_size": batch_size if type(batch_size) is int else None,
    })  # fmt: skip
    roles: dict[str, JSON] = {role: ", ".join(_models(value)) for role, value in (spec.model_roles or {}).items()}
    if roles:
        run["model_roles"] = roles
    details: dict[str, JSON] = {"date": _date(log, name), "artifacts": [evidence], "run": run}
    return {**details, "runtime_context": context} if (context := _runtime(spec)) else details


def _seed(log: Log) -> int | None:
    """Return the seed that was sent to the model: the run's, or else the model's own."""
    seed = log.plan.config.seed if log.plan else None
    return log.eval.model_generate_config.seed if seed is None else seed


def _runtime(spec: Spec) -> dict[str, JSON]:
    packages: dict[str, JSON] = {name: version for name, version in spec.packages.items() if name != "inspect_ai"}
    arguments = {name: spec.model_args.get(name) for name in RUNTIME_ARGS}
    context: dict[str, JSON] = {
        name: value for name, value in arguments.items() if isinstance(value, str | int | float)
    }
    return {"packages": packages, **context} if packages else context


def _date(log: Log, name: str) -> str:
    """Return when the run was completed, or else created, as the log spells it."""
    completed_at = log.stats.completed_at if log.stats else None
    date, pointer = (completed_at, "/stats/completed_at") if completed_at else (log.eval.created, "/eval/created")
    if not is_moment(date):
        raise broken(name, pointer, "must be an ISO 8601 time with its offset")
    return date
