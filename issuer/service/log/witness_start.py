"""What witnesses say of a log that starts: they may be all that remembers, where a whole machine was restored.

First what they show: records of how far the log was published, for the sequencer to compare. Then its head is shown to
them, and they must cosign it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.bounds import WITNESS_START_S
from issuer.service.log.witness import Contradiction, Head, LogWitness, MovedOn, Vouched, WitnessedLog
from issuer.service.log.witness_call import Fault, WitnessCall
from issuer.tlog.note import Verifier

_log = structlog.get_logger("issuer")


class WitnessRecord:
    """Implements `records.Record` by what a witness showed at the start, None for nothing. It never waits: rounds raise
    a witness."""

    def __init__(self, witness: str, note: bytes | None) -> None:
        self._witness = witness
        self._note = note

    @property
    def name(self) -> str:
        """Whose word it is."""
        return f"witness {self._witness}"

    def read(self) -> bytes | None:
        """Return the note."""
        return self._note

    def write(self, note: bytes) -> None:
        """Leave it: a witness that does not answer must stop nobody."""

    def close(self) -> None:
        """Nothing is open."""


async def shown_at_start(calls: Sequence[WitnessCall], own: Sequence[Verifier]) -> tuple[WitnessRecord, ...]:
    """Ask every witness what it shows of the log: a record of each, also of who shows nothing that the log signed."""
    notes = await asyncio.gather(*(call.shown(own) for call in calls))
    found = zip(calls, notes, strict=True)
    return tuple(WitnessRecord(call.name, None if note is None else note.to_bytes()) for call, note in found)


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
    with suppress(TimeoutError):
        async with asyncio.timeout(WITNESS_START_S):
            for _ in range(2):
                with suppress(MovedOn):
                    return await _cosigned(witness, log)
            return Fault("the log grows while it is asked")
    return Fault(f"it had no last word within {WITNESS_START_S:.3g} s")


async def _cosigned(witness: LogWitness, log: WitnessedLog) -> Vouched | Fault:
    try:
        return await witness.cosign(await Head.newest(log))
    except Fault as fault:
        return fault
