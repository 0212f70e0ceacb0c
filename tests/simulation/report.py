"""The results of a month: the flagged attackers, their tokens until then, and the affected honest identities. Pure.

The answers are judged again by other limits without another replay. That is exact for every limit: the script counts
the same whatever they are, and the values that make twins only leave out those with fewer. It is not for `per_days`,
`ignore` or a `then` that refuses, which would change what is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from issuer.limits.abuse import Abuse, Signal, judge
from tests.simulation.attackers import Attacker
from tests.simulation.replay import Answer
from tests.simulation.runs import DAY_S

WITHIN = 20
HONEST_SHARE = 0.01


class Rule(NamedTuple):
    """The attackers that a limit is for, its group in the policy, its names there, and the least that it may be."""

    attack: str
    group: str
    names: tuple[str, ...] = ("distinct",)
    least: int = 1

    @property
    def place(self) -> str:
        return f"{self.group}.{self.names[0]}"

    def limit(self, abuse: Abuse) -> int:
        number: int = getattr(getattr(abuse, self.group), self.names[0])
        return number

    def scaled(self, abuse: Abuse, factor: float) -> Abuse:
        group = getattr(abuse, self.group)
        limits = {name: max(self.least, int(getattr(group, name) * factor)) for name in self.names}
        return replace(abuse, **{self.group: replace(group, **limits)})

    def is_of(self, signal: Signal) -> bool:
        return signal.rule in {f"abuse.{self.group}.{name}" for name in self.names}


RULES = (
    Rule("attempts", "attempts"),
    Rule("artifact", "artifact"),
    Rule("twins", "twins", ("values",), 3),
    Rule("owners", "spread", ("owners_a_day", "owners_a_run")),
    Rule("tokens", "spread", ("tokens_a_day", "tokens_a_run")),
)


def signals(abuse: Abuse, answer: Answer) -> Iterator[Signal]:
    """Judge a recorded answer by some rules."""
    for signal in judge(abuse, answer.tally):
        if signal.name != "twins" or answer.telling[signal.item or 0] >= abuse.twins.values:
            yield signal


IdentityDay = tuple[str, str, int]


def day_of(answer: Answer) -> IdentityDay:
    return answer.request.integration, answer.request.identity, int(answer.at // DAY_S)


class HonestDays(NamedTuple):
    """All honest identity-days: those with a signal of each rule (by its place), with a warning of any kind, and those of
    throttled or quarantined identities."""

    everyone: int
    of_rule: Mapping[str, int]
    warned: int
    stopped: int

    def share(self, days: int) -> float:
        return days / self.everyone


def honest_days(abuse: Abuse, answers: Sequence[Answer]) -> HonestDays:
    of_rule: dict[str, set[IdentityDay]] = {rule.place: set() for rule in RULES}
    warned = {day_of(answer) for answer in answers if answer.is_warned}
    for answer in answers:
        for signal in signals(abuse, answer):
            for rule in RULES:
                if rule.is_of(signal):
                    of_rule[rule.place].add(day_of(answer))
            if signal.then != "observe":
                warned.add(day_of(answer))
    stopped = {day_of(answer) for answer in answers if answer.code}
    everyone = {day_of(answer) for answer in answers}
    days_of_rule = {place: len(days) for place, days in of_rule.items()}
    return HonestDays(len(everyone), days_of_rule, len(warned), len(stopped))


def tokens_until(abuse: Abuse, answers: Iterable[Answer], rule: Rule) -> int | None:
    """Return the number of the token that is flagged, where 1 is the first bad one; all of its tokens count. None: it
    never is."""
    number = 0
    for answer in answers:
        flagged = {signal.item for signal in signals(abuse, answer) if rule.is_of(signal)}
        for index, result in enumerate(answer.request.results):
            number += 1 if number or result.is_bad else 0
            if number and flagged & {None, index}:
                return number
    return None


def refusals_until(answers: Iterable[Answer], says: Callable[[Answer], bool]) -> int | None:
    """Return the number of the first refusal with this property."""
    return next((number for number, answer in enumerate(answers, 1) if says(answer)), None)


def worst(found: Iterable[int | None]) -> str:
    """Write how many tokens the slowest to be flagged had, and how many are never."""
    every = list(found)
    flagged = [number for number in every if number is not None]
    missed = len(every) - len(flagged)
    if not flagged:
        return "never"
    return f"{max(flagged)}" + (f", {missed} of {len(every)} never" if missed else "")


class Month(NamedTuple):
    """The answers to the honest, and to each attacker."""

    honest: Sequence[Answer]
    attackers: Sequence[tuple[Attacker, Sequence[Answer]]]

    def of(self, attack: str, pace: str) -> list[Sequence[Answer]]:
        return [answers for attacker, answers in self.attackers if attacker[:2] == (attack, pace)]

    def until(self, abuse: Abuse, rule: Rule, pace: str) -> list[int | None]:
        return [tokens_until(abuse, answers, rule) for answers in self.of(rule.attack, pace)]


def month(honest: Sequence[Answer], attackers: Sequence[Attacker], answers: Sequence[Answer]) -> Month:
    """Sort the attackers' answers by attacker: each is a separate integration."""
    of: dict[str, list[Answer]] = {}
    for answer in answers:
        of.setdefault(answer.request.integration, []).append(answer)
    return Month(honest, [(attacker, of[attacker.requests[0].integration]) for attacker in attackers])


