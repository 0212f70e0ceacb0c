"""Several workers on one port, with one store; and what remains when one of them, or their parent, dies."""

import asyncio
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import uvloop

from issuer.cli.exits import Exit
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.errors import SetupError
from issuer.io.bounds import MAX_ACCEPTED
from issuer.io.sockets import bind
from issuer.service.process import supervisor
from issuer.service.process.fair_queue import Progress
from issuer.service.process.server import handed_over
from issuer.service.process.supervisor import Worker, beating
from issuer.service.settings.model import changed
from issuer.service.signing.keyring import generate
from tests.support.http_load import request
from tests.support.key_hosts import write_event
from tests.support.logged import logged_service, sequencers
from tests.support.processes import command_of, is_running, listens
from tests.support.running import BODY, FIVE_TIMES, Running, listening, numbered, running, serve, start, write_folder
from tests.support.waiting import eventually, within

# The repository whose limit is 20. All other limits are wide.
NARROW = "800000020"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def workers_of(live: Running) -> list[int]:
    """Return the children that run the parent's command, unlike the store's watcher, and that have an event loop, unlike the
    helper."""
    parent = command_of(live.process.pid)
    found = []
    for pid in children(live.process.pid):
        with contextlib.suppress(OSError):
            if command_of(pid) == parent and "anon_inode:[eventpoll]" in opened_by(pid):
                found.append(pid)
    return found


def once(live: Running, method: str, path: str, identity: str = "", sent: object = None) -> tuple[int, Any]:
    """Ask on a new connection, so that any worker may get it; return status and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", live.settings.listen.port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {identity}"}
        connection.request(method, path, msgspec.json.encode(sent), headers if identity else {})
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read())
    finally:
        connection.close()


def post_once(live: Running, identity: str, number: int = 0) -> tuple[int, str]:
    """Post on a new connection; return status and code."""
    status, answer = once(live, "POST", "/tokens", identity, numbered(number))
    return status, answer.get("code", "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """Run four workers, and register an integration whose limit is 20."""
    folder = tmp_path_factory.mktemp("four")
    write_folder(folder, provider)
    file = folder / "policies" / "inspect-ai.yaml"
    text = file.read_text("utf-8").replace("identity: {count: 1000000, per_s: 60, burst: 50000}",
                                           "identity: {count: 20, per_s: 3600, burst: 20}")  # fmt: skip
    text = text.replace("integration: inspect-ai", "integration: narrow").replace("700000001", NARROW)
    file.with_name("narrow.yaml").write_text(text, "utf-8")
    with running(folder, provider, command=serve(4)) as live:
        yield live


@pytest.fixture
def four(shared: Running) -> Running:
    """Four workers, all of which serve, and know the provider's keys."""

    def known() -> bool:
        stranger = shared.token(repository_id="99")
        return {post_once(shared, stranger)[0] for _ in range(24)} == {403}

    eventually(lambda: listening(shared) == 4)
    eventually(known)
    return shared


def sockets_of(pid: int) -> int:
    return sum(opened.startswith("socket:") for opened in opened_by(pid))


def opened_by(pid: int) -> list[str]:
    """Return what a process has open."""
    opened = []
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            opened.append(str(path.readlink()))
    return opened


def test_a_limit_of_20_lets_20_through_four_workers(four: Running) -> None:
    identities = [four.token(repository_id=NARROW) for _ in range(60)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda pair: post_once(four, pair[1], pair[0]), enumerate(identities)))
    assert Counter(answers) == {(201, ""): 20, (429, "rate.identity"): 40}


def test_each_of_four_workers_gets_its_share_of_a_burst(four: Running) -> None:
    before = {pid: sockets_of(pid) for pid in workers_of(four)}
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", four.settings.listen.port)))
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            connection.recv(1)
        taken = [sockets_of(pid) - count for pid, count in before.items()]
    assert len(taken) == 4
    assert 0 < min(taken) <= max(taken) < 40


def test_callers_that_come_together_are_accepted_together(four: Running) -> None:
    """One by one, the last caller would wait for further answers to the first callers."""
    of_worker = Counter(opened for opened in opened_by(workers_of(four)[0]) if opened.startswith("socket:"))
    assert max(of_worker.values()) == MAX_ACCEPTED
    own, alone = bind([(socket.AF_INET, ("127.0.0.1", 0))]), socket.create_server(("127.0.0.1", 0))
    assert uvloop.run(turns_until_accepted(own, 32)) < 16
    assert uvloop.run(turns_until_accepted([alone], 32)) >= 32


