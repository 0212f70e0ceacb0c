"""The keys that sign now, followed on the disk and in their history, apart from everything else that changes there.

A key that is taken away may be stolen. It is dropped at the first look that misses it: no policy that does not load,
no other key that is not fit, no full disk and no history that is locked keeps it. A key that comes, or a new state,
waits until the folders are fit as a whole and the change has been audited; and it signs only when the history says, on
the disk, that every host has published it for long enough (contract section 5).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Hashable, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from issuer.audit.events import Audit, KeysLoaded, KeysRefused
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.io.bounds import CALL_S, LOOK_S
from issuer.io.followed import Complaint, Failure, Followed, Look, Reading, describe, look
from issuer.io.redis_client import PREFIX, connect
from issuer.io.redis_client import Failure as StoreFailure
from issuer.io.shared_memory import SharedPage
from issuer.service.settings.background import OwnThread
from issuer.service.signing.bounds import HISTORY_S, HOST_AGAIN_S, HOST_S
from issuer.service.signing.history import LiveHistory
from issuer.service.signing.keyring import FolderState, KeyringSigner, Opener, find_keys
from issuer.service.signing.lifecycle import (
    KeyLife,
    KeyState,
    Lives,
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
        self._opener = Opener()
        say = partial(_say, "keys", Code.FILE_UNREADABLE)
        self._folders = Followed(self._look, self._find, say, confirm=True, narrow=FolderState.without_lost)
        self._opener.wait_s = LOOK_S  # a token that does not answer does not hold up the next look
        self._held, self._seen = self._folders.value, self._folders.seen
        self._changes, self._told = 1, 0
        self._signs: str | None = None
        self._doubt = Complaint(partial(_say, "key history", Code.KEY_HISTORY))
        self._keeping: asyncio.Task[None] | None = None
        self._refused: Failure | None = None
        self._recorded = False
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
        is_taken = self._held is self._folders.value and self._folders.error is None
        return not is_taken or self._doubt.error is not None

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
        """Drop what is gone at once; take what is new once it has been audited."""
        await self._thread.run(partial(self._folders.turn, asked))
        found = self._folders.value
        left = self._held.without_lost(found)
        if left is not self._held:
            gone = self._held.states.keys() - left.states.keys()
            self._changes += 1
            self._drop(left, gone)
            await self.announce()
        with suppress(Undecided):
            if self._folders.error is not self._refused:
                await self._audit_refusal(self._folders.error)
            if found is not self._held:
                moved = found.states != self._held.states
                await self._settle(found)
                self._changes += moved
        self._seen = self._folders.seen if found is self._held else None

    def _look(self) -> Look:
        return look(self._folder, _LEVELS)

    def _find(self, last: FolderState | None) -> Reading[FolderState]:
        """Find the keys; again where one is missing: it may have been moved from folder to folder meanwhile."""
        found = find_keys(self._folder, self._passphrase, self._opener)
        if last is not None and last.without_lost(found) is not last:
            found = find_keys(self._folder, self._passphrase, self._opener)
        return Reading(found, found.error, again=bool(found.unjudged))

    async def _audit_refusal(self, error: Failure | None) -> None:
        """Audit that the folders are refused. Raises Undecided where that fails."""
        if error is not None:
            code, _ = describe(error)
            await self._audit.record(KeysRefused(self._clock(), self.keyring.states, str(code)))
        self._refused = error

    # -- the history --------------------------------------------------------------------------------------------------

    async def _keep_history(self) -> None:
        """Read the history, tell it what it lacks, and put into force what follows; then ask the other hosts."""
        changes = self._changes
        if await self._tell(self._untold()):
            self._told = changes
        with suppress(Undecided):
            await self._settle(self._held)
        self._hosts.publish(self.keyring.states)
        seen = self._held.keys
        if await self._hosts.agree(ask=bool(unpublished(seen, self.lives))):
            await self._tell(
                lambda lives: [key for key in unpublished(seen, lives) if self.is_announced(lives[key.kid])]
            )
            with suppress(Undecided):
                await self._settle(self._held)

    def _untold(self) -> Callable[[Lives], Sequence[Untold]]:
        """Return what is to be asked of the history: as this process sees its folders now."""
        seen, before, now, changed = self._held.keys, self._signs, self._clock(), self._changes != self._told
        return lambda lives: untold(seen, lives, before, now, changed=changed)

    async def _tell(self, untold: Callable[[Lives], Sequence[Untold]]) -> bool:
        """Read the history and tell it this; return whether the folders are still as they were taken, and so it was."""
        taken = self._seen
        try:
            told = await self._history_thread.run(lambda: self._follow_and_tell(untold, taken))
        except (SetupError, OSError) as error:
            self._doubt.note(error)
            return False
        self._doubt.note(None)
        return told

    def _follow_and_tell(self, untold: Callable[[Lives], Sequence[Untold]], taken: Hashable) -> bool:
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
            self._doubt.note(error)

    # -- what is in force ---------------------------------------------------------------------------------------------

    async def _settle(self, held: FolderState) -> None:
        """Put into force what folders and history say. What narrows is in force before it is audited. Raises Undecided
        where that fails: then nothing that widens is."""
        before = self._held
        if gone := revoked(self.lives) & self.keyring.states.keys():
            self._drop(self._held, gone, why="revoked")
        states, waits = states_of(held.keys, self.lives, self._signs), self._waiting(held)
        if (states, waits) != (self.keyring.states, self.waiting):
            await self._audit.record(self._loaded(states, waits))
            self._recorded = True
            if states != self.keyring.states:
                _log.info("keys loaded", keys=states)
            if waits and waits != self.waiting:
                _log.warning("keys waiting", keys=waits, signs=self._signs)
        if self._held is before:  # else one was dropped while that was written
            self._force(held)

    def _waiting(self, held: FolderState) -> dict[str, int | None]:
        """Return what waits; of what has just been found only when the history has been asked."""
        waits = waiting(held.keys, self.lives, self._signs)
        return {kid: at for kid, at in waits.items() if held is self._held or kid in self.waiting}

    def _drop(self, left: FolderState, gone: Set[str], **why: str) -> None:
        """Sign with what is left from now on, before anything is audited."""
        self._force(left)
        self._recorded = False
        _log.error("keys dropped", kids=sorted(gone), left=self.keyring.states, **why)

    def _force(self, held: FolderState) -> None:
        """Sign with these keys, in the states that folders and history give them."""
        states, self.waiting = states_of(held.keys, self.lives, self._signs), self._waiting(held)
        if held is not self._held or states != self.keyring.states:
            keys = (replace(key, state=states[key.kid]) for key in held.keys if key.kid in states)
            self.keyring = KeyringSigner(tuple(keys))
            self._hosts.publish(states)
        self._held = held
        self._usable = may_sign(held.keys, self.lives, self._clock())
        self._signs = next((kid for kid, state in states.items() if state == "active"), None)

    def _loaded(self, keys: dict[str, KeyState], waits: dict[str, int | None]) -> KeysLoaded:
        return KeysLoaded(self._clock(), keys, waits or UNSET)


def _say(what: str, otherwise: Code, error: Failure | None) -> None:
    """Log that something is refused, or accepted again."""
    if error is None:
        _log.info(f"{what} accepted again")
        return
    code, detail = describe(error, otherwise)
    _log.error(f"{what} refused", code=str(code), detail=detail, next=code.meaning.remedy)


# -- the hosts that share a store -------------------------------------------------------------------------------------

SCRIPT = Path(__file__).with_name("hosts.lua").read_bytes()
HOSTS_KEY = PREFIX + b"hosts"
# What a host says whose own workers do not agree: nobody agrees with it.
_NOTHING = ""


class Hosts:
    """The hosts that share a store, and whether all of them publish the same keys: one row a host, 60 s of life.

    `hosts.lua` keeps the rows. That all agree is believed only of a table that has been written to, without a gap, for
    as long as a row lives: by then every host that lives and reaches the store is in it, also after the store has
    forgotten. So a change is known to be everywhere as soon as the last host says so, and only the first minute of a
    store waits.

    `page` is shared by the workers of this host. `durable_store` states that the store forgets nothing. `now` replaces
    the store's clock in tests, `seconds` the process's own.
    """

    def __init__(
        self,
        url: str,
        page: SharedPage,
        *,
        durable_store: bool = False,
        now: Callable[[], int] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = connect(url, 1)
        self._page = page
        self._durable_store = durable_store
        self._now = now
        self._seconds = seconds
        self._said, self._due = _NOTHING, 0.0

    def publish(self, kids: Collection[str]) -> None:
        """Say to the other workers which keys this process publishes."""
        self._page.tell("keys", hashlib.sha256(" ".join(sorted(kids)).encode()).digest())

    async def agree(self, *, ask: bool) -> bool:
        """Say to the other hosts what this one publishes, and return whether each of them publishes the same.

        Without `ask` it is said only when it has changed, or is due again. False means nothing then, nor where the
        store does not answer.
        """
        said = self._own()
        if not ask and said == self._said and self._seconds() < self._due:
            return False
        now = str(self._now()) if self._now else ""
        row = (self._page.host, said, HOST_S, int(self._durable_store), now)
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.eval(SCRIPT, 1, HOSTS_KEY, *row)  # type: ignore[arg-type]
        except StoreFailure:
            return False
        self._said, self._due = said, self._seconds() + HOST_AGAIN_S
        match answer:
            case [int(hosts), int(agreeing), int(age_s)] if said != _NOTHING and said == self._own():
                return agreeing == hosts and age_s >= HOST_S
        return False

    async def aclose(self) -> None:
        """Disconnect from the store."""
        await self._client.aclose()

    def _own(self) -> str:
        """Return the digest that all workers of this host have told, if it is one."""
        told = set(self._page.told("keys"))
        return told.pop().hex() if len(told) == 1 else _NOTHING
