"""Requests for verify tokens (contract section 5): their bodies, and the answers and errors of an issuer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from issuer.adapters import Built
from issuer.client.answer import SentRequest, check_answer, has_key_for, read_asked
from issuer.client.credential import Credential, fresh_nonce
from issuer.codes import Code
from issuer.errors import Fault, FormatError, IssuerError, Refused, Undecided, VerificationError, reading
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.identity import pat
from issuer.io.http_client import (
    MAX_ANSWER_BYTES,
    PATIENCE_S,
    HttpAnswer,
    HttpRequest,
    check_url,
    is_decided,
    send_until_decided,
)
from issuer.token.wire import JWKS_PATH, MAX_BYTES, Denied, Endpoint, Explained, IssuedToken, IssuedTokens, ShownCheck

_MAX_DEPTH = 16


def request_of(built: Built) -> dict[str, JSON]:
    """Return the request for the token of a run's claims."""
    return {"claims": built.claims.to_json(), "details": built.details}


def read_request(raw: bytes, name: str) -> dict[str, JSON]:
    """Read a request as JSON: the body of `/tokens`, or the run claims alone. `name` is its name in errors. The issuer
    judges its members. Raises InputError unless it is a JSON object that is small enough for the issuer."""
    with reading(name):
        value = loads(raw, max_bytes=MAX_BYTES["single"], max_depth=_MAX_DEPTH)
        if not isinstance(value, dict):
            raise FormatError(Code.FILE_SCHEMA, "must be a JSON object")
    return value if "claims" in value else {"claims": value}


def with_nonce(request: Mapping[str, Any], credential: Credential) -> dict[str, Any]:
    """Return the request for this credential: with a fresh nonce if the credential is reusable and the request has
    none. The same request with the same nonce gets the same token, as long as that token lives."""
    if not credential.reusable or request.get("nonce"):
        return dict(request)
    return {**request, "nonce": fresh_nonce()}


# Shorter texts are not secrets, and occur in answers by chance.
_SECRET_CHARS = 16


class Obtained(Struct, frozen=True):
    """Tokens from a checked answer, in the order of the request. `repeated` means that they were issued before."""

    tokens: tuple[IssuedToken, ...]
    repeated: bool


def request_token(
    issuer: str, credential: Credential, request: Mapping[str, Any], *, patience_s: float = PATIENCE_S
) -> IssuedToken:
    """Request a verify token. `put_entry` writes the result's `entry` into a file. `request` is the body of `/tokens`;
    it gets a nonce if the credential needs one. Raises as `obtain` does."""
    return obtain(issuer, credential, with_nonce(request, credential), patience_s=patience_s).tokens[0]


def request_batch(
    issuer: str, credential: Credential, request: Mapping[str, Any], *, patience_s: float = PATIENCE_S
) -> tuple[IssuedToken, ...]:
    """Request verify tokens for several results; `request` is the body of `/tokens/batch`. Raises as `obtain` does."""
    body = with_nonce(request, credential)
    return obtain(issuer, credential, body, "/tokens/batch", patience_s=patience_s).tokens


def obtain(
    issuer: str,
    credential: Credential,
    request: Mapping[str, Any],
    endpoint: Literal["/tokens", "/tokens/batch"] = "/tokens",
    *,
    patience_s: float = PATIENCE_S,
) -> Obtained:
    """Request tokens, and verify the answer against the request and the issuer's keys. The key set is fetched first: if
    it is unavailable, no use of the identity is spent. Raises as `request_tokens` does, VerificationError for an answer
    that `client.answer` refuses, and Undecided(`dependency.key_set`)."""
    url = check_url(issuer)
    keys = fetch_keys(url, patience_s=patience_s)
    answer = request_tokens(url, credential, request, endpoint, patience_s=patience_s)
    if endpoint == "/tokens":
        issued: tuple[IssuedToken, ...] = (read_answer(answer, IssuedToken),)
    else:
        issued = read_answer(answer, IssuedTokens).tokens
    if not has_key_for(issued, keys):  # the issuer changed its signing key after the first fetch
        keys = fetch_keys(url, patience_s=patience_s)
    return Obtained(check_answer(_asked(url, request), issued, keys, int(time.time())), answer.status == 200)


