"""The leaves of the transparency log: what is announced before it is done, as lines of text. Pure.

A leaf is ASCII: a first line that names its kind and version, then lines `name SP value` in one order, each ended by
LF. It has one spelling, so that a verifier rebuilds a token's leaf from the token alone. It says who may have signed,
and when; never model, metrics, command or caller. Does not know which leaves are true, or what order they must have.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from msgspec import Struct

from issuer.errors import FormatError
from issuer.formats.times import MAX_UNIX_S
from issuer.tlog.checkpoint import encode_base64, malformed

MAX_LEAF_BYTES = 4096
KeyState = Literal["next", "active", "retiring", "archived", "revoked"]


class _Value(NamedTuple):
    """The value of a line: what it is, for people, its grammar, and how what fits that is read, where it is no text."""

    words: str
    grammar: str
    read: Callable[[str], Any] | None = None


def _seconds(text: str) -> int:
    if (seconds := int(text)) > MAX_UNIX_S:
        raise malformed(f"{text} is no time in Unix seconds: {MAX_UNIX_S} is the last one")
    return seconds


_LAST = "[AEIMQUYcgkosw048]"  # 43 characters carry two bits more than 32 bytes have; they are zero
_TEXT = _Value("ASCII without spaces", "[!-~]+")
_TIME = _Value("Unix seconds, in decimal without leading zeros", "0|[1-9][0-9]{0,9}", _seconds)
_KEY = _Value("the canonical base64url of 32 bytes", f"[A-Za-z0-9_-]{{42}}{_LAST}")
_SHA256 = _Value("a sha256: digest", "sha256:[0-9a-f]{64}")
_TOKEN = _Value("the canonical base64 of 32 bytes", f"[A-Za-z0-9+/]{{42}}{_LAST}=", binascii.a2b_base64)
_STATE = _Value("a state of a key", "next|active|retiring|archived|revoked")
_VALUES = {
    "iss": _TEXT, "sub": _TEXT, "worker": _TEXT, "head": _TEXT, "kid": _KEY, "x": _KEY, "state": _STATE,
    "iat": _TIME, "exp": _TIME, "from": _TIME, "policy": _SHA256, "digest": _SHA256, "token": _TOKEN,
}  # fmt: skip
_UNKNOWN = re.compile(r"([!-~]+)\n(?:[!-~]+ [!-~]+\n)*")


class _Lines(Struct, frozen=True):
    """A kind of leaf. Its fields, in their order, are its lines."""

    first_line: ClassVar[str]

    def to_bytes(self) -> bytes:
        """Write the leaf as it is hashed. Raises FormatError(`log.malformed`) where a value does not fit its line."""
        text = self.first_line + "\n"
        for name, field in _lines(type(self)):
            value = getattr(self, field)
            text += f"{name} {encode_base64(value) if isinstance(value, bytes) else value}\n"
        _read(type(self), text)  # what could not be read is not written
        return text.encode("ascii")

    @property
    def name(self) -> bytes | None:
        """The SHA-256 of the leaf: an announcement is made once. None for a token. Raises FormatError as `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).digest()


class TokenLeaf(_Lines, frozen=True):
    """A token that is about to be signed. `token` is its token_digest, 32 bytes; times are Unix seconds."""

    first_line = "eval-token-issuer/token/v1"

    iss: str
    sub: str
    kid: str
    iat: int
    exp: int
    policy: str
    token: bytes

    @property
    def name(self) -> None:
        """None: tokens are found by `iat` and `token`. An index over random digests costs most of a log's speed."""
        return


class KeyLeaf(_Lines, frozen=True):
    """A key and the state that it has since a time in Unix seconds (the line `from`); `x` as in its JWK (RFC 8037)."""

    first_line = "eval-token-issuer/key/v1"

    iss: str
    kid: str
    x: str
    state: KeyState
    since: int


class PolicyLeaf(_Lines, frozen=True):
    """The digest of a policy under which an integration's tokens are judged."""

    first_line = "eval-token-issuer/policy/v1"

    iss: str
    sub: str
    policy: str


class RevocationsLeaf(_Lines, frozen=True):
    """The digest of a revocation list: of its JWS bytes as they are served."""

    first_line = "eval-token-issuer/revocations/v1"

    iss: str
    digest: str


class AuditLeaf(_Lines, frozen=True):
    """The head of the chain of audit events that a worker, named by a random id, has written."""

    first_line = "eval-token-issuer/audit/v1"

    iss: str
    worker: str
    head: str


class UnknownLeaf(Struct, frozen=True):
    """A leaf of a kind or version that is not known here: listed by its first line, and nothing is read out of it."""

    first_line: str


KnownLeaf: TypeAlias = TokenLeaf | KeyLeaf | PolicyLeaf | RevocationsLeaf | AuditLeaf
Leaf: TypeAlias = KnownLeaf | UnknownLeaf
_KINDS: dict[str, type[KnownLeaf]] = {
    kind.first_line: kind for kind in (TokenLeaf, KeyLeaf, PolicyLeaf, RevocationsLeaf, AuditLeaf)
}
_Kind = TypeVar("_Kind", bound=_Lines)


def token_digest(signing_input: bytes) -> bytes:
    """Return what a leaf says of its token: 32 bytes over the JWS signing input, which exists before the signature."""
    return hashlib.sha256(b"eval-token-issuer/token-digest/v1\n" + signing_input).digest()


def read_leaf(raw: bytes) -> Leaf:
    """Read an entry of the log. Raises FormatError(`log.malformed`) for what is no leaf of any kind."""
    if len(raw) > MAX_LEAF_BYTES:
        raise malformed(f"a leaf of more than {MAX_LEAF_BYTES} bytes")
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise malformed("a leaf that is not ASCII") from None
    if kind := _KINDS.get(text.partition("\n")[0]):
        return _read(kind, text)
    if found := _UNKNOWN.fullmatch(text):
        return UnknownLeaf(found[1])
    raise malformed("a leaf that is not a first line, then lines of a name, a space and a value, each ended by LF")


@cache
def _lines(kind: type[_Lines]) -> tuple[tuple[str, str], ...]:
    """Return the name of each line of a kind, and of its field: `from` is no name for one."""
    return tuple(("from" if field == "since" else field, field) for field in kind.__struct_fields__)


@cache
def _grammar(kind: type[_Lines]) -> tuple[re.Pattern[str], tuple[tuple[int, Callable[[str], Any]], ...]]:
    """Return what a leaf of this kind matches, and for each value that is no text its number and how it is read."""
    values = {name: _VALUES[name] for name, _ in _lines(kind)}
    lines = "".join(f"{name} ({value.grammar})\n" for name, value in values.items())
    readers = tuple((number, value.read) for number, value in enumerate(values.values()) if value.read)
    return re.compile(f"{re.escape(kind.first_line)}\n{lines}"), readers


def _read(kind: type[_Kind], text: str) -> _Kind:
    grammar, readers = _grammar(kind)
    found = grammar.fullmatch(text)
    if found is None or len(text) > MAX_LEAF_BYTES:
        _refuse(kind, text)
    values: list[Any] = list(found.groups())
    for number, read in readers:
        values[number] = read(values[number])
    return kind(*values)


def _refuse(kind: type[_Lines], text: str) -> NoReturn:
    """Say which line of a leaf of this kind is the first that is not as it must be."""
    if len(text) > MAX_LEAF_BYTES:
        raise malformed(f"a leaf of more than {MAX_LEAF_BYTES} bytes")
    lines = text.split("\n")[1:]
    for number, (name, _) in enumerate(_lines(kind)):
        words, grammar, _ = _VALUES[name]
        if number >= len(lines) or not re.fullmatch(f"{name} (?:{grammar})", lines[number]):
            raise malformed(f"`{name}` is not {words}, or not line {number + 2}", f"/{name}", line=number + 2)
    raise malformed(f"a leaf that does not end behind the line `{name}`, with its LF", line=number + 2)


# Of kinds that are not known here; the rest is counted together. Who writes leaves can make up as many as there are.
MAX_NAMES = 100
OTHERS = "(others)"


class LeafCounts:
    """Leaves by their first line: `kinds` that are known and `unknown` ones; and `malformed`, how many are no leaves.
    `first_defect` says which leaf was the first of those, and why; "" where there is none."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.malformed = 0
        self.first_defect = ""

    def add(self, index: int, raw: bytes) -> None:
        """Count the entry at an index."""
        try:
            leaf = read_leaf(raw)
        except FormatError as error:
            self.malformed += 1
            self.first_defect = self.first_defect or f"leaf {index}: {error.detail}"
            return
        if isinstance(leaf, UnknownLeaf):
            name = leaf.first_line
            self.unknown[name if name in self.unknown or len(self.unknown) < MAX_NAMES else OTHERS] += 1
        else:
            self.kinds[leaf.first_line] += 1
