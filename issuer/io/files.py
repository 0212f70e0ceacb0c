"""Files: one reader that is bounded, one writer that replaces in one step, and one that never replaces.

A file is judged by the descriptor that was opened, not by its name: the two can differ by the time of a second look.
The few places that open files in another way (the audit file, logs of half a gigabyte) say why.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedRandom, BufferedReader
from pathlib import Path

from issuer.codes import Code
from issuer.errors import InputError, Place

STANDARD_INPUT = Path("-")
A_LINK = "a symbolic link: not followed"
# The drafts that a killed writer leaves behind.
DRAFT = re.compile(r"\.[0-9a-f]{16}\.draft")

# Where a process finds what it was started with.
_GIVEN = frozenset({Path("/dev/fd"), Path("/proc/self/fd")})
_NOT_ABOUT_THE_FILE = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_POLL_S = 0.02

# -- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path | str, max_bytes: int, *, private: bool = False, follow: bool = True, pipe: bool = False) -> bytes:
    """Return the bytes of a plain file, at most `max_bytes`. The flags are those of `open_plain`, as are the errors.

    Raises InputError(`file.too_large`) for a larger one, after reading one byte too many. Without `open_plain` and its
    buffer, which cost a small file more than its content does: `issuer verify DIR` reads a million of them.
    """
    try:
        descriptor, size = _open_plain(path, private=private, follow=follow, pipe=pipe)
        try:
            raw = _read_at_most(descriptor, max_bytes, size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _located(error, path, private=private) from None
    return _demand_size(raw, max_bytes, path)


def read_argument(path: Path, max_bytes: int) -> bytes:
    """Do the same for a file named on a command line: `-` is standard input, and a shell's `<(...)` is waited for."""
    if path != STANDARD_INPUT:
        return read(path, max_bytes, pipe=True)
    if sys.stdin is None:  # it was closed before this process began
        raise unreadable(path, os.strerror(errno.EBADF))
    try:
        raw = sys.stdin.buffer.read(max_bytes + 1)
    except OSError as error:
        raise unreadable(path, str(error.strerror)) from None
    return _demand_size(raw, max_bytes, path)


def _read_at_most(descriptor: int, max_bytes: int, size: int) -> bytes:
    """Read to the end, or one byte too many. `size` is what the file says it has: a read allocates what it is asked
    for. What says 0 (procfs, a pipe), or has changed since, is read on."""
    raw = os.read(descriptor, min(size, max_bytes) + 1)
    while len(raw) != size and (more := os.read(descriptor, max_bytes + 1 - len(raw))):
        raw += more
    return raw


def _demand_size(raw: bytes, max_bytes: int, path: Path | str) -> bytes:
    if len(raw) > max_bytes:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {max_bytes} bytes", Place(str(path)))
    return raw


@contextmanager
def open_plain(
    path: Path, *, private: bool = False, follow: bool = True, pipe: bool = False
) -> Iterator[BufferedReader]:
    """Open a plain file for reading it in parts; `read` returns all of it.

    Raises InputError(`file.unreadable`), also for errors within the block and for a folder, a pipe or a device, which
    may have no end. `follow` says whether the name may be a symbolic link, `pipe` whether a pipe that this process was
    given (a shell's `<(...)`) is waited for: to one that lies among files nobody may ever write. A `private` file is
    not a link, is closed to others, and belongs to the user or root, or, where root reads it, to its folder's owner;
    for such a file an error that is not about the file stays an OSError: no descriptor is free, the disk fails.
    """
    try:
        descriptor, _ = _open_plain(path, private=private, follow=follow, pipe=pipe)
        with os.fdopen(descriptor, "rb") as file:
            yield file
    except OSError as error:
        raise _located(error, path, private=private) from None


def _open_plain(path: Path | str, *, private: bool, follow: bool, pipe: bool) -> tuple[int, int]:
    """Open a file as `open_plain` says; return its descriptor, and the size that it says it has."""
    given = pipe and Path(path).parent in _GIVEN
    descriptor = _open(path, follow=follow and not private, wait=given)
    try:
        opened = os.fstat(descriptor)
        _demand_plain(path, opened, pipe=given)
        if private:
            _demand_private(path, opened)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, opened.st_size


