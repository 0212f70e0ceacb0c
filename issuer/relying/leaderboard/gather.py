"""What a leaderboard is made of: a folder of repositories, judged as `judge_folder` does it, or a table of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from issuer.errors import InputError
from issuer.relying.basis import Basis
from issuer.relying.bulk import Listener, judge_folder, processes
from issuer.relying.folders import take_faults
from issuer.relying.leaderboard.listed import Item, Listed, Unread, listed, unread
from issuer.relying.leaderboard.ranking import Asked, Board, Definitions, rank
from issuer.relying.verifier import Verifier, Writer
from issuer.verify.report import Report
from issuer.verify.summary import Summary

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Item).decode


def build_board(
    root: Path, verifier: Verifier, asked: Asked, *, jobs: int = 0, stopped: Callable[[], bool] = lambda: False
) -> tuple[Board, Summary]:
    """Judge every result file below `root` and rank what is in them; return the counts of the run, too.

    Holds every entry, about a kilobyte each. Raises SetupError as `judge_folder` does.
    """
    gathered = Gathered()
    listener = Listener(gathered.take, stopped=stopped)
    summary = judge_folder(root, verifier, Writer(_write, _write_unread), listener, engine=processes(jobs))
    asked = msgspec.structs.replace(asked, tolerance=verifier.trust.tolerance)
    basis = Basis.of(verifier.trust, verifier.context.now)
    return gathered.ranked(verifier.context.benchmarks, basis, asked, summary), summary


class Gathered:
    """What came so far. An entry that comes once more was corrected: two tokens share a jti."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Listed] = {}
        self._unread: dict[Unread, None] = {}  # a definition that no process can read is told by each of them

    def take(self, lines: str) -> None:
        """Take entries and findings, a line of JSON each."""
        for line in lines.split("\n"):  # a text may hold other line ends, which JSON does not escape
            if line:
                self.add(_decode(line))

    def add(self, item: Item) -> None:
        """Take an entry or a finding."""
        if isinstance(item, Unread):
            self._unread[item] = None
        else:
            self._entries[item.file, item.pointer] = item

    def ranked(self, definitions: Definitions, basis: Basis, asked: Asked, summary: Summary) -> Board:
        """Rank it all, and count the definitions that turn out to be unusable."""
        board = rank(list(self._entries.values()), (), definitions, basis, asked)
        told = [fault for fault in map(unread, take_faults(definitions)) if fault not in self._unread]
        summary.add(0, (), [fault.code for fault in told])
        places = sorted({*self._unread, *told}, key=lambda one: (one.file, one.line, one.column, one.code, one.reason))
        return msgspec.structs.replace(board, unread=tuple(places))


def _write(file: str, reports: tuple[Report, ...]) -> str:
    return "".join(_line(listed(file, report)) for report in reports)


def _write_unread(error: InputError) -> str:
    return _line(unread(error))


def _line(item: Item) -> str:
    return _encode(item).decode() + "\n"
