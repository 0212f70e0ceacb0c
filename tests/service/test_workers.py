"""Several workers: one port, one store, one memory; and what is left when one of them, or their parent, dies."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port, settings_for
from issuer.service.embedded import EmbeddedValkey
from issuer.service.keyring import generate
from issuer.service.workers import SILENT_S
from tests.running import BODY, FIVE_TIMES, Running, numbered, rewrite, running, start, write_folder

NARROW = """limits:
  identity: {count: 20, per_s: 3600, burst: 20}
  integration: {count: 1000000, per_s: 60, burst: 50000}
  refusals: {count: 1000000, per_s: 60, burst: 50000}
"""


def command(workers: int) -> tuple[str, ...]:
    return ("-m", "issuer", "serve", "--workers", str(workers))


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def workers_of(live: Running) -> list[int]:
    """Return the children that run what the parent runs: the embedded store's watcher does not."""
    parent = Path(f"/proc/{live.process.pid}/cmdline").read_bytes()
    found = []
    for pid in children(live.process.pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == parent:
                found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def post_once(live: Running, identity: str, number: int = 0) -> tuple[int, str]:
    """Post on a connection of its own, so that any worker may get it; return status and code."""
    connection = http.client.HTTPConnection("127.0.0.1", live.settings.port, timeout=15)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {identity}"}
        connection.request("POST", "/tokens", msgspec.json.encode(numbered(number)), headers)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read()).get("code", "")
    finally:
        connection.close()


