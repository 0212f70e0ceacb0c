"""Reads a run directory of HELM into a `Run`. Pure; does not import helm.

HELM records little of what claims need: its model and scenario names are its own (`eleutherai/pythia-1b-v0` looks like
a Hub name and is not), and no file holds a revision, HELM's version, the command or a time. All of it is supplied.

A stat occurs once for each split and perturbation: its selector is `split[@perturbation.computed_on]/name`. Nothing is
claimed unless it is chosen, as most stats are token counts and the like.

`stats.json` has means of means: of how many instances a stat is, only `per_instance_stats.json` knows. `num_instances`
is not it: an instance need not have every stat. Whether a run is whole shows only where it stayed below its cap: HELM
does not write how many instances there are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from issuer.adapters.evidence import Octets, artifact, broken, measured, read_json, said, words
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place
from issuer.formats.strict_json import pointer_to

FRAMEWORK = "helm"
REQUIRED = ("run_spec.json", "stats.json")
OPTIONAL = ("scenario.json",)
PER_INSTANCE = "per_instance_stats.json"
MAX_PER_INSTANCE = 64 * 2**20  # left unread where it is larger
MAX_STATS = 20_000
MOCK_OWNER = "simple"


class _Adapter(Struct, frozen=True):
    model: str
    max_eval_instances: int | None = None
    num_train_trials: int = 1
    num_trials: int = 1


class _RunSpec(Struct, frozen=True):
    name: str
    adapter_spec: _Adapter


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


# By (name, scorer, reducer) of a stat: the instances that have it.
_Counts: TypeAlias = Mapping[tuple[str, str, str], int]


def read(files: Mapping[str, Octets], name: str = "") -> Run:
    """Read the files of one run directory, by their names; `name` is what the directory is called. `run_spec.json` and
    `stats.json` are required, `scenario.json` and `per_instance_stats.json` are optional; every given file is listed in
    `details.artifacts`. Raises InputError: `file.*` of the strict reader, `file.schema` for a missing file or a member
    of the wrong type, `file.rule` for a mean that is not its sum by its count."""
    for needed in REQUIRED:
        if needed not in files:
            raise broken(name, "", f"not a run directory of HELM: it has no {needed}")
    folder = f"{name}/" if name else ""
    spec = read_json(files["run_spec.json"], _RunSpec, f"{folder}run_spec.json")
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
        framework_name=Said(FRAMEWORK, ""),
        task_id=said(scenario.name, "/scenario.json/name"),
        mock=Said(model, "/run_spec.json/adapter_spec/model") if model.partition("/")[0] == MOCK_OWNER else None,
        unknown=_unknown(spec.adapter_spec, stats),
        scores=tuple(_score(index, stat, spec.adapter_spec, counts) for index, stat in enumerate(stats)),
        details={
            "artifacts": [artifact(files[file], file) for file in sorted(files)],
            "run": words({"task": task, "model": model, "run_spec": spec.name}),
        },
    )


def _counts(raw: Octets, place: Place) -> _Counts:
    """Count the instances that have each stat. By msgspec: the file is large, and nothing of it is claimed."""
    try:
        instances = msgspec.json.decode(raw, type=list[_Instance])
    except RecursionError:
        raise InputError(Code.FILE_TOO_LARGE, "nested too deep", place) from None
    except msgspec.ValidationError as error:
        raise InputError(Code.FILE_SCHEMA, str(error), place) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError(Code.FILE_SYNTAX, "not JSON", place) from None
    having: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for instance in instances:
        for stat in instance.stats:
            if stat.count > 0:
                having[stat.name.name, stat.name.scorer, stat.name.reducer].add(instance.instance_id)
    return {stat: len(ids) for stat, ids in having.items()}


def _unknown(adapter: _Adapter, stats: tuple[_Stat, ...]) -> tuple[Fault, ...]:
    """Say why nobody knows whether the run is whole. One that stayed below its cap used every instance."""
    cap = adapter.max_eval_instances
    if cap is None:
        return ()
    used = [stat.mean for stat in stats if stat.name.name == "num_instances" and stat.name.perturbation is None]
    numbers = [count for count in used if isinstance(count, int | float)]
    if numbers and len(numbers) == len(used) and sum(numbers) < cap:
        return ()
    rule = f"the run was limited to {cap} instances, and HELM does not write how many there are"
    return (Fault(Code.FILE_RULE, "/run_spec.json/adapter_spec/max_eval_instances", rule),)


def _score(index: int, stat: _Stat, adapter: _Adapter, counts: _Counts) -> Score:
    pointer = f"{pointer_to('/stats.json', index)}/mean"
    value, fault = measured(stat.mean, pointer)
    if stat.count < 1:
        fault = Fault(Code.FILE_RULE, pointer, "the stat was never measured: its count is 0")
    elif fault is None and not _adds_up(stat):
        fault = Fault(Code.FILE_RULE, pointer, "the mean is not the sum by the count")
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


def _adds_up(stat: _Stat) -> bool:
    if not isinstance(stat.sum, int | float) or not isinstance(stat.mean, int | float):
        return False
    return math.isclose(stat.mean * stat.count, stat.sum, rel_tol=1e-9, abs_tol=1e-12)
