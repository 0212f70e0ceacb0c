"""The audit sink: one line for each event, readable by its owner alone, or no token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.identity.provider import Provider
from issuer.service.app import tell_stale
from issuer.service.audit import FileAudit
from issuer.service.authn.keysets import Stale


def events(path: Path) -> list[Any]:
    """Read the complete lines; a blank line is left where a write failed."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


async def test_events_are_lines_of_json_in_order(tmp_path: Path) -> None:
    audit = FileAudit(tmp_path / "audit.jsonl")
    for number in range(3):
        await audit.record({"number": number, "text": 'line\nbreak "quoted" \u2028 é'})
    audit.check()
    audit.close()
    raw = (tmp_path / "audit.jsonl").read_bytes()
    assert raw.count(b"\n") == 3
    assert [json.loads(line)["number"] for line in raw.split(b"\n")[:-1]] == [0, 1, 2]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_and_its_folder_are_their_owner_s_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        FileAudit(tmp_path / "data" / "audit.jsonl").close()
    finally:
        os.umask(before)
    assert (tmp_path / "data" / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    path.chmod(mode)
    with pytest.raises(SetupError) as error:
        FileAudit(path)
    assert error.value.code is Code.SETTINGS_INVALID
    assert f"chmod 600 {path}" in error.value.detail


async def test_a_restart_appends(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(2):
        audit = FileAudit(path)
        await audit.record({"number": number})
        audit.close()
    assert path.read_bytes() == b'{"number":0}\n{"number":1}\n'


async def test_two_workers_append_to_one_file(tmp_path: Path) -> None:
    one, other = FileAudit(tmp_path / "a.jsonl"), FileAudit(tmp_path / "a.jsonl")
    for number in range(50):
        await (one if number % 2 else other).record({"number": number})
    assert [event["number"] for event in events(tmp_path / "a.jsonl")] == list(range(50))
    one.close()
    other.close()


async def test_half_a_line_of_the_process_before_does_not_swallow_the_next_event(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(mode=0o600)
    path.write_bytes(b'{"number":0}\n{"numb')
    audit = FileAudit(path)
    await audit.record({"number": 1})
    await audit.record({"number": 2})
    audit.close()
    assert path.read_bytes() == b'{"number":0}\n{"numb\n{"number":1}\n{"number":2}\n'


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError):
        FileAudit(tmp_path / "audit.jsonl")
    assert not (tmp_path / "elsewhere").exists()


def test_where_no_file_can_be_made_the_service_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(SetupError) as error:
        FileAudit(tmp_path / "data" / "audit.jsonl")
    assert error.value.code is Code.SETTINGS_INVALID
    assert str(tmp_path / "data" / "audit.jsonl") in error.value.detail


# Run as another user where we are root: root may write everywhere.
UNWRITABLE = """
import os, pathlib, sys
from issuer.errors import SetupError
from issuer.identity.provider import Provider
from issuer.service.app import tell_stale
from issuer.service.audit import FileAudit
from issuer.service.authn.keysets import Stale
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    FileAudit(pathlib.Path(sys.argv[1]))
except SetupError as error:
    print(error.detail)
"""


def run(program: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    return done.stdout


def test_where_the_folder_cannot_be_written_the_service_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    said = run(UNWRITABLE, folder / "audit.jsonl")
    assert said == f"the audit file {folder / 'audit.jsonl'} cannot be opened: Permission denied\n"


# A full disk, as the kernel tells it: writes beyond the limit are cut short, then fail. In a process of its own, for the
# limit counts for every file.
FULL = """
import asyncio, pathlib, resource, sys
from issuer.errors import Undecided
from issuer.identity.provider import Provider
from issuer.service.app import tell_stale
from issuer.service.audit import FileAudit
from issuer.service.authn.keysets import Stale

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def outcome(act):
    try:
        found = act()
        if found is not None:
            asyncio.run(found)
        return "ok"
    except Undecided as error:
        return str(error.code)

audit = FileAudit(pathlib.Path(sys.argv[1]))
record = lambda number: outcome(lambda: audit.record({"number": number}))
said = [record(0), outcome(audit.check)]
limit(20)
said += [record(1), outcome(audit.check), record(2)]  # 13 bytes are there: the second event is torn, then nothing fits
limit(resource.RLIM_INFINITY)
said += [outcome(audit.check) if sys.argv[2:] else record(3), outcome(audit.check), record(4)]
print(*said)
"""

NO = "dependency.audit"


def test_a_full_disk_gives_no_token_and_the_next_event_is_on_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert run(FULL, path).split() == ["ok", "ok", NO, NO, NO, "ok", "ok", "ok"]
    assert path.read_bytes() == b'{"number":0}\n{"numbe\n{"number":3}\n{"number":4}\n'


def test_readiness_finds_its_way_back_without_a_request(tmp_path: Path) -> None:
    """Nothing routes a request to a service that is not ready: waiting for one to succeed would be for ever."""
    path = tmp_path / "audit.jsonl"
    program = FULL.replace("sys.argv[2:]", "True")
    assert run(program, path).split() == ["ok", "ok", NO, NO, NO, "ok", "ok", "ok"]
    assert [event["number"] for event in events(path)] == [0, 4]


async def test_a_device_that_is_full_gives_no_token_and_is_not_ready() -> None:
    audit = FileAudit(Path("/dev/full"))
    audit.check()
    with pytest.raises(Undecided) as error:
        await audit.record({"number": 1})
    assert error.value.code is Code.DEPENDENCY_AUDIT
    with pytest.raises(Undecided):
        audit.check()
    audit.close()


async def test_old_keys_of_a_provider_are_an_event_before_they_serve(tmp_path: Path) -> None:
    provider = Provider("acme", "oidc", "https://id.acme.example", "a", ("ES256",), 60, 60, 1, "discovery", ())
    audit = FileAudit(tmp_path / "audit.jsonl")
    before = int(time.time())
    await tell_stale(audit, Stale(provider, 1300))
    await tell_stale(audit, Stale(provider, 5000, over=True))
    audit.close()
    begin, end = events(tmp_path / "audit.jsonl")
    assert begin["event"] == end["event"] == "provider_keys_stale"
    assert (begin["provider"], begin["issuer"]) == ("acme", "https://id.acme.example")
    assert (begin["time"] - begin["fetched_at"], "over" in begin) == (1300, False)
    assert (end["time"] - end["fetched_at"], end["over"]) == (5000, True)
    assert before <= begin["time"] <= end["time"] <= time.time()
