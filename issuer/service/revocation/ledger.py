"""The issuer's revocations on disk: the record, the signed list, and the public key that verifies the list.

Hosts write in turn (io/common_documents.py). A list names everything that earlier lists named, because result files
outlive tokens. Its number grows, and its date never goes back: relying parties would refuse such a list as rolled back.
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

# -- the record, which is append-only ---------------------------------------------------------------------------------

# The record is for operators. The signed list, for relying parties, has neither names nor reasons.

JTI_RULE = "a jti is 22 characters of base64url, as the token and the audit have it"
SUB_RULE = "an integration's id is lowercase words joined by `-`"


class Act(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of the record: `who` revoked these tokens or intervals at `time` (Unix seconds), and `why`."""

    time: UnixTime
    who: str
    why: Annotated[str, Meta(max_length=MAX_REASON_CHARS)]
    jti: tuple[str, ...] = ()
    sub: tuple[RevokedInterval, ...] = ()

    @property
    def items(self) -> Items:
        """The revoked tokens and intervals."""
        return items_of(self.jti, self.sub)


def _check(act: Act) -> None:
    """Raise FormatError for an act without a reason or an item, or with an item that cannot match a token."""
    if not act.why.strip():
        raise FormatError(Code.FILE_RULE, "a reason must not be empty", "/why")
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
    """Return all tokens and intervals that these acts revoke."""
    listed = [*acts]
    return items_of((jti for act in listed for jti in act.jti), (sub for act in listed for sub in act.sub))


_read_version = msgspec.json.Decoder(VersionOne).decode
_read = msgspec.json.Decoder(Act).decode


def _read_act(line: bytes, _before: Act | None) -> Act:
    try:
        _read_version(line)
        act = _read(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        code = Code.FILE_SCHEMA if isinstance(error, msgspec.ValidationError) else Code.FILE_SYNTAX
        raise FormatError(code, f"not a line of a record: {error}") from None
    _check(act)
    return act


# -- ledger ------------------------------------------------------------------------------------------------------------

NOTHING = items_of((), ())


class SignedList(Struct, frozen=True):
    """A list: the bytes that are served, the JWK set with its key, and the parsed list."""

    raw: bytes
    keys: bytes
    listed: Revocations

    def is_behind(self, other: SignedList | None) -> bool:
        """Return whether a relying party that has seen the other list must refuse this one."""
        return other is not None and bool(objection(self.listed, other.listed))


class LedgerState(Struct, frozen=True):
    """The state of the files: the good lines of the record, the list if it is good, and the errors of both."""

    acts: tuple[Act, ...]
    published: SignedList | None
    record_error: InputError | None = None
    list_error: InputError | None = None

    @property
    def error(self) -> InputError | None:
        """The error of the record, or else of the list."""
        return self.record_error or self.list_error

    @property
    def items(self) -> Items:
        """Everything that the record or the list revokes."""
        items = items_in(self.acts)
        return items if self.published is None else items.with_those_of(self.published.listed)


class Signing(Struct, frozen=True):
    """The key and terms of a new list: it is good for `good_s` seconds, and its number is above `above`. If `replaces`
    is set, another key may have signed the previous list."""

    key: Ed25519PrivateKey
    good_s: int = LIST_GOOD_S
    above: int = 0
    replaces: bool = False


def unlisted(published: SignedList | None, items: Items) -> int:
    """Return the number of these items that a list lacks."""
    return items.count if published is None else published.listed.missing(items)


def is_due(published: SignedList | None, lacks: int, now: int) -> bool:
    """Return whether a new list is due: the first one, one with more items, or one after half of the lifetime."""
    if published is None or lacks:
        return True
    listed = published.listed
    return now >= listed.next_update - (listed.next_update - listed.iat) // 2


class Ledger:
    """The record and the list of one issuer. `issuer` is its URL, or None if a list exists that names it. Blocks."""

    def __init__(self, home: Home, issuer: str | None) -> None:
        self.place = home.place(LIST)
        self._home = home
        self._issuer = issuer

    # -- reading ------------------------------------------------------------------------------------------------------

    def look(self) -> Hashable:
        """Return a value that changes whenever one of the files does."""
        return self._home.look(RECORD, LIST, KEYS)

    def read(self, turn: Turn | None = None) -> LedgerState:
        """Read everything that can be read, in spite of errors in other parts."""
        home, acts, error = turn or self._home, tuple[Act, ...](), None
        try:
            raw = self._read(home, RECORD, MAX_RECORD_BYTES) or b""
            acts, error = read_lines(raw, _read_act, self._home.place(RECORD))
        except InputError as record_error:
            error = record_error
        try:
            return LedgerState(acts, self._published(home), error)
        except InputError as list_error:
            return LedgerState(acts, None, error, list_error)

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
        """Read a document. Raises only InputError."""
        try:
            return home.read(name, most)
        except OSError as error:
            raise InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(self._home.place(name))) from None

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, act: Act) -> bool:
        """Add an act to the record unless the record has all its items; return whether it was added. The list may be
        damaged, or its key absent: the service applies the record, too. An error leaves the record unchanged:
        FormatError for an invalid act, InputError for a damaged record, SetupError if the record or the list would be
        too large, and OSError."""
        convert(msgspec.to_builtins(act), Act)  # the reader must accept the act
        _check(act)
        with self._home.turn(RECORD) as turn:
            state = self.read(turn)
            if state.record_error is not None:
                raise state.record_error
            if not items_in(state.acts).missing(act.items):
                return False
            record = b"".join(map(to_line, (*state.acts, act)))
            _demand_room(self._home.place(RECORD), record, MAX_RECORD_BYTES)
            # Relying parties refuse too large a list. Its size depends on names and numbers, so write one as a test.
            items = state.items.with_those_of(act.items)
            signed = write_revocations(items, "", keyfile.generate(), number=0, iat=0, next_update=0)
            _demand_room(self.place, signed, MAX_BYTES - LIST_ROOM_BYTES)
            turn.append(RECORD, to_line(act))
        return True

    def renew(self, signing: Signing, now: int) -> SignedList:
        """Sign and write a new list. Raises InputError, SetupError and OSError."""
        with self._home.turn(RECORD) as turn:
            state = self._good(turn)
            return self._write(turn, state.published, state.items, signing, now)

    def keep(self, signing: Signing, now: int, known: Items, last: SignedList | None) -> SignedList | None:
        """Sign and write a new list, and return it, if one is due or the files are behind this process: its `known`
        items, and the `last` list that it served. Otherwise return None. Raises as `renew` does."""
        with self._home.turn(RECORD) as turn:
            state = self._good(turn)
            items, before = state.items.with_those_of(known), state.published
            if before is None or before.is_behind(last):
                before = last
            if before is state.published and not is_due(before, unlisted(before, items), now):
                return None
            return self._write(turn, before, items, signing, now)

    def _good(self, turn: Turn) -> LedgerState:
        state = self.read(turn)
        if state.error is not None:
            raise state.error
        return state

    def _write(self, turn: Turn, before: SignedList | None, items: Items, signing: Signing, now: int) -> SignedList:
        """Sign and write the list that follows `before`. The relying parties' reader checks it first."""
        number, iat = signing.above, now
        if before is not None:
            _demand_same_key(before, signing)
            items = items.with_those_of(before.listed)
            number, iat = max(number, before.listed.number), max(iat, before.listed.iat)
        issuer = self._issuer or (None if before is None else _issuer_of(before.raw))
        if issuer is None:
            raise SetupError(Code.SETTINGS_INVALID, "the first list needs the issuer's URL: give it as --url")
        until = iat + signing.good_s
        raw = write_revocations(items, issuer, signing.key, number=number + 1, iat=iat, next_update=until)
        keys = msgspec.json.encode({"keys": [jose.public_jwk(signing.key.public_key())]})
        with reading(self.place):
            written = SignedList(raw, keys, parse_revocations(raw, issuer, jose.parse_key_set(keys)))
        turn.replace(KEYS, keys)
        turn.replace(LIST, raw)
        return written


