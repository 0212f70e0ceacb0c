"""No secret is written: a broad sweep of good and bad requests, and a search for its secrets in all that the service left."""

from __future__ import annotations

import base64
import hashlib
import itertools
import secrets
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
import redis

from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, LocalProvider
from issuer.identity.pat import PREFIX as PAT_PREFIX
from issuer.service.signing.keyring import generate
from tests.support.hub import ACCOUNT_ID, Hub
from tests.support.leaks import Secrets
from tests.support.oauth_server import PREFIX as TOKEN_PREFIX
from tests.support.reusable import KINDS, Issuers, issuers, new_nonce, with_nonce
from tests.support.running import Running, body, numbered, running
from tests.support.stores import Store
from tests.support.waiting import eventually

FAULTY = ("-m", "tests.support.broken_log", "raise")
_numbers = itertools.count(1)


@dataclass
class Site:
    """A service, and everything that was secret to it or shown to it; `answers` are all that it gave."""

    live: Running
    store: Store
    issuers: Issuers
    hub: Hub
    passphrase: str
    shown: list[str] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)

    def post(self, bearer: str, sent: Any = None, path: str = "/tokens", **headers: str) -> httpx.Response:
        sent = with_nonce(new_nonce(), next(_numbers)) if sent is None else sent
        return self.send("POST", path, sent, Authorization=f"Bearer {bearer}", **headers)

    def send(self, method: str, path: str, sent: Any = None, **headers: str) -> httpx.Response:
        content = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): v for name, v in headers.items()}}
        answer = self.live.http.request(method, path, content=content, headers=given)
        head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
        self.answers.append(head.encode() + b"\n" + answer.content)
        if answer.status_code >= 400:
            self.codes[str(answer.json()["code"])] += 1
        return answer

    def credential(self, kind: str, **claims: Any) -> str:
        token = self.hub.token() if kind == "hub" else self.issuers.credential(self.live, kind, **claims)
        self.shown.append(token)
        return token

    def secrets(self, *, digests: bool = True) -> Secrets:
        """Collect everything that must be nowhere."""
        found = Secrets(digests=digests)
        servers = (self.issuers.jwts, self.issuers.opaques)
        chosen = {secret for server in servers for secret in (server.client_secret, server.resource_secret)}
        for secret in chosen:
            found.add("a client secret", secret, random=False)
        shown = {*self.shown, *(token for server in servers for token in server.secrets)} - chosen
        for token in shown:
            if token.startswith(PAT_PREFIX):
                found.add("a personal access token", token.rpartition("_")[2])  # the rest is its public id
            elif token.count(".") == 2:
                found.add_token("a JWT", token)
            else:
                found.add("an opaque token", token)
        found.add("the store's password", self.store.password)
        found.add("the keys' passphrase", self.passphrase)
        for path in (self.live.folder / "keys").rglob("*.pem"):
            for line in path.read_text().splitlines()[1:-2]:  # the last one may be short
                found.add("a signing key", line)
        return found


def good_and_repeated(site: Site, credential: str, *, limited: bool) -> None:
    """Send the requests of a good caller: issue, repeat, replay, a batch, explain."""
    nonce: dict[str, Any] = {} if limited else {"nonce": new_nonce()}
    sent = {**numbered(next(_numbers)), **nonce}
    batch: dict[str, Any] = {"results": [numbered(next(_numbers)), numbered(next(_numbers))]}
    batch |= {} if limited else {"nonce": new_nonce()}
    for _ in range(2):
        site.post(credential, sent)
    site.post(credential, {**sent, "details": {"notes": "another"}})
    site.post(credential, batch, "/tokens/batch")
    site.post(credential, sent, "/tokens/explain")


def bad_bodies(site: Site, credential: str) -> None:
    """Be refused after the credential was found good."""
    for sent in (
        b"{", b"\xff", b"[" * 1000, {}, numbered(1), with_nonce("short"), with_nonce(new_nonce()),
        {**body(model_revision="9f3c2c9"), "nonce": new_nonce()}, {**with_nonce(new_nonce()), "audience": "https://x.example"},
        {**with_nonce(new_nonce()), "integration": "other"}, {**with_nonce(new_nonce()), "extra": 1},
        {**body(metrics=[]), "nonce": new_nonce()}, {**with_nonce(new_nonce()), "claims_digest": "sha256:" + "0" * 64},
    ):  # fmt: skip
        site.post(credential, sent)


