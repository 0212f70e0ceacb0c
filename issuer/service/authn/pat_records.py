"""The records of personal access tokens: a folder with one JSON file per token, named by its public id.

    pats/<id>.json     0600, in a folder of mode 0700; written under another name and renamed
    pats/used/<id>     empty; its mtime is the time of the last use, to the minute

A record has the SHA-256 of its token, never the token. The records are files like keys and policies, because the store
of limits may be flushed, restored or lost: credentials must neither return nor vanish with it, and can be revoked while
it is down. We considered SQLite: it would be shorter, but files can be mounted and synced between hosts, and recording
the last use writes no data on the event loop.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError, reading
from issuer.formats.strict_json import convert, loads
from issuer.formats.times import LEEWAY_S, UnixTime
from issuer.identity import pat
from issuer.io import files

DAY_S = 86_400
MAX_LIFE_S = 90 * DAY_S
USED = "used"
MAX_BYTES = 16 * 1024

ACCOUNT_RULE = "an account is 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and begins with a letter or digit"
SCOPE_RULE = "a scope is 1 to 128 printable ASCII characters without space, quote and backslash (RFC 6749 3.3)"
NETWORK_RULE = "a network is a range like 192.0.2.0/24 or 2001:db8::/48, without host bits, for IPv6 of /64 or shorter"

_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(pat.ID_PATTERN)
_FILE = re.compile(rf"{pat.ID_PATTERN}\.json")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
State = Literal["active", "expired", "revoked", "future"]


class PatRecord(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The record of one token. Times are Unix seconds. Without `networks` it is valid from every address.

    `account` is the stable name that policies pin: the next token of the account has the same one.
    """

    version: Literal[1]
    id: str
    account: str
    scopes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=32)]
    created: UnixTime
    expires: UnixTime
    sha256: str
    networks: Annotated[tuple[str, ...], Meta(max_length=256)] = ()
    revoked: UnixTime | UnsetType = UNSET

    def state(self, now: int) -> State:
        """Return the state at `now`. A token from the future is not active: it would live longer than 90 days."""
        if self.revoked is not UNSET:
            return "revoked"
        if self.created > now + LEEWAY_S:
            return "future"
        return "active" if now < self.expires else "expired"

    def may_come_from(self, source: str) -> bool:
        """Return whether a source (an IPv4 address or an IPv6 /64) is in one of the networks. Without networks, every
        source may use the token."""
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_network(source)
        except ValueError:  # fail closed: the source is unknown
            return False
        return any(_is_within(address, ipaddress.ip_network(network)) for network in self.networks)


def _is_within(address: Network, network: Network) -> bool:
    return address.version == network.version and address.subnet_of(network)  # type: ignore[arg-type]


# -- rules ------------------------------------------------------------------------------------------------------------


def is_id(text: str) -> bool:
    """Return whether a text has the form of a token's public id."""
    return _ID.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Return whether a text is an account (ACCOUNT_RULE)."""
    return _ACCOUNT.fullmatch(text) is not None


def is_scope(text: str) -> bool:
    """Return whether a text is one word of a scope (SCOPE_RULE)."""
    return _SCOPE.fullmatch(text) is not None


def canonical_network(text: str) -> str | None:
    """Return a network in the form of `ipaddress`, None for any other text (NETWORK_RULE)."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return None
    # Of a source, the service knows only the /64 (`http.reading.source_of`), so it cannot check a longer prefix.
    return str(network) if network.version == 4 or network.prefixlen <= 64 else None


def _broken_rules(record: PatRecord, token_id: str) -> Iterator[tuple[str, str]]:
    """Yield the pointer of each member that breaks a rule, and the rule."""
    if record.id != token_id:
        yield "/id", "a record's file must be named by its id"
    if not is_account(record.account):
        yield "/account", ACCOUNT_RULE
    for index, scope in enumerate(record.scopes):
        if not is_scope(scope):
            yield f"/scopes/{index}", SCOPE_RULE
    for index, network in enumerate(record.networks):
        if canonical_network(network) != network:
            yield f"/networks/{index}", NETWORK_RULE
    if not 0 < record.expires - record.created <= MAX_LIFE_S:
        yield "/expires", "a token must expire after its creation, at most 90 days later"
    if not _SHA256.fullmatch(record.sha256):
        yield "/sha256", "a digest is 64 lowercase hexadecimal characters"


# -- the folder -------------------------------------------------------------------------------------------------------


def path_of(folder: Path, token_id: str) -> Path:
    """Return the path of a token's record; the id must be well-formed (`is_id`)."""
    return folder / f"{token_id}.json"


