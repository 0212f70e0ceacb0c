"""The audit file of several workers, rotated, torn, full, gone and stopped, under a real service with load."""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.audit.events import MAX_EVENT_BYTES
from issuer.dev.provider import LocalProvider
from issuer.errors import Undecided
from issuer.io.bounds import MIN_FREE_BYTES
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.audit.bounds import REFUSED_BYTES
from issuer.service.audit.sink import FileAudit
from tests.support.command import issuer
from tests.support.decisions import decision
from tests.support.disk import small_disk
from tests.support.running import FIVE_TIMES, Running, body, listening, numbered, running, serve
from tests.support.waiting import eventually


def events(*files: Path) -> list[dict[str, Any]]:
    """Read every line that is whole."""
    found = []
    for file in files:
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def jtis(*files: Path) -> set[str]:
    return {jti for event in events(*files) for jti in event.get("jti", [])}


@contextlib.contextmanager
def two(folder: Path, provider: LocalProvider) -> Iterator[Running]:
    with EmbeddedValkey() as store, running(folder, provider, command=serve(2), store_url=store) as live:
        eventually(lambda: listening(live) == 2)
        yield live


def post_all(live: Running, identities: list[str]) -> list[httpx.Response | None]:
    """Post each once, 16 at a time; None where the connection broke."""

    def post(pair: tuple[int, str]) -> httpx.Response | None:
        try:
            return live.post(pair[1], numbered(pair[0]))
        except httpx.TransportError:
            return None

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(post, enumerate(identities)))


