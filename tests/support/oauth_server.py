"""A real OAuth server on a port of this process, built on Authlib's AuthorizationServer.

Client credentials (RFC 6749 4.4) with resource indicators (RFC 8707), access tokens that are JWTs (RFC 9068) or opaque,
introspection (RFC 7662) and revocation (RFC 7009) with client authentication, metadata (RFC 8414) and key set. It can be
made to issue tokens that it should not, and to answer as a broken or hostile server would. All servers have one set of keys.
"""

import contextlib
import gzip
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx
from authlib.integrations.flask_oauth2 import AuthorizationServer  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant  # type: ignore[import-untyped]
from authlib.oauth2.rfc6750 import BearerTokenGenerator  # type: ignore[import-untyped]
from authlib.oauth2.rfc7009 import RevocationEndpoint  # type: ignore[import-untyped]
from authlib.oauth2.rfc7662 import IntrospectionEndpoint  # type: ignore[import-untyped]
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator  # type: ignore[import-untyped]
from flask import Flask, Response, request
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from issuer.dev.sandbox import free_port

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
SCOPE, PREFIX = "tokens:issue", "ory_at_"
TTL_S = 600
# Ids and secrets with everything that form encoding changes (RFC 6749 2.3.1).
CLIENT_ID, CLIENT_SECRET = "ci:nightly/1", "s%cret +client/&=?€"
RESOURCE_ID, RESOURCE_SECRET = "issuer:resource server", "pa+ss %41:w/rd&=?ü"

METADATA_PATH = "/.well-known/oauth-authorization-server"
INTROSPECTION_PATH, JWKS_PATH, TOKEN_PATH, REVOCATION_PATH = "/introspect", "/jwks", "/token", "/revoke"


@dataclass
class OAuthServer:
    """A server that runs on loopback. `client_*` may get tokens, `resource_*` may introspect them.

    `asked` is how often each path was requested since the last `forget`, `last` has the headers and the form of the last
    introspection.
    """

    port: int
    client_id: str = CLIENT_ID
    client_secret: str = CLIENT_SECRET
    resource_id: str = RESOURCE_ID
    resource_secret: str = RESOURCE_SECRET
    secrets: list[str] = field(default_factory=lambda: [CLIENT_SECRET, RESOURCE_SECRET])
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))
    asked: Counter[str] = field(default_factory=Counter)
    last: dict[str, Any] = field(default_factory=dict)
    _issued: "dict[str, Issued]" = field(default_factory=dict)
    _how: tuple[str, float] = ("", 0.0)
    _metadata: tuple[str, float, dict[str, Any]] = (METADATA_PATH, 0.0, {})
    _running: BaseWSGIServer | None = None

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token_endpoint(self) -> str:
        return self.issuer + TOKEN_PATH

    @property
    def introspection_endpoint(self) -> str:
        return self.issuer + INTROSPECTION_PATH

    def token(
        self, audience: str, *, form: str = "opaque", scope: object = SCOPE, alg: str = "RS256", jwt_typ: str = "at+jwt",
        prefix: str = PREFIX, **claims: Any,
    ) -> str:  # fmt: skip
        """Fetch an access token by client credentials; `form` is opaque or jwt.

        `claims` replace those that the token or its introspection has; None leaves one out. `jwt_typ` is the `typ` of a
        JWT (empty: none), `prefix` is how an opaque one begins.
        """
        claims = {"scope": scope, **claims}
        asked = {"grant_type": "client_credentials", "scope": SCOPE, "resource": audience, "test_form": form,
                 "test_alg": alg, "test_typ": jwt_typ, "test_prefix": prefix, "test_claims": json.dumps(claims)}  # fmt: skip
        answer = self.http.post(self.token_endpoint, data=asked, auth=form_encoded(self.client_id, self.client_secret))
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        self.secrets.append(token)
        return token

    def revoke(self, token: str) -> None:
        """Revoke a token, as the client that it was issued to."""
        auth = form_encoded(self.client_id, self.client_secret)
        answer = self.http.post(self.issuer + REVOCATION_PATH, data={"token": token}, auth=auth)
        assert answer.status_code == 200, answer.text

    def behave(self, how: str = "", seconds: float = 0) -> None:
        """From now on answer introspection in one of the ways of `misbehave`; correctly where `how` is empty."""
        self._how = how, seconds

    def serve_metadata(self, path: str = METADATA_PATH, seconds: float = 0, **members: Any) -> None:
        """Serve the metadata at one path only, after some seconds, with changed members; None leaves one out."""
        self._metadata = path, seconds, members

    @property
    def introspected(self) -> int:
        """How many introspections there were since the last `forget`."""
        return self.asked[INTROSPECTION_PATH]

    def forget(self) -> None:
        """Set the counters back, and behave again."""
        self.asked.clear()
        self.last = {}
        self.behave()
        self.serve_metadata()

    def start(self) -> None:
        for name in ALGORITHMS:  # before there are threads, which would each make one
            key(name)
        SERVERS[self.port] = self
        self._running = make_server("127.0.0.1", self.port, app, threaded=True, request_handler=Silent)
        threading.Thread(target=self._running.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stop it; every token that it issued is gone."""
        if self._running is not None:
            self._running.shutdown()
            self._running.server_close()
            self._running = None
        self._issued.clear()


def form_encoded(client_id: str, client_secret: str) -> httpx.BasicAuth:
    """Authenticate as a client does (RFC 6749 2.3.1)."""
    return httpx.BasicAuth(quote(client_id, safe=""), quote(client_secret, safe=""))


@contextlib.contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    server = OAuthServer(free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.http.close()


class Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Client(ClientMixin):  # type: ignore[misc]
    """A registered client: `ci` gets tokens, `resource` introspects them."""

    def __init__(self, client_id: str, secret: str) -> None:
        self.client_id, self.secret = client_id, secret

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials" and self.client_id == CLIENT_ID


class Issued(TokenMixin):  # type: ignore[misc]
    """A token that was issued, and what introspection says about it."""

    def __init__(self, client: Client, claims: dict[str, Any]) -> None:
        self.client, self.claims, self.revoked = client, claims, False

    def check_client(self, client: Client) -> bool:
        return client is self.client

    def is_expired(self) -> bool:
        return False  # the other side must notice a test's wrong expiry

    def is_revoked(self) -> bool:
        return self.revoked


CLIENTS = {CLIENT_ID: Client(CLIENT_ID, CLIENT_SECRET), RESOURCE_ID: Client(RESOURCE_ID, RESOURCE_SECRET)}
SERVERS: dict[int, OAuthServer] = {}

app = Flask(__name__)


def own() -> OAuthServer:
    return SERVERS[int(request.environ["SERVER_PORT"])]


@cache
def key(alg: str) -> RSAKey | ECKey | OKPKey:
    """Return the server's key for an algorithm; made when it is first needed."""
    members: Any = {"kid": f"key-{alg}", "use": "sig", "alg": alg}
    match alg:
        case "ES256":
            return ECKey.generate_key("P-256", members)
        case "EdDSA":
            return OKPKey.generate_key("Ed25519", members)
    return RSAKey.generate_key(2048, members)


def without_none(claims: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not None}


def overrides() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.form.get("test_claims", "{}"))
    return found


