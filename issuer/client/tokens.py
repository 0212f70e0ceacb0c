"""Ask an issuer for verify tokens, and read what it says: an answer, or the error that it meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from issuer.client.credential import Credential
from issuer.client.request import with_nonce
from issuer.codes import Code
from issuer.errors import Fault, FormatError, IssuerError, Refused, Undecided
from issuer.formats.strict_json import JSON, loads
from issuer.http_client import (
    MAX_ANSWER_BYTES,
    PATIENCE_S,
    HttpAnswer,
    HttpRequest,
    check_url,
    is_decided,
    send_until_decided,
)
from issuer.identity import pat
from issuer.wire import Denied, Endpoint, Explained, IssuedToken, IssuedTokens, ShownCheck

_MAX_DEPTH = 16
# Shorter texts are not secrets, and occur in answers by chance.
_SECRET_CHARS = 16


def request_token(
    issuer: str, credential: Credential, request: Mapping[str, Any], *, patience_s: float = PATIENCE_S
) -> IssuedToken:
    """Ask for a verify token: `issued.entry` is what goes into a result file (`put_entry`).

    `request` is the body of `/tokens`; the nonce that a reusable credential needs is added where it has
    none. Raises as `request_tokens` does.
    """
    body = with_nonce(request, credential)
    return read_answer(request_tokens(issuer, credential, body, patience_s=patience_s), IssuedToken)


def explain_request(
    issuer: str, credential: Credential, request: Mapping[str, Any], *, patience_s: float = PATIENCE_S
) -> Explained:
    """Ask what the issuer would decide of a request for a verify token, and why; nothing is signed or used up.

    Raises as `request_tokens` does; where a policy would refuse, that is the answer, and nothing is raised.
    """
    body = with_nonce(request, credential)
    answer = request_tokens(issuer, credential, body, "/tokens/explain", patience_s=patience_s)
    return read_answer(answer, Explained)


def request_tokens(
    issuer: str,
    credential: Credential,
    request: Mapping[str, Any],
    endpoint: Endpoint = "/tokens",
    *,
    patience_s: float = PATIENCE_S,
) -> HttpAnswer:
    """Post a request to one of the endpoints, and return the answer where it is good; `read_answer` reads it.

    A request with a reusable credential must have its `nonce`. The same request is safe to repeat (contract section
    5), so it is repeated where nothing was decided, within `patience_s` (`http_client`). Raises Refused, Denied where
    a policy refused, and Undecided; none of them, and no answer, has the credential in it, even where the server
    repeats it.
    """
    headers = {"Authorization": f"Bearer {credential.bearer}", "Content-Type": "application/json"}
    post = HttpRequest("POST", f"{check_url(issuer)}{endpoint}", headers, msgspec.json.encode(request))
    answer = send_until_decided(post, patience_s=patience_s, enough=_is_enough)
    value = _json(answer)
    leaks = _has_secret(value, credential.bearer)
    if answer.status not in {200, 201}:
        error = problem_of(answer)
        if leaks:
            raise Undecided(error.code) if isinstance(error, Undecided) else Refused(error.code)
        raise error
    if leaks or not isinstance(value, dict):
        what = "repeats the credential, so nothing of it is shown" if leaks else "did not come from an issuer"
        raise Undecided(Code.DEPENDENCY_STATE, f"the answer {what} (HTTP status {answer.status})")
    return answer


Body = TypeVar("Body", IssuedToken, IssuedTokens, Explained)


def read_answer(answer: HttpAnswer, kind: type[Body]) -> Body:
    """Read the body of a good answer, whose members beyond those known here are ignored. Raises Undecided."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        what = "what answered is not an issuer: its 2xx body is not an issuer's"
        raise Undecided(Code.DEPENDENCY_STATE, what) from None


def _is_enough(answer: HttpAnswer) -> bool:
    # A store that lost its memory answers the same to this identity token for ever: only a fresh one helps.
    return is_decided(answer) or problem_of(answer).code is Code.DEPENDENCY_STATE_RESET


def _json(answer: HttpAnswer) -> JSON:
    """Read the body of an answer; what is not JSON counts as no answer."""
    try:
        return loads(answer.body, max_bytes=MAX_ANSWER_BYTES, max_depth=_MAX_DEPTH)
    except FormatError:
        return None


def _has_secret(value: JSON, bearer: str) -> bool:
    """Say whether a part of a credential is anywhere in a JSON value, percent-encoded or not.

    Encoded anew: the value's own text may have escapes.
    """
    text, secret = unquote(msgspec.json.encode(value).decode()), _secret_of(bearer)
    return any(secret[at : at + _SECRET_CHARS] in text for at in range(len(secret) - _SECRET_CHARS + 1))


def _secret_of(bearer: str) -> str:
    """Return the secret part of a credential: of a JWT the signature, for good answers hold JWTs, too."""
    if bearer.startswith(pat.PREFIX):
        return bearer.removeprefix(pat.PREFIX).partition("_")[2]  # the id before it is public
    return bearer.rpartition(".")[2] if bearer.startswith("eyJ") else bearer


def problem_of(answer: HttpAnswer) -> IssuerError:
    """Turn a problem document (RFC 9457) into the error that the server meant; anything else is Undecided.

    An issuer's `detail` ends with the remedy of its code, which the code here says, too.
    """
    value = _json(answer)
    members = dict(value) if isinstance(value, dict) else {}
    code, detail = Code.named(str(members.get("code"))), str(members.get("detail") or f"HTTP status {answer.status}")
    if code is not None:
        detail = detail.removesuffix(code.meaning.remedy).rstrip()
    if code is None or not 400 <= answer.status < 500 or code.retryable:
        return Undecided(code or Code.DEPENDENCY_STATE, detail, retry_after_s=answer.retry_after_s or 1)
    errors = members.get("errors")
    faults = tuple(
        Fault(Code.named(str(fault.get("code"))) or code, str(fault.get("pointer", "")), str(fault.get("detail", "")))
        for fault in (errors if isinstance(errors, list) else [])
        if isinstance(fault, dict)
    )
    checks = _checks(members.get("checks"))
    return Refused(code, detail, faults) if checks is None else Denied(code, detail, faults, checks=checks)


def _checks(value: object) -> tuple[ShownCheck, ...] | None:
    """Read the checks of a problem document; None if it has none that can be read."""
    try:
        return msgspec.convert(value, tuple[ShownCheck, ...])
    except msgspec.ValidationError:
        return None
