"""A caller's credential, and where it comes from: a file, the environment, the CI, or an OAuth server.

A credential is *limited* (an identity token: it is its own use record) or *reusable* (an access token: a personal one,
OAuth's, Hugging Face's), and then every request needs a nonce (contract section 5). A flag names a file, never the
secret. No repr and no error shows what was read, the name of its file, or an authorization server's own words.
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
    """`bearer` is what the Authorization header says after `Bearer`; `reusable` says that requests need a nonce."""

    bearer: str = field(repr=False)
    reusable: bool


def is_bearer(text: str) -> bool:
    """Say whether a text can be sent as a bearer token (RFC 6750 2.1), and is no longer than the service reads."""
    return len(text) <= jose.MAX_TOKEN_BYTES and _BEARER.fullmatch(text) is not None


def identity_token(text: str, place: str) -> Credential:
    """Return the credential of an identity token from `place`. A token of the type at+jwt (RFC 9068) and a personal
    access token are reusable here, too. Raises SetupError(`credential.unusable`)."""
    return Credential(_check(text, place, "identity token"), reusable=_is_access_token(text))


def access_token(text: str, place: str) -> Credential:
    """Return the credential of an access token, of whatever kind. Raises SetupError(`credential.unusable`)."""
    return Credential(_check(text, place, "access token"), reusable=True)


def _check(text: str, place: str, kind: str) -> str:
    if not is_bearer(text):
        detail = f"{place} holds no {kind}: it has other characters, none at all, or too many"
        raise SetupError(Code.CREDENTIAL_UNUSABLE, detail)
    if text.startswith(pat.PREFIX) and pat.token_id(text) is None:
        detail = f"{place} holds a personal access token whose checksum is wrong; copy it again, all of it"
        raise SetupError(Code.CREDENTIAL_UNUSABLE, detail)
    return text


def _is_access_token(text: str) -> bool:
    """Say whether a text shows by its form that it is reusable, wherever it was found."""
    if text.startswith(pat.PREFIX):
        return True
    try:
        typ = jose.parse_compact(text).header.get("typ")
    except FormatError:
        return False  # the issuer says what it is
    return isinstance(typ, str) and typ.lower() in _ACCESS_TOKEN_TYPES


def fresh_nonce() -> str:
    """Make a nonce of 128 random bits: 22 base64url characters."""
    return jose.base64url_encode(secrets.token_bytes(NONCE_BYTES))


ID_TOKEN = "ISSUER_ID_TOKEN"  # noqa: S105  (names of variables)
ACCESS_TOKEN = "ISSUER_ACCESS_TOKEN"  # noqa: S105
CLIENT_SECRET = "ISSUER_CLIENT_SECRET"  # noqa: S105

# The tokens of the Hub; with what is named ISSUER_... nothing of it is any other program's.
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_PROGRAM_S = 60

_MAX_BYTES = 64 * 1024  # more than any credential may have
_SERVICE_SAYS = re.compile(r"(?:GitHub|GCP|GitLab): [A-Za-z0-9_ ,`-]{1,200}")


def identity_token_in(file: Path) -> Credential:
    """Return the identity token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return identity_token(_secret_in(file, "--id-token-file"), "what --id-token-file names")


def access_token_in(file: Path) -> Credential:
    """Return the access token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return access_token(_secret_in(file, "--access-token-file"), "what --access-token-file names")


def client_secret(file: Path | None) -> str:
    """Return the client's secret: in `file`, or in $ISSUER_CLIENT_SECRET. Raises SetupError(`credential.unusable`)."""
    if secret := _secret_in(file, "--client-secret-file") if file else _variable(CLIENT_SECRET):
        return secret
    detail = f"there is no client secret; give one by --client-secret-file or ${CLIENT_SECRET}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail)


def credential_here(audience: str) -> Credential:
    """Return the credential of the environment: one of its two variables, or an identity token from the CI. The CI is
    GitHub Actions, GitLab or Google Cloud, which the `id` package asks for `audience`, or Buildkite or CircleCI, whose
    own program is asked. Raises SetupError with what to do: `credential.absent`, or `credential.unusable`."""
    identity, access = _variable(ID_TOKEN), _variable(ACCESS_TOKEN)
    if identity and access:
        raise _error(f"${ID_TOKEN} and ${ACCESS_TOKEN} are both set; unset the one that is not meant")
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
        raise _error(f"the file that {flag} names cannot be read, or is not UTF-8") from None


