"""The reader of lm-evaluation-harness. A results JSON gives one `Run` for each task and group. Pure.

The source of each claim, and the members that are not used for it:

* `model_repo`, `model_revision`: `pretrained` in `config.model_args`, and `config.model_sha`, the commit that the Hub
  returned for it. Without `model_sha` both are missing for a transformers model, because its name may be a folder. For
  PEFT they are the adapter and `peft_sha`, for delta weights their repository and `delta_sha`: the base model's commit
  does not identify the measured weights. Never `config.model_revision`: it is the requested revision, such as `main`.
* `benchmark_repo`: `dataset_path` in the task's configuration, if its shape is `owner/name`; for a group, if all its
  tasks have the same. `benchmark_revision`: a full commit in `dataset_kwargs.revision`, which few tasks pin. Never
  `versions`: they number the task's configuration.
* metrics: the keys `metric,filter`; the filter is the scorer. Standard errors are claimed only if they are chosen.
* samples of a score: the task's `sample_len`, or `n-samples.effective` in older releases. A group's score covers the
  samples in its `sample_count`, or else the samples of the tasks that have this metric.
* completeness: these counts against `n-samples.original`. Never `config.limit`: it may exceed the number of samples.
* arguments: `n-shot`, the generation settings and prompts of the task's configuration, `gen_kwargs`, and the system
  instruction and chat template. Those in which the tasks of a group differ become one digest, `tasks`.
* `framework.version`: `lm_eval_version`. Never `git_hash`: it is the commit of the checkout in which lm_eval ran.

No results file contains the command.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from issuer.adapters import evidence
from issuer.adapters.evidence import Octets, commit_of, reason, repo_of, said, word_of
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score
from issuer.errors import Fault
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.times import show_time
from issuer.results import arguments
from issuer.results.arguments import digest
from issuer.results.claims import is_repo

FRAMEWORK = "lm-eval"
MAX_MEMBERSHIPS = 200_000  # tasks of nested groups, for each score: the number can grow with the square of the file
MAX_ARGUMENTS = 10_000  # in `model_args`
MOCK_MODEL = "dummy"
# Backends whose `pretrained` is a Hub repository or a folder.
HUB_BACKENDS = frozenset({
    "hf", "hf-audiolm-qwen", "hf-auto", "hf-mistral3", "hf-multimodal", "huggingface", "mamba_ssm", "sglang", "vllm",
    "vllm-vlm",
})  # fmt: skip
# These never ask the Hub for the commit. The others do: if they log no commit, the Hub does not know the repository.
BACKENDS_WITHOUT_SHA = frozenset({"sglang", "vllm", "vllm-vlm"})

# The members of a task's configuration that are prompts, or parts of one.
PROMPTS = ("description", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter", "fewshot_delimiter")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_WEIGHT_ARGS = frozenset({"lora_local_path", "steer_path"})  # arguments that change the weights of the named model
_MAYBE_FOLDER = "The file has no commit from the Hub for this model: the model's name may be the name of a folder."


class _TaskConfig(Struct, frozen=True):
    dataset_path: object = None
    dataset_name: object = None
    dataset_kwargs: object = None
    test_split: object = None
    validation_split: object = None
    repeats: object = None
    description: object = None
    doc_to_choice: object = None
    doc_to_target: object = None
    doc_to_text: object = None
    fewshot_delimiter: object = None
    generation_kwargs: object = None
    num_fewshot: object = None
    target_delimiter: object = None


class _Samples(Struct, frozen=True):
    original: int
    effective: int


class _Config(Struct, frozen=True):
    model: str
    model_args: object = None
    model_sha: object = None
    model_dtype: object = None
    peft_sha: object = None
    delta_sha: object = None
    limit: object = None
    batch_size: object = None
    random_seed: object = None
    numpy_seed: object = None
    torch_seed: object = None
    fewshot_seed: object = None
    gen_kwargs: object = None


_Getter: TypeAlias = "Callable[[_TaskConfig], tuple[str, str]]"


class _File(evidence.ResultsFile, frozen=True):
    config: _Config
    configs: dict[str, _TaskConfig] = field(default_factory=dict)
    group_subtasks: dict[str, list[str]] = field(default_factory=dict)
    samples: dict[str, _Samples] = field(name="n-samples", default_factory=dict)
    shots: dict[str, object] = field(name="n-shot", default_factory=dict)
    chat_template: object = None
    fewshot_as_multiturn: object = None
    system_instruction: object = None
    date: object = None
    lm_eval_version: str | None = None
    transformers_version: object = None
    git_hash: object = None


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one results file: a run for each task and group, in the file's order. Raises InputError as `read_results`,
    `file.too_large` for groups with too many tasks, and `file.rule` for contradictions within the file. The rest of the
    file is believed: it is not signed."""
    file = evidence.read_results(raw, _File, name)
    model, artifact, families = _model(file.config, name), evidence.artifact(raw, name), _families(file, name)
    shared = arguments.flat({
        "gen_kwargs": file.config.gen_kwargs,
        "system_instruction": file.system_instruction,
        "chat_template": file.chat_template,
        "fewshot_as_multiturn": file.fewshot_as_multiturn,
    })  # fmt: skip
    asked = {leaf: _task_arguments(file, leaf) for leaf in dict.fromkeys(chain.from_iterable(families.values()))}
    return tuple(
        replace(
            _run(file, task, leaves, model, artifact, name),
            arguments=arguments.bounded({**shared, **_common({leaf: asked[leaf] for leaf in leaves})}),
        )
        for task, leaves in families.items()
    )


