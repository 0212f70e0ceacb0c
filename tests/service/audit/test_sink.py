"""The audit sink: one line for each event, readable by its owner alone, or no token."""

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import structlog

from issuer.audit.chain import Chains
from issuer.audit.events import Event, Link
from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.identity.table import Provider
from issuer.service.app import tell_stale
from issuer.service.audit.bounds import SYNC_LATE_S
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.keysets import Stale
from tests.support.decisions import decision
from tests.support.disk import disk_calls
from tests.support.shared import ROOT


def events(path: Path) -> list[Any]:
    """Read the complete lines; a blank line is left where a write failed."""
    found = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def names(path: Path) -> list[str | None]:
    """Return the request id of each event, None where it has none."""
    return [event.get("request_id") for event in events(path)]


async def test_events_are_lines_of_json_in_order(tmp_path: Path) -> None:
    audit = FileAudit(tmp_path / "audit.jsonl")
    for number in range(3):
        await audit.record(decision(number, code='line\nbreak "quoted" \u2028 é'))
    audit.check()
    audit.close()
    raw = (tmp_path / "audit.jsonl").read_bytes()
    assert raw.count(b"\n") == 3
    assert [json.loads(line)["request_id"] for line in raw.split(b"\n")[:-1]] == ["0", "1", "2"]


def test_the_file_and_its_folder_are_their_owner_s_alone(tmp_path: Path) -> None:
    for umask in (0o000, 0o022, 0o077):
        path = tmp_path / str(umask) / "audit.jsonl"
        before = os.umask(umask)
        try:
            FileAudit(path).close()
        finally:
            os.umask(before)
        assert [each.stat().st_mode & 0o777 for each in (path, path.parent)] == [0o600, 0o700]


def test_a_file_that_others_may_touch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    for mode in (0o640, 0o604, 0o644, 0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(SetupError) as error:
            FileAudit(path)
        assert error.value.code is Code.SETTINGS_INVALID
        assert f"chmod 600 {path}" in error.value.detail


async def test_a_line_without_its_end_is_no_event_and_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    """If only its end is missing, its writer had an error, and writes another event in its place."""
    path = tmp_path / "audit.jsonl"
    path.touch(mode=0o600)
    for left, known in ((b'{"event":"decision"}\n{"event":"deci', [None]), (b'{"event":"decision"}', [])):
        path.write_bytes(left)
        audit = FileAudit(path)
        await audit.record(decision(1))
        await audit.record(decision(2))
        audit.close()
        assert names(path) == [*known, "1", "2"]


def test_where_no_file_can_be_made_the_service_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "data" / "audit.jsonl", tmp_path / "link.jsonl"):
        with pytest.raises(SetupError) as error:
            FileAudit(path)
        assert error.value.code is Code.SETTINGS_INVALID
        assert str(path) in error.value.detail
    assert not (tmp_path / "elsewhere").exists(), "no link is followed"


# A full disk, as the kernel tells it: writes beyond the limit are cut short, then fail. In a separate process, for the
# limit counts for every file.
FULL = """
import asyncio, pathlib, resource, sys
from issuer.errors import Undecided
from issuer.service.audit.sink import FileAudit
from issuer.service.settings.log_stream import configure_logging
from tests.support.decisions import decision

configure_logging()

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

for first in ("record", "check"):
    path = pathlib.Path(sys.argv[1]) / first
    audit = FileAudit(path)
    record = lambda number: outcome(lambda: audit.record(decision(number)))
    said = [record(0), outcome(audit.check)]
    limit(path.stat().st_size + 7)
    said += [record(1), outcome(audit.check), record(2)]  # the second event is torn, then nothing fits
    limit(resource.RLIM_INFINITY)
    print(*said, record(3) if first == "record" else outcome(audit.check), outcome(audit.check), record(4))
"""


def test_a_full_disk_gives_no_token_and_the_next_event_is_on_its_own_line(tmp_path: Path) -> None:
    """Readiness comes back without an event: no request reaches a service that is not ready."""
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True, cwd=ROOT)
    no = "dependency.audit"
    assert [line.split() for line in done.stdout.splitlines()] == [["ok", "ok", no, no, no, "ok", "ok", "ok"]] * 2
    assert (names(tmp_path / "record"), names(tmp_path / "check")) == (["0", "3", "4"], ["0", "4"])
    torn = (tmp_path / "record").read_bytes().splitlines()[1]
    assert torn == b'{"event~', "half a line, which can never be read"


