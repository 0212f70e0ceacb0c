"""The reader of Inspect AI. A log (format 2, JSON or `.eval`) gives one `Run`. Pure; does not import inspect_ai.

The source of each claim, and the members that are not used for it:

* `model_repo`: `eval.model` under a provider whose model names are Hub names, unless a path, a running server or an
  adapter provided the weights. `anthropic/claude-...` only looks like a Hub name.
* `model_revision`, `benchmark_revision`: `eval.metadata`, where a task or `inspect eval --metadata
  model_revision=<commit>` writes them by convention; for the model also a full commit in `eval.model_args.revision`,
  which the provider loads. Never `eval.revision`: it is the commit of the evaluation's code.
* `benchmark_repo`: `eval.dataset.location`, if its shape is `owner/name` and it is not the path of a data file.
* `task_id`: `eval.task` without its package (`inspect_evals/arc_easy` is `arc_easy`); never the random `eval.task_id`.
* `framework.version`: `eval.packages.inspect_ai`. No log contains the command.
* samples of a score: `scored_samples`, which counts each sample once, whatever the number of epochs.
* completeness: the dataset's number of samples, against the results' counts, which count a sample once for each epoch;
  and samples with an error, which the results may not count. Arguments that were passed to the task can choose samples.
* arguments: `task.` and `eval.task_args`, `solver.N.` and `plan.steps`, `generation.` and `plan.config`, the epochs,
  and the limits of a sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from issuer.adapters import evidence
from issuer.adapters.evidence import Octets, broken, commit_of, reason, repo_of, said
from issuer.adapters.inspect_log import (
    InspectLog,
    LogDataset,
    LogMetric,
    LogPlan,
    LogResults,
    LogScore,
    Metadata,
    Samples,
    Spec,
    load,
)
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import MAX_SHOWN, Score, shown
from issuer.errors import Fault
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results import arguments

FRAMEWORK = "inspect-ai"
MAX_BYTES = 512 * 2**20
# Providers whose model names are Hub names. LOADERS are those that load `model_args.revision` themselves.
HUB_PROVIDERS = frozenset({"hf", "hf-inference-providers", "sglang", "vllm", "vllm-completions"})
LOADERS = HUB_PROVIDERS - {"hf-inference-providers"}
MOCK_PROVIDER = "mockllm"
# The model arguments that describe the runtime. The others are not written into entries, because they may be private.
RUNTIME_ARGS = (
    "attn_implementation", "device", "dtype", "load_in_4bit", "load_in_8bit", "max_model_len", "quantization",
    "tensor_parallel_size", "torch_dtype",
)  # fmt: skip
# Settings of generation that are about the connection to the model, and the seed, which is `run.seed`.
NOT_ARGUMENTS = frozenset({
    "adaptive_connections", "attempt_timeout", "batch", "cache", "max_connections", "max_retries", "seed", "timeout",
})  # fmt: skip
# The limits of `eval.config` for one sample.
LIMITS = ("cost_limit", "message_limit", "time_limit", "token_limit", "turn_limit", "working_limit")

_NOT_SEARCHED = "The log is too large to search it for scores that were edited by hand after the run."
MAX_SLICE = 128  # characters, by contract section 2
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")  # characters of a slice
_DATA_FILE = re.compile(r".*\.(?:arrow|csv|gz|jsonl?|parquet|tsv|txt|ya?ml|zip)", re.IGNORECASE)
_ADAPTER_ARG = re.compile(r"lora|peft|adapter", re.IGNORECASE)


def read(raw: Octets, name: str = "") -> Run:
    """Read one log, JSON or `.eval`; `name` is the file's name in errors and in `details.artifacts`. Raises InputError:
    `file.too_large`, the errors of `inspect_log.load`, and `file.rule` for a run that failed, was invalidated, never
    finished, or had uncommitted changes in its code. The rest of the log is believed: it is not signed."""
    if len(raw) > MAX_BYTES:
        raise evidence.too_large(name, f"larger than {MAX_BYTES} bytes")
    log, samples = load(raw, name)
    results, spec = _finished(log, name), log.eval
    return Run(
        name=name,
        task=spec.task,
        framework_name=RunText(FRAMEWORK, ""),
        framework_version=said(spec.packages.get("inspect_ai"), "/eval/packages/inspect_ai"),
        model_repo=_model_repo(spec),
        model_revision=_model_revision(spec, name),
        benchmark_repo=_benchmark_repo(spec.dataset),
        benchmark_revision=said((spec.metadata or Metadata()).benchmark_revision, "/eval/metadata/benchmark_revision"),
        task_id=said(spec.task.rpartition("/")[2], "/eval/task"),
        mock=next(_mocks(log, results), None),
        partial=tuple(_partial(spec, results, samples)),
        unknown=tuple(_unknown(spec, results)),
        arguments=_arguments(log),
        remarks=(*_other_weights(spec), *((_NOT_SEARCHED,) if samples.unseen else ())),
        scores=tuple(_scores(spec, results, samples)),
        details=_details(log, evidence.artifact(raw, name), name),
    )


def _finished(log: InspectLog, name: str) -> LogResults:
    """Return the results of a finished run. Raises InputError(`file.rule`) for other runs; no flag permits these."""
    if log.status != "success":
        raise broken(name, "/status", "the run did not succeed: its status must be success")
    if log.invalidated:
        raise broken(name, "/invalidated", "the run was invalidated")
    if log.eval.revision and log.eval.revision.dirty:
        rule = "the evaluation's code had uncommitted changes, so no commit identifies it"
        raise broken(name, "/eval/revision/dirty", rule)
    if log.results is None:
        raise broken(name, "/results", "the run has no results")
    if log.results.total_samples < 1:
        raise broken(name, "/results/total_samples", "the run has no samples")
    if log.results.completed_samples > log.results.total_samples:
        raise broken(name, "/results/completed_samples", "more samples were completed than exist")
    return log.results


# -- completeness -----------------------------------------------------------------------------------------------------


def _partial(spec: Spec, results: LogResults, samples: Samples) -> Iterator[Fault]:
    """Yield the reasons why the run does not cover the whole dataset that its task loaded. The samples can have errors
    that the results do not count."""
    done, total, limit = results.completed_samples, results.total_samples, spec.config.limit
    available, epochs = spec.dataset.samples, spec.config.epochs or 1
    chosen = spec.config.sample_id
    if chosen is not None and not (isinstance(chosen, list) and available is not None and len(chosen) >= available):
        yield reason("/eval/config/sample_id", "the run was limited to chosen samples")
    if available is not None and (total < available * epochs or (limit is not None and _allowed(limit) < available)):
        place = "/results/total_samples" if limit is None else "/eval/config/limit"
        cause = "" if limit is None else "the run was limited: "
        yield reason(place, f"{cause}{_ran(total, available, epochs)} were run")
    if done != total:
        yield reason("/results/completed_samples", f"{done} of {total} samples were completed")
    if results.logged_samples not in {None, total}:
        yield reason("/results/logged_samples", f"{results.logged_samples} of {total} samples were resolved")
    if results.early_stopping is not None:
        yield reason("/results/early_stopping", "the run was stopped early")
    if samples.failed:
        yield reason("/samples", f"{samples.failed} of {total} samples ended with an error")


def _unknown(spec: Spec, results: LogResults) -> Iterator[Fault]:
    """Yield the reasons why the run is not known to cover the whole dataset."""
    total, available, epochs = results.total_samples, spec.dataset.samples, spec.config.epochs or 1
    if available is None:
        rule = "the log does not say how many samples the dataset has"
        place = "/eval/dataset" if spec.config.limit is None else "/eval/config/limit"
        yield reason(place, rule)
    elif total > available * epochs:
        yield reason("/results/total_samples", f"{_ran(total, available, epochs)} were run, more than there are")
    # Older releases log the passed arguments alone, as `task_args`.
    passed, place = spec.task_args_passed, "/eval/task_args_passed"
    if passed is None:
        passed, place = spec.task_args, "/eval/task_args"
    if passed:
        chosen = ", ".join(map(shown, sorted(passed)[:MAX_SHOWN]))
        yield reason(place, f"the task was run with arguments that it does not have by default: {chosen}")


def _allowed(limit: object) -> int:
    """Return how many samples a limit allows: a number, or a pair [begin, end) of indexes; 0 for anything else."""
    match limit if isinstance(limit, list) else [0, limit]:
        case [int(begin), int(end)] if bool not in {type(begin), type(end)}:
            return end - begin
    return 0


def _ran(total: int, available: int, epochs: int) -> str:
    if epochs == 1:
        return f"{total} of {available} samples"
    return f"{total} of {available * epochs} samples ({available} in each of {epochs} epochs)"


def _arguments(log: InspectLog) -> dict[str, JSON]:
    plan, config = log.plan or LogPlan(), log.eval.config
    planned = {name: value for name, value in plan.config.items() if value is not None}
    generation = {**log.eval.model_generate_config, **planned}
    settings = {name: value for name, value in generation.items() if name not in NOT_ARGUMENTS}
    if headers := settings.get("extra_headers"):
        settings["extra_headers"] = arguments.digest(headers)  # they may authenticate
    members = {
        "task": log.eval.task_args,
        "solver": [
            {"name": step.solver, "params": {**(step.params_passed or {}), **(step.params or {})}}
            for step in plan.steps
        ],
        "generation": settings,
        "epochs": config.epochs,
        "epochs_reducer": list(config.epochs_reducer or ()) if (config.epochs or 1) > 1 else None,
        "score_on_error": config.score_on_error or None,
        **{name: getattr(config, name) for name in LIMITS},
    }
    return arguments.bounded(arguments.flat(members))


# -- model and benchmark ----------------------------------------------------------------------------------------------


def _other_weights(spec: Spec) -> Iterator[str]:
    """Yield a remark for each sign that the weights may differ from the named model's."""
    if spec.model_base_url or spec.model_args.get("base_url") or spec.model_args.get("port"):
        yield evidence.SERVED
    if spec.model_args.get("model_path"):
        yield "The weights were loaded from a path: the model's name is only a label."
    if adapters := sorted(name for name, value in spec.model_args.items() if _ADAPTER_ARG.search(name) and value):
        arguments = ", ".join(map(shown, adapters[:MAX_SHOWN]))
        yield f"An adapter was loaded ({arguments}): the weights are not the named model's alone."


