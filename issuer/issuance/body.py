"""Request bodies of `/tokens`, its explanation and batches (contract section 5). Pure: bytes in, submissions out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, convert, count_values, loads
from issuer.issuance.in_steps import Steps, finish
from issuer.results.claims import RunClaims, read_claims, take_quickly
from issuer.results.details import read_details
from issuer.results.entry import Submission
from issuer.results.secret import find_secrets
from issuer.wire import (
    MAX_BYTES,
    MAX_RESULTS,
    MAX_VALUES,
    BatchRequest,
    CallerRequest,
    Kind,
    Named,
    TokenRequest,
    is_nonce,
)

MAX_DEPTH = 16
# As many texts with secrets are told as a person will take out one by one.
MAX_SECRETS = 16


class Request(Struct, frozen=True):
    """What a request asks for. `integration`, `audience` and `nonce` are "" where it names none. Only `OF_CALLER` has
    no submissions."""

    kind: Kind
    submissions: tuple[Submission, ...]
    integration: str
    audience: str
    nonce: str = ""

    def runs(self) -> Iterator[tuple[str, RunClaims]]:
        """Yield what a policy judges of each result: where its claims are in the body, and the claims."""
        return ((f"{item.pointer}/claims", item.claims) for item in self.submissions)

    def digest(self, integration: str, audience: str) -> str:
        """Return what makes two requests the same one: kind, content, and both names as resolved; never a path."""
        results = [
            {"claims": Raw(item.canonical_claims), "details": Raw(item.canonical_details)} for item in self.submissions
        ]
        value = {"kind": self.kind, "results": results, "integration": integration, "audience": audience}
        return hashlib.sha256(jcs.encode(value)).hexdigest()


# What an explanation is asked for where nothing of a run is sent: the caller alone is judged.
OF_CALLER = Request("single", (), "", "")


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


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    """A `wire.BatchItem` of whose parts only the syntax is known to be good."""

    claims: Raw
    details: Raw | UnsetType = UNSET
    claims_digest: str | UnsetType = UNSET
    content_digest: str | UnsetType = UNSET


class _Single(_Item, frozen=True, forbid_unknown_fields=True):
    """A `wire.TokenRequest`, likewise."""

    nonce: str | UnsetType = UNSET
    integration: Named | UnsetType = UNSET
    audience: Named | UnsetType = UNSET


class _Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """A `wire.BatchRequest`, likewise."""

    results: Annotated[list[_Item], Meta(min_length=1, max_length=MAX_RESULTS)]
    nonce: str | UnsetType = UNSET
    integration: Named | UnsetType = UNSET
    audience: Named | UnsetType = UNSET


_TAKE_APART: Mapping[Kind, Callable[[bytes], _Single | _Batch]] = {
    "single": msgspec.json.Decoder(_Single).decode,
    "batch": msgspec.json.Decoder(_Batch).decode,
}
_write = msgspec.json.Encoder().encode


def _open(kind: Kind, raw: bytes) -> _Single | _Batch:
    """Take a body apart, in C. What is wrong or in doubt is for the strict reader to tell, unless there is too much."""
    if len(raw) > MAX_BYTES[kind]:
        raise _refusal(FormatError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES[kind]} bytes"))
    try:
        body = _TAKE_APART[kind](raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if len(raw) <= MAX_BYTES["single"] and count_values(raw, MAX_VALUES) <= MAX_VALUES:
            _read_strictly(kind, raw)
        raise _refuse_briefly(raw, str(error)) from None
    if not _names_no_part_twice(raw, body):
        if count_values(raw, MAX_VALUES) > MAX_VALUES:
            raise Refused.at(Code.REQUEST_DUPLICATE_MEMBER, "", _IN_DOUBT)
        _read_strictly(kind, raw)
    return body


_IN_DOUBT = (
    "outside of `claims` and `details` a member is named twice, or a name or a text is written with \\u: name each "
    "once, and write them as they are"
)


def _names_no_part_twice(raw: bytes, body: _Single | _Batch) -> bool:
    r"""Say whether msgspec, which keeps the last of two members, has read all but the parts; False where in doubt.

    The parts are written as they came, any other text with as many quotes as it had, unless one was spelled `\u0022`.
    """
    if (written := _write(body)) == raw and b"\\" not in raw:
        return True  # as our client writes it
    unread = b"".join(part for _, item in _items_of(body) for part in (item.claims, item.details) if part is not UNSET)
    return raw.count(b"\\u") == unread.count(b"\\u") and raw.count(b'"') == written.count(b'"')


def _items_of(body: _Single | _Batch) -> list[tuple[str, _Item]]:
    if isinstance(body, _Batch):
        return [(f"/results/{index}", item) for index, item in enumerate(body.results)]
    return [("", body)]


def _read_strictly(kind: Kind, raw: bytes) -> None:
    """Raise Refused for what is wrong with a body as a whole, with its place."""
    try:
        value = loads(raw, max_bytes=MAX_BYTES[kind], max_depth=MAX_DEPTH)
        convert(value, BatchRequest) if kind == "batch" else convert(value, TokenRequest)
    except FormatError as error:
        raise _refusal(error) from None


def _refuse_briefly(raw: bytes, message: str) -> Refused:
    """Refuse with what msgspec found: a byte, or a path of names that it knows."""
    detail, _, path = message.partition(" - at `$")
    if at := _BYTE.search(detail):
        before = raw[: int(at[1])]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        return Refused.at(Code.REQUEST_MALFORMED, "", f"line {line}, column {column}: {_BYTE.sub('', detail)}")
    code = Code.REQUEST_UNKNOWN_MEMBER if "unknown field" in detail else Code.REQUEST_MALFORMED
    return Refused.at(code, _NAME_OR_INDEX.sub(r"/\1\2", path.removesuffix("`")), detail)


_BYTE = re.compile(r" \(byte (\d+)\)")
_NAME_OR_INDEX = re.compile(r"\.(\w+)|\[(\d+)\]")


# -- one result --------------------------------------------------------------------------------------------------------


def _read_item(item: _Item, pointer: str) -> Steps[Submission]:
    """Read one result. The largest takes 20 ms as a whole, and a good caller would wait for that three times."""
    _check_extent(item, pointer)
    depth = MAX_DEPTH - (pointer.count("/") + 1)
    said = take_quickly(bytes(item.claims)) or _read_part(item.claims, f"{pointer}/claims", depth)
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


def _check_extent(item: _Item, pointer: str) -> None:
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