PROBING = (("warned", lambda answer: answer.is_warned), ("quarantined", lambda answer: bool(answer.code)))


def main_table(abuse: Abuse, seen: Month) -> list[str]:
    """The table of `make simulate`, in Markdown."""
    days = honest_days(abuse, seen.honest)
    lines = ["| signal | limit | fast: token | slow: token | honest days |", "|---|---|---|---|---|"]
    for rule in RULES:
        fast, slow = (worst(seen.until(abuse, rule, pace)) for pace in ("fast", "slow"))
        share = percent(days.share(days.of_rule[rule.place]))
        lines.append(f"| `{_name(rule)}` | {rule.limit(abuse)} | {fast} | {slow} | {share} |")
    for what, says in PROBING:
        fast, slow = (
            worst(refusals_until(answers, says) for answers in seen.of("probing", pace)) for pace in ("fast", "slow")
        )
        lines.append(f"| `limits.refusals`: {what} | | {fast} | {slow} | |")
    return [*lines, "", summary(days)]


def summary(days: HonestDays) -> str:
    return (
        f"Of {days.everyone} honest identity-days {days.warned} ({percent(days.share(days.warned))}) had a warning, and "
        f"{days.stopped} were throttled or quarantined."
    )


def scaled_table(abuse: Abuse, seen: Month) -> list[str]:
    """The same with each limit halved and doubled, the others as they are."""
    head = "| limit | | fast: token | slow: token | days of this signal | days with a warning |"
    lines = [head, "|---|---|---|---|---|---|"]
    for rule in RULES:
        for factor in (0.5, 1, 2):
            other = rule.scaled(abuse, factor)
            days = honest_days(other, seen.honest)
            fast, slow = (worst(seen.until(other, rule, pace)) for pace in ("fast", "slow"))
            own, warned = percent(days.share(days.of_rule[rule.place])), percent(days.share(days.warned))
            lines.append(f"| `{_name(rule)}` | {rule.limit(other)} | {fast} | {slow} | {own} | {warned} |")
    return lines


def untellable_table(abuse: Abuse, seen: Month) -> list[str]:
    """The kinds that look alike, and their signals."""
    raised: dict[str, set[str]] = {}
    for attacker, answers in seen.attackers:
        if attacker.pace == "":
            of_kind = raised.setdefault(attacker.signal.replace("_", " "), set())
            of_kind |= {signal.name for answer in answers for signal in signals(abuse, answer)}
            of_kind |= {f"refusals: {what}" for what, says in PROBING if any(map(says, answers))}
    rows = [f"| {who} | {', '.join(sorted(names)) or 'none'} |" for who, names in raised.items()]
    return ["| who | signals |", "|---|---|", *rows]


def broken(abuse: Abuse, seen: Month) -> list[str]:
    """Return the demands that do not hold."""
    days = honest_days(abuse, seen.honest)
    faults = [] if days.share(days.warned) < HONEST_SHARE else [summary(days)]
    faults += [summary(days)] if days.stopped else []
    for rule in RULES:
        for pace in ("fast", "slow"):
            found = seen.until(abuse, rule, pace)
            if not found or any(number is None or number > WITHIN for number in found):
                faults.append(f"{rule.place}, {pace}: {worst(found)}")
    return faults


def _name(rule: Rule) -> str:
    return f"{rule.place}`, `..._run" if len(rule.names) > 1 else rule.place


def percent(share: float) -> str:
    return f"{share * 100:.2f} %"
