"""A service whose socket is systemd's: `systemd-socket-activate` hands it over as systemd does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.errors import SetupError
from issuer.service.process.server import handed_over
from tests.support.running import BODY, write_folder


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
