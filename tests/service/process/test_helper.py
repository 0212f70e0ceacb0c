"""Policies of several workers: the helper follows them, and each worker, also a restarted one, gets every change."""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.limits.rate import NO_CEILINGS
from issuer.policy.authoring.load import PolicySource
from issuer.service.metrics.counts import Board
from issuer.service.policies.watcher import Follower
from issuer.service.process import helper, metrics_listener, supervisor
from issuer.service.process.fair_queue import Progress
from issuer.service.process.fd_channel import channel
from issuer.service.process.helper import Helper
from issuer.service.process.metrics_listener import MetricsListener
from issuer.service.process.supervisor import Worker
from tests.support.no_tls import NO_TLS
from tests.support.processes import family
from tests.support.running import Running, listening, numbered, rewrite, running, serve, write_folder
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("kept"), provider, command=serve(2)) as live:
        eventually(lambda: listening(live) == 2)
        shutil.copytree(live.folder / "policies", live.folder / "first")
        yield live


@pytest.fixture
def two(shared: Running) -> Running:
    """Two workers, with their first folder."""
    shutil.rmtree(shared.folder / "policies")
    shutil.copytree(shared.folder / "first", shared.folder / "policies")
    shared.process.send_signal(signal.SIGHUP)
    eventually(lambda: listening(shared) == 2 and [stale for _, stale in active(shared)] == [False])
    eventually(lambda: issued(shared) == {3600})
    return shared


def active(live: Running) -> set[tuple[str, bool]]:
    """Return the active policies, and whether they are stale, by many new connections."""
    found = set()
    for _ in range(20):
        with contextlib.suppress(OSError):
            answer = httpx.get(f"{live.url}/health/ready", timeout=60, verify=NO_TLS).json()["policies"]
            found.add((str(answer["digest"]), bool(answer["stale"])))
    return found


def issued(live: Running) -> set[object]:
    """Return how long tokens live, or the code of a refusal, by many new connections."""
    found: set[object] = set()
    for number in range(12):
        headers = {"Authorization": f"Bearer {live.token()}"}
        url = f"{live.url}/tokens"
        answer = httpx.post(url, json=numbered(number), headers=headers, timeout=60, verify=NO_TLS).json()
        found.add(answer.get("code") or answer["expires_at"] - answer["issued_at"])
    return found


def workers_of(live: Running) -> list[int]:
    """Return the processes that have an event loop, unlike the helper."""
    return [pid for pid in family(live.process.pid)[1:] if pid != helper_of(live)]


def helper_of(live: Running) -> int:
    found = []
    for pid in family(live.process.pid)[1:]:
        links = set()
        for path in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                links.add(os.readlink(path))
        if "anon_inode:[eventpoll]" not in links:
            found.append(pid)
    (helper,) = found
    return helper


def file_of(live: Running) -> Path:
    return live.folder / "policies" / "inspect-ai.yaml"


def kill(live: Running, pid: int) -> None:
    before = set(family(live.process.pid))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(set(family(live.process.pid)) - before) == 1 and listening(live) == 2)


def test_a_change_is_in_every_worker_and_each_audits_it_once(two: Running) -> None:
    rewrite(two.folder, "^  ttl_s: 3600$", "  ttl_s: 1801")  # as in no other test
    eventually(lambda: issued(two) == {1801})
    ((digest, _),) = active(two)
    events = [event for event in two.audit() if event["event"] == "policies_loaded" and event["policies"] == digest]
    assert len({event["worker"] for event in events}) == len(events) == 2
    assert [list(event["changed"]) for event in events] == [["inspect-ai"]] * 2


@pytest.mark.long
def test_a_restarted_worker_has_the_newest_policies_although_the_folder_is_broken(two: Running) -> None:
    """Its parent has them, without the permissions that were withdrawn since."""
    rewrite(two.folder, "^  ttl_s: 3600$", "  ttl_s: 1800")
    eventually(lambda: issued(two) == {1800})
    (file_of(two).with_name("broken.yaml")).write_text("nothing good", "utf-8")
    eventually(lambda: {stale for _, stale in active(two)} == {True})
    for pid in workers_of(two):
        kill(two, pid)
    eventually(lambda: issued(two) == {1800})
    assert {stale for _, stale in active(two)} == {True}
    rewrite(two.folder, "^mode: active$", "mode: suspended")
    eventually(lambda: issued(two) == {"integration.suspended"})
    for pid in workers_of(two):
        kill(two, pid)
    eventually(lambda: issued(two) == {"integration.suspended"})
    file_of(two).with_name("broken.yaml").unlink()
    eventually(lambda: {stale for _, stale in active(two)} == {False})


