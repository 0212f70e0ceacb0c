"""A process dies, the audit file or the log stream cannot be written, a provider is away: no fault gives a second token."""

import contextlib
import fcntl
import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import httpx
import msgspec
import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.command import start_issuer
from tests.support.request_events import request_id
from tests.support.running import FIVE_TIMES, Running, ThreadClients, numbered, running, until_live, write_folder
from tests.support.waiting import eventually

KILLED = ("-m", "tests.support.broken_log", "kill")


def test_a_retry_after_an_unforeseen_error_and_a_kill_gets_the_drafted_token(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with EmbeddedValkey() as store, redis.Redis.from_url(store) as client:
        with running(tmp_path, provider, command=KILLED, store_url=store) as deadly:
            identity, port = deadly.token(), deadly.settings.listen.port
            answer = deadly.post(identity)
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (500, "internal", True)
            assert answer.headers["content-type"] == "application/problem+json"
            assert "RuntimeError" not in answer.text
            log = deadly.until_log_says(answer.json()["request_id"])
            assert "RuntimeError" in log
            assert "eyJ" not in log, "a local variable was written"
            assert identity.rpartition(".")[2] not in log
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


def test_without_an_audit_event_or_an_unknown_key_s_provider_no_token_leaves(tmp_path: Path) -> None:
    with LocalProvider() as local, running(tmp_path, local) as live:
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
        for path in ("/.well-known/openid-configuration", "/.well-known/jwks"):
            local.answers[path] = lambda exchange: exchange.reply(500, {})
        assert live.post(live.token()).status_code == 201, "by a known key"
        unknown = local.sign({"alg": "RS256", "kid": "rotated"}, local.claims(aud=live.url))
        answer = live.post(unknown)
        assert (answer.status_code, answer.json()["code"]) == (503, "dependency.issuer_keys")


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
    arguments = ("serve", "--workers", 1 + round_number % 2)
    with unwritable(kind) as stream, contextlib.closing(ThreadClients(settings.url)) as clients:
        process = start_issuer(arguments, {**os.environ, **environment(settings)}, stream)
        try:
            until_live(clients.own, process, tmp_path)
            live = Running(tmp_path, settings, provider, process, clients)
            answers = [live.post(live.token(), numbered(number)) for number in range(30)]
            assert {answer.status_code for answer in answers} == {201}
            assert live.post("a.b.c").status_code == 401
            audited = {jti for event in live.audit() for jti in event.get("jti", [])}
            assert {answer.json()["jti"] for answer in answers} == audited
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
