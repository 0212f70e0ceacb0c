"""Step three of the line: it reads what the body asks for (`read_in_steps`), and judges it (`judge`).

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
    """Read a body, one result a step, and judge it; an unreadable one is a refusal, too. Raises as `judge` does."""
    try:
        request = yield from read_in_steps(kind, body)
    except Refused as error:
        return Refusal(registered, error)
    yield
    return judge(authority, registered, request, jti)


def judge(authority: Authority, registered: Registered, request: Request, jti: str) -> Judged | Refusal:
    """Decide on a request and draft its template. `jti` is 16 fresh random bytes in base64url.

    `OF_CALLER` has no nonce. Raises Undecided(`dependency.signer`) where no key may begin a token now.
    """
    try:
        if request is not OF_CALLER:
            check_nonce(registered.caller, request.nonce)
        grant = _decide(registered, request)
        draft = draft_template(authority, registered, grant, jti)
        too_large = check_size(authority.signer, draft, request)
    except Refused as error:
        return Refusal(registered, error, request)
    return Judged(registered, request, grant, draft, too_large)


def check_size(signer: Signer, draft: Template, request: Request) -> Refused | None:
    """Demand tokens that some key takes, and return the refusal of new ones where that of the draft does not.

    Raises Refused(`claims.too_large`).
    """
    try:
        verify_token.check_size(draft, request.submissions, signer.max_message_bytes(draft.kid))
    except Refused as error:
        largest = max(map(signer.max_message_bytes, signer.usable_kids), default=0)
        verify_token.check_size(draft, request.submissions, largest)
        return error
    return None


def check_nonce(caller: Caller, nonce: str) -> None:
    """Demand a nonce of a reusable identity, and none of one whose token is its own use record. Raises Refused."""
    if caller.provider.rules.reusable and not nonce:
        raise Refused.at(Code.NONCE_REQUIRED, "/nonce", _NO_NONCE)
    if nonce and not caller.provider.rules.reusable:
        raise Refused.at(Code.NONCE_INVALID, "/nonce", _NEEDLESS_NONCE)


_NO_NONCE = (
    "this identity can be used again and again: send 16 or more random bytes as base64url, fresh for every new request "
    "and the same ones when it is sent again"
)
_NEEDLESS_NONCE = "this identity token is its own use record: leave the nonce out"


def _decide(registered: Registered, request: Request) -> Grant:
    verdict = decide_request(
        registered.registration,
        registered.caller,
        registered.checks,
        request.runs(),
        integration=request.integration,
        audience=request.audience,
    )
    if isinstance(verdict, Denial):
        raise refusal_for(verdict.checks, registered.registration.policy)
    return verdict


def draft_template(authority: Authority, registered: Registered, grant: Grant, jti: str) -> Template:
    """Draft the candidate template, to be signed by the active key."""
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

# Contract section 5: bytes in, submissions out. msgspec takes a body apart and leaves claims and details unread; the
# strict reader reads these, one result at a time, and finds the place of a fault in a body as a whole.

MAX_DEPTH = 16
# The refusal names at most so many texts with secrets: as many as a person will take out one by one.
MAX_SECRETS = 16


def asks_of_caller(raw: bytes) -> bool:
    """Say whether a body asks of its caller alone: it is `{}`."""
    try:
        msgspec.json.decode(raw, type=CallerRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def read_request(kind: Kind, raw: bytes) -> Request:
    """Read and check a body at once, as `read_in_steps` does."""
    return finish(read_in_steps(kind, raw))


def read_in_steps(kind: Kind, raw: bytes) -> Steps[Request]:
    """Read and check a body in steps, each a part of what one result needs.

    Raises Refused: 400 for what is not this body, 422 for what breaks the data contract.
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
            raise Refused.at(Code.CLAIMS_DUPLICATE_METRIC, pointer, "the same result stands here twice")
        seen.add(submission.content_digest + submission.claims_digest)
        submissions.append(submission)
    return Request(kind, tuple(submissions), body.integration or "", body.audience or "", body.nonce or "")


# -- the body, with its claims and details unread ----------------------------------------------------------------------

_Body: TypeAlias = TokenRequest[Raw] | BatchRequest[Raw]
_TYPES: Mapping[Kind, type[TokenRequest[Any] | BatchRequest[Any]]] = {"single": TokenRequest, "batch": BatchRequest}
_TAKE_APART: Mapping[Kind, Callable[[bytes], _Body]] = {
    "single": msgspec.json.Decoder(TokenRequest[Raw]).decode,
    "batch": msgspec.json.Decoder(BatchRequest[Raw]).decode,
}
_write = msgspec.json.Encoder().encode


