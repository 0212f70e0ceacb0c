"""The mapping file: a strict YAML file with the values that an owner supplies for many runs. Pure.

    supply: {model_repo: "acme/open-model", command: "lm_eval --tasks mmlu"}     # for every run
    runs:
      - task: "mmlu_anatomy"                    # the run's own word for its task
        file: "results_*.json"                  # the file's name; `*`, `?` and `[...]` as in a shell
        supply: {benchmark_revision: "<40 hex>", metrics: {accuracy: "none/acc"}, scale: 100}

A rule in `runs` overrides the `supply` for every run. Two rules that fit the same run must not contradict each other. A
rule that fits no run is refused, because it is probably mistyped.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from msgspec import Struct, structs

from issuer.adapters.run import Run, Supplied
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats import strict_yaml

MAX_RULES = 10_000


class _Rule(Struct, frozen=True, forbid_unknown_fields=True):
    supply: Supplied
    task: str | None = None
    file: str | None = None

    def fits(self, run: Run) -> bool:
        return self.task in {None, run.task} and (self.file is None or fnmatchcase(PurePath(run.name).name, self.file))


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    supply: Supplied = Supplied()
    runs: tuple[_Rule, ...] = ()


class Mapping(Struct, frozen=True):
    """The content of a mapping file."""

    document: strict_yaml.Document
    file: _File

    def supplied(self, run: Run) -> Supplied:
        """Return the values that the file supplies for a run. Raises InputError if two rules contradict each other."""
        by_rules = Supplied()
        for index, rule in enumerate(self.file.runs):
            if rule.fits(run):
                by_rules = together(by_rules, rule.supply, self.document.place(f"/runs/{index}/supply"))
        members = {name: value for name, value in structs.asdict(by_rules).items() if value not in (None, {})}
        return structs.replace(self.file.supply, **members)

    def demand_all_fit(self, runs: Sequence[Run]) -> None:
        """Raise InputError for a rule that fits none of the runs."""
        for index, rule in enumerate(self.file.runs):
            if not any(rule.fits(run) for run in runs):
                tasks = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
                detail = f"this rule fits none of the runs; their tasks are {tasks}"
                raise self.document.error(Code.FILE_RULE, f"/runs/{index}", detail)


def read_mapping(raw: bytes, name: str) -> Mapping:
    """Read a mapping file. Raises InputError with line and column."""
    document = strict_yaml.load(raw, name)
    file = document.convert(_File)
    if len(file.runs) > MAX_RULES:
        raise document.error(Code.FILE_TOO_LARGE, "/runs", f"more than {MAX_RULES} rules")
    for index, rule in enumerate(file.runs):
        if rule.task is None and rule.file is None:
            rule_text = "needs `task` or `file`; values for every run belong under `supply` at the top of the file"
            raise document.error(Code.FILE_RULE, f"/runs/{index}", rule_text)
    return Mapping(document, file)


def together(one: Supplied, other: Supplied, place: Place) -> Supplied:
    """Merge the values that are supplied in two places. Raises InputError if two values for one member differ."""
    members = structs.asdict(one)
    for name, value in structs.asdict(other).items():
        if value in (None, {}):
            continue
        if members[name] not in (None, {}) and str(members[name]) != str(value):
            raise InputError(Code.FILE_RULE, f"{name} is supplied twice, with different values", place)
        members[name] = value
    return Supplied(**members)