class JwtGenerator(JWTBearerTokenGenerator):  # type: ignore[misc]
    """RFC 9068 access tokens for the requested resource, by any of the keys."""

    def get_jwks(self) -> KeySet:
        return KeySet([key("RS256")])

    def get_audiences(self, client: Client, user: Any, scope: str) -> str:
        return request.form.get("resource", client.client_id)

    def access_token_generator(self, client: Client, grant_type: str, user: Any, scope: str) -> str:
        made = super().access_token_generator(client, grant_type, user, scope)
        claims = without_none({**jwt.decode(made, key("RS256")).claims, **overrides()})
        alg, typ = request.form.get("test_alg", "RS256"), request.form.get("test_typ", "at+jwt")
        header = without_none({"typ": typ or None, "alg": alg, "kid": key(alg).kid})
        return jwt.encode(header, claims, key(alg), [alg], default_type=None)


def opaque(client: Client, grant_type: str, user: Any, scope: str) -> str:
    return request.form.get("test_prefix", PREFIX) + os.urandom(24).hex()


def generate(grant_type: str, client: Client, **options: Any) -> dict[str, Any]:
    lifetime = {"expires_generator": lambda _client, _grant: TTL_S}
    made = (
        JwtGenerator(request.host_url.rstrip("/"), **lifetime)
        if request.form.get("test_form") == "jwt"
        else BearerTokenGenerator(opaque, **lifetime)
    )
    found: dict[str, Any] = made(grant_type, client, **options)
    return found


def save_token(token: dict[str, Any], asked: Any) -> None:
    now = int(time.time())
    client, issuer, audience = asked.client.client_id, request.host_url.rstrip("/"), request.form.get("resource")
    claims = {"iss": issuer, "sub": client, "aud": audience, "client_id": client, "scope": token.get("scope"),
              "token_type": "Bearer", "iat": now, "exp": now + TTL_S}  # fmt: skip
    own()._issued[token["access_token"]] = Issued(asked.client, {**claims, **overrides()})


