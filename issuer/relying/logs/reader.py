"""A log from a reader's side (c2sp.org/tlog-tiles): files by URL or from a folder, signed head, tree and export.

The server of the files is not trusted: each file has a bounded size, and counts only under a signed root. From the top
down: the partial tiles at the right edge give the root; each hash in a tile is the root of the full tile below it; the
hashes of a bundle's leaves are a tile of level 0. So a wrong byte is found in its tile before the leaf is used.
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
    hashes_at,
    node_of_tiles,
    read_entries,
    tile_path,
    tiles_between,
    write_entries,
)
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, WitnessPolicy, parse_policy

# After this time without an answer, or with refusals, the log counts as unavailable.
PATIENCE_S = 60.0

_MAX_BUNDLE_BYTES = WIDTH * (2 + MAX_LEAF_BYTES)


class LogFiles(Protocol):
    """A log's files; `name` is for people."""

    name: str

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path under the log's prefix; None if it does not exist. Raises
        VerificationError(`log.unverified`) if it is too large, and Undecided(`log.unavailable`)."""


def open_log(source: str) -> LogFiles:
    """Return the files of a log: `https://HOST/PREFIX`, `file:` with a path, or a folder. Raises SetupError for a URL
    that is not allowed, and InputError if there is no such folder."""
    if source.startswith(("https:", "http:")):
        return HttpFiles(source)
    parts = urlsplit(source) if source.startswith("file:") else None
    return FolderFiles(Path(unquote(parts.path) if parts and parts.hostname in {None, "localhost"} else source))


def unverified(detail: str) -> VerificationError:
    """Return the error for a log that contradicts its checkpoint."""
    return VerificationError(Code.LOG_UNVERIFIED, detail)


class HttpFiles:
    """The files under a URL. One request at a time; refused and unanswered ones are repeated for `patience_s`."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self.name = check_url(url)
        self._patience_s = patience_s

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None if the server answers that it does not exist."""
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
    """The files below a folder, as `issuer log export` writes them. Links are refused."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise InputError(Code.FILE_UNREADABLE, "neither a folder nor a URL", Place(str(folder)))
        self.name = str(folder)
        self._folder = folder

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path; None if it does not exist."""
        file = self._folder / path
        return files.read(file, max_bytes, follow=False) if os.path.lexists(file) else None


def read_tile(log: LogFiles, level: int, index: int, width: int) -> bytes:
    """Return the `width` hashes of a tile, unverified."""
    raw = _read(log, tile_path(level, index, width), width * HASH_BYTES)
    if raw is None and width < WIDTH:  # a partial tile may be deleted once it is full
        raw = _read(log, tile_path(level, index), WIDTH * HASH_BYTES)
        raw = raw if raw is None else raw[: width * HASH_BYTES]
    if raw is None or len(raw) != width * HASH_BYTES:
        raise unverified(f"{tile_path(level, index, width)} {'is missing' if raw is None else 'has the wrong length'}")
    return raw


def read_bundle(log: LogFiles, index: int, width: int) -> tuple[bytes, ...]:
    """Return the `width` leaves of an entry bundle, unverified."""
    path = tile_path("entries", index, width)
    raw = _read(log, path, _MAX_BUNDLE_BYTES)
    whole = raw is None and width < WIDTH
    if whole:
        raw = _read(log, tile_path("entries", index), _MAX_BUNDLE_BYTES)
    if raw is None:
        raise unverified(f"{path} is missing")
    try:
        entries = read_entries(raw)
    except FormatError as error:
        raise unverified(f"{path} is {error.detail}") from None
    if len(entries) < width or (len(entries) > width and not whole):
        raise unverified(f"{path} has {len(entries)} leaves")
    return entries[:width]


def _read(log: LogFiles, path: str, max_bytes: int) -> bytes | None:
    try:
        return log.read(path, max_bytes)
    except InputError as error:  # a file that is too large, a link, a folder in its place
        raise unverified(f"{path} of {log.name}: {error.detail}") from None


CHECKPOINT_PATH = "checkpoint"


class TimedCheckpoint(Struct, frozen=True):
    """A checkpoint with its note. `time` is its witnessed time (Unix seconds), None if no witness proves one."""

    note: Note
    checkpoint: Checkpoint
    time: int | None = None


def read_witness_policy(path: Path) -> WitnessPolicy:
    """Read a policy file. Raises InputError(`log.policy`) with its line."""
    return parse_policy(files.read(path, MAX_POLICY_BYTES, pipe=True), str(path))


def read_head(log: LogFiles, policy: WitnessPolicy, now: int) -> TimedCheckpoint:
    """Return a log's newest checkpoint, signed by a log of the policy and cosigned by its quorum. Raises
    VerificationError(`log.unverified`); Undecided without a quorum (`log.quorum`), which takes a moment after every
    checkpoint, or without an answer (`log.unavailable`); InputError if no log is there."""
    return check_head(read_unverified_head(log).note, policy, now)


def check_head(note: Note, policy: WitnessPolicy, now: int) -> TimedCheckpoint:
    """Check a signed checkpoint. Raises the same errors as `read_head`."""
    try:
        witnessed = policy.check(note, now)
    except FormatError as error:
        if error.code is Code.LOG_QUORUM:
            raise Undecided(Code.LOG_QUORUM, error.detail) from None
        raise unverified(error.detail) from None
    return TimedCheckpoint(note, witnessed.checkpoint, witnessed.time)


def read_unverified_head(log: LogFiles) -> TimedCheckpoint:
    """Return a log's newest checkpoint without verifying its signatures."""
    raw = log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
    if raw is None:
        raise InputError(Code.FILE_UNREADABLE, "no checkpoint: this is not the prefix of a log", Place(log.name))
    return parse_head(raw)


