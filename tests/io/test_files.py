"""Files: the bounded reader, the writer that replaces in one step, locks, and all faults of files."""

import ctypes
import errno
import itertools
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.io import files
from tests.support.disk import disk_calls
from tests.support.processes import in_child, take_descriptors
from tests.support.shared import ROOT
from tests.support.waiting import within

OLD, NEW = b"old\n", b"new and longer\n"


def refusal(path: Path, max_bytes: int = 100, **flags: bool) -> tuple[Code, str]:
    with pytest.raises(InputError) as raised:
        files.read(path, max_bytes, **flags)
    assert raised.value.place.file == str(path)
    return raised.value.code, raised.value.detail


def test_a_lock_on_a_file_or_folder_is_held_by_one_process_and_by_no_dead_one(tmp_path: Path) -> None:
    lock, held = tmp_path / ".lock", re.escape(str(tmp_path / ".lock"))
    program = (
        "import sys, pathlib; from issuer.io import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])):\n"
        " print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError, match=f"may be stopped.*{held}"), files.locked(lock, wait_s=0.01):
            pass
        holder.kill()
    for _ in range(2):
        with files.locked(lock, wait_s=0):
            assert (lock.stat().st_mode & 0o777, lock.read_bytes()) == (0o600, b"")
    with files.folder_locked(tmp_path, wait_s=0):
        with pytest.raises(BlockingIOError), files.folder_locked(tmp_path, wait_s=0):
            pass
        assert list(tmp_path.iterdir()) == [lock], "the lock on a folder leaves no file"
    lock_folder(tmp_path)


def test_a_lock_is_no_link_but_its_folder_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(put(tmp_path / "other"))
    for path in (tmp_path / "link", tmp_path / "none" / "lock"):
        with pytest.raises(OSError, match=re.escape(str(path))), files.locked(path):
            pass
    with pytest.raises(KeyError), files.locked(tmp_path / "lock"):
        raise KeyError
    (tmp_path / "folder").symlink_to(".")
    with files.locked(tmp_path / "folder" / "lock"):
        assert (tmp_path / "lock").exists()


def test_a_waiting_process_gets_a_lock_when_it_is_free(tmp_path: Path) -> None:
    holders: list[float | None] = []

    def wait(wait_s: float | None) -> None:
        with files.locked(tmp_path / ".lock", wait_s=wait_s):
            holders.append(wait_s)

    with ThreadPoolExecutor(2) as waiting, files.locked(tmp_path / ".lock"):
        found = [waiting.submit(wait, wait_s) for wait_s in (None, 60)]
        assert not within(0.1, lambda: any(one.done() for one in found))
        holders.append(0)
    assert [one.result() for one in found] == [None, None]
    assert (holders[0], set(holders[1:])) == (0, {None, 60})


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


def test_a_file_is_read_whole_up_to_its_bound(tmp_path: Path) -> None:
    for private, size in itertools.product((False, True), (0, 1, 9, 10)):
        path = put(tmp_path / "file", bytes(size))
        assert files.read(path, 10, private=private) == bytes(size)
    assert refusal(put(tmp_path / "file", bytes(11)), 10) == (Code.FILE_TOO_LARGE, "larger than 10 bytes")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    assert refusal(tmp_path / "huge", 1000)[0] is Code.FILE_TOO_LARGE
    # The kernel's files have size 0; a reader that trusted the size would get no bytes.
    assert Path("/proc/version").stat().st_size == 0
    assert files.read(Path("/proc/version"), 4096).startswith(b"Linux")
    assert refusal(Path("/proc/version"), 5)[0] is Code.FILE_TOO_LARGE


def place(folder: Path, kind: str) -> Path:
    """Make something in a new folder that is not a plain file."""
    folder.mkdir()
    path = folder / "file"
    if target := {"link": "other", "dangling": "nowhere", "loop": "file", "device": "/dev/zero"}.get(kind):
        path.symlink_to(target)
        put(folder / "other")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    return path


def test_a_path_that_is_not_a_plain_file_is_refused_without_waiting(tmp_path: Path) -> None:
    reasons = [
        ("link", "", files.A_LINK), ("dangling", "No such file or directory", files.A_LINK),
        ("loop", "Too many levels of symbolic links", files.A_LINK), ("device", "not a plain file", files.A_LINK),
        ("folder", "Is a directory", "Is a directory"), ("pipe", "not a plain file", "not a plain file"),
        ("gone", "No such file or directory", "No such file or directory"),
    ]  # fmt: skip
    before = len(os.listdir("/proc/self/fd"))
    for kind, followed, reason in reasons:
        path = place(tmp_path / kind, kind)
        assert refusal(path, follow=False) == refusal(path, private=True) == (Code.FILE_UNREADABLE, reason)
        if followed:
            assert refusal(path) == (Code.FILE_UNREADABLE, followed)
            with pytest.raises(InputError, match=followed), files.open_plain(path):
                pass
        else:
            assert files.read(path, 100) == OLD
            with files.open_plain(path) as file:
                assert file.read(2) == OLD[:2]
    reading, writing = os.pipe()  # inherited, but not asked for
    try:
        assert refusal(Path(f"/dev/fd/{reading}")) == (Code.FILE_UNREADABLE, "not a plain file")
        with pytest.raises(InputError, match="not a plain file"), files.open_plain(Path(f"/dev/fd/{reading}")):
            pass
    finally:
        os.close(reading)
        os.close(writing)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_others_may_open_is_not_private(tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o601):
        path = put(tmp_path / "file", mode=mode)
        assert refusal(path, private=True)[1].startswith(f"it has mode {mode:04o}")
        assert files.read(path, 100) == OLD


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_a_guarded_path_may_be_written_by_its_owner_or_its_group_alone(tmp_path: Path) -> None:
    modes = [
        (0o600, (7, 8), True, True), (0o644, (7, 8), True, True), (0o755, (7, 8), True, True),
        (0o664, (7, 7), True, True),  # umask 002: the group has no other member
        (0o664, (7, 8), True, False), (0o775, (7, 8), True, False),
        (0o646, (7, 7), False, False), (0o666, (7, 7), False, False),
        (0o1777, (7, 7), False, False),  # others may add files, but may not rename existing ones
    ]  # fmt: skip
    for number, (is_folder, (mode, owner, group, alone)) in enumerate(itertools.product((False, True), modes)):
        path = tmp_path / f"path-{number}"
        path.mkdir() if is_folder else path.touch()
        os.chown(path, *owner)
        path.chmod(mode)
        (tmp_path / f"link-{number}").symlink_to(path)
        for named in (path, tmp_path / f"link-{number}"):
            for lets_group, good in ((True, group), (False, alone)):
                with nullcontext() if good else pytest.raises(InputError) as refused:
                    files.demand_guarded(named, group=lets_group)
                if refused is not None:
                    who = "o-w" if lets_group or owner[0] == owner[1] else "go-w"
                    assert refused.value.code is Code.FILE_UNSAFE
                    assert refused.value.detail.endswith(f"others may write to it. Run `chmod {who} {named}`")
    with pytest.raises(InputError) as absent:
        files.demand_guarded(tmp_path / "missing", group=True)
    assert absent.value.code is Code.FILE_UNREADABLE


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_an_own_path_belongs_to_the_user_or_root_and_its_group_may_be_the_user_s(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o711)
    look = (
        "import os, sys\nfrom pathlib import Path\nfrom issuer.errors import InputError\nfrom issuer.io import files\n"
        "os.setgroups([]); os.setgid(7); os.setuid(7)\n"
        "for name in sys.argv[1:]:\n"
        "    try: files.demand_guarded(Path(name), group=False, own=True)\n"
        "    except InputError as error: print(error)\n"
    )
    owners = {"own": (7, 7), "root": (0, 0), "volume": (0, 7), "foreign": (8, 7), "shared": (7, 9)}
    for name, owner in owners.items():
        os.chown(put(tmp_path / name), *owner)
        (tmp_path / name).chmod(0o660)
    paths = [str(tmp_path / name) for name in owners]
    done = subprocess.run([sys.executable, "-c", look, *paths], capture_output=True, text=True, check=True, cwd=ROOT)
    foreign, shared = done.stdout.splitlines()
    assert "it belongs to user 8, not to root or to user 7" in foreign
    assert foreign.endswith(f"run `chown -R 7 {tmp_path / 'foreign'}` as root")
    assert shared.endswith(f"others may write to it. Run `chmod go-w {tmp_path / 'shared'}`")
    files.demand_guarded(tmp_path / "foreign", group=True, own=True)


def test_on_a_read_only_file_system_modes_do_not_count(tmp_path: Path) -> None:
    """A ConfigMap is mounted like this: mode 0777 and read-only."""
    look = f"from pathlib import Path; from issuer.io import files; files.demand_guarded(Path({str(tmp_path)!r}), group=True)"
    mount = (
        f"mount -t tmpfs -o $0,mode=0777 none {tmp_path} && exec {sys.executable} -c '{look.replace(chr(39), chr(34))}'"
    )
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("takes a mount namespace")
    for how, unsafe in (("ro", False), ("rw", True)):
        command = ["unshare", "-rm", "sh", "-c", mount, how]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert ("file.unsafe" in done.stderr, done.returncode != 0) == (unsafe, unsafe), done.stderr


def test_an_error_of_the_machine_stays_one_only_for_a_private_file(tmp_path: Path) -> None:
    """If this process has no free descriptor, that must not look like an unknown credential."""
    path = put(tmp_path / "file")

    def both() -> str:
        take_descriptors()
        with pytest.raises(OSError) as private:
            files.read(path, 100, private=True)
        return f"{private.value.errno} {refusal(path)}"

    assert in_child(both) == f"{errno.EMFILE} {(Code.FILE_UNREADABLE, 'Too many open files')}"


READ_ARGUMENT = """
import pathlib, sys
from issuer.errors import InputError
from issuer.io.files import read_argument
for path in sys.argv[1:]:
    try:
        print(read_argument(pathlib.Path(path), 10).decode())
    except InputError as error:
        print(error)
"""


def argument(what: str) -> list[str]:
    """Return the lines that READ_ARGUMENT prints, which is `{read}` in a script of bash."""
    script = what.format(read=f"{sys.executable} -c '{READ_ARGUMENT}'")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    return (done.stdout + done.stderr).splitlines()


def test_an_argument_may_be_standard_input_or_a_pipe_and_is_bounded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # it may never have a writer
    plain, pipe = put(tmp_path / "file", b"a file"), tmp_path / "pipe"
    whole, named, large, fifo, read = argument(
        f"printf 0123456789 | {{read}} {plain} <(printf 0123456789) <(yes) {pipe} -"
    )
    assert (whole, named, read) == ("a file", "0123456789", "0123456789")
    assert ("larger than 10 bytes" in large, "not a plain file" in fifo) == (True, True)
    assert argument("{read} - < /dev/zero") == ["-: file.too_large: larger than 10 bytes"]
    assert argument("{read} - <&-") == ["-: file.unreadable: Bad file descriptor"]


def test_a_failing_input_is_an_error_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/proc/self/mem").open() as failing:  # no memory is mapped at address 0
        monkeypatch.setattr("sys.stdin", failing)
        with pytest.raises(InputError, match="Input/output error") as error:
            files.read_argument(Path("-"), 10)
    assert error.value.code == Code.FILE_UNREADABLE
    with pytest.raises(InputError, match="Input/output error"), files.open_plain(put(tmp_path / "f")):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


# -- writing ----------------------------------------------------------------------------------------------------------

Write = Callable[[Path], None]
WRITERS: dict[str, Write] = {
    "replace": lambda path: files.replace(path, NEW, mode=0o600, durable=True),
    "replace in memory": lambda path: files.replace(path, NEW, mode=0o600, durable=False),
    "create": lambda path: files.create(path, NEW),
}
REPLACERS = [WRITERS["replace"], WRITERS["replace in memory"]]


@pytest.mark.parametrize("write", WRITERS.values(), ids=list(WRITERS))
def test_a_new_file_is_complete_and_leaves_no_draft(tmp_path: Path, write: Write) -> None:
    path = tmp_path / ("x" * 255)
    write(path)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {path.name: NEW}
    with pytest.raises(FileNotFoundError) as raised:
        write(tmp_path / "gone" / "file")
    assert raised.value.filename == str(tmp_path / "gone" / "file")
    if write in REPLACERS:
        with put(path).open("rb") as reader:
            write(path)
            assert reader.read() == OLD, "a reader that has it open keeps the old bytes"
        assert path.read_bytes() == NEW


@pytest.mark.parametrize("bits", [0o000, 0o022, 0o277])
def test_a_given_mode_is_exact_whatever_the_umask(tmp_path: Path, bits: int) -> None:
    for mode in (0o600, 0o664, 0o444):
        put(tmp_path / f"kept-{mode}", mode=mode)
    put(tmp_path / "old", mode=0o666)
    with umask(bits):
        files.create(tmp_path / "own", NEW)
        files.create(tmp_path / "new", NEW, mode=0o640)
        files.replace(tmp_path / "old", NEW, mode=0o600, durable=False)
        files.create(tmp_path / "free", NEW, mode=None)
        files.replace(tmp_path / "freed", NEW, mode=None, durable=False)
        for mode in (0o600, 0o664, 0o444):
            files.replace(tmp_path / f"kept-{mode}", NEW, mode=None, durable=False)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    kept = {f"kept-{mode}": mode for mode in (0o600, 0o664, 0o444)}
    given = {"own": 0o600, "new": 0o640, "old": 0o600}
    assert modes == {**given, **kept, "free": 0o666 & ~bits, "freed": 0o666 & ~bits}


def test_create_replaces_no_path_and_the_others_a_plain_file_as_is_known_before(tmp_path: Path) -> None:
    files.demand_replaceable(put(tmp_path / "plain"))
    files.demand_replaceable(tmp_path / "gone" / "file")
    with pytest.raises(NotADirectoryError) as below:
        files.demand_replaceable(tmp_path / "plain" / "new" / "file")
    assert below.value.filename == str(tmp_path / "plain" / "new" / "file")
    for kind in ("link", "dangling", "loop", "device", "folder", "pipe"):
        path = place(tmp_path / kind, kind)
        before = path.lstat(), sorted(path.parent.iterdir())
        for write in (*REPLACERS, files.demand_replaceable):
            with pytest.raises(OSError) as raised:
                write(path)
            assert raised.value.filename == str(path)
            assert raised.value.strerror == (files.A_LINK if path.is_symlink() else "not a plain file")
        with pytest.raises(FileExistsError, match=re.escape(str(path))):
            files.create(path, NEW)
        assert (path.lstat(), sorted(path.parent.iterdir())) == before
    with pytest.raises(FileExistsError, match=re.escape(str(tmp_path / "plain"))):
        files.create(tmp_path / "plain", NEW)
    assert (tmp_path / "link" / "other").read_bytes() == (tmp_path / "plain").read_bytes() == OLD


# In another process: as another user if we are root, with a full disk, or killed in between.
def elsewhere(path: Path, how: str, act: str) -> str:
    """Return the error of an act in another process: without rights, with a full disk, or killed at a rename."""
    return in_child(lambda: _attempt(path, how, act))


def _attempt(path: Path, how: str, act: str) -> str:
    if how == "no rights" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if how == "a full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (5, 5))
    if how in {"a crash", "an interruption"}:
        sys.addaudithook(lambda event, _: event == "os.rename" and (os._exit(9) if how == "a crash" else int("x")))
    try:
        if act == "demand":
            files.demand_replaceable(path, follow=False)
        elif act == "replace":
            files.replace(path, NEW, mode=0o600, durable=True)
        else:
            files.create(path, NEW, follow=act != "checkout")
    except (OSError, ValueError) as error:
        place = f" {error.strerror} {error.filename}" if isinstance(error, OSError) else ""
        return type(error).__name__ + place
    return ""


def test_a_full_disk_or_a_crash_leaves_the_old_file_and_at_most_a_known_draft(tmp_path: Path) -> None:
    path = put(tmp_path / "file")
    for act, written in (("replace", path), ("create", tmp_path / "new")):
        assert elsewhere(written, "a full disk", act) == f"OSError File too large {written}"
    assert elsewhere(path, "an interruption", "replace") == "ValueError"
    assert {name.name: name.read_bytes() for name in tmp_path.iterdir()} == {"file": OLD}
    elsewhere(path, "a crash", "replace")
    assert path.read_bytes() == OLD
    (draft,) = (other for other in tmp_path.iterdir() if other != path)
    assert files.DRAFT.fullmatch(draft.name)
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    files.replace(path, NEW, mode=0o600, durable=True)
    assert path.read_bytes() == NEW


def test_a_folder_that_cannot_be_written_is_an_error_with_the_file_s_path() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which another user cannot reach
        folder = Path(name).resolve()
        folder.chmod(0o555)
        for act in ("replace", "create"):
            error = elsewhere(folder / "file", "no rights", act)
            assert error == f"PermissionError Permission denied {folder / 'file'}"
        for path in (folder / "file", folder / "new" / "newer" / "file"):
            error = elsewhere(path, "no rights", "demand")
            assert error == f"PermissionError its folder {folder} may not be written {path}"
        assert not list(folder.iterdir())
        folder.chmod(0o777)
        assert elsewhere(folder / "new" / "file", "no rights", "demand") == ""
        folder.chmod(0o700)


# -- durability -------------------------------------------------------------------------------------------------------


def test_a_durable_file_is_synced_before_its_name_and_its_folder_after(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert disk_calls(lambda: files.replace(path, NEW, mode=None, durable=True)) == ["file", "rename", "folder"]
    assert disk_calls(lambda: files.create(tmp_path / "other", NEW)) == ["file", "folder"]
    assert disk_calls(lambda: files.replace(path, NEW, mode=None, durable=False)) == ["rename"]
    assert disk_calls(lambda: files.create(tmp_path / "third", NEW, durable=False)) == []
    opened = len(os.listdir("/proc/self/fd"))
    for place, error in ((Path("/proc"), None), (path, NotADirectoryError)):
        descriptor = os.open(place, os.O_RDONLY)
        with pytest.raises(error) if error else nullcontext():  # a file system may sync no folders
            files.sync_folder(descriptor)
        os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_new_folder_is_its_owner_s_alone_and_durable(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    with umask(0):
        assert disk_calls(lambda: files.make_folder(folder)) == ["folder"] * 3
        assert disk_calls(lambda: files.make_folder(folder)) == []
    for made in (folder, *folder.parents[:2]):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    for path in (put(tmp_path / "file"), tmp_path / "file" / "below"):
        for follow in (True, False):
            with pytest.raises(NotADirectoryError):
                files.make_folder(path, follow=follow)


# -- moving -----------------------------------------------------------------------------------------------------------


def test_only_a_plain_file_is_moved_with_its_mode_and_only_to_a_free_name(tmp_path: Path) -> None:
    path, to = tmp_path / "a" / "file", tmp_path / "b" / "file"
    path.parent.mkdir()
    to.parent.mkdir()
    put(path, mode=0o640)
    assert disk_calls(lambda: files.move(path, to)) == ["rename", "folder", "empty folder"]
    assert (path.exists(), to.read_bytes(), stat.S_IMODE(to.stat().st_mode)) == (False, OLD, 0o640)
    put(path)
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
    for name in ("a", "b"):
        (tmp_path / f"{name}-link").symlink_to(tmp_path / name)
    for source, target in (
        (tmp_path / "a-link" / "file", to.with_name("third")),
        (path, tmp_path / "b-link" / "other"),
    ):
        with pytest.raises(OSError, match="symbolic link"):
            files.move(source, target)
    assert path.read_bytes() == OLD


# -- folders of other people ------------------------------------------------------------------------------------------

IN_A_CHECKOUT: dict[str, Write] = {
    "replace": lambda path: files.replace(path, NEW, mode=None, durable=False, follow=False),
    "create": lambda path: files.create(path, NEW, mode=None, durable=False, follow=False),
    "make folders": lambda path: files.make_folder(path, follow=False),
    "demand": lambda path: files.demand_replaceable(path, follow=False),
    "replace in parts": lambda path: write_in_parts(path),
    "lock its folder": lambda path: lock_folder(path.parent),
}


def write_in_parts(path: Path) -> None:
    with files.replacing(path) as file:
        file.write(NEW)


def lock_folder(path: Path) -> None:
    with files.folder_locked(path, wait_s=0):
        pass


@pytest.mark.parametrize("write", IN_A_CHECKOUT.values(), ids=list(IN_A_CHECKOUT))
def test_in_a_checkout_no_folder_on_the_way_may_be_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("outside", "checkout", "inner"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "checkout" / "link").symlink_to(tmp_path / "outside")
    opened = len(os.listdir("/proc/self/fd"))
    for link in ("link", "checkout/link", "inner/../link"):
        for path in (Path(link) / "file", tmp_path / link / "file"):
            with pytest.raises(OSError) as refused:
                write(path)
            assert Path(refused.value.filename) in {path, path.parent}
            assert refused.value.strerror == f"its folder {path.parent} is a symbolic link: not followed"
    assert not list((tmp_path / "outside").iterdir())
    for number, text in enumerate(("{}", "checkout/{}", "./checkout/../inner/{}", f"{tmp_path}/inner/{{}}")):
        write(Path(text.format(f"file{number}")))
    assert len(list(tmp_path.rglob("file*"))) in {0, 4}
    assert len(os.listdir("/proc/self/fd")) == opened


def test_in_an_operator_s_folder_a_folder_on_the_way_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    files.create(link / "created", NEW)
    files.replace(link / "replaced", NEW, mode=None, durable=False)
    files.make_folder(link / "a" / "b")
    files.demand_replaceable(link / "replaced")
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"created", "replaced", "a"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make such a link")
def test_a_user_follows_a_link_only_if_root_alone_can_have_made_it() -> None:
    """If /tmp or /home are links, root made them. Root follows none; folders on the way need not be readable."""
    for mode, followed in ((0o755, True), (0o711, True), (0o775, False), (0o777, False), (0o1777, False)):
        with tempfile.TemporaryDirectory() as name:  # below folders that everybody may go through
            folder = Path(name)
            (folder / "real").mkdir()
            (folder / "real").chmod(0o777)
            (folder / "link").symlink_to("real")
            folder.chmod(mode)
            error = elsewhere(folder / "link" / "file", "no rights", "checkout")
            assert (folder / "real" / "file").exists() is followed
            assert ("is a symbolic link: not followed" in error) is not followed
            assert "not followed" in elsewhere(folder / "link" / "other", "", "checkout")
            assert elsewhere(folder / "real" / "third", "no rights", "checkout") == ""


def test_all_files_below_a_folder_are_found_and_no_link_is_entered(tmp_path: Path) -> None:
    for name in ("b/x", "b/a/y", "a", "c/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "link").symlink_to(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in files.find(tmp_path)] == ["a", "b/link", "b/x", "b/a/y", "c/z"]
    with pytest.raises(InputError, match="No such file or directory"):
        list(files.find(tmp_path / "gone"))
    name, descriptor = "d" * 250, os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    with pytest.raises(InputError, match="File name too long"):  # deeper than a path is long
        list(files.find(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_what_root_shares_gets_the_owner_of_the_old_file_or_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 7, 8)
    os.chown(put(tmp_path / "old"), 9, 10)
    opened = len(os.listdir("/proc/self/fd"))
    files.make_folder(tmp_path / "shared" / "inner", shared=True)
    files.create(tmp_path / "shared" / "inner" / "file", b"x", shared=True)
    files.make_folder(tmp_path / "own")
    for path in (tmp_path / "own" / "file", tmp_path / "created"):
        files.create(path, b"x")
    for name in ("old", "new"):
        files.replace(tmp_path / name, b"new", mode=None, durable=False, shared=True)
    files.replace(tmp_path / "root", b"new", mode=0o600, durable=False)
    os.chown(put(tmp_path / "elsewhere"), 9, 10)
    (tmp_path / "linked-lock").hardlink_to(tmp_path / "elsewhere")
    with files.locked(tmp_path / "shared-lock", shared=True), files.locked(tmp_path / "lock"):
        pass
    with files.locked(tmp_path / "linked-lock", shared=True):
        pass
    assert len(os.listdir("/proc/self/fd")) == opened
    found = {str(path.relative_to(tmp_path)): path.stat() for path in tmp_path.rglob("*")}
    assert {name: (one.st_uid, one.st_gid) for name, one in found.items()} == {
        **dict.fromkeys(("shared", "shared/inner", "shared/inner/file", "new", "shared-lock"), (7, 8)),
        **dict.fromkeys(("own", "own/file", "created", "root", "lock"), (0, 0)),
        **dict.fromkeys(("old", "elsewhere", "linked-lock"), (9, 10)),
    }  # fmt: skip
    assert stat.S_IMODE(found["shared/inner"].st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone reads what is not its own")
def test_a_private_file_is_the_user_s_root_s_or_for_root_the_folder_owner_s(tmp_path: Path) -> None:
    path, foreign = put(tmp_path / "file"), put(tmp_path / "foreign")
    os.chown(tmp_path, 7, 8)
    os.chown(foreign, 9, 8)
    for user in (7, 0):
        os.chown(path, user, 8)
        assert files.read(path, 100, private=True) == OLD
        assert refusal(foreign, private=True)[1] == "it belongs to another user"
    tmp_path.chmod(0o755)
    os.seteuid(65534)
    try:
        ctypes.CDLL(None).setfsuid(0)  # may open what root may: as with CAP_DAC_READ_SEARCH
        assert files.read(path, 100, private=True) == OLD
        assert refusal(foreign, private=True)[1] == "it belongs to another user"
    finally:
        os.seteuid(0)


# -- in parts -------------------------------------------------------------------------------------------------------------


def test_a_file_written_in_parts_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = put(tmp_path / "file", mode=0o640)

    def fail() -> None:
        with files.replacing(path) as file:
            file.write(b"after")
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError) as found:
        fail()
    assert found.value.filename is None
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", OLD)]
    with files.replacing(path) as file:
        file.write(b"af")
        file.seek(0)
        assert file.read() == b"af"
        file.write(b"ter")
        assert path.read_bytes() == OLD
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o640
    assert disk_calls(lambda: write_in_parts(path)) == ["file", "rename", "folder"]


# -- folders as a whole ---------------------------------------------------------------------------------------------------


def test_a_folder_is_put_in_place_in_one_step_and_durably(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".")
    for number, parent in enumerate((tmp_path, tmp_path / "link")):
        draft, path = parent / "draft", parent / f"folder{number}"
        draft.mkdir()
        put(draft / "file")
        assert disk_calls(lambda draft=draft, path=path: files.put_folder(draft, path)) == ["rename", "folder"]  # type: ignore[misc]
        assert ((path / "file").read_bytes(), draft.exists()) == (OLD, False)
    (tmp_path / "draft").mkdir()
    with pytest.raises(OSError, match="folder0"):
        files.put_folder(tmp_path / "draft", tmp_path / "folder0")
