"""The verify token (contract section 4): its template, its composition, and the reader of its payload. Pure.

A template has the header and every payload member except the run claims, the two digests and the attempt. A template, a
submission and its attempt always compose to the same bytes, on every host.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, Refused, Undecided
from issuer.formats import jcs, jose
from issuer.formats.strict_json import MAX_EXACT_INTEGER, convert, exact_number, loads
from issuer.formats.times import MAX_UNIX_S
from issuer.results.claims import RunClaims, read_claims
from issuer.results.entry import Submission
from issuer.tlog.leaf import TokenLeaf, token_digest

MAX_TTL_S = 86_400
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_JTI = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")  # 16 bytes in canonical base64url


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """The JOSE header. It has exactly these members."""

    alg: str
    kid: str
    typ: str


class Terms(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The payload of a token without run claims, digests and attempt. Times are Unix seconds (RFC 7519 4.1.4). `caller`
    is public provenance. `log` is the origin of the transparency log, if one is configured."""

    ver: Literal[1] = 1
    iss: str
    sub: str
    aud: str
    iat: int
    nbf: int
    exp: int
    jti: str
    caller: dict[str, Any]
    policy: str
    log: str | UnsetType = UNSET


# The service counts up to 64 different sets of metric values for a run key. 64 means 64 or more.
MAX_ATTEMPTS = 64
# The store's clock, which dates the attempts, may be ahead of the issuer's clock by this.
COUNT_LEEWAY_S = 60


