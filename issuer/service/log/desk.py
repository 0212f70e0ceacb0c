"""What a connection of the sequencer process has behind it: leaves go in, and places come out, cosigned if need be.

`log.witnesses: sync` makes the log's answer wait for a quorum, after the commit and beside it: the next batch does not
wait, and what has been committed stays there, cosigned or not. The same leaf may be brought again.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from issuer.errors import Undecided
from issuer.service.log.batch import Placed
from issuer.service.log.group import GroupCommit, Settle
from issuer.service.log.messages import Standing
from issuer.service.log.sequencer import Published, Sequencer
from issuer.service.log.store import Entry
from issuer.service.log.witnesses import Witnesses

_log = structlog.get_logger("issuer")


class Desk:
    """Belongs to one event loop. `must_cosign`: no place leaves before a quorum has cosigned a tree with its leaf."""

    def __init__(
        self, sequencer: Sequencer, group: GroupCommit, witnesses: Witnesses, *, must_cosign: bool = False
    ) -> None:
        self._sequencer = sequencer
        self._group = group
        self._witnesses = witnesses
        self._must_cosign = must_cosign
        self._waiting: set[asyncio.Task[None]] = set()

    def add(self, entries: tuple[Entry, ...], settle: Settle) -> None:
        """Have leaves appended with the next batch; with none, have it seen whether they could be."""
        if not entries or not self._must_cosign:
            self._group.add(entries, settle)
        elif self._witnesses.is_stuck:
            settle(None)  # its leaf would have no token
        else:
            self._group.add(entries, partial(self._cosign, settle))

    async def finish(self) -> None:
        """Wait until everything that was added has been settled."""
        await self._group.finish()
        await asyncio.gather(*self._waiting)

    @property
    def newest(self) -> Published | None:
        """The newest published head."""
        return self._group.newest

    @property
    def is_latched(self) -> bool:
        """Whether nothing is appended any more."""
        return bool(self._sequencer.latched)

    @property
    def standing(self) -> Standing:
        """How the log is beside its newest head."""
        return Standing(
            cosigned=self._witnesses.cosigned,
            failing=self._witnesses.failing,
            warnings=self._sequencer.warnings,
            must_wait=self._must_cosign and self._witnesses.is_stuck,
        )

    def _cosign(self, settle: Settle, places: tuple[Placed, ...] | None) -> None:
        if not places:
            settle(None)
            return
        task = asyncio.get_running_loop().create_task(self._settle(settle, places))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _settle(self, settle: Settle, places: tuple[Placed, ...]) -> None:
        proved: tuple[Placed, ...] | None = None
        try:
            await self._witnesses.wait_for(max(place.index for place in places) + 1)
            # Whether or not it came here: another host, which shares the database, may have had it cosigned.
            proved = await self._group.do(lambda sequencer: sequencer.under_cosigned(places))
        except Undecided:
            pass  # the sequencer has told why
        except Exception as error:  # noqa: BLE001 (whatever it is, who waits hears of it)
            _log.error("log places not cosigned", exc_info=error)
        settle(proved)
