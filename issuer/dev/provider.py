"""A local OIDC provider like that of GitHub Actions, for `issuer dev`, `issuer demo` and tests, never for production.

It publishes discovery and key set, and mints tokens for callers with its request token, like a runner's endpoint. Its
keys are made when it starts. With `sign` and `answers`, a test can make it hostile.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from msgspec import UNSET, Struct

# The keys sign with `cryptography` alone, so that the tests of `jose` do not verify `jose`'s own signatures.


class ProviderKey(Struct, frozen=True):
    """A signing key: its JWS algorithm, its kid, the function that returns a raw JWS signature, and its public JWK."""

    alg: str
    kid: str
    signature: Callable[[bytes], bytes]
    jwk: Mapping[str, str]


_DIGESTS = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: dict[str, tuple[ec.EllipticCurve, str, int]] = {  # RFC 7518 3.4, with the bytes of a coordinate
    "256": (ec.SECP256R1(), "P-256", 32),
    "384": (ec.SECP384R1(), "P-384", 48),
    "512": (ec.SECP521R1(), "P-521", 66),
}


def make_key(alg: str) -> ProviderKey:
    """Return a new key for RS, PS or ES with 256, 384 or 512 (RFC 7518 3.3 to 3.5), or for EdDSA (RFC 8037). An RSA key
    has 2048 bits and takes about 0.1 s."""
    signature, jwk = _ed25519() if alg == "EdDSA" else _ecdsa(alg[2:]) if alg[:2] == "ES" else _rsa(alg)
    kid = secrets.token_hex(16)
    return ProviderKey(alg, kid, signature, {**jwk, "alg": alg, "kid": kid, "use": "sig"})


_Pair = tuple[Callable[[bytes], bytes], dict[str, str]]


def _rsa(alg: str) -> _Pair:
    private, digest = rsa.generate_private_key(public_exponent=65537, key_size=2048), _DIGESTS[alg[2:]]
    public = private.public_key().public_numbers()
    pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
    scheme = pss if alg[:2] == "PS" else padding.PKCS1v15()
    jwk = {"kty": "RSA", "n": base64url(_octets(public.n)), "e": base64url(_octets(public.e))}
    return lambda signing_input: private.sign(signing_input, scheme, digest), jwk


def _ecdsa(bits: str) -> _Pair:
    curve, name, size = _CURVES[bits]
    private = ec.generate_private_key(curve)
    public = private.public_key().public_numbers()

    def signature(signing_input: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(signing_input, ec.ECDSA(_DIGESTS[bits])))
        return _octets(r, size) + _octets(s, size)

    x, y = base64url(_octets(public.x, size)), base64url(_octets(public.y, size))
    return signature, {"kty": "EC", "crv": name, "x": x, "y": y}


def _ed25519() -> _Pair:
    private = ed25519.Ed25519PrivateKey.generate()
    return private.sign, {"kty": "OKP", "crv": "Ed25519", "x": base64url(private.public_key().public_bytes_raw())}


def base64url(raw: bytes) -> str:
    """Return the base64url form without padding (RFC 7515 section 2)."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _octets(number: int, size: int = 0) -> bytes:
    return number.to_bytes(size or (number.bit_length() + 7) // 8, "big")


DISCOVERY_PATH = "/.well-known/openid-configuration"
KEY_SET_PATH = "/.well-known/jwks"
TOKEN_PATH = "/token"  # noqa: S105  (a path)
TOKEN_TTL_S = 300  # as GitHub's
# The variables in which a GitHub runner gives a job the URL of its token endpoint, and the token for it.
REQUEST_URL = "ACTIONS_ID_TOKEN_REQUEST_URL"
REQUEST_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # noqa: S105  (the name of a variable)

# The identity of the sample registration.
OWNER = "example-org"
OWNER_ID = "600000001"
REPOSITORY = f"{OWNER}/inspect-evals"
REPOSITORY_ID = "700000001"
REF = "refs/heads/main"
SHA = hashlib.sha1(REPOSITORY.encode(), usedforsecurity=False).hexdigest()  # looks like a commit
WORKFLOW_REF = f"{REPOSITORY}/.github/workflows/evaluate.yml@{REF}"
ENVIRONMENT = "release"

Responder = Callable[["Exchange"], None]


class LocalProvider:
    """A provider that serves from a daemon thread on 127.0.0.1, on a port that the system chooses.

    `with LocalProvider() as provider:` starts it. `clock` returns Unix seconds. `tls` makes it an https provider, and
    `host` is the name in its URL. `answers` replaces the answers by path, `requests` counts requests by path,
    `connections` counts accepted connections.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.rs256 = make_key("RS256")
        self.es256 = make_key("ES256")
        self.published = [self.rs256, self.es256]
        self.request_token = secrets.token_urlsafe(32)
        self.requests: Counter[str] = Counter()
        self.answers: dict[str, Responder] = {}
        self.closing = threading.Event()
        self._clock = clock
        self._counting = threading.Lock()
        self._server = ProviderServer(self, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.issuer = f"{'https' if tls else 'http'}://{host}:{self._server.server_port}"

    def __enter__(self) -> LocalProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def connections(self) -> int:
        """The number of accepted connections."""
        return self._server.accepted

    @property
    def environment(self) -> dict[str, str]:
        """The variables in which a GitHub job, and the package `id`, finds its token endpoint."""
        return {
            "GITHUB_ACTIONS": "true",
            REQUEST_URL: f"{self.issuer}{TOKEN_PATH}?api-version=2.0",
            REQUEST_TOKEN: self.request_token,
        }

    def claims(self, **overrides: Any) -> dict[str, Any]:
        """Return the claims of a fresh token of the sample registration. An override with `UNSET` removes a claim."""
        now = int(self._clock())
        claims = {
            "iss": self.issuer,
            # The format for repositories that were made, renamed or moved since 2026-07-15.
            "sub": f"repo:{OWNER}@{OWNER_ID}/{REPOSITORY.split('/')[1]}@{REPOSITORY_ID}:environment:{ENVIRONMENT}",
            "aud": f"https://github.com/{OWNER}", "jti": str(uuid.uuid4()),
            "iat": now, "nbf": now - 600, "exp": now + TOKEN_TTL_S,  # as GitHub's
            "actor": "octocat", "actor_id": "583231", "environment": ENVIRONMENT, "event_name": "push",
            "ref": REF, "ref_protected": "true", "ref_type": "branch", "base_ref": "", "head_ref": "", "sha": SHA,
            "repository": REPOSITORY, "repository_id": REPOSITORY_ID, "repository_visibility": "public",
            "repository_owner": OWNER, "repository_owner_id": OWNER_ID,
            "run_attempt": "1", "run_id": "19512345678", "run_number": "42", "runner_environment": "github-hosted",
            "workflow": "evaluate", "workflow_ref": WORKFLOW_REF, "workflow_sha": SHA,
            "job_workflow_ref": WORKFLOW_REF, "job_workflow_sha": SHA,
        }  # fmt: skip
        return {name: value for name, value in {**claims, **overrides}.items() if value is not UNSET}

    def token(self, audience: object, *, alg: str = "RS256", **overrides: Any) -> str:
        """Mint a token for an audience. `alg` is RS256 or ES256; `overrides` are those of `claims`."""
        key = {"RS256": self.rs256, "ES256": self.es256}[alg]
        header = {"typ": "JWT", "alg": key.alg, "kid": key.kid, "x5t": base64url(bytes.fromhex(SHA))}
        return self.sign(header, self.claims(aud=audience, **overrides), key)

    def sign(
        self, header: Mapping[str, Any] | bytes, payload: Mapping[str, Any] | bytes, key: ProviderKey | None = None
    ) -> str:
        """Return the signed JWT of any header and payload, well-formed or not; the default key is RS256."""
        parts = (part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload))
        signing_input = ".".join(map(base64url, parts))
        return f"{signing_input}.{base64url((key or self.rs256).signature(signing_input.encode()))}"

    def rotate(self) -> None:
        """Replace the published keys by new ones."""
        self.rs256, self.es256 = make_key("RS256"), make_key("ES256")
        self.published = [self.rs256, self.es256]

    def discovery(self) -> dict[str, Any]:
        """Return the discovery document (OpenID Connect Discovery 1.0, section 3) with GitHub's members."""
        return {
            "issuer": self.issuer, "jwks_uri": self.issuer + KEY_SET_PATH, "scopes_supported": ["openid"],
            "subject_types_supported": ["public", "pairwise"], "response_types_supported": ["id_token"],
            "claims_supported": sorted(self.claims()),
            "id_token_signing_alg_values_supported": sorted({key.alg for key in self.published}),
        }  # fmt: skip

    def key_set(self) -> dict[str, Any]:
        """Return the JWK set."""
        return {"keys": [dict(key.jwk) for key in self.published]}

    def answer(self, exchange: Exchange) -> None:
        """Answer one GET."""
        url = urlsplit(exchange.path)
        with self._counting:
            self.requests[url.path] += 1
        if (answer := self.answers.get(url.path)) is not None:
            answer(exchange)
        elif url.path == DISCOVERY_PATH:
            exchange.reply(200, self.discovery())
        elif url.path == KEY_SET_PATH:
            exchange.reply(200, self.key_set())
        elif url.path == TOKEN_PATH:
            self._answer_token(exchange, parse_qs(url.query))
        else:
            exchange.reply(404, {"message": "Not found"})

    def admits(self, exchange: Exchange) -> bool:
        """Return whether the caller has the request token; if not, answer 401."""
        scheme, _, credential = exchange.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(credential.encode(), self.request_token.encode())
        if scheme.lower() != "bearer" or not known:
            exchange.reply(401, {"message": "Not authorized"})
            return False
        return True

    def _answer_token(self, exchange: Exchange, query: Mapping[str, list[str]]) -> None:
        if not self.admits(exchange):
            return
        claims = {"aud": query["audience"][0]} if "audience" in query else {}
        audience = claims.get("aud", f"https://github.com/{OWNER}")
        exchange.reply(200, {"value": self.token(audience)})


class Exchange(BaseHTTPRequestHandler):
    """The requests of one connection and their answers. It prints nothing, to keep the screen of a demo clean."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers
    server: ProviderServer

    def do_GET(self) -> None:
        """Answer for the provider."""
        self.server.provider.answer(self)

    def reply(self, status: int, body: Mapping[str, Any] | bytes, **headers: str) -> None:
        """Send a complete answer; `_` in a header's name becomes `-`."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content_Type": "application/json", "Content_Length": str(len(raw)), **headers}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class ProviderServer(ThreadingHTTPServer):
    """A server that counts connections, and closes the open ones when it closes."""

    daemon_threads = True

    def __init__(self, provider: LocalProvider, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.provider = provider
        self.accepted = 0
        self._open: set[socket.socket] = set()
        if tls is not None:  # the handshake happens in the connection's thread, at its first read
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept one connection."""
        connection, address = self.socket.accept()
        self.accepted += 1
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close one connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the listening socket and wake every thread that waits on a connection."""
        super().server_close()
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing, because tests have clients that close a connection early."""
