"""The history of the keys as one process knows it: followed, and told what it lacks.

A history that cannot be read, or that has forgotten a key, is not believed: what it last said goes on, and nothing is
added to it. Without this a lost file would make every key the first one of an issuer, which signs at once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Sequence

import structlog
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.bounds import HISTORY_TURN_S
from issuer.service.home import Home
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.life import KeyEvent, Lives, may_sign_from
from issuer.service.signing.seen import Untold

_log = structlog.get_logger("issuer")


class LiveHistory:
    """The history in its home. The constructor reads it, and raises SetupError (`key.history`).

    `lives` is what it says, replaced as a whole. Reads and writes block, and are for one thread at a time; `wait_s` is
    how long a write waits for its turn.
    """

    def __init__(self, home: Home, wait_s: float = HISTORY_TURN_S) -> None:
        self._history = KeyHistory(home, wait_s)
        self._who = f"service on {socket.gethostname()}"
        self._seen: Hashable = None
        self.lives: Lives = {}
        try:
            self.follow()
        except OSError as error:
            raise SetupError(Code.KEY_HISTORY, f"{self._history.place}: {error.strerror}") from None

    def follow(self) -> None:
        """Read the history, where it looks different. Raises SetupError and OSError."""
        seen = self._history.look()
        if seen != self._seen:
            self.lives = self._believed(self._history.read())
            self._seen = seen

    def tell(self, untold: Callable[[Lives], Sequence[Untold]], now: int) -> None:
        """Add what the history lacks, if anything; durable when this returns. Raises SetupError and OSError.

        `untold` is asked again of the history as it is then: several processes and hosts tell a thing once.
        """
        if not untold(self.lives):
            return
        events: list[KeyEvent] = []

        def decide(lives: Lives) -> list[KeyEvent]:
            latest = max((max(life.since, life.published or 0) for life in lives.values()), default=0)
            events[:] = [self._event(each, now, latest) for each in untold(self._believed(lives))]
            return events

        self.lives = self._history.record(decide)
        for event in events:
            _log.info(
                f"key {event.what}", kid=event.kid, why=event.why, may_sign_from=may_sign_from(self.lives, event.kid)
            )

    def _event(self, each: Untold, now: int, latest: int) -> KeyEvent:
        """Write an event. None is dated before the `latest`, whatever the clock says; the tokens of a key are."""
        since = now if each.what == "active" and each.since is UNSET and now < latest else each.since
        return KeyEvent(now, each.what, each.kid, each.x, self._who, each.why, since)

    def _believed(self, lives: Lives) -> Lives:
        if lost := self.lives.keys() - lives.keys():
            detail = f"{self._history.place} does not know the key {min(lost)} any more"
            raise SetupError(Code.KEY_HISTORY, detail)
        return lives
