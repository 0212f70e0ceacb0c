"""Reads the results JSON of lm-evaluation-harness into one `Run` a task or group. Pure; does not import lm_eval.

Where each claim comes from, and what is never taken for it:

* `model_repo`, `model_revision`: `pretrained` of `config.model_args` and `config.model_sha`, the commit that the Hub
  answered for it; no `model_sha`, no `model_repo` of a transformers model: the name may be a folder. With PEFT it is
  the adapter and `peft_sha`, with delta weights these and `delta_sha`: the base model's commit does not name what was
  measured. Never `config.model_revision`: that is the request, `main`.
* `benchmark_repo`: `dataset_path` of the task's configuration in the shape `owner/name`; a group's, where all its tasks
  have the same. `benchmark_revision`: a full commit that the task pins in `dataset_kwargs.revision`, which is rare.
  Never `versions`: they number the task's configuration.
* metrics: keys `metric,filter`; the filter is the scorer. Standard errors are claimed only where they are chosen.
* how many samples a score is of: `sample_len` of the task, or `n-samples.effective` of releases before it; a group's
  score is of those in its `sample_count`, or of the tasks that have that metric: not of all in the group.
* whole or not: by these counts against `n-samples.original`, never by `config.limit`, which may be more.
* `framework.version`: `lm_eval_version`. Never `git_hash`: that is the checkout's in which it ran. No file has the
  command.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from issuer.adapters.evidence import (
    SERVED,
    Octets,
    Results,
    artifact,
    broken,
    count_of,
    demand_few_scores,
    measured,
    read_json,
    said,
    used_of,
    word_of,
    words,
)  # fmt: skip
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.times import show_time
from issuer.results.claims import REVISION, is_repo

FRAMEWORK = "lm-eval"
MAX_MEMBERSHIPS = 200_000  # of tasks in groups of groups, for each score: it can grow as the square of a file
MOCK_MODEL = "dummy"
# Backends whose `pretrained` is the name of a Hub repository, if it is not a folder ...
HUB_BACKENDS = frozenset({
    "hf", "hf-audiolm-qwen", "hf-auto", "hf-mistral3", "hf-multimodal", "huggingface", "mamba_ssm", "sglang", "vllm",
    "vllm-vlm",
})  # fmt: skip
# ... and those that do not ask the Hub for its commit. The others do: an empty one says that the Hub does not know it.
SHALESS_BACKENDS = frozenset({"sglang", "vllm", "vllm-vlm"})

_CHANGED = frozenset({"lora_local_path", "steer_path"})  # arguments that change what the model's name stands for
_FOLDER = "The file has no commit that the Hub answered for this model: its name may be that of a folder."


class _TaskConfig(Struct, frozen=True):
    dataset_path: object = None
    dataset_name: object = None
    dataset_kwargs: object = None
    test_split: object = None
    validation_split: object = None
    repeats: object = None


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


_Taker: TypeAlias = "Callable[[_TaskConfig], tuple[str, str]]"


class _File(Struct, frozen=True):
    """The members that are read; unknown ones are skipped."""

    results: Results
    config: _Config
    configs: dict[str, _TaskConfig] = {}
    group_subtasks: dict[str, list[str]] = {}
    samples: dict[str, _Samples] = field(name="n-samples", default={})
    date: object = None
    lm_eval_version: str | None = None
    transformers_version: object = None
    git_hash: object = None


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one results file: a run for each task and group, in the file's order. Raises InputError as `read_json`,
    `file.too_large` for absurd groups, and `file.rule` for contradictions within the file. The file is believed
    otherwise: it is not signed."""
    file = read_json(raw, _File, name)
    demand_few_scores(file.results, name)
    model, evidence = _model(file.config, name), artifact(raw, name)
    return tuple(_run(file, task, leaves, model, evidence, name) for task, leaves in _families(file, name).items())


class _Model(Struct, frozen=True):
    label: str
    remark: str = ""
    repo: Said | None = None
    revision: Said | None = None
    base: str = ""
    base_revision: str = ""


def _run(file: _File, task: str, leaves: Sequence[str], model: _Model, evidence: dict[str, JSON], name: str) -> Run:
    partial, unknown = _completeness(file, leaves)
    return Run(
        name=name,
        task=task,
        framework_name=Said(FRAMEWORK, ""),
        framework_version=said(file.lm_eval_version, "/lm_eval_version"),
        model_repo=model.repo,
        model_revision=model.revision,
        benchmark_repo=_shared(file, leaves, _dataset),
        benchmark_revision=_shared(file, leaves, _dataset_revision),
        task_id=said(task, "/results"),
        mock=Said(MOCK_MODEL, "/config/model") if file.config.model == MOCK_MODEL else None,
        partial=partial,
        unknown=unknown,
        remarks=(model.remark,) if model.remark else (),
        scores=tuple(_scores(file, task, leaves)),
        details=_details(file, task, leaves, model, evidence),
    )


