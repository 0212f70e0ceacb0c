"""The scores of a run: how each is named and chosen, of how many samples it is, and whether of all of them. Pure.

A number is worth what is known of where it comes from: the name of the score (scorer, filter, split, reducer,
perturbation) stands in the entry as `run.selection`, and whether the whole benchmark was run has three answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from issuer.errors import Fault
from issuer.formats.strict_json import JSON

MAX_SHOWN = 20

CompletenessWord: TypeAlias = Literal["full", "partial", "not known"]


class Score(Struct, frozen=True, kw_only=True):
    """One metric of one scorer.

    `fault` says why `value` must not be used, `partial` why it is not one of the whole benchmark, `unknown` why nothing
    says whether it is: each counts only where the score is used. `aside` marks what accompanies a score (a standard
    error): claimed only if chosen. `samples` is how many samples the value was computed of, each counted once however
    many `epochs` it was run; `split` is the benchmark's split that they are from. None and "": the run does not say.
    `slice` and `value_type` are a claim's (contract section 2).
    """

    scorer: str = ""
    reducer: str = ""
    metric: str
    spelling: str = ""  # the framework's own name of the score, where that differs
    value: int | float
    pointer: str
    fault: Fault | None = None
    partial: Fault | None = None
    unknown: Fault | None = None
    aside: bool = False
    samples: int | None = None
    epochs: int | None = None
    split: str = ""
    slice: str = ""
    value_type: str = ""

    @property
    def selector(self) -> str:
        """The whole name of this score: `scorer[@reducer]/metric`. A run may have several of one name."""
        reduced = f"{self.scorer}@{self.reducer}" if self.reducer else self.scorer
        return f"{reduced}/{self.label}" if reduced else self.label

    @property
    def label(self) -> str:
        """What the metric is called beside others of its entry: `metric`, or `metric (slice)`."""
        return f"{self.metric} ({self.slice})" if self.slice else self.metric

    @property
    def spellings(self) -> frozenset[str]:
        """The selectors that mean this score: whole, without the reducer, and the metric's name alone."""
        return frozenset({self.selector, f"{self.scorer}/{self.metric}", self.metric, self.spelling} - {""})


class Completeness(Struct, frozen=True):
    """Whether scores are of the whole benchmark: what shows that they are not, and why nothing says that they are."""

    partial: tuple[Fault, ...] = ()
    unknown: tuple[Fault, ...] = ()

    def and_of(self, scores: Collection[Score]) -> Completeness:
        """Add what is known of single scores to what is known of their run."""
        partial = tuple(score.partial for score in scores if score.partial)
        unknown = tuple(score.unknown for score in scores if score.unknown)
        return Completeness((*self.partial, *partial), (*self.unknown, *unknown))

    @property
    def answer(self) -> CompletenessWord:
        """The word for it: what is known to be missing outweighs what is not known."""
        return "partial" if self.partial else "not known" if self.unknown else "full"

    @property
    def reasons(self) -> tuple[Fault, ...]:
        """Why the answer is not `full`; nothing where it is."""
        return self.partial or self.unknown

    @property
    def leading(self) -> str:
        """The words before the reason in an error: a part says itself what it is."""
        return "" if self.partial else "not known whether the whole benchmark was run: "

    @property
    def sentence(self) -> str:
        """The sentence for the entry's notes; "" of a full run."""
        if not self.reasons:
            return ""
        reasons = "; ".join(dict.fromkeys(fault.detail for fault in self.reasons))
        return f"{'Partial run' if self.partial else 'Not known whether the whole benchmark was run'}: {reasons}."


def names(scores: Iterable[Score]) -> dict[str, Score]:
    """Return the scores by names that tell them apart: the selector, or `selector#1`, `#2` ... where it is shared. The
    number is the score's place among those of its selector, in the run's order."""
    scores = tuple(scores)
    shared, seen = Counter(score.selector for score in scores), Counter[str]()
    named: dict[str, Score] = {}
    for score in scores:
        seen[score.selector] += 1
        number = f"#{seen[score.selector]}" if shared[score.selector] > 1 else ""
        named[f"{score.selector}{number}"] = score
    return named


def select(named: Mapping[str, Score], selectors: Mapping[str, str]) -> dict[str, str]:
    """Return by metric_id the name of the one score that its selector means. Raises ValueError for a selector that
    means none or several; the message lists the scores there are."""
    return {metric_id: _one(named, selector) for metric_id, selector in selectors.items()}


def only_scorer(named: Mapping[str, Score]) -> dict[str, str]:
    """Return by their own metrics' names all scores of the run's only scorer. Raises ValueError for a run without a
    scorer, or with several; the message lists the scores there are."""
    main = {name: score for name, score in named.items() if not score.aside}
    chosen = {score.metric: name for name, score in main.items()}
    if not named:
        raise ValueError("the run has no metrics")
    if not chosen:
        raise ValueError(f"none chosen of many metrics: {_choices(list(named))}")
    if len({(score.scorer, score.reducer) for score in main.values()}) > 1 or len(chosen) < len(main):
        raise ValueError(f"several scorers, none chosen: {_choices(list(main))}")
    return chosen


def all_of(named: Mapping[str, Score]) -> dict[str, str]:
    """Return by their metrics' names all scores of a run whose owner chose them already. Raises ValueError where two
    have one name."""
    chosen = {score.label: name for name, score in named.items()}
    if len(chosen) < len(named):
        raise ValueError(f"several scores of one metric, none chosen: {_choices(list(named))}")
    return chosen


def counts(scores: Collection[Score]) -> dict[str, JSON]:
    """Return what the scores are of, as members of `details.run`: each where it is known, and the same for all."""
    found: dict[str, JSON] = {}
    for name, values in (
        ("num_samples", {score.samples for score in scores}),
        ("epochs", {score.epochs for score in scores}),
        ("split", {score.split for score in scores}),
    ):
        if len(values) == 1 and (value := values.pop()):
            found[name] = value
    return found


def shown(text: str) -> str:
    """Quote foreign text for a person's terminal: one line, no control characters, not long."""
    return repr(text if len(text) <= 130 else text[:127] + "...")


def _one(named: Mapping[str, Score], selector: str) -> str:
    if selector in named:
        return selector
    # A whole name does not abbreviate a longer one: `valid/em` is not `valid@robustness/em`.
    found = [name for name, score in named.items() if selector in {score.selector, score.spelling} - {""}]
    found = found or [name for name, score in named.items() if selector in score.spellings]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} scores answer to" if found else "no score answers to"
    raise ValueError(f"{what} {shown(selector)}: {_choices(found or list(named))}")


def _choices(found: Sequence[str]) -> str:
    quoted = [shown(name) for name in found[:MAX_SHOWN]]
    more = f" and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return f"give --metric ID=SELECTOR with one of {', '.join(quoted)}{more}" if quoted else "the run has no metrics"
