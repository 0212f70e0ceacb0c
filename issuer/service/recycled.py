"""Who has been seen with a registered name under other ids, for one process: told at once, then once an hour."""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from issuer.identity.caller import Caller
from issuer.issuance.steps import Payer
from issuer.service.bounds import MAX_RECYCLED, RECYCLED_S

# Whose name, and who has it: the ids of its provider, as far as they are short.
_Seen = tuple[Payer, str, tuple[object, ...]]


class _Times(Struct):
    """When it was told last, Unix seconds, and how often it has come since."""

    told_at: int
    since: int = 0


class RecycledNames:
    """Implements `issuance.ports.Recycled`. A caller for whom there is no room is not told: its refusals are in the
    audit all the same."""

    def __init__(self, capacity: int = MAX_RECYCLED) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[_Seen, _Times] = OrderedDict()  # who was told first, first

    def __len__(self) -> int:
        return len(self._seen)

    def count(self, payer: Payer, caller: Caller, now: int) -> int:
        """Count one, and return how many to tell now."""
        ids = tuple(caller.short_claims(caller.provider.rules.pins).values())
        seen = payer, caller.provider.id, ids
        times = self._seen.get(seen)
        if times is not None and now < times.told_at + RECYCLED_S:
            times.since += 1
            return 0
        self._forget(now)
        if times is None and len(self._seen) >= self._capacity:
            return 0
        self._seen[seen] = _Times(now)
        self._seen.move_to_end(seen)
        return 1 + (times.since if times else 0)

    def _forget(self, now: int) -> None:
        """Forget who has not come for another hour after it could have been told again."""
        while self._seen:
            first = next(iter(self._seen))
            if now < self._seen[first].told_at + 2 * RECYCLED_S:
                return
            del self._seen[first]
