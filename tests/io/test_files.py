"""The bounded reader and the writer that replaces in one step, with all that can go wrong with files."""

from __future__ import annotations

import ast
import ctypes
import errno
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.io import files
from tests.support.disk import disk_calls
from tests.support.shared import ROOT

OLD, NEW = b"old\n", b"new and longer\n"


def refusal(path: Path, max_bytes: int = 100, **flags: bool) -> tuple[Code, str]:
    with pytest.raises(InputError) as raised:
        files.read(path, max_bytes, **flags)
    assert raised.value.place.file == str(path)
    return raised.value.code, raised.value.detail


def test_a_lock_is_held_by_one_process_at_a_time_and_by_no_dead_one(tmp_path: Path) -> None:
    lock, seen = tmp_path / ".lock", tmp_path / "seen"
    program = (
        "import sys, time, pathlib; from issuer.io import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])):\n"
        " print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        waiter = threading.Thread(target=lambda: _write_locked(lock, seen))
        waiter.start()
        waiter.join(0.3)
        assert not seen.exists(), "it waits"
        holder.kill()
    waiter.join(60)
    assert seen.read_bytes() == NEW
    assert (lock.stat().st_mode & 0o777, lock.read_bytes()) == (0o600, b"")


def _write_locked(lock: Path, path: Path) -> None:
    with files.locked(lock):
        put(path, NEW)


def test_a_lock_is_no_link_and_its_folder_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(put(tmp_path / "other"))
    for path in (tmp_path / "link", tmp_path / "none" / "lock"):
        with pytest.raises(OSError, match=re.escape(str(path))), files.locked(path):
            pass
    with pytest.raises(KeyError), files.locked(tmp_path / "lock"):
        raise KeyError
    with files.locked(tmp_path / "lock"):
        pass


def test_a_lock_is_waited_for_no_longer_than_was_said(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with files.locked(lock, wait_s=0):
        held = re.escape(str(lock))
        with pytest.raises(BlockingIOError, match=f"may be stopped.*{held}"), files.locked(lock, wait_s=0.01):
            pass
    with files.locked(lock, wait_s=0):
        pass


def test_who_has_time_gets_a_lock_when_it_is_free(tmp_path: Path) -> None:
    lock, got = tmp_path / ".lock", threading.Event()

    def wait() -> None:
        with files.locked(lock, wait_s=60):
            got.set()

    waiter = threading.Thread(target=wait)
    with files.locked(lock):
        waiter.start()
        assert not got.wait(0.1)
    waiter.join(60)
    assert got.is_set()


def test_the_folder_of_a_lock_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with files.locked(tmp_path / "link" / "lock"):
        assert (tmp_path / "data" / "lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_a_lock_that_root_shares_belongs_to_the_folder_s_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 7, 8)
    with files.locked(tmp_path / "shared", shared=True), files.locked(tmp_path / "own"):
        pass
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert owners == {"shared": (7, 8), "own": (0, 0)}


def put(path: Path, raw: bytes = OLD, mode: int = 0o600) -> Path:
    path.write_bytes(raw)
    path.chmod(mode)
    return path


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", [False, True])
def test_a_file_of_at_most_as_many_bytes_is_read_whole(tmp_path: Path, private: bool) -> None:
    for size in (0, 1, 9, 10):
        path = put(tmp_path / "file", bytes(size))
        assert files.read(path, 10, private=private) == bytes(size)
    assert refusal(put(tmp_path / "file", bytes(11)), 10) == (Code.FILE_TOO_LARGE, "larger than 10 bytes")


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    assert refusal(tmp_path / "huge", 1000)[0] is Code.FILE_TOO_LARGE


def test_a_file_that_says_that_it_is_empty_is_read_as_far_as_it_goes() -> None:
    """The kernel's files have size 0; a reader that trusted the size would get no bytes."""
    assert Path("/proc/version").stat().st_size == 0
    assert files.read(Path("/proc/version"), 4096).startswith(b"Linux")
    assert refusal(Path("/proc/version"), 5)[0] is Code.FILE_TOO_LARGE


def lay(folder: Path, kind: str) -> Path:
    path = folder / "file"
    match kind:
        case "link":
            path.symlink_to(put(folder / "other"))
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to("file")
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    ("kind", "followed", "reason"),
    [("link", "", files.A_LINK), ("dangling", "No such file or directory", files.A_LINK),
     ("loop", "Too many levels of symbolic links", files.A_LINK), ("device", "not a plain file", files.A_LINK),
     ("folder", "Is a directory", "Is a directory"), ("pipe", "not a plain file", "not a plain file"),
     ("gone", "No such file or directory", "No such file or directory")],
)  # fmt: skip
def test_what_is_not_a_plain_file_is_refused_without_waiting(
    tmp_path: Path, kind: str, followed: str, reason: str
) -> None:
    path, before = lay(tmp_path, kind), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert refusal(path, follow=False) == refusal(path, private=True) == (Code.FILE_UNREADABLE, reason)
        if followed:
            assert refusal(path) == (Code.FILE_UNREADABLE, followed)
        else:
            assert files.read(path, 100) == OLD
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_read_in_parts_may_be_a_link_and_is_no_pipe(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(put(tmp_path / "file"))
    with files.open_plain(link) as file:
        assert file.read(2) == OLD[:2]
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a plain file"), files.open_plain(pipe):
        pass


def test_a_pipe_that_the_process_was_given_is_no_file_where_none_is_asked_for() -> None:
    reading, writing = os.pipe()
    try:
        path = Path(f"/dev/fd/{reading}")
        assert refusal(path) == (Code.FILE_UNREADABLE, "not a plain file")
        with pytest.raises(InputError, match="not a plain file"), files.open_plain(path):
            pass
    finally:
        os.close(reading)
        os.close(writing)


def test_what_others_may_open_is_not_private(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666):
        path = put(tmp_path / "file", mode=mode)
        assert refusal(path, private=True)[1].startswith(f"it has mode {mode:04o}")
        assert files.read(path, 100) == OLD


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    ("mode", "owner", "group", "alone"),
    [
        (0o600, (7, 8), True, True), (0o644, (7, 8), True, True), (0o755, (7, 8), True, True),
        (0o664, (7, 7), True, True),  # umask 002: the group has no other member
        (0o664, (7, 8), True, False), (0o775, (7, 8), True, False),
        (0o646, (7, 7), False, False), (0o666, (7, 7), False, False), (0o777, (7, 7), False, False),
        (0o1777, (7, 7), False, False),  # others may add files, but may not rename existing ones
    ],
)  # fmt: skip
def test_who_else_may_write_is_told_by_the_mode(
    tmp_path: Path, folder: bool, mode: int, owner: tuple[int, int], group: bool, alone: bool
) -> None:
    path = tmp_path / "it"
    path.mkdir() if folder else path.touch()
    if os.geteuid() == 0:
        os.chown(path, *owner)
    elif path.stat().st_uid != path.stat().st_gid or owner[0] != owner[1]:
        pytest.skip("takes root to give files away")
    path.chmod(mode)
    (tmp_path / "link").symlink_to(path)
    for named in (path, tmp_path / "link"):
        for lets_group, good in ((True, group), (False, alone)):
            with nullcontext() if good else pytest.raises(InputError) as refused:
                files.demand_guarded(named, group=lets_group)
            if refused is not None:
                who = "o-w" if lets_group or owner[0] == owner[1] else "go-w"
                assert refused.value.code is Code.FILE_UNSAFE
                assert refused.value.detail.endswith(f"others may write to it. Run `chmod {who} {named}`")


def test_what_is_not_there_is_not_guarded(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        files.demand_guarded(tmp_path / "missing", group=True)
    assert refused.value.code is Code.FILE_UNREADABLE


def test_on_a_read_only_file_system_modes_say_nothing(tmp_path: Path) -> None:
    """A ConfigMap is mounted like this: mode 0777 and read-only."""
    look = f"from pathlib import Path; from issuer.io import files; files.demand_guarded(Path({str(tmp_path)!r}), group=True)"
    mount = (
        f"mount -t tmpfs -o $0,mode=0777 none {tmp_path} && exec {sys.executable} -c '{look.replace(chr(39), chr(34))}'"
    )
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("takes a mount namespace")

    def mounted(how: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "-rm", "sh", "-c", mount, how]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert mounted("ro").returncode == 0
    assert "file.unsafe" in mounted("rw").stderr


def test_only_for_a_private_file_an_error_that_is_not_about_it_stays_one(tmp_path: Path) -> None:
    """If this process has no free descriptor, that must not look like an unknown credential."""
    path, (soft, hard) = put(tmp_path / "file"), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError) as private:
            files.read(path, 100, private=True)
        plain = refusal(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert private.value.errno == errno.EMFILE
    assert plain == (Code.FILE_UNREADABLE, "Too many open files")


READ_ARGUMENT = """
import pathlib, sys
from issuer.errors import InputError
from issuer.io.files import read_argument
try:
    print(read_argument(pathlib.Path(sys.argv[1]), 10).decode())
except InputError as error:
    print(error)
"""


def argument(what: str, path: Path | str, text: str = "") -> str:
    script = what.format(read=f"{sys.executable} -c '{READ_ARGUMENT}' {path}", text=text)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() + done.stderr.strip()


def test_what_is_named_on_a_command_line_may_be_standard_input_or_a_pipe(tmp_path: Path) -> None:
    assert argument("{read}", put(tmp_path / "file", b"a file")) == "a file"
    assert argument("printf {text} | {read}", "-", "0123456789") == "0123456789"
    assert argument("{read} <(sleep 0.1; printf {text})", "", "0123456789") == "0123456789"


def test_and_is_bounded_there_too(tmp_path: Path) -> None:
    assert argument("printf {text} | {read}", "-", "0123456789x") == "-: file.too_large: larger than 10 bytes"
    os.mkfifo(tmp_path / "pipe")
    assert "not a plain file" in argument("{read}", tmp_path / "pipe"), "nobody may ever write to it"
    assert argument("{read} < /dev/zero", "-") == "-: file.too_large: larger than 10 bytes"
    assert "larger than 10 bytes" in argument("{read} <(yes)", "")
    assert argument("{read}", "/dev/zero") == "/dev/zero: file.unreadable: not a plain file"
    assert argument("{read} <&-", "-") == "-: file.unreadable: Bad file descriptor"


def test_a_standard_input_that_fails_is_an_error_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/proc/self/mem").open() as failing:  # no memory is mapped at address 0
        monkeypatch.setattr("sys.stdin", failing)
        with pytest.raises(InputError, match="Input/output error") as error:
            files.read_argument(Path("-"), 10)
    assert error.value.code == Code.FILE_UNREADABLE


def test_an_error_while_a_file_is_open_is_the_file_s(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Input/output error"), files.open_plain(put(tmp_path / "f")):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


# -- writing ----------------------------------------------------------------------------------------------------------

Write = Callable[[Path], None]
WRITERS: dict[str, Write] = {
    "replace": lambda path: files.replace(path, NEW, mode=0o600, durable=True),
    "replace in memory": lambda path: files.replace(path, NEW, mode=0o600, durable=False),
    "create": lambda path: files.create(path, NEW),
}
each_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
replacing = pytest.mark.parametrize("write", [WRITERS["replace"], WRITERS["replace in memory"]])


@each_writer
def test_a_new_file_is_whole_and_alone(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == NEW


@replacing
def test_a_file_is_replaced_and_its_old_bytes_stay_with_who_has_it_open(tmp_path: Path, write: Write) -> None:
    with put(tmp_path / "file").open("rb") as reader:
        write(tmp_path / "file")
        assert reader.read() == OLD
    assert (tmp_path / "file").read_bytes() == NEW


@pytest.mark.parametrize("bits", [0o000, 0o022, 0o077, 0o277])
def test_a_mode_is_what_it_says_whatever_the_umask(tmp_path: Path, bits: int) -> None:
    put(tmp_path / "old", mode=0o666)
    with umask(bits):
        files.create(tmp_path / "new", NEW, mode=0o640)
        files.replace(tmp_path / "old", NEW, mode=0o600, durable=False)
        files.create(tmp_path / "free", NEW, mode=None)
        files.replace(tmp_path / "freed", NEW, mode=None, durable=False)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"new": 0o640, "old": 0o600, "free": 0o666 & ~bits, "freed": 0o666 & ~bits}


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_without_a_mode_that_of_the_replaced_file_stays(tmp_path: Path, mode: int) -> None:
    files.replace(put(tmp_path / "file", mode=mode), NEW, mode=None, durable=False)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_what_is_created_is_its_owner_s_alone_unless_said_otherwise(tmp_path: Path) -> None:
    files.create(tmp_path / "own", NEW)
    files.create(tmp_path / "all", NEW, mode=0o644)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("own", "all")] == [0o600, 0o644]


def test_create_never_replaces(tmp_path: Path) -> None:
    put(tmp_path / "file")
    for name, target in (("link", "file"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(target)
    for name in ("file", "link", "dangling"):
        with pytest.raises(FileExistsError) as raised:
            files.create(tmp_path / name, NEW)
        assert raised.value.filename == str(tmp_path / name)
    assert (tmp_path / "file").read_bytes() == OLD
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_what_will_not_be_replaced_is_known_before(tmp_path: Path, kind: str) -> None:
    files.demand_replaceable(put(tmp_path / "plain"))
    files.demand_replaceable(tmp_path / "gone" / "file")
    put(tmp_path / "plain")
    with pytest.raises(NotADirectoryError) as below:
        files.demand_replaceable(tmp_path / "plain" / "new" / "file")
    assert below.value.filename == str(tmp_path / "plain" / "new" / "file")
    path = lay(tmp_path, kind)
    with pytest.raises(OSError) as raised:
        files.demand_replaceable(path)
    assert raised.value.filename == str(path)


@pytest.mark.parametrize("kind", ["link", "dangling", "loop", "device", "folder", "pipe"])
@replacing
def test_what_is_not_a_plain_file_is_not_replaced(tmp_path: Path, kind: str, write: Write) -> None:
    path = lay(tmp_path, kind)
    before = path.lstat(), sorted(tmp_path.iterdir())
    with pytest.raises(OSError) as raised:
        write(path)
    assert raised.value.filename == str(path)
    assert raised.value.strerror == (files.A_LINK if path.is_symlink() else "not a plain file")
    assert (path.lstat(), sorted(tmp_path.iterdir())) == before
    if kind == "link":
        assert (tmp_path / "other").read_bytes() == OLD


@each_writer
def test_the_folder_must_be_there(tmp_path: Path, write: Write) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write(tmp_path / "gone" / "file")
    assert raised.value.filename == str(tmp_path / "gone" / "file")


def test_a_name_may_be_as_long_as_the_file_system_has_it(tmp_path: Path) -> None:
    files.replace(tmp_path / ("x" * 255), NEW, mode=None, durable=False)
    assert (tmp_path / ("x" * 255)).read_bytes() == NEW


# In another process: as another user if we are root, with a full disk, or killed in between.
ELSEWHERE = """
import os, pathlib, resource, sys
from issuer.io import files
path, how, act = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if how == "no rights" and os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
if how == "a full disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))
if how == "a crash":
    sys.addaudithook(lambda event, args: os._exit(9) if event == "os.rename" else None)
try:
    if act == "demand":
        files.demand_replaceable(path, follow=False)
    elif act == "replace":
        files.replace(path, b"new and longer", mode=0o600, durable=True)
    elif act == "checkout":
        files.create(path, b"new and longer", follow=False)
    else:
        files.create(path, b"new and longer")
except OSError as error:
    print(type(error).__name__, error.strerror, error.filename)
"""


def elsewhere(path: Path, how: str, act: str) -> str:
    program = [sys.executable, "-c", ELSEWHERE, str(path), how, act]
    return subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60).stdout.strip()


@pytest.mark.parametrize("act", ["replace", "create"])
def test_a_full_disk_leaves_the_old_file_and_no_draft(tmp_path: Path, act: str) -> None:
    path = tmp_path / "file"
    if act == "replace":
        put(path)
    before = {name.name: name.read_bytes() for name in tmp_path.iterdir()}
    assert elsewhere(path, "a full disk", act) == f"OSError File too large {path}"
    assert {name.name: name.read_bytes() for name in tmp_path.iterdir()} == before


def test_a_crash_between_draft_and_name_leaves_the_old_file_and_a_draft_that_is_known_as_one(tmp_path: Path) -> None:
    path = put(tmp_path / "file")
    elsewhere(path, "a crash", "replace")
    assert path.read_bytes() == OLD
    (draft,) = (other for other in tmp_path.iterdir() if other != path)
    assert files.DRAFT.fullmatch(draft.name)
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    files.replace(path, NEW, mode=0o600, durable=True)
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("act", ["replace", "create"])
def test_a_folder_that_cannot_be_written_is_named_by_the_file_that_was_asked_for(tmp_path: Path, act: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    said = elsewhere(folder / "file", "no rights", act)
    assert said == f"PermissionError Permission denied {folder / 'file'}"
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_known_before_also_where_one_is_missing_in_it() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which another user cannot reach
        folder = Path(name).resolve()
        folder.chmod(0o555)
        for path in (folder / "file", folder / "new" / "newer" / "file"):
            said = elsewhere(path, "no rights", "demand")
            assert said == f"PermissionError its folder {folder} may not be written {path}"
        folder.chmod(0o777)
        assert elsewhere(folder / "new" / "file", "no rights", "demand") == ""
        folder.chmod(0o700)


def test_a_rename_that_fails_leaves_no_draft(tmp_path: Path) -> None:
    """An interrupted write also leaves no file behind."""
    program = ELSEWHERE.replace("os._exit(9)", "int('x')").replace("except OSError", "except (OSError, ValueError)")
    path = put(tmp_path / "file")
    done = subprocess.run([sys.executable, "-c", program, str(path), "a crash", "replace"], check=False, cwd=ROOT,
                          timeout=60, capture_output=True)  # fmt: skip
    assert done.returncode == 1, "and it is not kept quiet"
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"file": OLD}


# -- durability -------------------------------------------------------------------------------------------------------


def test_what_is_durable_is_synced_before_its_name_and_its_folder_after(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert disk_calls(lambda: files.replace(path, NEW, mode=None, durable=True)) == ["file", "rename", "folder"]
    assert disk_calls(lambda: files.create(tmp_path / "other", NEW)) == ["file", "folder"]


def test_what_is_not_waits_for_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert disk_calls(lambda: files.replace(path, NEW, mode=None, durable=False)) == ["rename"]
    assert disk_calls(lambda: files.create(tmp_path / "other", NEW, durable=False)) == []


def test_folders_are_made_for_their_owner_alone_and_are_durable_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    with umask(0):
        assert disk_calls(lambda: files.make_folder(folder)) == ["folder"] * 3
        assert disk_calls(lambda: files.make_folder(folder)) == []
    for made in (folder, *folder.parents[:2]):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    put(tmp_path / "file")
    with pytest.raises(OSError):
        files.make_folder(tmp_path / "file" / "below")


def test_a_file_system_that_syncs_no_folders_is_no_error(tmp_path: Path) -> None:
    opened = len(os.listdir("/proc/self/fd"))
    for path, error in ((Path("/proc"), None), (put(tmp_path / "file"), NotADirectoryError)):
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(error) if error else nullcontext():
            files.sync_folder(descriptor)
        os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == opened


# -- moving -----------------------------------------------------------------------------------------------------------


def two_folders(folder: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (folder / name).mkdir()
    return put(folder / "a" / "file"), folder / "b" / "file"


def test_a_file_is_moved_with_its_mode_and_both_folders_are_on_the_disk(tmp_path: Path) -> None:
    path, to = two_folders(tmp_path)
    path.chmod(0o640)
    assert disk_calls(lambda: files.move(path, to)) == ["rename", "folder", "empty folder"]
    assert (path.exists(), to.read_bytes(), stat.S_IMODE(to.stat().st_mode)) == (False, OLD, 0o640)


def test_nothing_is_moved_over_another_file_and_nothing_but_a_plain_file(tmp_path: Path) -> None:
    path, to = two_folders(tmp_path)
    put(to, NEW)
    with pytest.raises(FileExistsError, match=re.escape(str(to))):
        files.move(path, to)
    assert (path.read_bytes(), to.read_bytes()) == (OLD, NEW)
    to.unlink()
    to.symlink_to(path)
    with pytest.raises(OSError, match=f"symbolic link.*{re.escape(str(to))}"):
        files.move(path, to)
    (path.parent / "link").symlink_to(path)
    (path.parent / "folder").mkdir()
    for name in ("none", "link", "folder"):
        with pytest.raises(OSError, match=re.escape(str(path.parent / name))):
            files.move(path.parent / name, to.with_name("other"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files.move(path, tmp_path / "nowhere" / "file")
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("linked", ["a", "b"])
def test_no_link_on_the_way_moves_a_file_elsewhere(tmp_path: Path, linked: str) -> None:
    path, to = two_folders(tmp_path)
    (tmp_path / linked).rename(tmp_path / "elsewhere")
    (tmp_path / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        files.move(path, to)
    assert path.read_bytes() == OLD


# -- folders that are somebody else's ---------------------------------------------------------------------------------

IN_A_CHECKOUT: dict[str, Write] = {
    "replace": lambda path: files.replace(path, NEW, mode=None, durable=False, follow=False),
    "create": lambda path: files.create(path, NEW, mode=None, durable=False, follow=False),
    "make folders": lambda path: files.make_folder(path, follow=False),
    "demand": lambda path: files.demand_replaceable(path, follow=False),
}
in_a_checkout = pytest.mark.parametrize("write", IN_A_CHECKOUT.values(), ids=list(IN_A_CHECKOUT))


@in_a_checkout
@pytest.mark.parametrize("above", ["", "checkout/", "inner/../"])
@pytest.mark.parametrize("absolute", [True, False])
def test_no_folder_on_the_way_may_be_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, above: str, absolute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("outside", "checkout", "inner"):
        (tmp_path / folder).mkdir()
    link = Path(f"{above}link")
    link.symlink_to(tmp_path / "outside")
    path = (tmp_path / link if absolute else link) / "file"
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError) as refused:
        write(path)
    assert refused.value.filename == str(path)
    assert refused.value.strerror == f"its folder {path.parent} is a symbolic link: not followed"
    assert not list((tmp_path / "outside").iterdir())
    assert len(os.listdir("/proc/self/fd")) == opened


@in_a_checkout
def test_without_links_it_is_as_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    opened = len(os.listdir("/proc/self/fd"))
    for number, path in enumerate(("{}", "a/{}", "./a/b/../b/{}", f"{tmp_path}/a/b/{{}}")):
        write(Path(path.format(f"file{number}")))
    assert len(list(tmp_path.rglob("file*"))) in {0, 4}
    assert len(os.listdir("/proc/self/fd")) == opened


def test_elsewhere_a_folder_on_the_way_may_be_a_link(tmp_path: Path) -> None:
    """Operators may lay out their own folders with links."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    files.create(link / "created", NEW)
    files.replace(link / "replaced", NEW, mode=None, durable=False)
    files.make_folder(link / "a" / "b")
    files.demand_replaceable(link / "replaced")
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"created", "replaced", "a"}


@pytest.mark.parametrize(("mode", "followed"), [(0o755, True), (0o775, False), (0o777, False), (0o1777, False)])
def test_a_link_that_only_root_can_have_made_is_followed(mode: int, followed: bool) -> None:
    """If /tmp or /home are links, root made them, not a user."""
    if os.geteuid():
        pytest.skip("only root can lay such a link")
    with tempfile.TemporaryDirectory() as name:  # below folders that everybody may go through
        folder = Path(name)
        (folder / "real").mkdir()
        (folder / "real").chmod(0o777)
        (folder / "link").symlink_to("real")
        folder.chmod(mode)
        said = elsewhere(folder / "link" / "file", "no rights", "checkout")
        assert (folder / "real" / "file").exists() is followed
        assert ("is a symbolic link: not followed" in said) is not followed


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give its rights up")
def test_a_folder_on_the_way_need_not_be_readable() -> None:
    with tempfile.TemporaryDirectory() as name:  # below folders that everybody may go through
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "inner").mkdir()
        (folder / "inner").chmod(0o777)
        assert elsewhere(folder / "inner" / "file", "no rights", "checkout") == ""
        assert (folder / "inner" / "file").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    for follow in (True, False):
        with pytest.raises(NotADirectoryError):
            files.make_folder(put(tmp_path / "file"), follow=follow)


def test_root_finds_links_that_root_made_and_follows_none(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("this is not root")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert "not followed" in elsewhere(tmp_path / "link" / "file", "", "checkout")


def test_everything_below_a_folder_is_found_and_no_link_is_entered(tmp_path: Path) -> None:
    for name in ("b/x", "b/a/y", "a", "c/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "link").symlink_to(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in files.find(tmp_path)] == ["a", "b/link", "b/x", "b/a/y", "c/z"]
    with pytest.raises(InputError, match="No such file or directory"):
        list(files.find(tmp_path / "gone"))


def test_a_folder_deeper_than_a_path_is_long_is_refused(tmp_path: Path) -> None:
    name, descriptor = "d" * 250, os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    with pytest.raises(InputError, match="File name too long"):
        list(files.find(tmp_path))


# -- one home ---------------------------------------------------------------------------------------------------------

OPENING = {
    "open", "fdopen", "read_bytes", "read_text", "write_bytes", "write_text", "rename", "renames", "mkstemp", "mkdir",
    "makedirs", "mkfifo", "mknod", "touch", "truncate", "link", "symlink", "symlink_to", "hardlink_to", "copy", "copy2",
    "copyfile", "copytree", "move", "NamedTemporaryFile", "FileHandler",
}  # fmt: skip
# The modules that open files in other ways, and why.
ON_THEIR_OWN = {
    "relying/table.py": "an unnamed copy of a table while its rows are corrected",
    "io/files.py": "the home",
    "io/append_file.py": "appends, and follows a rotation",
    "service/process/new_folder.py": "makes the folder of a draft, and takes none that is there",
    "service/authn/pat_records.py": "writes a time, not bytes",
    "service/admission/script.py": "reads a file of this package",
    "service/admission/quarantine_admin.py": "reads a file of this package",
    "service/signing/active_keys.py": "reads a file of this package",
    "service/process/helper.py": "opens what has no name: memory that processes share",
    "service/metrics/state.py": "asks the kernel, in /proc",
    "service/log/sequencer/records.py": "writes half of a file in place",
    "service/log/database/sqlite.py": "makes the file of a database, whose bytes are SQLite's",
    "service/signing/keyring.py": "opens keys",
    "witness/state.py": "makes the file of a database, whose bytes are SQLite's",
    "relying/leaderboard/page.py": "reads files of this package",
    "page/site.py": "reads files of this package",
    "page/operator.py": "reads a file of this package",
    "cli/version.py": "asks importlib what pip has noted",
    "cli/demo.py": "reads the file that it has just written, and one of this package",
}
# These calls open a key, a session or a database, not a file.
OPENERS = {"opener", "token", "database"}


def opens(call: ast.Call) -> bool:
    """Say whether a call opens or renames a file. `replace` is a path's or the system's, not a text's or a Struct's."""
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id == "open"
    whose, what = ast.unparse(call.func.value), call.func.attr
    if what == "replace":
        return whose == "os" or (len(call.args) == 1 and not call.keywords)
    return what in OPENING and whose not in {"files", *OPENERS}


def calls_of(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]


def test_files_are_opened_in_one_place_and_where_it_is_said_why() -> None:
    package = ROOT / "issuer"
    found = {path for path in package.rglob("*.py") if any(map(opens, calls_of(path)))}
    assert {path.relative_to(package).as_posix() for path in found} == set(ON_THEIR_OWN)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
@pytest.mark.parametrize("replaced", [True, False])
def test_what_root_shares_belongs_to_whom_the_old_file_did_or_the_folder_does(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "file"
    os.chown(tmp_path, 7, 8)
    if replaced:
        path.write_bytes(b"old")
        path.chmod(0o600)
        os.chown(path, 9, 10)
    files.replace(path, b"new", mode=None, durable=False, shared=True)
    found = path.stat()
    assert (found.st_uid, found.st_gid) == ((9, 10) if replaced else (7, 8))
    files.replace(path, b"root's own", mode=0o600, durable=False)
    assert path.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_what_root_makes_for_others_belongs_to_the_folder_s_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 7, 8)
    opened = len(os.listdir("/proc/self/fd"))
    files.make_folder(tmp_path / "shared" / "inner", shared=True)
    assert len(os.listdir("/proc/self/fd")) == opened
    files.create(tmp_path / "shared" / "inner" / "file", b"x", shared=True)
    files.make_folder(tmp_path / "own")
    files.create(tmp_path / "own" / "file", b"x")
    files.create(tmp_path / "file", b"x")
    found = {str(path.relative_to(tmp_path)): path.stat() for path in tmp_path.rglob("*")}
    assert {name: (one.st_uid, one.st_gid) for name, one in found.items()} == {
        "shared": (7, 8), "shared/inner": (7, 8), "shared/inner/file": (7, 8), "own": (0, 0), "own/file": (0, 0),
        "file": (0, 0),
    }  # fmt: skip
    assert stat.S_IMODE(found["shared/inner"].st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone reads what is not its own")
def test_root_reads_the_private_files_of_a_folder_s_owner_and_of_nobody_else(tmp_path: Path) -> None:
    path = put(tmp_path / "file")
    os.chown(tmp_path, 7, 8)
    os.chown(path, 7, 8)
    assert files.read(path, 100, private=True) == OLD
    os.chown(path, 9, 8)
    assert refusal(path, private=True)[1] == "it belongs to another user"
    os.chown(path, 0, 0)
    assert files.read(path, 100, private=True) == OLD


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="root alone goes about as another user")
def test_a_user_reads_root_s_private_files_where_the_system_lets_it_and_nobody_else_s(tmp_path: Path) -> None:
    path, foreign = put(tmp_path / "file"), put(tmp_path / "foreign")
    os.chown(foreign, 9, 8)
    os.seteuid(65534)
    try:
        ctypes.CDLL(None).setfsuid(0)  # may open what root may: as with CAP_DAC_READ_SEARCH
        assert files.read(path, 100, private=True) == OLD
        assert refusal(foreign, private=True)[1] == "it belongs to another user"
    finally:
        os.seteuid(0)


# -- in parts -------------------------------------------------------------------------------------------------------------


def test_what_is_written_in_parts_is_there_at_the_end_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o640)
    with files.replacing(path) as file:
        file.write(b"af")
        file.seek(0)
        assert file.read() == b"af"
        file.write(b"ter")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_block_that_fails_leaves_what_was_there_and_its_error_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fail() -> None:
        with files.replacing(path) as file:
            file.write(b"after")
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError) as found:
        fail()
    assert found.value.filename is None
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"before")]
