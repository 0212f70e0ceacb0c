"""What this process knows against registered identities before it asks the store: quarantines that it was told of.

A quarantined caller asks again and again. For a moment after the store has said so, its requests are refused with their
bodies unread and without another call; then the store is asked again, because only it knows the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.issuance.steps import Payer, Registered
from issuer.service.bounds import MAX_STANDINGS, STANDING_S


class _Known(Refused):
    """What was known already: it is no news, or who asks without a pause would be held for ever."""


class _Told(Struct, frozen=True):
    """What the store said, and until when it is believed."""

    error: Refused
    until_s: float


class KnownStanding:
    """Implements `issuance.ports.Standing` for one process. `now_s` replaces the monotonic clock in tests."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._told: dict[Payer, _Told] = {}

    def refusal(self, registered: Registered) -> Refused | None:
        """Return what is known against a caller now, if anything."""
        payer = registered.payer
        told = self._told.get(payer)
        if told is None:
            return None
        if told.until_s <= self._now_s():
            del self._told[payer]
            return None
        return _Known(told.error.code, told.error.detail, retry_after_s=told.error.retry_after_s)

    def learn(self, registered: Registered, error: Refused) -> None:
        """Remember a quarantine that the store told of, for `STANDING_S`, and never past its end."""
        if error.code is not Code.ABUSE_QUARANTINED or isinstance(error, _Known):
            return
        payer = registered.payer
        self._told.pop(payer, None)
        if len(self._told) >= MAX_STANDINGS:
            del self._told[next(iter(self._told))]  # the oldest: the store is asked about it again
        self._told[payer] = _Told(error, self._now_s() + min(STANDING_S, error.retry_after_s or 0))
