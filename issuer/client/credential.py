"""A caller's credential, from a file, the environment, the CI, or an OAuth server.

An identity token is *limited*: it carries a fixed number of uses. An access token (a personal one, OAuth's, Hugging
Face's) is *reusable*: every request needs a nonce (contract section 5). A flag names a file, never the secret. Reprs
and errors show neither the secret, nor its file's name, nor the words of an authorization server.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from issuer.codes import Code
from issuer.errors import FormatError, InputError, IssuerError, SetupError, Undecided
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.identity import pat
from issuer.identity.profiles import TOKENS_ISSUE
from issuer.io.files import read_argument
from issuer.io.http_client import PATIENCE_S, HttpAnswer, HttpRequest, check_url, send_until_decided

# RFC 6750 2.1, b64token. The HTTP library quotes any other text in its error.
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ACCESS_TOKEN_TYPES = frozenset({"at+jwt", "application/at+jwt"})
NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Credential:
    """The text after `Bearer` in the Authorization header. If it is `reusable`, requests need a nonce."""

    bearer: str = field(repr=False)
    reusable: bool


def is_bearer(text: str) -> bool:
    """Return whether a text is a bearer token (RFC 6750 2.1) of a length that the service reads."""
    return len(text) <= jose.MAX_TOKEN_BYTES and _BEARER.fullmatch(text) is not None


def identity_token(text: str, place: str) -> Credential:
    """Return the credential of an identity token from `place`. Access tokens of the type at+jwt (RFC 9068) and personal
    access tokens are recognised, and are reusable. Raises SetupError(`credential.unusable`)."""
    return Credential(_check(text, place, "identity token"), reusable=_is_access_token(text))


def access_token(text: str, place: str) -> Credential:
    """Return the credential of an access token of any kind from `place`. Raises SetupError(`credential.unusable`)."""
    return Credential(_check(text, place, "access token"), reusable=True)


def _check(text: str, place: str, kind: str) -> str:
    if not is_bearer(text):
        raise _unusable(f"{place} does not contain an {kind}: it is empty, too long, or has other characters")
    if text.startswith(pat.PREFIX) and pat.token_id(text) is None:
        raise _unusable(f"{place} contains a personal access token with a wrong checksum; copy the whole token again")
    return text


def _is_access_token(text: str) -> bool:
    """Return whether the form of the text shows that it is reusable."""
    if text.startswith(pat.PREFIX):
        return True
    try:
        typ = jose.parse_compact(text).header.get("typ")
    except FormatError:
        return False  # the issuer will judge it
    return isinstance(typ, str) and typ.lower() in _ACCESS_TOKEN_TYPES


def fresh_nonce() -> str:
    """Return a nonce of 128 random bits: 22 base64url characters."""
    return jose.base64url_encode(secrets.token_bytes(NONCE_BYTES))


ID_TOKEN = "ISSUER_ID_TOKEN"  # noqa: S105  (names of variables)
ACCESS_TOKEN = "ISSUER_ACCESS_TOKEN"  # noqa: S105
CLIENT_SECRET = "ISSUER_CLIENT_SECRET"  # noqa: S105

# The Hub's tokens. Like the ISSUER_ variables, they are not passed to other programs.
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_PROGRAM_S = 60

_MAX_BYTES = 64 * 1024  # more than the size of any credential
_SERVICE_SAYS = re.compile(r"(?:GitHub|GCP|GitLab): [A-Za-z0-9_ ,`-]{1,200}")


def identity_token_in(file: Path) -> Credential:
    """Return the identity token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return identity_token(_secret_in(file, "--id-token-file"), "the file of --id-token-file")


def access_token_in(file: Path) -> Credential:
    """Return the access token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return access_token(_secret_in(file, "--access-token-file"), "the file of --access-token-file")


def client_secret(file: Path | None) -> str:
    """Return the client's secret from `file`, or from $ISSUER_CLIENT_SECRET. Raises SetupError(`credential.*`)."""
    if secret := _secret_in(file, "--client-secret-file") if file else _variable(CLIENT_SECRET):
        return secret
    detail = f"the client secret is missing; give it by --client-secret-file or ${CLIENT_SECRET}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail)


def credential_here(audience: str) -> Credential:
    """Return the credential of the environment: one of the two variables, or an identity token from the CI. The `id`
    package gets the token for `audience` from GitHub Actions, GitLab or Google Cloud; Buildkite and CircleCI have a
    program for it. Raises SetupError with the next step: `credential.absent`, or `credential.unusable`."""
    identity, access = _variable(ID_TOKEN), _variable(ACCESS_TOKEN)
    if identity and access:
        raise _unusable(f"${ID_TOKEN} and ${ACCESS_TOKEN} are both set; unset one of them")
    if identity:
        return identity_token(identity, f"${ID_TOKEN}")
    if access:
        return access_token(access, f"${ACCESS_TOKEN}")
    return identity_token(_of_agent(audience) or _ambient(audience), "the CI's answer")


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _secret_in(file: Path, flag: str) -> str:
    try:
        return read_argument(file, _MAX_BYTES).decode("utf-8").strip()
    except (InputError, ValueError):
        raise _unusable(f"the file of {flag} cannot be read, or is not UTF-8") from None


