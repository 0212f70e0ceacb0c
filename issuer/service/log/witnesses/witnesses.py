"""The witnesses of a log, from its policy, and the requests to them at its start and for every new head.

At the start, the sequencer compares its database with the checkpoints that witnesses show (`shown_at_start`), and has
them cosign its head (`vouched_at_start`). After the restore of a whole machine there may be no other evidence.

Later heads are sent in rounds, one checkpoint for all witnesses, because a quorum is signatures of the same checkpoint.
A round ends with its quorum, or when no witness owes an answer. A witness that is still busy misses the round and does
not delay it. Issuance waits only in `wait_for`, with the setting `sync`.
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
    LogWitness,
    MovedOn,
    SignedHead,
    Vouched,
    WitnessedLog,
    WitnessFault,
)
from issuer.tlog.note import SignatureLine, Verifier
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, NO_QUORUM, LogKey, WitnessPolicy, parse_policy

_log = structlog.get_logger("issuer")


# -- the witnesses of a policy -----------------------------------------------------------------------------------------


def own_keys(policy: WitnessPolicy, own: Verifier) -> tuple[Verifier, ...]:
    """Return all keys of the log that has the key `own`: there are several while one key replaces another. Raises
    SetupError(`settings.invalid`) if the policy does not name this log, as proofs could not be verified under it."""
    keys = tuple(log.verifier for log in policy.logs if log.verifier.name == own.name)
    if own not in keys:
        detail = f"log.witness_policy: no line names this log and its key; add `log {own.to_text()}`"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return keys


class Witnessing(Struct, frozen=True):
    """The witness policy of a log, and the witnesses to ask."""

    policy: WitnessPolicy
    witnesses: tuple[LogWitness, ...] = ()


def witnessing_of(settings: WitnessSettings | None, own: Verifier) -> Witnessing:
    """Read the witness policy of the log that has the key `own`. Without settings, return a policy without witnesses.
    Raises SetupError: `settings.invalid`, and the codes of an unreadable or invalid file."""
    if settings is None:
        return Witnessing(WitnessPolicy((LogKey(own),), (), (), NO_QUORUM))
    path = Path(settings.policy)
    try:
        policy = parse_policy(files.read(path, MAX_POLICY_BYTES), str(path))
    except InputError as error:  # the line to the supervisor (process.Word) does not have a place
        raise SetupError(error.code, f"log.witness_policy, {error.place}: {error.detail}") from None
    if settings.must_cosign and policy.quorum == NO_QUORUM:
        detail = f"log.witnesses: sync waits for a quorum, but {path} does not require one"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return Witnessing(policy, witnesses_of(policy, settings, own_keys(policy, own)))


def witnesses_of(policy: WitnessPolicy, settings: WitnessSettings, own: Sequence[Verifier]) -> tuple[LogWitness, ...]:
    """Return the witnesses of a policy that have a URL and are not excluded, for the log of the keys `own`. If the
    exclusion prevents a quorum, log a warning. Raises SetupError(`settings.invalid`) for unknown names, for a URL that
    may not be used, and if the witnesses with a URL are not a quorum."""
    if unknown := {*settings.excluded, *settings.monitors} - {witness.name for witness in policy.witnesses}:
        detail = f"log.witness_policy does not name a witness {min(unknown)!r}. Correct the name in the settings"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    reachable = [key for key in policy.witnesses if key.url]
    if not policy.met_by(key.verifier for key in reachable):
        raise SetupError(Code.SETTINGS_INVALID, "log.witness_policy: the witnesses with a URL are not a quorum")
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
    """Implements `records.HeadRecord` with the note that a witness showed at the start; None if it did not show one.
    `write` never waits, because rounds bring newer checkpoints to the witness."""

    name: str
    note: bytes | None

    def read(self) -> bytes | None:
        """Return the note."""
        return self.note

    def write(self, note: bytes) -> None:
        """Do nothing: a witness that does not answer must not stop the log."""

    def close(self) -> None:
        """Do nothing: the witness is not connected."""


async def shown_at_start(witnesses: Sequence[LogWitness]) -> tuple[WitnessRecord, ...]:
    """Return a record of each witness, with the checkpoint that it shows, if the log has signed it."""
    notes = await asyncio.gather(*(witness.shown() for witness in witnesses))
    shown = [None if note is None else note.to_bytes() for note in notes]
    return tuple(WitnessRecord(f"witness {each.name}", note) for each, note in zip(witnesses, shown, strict=True))


async def vouched_at_start(witnesses: Sequence[LogWitness], log: WitnessedLog) -> int:
    """Have the witnesses cosign the first head, and return the number of those that vouch for it: they knew the log
    before, and cosigned an extension. (A witness that did not know the log cosigns any head.) Raises
    SetupError(`log.rollback`) if a witness contradicts with evidence. A claim without evidence counts only if no other
    witness vouches: a single liar must not prevent the start."""
    answers = await asyncio.gather(*(_final_answer(witness, log) for witness in witnesses))
    vouching = sum(isinstance(answer, Vouched) and answer.since > 0 for answer in answers)
    for witness, answer in zip(witnesses, answers, strict=True):
        if isinstance(answer, Contradiction) and (answer.shown or not vouching):
            todo = "Restore the missing leaves. If the witness lies, exclude it by its name in the settings"
            raise SetupError(Code.LOG_ROLLBACK, f"witness {witness.name}: {answer}. {todo}")
        if isinstance(answer, WitnessFault):
            _log.warning("witness fails", witness=witness.name, reason=str(answer))
    return vouching


async def _final_answer(witness: LogWitness, log: WitnessedLog) -> Vouched | WitnessFault:
    """Ask a witness to cosign, and once more if the log grows meanwhile. The timeout is for all its answers together,
    because a slow witness must not prevent the start of the service."""
    try:
        async with asyncio.timeout(WITNESS_START_S):
            for _ in range(2):
                with suppress(MovedOn):
                    return await witness.cosign(await log.head(), log)
    except TimeoutError:
        return WitnessFault(f"it did not give its final answer within {WITNESS_START_S:.3g} s")
    except WitnessFault as fault:
        return fault
    return WitnessFault("the log grew during each request to it")


# -- while the log runs ------------------------------------------------------------------------------------------------


class Faults:
    """The faults of witnesses. A fault is logged at once, every WITNESS_TOLD_S while it lasts, and when it ends."""

    def __init__(self) -> None:
        self._current: dict[str, tuple[str, float]] = {}
        self._alarmed: dict[str, float] = {}

    @property
    def failing(self) -> tuple[str, ...]:
        """The names of the witnesses that fail now."""
        return tuple(sorted(name for name, (fault, _) in self._current.items() if fault))

    def note(self, name: str, fault: str) -> None:
        """Note the current fault of a witness; "" if it works."""
        before, at = self._current.get(name, ("", 0.0))
        now = asyncio.get_running_loop().time()
        if fault == before and (not fault or now - at < WITNESS_TOLD_S):
            return
        self._current[name] = (fault, now)
        if fault:
            _log.warning("witness fails", witness=name, reason=fault)
        else:
            _log.info("witness cosigns again", witness=name)

    def alarm(self, name: str, contradiction: Contradiction) -> None:
        """Log a checkpoint that this log has signed and does not extend, at once and every WITNESS_TOLD_S. A claim
        without such a checkpoint is only a fault of the witness."""
        now = asyncio.get_running_loop().time()
        if contradiction.shown is None or now - self._alarmed.get(name, float("-inf")) < WITNESS_TOLD_S:
            return
        self._alarmed[name] = now
        shown = contradiction.shown.to_bytes().decode(errors="replace")
        _log.critical("log contradicted", witness=name, reason=str(contradiction), checkpoint=shown)


class Round:
    """One checkpoint for all witnesses, with the names of those that are not asked yet, or owe an answer."""

    def __init__(self, head: SignedHead, names: set[str]) -> None:
        self.head = head
        self.unasked = set(names)
        self.owing = set(names)
        self.lines: dict[Verifier, SignatureLine] = {}
        self.is_kept = False
        self.over = asyncio.Event()


class Witnesses:
    """The rounds of a running log. Belongs to one event loop. `pace_s` is the least time between two rounds."""

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
        """The size of the newest tree that was cosigned here, and its age in seconds; None before the first."""
        if self._cosigned < 0:
            return None
        return self._cosigned, int(asyncio.get_running_loop().time() - self._cosigned_at)

    @property
    def is_stuck(self) -> bool:
        """Whether several rounds in a row have reached no quorum."""
        return self._misses >= WITNESS_MISSES

    def committed(self) -> None:
        """Request a round, because the log has a new head. Returns at once."""
        self._wanted.set()

    async def wait_for(self, size: int) -> bool:
        """Wait up to WITNESS_SYNC_S for a cosigned checkpoint of at least this size; return whether there is one."""
        try:
            async with asyncio.timeout(WITNESS_SYNC_S), self._moved:
                await self._moved.wait_for(lambda: self._cosigned >= size)
        except TimeoutError:
            return False
        return True

    async def run(self) -> NoReturn:
        """Have every newest head cosigned, without end, in spite of errors."""
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
        """Cancel all requests."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _show_newest(self) -> bool:
        """Make one round, unless the head is cosigned already. Return whether it is cosigned now."""
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
        except Exception as error:  # noqa: BLE001  (an error of the database, which may recover)
            _log.error("head not shown to witnesses", exc_info=error)
            return False
        return current.is_kept

    async def _attend(self, witness: LogWitness) -> None:
        """Ask one witness to cosign the current round's checkpoint. If a new round begins meanwhile, ask again."""
        while (current := self._round) and not current.over.is_set() and witness.name in current.unasked:
            current.unasked.discard(witness.name)
            try:
                await self._ask(witness, current)
                current.owing.discard(witness.name)
                await self._settle(current)
            except Exception as error:  # noqa: BLE001  (as above)
                _log.error("witness not asked", witness=witness.name, exc_info=error)

    async def _ask(self, witness: LogWitness, current: Round) -> None:
        reason = ""
        try:
            current.lines[witness.verifier] = (await witness.cosign(current.head, self._tree)).line
        except MovedOn:
            self._wanted.set()
            return
        except WitnessFault as fault:
            if isinstance(fault, Contradiction):
                self.faults.alarm(witness.name, fault)
            reason = str(fault)
        self.faults.note(witness.name, reason)

    async def _settle(self, current: Round) -> None:
        """Keep a round's checkpoint when it has its quorum. End the round then, or when no witness owes an answer."""
        all_answered = not current.owing
        # Without a required quorum, the round still waits for the cosignatures of all witnesses.
        enough = self._policy.met_by(current.lines) and (all_answered or self._policy.asks_for_witnesses)
        if enough and not current.is_kept:
            current.is_kept = True
            await self._keep(current)
        if enough or all_answered:
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
