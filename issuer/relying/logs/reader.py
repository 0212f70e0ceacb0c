"""A log as its readers get it (c2sp.org/tlog-tiles): files by URL or from a folder, signed head, tree and mirror.

Whoever serves the files is not trusted: each has a bounded size, and counts only under a signed root. From the top, the
partial tiles at the right edge make the root; each hash in a tile is the root of the full tile below it; the hashes of
a bundle's entries are a tile of level 0. So a wrong byte is found in its tile, before anything is made of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Undecided, VerificationError
from issuer.io import files
from issuer.io.http_client import HttpAnswer, HttpRequest, check_url, send_until_decided
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.leaf import MAX_LEAF_BYTES
from issuer.tlog.merkle import HASH_BYTES, Peaks, inclusion_proof, leaf_hash, peaks_of
from issuer.tlog.merkle import root as root_of
from issuer.tlog.note import MAX_NOTE_BYTES, Note, parse_note
from issuer.tlog.tiles import (
    WIDTH,
    TilePath,
    entries_path,
    hashes_at,
    node_of_tiles,
    read_entries,
    tile_path,
    tiles_between,
    write_entries,
)
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, WitnessPolicy, parse_policy

# A log that stays silent for longer, or refuses for longer, is told as unavailable.
PATIENCE_S = 60.0

_MAX_BUNDLE_BYTES = WIDTH * (2 + MAX_LEAF_BYTES)


class LogFiles(Protocol):
    """Where a log's files are; `name` is for people."""

    name: str

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path under the log's prefix; None where there is none. Raises
        VerificationError(`log.unverified`) for one that is larger, and Undecided(`log.unavailable`)."""


def open_log(source: str) -> LogFiles:
    """Return the files of a log: `https://HOST/PREFIX`, `file:` with a path, or a folder. Raises SetupError for a URL
    that may not be asked, and InputError where there is no such folder."""
    if source.startswith(("https:", "http:")):
        return HttpFiles(source)
    parts = urlsplit(source) if source.startswith("file:") else None
    return FolderFiles(Path(unquote(parts.path) if parts and parts.hostname in {None, "localhost"} else source))


def unverified(detail: str) -> VerificationError:
    """Make the error for a log that is not what its checkpoint says."""
    return VerificationError(Code.LOG_UNVERIFIED, detail)


class HttpFiles:
    """The files under a URL. One request at a time; refused or unanswered ones are repeated for `patience_s`."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.name = check_url(url)
        self._patience_s = patience_s

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None where the answer is that there is none."""
        answer = self.ask(path, max_bytes)
        return answer.body if answer.status == 200 else None

    def ask(self, path: str, max_bytes: int) -> HttpAnswer:
        """Return the answer at a path: 200, 404 or 410. Raises Undecided(`log.unavailable`) for any other."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "eval-token-issuer"}
        request = HttpRequest("GET", f"{self.name}/{path}", headers, max_bytes=max_bytes)
        try:
            answer = send_until_decided(request, patience_s=self._patience_s)
        except Undecided as error:  # no answer, an endless one, one that is too large
            raise Undecided(Code.LOG_UNAVAILABLE, f"{path}: {error.detail}") from None
        if answer.status not in {200, 404, 410} or answer.headers.get("content-encoding", "identity") != "identity":
            raise Undecided(Code.LOG_UNAVAILABLE, f"{path}: {self.name} answers with HTTP status {answer.status}")
        return answer


class FolderFiles:
    """The files below a folder, as `issuer log export` writes them. No file in it may be a link."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(Code.FILE_UNREADABLE, "no folder, and no URL", Place(str(folder)))
        self.name = str(folder)
        self._folder = folder

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None where there is none."""
        file = self._folder / path
        return files.read(file, max_bytes, follow=False) if os.path.lexists(file) else None


def read_tile(log: LogFiles, level: int, index: int, width: int) -> bytes:
    """Return the `width` hashes of a tile, which are still to be checked."""
    raw = _read(log, tile_path(level, index, width), width * HASH_BYTES)
    if raw is None and width < WIDTH:  # what was partial may be gone, once it is full
        raw = _read(log, tile_path(level, index), WIDTH * HASH_BYTES)
        raw = raw if raw is None else raw[: width * HASH_BYTES]
    if raw is None or len(raw) != width * HASH_BYTES:
        raise unverified(f"{tile_path(level, index, width)} {'is not there' if raw is None else 'has another length'}")
    return raw


