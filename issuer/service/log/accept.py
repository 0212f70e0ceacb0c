"""A log that an operator says is as it was published, or has brought back: started once as the service does.

Every record outside of the database is asked, the witnesses too: where a machine was lost they may be all that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.service.log.records import Record
from issuer.service.log.seal import Seal
from issuer.service.log.setup import LogSettings, make_folders, read_seal, sequencer_of, turn
from issuer.service.log.witness_setup import witnessing_of
from issuer.service.log.witness_start import shown_at_start


def accept(settings: LogSettings, size: int, root: bytes, told: Callable[[], object] = lambda: None) -> None:
    """Go on with a log of this size and root without a record: the operator's word that nobody has seen a later tree.
    All records say so from then on. `told` is called when it is known to be this tree, before a record says so.

    Raises SetupError as `Sequencer.start`, and `state.unreachable` where a record cannot be written.
    """
    make_folders(settings)
    with turn(settings):
        publish(settings, shown_now(settings, read_seal(settings)), (size, root), told)


def shown_now(settings: LogSettings, seal: Seal) -> tuple[Record, ...]:
    """Ask every witness what it shows of the log. Not within an event loop. Raises SetupError as `witnessing_of`."""
    witnessing = witnessing_of(settings.witnesses, seal.verifier)
    return asyncio.run(shown_at_start(witnessing.calls, witnessing.own))


def publish(
    settings: LogSettings,
    shown: Sequence[Record],
    accepted: tuple[int, bytes] | None = None,
    told: Callable[[], object] = lambda: None,
) -> None:
    """Start a log as the service does, with what witnesses have `shown`, and raise all records to its head. The caller
    has the turn."""
    with closing(sequencer_of(settings, shown=shown)) as sequencer:
        sequencer.start(accepted)
        told()
        try:
            sequencer.append(())
        except Undecided as error:
            detail = "a record of the log cannot be written; the reason stands above"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from error
