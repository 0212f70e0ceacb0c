"""What this issuer has revoked: the record, the signed list, and the public key that it is signed by, in their home.

All hosts write in turn (home.py). Whatever a list has named, the next one names, too: files outlive tokens. Its number
only grows, and it is never dated before the last one: else relying parties that have seen that one would refuse it as
rolled back.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer import keyfile
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError, reading
from issuer.formats import jose
from issuer.service.bounds import LIST_GOOD_S, LIST_ROOM_BYTES, MAX_RECORD_BYTES
from issuer.service.home import KEYS, LIST, RECORD, Home, Turn
from issuer.service.revocation.record import Act, check_act, items_in, read_acts, write_acts
from issuer.service.signing.token_kids import kid_of
from issuer.verify.revocations import (
    MAX_BYTES,
    Items,
    Revocations,
    items_of,
    objection,
    parse_revocations,
    write_revocations,
)

NOTHING = items_of((), ())


class SignedList(Struct, frozen=True):
    """A list as it is served, the JWK set with its key, and what a relying party reads in them."""

    raw: bytes
    keys: bytes
    listed: Revocations

    def is_behind(self, other: SignedList | None) -> bool:
        """Say whether who has seen the other one must refuse this one."""
        return other is not None and bool(objection(self.listed, other.listed))


class Found(Struct, frozen=True):
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

    def read(self) -> Found:
        """Read it. Nothing that can be read is kept back for what cannot."""
        return self._found(self._home)

    def _found(self, home: Home | Turn) -> Found:
        acts, error = self._acts(home)
        try:
            return Found(acts, self._published(home), error)
        except InputError as unlisted:
            return Found(acts, None, error, unlisted)

    def _acts(self, home: Home | Turn) -> tuple[tuple[Act, ...], InputError | None]:
        try:
            raw = self._read(home, RECORD, MAX_RECORD_BYTES)
        except InputError as error:
            return (), error
        return read_acts(raw or b"", self._home.place(RECORD))

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
        check_act(act)
        with self._home.turn(RECORD) as turn:
            found = self._found(turn)
            if found.record_error is not None:
                raise found.record_error
            if not items_in(found.acts).missing(act.items):
                return False
            size = len(write_acts((*found.acts, act)))
            if size > MAX_RECORD_BYTES:
                raise _full(self._home.place(RECORD), size, MAX_RECORD_BYTES)
            self._demand_room(found.items.with_those_of(act.items))
            turn.append(RECORD, write_acts([act]))
        return True

    def _demand_room(self, items: Items) -> None:
        """Demand that relying parties could read the list of these, whose names and numbers are of any length."""
        raw = write_revocations(items, "", keyfile.generate(), number=0, iat=0, next_update=0)
        if len(raw) > MAX_BYTES - LIST_ROOM_BYTES:
            raise _full(self.place, len(raw), MAX_BYTES - LIST_ROOM_BYTES)

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

    def _good(self, turn: Turn) -> Found:
        found = self._found(turn)
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


def _full(place: str, size: int, most: int) -> SetupError:
    detail = f"{place} would have {size} bytes, of {most} at most; nothing has changed"
    return SetupError(Code.REVOCATIONS_FULL, detail)


class _Said(Struct):
    iss: str


def _issuer_of(raw: bytes) -> str:
    """Return whose list it says that it is. Raises FormatError."""
    try:
        jws = jose.parse_compact(raw.decode("ascii").strip("\r\n"), MAX_BYTES)
        return msgspec.json.decode(jws.unverified_payload, type=_Said).iss
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise FormatError(Code.JWS_MALFORMED, "no list of revocations") from None
