"""A process dies, the store loses its records or stops, the audit file cannot be written: no fault gives a second token."""

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
import msgspec
import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.request_events import request_id
from tests.support.running import BODY, FIVE_TIMES, Running, ThreadClients, numbered, running, until_live, write_folder
from tests.support.waiting import ask_until, eventually

KILLED = ("-m", "tests.support.broken_log", "kill")
FAULTY = ("-m", "tests.support.broken_log", "raise")


def test_a_retry_after_a_kill_before_the_signature_gets_the_drafted_token(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with EmbeddedValkey() as store, redis.Redis.from_url(store) as client:
        with running(tmp_path, provider, command=KILLED, store_url=store) as deadly:
            identity, port = deadly.token(), deadly.settings.listen.port
            with pytest.raises(httpx.TransportError):
                deadly.post(identity)
            assert deadly.process.wait(60) == -signal.SIGKILL
            assert "decision" not in {event["event"] for event in deadly.audit()}
        (record,) = client.keys("{evi1}:use:*")
        (kept,) = [value for name, value in client.hgetall(record).items() if name.startswith(b"d:")]
        _, _, counts_and_template = kept.split(b" ", 2)
        sealed = counts_and_template[2 + int.from_bytes(counts_and_template[:2], "big") :]
        template = msgspec.json.decode(sealed[32:])  # behind its HMAC
        killed_s = int(time.time())
        eventually(lambda: int(time.time()) > killed_s)  # a token drafted anew would have another iat
        with running(tmp_path, provider, store_url=store, port=port) as alive:
            issued = alive.post(identity)
            assert (issued.status_code, issued.headers["idempotent-replay"]) == (200, "true")
            assert issued.json()["jti"] == template["terms"]["jti"]
            assert issued.json()["issued_at"] == template["terms"]["iat"]
            assert alive.post(identity).content == issued.content
            assert alive.post(identity, numbered(1)).json()["code"] == "identity.replayed"


@dataclass
class Pair:
    """Two services on one store."""

    one: Running
    other: Running
    store: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        EmbeddedValkey() as store,
        running(folder, provider, store_url=store) as one,
        running(folder, provider, store_url=store, url=one.url) as other,
    ):
        yield Pair(one, other, store)


def test_a_replay_on_another_instance_is_refused(pair: Pair) -> None:
    one, other = pair.one, pair.other
    identity = one.token()
    issued = one.post(identity)
    assert other.post(identity).content == issued.content
    assert other.post(identity, numbered(1)).json()["code"] == "identity.replayed"
    shared = one.token()
    with ThreadPoolExecutor(32) as pool:
        answers = pool.map(lambda n: (one, other)[n % 2].post(shared, numbered(n)).status_code, range(32))
        assert sorted(answers) == [201] + [409] * 31


def test_a_store_that_lost_its_records_gives_no_second_token(pair: Pair) -> None:
    live = pair.one
    identity = live.token()
    assert live.post(identity).status_code == 201
    with redis.Redis.from_url(pair.store) as client:
        client.flushall()
    for sent in (BODY, numbered(1)):
        answer = live.post(identity, sent)
        assert (answer.status_code, answer.json()["code"]) == (503, "dependency.state_reset")
        assert answer.json()["retryable"] is True
        assert int(answer.headers["retry-after"]) >= 1
    eventually(lambda: live.post(live.token()).status_code == 201)  # for a newer identity token
    assert live.post(identity).status_code == 503, "never for an older one"


def test_a_service_without_its_store_decides_nothing_and_keeps_publishing(pair: Pair) -> None:
    live = pair.one
    assert live.post(live.token()).status_code == 201
    with redis.Redis.from_url(pair.store) as client:
        pid = client.info("server")["process_id"]
    identity = live.token()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert_down(live, identity)
    finally:
        os.kill(pid, signal.SIGCONT)
    answer = ask_until(lambda: live.post(identity), lambda answer: answer.status_code != 503)
    assert answer.status_code in {200, 201}
    assert live.post(identity, numbered(1)).json()["code"] == "identity.replayed"


def assert_down(live: Running, identity: str) -> None:
    answer = live.post(identity)
    assert (answer.status_code, answer.json()["code"]) == (503, "dependency.state")
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.state")
    for path in ("/health/live", "/.well-known/jwks.json", "/errors/dependency.state"):
        assert live.http.get(path).status_code == 200


