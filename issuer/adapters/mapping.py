"""The mapping file: what the owner of many runs supplies for them, in strict YAML. Pure.

    supply: {model_repo: "acme/open-model", command: "lm_eval --tasks mmlu"}     # for every run
    runs:
      - task: "mmlu_anatomy"                    # the run's own word for its task
        file: "results_*.json"                  # the file's name; `*`, `?` and `[...]` as in a shell
        supply: {benchmark_revision: "<40 hex>", metrics: {accuracy: "none/acc"}, scale: 100}

A rule for one run wins over `supply` for all. Two rules that fit one run must not contradict each other, and a rule
that fits no run is refused: it is mistyped.
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
        """Return what the file supplies for one run. Raises InputError where two of its rules contradict each other."""
        special = Supplied()
        for index, rule in enumerate(self.file.runs):
            if rule.fits(run):
                special = together(special, rule.supply, self.document.place(f"/runs/{index}/supply"))
        members = {name: value for name, value in structs.asdict(special).items() if value not in (None, {})}
        return structs.replace(self.file.supply, **members)

    def demand_all_fit(self, runs: Sequence[Run]) -> None:
        """Raise InputError for a rule that fits none of the runs."""
        for index, rule in enumerate(self.file.runs):
            if not any(rule.fits(run) for run in runs):
                tasks = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
                detail = f"this rule fits none of the runs, whose tasks are {tasks}"
                raise self.document.error(Code.FILE_RULE, f"/runs/{index}", detail)


def read_mapping(raw: bytes, name: str) -> Mapping:
    """Read a mapping file. Raises InputError with line and column."""
    document = strict_yaml.load(raw, name)
    file = document.convert(_File)
    if len(file.runs) > MAX_RULES:
        raise document.error(Code.FILE_TOO_LARGE, "/runs", f"more than {MAX_RULES} rules")
    for index, rule in enumerate(file.runs):
        if rule.task is None and rule.file is None:
            raise document.error(Code.FILE_RULE, f"/runs/{index}", "needs `task` or `file`: say for all under `supply`")
    return Mapping(document, file)


def together(one: Supplied, other: Supplied, place: Place) -> Supplied:
    """Merge what is supplied in two places. Raises InputError where they differ: neither wins."""
    members = structs.asdict(one)
    for name, value in structs.asdict(other).items():
        if value in (None, {}):
            continue
        if members[name] not in (None, {}) and str(members[name]) != str(value):
            raise InputError(Code.FILE_RULE, f"{name} is supplied twice, and differs", place)
        members[name] = value
    return Supplied(**members)
