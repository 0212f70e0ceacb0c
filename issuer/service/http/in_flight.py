"""How many requests are under way in this process, and the word to come back for one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.policy.registration import Registration
from issuer.wire import Endpoint

# Whoever is taken in is answered in good time: work for a fraction of a second, and bodies for 64 MiB in all. A batch
# is a hundred times the work, and 1 MiB.
MAX_IN_FLIGHT: dict[Endpoint, int] = {"/tokens": 512, "/tokens/batch": 32}
# Of these, how many one registered identity may hold while their bodies come: ten seconds, for as long as it likes.
MAX_BODIES: dict[Endpoint, int] = {"/tokens": 64, "/tokens/batch": 8}


class InFlight:
    """`with in_flight:` around one request. Raises Undecided (`service.busy`) beyond the limit: nobody queues."""

    def __init__(self, limit: int, max_bodies: int) -> None:
        self._limit = limit
        self._count = 0
        self._max_bodies = max_bodies
        self._bodies: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> None:
        if self._count >= self._limit:
            raise Undecided(Code.SERVICE_BUSY)
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1

    @contextmanager
    def body_of(self, registration: Registration) -> Iterator[None]:
        """Count one more body of a party while it comes. Raises Refused (`rate.identity`) beyond its share."""
        who = (registration.policy.integration, registration.identity.id)
        if self._bodies[who] >= self._max_bodies:
            raise Refused(Code.RATE_IDENTITY, retry_after_s=1)
        self._bodies[who] += 1
        try:
            yield
        finally:
            self._bodies[who] -= 1