def _open(path: Path | str, *, follow: bool, wait: bool) -> int:
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | (0 if follow else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise unreadable(path, A_LINK) from None
        raise


def _demand_plain(path: Path | str, opened: os.stat_result, *, pipe: bool) -> None:
    if not (stat.S_ISREG(opened.st_mode) or (pipe and stat.S_ISFIFO(opened.st_mode))):
        raise unreadable(path, os.strerror(errno.EISDIR) if stat.S_ISDIR(opened.st_mode) else "not a plain file")


def demand_guarded(path: Path, *, group: bool) -> None:
    """Demand that nobody but its owner, and with `group` its group, may write to a file or folder; links are followed.

    A group with the owner's own number has no other member: that of a checkout under umask 002. On a file system that
    is mounted read-only modes say nothing: a ConfigMap is mounted so, with mode 0777. Raises InputError(`file.unsafe`).
    """
    try:
        found, mounted = path.stat(), os.statvfs(path)
    except OSError as error:
        raise unreadable(path, str(error.strerror)) from None
    barred = 0o002 if group or found.st_gid == found.st_uid else 0o022
    if found.st_mode & barred and not mounted.f_flag & os.ST_RDONLY:
        who = "o-w" if barred == 0o002 else "go-w"
        why = f"it has mode {stat.S_IMODE(found.st_mode):04o}: others may write to it. Run `chmod {who} {path}`"
        raise InputError(Code.FILE_UNSAFE, why, Place(str(path)))


def _demand_private(path: Path | str, opened: os.stat_result) -> None:
    if opened.st_mode & 0o077:
        mode = stat.S_IMODE(opened.st_mode)
        raise unreadable(path, f"it has mode {mode:04o}: others may read it. Run `chmod 600 {path}`")
    if opened.st_uid not in _trusted(Path(path).parent):
        raise unreadable(path, "it belongs to another user")


def _trusted(folder: Path) -> set[int]:
    """Return whose private files are read here: the user's, root's, and by root also those of the folder's owner, to
    whom it gives what it writes there: who owns a folder chooses what is in it."""
    user = os.geteuid()
    return {user, 0} if user else {0, os.stat(folder).st_uid}


def _located(error: OSError, path: Path | str, *, private: bool) -> OSError | InputError:
    """Give an error its place, unless it is not about the file, and the file is a `private` one."""
    return error if private and error.errno in _NOT_ABOUT_THE_FILE else unreadable(path, str(error.strerror))


def unreadable(path: Path | str, why: str) -> InputError:
    """Make the error for a file that cannot be read."""
    return InputError(Code.FILE_UNREADABLE, why, Place(str(path)))


# -- writing ----------------------------------------------------------------------------------------------------------


def create(
    path: Path, raw: bytes, *, mode: int | None = 0o600, durable: bool = True, follow: bool = True, shared: bool = False
) -> None:
    """Write a new file. Never replaces one, nor follows a link: FileExistsError. Otherwise as `replace`. A failure
    leaves no file; a crash may leave half of one."""
    with naming(path), _folder(path.parent, follow=follow) as folder:
        _write_new(folder, path.name, raw, mode, durable=durable, heir_of="." if shared else "")
        if durable:
            sync_folder(folder)


def replace(
    path: Path, raw: bytes, *, mode: int | None, durable: bool, follow: bool = True, shared: bool = False
) -> None:
    """Put a file in its place in one step: after any failure or crash the old one or the new one is there, complete.

    `mode` does not depend on the umask; None is the mode of the file it replaces, or for a new one what the umask
    gives. A `shared` file, which programs of another user read, belongs to whom the file that it replaces did, or the
    folder does, where root writes it and the system lets it. With `durable` both the file and its name are on the disk
    before this returns. The folder must exist; `follow` says whether it, or one above it, may be a symbolic link.
    Without, as in a checkout, which is somebody else's, only links that root made are followed. Raises OSError with the
    path, also for a link or anything else that is not a plain file in its place.
    """
    draft = f".{os.urandom(8).hex()}.draft"  # beside it: nothing moves between file systems in one step
    with naming(path), _folder(path.parent, follow=follow) as folder:
        replaced = _mode_of(folder, path.name)
        _write_new(
            folder, draft, raw, replaced if mode is None else mode, durable=durable, heir_of=path.name if shared else ""
        )
        try:
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=folder)
            raise
        if durable:
            sync_folder(folder)


@contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """Do what `replace` does, durable, for what is written in parts: what the block writes, and may read again, is put
    in place at its end. No link on the way is followed. Where the block raises, all is as it was before."""
    draft = f".{os.urandom(8).hex()}.draft"
    with ExitStack() as opened:
        with naming(path):
            folder = opened.enter_context(_folder(path.parent, follow=False))
            mode = _mode_of(folder, path.name)
            _write_new(folder, draft, b"", mode, durable=False)
        try:
            with os.fdopen(os.open(draft, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder), "r+b") as file:
                yield file
                with naming(path):
                    file.flush()
                    os.fsync(file.fileno())
            with naming(path):
                os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=folder)
            raise
        with naming(path):
            sync_folder(folder)


def demand_replaceable(path: Path, *, follow: bool = True) -> None:
    """Raise, before any work is done for it, the OSError of `replace` for what is in a file's place, or on the way. A
    folder that is missing is none: it can be made, where the one that it is to lie in may be written."""
    with naming(path):
        _demand_writable(path.parent, path.name, follow=follow)


def _demand_writable(path: Path, name: str, *, follow: bool) -> None:
    try:
        with _folder(path, follow=follow) as folder:
            if name:
                _mode_of(folder, name)
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=True):
                raise PermissionError(errno.EACCES, f"its folder {path} may not be written")
    except FileNotFoundError:
        if path == path.parent:
            raise
        _demand_writable(path.parent, "", follow=follow)


def make_folder(path: Path, *, mode: int = 0o700, follow: bool = True, shared: bool = False) -> None:
    """Make a folder and its missing parents, durable: for their owner alone, unless `mode` allows more and the umask
    too. `follow` is that of `replace`; root's `shared` folder belongs to whom the folder does that it lies in."""
    with naming(path), suppress(FileNotFoundError), _folder(path, follow=follow):
        return
    make_folder(path.parent, mode=mode, follow=follow, shared=shared)
    with naming(path), _folder(path.parent, follow=follow) as folder:
        try:
            os.mkdir(path.name, mode, dir_fd=folder)
        except FileExistsError:  # another process was faster, or a dangling link is here
            with _folder(path, follow=follow):
                return
        if shared:
            made = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            _give(made, folder, ".")
            os.close(made)
        sync_folder(folder)


def move(path: Path, to: Path) -> None:
    """Move a plain file to another folder of its file system, durable and in one step. No link on the way is followed.

    Raises OSError with the path: FileExistsError where a file of that name is there. Who else may move files there must
    be kept away by a lock.
    """
    with ExitStack() as opened:
        with naming(path):
            before = opened.enter_context(_folder(path.parent, follow=False))
            if _mode_of(before, path.name) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with naming(to):
            after = opened.enter_context(_folder(to.parent, follow=False))
            if _mode_of(after, to.name) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.replace(path.name, to.name, src_dir_fd=before, dst_dir_fd=after)
            sync_folder(after)
            sync_folder(before)


def put_folder(draft: Path, path: Path) -> None:
    """Give a folder that was made beside it its name, durable and in one step, in the place of an empty one or of none.
    Raises OSError with the path where anything else is there."""
    with naming(path), _folder(path.parent, follow=True) as folder:
        os.rename(draft.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)