def _of_agent(audience: str) -> str:
    """Return what the program of Buildkite or CircleCI answers; "" elsewhere. The `id` package would start it with the
    whole environment. It gets none of our secrets, and no shell."""
    if _variable("BUILDKITE"):
        return _ask("Buildkite", "buildkite-agent", "oidc", "request-token", "--audience", audience)
    if _variable("CIRCLECI"):
        claims = json.dumps({"aud": audience})
        return _ask("CircleCI", "circleci", "run", "oidc", "get", "--claims", claims, "--root-issuer")
    return ""


def _ask(service: str, *command: str) -> str:
    import subprocess  # costs a start-up, too

    kept = {
        name: text for name, text in os.environ.items() if name not in _HUB_TOKENS and not name.startswith("ISSUER_")
    }
    try:
        done = subprocess.run(  # noqa: S603  (a list, and no shell)
            command, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = "does not answer" if isinstance(error, subprocess.TimeoutExpired) else "cannot be started"
    else:
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
        why = f"ends with {done.returncode}" if done.returncode else "answers nothing"
    detail = f"the CI's identity cannot be had: {service}: `{command[0]}` {why}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail) from None


def _ambient(audience: str) -> str:
    import id as ambient  # costs a start-up that most calls do not need

    try:
        token = ambient.detect_credential(audience)
    except ambient.GitHubOidcPermissionCredentialError:
        raise SetupError(Code.CREDENTIAL_ABSENT, _GITHUB) from None
    except Exception as error:  # noqa: BLE001  (what it raises may quote what a CI's endpoint or tool said)
        if _variable("GITLAB_CI") and not _variable(gitlab_variable(audience)):
            raise SetupError(Code.CREDENTIAL_ABSENT, _gitlab(audience)) from None
        said = _SERVICE_SAYS.match(str(error)) if isinstance(error, ambient.IdentityError) else None
        detail = f": {said[0].strip()}" if said else ""
        raise SetupError(Code.CREDENTIAL_ABSENT, f"the CI's identity cannot be had{detail}") from None
    if token is None:
        ways = f"--id-token-file, --access-token-file, --oauth, ${ID_TOKEN}, ${ACCESS_TOKEN} or a CI job that has one"
        raise SetupError(Code.CREDENTIAL_ABSENT, f"there is no identity here; give one by {ways}")
    return token


_GITHUB = """GitHub Actions gives this job no identity token. Allow it in the workflow:
    permissions:
      id-token: write
      contents: read
  A pull request from a fork never gets one: run on a push, on a schedule or by hand."""


def gitlab_variable(audience: str) -> str:
    """Return the variable in which a GitLab job has the identity token for an audience, by the rule of the `id`
    package: in capitals, `_` for all but letters and digits, `_ID_TOKEN` behind it."""
    return re.sub(r"[^A-Z0-9_]|^[^A-Z_]", "_", audience.upper()) + "_ID_TOKEN"


def _gitlab(audience: str) -> str:
    name = gitlab_variable(audience)
    return f"""GitLab gives this job no identity token: ${name} is not set. Add to the job:
    id_tokens:
      {name}:
        aud: {audience}"""


def _error(detail: str) -> SetupError:
    return SetupError(Code.CREDENTIAL_UNUSABLE, detail)


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
        """The Authorization header of client_secret_basic (RFC 6749 2.3.1): both form-encoded, then base64. A space is
        %20, which every form decoder reads; many servers do not read +."""
        pair = ":".join(quote(text, safe="") for text in (self.id, self.secret))
        return f"Basic {base64.b64encode(pair.encode()).decode()}"


def token_endpoint(server: str, *, patience_s: float = PATIENCE_S) -> str:
    """Return the token endpoint of an authorization server, as its metadata has it (RFC 8414; OpenID Discovery).
    `server` is its issuer, byte for byte. The endpoint must be on its host, so that the secret goes nowhere else.
    Raises SetupError and Undecided."""
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


def client_credentials(
    endpoint: str, client: OAuthClient, resource: str, *, patience_s: float = PATIENCE_S
) -> Credential:
    """Get an access token with scope `tokens:issue` for `resource`, the issuer's URL (RFC 6749 4.4.2, RFC 8707). The
    request is repeated where nothing was decided, within `patience_s` (`http_client`). Raises SetupError where the
    server refuses, and Undecided."""
    check_url(endpoint, query=True)
    # `audience` for servers without RFC 8707 (Ory Hydra, Auth0). What a server does not know it ignores (RFC 6749 3.2).
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