class Introspection(IntrospectionEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS = ("client_secret_basic",)

    def check_permission(self, token: Issued, client: Client, request: Any) -> bool:
        return client.client_id == RESOURCE_ID

    def query_token(self, token_string: str, token_type_hint: str) -> Issued | None:
        return own()._issued.get(token_string)

    def introspect_token(self, token: Issued) -> dict[str, Any]:
        return without_none(token.claims)


class Revocation(RevocationEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS = ("client_secret_basic",)

    def query_token(self, token_string: str, token_type_hint: str) -> Issued | None:
        return own()._issued.get(token_string)

    def revoke_token(self, token: Issued, request: Any) -> None:
        token.revoked = True


server = AuthorizationServer(app, query_client=CLIENTS.get, save_token=save_token)
server.register_token_generator("default", generate)
server.register_grant(ClientCredentialsGrant)
server.register_endpoint(Introspection)
server.register_endpoint(Revocation)


@app.before_request
def count() -> None:
    own().asked[request.path] += 1
    if request.path == INTROSPECTION_PATH:
        own().last = {"headers": dict(request.headers), "form": request.form.to_dict(flat=False)}


@app.post(TOKEN_PATH)
def token() -> Any:
    return server.create_token_response()


@app.post(REVOCATION_PATH)
def revoke() -> Any:
    return server.create_endpoint_response("revocation")


@app.post(INTROSPECTION_PATH)
def introspect() -> Any:
    answer = server.create_endpoint_response("introspection")
    how, seconds = own()._how
    return misbehave(how, seconds, answer) if how else answer


def misbehave(how: str, seconds: float, answer: Response) -> Response:
    """Answer as a good server would not, by the name of the fault."""
    said: dict[str, Any] = json.loads(answer.data)
    match how:
        case "slow":
            time.sleep(seconds)  # a slow peer
            return answer
        case "drip":
            return Response(drip(answer.data, seconds), mimetype="application/json")
        case "huge":
            return Response(json.dumps({**said, "padding": "x" * 65_536}), mimetype="application/json")
        case "charset":
            return Response(answer.data, content_type="application/json;charset=UTF-8")
        case "text":
            return Response(answer.data, content_type="text/html")
        case "garbage":
            return Response(b'{"active": true,', mimetype="application/json")
        case "array":
            return Response(b"[true]", mimetype="application/json")
        case "twice":
            return Response(answer.data[:-1] + b', "active": true}', mimetype="application/json")
        case "gzip":
            packed = gzip.compress(answer.data)
            return Response(packed, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
        case "cookie":
            answer.headers["Set-Cookie"] = "session=1; Path=/"
            return answer
        case "redirect":
            return Response(status=307, headers={"Location": INTROSPECTION_PATH + "/moved"})
        case "cut":
            return Response(iter([answer.data]), headers={"Content-Length": str(len(answer.data) + 10)})
    if how.isdigit():
        return Response(json.dumps({**said, "error": "server_error"}), status=int(how), mimetype="application/json")
    return Response(json.dumps({**said, **json.loads(how)}), mimetype="application/json")


def drip(data: bytes, seconds: float) -> Iterator[bytes]:
    for byte in data:
        time.sleep(seconds)  # a slow peer
        yield bytes([byte])


@app.post(INTROSPECTION_PATH + "/moved")
def moved() -> Any:
    return server.create_endpoint_response("introspection")


@app.get(JWKS_PATH)
def jwks() -> Any:
    return KeySet([key(alg) for alg in ALGORITHMS]).as_dict(private=False)


@app.get("/.well-known/<name>")
def metadata(name: str) -> Any:
    path, late_s, members = own()._metadata
    if request.path != path:
        return {"error": "not found"}, 404
    time.sleep(late_s)  # a slow peer
    issuer = request.host_url.rstrip("/")
    methods = ("token_endpoint_auth_methods_supported", "introspection_endpoint_auth_methods_supported")
    found = {
        "issuer": issuer, "token_endpoint": issuer + TOKEN_PATH, "introspection_endpoint": issuer + INTROSPECTION_PATH,
        "revocation_endpoint": issuer + REVOCATION_PATH, "jwks_uri": issuer + JWKS_PATH, "scopes_supported": [SCOPE],
        "grant_types_supported": ["client_credentials"], "response_types_supported": [],
        **dict.fromkeys(methods, ("client_secret_basic",)),
    }  # fmt: skip
    return without_none({**found, **members})
