"""Rate arithmetic and its value types. Pure: the caller passes the time.

The algorithm is GCRA, the generic cell rate algorithm (ITU-T I.371). It stores one number for each key, the theoretical
arrival time, and is exact at any concurrency. `service/admission/admit.lua` does the same in the store; a test compares
the two.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]
RateSeconds = Annotated[int, Meta(ge=1, le=86_400)]
Burst = Annotated[int, Meta(ge=1, le=50_000)]  # burst times a day's microseconds is exact in the store's doubles


class Rate(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A rate of `count` requests per `per_s` seconds. Up to `burst` requests may come at once."""

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
    """The rates of one integration. Above the rate of `refusals`, an identity is quarantined for `quarantine_s`."""

    identity: Rate = Rate(count=600, per_s=3600, burst=200)
    integration: Rate = Rate(count=3600, per_s=3600, burst=1000)
    refusals: Rate = Rate(count=60, per_s=3600, burst=60)
    quarantine_s: Annotated[int, Meta(ge=1, le=86_400)] = 900


class Ceilings(Struct, frozen=True, forbid_unknown_fields=True):
    """The operator's bounds for every policy file: all integrations share what one of them uses up.

    Each is far above the needs of an integration, and far below what would stop a service.
    """

    per_hour: Annotated[
        int, Meta(ge=1, le=3_600_000_000, description="the most requests an hour that a rate of a policy may allow")
    ] = 360_000
    burst: Annotated[Burst, Meta(description="the most requests that a rate of a policy may allow at once")] = 10_000
    ttl_s: Annotated[int, Meta(ge=1, le=86_400, description="the longest life of a token, in seconds")] = 86_400
    # A version that was replaced five minutes ago is in force in no worker: a worker applies a change within seconds.
    unused_s: Annotated[int, Meta(ge=300, le=86_400, description="how long an unused version is kept, in seconds")] = (
        300
    )

    def excess(self, rate: Rate) -> str:
        """Return how a rate is above the ceilings, or "" if it is not."""
        if rate.count * 3600 > self.per_hour * rate.per_s:
            return f"{rate.count} in {rate.per_s} s: more than the operator's `ceilings.per_hour`, {self.per_hour}"
        if rate.burst > self.burst:
            return f"a burst of {rate.burst}: more than the operator's `ceilings.burst`, {self.burst}"
        return ""


DEFAULT_CEILINGS = Ceilings()
# The bounds of the types alone. For commands that explain policies without the operator's settings.
NO_CEILINGS = Ceilings(per_hour=3_600_000_000, burst=50_000, ttl_s=86_400)


class RateState(Struct, frozen=True):
    """A caller's rate after its request. The theoretical arrival time is `ahead_us` microseconds ahead of now."""

    name: str
    rate: Rate
    ahead_us: int


class Spent(Struct, frozen=True):
    """A request within the limit, with the new theoretical arrival time to store, in microseconds."""

    arrival_us: int


class Exceeded(Struct, frozen=True):
    """A request over the limit, for which no time is stored. It will fit after `retry_us` microseconds."""

    retry_us: int


def spend(rate: Rate, arrival_us: int, now_us: int, cost: int = 1) -> Spent | Exceeded:
    """Charge `cost` requests at `now_us` against a key whose stored arrival time is `arrival_us` (0: none)."""
    arrival = max(arrival_us, now_us) + rate.interval_us * cost
    ahead = arrival - now_us - rate.tolerance_us
    return Exceeded(ahead) if ahead > 0 else Spent(arrival)


def used(rate: Rate, ahead_us: int) -> int:
    """Return how much of the burst is used up if the theoretical arrival time is `ahead_us` ahead of now."""
    return max(0, -(-ahead_us // rate.interval_us))