async def test_old_keys_of_a_provider_are_an_event_before_they_serve(tmp_path: Path) -> None:
    provider = Provider("acme", "oidc", "https://id.acme.example", "a", ("ES256",), 60, 60, 1, "discovery", ())
    audit = FileAudit(tmp_path / "audit.jsonl")
    await tell_stale(audit, Stale(provider, 1300))
    await tell_stale(audit, Stale(provider, 5000, over=True))
    audit.close()
    begin, end = events(tmp_path / "audit.jsonl")
    assert begin["event"] == end["event"] == "provider_keys_stale"
    assert (begin["provider"], begin["issuer"]) == ("acme", "https://id.acme.example")
    assert (begin["time"] - begin["fetched_at"], "over" in begin) == (1300, False)
    assert (end["time"] - end["fetched_at"], end["over"]) == (5000, True)


# -- the chain ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_event_has_a_place_in_the_chain() -> None:
    assert all(issubclass(kind, Link) for kind in get_args(Event))


async def test_each_line_of_two_workers_names_the_one_before_also_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    heads: dict[str, tuple[int, str]] = {}
    one, other = FileAudit(path), FileAudit(path)
    for number in range(12):
        if number == 5:
            path.rename(tmp_path / "audit.1")
        await (other if number % 3 else one).record(decision(number))
    lines = [line for name in ("audit.1", "audit.jsonl") for line in (tmp_path / name).read_bytes().splitlines()]
    for line in lines:
        event = json.loads(line)
        before = heads.get(event["worker"], (0, "0" * 64))
        assert (event["seq"] - 1, event["prev"]) == before
        heads[event["worker"]] = event["seq"], hashlib.sha256(line).hexdigest()
    assert {one.worker: 4, other.worker: 8} == {worker: seq for worker, (seq, _) in heads.items()}
    assert one.worker != other.worker
    one.close()
    other.close()
    restarted = FileAudit(path)
    await restarted.record(decision(12))
    restarted.close()
    assert names(tmp_path / "audit.1") + names(path) == [str(number) for number in range(13)]


async def test_a_torn_line_is_in_no_chain(tmp_path: Path) -> None:
    """Whether it is our own or another worker's, and even where ours had to be written twice."""
    for number, torn in enumerate((b'{"event":"decis', b"{}")):
        path = tmp_path / str(number) / "audit.jsonl"
        audit = FileAudit(path)
        for at in range(4):
            await audit.record(decision(at))
            with path.open("ab") as file:
                file.write(torn)
        audit.close()
        chains = Chains({})
        found = [finding for line in path.read_bytes().split(b"\n") for finding in chains.read(line)]
        assert {finding.kind for finding in found} <= {"torn", "unlinked"}
        assert [finding.kind for finding in found[:-1]] == ["torn"] * (len(found) - 1)
        assert chains.chains[audit.worker].seq == 4


async def test_the_head_of_the_chain_is_told_by_the_minute_and_at_the_end(tmp_path: Path) -> None:
    now_us = 0
    audit = FileAudit(tmp_path / "audit.jsonl", now_us=lambda: now_us)
    with structlog.testing.capture_logs() as logged:
        for number in range(4):
            await audit.record(decision(number))
            now_us += 31_000_000
            await audit.turn()
        now_us += 60_000_000
        await audit.turn()
        await audit.record(decision(4))
        audit.close()
    line = (tmp_path / "audit.jsonl").read_bytes().splitlines()[-1]
    assert [entry["seq"] for entry in logged if entry["event"] == "audit head"] == [2, 4, 5]
    assert logged[-1]["head"] == hashlib.sha256(line).hexdigest()
    assert logged[-1]["worker"] == audit.worker


def make_stale(audit: FileAudit) -> None:
    """Replace the open descriptor: every write to the new one fails."""
    useless = os.open("/", os.O_PATH)
    os.dup2(useless, audit._file._descriptor)
    os.close(useless)


