"""The history of the keys on the disk: it only grows, in one order, with any writers and after any stop of the machine."""

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats import jose
from issuer.formats.times import MAX_UNIX_S
from issuer.io import files, keyfile
from issuer.io.common_documents import FolderHome
from issuer.service.signing.bounds import MAX_SIGNED_KEYS
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.lifecycle import KeyEvent, Lives, What, archive, keys_left
from issuer.verify.trust import MAX_ARCHIVED, parse_archive
from tests.support.disk import disk_calls, fill, small_disk
from tests.support.shared import ROOT

JWK = jose.public_jwk(keyfile.generate().public_key())
KID, X = str(JWK["kid"]), str(JWK["x"])


def event(time: int, what: What = "next", why: str = "", kid: str = KID, x: str = X) -> KeyEvent:
    return KeyEvent(time, what, kid, x, "somebody", why)


def add(history: KeyHistory, *events: KeyEvent) -> Lives:
    return history.record(lambda _: events)


def lines(history: KeyHistory) -> Sequence[KeyEvent]:
    return [msgspec.json.decode(line, type=KeyEvent) for line in Path(history.place).read_bytes().splitlines()]


def refused(history: KeyHistory) -> str:
    with pytest.raises(SetupError) as error:
        history.read()
    assert error.value.code is Code.KEY_HISTORY
    return error.value.detail


def test_what_was_recorded_is_read_and_who_and_why_are_kept(tmp_path: Path) -> None:
    history = KeyHistory(FolderHome(tmp_path / "data"))
    assert history.read() == {}
    events = event(5), event(9, "active", why='a "reason"\nof two lines \u2028 and \x85 more')
    assert disk_calls(lambda: add(history, *events)) == ["folder", "file", "rename", "folder"]
    lives = history.read()
    assert (lives[KID].what, lives[KID].seen, lives[KID].active_from) == ("active", 5, 9)
    assert [one.who for one in lines(history)] == ["somebody", "somebody"]
    assert "two lines" in lines(history)[1].why
    assert stat.S_IMODE(Path(history.place).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(history.place).parent.stat().st_mode) == 0o700


def test_who_decides_knows_what_was_recorded_before_and_may_add_nothing(tmp_path: Path) -> None:
    history = KeyHistory(FolderHome(tmp_path))
    add(history, event(5))
    before = Path(history.place).read_bytes()
    with pytest.raises(KeyError):
        history.record(lambda lives: [event(9), lives["nobody"]])  # type: ignore[list-item]  # raises
    assert Path(history.place).read_bytes() == before
    assert history.record(lambda lives: [] if set(lives) == {KID} else [event(9)]) == history.read()
    assert Path(history.place).read_bytes() == before