def in_wrong_places(site: Site, credential: str) -> None:
    """Put a credential in wrong places, except members that a verify token publishes, such as a repository's name."""
    bearer, said = f"Bearer {credential}", with_nonce(new_nonce())
    site.send("POST", "/tokens", said, Authorization=f"Basic {base64.b64encode(credential.encode()).decode()}")
    site.send("POST", "/tokens", said, Authorization=credential)
    site.send("POST", "/tokens", said, Authorization=f"{bearer}, {bearer}")
    site.send("POST", "/tokens", said, X_Authorization=bearer, Cookie=f"session={credential}", User_Agent=credential,
              X_Request_ID=credential, Referer=f"https://x.example/?token={credential}")  # fmt: skip
    site.send("POST", f"/tokens?access_token={quote(credential)}", said)
    site.send("POST", f"/tokens/{quote(credential)}", said)
    site.send("GET", f"/errors/{quote(credential)}")
    site.send("GET", f"/tokens?{quote(credential)}")
    site.post(credential, {**said, "nonce": credential})
    site.post(credential, {**said, "content_digest": credential})
    if not credential.startswith(TOKEN_PREFIX):  # an opaque token can look like a name
        site.post(credential, {**said, "integration": credential})
        site.post(credential, {**said, "audience": credential})
    command = {"name": "inspect-ai", "version": "0.3.285", "command": f"inspect eval x --token {credential}"}
    site.post(credential, {**body(framework=command), "nonce": new_nonce()})
    site.post(credential, said, Content_Type="text/plain")