def listening(live: Running) -> int:
    """Count the sockets that listen on the service's port: one a worker that is ready (proc(5), state 0A)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{live.settings.port:04X}") and row[3] == "0A" for row in rows)


@contextlib.contextmanager
def four(folder: Path, provider: LocalProvider, **more: Any) -> Iterator[Running]:
    """Run four workers on a store of their own, and wait until all of them serve."""
    with EmbeddedValkey() as store, running(folder, provider, command=command(4), redis_url=store, **more) as live:
        assert eventually(lambda: listening(live) == 4, 20), "all of them serve"
        yield live


def who_answers(live: Running, requests: int = 40) -> Counter[int]:
    """Open so many connections, and return how many of them each worker took."""
    before = {pid: sockets_of(pid) for pid in workers_of(live)}
    with contextlib.ExitStack() as stack:
        for _ in range(requests):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.settings.port)))
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(1)
        return +Counter({pid: sockets_of(pid) - count for pid, count in before.items()})


def sockets_of(pid: int) -> int:
    count = 0
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            count += str(path.readlink()).startswith("socket:")
    return count


def test_a_limit_of_20_lets_20_through_four_workers(tmp_path: Path, provider: LocalProvider) -> None:
    with four(tmp_path, provider, limits=NARROW) as live:
        identities = [live.token() for _ in range(100)]
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda pair: post_once(live, pair[1], pair[0]), enumerate(identities)))
        assert Counter(answers) == {(201, ""): 20, (429, "rate.identity"): 80}


def test_each_of_four_workers_gets_its_share_of_a_burst(tmp_path: Path, provider: LocalProvider) -> None:
    with four(tmp_path, provider) as live:
        taken = who_answers(live, 80)
        assert len(taken) == 4
        assert max(taken.values()) < 40


def test_one_identity_used_by_32_on_four_workers_gives_one_token(tmp_path: Path, provider: LocalProvider) -> None:
    with four(tmp_path, provider) as live, ThreadPoolExecutor(32) as pool:
        for _ in range(5):
            identity = live.token()
            statuses = Counter(pool.map(lambda n, i=identity: post_once(live, i, n)[0], range(32)))
            assert statuses == {201: 1, 409: 31}


@FIVE_TIMES
def test_kill_9_of_a_worker_loses_its_requests_alone_and_it_comes_back(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with four(tmp_path, provider) as live, ThreadPoolExecutor(16) as pool:
        before = workers_of(live)
        identities = [live.token() for _ in range(300)]
        under_way = [pool.submit(post_once, live, identity, n) for n, identity in enumerate(identities)]
        time.sleep(0.1 + 0.05 * round_number)
        os.kill(before[round_number % 4], signal.SIGKILL)
        lost = [answer for answer in under_way if isinstance(answer.exception(), OSError | http.client.HTTPException)]
        assert all(answer in lost or answer.result()[0] == 201 for answer in under_way)
        assert len(lost) <= 16, "no more than were in flight"
        assert eventually(lambda: listening(live) == 4), "it came back"
        assert len(set(workers_of(live)) - set(before)) == 1
        for n, identity in enumerate(identities):  # whatever became of it: the same request gets its token
            assert post_once(live, identity, n)[0] in {200, 201}
        assert post_once(live, identities[0], 999) == (409, "identity.replayed")


@FIVE_TIMES
def test_a_worker_that_is_stopped_is_replaced_and_a_busy_one_is_not(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with four(tmp_path, provider) as live, ThreadPoolExecutor(8) as pool:
        before = workers_of(live)
        stopped = before[round_number % 4]
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()

        def keep_asking(worker: int) -> set[int]:
            found = set()
            while time.monotonic() < began + SILENT_S + 3:
                with contextlib.suppress(OSError):  # its connections end with it
                    found.add(post_once(live, live.token(), worker)[0])
            return found

        under_way = [pool.submit(keep_asking, worker) for worker in range(8)]
        assert eventually(lambda: not is_alive(stopped), SILENT_S + 3)
        assert time.monotonic() - began > SILENT_S - 3, "a short silence is none"
        assert eventually(lambda: listening(live) == 4), "it came back"
        statuses = set[int]().union(*(answers.result() for answers in under_way))
        assert 201 in statuses
        assert statuses <= {201, 503}, "nobody is told no; whom a new worker finds without keys comes again"
        assert set(before) - set(workers_of(live)) == {stopped}


@FIVE_TIMES
def test_kill_9_of_the_parent_leaves_nobody(tmp_path: Path, provider: LocalProvider, round_number: int) -> None:
    with running(tmp_path, provider, command=command(2)) as live:  # and an embedded Valkey with its watcher
        assert eventually(lambda: listening(live) == 2)
        family = [pid for child in children(live.process.pid) for pid in (child, *children(child))]
        assert len(family) >= 4
        live.kill()
        assert eventually(lambda: not any(map(is_alive, family)), 10), [pid for pid in family if is_alive(pid)]


@FIVE_TIMES
@pytest.mark.parametrize("workers", [1, 3])
def test_sigterm_finishes_what_is_in_flight_and_ends_with_0(
    tmp_path: Path, provider: LocalProvider, round_number: int, workers: int
) -> None:
    body = msgspec.json.encode(BODY)
    with running(tmp_path, provider, command=command(workers)) as live, contextlib.ExitStack() as stack:
        assert eventually(lambda: listening(live) == workers)
        connections = []
        for _ in range(12):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", live.settings.port), timeout=5))
            lines = ("POST /tokens HTTP/1.1", "Host: x", "Content-Type: application/json",
                     f"Content-Length: {len(body)}", f"Authorization: Bearer {live.token()}", "", "")  # fmt: skip
            connection.sendall("\r\n".join(lines).encode() + body[:-1])
            connections.append(connection)
        time.sleep(1.0)  # until all are accepted
        family = children(live.process.pid)
        live.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{live.url}/health/live", timeout=1)
        for connection in connections:
            connection.sendall(body[-1:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
        assert live.process.wait(10) == 0
        assert eventually(lambda: not any(map(is_alive, family)))
        decisions = [event for event in live.audit() if event["event"] == "decision"]
        assert len(decisions) == 12, "no token without its event"


def test_a_port_that_is_taken_and_a_store_that_is_not_there_are_said_and_leave_nobody(
    tmp_path: Path, provider: LocalProvider
) -> None:
    write_folder(tmp_path, provider)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = taken.getsockname()[1]
        for port, store, said in (
            (taken_port, "embedded", "cannot listen on 127.0.0.1"),
            (free_port(), f"unix://{tmp_path}/none.sock", "state.unreachable"),
        ):
            settings = msgspec.structs.replace(settings_for(tmp_path, port), redis_url=store)
            process = start(settings, tmp_path, command(3))
            assert process.wait(15) == 6
            assert said in (tmp_path / "service.log").read_text()


# -- the supervisor alone ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def supervised(folder: Path, count: int, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.supervised", str(count), kind, str(folder)], stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def said(folder: Path, word: str) -> list[int]:
    if not (folder / "said").exists():
        return []
    lines = [line.split() for line in (folder / "said").read_text().splitlines()]
    return [int(pid) for what, pid in lines if what == word]


def test_sighup_reaches_every_worker_and_ends_none(tmp_path: Path) -> None:
    with supervised(tmp_path, 4, "loyal") as parent:
        assert eventually(lambda: len(said(tmp_path, "start")) == 4)
        for rounds in range(1, 6):
            parent.send_signal(signal.SIGHUP)
            assert eventually(lambda rounds=rounds: len(said(tmp_path, "hup")) == 4 * rounds)  # type: ignore[misc]
        assert sorted(said(tmp_path, "hup")) == sorted(said(tmp_path, "start") * 5)
        parent.terminate()
        assert parent.wait(5) == 0


def test_a_change_of_policy_and_a_hangup_reach_every_worker(tmp_path: Path, provider: LocalProvider) -> None:
    def told() -> set[str]:
        """What so many connections, which the kernel deals out among the workers, are told of the active policies."""
        return {httpx.get(f"{live.url}/health/ready").json()["policies"]["digest"] for _ in range(40)}

    with four(tmp_path, provider) as live:
        (first,) = told()
        rewrite(live.folder, "^  ttl_s: 3600$", "  ttl_s: 1800")
        assert eventually(lambda: first not in told(), 30), "each looks for itself"
        (second,) = told()
        rewrite(live.folder, "^  ttl_s: 1800$", "  ttl_s: 900")
        live.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: not {first, second} & told(), 30)
        assert len(workers_of(live)) == 4


@FIVE_TIMES
def test_a_rotation_of_our_keys_and_a_hangup_reach_every_worker_and_no_request_fails(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    def published() -> set[frozenset[str]]:
        """What so many connections are told of the key set: one answer where all workers agree."""
        asked = (httpx.get(f"{live.url}/.well-known/jwks.json") for _ in range(30))
        return {frozenset(key["kid"] for key in answer.json()["keys"]) for answer in asked}

    with four(tmp_path, provider) as live, ThreadPoolExecutor(2) as pool:
        keys, begun = live.folder / "keys", live.token()
        before = live.post(begun)
        old = before.json()["kid"]
        ended = threading.Event()

        def keep_asking() -> set[int]:
            found = set()
            while not ended.is_set():
                found.add(post_once(live, live.token())[0])
            return found

        under_way = [pool.submit(keep_asking) for _ in range(2)]
        new = generate(keys, "next").stem
        live.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: published() == {frozenset({old, new})}, 15)
        (keys / "retiring").mkdir(mode=0o700)
        (keys / "active" / f"{old}.pem").rename(keys / "retiring" / f"{old}.pem")
        (keys / "next" / f"{new}.pem").rename(keys / "active" / f"{new}.pem")
        live.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: {live.post(live.token()).json()["kid"] for _ in range(4)} == {new}, 15)
        time.sleep(1)
        kids = {httpx.post(f"{live.url}/tokens", **sent(live)).json()["kid"] for _ in range(20)}
        assert kids == {new}, "of every worker"
        assert published() == {frozenset({old, new})}
        assert live.post(begun).content == before.content, "what the old key began it ends"
        (keys / "retiring" / f"{old}.pem").unlink()
        live.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: published() == {frozenset({new})}, 15)
        ended.set()
        assert [answers.result() for answers in under_way] == [{201}, {201}]
        assert live.audit()[-1]["event"] == "decision"
        assert [event["keys"] for event in live.audit() if event["event"] == "policies_loaded"][-1] == {new: "active"}


def sent(live: Running) -> dict[str, Any]:
    """Return what a good request of its own connection is made of."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {live.token()}"}
    return {"content": msgspec.json.encode(BODY), "headers": headers}


