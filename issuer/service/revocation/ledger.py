"""What this issuer has revoked: the record, the signed list, and the public key that it is signed by, in their home.

All hosts write in turn (io/common_documents.py). Whatever a list has named, the next one names, too: files outlive
tokens. Its number only grows, and it is never dated before the last one: else relying parties that have seen that one
would refuse it as rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET, Meta, Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError, reading
from issuer.formats import jose
from issuer.formats.strict_json import VersionOne, convert, read_lines, to_line
from issuer.formats.times import UnixTime
from issuer.io import files, keyfile
from issuer.io.bounds import MAX_RECORD_BYTES
from issuer.io.common_documents import KEYS, LIST, RECORD, Home, Turn
from issuer.policy.stops import is_what
from issuer.service.revocation.bounds import LIST_GOOD_S, LIST_ROOM_BYTES, MAX_REASON_CHARS
from issuer.service.signing.key_files import kid_of, make_file, token_kids
from issuer.token.verify_token import is_jti
from issuer.verify.revocations import (
    MAX_BYTES,
    Items,
    Revocations,
    RevokedInterval,
    items_of,
    objection,
    parse_revocations,
    write_revocations,
)

# -- the record, which only grows -------------------------------------------------------------------------------------

# Relying parties read the signed list, which has neither names nor reasons. The record is the operators'.

JTI_RULE = "a jti is 22 characters of base64url, as the token and the audit have it"
SUB_RULE = "an integration's id is lowercase words joined by `-`"


class Act(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of the record, which begins with its `version`: `who` revoked these tokens or intervals at `time` (Unix
    seconds), and `why`."""

    time: UnixTime
    who: str
    why: Annotated[str, Meta(max_length=MAX_REASON_CHARS)]
    jti: tuple[str, ...] = ()
    sub: tuple[RevokedInterval, ...] = ()

    @property
    def items(self) -> Items:
        """What was revoked."""
        return items_of(self.jti, self.sub)


def _check(act: Act) -> None:
    """Raise FormatError for an act that revokes nothing, or what no token can have, or for no reason."""
    if not act.why.strip():
        raise FormatError(Code.FILE_RULE, "a reason is not empty", "/why")
    if not act.jti and not act.sub:
        raise FormatError(Code.FILE_RULE, "it revokes nothing")
    for index, jti in enumerate(act.jti):
        if not is_jti(jti):
            raise FormatError(Code.FILE_RULE, JTI_RULE, f"/jti/{index}")
    for index, interval in enumerate(act.sub):
        if not is_what(f"integration:{interval.sub}"):
            raise FormatError(Code.FILE_RULE, SUB_RULE, f"/sub/{index}/sub")
        if interval.until is not UNSET and interval.until < interval.from_:
            raise FormatError(Code.FILE_RULE, "it ends before it begins", f"/sub/{index}/until")


def items_in(acts: Iterable[Act]) -> Items:
    """Return all that these acts revoke."""
    listed = [*acts]
    return items_of((jti for act in listed for jti in act.jti), (one for act in listed for one in act.sub))


_read_version = msgspec.json.Decoder(VersionOne).decode
_read = msgspec.json.Decoder(Act).decode


