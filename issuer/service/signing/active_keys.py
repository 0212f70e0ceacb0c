"""The signing keys in force, which follow the key folders and the key history while the service runs.

A key whose file is gone may be stolen, so the process drops the key at the first look that does not find the file. A
broken policy, another bad key, a full disk or a locked history does not delay that. A new key or state waits until all
folders are good and the change is audited. A new key signs only when the stored history says that every host has
published it for long enough (contract section 5).
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
    MissingEvent,
    may_sign,
    missing_events,
    missing_publications,
    revoked,
    states_of,
    waiting,
)

_LEVELS = 2  # of folders: keys/<state>/<name>.pem

_log = structlog.get_logger("issuer")


class LiveSigner:
    """The signing keys of one process. Implements `issuance.ports.Signer`. Its owner calls `turn` once a second.

    The constructor loads the keys and raises SetupError. `passphrase` is called for every reading of changed folders,
    and may raise SetupError. `clock` returns Unix seconds. `is_announced` returns whether a monitor of the log can know
    a `next` key; without a log it returns True. `waiting` has the key in active/ that does not sign yet, with the time
    from which it may, None until every host has published it.
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
        say = partial(_log_failure, "keys", Code.FILE_UNREADABLE)
        self._folders = Followed(self._look, self._find, say, confirm=True, narrow=FolderState.without_lost)
        self._opener.wait_s = LOOK_S  # a hanging token must not delay the next look
        self._state, self._fingerprint = self._folders.value, self._folders.seen
        self._changes, self._reported = 1, 0
        self._signer: str | None = None
        self._complaint = Complaint(partial(_log_failure, "key history", Code.KEY_HISTORY))
        self._history_task: asyncio.Task[None] | None = None
        self._audited_error: Failure | None = None
        self._is_audited = False
        self.is_announced: Callable[[KeyLife], bool] = lambda _: True
        self.keyring, self.waiting = KeyringSigner(()), dict[str, int | None]()
        try:
            self._history.add(self._missing_events(), self._clock())
            self._reported = self._changes
        except OSError as error:  # on a full disk, only a key that has never signed stays out of use
            self._complaint.note(error)
        self._enforce(self._state)
        _log.info("keys loaded", keys=self.keyring.states)

    @property
    def active_kid(self) -> str:
        """The key that signs new templates. Raises Undecided(`dependency.signer`) without an active key."""
        return self.keyring.active_kid

    @property
    def usable_kids(self) -> tuple[str, ...]:
        """The keys that may sign, because every cached key set has them."""
        return self._usable

    @property
    def lives(self) -> Lives:
        """The life of each key, from the history."""
        return self._history.lives

    @property
    def stale(self) -> bool:
        """Whether the last good keys stay in force, because the folders are bad or the history cannot be written."""
        return self._state is not self._folders.value or bool(self._folders.error or self._complaint.error)

    def max_message_bytes(self, kid: str) -> int:
        """Return the largest signing input that a key signs. Raises Undecided(`dependency.signer`)."""
        return self.keyring.max_message_bytes(kid)

    async def demand_live(self, kid: str) -> None:
        """Raise Undecided(`dependency.signer`) unless the key may sign and, if it is remote, has just signed."""
        if kid not in self._usable:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        await self.keyring.demand_live(kid)

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Sign, if the key may. Raises Undecided(`dependency.signer`)."""
        if kid not in self._usable:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        return await self.keyring.sign(kid, signing_inputs)

    async def announce(self) -> None:
        """Audit which keys are in force. If that fails, the next `turn` tries again."""
        with suppress(Undecided):
            await self._audit.record(self._loaded(self.keyring.states, self.waiting))
            self._is_audited = True

    async def turn(self, asked: bool) -> None:
        """Follow the folders, then the history. A slow history does not delay the next look at the folders."""
        if not self._is_audited:
            await self.announce()
        self._changes += asked
        await self._follow_folders(asked)
        if self._history_task is None or self._history_task.done():
            self._history_task = asyncio.create_task(self._keep_history())
        ended, _ = await asyncio.wait({self._history_task}, timeout=HISTORY_S)
        for task in ended:
            task.result()

    async def aclose(self) -> None:
        """Cancel the work on the history, and disconnect from the store."""
        if self._history_task is not None:
            self._history_task.cancel()
            await asyncio.wait({self._history_task})
        await self._hosts.aclose()

    # -- the folders --------------------------------------------------------------------------------------------------

    async def _follow_folders(self, asked: bool) -> None:
        """Drop lost keys at once. Apply the rest after it is audited."""
        await self._thread.run(partial(self._folders.turn, asked))
        found = self._folders.value
        left = self._state.without_lost(found)
        if left is not self._state:
            gone = self._state.states.keys() - left.states.keys()
            self._changes += 1
            self._drop(left, gone)
            await self.announce()
        with suppress(Undecided):
            if (error := self._folders.error) is not self._audited_error:
                if error is not None:
                    await self._audit.record(KeysRefused(self._clock(), self.keyring.states, str(describe(error)[0])))
                self._audited_error = error
            if found is not self._state:
                moved = found.states != self._state.states
                await self._apply(found)
                self._changes += moved
        self._fingerprint = self._folders.seen if found is self._state else None

    def _look(self) -> Look:
        return look(self._folder, _LEVELS)

    def _find(self, last: FolderState | None) -> Reading[FolderState]:
        """Find the keys. If one is missing, look once more: it may just be moving from folder to folder."""
        found = find_keys(self._folder, self._passphrase, self._opener)
        if last is not None and last.without_lost(found) is not last:
            found = find_keys(self._folder, self._passphrase, self._opener)
        return Reading(found, found.error, again=bool(found.unjudged))

    # -- the history --------------------------------------------------------------------------------------------------

    async def _keep_history(self) -> None:
        """Read the history, add missing events and apply the result. Then compare with the other hosts."""
        changes = self._changes
        if await self._add_to_history(self._missing_events()):
            self._reported = changes
        with suppress(Undecided):
            await self._apply(self._state)
        self._hosts.publish(self.keyring.states)
        keys = self._state.keys
        if await self._hosts.agree(ask=bool(missing_publications(keys, self.lives))):
            await self._add_to_history(
                lambda lives: [key for key in missing_publications(keys, lives) if self.is_announced(lives[key.kid])]
            )
            with suppress(Undecided):
                await self._apply(self._state)

    def _missing_events(self) -> Callable[[Lives], Sequence[MissingEvent]]:
        """Return the function that lists the events that a history lacks, for the keys in force now."""
        keys, before, now, changed = self._state.keys, self._signer, self._clock(), self._changes != self._reported
        return lambda lives: missing_events(keys, lives, before, now, changed=changed)

    async def _add_to_history(self, missing: Callable[[Lives], Sequence[MissingEvent]]) -> bool:
        """Read the history and add events. Add none and return False if the folders differ from those in force."""
        fingerprint = self._fingerprint
        try:
            is_added = await self._history_thread.run(lambda: self._follow_and_add(missing, fingerprint))
        except (SetupError, OSError) as error:
            self._complaint.note(error)
            return False
        self._complaint.note(None)
        return is_added

    def _follow_and_add(self, missing: Callable[[Lives], Sequence[MissingEvent]], fingerprint: Hashable) -> bool:
        self._history.follow()
        # Look after reading: another process may have noticed a change of the folders first, and recorded it.
        if self._look() != fingerprint:
            return False
        # Look again with the lock of the history: the wait for it may be long, and a key may be gone by then.
        self._history.add(lambda lives: missing(lives) if self._look() == fingerprint else (), self._clock())
        return True

    # -- the keys in force --------------------------------------------------------------------------------------------

    async def _apply(self, state: FolderState) -> None:
        """Put folders and history into force: revocations before the audit, the rest after it. Raises Undecided."""
        before = self._state
        if gone := revoked(self.lives) & self.keyring.states.keys():
            self._drop(self._state, gone, why="revoked")
        states, waits = states_of(state.keys, self.lives, self._signer), self._waiting(state)
        if (states, waits) != (self.keyring.states, self.waiting):
            await self._audit.record(self._loaded(states, waits))
            self._is_audited = True
            if states != self.keyring.states:
                _log.info("keys loaded", keys=states)
            if waits and waits != self.waiting:
                _log.warning("keys waiting", keys=waits, signs=self._signer)
        if self._state is before:  # otherwise a key was dropped while the audit was written
            self._enforce(state)

    def _waiting(self, state: FolderState) -> dict[str, int | None]:
        """Return the waiting key. Leave out a new one until the history is read again: it may sign by then."""
        waits = waiting(state.keys, self.lives, self._signer)
        return {kid: at for kid, at in waits.items() if state is self._state or kid in self.waiting}

    def _drop(self, left: FolderState, gone: Set[str], **why: str) -> None:
        """Sign only with the keys that are left, before the change is audited."""
        self._enforce(left)
        self._is_audited = False
        _log.error("keys dropped", kids=sorted(gone), left=self.keyring.states, **why)

    def _enforce(self, state: FolderState) -> None:
        """Sign with these keys, in the states that follow from folders and history."""
        states, self.waiting = states_of(state.keys, self.lives, self._signer), self._waiting(state)
        if state is not self._state or states != self.keyring.states:
            keys = (replace(key, state=states[key.kid]) for key in state.keys if key.kid in states)
            self.keyring = KeyringSigner(tuple(keys))
            self._hosts.publish(states)
        self._state = state
        self._usable = may_sign(state.keys, self.lives, self._clock())
        self._signer = next((kid for kid, key_state in states.items() if key_state == "active"), None)

    def _loaded(self, keys: dict[str, KeyState], waits: dict[str, int | None]) -> KeysLoaded:
        return KeysLoaded(self._clock(), keys, waits or UNSET)


def _log_failure(what: str, otherwise: Code, error: Failure | None) -> None:
    if error is None:
        _log.info(f"{what} accepted again")
        return
    code, detail = describe(error, otherwise)
    _log.error(f"{what} refused", code=str(code), detail=detail, next=code.meaning.remedy)


# -- the hosts that share a store -------------------------------------------------------------------------------------

SCRIPT = Path(__file__).with_name("hosts.lua").read_bytes()
HOSTS_KEY = PREFIX + b"hosts"
# The digest of a host whose workers publish different keys. Such a host agrees with no other.
_NOTHING = ""


class Hosts:
    """The table of the hosts that share a store: each has a row, which lives 60 s, with the keys that it publishes.

    `hosts.lua` stores the rows. Agreement counts only after the table has existed for the life of a row without a gap:
    by then it has every living host that reaches the store, even if the store has lost data. So a change counts as
    published everywhere as soon as the last host reports it. It takes longer only in the first minute of a table.

    The workers of this host share `page`. `durable_store` states that the store never loses data. Tests replace the
    store's clock by `now`, and the process's clock by `seconds`.
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
        self._sent, self._due = _NOTHING, 0.0

    def publish(self, kids: Collection[str]) -> None:
        """Write to the shared page which keys this process publishes."""
        self._page.publish("keys", hashlib.sha256(" ".join(sorted(kids)).encode()).digest())

    async def agree(self, *, ask: bool) -> bool:
        """Write this host's row, and return whether every host publishes the same keys.

        Without `ask`, do this only if the row has changed or is due again. Otherwise return False, which then says
        nothing about the other hosts. Return False, too, if the store does not answer.
        """
        own = self._own()
        if not ask and own == self._sent and self._seconds() < self._due:
            return False
        now = str(self._now()) if self._now else ""
        row = (self._page.host, own, HOST_S, int(self._durable_store), now)
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.eval(SCRIPT, 1, HOSTS_KEY, *row)  # type: ignore[arg-type]
        except StoreFailure:
            return False
        self._sent, self._due = own, self._seconds() + HOST_AGAIN_S
        match answer:
            case [int(hosts), int(agreeing), int(age_s)] if own != _NOTHING and own == self._own():
                return agreeing == hosts and age_s >= HOST_S
        return False

    async def aclose(self) -> None:
        """Disconnect from the store."""
        await self._client.aclose()

    def _own(self) -> str:
        """Return the digest that all workers of this host share, or nothing if they differ."""
        digests = set(self._page.published("keys"))
        return digests.pop().hex() if len(digests) == 1 else _NOTHING
