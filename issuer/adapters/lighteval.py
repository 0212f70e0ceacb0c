"""Reads the results JSON of lighteval into one `Run` a task or average of subtasks. Pure; does not import lighteval.

Where each claim comes from, and what is never taken for it:

* `model_repo`: `model_config.model_name` of an engine that loads from the Hub (it has a `revision`), without an adapter
  or delta weights; `openai/gpt-4o` of an API looks like a Hub name and is not. `model_revision`: a full commit in
  `model_config.revision`; never `main`. Releases before 0.11 have `model_sha`, the commit that the Hub answered.
* `benchmark_repo`, `benchmark_revision`: `hf_repo` and a full commit in `hf_revision` of the task's configuration.
* `task_id`: the task's name without its suite and its number of shots. Never `versions`: they number the configuration.
* whole or not: `original_num_docs` and `effective_num_docs`, which releases from 0.11 on leave at -1; then a run is
  whole where no `max_samples` was asked for, and otherwise nobody knows.

No file has lighteval's version, the command or a date: its times are of a clock that begins when the machine does.
`all` is the average over whatever tasks ran together, and no run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

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
from issuer.errors import Fault
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results.claims import REVISION, is_repo

FRAMEWORK = "lighteval"
MOCK_MODEL = "dummy"
# The members of a configuration that name a server, where somebody else chose the weights.
SERVER_MEMBERS = frozenset({"base_url", "endpoint_name", "inference_server_address"})
# The members of the dummy's configuration, which has no other mark once it is given another name.
DUMMY_MEMBERS = frozenset({"model_name", "generation_parameters", "system_prompt", "cache_dir", "seed"})

_AVERAGE = ":_average"
_EPOCHS = re.compile(r"[:&]n=([1-9][0-9]{0,5})(?:&|\Z)")  # pass@k:k=1&n=8: eight answers a sample
_Members: TypeAlias = Mapping[str, object]


class _General(Struct, frozen=True):
    model_name: str
    model_config: dict[str, object] | None = None
    model_sha: object = None
    model_dtype: object = None
    lighteval_sha: object = None
    max_samples: object = None
    override_batch_size: object = None


class _File(Struct, frozen=True):
    """The members that are read; unknown ones are skipped. A task's configuration was once a text."""

    config_general: _General
    results: Results
    config_tasks: dict[str, object]


def read(raw: Octets, name: str = "") -> tuple[Run, ...]:
    """Read one results file: a run for each task, and for each average of subtasks, in the file's order. Raises
    InputError as `read_json`, and `file.rule` for a file without tasks. The file is believed otherwise: it is not
    signed."""
    file = read_json(raw, _File, name)
    demand_few_scores(file.results, name)
    families = _families(file)
    if not families:
        raise broken(name, "/results", "only an average over all tasks, and no task")
    evidence = artifact(raw, name)
    return tuple(_run(file, task, leaves, evidence, name) for task, leaves in families.items())


def _families(file: _File) -> dict[str, tuple[str, ...]]:
    """Return the subtasks of each average, and of a task itself."""
    subtasks: defaultdict[str, list[str]] = defaultdict(list)
    tasks = [task for task in file.results if "|" in task]
    for task in tasks:
        if _AVERAGE not in task:
            subtasks[_average_of(task)].append(task)
    return {task: tuple(subtasks[task]) if _AVERAGE in task else (task,) for task in tasks}


def _average_of(task: str) -> str:
    """Return where lighteval puts the average of a subtask: `mmlu:anatomy|5` is in `mmlu:_average|5`."""
    head, _, shots = task.rpartition("|")
    return f"{head.partition(':')[0]}{_AVERAGE}|{shots}"


def _run(file: _File, task: str, leaves: Sequence[str], evidence: dict[str, JSON], name: str) -> Run:
    configs = [_task_config(file, leaf) for leaf in leaves]
    place = pointer_to("/config_tasks", leaves[0]) if leaves else ""
    partial, unknown = _completeness(file, leaves, configs)
    general, model = file.config_general, _model_config(file)
    model_repo, model_revision = _model(file)
    return Run(
        name=name,
        task=task,
        framework_name=Said(FRAMEWORK, ""),
        model_repo=model_repo,
        model_revision=model_revision,
        benchmark_repo=said(repo if is_repo(repo := _same(configs, "hf_repo")) else "", f"{place}/hf_repo"),
        benchmark_revision=said(_commit(_same(configs, "hf_revision")), f"{place}/hf_revision"),
        task_id=said(task.rpartition("|")[0].rpartition("|")[2].removesuffix(_AVERAGE), "/results"),
        mock=Said(general.model_name, "/config_general/model_name") if _is_dummy(file) else None,
        partial=partial,
        unknown=unknown,
        remarks=tuple(_elsewhere(model)),
        scores=tuple(_scores(file.results[task], pointer_to("/results", task), configs)),
        details=_details(general, model, task, configs, evidence),
    )


