"""An access token by OAuth client credentials (RFC 6749 4.4), for one issuer (RFC 8707).

The secret goes to the token endpoint alone, in the Authorization header. Of what an authorization server answers only
the token is used, and only an error's code, from a closed list, is shown: descriptions may repeat what was sent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

from issuer.client.credential import Credential, is_bearer
from issuer.codes import Code
from issuer.errors import FormatError, IssuerError, SetupError, Undecided
from issuer.formats.strict_json import JSON, loads
from issuer.http_client import PATIENCE_S, HttpAnswer, HttpRequest, check_url, send_until_decided
from issuer.wire import TOKENS_ISSUE

MAX_ANSWER_BYTES = 256 * 1024
# RFC 6749 5.2, and RFC 8707 section 2. What else an `error` says is not shown.
ERRORS = {
    "invalid_request": "It may not know a parameter that RFC 6749 and RFC 8707 define.",
    "invalid_client": "Check --client-id and the secret.",
    "invalid_grant": "Check --client-id and the secret.",
    "unauthorized_client": "Allow this client the grant client_credentials there.",
    "unsupported_grant_type": "It gives no tokens by client credentials.",
    "invalid_scope": f"Allow this client the scope {TOKENS_ISSUE} there.",
    "invalid_target": "Allow this client the issuer's URL as its resource there.",
}
_MAX_CHARS = 4096
_HEADERS = {"Accept": "application/json", "User-Agent": "eval-token-issuer"}


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client of an authorization server, and the secret that they share."""

    id: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        """Raise SetupError(`credential.unusable`) for what no server can have given out."""
        for name, text in (("id", self.id), ("secret", self.secret)):
            if not text or not text.isprintable() or len(text) > _MAX_CHARS:
                raise SetupError(Code.CREDENTIAL_UNUSABLE, f"the client {name} is empty, or not one line of text")

    @property
    def authorization(self) -> str:
        """The Authorization header of client_secret_basic (RFC 6749 2.3.1): both form-encoded, then base64.

        A space is %20, which every form decoder reads; many servers do not read +.
        """
        pair = ":".join(quote(text, safe="") for text in (self.id, self.secret))
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


# -- the token endpoint -----------------------------------------------------------------------------------------------


def token_endpoint(server: str, *, patience_s: float = PATIENCE_S) -> str:
    """Return the token endpoint of an authorization server, as its metadata has it (RFC 8414; OpenID Discovery).

    `server` is its issuer, byte for byte. The endpoint must be on its host, so that the secret goes nowhere else.
    Raises SetupError and Undecided.
    """
    for url in _metadata_urls(server):
        answer = _send(HttpRequest("GET", url, _HEADERS, None, MAX_ANSWER_BYTES), patience_s)
        if answer.status == 200:
            return _endpoint_in(_members(answer), server)
        if not 400 <= answer.status < 500 or answer.status == 429:
            raise _undecided(answer)
    raise _setup("publishes no metadata; give --token-endpoint")


def _metadata_urls(server: str) -> tuple[str, str]:
    """Return where RFC 8414 (section 3.1) and OpenID Connect Discovery (4.1) put the metadata."""
    parts = urlsplit(check_url(server))
    return (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}",
        f"{parts.geturl()}/.well-known/openid-configuration",
    )


def _endpoint_in(metadata: Mapping[str, JSON], server: str) -> str:
    if metadata.get("issuer") != server:
        raise _setup("publishes metadata of another issuer than --oauth says; compare every byte, and the last slash")
    endpoint = metadata.get("token_endpoint")
    if not isinstance(endpoint, str):
        raise _setup("publishes no token_endpoint; give --token-endpoint")
    try:
        check_url(endpoint, query=True)
    except SetupError:
        raise _setup("publishes a token_endpoint that is not https; give --token-endpoint") from None
    if urlsplit(endpoint).hostname != urlsplit(server).hostname:
        raise _setup("publishes a token_endpoint on another host; if that is right, give it as --token-endpoint")
    return endpoint


# -- the token --------------------------------------------------------------------------------------------------------


def client_credentials(
    endpoint: str, client: OAuthClient, resource: str, *, patience_s: float = PATIENCE_S
) -> Credential:
    """Get an access token with scope `tokens:issue` for `resource`, the issuer's URL (RFC 6749 4.4.2, RFC 8707).

    The request is repeated where nothing was decided, within `patience_s` (`http_client`). Raises SetupError where the
    server refuses, and Undecided.
    """
    check_url(endpoint, query=True)
    # `audience` for servers without RFC 8707 (Ory Hydra, Auth0). What a server does not know it ignores (RFC 6749 3.2).
    form = {"grant_type": "client_credentials", "scope": TOKENS_ISSUE, "resource": resource, "audience": resource}
    headers = {
        **_HEADERS,
        "Authorization": client.authorization,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    request = HttpRequest("POST", endpoint, headers, urlencode(form).encode(), MAX_ANSWER_BYTES)
    answer = _send(request, patience_s)
    if answer.status == 200:
        return _token_in(_members(answer))
    if 400 <= answer.status < 500 and answer.status != 429:
        raise _refusal(answer)
    raise _undecided(answer)


def _token_in(members: Mapping[str, JSON]) -> Credential:
    """Read a successful answer (RFC 6749 5.1); members that it does not define are ignored, as it says."""
    kind, token = members.get("token_type"), members.get("access_token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise _malformed("no token_type Bearer")
    if not isinstance(token, str) or not is_bearer(token):
        raise _malformed("no access_token that can be sent")
    return Credential(token, reusable=True)


def _refusal(answer: HttpAnswer) -> IssuerError:
    try:
        error = _members(answer).get("error")
    except Undecided:
        error = None
    if isinstance(error, str) and error in ERRORS:
        return _refused(f"{error}. {ERRORS[error]}")
    return _refused(f"HTTP status {answer.status}, and no error code that is known")


def _refused(what: str) -> SetupError:
    return SetupError(Code.CREDENTIAL_UNUSABLE, f"the authorization server refuses: {what}")


def _send(request: HttpRequest, patience_s: float) -> HttpAnswer:
    """Send as `send_until_decided` does; what fails is the authorization server, and not an issuer."""
    try:
        return send_until_decided(request, patience_s=patience_s)
    except Undecided as error:
        raise Undecided(Code.DEPENDENCY_AUTHORIZATION_SERVER, error.detail) from None


def _members(answer: HttpAnswer) -> Mapping[str, JSON]:
    try:
        value = loads(answer.body, max_bytes=MAX_ANSWER_BYTES, max_depth=8)
    except FormatError:
        value = None
    if not isinstance(value, dict):
        raise _malformed("no JSON object")
    return value


def _setup(what: str) -> SetupError:
    return SetupError(Code.SETTINGS_INVALID, f"the authorization server {what}")


def _malformed(what: str) -> Undecided:
    return Undecided(Code.DEPENDENCY_AUTHORIZATION_SERVER, f"the authorization server's answer is malformed: {what}")


def _undecided(answer: HttpAnswer) -> Undecided:
    detail = f"the authorization server answered HTTP status {answer.status}"
    return Undecided(Code.DEPENDENCY_AUTHORIZATION_SERVER, detail, retry_after_s=answer.retry_after_s or 1)
