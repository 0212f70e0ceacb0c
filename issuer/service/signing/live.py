"""The keys that sign now, followed on the disk and in their history, apart from everything else that changes there.

A key that is taken away may be stolen. It is dropped at the first look that misses it: no policy that does not load,
no other key that is not fit, no full disk and no history that is locked keeps it. A key that comes, or a new state,
waits until the folders are fit as a whole and the change has been audited; and it signs only when the history says, on
the disk, that every host has published it for long enough (contract section 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.audit_events import KeysLoaded, KeysRefused
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError, Undecided
from issuer.formats import jose
from issuer.issuance.ports import Audit
from issuer.service.background import OwnThread
from issuer.service.bounds import HISTORY_S, LOOK_S
from issuer.service.hosts import Hosts
from issuer.service.look import Look, look
from issuer.service.signing.keyring import (
    Found,
    KeyringSigner,
    KeyState,
    SigningKey,
    find_keys,
    fit_keyring,
    load_keys,
)
from issuer.service.signing.life import KeyLife, Lives
from issuer.service.signing.live_history import LiveHistory
from issuer.service.signing.opener import Opener
from issuer.service.signing.seen import (
    Seen,
    SeenKey,
    Untold,
    may_sign,
    revoked,
    states_of,
    unpublished,
    untold,
    waiting,
)

# keys/<state>/<name>.pem
_LEVELS = 2

_log = structlog.get_logger("issuer")


class _Held(Struct, frozen=True):
    """The keys of the folders as they were last taken, and what of them the history is told."""

    keys: tuple[SigningKey, ...]
    seen: Seen

    @classmethod
    def of(cls, keys: tuple[SigningKey, ...]) -> _Held:
        """Look at each key's file, too. Blocks."""
        return cls(keys, tuple(SeenKey(key.kid, _x(key), key.state, _made(key.path)) for key in keys))

    def without(self, kids: Collection[str]) -> _Held:
        """Return what is left of them."""
        left = tuple(key for key in self.keys if key.kid not in kids)
        return _Held(left, tuple(key for key in self.seen if key.kid not in kids))