def _read_act(line: bytes, _before: Act | None) -> Act:
    try:
        _read_version(line)
        act = _read(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        code = Code.FILE_SCHEMA if isinstance(error, msgspec.ValidationError) else Code.FILE_SYNTAX
        raise FormatError(code, f"no line of a record: {error}") from None
    _check(act)
    return act


# -- ledger ------------------------------------------------------------------------------------------------------------

NOTHING = items_of((), ())


class SignedList(Struct, frozen=True):
    """A list as it is served, the JWK set with its key, and what a relying party reads in them."""

    raw: bytes
    keys: bytes
    listed: Revocations

    def is_behind(self, other: SignedList | None) -> bool:
        """Say whether who has seen the other one must refuse this one."""
        return other is not None and bool(objection(self.listed, other.listed))


class LedgerState(Struct, frozen=True):
    """What is found: the good lines of the record, the list where there is a good one, and what is wrong."""

    acts: tuple[Act, ...]
    published: SignedList | None
    record_error: InputError | None = None
    list_error: InputError | None = None

    @property
    def error(self) -> InputError | None:
        """What is wrong with either."""
        return self.record_error or self.list_error

    @property
    def items(self) -> Items:
        """All that is revoked, by the record or the list."""
        found = items_in(self.acts)
        return found if self.published is None else found.with_those_of(self.published.listed)


class Signing(Struct, frozen=True):
    """How a list is to be signed: it is good for `good_s` seconds, and numbered above `above`. `replaces`: the list
    before it may be another key's."""

    key: Ed25519PrivateKey
    good_s: int = LIST_GOOD_S
    above: int = 0
    replaces: bool = False


def unlisted(published: SignedList | None, items: Items) -> int:
    """Return how many of these items a list lacks."""
    return items.count if published is None else published.listed.missing(items)


def is_due(published: SignedList | None, lacks: int, now: int) -> bool:
    """Say whether a list is to be written: there is none, it lacks items, or half of its time is gone."""
    if published is None or lacks:
        return True
    listed = published.listed
    return now >= listed.next_update - (listed.next_update - listed.iat) // 2


class Ledger:
    """What one issuer has revoked, whose URL may be left out where there is a list that says it. Blocks."""

    def __init__(self, home: Home, issuer: str | None) -> None:
        self.place = home.place(LIST)
        self._home = home
        self._issuer = issuer

    # -- reading ------------------------------------------------------------------------------------------------------

    def look(self) -> Hashable:
        """Look at it from outside."""
        return self._home.look(RECORD, LIST, KEYS)

    def read(self, turn: Turn | None = None) -> LedgerState:
        """Read it. Nothing that can be read is kept back for what cannot."""
        home, acts, error = turn or self._home, tuple[Act, ...](), None
        try:
            raw = self._read(home, RECORD, MAX_RECORD_BYTES) or b""
            acts, error = read_lines(raw, _read_act, self._home.place(RECORD))
        except InputError as unread:
            error = unread
        try:
            return LedgerState(acts, self._published(home), error)
        except InputError as unlisted:
            return LedgerState(acts, None, error, unlisted)

    def _published(self, home: Home | Turn) -> SignedList | None:
        raw = self._read(home, LIST, MAX_BYTES)
        if raw is None:
            return None
        keys = self._read(home, KEYS, jose.MAX_KEY_SET_BYTES)
        with reading(self._home.place(KEYS)):
            known = jose.parse_key_set(keys or b"")
        with reading(self.place):
            return SignedList(raw, keys or b"", parse_revocations(raw, self._issuer or _issuer_of(raw), known))

    def _read(self, home: Home | Turn, name: str, most: int) -> bytes | None:
        """Read a document. Raises InputError alone."""
        try:
            return home.read(name, most)
        except OSError as error:
            raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(self._home.place(name))) from None

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, act: Act) -> bool:
        """Add an act to the record, and say whether it adds anything: otherwise nothing is written. A list that is
        damaged, or cannot be signed here, is no hindrance: the service goes by the record, too.

        Raises FormatError for an act that makes no sense, InputError for a damaged record, SetupError where there is no
        room, and OSError; then nothing has changed.
        """
        convert(msgspec.to_builtins(act), Act)  # it must be read again
        _check(act)
        with self._home.turn(RECORD) as turn:
            found = self.read(turn)
            if found.record_error is not None:
                raise found.record_error
            if not items_in(found.acts).missing(act.items):
                return False
            record = b"".join(map(to_line, (*found.acts, act)))
            _demand_room(self._home.place(RECORD), record, MAX_RECORD_BYTES)
            # Relying parties must be able to read the list, whose names and numbers are of any length.
            items = found.items.with_those_of(act.items)
            signed = write_revocations(items, "", keyfile.generate(), number=0, iat=0, next_update=0)
            _demand_room(self.place, signed, MAX_BYTES - LIST_ROOM_BYTES)
            turn.append(RECORD, to_line(act))
        return True

    def renew(self, signing: Signing, now: int) -> SignedList:
        """Sign the list anew. Raises InputError, SetupError and OSError."""
        with self._home.turn(RECORD) as turn:
            found = self._good(turn)
            written = self._sign(found.published, found.items, signing, now)
            _publish(turn, written)
        return written

    def keep(self, signing: Signing, now: int, known: Items, last: SignedList | None) -> SignedList | None:
        """Sign the list anew where that is due, or where the files are behind what this process knows: the items, and
        the `last` list that it has served. Returns the list where it was signed. Raises as `renew` does."""
        with self._home.turn(RECORD) as turn:
            found = self._good(turn)
            items, before = found.items.with_those_of(known), found.published
            if before is None or before.is_behind(last):
                before = last
            if before is found.published and not is_due(before, unlisted(before, items), now):
                return None
            written = self._sign(before, items, signing, now)
            _publish(turn, written)
        return written

    def _good(self, turn: Turn) -> LedgerState:
        found = self.read(turn)
        if found.error is not None:
            raise found.error
        return found

    def _sign(self, before: SignedList | None, items: Items, signing: Signing, now: int) -> SignedList:
        """Sign what follows a list. Relying parties' own reader judges it before anything is written."""
        number, iat = signing.above, now
        if before is not None:
            _demand_same_key(before, signing)
            items = items.with_those_of(before.listed)
            number, iat = max(number, before.listed.number), max(iat, before.listed.iat)
        issuer = self._issuer or (None if before is None else _issuer_of(before.raw))
        if issuer is None:
            raise SetupError(Code.SETTINGS_INVALID, "there is no list yet to say whose it is: give --url, the issuer's")
        raw = write_revocations(
            items, issuer, signing.key, number=number + 1, iat=iat, next_update=iat + signing.good_s
        )
        keys = msgspec.json.encode({"keys": [jose.public_jwk(signing.key.public_key())]})
        with reading(self.place):
            return SignedList(raw, keys, parse_revocations(raw, issuer, jose.parse_key_set(keys)))


