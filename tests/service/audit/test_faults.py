"""The audit file of several workers, rotated, torn, full, gone and stopped, under a real service with load."""

import contextlib
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.io.bounds import MIN_FREE_BYTES
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.command import issuer
from tests.support.disk import small_disk
from tests.support.running import Running, listening, numbered, running, serve
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
def test_rotated_under_load_every_token_has_its_event(tmp_path: Path, provider: LocalProvider) -> None:
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


def test_sigterm_loses_no_event(tmp_path: Path, provider: LocalProvider) -> None:
    with two(tmp_path, provider) as live, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(post_all, live, [live.token() for _ in range(60)])
        eventually(lambda: len(jtis(live.settings.audit_file)) > 5)
        live.process.send_signal(signal.SIGTERM)
        issued = {answer.json()["jti"] for answer in under_way.result() if answer is not None and answer.is_success}
        assert live.process.wait(60) == 0
        assert issued
        assert issued <= jtis(live.settings.audit_file)


def test_without_its_file_a_service_gives_no_token(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as live:
        assert live.post(live.token()).status_code == 201
        audit = live.settings.audit_file

        audit.rename(audit.with_suffix(".1"))
        audit.mkdir()  # test_sink.py has all that may be in its place
        identity = live.token()
        answer = live.post(identity)
        assert (answer.status_code, answer.json()["code"]) == (503, "dependency.audit")
        assert "verify_token" not in answer.text
        eventually(lambda: live.http.get("/health/ready").json().get("code") == "dependency.audit")
        assert live.http.get("/health/live").status_code == 200
        audit.rmdir()
        eventually(lambda: live.http.get("/health/ready").status_code == 200)
        assert live.post(identity).status_code == 200, "the honest retry"
        assert [event["verdict"] for event in events(audit)] == ["repeated"], "in its own file"


def test_a_full_disk_gives_no_token_says_so_and_is_left_behind(tmp_path: Path, provider: LocalProvider) -> None:
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
