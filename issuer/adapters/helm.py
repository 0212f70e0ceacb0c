"""The reader of HELM. A run directory gives one `Run`. Pure; does not import helm.

HELM records few of the claims, and the owner supplies the others. HELM has its own names for models and scenarios:
`eleutherai/pythia-1b-v0` only looks like a Hub name. No file has a revision, HELM's version, the command or a time.

A stat occurs once for each split and perturbation; its selector is `split[@perturbation.computed_on]/name`. The owner
must choose the stats to claim, because most stats are token counts and the like.

`stats.json` has means of means. Only `per_instance_stats.json` shows how many instances have a stat: `num_instances`
also counts instances without it. HELM does not write how many instances exist: a run is known to be full only if it
stayed below its cap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from issuer.adapters.evidence import Octets, artifact, broken, measured, read_json, reason, said, words
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON, pointer_to
from issuer.results import arguments

FRAMEWORK = "helm"
REQUIRED = ("run_spec.json", "stats.json")
OPTIONAL = ("scenario.json",)
PER_INSTANCE = "per_instance_stats.json"
MAX_PER_INSTANCE = 64 * 2**20  # a larger file is not read
MAX_STATS = 20_000
MOCK_OWNER = "simple"
NOT_ARGUMENTS = frozenset({"max_eval_instances", "model", "model_deployment"})


class _Adapter(Struct, frozen=True):
    """`adapter_spec`. Its other members are arguments of the run."""

    model: str
    max_eval_instances: int | None = None
    num_train_trials: int = 1
    num_trials: int = 1


class _ScenarioSpec(Struct, frozen=True):
    args: object = None


class _RunSpec(Struct, frozen=True):
    name: str
    adapter_spec: _Adapter
    scenario_spec: _ScenarioSpec = _ScenarioSpec()
    data_augmenter_spec: object = None


class _Perturbation(Struct, frozen=True):
    name: str
    computed_on: str = ""


class _StatName(Struct, frozen=True):
    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: _Perturbation | None = None

    @property
    def scorer(self) -> str:
        return ".".join(part for part in (self.split, self.sub_split) if part)

    @property
    def reducer(self) -> str:
        changed = self.perturbation
        return ".".join(part for part in (changed.name, changed.computed_on) if part) if changed else ""


class _Stat(Struct, frozen=True):
    name: _StatName
    count: int
    sum: object = None
    mean: object = None


class _Scenario(Struct, frozen=True):
    name: str | None = None


class _Counted(Struct, frozen=True):
    name: _StatName
    count: int


class _Instance(Struct, frozen=True):
    instance_id: str
    stats: tuple[_Counted, ...]


# By (name, scorer, reducer) of a stat: the number of instances that have it.
_Counts: TypeAlias = Mapping[tuple[str, str, str], int]


def read(files: Mapping[str, Octets], name: str = "") -> Run:
    """Read one run directory. `files` has the files by name, and `name` is the directory's name in errors. It must have
    `run_spec.json` and `stats.json`; `scenario.json` and `per_instance_stats.json` are optional. `details.artifacts`
    lists all given files. Raises InputError: `file.*` of the strict reader, `file.schema` for a member of the wrong
    type, `file.rule` for a missing file and for too many stats. A mean that is not the sum divided by the count is a
    fault of the score.
    """
    for needed in REQUIRED:
        if needed not in files:
            raise broken(name, "", f"not a run directory of HELM: it has no {needed}")
    folder = f"{name}/" if name else ""
    members = read_json(files["run_spec.json"], dict[str, Any], f"{folder}run_spec.json")
    with reading(f"{folder}run_spec.json"):
        spec = strict_json.convert(members, _RunSpec)
    stats = read_json(files["stats.json"], tuple[_Stat, ...], f"{folder}stats.json")
    if len(stats) > MAX_STATS:
        raise broken(name, "/stats.json", f"more than {MAX_STATS} stats")
    stated = files.get("scenario.json")
    scenario = _Scenario() if stated is None else read_json(stated, _Scenario, f"{folder}scenario.json")
    counts = _counts(files[PER_INSTANCE], Place(f"{folder}{PER_INSTANCE}")) if PER_INSTANCE in files else {}
    model = spec.adapter_spec.model
    task = scenario.name or spec.name
    return Run(
        name=name,
        task=task,
        framework_name=RunText(FRAMEWORK, ""),
        task_id=said(scenario.name, "/scenario.json/name"),
        mock=RunText(model, "/run_spec.json/adapter_spec/model") if model.partition("/")[0] == MOCK_OWNER else None,
        unknown=_unknown(spec.adapter_spec, stats),
        arguments=_arguments(spec, members["adapter_spec"]),
        scores=tuple(_score(index, stat, spec.adapter_spec, counts) for index, stat in enumerate(stats)),
        details={
            "artifacts": [artifact(files[file], file) for file in sorted(files)],
            "run": words({"task": task, "model": model, "run_spec": spec.name}),
        },
    )


def _arguments(spec: _RunSpec, adapter: Mapping[str, object]) -> dict[str, JSON]:
    """Return the adapter's settings, without the model, and the arguments of the scenario and of the perturbations."""
    settings = {name: value for name, value in adapter.items() if name not in NOT_ARGUMENTS}
    made = {"adapter": settings, "scenario": spec.scenario_spec.args, "augmenter": spec.data_augmenter_spec}
    return arguments.bounded(arguments.flat(made))


