"""The parts of a log, made from its settings, and the command that begins a log.

The service itself never begins a log: with a missing or empty database it would ignore what was published before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.io import files, keyfile
from issuer.service.log.bounds import LOG_TURN_S, MAX_LOGGED_URL_CHARS
from issuer.service.log.database.engines import SCHEME, database_at, home_of
from issuer.service.log.database.store import Database, LogStore, StoreFailed, absent
from issuer.service.log.sequencer.records import (
    Evidence,
    FileRecord,
    HeadRecord,
    Records,
    RecordSilent,
    RedisRecord,
    Seal,
)
from issuer.service.log.sequencer.sequencer import Sequencer, empty_head
from issuer.service.settings.model import Settings, listed
from issuer.service.signing.key_files import kid_of, token_kids
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import NoteSigner

FOLDER = "log"


class WitnessSettings(Struct, frozen=True):
    """The witnesses of a log. `policy` is the path of a witness policy (C2SP tlog-policy). With `must_cosign`, leaves
    are answered only after a quorum has cosigned them. The witnesses in `excluded`, by their names in the policy, are
    not asked. `monitors` has the monitoring prefixes that differ from the submission prefixes. `development` allows
    plain http at loopback addresses."""

    policy: str
    must_cosign: bool = False
    excluded: frozenset[str] = frozenset()
    monitors: Mapping[str, str] = {}
    development: bool = False


class LogSettings(Struct, frozen=True):
    """The settings of a log. `database` is the path of a SQLite file or a `postgresql://` URL. `key_file` has the log's
    Ed25519 key, which must not be a token key. Token keys are in the folder `keys` and in the history, in the folder
    `data` or the log's database. `records` is a folder away from the database, `store_url` the store of limits and uses
    ("": none). `witnesses` is None for a log without witnesses."""

    origin: str
    database: str
    key_file: str
    records: str
    keys: str
    data: str
    store_url: str = ""
    passphrase: bytes | None = None
    witnesses: WitnessSettings | None = None


def read_seal(settings: LogSettings) -> Seal:
    """Read the log's key. Raises SetupError: `key.unsafe`; `key.unusable`, also for a key that signs tokens;
    `settings.invalid` for an impossible origin."""
    path = Path(settings.key_file)
    if not path.exists():
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"the log's key {path} is missing. Restore it from its backup. If it is lost, this log has ended: use the "
            "spare log, or begin another with `issuer log init` and an origin that was never used",
        )
    key = keyfile.read(path, settings.passphrase)
    with closing(home_of(Path(settings.data), settings.origin, settings.database)) as home:
        others = token_kids(Path(settings.keys), home, settings.passphrase, FOLDER)
    if kid_of(key) in others:
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{settings.key_file} is, or was, another key of this issuer: a thief of that key could rewrite the "
            "log. Use a separate key for the log",
        )
    signer = NoteSigner(settings.origin, key)
    try:
        Checkpoint(settings.origin, 0, bytes(32))
        _ = signer.verifier
    except FormatError as error:
        raise SetupError(Code.SETTINGS_INVALID, f"log.origin {settings.origin!r}: {error.detail}") from None
    return Seal(signer)


def records_of(settings: LogSettings, seal: Seal, shown: Sequence[HeadRecord] = ()) -> Records:
    """Return the log's records. Raises SetupError (`settings.invalid`) for a folder that may be lost or rolled back
    together with the database, and for PostgreSQL without a store of limits: a host's file does not have checkpoints of
    other hosts, and witnesses are not required to answer."""
    if not settings.records:
        why = "a database cannot know that an older copy replaced it"
        detail = f"log.records is not set: {why}. Name a folder for the newest checkpoint, best on another disk"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    folder = Path(settings.records).resolve()
    records: list[HeadRecord] = [FileRecord(folder, settings.origin)]
    database = _file_of(settings)
    if database is not None and (folder == database.parent or database.parent in folder.parents):
        detail = f"log.records {folder} is in the folder of the log's database: a backup would restore both"
        raise SetupError(Code.SETTINGS_INVALID, f"{detail}. Name a folder elsewhere, best on another disk")
    if database is None and not settings.store_url:
        detail = "store.url is embedded, but several hosts may write a log in PostgreSQL, and the log.records of one "
        todo = "do not have the checkpoints of another. Name the store that all hosts share: it has their checkpoints"
        raise SetupError(Code.SETTINGS_INVALID, detail + todo)
    if settings.store_url:
        records.append(RedisRecord(settings.store_url, settings.origin))
    return Records(seal, (*records, *shown))


@contextmanager
def turn(settings: LogSettings, wait_s: float = LOG_TURN_S) -> Iterator[None]:
    """Hold the lock of a log in a SQLite file, which has only one writer: two writers can lose pages
    (`database/sqlite.py`). Raises SetupError if another process has it. PostgreSQL needs no such lock: its hosts lock
    the head's row."""
    if (path := _file_of(settings)) is None:
        yield
        return
    lock = path.with_suffix(".lock")
    try:
        with files.locked(lock, shared=True, wait_s=wait_s):
            yield
    except BlockingIOError:
        detail = f"another process writes the log at {path}. Stop the service first, or wait until it has ended"
        raise SetupError(Code.STATE_UNREACHABLE, detail) from None
    except FileNotFoundError:
        raise absent(str(path)) from None
    except OSError as error:
        raise SetupError(Code.SETTINGS_INVALID, f"{lock}: {error.strerror}") from None


