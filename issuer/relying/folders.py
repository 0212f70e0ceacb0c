"""What lies in folders: a relying party's receipts, benchmarks' `eval.yaml`, and the proofs beside a result file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats import strict_yaml
from issuer.io import files
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.claims import REVISION, is_repo
from issuer.tlog.leaf import TokenLeaf
from issuer.verify.check_log import AtHand, sidecar_name
from issuer.verify.receipts import MAX_BYTES, file_name

K = TypeVar("K")
V = TypeVar("V")

MAX_BENCHMARKS = 256  # held in memory at a time
# Of a proof: 63 hashes, and a checkpoint with the cosignatures of some fifteen witnesses, of whatever type.
MAX_SIDECAR_BYTES = 64 * 1024


class Lookup(Mapping[K, V]):
    """A mapping that is asked by key and lists nothing. It is true, whatever it has."""

    def __iter__(self) -> Iterator[K]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


class ReceiptFolder(Lookup[str, str]):
    """Receipts by token digest: `DIR/<64 hex>.jwt`, 0600. None is ever replaced: the oldest proves most."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise SetupError(
                Code.RECEIPT_FOLDER, f"{path} is no folder; make it, and keep it: receipts cannot be remade"
            )
        self._path = path

    def __getitem__(self, digest: str) -> str:
        """Return a receipt's text, unread: the judge of it knows the form. KeyError without one."""
        file = self.path_of(digest)
        if not file.exists():
            raise KeyError(digest)
        try:
            with files.open_plain(file) as opened:
                raw = opened.read(MAX_BYTES + 1)
        except InputError as error:
            raise SetupError(Code.RECEIPT_FOLDER, f"the folder of receipts: {file} {error.detail}") from None
        if not raw:  # a crash left it empty: not a receipt
            raise KeyError(digest)
        return raw.decode("ascii", "replace")

    def path_of(self, digest: str) -> Path:
        """Return where the receipt of a token is, or would be."""
        return self._path / file_name(digest)

    def keep(self, digest: str, receipt: bytes) -> None:
        """Write a receipt, to the disk before this returns: a receipt that a crash loses cannot be made again."""
        try:
            files.replace(self.path_of(digest), receipt, mode=0o600, durable=True)
        except OSError as error:
            detail = f"the folder of receipts: {error.filename} {error.strerror}"
            raise SetupError(Code.RECEIPT_FOLDER, detail) from None

    def drop(self, digest: str) -> None:
        """Remove the receipt of a token that is not verified after all."""
        self.path_of(digest).unlink(missing_ok=True)


class Sidecars(Lookup[TokenLeaf, AtHand]):
    """The proofs beside one result file: `FILE.<first 16 hex of the token's digest>.tlog-proof`. The name is only where
    to look: what it holds is believed by its content. One at most is opened for each token of the file, no link is
    followed, and nothing that lies there is an error: it is somebody else's repository."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        """Return what lies there for a token. KeyError where nothing does."""
        path = sidecar_name(self._file, leaf.token)
        try:
            return AtHand(files.read(path, MAX_SIDECAR_BYTES, follow=False))
        except InputError as error:
            if not os.path.lexists(path):
                raise KeyError(leaf) from None
            return AtHand(fault=error.detail)


class BenchmarkFolder(Lookup[tuple[str, str], Benchmark]):
    """Benchmarks by repository and commit: `DIR/OWNER/NAME/REVISION/eval.yaml`, as a snapshot download lays them out.
    An unusable file counts as absent; `faults` keeps the reason until it is taken."""

    def __init__(self, path: Path) -> None:
        self.faults: list[InputError] = []
        self._path = path
        self._held: dict[tuple[str, str], Benchmark | None] = {}

    def __getitem__(self, key: tuple[str, str]) -> Benchmark:
        """Return a benchmark. KeyError where there is none."""
        if key not in self._held:
            if len(self._held) >= MAX_BENCHMARKS:
                self._held.pop(next(iter(self._held)))
            self._held[key] = self._read(*key)
        if (found := self._held[key]) is None:
            raise KeyError(key)
        return found

    def _read(self, repo: str, revision: str) -> Benchmark | None:
        # Both come from a file that anyone may have written, and become a path here.
        if not is_repo(repo) or not REVISION.fullmatch(revision):
            return None
        file = self._path / repo / revision / "eval.yaml"
        if not file.exists():
            return None
        try:
            return read_benchmark(files.read(file, strict_yaml.MAX_BYTES), str(file))
        except InputError as error:
            self.faults.append(error)
            return None


def take_faults(benchmarks: Mapping[tuple[str, str], Benchmark]) -> list[InputError]:
    """Return what was wrong with the files of a folder of definitions since the last call."""
    if not isinstance(benchmarks, BenchmarkFolder):
        return []
    taken, benchmarks.faults = benchmarks.faults, []
    return taken


class OneBenchmark(Lookup[tuple[str, str], Benchmark]):
    """One `eval.yaml` that the user vouches for: it serves for every benchmark and commit."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark

    def __getitem__(self, key: tuple[str, str]) -> Benchmark:
        """Return it."""
        return self._benchmark