def test_without_an_audit_event_no_token_leaves(pair: Pair) -> None:
    live = pair.one
    assert live.post(live.token()).status_code == 201
    size = live.settings.audit_file.stat().st_size
    # As on a full disk: the process cannot write beyond this size.
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    identity = live.token()
    answer = live.post(identity)
    assert (answer.status_code, answer.json()["code"]) == (503, "dependency.audit")
    assert "verify_token" not in answer.text
    eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
    resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    repeated = live.post(identity)
    assert repeated.status_code == 200
    lines = live.settings.audit_file.read_bytes().splitlines()  # the event that failed is incomplete
    (line,) = [line for line in lines if request_id(repeated).encode() in line]
    assert msgspec.json.decode(line)["verdict"] == "repeated"


def test_without_the_provider_known_keys_serve_and_unknown_ones_are_undecided(tmp_path: Path) -> None:
    with LocalProvider() as local, running(tmp_path, local) as live:
        assert live.post(live.token()).status_code == 201
        for path in ("/.well-known/openid-configuration", "/.well-known/jwks"):
            local.answers[path] = lambda exchange: exchange.reply(500, {})
        assert live.post(live.token()).status_code == 201
        unknown = local.sign({"alg": "RS256", "kid": "rotated"}, local.claims(aud=live.url))
        answer = live.post(unknown)
        assert (answer.status_code, answer.json()["code"]) == (503, "dependency.issuer_keys")


def test_an_unforeseen_error_is_a_500_and_its_log_has_no_local_variables(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider, command=FAULTY) as live:
        identity = live.token()
        answer = live.post(identity)
        assert (answer.status_code, answer.json()["code"]) == (500, "internal")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["retryable"] is True
        assert "RuntimeError" not in answer.text
        log = live.until_log_says(answer.json()["request_id"])
        assert "RuntimeError" in log
        assert "eyJ" not in log, "a local variable was written"
        assert identity.rpartition(".")[2] not in log


@contextlib.contextmanager
def unwritable(kind: str) -> Iterator[IO[bytes]]:
    """Open a log stream that cannot be written: on a full disk, without a reader, or with a reader that has stopped."""
    if kind == "full":
        with Path("/dev/full").open("wb") as full:
            yield full
        return
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    if kind == "gone":
        os.close(reader)
    with os.fdopen(writer, "wb") as stream:
        yield stream
    if kind == "stalled":
        os.close(reader)


@FIVE_TIMES
@pytest.mark.parametrize("kind", ["full", pytest.param("gone", marks=pytest.mark.long), "stalled"])
def test_a_log_stream_that_cannot_be_written_stops_nothing(
    tmp_path: Path, provider: LocalProvider, kind: str, round_number: int
) -> None:
    """The record of decisions is the audit. A pipe of 4 KiB without a reader is full after ten lines."""
    write_folder(tmp_path, provider)
    settings = settings_for(tmp_path, free_port())
    command = [sys.executable, "-m", "issuer", "serve", "--workers", str(1 + round_number % 2)]
    with unwritable(kind) as stream, contextlib.closing(ThreadClients(settings.url)) as clients:
        process = subprocess.Popen(command, env={**os.environ, **environment(settings)}, stderr=stream)
        try:
            until_live(clients.own, process, tmp_path)
            live = Running(tmp_path, settings, provider, process, clients)
            jtis = set()
            for number in range(50):
                answer = live.post(live.token(), numbered(number))
                assert answer.status_code == 201
                jtis.add(answer.json()["jti"])
            assert live.post("a.b.c").status_code == 401
            assert jtis == {jti for event in live.audit() for jti in event.get("jti", [])}
            assert live.http.get("/health/ready").status_code == 200
        finally:
            process.terminate()
        assert process.wait(60) == 0


@pytest.mark.long
@FIVE_TIMES
def test_a_kill_under_load_loses_no_token_and_gives_no_second_one(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with EmbeddedValkey() as store:
        with running(tmp_path, provider, store_url=store) as first:
            identities, port = [first.token() for _ in range(200)], first.settings.listen.port
            before = [first.post(identity, numbered(index)).content for index, identity in enumerate(identities[:50])]
            with ThreadPoolExecutor(16) as pool:
                under_way = [
                    pool.submit(first.post, identity, numbered(index)) for index, identity in enumerate(identities)
                ]
                eventually(lambda: sum(answer.done() for answer in under_way) > 20 * round_number)
                first.kill()
                for answer in under_way:
                    answer.exception()
        with running(tmp_path, provider, store_url=store, port=port) as second, ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda pair: second.post(pair[1], numbered(pair[0])), enumerate(identities)))
            assert {answer.status_code for answer in answers} <= {200, 201}
            assert [answer.content for answer in answers[:50]] == before
            others = list(pool.map(lambda identity: second.post(identity, numbered(999)), identities))
            assert {answer.json()["code"] for answer in others} == {"identity.replayed"}
