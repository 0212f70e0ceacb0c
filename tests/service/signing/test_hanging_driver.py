"""A service whose key is in a token with a driver that hangs for ever: requests and the shutdown do not wait for it."""

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.service.signing.bounds import SIGNER_S
from tests.support.judging import ask, write_trust
from tests.support.processes import family
from tests.support.running import Running, numbered, running, write_folder
from tests.support.shared import ROOT
from tests.support.softhsm import make_token
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("softhsm2-util", "cc")]
CALLERS = 12
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


def threads(live: Running) -> int:
    return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in family(live.process.pid))


def test_a_driver_that_hangs_stops_only_tokens_and_delays_no_shutdown(
    folder: Path, provider: LocalProvider, driver: Driver
) -> None:
    port = free_port()
    trust = str(write_trust(folder, f"http://127.0.0.1:{port}"))
    with running(folder, provider, port=port, trust=trust) as live, ThreadPoolExecutor(CALLERS) as callers:
        entry = live.post(live.token()).json()["entry"]
        before = threads(live)
        driver.hang()
        identities = [live.token() for _ in range(CALLERS)]

        def codes() -> set[tuple[int, str | None]]:
            answers = callers.map(lambda number: live.post(identities[number], numbered(number)), range(CALLERS))
            return {(answer.status_code, answer.json().get("code")) for answer in answers}

        for _ in range(3):
            assert codes() == {(503, "dependency.signer")}
            for path in GO_ON:
                live.http.get(path)
        assert ask(live, yaml=entry).json()["reports"][0]["verdict"] == "verified"
        assert threads(live) < before + CALLERS, "however many have asked"
        live.until_log_says(f"no signature within {SIGNER_S} s")
        live.until_log_says("an earlier signature has not returned")
        driver.go_on()
        eventually(lambda: codes() <= {(200, None), (201, None)})
        driver.hang()
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(60) == 0