def parse_head(raw: bytes) -> TimedCheckpoint:
    """Read the bytes of a signed checkpoint. Raises VerificationError(`log.unverified`)."""
    try:
        note = parse_note(raw)
        return TimedCheckpoint(note, parse_checkpoint(note.text))
    except FormatError as error:
        raise unverified(f"the checkpoint does not parse: {error.detail}") from None


class Tree:
    """The tree under a checkpoint whose signatures have been verified. All that it returns is under the checkpoint's
    root. Raises VerificationError(`log.unverified`) for a missing or wrong file, Undecided for an unavailable one."""

    def __init__(self, log: LogFiles, checkpoint: Checkpoint) -> None:
        self.size, self.root = checkpoint.size, checkpoint.root
        self._log = log
        self._full: dict[int, tuple[int, bytes]] = {}  # by level, the last full tile
        self._edge: dict[int, bytes] = {}  # by level, the partial tile
        self._node = node_of_tiles(self._tile, self.size)
        if peaks_of(self.size, node_of_tiles(self._fetch_edge, self.size)).root != self.root:
            raise unverified(f"the last tiles of the tree of {self.size} leaves do not make the checkpoint's root")

    def tile(self, level: int, index: int) -> bytes:
        """Return a tile with the width that it has in this tree."""
        return self._tile(level, index, min(WIDTH, hashes_at(level, self.size) - index * WIDTH))

    def bundle(self, index: int) -> tuple[bytes, ...]:
        """Return the leaves under a tile of level 0."""
        tile = self.tile(0, index)
        leaves = read_bundle(self._log, index, len(tile) // HASH_BYTES)
        for number, leaf in enumerate(leaves):
            if leaf_hash(leaf) != _hash(tile, number):
                raise unverified(f"leaf {index * WIDTH + number} does not match its hash in the tree")
        return leaves

    def leaves(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield index and bytes of every leaf from `start` on. At the end, compare the root of all leaves with the
        checkpoint's once more."""
        peaks = self.peaks(start)
        for index in range(start // WIDTH, -(-self.size // WIDTH)):
            leaves = self.bundle(index)[max(0, start - index * WIDTH) :]
            yield from enumerate(leaves, peaks.size)
            peaks = peaks.extend(map(leaf_hash, leaves))
        if (peaks.size, peaks.root) != (self.size, self.root):
            raise unverified("the leaves do not make the root of the checkpoint")

    def peaks(self, size: int) -> Peaks:
        """Return the peaks of the first `size` leaves; their root shows whether an older tree is a prefix of this
        one."""
        return peaks_of(size, self._node)

    def prove(self, index: int) -> tuple[bytes, ...]:
        """Return the inclusion proof of a leaf of this tree."""
        return inclusion_proof(index, self.size, self._node)

    def _tile(self, level: int, index: int, width: int) -> bytes:
        if width < WIDTH:
            return self._edge[level]
        full = self._full.get(level)
        if full is not None and full[0] == index:
            return full[1]
        raw = read_tile(self._log, level, index, width)
        if root_of(_split(raw)) != _hash(self.tile(level + 1, index // WIDTH), index % WIDTH):
            raise unverified(f"{tile_path(level, index)} does not match its hash in the tile above it")
        self._full[level] = index, raw
        return raw

    def _fetch_edge(self, level: int, index: int, width: int) -> bytes:
        self._edge[level] = read_tile(self._log, level, index, width)
        return self._edge[level]


def _hash(tile: bytes, number: int) -> bytes:
    return tile[number * HASH_BYTES : (number + 1) * HASH_BYTES]


def _split(tile: bytes) -> Iterator[bytes]:
    return (tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES))


_MODE = 0o644  # public, as a log's files are


def export(log: LogFiles, head: TimedCheckpoint, folder: Path, tick: Callable[[int], object] = lambda _: None) -> int:
    """Bring a folder to a log's head; return the size that it had before. `tick` gets the number of files done. Raises
    VerificationError(`log.unverified`) if the log contradicts the head, or is not the log of the folder: then no file
    in the folder is replaced. Raises OSError for a full disk; the next call continues from there."""
    folder = Path(os.path.realpath(folder))  # it may be a link; files in it may not
    files.make_folder(folder, mode=0o755, follow=False)
    raw = FolderFiles(folder).read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
    before = None if raw is None else parse_head(raw).checkpoint
    if before is not None and before != head.checkpoint:
        _demand_grown(before, head.checkpoint, log)
    tree = Tree(_Kept(FolderFiles(folder), log), head.checkpoint)
    for done, path in enumerate(tiles_between(before.size if before else 0, tree.size), 1):
        _write(folder, path, tree)
        tick(done)
    files.replace(folder / CHECKPOINT_PATH, head.note.to_bytes(), mode=_MODE, durable=True, follow=False)
    return before.size if before else 0


def _demand_grown(before: Checkpoint, now: Checkpoint, log: LogFiles) -> None:
    if before.origin != now.origin:
        raise unverified(f"the folder has the log {before.origin}, but this is {now.origin}: give another folder")
    if before.size > now.size:
        raise unverified(f"the folder has {before.size} leaves, but the log only {now.size}")
    if Tree(log, now).peaks(before.size).root != before.root:
        raise unverified(f"the first {before.size} leaves differ from those in the folder: keep both checkpoints")


def _write(folder: Path, path: TilePath, tree: Tree) -> None:
    file = folder / str(path)
    raw = write_entries(tree.bundle(path.index)) if path.level == "entries" else tree.tile(path.level, path.index)
    if not os.path.lexists(file):
        files.make_folder(file.parent, mode=0o755, follow=False)
        files.replace(file, raw, mode=_MODE, durable=True, follow=False)
    if path.width == WIDTH:  # readers of an older checkpoint use it in place of a partial one
        shutil.rmtree(file.with_name(f"{file.name}.p"), ignore_errors=True)


class _Kept:
    """A log's files, read from the folder if it has them."""

    def __init__(self, kept: FolderFiles, log: LogFiles) -> None:
        self.name = f"{log.name}, or {kept.name}"
        self._kept, self._log = kept, log

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return the file at a path."""
        raw = self._kept.read(path, max_bytes)
        return self._log.read(path, max_bytes) if raw is None else raw
