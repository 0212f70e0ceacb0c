"""The records of personal access tokens: a folder with one JSON file a token, named by its public id.

Files, because the limits' store may be flushed, restored or lost, and credentials must neither come back nor vanish
with it; because a token can then be revoked while that store is down; and because keys and policies are files, too. A
record holds the SHA-256 of its token, never the token. SQLite was weighed: shorter, but files can be mounted and
synced between hosts, and the last use is noted without a write on the event loop.

    pats/<id>.json     0600, in a folder of mode 0700: written beside and renamed
    pats/used/<id>     empty; its mtime is when the token was last used, to the minute
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
NETWORK_RULE = "a network is an address range as 192.0.2.0/24 or 2001:db8::/48: no host bits, IPv6 of /64 or shorter"

_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(pat.ID_PATTERN)
_FILE = re.compile(rf"{pat.ID_PATTERN}\.json")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
State = Literal["active", "expired", "revoked", "future"]


class Record(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One token, as its file describes it. Times are Unix seconds; without `networks` it may be used from anywhere.

    `account` is the stable name that policies pin: it outlives the token, and the next token of the account has it.
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
        """Return the state of the token now. A creation date in the future would make its life longer than 90 days."""
        if self.revoked is not UNSET:
            return "revoked"
        if self.created > now + LEEWAY_S:
            return "future"
        return "active" if now < self.expires else "expired"

    def may_come_from(self, source: str) -> bool:
        """Say whether a source, an IPv4 address or an IPv6 /64, is in one of the networks; without networks, always."""
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_network(source)
        except ValueError:  # an unknown source is not an allowed one
            return False
        return any(_is_within(address, ipaddress.ip_network(network)) for network in self.networks)


def _is_within(address: Network, network: Network) -> bool:
    return address.version == network.version and address.subnet_of(network)  # type: ignore[arg-type]


# -- rules ------------------------------------------------------------------------------------------------------------


def is_id(text: str) -> bool:
    """Say whether a text has the form of a token's public id, and so of its record's name."""
    return _ID.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Say whether a text is an account (ACCOUNT_RULE)."""
    return _ACCOUNT.fullmatch(text) is not None


def is_scope(text: str) -> bool:
    """Say whether a text is one word of a scope (SCOPE_RULE)."""
    return _SCOPE.fullmatch(text) is not None


def canonical_network(text: str) -> str | None:
    """Return a network as `ipaddress` writes it, None for any other text (NETWORK_RULE)."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return None
    # A source is known by its /64 (`http.reading.source_of`): a longer prefix could not be told from its neighbours.
    return str(network) if network.version == 4 or network.prefixlen <= 64 else None


def _broken_rules(record: Record, token_id: str) -> Iterator[tuple[str, str]]:
    """Yield the pointer of each member that breaks a rule, and the rule."""
    if record.id != token_id:
        yield "/id", "a record is named after its id"
    if not is_account(record.account):
        yield "/account", ACCOUNT_RULE
    for index, scope in enumerate(record.scopes):
        if not is_scope(scope):
            yield f"/scopes/{index}", SCOPE_RULE
    for index, network in enumerate(record.networks):
        if canonical_network(network) != network:
            yield f"/networks/{index}", NETWORK_RULE
    if not 0 < record.expires - record.created <= MAX_LIFE_S:
        yield "/expires", "a token expires after it was created, at most 90 days"
    if not _SHA256.fullmatch(record.sha256):
        yield "/sha256", "a digest is 64 lowercase hexadecimal characters"


# -- the folder -------------------------------------------------------------------------------------------------------


def path_of(folder: Path, token_id: str) -> Path:
    """Return the path of a token's record; the id must be well-formed (`is_id`)."""
    return folder / f"{token_id}.json"


def read_record(path: Path) -> Record:
    """Read one record. Raises InputError with the file and the place in it, and never quotes its content."""
    return _parse(files.read(path, MAX_BYTES, private=True), path)