def _details(
    file: _File, task: str, leaves: Sequence[str], model: _Model, evidence: dict[str, JSON]
) -> dict[str, JSON]:
    details: dict[str, JSON] = {
        "date": _date(file.date),
        "artifacts": [evidence],
        "run": words({
            "task": task,
            "model": model.label,
            "base_model": model.base,
            "base_model_revision": model.base_revision,
            "code_revision": word_of(file.git_hash),
            "seed": _seeds(file.config),
            "batch_size": _batch_size(file.config.batch_size),
        }),
        "runtime_context": words({
            "dtype": word_of(file.config.model_dtype),
            "transformers": word_of(file.transformers_version).removeprefix("N/A"),
        }),
        "benchmark_subset": subset.text if (subset := _shared(file, leaves, _subset)) else "",
    }  # fmt: skip
    return {member: value for member, value in details.items() if value}


def _seeds(config: _Config) -> str | int:
    """Return the seeds as its option `--seed` takes them (python, numpy, torch, few-shot), or the only one."""
    seeds = [config.random_seed, config.numpy_seed, config.torch_seed, config.fewshot_seed]
    known = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool)]
    if len(known) < len(seeds):
        return ""
    return known[0] if len(set(known)) == 1 else ",".join(map(str, known))


def _batch_size(size: object) -> str | int:
    """Return what was asked for: a number, also where it was written as text, or `auto`, `auto:4`."""
    text = word_of(size)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


# -- groups -----------------------------------------------------------------------------------------------------------


def _families(file: _File, name: str) -> dict[str, tuple[str, ...]]:
    """Return the tasks of each task and group, through groups of groups; of a task, itself. Raises
    InputError(`file.too_large`) where these are absurdly many."""
    families, looked_at = {}, 0
    for task in file.results:
        leaves, waiting, seen = [], deque([task]), {task}
        while waiting:
            one = waiting.popleft()
            below = file.group_subtasks.get(one)
            looked_at += 1 + len(below or ())
            if not below:
                leaves.append(one)
                looked_at += len(file.results[task])
            if looked_at > MAX_MEMBERSHIPS:
                rule = f"more than {MAX_MEMBERSHIPS} tasks in groups of groups"
                raise InputError(Code.FILE_TOO_LARGE, rule, Place(name), "/group_subtasks")
            for member in below or ():
                if member not in seen:
                    seen.add(member)
                    waiting.append(member)
        families[task] = tuple(leaves)
    return families


# -- model ------------------------------------------------------------------------------------------------------------


def _model(config: _Config, name: str) -> _Model:
    args = _arguments(config.model_args)
    label = args.get("pretrained") or config.model
    if config.model not in HUB_BACKENDS:
        return _Model(label, SERVED if args.get("base_url") else "")
    if found := sorted(_CHANGED & args.keys()):
        return _Model(label, f"The weights were changed by {', '.join(found)}: they are not those of the model's name.")
    for member, sha in (("peft", config.peft_sha), ("delta", config.delta_sha)):
        if weights := args.get(member):
            repo, revision = _known(config, weights, sha, f"/config/{member}_sha")
            base_sha = config.model_sha if isinstance(config.model_sha, str) else ""
            return _Model(weights, _doubt(weights, repo), repo, revision, label, base_sha)
    repo, revision = _known(config, label, config.model_sha, "/config/model_sha")
    asked = args.get("revision", "")
    if revision and REVISION.fullmatch(asked) and asked != revision.text:
        raise broken(name, "/config/model_sha", f"not the revision that model_args asks for, {asked}")
    if repo and not revision and REVISION.fullmatch(asked):
        revision = Said(asked, "/config/model_args")
    return _Model(label, _doubt(label, repo), repo, revision)


def _doubt(weights: str, repo: Said | None) -> str:
    return _FOLDER if repo is None and is_repo(weights) else ""


def _known(config: _Config, weights: str, sha: object, pointer: str) -> tuple[Said | None, Said | None]:
    """Return the repository and its commit; neither where the Hub was asked and did not know it."""
    revision = said(sha, pointer) if isinstance(sha, str) else None
    if not is_repo(weights) or (revision is None and config.model not in SHALESS_BACKENDS):
        return None, None
    return Said(weights, "/config/model_args"), revision


def _arguments(args: object) -> dict[str, str]:
    """Read `model_args`, a map or `name=value,...`; a name that occurs twice is ignored."""
    if isinstance(args, dict):
        return {str(name): value for name, value in args.items() if isinstance(value, str)}
    pairs = [pair.partition("=")[::2] for pair in args.split(",")] if isinstance(args, str) else []
    names = [name.strip() for name, _ in pairs]
    return {name.strip(): value.strip() for name, value in pairs if names.count(name.strip()) == 1}