class _Asked(Struct, frozen=True):
    """The arguments of one task, and their digest."""

    members: frozenset[tuple[str, JSON]]
    digest: str


def _task_arguments(file: _File, leaf: str) -> _Asked:
    config = file.configs.get(leaf, _TaskConfig())
    prompts = {name: getattr(config, name) for name in PROMPTS}
    members = arguments.flat({
        "num_fewshot": file.shots.get(leaf, config.num_fewshot),
        "repeats": config.repeats,
        "generation": config.generation_kwargs,
        # A function without its source is written with its address in memory.
        "prompt": {name: _ADDRESS.sub("", text) if isinstance(text, str) else text for name, text in prompts.items()},
    })  # fmt: skip
    return _Asked(frozenset(members.items()), digest(members))


def _common(asked: Mapping[str, _Asked]) -> dict[str, JSON]:
    """Return the arguments that all of these tasks share. `tasks` is a digest of those of each, if they differ."""
    if not asked:  # a group of itself
        return {}
    common = dict(frozenset.intersection(*(each.members for each in asked.values())))
    digests: dict[str, JSON] = {task: each.digest for task, each in asked.items()}
    return common if len(set(digests.values())) == 1 else {**common, "tasks": digest(digests)}


class _Model(Struct, frozen=True):
    label: str
    remark: str = ""
    repo: RunText | None = None
    revision: RunText | None = None
    base: str = ""
    base_revision: str = ""


def _run(file: _File, task: str, leaves: Sequence[str], model: _Model, artifact: dict[str, JSON], name: str) -> Run:
    partial, unknown = _completeness(file, leaves)
    return Run(
        name=name,
        task=task,
        framework_name=RunText(FRAMEWORK, ""),
        framework_version=said(file.lm_eval_version, "/lm_eval_version"),
        model_repo=model.repo,
        model_revision=model.revision,
        benchmark_repo=_shared(file, leaves, lambda config: (repo_of(config.dataset_path), "dataset_path")),
        benchmark_revision=_shared(file, leaves, _dataset_revision),
        task_id=said(task, "/results"),
        mock=RunText(MOCK_MODEL, "/config/model") if file.config.model == MOCK_MODEL else None,
        partial=partial,
        unknown=unknown,
        remarks=(model.remark,) if model.remark else (),
        scores=tuple(_scores(file, task, leaves)),
        details=_details(file, task, leaves, model, artifact),
    )


def _details(
    file: _File, task: str, leaves: Sequence[str], model: _Model, artifact: dict[str, JSON]
) -> dict[str, JSON]:
    subset = _shared(file, leaves, lambda config: (word_of(config.dataset_name), "dataset_name"))
    details: dict[str, JSON] = {
        "date": _date(file.date),
        "artifacts": [artifact],
        "run": evidence.words({
            "task": task,
            "model": model.label,
            "base_model": model.base,
            "base_model_revision": model.base_revision,
            "code_revision": word_of(file.git_hash),
            "seed": _seeds(file.config),
            "batch_size": _batch_size(file.config.batch_size),
        }),
        "runtime_context": evidence.words({
            "dtype": word_of(file.config.model_dtype),
            "transformers": word_of(file.transformers_version).removeprefix("N/A"),
        }),
        "benchmark_subset": subset.text if subset else "",
    }  # fmt: skip
    return {member: value for member, value in details.items() if value}


