"""Who of the witnesses does not do its part, and what they say against the log: told, and not told without end."""

from __future__ import annotations

import asyncio

import structlog

from issuer.service.bounds import WITNESS_TOLD_S
from issuer.service.log.witness import Contradiction

_log = structlog.get_logger("issuer")


class Faults:
    """Names a witness that does not do its part: at once, every WITNESS_TOLD_S while it lasts, and when it ends."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}

    @property
    def failing(self) -> tuple[str, ...]:
        """Those that do not do their part now."""
        return tuple(sorted(name for name, (fault, _) in self._told.items() if fault))

    def tell(self, name: str, fault: str) -> None:
        """Say what is wrong with a witness now; "" for nothing."""
        before, at = self._told.get(name, ("", 0.0))
        now = asyncio.get_running_loop().time()
        if fault == before and (not fault or now - at < WITNESS_TOLD_S):
            return
        self._told[name] = (fault, now)
        if fault:
            _log.warning("witness fails", witness=name, reason=fault)
        else:
            _log.info("witness cosigns again", witness=name)


class Alarms:
    """Implements `witnesses.Alarm` by the log stream: each witness's evidence at once, and every WITNESS_TOLD_S."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self, name: str, contradiction: Contradiction) -> None:
        """Tell what a witness shows that this log has signed, and does not extend. Its mere word is a fault of it."""
        now = asyncio.get_running_loop().time()
        if contradiction.shown is None or now - self._told.get(name, float("-inf")) < WITNESS_TOLD_S:
            return
        self._told[name] = now
        shown = contradiction.shown.to_bytes().decode(errors="replace")
        _log.critical("log contradicted", witness=name, reason=str(contradiction), checkpoint=shown)