def sequencer_of(settings: LogSettings, seal: Seal | None = None, shown: Sequence[HeadRecord] = ()) -> Sequencer:
    """Return the sequencer of a log, not started yet. `shown` are the witnesses' records. Raises SetupError."""
    seal = seal or read_seal(settings)
    return Sequencer(LogStore(database_at(settings.database)), seal, records_of(settings, seal, shown))


def init(settings: LogSettings, shown: Sequence[HeadRecord] = ()) -> None:
    """Begin a log of a new origin with the empty tree, and make its records. `shown` are the witnesses'
    records, in case the key is not new. Raises SetupError: `settings.invalid` if the database has a log,
    `log.rollback` if a record shows leaves of it."""
    seal = read_seal(settings)
    records = records_of(settings, seal, shown)
    make_folders(settings)
    with turn(settings), opened(database_at(settings.database)) as store, closing(records):
        if not store.database.is_empty():
            detail = f"{store.database.place} is not empty. A log is begun only once: use another place for another log"
            raise SetupError(Code.SETTINGS_INVALID, detail)
        for evidence in records.ask():
            _demand_unused(evidence)
        records.raise_to(seal.sign(empty_head(settings.origin)), _demand_unused)
        store.database.begin()
        store.create(empty_head(settings.origin))
        store.database.commit()


def _demand_unused(evidence: Evidence) -> None:
    if evidence.checkpoint.size:
        detail = f"the log {evidence.checkpoint.origin} has leaves already, as {evidence.name} shows. Restore its "
        todo = "database with `issuer log restore SOURCE`, or begin another log, with an origin that was never used"
        raise SetupError(Code.LOG_ROLLBACK, detail + todo)


def _file_of(settings: LogSettings) -> Path | None:
    """Return the path of a SQLite file; None for PostgreSQL."""
    return None if settings.database.startswith(SCHEME) else Path(settings.database).resolve()


def make_folders(settings: LogSettings) -> None:
    """Make the folders of database and records if they are missing. Raises SetupError."""
    database = _file_of(settings)
    for folder in (Path(settings.records), *([database.parent] if database else [])):
        try:
            files.make_folder(folder, shared=True)
        except OSError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"{folder} cannot be made: {error.strerror}") from None


@contextmanager
def opened(database: Database) -> Iterator[LogStore]:
    """Open or make a log's database, for a command of the operator. Raises SetupError."""
    try:
        database.open(create=True)
        yield LogStore(database)
    except (StoreFailed, RecordSilent) as error:
        detail = f"the log at {database.place} cannot be written: {error}"
        raise SetupError(Code.STATE_UNREACHABLE, detail) from error
    finally:
        database.close()


def log_settings(settings: Settings, store_url: str) -> LogSettings:
    """Return the settings of the log, with defaults. Raises SetupError."""
    if len(settings.url) > MAX_LOGGED_URL_CHARS:  # each request would spend its identity token, and then fail
        detail = f"url has {len(settings.url)} characters: a leaf of the log has room for only {MAX_LOGGED_URL_CHARS}"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return LogSettings(
        origin=settings.log.origin,
        database=settings.log_place,
        key_file=settings.log.key_file or str(settings.keys_folder / "log" / "log.pem"),
        records=settings.log.records,
        keys=settings.keys.folder,
        data=settings.data,
        store_url=store_url,
        passphrase=settings.passphrase(),
        witnesses=_witness_settings(settings),
    )


def _witness_settings(settings: Settings) -> WitnessSettings | None:
    """Return the settings of the witnesses; None for a log without witnesses. Raises SetupError."""
    others = (settings.log.witnesses == "sync", settings.log.witnesses_excluded, settings.log.witness_monitors)
    if not settings.log.witness_policy:
        if any(others):
            detail = "log.witness_policy is not set: the other settings of witnesses need a policy that names them"
            raise SetupError(Code.SETTINGS_INVALID, detail)
        return None
    return WitnessSettings(
        settings.log.witness_policy,
        must_cosign=settings.log.witnesses == "sync",
        excluded=frozenset(listed(settings.log.witnesses_excluded)),
        monitors=dict(_monitor(each) for each in listed(settings.log.witness_monitors)),
        development=settings.development,
    )


def _monitor(text: str) -> tuple[str, str]:
    name, separator, url = text.partition("=")
    if not separator:
        raise SetupError(Code.SETTINGS_INVALID, "log.witness_monitors: write NAME=URL, separated by commas")
    return name, url
