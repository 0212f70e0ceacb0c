"""How many requests are under way in this process, and the refusal of one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.issuance.steps import Payer
from issuer.service import bounds
from issuer.wire import Kind

MAX_IN_FLIGHT: dict[Kind, int] = {"single": bounds.MAX_REQUESTS, "batch": bounds.MAX_BATCHES}
MAX_BODIES: dict[Kind, int] = {"single": bounds.MAX_BODIES, "batch": bounds.MAX_BATCH_BODIES}


class InFlight:
    """`with in_flight:` around one request. Raises Undecided (`service.busy`) beyond the limit: there is no queue."""

    def __init__(self, limit: int, max_bodies: int) -> None:
        self._limit = limit
        self._count = 0
        self._max_bodies = max_bodies
        self._bodies: Counter[Payer] = Counter()

    def __enter__(self) -> None:
        if self._count >= self._limit:
            raise Undecided(Code.SERVICE_BUSY)
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1

    def refusal(self, payer: Payer) -> Refused | None:
        """Return the refusal (`rate.identity`) of one more body of a payer whose share is in use; else None."""
        return Refused(Code.RATE_IDENTITY, retry_after_s=1) if self._bodies[payer] >= self._max_bodies else None

    @contextmanager
    def body_of(self, payer: Payer) -> Iterator[None]:
        """Count one more body of a payer while it is read."""
        self._bodies[payer] += 1
        try:
            yield
        finally:
            self._bodies[payer] -= 1
