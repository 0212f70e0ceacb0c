"""A monitor that follows a log from outside: each look starts where the last one ended, and shows that the log only
grew.

The monitor first verifies that the new tree begins with the old one, and that each new leaf is under the new root. Only
then it uses the leaf. `issuer.tlog.watch` judges the content of leaves; this file has the log's files, the state file,
and the order of steps.
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
from issuer.relying.logs.reader import LogFiles, TimedCheckpoint, Tree, read_head, unverified
from issuer.results.entry import read_entries
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import KeyState, token_digest
from issuer.tlog.note import parse_note
from issuer.tlog.watch import MAX_ANNOUNCED, MAX_UNMATCHED, Alarm, AlarmName, Announced, LeafNotice, Times, Watch
from issuer.tlog.witness_policy import WitnessPolicy

# The state keeps the last checkpoint as it was signed: together with a contradicting one it proves a fork to anyone. An
# announcement takes at most 55 bytes in this form.
_MAX_BYTES = 64 * (MAX_ANNOUNCED + MAX_UNMATCHED) + 512 * 1024


class _Kept(Struct, frozen=True, forbid_unknown_fields=True):
    """The state file. Digests are in base64; `compared` is the integration whose tokens were compared, or ""."""

    version: Literal[1]
    note: str
    time: int | None
    compared: str
    keys: dict[str, KeyState]
    policies: list[bytes]
    unmatched: list[bytes]


class MonitorState(Struct, frozen=True):
    """The end of the last look at a log: its `head`, None before the first look."""

    head: TimedCheckpoint | None
    compared: str
    announced: Announced


def read_followed(path: Path) -> MonitorState | None:
    """Read the state file; None if it is missing. Raises InputError for a damaged file, because ignoring it would lose
    the comparison with older checkpoints."""
    if not path.is_symlink() and not path.exists():
        return None
    try:
        kept = msgspec.json.decode(files.read(path, _MAX_BYTES, private=True), type=_Kept)
        note = parse_note(kept.note.encode())
        head = TimedCheckpoint(note, parse_checkpoint(note.text), kept.time)
        keys = {binascii.a2b_base64(name, strict_mode=True): state for name, state in kept.keys.items()}
    except (msgspec.MsgspecError, FormatError, ValueError):
        rule = "not a state file of `issuer log monitor`, or a damaged one"
        raise InputError(Code.FILE_SYNTAX, rule, Place(str(path))) from None
    return MonitorState(head, kept.compared, Announced(keys, set(kept.policies), set(kept.unmatched)))


def write_followed(path: Path, head: TimedCheckpoint, compared: str, announced: Announced) -> None:
    """Replace the state file, 0600, on disk before this returns. Raises OSError."""
    kept = _Kept(
        1, head.note.to_bytes().decode(), head.time, compared,
        {binascii.b2a_base64(digest, newline=False).decode(): state for digest, state in announced.keys.items()},
        sorted(announced.policies), sorted(announced.unmatched),
    )  # fmt: skip
    files.make_folder(path.parent)
    files.replace(path, msgspec.json.encode(kept), mode=0o600, durable=True)


class MonitorSummary(Struct, frozen=True, tag_field="seen", tag="checkpoint"):
    """The last line of a look: the checkpoint up to which every leaf was read and the state is saved."""

    origin: str
    size: int
    root: str
    witnessed: int | None
    alarms: int


class MonitorOptions(Struct, frozen=True):
    """The integration whose tokens are listed. If `owned` is given, they are compared with its tokens: at most
    `max_unmatched` may be missing there."""

    integration: str = ""
    owned: Callable[[], Container[bytes]] | None = None
    max_unmatched: int = 0


class Monitor:
    """Follows one log. The file `state` has all that was verified."""

    def __init__(self, log: LogFiles, policy: WitnessPolicy, state: Path, wanted: MonitorOptions) -> None:
        self._log = log
        self._policy = policy
        self._state = state
        self._wanted = wanted

    def look(self, now: int) -> Iterator[LeafNotice | Alarm | MonitorSummary]:
        """Yield what the log has added since the last look; `now` is in Unix seconds. The state is written after the
        caller has taken all lines but the last, so an interrupted look is repeated whole. An alarm about the tree, not
        about leaves, leaves the state unchanged. Raises Undecided if the log is unavailable, InputError for a damaged
        state file, OSError if it cannot be written."""
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
            tokens = f"the tokens of {followed.compared}" if followed.compared else "no tokens"
            rule = f"it compares {tokens} from the first leaf on; for other --tokens give another --state"
            raise InputError(Code.FILE_RULE, rule, Place(str(self._state)))
        return followed

    def _follow(self, followed: MonitorState, head: TimedCheckpoint, now: int) -> Iterator[LeafNotice | Alarm]:
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
    """Two signed checkpoints that contradict each other."""

    def __init__(self, name: AlarmName, detail: str, before: TimedCheckpoint, after: TimedCheckpoint) -> None:
        notes = tuple(head.note.to_bytes().decode() for head in (before, after))
        self.alarm = Alarm(name, detail, notes=notes)


def _demand_not_smaller(before: TimedCheckpoint, head: TimedCheckpoint) -> None:
    was, now = before.checkpoint, head.checkpoint
    if was.origin != now.origin:
        raise unverified(f"this is the log {now.origin}, but the state follows {was.origin}")
    if now.size < was.size:
        raise _Forked("checkpoint.shrinks", f"the log had {was.size} leaves, and now has {now.size}", before, head)
    if now.size == was.size and now.root != was.root:
        raise _Forked("checkpoint.inconsistent", f"two roots of {now.size} leaves", before, head)


class OwnTokens:
    """The digests of the tokens in a folder: those of entries in `*.yaml` result files, and of `*.jwt` files with one
    token each. Each call reads the folder again, because tokens arrive while the monitor runs. About 100 bytes of
    memory a token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> frozenset[bytes]:
        """Return the digests as they are in leaves. Raises InputError for an unreadable file, because its tokens would
        seem missing."""
        return frozenset(token_digest(token.rpartition(".")[0].encode()) for token in self._tokens())

    def _tokens(self) -> Iterator[str]:
        for file in files.find(self._folder):
            if file.suffix == ".jwt":
                yield files.read(file, jose.MAX_TOKEN_BYTES + 1, follow=False).decode("ascii", "replace").strip()
            elif file.suffix == ".yaml":
                entries = read_entries(files.read(file, strict_yaml.MAX_BYTES, follow=False), str(file))
                yield from (entry.token for entry in entries if entry.token)
