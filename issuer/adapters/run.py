"""The content of a finished run, and the claims built from it and from the values that its owner supplies. Pure.

Values are never invented, a supplied value never overrules the run, and an ambiguous metric is refused. The details
record for each number the chosen score and its sample count. An adapter parses the files of its format into a `Run`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Context, Decimal
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from issuer.adapters.score import Completeness, Score, all_of, counts, names, only_scorer, select, shown
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, Refused, gathering
from issuer.formats.strict_json import JSON
from issuer.results import arguments
from issuer.results.claims import RunClaims, read_claims
from issuer.results.secret import find_secrets, secret_in, without_local, without_paths

Origin: TypeAlias = Literal["run", "supplied"]

# The members of Supplied that all claims need, each with its JSON pointer in the claims.
MEMBERS = {
    "model_repo": "/model_repo", "model_revision": "/model_revision", "benchmark_repo": "/benchmark_repo",
    "benchmark_revision": "/benchmark_revision", "task_id": "/task_id", "framework_name": "/framework/name",
    "framework_version": "/framework/version", "command": "/framework/command",
}  # fmt: skip
# A framework's task name may differ from the task id in the benchmark's eval.yaml. The framework's name is only the
# default of the claim; `details.run.task` has it in both cases.
DEFAULTS = frozenset({"task_id"})

_ABOUT_A_MOCK = "is a mock model: its scores do not describe any real model"
_SCALE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_EXACT = Context(prec=1000)  # enough for any double times 18 digits of a scale: never rounded


class RunText(Struct, frozen=True):
    """A text of the run with its place; `pointer` is a JSON pointer into the run's file."""

    text: str
    pointer: str