# -- benchmark --------------------------------------------------------------------------------------------------------


def _dataset(config: _TaskConfig) -> tuple[str, str]:
    path = config.dataset_path
    return (path, "dataset_path") if isinstance(path, str) and is_repo(path) else ("", "")


def _subset(config: _TaskConfig) -> tuple[str, str]:
    return word_of(config.dataset_name), "dataset_name"


def _split(config: _TaskConfig) -> tuple[str, str]:
    """Return the split that is evaluated: that of the tests, or where a task has none, of validation."""
    return word_of(config.test_split) or word_of(config.validation_split), "test_split"


def _dataset_revision(config: _TaskConfig) -> tuple[str, str]:
    revision = config.dataset_kwargs.get("revision") if isinstance(config.dataset_kwargs, dict) else None
    pinned = isinstance(revision, str) and REVISION.fullmatch(revision)
    return (str(revision), "dataset_kwargs/revision") if pinned else ("", "")


def _shared(file: _File, leaves: Sequence[str], take: _Taker) -> Said | None:
    """Return what all the tasks have in common, or None."""
    found = [take(file.configs.get(leaf, _TaskConfig())) for leaf in leaves]
    if len(set(found)) != 1 or not found[0][0]:
        return None
    text, member = found[0]
    return Said(text, f"{pointer_to('/configs', leaves[0])}/{member}")


# -- results ----------------------------------------------------------------------------------------------------------


def _counted(file: _File, leaf: str) -> tuple[int | None, int | None]:
    """Return how many samples of a task were evaluated, and how many there are; None: the file does not say."""
    counts = file.samples.get(leaf)
    used = count_of(file.results.get(leaf, {}).get("sample_len"))
    if counts is None:
        return used, None
    return counts.effective if used is None else used, count_of(counts.original) or None


def _completeness(file: _File, leaves: Sequence[str]) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Say why a task or group is not whole, and why nobody knows: by the counts, as a limit need not have cut."""
    counts = {leaf: _counted(file, leaf) for leaf in leaves}
    unknown = [leaf for leaf, count in counts.items() if None in count]
    known = {leaf: (used, there) for leaf, (used, there) in counts.items() if used is not None and there is not None}
    if short := {leaf: (used, there) for leaf, (used, there) in known.items() if used < there}:
        return (Fault(Code.FILE_RULE, pointer_to("/n-samples", next(iter(short))), used_of(short)),), ()
    if more := [leaf for leaf, (used, there) in known.items() if used > there]:
        rule = "{} of {} samples of {!r} were used, more than there are".format(*counts[more[0]], more[0][:64])
        return (), (Fault(Code.FILE_RULE, pointer_to("/n-samples", more[0]), rule),)
    if not unknown:
        return (), ()
    limit = " was limited, and" if file.config.limit is not None else ""
    rule = f"the run{limit} does not say how many samples {unknown[0][:64]!r} has"
    return (), (Fault(Code.FILE_RULE, "/n-samples", rule),)


def _scores(file: _File, task: str, leaves: Sequence[str]) -> Iterator[Score]:
    split, epochs = _shared(file, leaves, _split), _epochs(file, leaves)
    for key, value in file.results[task].items():
        metric, comma, scorer = key.rpartition(",")
        if not comma:  # alias, name, sample_len ...
            continue
        pointer = pointer_to(pointer_to("/results", task), key)
        number, fault = measured(value, pointer)
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
    """Return of how many samples a score is, None where that is not known, or where it is more than there are."""
    used, there = _used(file, task, leaves, key), [_counted(file, leaf)[1] for leaf in leaves]
    known = None if None in there else sum(count for count in there if count)
    return None if used is not None and known is not None and used > known else used


def _used(file: _File, task: str, leaves: Sequence[str], key: str) -> int | None:
    """Return how many samples the file says: a group has some metrics from only some of its tasks."""
    if tuple(leaves) == (task,):
        return _counted(file, task)[0] or None
    counted = file.results[task].get("sample_count")
    if isinstance(counted, dict):
        return count_of(counted.get(key)) or None
    used = [_counted(file, leaf)[0] for leaf in leaves if key in file.results.get(leaf, {})]
    return None if None in used else sum(count for count in used if count) or None


def _epochs(file: _File, leaves: Sequence[str]) -> int | None:
    """Return how often each sample was run, where that is known, the same for all tasks, and more than once."""
    repeats = {count_of(file.configs.get(leaf, _TaskConfig()).repeats) for leaf in leaves}
    return repeats.pop() if len(repeats) == 1 and not repeats & {None, 0, 1} else None


def _date(date: object) -> str:
    """Return when the run began; the file has Unix seconds."""
    if isinstance(date, bool) or not isinstance(date, int | float) or not 0 < date < 2**34:
        return ""
    return show_time(int(date))
