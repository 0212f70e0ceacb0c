"""Judges a folder of repositories for a leaderboard: what `judge_folder` finds, listed instead of printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from issuer import __version__
from issuer.errors import InputError
from issuer.relying.bulk import Listener, judge_folder, processes
from issuer.relying.leaderboard.listed import Item, Listed, Unread, listed, unread
from issuer.relying.leaderboard.ranking import Asked, Basis, Board, IssuerKeys, rank
from issuer.relying.verifier import Verifier, Writer
from issuer.verify.report import Report
from issuer.verify.summary import Summary
from issuer.verify.trust import Trust

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Item).decode


def build_board(
    root: Path, verifier: Verifier, asked: Asked, *, jobs: int = 0, stopped: Callable[[], bool] = lambda: False
) -> tuple[Board, Summary]:
    """Judge every result file below `root` and rank what is in them; return the counts of the run, too.

    Holds every entry, about a kilobyte each. Raises SetupError as `judge_folder` does.
    """
    gathered = _Gathered()
    listener = Listener(gathered.take, stopped=stopped)
    summary = judge_folder(root, verifier, Writer(_write, _write_unread), listener, engine=processes(jobs))
    asked = msgspec.structs.replace(asked, tolerance=verifier.trust.tolerance)
    entries = list(gathered.entries.values())
    board = rank(entries, list(gathered.unread), verifier.context.benchmarks, basis_of(verifier), asked)
    told = [fault for fault in map(unread, verifier.take_faults()) if fault not in gathered.unread]
    summary.add(0, (), [fault.code for fault in told])
    return msgspec.structs.replace(board, unread=(*board.unread, *dict.fromkeys(told))), summary


def basis_of(verifier: Verifier) -> Basis:
    """Say by what a verifier judges."""
    trust: Trust = verifier.trust
    issuers = tuple(IssuerKeys(name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items())
    absent = tuple(f"{absence.pointer}: {absence.reason}" for absence in trust.absent)
    return Basis(trust.digest, trust.audience, verifier.context.now, issuers, absent, __version__)


class _Gathered:
    """What came so far. An entry that comes once more was corrected: two tokens share a jti."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Listed] = {}
        self.unread: dict[Unread, None] = {}  # a definition that no process can read is told by each of them

    def take(self, lines: str) -> None:
        for line in lines.split("\n"):  # a text may hold other line ends, which JSON does not escape
            if not line:
                continue
            item = _decode(line)
            if isinstance(item, Unread):
                self.unread[item] = None
            else:
                self.entries[item.file, item.pointer] = item


def _write(file: str, reports: tuple[Report, ...]) -> str:
    return "".join(_line(listed(file, report)) for report in reports)


def _write_unread(error: InputError) -> str:
    return _line(unread(error))


def _line(item: Item) -> str:
    return _encode(item).decode() + "\n"
