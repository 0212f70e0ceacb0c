"""The content of the operator's view, from the board and the recent answers. The worst of several workers counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from issuer import __version__
from issuer.formats.times import show_span
from issuer.io.bounds import FEW_FREE_BYTES
from issuer.page.operator import AnswerCounts, Condition, KeyView, NumbersLine, Overview
from issuer.service.metrics.counts import FETCHES, SIGNALS
from issuer.service.metrics.history import HOURS, MINUTES, Answers, History, answers_of, by_sort
from issuer.service.metrics.idle_rules import AuditWatch
from issuer.service.metrics.limit_usage import StoreLook
from issuer.service.metrics.state import BoardReader, LogState, Snapshot, WorkerState
from issuer.service.policies.watcher import FailedLoad, Follower

_SORTS = ("issued", "no", "undecided")
_WEIGHT = {"observe": 0, "warn": 1, "throttle": 2, "quarantine": 3}


class View(Struct, frozen=True):
    """The sources of the operator's view."""

    reader: BoardReader
    history: History
    policies: Follower
    store: StoreLook
    audit: AuditWatch

    def overview(self, now: int) -> Overview:
        """Return the view at a Unix second."""
        found, history = self.reader.read(), self.history
        answers = answers_of(found.counted)
        hours = history.by_hour(answers)
        return Overview(
            version=f"issuer {__version__}",
            at=now,
            since=history.since,
            conditions=list(_conditions(found, self.policies.state.failure, now)),
            spans=[
                AnswerCounts("minute", (now // 60 - MINUTES + 1) * 60, 60, _by_turn(history.by_minute(answers))),
                AnswerCounts("hour", (now // 3600 - HOURS + 1) * 3600, 3600, _by_turn(list(map(by_sort, hours)))),
            ],
            integrations=_integrations(sum(hours, Answers())),
            codes=_codes(sum(hours, Answers())),
            held=self.store.found(),
            signals=_signals(found),
            unmatched=self.audit.found(),
            providers=_providers(found),
            keys=_published(found.states),
        )


def _published(states: Sequence[WorkerState]) -> list[KeyView]:
    return [KeyView(key.kid, key.state, key.since, key.moves_from) for key in states[0].keys] if states else []


def _by_turn(turns: Sequence[Counter[str]]) -> dict[str, list[int]]:
    return {sort: [turn[sort] for turn in turns] for sort in _SORTS}


def _integrations(answers: Answers) -> list[NumbersLine]:
    """Return a line for each integration, the most active first."""
    found: dict[str, Counter[str]] = {}
    for answer, number in answers.items():
        found.setdefault(answer.integration, Counter())[answer.sort] += number
    lines = [NumbersLine("unregistered callers" if name == "-" else name, tuple(each[sort] for sort in _SORTS))
             for name, each in found.items()]  # fmt: skip
    return sorted(lines, key=lambda line: (-sum(line.numbers), line.name))


def _codes(answers: Answers) -> list[NumbersLine]:
    found = Counter[str]()
    for answer, number in answers.items():
        if answer.sort != "issued":
            found[answer.code] += number
    return [NumbersLine(code, (number,)) for code, number in sorted(found.items(), key=lambda one: (-one[1], one[0]))]


def _providers(found: Snapshot) -> list[NumbersLine]:
    asked: dict[str, Counter[str]] = {}
    for (name, *labels), (number, *_) in found.counted.items():
        if name == FETCHES:
            outcome, provider = labels
            asked.setdefault(provider, Counter())[outcome] += number
    return [NumbersLine(provider, (each["answered"], each["failed"])) for provider, each in sorted(asked.items())]


def _signals(found: Snapshot) -> list[NumbersLine]:
    """Return a line for each signal, the most severe first."""
    raised = Counter[tuple[str, ...]]()
    for (name, *labels), (number, *_) in found.counted.items():
        if name == SIGNALS:
            signal, then, integration = labels
            raised[then, signal, integration] += number
    return [
        NumbersLine(f"{integration}: {signal}, {then}", (number,))
        for (then, signal, integration), number in sorted(raised.items(), key=lambda one: (-_WEIGHT[one[0][0]], one[0]))
    ]


# -- conditions --------------------------------------------------------------------------------------------------------


def _conditions(found: Snapshot, failure: FailedLoad | None, now: int) -> Iterator[Condition]:
    states = found.states
    yield Condition(
        "Workers", len(states) == found.expected, f"{len(states)} of {found.expected} are alive and report their state"
    )
    if not states:
        return
    yield _policies(states, failure, now)
    for tell in (_keys, _revocations, _stops):
        yield tell(states, now)
    yield _store(states)
    if logs := [state.log for state in states if state.log is not None]:
        yield _log(logs, found.now)
    fails = any(state.audit_fails for state in states)
    yield Condition(
        "Audit", not fails, "cannot be written, so no token is signed" if fails else "is written before each answer"
    )
    free = min(state.data_free_bytes for state in states)
    yield Condition("Disk", free >= FEW_FREE_BYTES, f"{_gigabytes(free)} free where the data is")


def _policies(states: Sequence[WorkerState], failure: FailedLoad | None, now: int) -> Condition:
    all_of = [state.policies for state in states]
    digests, stale = {each.digest for each in all_of}, any(each.stale for each in all_of)
    loaded = show_span(now - min(each.loaded_at for each in all_of))
    says = f"{max(each.integrations for each in all_of):,} integrations, loaded {loaded} ago, {sorted(digests)[0]}"
    if stale:
        says = f"the folder does not load: the active policies are {loaded} old; see `issuer doctor --server`"
        says += _broken(failure)
    elif len(digests) > 1:
        says = "workers have different policies; if that lasts for more than a few seconds, restart the service"
    return Condition("Policies", not stale and len(digests) == 1, says)


def _broken(failure: FailedLoad | None) -> str:
    """Name the file at fault, and the integrations whose files differ from their active policies."""
    if failure is None:
        return ""
    others = sorted({*failure.differing, *failure.gone})
    named = ", ".join(others[:5]) + (f" and {len(others) - 5:,} others" if len(others) > 5 else "")
    at = f"{failure.file}:{failure.line}:{failure.column}: " if failure.file else ""
    return f". {at}{failure.code}" + (f". Their files differ from the active policies: {named}" if others else "")


def _keys(states: Sequence[WorkerState], _now: int) -> Condition:
    if any(state.keys_stale for state in states):
        return Condition("Keys", False, "their folders or their history have a fault; see `issuer keys list`")
    active = [key.kid for key in states[0].keys if key.state == "active"]
    return Condition("Keys", bool(active), f"{len(active)} sign, {len(states[0].keys)} published")


def _revocations(states: Sequence[WorkerState], now: int) -> Condition:
    all_of = [state.revocations for state in states]
    worst = max(all_of, key=lambda each: (each.stale, each.unlisted))
    if worst.stale:
        return Condition("Revocations", False, "their files have a fault; see `issuer doctor --server`")
    if worst.signed_list is None:
        return Condition("Revocations", not worst.unlisted, f"{worst.items:,} revoked; no list is signed")
    left = worst.signed_list.next_update - now
    good = f"is good for {show_span(left)}" if left > 0 else f"ended {show_span(left)} ago"
    says = f"{worst.items:,} revoked, {worst.unlisted:,} of them not listed; list {worst.signed_list.number} {good}"
    return Condition("Revocations", left > 0 and not worst.unlisted, says)


def _stops(states: Sequence[WorkerState], _now: int) -> Condition:
    worst = max((state.stops for state in states), key=lambda each: (each.everything, each.stale, each.count))
    if worst.everything:
        return Condition("Emergency stops", False, "everything is stopped, by a signal")
    if worst.stale:
        return Condition("Emergency stops", False, "stops.yaml has an error: its earlier stops are in force")
    return Condition("Emergency stops", not worst.count, f"{worst.count} in force" if worst.count else "none")


def _store(states: Sequence[WorkerState]) -> Condition:
    all_of = [state.store for state in states]
    roles = {each.bearing.role for each in all_of if each.bearing is not None}
    says = [f"role {' and '.join(sorted(roles))}" if roles else "its role is unknown"]
    if memories := [each.memory for each in all_of if each.memory is not None]:
        most = min(each.most or each.machine for each in memories)
        used = max(each.used for each in memories)
        says.append(f"{_gigabytes(used)} used" + (f" of {_gigabytes(most)}" if most else ""))
    lost = any(each.is_lost for each in all_of)
    return Condition(
        "Store",
        not lost and "replica" not in roles,
        "refuses writes, so no token is signed" if lost else ", ".join(says),
    )


def _log(logs: Sequence[LogState], now: float) -> Condition:
    if any(each.is_lost for each in logs):
        return Condition("Transparency log", False, "takes no leaf, so no token is signed")
    found = [(each.status, now - each.looked_at) for each in logs if each.status is not None]
    if not found:
        return Condition("Transparency log", False, "has not reported its state yet")
    status, ago = max(found, key=lambda one: one[0].size)
    says = [f"{status.size:,} leaves"]
    if status.cosigned is not None:
        says.append(f"{status.cosigned.size:,} of them cosigned {show_span(int(status.cosigned.age_s + ago))} ago")
    if failing := status.failing_witnesses:
        says.append(f"failing witnesses: {', '.join(failing)}")
    return Condition("Transparency log", not failing, "; ".join(says))


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
