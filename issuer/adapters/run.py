"""What a finished run says, and the claims that it makes together with what its owner supplies. Pure.

Knows how the two are combined: nothing is invented, a supplied value never overrules the run, an ambiguous metric is
never guessed. Does not know any format: an adapter reads its files into a `Run`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Context, Decimal
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, Refused
from issuer.formats.strict_json import JSON
from issuer.results.claims import RunClaims, read_claims
from issuer.results.secret import find_secrets, secret_in

Origin: TypeAlias = Literal["run", "supplied"]

MAX_SHOWN = 20
# The members of Supplied that every set of claims needs, and the place of each in the claims.
MEMBERS = {
    "model_repo": "/model_repo",
    "model_revision": "/model_revision",
    "benchmark_repo": "/benchmark_repo",
    "benchmark_revision": "/benchmark_revision",
    "task_id": "/task_id",
    "framework_name": "/framework/name",
    "framework_version": "/framework/version",
    "command": "/framework/command",
}
# A framework names its tasks in its own words, which need not be the task ids of the benchmark's eval.yaml: the run's
# word is the default, and is in `details.run.task` either way.
DEFAULTS = frozenset({"task_id"})

_SCALE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_EXACT = Context(prec=1000)  # 17 digits of a double times 18 of a scale: never rounded


class Said(Struct, frozen=True):
    """A text of the run and its place: `pointer` is a JSON pointer into its file."""

    text: str
    pointer: str


class Score(Struct, frozen=True, kw_only=True):
    """One metric of one scorer.

    `fault` says why `value` must not be used, and `partial` why it is not one of the whole run: either is raised only
    where the score is used. `aside` marks what accompanies a score (a standard error): claimed only if chosen.
    """

    scorer: str = ""
    reducer: str = ""
    metric: str
    spelling: str = ""  # the framework's own name of the score, where that differs
    value: int | float
    pointer: str
    fault: Fault | None = None
    partial: Fault | None = None
    aside: bool = False

    @property
    def selector(self) -> str:
        """The whole name of this score: `scorer[@reducer]/metric`."""
        reduced = f"{self.scorer}@{self.reducer}" if self.reducer else self.scorer
        return f"{reduced}/{self.metric}" if reduced else self.metric

    @property
    def spellings(self) -> frozenset[str]:
        """The selectors that mean this score: whole, without the reducer, and the metric's name alone."""
        return frozenset({self.selector, f"{self.scorer}/{self.metric}", self.metric, self.spelling} - {""})