def _seeds(config: _Config) -> str | int:
    """Return the seeds in the form of `lm_eval --seed` (python, numpy, torch, few-shot), or one if all are equal."""
    seeds = [config.random_seed, config.numpy_seed, config.torch_seed, config.fewshot_seed]
    known = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool)]
    if len(known) < len(seeds):
        return ""
    return known[0] if len(set(known)) == 1 else ",".join(map(str, known))


def _batch_size(size: object) -> str | int:
    """Return the requested batch size: a number, even if the file has it as text, or a word: `auto`, `auto:4`."""
    text = word_of(size)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _families(file: _File, name: str) -> dict[str, tuple[str, ...]]:
    """Return for each task or group the tasks in it, also of nested groups; a task contains only itself. Raises
    InputError(`file.too_large`) for more than MAX_MEMBERSHIPS, and for a long name."""
    families, memberships = {}, 0
    for task in file.results:
        leaves, queue, queued = [], deque([task]), {task}
        while queue:
            member = queue.popleft()
            subtasks = file.group_subtasks.get(member, ())
            memberships += 1 + len(subtasks)
            if not subtasks:
                leaves.append(member)
                memberships += len(file.results[task])
            if memberships > MAX_MEMBERSHIPS:
                rule = f"more than {MAX_MEMBERSHIPS} tasks in groups of groups"
                raise evidence.too_large(name, rule, "/group_subtasks")
            fresh = [subtask for subtask in dict.fromkeys(subtasks) if subtask not in queued]
            queued.update(fresh)
            queue.extend(fresh)
        evidence.demand_short(leaves, name, "/group_subtasks")
        families[task] = tuple(leaves)
    return families


# -- model ------------------------------------------------------------------------------------------------------------


def _model(config: _Config, name: str) -> _Model:
    args = _arguments(config.model_args, name)
    label = args.get("pretrained") or config.model
    if config.model in HUB_BACKENDS and "/" in label and not is_repo(label):
        label = jcs.digest(label)  # the name of a folder
    if config.model not in HUB_BACKENDS:
        return _Model(label, evidence.SERVED if args.get("base_url") else "")
    if changed_by := sorted(_WEIGHT_ARGS & args.keys()):
        return _Model(label, f"The weights are not the named model's: {', '.join(changed_by)} changed them.")
    for member, sha in (("peft", config.peft_sha), ("delta", config.delta_sha)):
        if weights := args.get(member):
            repo, revision, remark = _weights(config, weights, sha, f"/config/{member}_sha")
            base_sha = config.model_sha if isinstance(config.model_sha, str) else ""
            return _Model(weights, remark, repo, revision, label, base_sha)
    repo, revision, remark = _weights(config, label, config.model_sha, "/config/model_sha")
    if requested := commit_of(args.get("revision")):
        if revision and requested != revision.text:
            raise evidence.broken(name, "/config/model_sha", f"not the revision that model_args requests, {requested}")
        revision = repo and (revision or RunText(requested, "/config/model_args"))
    return _Model(label, remark, repo, revision)


def _weights(config: _Config, weights: str, sha: object, pointer: str) -> tuple[RunText | None, RunText | None, str]:
    """Return the repository, its commit, and a remark; no repository if the backend got no commit from the Hub."""
    revision = said(sha, pointer) if isinstance(sha, str) else None
    if not is_repo(weights):
        return None, None, ""
    if revision is None and config.model not in BACKENDS_WITHOUT_SHA:
        return None, None, _MAYBE_FOLDER
    return RunText(weights, "/config/model_args"), revision, ""


def _arguments(args: object, file: str) -> dict[str, str]:
    """Parse `model_args`, a map or `name=value,...`. Names that occur twice are ignored. Raises
    InputError(`file.too_large`) for more than MAX_ARGUMENTS in a text."""
    if isinstance(args, dict):
        return {str(name): value for name, value in args.items() if isinstance(value, str)}
    text = args if isinstance(args, str) else ""
    if text.count(",") >= MAX_ARGUMENTS:
        raise evidence.too_large(file, f"more than {MAX_ARGUMENTS} arguments", "/config/model_args")
    pairs = [(name.strip(), value.strip()) for name, _, value in (pair.partition("=") for pair in text.split(","))]
    times = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if times[name] == 1}


def _split(config: _TaskConfig) -> tuple[str, str]:
    """Return the evaluated split: the test split, or the validation split of a task without tests."""
    return word_of(config.test_split) or word_of(config.validation_split), "test_split"


