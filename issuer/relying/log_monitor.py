"""Follows a log from outside: each look begins where the last one ended, and shows that the log has only grown.

The new tree has the old one as its beginning, and every new leaf is under the new root, before anything is made of a
leaf. What leaves say is judged by `issuer.tlog.watch`; here are the log's files, the state file, and their order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, Place, VerificationError
from issuer.relying.log_checkpoint import Head, read_head
from issuer.relying.log_files import LogFiles, unverified
from issuer.relying.log_state import Followed, read_followed, write_followed
from issuer.relying.log_tree import Tree
from issuer.tlog.watch import Alarm, AlarmName, Announced, Seen, Times, Watch
from issuer.tlog.witness_policy import WitnessPolicy


class Looked(Struct, frozen=True, tag_field="seen", tag="checkpoint"):
    """The last line of a look: up to where everything has been read and, by now, remembered."""

    origin: str
    size: int
    root: str
    witnessed: int | None
    alarms: int


class Wanted(Struct, frozen=True):
    """Whose tokens are told, and compared with those that it has itself: at most `max_unmatched` may be missing."""

    integration: str = ""
    owned: Callable[[], Container[bytes]] | None = None
    max_unmatched: int = 0


class Monitor:
    """Follows one log. What it has verified is in the file `state`, and nowhere else."""

    def __init__(self, log: LogFiles, policy: WitnessPolicy, state: Path, wanted: Wanted) -> None:
        self._log = log
        self._policy = policy
        self._state = state
        self._wanted = wanted

    def look(self, now: int) -> Iterator[Seen | Alarm | Looked]:
        """Return what the log has that was not there at the last look, at `now` (Unix seconds).

        The state is written when all lines before the last have been taken: a look that is interrupted is repeated
        whole. An alarm about the tree, not about leaves, leaves the state as it is. Raises Undecided where the log
        cannot be had, InputError for a damaged state file, OSError where it cannot be written.
        """
        followed = self._followed()
        alarms = 0
        try:
            head = read_head(self._log, self._policy, now)
            for line in self._follow(followed, head, now):
                alarms += isinstance(line, Alarm)
                yield line
        except VerificationError as error:
            yield Alarm("log.unverified", error.detail)
            return
        except _Forked as fork:
            yield fork.alarm
            return
        write_followed(self._state, head, followed.compared, followed.announced)
        found = head.checkpoint
        yield Looked(found.origin, found.size, found.root.hex(), head.time, alarms)

    def _followed(self) -> Followed:
        compared = self._wanted.integration if self._wanted.owned else ""
        followed = read_followed(self._state) or Followed(None, compared, Announced())
        if followed.compared != compared:
            whose = followed.compared or "nobody"
            rule = f"it compares the tokens of {whose} since its first leaf; give another --state for another --tokens"
            raise InputError(Code.FILE_RULE, rule, Place(str(self._state)))
        return followed

    def _follow(self, followed: Followed, head: Head, now: int) -> Iterator[Seen | Alarm]:
        before = followed.head
        if before is not None:
            _demand_not_smaller(before, head)
        tree = Tree(self._log, head.checkpoint)
        start = 0 if before is None else before.checkpoint.size
        if before is not None and tree.peaks(start).root != before.checkpoint.root:
            raise _Forked("checkpoint.inconsistent", f"the first {start} leaves have changed", before, head)
        times = Times(None if before is None else before.time, now if head.time is None else head.time)
        watch = Watch(followed.announced, self._wanted.integration, self._wanted.owned)
        for index, leaf in tree.leaves(start):
            yield from watch.take(index, leaf, times)
        yield from watch.count_unmatched(self._wanted.max_unmatched)


class _Forked(Exception):
    """Two signed checkpoints that cannot both be of one log."""

    def __init__(self, name: AlarmName, detail: str, before: Head, after: Head) -> None:
        notes = tuple(head.note.to_bytes().decode() for head in (before, after))
        self.alarm = Alarm(name, detail, notes=notes)


def _demand_not_smaller(before: Head, head: Head) -> None:
    was, now = before.checkpoint, head.checkpoint
    if was.origin != now.origin:
        raise unverified(f"it is the log {now.origin}; the one that is followed is {was.origin}")
    if now.size < was.size:
        raise _Forked("checkpoint.shrinks", f"the log had {was.size} leaves, and now {now.size}", before, head)
    if now.size == was.size and now.root != was.root:
        raise _Forked("checkpoint.inconsistent", f"two roots of {now.size} leaves", before, head)