def fetch_keys(issuer: str, *, patience_s: float = PATIENCE_S) -> jose.KeySet:
    """Fetch an issuer's key set (contract section 6) without a cache. Raises Undecided(`dependency.key_set`)."""
    get = HttpRequest("GET", f"{issuer}{JWKS_PATH}", {"Accept": "application/json"}, max_bytes=jose.MAX_KEY_SET_BYTES)
    try:
        answer = send_until_decided(get, patience_s=patience_s)
        keys = jose.parse_key_set(answer.body) if answer.status == 200 else None
    except FormatError as error:
        raise Undecided(Code.DEPENDENCY_KEY_SET, f"{issuer}{JWKS_PATH} is not a key set: {error.detail}") from None
    except Undecided as error:
        raise Undecided(Code.DEPENDENCY_KEY_SET, error.detail) from None
    if keys is None:
        raise Undecided(Code.DEPENDENCY_KEY_SET, f"{issuer}{JWKS_PATH} answers HTTP status {answer.status}")
    return keys


def fetch_metadata(issuer: str, *, patience_s: float = PATIENCE_S) -> bytes:
    """Fetch an issuer's metadata; b"" if it is unavailable."""
    get = HttpRequest("GET", f"{check_url(issuer)}/.well-known/eval-token-issuer", {"Accept": "application/json"})
    try:
        answer = send_until_decided(get, patience_s=patience_s)
    except Undecided:
        return b""
    return answer.body if answer.status == 200 else b""


def _asked(issuer: str, request: Mapping[str, Any]) -> SentRequest:
    """Parse the request in its encoded form. Raises VerificationError for a result that an issuer must not sign."""
    try:
        body = loads(msgspec.json.encode(request), max_bytes=MAX_BYTES["batch"], max_depth=_MAX_DEPTH + 4)
        return read_asked(issuer, dict(body) if isinstance(body, Mapping) else {})
    except (Refused, FormatError) as error:
        detail = f"it signed a result that an issuer must not sign: {error.detail}"
        raise VerificationError(Code.ANSWER_UNVERIFIED, detail, error.faults) from None


def explain_request(
    issuer: str, credential: Credential, request: Mapping[str, Any], *, patience_s: float = PATIENCE_S
) -> Explained:
    """Ask for the issuer's decision on a request and its reasons, without signing and without spending a use. Raises as
    `request_tokens` does, except for a policy's denial, which is returned."""
    body = with_nonce(request, credential)
    answer = request_tokens(issuer, credential, body, "/tokens/explain", patience_s=patience_s)
    return read_answer(answer, Explained)


def explain_caller(issuer: str, credential: Credential, *, patience_s: float = PATIENCE_S) -> Explained:
    """Ask for the caller's registration and standing, without a result. This counts as one request against the rate; it
    never counts as a refusal of a registered caller. Raises as `explain_request` does."""
    answer = request_tokens(issuer, credential, {}, "/tokens/explain", patience_s=patience_s)
    return read_answer(answer, Explained)