def _publish(turn: Turn, published: SignedList) -> None:
    turn.replace(KEYS, published.keys)
    turn.replace(LIST, published.raw)


def _demand_same_key(before: SignedList, signing: Signing) -> None:
    if before.listed.kid != kid_of(signing.key) and not signing.replaces:
        detail = (
            f"the list was signed by another key, {before.listed.kid}. Put that one under keys/revocation/. Only where "
            "it is lost or stolen replace it, with `issuer revocations renew --new-key`: relying parties that list the "
            "keys in a file must then list the new one"
        )
        raise SetupError(Code.KEY_UNUSABLE, detail)


def _demand_room(place: str, raw: bytes, most: int) -> None:
    if len(raw) > most:
        detail = f"{place} would have {len(raw)} bytes, of {most} at most; nothing has changed"
        raise SetupError(Code.REVOCATIONS_FULL, detail)


class _Said(Struct):
    iss: str


def _issuer_of(raw: bytes) -> str:
    """Return whose list it says that it is. Raises FormatError."""
    try:
        jws = jose.parse_compact(raw.decode("ascii").strip("\r\n"), MAX_BYTES)
        return msgspec.json.decode(jws.unverified_payload, type=_Said).iss
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FormatError(Code.JWS_MALFORMED, "no list of revocations") from None


# -- the key of the list ----------------------------------------------------------------------------------------------

# One PEM under keys/revocation/, which signs nothing else. It need not lie on a host that serves. Its thief can revoke
# anything, and nothing else; it never signs tokens, or the thief could also clear them.
FOLDER = "revocation"


def find_key(keys: Path, home: Home, passphrase: Callable[[], bytes | None]) -> Ed25519PrivateKey | None:
    """Read the key in a folder of keys; None where there is none. Raises SetupError and OSError. One that signs tokens,
    or that did by the history, is not taken. The passphrase is asked for only where there is a key."""
    folder = keys / FOLDER
    paths = sorted(folder.glob("*.pem"))
    if not paths:
        return None
    if len(paths) > 1:
        raise SetupError(Code.KEY_UNUSABLE, f"{folder} holds {len(paths)} keys; keep the one that signs the list")
    try:
        for path in (keys, folder):
            files.demand_guarded(path, group=False)
    except InputError as error:
        raise SetupError(Code.KEY_UNSAFE, f"{error.place}: {error.detail}") from None
    opens = passphrase()
    key = keyfile.read(paths[0], opens)
    if kid_of(key) in token_kids(keys, home, opens, FOLDER):
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{paths[0]} signs tokens, or did: relying parties would believe no list of it. Take it out of there, and "
            "make one for the list with `issuer revocations init`",
        )
    return key


def make_key(keys: Path, passphrase: bytes | None) -> Path:
    """Make the key where there is none, and return its file. Raises SetupError and OSError."""
    folder = keys / FOLDER
    if found := sorted(folder.glob("*.pem")):
        raise SetupError(Code.KEY_UNUSABLE, f"{found[0]} is there already: move it away first if it is to be replaced")
    if passphrase == b"":
        raise SetupError(Code.KEY_UNUSABLE, "the passphrase is empty: the key would not be encrypted")
    return make_file(folder, passphrase).path
