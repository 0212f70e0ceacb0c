"""One process's table of refused requests by source address. It limits the provider requests that a source causes."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.limits.bounds import MAX_SOURCES
from issuer.limits.rate import Exceeded, Rate, Spent, spend


class Allowance(Struct, frozen=True):
    """The permission of a source to cause requests to providers. `source` is an IPv4 address, or an IPv6 /64.

    If `retry_after_s` is above 0, the source is over its rate of refused requests. Until then the service fetches
    nothing on its behalf, and answers it only from memory.
    """

    source: str
    retry_after_s: int = 0

    def demand(self) -> None:
        """Raise Refused (`rate.source`) if the source is over its limit. Call this before asking a provider."""
        if self.retry_after_s > 0:
            raise Refused(Code.RATE_SOURCE, retry_after_s=self.retry_after_s)


class Sources:
    """A table of at most `capacity` source addresses with their refused requests.

    Each worker has its own table, which protects the worker's own time. A full table drops the address that was refused
    least recently. So a flood of addresses can make the table forget sooner, but cannot make it grow.
    """

    def __init__(self, rate: Rate, capacity: int = MAX_SOURCES) -> None:
        self._rate = rate
        self._capacity = capacity
        self._arrivals: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._arrivals)

    def allowance(self, source: str, now_us: int) -> Allowance:
        """Return the allowance of a source at this time."""
        return Allowance(source, -(-self.retry_us(source, now_us) // 1_000_000))

    def retry_us(self, source: str, now_us: int) -> int:
        """Return the microseconds until the source may cause a fetch; 0 if it may now."""
        arrival_us = self._arrivals.get(source, 0)
        if arrival_us <= now_us:  # true for nearly every request: a burst is at least one
            return 0
        outcome = spend(self._rate, arrival_us, now_us)
        return outcome.retry_us if isinstance(outcome, Exceeded) else 0

    def refuse(self, source: str, now_us: int) -> bool:
        """Count one refused request of a source, and return True. Above the limit, add nothing and return False."""
        outcome = spend(self._rate, self._arrivals.get(source, 0), now_us)
        if isinstance(outcome, Spent):
            self._store(source, outcome.arrival_us)
        elif source in self._arrivals:
            self._arrivals.move_to_end(source)
        return isinstance(outcome, Spent)

    def charge(self, source: str, now_us: int, cost: int) -> None:
        """Charge a source for a finished request, even above the limit: the cost was unknown before."""
        self._store(source, max(self._arrivals.get(source, 0), now_us) + self._rate.interval_us * cost)

    def _store(self, source: str, arrival_us: int) -> None:
        self._arrivals[source] = arrival_us
        self._arrivals.move_to_end(source)
        if len(self._arrivals) > self._capacity:
            self._arrivals.popitem(last=False)
