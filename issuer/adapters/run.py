"""What a finished run says, and the claims that it makes together with what its owner supplies. Pure.

Knows how the two are combined: nothing is invented, a supplied value never overrules the run, an ambiguous metric is
never guessed; which of the run's scores each number is, and of how many samples, is written beside it. Does not know
any format: an adapter reads its files into a `Run`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import Context, Decimal
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from issuer.adapters.score import Completeness, Score, all_of, counts, names, only_scorer, select, shown
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, Refused, gathering
from issuer.formats.strict_json import JSON
from issuer.results.claims import RunClaims, read_claims
from issuer.results.secret import find_secrets, secret_in

Origin: TypeAlias = Literal["run", "supplied"]

# The members of Supplied that every set of claims needs, and the place of each in the claims.
MEMBERS = {
    "model_repo": "/model_repo", "model_revision": "/model_revision", "benchmark_repo": "/benchmark_repo",
    "benchmark_revision": "/benchmark_revision", "task_id": "/task_id", "framework_name": "/framework/name",
    "framework_version": "/framework/version", "command": "/framework/command",
}  # fmt: skip
# A framework names its tasks in its own words, which need not be the task ids of the benchmark's eval.yaml: the run's
# word is the default, and is in `details.run.task` either way.
DEFAULTS = frozenset({"task_id"})

_ABOUT_A_MOCK = "is a mock model: scores that rest on it say nothing of any real model"
_SCALE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_EXACT = Context(prec=1000)  # 17 digits of a double times 18 of a scale: never rounded


class Said(Struct, frozen=True):
    """A text of the run and its place: `pointer` is a JSON pointer into its file."""

    text: str
    pointer: str


class Supplied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner of a run gives by flag: `--model-repo` for `model_repo` and so on; None: not given.

    `metrics` (`--metric ID=SELECTOR`) maps the metric_id to claim to a score's selector `scorer[@reducer]/metric`;
    scorer and reducer may be left out as long as exactly one score fits; of several with one name the second is
    `scorer/metric#2`. Empty: all metrics of the run's only scorer, under their own names. `scale` multiplies every
    claimed value, in decimal.
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
    """The claims of a run; the details to write beside them; and where each claim came from. `origins` is keyed as the
    claims are: `model_repo` ... `metrics`, `framework.name`, `framework.version`, `framework.command`. `metrics` is
    always `run`: what is supplied only chooses among its scores; a `scale` is listed beside it."""

    claims: RunClaims
    details: dict[str, JSON]
    origins: dict[str, Origin]

    def reproducing(self, digest: str) -> Built:
        """Name in the details the result that this one reproduces, by its content digest."""
        run = self.details["run"]
        words = run if isinstance(run, dict) else {}
        return replace(self, details={**self.details, "run": {**words, "reproduces": digest}})


class _Value(Struct, frozen=True):
    text: str
    origin: Origin
    pointer: str


class Run(Struct, frozen=True, kw_only=True):
    """What one finished run says about itself; None where it says nothing. Built by an adapter's `read`.

    `name` is the file's name, `task` the run's own word for what it ran. `mock` is the model's name where it only
    pretends to be a model, or of the one that graded it. `partial` is every sign that the run is not one of the whole
    benchmark, `unknown` every reason why nothing says whether it is: without either it is full. `remarks` are whole
    sentences for readers of the number. `all_chosen`: every score is claimed where none is named, because the run lists
    only those that its owner chose. `details` are `date` (ISO 8601, where the run has one), `artifacts` (the evidence
    files' names and digests), `runtime_context` and `run` (its words; `model` is the run's own for its model).
    """

    name: str
    task: str = ""
    framework_name: Said | None = None
    framework_version: Said | None = None
    model_repo: Said | None = None
    model_revision: Said | None = None
    benchmark_repo: Said | None = None
    benchmark_revision: Said | None = None
    task_id: Said | None = None
    command: Said | None = None
    mock: Said | None = None
    partial: tuple[Fault, ...] = ()
    unknown: tuple[Fault, ...] = ()
    remarks: tuple[str, ...] = ()
    scores: tuple[Score, ...]
    all_chosen: bool = False
    details: dict[str, JSON]

    def claims(
        self, supplied: Supplied, *, allow_mock: bool | Collection[str] = False, allow_partial: bool = False
    ) -> Built:
        """Combine what the run says and what is supplied.

        `allow_mock` names the mock models that may be used, or is True for any; `allow_partial` takes a run that is
        limited, or not known to be whole. `details.run` gains `selection` (the selector of each metric, by its label),
        `completeness`, and `num_samples`, `epochs`, `split` and `scale` where they are known; `details.notes` says what
        a reader of the number should know. Raises InputError: `file.schema` for what neither says (all of it, with the
        flags), `file.rule` for contradictions, mock models, partial runs and metrics that cannot be told apart,
        `file.number` for a chosen score that cannot be carried exactly, `claims.secret`, and `claims.*` for a value
        that breaks a rule of the contract. What else is wrong is beside the first (`also`).
        """
        faults: list[InputError] = []
        completeness = Completeness(self.partial, self.unknown)
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
        if faults:  # all of them: who corrects one should not meet the next
            raise InputError.of(faults)
        completeness = completeness.and_of(scores.values())
        words: dict[str, JSON] = {
            "selection": {label: name for label, (name, _) in chosen.items()},
            "completeness": completeness.answer,
            **counts(scores.values()),
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
        """Write into the entry, whose digest binds it, where its numbers come from. Raises InputError for a secret."""
        details: dict[str, JSON] = {**self.details, "run": {**self._words(), **words}}
        if notes:
            details["notes"] = notes
        for fault in find_secrets(details):
            raise self._error(fault.code, f"in the details, at {fault.pointer}: {fault.detail}")
        return details

    def _words(self) -> Mapping[str, JSON]:
        said = self.details.get("run")
        return said if isinstance(said, dict) else {}

    def _about_model(self, model_repo: _Value) -> str:
        """Return a sentence where the run's word for its model is not the repository supplied."""
        model = self._words().get("model")
        if model_repo.origin == "run" or not isinstance(model, str) or (self.mock and self.mock.text == model):
            return ""
        if f"/{model}".lower().endswith(f"/{model_repo.text}".lower()):  # behind the name of a provider
            return ""
        return f"The run names its model {shown(model)}; that it is {model_repo.text} is said by its owner."

    def _demand_whole(self, completeness: Completeness, *, allow_partial: bool) -> None:
        leading, rest = completeness.leading, "(--allow-partial)"
        faults = [
            self._error(fault.code, f"{leading}{fault.detail} {rest}", fault.pointer) for fault in completeness.reasons
        ]
        if faults and not allow_partial:
            raise InputError.of(faults)

    def _values(self, supplied: Supplied) -> dict[str, _Value]:
        """Settle every member. Raises InputError for those that are missing, and for a secret in the command."""
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
            rule = f"the run does not say, and nobody supplied: {', '.join(missing)}"
            faults.append(self._error(Code.FILE_SCHEMA, rule))
        if faults:
            raise InputError.of(faults)
        if secret := secret_in(values["command"].text):
            raise self._error(Code.CLAIMS_SECRET, f"the command seems to hold {secret}", values["command"].pointer)
        return values

    def _demand_real_model(self, allow_mock: bool | Collection[str]) -> None:
        allowed = allow_mock if isinstance(allow_mock, bool) else self.mock and self.mock.text in allow_mock
        if self.mock and not allowed:
            rule = f"{shown(self.mock.text)} {_ABOUT_A_MOCK} (--allow-mock, with this name)"
            raise self._error(Code.FILE_RULE, rule, self.mock.pointer)

    def _settle(self, member: str, supplied: Supplied) -> _Value | None:
        """Return the member's value, from the run where both say the same. Raises InputError if they contradict."""
        said: Said | None = getattr(self, member)
        given: str | None = getattr(supplied, member)
        if said is not None and given is not None and given != said.text and member not in DEFAULTS:
            rule = f"the run says {member} {shown(said.text)}, but {_flag(member)} says {shown(given)}"
            raise self._error(Code.FILE_RULE, rule, said.pointer)
        if given is not None and (said is None or given != said.text):
            return _Value(given, "supplied", "")
        return _Value(said.text, "run", said.pointer) if said else None

    def _chosen(self, selectors: Mapping[str, str]) -> dict[str, tuple[str, Score]]:
        """Return by their labels the scores to claim, each with its name; all without a fault."""
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
        """Find the place in the run, or the flag, that causes a fault in the claims."""
        for member, value in values.items():
            if fault.pointer == MEMBERS[member]:
                who = member if value.origin == "run" else _flag(member)
                return self._error(fault.code, f"{who}: {fault.detail}", value.pointer)
        _, _, rest = fault.pointer.partition("/metrics/")
        index = rest.partition("/")[0]
        pointer = scores[int(index)].pointer if index.isdecimal() else ""
        return self._error(fault.code, f"{fault.pointer.lstrip('/')}: {fault.detail}", pointer)

    def _error(self, code: Code, detail: str, pointer: str = "") -> InputError:
        return InputError(code, detail, Place(self.name), pointer)


def scaled(value: float, scale: str) -> float:
    """Multiply in decimal and round once, to the nearest double: 0.28 by 100 is 28, not 28.000000000000004. Raises
    ValueError where the scale is not a plain positive decimal number."""
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
