"""`issuer log init`, `accept` and `restore`: commands that begin a transparency log, and mend it.

Exit codes (contract section 6): 0 done, and the service can start; 1 the source of `restore` is not what it says; 3 the
settings are malformed, or the source is not a log; 4 the audit cannot be written, the source cannot be read now, or no
record confirms the size; 6 the log, its origin or a record refuses, or a file cannot be written.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import tell, who
from issuer.cli.options import audit_reason_option, config_option
from issuer.cli.terminal import printable, say
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.io import files, keyfile
from issuer.relying.logs.reader import CHECKPOINT_PATH, LogFiles, Tree, open_log, read_unverified_head
from issuer.service.log.database.engines import SCHEME
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import MAX_NOTE_BYTES

if TYPE_CHECKING:
    from issuer.service.log.database.public import StoredFiles
    from issuer.service.log.sequencer.restore import Restored, Source
    from issuer.service.log.sequencer.setup import LogSettings
    from issuer.service.settings.model import Settings


def _is_database(source: str) -> bool:
    return source.startswith(SCHEME) or Path(source).is_file()


def open_files(source: str) -> LogFiles:
    """Return the files of a log: at a URL, in a folder, or in the database that a sequencer writes."""
    return _database(source) if _is_database(source) else open_log(source)


def _database(place: str) -> StoredFiles:
    from issuer.service.log.database.public import StoredFiles  # an operator's; nobody else has what it needs

    return StoredFiles(place)


# -- init -------------------------------------------------------------------------------------------------------------


def log_of(settings: Settings) -> LogSettings:
    """Return the log that the settings name. Raises SetupError where they name none.

    A child Valkey forgets when the service stops: only a store that is named is asked what it knows of the log.
    """
    from issuer.service.log.sequencer.setup import log_settings
    from issuer.service.settings.model import EMBEDDED

    if not settings.log.origin:
        detail = "log.origin is not set: there is no log. `issuer log init` begins one, and prints what to set"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)


@click.command("init")
@config_option
def init_log(config: Path | None) -> None:
    """Begin the log that the settings name: its key, the empty tree, and its records. Once.

    Without `log.origin` it makes one up that was never used, after the issuer's URL. It prints what to put into the
    settings, and the line by which witness policies name the log. Nothing is replaced: a key that is there is used.
    """
    from issuer.service.log.database.engines import database_at
    from issuer.service.log.sequencer.restore import shown_now
    from issuer.service.log.sequencer.setup import init, read_seal
    from issuer.service.settings.model import changed
    from issuer.service.settings.reader import read_settings

    settings = read_settings(config)
    origin = settings.log.origin or _origin_for(settings.url, int(time.time()))
    log = log_of(changed(settings, log_origin=origin))
    made = _make_key(log)
    try:
        init(log, () if made else shown_now(log, read_seal(log)))  # nobody knows what a new key has signed
    except BaseException:  # without a log the key is nobody's, and the next one finds no key in its way
        if made:
            Path(log.key_file).unlink()
        raise
    key, empty = f"{'made' if made else 'uses'}   {log.key_file}", database_at(log.database).place
    say(printable(f"begun  {log.origin}\n{key}\nempty  {empty}\nrecord {log.records}", "\n"))
    say(_LINES.format(origin=printable(origin), vkey=printable(read_seal(log).verifier.to_text())))


def _origin_for(url: str, now: int) -> str:
    """Return an origin line that was never used: the issuer's URL without its scheme, the day, and a random number."""
    day = datetime.fromtimestamp(now, UTC).date()
    return f"{url.partition('://')[2]}/log/{day}-{secrets.token_hex(2)}"


def _make_key(log: LogSettings) -> bool:
    """Make the log's key, unless there is one; say whether it was made. Raises SetupError and OSError."""
    path = Path(log.key_file)
    files.make_folder(path.parent, follow=False, shared=True)
    try:
        keyfile.write(path, keyfile.generate(), log.passphrase)
    except FileExistsError:
        return False
    return True


_LINES = """
For the settings file:

log:
  origin: "{origin}"

For witness policies: those of relying parties, of monitors and of witnesses:

log {vkey}"""


# -- accept -----------------------------------------------------------------------------------------------------------

_ROOT = re.compile(r"[0-9a-f]{64}")


def _root(_: click.Context, __: click.Parameter, text: str) -> bytes:
    if not _ROOT.fullmatch(text):
        raise click.BadParameter("64 lowercase hex digits, as the refused start says them")
    return bytes.fromhex(text)


@click.command("accept")
@click.option("--size", required=True, type=click.IntRange(0, 2**63 - 1), metavar="N", help="How many leaves it has.")
@click.option("--root", required=True, callback=_root, metavar="HEX", help="Its root, as the refused start says it.")
@audit_reason_option
@config_option
def accept_log(size: int, root: bytes, reason: str, config: Path | None) -> None:
    """Say that nobody has seen a later checkpoint of the log than this one, where no record is left to say it.

    If somebody has, the next leaf is a fork, which witnesses and monitors will show, for ever: ask them first. A record
    that knows more cannot be overruled. The audit has who did it and why, before any record says so.
    """
    from issuer.audit.events import LogAccepted
    from issuer.service.log.sequencer.restore import accept

    settings = _logged_settings(config)
    log = log_of(settings)
    event = LogAccepted(int(time.time()), log.origin, size, root.hex(), who(), reason)
    accept(log, size, root, lambda: tell(settings, event))
    say(f"accepted {printable(log.origin)}: {size} leaves, root {root.hex()}. The service can start.")


def _logged_settings(config: Path | None) -> Settings:
    """Read the settings, for a command that writes to the log stream."""
    from issuer.service.settings.log_stream import configure_logging
    from issuer.service.settings.reader import read_settings

    configure_logging()
    return read_settings(config)


# -- restore ----------------------------------------------------------------------------------------------------------


@click.command("restore")
@click.argument("source", metavar="SOURCE")
@config_option
def restore_log(source: str, config: Path | None) -> None:
    """Append the leaves that the log's database lacks, from SOURCE: a URL, a folder of files, or a database.

    A mirror, an export, the database of before: nobody has to believe it. What is appended is exactly what was
    published, by the largest checkpoint that this log signed and that a record or SOURCE shows, and each part is
    compared with that before it is written. Run it again after an interruption: it goes on. Stop the service first.
    """
    from issuer.service.log.sequencer.restore import restore

    log = log_of(_logged_settings(config))
    done = restore(log, _source_of(source))
    say(_describe(done))
    if not done.is_recorded:
        say(_UNRECORDED.format(size=done.head.size, root=done.head.root.hex()), err=True)
        sys.exit(Exit.UNDECIDED)


def _source_of(text: str) -> Source:
    return DatabaseSource(_database(text)) if _is_database(text) else FilesSource(open_log(text))


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

    def __init__(self, log: StoredFiles) -> None:
        self._log = log
        self.name, self.note = log.name, log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
        head = log.reader.head()
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


def _describe(done: Restored) -> str:
    head = done.head
    added = f"{head.size - done.before} leaves were missing" if head.size > done.before else "nothing was missing"
    by = f"as {done.by} shows"
    return printable(f"{head.origin}: {added}, {by}. Now it has {head.size}, root {head.root.hex()}")


_UNRECORDED = (
    "No record says that this was all. Make sure that nobody has seen a later checkpoint (ask witnesses and monitors), "
    "and run `issuer log accept --size {size} --root {root} --reason WHY`"
)