def read_bundle(log: LogFiles, index: int, width: int) -> tuple[bytes, ...]:
    """Return the `width` leaves of an entry bundle, which are still to be checked."""
    path = entries_path(index, width)
    raw = _read(log, path, _MAX_BUNDLE_BYTES)
    whole = raw is None and width < WIDTH
    if whole:
        raw = _read(log, entries_path(index), _MAX_BUNDLE_BYTES)
    if raw is None:
        raise unverified(f"{path} is not there")
    try:
        entries = read_entries(raw)
    except FormatError as error:
        raise unverified(f"{path} is {error.detail}") from None
    if len(entries) < width or (len(entries) > width and not whole):
        raise unverified(f"{path} has {len(entries)} entries")
    return entries[:width]


def _read(log: LogFiles, path: str, max_bytes: int) -> bytes | None:
    try:
        return log.read(path, max_bytes)
    except InputError as error:  # a file that is too large, a link, a folder in its place
        raise unverified(f"{path} of {log.name}: {error.detail}") from None


CHECKPOINT_PATH = "checkpoint"


class Head(Struct, frozen=True):
    """A checkpoint with its note. `time` is its witnessed time (Unix seconds), None where nothing proves one."""

    note: Note
    checkpoint: Checkpoint
    time: int | None = None


def read_witness_policy(path: Path) -> WitnessPolicy:
    """Read a policy file. Raises InputError(`log.policy`) with its line."""
    return parse_policy(files.read(path, MAX_POLICY_BYTES, pipe=True), str(path))


def read_head(log: LogFiles, policy: WitnessPolicy, now: int) -> Head:
    """Return a log's newest checkpoint, signed by a log of the policy and cosigned by its quorum. Raises
    VerificationError(`log.unverified`), and Undecided while there is no quorum (`log.quorum`), which takes a moment
    after every checkpoint, or no answer (`log.unavailable`). InputError where no log is."""
    head = read_unverified_head(log)
    return check_head(head.note, policy, now)


def check_head(note: Note, policy: WitnessPolicy, now: int) -> Head:
    """Check a signed checkpoint; the errors are those of `read_head`."""
    try:
        witnessed = policy.check(note, now)
    except FormatError as error:
        if error.code is Code.LOG_QUORUM:
            raise Undecided(Code.LOG_QUORUM, error.detail) from None
        raise unverified(error.detail) from None
    return Head(note, witnessed.checkpoint, witnessed.time)


def read_unverified_head(log: LogFiles) -> Head:
    """Return a log's newest checkpoint as it says itself: whose it is, nobody has checked."""
    raw = log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
    if raw is None:
        raise InputError(Code.FILE_UNREADABLE, "there is no checkpoint: this is no log's prefix", Place(log.name))
    return parse_head(raw)


def parse_head(raw: bytes) -> Head:
    """Read the bytes of a signed checkpoint. Raises VerificationError(`log.unverified`)."""
    try:
        note = parse_note(raw)
        return Head(note, parse_checkpoint(note.text))
    except FormatError as error:
        raise unverified(f"the checkpoint does not parse: {error.detail}") from None