def _model_repo(spec: Spec) -> RunText | None:
    provider, _, model = spec.model.partition("/")
    from_hub = provider in HUB_PROVIDERS and not any(_other_weights(spec))
    return said(repo_of(model), "/eval/model") if from_hub else None


def _model_revision(spec: Spec, name: str) -> RunText | None:
    """Return the revision in the metadata, or else the commit in the model's arguments. Raises InputError if the
    provider loaded another commit than the metadata names."""
    noted = said((spec.metadata or Metadata()).model_revision, "/eval/metadata/model_revision")
    loaded = commit_of(spec.model_args.get("revision"))
    if spec.model.partition("/")[0] not in LOADERS or not loaded:
        return noted
    if noted and noted.text != loaded:
        raise broken(name, noted.pointer, f"not the revision that was loaded, {loaded}")
    if any(_other_weights(spec)):
        return noted
    return noted or RunText(loaded, "/eval/model_args/revision")


def _benchmark_repo(dataset: LogDataset) -> RunText | None:
    location = dataset.location or ""
    # For json_dataset("data/test.jsonl") the log has this path, which looks like `owner/name`.
    return None if _DATA_FILE.fullmatch(location) else said(repo_of(location), "/eval/dataset/location")


def _mocks(log: InspectLog, results: LogResults) -> Iterator[RunText]:
    """Yield the mock models of the run: the evaluated model, graders, and any other model that was used."""
    places: list[tuple[str, Mapping[str, object]]] = [
        ("/eval", {"model": log.eval.model}),
        ("/eval/model_roles", log.eval.model_roles or {}),
        *((f"{pointer_to('/results/scores', at)}/params", score.params) for at, score in enumerate(results.scores)),
        ("/stats/model_usage", {model: model for model in log.stats.model_usage} if log.stats else {}),
    ]
    for place, named in places:
        for name, value in named.items():
            mocks = (model for model in _models(value) if model.partition("/")[0] == MOCK_PROVIDER)
            yield from (RunText(model, pointer_to(place, name)) for model in mocks)


