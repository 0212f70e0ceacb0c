"""The scores of a run: their names, their selection, their sample counts and their completeness. Pure.

The entry records where each number comes from. `run.selection` has the full name of the score (scorer, filter, split,
reducer, perturbation), and `run.completeness` is `full`, `partial` or `not known`.
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

    `fault` is the reason why `value` must not be used, `partial` why the value does not cover the whole benchmark,
    `unknown` why its coverage is not known. These reasons count only if the score is chosen. `aside` marks a number
    that accompanies a score, such as a standard error; it is claimed only if it is chosen. `samples` is the number of
    samples behind the value, each counted once, even if it ran in several `epochs`. `split` is the benchmark's split of
    these samples. None and "" mean that the run does not say. `slice` and `value_type` are members of the claim
    (contract section 2).
    """

    scorer: str = ""
    reducer: str = ""
    metric: str
    spelling: str = ""  # the framework's name of the score, if it differs
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
        """The full name of this score: `scorer[@reducer]/metric`. Scores of a run may have the same selector."""
        reduced = f"{self.scorer}@{self.reducer}" if self.reducer else self.scorer
        return f"{reduced}/{self.label}" if reduced else self.label

    @property
    def label(self) -> str:
        """The metric's name within its entry: `metric`, or `metric (slice)`."""
        return f"{self.metric} ({self.slice})" if self.slice else self.metric

    @property
    def spellings(self) -> frozenset[str]:
        """The texts that select this score: its selector, the same without the reducer, and the metric's name alone."""
        return frozenset({self.selector, f"{self.scorer}/{self.metric}", self.metric, self.spelling} - {""})


class Completeness(Struct, frozen=True):
    """The reasons why scores are `partial`, or `not known` to cover the whole benchmark."""

    partial: tuple[Fault, ...] = ()
    unknown: tuple[Fault, ...] = ()

    def and_of(self, scores: Collection[Score]) -> Completeness:
        """Return the reasons of the run together with the reasons of these scores."""
        partial = tuple(score.partial for score in scores if score.partial)
        unknown = tuple(score.unknown for score in scores if score.unknown)
        return Completeness((*self.partial, *partial), (*self.unknown, *unknown))

    @property
    def answer(self) -> CompletenessWord:
        """`full`, `partial` or `not known`. One reason for `partial` outweighs all reasons for `not known`."""
        return "partial" if self.partial else "not known" if self.unknown else "full"

    @property
    def reasons(self) -> tuple[Fault, ...]:
        """The reasons why the answer is not `full`; empty if it is `full`."""
        return self.partial or self.unknown

    @property
    def sentence(self) -> str:
        """The sentence for the entry's notes; "" if the run is full."""
        if not self.reasons:
            return ""
        reasons = "; ".join(dict.fromkeys(fault.detail for fault in self.reasons))
        return f"{'Partial run' if self.partial else 'Not known whether the whole benchmark was run'}: {reasons}."


def names(scores: Iterable[Score]) -> dict[str, Score]:
    """Return the scores by unique names. The name is the selector; scores with the same selector are `selector#1`,
    `selector#2` ... in the run's order."""
    scores = tuple(scores)
    totals, numbers = Counter(score.selector for score in scores), Counter[str]()
    named: dict[str, Score] = {}
    for score in scores:
        numbers[score.selector] += 1
        number = f"#{numbers[score.selector]}" if totals[score.selector] > 1 else ""
        named[f"{score.selector}{number}"] = score
    return named


def select(named: Mapping[str, Score], selectors: Mapping[str, str]) -> dict[str, str]:
    """Return by metric_id the name of the score that its selector selects. Raises ValueError if a selector fits no
    score or several; the message lists the scores of the run."""
    return {metric_id: _one(named, selector) for metric_id, selector in selectors.items()}


def only_scorer(named: Mapping[str, Score]) -> dict[str, str]:
    """Return by label the names of all scores of the run's only scorer. Raises ValueError if the run has no scorer or
    several; the message lists the scores of the run."""
    main = {name: score for name, score in named.items() if not score.aside}
    chosen = {score.label: name for name, score in main.items()}
    if not named:
        raise ValueError("the run has no metrics")
    if not chosen:
        raise ValueError(f"many metrics, none chosen: {_choices(list(named))}")
    if len({(score.scorer, score.reducer) for score in main.values()}) > 1 or len(chosen) < len(main):
        raise ValueError(f"several scorers, none chosen: {_choices(list(main))}")
    return chosen


def all_of(named: Mapping[str, Score]) -> dict[str, str]:
    """Return by label the names of all scores of a run. Raises ValueError if two scores have the same label."""
    chosen = {score.label: name for name, score in named.items()}
    if len(chosen) < len(named):
        raise ValueError(f"several scores of one metric, none chosen: {_choices(list(named))}")
    return chosen


def counts(scores: Collection[Score]) -> dict[str, JSON]:
    """Return `num_samples`, `epochs` and `split` for `details.run`: each only if it is known and all scores agree."""
    members: dict[str, set[int | None] | set[str]] = {
        "num_samples": {score.samples for score in scores},
        "epochs": {score.epochs for score in scores},
        "split": {score.split for score in scores},
    }
    return {name: value for name, values in members.items() if len(values) == 1 and (value := values.pop())}


def shown(text: str) -> str:
    """Return foreign text quoted for a terminal: one line, without control characters, at most 130 characters."""
    return repr(text if len(text) <= 130 else text[:127] + "...")


def _one(named: Mapping[str, Score], selector: str) -> str:
    if selector in named:
        return selector
    # A full name does not abbreviate a longer one: `valid/em` must not select `valid@robustness/em`.
    fitting = [name for name, score in named.items() if selector in {score.selector, score.spelling} - {""}]
    fitting = fitting or [name for name, score in named.items() if selector in score.spellings]
    if len(fitting) == 1:
        return fitting[0]
    subject = f"{len(fitting)} scores fit" if fitting else "no score fits"
    raise ValueError(f"{subject} {shown(selector)}: {_choices(fitting or list(named))}")


def _choices(names_: Sequence[str]) -> str:
    quoted = [shown(name) for name in names_[:MAX_SHOWN]]
    more = f" and {len(names_) - MAX_SHOWN} more" if len(names_) > MAX_SHOWN else ""
    return f"give --metric ID=SELECTOR with one of {', '.join(quoted)}{more}" if quoted else "the run has no metrics"