async def turns_until_accepted(sockets: list[socket.socket], callers: int) -> int:
    """Return how many turns the event loop needs to accept callers that came before it listened."""
    loop, taken = asyncio.get_running_loop(), list[asyncio.Protocol]()

    class Taken(asyncio.Protocol):
        def connection_made(self, _transport: asyncio.BaseTransport) -> None:
            taken.append(self)

    sockets[0].listen()
    with contextlib.ExitStack() as stack:
        for _ in range(callers):
            stack.enter_context(socket.create_connection(sockets[0].getsockname()))
        servers = [await loop.create_server(Taken, sock=each) for each in sockets]
        turns = 0
        while len(taken) < callers:
            await asyncio.sleep(0)
            turns += 1
        for server in servers:
            server.close()
    return turns


def test_32_requests_of_one_identity_to_four_workers_give_one_token(four: Running) -> None:
    identity = four.token()
    with ThreadPoolExecutor(32) as pool:
        statuses = Counter(pool.map(lambda number: post_once(four, identity, number)[0], range(32)))
    assert statuses == {201: 1, 409: 31}


@FIVE_TIMES
def test_a_killed_worker_loses_its_requests_alone_and_is_replaced(four: Running, round_number: int) -> None:
    before = workers_of(four)
    identities = [four.token() for _ in range(120)]
    with ThreadPoolExecutor(16) as pool:
        under_way = [pool.submit(post_once, four, identity, n) for n, identity in enumerate(identities)]
        eventually(lambda: sum(answer.done() for answer in under_way) > 10 + 10 * round_number)
        os.kill(before[round_number % 4], signal.SIGKILL)
        lost = [answer for answer in under_way if isinstance(answer.exception(), OSError | http.client.HTTPException)]
    statuses = {answer.result()[0] for answer in under_way if answer not in lost}
    assert 201 in statuses
    assert statuses <= {201, 503}, "no refusal; a new worker without keys answers 503"
    assert len(lost) <= 16, "no more than were in flight"
    eventually(lambda: len(set(workers_of(four)) - set(before)) == 1 and listening(four) == 4)
    for n, identity in enumerate(identities):  # each request, lost or not, gets its token
        eventually(lambda n=n, i=identity: post_once(four, i, n)[0] in {200, 201})  # type: ignore[misc]
    assert post_once(four, identities[0], 999) == (409, "identity.replayed")


@FIVE_TIMES
def test_a_killed_parent_leaves_no_process(tmp_path: Path, provider: LocalProvider, round_number: int) -> None:
    with running(tmp_path, provider, command=serve(2)) as live:  # and an embedded Valkey with its watcher
        eventually(lambda: listening(live) == 2)
        family = [pid for child in children(live.process.pid) for pid in (child, *children(child))]
        assert len(family) >= 4
        live.kill()
        eventually(lambda: not any(map(is_running, family)))