def read_record(path: Path) -> PatRecord:
    """Read one record. Raises InputError with the file and the place in it, without its content."""
    return _parse(files.read(path, MAX_BYTES, private=True), path)


def _parse(raw: bytes, path: Path) -> PatRecord:
    with reading(str(path)):
        record = convert(loads(raw, max_bytes=MAX_BYTES, max_depth=2), PatRecord)
        for pointer, rule in _broken_rules(record, path.stem):
            raise FormatError(Code.FILE_RULE, rule, pointer)
    return record


def read_records(folder: Path) -> tuple[list[PatRecord], list[InputError]]:
    """Return the good records of a folder, oldest first, and the errors of the others. Raises SetupError."""
    good, bad = [], []
    for name in sorted(list_names(folder)):
        try:
            good.append(read_named(folder, name))
        except InputError as error:
            bad.append(error)
    return sorted(good, key=lambda record: record.created), bad


def read_named(folder: Path, name: str) -> PatRecord:
    """Read the record in a file. Raises as `read_record` does, and InputError for a name other than `<id>.json`."""
    if not _FILE.fullmatch(name):
        rule = "this folder is only for records named <id>.json: remove this file"
        raise InputError(Code.FILE_RULE, rule, Place(str(folder / name)))
    return read_record(folder / name)


def list_names(folder: Path) -> list[str]:
    """List the files that should be records, without drafts and last uses. Raises SetupError and OSError."""
    if check_folder(folder) is None:
        return []
    return [name for name in os.listdir(folder) if name != USED and not name.startswith(".")]


def check_folder(folder: Path) -> os.stat_result | None:
    """Return the status of the folder, None if it does not exist. Raises SetupError if other users may open it: with
    write access they could make tokens."""
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(Code.MACHINE_FAILED, f"{folder} cannot be read: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise SetupError(Code.SETTINGS_INVALID, f"{folder} is not a folder")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise SetupError(Code.FILE_UNSAFE, f"{folder} has mode {mode:04o}. Run `chmod 700 {folder}`")
    if status.st_uid not in {os.geteuid(), 0}:
        raise SetupError(Code.MACHINE_FAILED, f"{folder} belongs to another user: run this as the service's user")
    return status


def last_used(folder: Path, token_id: str) -> int | None:
    """Return when a token was last used, in Unix seconds to the minute, or None."""
    try:
        return int(os.stat(folder / USED / token_id, follow_symlinks=False).st_mtime)
    except OSError:
        return None


def write_used(folder: Path, token_id: str, now: int) -> None:
    """Record the last use of a token as the times of an empty file. Raises OSError."""
    path = folder / USED / token_id
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.utime(descriptor, (now, now))
    finally:
        os.close(descriptor)


# -- the operator's side ----------------------------------------------------------------------------------------------


class Order(Struct, frozen=True):
    """An operator's order for a new token, with the members of its record."""

    account: str
    scopes: Sequence[str]
    networks: Sequence[str]
    life_s: int


def create(folder: Path, order: Order, *, now: int, random: bytes) -> tuple[str, PatRecord]:
    """Make a token from new random bytes and write its record, in a new folder if necessary. Return the token, which is
    not stored. Raises InputError for a member that breaks its rule, and SetupError."""
    token = pat.make(random)
    record = PatRecord(
        version=1,
        id=str(pat.token_id(token)),
        account=order.account,
        scopes=tuple(order.scopes),
        created=now,
        expires=now + order.life_s,
        sha256=pat.digest(token).hex(),
        networks=tuple(order.networks),
    )
    files.make_folder(folder)
    check_folder(folder)
    _write(folder, record)
    return token, record


def revoke(folder: Path, token_id: str, now: int) -> PatRecord:
    """Revoke a token for ever. The time of an earlier revocation stays. Raises InputError and SetupError."""
    check_folder(folder)
    if not path_of(folder, token_id).exists():
        raise SetupError(Code.PAT_UNKNOWN, f"{folder} has no personal access token with the id {token_id}")
    record = read_record(path_of(folder, token_id))
    if record.revoked is UNSET:
        record = msgspec.structs.replace(record, revoked=now)
        _write(folder, record)
    return record


def _write(folder: Path, record: PatRecord) -> None:
    """Replace a record as a whole and durably: a reader sees all of it, and a power cut does not undo a revocation."""
    path, raw = path_of(folder, record.id), msgspec.json.format(msgspec.json.encode(record)) + b"\n"
    _parse(raw, path)  # raises for a record that could not be read back
    files.replace(path, raw, mode=0o600, durable=True)