def _demand_same_key(before: SignedList, signing: Signing) -> None:
    if before.listed.kid != kid_of(signing.key) and not signing.replaces:
        detail = (
            f"the list was signed by another key, {before.listed.kid}. Put that key under keys/revocation/. If it is "
            "lost or stolen, replace it with `issuer revocations renew --new-key`; then relying parties that list the "
            "keys in a file must add the new key"
        )
        raise SetupError(Code.KEY_UNUSABLE, detail)


def _demand_room(place: str, raw: bytes, most: int) -> None:
    if len(raw) > most:
        detail = f"{place} would have {len(raw)} bytes; the limit is {most}. The record is unchanged"
        raise SetupError(Code.REVOCATIONS_FULL, detail)


class _Issuer(Struct):
    iss: str


_decode_issuer = msgspec.json.Decoder(_Issuer).decode


def _issuer_of(raw: bytes) -> str:
    """Return the unverified issuer of a list. Raises FormatError."""
    try:
        jws = jose.parse_compact(raw.decode("ascii").strip("\r\n"), MAX_BYTES)
        return _decode_issuer(jws.unverified_payload).iss
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FormatError(Code.JWS_MALFORMED, "not a revocation list") from None


# -- the key of the list ----------------------------------------------------------------------------------------------

# One PEM under keys/revocation/, which signs nothing else. A host that serves does not need it. A thief of the key can
# revoke anything. The key must not sign tokens, or the thief could also issue tokens.
FOLDER = "revocation"


def find_key(keys: Path, home: Home, passphrase: Callable[[], bytes | None]) -> Ed25519PrivateKey | None:
    """Read the list's key from a folder of keys; None if the folder does not have one. `passphrase` is called only if
    it does. Raises OSError, and SetupError also for a key that signs tokens or did so according to the history."""
    folder = keys / FOLDER
    paths = sorted(folder.glob("*.pem"))
    if not paths:
        return None
    if len(paths) > 1:
        raise SetupError(Code.KEY_UNUSABLE, f"{folder} has {len(paths)} keys; keep only the one that signs the list")
    try:
        for path in (keys, folder):
            files.demand_guarded(path, group=False)
    except InputError as error:
        raise SetupError(Code.KEY_UNSAFE, f"{error.place}: {error.detail}") from None
    secret = passphrase()
    key = keyfile.read(paths[0], secret)
    if kid_of(key) in token_kids(keys, home, secret, FOLDER):
        raise SetupError(
            Code.KEY_UNUSABLE,
            f"{paths[0]} signs tokens, or did: relying parties would not trust a list that it signs. Move it away, and "
            "make a key for the list with `issuer revocations init`",
        )
    return key


def make_key(keys: Path, passphrase: bytes | None) -> Path:
    """Make the list's key, and return its file. Raises OSError, and SetupError also if there is a key already."""
    folder = keys / FOLDER
    if paths := sorted(folder.glob("*.pem")):
        raise SetupError(Code.KEY_UNUSABLE, f"{paths[0]} exists already: to replace it, move it away first")
    if passphrase == b"":
        raise SetupError(Code.KEY_UNUSABLE, "the passphrase is empty: the key would not be encrypted")
    return make_file(folder, passphrase).path