@pytest.mark.long
@FIVE_TIMES
def test_rotated_under_load_every_token_has_its_event(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with two(tmp_path, provider) as live, ThreadPoolExecutor(1) as pool:
        audit, answers = live.settings.audit_file, []
        rotated: list[Path] = []
        for turn in range(3):
            under_way = pool.submit(post_all, live, [live.token() for _ in range(40)])
            eventually(audit.exists)
            rotated.append(audit.rename(audit.with_suffix(f".{turn}")))
            answers += [answer for answer in under_way.result() if answer is not None]
        assert {answer.status_code for answer in answers} == {201}
        files = [file for file in (audit, *rotated) if file.exists()]
        assert {answer.json()["jti"] for answer in answers} == jtis(*files)
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        assert live.http.get("/health/ready").status_code == 200
    verified = issuer("audit", "verify", *files, "--heads", tmp_path / "service.log")
    assert verified.returncode == 0, verified.stdout
    assert "of 2 workers" in verified.stdout
    assert "audit head" in live.log_text()


@pytest.mark.long
def test_a_quarantined_caller_fills_no_disk_and_every_refusal_is_on_record(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """Large batches of a branch job, as fast as they come: told while they are few, then counted, also at the end."""
    limits = "limits:\n  refusals: {count: 60, per_s: 3600, burst: 60}\n"
    with running(tmp_path, provider, limits=limits) as live:
        refused, good = live.token(), body(benchmark_repo="not/granted")
        batch = {"results": [{**good, "details": {"notes": str(number)}} for number in range(100)]}
        before = live.settings.audit_file.stat().st_size
        codes = [live.post(refused, batch, "/tokens/batch").json()["code"] for _ in range(150)]
        grown = live.settings.audit_file.stat().st_size - before
        assert {*codes} == {"policy.benchmark", "abuse.quarantined"}
        assert grown < REFUSED_BYTES.burst + 60 * REFUSED_BYTES.count
    recorded: Counter[str] = Counter()
    for event in events(live.settings.audit_file):
        assert len(json.dumps(event)) < 2 * MAX_EVENT_BYTES
        recorded.update(event["codes"] if event["event"] == "refusals" else [event["code"]] if "code" in event else [])
    assert recorded == Counter(codes)


@FIVE_TIMES
def test_sigterm_loses_no_event(tmp_path: Path, provider: LocalProvider, round_number: int) -> None:
    with two(tmp_path, provider) as live, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(post_all, live, [live.token() for _ in range(150)])
        eventually(lambda: len(jtis(live.settings.audit_file)) > 5 + 20 * round_number)
        live.process.send_signal(signal.SIGTERM)
        issued = {answer.json()["jti"] for answer in under_way.result() if answer is not None and answer.is_success}
        assert live.process.wait(60) == 0
        assert issued
        assert issued <= jtis(live.settings.audit_file)


@pytest.mark.parametrize("round_number", range(5))
async def test_a_torn_line_of_one_worker_does_not_swallow_the_next_one_s(tmp_path: Path, round_number: int) -> None:
    path = tmp_path / "audit.jsonl"
    one, other = FileAudit(path), FileAudit(path)
    await one.record(decision(1))
    with path.open("ab") as torn:  # as a disk that is full takes it
        torn.write(b'{"event":"decis'[: 3 * round_number + 1])
    await other.record(decision(3))
    await other.record(decision(4))
    await one.record(decision(5))
    assert [event["request_id"] for event in events(path)] == ["1", "3", "4", "5"]
    one.close()
    other.close()


@FIVE_TIMES
def test_a_sink_that_cannot_be_opened_again_gives_no_token_until_it_can(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with running(tmp_path, provider) as live:
        assert live.post(live.token()).status_code == 201
        audit = live.settings.audit_file

        def readable_by_others() -> None:
            audit.touch()
            audit.chmod(0o644)

        ways: list[tuple[Callable[[], object], Callable[[], object]]] = [
            (audit.mkdir, audit.rmdir),
            (lambda: audit.symlink_to(tmp_path / "elsewhere"), audit.unlink),
            (readable_by_others, audit.unlink),
        ]
        for make, unmake in ways:
            audit.rename(audit.with_suffix(".1"))
            make()
            identity = live.token()
            answer = live.post(identity)
            assert (answer.status_code, answer.json()["code"]) == (503, "dependency.audit")
            assert "verify_token" not in answer.text
            eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
            assert live.http.get("/health/live").status_code == 200
            unmake()
            eventually(lambda: live.http.get("/health/ready").status_code == 200)
            assert live.post(identity).status_code == 200, "the honest retry"
            assert [event["verdict"] for event in events(audit)] == ["repeated"], "in a file of its own"
        assert not (tmp_path / "elsewhere").exists()


@FIVE_TIMES
def test_a_full_disk_gives_no_token_says_so_and_is_left_behind(
    tmp_path: Path, provider: LocalProvider, round_number: int
) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk, running(tmp_path, provider, data=str(disk)) as live:
        assert live.http.get("/health/ready").status_code == 200
        issued = {live.post(live.token()).json()["jti"]}
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(4 * 1024 * 1024 - MIN_FREE_BYTES))
        eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
        with contextlib.suppress(OSError), ballast.open("ab") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        lost = live.token()
        while (answer := live.post(lost)).status_code in {200, 201}:  # the last page of the file
            issued.add(answer.json()["jti"])
            lost = live.token()
        assert (answer.status_code, answer.json()["code"]) == (503, "dependency.audit")
        assert "verify_token" not in answer.text
        ballast.unlink()
        eventually(lambda: live.http.get("/health/ready").status_code == 200)
        retried = live.post(lost)
        assert retried.status_code == 200
        issued.add(retried.json()["jti"])
        assert issued <= jtis(live.settings.audit_file)


async def test_an_event_that_is_torn_by_a_full_disk_is_an_event_that_was_not_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        audit = FileAudit(disk / "audit.jsonl")
        written = 0
        with contextlib.suppress(Undecided):
            for number in range(100):
                await audit.record(decision(number, code="x" * 1000))
                written = number + 1
        assert 10 < written < 64
        assert len(events(disk / "audit.jsonl")) == written
        audit.close()
