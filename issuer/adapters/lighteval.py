"""The reader of lighteval. A results JSON gives one `Run` for each task and average of subtasks. Pure.

The source of each claim, and the members that are not used for it:

* `model_repo`: `model_config.model_name` of an engine that loads from the Hub (its configuration has a `revision`),
  without an adapter or delta weights. An API's model, `openai/gpt-4o`, only looks like a Hub name.
  `model_revision`: a full commit in `model_config.revision`, never `main`. Releases before 0.11 have `model_sha`, the
  commit that the Hub returned.
* `benchmark_repo`, `benchmark_revision`: `hf_repo` and a full commit in `hf_revision` of the task's configuration.
* `task_id`: the task's name without its suite and its number of shots. Never `versions`: they number the configuration.
* arguments: the task's shots, generation size and stop sequences, `generation.` and `generation_parameters`, and the
  system prompt and chat template of the model's configuration.
* completeness: `original_num_docs` and `effective_num_docs`. Releases from 0.11 on leave them at -1; then a run is full
  if `max_samples` is null, and otherwise its completeness is not known. That of an average never is: it may lack
  subtasks.

No results file contains lighteval's version, the command or a date: its times count from the start of the machine.
`all` is not a run: it is the average over the tasks that happened to run together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import UNSET, Struct

from issuer.adapters import evidence
from issuer.adapters.evidence import Octets, commit_of, count_of, reason, repo_of, said, word_of
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score
from issuer.errors import Fault
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results import arguments
from issuer.results.claims import is_repo

FRAMEWORK = "lighteval"
MOCK_MODEL = "dummy"
# The members of a configuration that name a server. The server's owner chose the weights.
SERVER_MEMBERS = frozenset({"base_url", "endpoint_name", "inference_server_address"})
# The members of the dummy model's configuration. If the dummy has another name, only these members identify it.
DUMMY_MEMBERS = frozenset({"model_name", "generation_parameters", "system_prompt", "cache_dir", "seed"})

# The members of a model's and of a task's configuration that change the prompts or the answers.
MODEL_ARGUMENTS = ("chat_template", "override_chat_template", "system_prompt", "use_chat_template")
TASK_ARGUMENTS = (
    "few_shots_select",
    "few_shots_split",
    "generation_grammar",
    "generation_size",
    "num_samples",
    "prompt_function",
    "stop_sequence",
)

_SHOTS = re.compile(r"[0-9]{1,6}")
_AVERAGE = ":_average"
_EPOCHS = re.compile(r"[:&]n=([1-9][0-9]{0,5})(?:&|\Z)")  # pass@k:k=1&n=8: eight answers for each sample
_Members: TypeAlias = Mapping[str, object]


class _General(Struct, frozen=True):
    model_name: str
    model_config: dict[str, object] | None = None
    model_sha: object = None
    model_dtype: object = None
    lighteval_sha: object = None
    max_samples: object = UNSET
    num_fewshot_seeds: object = None
    override_batch_size: object = None


class _File(evidence.ResultsFile, frozen=True):
    config_general: _General
    config_tasks: dict[str, object]  # older releases have a text in place of a task's configuration


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one results file: a run for each task, and for each average of subtasks, in the file's order. Raises
    InputError as `read_results`, and `file.rule` for a file without tasks. The rest of the file is believed: it is not
    signed."""
    file = evidence.read_results(raw, _File, name)
    families = _families(file)
    if not families:
        raise evidence.broken(name, "/results", "the file has only an average over all tasks, and no task")
    artifact, asked = evidence.artifact(raw, name), _model_arguments(file.config_general)
    return tuple(_run(file, task, leaves, asked, artifact, name) for task, leaves in families.items())


def _families(file: _File) -> dict[str, tuple[str, ...]]:
    """Return for each task or average the tasks in it; a task contains only itself."""
    subtasks: defaultdict[str, list[str]] = defaultdict(list)
    tasks = [task for task in file.results if "|" in task]
    for task in tasks:
        if _AVERAGE not in task:
            subtasks[_average_of(task)].append(task)
    return {task: tuple(subtasks[task]) if _AVERAGE in task else (task,) for task in tasks}


def _average_of(task: str) -> str:
    """Return the name of the average that a subtask is part of: `mmlu:_average|5` for `mmlu:anatomy|5`."""
    head, _, shots = task.rpartition("|")
    return f"{head.partition(':')[0]}{_AVERAGE}|{shots}"


def _run(
    file: _File, task: str, leaves: Sequence[str], asked: dict[str, JSON], artifact: dict[str, JSON], name: str
) -> Run:
    configs = [_task_config(file, leaf) for leaf in leaves]
    place = pointer_to("/config_tasks", leaves[0]) if leaves else ""
    partial, unknown = _completeness(file, task, leaves, configs)
    general = file.config_general
    model = general.model_config or {}
    model_repo, model_revision = _model(general, model)
    is_dummy = general.model_name == MOCK_MODEL or model.keys() == DUMMY_MEMBERS
    return Run(
        name=name,
        task=task,
        framework_name=RunText(FRAMEWORK, ""),
        model_repo=model_repo,
        model_revision=model_revision,
        benchmark_repo=said(repo_of(_same(configs, "hf_repo")), f"{place}/hf_repo"),
        benchmark_revision=said(commit_of(_same(configs, "hf_revision")), f"{place}/hf_revision"),
        task_id=said(task.rpartition("|")[0].rpartition("|")[2].removesuffix(_AVERAGE), "/results"),
        mock=RunText(general.model_name, "/config_general/model_name") if is_dummy else None,
        partial=partial,
        unknown=unknown,
        arguments=arguments.bounded({**asked, **_task_arguments(task, configs)}),
        remarks=(evidence.SERVED,) if any(map(model.get, SERVER_MEMBERS)) else (),
        scores=tuple(_scores(file.results[task], pointer_to("/results", task), configs)),
        details=_details(general, model, task, configs, artifact),
    )


