"""How the log is, as readiness shows it to whoever may ask: nothing that the log's public side would not show."""

from __future__ import annotations

from msgspec import Struct

from issuer.service.log.messages import Newest
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.note import parse_note


class CosignedTree(Struct, frozen=True):
    """The newest tree that a quorum has cosigned since the sequencer runs, and how many seconds ago that was."""

    size: int
    age_s: int


class LogStatus(Struct, frozen=True):
    """Origin and size of the log, the newest cosigned tree (None: none yet), the witnesses that do not do their part,
    by their names in the policy, and what the operator should know of the database."""

    origin: str
    size: int
    cosigned: CosignedTree | None
    failing_witnesses: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, origin: str, newest: Newest) -> LogStatus:
        """Make it of the sequencer's answer."""
        standing, checkpoint = newest.standing, parse_checkpoint(parse_note(newest.checkpoint).text)
        cosigned = None if standing.cosigned is None else CosignedTree(*standing.cosigned)
        return cls(origin, checkpoint.size, cosigned, standing.failing, standing.warnings)
