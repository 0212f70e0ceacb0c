"""The keys that sign now, followed on the disk, apart from everything else that changes there.

A key that is taken away may be stolen. It is dropped at the first look that misses it: no policy that does not load,
no other key that is not fit and no full disk keeps it. A key that comes, or a new state, waits until the folders are
fit as a whole and the change has been audited.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time_ns

import structlog

from issuer.audit_events import KeysLoaded, KeysRefused
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError, Undecided
from issuer.issuance.ports import Audit
from issuer.service.background import OwnThread
from issuer.service.bounds import LOOK_S
from issuer.service.look import Look, look
from issuer.service.signing.keyring import Found, SigningKey, find_keys, fit_keyring, load_keyring
from issuer.service.signing.opener import Opener

# keys/<state>/<name>.pem
_LEVELS = 2

_log = structlog.get_logger("issuer")


class LiveSigner:
    """The signing keys of one process. Implements `issuance.ports.Signer`; `stale`: the folders are not fit.

    The constructor loads them. Raises SetupError, as does `passphrase`, which is asked again for every look at changed
    folders.
    """

    def __init__(self, folder: Path, passphrase: Callable[[], bytes | None], audit: Audit) -> None:
        self._folder = folder
        self._passphrase = passphrase
        self._audit = audit
        self._thread = OwnThread()
        self._before = self._look()
        self._seen: Look | None = self._before
        self._opener = Opener()
        self.keyring = load_keyring(folder, passphrase(), self._opener)
        self._opener.wait_s = LOOK_S  # a token that does not answer does not hold up the next look
        self.stale = False
        self._recorded = False

    # -- signing ------------------------------------------------------------------------------------------------------

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) where it was taken away."""
        return self.keyring.active_kid

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign."""
        return self.keyring.usable_kids

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self.keyring.max_message_bytes(kid)

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign with a key that is still there. Raises Undecided(`dependency.signer`)."""
        return await self.keyring.sign(kid, signing_inputs)

    # -- following ----------------------------------------------------------------------------------------------------

    async def announce(self) -> None:
        """Audit which keys are in force; where that fails, the next `turn` tries again."""
        with suppress(Undecided):
            await self._audit.record(KeysLoaded(_now(), self.keyring.states))
            self._recorded = True

    async def turn(self, asked: bool) -> None:
        """Look at the folders. What is gone is dropped at once; what is new is taken when two looks in a row have seen
        it, where a signal `asked`, or where it may succeed what is gone."""
        if not self._recorded:
            await self.announce()
        seen = await self._thread.run(self._look)
        before, self._before = self._before, seen
        if seen == self._seen and not asked:
            return
        self._seen = None  # until the folders are taken as they are
        found = await self._thread.run(self._find)
        dropped = self._drop(found)
        if dropped:
            await self.announce()
        if asked or dropped or seen == before:
            with suppress(Undecided):
                await self._take(found)
                self._seen = None if found.unjudged else seen

    def _look(self) -> Look:
        return look(self._folder, _LEVELS)

    def _find(self) -> Found:
        """Find the keys; again where one is missing: it may have been moved from folder to folder meanwhile."""
        found = find_keys(self._folder, self._passphrase, self._opener)
        return find_keys(self._folder, self._passphrase, self._opener) if self._gone(found) else found

    def _gone(self, found: Found) -> list[SigningKey]:
        there = {key.kid for key in found.keys}
        return [key for key in self.keyring.keys if key.kid not in there and key.path not in found.unjudged]

    def _drop(self, found: Found) -> bool:
        """Drop the keys that are gone; return whether there were any."""
        gone = {key.kid for key in self._gone(found)}
        if gone:
            self.keyring = self.keyring.only(self.keyring.states.keys() - gone)
            self._recorded = False
            _log.error("keys dropped", kids=sorted(gone), left=self.keyring.states)
        return bool(gone)

    async def _take(self, found: Found) -> None:
        """Take the folders as they are, or say why not. Raises Undecided where neither can be audited."""
        try:
            if found.error is not None:
                raise found.error
            whole = fit_keyring(found.keys)
        except (SetupError, OSError) as error:
            self.stale = True
            await self._refuse(error)
            return
        if whole.states != self.keyring.states:
            self.stale = True  # until it has been audited
            await self._audit.record(KeysLoaded(_now(), whole.states))
            _log.info("keys loaded", keys=whole.states)
            self._recorded = True
        self.keyring, self.stale = whole, False

    async def _refuse(self, error: SetupError | OSError) -> None:
        code = error.code if isinstance(error, IssuerError) else Code.FILE_UNREADABLE
        detail = error.detail if isinstance(error, IssuerError) else str(error.strerror)
        _log.error("keys refused", code=str(code), detail=detail)
        await self._audit.record(KeysRefused(_now(), self.keyring.states, str(code)))


def _now() -> int:
    return time_ns() // 10**9