# -- on the disk ----------------------------------------------------------------------------------------------------------


def test_what_was_written_is_synced_at_the_next_turn_and_at_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def write_and_rotate() -> None:
        audit = FileAudit(path)
        await audit.record(decision(1))
        await audit.turn()
        await audit.turn()  # no new event, so no sync
        await audit.record(decision(2))
        path.rename(tmp_path / "audit.1")
        await audit.record(decision(3))
        await audit.turn()
        audit.close()

    calls = disk_calls(lambda: asyncio.run(write_and_rotate()))
    assert calls == ["file", "folder", "rename", "file", "file", "folder", "file"], "a folder where a name is new"


async def test_without_a_sync_that_ends_there_is_no_token_until_there_is_one_again(tmp_path: Path) -> None:
    audit = FileAudit(tmp_path / "audit.jsonl")
    await audit.record(decision(1))
    make_stale(audit)
    await audit.turn()
    for _ in range(2):
        with pytest.raises(Undecided):
            await audit.record(decision(2))
        with pytest.raises(Undecided):
            audit.check()
    await audit.turn()
    audit.check()
    await audit.record(decision(3))
    assert names(tmp_path / "audit.jsonl") == ["1", "3"]
    audit._sync_began = time.monotonic() - SYNC_LATE_S - 0.1
    with pytest.raises(Undecided):
        await audit.record(decision(4))
    audit._sync_began = time.monotonic()
    await audit.record(decision(5))
    audit.close()


# -- every state of the disk ----------------------------------------------------------------------------------------------


def readable_by_others(file: Path) -> None:
    file.touch()
    file.chmod(0o644)


# Something else in place of the folder or of the file: how it comes, and how it goes.
OF_FOLDER: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "nothing": (lambda _: None, lambda _: None),
    "a file": (lambda data: data.write_text("no folder"), Path.unlink),
    "a loop": (lambda data: data.symlink_to(data), Path.unlink),
}
OF_FILE: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "a folder": (Path.mkdir, Path.rmdir),
    "a link": (lambda file: file.symlink_to(file.with_name("elsewhere")), Path.unlink),
    "a file that others may read": (readable_by_others, Path.unlink),
}


async def test_whatever_becomes_of_the_folder_nobody_decides_until_it_is_back(tmp_path: Path) -> None:
    for name, (replace, take_away) in (OF_FOLDER | OF_FILE).items():
        data = tmp_path / name / "data"
        audit = FileAudit(data / "audit.jsonl")
        await audit.record(decision(1))
        place = data if name in OF_FOLDER else data / "audit.jsonl"
        aside = place.rename(place.with_name("aside"))
        replace(place)
        for _ in range(3):
            with pytest.raises(Undecided) as error:
                await audit.record(decision(2))
            assert error.value.code is Code.DEPENDENCY_AUDIT
            with pytest.raises(Undecided):
                audit.check()
            await audit.turn()
        take_away(place)
        if name in OF_FOLDER:
            aside.rename(data)
        await audit.turn()
        audit.check()
        await audit.record(decision(3))
        await audit.turn()
        audit.close()
        files = [file for file in (data / "aside", data / "audit.jsonl") if file.exists()]
        chains = Chains({})
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        assert [finding for line in lines for finding in chains.read(line)] == [], name
        assert chains.chains[audit.worker].seq == 2
        assert not (data / "elsewhere").exists(), "no link is followed"


async def test_a_descriptor_that_went_stale_is_an_error_of_the_audit_and_no_other(tmp_path: Path) -> None:
    """As on a network share whose server forgot it: every call on it fails."""
    for then in ("record", "check", "close"):
        audit = FileAudit(tmp_path / then)
        await audit.record(decision(1))
        make_stale(audit)
        if then != "close":
            with pytest.raises(Undecided) as error:
                await audit.record(decision(2))
            assert error.value.code is Code.DEPENDENCY_AUDIT
            if then == "check":
                audit.check()
            await audit.record(decision(3))
            assert names(tmp_path / then) == ["1", "3"]
        audit.close()
