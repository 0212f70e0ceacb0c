"""What the counts of an admission mean for a request: the attempts in its tokens, and warnings. Pure."""

from __future__ import annotations

from msgspec import Struct

from issuer.abuse import NOTHING_COUNTED, Signal, Tally, judge
from issuer.formats.times import show_time
from issuer.policy.model import Policy
from issuer.verify_token import Attempt

_ATTEMPTS = (
    "{count} different sets of metric values were signed for this model commit, benchmark commit, task and framework "
    "since {since}, more than {limit}: sign the result of one run, and say in its notes what the others were"
)
_ARTIFACT = (
    "{count} different sets of metric values name the same evidence file, more than {limit}: sign what the file says, "
    "or name the file of this run"
)
_SPREAD = {
    "owners_a_day": "results for {count} model owners were signed today, more than {limit}",
    "owners_a_run": "results for {count} model owners were signed in this CI run, more than {limit}",
    "tokens_a_day": "{count} tokens were signed today, more than {limit}",
    "tokens_a_run": "{count} tokens were signed in this CI run, more than {limit}",
}
_ASK = ": if this is meant, ask the operator of this service for wider limits"


class Signals(Struct, frozen=True):
    """What was counted for a request, without items where nothing was, and the signals that were `raised` by it."""

    tally: Tally
    raised: tuple[Signal, ...] = ()

    @classmethod
    def of(cls, policy: Policy, tally: Tally) -> Signals:
        """Judge what was counted by the policy of today."""
        return cls(tally, judge(policy.abuse, tally)) if tally.items else cls(tally)

    def attempts(self) -> tuple[Attempt | None, ...]:
        """Return the attempt of each result, None where its number is not exact; empty where nothing was counted."""
        return tuple([Attempt(item.number, item.since) if item.exact else None for item in self.tally.items])

    def warnings(self, item: int) -> tuple[str, ...]:
        """Return what the caller is told about one result: the code of each signal, what was counted, what to do."""
        return tuple([
            self._describe(signal)
            for signal in self.raised
            if signal.then != "observe" and signal.item in {item, None}
        ])  # fmt: skip

    def _describe(self, signal: Signal) -> str:
        text = {"attempts": _ATTEMPTS, "artifact": _ARTIFACT}.get(signal.name) or (
            _SPREAD[signal.rule.rpartition(".")[2]] + _ASK
        )
        since = self.tally.items[signal.item or 0].since
        said = text.format(count=signal.count, limit=signal.limit, since=show_time(since)[:10])
        slower = f"; throttled until {show_time(self.tally.throttled_until)}" if signal.then == "throttle" else ""
        return f"abuse.{signal.name}: {said}{slower}"


NO_SIGNALS = Signals(NOTHING_COUNTED)