def sync_folder(folder: int) -> None:
    """Write an open folder's names to the disk, if its file system can."""
    descriptor = os.open(".", os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # from a network share that cannot
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, shared: bool = False, wait_s: float | None = None) -> Iterator[None]:
    """Hold the lock that a file stands for: one process at a time, and a dead one holds none.

    Waits for it, or raises BlockingIOError after `wait_s`: a stopped process may hold it. The file is made if it is
    missing, stays, and has no content; a `shared` one is that of `replace`. Raises OSError with the path, also for a
    symbolic link.
    """
    with naming(path), _folder(path.parent, follow=True) as folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
        if shared:
            _give(descriptor, folder, ".")
    with _held(descriptor, path, wait_s):
        yield


@contextmanager
def folder_locked(path: Path, *, wait_s: float) -> Iterator[None]:
    """Hold the lock of a folder itself, as `locked` does that of a file: in somebody's checkout nothing is left."""
    with naming(path), _folder(path, follow=False) as folder:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    with _held(descriptor, path, wait_s):
        yield


@contextmanager
def _held(descriptor: int, path: Path, wait_s: float | None) -> Iterator[None]:
    try:
        with naming(path):
            _lock(descriptor, wait_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait_s: float | None) -> None:
    if wait_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process, which may be stopped") from None
            time.sleep(_POLL_S)
        else:
            return


def _mode_of(folder: int, name: str) -> int | None:
    """Return the mode of the plain file here, None without one. Raises OSError for anything else."""
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, A_LINK)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    return stat.S_IMODE(found.st_mode)


def _give(descriptor: int, folder: int, name: str) -> None:
    """Give root's file to the owner and group of a file in the folder, or, where it is not there, of the folder."""
    if os.geteuid() == 0:
        with suppress(OSError):  # root of a container may lack the right
            heir = name if name == "." or _mode_of(folder, name) is not None else "."
            found = os.lstat(heir, dir_fd=folder)
            os.fchown(descriptor, found.st_uid, found.st_gid)


def _write_new(folder: int, name: str, raw: bytes, mode: int | None, *, durable: bool, heir_of: str = "") -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(name, flags, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if heir_of:
                _give(descriptor, folder, heir_of)
            if mode is not None:
                os.fchmod(descriptor, mode)  # the umask must not change the mode
            file.write(raw)
            file.flush()
            if durable:
                os.fsync(descriptor)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


# -- folders ----------------------------------------------------------------------------------------------------------

# To go through a folder it need not be readable.
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


@contextmanager
def _folder(path: Path, *, follow: bool) -> Iterator[int]:
    """Open a folder to write in by descriptor: whoever exchanges a folder for a link meanwhile moves nothing."""
    descriptor = os.open(path, _THROUGH) if follow else _open_without_links(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_without_links(path: Path) -> int:
    """Open a folder step by step."""
    reached = Path(path.anchor)
    descriptor = os.open(reached, _THROUGH)
    for name in path.relative_to(reached).parts:
        reached /= name
        try:
            inner = _step(descriptor, name, reached)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _step(folder: int, name: str, path: Path) -> int:
    found = os.lstat(name, dir_fd=folder)
    if not stat.S_ISLNK(found.st_mode):
        return os.open(name, _THROUGH | os.O_NOFOLLOW, dir_fd=folder)
    if _is_the_system_s(found, os.stat(".", dir_fd=folder)):
        return os.open(name, _THROUGH, dir_fd=folder)
    raise OSError(errno.ELOOP, f"its folder {path} is {A_LINK}")


def _is_the_system_s(link: os.stat_result, folder: os.stat_result) -> bool:
    """Say whether nobody but root can have made a link, as /tmp or /home are on some systems. Of links that root finds
    this is never known: what root unpacks is root's."""
    return os.geteuid() != 0 == link.st_uid == folder.st_uid and not folder.st_mode & 0o022


def find(root: Path) -> Iterator[Path]:
    """Yield everything below a folder but the folders, in the order of their names. No link is entered, however deep
    the folders are. Raises InputError for a folder that cannot be read."""
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            raise unreadable(folder, str(error.strerror)) from None
        yield from (Path(folder, name) for name, is_folder in found if not is_folder)
        waiting += [f"{folder}/{name}" for name, is_folder in reversed(found) if is_folder]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the requested file in an OSError: a draft's name means nothing to people."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
