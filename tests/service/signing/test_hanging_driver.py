"""A service whose key is in a token with a driver that hangs for ever: nobody waits for it, not even the end."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.service.signing.bounds import SIGNER_S
from tests.support.judging import ask, write_trust
from tests.support.no_tls import NO_TLS
from tests.support.processes import family
from tests.support.running import Running, numbered, running, write_folder
from tests.support.shared import ROOT
from tests.support.softhsm import make_token
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("softhsm2-util", "cc")]
CALLERS = 12
# What nobody waits for longer, on a machine that does other things, too.
SOON_S = 3.0
GO_ON = ("/.well-known/jwks.json", "/health/live", "/health/ready", "/.well-known/jwks-archive.json")


@dataclass
class Driver:
    """A driver whose signatures do not come back while it hangs."""

    module: Path
    switch: Path

    def hang(self) -> None:
        self.switch.touch()

    def go_on(self) -> None:
        self.switch.unlink()


def build(folder: Path, driver: Path) -> Driver:
    """Compile one around a real driver."""
    built = Driver(folder / "hanging.so", folder / "hangs")
    source = ROOT / "tests" / "support" / "hanging_driver.c"
    names = (f'-DDRIVER="{driver}"', f'-DHANGS="{built.switch}"')
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wall", "-Werror", *names, "-o", built.module, source, "-ldl"], check=True
    )
    return built


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    from tests.support.softhsm import module

    return build(tmp_path_factory.mktemp("driver"), module())


@pytest.fixture
def folder(tmp_path: Path, provider: LocalProvider, driver: Driver) -> Iterator[Path]:
    """The folder of a service whose one key is in a token behind that driver."""
    write_folder(tmp_path, provider)
    (old,) = (tmp_path / "keys" / "active").iterdir()
    old.unlink()
    path = old.with_name("token.yaml")
    path.touch(0o600)
    path.write_text(make_token(tmp_path, Ed25519PrivateKey.generate()).file(module=str(driver.module)), "utf-8")
    yield tmp_path
    driver.switch.unlink(missing_ok=True)


def timed(live: Running, identity: str, sent: Any) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    answer = httpx.post(
        f"{live.url}/tokens", json=sent, headers={"Authorization": f"Bearer {identity}"}, timeout=60, verify=NO_TLS
    )
    return answer, time.monotonic() - began


def threads(live: Running) -> int:
    return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in family(live.process.pid))


def test_a_driver_that_hangs_stops_tokens_alone_and_keeps_no_service_from_its_end(
    folder: Path, provider: LocalProvider, driver: Driver
) -> None:
    port = free_port()
    trust = str(write_trust(folder, f"http://127.0.0.1:{port}"))
    with running(folder, provider, port=port, trust=trust) as live:
        entry = live.post(live.token()).json()["entry"]
        before = threads(live)
        driver.hang()
        identities = [live.token() for _ in range(CALLERS)]
        for _ in range(3):
            with ThreadPoolExecutor(CALLERS) as callers:
                answers = callers.map(lambda number: timed(live, identities[number], numbered(number)), range(CALLERS))
                for path in GO_ON:
                    began = time.monotonic()
                    httpx.get(live.url + path, timeout=60, verify=NO_TLS)
                    assert time.monotonic() - began < SOON_S, path
            refused = [
                (answer.status_code, answer.json()["code"], seconds < SIGNER_S + SOON_S) for answer, seconds in answers
            ]
            assert set(refused) == {(503, "dependency.signer", True)}
        assert ask(live, yaml=entry).json()["reports"][0]["verdict"] == "verified"
        assert threads(live) < before + CALLERS, "however many have asked"
        assert f"no signature within {SIGNER_S} s" in live.log_text()
        assert "an earlier signature has not returned" in live.log_text()

        driver.go_on()
        eventually(lambda: timed(live, identities[0], numbered(0))[0].status_code in {200, 201})
        again = [timed(live, identities[number], numbered(number)) for number in range(CALLERS)]
        assert {answer.status_code for answer, _ in again} <= {200, 201}, "and each use is still there"

        driver.hang()
        identity = live.token()
        with ThreadPoolExecutor(1) as caller:
            asked = caller.submit(timed, live, identity, numbered(CALLERS))
            time.sleep(0.5)
            began = time.monotonic()
            live.process.send_signal(signal.SIGTERM)
            assert live.process.wait(60) == 0
            assert time.monotonic() - began < SIGNER_S + SOON_S
            assert asked.result()[0].status_code == 503, "a request in flight is finished"