def request_tokens(
    issuer: str,
    credential: Credential,
    request: Mapping[str, Any],
    endpoint: Endpoint = "/tokens",
    *,
    patience_s: float = PATIENCE_S,
) -> HttpAnswer:
    """Post a request to one of the endpoints, and return a successful answer for `read_answer`.

    A request with a reusable credential must have a `nonce`, unless it is `{}`. The same request is safe to repeat
    (contract section 5), so it is repeated within `patience_s` until the server decides (`http_client`). Raises
    Refused, Denied if a policy refused, and Undecided. Errors and answers never contain the credential, even if the
    server repeats it.
    """
    headers = {"Authorization": f"Bearer {credential.bearer}", "Content-Type": "application/json"}
    post = HttpRequest("POST", f"{check_url(issuer)}{endpoint}", headers, msgspec.json.encode(request))
    answer = send_until_decided(post, patience_s=patience_s, enough=_is_enough)
    value = _json(answer)
    leaks = _has_secret(value, credential.bearer)
    if answer.status not in {200, 201}:
        error = problem_of(answer)
        if leaks:
            error = Undecided(error.code) if isinstance(error, Undecided) else Refused(error.code)
        if error.code.meaning.status:  # an issuer has a page for each of these codes
            error.page = f"{check_url(issuer)}/errors/{error.code}"
        raise error
    if leaks or not isinstance(value, dict):
        fault = "repeats the credential and is not shown" if leaks else "did not come from an issuer"
        raise Undecided(Code.DEPENDENCY_SERVER, f"the answer {fault} (HTTP status {answer.status})")
    return answer


Body = TypeVar("Body", IssuedToken, IssuedTokens, Explained)


def read_answer(answer: HttpAnswer, kind: type[Body]) -> Body:
    """Parse the body of a successful answer. Unknown members are ignored. Raises Undecided."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = "the server is not an issuer: its 2xx body is not an issuer's"
        raise Undecided(Code.DEPENDENCY_SERVER, detail) from None


def _is_enough(answer: HttpAnswer) -> bool:
    # After a loss of the store the answer to this identity token never changes: only a fresh token helps.
    return is_decided(answer) or problem_of(answer).code is Code.DEPENDENCY_STATE_RESET


def _json(answer: HttpAnswer) -> JSON:
    """Parse the body of an answer; None if it is not JSON."""
    try:
        return loads(answer.body, max_bytes=MAX_ANSWER_BYTES, max_depth=_MAX_DEPTH)
    except FormatError:
        return None


def _has_secret(value: JSON, bearer: str) -> bool:
    """Return whether a JSON value contains a part of the credential, percent-encoded or not. The value is encoded anew,
    because its original text may have escapes."""
    text, secret = unquote(msgspec.json.encode(value).decode()), _secret_of(bearer)
    return any(secret[at : at + _SECRET_CHARS] in text for at in range(len(secret) - _SECRET_CHARS + 1))


def _secret_of(bearer: str) -> str:
    """Return the secret part of a credential. Of a JWT it is the signature, because answers contain other JWTs."""
    if bearer.startswith(pat.PREFIX):
        return bearer.removeprefix(pat.PREFIX).partition("_")[2]  # the id before the secret is public
    return bearer.rpartition(".")[2] if bearer.startswith("eyJ") else bearer


def problem_of(answer: HttpAnswer) -> IssuerError:
    """Return the error in a problem document (RFC 9457), or Undecided for any other body. An issuer's `detail` ends
    with the remedy of its code, which is removed, because the code has it."""
    value = _json(answer)
    members = dict(value) if isinstance(value, dict) else {}
    code, detail = Code.named(str(members.get("code"))), str(members.get("detail") or f"HTTP status {answer.status}")
    if code is not None:
        detail = detail.removesuffix(code.meaning.remedy).rstrip()
    if code is None or not 400 <= answer.status < 500 or code.retryable:
        return Undecided(code or Code.DEPENDENCY_SERVER, detail, retry_after_s=answer.retry_after_s or 1)
    errors = members.get("errors")
    faults = tuple(
        Fault(Code.named(str(fault.get("code"))) or code, str(fault.get("pointer", "")), str(fault.get("detail", "")))
        for fault in (errors if isinstance(errors, list) else [])
        if isinstance(fault, dict)
    )
    try:
        checks = msgspec.convert(members.get("checks"), tuple[ShownCheck, ...])
        refused: Refused = Denied(code, detail, faults, checks=checks)
    except msgspec.ValidationError:  # no checks
        refused = Refused(code, detail, faults)
    warnings = members.get("warnings")
    return refused.warned(*map(str, warnings if isinstance(warnings, list) else []))
