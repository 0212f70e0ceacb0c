"""Files: a bounded reader, a writer that replaces a file in one step, and a writer that never replaces one.

All checks of a file use its open descriptor, because its name may lead to another file by the next look. The few places
that open files in another way (the audit file, logs of half a gigabyte) say why.
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
# The names of drafts, which a killed writer leaves behind.
DRAFT = re.compile(r"\.[0-9a-f]{16}\.draft")

# The folders with the descriptors that a process inherited.
_GIVEN = frozenset({Path("/dev/fd"), Path("/proc/self/fd")})
_NOT_ABOUT_THE_FILE = frozenset({errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_POLL_S = 0.02

# -- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path | str, max_bytes: int, *, private: bool = False, follow: bool = True, pipe: bool = False) -> bytes:
    """Return the bytes of a plain file. It has the flags and errors of `open_plain`, and raises
    InputError(`file.too_large`) if the file has more than `max_bytes`.

    It has no buffer, which would cost more than reading a small file: `issuer verify DIR` reads a million.
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
    """Return the bytes of a file on a command line: `-` is standard input, and a shell's `<(...)` is allowed."""
    if path != STANDARD_INPUT:
        return read(path, max_bytes, pipe=True)
    if sys.stdin is None:  # the parent process closed it
        raise unreadable(path, os.strerror(errno.EBADF))
    try:
        raw = sys.stdin.buffer.read(max_bytes + 1)
    except OSError as error:
        raise unreadable(path, str(error.strerror)) from None
    return _demand_size(raw, max_bytes, path)


def _read_at_most(descriptor: int, max_bytes: int, size: int) -> bytes:
    """Read to the end, but at most one byte more than `max_bytes`. The first read asks for `size`, because a read
    allocates what it asks for. If `size` is 0 (procfs, a pipe) or wrong, reading continues."""
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
    """Open a plain file to read it in parts; `read` returns the whole file.

    `follow` allows a symbolic link as the last part of the path. `pipe` allows an inherited pipe (a shell's `<(...)`),
    and waits for its writer; a pipe among files may never have a writer. A `private` file must not be a link, must be
    closed to others, and must belong to the user or root; if root reads it, also to its folder's owner.

    Raises InputError(`file.unreadable`), also for errors in the block and for a folder, a pipe or a device, which may
    be endless. For a private file, an error of the machine (no descriptor, a failing disk) remains an OSError.
    """
    try:
        descriptor, _ = _open_plain(path, private=private, follow=follow, pipe=pipe)
        with os.fdopen(descriptor, "rb") as file:
            yield file
    except OSError as error:
        raise _located(error, path, private=private) from None


