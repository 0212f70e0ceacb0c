"""The leaves of the transparency log: text records of tokens, keys, policies, revocation lists and audit heads. Pure.

A leaf is ASCII: a first line that names its kind and version, then lines `name SP value` in a fixed order, each ended
by LF. Each leaf has exactly one spelling, so a verifier can rebuild a token's leaf from the token alone. A leaf names
issuer, integration, key and times; never model, metrics, command or caller. This file does not judge whether a leaf is
true or whether leaves are in order: `watch.py` does.
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
    """The rule for the value of a line: its description for people, its grammar, and a reader unless it is text."""

    description: str
    grammar: str
    read: Callable[[str], Any] | None = None


def _seconds(text: str) -> int:
    if (seconds := int(text)) > MAX_UNIX_S:
        raise malformed(f"{text} is not a time in Unix seconds: the largest is {MAX_UNIX_S}")
    return seconds


_LAST = "[AEIMQUYcgkosw048]"  # 43 characters carry two bits more than 32 bytes have; these two bits are zero
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
    """A kind of leaf, with one field for each line, in the order of the lines."""

    first_line: ClassVar[str]

    def to_bytes(self) -> bytes:
        """Return the bytes of the leaf. Raises FormatError(`log.malformed`) if a value breaks its line's grammar."""
        text = self.first_line + "\n"
        for name, field in _lines(type(self)):
            value = getattr(self, field)
            text += f"{name} {encode_base64(value) if isinstance(value, bytes) else value}\n"
        _read(type(self), text)  # refuse to write a leaf that readers would refuse
        return text.encode("ascii")

    @property
    def name(self) -> bytes | None:
        """The SHA-256 of the leaf, by which the log adds an announcement only once. Raises FormatError as `to_bytes`.
        None for a token: tokens are found by `iat` and `token`, because an index over random digests costs most of a
        log's speed."""
        return None if isinstance(self, TokenLeaf) else hashlib.sha256(self.to_bytes()).digest()


class TokenLeaf(_Lines, frozen=True):
    """A token that is about to be signed. `token` is its `token_digest`, 32 bytes; times are Unix seconds."""

    first_line = "eval-token-issuer/token/v1"

    iss: str
    sub: str
    kid: str
    iat: int
    exp: int
    policy: str
    token: bytes


class KeyLeaf(_Lines, frozen=True):
    """A signing key and its state. `since` (the line `from`) says when the state began, in Unix seconds. `x` is the
    public key as in a JWK (RFC 8037)."""

    first_line = "eval-token-issuer/key/v1"

    iss: str
    kid: str
    x: str
    state: KeyState
    since: int


class PolicyLeaf(_Lines, frozen=True):
    """The digest of a policy that decides about an integration's tokens."""

    first_line = "eval-token-issuer/policy/v1"

    iss: str
    sub: str
    policy: str


class RevocationsLeaf(_Lines, frozen=True):
    """The digest of a revocation list: of the JWS bytes that the service serves."""

    first_line = "eval-token-issuer/revocations/v1"

    iss: str
    digest: str


class AuditLeaf(_Lines, frozen=True):
    """The head of the chain of audit events that one worker has written. `worker` is the worker's random id."""

    first_line = "eval-token-issuer/audit/v1"

    iss: str
    worker: str
    head: str


class UnknownLeaf(Struct, frozen=True):
    """A leaf of a kind or version that this code does not know. Only its first line is read."""

    first_line: str


KnownLeaf: TypeAlias = TokenLeaf | KeyLeaf | PolicyLeaf | RevocationsLeaf | AuditLeaf
Leaf: TypeAlias = KnownLeaf | UnknownLeaf
_KINDS: dict[str, type[KnownLeaf]] = {
    kind.first_line: kind for kind in (TokenLeaf, KeyLeaf, PolicyLeaf, RevocationsLeaf, AuditLeaf)
}
_Kind = TypeVar("_Kind", bound=_Lines)


def token_digest(signing_input: bytes) -> bytes:
    """Return the digest (32 bytes) by which a leaf names its token. It covers the JWS signing input, because leaves are
    written before the signature exists."""
    return hashlib.sha256(b"eval-token-issuer/token-digest/v1\n" + signing_input).digest()


def read_leaf(raw: bytes) -> Leaf:
    """Read a leaf of the log. Raises FormatError(`log.malformed`) if the bytes are not a leaf of any kind."""
    if len(raw) > MAX_LEAF_BYTES:
        raise malformed(f"a leaf may have at most {MAX_LEAF_BYTES} bytes")
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        raise malformed("a leaf must be ASCII") from None
    if kind := _KINDS.get(text.partition("\n")[0]):
        return _read(kind, text)
    if found := _UNKNOWN.fullmatch(text):
        return UnknownLeaf(found[1])
    raise malformed("a leaf must have a first line, then lines of a name, a space and a value, each ended by LF")


@cache
def _lines(kind: type[_Lines]) -> tuple[tuple[str, str], ...]:
    """Return the name of each line of a kind, and of its field. They differ for `from`, a keyword of Python."""
    return tuple(("from" if field == "since" else field, field) for field in kind.__struct_fields__)


@cache
def _grammar(kind: type[_Lines]) -> tuple[re.Pattern[str], tuple[tuple[int, Callable[[str], Any]], ...]]:
    """Return the pattern of this kind of leaf, and the index and reader of each value that is not text."""
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
    """Raise the error for the first line that breaks the grammar of this kind of leaf."""
    if len(text) > MAX_LEAF_BYTES:
        raise malformed(f"a leaf may have at most {MAX_LEAF_BYTES} bytes")
    lines = text.split("\n")[1:]
    for number, (name, _) in enumerate(_lines(kind)):
        description, grammar, _ = _VALUES[name]
        if number >= len(lines) or not re.fullmatch(f"{name} (?:{grammar})", lines[number]):
            raise malformed(f"line {number + 2} must be `{name}` and {description}", f"/{name}", line=number + 2)
    raise malformed(f"a leaf must end after the line `{name}`, with its LF", line=number + 2)


MAX_NAMES = 100  # further unknown kinds are counted together: a log can invent any number of kinds
OTHERS = "(others)"


class LeafCounts:
    """Counts of leaves: known `kinds` and `unknown` kinds by their first line, and `malformed` ones. `first_defect`
    names the first malformed leaf and its fault; it is "" at first."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.malformed = 0
        self.first_defect = ""

    def add(self, index: int, raw: bytes) -> None:
        """Count the leaf at an index."""
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
