"""A log's tree as files in a folder: a mirror that any static web server, or `file:`, can show.

Tiles first, each durable and in its place in one step, and the checkpoint last: whatever is killed when, the folder is
a whole tree of the size that its checkpoint says. What is there already is read there; all is checked on its way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from issuer import files
from issuer.relying.log_checkpoint import CHECKPOINT_PATH, Head, parse_head
from issuer.relying.log_files import FolderFiles, LogFiles, unverified
from issuer.relying.log_tree import Tree
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import MAX_NOTE_BYTES
from issuer.tlog.tiles import WIDTH, TilePath, grown, write_entries

_MODE = 0o644  # public, as all that a log serves


def export(log: LogFiles, head: Head, folder: Path, tick: Callable[[int], object] = lambda _: None) -> int:
    """Bring a folder to a log's head; return the size that it had before. `tick` is told how many files are done.

    Raises VerificationError(`log.unverified`) where the log is not what the head says, or not the one that the folder
    has a part of: then nothing in the folder is replaced. OSError for a full disk; the next call goes on from there.
    """
    folder = Path(os.path.realpath(folder))  # it may be a link, and nothing in it is one
    files.make_folder(folder, mode=0o755, follow=False)
    before = _exported(folder)
    if before is not None and before != head.checkpoint:
        _demand_grown(before, head.checkpoint, log)
    tree = Tree(_Kept(FolderFiles(folder), log), head.checkpoint)
    for done, path in enumerate(grown(before.size if before else 0, tree.size), 1):
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
