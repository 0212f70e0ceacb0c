"""The witnesses of a log: read from its policy, asked at its start, and shown every newest head.

At a start, what they show (`shown_at_start`) is a record by which the sequencer starts; then they have its head to
cosign (`vouched_at_start`): where a whole machine was restored they may be all that remembers.

Later heads go out in rounds, one checkpoint for all witnesses: a quorum is signatures of one checkpoint, and witnesses
that were each asked about what is newest at that moment would sign different ones. A round ends with its quorum, or
when nobody owes an answer. A witness that is still busy misses it and holds nobody up. Issuance waits only in
`wait_for`, where the operator wants that (`sync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.io import files
from issuer.io.fetch import Fetcher, FetchRefused, split_fetched
from issuer.service.log.bounds import (
    MAX_WITNESS_PAUSE_S,
    WITNESS_MISSES,
    WITNESS_S,
    WITNESS_START_S,
    WITNESS_SYNC_S,
    WITNESS_TOLD_S,
)
from issuer.service.log.sequencer.setup import WitnessSettings
from issuer.service.log.witnesses.witness import (
    Contradiction,
    Fault,
    LogWitness,
    MovedOn,
    SignedHead,
    Vouched,
    WitnessedLog,
)
from issuer.tlog.note import SignatureLine, Verifier
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, NO_QUORUM, LogKey, WitnessPolicy, parse_policy

_log = structlog.get_logger("issuer")


# -- the witnesses of a policy -----------------------------------------------------------------------------------------


def own_keys(policy: WitnessPolicy, own: Verifier) -> tuple[Verifier, ...]:
    """Return the keys of the log that has `own`: several while one replaces the other. Raises
    SetupError(`settings.invalid`) for a policy that does not name this log: nobody could check a proof by it."""
    keys = tuple(log.verifier for log in policy.logs if log.verifier.name == own.name)
    if own not in keys:
        detail = f"log.witness_policy: no line names this log and its key; add `log {own.to_text()}`"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return keys


class Witnessing(Struct, frozen=True):
    """Who cosigns a log: the policy, and its witnesses."""

    policy: WitnessPolicy
    witnesses: tuple[LogWitness, ...] = ()


def witnessing_of(settings: WitnessSettings | None, own: Verifier) -> Witnessing:
    """Read who cosigns the log that has the key `own`. Without settings nobody does, and nobody needs to. Raises
    SetupError: `settings.invalid`, and the codes of a file that cannot be read or is no policy."""
    if settings is None:
        return Witnessing(WitnessPolicy((LogKey(own),), (), (), NO_QUORUM))
    path = Path(settings.policy)
    try:
        policy = parse_policy(files.read(path, MAX_POLICY_BYTES), str(path))
    except InputError as error:  # its place would be lost on the way to the parent
        raise SetupError(error.code, f"log.witness_policy, {error.place}: {error.detail}") from None
    if settings.must_cosign and policy.quorum == NO_QUORUM:
        detail = f"log.witnesses: sync waits for a quorum, and {path} asks for none"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return Witnessing(policy, witnesses_of(policy, settings, own_keys(policy, own)))


def witnesses_of(policy: WitnessPolicy, settings: WitnessSettings, own: Sequence[Verifier]) -> tuple[LogWitness, ...]:
    """Return the witnesses of a policy that have a URL and are not excluded, for the log that has the keys `own`.

    Raises SetupError(`settings.invalid`) for names that the policy does not have, for a URL that may not be asked, and
    where those that have one can never be a quorum. Where that comes of the exclusion, it is only told.
    """
    if strangers := {*settings.excluded, *settings.monitors} - {witness.name for witness in policy.witnesses}:
        detail = f"log.witness_policy names no witness {min(strangers)!r}: a wrong name would exclude nobody"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    reachable = [key for key in policy.witnesses if key.url]
    if not policy.met_by(key.verifier for key in reachable):
        raise SetupError(Code.SETTINGS_INVALID, "log.witness_policy: the witnesses that have a URL are no quorum")
    keys = [key for key in reachable if key.name not in settings.excluded]
    if not policy.met_by(key.verifier for key in keys):
        _log.warning("no quorum of witnesses", excluded=sorted(settings.excluded))
    try:
        for url in [*(key.url for key in keys), *settings.monitors.values()]:
            split_fetched(url, development=settings.development)
    except FetchRefused as error:
        raise SetupError(Code.SETTINGS_INVALID, f"the URL of a witness: {error}") from None
    fetcher = Fetcher(development=settings.development)
    return tuple(LogWitness(key, fetcher, settings.monitors.get(key.name, ""), own) for key in keys)


# -- at the start of a log ---------------------------------------------------------------------------------------------


class WitnessRecord(Struct):
    """Implements `records.Record` by what a witness showed at the start, None for nothing. It never waits: rounds raise
    a witness."""

    name: str
    note: bytes | None

    def read(self) -> bytes | None:
        """Return the note."""
        return self.note

    def write(self, note: bytes) -> None:
        """Leave it: a witness that does not answer must stop nobody."""

    def close(self) -> None:
        """Nothing is open."""


async def shown_at_start(witnesses: Sequence[LogWitness]) -> tuple[WitnessRecord, ...]:
    """Ask every witness what it shows of the log: a record of each, also of who shows nothing that the log signed."""
    notes = await asyncio.gather(*(witness.shown() for witness in witnesses))
    shown = [None if note is None else note.to_bytes() for note in notes]
    return tuple(WitnessRecord(f"witness {each.name}", note) for each, note in zip(witnesses, shown, strict=True))


async def vouched_at_start(witnesses: Sequence[LogWitness], log: WitnessedLog) -> int:
    """Have the head cosigned with which the log starts, and return how many vouch for it: that knew the log before, and
    cosigned what extends that. To one that knew nothing any head is good.

    Raises SetupError(`log.rollback`) where one contradicts. A larger size, of which it shows nothing, is believed only
    while no other witness vouches: then nobody is there who knows better.
    """
    answers = await asyncio.gather(*(_first_word(witness, log) for witness in witnesses))
    vouching = sum(isinstance(answer, Vouched) and answer.since > 0 for answer in answers)
    for witness, answer in zip(witnesses, answers, strict=True):
        if isinstance(answer, Contradiction) and (answer.shown or answer.is_fork or not vouching):
            way_on = "Bring what is missing back; or, if the witness lies, exclude it by its name in the settings"
            raise SetupError(Code.LOG_ROLLBACK, f"witness {witness.name}: {answer}. {way_on}")
        if isinstance(answer, Fault):
            _log.warning("witness fails", witness=witness.name, reason=str(answer))
    return vouching


async def _first_word(witness: LogWitness, log: WitnessedLog) -> Vouched | Fault:
    # One that takes its time with each of several answers would keep the service from starting.
    try:
        async with asyncio.timeout(WITNESS_START_S):
            return await _word_of_two(witness, log)
    except TimeoutError:
        return Fault(f"it had no last word within {WITNESS_START_S:.3g} s")


async def _word_of_two(witness: LogWitness, log: WitnessedLog) -> Vouched | Fault:
    """Ask again once if the log has moved on meanwhile."""
    for _ in range(2):
        with suppress(MovedOn):
            try:
                return await witness.cosign(await log.head(), log)
            except Fault as fault:
                return fault
    return Fault("the log grows while it is asked")


# -- while the log runs ------------------------------------------------------------------------------------------------


class Faults:
    """Names a witness that does not do its part: at once, every WITNESS_TOLD_S while it lasts, and when it ends."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}
        self._alarmed: dict[str, float] = {}

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

    def alarm(self, name: str, contradiction: Contradiction) -> None:
        """Log what a witness shows that this log has signed, and does not extend: at once, and every WITNESS_TOLD_S.
        The witness's word alone is its fault."""
        now = asyncio.get_running_loop().time()
        if contradiction.shown is None or now - self._alarmed.get(name, float("-inf")) < WITNESS_TOLD_S:
            return
        self._alarmed[name] = now
        shown = contradiction.shown.to_bytes().decode(errors="replace")
        _log.critical("log contradicted", witness=name, reason=str(contradiction), checkpoint=shown)


