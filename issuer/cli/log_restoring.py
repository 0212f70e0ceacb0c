"""The sources of `issuer log restore`: public files, by URL or in a folder, and databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.relying.log_checkpoint import CHECKPOINT_PATH, read_unverified_head
from issuer.relying.log_files import LogFiles, open_log
from issuer.relying.log_tree import Tree
from issuer.service.log.engines import SCHEME
from issuer.service.log.restore import Source
from issuer.service.log.stored_files import StoredFiles
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import MAX_NOTE_BYTES


def open_source(text: str) -> Source:
    """Return the source that a command line names. Raises what its reader raises, and InputError for none."""
    if text.startswith(SCHEME) or Path(text).is_file():
        return DatabaseSource(text)
    return FilesSource(open_log(text))


class FilesSource:
    """Implements `restore.Source` by public files, whose checkpoint says how far they go."""

    def __init__(self, log: LogFiles) -> None:
        self.name = log.name
        self._log = log
        head = read_unverified_head(log)
        self.size, self.note = head.checkpoint.size, head.note.to_bytes()

    def tree(self, checkpoint: Checkpoint) -> Tree:
        """Show the tree of a checkpoint. Raises VerificationError where the files are not of that tree."""
        return Tree(self._log, checkpoint)

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        """Return nothing: whether its checkpoint has the quorum, only a policy says."""
        return ()


class DatabaseSource:
    """Implements `restore.Source` by a log's database that nobody writes meanwhile."""

    def __init__(self, place: str) -> None:
        self._log = StoredFiles(place)
        self.name, self.note = self._log.name, self._log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
        head = self._log.reader.head()
        if head is None:
            raise InputError(Code.FILE_UNREADABLE, "no log was begun there", Place(self.name))
        self.size = head.size

    def tree(self, checkpoint: Checkpoint) -> Tree:
        """Show the tree of a checkpoint. Raises VerificationError where the database has another one."""
        return Tree(self._log, checkpoint)

    def cosigned(self) -> Iterator[tuple[int, bytes]]:
        """Return the checkpoints that have reached the quorum."""
        size = 0
        while (kept := self._log.reader.cosigned_over(size)) is not None:
            yield kept
            size = kept[0] + 1
