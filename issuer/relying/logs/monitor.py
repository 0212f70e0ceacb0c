"""Follows a log from outside: each look begins where the last one ended, and shows that the log has only grown.

The new tree has the old one as its beginning, and every new leaf is under the new root, before anything is made of a
leaf. What leaves say is judged by `issuer.tlog.watch`; here are the log's files, the state file, and their order.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, VerificationError
from issuer.formats import jose, strict_yaml
from issuer.io import files
from issuer.relying.logs.reader import Head, LogFiles, Tree, read_head, unverified
from issuer.results.entry import read_entries
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import KeyState, token_digest
from issuer.tlog.note import parse_note
from issuer.tlog.watch import MAX_ANNOUNCED, MAX_UNMATCHED, Alarm, AlarmName, Announced, LeafNotice, Times, Watch
from issuer.tlog.witness_policy import WitnessPolicy

# The last checkpoint is kept as it was signed: with a second one that contradicts it, it shows anyone a forked log.
# At most 55 bytes of an announcement in this form.
_MAX_BYTES = 64 * (MAX_ANNOUNCED + MAX_UNMATCHED) + 512 * 1024


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Digests are in base64; `compared` is the integration whose tokens were compared, or ""."""

    version: Literal[1]
    note: str
    time: int | None
    compared: str
    keys: dict[str, KeyState]
    policies: list[bytes]
    unmatched: list[bytes]


class MonitorState(Struct, frozen=True):
    """How far a log has been followed: to `head`, None before the first time."""

    head: Head | None
    compared: str
    announced: Announced


def read_followed(path: Path) -> MonitorState | None:
    """Read the state file; None where there is none. Raises InputError: without it nothing older is compared, so a
    damaged one is not passed over."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        kept = msgspec.json.decode(files.read(path, _MAX_BYTES, private=True), type=_Kept)
        note = parse_note(kept.note.encode())
        head = Head(note, parse_checkpoint(note.text), kept.time)
        keys = {binascii.a2b_base64(name, strict_mode=True): state for name, state in kept.keys.items()}
    except (msgspec.MsgspecError, FormatError, ValueError):
        rule = "it is no state of `issuer log monitor`, or damaged"
        raise InputError(Code.FILE_SYNTAX, rule, Place(str(path))) from None
    return MonitorState(head, kept.compared, Announced(keys, set(kept.policies), set(kept.unmatched)))


def write_followed(path: Path, head: Head, compared: str, announced: Announced) -> None:
    """Replace the state file, 0600, on the disk before this returns. Raises OSError."""
    kept = _Kept(
        1, head.note.to_bytes().decode(), head.time, compared,
        {binascii.b2a_base64(digest, newline=False).decode(): state for digest, state in announced.keys.items()},
        sorted(announced.policies), sorted(announced.unmatched),
    )  # fmt: skip
    files.make_folder(path.parent)
    files.replace(path, msgspec.json.encode(kept), mode=0o600, durable=True)


class MonitorSummary(Struct, frozen=True, tag_field="seen", tag="checkpoint"):
    """The last line of a look: up to where everything has been read and, by now, remembered."""

    origin: str
    size: int
    root: str
    witnessed: int | None
    alarms: int


class MonitorOptions(Struct, frozen=True):
    """Whose tokens are told, and compared with those that it has itself: at most `max_unmatched` may be missing."""

    integration: str = ""
    owned: Callable[[], Container[bytes]] | None = None
    max_unmatched: int = 0


class Monitor:
    """Follows one log. What it has verified is in the file `state`, and nowhere else."""

    def __init__(self, log: LogFiles, policy: WitnessPolicy, state: Path, wanted: MonitorOptions) -> None:
        self._log = log
        self._policy = policy
        self._state = state
        self._wanted = wanted

    def look(self, now: int) -> Iterator[LeafNotice | Alarm | MonitorSummary]:
        """Return what the log has that was not there at the last look, at `now` (Unix seconds). The state is written
        when all lines before the last have been taken: a look that is interrupted is repeated whole. An alarm about the
        tree, not about leaves, leaves the state as it is. Raises Undecided where the log cannot be had, InputError for
        a damaged state file, OSError where it cannot be written."""
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
        yield MonitorSummary(found.origin, found.size, found.root.hex(), head.time, alarms)

    def _followed(self) -> MonitorState:
        compared = self._wanted.integration if self._wanted.owned else ""
        followed = read_followed(self._state) or MonitorState(None, compared, Announced())
        if followed.compared != compared:
            whose = followed.compared or "nobody"
            rule = f"it compares the tokens of {whose} since its first leaf; give another --state for another --tokens"
            raise InputError(Code.FILE_RULE, rule, Place(str(self._state)))
        return followed

    def _follow(self, followed: MonitorState, head: Head, now: int) -> Iterator[LeafNotice | Alarm]:
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


class OwnTokens:
    """The digests of the tokens in a folder: of entries in `*.yaml` result files, and of `*.jwt`, one token each. Read
    anew when called: tokens arrive while the monitor runs. About 100 bytes of memory a token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> frozenset[bytes]:
        """Return the digests as they are in leaves. Raises InputError for a file that cannot be read: what is in it
        would be missed."""
        return frozenset(token_digest(token.rpartition(".")[0].encode()) for token in self._tokens())

    def _tokens(self) -> Iterator[str]:
        for file in files.find(self._folder):
            if file.suffix == ".jwt":
                yield files.read(file, jose.MAX_TOKEN_BYTES + 1, follow=False).decode("ascii", "replace").strip()
            elif file.suffix == ".yaml":
                entries = read_entries(files.read(file, strict_yaml.MAX_BYTES, follow=False), str(file))
                yield from (entry.token for entry in entries if entry.token)