class Round:
    """One checkpoint on its way to all witnesses, by name: those not asked yet, and those that owe an answer."""

    def __init__(self, head: SignedHead, names: set[str]) -> None:
        self.head = head
        self.unasked = set(names)
        self.owing = set(names)
        self.lines: dict[Verifier, SignatureLine] = {}
        self.is_kept = False
        self.over = asyncio.Event()


class Witnesses:
    """Shows heads to witnesses. Belongs to one event loop. `pace_s` is the least time between two rounds."""

    def __init__(
        self, policy: WitnessPolicy, log: WitnessedLog, witnesses: Sequence[LogWitness], pace_s: float
    ) -> None:
        self._policy = policy
        self._tree = log
        self._witnesses = witnesses
        self._pace_s = pace_s
        self.faults = Faults()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()
        self._moved = asyncio.Condition()
        self._cosigned = -1
        self._cosigned_at = 0.0
        self._misses = 0
        self._round: Round | None = None

    @property
    def cosigned(self) -> tuple[int, int] | None:
        """The size of the newest tree that was cosigned here, and so many seconds ago; None before the first."""
        if self._cosigned < 0:
            return None
        return self._cosigned, int(asyncio.get_running_loop().time() - self._cosigned_at)

    @property
    def is_stuck(self) -> bool:
        """Whether several rounds in a row have reached no quorum."""
        return self._misses >= WITNESS_MISSES

    def committed(self) -> None:
        """Say that the log has a new head. Returns at once."""
        self._wanted.set()

    async def wait_for(self, size: int) -> bool:
        """Wait, WITNESS_SYNC_S at most, for any cosigned checkpoint of at least this size; say whether it is there."""
        try:
            async with asyncio.timeout(WITNESS_SYNC_S), self._moved:
                await self._moved.wait_for(lambda: self._cosigned >= size)
        except TimeoutError:
            return False
        return True

    async def run(self) -> NoReturn:
        """Show every newest head to the witnesses. No error ends it."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if await self._show_newest():
                self._misses = 0
            else:
                self._misses += 1
                self._wanted.set()
            await asyncio.sleep(min(self._pace_s * 2 ** min(self._misses, 10), max(self._pace_s, MAX_WITNESS_PAUSE_S)))

    async def aclose(self) -> None:
        """End what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _show_newest(self) -> bool:
        """Make one round, unless its head is cosigned already. Says whether it is cosigned now."""
        try:
            head = await self._tree.head()
            if head.checkpoint.size <= self._cosigned:
                return True
            current = self._round = Round(head, {witness.name for witness in self._witnesses})
            for witness in self._witnesses:
                if (task := self._tasks.get(witness.name)) is None or task.done():
                    self._tasks[witness.name] = asyncio.create_task(self._attend(witness))
            await self._settle(current)
            with suppress(TimeoutError):
                async with asyncio.timeout(WITNESS_S):
                    await current.over.wait()
        except Exception as error:  # noqa: BLE001  (of the database, which may come back)
            _log.error("head not shown to witnesses", exc_info=error)
            return False
        return current.is_kept

    async def _attend(self, witness: LogWitness) -> None:
        """Ask one witness about the round that is under way; if that took long, also about the one that is by then."""
        while (current := self._round) and not current.over.is_set() and witness.name in current.unasked:
            current.unasked.discard(witness.name)
            try:
                await self._ask(witness, current)
                current.owing.discard(witness.name)
                await self._settle(current)
            except Exception as error:  # noqa: BLE001  (as above)
                _log.error("witness not asked", witness=witness.name, exc_info=error)

    async def _ask(self, witness: LogWitness, current: Round) -> None:
        try:
            vouched = await witness.cosign(current.head, self._tree)
        except MovedOn:
            self._wanted.set()
            return
        except Contradiction as contradiction:
            self.faults.alarm(witness.name, contradiction)
            self.faults.tell(witness.name, str(contradiction))
            return
        except Fault as fault:
            self.faults.tell(witness.name, str(fault))
            return
        self.faults.tell(witness.name, "")
        current.lines[witness.verifier] = vouched.line

    async def _settle(self, current: Round) -> None:
        """Keep a round's checkpoint when it has its quorum, and end the round when there is nothing to wait for."""
        all_asked = not current.owing
        # Where no witness is demanded, all that are named may still sign.
        enough = self._policy.met_by(current.lines) and (all_asked or self._policy.quorum != NO_QUORUM)
        if enough and not current.is_kept:
            current.is_kept = True
            await self._keep(current)
        if enough or all_asked:
            current.over.set()

    async def _keep(self, current: Round) -> None:
        size = current.head.checkpoint.size
        try:
            note = current.head.note.with_lines(current.lines.values())
            await self._tree.keep_cosigned(size, note.to_bytes())
        except BaseException:
            current.is_kept = False
            raise
        async with self._moved:
            self._cosigned = max(self._cosigned, size)
            self._cosigned_at = asyncio.get_running_loop().time()
            self._moved.notify_all()