def _of_agent(audience: str) -> str:
    """Return the identity token from the program of Buildkite or CircleCI; "" elsewhere. The `id` package would start
    the program with the whole environment; here it gets none of our secrets, and runs without a shell."""
    if _variable("BUILDKITE"):
        return _ask("Buildkite", "buildkite-agent", "oidc", "request-token", "--audience", audience)
    if _variable("CIRCLECI"):
        claims = json.dumps({"aud": audience})
        return _ask("CircleCI", "circleci", "run", "oidc", "get", "--claims", claims, "--root-issuer")
    return ""


def _ask(service: str, *command: str) -> str:
    import subprocess  # slow to import

    env = {
        name: text for name, text in os.environ.items() if name not in _HUB_TOKENS and not name.startswith("ISSUER_")
    }
    try:
        done = subprocess.run(  # noqa: S603  (a list, and no shell)
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        failure = "does not answer" if isinstance(error, subprocess.TimeoutExpired) else "cannot be started"
    else:
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
        failure = f"ends with {done.returncode}" if done.returncode else "prints no token"
    detail = f"the CI's identity is unavailable: {service}: `{command[0]}` {failure}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail) from None


def _ambient(audience: str) -> str:
    import id as ambient  # slow to import, and most calls do not need it

    try:
        token = ambient.detect_credential(audience)
    except ambient.GitHubOidcPermissionCredentialError:
        raise SetupError(Code.CREDENTIAL_ABSENT, _GITHUB) from None
    except Exception as error:  # noqa: BLE001  (its errors may quote a CI's endpoint or tool)
        if _variable("GITLAB_CI") and not _variable(gitlab_variable(audience)):
            raise SetupError(Code.CREDENTIAL_ABSENT, _gitlab(audience)) from None
        harmless = _SERVICE_SAYS.match(str(error)) if isinstance(error, ambient.IdentityError) else None
        detail = f": {harmless[0].strip()}" if harmless else ""
        raise SetupError(Code.CREDENTIAL_ABSENT, f"the CI's identity is unavailable{detail}") from None
    if token is None:
        ways = f"--id-token-file, --access-token-file, --oauth, ${ID_TOKEN}, ${ACCESS_TOKEN} or a CI job that has one"
        raise SetupError(Code.CREDENTIAL_ABSENT, f"this job has no identity; give one by {ways}")
    return token


_GITHUB = """GitHub Actions gives this job no identity token. Allow it in the workflow:
    permissions:
      id-token: write
      contents: read
  A pull request of a fork never gets one: run on a push, a schedule or by hand."""


def gitlab_variable(audience: str) -> str:
    """Return the name of a GitLab job's variable with the identity token for an audience, as the `id` package expects
    it: the audience in capitals, with `_` in place of all other characters than letters and digits, and `_ID_TOKEN`."""
    return re.sub(r"[^A-Z0-9_]|^[^A-Z_]", "_", audience.upper()) + "_ID_TOKEN"


def _gitlab(audience: str) -> str:
    name = gitlab_variable(audience)
    return f"""GitLab gives this job no identity token: ${name} is not set. Add to the job:
    id_tokens:
      {name}:
        aud: {audience}"""


def _unusable(detail: str) -> SetupError:
    return SetupError(Code.CREDENTIAL_UNUSABLE, detail)


MAX_ANSWER_BYTES = 256 * 1024
# The values of `error` in RFC 6749 5.2 and RFC 8707 section 2. Other values are not shown.
ERRORS = {
    "invalid_request": "The server may not know a parameter that RFC 6749 and RFC 8707 define.",
    "invalid_client": "Check --client-id and the secret.",
    "invalid_grant": "Check --client-id and the secret.",
    "unauthorized_client": "Allow this client the grant client_credentials there.",
    "unsupported_grant_type": "The server does not issue tokens for client credentials.",
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
        """Raise SetupError(`credential.unusable`) for an id or a secret that cannot come from a server."""
        for name, text in (("id", self.id), ("secret", self.secret)):
            if not text or not text.isprintable() or len(text) > _MAX_CHARS:
                raise _unusable(f"the client {name} is empty, too long, or not one line of text")

    @property
    def authorization(self) -> str:
        """The Authorization header of client_secret_basic (RFC 6749 2.3.1): id and secret form-encoded, then base64. A
        space becomes %20, which every form decoder reads; many servers do not decode +."""
        pair = ":".join(quote(text, safe="") for text in (self.id, self.secret))
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def token_endpoint(server: str, *, patience_s: float = PATIENCE_S) -> str:
    """Return the token endpoint in an authorization server's metadata (RFC 8414; OpenID Discovery). `server` is the
    server's `issuer`, byte for byte. The endpoint gets the secret, so it must be on the same host. Raises SetupError,
    Undecided."""
    for url in _metadata_urls(server):
        answer = _send(HttpRequest("GET", url, _HEADERS, None, MAX_ANSWER_BYTES), patience_s)
        if answer.status == 200:
            return _endpoint_in(_members(answer), server)
        if not 400 <= answer.status < 500 or answer.status == 429:
            raise _undecided(answer)
    raise _setup("publishes no metadata; give --token-endpoint")


def _metadata_urls(server: str) -> tuple[str, str]:
    """Return the metadata's URLs of RFC 8414 (section 3.1) and of OpenID Connect Discovery (4.1)."""
    parts = urlsplit(check_url(server))
    return (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}",
        f"{parts.geturl()}/.well-known/openid-configuration",
    )


def _endpoint_in(metadata: Mapping[str, JSON], server: str) -> str:
    if metadata.get("issuer") != server:
        raise _setup("publishes metadata for another issuer than --oauth; compare every byte, and the last slash")
    endpoint = metadata.get("token_endpoint")
    if not isinstance(endpoint, str):
        raise _setup("publishes no token_endpoint; give --token-endpoint")
    try:
        check_url(endpoint, query=True)
    except SetupError:
        raise _setup("publishes a token_endpoint that is not https; give --token-endpoint") from None
    if urlsplit(endpoint).hostname != urlsplit(server).hostname:
        raise _setup("publishes a token_endpoint on another host; if you trust it, give it as --token-endpoint")
    return endpoint


def client_credentials(
    endpoint: str, client: OAuthClient, resource: str, *, patience_s: float = PATIENCE_S
) -> Credential:
    """Get an access token with scope `tokens:issue` for `resource`, the issuer's URL (RFC 6749 4.4.2, RFC 8707). The
    request is repeated within `patience_s` until the server decides (`http_client`). Raises SetupError if the server
    refuses, and Undecided."""
    check_url(endpoint, query=True)
    # `audience` is for servers without RFC 8707 (Ory Hydra, Auth0). Servers ignore unknown parameters (RFC 6749 3.2).
    form = {"grant_type": "client_credentials", "scope": TOKENS_ISSUE, "resource": resource, "audience": resource}
    headers = {**_HEADERS, "Authorization": client.authorization, "Content-Type": "application/x-www-form-urlencoded"}
    request = HttpRequest("POST", endpoint, headers, urlencode(form).encode(), MAX_ANSWER_BYTES)
    answer = _send(request, patience_s)
    if answer.status == 200:
        return _token_in(_members(answer))
    if 400 <= answer.status < 500 and answer.status != 429:
        raise _refusal(answer)
    raise _undecided(answer)


def _token_in(members: Mapping[str, JSON]) -> Credential:
    """Return the credential in a successful answer. Unknown members are ignored (RFC 6749 5.1)."""
    kind, token = members.get("token_type"), members.get("access_token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise _malformed("no token_type Bearer")
    if not isinstance(token, str) or not is_bearer(token):
        raise _malformed("no valid access_token")
    return Credential(token, reusable=True)


def _refusal(answer: HttpAnswer) -> IssuerError:
    try:
        error = _members(answer).get("error")
    except Undecided:
        error = None
    reason = f"HTTP status {answer.status}, without a known error code"
    if isinstance(error, str) and error in ERRORS:
        reason = f"{error}. {ERRORS[error]}"
    return _unusable(f"the authorization server refuses: {reason}")


def _send(request: HttpRequest, patience_s: float) -> HttpAnswer:
    """Send as `send_until_decided` does, with the error code for an authorization server."""
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
        raise _malformed("not a JSON object")
    return value


def _setup(fault: str) -> SetupError:
    return SetupError(Code.SETTINGS_INVALID, f"the authorization server {fault}")


def _malformed(fault: str) -> Undecided:
    return Undecided(Code.DEPENDENCY_AUTHORIZATION_SERVER, f"the authorization server's answer is malformed: {fault}")


def _undecided(answer: HttpAnswer) -> Undecided:
    detail = f"the authorization server answered HTTP status {answer.status}"
    return Undecided(Code.DEPENDENCY_AUTHORIZATION_SERVER, detail, retry_after_s=answer.retry_after_s or 1)