def test_keys_that_are_not_fit_are_refused_and_the_last_good_ones_sign_on(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider) as live:
        kid = live.post(live.token()).json()["kid"]
        (pem,) = (live.folder / "keys" / "active").glob("*.pem")
        second = generate(live.folder / "keys", "next")
        for spoil, repair in (
            (lambda: pem.chmod(0o644), lambda: pem.chmod(0o600)),
            (lambda: pem.rename(pem.with_suffix(".old")), lambda: pem.with_suffix(".old").rename(pem)),
            (lambda: second.rename(pem.with_name("second.pem")), lambda: pem.with_name("second.pem").unlink()),
        ):
            spoil()
            live.process.send_signal(signal.SIGHUP)
            assert eventually(lambda: httpx.get(f"{live.url}/health/ready").json()["policies"]["stale"] is True)
            assert live.post(live.token()).json()["kid"] == kid
            repair()
            live.process.send_signal(signal.SIGHUP)
            assert eventually(lambda: httpx.get(f"{live.url}/health/ready").json()["policies"]["stale"] is False)
        refused = [event["code"] for event in live.audit() if event["event"] == "policies_refused"]
        assert refused == ["key.unsafe", "key.unusable", "key.unusable"]


def test_workers_that_end_at_once_are_started_again_ever_more_slowly(tmp_path: Path) -> None:
    with supervised(tmp_path, 1, "failing") as parent:
        time.sleep(3)
        assert 3 <= len(said(tmp_path, "start")) <= 6, "0.2, 0.4, 0.8, 1.6 s"
        assert parent.poll() is None
        parent.terminate()
        assert parent.wait(5) == 0