def _models(value: object) -> list[str]:
    """Return the models' names in an argument: a name, a map with a name as its `model`, or a list of these."""
    if isinstance(value, list):
        return [name for item in value for name in _models(item)]
    name = value.get("model") if isinstance(value, dict) else value
    return [name] if isinstance(name, str) else []


# -- scores -----------------------------------------------------------------------------------------------------------


def _scores(spec: Spec, results: LogResults, samples: Samples) -> Iterator[Score]:
    epochs = spec.config.epochs or 1
    for index, score in enumerate(results.scores):
        place = pointer_to("/results/scores", index)
        edited = _edited(score, samples)
        # The key, not the metric's `name`: Inspect AI makes only the keys unique.
        for metric, number in score.metrics.items():
            pointer = pointer_to(pointer_to(pointer_to(place, "metrics"), metric), "value")
            value, fault = evidence.measured(number.value, pointer)
            group = _group(number)
            yield Score(
                scorer=score.name,
                reducer=score.reducer or _reducer(spec),
                metric=_grouped_metric(number) if group else metric,
                slice=_slice(group),
                spelling=metric if group else "",
                value=value,
                pointer=pointer,
                fault=edited or fault,
                partial=next(_unscored(score, spec, results, samples, place), None),
                unknown=next(_uncounted(score, spec, results, samples, place), None),
                samples=_size(score, number, samples) if group else _scored(score, spec, results),
                epochs=epochs if epochs > 1 else None,
            )


