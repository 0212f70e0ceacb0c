"""How many requests are under way in this process, and the word to come back for one more."""

from __future__ import annotations

from types import TracebackType

from issuer.body import Endpoint
from issuer.errors import Code, Undecided

# Whoever is taken in is answered in good time: work for a fraction of a second, and bodies for 64 MiB in all. A batch
# is a hundred times the work, and 1 MiB.
MAX_IN_FLIGHT: dict[Endpoint, int] = {"/tokens": 512, "/tokens/batch": 32}


class InFlight:
    """`with in_flight:` around one request. Raises Undecided (`service.busy`) beyond the limit: nobody queues."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def __enter__(self) -> None:
        if self._count >= self._limit:
            raise Undecided(Code.SERVICE_BUSY)
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