class Attempt(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of different sets of metric values, this one included, that were signed for this registered identity
    and run key since `since` (Unix seconds). 64 means 64 or more. The run key is model repository and commit, benchmark
    repository and commit, task and framework name."""

    number: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
    since: Annotated[int, Meta(ge=0, le=MAX_UNIX_S)]

    @property
    def plain(self) -> jcs.Plain:
        """The attempt for `jcs.encode`."""
        return jcs.Plain({"number": self.number, "since": self.since})

    @property
    def shown(self) -> str:
        """The number as text."""
        return f"{self.number} or more" if self.number == MAX_ATTEMPTS else str(self.number)


class Template(Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """The header and the terms of a token. The admission keeps them as canonical bytes."""

    header: Header
    terms: Terms

    @classmethod
    def of(cls, kid: str, terms: Terms) -> Template:
        """Return a template for tokens that the key `kid` signs."""
        return cls(Header(jose.EDDSA, kid, jose.TOKEN_TYPE), terms)

    @property
    def kid(self) -> str:
        """The kid of the key that must sign the tokens of this template."""
        return self.header.kid

    @cached_property
    def plain_terms(self) -> Mapping[str, jcs.Encodable]:
        """The terms for `jcs.encode`. Cached, because every token of a batch has them."""
        terms: dict[str, Any] = msgspec.to_builtins(self.terms)
        terms["caller"] = jcs.written(jcs.plain(terms["caller"]))
        return terms

    @cached_property
    def canonical_terms(self) -> bytes:
        """The RFC 8785 bytes of the terms."""
        return jcs.encode(self.plain_terms)

    def to_bytes(self) -> bytes:
        """Return the canonical bytes of the template, which the store keeps."""
        return b'{"header":%b,"terms":%b}' % (_canonical_header(self.header), self.canonical_terms)


@lru_cache  # all tokens of one key have the same header
def _canonical_header(header: Header) -> bytes:
    return jcs.encode(msgspec.to_builtins(header))  # plain: its values are text and its names ASCII


@lru_cache
def _header_segment(header: Header) -> bytes:
    return jose.segment(_canonical_header(header))


class Unsigned(Struct, frozen=True):
    """A token before logging and signing: its JWS signing input, and its jti."""

    signing_input: bytes
    jti: str


_read_template = msgspec.json.Decoder(Template).decode


def read_template(raw: bytes) -> Template:
    """Read a template that the admission kept. Raises Undecided(`dependency.state`) if it is malformed."""
    try:
        return _read_template(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Undecided(Code.DEPENDENCY_STATE) from None


def compose(
    template: Template, submissions: tuple[Submission, ...], attempts: tuple[Attempt | None, ...] = (), *, batch: bool
) -> tuple[Unsigned, ...]:
    """Compose the tokens of a request from the template and the attempts that the admission returned. `attempts` has
    one item for each submission, None if it was not counted, or is empty if no submission was counted."""
    own, count = template.terms.jti, len(submissions)
    jtis = batch_jtis(own, count) if batch else (own,) * count
    parts = zip(submissions, attempts or (None,) * count, jtis, strict=True)
    return tuple(_compose_one(template, *part) for part in parts)


def _compose_one(template: Template, submission: Submission, attempt: Attempt | None, jti: str) -> Unsigned:
    own = {"jti": jti, "claims_digest": submission.claims_digest, "content_digest": submission.content_digest}
    counted = {} if attempt is None else {"attempt": attempt.plain}
    payload = jcs.encode({**template.plain_terms, **submission.claims.plain, **own, **counted})
    return Unsigned(jose.signing_input_of(_header_segment(template.header), payload), jti)


def is_jti(text: str) -> bool:
    """Say whether a text is 16 bytes in canonical base64url."""
    return _JTI.fullmatch(text) is not None


def batch_jtis(template_jti: str, count: int) -> tuple[str, ...]:
    """Derive the jti of each item of a batch from the template's jti and the item's index (contract section 5)."""
    seed = jose.base64url_decode(template_jti)
    seeds = (seed + index.to_bytes(4, "big") for index in range(count))
    return tuple(jose.base64url_encode(hashlib.sha256(each).digest()[:16]) for each in seeds)


def check_size(template: Template, submissions: tuple[Submission, ...], max_message_bytes: int) -> None:
    """Raise Refused(`claims.too_large`) if a signed token would be longer than 16 KiB, or its signing input longer than
    its key can sign (`max_message_bytes`). The tokens need not be composed for this."""
    header, terms = len(_header_segment(template.header)), len(template.canonical_terms)
    largest = min(max_message_bytes, jose.MAX_TOKEN_BYTES - _base64url_size(64) - 1)
    for submission in submissions:
        payload = terms + len(submission.canonical_claims) + _ADDED_BYTES
        if header + 1 + _base64url_size(payload) > largest:
            raise Refused.at(Code.CLAIMS_TOO_LARGE, f"{submission.pointer}/claims")


_DIGESTS = dict.fromkeys(("claims_digest", "content_digest"), jcs.digest_of_bytes(b""))
# The bytes that the two digests and the longest attempt add to a payload. When three objects become one, two pairs of
# braces become two commas.
_ADDED_BYTES = len(jcs.encode({"attempt": Attempt(MAX_ATTEMPTS, MAX_UNIX_S).plain, **_DIGESTS})) - 2


def _base64url_size(count: int) -> int:
    return -(-count * 4 // 3)


def token_leaf(claims: Terms, kid: str, signing_input: bytes) -> TokenLeaf:
    """Return the transparency log's leaf for a token. It depends only on the token, so signer and relying party get the
    same leaf. Its `to_bytes` raises FormatError if the claims do not fit: such a token has no leaf."""
    return TokenLeaf(claims.iss, claims.sub, kid, claims.iat, claims.exp, claims.policy, token_digest(signing_input))


# -- reading ----------------------------------------------------------------------------------------------------------


class TokenClaims(Terms, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The payload: exactly these members. Do not trust it until the signature has been checked."""

    ver: Literal[1]  # required: a default would accept a payload without it
    model_repo: str
    model_revision: str
    benchmark_repo: str
    benchmark_revision: str
    task_id: str
    metrics: list[dict[str, Any]]
    framework: dict[str, Any]
    claims_digest: str
    content_digest: str
    caller: dict[str, str | Annotated[int, Meta(ge=-MAX_EXACT_INTEGER, le=MAX_EXACT_INTEGER)] | bool]
    attempt: Attempt | UnsetType = UNSET


_RUN_MEMBERS = RunClaims.__struct_fields__


def read_unverified(payload: bytes) -> tuple[TokenClaims, RunClaims]:
    """Read a payload by the rules of contract section 4, the order of its metrics included.

    Raises FormatError or Refused unless the issuer signs exactly these bytes. The caller must check the signature.
    """
    claims = _read_quickly(payload) or _read_strictly(payload)
    run = read_claims({name: getattr(claims, name) for name in _RUN_MEMBERS}, signed=True)
    if list(run.to_json()["metrics"]) != claims.metrics:
        raise _broken("/metrics", "not in canonical order")
    for name in ("iat", "nbf", "exp"):
        if not 0 <= getattr(claims, name) <= MAX_UNIX_S:
            raise _broken(f"/{name}", "not a time in Unix seconds")
    if not claims.iat <= claims.nbf <= claims.exp or claims.exp - claims.iat > MAX_TTL_S:
        raise _broken("/exp", f"the times must be in the order iat, nbf, exp and span at most {MAX_TTL_S} s")
    if claims.attempt is not UNSET and claims.attempt.since > claims.iat + COUNT_LEEWAY_S:
        raise _broken("/attempt/since", "later than the token's issue")
    if not is_jti(claims.jti):
        raise _broken("/jti", "not 16 bytes in base64url")
    for name in ("claims_digest", "content_digest", "policy"):
        if not _DIGEST.fullmatch(getattr(claims, name)):
            raise _broken(f"/{name}", "not a sha256: digest")
    return claims, run


def unverified_leaf(token: str) -> TokenLeaf:
    """Return the leaf of a token. Raises FormatError or Refused. The caller must verify it, or find it in the log."""
    jws = jose.parse_compact(token)
    return token_leaf(read_unverified(jws.unverified_payload)[0], str(jws.header.get("kid")), jws.signing_input)


_read_payload = msgspec.json.Decoder(TokenClaims, float_hook=exact_number).decode


def _read_quickly(payload: bytes) -> TokenClaims | None:
    """Read a payload with msgspec. If it does not encode to the same bytes again, return None: a member may be lost."""
    if len(payload) > jose.MAX_TOKEN_BYTES or not payload.isascii() or b"\\u" in payload:
        return None
    try:
        claims = _read_payload(payload)
        # Only metric values can be floats: `read_claims` refuses them in other places.
        written = jcs.encode(replace(claims, metrics=jcs.plain(claims.metrics)))  # type: ignore[arg-type]
    except (ValueError, RecursionError):
        return None
    return claims if written == payload else None


def _read_strictly(payload: bytes) -> TokenClaims:
    value = loads(payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=8)
    claims = convert(value, TokenClaims)
    if jcs.canonical(value) != payload:
        raise _broken("", "not canonical (RFC 8785): check white space, order of members and spelling of numbers")
    return claims


def _broken(pointer: str, rule: str) -> FormatError:
    return FormatError(Code.FILE_RULE, rule, pointer)