def _details(
    general: _General, model: _Members, task: str, configs: Sequence[_Members], evidence: dict[str, JSON]
) -> dict[str, JSON]:
    generation = model.get("generation_parameters")
    seed = count_of(generation.get("seed")) if isinstance(generation, dict) else None
    details: dict[str, JSON] = {
        "artifacts": [evidence],
        "run": words({
            "task": task,
            "model": general.model_name,
            "code_revision": _commit(general.lighteval_sha),
            "seed": count_of(model.get("seed")) if seed is None else seed,
            "batch_size": count_of(model.get("batch_size")) or count_of(general.override_batch_size) or None,
        }),
        "runtime_context": words({"dtype": word_of(model.get("dtype")) or word_of(general.model_dtype)}),
        "benchmark_subset": _same(configs, "hf_subset"),
    }  # fmt: skip
    return {member: value for member, value in details.items() if value}


def _task_config(file: _File, task: str) -> _Members:
    """Return a task's configuration, which older releases have under its name without the shots."""
    config = file.config_tasks.get(task, file.config_tasks.get(task.rpartition("|")[0]))
    return config if isinstance(config, dict) else {}


def _same(configs: Sequence[_Members], member: str) -> str:
    """Return what all the tasks have in common, or an empty text."""
    found = {word_of(config.get(member)) for config in configs}
    return found.pop() if len(found) == 1 else ""


def _commit(text: object) -> str:
    return text if isinstance(text, str) and REVISION.fullmatch(text) else ""


# -- model ------------------------------------------------------------------------------------------------------------


def _model_config(file: _File) -> _Members:
    return file.config_general.model_config or {}


def _is_dummy(file: _File) -> bool:
    return file.config_general.model_name == MOCK_MODEL or _model_config(file).keys() == DUMMY_MEMBERS


def _model(file: _File) -> tuple[Said | None, Said | None]:
    """Return the repository and its commit, as far as the file has them."""
    general, config = file.config_general, _model_config(file)
    if not is_repo(general.model_name):
        return None, None
    repo = Said(general.model_name, "/config_general/model_name")
    if answered := _commit(general.model_sha):
        return repo, Said(answered, "/config_general/model_sha")
    if "revision" not in config or config.keys() & {"base_model", "endpoint_name"}:
        return None, None
    return repo, said(_commit(config["revision"]), "/config_general/model_config/revision")


def _elsewhere(config: _Members) -> Iterator[str]:
    """Yield a sentence where the weights may not be those that the model's name stands for."""
    if any(config.get(member) for member in SERVER_MEMBERS):
        yield SERVED


# -- results ----------------------------------------------------------------------------------------------------------


def _docs(config: _Members) -> tuple[int | None, int | None]:
    """Return how many samples of a task were evaluated, and how many there are; None where it is not known."""
    return count_of(config.get("effective_num_docs")), count_of(config.get("original_num_docs"))


def _completeness(
    file: _File, leaves: Sequence[str], configs: Sequence[_Members]
) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
    """Say why a task or average is not whole, and why nobody knows."""
    counts = {leaf: _docs(config) for leaf, config in zip(leaves, configs, strict=True)}
    if short := {leaf: count for leaf, count in counts.items() if None not in count and count[0] != count[1]}:
        pointer = f"{pointer_to('/config_tasks', next(iter(short)))}/effective_num_docs"
        return (Fault(Code.FILE_RULE, pointer, used_of(short)),), ()
    limit = file.config_general.max_samples
    if limit is None or (counts and not any(None in count for count in counts.values())):
        return (), ()
    rule = f"the run was limited to {word_of(limit)} samples a task, and does not say how many there are"
    return (), (Fault(Code.FILE_RULE, "/config_general/max_samples", rule),)


def _scores(results: _Members, place: str, configs: Sequence[_Members]) -> Iterator[Score]:
    used = [_docs(config)[0] for config in configs]
    samples = None if None in used else sum(count for count in used if count) or None
    split = _split(configs)
    for metric, value in results.items():
        pointer = pointer_to(place, metric)
        number, fault = measured(value, pointer)
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


def _split(configs: Sequence[_Members]) -> str:
    """Return the split or splits that all the tasks are evaluated on."""
    found = {
        ",".join(map(word_of, splits)) if isinstance(splits := config.get("evaluation_splits"), list) else ""
        for config in configs
    }
    return found.pop() if len(found) == 1 else ""
