"""A log put together from its settings: to be begun, and to be written.

The service never begins a log: who serves by a database that is missing or empty forgets what was published.
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
from issuer.service.log.database.store import Database, Store, StoreFailed, absent
from issuer.service.log.sequencer.records import Evidence, FileRecord, Record, Records, RecordSilent, RedisRecord, Seal
from issuer.service.log.sequencer.sequencer import Sequencer, empty_head
from issuer.service.settings.model import Settings, listed
from issuer.service.signing.key_files import kid_of, token_kids
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import NoteSigner

FOLDER = "log"


class WitnessSettings(Struct, frozen=True):
    """Who cosigns a log, and how these are asked.

    `policy` is the path of a witness policy (C2SP tlog-policy). `must_cosign`: leaves are not answered before a quorum
    has cosigned them. `excluded` are not asked, by their names in the policy; `monitors` has the prefixes where
    witnesses show checkpoints, where these are not their submission prefixes. `development` allows plain http at
    loopback addresses.
    """

    policy: str
    must_cosign: bool = False
    excluded: frozenset[str] = frozenset()
    monitors: Mapping[str, str] = {}
    development: bool = False


class LogSettings(Struct, frozen=True):
    """What a log is made of.

    `database` is the path of a SQLite file or a `postgresql://` URL; `key_file` holds the log's Ed25519 key, which is
    none of the token keys under `keys` or in the history, which is in `data` or beside the log; `records` is a folder
    elsewhere than the database, `store_url` the store of limits and uses ("": none). Without `witnesses` nobody
    cosigns.
    """

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
    """Read the log's key. Raises SetupError: `key.unsafe`, `key.unusable`, also for one that signs tokens, and
    `settings.invalid` for an origin that no log has."""
    path = Path(settings.key_file)
    if not path.exists():
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"the log's key {path} is not there. Bring it back from its backup. If it is lost, the log has ended: "
            "go on with its spare, or begin another one by `issuer log init`, with an origin that was never used",
        )
    key = keyfile.read(path, settings.passphrase)
    with closing(home_of(Path(settings.data), settings.origin, settings.database)) as home:
        others = token_kids(Path(settings.keys), home, settings.passphrase, FOLDER)
    if kid_of(key) in others:
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{settings.key_file} signs something else of this issuer, or did: who stole that key could rewrite the "
            "log. Take another key for it",
        )
    signer = NoteSigner(settings.origin, key)
    try:
        Checkpoint(settings.origin, 0, bytes(32))
        _ = signer.verifier
    except FormatError as error:
        raise SetupError(Code.SETTINGS_INVALID, f"log.origin {settings.origin!r}: {error.detail}") from None
    return Seal(signer)


def records_of(settings: LogSettings, seal: Seal, shown: Sequence[Record] = ()) -> Records:
    """Return the log's records. Raises SetupError (`settings.invalid`) for a folder that is lost with the database, and
    for a server's database without a store of limits: a host's own file does not know what another one has published,
    and a witness that is away must stop nobody."""
    if not settings.records:
        why = "a database that was put back to an older state cannot know that it was"
        detail = f"log.records is not set: {why}. Name a folder for the newest checkpoint, best on another disk"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    folder = Path(settings.records).resolve()
    records: list[Record] = [FileRecord(folder, settings.origin)]
    database = _file_of(settings)
    if database is not None and (folder == database.parent or database.parent in folder.parents):
        detail = f"log.records {folder} is in the folder of the log's database: who puts one back puts back both"
        raise SetupError(Code.SETTINGS_INVALID, f"{detail}. Name a folder elsewhere, best on another disk")
    if database is None and not settings.store_url:
        detail = "store.url is embedded, and several hosts may write a log in PostgreSQL: what one has published, the "
        way_on = "log.records of another does not know. Name the store that all of them share: it keeps that, too"
        raise SetupError(Code.SETTINGS_INVALID, detail + way_on)
    if settings.store_url:
        records.append(RedisRecord(settings.store_url, settings.origin))
    return Records(seal, (*records, *shown))


@contextmanager
def turn(settings: LogSettings, wait_s: float = LOG_TURN_S) -> Iterator[None]:
    """Hold the turn to write a log in a SQLite file: two that put what was written ahead into the file lose pages.
    Raises SetupError where another process has it. PostgreSQL lets several hosts take turns by itself."""
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


def sequencer_of(settings: LogSettings, seal: Seal | None = None, shown: Sequence[Record] = ()) -> Sequencer:
    """Return the sequencer of a log, not started yet; `shown` are further records of it. Raises SetupError."""
    seal = seal or read_seal(settings)
    return Sequencer(Store(database_at(settings.database)), seal, records_of(settings, seal, shown))


def init(settings: LogSettings, shown: Sequence[Record] = ()) -> None:
    """Begin a log with the empty tree, whose origin was never used, and make its records. What witnesses have `shown`
    are further records of a log whose key is not new.

    Raises SetupError: `settings.invalid` where a log was begun already, `log.rollback` where a record knows this one.
    """
    seal = read_seal(settings)
    records = records_of(settings, seal, shown)
    make_folders(settings)
    with turn(settings), opened(database_at(settings.database)) as store, closing(records):
        if not store.database.is_empty():
            detail = f"{store.database.place} is not empty. A log is begun once: take another place for another log"
            raise SetupError(Code.SETTINGS_INVALID, detail)
        for known in records.ask():
            _demand_unused(known)
        records.raise_to(seal.sign(empty_head(settings.origin)), _demand_unused)
        store.database.begin()
        store.create(empty_head(settings.origin))
        store.database.commit()


def _demand_unused(known: Evidence) -> None:
    if known.checkpoint.size:
        detail = f"the log {known.checkpoint.origin} has leaves already, as {known.name} shows. Bring its database back"
        another = " with `issuer log restore SOURCE`, or begin another log, with an origin that was never used"
        raise SetupError(Code.LOG_ROLLBACK, detail + another)


def _file_of(settings: LogSettings) -> Path | None:
    """Return the path of a SQLite file, None for a server."""
    return None if settings.database.startswith(SCHEME) else Path(settings.database).resolve()


def make_folders(settings: LogSettings) -> None:
    """Make the folders of database and records where they are missing. Raises SetupError."""
    database = _file_of(settings)
    for folder in (Path(settings.records), *([database.parent] if database else [])):
        try:
            files.make_folder(folder, shared=True)
        except OSError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"{folder} cannot be made: {error.strerror}") from None


@contextmanager
def opened(database: Database) -> Iterator[Store]:
    """Open a log's database, or make it, for a command of the operator. Raises SetupError."""
    try:
        database.open(create=True)
        yield Store(database)
    except (StoreFailed, RecordSilent) as error:
        detail = f"the log at {database.place} cannot be written: {error}"
        raise SetupError(Code.STATE_UNREACHABLE, detail) from error
    finally:
        database.close()


def log_settings(settings: Settings, store_url: str) -> LogSettings:
    """Return what the log is made of, the defaults filled in. Raises SetupError."""
    if len(settings.url) > MAX_LOGGED_URL_CHARS:  # each token would use its identity token up, and then have no leaf
        detail = f"url has {len(settings.url)} characters: a leaf of the log has room for {MAX_LOGGED_URL_CHARS}"
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
    """Return who cosigns the log; None where nobody needs to. Raises SetupError."""
    asked = (settings.log.witnesses == "sync", settings.log.witnesses_excluded, settings.log.witness_monitors)
    if not settings.log.witness_policy:
        if any(asked):
            detail = "log.witness_policy: the other settings of witnesses mean nothing without a policy that names them"
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