def _group(number: LogMetric) -> str:
    """Return the group of samples that a number of `grouped()` covers; "" for its number of all groups, and for other
    metrics."""
    of_all = number.params.get("all") is not False and number.name == number.params.get("all_label", "all")
    return number.name if number.group_key and _grouped_metric(number) and not of_all else ""


def _grouped_metric(number: LogMetric) -> str:
    """Return the name of the metric that `grouped()` applied to each group, without its package."""
    metric = number.params.get("metric")
    name = metric.get("name") if isinstance(metric, dict) else None
    return name.rpartition("/")[2] if isinstance(name, str) else ""


def _size(score: LogScore, number: LogMetric, samples: Samples) -> int | None:
    """Return how many samples are in a group. It is known if the samples of all groups are those with a score."""
    template = number.params.get("name_template", "{group_name}")
    sizes = samples.groups.get((score.scorer or score.name, number.group_key), {})
    if sum(sizes.values()) != score.scored_samples or not isinstance(template, str):
        return None
    return next((size for group, size in sizes.items() if template.replace("{group_name}", group) == number.name), None)


def _slice(group: str) -> str:
    """Return a group's name as a slice, which has no spaces: `High%20School`. A longer name becomes its digest."""
    quoted = quote(group, safe=_PLAIN)
    return quoted if len(quoted) <= MAX_SLICE else jcs.digest(group)


def _reducer(spec: Spec) -> str:
    """Return the reducer of a sample's epochs, if the log names it only for the whole run."""
    reducers = spec.config.epochs_reducer or ()
    return reducers[0] if len(reducers) == 1 and (spec.config.epochs or 1) > 1 else ""


def _edited(score: LogScore, samples: Samples) -> Fault | None:
    if samples.any_edited or {score.name, score.scorer} & samples.edited:
        return reason("/samples", "scores of samples were edited by hand after the run")
    return None


