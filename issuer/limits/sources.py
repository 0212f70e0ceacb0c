"""How often each address was refused, for one process; and whether a request from it may make us ask a provider."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.limits.bounds import MAX_SOURCES
from issuer.limits.rate import Exceeded, Rate, Spent, spend


class Allowance(Struct, frozen=True):
    """What the source of a request may make us do. `source` is an IPv4 address, or the /64 of an IPv6 one.

    `retry_after_s` above 0 means that it is over its limit of refused requests: until then nobody is asked, and nothing
    is fetched, on its behalf. What is in memory still serves it.
    """

    source: str
    retry_after_s: int = 0

    def demand(self) -> None:
        """Call this before asking anybody. Raises Refused (`rate.source`) where the source is over its limit."""
        if self.retry_after_s > 0:
            raise Refused(Code.RATE_SOURCE, retry_after_s=self.retry_after_s)


class Sources:
    """Which addresses have been refused too often, in a table that never grows beyond `capacity`.

    One worker's memory, not shared: it protects this process's time. When full, the address that was refused least
    recently is forgotten; a flood of addresses can thus shorten a memory but never grow it.
    """

    def __init__(self, rate: Rate, capacity: int = MAX_SOURCES) -> None:
        self._rate = rate
        self._capacity = capacity
        self._arrivals: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._arrivals)

    def allowance(self, source: str, now_us: int) -> Allowance:
        """Return what the source may make us do now."""
        return Allowance(source, -(-self.retry_us(source, now_us) // 1_000_000))

    def retry_us(self, source: str, now_us: int) -> int:
        """Return 0 where the source may still cause a fetch; else the microseconds until it may."""
        arrival_us = self._arrivals.get(source, 0)
        if arrival_us <= now_us:  # nothing to wait for, as a burst is at least one: nearly every request
            return 0
        outcome = spend(self._rate, arrival_us, now_us)
        return outcome.retry_us if isinstance(outcome, Exceeded) else 0

    def refuse(self, source: str, now_us: int) -> bool:
        """Count one refused request against its source. False above the limit, where nothing more is added."""
        outcome = spend(self._rate, self._arrivals.get(source, 0), now_us)
        if isinstance(outcome, Spent):
            self._remember(source, outcome.arrival_us)
        elif source in self._arrivals:
            self._arrivals.move_to_end(source)
        return isinstance(outcome, Spent)

    def charge(self, source: str, now_us: int, cost: int) -> None:
        """Charge a source what it has cost, even above the limit: the price was not known before."""
        self._remember(source, max(self._arrivals.get(source, 0), now_us) + self._rate.interval_us * cost)

    def _remember(self, source: str, arrival_us: int) -> None:
        self._arrivals[source] = arrival_us
        self._arrivals.move_to_end(source)
        if len(self._arrivals) > self._capacity:
            self._arrivals.popitem(last=False)