@given(st.lists(st.integers(0, MAX_UNIX_S - 10**6), max_size=6))
def test_time_never_goes_backwards_and_no_line_changes(clock: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history, before = KeyHistory(FolderHome(Path(folder))), b""
        for now in clock:
            add(history, event(now))
            assert Path(history.place).read_bytes().startswith(before)
            before = Path(history.place).read_bytes()
        if clock:
            assert [one.time for one in lines(history)] == [max(clock[: n + 1]) for n in range(len(clock))]


def test_no_more_keys_sign_than_verifiers_read_in_an_archive(tmp_path: Path) -> None:
    assert MAX_SIGNED_KEYS == MAX_ARCHIVED
    history = KeyHistory(FolderHome(tmp_path))
    keys = [jose.public_jwk(keyfile.generate().public_key()) for _ in range(MAX_SIGNED_KEYS + 1)]
    named = [(str(key["kid"]), str(key["x"])) for key in keys]
    first, last = named[0], named[-1]
    lives = add(history, *(event(5, "active", kid=kid, x=x) for kid, x in named[:-1]), event(6, "archived", "", *first))
    assert keys_left(lives) == 0
    assert len(parse_archive(archive(lives))) == MAX_ARCHIVED
    before = Path(history.place).read_bytes()
    add(history, event(7, "next", "", *last))
    with pytest.raises(SetupError, match="Use one of these keys again") as full:
        add(history, event(8, "active", "", *last))
    assert full.value.code is Code.KEY_STEP
    lives = add(history, event(9, "next", "", *first), event(10, "active", "", *first))
    assert len(parse_archive(archive(lives))) == MAX_ARCHIVED
    assert Path(history.place).read_bytes().startswith(before)


RECORD = """
import sys
from pathlib import Path
from issuer.io.common_documents import FolderHome
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.lifecycle import KeyEvent
folder, count, kid, x, who = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
for time in range(count):
    KeyHistory(FolderHome(folder)).record(lambda lives: [KeyEvent(time, "next", kid, x, who)])
    print(time, flush=True)
"""


def recorder(folder: Path, count: int, who: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", RECORD, str(folder), str(count), KID, X, who], stdout=subprocess.PIPE, cwd=ROOT
    )


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    with recorder(tmp_path, 20, "one") as one, recorder(tmp_path, 20, "two") as two:
        one.communicate()
        two.communicate()
    assert (one.returncode, two.returncode) == (0, 0)
    found = lines(KeyHistory(FolderHome(tmp_path)))
    assert sorted(event.who for event in found) == ["one"] * 20 + ["two"] * 20
    assert [event.time for event in found] == sorted(event.time for event in found)


def test_what_was_said_to_be_recorded_outlives_the_process_that_is_killed(tmp_path: Path) -> None:
    with recorder(tmp_path, 10_000, "one") as child:
        assert child.stdout
        logged = [child.stdout.readline() for _ in range(5)]
        child.send_signal(signal.SIGKILL)
        logged += child.stdout.read().splitlines()
    history = KeyHistory(FolderHome(tmp_path))
    found = lines(history)
    assert len(logged) <= len(found) <= len(logged) + 1
    add(history, event(10**9))
    assert len(lines(history)) == len(found) + 1, "neither a lock nor half a line is left"


DAMAGED = [
    ("{", ""),
    ("", ""),
    ('{"version":1,"time":7}', "missing"),
    (f'{{"time":7,"what":"next","kid":"{KID}","x":"{X}","who":"w"}}', "version"),
    (f'{{"version":2,"time":7,"what":"next","kid":"{KID}","x":"{X}","who":"w"}}', "/version"),
    (f'{{"version":1,"time":7,"what":"sold","kid":"{KID}","x":"{X}","who":"w"}}', "/what"),
    (f'{{"version":1,"time":7,"what":"next","kid":"{KID}","x":"{X}","who":"w","more":1}}', "/more"),
    (f'{{"version":1,"time":7,"what":"next","kid":"{KID}","x":"{"A" * 43}","who":"w"}}', "/kid"),
    (f'{{"version":1,"time":7,"what":"next","kid":"{"A" * 43}","x":"{X}","who":"w"}}', "/kid is not the thumbprint"),
    (f'{{"version":1,"time":4,"what":"next","kid":"{KID}","x":"{X}","who":"w"}}', "/time is before that of the line above"),
]  # fmt: skip


def test_a_damaged_line_is_named_and_no_line_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    history = KeyHistory(FolderHome(tmp_path))
    add(history, event(5))
    path = Path(history.place)
    good = path.read_bytes()
    for line, why in DAMAGED:
        damaged = good + line.encode() + b"\n"
        path.write_bytes(damaged)
        detail = refused(history)
        assert detail.startswith(f"{path}:2: {why if why.startswith('/') else ''}"), line
        assert why in detail, line
        with pytest.raises(SetupError):
            add(history, event(9))
        assert path.read_bytes() == damaged
    path.write_bytes((good + good)[:-1])
    assert refused(history) == f"{path}:2: the line has no end"
    path.write_bytes(good)
    for bad in ({"kid": "A" * 43}, {"x": "A" * 43}, {"why": "a\x00b"}, {"why": "x" * 513}):
        with pytest.raises(SetupError):
            add(history, event(6), event(7, "next", **bad))
        assert path.read_bytes() == good
    path.write_bytes(good.replace(b"\n", b" \n"))
    assert set(history.read()) == {KID}, "white space is not damage"


def test_a_history_that_cannot_be_looked_for_is_not_an_empty_one(tmp_path: Path) -> None:
    """An issuer without a history would let any key sign at once."""
    history = KeyHistory(FolderHome(tmp_path))
    path = Path(history.place)
    path.symlink_to("/nowhere")
    assert "symbolic link" in refused(history)
    path.unlink()
    with path.open("wb") as large:
        large.truncate(10**8)
    assert "larger than" in refused(history)
    with pytest.raises(NotADirectoryError):  # an issuer without a history would let any key sign at once
        KeyHistory(FolderHome(path)).read()


def test_a_full_disk_leaves_the_old_history(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as folder:
        history = KeyHistory(FolderHome(folder))
        add(history, event(5))
        before = Path(history.place).read_bytes()
        filler = fill(folder / "filler")
        with pytest.raises(OSError, match=re.escape(str(Path(history.place)))):
            add(history, event(6))
        assert Path(history.place).read_bytes() == before
        assert not [path for path in folder.iterdir() if files.DRAFT.fullmatch(path.name)]
        filler.unlink()
        assert add(history, event(7))[KID].since == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_whom_the_folder_does(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4712)
    history = KeyHistory(FolderHome(tmp_path / "data"))
    add(history, event(5))
    for path in (Path(history.place).parent, *Path(history.place).parent.iterdir()):
        assert (path.stat().st_uid, path.stat().st_gid) == (4711, 4712), path