def _unscored(score: LogScore, spec: Spec, results: LogResults, samples: Samples, place: str) -> Iterator[Fault]:
    """Yield the signs that samples have no score. Inspect AI does not count a sample as unscored if the scorer returned
    nothing for it; if another epoch of the sample has a score, only the samples themselves show the gap."""
    epochs, total = spec.config.epochs or 1, results.total_samples
    if score.unscored_samples:
        rule = f"{score.unscored_samples} samples were not scored by {shown(score.name)}"
        yield reason(pointer_to(place, "unscored_samples"), rule)
    if score.scored_samples is not None and score.scored_samples < total // epochs:
        rule = f"{score.scored_samples} of {total // epochs} samples were scored by {shown(score.name)}"
        yield reason(pointer_to(place, "scored_samples"), rule)
    scored = total if samples.scored is None else samples.scored.get(score.scorer or score.name, 0)
    if scored < total:
        yield reason("/samples", f"{scored} of {total} samples, in all epochs, were scored by {shown(score.name)}")


def _uncounted(score: LogScore, spec: Spec, results: LogResults, samples: Samples, place: str) -> Iterator[Fault]:
    if score.scored_samples is None:
        yield reason(place, f"the log does not say how many samples {shown(score.name)} scored")
    if _overcounted(score, spec, results):
        ran = results.total_samples // (spec.config.epochs or 1)
        rule = f"{score.scored_samples} of {ran} samples were scored by {shown(score.name)}, more than were run"
        yield reason(pointer_to(place, "scored_samples"), rule)
    if (spec.config.epochs or 1) > 1 and samples.scored is None:
        rule = f"the log has no samples that say whether {shown(score.name)} scored them in each epoch"
        yield reason("/samples", rule)


def _scored(score: LogScore, spec: Spec, results: LogResults) -> int | None:
    return None if _overcounted(score, spec, results) else score.scored_samples


def _overcounted(score: LogScore, spec: Spec, results: LogResults) -> bool:
    """Return whether the log counts more scored samples than were run. Then the score's sample count is not known."""
    return (score.scored_samples or 0) > results.total_samples // (spec.config.epochs or 1)


# -- details ----------------------------------------------------------------------------------------------------------


def _details(log: InspectLog, artifact: dict[str, JSON], name: str) -> dict[str, JSON]:
    """Return the entry's details: the framework's words, which claims may rename, and the runtime."""
    spec, batch_size = log.eval, log.eval.model_args.get("batch_size")
    run = evidence.words({
        "task": spec.task,
        "model": spec.model,
        "code_revision": spec.revision.commit if spec.revision else None,
        "seed": _seed(log),
        "batch_size": batch_size if type(batch_size) is int else None,
    })  # fmt: skip
    roles: dict[str, JSON] = {role: ", ".join(_models(value)) for role, value in (spec.model_roles or {}).items()}
    if roles:
        run["model_roles"] = roles
    details: dict[str, JSON] = {"date": _date(log, name), "artifacts": [artifact], "run": run}
    return {**details, "runtime_context": context} if (context := _runtime(spec)) else details


def _seed(log: InspectLog) -> int | None:
    """Return the seed that was sent to the model: the plan's, or else the one of the model's configuration."""
    seed = log.plan.config.get("seed") if log.plan else None
    seed = log.eval.model_generate_config.get("seed") if seed is None else seed
    return seed if type(seed) is int else None


def _runtime(spec: Spec) -> dict[str, JSON]:
    packages: dict[str, JSON] = {name: version for name, version in spec.packages.items() if name != "inspect_ai"}
    arguments = {name: spec.model_args.get(name) for name in RUNTIME_ARGS}
    context: dict[str, JSON] = {
        name: value for name, value in arguments.items() if isinstance(value, str | int | float)
    }
    return {"packages": packages, **context} if packages else context


def _date(log: InspectLog, name: str) -> str:
    """Return the time at which the run was completed, or else created, in the log's spelling."""
    completed_at = log.stats.completed_at if log.stats else None
    date, pointer = (completed_at, "/stats/completed_at") if completed_at else (log.eval.created, "/eval/created")
    if not evidence.is_moment(date):
        raise broken(name, pointer, "must be an ISO 8601 time with its offset")
    return date
