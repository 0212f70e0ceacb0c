"""The reproducible build of a commit: its sdist and wheel, built twice, a bill of materials, and their digests.

The files come from `git archive`, not from the working tree, so unsaved or ignored files and other modes stay out. The
wheel is built from the sdist, which proves that the sdist is complete.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from release.sbom import write_sbom

SUMS = "SHA256SUMS"


class Differs(Exception):
    """Two builds of one commit have different bytes."""


class Commit(NamedTuple):
    """A commit: its full id, and its time in Unix seconds."""

    id: str
    time: int


class Surroundings(NamedTuple):
    """The builder's umask, time zone and hash seed, which must not affect the result."""

    umask: int
    zone: str
    seed: str


SURROUNDINGS = (Surroundings(0o022, "UTC", "0"), Surroundings(0o077, "Asia/Kathmandu", "1"))


def release(root: Path, out: Path) -> list[Path]:
    """Build the current commit of a checkout into the folder `out`. Return the files, SHA256SUMS last.

    Raises Differs, or CalledProcessError if git or the build backend fails; then `out` is unchanged.
    """
    commit = commit_of(root)
    first, second = (_build(root, commit, surroundings) for surroundings in SURROUNDINGS)
    compare(first, second)
    wheel = next(name for name in first if name.endswith(".whl"))
    lock = _git(root, "show", f"{commit.id}:run.lock").decode()
    bill = write_sbom(lock, version_of(wheel), commit.id, commit.time, digest_of(first[wheel]))
    return _put(out, first | {f"eval-token-issuer-{version_of(wheel)}.cdx.json": bill})


def commit_of(root: Path) -> Commit:
    """Return the current commit of a checkout."""
    name, time = _git(root, "show", "-s", "--format=%H %ct", "HEAD").split()
    return Commit(name.decode(), int(time))


def compare(first: dict[str, bytes], second: dict[str, bytes]) -> None:
    """Raise Differs if two builds do not have the same files with the same bytes."""
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) != second.get(name):
            raise Differs(f"{name} differs between two builds of this commit, so no file was written")


def version_of(wheel: str) -> str:
    """Return the version in a wheel's name."""
    return wheel.split("-")[1]


def digest_of(raw: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(raw).hexdigest()


def _build(root: Path, commit: Commit, surroundings: Surroundings) -> dict[str, bytes]:
    """Build the sdist of a commit, and the wheel from that sdist. Return them by name."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "source"), Path(folder, "built")
        _unpack(_git(root, "-c", "tar.umask=0022", "archive", "--format=tar", commit.id), source)
        _hatchling(source, built, "sdist", commit, surroundings)
        (sdist,) = built.glob("*.tar.gz")
        _unpack(sdist.read_bytes(), source / "again")
        (again,) = (source / "again").iterdir()
        _hatchling(again, built, "wheel", commit, surroundings)
        return {path.name: path.read_bytes() for path in sorted(built.iterdir())}


def _hatchling(source: Path, built: Path, target: str, commit: Commit, surroundings: Surroundings) -> None:
    """Run the locked build backend in a folder, with these surroundings."""
    environment = {
        "PATH": os.defpath,
        "SOURCE_DATE_EPOCH": str(commit.time),  # reproducible-builds.org/specs/source-date-epoch
        "TZ": surroundings.zone,
        "PYTHONHASHSEED": surroundings.seed,
    }
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(built)]
    done = subprocess.run(
        command, cwd=source, env=environment, umask=surroundings.umask, capture_output=True, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        # Debian's Python 3.11.2 has no filters. The archive is safe: git or the build backend has just written it.
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(folder)  # noqa: S202


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, stdout=subprocess.PIPE).stdout  # noqa: S607 (the user's own git)


def _put(out: Path, files: dict[str, bytes]) -> list[Path]:
    """Write the files, and their digests for `sha256sum --check`."""
    out.mkdir(exist_ok=True)
    sums = "".join(f"{digest_of(raw)}  {name}\n" for name, raw in sorted(files.items()))
    written = [*sorted(files.items()), (SUMS, sums.encode())]
    for name, raw in written:
        (out / name).write_bytes(raw)
    return [out / name for name, _ in written]