class LiveSigner:
    """The signing keys of one process. Implements `issuance.ports.Signer`; `turn` is to be called once a second.

    The constructor loads them. Raises SetupError, as does `passphrase`, which is asked again for every look at changed
    folders. `clock` returns Unix seconds. `is_announced` says whether who watches the log can know of a key that is to
    come: without a log everybody does. `waiting` is the key that lies in active/ and does not sign, with the time from
    when it may; None: not every host has published it.
    """

    def __init__(
        self,
        folder: Path,
        passphrase: Callable[[], bytes | None],
        audit: Audit,
        history: LiveHistory,
        hosts: Hosts,
        clock: Callable[[], int],
    ) -> None:
        self._folder = folder
        self._passphrase = passphrase
        self._audit = audit
        self._history = history
        self._hosts = hosts
        self._clock = clock
        self._thread, self._history_thread = OwnThread(), OwnThread()
        self._before = self._look()
        self._seen: Look | None = self._before
        self._opener = Opener()
        keys = load_keys(folder, passphrase(), self._opener)
        fit_keyring(keys)
        self._opener.wait_s = LOOK_S  # a token that does not answer does not hold up the next look
        self._held = _Held.of(keys)
        self._changes, self._told = 1, 0
        self._signs: str | None = None
        self._doubt: tuple[str, str] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._unfit = self._recorded = False
        self.is_announced: Callable[[KeyLife], bool] = lambda _: True
        self.keyring, self.waiting = KeyringSigner(()), dict[str, int | None]()
        self._tell_at_start()
        self._force(self._held)
        _log.info("keys loaded", keys=self.keyring.states)

    # -- signing ------------------------------------------------------------------------------------------------------

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) where there is none now."""
        return self.keyring.active_kid

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign: those that every relying party can know."""
        return self._usable

    @property
    def lives(self) -> Lives:
        """What the history says of each key."""
        return self._history.lives

    @property
    def stale(self) -> bool:
        """Whether the folders are not fit, or the history cannot be kept: the last good ones go on."""
        return self._unfit or self._doubt is not None

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self.keyring.max_message_bytes(kid)

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign with a key that may. Raises Undecided(`dependency.signer`)."""
        if kid not in self._usable:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return await self.keyring.sign(kid, signing_inputs)

    # -- following ----------------------------------------------------------------------------------------------------

    async def announce(self) -> None:
        """Audit which keys are in force; where that fails, the next `turn` tries again."""
        with suppress(Undecided):
            await self._audit.record(self._loaded(self.keyring.states, self.waiting))
            self._recorded = True

    async def turn(self, asked: bool) -> None:
        """Look at the folders, and then at the history, which holds up no further look."""
        if not self._recorded:
            await self.announce()
        self._changes += asked
        await self._follow_folders(asked)
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_history())
        ended, _ = await asyncio.wait({self._keeping}, timeout=HISTORY_S)
        for task in ended:
            task.result()

    async def aclose(self) -> None:
        """End what is under way."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        await self._hosts.aclose()

    # -- the folders --------------------------------------------------------------------------------------------------

    async def _follow_folders(self, asked: bool) -> None:
        """Drop what is gone at once; take what is new when two looks in a row have seen it, where a signal `asked`, or
        where it may succeed what is gone."""
        seen = await self._thread.run(self._look)
        before, self._before = self._before, seen
        if seen == self._seen and not asked:
            return
        self._seen = None  # until the folders are taken as they are
        found, held = await self._thread.run(self._find)
        dropped = self._drop(found)
        if dropped:
            await self.announce()
        if asked or dropped or seen == before:
            with suppress(Undecided):
                await self._take(found, held)
                self._seen = None if found.unjudged else seen

    def _look(self) -> Look:
        return look(self._folder, _LEVELS)

    def _find(self) -> tuple[Found, _Held]:
        """Find the keys; again where one is missing: it may have been moved from folder to folder meanwhile."""
        found = find_keys(self._folder, self._passphrase, self._opener)
        if self._gone(found):
            found = find_keys(self._folder, self._passphrase, self._opener)
        return found, _Held.of(found.keys)

    def _gone(self, found: Found) -> set[str]:
        there = {key.kid for key in found.keys}
        return {key.kid for key in self._held.keys if key.kid not in there and key.path not in found.unjudged}

    def _drop(self, found: Found) -> bool:
        """Drop the keys that are gone; return whether there were any."""
        gone = self._gone(found)
        if gone:
            self._held = self._held.without(gone)
            self._force(self._held)
            self._recorded = False
            self._changes += 1
            _log.error("keys dropped", kids=sorted(gone), left=self.keyring.states)
        return bool(gone)

    async def _take(self, found: Found, held: _Held) -> None:
        """Take the folders as they are, or say why not. Raises Undecided where neither can be audited."""
        try:
            if found.error is not None:
                raise found.error
            fit_keyring(found.keys)
        except (SetupError, OSError) as error:
            self._unfit = True
            await self._refuse(error)
            return
        moved = [(key.kid, key.state) for key in held.seen] != [(key.kid, key.state) for key in self._held.seen]
        self._unfit = True  # until it has been audited
        await self._settle(held)
        self._unfit = False
        self._changes += moved

    async def _refuse(self, error: SetupError | OSError) -> None:
        code = error.code if isinstance(error, IssuerError) else Code.FILE_UNREADABLE
        detail = error.detail if isinstance(error, IssuerError) else str(error.strerror)
        _log.error("keys refused", code=str(code), detail=detail, next=code.meaning.remedy)
        await self._audit.record(KeysRefused(self._clock(), self.keyring.states, str(code)))

    # -- the history --------------------------------------------------------------------------------------------------

    async def _keep_history(self) -> None:
        """Read the history, tell it what it lacks, and put into force what follows; then ask the other hosts."""
        changes = self._changes
        if await self._tell(self._untold()):
            self._told = changes
        with suppress(Undecided):
            await self._settle(self._held)
        self._hosts.publish(self.keyring.states)
        seen = self._held.seen
        if await self._is_everywhere(bool(unpublished(seen, self.lives))):
            await self._tell(
                lambda lives: [key for key in unpublished(seen, lives) if self.is_announced(lives[key.kid])]
            )
            with suppress(Undecided):
                await self._settle(self._held)

    def _untold(self) -> Callable[[Lives], Sequence[Untold]]:
        """Return what is to be asked of the history: as this process sees its folders now."""
        seen, before, now, changed = self._held.seen, self._signs, self._clock(), self._changes != self._told
        return lambda lives: untold(seen, lives, before, now, changed=changed)

    async def _tell(self, untold: Callable[[Lives], Sequence[Untold]]) -> bool:
        """Read the history and tell it this; return whether the folders are still as they were taken, and so it was."""
        taken = self._seen
        try:
            told = await self._history_thread.run(lambda: self._follow_and_tell(untold, taken))
        except (SetupError, OSError) as error:
            self._say_doubt(error)
            return False
        self._doubt = None
        return told

    def _follow_and_tell(self, untold: Callable[[Lives], Sequence[Untold]], taken: Look | None) -> bool:
        self._history.follow()
        # After the history: another process may have seen the folders change before this one has, and told it.
        if self._look() != taken:
            return False
        # Once more when nobody else can tell anything: to wait for that may take long, and a key may be gone by then.
        self._history.tell(lambda lives: untold(lives) if self._look() == taken else (), self._clock())
        return True

    def _tell_at_start(self) -> None:
        """Tell what this process finds. A full disk keeps it from nothing but a key that has never signed."""
        try:
            self._history.tell(self._untold(), self._clock())
            self._told = self._changes
        except OSError as error:
            self._say_doubt(error)

    def _say_doubt(self, error: SetupError | OSError) -> None:
        code = error.code if isinstance(error, IssuerError) else Code.KEY_HISTORY
        detail = error.detail if isinstance(error, IssuerError) else f"{error.filename}: {error.strerror}"
        if self._doubt != (code, detail):
            _log.error("key history refused", code=str(code), detail=detail, next=code.meaning.remedy)
        self._doubt = code, detail

    async def _is_everywhere(self, ask: bool) -> bool:
        """Say whether every host publishes the keys of this one; not known is no."""
        try:
            return await self._hosts.agree(ask=ask)
        except Undecided:
            return False

    # -- what is in force ---------------------------------------------------------------------------------------------

    async def _settle(self, held: _Held) -> None:
        """Put into force what folders and history say. What narrows is in force before it is audited.

        Raises Undecided where that fails: then nothing that widens is.
        """
        before = self._held
        self._drop_revoked()
        states, waits = states_of(held.seen, self.lives, self._signs), self._waiting(held)
        if (states, waits) != (self.keyring.states, self.waiting):
            await self._audit.record(self._loaded(states, waits))
            self._recorded = True
            if states != self.keyring.states:
                _log.info("keys loaded", keys=states)
            if waits and waits != self.waiting:
                _log.warning("keys waiting", keys=waits, signs=self._signs)
        if self._held is before:  # else one was dropped while that was written
            self._force(held)

    def _waiting(self, held: _Held) -> dict[str, int | None]:
        """Return what waits; of what has just been found only when the history has been asked."""
        waits = waiting(held.seen, self.lives, self._signs)
        return {kid: at for kid, at in waits.items() if held is self._held or kid in self.waiting}

    def _drop_revoked(self) -> None:
        if gone := set(revoked(self._held.seen, self.lives)) & self.keyring.states.keys():
            self._force(self._held)
            self._recorded = False
            _log.error("keys dropped", kids=sorted(gone), left=self.keyring.states, why="revoked")

    def _force(self, held: _Held) -> None:
        """Sign with these keys, in the states that folders and history give them."""
        states, self.waiting = states_of(held.seen, self.lives, self._signs), self._waiting(held)
        if held is not self._held or states != self.keyring.states:
            keys = (replace(key, state=states[key.kid]) for key in held.keys if key.kid in states)
            self.keyring = KeyringSigner(tuple(keys))
            self._hosts.publish(states)
        self._held = held
        self._usable = may_sign(held.seen, self.lives, self._clock())
        self._signs = next((kid for kid, state in states.items() if state == "active"), None)

    def _loaded(self, keys: dict[str, KeyState], waits: dict[str, int | None]) -> KeysLoaded:
        return KeysLoaded(self._clock(), keys, waits or UNSET)


def _x(key: SigningKey) -> str:
    return str(jose.public_jwk(key.private.public_key())["x"])


def _made(path: Path) -> int:
    """Return the time of a key's file; that of one that is gone says nothing."""
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return 0