def _dataset_revision(config: _TaskConfig) -> tuple[str, str]:
    kwargs = config.dataset_kwargs if isinstance(config.dataset_kwargs, dict) else {}
    return commit_of(kwargs.get("revision")), "dataset_kwargs/revision"


def _shared(file: _File, leaves: Sequence[str], get: _Getter) -> RunText | None:
    """Return the text with its place if all the tasks have the same one, else None."""
    texts = {get(file.configs.get(leaf, _TaskConfig())) for leaf in leaves}
    text, member = texts.pop() if len(texts) == 1 else ("", "")
    return said(text, f"{pointer_to('/configs', leaves[0])}/{member}" if text else "")


# -- results ----------------------------------------------------------------------------------------------------------


def _sample_counts(file: _File, leaf: str) -> tuple[int | None, int | None]:
    """Return how many samples of a task were evaluated and how many exist; None if the file does not say."""
    counts = file.samples.get(leaf)
    used = evidence.count_of(file.results.get(leaf, {}).get("sample_len"))
    if counts is None:
        return used, None
    return counts.effective if used is None else used, evidence.count_of(counts.original) or None


def _completeness(file: _File, leaves: Sequence[str]) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Return why the task or group is partial, and why its completeness is not known. `config.limit` does not count,
    because it may exceed the number of samples."""
    counts = {leaf: _sample_counts(file, leaf) for leaf in leaves}
    known = {leaf: (used, all_) for leaf, (used, all_) in counts.items() if used is not None and all_ is not None}
    if short := {leaf: (used, available) for leaf, (used, available) in known.items() if used < available}:
        return (reason(pointer_to("/n-samples", next(iter(short))), evidence.used_of(short)),), ()
    for leaf, (used, available) in known.items():
        if used > available:
            rule = f"{used} of {available} samples of {leaf[:64]!r} were used, more than there are"
            return (), (reason(pointer_to("/n-samples", leaf), rule),)
    if len(known) == len(counts):
        return (), ()
    leaf = next(leaf for leaf in counts if leaf not in known)
    limit = " was limited, and" if file.config.limit is not None else ""
    return (), (reason("/n-samples", f"the run{limit} does not say how many samples {leaf[:64]!r} has"),)


def _scores(file: _File, task: str, leaves: Sequence[str]) -> Iterator[Score]:
    split, epochs = _shared(file, leaves, _split), _epochs(file, leaves)
    for key, value in file.results[task].items():
        metric, comma, scorer = key.rpartition(",")
        if not comma:  # alias, name, sample_len ...
            continue
        pointer = pointer_to(pointer_to("/results", task), key)
        number, fault = evidence.measured(value, pointer)
        aside = metric.endswith("_stderr")
        measured_key = f"{metric.removesuffix('_stderr')},{scorer}" if aside else key
        yield Score(
            scorer=scorer,
            metric=metric,
            spelling=key,
            value=number,
            pointer=pointer,
            fault=fault,
            aside=aside,
            samples=_samples(file, task, leaves, measured_key),
            epochs=epochs,
            split=split.text if split else "",
        )


def _samples(file: _File, task: str, leaves: Sequence[str], key: str) -> int | None:
    """Return how many samples a score covers; None if the file does not say, or says more than exist."""
    used, counts = _used(file, task, leaves, key), [_sample_counts(file, leaf)[1] for leaf in leaves]
    available = None if None in counts else sum(count for count in counts if count)
    return None if used is not None and available is not None and used > available else used


def _used(file: _File, task: str, leaves: Sequence[str], key: str) -> int | None:
    """Return how many samples the file says that a score covers. Some tasks of a group may lack the group's metric."""
    if tuple(leaves) == (task,):
        return _sample_counts(file, task)[0] or None
    counts = file.results[task].get("sample_count")
    if isinstance(counts, dict):
        return evidence.count_of(counts.get(key)) or None
    return evidence.total([_sample_counts(file, leaf)[0] for leaf in leaves if key in file.results.get(leaf, {})])


def _epochs(file: _File, leaves: Sequence[str]) -> int | None:
    """Return how often each sample was run, if that is more than once, and the same for all tasks."""
    repeats = {evidence.count_of(file.configs.get(leaf, _TaskConfig()).repeats) for leaf in leaves}
    return repeats.pop() if len(repeats) == 1 and not repeats & {None, 0, 1} else None


def _date(date: object) -> str:
    """Return the time at which the run began. The file has Unix seconds."""
    if isinstance(date, bool) or not isinstance(date, int | float) or not 0 < date < 2**34:
        return ""
    return show_time(int(date))