class Tree:
    """The tree under a checkpoint whose signatures have been verified. Everything that it returns is under the
    checkpoint's root. Raises VerificationError(`log.unverified`) where a file is missing or another one, Undecided
    where it cannot be had."""

    def __init__(self, log: LogFiles, checkpoint: Checkpoint) -> None:
        self.size, self.root = checkpoint.size, checkpoint.root
        self._log = log
        self._held: dict[int, tuple[int, bytes]] = {}  # by level, the last full tile
        self._edge: dict[int, bytes] = {}  # by level, the partial tile
        self._node = node_of_tiles(self._tile, self.size)
        if peaks_of(self.size, node_of_tiles(self._fetch_edge, self.size)).root != self.root:
            raise unverified(f"the last tiles are not those of a tree of {self.size} leaves with the checkpoint's root")

    def tile(self, level: int, index: int) -> bytes:
        """Return a tile, as wide as the tree has it."""
        return self._tile(level, index, min(WIDTH, hashes_at(level, self.size) - index * WIDTH))

    def bundle(self, index: int) -> tuple[bytes, ...]:
        """Return the leaves under a tile of level 0."""
        tile = self.tile(0, index)
        leaves = read_bundle(self._log, index, len(tile) // HASH_BYTES)
        for number, leaf in enumerate(leaves):
            if leaf_hash(leaf) != _hash(tile, number):
                raise unverified(f"leaf {index * WIDTH + number} is not the one that was hashed into the tree")
        return leaves

    def leaves(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Return index and bytes of every leaf from `start` on. At the end, the tree that they make on top of the
        leaves before them is once more compared with the root."""
        peaks = self.peaks(start)
        for index in range(start // WIDTH, -(-self.size // WIDTH)):
            leaves = self.bundle(index)[max(0, start - index * WIDTH) :]
            yield from enumerate(leaves, peaks.size)
            peaks = peaks.extend(map(leaf_hash, leaves))
        if (peaks.size, peaks.root) != (self.size, self.root):
            raise unverified("the leaves do not make the root of the checkpoint")

    def peaks(self, size: int) -> Peaks:
        """Return the peaks of the first `size` leaves; by their root an older tree is known to be a prefix, or not."""
        return peaks_of(size, self._node)

    def prove(self, index: int) -> tuple[bytes, ...]:
        """Return the inclusion proof of a leaf of this tree."""
        return inclusion_proof(index, self.size, self._node)

    def _tile(self, level: int, index: int, width: int) -> bytes:
        if width < WIDTH:
            return self._edge[level]
        held = self._held.get(level)
        if held is not None and held[0] == index:
            return held[1]
        raw = read_tile(self._log, level, index, width)
        if root_of(_split(raw)) != _hash(self.tile(level + 1, index // WIDTH), index % WIDTH):
            raise unverified(f"{tile_path(level, index)} is not the one whose hash is in the tile above it")
        self._held[level] = index, raw
        return raw

    def _fetch_edge(self, level: int, index: int, width: int) -> bytes:
        self._edge[level] = read_tile(self._log, level, index, width)
        return self._edge[level]


def _hash(tile: bytes, number: int) -> bytes:
    return tile[number * HASH_BYTES : (number + 1) * HASH_BYTES]


def _split(tile: bytes) -> Iterator[bytes]:
    return (tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES))


_MODE = 0o644  # public, as all that a log serves


def export(log: LogFiles, head: Head, folder: Path, tick: Callable[[int], object] = lambda _: None) -> int:
    """Bring a folder to a log's head; return the size that it had before. `tick` is told how many files are done.
    Raises VerificationError(`log.unverified`) where the log is not what the head says, or not the one that the folder
    has a part of: then nothing in the folder is replaced. OSError for a full disk; the next call goes on from there."""
    folder = Path(os.path.realpath(folder))  # it may be a link, and nothing in it is one
    files.make_folder(folder, mode=0o755, follow=False)
    before = _exported(folder)
    if before is not None and before != head.checkpoint:
        _demand_grown(before, head.checkpoint, log)
    tree = Tree(_Kept(FolderFiles(folder), log), head.checkpoint)
    for done, path in enumerate(tiles_between(before.size if before else 0, tree.size), 1):
        _write(folder, path, tree)
        tick(done)
    files.replace(folder / CHECKPOINT_PATH, head.note.to_bytes(), mode=_MODE, durable=True, follow=False)
    return before.size if before else 0


def _exported(folder: Path) -> Checkpoint | None:
    raw = FolderFiles(folder).read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
    return None if raw is None else parse_head(raw).checkpoint


def _demand_grown(before: Checkpoint, now: Checkpoint, log: LogFiles) -> None:
    if before.origin != now.origin:
        raise unverified(f"the folder has the log {before.origin}, and this is {now.origin}: give another folder")
    if before.size > now.size:
        raise unverified(f"the folder has {before.size} leaves, and the log only {now.size}")
    if Tree(log, now).peaks(before.size).root != before.root:
        raise unverified(f"the first {before.size} leaves are not those of the folder: keep both checkpoints")


def _write(folder: Path, path: TilePath, tree: Tree) -> None:
    file = folder / str(path)
    raw = write_entries(tree.bundle(path.index)) if path.level == "entries" else tree.tile(path.level, path.index)
    if not os.path.lexists(file):
        files.make_folder(file.parent, mode=0o755, follow=False)
        files.replace(file, raw, mode=_MODE, durable=True, follow=False)
    if path.width == WIDTH:  # readers of an older checkpoint take it in place of a partial one
        shutil.rmtree(file.with_name(f"{file.name}.p"), ignore_errors=True)


class _Kept:
    """The log's files, those that the folder has from there."""

    def __init__(self, kept: FolderFiles, log: LogFiles) -> None:
        self.name = f"{log.name}, or {kept.name}"
        self._kept, self._log = kept, log

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path."""
        raw = self._kept.read(path, max_bytes)
        return self._log.read(path, max_bytes) if raw is None else raw