def ends_of(pid: int) -> set[tuple[str, bool]]:
    """Return the pipes and datagram sockets of a process, each with whether it can be written."""
    datagrams = {
        row.split()[6] for row in Path("/proc/net/unix").read_text().splitlines()[1:] if row.split()[4] == "0002"
    }
    found = set()
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        kind, _, inode = os.readlink(path).strip("]").partition(":[")
        flags = int(re.search(r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{path.name}").read_text())[1], 8)  # type: ignore[index]
        if kind == "pipe" or inode in datagrams:
            found.add((f"{kind}:{inode}", flags & os.O_ACCMODE != os.O_RDONLY))
    return found


def test_a_worker_holds_no_end_of_a_channel_of_another_process(two: Running) -> None:
    """Also one that started after the others: it could send policies, pickled, to any of them."""
    kill(two, workers_of(two)[0])
    parent, helper = ends_of(two.process.pid), ends_of(helper_of(two))
    others = {end for end, _ in parent | helper if end.startswith("socket")}
    reads = {(end, False) for end, writes in parent if writes} & parent  # of these pipes the parent has both ends
    for own in map(ends_of, workers_of(two)):
        sockets = {end for end, _ in own if end.startswith("socket")}
        assert (len(sockets), sockets & others) == (1, set())
        others |= sockets
        assert len(own & reads) == 1, "the one that shows that the parent is dead"


def test_a_restarted_helper_finds_what_changed_meanwhile(two: Running) -> None:
    pid = helper_of(two)
    os.kill(pid, signal.SIGSTOP)
    rewrite(two.folder, "^  ttl_s: 3600$", "  ttl_s: 1800")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: issued(two) == {1800})
    assert helper_of(two) != pid


@pytest.mark.long
@pytest.mark.parametrize("fault", ["broken", "removed", "pipe"])
def test_a_bad_file_holds_up_no_other_integration(two: Running, fault: str) -> None:
    text = file_of(two).read_text("utf-8")
    other = text.replace("integration: inspect-ai", "integration: other").replace("700000001", "700000009")
    bad = file_of(two).with_name("other.yaml")
    bad.write_text(other, "utf-8")
    eventually(lambda: len(active(two)) == 1 and knows(two, "700000009"))
    bad.unlink()
    if fault == "broken":
        bad.write_text(other + "nothing good\n", "utf-8")
    if fault == "pipe":
        os.mkfifo(bad)
    eventually(lambda: {stale for _, stale in active(two)} == {fault != "removed"})
    assert issued(two) == {3600}
    eventually(lambda: knows(two, "700000009") == (fault != "removed"))  # a refused file leaves its last good version
    bad.unlink(missing_ok=True)
    eventually(lambda: {stale for _, stale in active(two)} == {False})


def knows(live: Running, repository_id: str) -> bool:
    answers = [live.post(live.token(repository_id=repository_id), numbered(number)) for number in range(6)]
    return all(answer.status_code == 201 for answer in answers)


def test_a_worker_that_receives_nothing_is_killed() -> None:
    """Its parent never waits, and the next worker begins with all policies."""
    here, there = channel()
    with open(os.devnull, "rb") as file:
        full = False
        while not full:
            try:
                here.send(file.fileno())
            except BlockingIOError:
                full = True
        with subprocess.Popen(["sleep", "600"]) as process:
            worker = Worker(lambda _beat, _channel: None, silent_s=3)
            worker.pid, worker._channel = process.pid, here
            worker.pass_on(file.fileno())
            assert process.wait(60) == -signal.SIGKILL
        taken = there.receive()
        assert os.path.samestat(os.fstat(next(taken)), os.fstat(file.fileno()))
    here.close()
    there.close()


@pytest.mark.long
def test_the_descriptor_of_each_change_is_closed(two: Running) -> None:
    counts = {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (two.process.pid, helper_of(two))}
    for ttl_s in range(1000, 1003):
        rewrite(two.folder, r"^  ttl_s: \d+$", f"  ttl_s: {ttl_s}")
        eventually(lambda ttl_s=ttl_s: issued(two) == {ttl_s})  # type: ignore[misc]
    for pid, count in counts.items():
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) == count


@pytest.mark.long
def test_failed_reloads_free_their_memory(two: Running) -> None:
    bad, helper = file_of(two).with_name("bad.yaml"), helper_of(two)

    def fail(number: int) -> int:
        contacts = "".join(f"- [c{number}-{each}]\n" for each in range(20_000))
        bad.write_text(f"version: 1\nlimits:\n{contacts}", "utf-8")
        refused = two.log_text().count("policies refused")
        two.process.send_signal(signal.SIGHUP)
        eventually(lambda: two.log_text().count("policies refused") >= refused + 2)
        return int(Path(f"/proc/{helper}/statm").read_text().split()[1]) * 4096

    sizes = [fail(number) for number in range(8)]
    assert max(sizes[3:]) < sizes[2] + 8 * 2**20, sizes
    assert helper_of(two) == helper
    bad.unlink()


@pytest.mark.parametrize("hangs", [False, True])
def test_the_helper_beats_only_while_its_listener_is_alive(
    tmp_path: Path, provider: LocalProvider, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading gives the first beat. Without more of them, the supervisor replaces the helper."""
    beat_s = 0.2
    for place, name in ((supervisor, "BEAT_S"), (metrics_listener, "BEAT_S"), (helper, "LOOK_S")):
        monkeypatch.setattr(place, name, beat_s)
    write_folder(tmp_path, provider)
    progress = Progress()
    source = PolicySource(tmp_path / "policies", "https://issuer.example", True, NO_CEILINGS)
    follower = Follower(source, tmp_path / "kept", progress.note)
    listener = MetricsListener("127.0.0.1", 0, (), (Board(1), "redis://127.0.0.1:1", tmp_path / "audit.jsonl"))
    if hangs:
        monkeypatch.setattr(listener, "turned", lambda: False)
    read, write = os.pipe()

    def beat() -> None:
        os.write(write, b".")

    pid = os.fork()
    if pid == 0:
        Helper(follower, progress, listener).run(beat)
    try:
        heard, wait_s = b"", 60.0
        while len(heard) < 4 and select.select([read], [], [], wait_s)[0]:
            heard += os.read(read, 1)
            wait_s = 4 * beat_s if hangs else 60.0
        assert len(heard) == (1 if hangs else 4)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)
        listener.close()
