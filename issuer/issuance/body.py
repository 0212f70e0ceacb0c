"""Request bodies of `/tokens`, its explanation and batches (contract section 5). Pure: bytes in, submissions out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import convert, exact_number, loads, names_no_member_twice
from issuer.results.claims import RunClaims, read_claims
from issuer.results.details import read_details
from issuer.results.entry import Submission
from issuer.results.secret import secret_in
from issuer.wire import MAX_BYTES, BatchItem, BatchRequest, Kind, TokenRequest, is_nonce

MAX_DEPTH = 16


class Request(Struct, frozen=True):
    """What a request asks for. `integration`, `audience` and `nonce` are "" where it names none."""

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
            {"claims": jcs.Plain(msgspec.Raw(item.claims.canonical)), "details": jcs.plain(item.details)}
            for item in self.submissions
        ]
        value = {"kind": self.kind, "results": results, "integration": integration, "audience": audience}
        return hashlib.sha256(jcs.encode(value)).hexdigest()


def read_request(kind: Kind, raw: bytes) -> Request:
    """Read and check a body. Raises Refused: 400 for what is not this body, 422 for what breaks the data contract."""
    if (request := _read_quickly(kind, raw)) is not None:
        try:
            return _request(kind, request)
        except Refused:
            pass  # it is for the strict reader to tell what is wrong
    return _request(kind, _read_strictly(kind, raw))


def _read_strictly(kind: Kind, raw: bytes) -> TokenRequest | BatchRequest:
    try:
        value = loads(raw, max_bytes=MAX_BYTES[kind], max_depth=MAX_DEPTH)
        return convert(value, BatchRequest) if kind == "batch" else convert(value, TokenRequest)
    except FormatError as error:
        raise _refusal(error) from None


_DECODERS: Mapping[Kind, Callable[[bytes], TokenRequest | BatchRequest]] = {
    "single": msgspec.json.Decoder(TokenRequest, float_hook=exact_number).decode,
    "batch": msgspec.json.Decoder(BatchRequest, float_hook=exact_number).decode,
}
_write = msgspec.json.Encoder().encode
# More digits than a whole number may have; the text is what msgspec wrote.
_LARGE_NUMBER = re.compile(rb"[:,\[]-?[0-9]{16}")


def _read_quickly(kind: Kind, raw: bytes) -> TokenRequest | BatchRequest | None:
    """Read a body in C, as `_read_strictly` reads it, in a quarter of its time; None where in doubt.

    What msgspec does not know is seen to here: the size, members that are named twice, numbers that no double carries,
    and depth. Claims have the depth and the whole numbers that their types allow.
    """
    if len(raw) > MAX_BYTES[kind]:
        return None
    try:
        request = _DECODERS[kind](raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not names_no_member_twice(raw, request):
        return None
    items = request.results if isinstance(request, BatchRequest) else (request,)
    return request if all(item.details is UNSET or _is_plain(item.details) for item in items) else None


def _is_plain(details: dict[str, Any]) -> bool:
    """Say whether details nest less deep than a body may below its first three levels, and hold no large number."""
    written = _write(details)
    return written.count(b"{") + written.count(b"[") <= MAX_DEPTH - 3 and not _LARGE_NUMBER.search(written)


def _request(kind: Kind, request: TokenRequest | BatchRequest) -> Request:
    if request.nonce is not UNSET and not is_nonce(request.nonce):
        raise Refused.at(Code.NONCE_INVALID, "/nonce", "a nonce is 22 to 128 base64url characters, without padding")
    submissions = _read_items(request)
    return Request(kind, submissions, request.integration or "", request.audience or "", request.nonce or "")


def _read_items(request: TokenRequest | BatchRequest) -> tuple[Submission, ...]:
    if isinstance(request, TokenRequest):
        return (_read_item(request, ""),)
    submissions = tuple(_read_item(item, f"/results/{index}") for index, item in enumerate(request.results))
    seen: set[str] = set()
    for submission in submissions:
        if submission.content_digest + submission.claims_digest in seen:
            raise Refused.at(Code.CLAIMS_DUPLICATE_METRIC, submission.pointer, "the same result stands here twice")
        seen.add(submission.content_digest + submission.claims_digest)
    return submissions


def _read_item(item: TokenRequest | BatchItem, pointer: str) -> Submission:
    claims = read_claims(item.claims, f"{pointer}/claims")
    command = claims.framework.command
    if command is not UNSET and (secret := secret_in(command)):
        raise Refused.at(
            Code.CLAIMS_SECRET, f"{pointer}/claims/framework/command", f"the command seems to hold {secret}"
        )
    details = {} if item.details is UNSET else read_details(item.details, f"{pointer}/details")
    submission = Submission.of(claims, details, pointer)
    _check_digest(f"{pointer}/claims_digest", item.claims_digest, submission.claims_digest)
    _check_digest(f"{pointer}/content_digest", item.content_digest, submission.content_digest)
    return submission


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