def damaged(credential: str) -> Iterator[str]:
    yield credential[:-1]
    yield credential[:-1] + ("A" if credential[-1] != "A" else "Q")  # both are possible at the end of a signature
    yield credential[: len(credential) // 2]
    yield credential.swapcase()
    yield f"{credential}.{credential}"


def repeating_servers(site: Site) -> None:
    """Ask an OAuth server and a Hub that repeat the credential in their answers, or do not answer."""
    for how in ("401", "500", '{"active": false, "error": "no such token"}'):
        site.issuers.opaques.behave(how)
        site.post(site.credential("opaque"))
    token = site.credential("opaque")
    repeated = {"jti": token, "username": token, "error_description": token}
    site.issuers.opaques.behave(msgspec.json.encode(repeated).decode())
    site.post(token)
    site.issuers.opaques.forget()
    for status in (401, 403, 500):
        site.hub.answer = lambda to, status=status: to.reply(status, {"error": to.headers["Authorization"]})
        site.post(site.credential("hub"))
    site.hub.answer = None
    for claims in ({"scope": "other"}, {"client_id": "stranger"}, {"cnf": {"jkt": "x"}}):
        for kind in ("jwt", "opaque"):
            site.post(site.credential(kind, **claims))


def without_help(site: Site) -> None:
    """Ask while the store is stalled, after it has forgotten, and while the client secret and the provider are gone."""
    secret = site.live.folder / "introspection.secret"
    for text, mode in (("wrong\n", 0o600), ("", 0o600), (site.issuers.opaques.resource_secret, 0o644)):
        secret.write_text(text, "utf-8")
        secret.chmod(mode)
        site.post(site.credential("opaque"))
    secret.chmod(0o600)
    site.issuers.local.rotate()
    for path in (DISCOVERY_PATH, KEY_SET_PATH):
        site.issuers.local.answers[path] = lambda exchange: exchange.reply(500, {"said": "no"})
    site.post(site.credential("limited"), numbered(1))
    site.issuers.local.answers.clear()
    site.store.signal(signal.SIGSTOP)
    with ThreadPoolExecutor() as pool:
        answers = pool.map(site.post, [site.credential(kind) for kind in (*KINDS, "hub")])
        assert {answer.status_code for answer in answers} == {503}
    site.store.signal(signal.SIGCONT)
    eventually(lambda: site.live.http.get("/health/ready").status_code == 200)


def sweep(site: Site) -> None:
    kinds = (*KINDS, "hub", "limited")
    for kind in kinds:
        good_and_repeated(site, site.credential(kind), limited=kind == "limited")
        bad_bodies(site, site.credential(kind))
        in_wrong_places(site, site.credential(kind))
        for token in damaged(site.credential(kind)):
            site.post(token)
    repeating_servers(site)
    with site.store.client as client:
        client.flushall()
    site.post(site.credential("limited"), numbered(1))
    without_help(site)


class Monitored:
    """Every command that the store was sent, from MONITOR, while the block lasts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = redis.Redis.from_url(store.url, protocol=2, socket_timeout=None)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.commands: list[bytes] = []

    def __enter__(self) -> Monitored:
        self._monitor = self._client.monitor().__enter__()  # type: ignore[no-untyped-call]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._store.client as client:
            client.echo("the last one")
        self._thread.join(60)
        self._client.close()
        assert not self._thread.is_alive(), "all of them were heard"

    def _listen(self) -> None:
        while not self.commands or self.commands[-1] != b"ECHO the last one":
            self.commands.append(self._monitor.next_command()["command"].encode("utf-8", "surrogateescape"))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, bytes]]]:
    """Run the sweep, and return what it left, by place."""
    folder = tmp_path_factory.mktemp("secrets")
    password, passphrase = secrets.token_hex(16), secrets.token_hex(16)
    options = ("--rdbcompression", "no", "--appendonly", "yes")
    with (
        LocalProvider() as local,
        LocalProvider() as hub,
        issuers(local) as known,
        Store(folder / "store", *options, password=password) as store,
    ):
        hub_entry = {"profile": "huggingface", "issuer": hub.issuer}
        known.write(folder, hub=(hub_entry, {"id": ACCOUNT_ID, "token_role": "fineGrained"}))
        for path in (folder / "keys").rglob("*.pem"):
            path.unlink()
        generate(folder / "keys", "active", passphrase.encode())
        (folder / "passphrase").touch(0o600)
        (folder / "passphrase").write_text(passphrase)
        settings: dict[str, Any] = {"store_url": store.url, "keys_passphrase_file": str(folder / "passphrase")}
        with Monitored(store) as monitored:
            with running(folder, local, **settings) as live:
                site = Site(live, store, known, Hub(hub), passphrase)
                sweep(site)
                command_line = Path(f"/proc/{live.process.pid}/cmdline").read_bytes()
            with running(folder, local, command=FAULTY, **settings) as live:
                site.live = live
                for kind in (*KINDS, "hub"):
                    site.post(site.credential(kind))
        elsewhere: dict[str, Any] = {**settings, "store_url": store.url.replace(str(store.port), "1")}
        with pytest.raises(AssertionError, match="did not start"), running(folder, local, **elsewhere):
            pass
        with store.client as client:
            client.save()
            stored = b"\n".join(client.keys("*"))
        places = {
            "answers": b"\n".join(site.answers),
            "its command line": command_line,
            "the store's keys": stored,
            "what the store was sent": b"\n".join(monitored.commands),
            "the store's snapshot": (folder / "store" / "dump.rdb").read_bytes(),
        }
        own = {folder / "passphrase", folder / "introspection.secret"}
        for path in folder.rglob("*"):
            if path.is_file() and path not in own and (folder / "keys") not in path.parents:
                places[str(path.relative_to(folder))] = path.read_bytes()
        yield site, places


def test_the_sweep_was_broad_and_what_it_left_is_there(left: tuple[Site, dict[str, bytes]]) -> None:
    site, places = left
    assert site.codes.keys() >= {
        "identity.missing", "identity.malformed", "identity.signature_invalid",
        "identity.type_refused", "identity.inactive", "identity.credential_unknown", "identity.replayed",
        "identity.claim_mismatch", "integration.unknown",
        "nonce.required", "nonce.invalid", "nonce.reused", "request.malformed", "request.media_type",
        "request.not_found", "request.unknown_member", "claims.secret", "claims.revision", "policy.audience",
        "dependency.state", "dependency.state_reset", "dependency.introspection", "dependency.issuer_keys", "internal",
    }, sorted(site.codes)  # fmt: skip
    assert len(site.answers) > 200
    assert len(site.secrets()) > 500
    assert places["service.log"].count(b'"decision"') > 150
    assert b"RuntimeError" in places["service.log"]
    assert b"state.unreachable" in places["service.log"]
    assert places["data/audit.jsonl"].count(b'"verdict"') > 50
    assert places["what the store was sent"].count(b"EVALSHA") > 50
    assert b"{evi1}:use:" in places["the store's keys"]
    assert b"{evi1}:use:" in places["the store's snapshot"]
    assert any(name.startswith("data/pats/used/") for name in places)
    assert any(name.startswith("store/appendonlydir/") for name in places)


def test_no_secret_is_anywhere_whole_in_part_or_encoded(left: tuple[Site, dict[str, bytes]]) -> None:
    site, places = left
    hidden, with_digests = site.secrets(digests=False), site.secrets()
    # The record of a personal access token holds its SHA-256: it is what the service knows of it.
    found = {
        name: (hidden if name.startswith("data/pats/") else with_digests).found_in(text)
        for name, text in places.items()
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_the_search_finds_a_written_secret_in_every_encoding() -> None:
    padded = Random(1).randbytes(1000)
    for secret in (b"s%cret +client/&=?\xe2\x82\xac", b"Xq3-vT_8sLw0ZpK5mN1bYc7dRj2hGf4u"):
        search, is_random = Secrets(), len(secret) >= 32
        search.add("it", secret.decode(), random=is_random)
        written = {
            "as it is": secret,
            "half of it": secret[7 : 7 + len(secret) // 2 + 3] if is_random else secret,  # for a short word, the whole
            "hex": secret.hex().encode(),
            "HEX": secret.hex().upper().encode(),
            **{f"base64 behind {n}": base64.b64encode(b"id:"[:n] + secret + b"xyz") for n in range(4)},
            "base64url": base64.urlsafe_b64encode(b"\xff\xfe" + secret),
            "in a URL": quote(secret.decode(), safe="").encode(),
            "in JSON": msgspec.json.encode(secret.decode()),
            "its SHA-256": hashlib.sha256(secret).hexdigest().encode(),
        }
        assert [name for name, text in written.items() if not search.found_in(padded + text + padded)] == []
        assert not search.found_in(Random(2).randbytes(100_000))