def _open_plain(path: Path | str, *, private: bool, follow: bool, pipe: bool) -> tuple[int, int]:
    """Open a file as `open_plain` does. Return its descriptor, and the size in its status."""
    inherited = pipe and Path(path).parent in _GIVEN
    descriptor = _open(path, follow=follow and not private, wait=inherited)
    try:
        status = os.fstat(descriptor)
        _demand_plain(path, status, pipe=inherited)
        if private:
            _demand_private(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def _open(path: Path | str, *, follow: bool, wait: bool) -> int:
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | (0 if follow else os.O_NOFOLLOW) | (0 if wait else os.O_NONBLOCK)
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise unreadable(path, A_LINK) from None
        raise


def _demand_plain(path: Path | str, status: os.stat_result, *, pipe: bool) -> None:
    if not (stat.S_ISREG(status.st_mode) or (pipe and stat.S_ISFIFO(status.st_mode))):
        raise unreadable(path, os.strerror(errno.EISDIR) if stat.S_ISDIR(status.st_mode) else "not a plain file")


def demand_guarded(path: Path, *, group: bool, own: bool = False) -> None:
    """Demand that only its owner, and with `group` its group, may write to a file or folder. Links are followed. With
    `own`, the owner must be this user or root; for root, who also looks at a service's files, any owner will do.

    A group with the owner's or this user's number has no other members, as in a checkout with umask 002 or on a volume
    with an fsGroup. Modes do not count on a file system that is mounted read-only: a ConfigMap has mode 0777 there.
    Raises InputError(`file.unsafe`).
    """
    try:
        status, mounted = path.stat(), os.statvfs(path)
    except OSError as error:
        raise unreadable(path, str(error.strerror)) from None
    user = os.geteuid()
    if own and status.st_uid not in {user, 0} and user:
        why = (
            f"it belongs to user {status.st_uid}, not to root or to user {user}, who runs this. If user {user} is the "
            f"service's user, run `chown -R {user} {path}` as root"
        )
        raise InputError(Code.FILE_UNSAFE, why, Place(str(path)))
    barred = 0o002 if group or status.st_gid in {status.st_uid, user} else 0o022
    if status.st_mode & barred and not mounted.f_flag & os.ST_RDONLY:
        who = "o-w" if barred == 0o002 else "go-w"
        why = f"it has mode {stat.S_IMODE(status.st_mode):04o}: others may write to it. Run `chmod {who} {path}`"
        raise InputError(Code.FILE_UNSAFE, why, Place(str(path)))


def _demand_private(path: Path | str, status: os.stat_result) -> None:
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise unreadable(path, f"it has mode {mode:04o}: others may read it. Run `chmod 600 {path}`")
    # Root gives its new files to the folder's owner: the owner can change the content anyway.
    user = os.geteuid()
    if status.st_uid not in ({user, 0} if user else {0, os.stat(Path(path).parent).st_uid}):
        raise unreadable(path, "it belongs to another user")


def _located(error: OSError, path: Path | str, *, private: bool) -> OSError | InputError:
    """Return the error with the file's place, except for a private file if the error is not about the file."""
    return error if private and error.errno in _NOT_ABOUT_THE_FILE else unreadable(path, str(error.strerror))


def unreadable(path: Path | str, why: str) -> InputError:
    """Return the error for a file that cannot be read."""
    return InputError(Code.FILE_UNREADABLE, why, Place(str(path)))


# -- writing ----------------------------------------------------------------------------------------------------------


def create(
    path: Path, raw: bytes, *, mode: int | None = 0o600, durable: bool = True, follow: bool = True, shared: bool = False
) -> None:
    """Write a new file, with the arguments of `replace`. Raises FileExistsError for an existing file or a link. After a
    failure the file does not exist; a crash may leave half of it."""
    with naming(path), _folder(path.parent, follow=follow) as folder:
        _write_new(folder, path.name, raw, mode, durable=durable, heir_of="." if shared else "")
        if durable:
            sync_folder(folder)


def replace(
    path: Path, raw: bytes, *, mode: int | None, durable: bool, follow: bool = True, shared: bool = False
) -> None:
    """Write or replace a file in one step. After any failure or crash, the old file or the new one is there, complete.

    The umask does not change `mode`. With None, the file gets the mode of the one that it replaces, or for a new file
    the mode that the umask gives. Programs of another user read a `shared` file: if root writes it, it gets the owner
    of the file that it replaces, or of its folder, as far as the system allows that. With `durable`, the file and its
    name are on the disk when this returns. The folder must exist. With `follow`, the path may lead through symbolic
    links; without it, as for another person's checkout, only through links that root made. Raises OSError with the
    path, also if there is a link or another thing that is not a plain file.
    """
    draft = f".{os.urandom(8).hex()}.draft"  # in the same folder, because a rename must stay on one file system
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
    """Replace a file, durably and in one step, with the content that the block writes. The block may also read it back.
    Links in the path are refused. If the block raises, the old file remains."""
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
    """Raise the OSError that `replace` would raise for the path. A missing folder is not an error if it can be made."""
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
    """Make a folder and its missing parents durably. Only the owner may use them, unless `mode` and the umask allow
    more. `replace` explains `follow`. A `shared` folder that root makes gets the owner of its parent."""
    with naming(path), suppress(FileNotFoundError), _folder(path, follow=follow):
        return
    make_folder(path.parent, mode=mode, follow=follow, shared=shared)
    with naming(path), _folder(path.parent, follow=follow) as folder:
        try:
            os.mkdir(path.name, mode, dir_fd=folder)
        except FileExistsError:  # another process made it, or there is a dangling link
            with _folder(path, follow=follow):
                return
        if shared:
            made = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            _give(made, folder, ".")
            os.close(made)
        sync_folder(folder)


def move(path: Path, to: Path, *, follow: bool = False) -> None:
    """Move a plain file to another folder on its file system, durably and in one step. `replace` explains `follow`.

    Raises OSError with the path: FileExistsError if `to` exists. Concurrent moves there need a lock.
    """
    with ExitStack() as opened:
        with naming(path):
            before = opened.enter_context(_folder(path.parent, follow=follow))
            if _mode_of(before, path.name) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with naming(to):
            after = opened.enter_context(_folder(to.parent, follow=follow))
            if _mode_of(after, to.name) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.replace(path.name, to.name, src_dir_fd=before, dst_dir_fd=after)
            sync_folder(after)
            sync_folder(before)


def put_folder(draft: Path, path: Path) -> None:
    """Rename a draft folder to `path`, in the same folder, durably and in one step. It may replace an empty folder.
    Raises OSError with the path if there is anything else."""
    with naming(path), _folder(path.parent, follow=True) as folder:
        os.rename(draft.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)


def sync_folder(folder: int) -> None:
    """Sync the names in an open folder, if its file system can do that."""
    descriptor = os.open(".", os.O_RDONLY, dir_fd=folder)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a network share may be unable to
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, *, shared: bool = False, wait_s: float | None = None) -> Iterator[None]:
    """Hold the lock on a file, which one process can have at a time. The system releases a dead process's lock.

    Wait for the lock, or raise BlockingIOError after `wait_s`, because a stopped process may hold it. The file is
    empty, is made if missing, and remains. `replace` explains `shared`. Raises OSError with the path, also for a link.
    """
    with naming(path), _folder(path.parent, follow=True) as folder:
        descriptor, is_new = _open_lock(folder, path.name)
        if shared and is_new:  # an existing file may be another one, which somebody linked to this name
            _give(descriptor, folder, ".")
    with _lock_of(descriptor, path, wait_s):
        yield