@FIVE_TIMES
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_finishes_the_requests_in_flight_and_ends_with_0(
    tmp_path: Path, provider: LocalProvider, round_number: int, workers: int
) -> None:
    body = msgspec.json.encode(BODY)
    with running(tmp_path, provider, command=serve(workers)) as live, contextlib.ExitStack() as stack:
        eventually(lambda: listening(live) == workers)
        connections = []
        for _ in range(12):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60)
            )
            connection.sendall(request("/tokens", live.token(), body, "Expect: 100-continue")[: -len(body)])
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 "), "it is in flight"
            connection.sendall(body[:-1])
            connections.append(connection)
        family = children(live.process.pid)
        live.process.send_signal(signal.SIGTERM)
        eventually(lambda: listening(live) == 0)
        for connection in connections:
            connection.sendall(body[-1:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 201 ")
        assert live.process.wait(60) == 0
        eventually(lambda: not any(map(is_running, family)))
        assert [event["event"] for event in live.audit()].count("decision") == 12, "no token without its event"


def test_a_taken_port_and_a_missing_store_end_the_start(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_port = taken.getsockname()[1]
        for port, store, why in (
            (taken_port, "embedded", "cannot listen on 127.0.0.1"),
            (free_port(), f"unix://{tmp_path}/none.sock", "state.unreachable"),
        ):
            settings = changed(settings_for(tmp_path, port), store_url=store)
            process = start(settings, tmp_path, serve(3))
            assert process.wait(60) == 6
            assert why in (tmp_path / "service.log").read_text()


@contextlib.contextmanager
def supervised(folder: Path, *kinds: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the supervisor with a worker of each kind."""
    command = [sys.executable, "-m", "tests.support.supervised", str(folder), *kinds]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def started(folder: Path, kind: str) -> list[int]:
    """Return the processes of a kind, one for each start."""
    said = folder / "said"
    lines = [line.split() for line in said.read_text().splitlines()] if said.exists() else []
    return [int(pid) for what, pid in lines if what == kind]


@FIVE_TIMES
def test_a_rotation_of_keys_reaches_every_worker_and_no_request_fails(four: Running, round_number: int) -> None:
    def published() -> set[frozenset[str]]:
        """Return the key sets that 40 connections see: one if all workers agree."""
        answers = (once(four, "GET", "/.well-known/jwks.json")[1] for _ in range(40))
        return {frozenset(key["kid"] for key in answer["keys"]) for answer in answers}

    def signing() -> set[str]:
        """Return the keys that sign the tokens of 30 connections."""
        return {once(four, "POST", "/tokens", four.token(), BODY)[1]["kid"] for _ in range(30)}

    keys, begun = four.folder / "keys", four.token()
    before = four.post(begun)
    old = before.json()["kid"]
    ended = threading.Event()

    def keep_asking() -> set[int]:
        found = set()
        while not ended.is_set():
            found.add(post_once(four, four.token())[0])
        return found

    with ThreadPoolExecutor(2) as pool:
        under_way = [pool.submit(keep_asking) for _ in range(2)]
        try:
            path = generate(keys, "next")
            new = path.stem
            four.process.send_signal(signal.SIGHUP)
            eventually(lambda: published() == {frozenset({old, new})})
            write_event(Path(four.settings.data), "active", path, int(time.time()))  # without the usual delay
            (keys / "retiring").mkdir(mode=0o700, exist_ok=True)
            (keys / "active" / f"{old}.pem").rename(keys / "retiring" / f"{old}.pem")
            (keys / "next" / f"{new}.pem").rename(keys / "active" / f"{new}.pem")
            four.process.send_signal(signal.SIGHUP)
            eventually(lambda: signing() == {new})
            assert published() == {frozenset({old, new})}
            assert four.post(begun).content == before.content, "a repeat is signed by the old key"
            (keys / "retiring" / f"{old}.pem").unlink()
            four.process.send_signal(signal.SIGHUP)
            eventually(lambda: published() == {frozenset({new})})
        finally:
            ended.set()
        assert [answers.result() for answers in under_way] == [{201}, {201}]
    eventually(lambda: [event.get("keys") for event in four.audit()].count({new: "active"}) == 4)


def test_workers_that_end_or_hang_are_replaced_and_one_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    """They are restarted ever more slowly. A thread beats for a worker that makes progress in an endless turn."""
    began = time.monotonic()
    with supervised(tmp_path, "failing", "stuck", "toiling", "deaf") as parent:
        eventually(lambda: len(started(tmp_path, "failing")) >= 4)
        assert time.monotonic() - began > 1.4, "0.2, 0.4, 0.8 s"
        eventually(lambda: len(started(tmp_path, "stuck")) >= 2)
        assert "worker hangs" in (tmp_path / "log").read_text()
        (toiling,), (deaf,) = started(tmp_path, "toiling"), started(tmp_path, "deaf")
        assert parent.poll() is None
        parent.terminate()
        assert parent.wait(60) == 0
        assert not any(map(is_running, (toiling, deaf)))


def test_a_worker_deaf_to_sigterm_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    with supervised(tmp_path, "deaf") as parent:
        eventually(lambda: started(tmp_path, "deaf"))
        parent.kill()
        eventually(lambda: not any(map(is_running, started(tmp_path, "deaf"))))


# The children without which a service ends. The others are replaced.
VITAL = (b"issuer.service.admission.embedded", b"valkey-server", b"issuer.service.log.sequencer.process")


def family_of(live: Running) -> dict[int, bytes]:
    """Return the processes below a service with their command lines, in the order of the tree."""
    below = [each for child in children(live.process.pid) for each in (child, *children(child))]
    return {pid: command_of(pid) for pid in below}


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("victim", [*VITAL, b""])
def test_no_child_of_a_service_ends_unseen_or_outlives_it(
    tmp_path: Path, provider: LocalProvider, workers: int, victim: bytes
) -> None:
    """The victim of the empty name is the service itself."""
    with logged_service(tmp_path, provider, command=serve(workers)) as live:
        eventually(lambda: listening(live) == workers)
        for pid, command in family_of(live).items():
            if not any(name in command for name in VITAL) or pid in sequencers(live):
                os.kill(pid, signal.SIGKILL)  # a worker, the helper or the sequencer
                eventually(lambda pid=pid: pid not in family_of(live) and listening(live) == workers)  # type: ignore[misc]
                eventually(lambda: once(live, "POST", "/tokens", live.token(), BODY)[0] == 201)
        eventually(lambda: len(family_of(live)) == (4 if workers == 1 else 5 + workers))
        family = family_of(live)
        os.kill(
            next((pid for pid, name in family.items() if victim and victim in name), live.process.pid), signal.SIGKILL
        )
        assert live.process.wait(60) == (Exit.LOCAL if victim else -signal.SIGKILL)
        assert ("has ended, so the service ends" in live.log_text()) == bool(victim)
        eventually(lambda: not any(map(is_running, family)))


def test_a_worker_beats_once_for_each_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BEAT_S", 0.1)
    beats, progress = list[int](), Progress()
    with beating(lambda: beats.append(progress.count), lambda: progress.count):
        assert not within(0.2, lambda: beats)
        progress.note()
        eventually(lambda: beats == [1])
    progress.note()
    assert not within(0.2, lambda: len(beats) > 1), "after the end it does not beat"


def test_a_worker_that_misses_four_beats_in_a_row_is_killed() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        worker = Worker(lambda _beat, _line: None, silent_s=3)
        worker.pid = process.pid
        for _ in range(5):  # three missed beats are allowed, and a beat resets their count
            for heard in ({process.pid}, {1}, set[int](), {2, 3}):
                worker.listen(heard)
        assert not within(0.1, process.poll)
        worker.listen(set())
        assert process.wait(60) == -signal.SIGKILL


@pytest.mark.long
def test_workers_that_are_busy_or_still_load_are_not_killed(tmp_path: Path) -> None:
    """For twice the time of silence; nor after the parent itself was stopped for longer than that."""
    kinds = ("busy", "loading", "loyal")

    def starts() -> list[int]:
        return [len(started(tmp_path, kind)) for kind in kinds]

    with supervised(tmp_path, *kinds) as parent:
        eventually(lambda: starts() == [1, 1, 1])
        assert not within(6, lambda: starts() != [1, 1, 1])
        parent.send_signal(signal.SIGSTOP)
        assert not within(4, lambda: starts() != [1, 1, 1])
        parent.send_signal(signal.SIGCONT)
        assert not within(1.5, lambda: starts() != [1, 1, 1])


def test_a_first_start_that_is_refused_ends_the_service(tmp_path: Path) -> None:
    with supervised(tmp_path, *["refused"] * 3) as parent:
        assert parent.wait(60) != 0
        assert not any(map(is_running, started(tmp_path, "refused")))
        log = (tmp_path / "log").read_text()
        assert (log.count("SetupError: settings.invalid: no"), "start refused" in log) == (1, False), "one message"


def test_sockets_for_another_process_are_ignored() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "OTHER": "stays"}
    assert handed_over(environ) == []
    assert environ == {"OTHER": "stays"}, "nor do its children see them"


def test_a_descriptor_that_does_not_listen_is_refused() -> None:
    """In this process, descriptor 3 may be any file."""
    kept = os.dup(3) if os.path.exists("/proc/self/fd/3") else None
    with socket.socket() as plain:
        os.dup2(plain.fileno(), 3)
    try:
        with pytest.raises(SetupError, match="descriptor 3 is not a listening TCP socket"):
            handed_over({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
    finally:
        if kept is not None:
            os.dup2(kept, 3)
            os.close(kept)


@pytest.mark.long
@pytest.mark.needs_tool("systemd-socket-activate")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_answers_on_the_socket_of_systemd(tmp_path: Path, provider: LocalProvider, workers: str) -> None:
    write_folder(tmp_path, provider)
    port, elsewhere = free_port(), free_port()
    settings = settings_for(tmp_path, elsewhere)
    given = [f"--setenv={name}={value}" for name, value in environment(settings).items()]
    command = ["systemd-socket-activate", f"--listen=127.0.0.1:{port}", *given, "--setenv=PYTHONPATH"]
    with (tmp_path / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "issuer", "serve", "--workers", workers], stdout=log, stderr=log
        )
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, transport=httpx.HTTPTransport(retries=50)
        ) as http:
            assert http.get("/health/live").status_code == 200, "the first request starts it"
            token = provider.token(settings.url)
            assert http.post("/tokens", json=BODY, headers={"Authorization": f"Bearer {token}"}).status_code == 201
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", elsewhere))
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_worker_with_metrics_leaves_no_process(tmp_path: Path, provider: LocalProvider, number: int) -> None:
    port = free_port()
    with running(tmp_path, provider, metrics_port=port) as live:
        eventually(lambda: listens(port) and len(children(live.process.pid)) >= 2)
        family = children(live.process.pid)
        live.process.send_signal(number)
        live.process.wait(60)
        eventually(lambda: not any(map(is_running, family)) and not listens(port))