class Supplied(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner of a run gives by flag: `--model-repo` for `model_repo` and so on; None: not given.

    `metrics` (`--metric ID=SELECTOR`) maps the metric_id to claim to a score's selector `scorer[@reducer]/metric`;
    scorer and reducer may be left out as long as exactly one score fits. Empty: all metrics of the run's only scorer,
    under their own names. `scale` multiplies every claimed value, in decimal.
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
    """The claims of a run; the details to write beside them; and where each claim came from.

    `origins` is keyed as the claims are: `model_repo` ... `metrics`, `framework.name`, `framework.version`,
    `framework.command`. `metrics` is always `run`: what is supplied only chooses among its scores; a `scale` is
    listed beside it.
    """

    claims: RunClaims
    details: dict[str, JSON]
    origins: dict[str, Origin]


class _Value(Struct, frozen=True):
    text: str
    origin: Origin
    pointer: str


class Run(Struct, frozen=True, kw_only=True):
    """What one finished run says about itself; None where it says nothing. Built by an adapter's `read`.

    `name` is the file's name, `task` the run's own word for what it ran. `mock` is the model's name where it only
    pretends to be a model. `partial` is every sign that the run is not one of the whole benchmark. `details` are
    `date` (ISO 8601, where the run has one), `artifacts` (the evidence files' names and digests) and `run` (its words).
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
    scores: tuple[Score, ...]
    details: dict[str, JSON]

    def claims(
        self, supplied: Supplied, *, allow_mock: bool | Collection[str] = False, allow_partial: bool = False
    ) -> Built:
        """Combine what the run says and what is supplied.

        `allow_mock` names the mock models that may be used, or is True for any; `allow_partial` takes a limited run and
        says so in `details.notes`. Raises InputError: `file.schema` for what neither says (all of it, with the flags),
        `file.rule` for contradictions, mock models, partial runs and metrics that cannot be told apart, `file.number`
        for a chosen score that cannot be carried exactly, `claims.secret`, and `claims.*` for a value that breaks a
        rule of the contract.
        """
        self._demand_real_model(allow_mock)
        if self.partial and not allow_partial:
            raise self._partial_error(self.partial[0])
        values = self._values(supplied)
        scores = self._chosen(supplied.metrics)
        unscored = tuple(score.partial for score in scores.values() if score.partial)
        if unscored and not allow_partial:
            raise self._partial_error(unscored[0])
        origins: dict[str, Origin] = {
            MEMBERS[member][1:].replace("/", "."): value.origin for member, value in values.items()
        }
        origins["metrics"] = "run"
        if supplied.scale is not None:
            scores = {metric_id: self._scaled(score, str(supplied.scale)) for metric_id, score in scores.items()}
            origins["scale"] = "supplied"
        try:
            claims = read_claims(_compose(values, scores))
        except Refused as refusal:
            raise self._placed(refusal.faults[0], values, list(scores.values())) from None
        details = _noted(self.details, [*self.partial, *unscored], supplied.scale)
        for fault in find_secrets(details):
            raise self._error(fault.code, f"in the details, at {fault.pointer}: {fault.detail}")
        return Built(claims, details, origins)

    def _values(self, supplied: Supplied) -> dict[str, _Value]:
        """Settle every member. Raises InputError for those that are missing, and for a secret in the command."""
        values = {member: value for member in MEMBERS if (value := self._settle(member, supplied))}
        if missing := [f"{member} ({_flag(member)})" for member in MEMBERS if member not in values]:
            raise self._error(Code.FILE_SCHEMA, f"the run does not say, and nobody supplied: {', '.join(missing)}")
        if secret := secret_in(values["command"].text):
            raise self._error(Code.CLAIMS_SECRET, f"the command seems to hold {secret}", values["command"].pointer)
        return values

    def _demand_real_model(self, allow_mock: bool | Collection[str]) -> None:
        allowed = allow_mock if isinstance(allow_mock, bool) else self.mock and self.mock.text in allow_mock
        if self.mock and not allowed:
            model = _shown(self.mock.text)
            rule = f"{model} is a mock model: its scores say nothing of any model (--allow-mock, with this name)"
            raise self._error(Code.FILE_RULE, rule, self.mock.pointer)

    def _settle(self, member: str, supplied: Supplied) -> _Value | None:
        """Return the member's value, from the run where both say the same. Raises InputError if they contradict."""
        said: Said | None = getattr(self, member)
        given: str | None = getattr(supplied, member)
        if said is not None and given is not None and given != said.text and member not in DEFAULTS:
            rule = f"the run says {member} {_shown(said.text)}, but {_flag(member)} says {_shown(given)}"
            raise self._error(Code.FILE_RULE, rule, said.pointer)
        if given is not None and (said is None or given != said.text):
            return _Value(given, "supplied", "")
        return _Value(said.text, "run", said.pointer) if said else None

    def _chosen(self, selectors: Mapping[str, str]) -> dict[str, Score]:
        """Return the scores to claim by metric_id, all without a fault."""
        scores = {metric_id: self._select(selector) for metric_id, selector in selectors.items()}
        if not selectors:
            main = [score for score in self.scores if not score.aside]
            scores = {score.metric: score for score in main}
            if not self.scores:
                raise self._error(Code.FILE_RULE, "the run has no metrics")
            if not scores:
                raise self._error(Code.FILE_RULE, f"none chosen of many metrics: {_choices(self.scores)}")
            if len({(score.scorer, score.reducer) for score in main}) > 1 or len(scores) < len(main):
                raise self._error(Code.FILE_RULE, f"several scorers, none chosen: {_choices(main)}")
        for score in scores.values():
            if fault := score.fault:
                raise self._error(fault.code, f"{_shown(score.selector)}: {fault.detail}", fault.pointer)
        return scores

    def _select(self, selector: str) -> Score:
        # A whole name does not abbreviate a longer one: `valid/em` is not `valid@robustness/em`.
        found = [score for score in self.scores if selector in {score.selector, score.spelling} - {""}]
        found = found or [score for score in self.scores if selector in score.spellings]
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} scores answer to" if found else "no score answers to"
        raise self._error(Code.FILE_RULE, f"{what} {_shown(selector)}: {_choices(found or self.scores)}")

    def _scaled(self, score: Score, scale: str) -> Score:
        try:
            return replace(score, value=scaled(score.value, scale))
        except ValueError as error:
            raise self._error(Code.FILE_NUMBER, f"--scale: {error}") from None

    def _partial_error(self, fault: Fault) -> InputError:
        return self._error(fault.code, f"{fault.detail} (--allow-partial)", fault.pointer)

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
    """Multiply in decimal and round once, to the nearest double: 0.28 by 100 is 28, not 28.000000000000004.

    Raises ValueError where the scale is not a plain positive decimal number.
    """
    if not _SCALE.fullmatch(scale) or not (factor := Decimal(scale)):
        raise ValueError("must be a positive decimal number such as 100 or 0.01")
    return float(_EXACT.multiply(Decimal(repr(value)), factor))


def _compose(values: Mapping[str, _Value], scores: Mapping[str, Score]) -> JSON:
    composed: dict[str, JSON] = {}
    framework: dict[str, JSON] = {}
    for member, value in values.items():
        parent, _, name = MEMBERS[member].rpartition("/")
        (framework if parent else composed)[name] = value.text
    metrics = [{"metric_id": metric_id, "value": score.value} for metric_id, score in scores.items()]
    return {**composed, "metrics": metrics, "framework": framework}


def _noted(details: dict[str, JSON], partial: Sequence[Fault], scale: object) -> dict[str, JSON]:
    """Write into the entry, whose digest binds it, that values were scaled, or are not of the whole benchmark."""
    if scale is not None:
        words = details.get("run")
        details = {**details, "run": {**(words if isinstance(words, dict) else {}), "scale": str(scale)}}
    if partial:
        reasons = dict.fromkeys(fault.detail for fault in partial)
        details = {**details, "notes": f"Partial run: {'; '.join(reasons)}."}
    return details


def _flag(member: str) -> str:
    return "--" + member.replace("_", "-")


def _shown(text: str) -> str:
    """Quote foreign text for a person's terminal: one line, no control characters, not long."""
    return repr(text if len(text) <= 130 else text[:127] + "...")


def _choices(scores: Sequence[Score]) -> str:
    shown = [_shown(score.selector) for score in scores[:MAX_SHOWN]]
    more = f" and {len(scores) - MAX_SHOWN} more" if len(scores) > MAX_SHOWN else ""
    return f"give --metric ID=SELECTOR with one of {', '.join(shown)}{more}" if shown else "the run has no metrics"