class Supplied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that the owner of a run supplies by flag: `--model-repo` for `model_repo`, and so on.

    `metrics` (`--metric ID=SELECTOR`) maps each metric_id to claim to the selector `scorer[@reducer]/metric` of a
    score. Scorer and reducer may be omitted if exactly one score fits. `scorer/metric#2` is the second of several
    scores with the same name. Without `metrics`, all metrics of the run's only scorer are claimed under their names.
    `scale` multiplies every claimed value, in decimal.
    """

    model_repo: str | None = None
    model_revision: str | None = None
    benchmark_repo: str | None = None
    benchmark_revision: str | None = None
    task_id: str | None = None
    framework_name: str | None = None
    framework_version: str | None = None
    command: str | None = None
    scale: str | int | float | None = None
    metrics: dict[str, str] = {}


class Built(Struct, frozen=True):
    """The claims of a run, the details of its entry, and the origin of each claim.

    The keys of `origins` are `model_repo` ... `metrics`, `framework.name`, `framework.version`, `framework.command`,
    and `scale` if one is supplied. The origin of `metrics` is always `run`, because the owner only chooses scores.
    """

    claims: RunClaims
    details: dict[str, JSON]
    origins: dict[str, Origin]

    def reproducing(self, digest: str) -> Built:
        """Return a copy whose `details.run` has the content digest of the result that this run reproduces."""
        run = self.details["run"]
        words = run if isinstance(run, dict) else {}
        return replace(self, details={**self.details, "run": {**words, "reproduces": digest}})


class _Value(Struct, frozen=True):
    text: str
    origin: Origin
    pointer: str


class Run(Struct, frozen=True, kw_only=True):
    """One finished run as its files describe it; None for a value that they lack. An adapter's `read` builds it.

    `name` is the file's name, and `task` the framework's name for the task. `mock` is the name of a mock model that was
    evaluated, or that graded. `partial` are the reasons why the run does not cover the whole benchmark, `unknown` the
    reasons why its coverage is not known; without any reason the run is full. `arguments` are the settings that can
    change a score, from `arguments.bounded`. `remarks` are sentences for readers of
    the number. With `all_chosen`, every score is claimed by default, because the owner listed only chosen scores in the
    file. `details` has `date` (ISO 8601, if the run has one), `artifacts` (name and digest of the evidence files),
    `runtime_context`, and `run` (the framework's words; `model` is its name for the model).
    """

    name: str
    task: str = ""
    framework_name: RunText | None = None
    framework_version: RunText | None = None
    model_repo: RunText | None = None
    model_revision: RunText | None = None
    benchmark_repo: RunText | None = None
    benchmark_revision: RunText | None = None
    task_id: RunText | None = None
    command: RunText | None = None
    mock: RunText | None = None
    partial: tuple[Fault, ...] = ()
    unknown: tuple[Fault, ...] = ()
    arguments: Mapping[str, JSON] = {}
    remarks: tuple[str, ...] = ()
    scores: tuple[Score, ...]
    all_chosen: bool = False
    details: dict[str, JSON]

    def claims(
        self, supplied: Supplied, *, allow_mock: bool | Collection[str] = False, allow_partial: bool = False
    ) -> Built:
        """Build the claims from the run and the supplied values.

        `allow_mock` has the names of permitted mock models, or is True for all of them. `allow_partial` accepts runs
        that are partial or not known to be full. `details.run` gets `selection` (the selector of each metric, by its
        label), `completeness`, and `arguments`, `num_samples`, `epochs`, `split` and `scale` if they are known.
        `details.notes` gets the warnings for readers of the number. Local paths are private: digests replace them, also
        in the command. Raises InputError: `file.schema` for all missing values, with their flags; `file.rule` for
        contradictions, mock models, partial runs and indistinguishable metrics; `file.number` for a chosen score that a
        claim cannot represent exactly; `claims.secret`; and `claims.*` for a value that breaks a rule of the contract.
        The first error has the others in `also`.
        """
        faults: list[InputError] = []
        completeness = Completeness(self.partial, (*self.unknown, *self._uncounted_arguments()))
        values: dict[str, _Value] = {}
        chosen: dict[str, tuple[str, Score]] = {}
        with gathering(faults):
            self._demand_real_model(allow_mock)
        with gathering(faults):
            self._demand_whole(completeness, allow_partial=allow_partial)
        with gathering(faults):
            values = self._values(supplied)
        with gathering(faults):
            chosen = self._chosen(supplied.metrics)
        scores = {label: score for label, (_, score) in chosen.items()}
        with gathering(faults):
            self._demand_whole(Completeness().and_of(scores.values()), allow_partial=allow_partial)
        if faults:  # report all of them at once, so that one correction does not lead to the next error
            raise InputError.of(faults)
        completeness = completeness.and_of(scores.values())
        words: dict[str, JSON] = {
            "selection": {label: name for label, (name, _) in chosen.items()},
            "completeness": completeness.answer,
            **counts(scores.values()),
            **({"arguments": dict(self.arguments)} if self.arguments else {}),
        }
        origins: dict[str, Origin] = {
            MEMBERS[member][1:].replace("/", "."): value.origin for member, value in values.items()
        }
        origins["metrics"] = "run"
        if supplied.scale is not None:
            scores = {label: self._scaled(score, str(supplied.scale)) for label, score in scores.items()}
            origins["scale"] = "supplied"
            words["scale"] = str(supplied.scale)
        try:
            claims = read_claims(_compose(values, scores.values()))
        except Refused as refusal:
            raise self._placed(refusal.faults[0], values, list(scores.values())) from None
        mock = f"{shown(self.mock.text)} {_ABOUT_A_MOCK}." if self.mock else ""
        notes = (completeness.sentence, *self.remarks, mock, self._about_model(values["model_repo"]))
        return Built(claims, self._details(words, " ".join(filter(None, notes))), origins)

    def _details(self, words: Mapping[str, JSON], notes: str) -> dict[str, JSON]:
        """Return the entry's details with the origin of its numbers. Raises InputError for a secret in them."""
        members = {**self.details, "run": {**self._words(), **words}}
        details = {name: value if name == "source" else without_local(value) for name, value in members.items()}
        if notes:
            details["notes"] = without_paths(notes)
        for fault in find_secrets(details):
            raise self._error(fault.code, f"in the details, at {fault.pointer}: {fault.detail}")
        return details

    def _words(self) -> Mapping[str, JSON]:
        said = self.details.get("run")
        return said if isinstance(said, dict) else {}

    def _about_model(self, model_repo: _Value) -> str:
        """Return a note if the run's name for the model differs from the supplied repository."""
        model = self._words().get("model")
        if model_repo.origin == "run" or not isinstance(model, str) or (self.mock and self.mock.text == model):
            return ""
        if f"/{model}".lower().endswith(f"/{model_repo.text}".lower()):  # a provider's prefix and the same name
            return ""
        named = shown(str(without_local(model)))
        return f"The run names its model {named}; the run's owner says that it is {model_repo.text}."

    def _uncounted_arguments(self) -> Iterator[Fault]:
        if arguments.ALL in self.arguments:
            rule = f"the entry has only a digest of the arguments: over {arguments.MAX_ARGUMENTS}, or with odd names"
            yield Fault(Code.FILE_RULE, "", rule)

    def _demand_whole(self, completeness: Completeness, *, allow_partial: bool) -> None:
        if completeness.reasons and not allow_partial:
            leading = "" if completeness.partial else "not known whether the whole benchmark was run: "
            raise InputError.of(
                [
                    self._error(fault.code, f"{leading}{fault.detail} (--allow-partial)", fault.pointer)
                    for fault in completeness.reasons
                ]
            )

    def _values(self, supplied: Supplied) -> dict[str, _Value]:
        """Return the value of every member. Raises InputError for missing values, and for a secret in the command."""
        faults: list[InputError] = []
        values: dict[str, _Value] = {}
        missing: list[str] = []
        for member in MEMBERS:
            with gathering(faults):
                if value := self._settle(member, supplied):
                    values[member] = value
                else:
                    missing.append(f"{member} ({_flag(member)})")
        if missing:
            rule = f"the run lacks these values, and they were not supplied: {', '.join(missing)}"
            faults.append(self._error(Code.FILE_SCHEMA, rule))
        if faults:
            raise InputError.of(faults)
        if secret := secret_in(values["command"].text):
            raise self._error(Code.CLAIMS_SECRET, f"the command seems to contain {secret}", values["command"].pointer)
        values["command"] = replace(values["command"], text=without_paths(values["command"].text))
        return values

    def _demand_real_model(self, allow_mock: bool | Collection[str]) -> None:
        allowed = allow_mock if isinstance(allow_mock, bool) else self.mock and self.mock.text in allow_mock
        if self.mock and not allowed:
            rule = f"{shown(self.mock.text)} {_ABOUT_A_MOCK} (--allow-mock, with this name)"
            raise self._error(Code.FILE_RULE, rule, self.mock.pointer)

    def _settle(self, member: str, supplied: Supplied) -> _Value | None:
        """Return the member's value; its origin is the run if run and owner agree. Raises InputError if they differ."""
        said: RunText | None = getattr(self, member)
        given: str | None = getattr(supplied, member)
        if said is not None and given is not None and given != said.text and member not in DEFAULTS:
            rule = f"the run says {member} {shown(said.text)}, but {_flag(member)} says {shown(given)}"
            raise self._error(Code.FILE_RULE, rule, said.pointer)
        if given is not None and (said is None or given != said.text):
            return _Value(given, "supplied", "")
        return _Value(said.text, "run", said.pointer) if said else None

    def _chosen(self, selectors: Mapping[str, str]) -> dict[str, tuple[str, Score]]:
        """Return by label the name and score of each metric to claim. Raises InputError for a score with a fault."""
        named = names(self.scores)
        try:
            if selectors:
                names_of = select(named, selectors)
                chosen = [(name, replace(named[name], metric=metric_id)) for metric_id, name in names_of.items()]
            else:
                names_of = all_of(named) if self.all_chosen else only_scorer(named)
                chosen = [(name, named[name]) for name in names_of.values()]
        except ValueError as error:
            raise self._error(Code.FILE_RULE, str(error)) from None
        for name, score in chosen:
            if fault := score.fault:
                raise self._error(fault.code, f"{shown(name)}: {fault.detail}", fault.pointer)
        return {score.label: (name, score) for name, score in chosen}

    def _scaled(self, score: Score, scale: str) -> Score:
        try:
            return replace(score, value=scaled(score.value, scale))
        except ValueError as error:
            raise self._error(Code.FILE_NUMBER, f"--scale: {error}") from None

    def _placed(self, fault: Fault, values: Mapping[str, _Value], scores: list[Score]) -> InputError:
        """Return a fault of the claims as an error at its cause: the place in the run, or the flag."""
        for member, value in values.items():
            if fault.pointer == MEMBERS[member]:
                cause = member if value.origin == "run" else _flag(member)
                return self._error(fault.code, f"{cause}: {fault.detail}", value.pointer)
        _, _, rest = fault.pointer.partition("/metrics/")
        index = rest.partition("/")[0]
        pointer = scores[int(index)].pointer if index.isdecimal() else ""
        return self._error(fault.code, f"{fault.pointer.lstrip('/')}: {fault.detail}", pointer)

    def _error(self, code: Code, detail: str, pointer: str = "") -> InputError:
        return InputError(code, detail, Place(self.name), pointer)


def scaled(value: float, scale: str) -> float:
    """Multiply in decimal and round once, to the nearest double: 0.28 times 100 is 28, not 28.000000000000004. Raises
    ValueError if the scale is not a plain positive decimal number."""
    if not _SCALE.fullmatch(scale) or not (factor := Decimal(scale)):
        raise ValueError("must be a positive decimal number such as 100 or 0.01")
    return float(_EXACT.multiply(Decimal(repr(value)), factor))


def _compose(values: Mapping[str, _Value], scores: Collection[Score]) -> JSON:
    composed: dict[str, JSON] = {}
    framework: dict[str, JSON] = {}
    for member, value in values.items():
        parent, _, name = MEMBERS[member].rpartition("/")
        (framework if parent else composed)[name] = value.text
    metrics = [_metric(score) for score in scores]
    return {**composed, "metrics": metrics, "framework": framework}


def _metric(score: Score) -> dict[str, JSON]:
    metric: dict[str, JSON] = {"metric_id": score.metric, "value": score.value}
    more: dict[str, JSON] = {"slice": score.slice, "value_type": score.value_type, "sample_size": score.samples}
    return {**metric, **{name: value for name, value in more.items() if value}}


def _flag(member: str) -> str:
    return "--" + member.replace("_", "-")
