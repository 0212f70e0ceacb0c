"""The standings and the used limits of all identities, read from the store for the operator's view.

The view reads the store at most once in METRIC_HELD_S, however many people look, and a scrape never reads it. If the
store does not answer, the view says so, and everything else still works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock

from issuer.errors import SetupError
from issuer.issuance.steps import Payer
from issuer.limits.rate import Rate, used
from issuer.page.operator import MOST_ROWS, Stand, StandingsView, Used
from issuer.policy.model import Policy
from issuer.service.admission.quarantine_admin import QuarantineStatus, StandingAndRates, Standings, standings_at
from issuer.service.metrics.bounds import METRIC_HELD_IDENTITIES, METRIC_HELD_LOOK_S, METRIC_HELD_S

Policies = Mapping[str, Policy]


class StoreLook:
    """Reads the standings in a store, for several threads. `policies` returns the policies in force."""

    def __init__(self, url: str, policies: Callable[[], Policies], clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._policies = policies
        self._clock = clock
        self._lock = Lock()
        self._found = StandingsView("the store has not been read yet")
        self._looked_at = -METRIC_HELD_S

    def found(self) -> StandingsView:
        """Return the result of the last look. If that is too old, look again."""
        with self._lock:
            if self._clock() - self._looked_at >= METRIC_HELD_S:
                self._found = asyncio.run(_look(self._url, self._policies()))
                self._looked_at = self._clock()
            return self._found


async def _look(url: str, policies: Policies) -> StandingsView:
    try:
        async with asyncio.timeout(METRIC_HELD_LOOK_S), standings_at(url) as standings:
            return await _ask(standings, policies)
    except SetupError as error:
        return StandingsView(error.detail)
    except TimeoutError:
        return StandingsView(f"the store did not answer everything within {METRIC_HELD_LOOK_S:g} s")


async def _ask(standings: Standings, policies: Policies) -> StandingsView:
    payers = [Payer(name, identity.id) for name, policy in policies.items() for identity in policy.identities]
    stands: list[tuple[int, str, str, Stand]] = []
    most: list[Used] = []
    async for both in standings.look(islice(payers, METRIC_HELD_IDENTITIES)):
        stands += _stands(both.standing)
        most += _used_by(policies[both.standing.integration], both)
        if len(most) > 4 * MOST_ROWS:
            most = _most(most)
    names = list(islice(policies, METRIC_HELD_IDENTITIES))
    for name, ahead_us in zip(names, await standings.ahead(names), strict=True):
        most += _of_rate(f"{name}: rate of the integration", policies[name].limits.integration, ahead_us)
    return StandingsView(
        "",
        stands=[stand for *_, stand in sorted(stands, key=lambda each: each[:3])],
        used=_most(most),
        left_out=max(0, len(payers) - METRIC_HELD_IDENTITIES),
    )


def _stands(standing: QuarantineStatus) -> Iterator[tuple[int, str, str, Stand]]:
    """Yield a notable standing with its sort key: broken ones come first, then quarantined, throttled, released."""
    states = (
        (standing.is_broken, "broken: its requests are answered 503 until it is released or quarantined", 0),
        (standing.quarantined_until, f"quarantined by {standing.quarantined_by}", standing.quarantined_until),
        (standing.throttled_until, "throttled", standing.throttled_until),
        (standing.released_until, "released: signals only warn it", standing.released_until),
    )
    for order, (is_set, says, until) in enumerate(states):
        if is_set:
            name = f"{standing.integration}/{standing.identity}"
            yield order, standing.integration, standing.identity, Stand(name, says, until)
            return


def _used_by(policy: Policy, both: StandingAndRates) -> Iterator[Used]:
    standing, limits, spread = both.standing, policy.limits, policy.abuse.spread
    name = f"{standing.integration}/{standing.identity}"
    yield from _of_rate(f"{name}: rate", limits.identity, both.ahead_us)
    yield from _of_rate(f"{name}: refusals", limits.refusals, both.refusals_us)
    if standing.tokens:
        yield Used(f"{name}: tokens today", standing.tokens, spread.tokens_a_day)
    if standing.owners:
        yield Used(f"{name}: model owners today", standing.owners, spread.owners_a_day)


def _of_rate(name: str, rate: Rate, ahead_us: int) -> Iterator[Used]:
    if spent := used(rate, ahead_us):
        yield Used(name, spent, rate.burst)


def _most(found: Sequence[Used]) -> list[Used]:
    """Return the limits with the largest used share."""
    return sorted(found, key=lambda one: (-one.used / one.limit, one.name))[:MOST_ROWS]
