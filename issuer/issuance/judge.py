"""The third step of issuance: read the body (`read_in_steps`), and judge the request by its policy (`judge`).

Pure: no clock, no store, no key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats.strict_json import JSON, convert, count_values, loads
from issuer.identity.token import Caller
from issuer.issuance.ports import Authority, Signer
from issuer.issuance.steps import OF_CALLER, Judged, Refusal, Registered, Request, Steps, finish
from issuer.policy.decide import Denial, Grant, decide_request
from issuer.policy.disclose import refusal_for
from issuer.results.claims import read_claims
from issuer.results.details import read_details
from issuer.results.entry import Submission
from issuer.results.secret import find_secrets
from issuer.token import verify_token
from issuer.token.verify_token import Template, Terms
from issuer.token.wire import (
    MAX_BYTES,
    MAX_VALUES,
    BatchItem,
    BatchRequest,
    CallerRequest,
    Kind,
    TokenRequest,
    is_nonce,
)


def read_and_judge(
    authority: Authority, registered: Registered, kind: Kind, body: bytes, jti: str
) -> Steps[Judged | Refusal]:
    """Read a body in steps, and judge it. An unreadable body gives a Refusal, too. Raises as `judge` does."""
    try:
        request = yield from read_in_steps(kind, body)
    except Refused as error:
        return Refusal(registered, error)
    yield
    return judge(authority, registered, request, jti)


def judge(authority: Authority, registered: Registered, request: Request, jti: str) -> Judged | Refusal:
    """Decide on a request and draft its template. `jti` is 16 fresh random bytes in base64url.

    Raises Undecided(`dependency.signer`) if no key may sign new tokens now.
    """
    try:
        if request is not OF_CALLER:  # `OF_CALLER` has no nonce
            check_nonce(registered.caller, request.nonce)
        grant = decide_request(
            registered.registration,
            registered.caller,
            registered.checks,
            request.runs(),
            integration=request.integration,
            audience=request.audience,
        )
        if isinstance(grant, Denial):
            raise refusal_for(grant.checks, registered.registration.policy)
        draft = draft_template(authority, registered, grant, jti)
        too_large = check_size(authority.signer, draft, request)
    except Refused as error:
        return Refusal(registered, error, request)
    return Judged(registered, request, grant, draft, too_large)


def check_size(signer: Signer, draft: Template, request: Request) -> Refused | None:
    """Return the refusal of new tokens if they are too large for the draft's key; None if they fit.

    Raises Refused(`claims.too_large`) if they are too large for every usable key.
    """
    try:
        verify_token.check_size(draft, request.submissions, signer.max_message_bytes(draft.kid))
    except Refused as error:
        largest = max(map(signer.max_message_bytes, signer.usable_kids), default=0)
        verify_token.check_size(draft, request.submissions, largest)
        return error
    return None


def check_nonce(caller: Caller, nonce: str) -> None:
    """Raise Refused for a reusable credential without a nonce, and for an identity token with one."""
    if caller.provider.rules.reusable and not nonce:
        detail = (
            "this credential can be used again and again: send 16 or more random bytes as base64url, fresh for every "
            "new request, and the same ones when you send a request again"
        )
        raise Refused.at(Code.NONCE_REQUIRED, "/nonce", detail)
    if nonce and not caller.provider.rules.reusable:
        raise Refused.at(Code.NONCE_INVALID, "/nonce", "an identity token needs no nonce: leave the nonce out")


def draft_template(authority: Authority, registered: Registered, grant: Grant, jti: str) -> Template:
    """Return the candidate template, for the active key to sign."""
    now = registered.arrival.at
    terms = Terms(
        iss=authority.issuer_url,
        sub=registered.registration.policy.integration,
        aud=grant.audience,
        iat=now,
        nbf=now,
        exp=now + grant.ttl_s,
        jti=jti,
        caller=registered.caller.provenance(),
        policy=registered.registration.digest,
        log=authority.log.origin or UNSET,
    )
    return Template.of(authority.signer.active_kid, terms)


# -- the body ----------------------------------------------------------------------------------------------------------

# The reader turns a body into submissions (contract section 5). msgspec splits the body, and leaves claims and details
# raw. The strict reader parses these, one result at a time. It also finds the place of a fault in the rest of a body.

MAX_DEPTH = 16
# The most texts with secrets that a refusal names. A person will not remove more than these one by one.
MAX_SECRETS = 16


def asks_of_caller(raw: bytes) -> bool:
    """Return whether a body asks about its caller alone: the body is then `{}`."""
    try:
        msgspec.json.decode(raw, type=CallerRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def read_request(kind: Kind, raw: bytes) -> Request:
    """Read a body as `read_in_steps` does, but at once."""
    return finish(read_in_steps(kind, raw))


def read_in_steps(kind: Kind, raw: bytes) -> Steps[Request]:
    """Read and check a body in steps, several for each result.

    Raises Refused: 400 for a malformed body, 422 for a violation of the data contract.
    """
    body = _open(kind, raw)
    if body.nonce is not UNSET and not is_nonce(body.nonce):
        raise Refused.at(Code.NONCE_INVALID, "/nonce", "a nonce is 22 to 128 base64url characters, without padding")
    submissions: list[Submission] = []
    seen: set[str] = set()
    for pointer, item in _items_of(body):
        yield
        submission = yield from _read_item(item, pointer)
        if submission.content_digest + submission.claims_digest in seen:
            raise Refused.at(Code.CLAIMS_DUPLICATE_METRIC, pointer, "this result is in the batch twice")
        seen.add(submission.content_digest + submission.claims_digest)
        submissions.append(submission)
    return Request(kind, tuple(submissions), body.integration or "", body.audience or "", body.nonce or "")


# -- the body, with raw claims and details -----------------------------------------------------------------------------

_Body: TypeAlias = TokenRequest[Raw] | BatchRequest[Raw]
_TYPES: Mapping[Kind, type[TokenRequest[Any] | BatchRequest[Any]]] = {"single": TokenRequest, "batch": BatchRequest}
_SPLIT: Mapping[Kind, Callable[[bytes], _Body]] = {
    "single": msgspec.json.Decoder(TokenRequest[Raw]).decode,
    "batch": msgspec.json.Decoder(BatchRequest[Raw]).decode,
}
_write = msgspec.json.Encoder().encode


def _open(kind: Kind, raw: bytes) -> _Body:
    """Split a body with msgspec, in C. The strict reader checks failed and ambiguous bodies that are not too large."""
    if len(raw) > MAX_BYTES[kind]:
        raise _refusal(FormatError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES[kind]} bytes"))
    try:
        body = _SPLIT[kind](raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(raw) <= MAX_BYTES["single"] and count_values(raw, MAX_VALUES) <= MAX_VALUES:
            _read_strictly(kind, raw)
        raise _refuse_briefly(kind, raw, str(error)) from None
    if not _has_unique_members(raw, body):
        if count_values(raw, MAX_VALUES) > MAX_VALUES:
            raise Refused.at(Code.REQUEST_DUPLICATE_MEMBER, "", _AMBIGUOUS)
        _read_strictly(kind, raw)
    return body


_AMBIGUOUS = (
    "outside of `claims` and `details` a member is named twice, or a name or a text has a \\u escape: name each member "
    "once, and write the characters themselves"
)


def _has_unique_members(raw: bytes, body: _Body) -> bool:
    r"""Return True only if no member outside of claims and details is named twice. msgspec would keep the last one.

    To find out, write the body again and compare the numbers of quotes. Claims and details are written as received. Any
    other text keeps its number of quotes, unless a quote was spelled `\u0022`.
    """
    if (written := _write(body)) == raw and b"\\" not in raw:
        return True  # our client writes it like this
    unread = b"".join(part for _, item in _items_of(body) for part in (item.claims, item.details) if part is not UNSET)
    return raw.count(b"\\u") == unread.count(b"\\u") and raw.count(b'"') == written.count(b'"')


def _items_of(body: _Body) -> list[tuple[str, BatchItem[Raw]]]:
    if isinstance(body, BatchRequest):
        return [(f"/results/{index}", item) for index, item in enumerate(body.results)]
    return [("", body)]


def _read_strictly(kind: Kind, raw: bytes) -> None:
    """Raise Refused for the first fault in the whole body, with its place."""
    try:
        convert(loads(raw, max_bytes=MAX_BYTES[kind], max_depth=MAX_DEPTH), _TYPES[kind])
    except FormatError as error:
        raise _refusal(error) from None


def _refuse_briefly(kind: Kind, raw: bytes, message: str) -> Refused:
    """Return the refusal for an error of msgspec, which names a byte, or a path of known names."""
    detail, _, path = message.partition(" - at `$")
    if at := _BYTE.search(detail):
        before = raw[: int(at[1])]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        return Refused.at(Code.REQUEST_MALFORMED, "", f"line {line}, column {column}: {_BYTE.sub('', detail)}")
    pointer = _NAME_OR_INDEX.sub(r"/\1\2", path.removesuffix("`"))
    code = Code.REQUEST_UNKNOWN_MEMBER if _has_unknown_member(kind, raw, pointer) else Code.REQUEST_MALFORMED
    return Refused.at(code, pointer, detail)


def _has_unknown_member(kind: Kind, raw: bytes, pointer: str) -> bool:
    """Return whether the object at a pointer, the body or one of its results, has an unknown member."""
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        if pointer:
            members = msgspec.json.decode(members["results"], type=list[dict[str, Raw]])[
                int(pointer.rpartition("/")[2])
            ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, ValueError):
        return False
    return not members.keys() <= set((BatchItem if pointer else _TYPES[kind]).__struct_fields__)


_BYTE = re.compile(r" \(byte (\d+)\)")
_NAME_OR_INDEX = re.compile(r"\.(\w+)|\[(\d+)\]")


# -- one result --------------------------------------------------------------------------------------------------------


def _read_item(item: BatchItem[Raw], pointer: str) -> Steps[Submission]:
    """Read one result, in four steps: the largest takes 20 ms, and another caller might wait for three of them."""
    _check_extent(item, pointer)
    depth = MAX_DEPTH - (pointer.count("/") + 1)
    raw_claims = _read_part(item.claims, f"{pointer}/claims", depth)
    raw_details = {} if item.details is UNSET else _read_part(item.details, f"{pointer}/details", depth)
    yield
    claims = read_claims(raw_claims, f"{pointer}/claims")
    details = read_details(raw_details, f"{pointer}/details")
    yield
    if secrets := list(find_secrets({"claims": raw_claims, "details": details}, pointer)):
        raise Refused.of(secrets[:MAX_SECRETS])
    yield
    submission = Submission.of(claims, details, pointer)
    _check_digest(f"{pointer}/claims_digest", item.claims_digest, submission.claims_digest)
    _check_digest(f"{pointer}/content_digest", item.content_digest, submission.content_digest)
    return submission


def _check_extent(item: BatchItem[Raw], pointer: str) -> None:
    """Raise Refused for a result with more bytes than a single body may have, or more than `MAX_VALUES` values.

    The time of each step depends on both numbers, and the limits of a batch are only for the whole batch.
    """
    size = len(item.claims) + (0 if item.details is UNSET else len(item.details))
    if size > MAX_BYTES["single"]:
        rule = f"a result of more than {MAX_BYTES['single']} bytes; put large evidence behind a URL"
        raise Refused.at(Code.REQUEST_TOO_LARGE, pointer, rule)
    if size < 2 * MAX_VALUES:
        return  # nearly all results: each value takes a byte, and a comma or brackets
    if count_values(bytes(item.claims), MAX_VALUES) > MAX_VALUES:
        raise Refused.at(Code.CLAIMS_INVALID, f"{pointer}/claims", f"more than {MAX_VALUES} JSON values")
    if item.details is UNSET:
        return
    if count_values(b"[%b,%b]" % (item.claims, item.details), MAX_VALUES + 1) > MAX_VALUES + 1:
        rule = f"more than {MAX_VALUES} JSON values, including the claims; put large evidence behind a URL"
        raise Refused.at(Code.DETAILS_INVALID, f"{pointer}/details", rule)


def _read_part(part: Raw, pointer: str, max_depth: int) -> dict[str, JSON]:
    try:
        value = loads(bytes(part), max_bytes=len(part), max_depth=max_depth)
        return value if isinstance(value, dict) else convert(value, dict[str, Any])
    except FormatError as error:
        raise _refusal(error.within(pointer)) from None


def _check_digest(pointer: str, sent: str | UnsetType, ours: str) -> None:
    if sent is not UNSET and sent != ours:
        raise Refused.at(Code.CLAIMS_DIGEST_MISMATCH, pointer, f"the issuer computes {ours}")


def _refusal(error: FormatError) -> Refused:
    """Return the refusal for an error of the strict reader, with the code for HTTP."""
    place = f"line {error.line}, column {error.column}: " if error.line else ""
    code = _CODES.get(error.code, Code.REQUEST_MALFORMED)
    if error.code is Code.FILE_NUMBER and not error.pointer.startswith(("/claims", "/results", "/details")):
        code = Code.REQUEST_MALFORMED
    return Refused.of([Fault(code, error.pointer, place + error.detail)])


_CODES = {
    Code.FILE_DUPLICATE_KEY: Code.REQUEST_DUPLICATE_MEMBER,
    Code.FILE_NUMBER: Code.CLAIMS_NUMBER,
    Code.FILE_UNKNOWN_MEMBER: Code.REQUEST_UNKNOWN_MEMBER,
}