def _details(
    general: _General, model: _Members, task: str, configs: Sequence[_Members], artifact: dict[str, JSON]
) -> dict[str, JSON]:
    generation = model.get("generation_parameters")
    seed = count_of(generation.get("seed")) if isinstance(generation, dict) else None
    details: dict[str, JSON] = {
        "artifacts": [artifact],
        "run": evidence.words({
            "task": task,
            "model": general.model_name,
            "code_revision": commit_of(general.lighteval_sha),
            "seed": count_of(model.get("seed")) if seed is None else seed,
            "batch_size": count_of(model.get("batch_size")) or count_of(general.override_batch_size) or None,
        }),
        "runtime_context": evidence.words({"dtype": word_of(model.get("dtype")) or word_of(general.model_dtype)}),
        "benchmark_subset": _same(configs, "hf_subset"),
    }  # fmt: skip
    return {member: value for member, value in details.items() if value}


def _model_arguments(general: _General) -> dict[str, JSON]:
    """Return the arguments of all tasks of the file."""
    model = general.model_config or {}
    generation = model.get("generation_parameters")
    settings = generation.items() if isinstance(generation, dict) else ()
    return arguments.flat(
        {
            "num_fewshot_seeds": general.num_fewshot_seeds,
            "generation": {name: value for name, value in settings if name != "seed"},
            **{name: model.get(name) for name in MODEL_ARGUMENTS},
        }
    )


def _task_arguments(task: str, configs: Sequence[_Members]) -> dict[str, JSON]:
    """Return the arguments of a task, or of the subtasks of an average."""
    shots = task.rpartition("|")[2]
    shared = {name: _shared_argument(configs, name) for name in TASK_ARGUMENTS}
    return arguments.flat({"num_fewshot": int(shots) if _SHOTS.fullmatch(shots) else shots, **shared})


def _shared_argument(configs: Sequence[_Members], name: str) -> object:
    """Return what all tasks have under this name; of tasks that differ, a digest of all."""
    values = [config.get(name) for config in configs]
    return values[0] if values[1:] == values[:-1] and values else arguments.digest(values)


def _task_config(file: _File, task: str) -> _Members:
    """Return a task's configuration. In older releases its key is the task's name without the shots."""
    config = file.config_tasks.get(task, file.config_tasks.get(task.rpartition("|")[0]))
    return config if isinstance(config, dict) else {}


def _same(configs: Sequence[_Members], member: str) -> str:
    return evidence.same(word_of(config.get(member)) for config in configs)


def _model(general: _General, config: _Members) -> tuple[RunText | None, RunText | None]:
    """Return the model's repository and commit; None for one that the file lacks."""
    if not is_repo(general.model_name):
        return None, None
    repo = RunText(general.model_name, "/config_general/model_name")
    if sha := commit_of(general.model_sha):
        return repo, RunText(sha, "/config_general/model_sha")
    if "revision" not in config or config.keys() & {"base_model", "endpoint_name"}:
        return None, None
    return repo, said(commit_of(config["revision"]), "/config_general/model_config/revision")


def _docs(config: _Members) -> tuple[int | None, int | None]:
    """Return how many samples of a task were evaluated and how many exist; None if the file does not say."""
    return count_of(config.get("effective_num_docs")), count_of(config.get("original_num_docs"))


def _completeness(
    file: _File, task: str, leaves: Sequence[str], configs: Sequence[_Members]
) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Return why the task or average is partial, and why its completeness is not known."""
    counts = {leaf: _docs(config) for leaf, config in zip(leaves, configs, strict=True)}
    if short := {leaf: count for leaf, count in counts.items() if None not in count and count[0] != count[1]}:
        pointer = f"{pointer_to('/config_tasks', next(iter(short)))}/effective_num_docs"
        return (reason(pointer, evidence.used_of(short)),), ()
    if _AVERAGE in task:
        rule = "an average covers the subtasks that were run, and the file does not say which exist"
        return (), (reason(pointer_to("/results", task), rule),)
    limit = file.config_general.max_samples
    if limit is None or not any(None in count for count in counts.values()):
        return (), ()
    limited = "may have been limited" if limit is UNSET else f"was limited to {word_of(limit)} samples a task"
    rule = f"the run {limited}, and the file does not say how many exist"
    return (), (reason("/config_general/max_samples", rule),)


def _scores(results: _Members, place: str, configs: Sequence[_Members]) -> Iterator[Score]:
    samples = evidence.total([_docs(config)[0] for config in configs])
    split = evidence.same(map(_splits, configs))
    for metric, value in results.items():
        pointer = pointer_to(place, metric)
        number, fault = evidence.measured(value, pointer)
        repeated = _EPOCHS.search(metric.removesuffix("_stderr"))
        yield Score(
            metric=metric,
            value=number,
            pointer=pointer,
            fault=fault,
            aside=metric.endswith("_stderr"),
            samples=samples,
            epochs=int(repeated[1]) if repeated and repeated[1] != "1" else None,
            split=split,
        )


def _splits(config: _Members) -> str:
    splits = config.get("evaluation_splits")
    return ",".join(map(word_of, splits)) if isinstance(splits, list) else ""
