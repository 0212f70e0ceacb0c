"""`issuer log init`, `accept` and `restore`, by which an operator starts and repairs a transparency log.

Exit codes (contract section 6): 0 done, and the service can start; 1 the source of `restore` contradicts its
checkpoint; 3 the settings are malformed, or the source is not a log; 4 the audit file cannot be written, the source
cannot be read now, or no record confirms the size; 6 the log, its origin or a record contradicts the command, or a
file cannot be written.
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
from issuer.cli.operate.operator import record_in_audit, who
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
    from issuer.service.log.sequencer.restore import LeafSource, Restored
    from issuer.service.log.sequencer.setup import LogSettings
    from issuer.service.settings.model import Settings


def _is_database(source: str) -> bool:
    return source.startswith(SCHEME) or Path(source).is_file()


def open_files(source: str) -> LogFiles:
    """Return the files of a log: at a URL, in a folder, or in a sequencer's database."""
    return _database(source) if _is_database(source) else open_log(source)


def _database(place: str) -> StoredFiles:
    from issuer.service.log.database.public import StoredFiles  # needs the server's packages

    return StoredFiles(place)


def log_of(settings: Settings) -> LogSettings:
    """Return the log that the settings name. Raises SetupError if they name no log.

    An embedded store loses its data when the service stops. Only a store with a URL may have a record of the log.
    """
    from issuer.service.log.sequencer.setup import log_settings
    from issuer.service.settings.model import EMBEDDED

    if not settings.log.origin:
        detail = (
            "the settings name no log: log.origin is missing. `issuer log init` starts a log and prints its settings"
        )
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)


@click.command("init")
@config_option
def init_log(config: Path | None) -> None:
    """Start the log that the settings name: make its key, the empty tree, and its records. Run this once.

    Without `log.origin` the command generates a new origin from the issuer's URL. It prints the lines for the settings
    and for witness policies. It replaces nothing, and uses an existing key.
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
        init(log, () if made else shown_now(log, read_seal(log)))  # no witness knows a new key
    except BaseException:  # remove the unused key, so that the next run can make one
        if made:
            Path(log.key_file).unlink()
        raise
    key, empty = f"{'made' if made else 'uses'}   {log.key_file}", database_at(log.database).place
    say(printable(f"begun  {log.origin}\n{key}\nempty  {empty}\nrecord {log.records}", "\n"))
    say(_LINES.format(origin=printable(origin), vkey=printable(read_seal(log).verifier.to_text())))


def _origin_for(url: str, now: int) -> str:
    """Return a new origin: the issuer's URL without its scheme, the day, and a random number."""
    day = datetime.fromtimestamp(now, UTC).date()
    return f"{url.partition('://')[2]}/log/{day}-{secrets.token_hex(2)}"


def _make_key(log: LogSettings) -> bool:
    """Make the log's key unless it exists, and return whether it was made. Raises SetupError and OSError."""
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

For the witness policies of relying parties, monitors and witnesses:

log {vkey}"""

_ROOT = re.compile(r"[0-9a-f]{64}")


def _root(_: click.Context, __: click.Parameter, text: str) -> bytes:
    if not _ROOT.fullmatch(text):
        raise click.BadParameter("give 64 lowercase hex digits, from the error of the refused start")
    return bytes.fromhex(text)


@click.command("accept")
@click.option("--size", required=True, type=click.IntRange(0, 2**63 - 1), metavar="N", help="The number of leaves.")
@click.option("--root", required=True, callback=_root, metavar="HEX", help="The root in the error at the start.")
@audit_reason_option
@config_option
def accept_log(size: int, root: bytes, reason: str, config: Path | None) -> None:
    """Declare that this is the last checkpoint that the log has published, if no record is left to confirm it.

    If the log has published a later checkpoint, its next leaf creates a fork, and witnesses and monitors can prove that
    for ever. Ask them first. The command cannot overrule a record of a larger tree. It writes your name and reason to
    the audit file before it writes a record.
    """
    from issuer.audit.events import LogAccepted
    from issuer.service.log.sequencer.restore import accept

    settings = _logged_settings(config)
    log = log_of(settings)
    event = LogAccepted(int(time.time()), log.origin, size, root.hex(), who(), reason)
    accept(log, size, root, lambda: record_in_audit(settings, event))
    say(f"accepted {printable(log.origin)}: {size} leaves, root {root.hex()}. The service can start.")


def _logged_settings(config: Path | None) -> Settings:
    """Configure the log stream, and read the settings."""
    from issuer.service.settings.log_stream import configure_logging
    from issuer.service.settings.reader import read_settings

    configure_logging()
    return read_settings(config)


@click.command("restore")
@click.argument("source", metavar="SOURCE")
@config_option
def restore_log(source: str, config: Path | None) -> None:
    """Append the leaves that the log's database lacks, from SOURCE: a URL, a folder of files, or a database.

    SOURCE may be a mirror, an export or an old database, and need not be trusted. The command takes the largest
    checkpoint that this log signed and that a record or SOURCE shows. It checks each part against that checkpoint
    before it appends it. Stop the service first. After an interruption, run the command again to continue.
    """
    from issuer.service.log.sequencer.restore import restore

    log = log_of(_logged_settings(config))
    done = restore(log, _source_of(source))
    say(_describe(done))
    if not done.is_recorded:
        say(_UNRECORDED.format(size=done.head.size, root=done.head.root.hex()), err=True)
        sys.exit(Exit.UNDECIDED)


def _source_of(text: str) -> LeafSource:
    return DatabaseSource(_database(text)) if _is_database(text) else FilesSource(open_log(text))


class FilesSource:
    """A `restore.Source` of public files. Their checkpoint gives the size."""

    def __init__(self, log: LogFiles) -> None:
        self.name = log.name
        self._log = log
        head = read_unverified_head(log)
        self.size, self.note = head.checkpoint.size, head.note.to_bytes()

    def tree(self, checkpoint: Checkpoint) -> Tree:
        """Return the tree of a checkpoint. Its readers raise VerificationError if the files are of another tree."""
        return Tree(self._log, checkpoint)

    def cosigned(self) -> Iterable[tuple[int, bytes]]:
        """Return no checkpoints: only a witness policy could say whether the one here has a quorum."""
        return ()


class DatabaseSource:
    """A `restore.Source` of a log's database, to which no process may write meanwhile."""

    def __init__(self, log: StoredFiles) -> None:
        self._log = log
        self.name, self.note = log.name, log.read(CHECKPOINT_PATH, MAX_NOTE_BYTES)
        head = log.reader.head()
        if head is None:
            raise InputError(Code.FILE_UNREADABLE, "the database contains no log", Place(self.name))
        self.size = head.size

    def tree(self, checkpoint: Checkpoint) -> Tree:
        """Return the tree of a checkpoint. Its readers raise VerificationError if the database has another tree."""
        return Tree(self._log, checkpoint)

    def cosigned(self) -> Iterator[tuple[int, bytes]]:
        """Yield the checkpoints that have reached the quorum."""
        size = 0
        while (kept := self._log.reader.cosigned_over(size)) is not None:
            yield kept
            size = kept[0] + 1


def _describe(done: Restored) -> str:
    head = done.head
    added = f"appended {head.size - done.before} leaves" if head.size > done.before else "no leaves were missing"
    return printable(f"{head.origin}: {added}, as {done.by} shows. Now it has {head.size}, root {head.root.hex()}")


_UNRECORDED = (
    "No record confirms that this is the whole log. Ask witnesses and monitors for a later checkpoint. If there is "
    "none, run `issuer log accept --size {size} --root {root} --reason WHY`"
)