_decode_instances = msgspec.json.Decoder(list[_Instance]).decode


def _counts(raw: Octets, place: Place) -> _Counts:
    """Count the instances that have each stat. msgspec is enough for this large file, which has no claims."""
    try:
        instances = _decode_instances(raw)
    except RecursionError:
        raise InputError(Code.FILE_TOO_LARGE, "nested too deep", place) from None
    except msgspec.ValidationError as error:
        raise InputError(Code.FILE_SCHEMA, str(error), place) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError(Code.FILE_SYNTAX, "not JSON", place) from None
    ids_by_stat: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for instance in instances:
        for stat in instance.stats:
            if stat.count > 0:
                ids_by_stat[stat.name.name, stat.name.scorer, stat.name.reducer].add(instance.instance_id)
        if len(ids_by_stat) > MAX_STATS:
            raise InputError(Code.FILE_TOO_LARGE, f"more than {MAX_STATS} stats", place)
    return {stat: len(ids) for stat, ids in ids_by_stat.items()}


def _unknown(adapter: _Adapter, stats: tuple[_Stat, ...]) -> tuple[Fault, ...]:
    """Return why the run is not known to be full. A run below its cap used every instance."""
    cap = adapter.max_eval_instances
    if cap is None:
        return ()
    used = [stat.mean for stat in stats if stat.name.name == "num_instances" and stat.name.perturbation is None]
    numbers = [count for count in used if isinstance(count, int | float)]
    if numbers and len(numbers) == len(used) and sum(numbers) < cap:
        return ()
    rule = f"the run was limited to {cap} instances, and HELM does not write how many exist"
    return (reason("/run_spec.json/adapter_spec/max_eval_instances", rule),)


def _score(index: int, stat: _Stat, adapter: _Adapter, counts: _Counts) -> Score:
    pointer = f"{pointer_to('/stats.json', index)}/mean"
    value, fault = measured(stat.mean, pointer)
    if stat.count < 1:
        fault = reason(pointer, "the stat was never measured: its count is 0")
    elif fault is None and not (
        isinstance(stat.sum, int | float) and math.isclose(value * stat.count, stat.sum, rel_tol=1e-9, abs_tol=1e-12)
    ):
        fault = reason(pointer, "the mean is not the sum divided by the count")
    trials = adapter.num_train_trials * adapter.num_trials
    return Score(
        scorer=stat.name.scorer,
        reducer=stat.name.reducer,
        metric=stat.name.name,
        value=value,
        pointer=pointer,
        fault=fault,
        aside=True,
        samples=counts.get((stat.name.name, stat.name.scorer, stat.name.reducer)),
        epochs=trials if trials > 1 else None,
        split=stat.name.split or "",
    )