def _parse(raw: bytes, path: Path) -> Record:
    with reading(str(path)):
        record = convert(loads(raw, max_bytes=MAX_BYTES, max_depth=2), Record)
        for pointer, rule in _broken_rules(record, path.stem):
            raise FormatError(Code.FILE_RULE, rule, pointer)
    return record


def read_records(folder: Path) -> tuple[list[Record], list[InputError]]:
    """Read the good records of a folder, oldest first, and what is wrong with the others. Raises SetupError."""
    good, bad = [], []
    for name in sorted(list_names(folder)):
        try:
            good.append(read_named(folder, name))
        except InputError as error:
            bad.append(error)
    return sorted(good, key=lambda record: record.created), bad


def read_named(folder: Path, name: str) -> Record:
    """Read the record in the file of this name. Raises as `read_record` does, and for the name of no record."""
    if not _FILE.fullmatch(name):
        raise InputError(Code.FILE_RULE, "nothing lies here but records named <id>.json", Place(str(folder / name)))
    return read_record(folder / name)


def list_names(folder: Path) -> list[str]:
    """List the files that should be records, so not drafts and last uses. Raises SetupError and OSError."""
    if check_folder(folder) is None:
        return []
    return [name for name in os.listdir(folder) if name != USED and not name.startswith(".")]


def check_folder(folder: Path) -> os.stat_result | None:
    """Return the status of the folder, None where it does not exist. Raises SetupError where others may open it.

    Anyone who can write to it can make tokens.
    """
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(Code.MACHINE_FAILED, f"{folder} cannot be read: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise SetupError(Code.SETTINGS_INVALID, f"{folder} is not a folder")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise SetupError(Code.FILE_UNSAFE, f"{folder} has mode {mode:04o}. Run `chmod 700 {folder}`")
    if found.st_uid not in {os.geteuid(), 0}:
        raise SetupError(Code.MACHINE_FAILED, f"{folder} belongs to another user: run this as the service's user")
    return found


def last_used(folder: Path, token_id: str) -> int | None:
    """Return when a token was last used, Unix seconds to the minute, or None."""
    try:
        return int(os.stat(folder / USED / token_id, follow_symlinks=False).st_mtime)
    except OSError:
        return None


def write_used(folder: Path, token_id: str, now: int) -> None:
    """Note when a token was last used, in the times of an empty file: nothing is written to it. Raises OSError."""
    path = folder / USED / token_id
    path.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.utime(descriptor, (now, now))
    finally:
        os.close(descriptor)


# -- the operator's side ----------------------------------------------------------------------------------------------


class Order(Struct, frozen=True):
    """What the operator asks of a new token; the members are those of its record."""

    account: str
    scopes: Sequence[str]
    networks: Sequence[str]
    life_s: int


def create(folder: Path, order: Order, *, now: int, random: bytes) -> tuple[str, Record]:
    """Make a token of fresh random bytes and write its record. The token is returned, and stored nowhere.

    Makes a missing folder. Raises InputError for a member that breaks its rule, and SetupError.
    """
    token = pat.make(random)
    record = Record(
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


def revoke(folder: Path, token_id: str, now: int) -> Record:
    """Revoke a token for ever; a revoked one stays as it is. Raises InputError and SetupError."""
    check_folder(folder)
    if not path_of(folder, token_id).exists():
        raise SetupError(Code.PAT_UNKNOWN, f"{folder} has no personal access token with the id {token_id}")
    record = read_record(path_of(folder, token_id))
    if record.revoked is UNSET:
        record = msgspec.structs.replace(record, revoked=now)
        _write(folder, record)
    return record


def _write(folder: Path, record: Record) -> None:
    """Put a record in its place: nobody ever reads half of it, and a power cut does not take a revocation back."""
    path, raw = path_of(folder, record.id), msgspec.json.format(msgspec.json.encode(record)) + b"\n"
    _parse(raw, path)  # nothing is written that would not be read
    files.replace(path, raw, mode=0o600, durable=True)