def _open(kind: Kind, raw: bytes) -> _Body:
    """Take a body apart, in C. What is wrong or in doubt goes to the strict reader, unless there is too much of it."""
    if len(raw) > MAX_BYTES[kind]:
        raise _refusal(FormatError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES[kind]} bytes"))
    try:
        body = _TAKE_APART[kind](raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(raw) <= MAX_BYTES["single"] and count_values(raw, MAX_VALUES) <= MAX_VALUES:
            _read_strictly(kind, raw)
        raise _refuse_briefly(kind, raw, str(error)) from None
    if not _names_no_part_twice(raw, body):
        if count_values(raw, MAX_VALUES) > MAX_VALUES:
            raise Refused.at(Code.REQUEST_DUPLICATE_MEMBER, "", _IN_DOUBT)
        _read_strictly(kind, raw)
    return body


_IN_DOUBT = (
    "outside of `claims` and `details` a member is named twice, or a name or a text is written with \\u: name each "
    "once, and write them as they are"
)


def _names_no_part_twice(raw: bytes, body: _Body) -> bool:
    r"""Say whether msgspec, which keeps the last of two members, has read all but the parts; False where in doubt.

    The parts are written as they came, any other text with as many quotes as it had, unless one was spelled `\u0022`.
    """
    if (written := _write(body)) == raw and b"\\" not in raw:
        return True  # as our client writes it
    unread = b"".join(part for _, item in _items_of(body) for part in (item.claims, item.details) if part is not UNSET)
    return raw.count(b"\\u") == unread.count(b"\\u") and raw.count(b'"') == written.count(b'"')


def _items_of(body: _Body) -> list[tuple[str, BatchItem[Raw]]]:
    if isinstance(body, BatchRequest):
        return [(f"/results/{index}", item) for index, item in enumerate(body.results)]
    return [("", body)]


def _read_strictly(kind: Kind, raw: bytes) -> None:
    """Raise Refused for what is wrong with a body as a whole, with its place."""
    try:
        convert(loads(raw, max_bytes=MAX_BYTES[kind], max_depth=MAX_DEPTH), _TYPES[kind])
    except FormatError as error:
        raise _refusal(error) from None


def _refuse_briefly(kind: Kind, raw: bytes, message: str) -> Refused:
    """Refuse with what msgspec found: a byte, or a path of names that it knows."""
    detail, _, path = message.partition(" - at `$")
    if at := _BYTE.search(detail):
        before = raw[: int(at[1])]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        return Refused.at(Code.REQUEST_MALFORMED, "", f"line {line}, column {column}: {_BYTE.sub('', detail)}")
    pointer = _NAME_OR_INDEX.sub(r"/\1\2", path.removesuffix("`"))
    code = Code.REQUEST_UNKNOWN_MEMBER if _has_unknown_member(kind, raw, pointer) else Code.REQUEST_MALFORMED
    return Refused.at(code, pointer, detail)


def _has_unknown_member(kind: Kind, raw: bytes, pointer: str) -> bool:
    """Say whether the object there, the body or one of its results, has a member that its type does not name."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, Raw])
        if pointer:
            found = msgspec.json.decode(found["results"], type=list[dict[str, Raw]])[int(pointer.rpartition("/")[2])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, ValueError):
        return False
    return not found.keys() <= set((BatchItem if pointer else _TYPES[kind]).__struct_fields__)


_BYTE = re.compile(r" \(byte (\d+)\)")
_NAME_OR_INDEX = re.compile(r"\.(\w+)|\[(\d+)\]")


# -- one result --------------------------------------------------------------------------------------------------------


def _read_item(item: BatchItem[Raw], pointer: str) -> Steps[Submission]:
    """Read one result. The largest takes 20 ms as a whole, and a good caller would wait for that three times."""
    _check_extent(item, pointer)
    depth = MAX_DEPTH - (pointer.count("/") + 1)
    said = _read_part(item.claims, f"{pointer}/claims", depth)
    told = {} if item.details is UNSET else _read_part(item.details, f"{pointer}/details", depth)
    yield
    claims = read_claims(said, f"{pointer}/claims")
    details = read_details(told, f"{pointer}/details")
    yield
    if secrets := list(find_secrets({"claims": said, "details": details}, pointer)):
        raise Refused.of(secrets[:MAX_SECRETS])
    yield
    submission = Submission.of(claims, details, pointer)
    _check_digest(f"{pointer}/claims_digest", item.claims_digest, submission.claims_digest)
    _check_digest(f"{pointer}/content_digest", item.content_digest, submission.content_digest)
    return submission


def _check_extent(item: BatchItem[Raw], pointer: str) -> None:
    """Refuse a result of more bytes than a body of its own may have, or of more than `MAX_VALUES` values, unread.

    Every step costs time by one or the other, and a batch is bounded only as a whole.
    """
    size = len(item.claims) + (0 if item.details is UNSET else len(item.details))
    if size > MAX_BYTES["single"]:
        rule = f"a result of more than {MAX_BYTES['single']} bytes; put large evidence behind a URL"
        raise Refused.at(Code.REQUEST_TOO_LARGE, pointer, rule)
    if size < 2 * MAX_VALUES:
        return  # nearly every one: each value has a byte, and a comma or brackets
    if count_values(bytes(item.claims), MAX_VALUES) > MAX_VALUES:
        raise Refused.at(Code.CLAIMS_INVALID, f"{pointer}/claims", f"more than {MAX_VALUES} JSON values")
    if item.details is UNSET:
        return
    if count_values(b"[%b,%b]" % (item.claims, item.details), MAX_VALUES + 1) > MAX_VALUES + 1:
        rule = f"more than {MAX_VALUES} JSON values, with those of the claims; put large evidence behind a URL"
        raise Refused.at(Code.DETAILS_INVALID, f"{pointer}/details", rule)


def _read_part(part: Raw, pointer: str, max_depth: int) -> dict[str, JSON]:
    """Read claims or details."""
    try:
        value = loads(bytes(part), max_bytes=len(part), max_depth=max_depth)
        return value if isinstance(value, dict) else convert(value, dict[str, Any])
    except FormatError as error:
        raise _refusal(error.within(pointer)) from None


def _check_digest(pointer: str, sent: str | UnsetType, ours: str) -> None:
    if sent is not UNSET and sent != ours:
        raise Refused.at(Code.CLAIMS_DIGEST_MISMATCH, pointer, f"the issuer computes {ours}")


def _refusal(error: FormatError) -> Refused:
    """Give what a strict reader refused the code of the HTTP answer."""
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
