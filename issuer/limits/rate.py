"""Rate arithmetic and its value types. Pure: the time is passed in.

GCRA, the generic cell rate algorithm (ITU-T I.371): one stored number per key, the theoretical arrival time, exact at
any concurrency. `service/admission/admit.lua` does the same arithmetic inside the store; a test holds the two together.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]
RateSeconds = Annotated[int, Meta(ge=1, le=86_400)]
Burst = Annotated[int, Meta(ge=1, le=50_000)]  # a day's interval times this stays exact in the store's doubles


class Rate(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`count` requests per `per_s` seconds, of which `burst` may come at once."""

    count: Positive
    per_s: RateSeconds
    burst: Burst

    @cached_property
    def interval_us(self) -> int:
        """Microseconds between two requests at the steady rate, at least 1."""
        return max(1, self.per_s * 1_000_000 // self.count)

    @cached_property
    def tolerance_us(self) -> int:
        """How far the theoretical arrival time may run ahead of now, in microseconds."""
        return self.interval_us * self.burst


class Limits(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """What one integration may ask for. `refusals` over its rate quarantines the identity for `quarantine_s`."""

    identity: Rate = Rate(count=600, per_s=3600, burst=200)
    integration: Rate = Rate(count=3600, per_s=3600, burst=1000)
    refusals: Rate = Rate(count=60, per_s=3600, burst=60)
    quarantine_s: Annotated[int, Meta(ge=1, le=86_400)] = 900


class RateState(Struct, frozen=True):
    """A caller's rate `name` after its request: its theoretical arrival time is `ahead_us` microseconds from now."""

    name: str
    rate: Rate
    ahead_us: int


class Spent(Struct, frozen=True):
    """Within the limit: the new theoretical arrival time to store, in microseconds."""

    arrival_us: int


class Exceeded(Struct, frozen=True):
    """Over the limit; nothing is stored. The same request fits after `retry_us` microseconds."""

    retry_us: int


def spend(rate: Rate, arrival_us: int, now_us: int, cost: int = 1) -> Spent | Exceeded:
    """Charge `cost` requests at `now_us` against a key whose stored arrival time is `arrival_us` (0: none)."""
    arrival = max(arrival_us, now_us) + rate.interval_us * cost
    ahead = arrival - now_us - rate.tolerance_us
    return Exceeded(ahead) if ahead > 0 else Spent(arrival)


def used(rate: Rate, ahead_us: int) -> int:
    """Return how much of the burst is used up where the arrival time is so far ahead of now."""
    return max(0, -(-ahead_us // rate.interval_us))