def _open_lock(folder: int, name: str) -> tuple[int, bool]:
    """Open a lock file, and return whether this call made it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        return os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder), True
    return os.open(name, flags | os.O_CREAT, 0o600, dir_fd=folder), False


@contextmanager
def folder_locked(path: Path, *, wait_s: float, follow: bool = False) -> Iterator[None]:
    """Hold the lock on a folder. Unlike `locked`, this leaves no lock file in another person's checkout. But whoever
    can read the folder can hold this lock. `replace` explains `follow`."""
    with naming(path), _folder(path, follow=follow) as folder:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    with _lock_of(descriptor, path, wait_s):
        yield


@contextmanager
def _lock_of(descriptor: int, path: Path, wait_s: float | None) -> Iterator[None]:
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
    """Return the mode of a plain file, or None without a file. Raises OSError for anything else."""
    try:
        status = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, A_LINK)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    return stat.S_IMODE(status.st_mode)


def _give(descriptor: int, folder: int, name: str) -> None:
    """As root, give a file the owner and group of the file `name`, or of the folder if there is no such file."""
    if os.geteuid() == 0:
        with suppress(OSError):  # root in a container may lack the right
            model = name if name == "." or _mode_of(folder, name) is not None else "."
            status = os.lstat(model, dir_fd=folder)
            os.fchown(descriptor, status.st_uid, status.st_gid)


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

# A folder on the way need not be readable.
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


@contextmanager
def _folder(path: Path, *, follow: bool) -> Iterator[int]:
    """Open a folder. All writes use its descriptor, so an attacker who replaces a folder by a link has no effect."""
    descriptor = os.open(path, _THROUGH) if follow else _open_without_links(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_without_links(path: Path) -> int:
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
    status = os.lstat(name, dir_fd=folder)
    if not stat.S_ISLNK(status.st_mode):
        return os.open(name, _THROUGH | os.O_NOFOLLOW, dir_fd=folder)
    if _is_the_system_s(status, os.stat(".", dir_fd=folder)):
        return os.open(name, _THROUGH, dir_fd=folder)
    raise OSError(errno.ELOOP, f"its folder {path} is {A_LINK}")


def _is_the_system_s(link: os.stat_result, folder: os.stat_result) -> bool:
    """Say whether only root can have made a link, as for /tmp or /home on some systems. For root this is always False,
    because root also owns the links in an archive that it unpacks."""
    return os.geteuid() != 0 == link.st_uid == folder.st_uid and not folder.st_mode & 0o022


def find(root: Path) -> Iterator[Path]:
    """Yield everything below a folder except folders, in the order of the names. Links are not followed, and any depth
    is allowed. Raises InputError for a folder that cannot be read."""
    folders = [str(root)]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            raise unreadable(folder, str(error.strerror)) from None
        yield from (Path(folder, name) for name, is_folder in names if not is_folder)
        folders += [f"{folder}/{name}" for name, is_folder in reversed(names) if is_folder]


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the requested file's name into an OSError, in place of the name of a draft."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