def test_a_worker_in_an_endless_loop_is_killed_and_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, 2, "endless") as parent:
        assert eventually(lambda: len(said(tmp_path, "start")) == 2)
        began = time.monotonic()
        assert eventually(lambda: len(said(tmp_path, "start")) >= 4, 10)
        assert 2 < time.monotonic() - began < 7, "3 s of silence"
        assert parent.poll() is None
        assert "worker hangs" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("kind", ["busy", "loading", "loyal"])
def test_a_worker_that_is_busy_or_still_loads_is_left_alone(tmp_path: Path, kind: str) -> None:
    """For twice the time of silence; and the parent itself stood still for longer than that."""
    with supervised(tmp_path, 2, kind) as parent:
        assert eventually(lambda: len(said(tmp_path, "start")) == 2)
        time.sleep(6)
        parent.send_signal(signal.SIGSTOP)
        time.sleep(4)
        parent.send_signal(signal.SIGCONT)
        time.sleep(1.5)
        assert len(said(tmp_path, "start")) == 2


def test_a_worker_that_does_not_hear_is_killed_in_the_end(tmp_path: Path) -> None:
    with supervised(tmp_path, 2, "deaf") as parent:
        assert eventually(lambda: len(said(tmp_path, "start")) == 2)
        began = time.monotonic()
        parent.terminate()
        assert parent.wait(5) == 0
        assert time.monotonic() - began < 3
        assert not any(map(is_alive, said(tmp_path, "start")))


def test_a_first_start_that_is_refused_ends_the_service(tmp_path: Path) -> None:
    with supervised(tmp_path, 3, "refused") as parent:
        assert parent.wait(5) != 0
        assert not any(map(is_alive, said(tmp_path, "start")))
        assert "start refused" in (tmp_path / "log").read_text()
