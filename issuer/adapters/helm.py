"""Reads a run directory of HELM into a `Run`. Pure; does not import helm.

HELM records little of what claims need: its model and scenario names are its own (`eleutherai/pythia-1b-v0` looks like
a Hub name and is not), and no file holds a revision, HELM's version, the command or a time. All of it is supplied.

A stat occurs once for each split and perturbation: its selector is `split[@perturbation.computed_on]/name`. Nothing is
claimed unless it is chosen, as most stats are token counts and the like.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from issuer.adapters.evidence import Octets, artifact, broken, lenient_number, measured, said, words
from issuer.adapters.run import Run, Said
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import pointer_to

FRAMEWORK = "helm"
REQUIRED = ("run_spec.json", "stats.json")
OPTIONAL = ("scenario.json",)
MAX_BYTES = 8 * 2**20
MAX_DEPTH = 64
MAX_STATS = 20_000
MOCK_OWNER = "simple"

T = TypeVar("T")


class _Adapter(Struct, frozen=True):
    model: str
    max_eval_instances: int | None = None


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


class _Stat(Struct, frozen=True):
    name: _StatName
    count: int
    sum: object = None
    mean: object = None


class _Scenario(Struct, frozen=True):
    name: str | None = None


def read(files: Mapping[str, Octets], name: str = "") -> Run:
    """Read the files of one run directory, by their names; `name` is what the directory is called.

    `run_spec.json` and `stats.json` are required, `scenario.json` is optional; every given file is listed in
    `details.artifacts`. Raises InputError: `file.*` of the strict reader, `file.schema` for a missing file or
    a member of the wrong type, `file.rule` for a mean that is not its sum by its count.
    """
    for needed in REQUIRED:
        if needed not in files:
            raise broken(name, "", f"not a run directory of HELM: it has no {needed}")
    spec = _load(files, "run_spec.json", _RunSpec, name)
    stats = _load(files, "stats.json", tuple[_Stat, ...], name)
    if len(stats) > MAX_STATS:
        raise broken(name, "/stats.json", f"more than {MAX_STATS} stats")
    scenario = _load(files, "scenario.json", _Scenario, name) if "scenario.json" in files else _Scenario()
    model = spec.adapter_spec.model
    task = scenario.name or spec.name
    instances = _instances(stats)
    return Run(
        name=name,
        task=task,
        framework_name=Said(FRAMEWORK, ""),
        task_id=said(scenario.name, "/scenario.json/name"),
        mock=Said(model, "/run_spec.json/adapter_spec/model") if model.partition("/")[0] == MOCK_OWNER else None,
        partial=tuple(_gaps(spec.adapter_spec, instances)),
        scores=tuple(_scores(stats)),
        details={
            "artifacts": [artifact(files[file], file) for file in sorted(files)],
            "run": words({"num_samples": instances, "task": task, "model": model, "run_spec": spec.name}),
        },
    )


def _load(files: Mapping[str, Octets], file: str, kind: type[T], name: str) -> T:
    place = f"{name}/{file}" if name else file
    raw = bytes(files[file])
    with reading(place):
        tree = strict_json.loads(raw, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, number=lenient_number)
        return strict_json.convert(tree, kind)


def _instances(stats: tuple[_Stat, ...]) -> int | None:
    """Return how many instances were evaluated, over all splits, or None where HELM did not count them."""
    counts = [
        stat.mean
        for stat in stats
        if stat.name.name == "num_instances" and stat.name.perturbation is None and stat.name.sub_split is None
    ]
    numbers = [count for count in counts if isinstance(count, int | float)]
    return int(sum(numbers)) if numbers else None


def _gaps(adapter: _Adapter, instances: int | None) -> Iterator[Fault]:
    """HELM always has a cap; a run that stayed below it used every instance."""
    cap = adapter.max_eval_instances
    if cap is not None and (instances is None or instances >= cap):
        rule = f"the run was limited to {cap} instances"
        yield Fault(Code.FILE_RULE, "/run_spec.json/adapter_spec/max_eval_instances", rule)


def _scores(stats: tuple[_Stat, ...]) -> Iterator[Score]:
    for index, stat in enumerate(stats):
        pointer = f"{pointer_to('/stats.json', index)}/mean"
        changed = stat.name.perturbation
        value, fault = measured(stat.mean, pointer)
        if stat.count < 1:
            fault = Fault(Code.FILE_RULE, pointer, "the stat was never measured: its count is 0")
        elif fault is None and not _adds_up(stat):
            fault = Fault(Code.FILE_RULE, pointer, "the mean is not the sum by the count")
        yield Score(
            scorer=".".join(part for part in (stat.name.split, stat.name.sub_split) if part),
            reducer=".".join(part for part in (changed.name, changed.computed_on) if part) if changed else "",
            metric=stat.name.name,
            value=value,
            pointer=pointer,
            fault=fault,
            aside=True,
        )


def _adds_up(stat: _Stat) -> bool:
    if not isinstance(stat.sum, int | float) or not isinstance(stat.mean, int | float):
        return False
    return math.isclose(stat.mean * stat.count, stat.sum, rel_tol=1e-9, abs_tol=1e-12)
