"""Lookups in folders: a relying party's receipts, benchmarks' `eval.yaml`, and the proofs beside a result file."""

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

MAX_BENCHMARKS = 256  # in memory at a time
# A proof has at most 63 hashes, and a checkpoint with the cosignatures of about fifteen witnesses of any type.
MAX_SIDECAR_BYTES = 64 * 1024


class Lookup(Mapping[K, V]):
    """A mapping for lookups by key only: it lists no items, and is true even if it has none."""

    def __iter__(self) -> Iterator[K]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


class ReceiptFolder(Lookup[str, str]):
    """Receipts by token digest: `DIR/<64 hex>.jwt`, 0600. A receipt is never replaced: the oldest proves most."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            detail = f"{path} is not a folder; create it, and keep it: receipts cannot be made again"
            raise SetupError(Code.RECEIPT_FOLDER, detail)
        self._path = path

    def __getitem__(self, digest: str) -> str:
        """Return a receipt's text, which the caller parses. Raises KeyError if it is missing."""
        file = self.path_of(digest)
        if not file.exists():
            raise KeyError(digest)
        try:
            with files.open_plain(file) as opened:
                raw = opened.read(MAX_BYTES + 1)
        except InputError as error:
            raise SetupError(Code.RECEIPT_FOLDER, f"the folder of receipts: {file} {error.detail}") from None
        if not raw:  # a crash left it empty
            raise KeyError(digest)
        return raw.decode("ascii", "replace")

    def path_of(self, digest: str) -> Path:
        """Return the path for the receipt of a token."""
        return self._path / file_name(digest)

    def keep(self, digest: str, receipt: bytes) -> None:
        """Write a receipt to disk before this returns, because a receipt lost in a crash cannot be made again."""
        try:
            files.replace(self.path_of(digest), receipt, mode=0o600, durable=True)
        except OSError as error:
            detail = f"the folder of receipts: {error.filename} {error.strerror}"
            raise SetupError(Code.RECEIPT_FOLDER, detail) from None

    def drop(self, digest: str) -> None:
        """Remove the receipt of a token."""
        self.path_of(digest).unlink(missing_ok=True)


class Sidecars(Lookup[TokenLeaf, AtHand]):
    """The proofs beside one result file: `FILE.<first 16 hex of the token's digest>.tlog-proof`. The name only says
    where to look; the content decides. At most one file is opened for each token, and links are not followed. A bad
    file is not an error, because strangers can write to the repository."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        """Return the proof for a token, or the reason why it cannot be read. Raises KeyError if the file is missing."""
        path = sidecar_name(self._file, leaf.token)
        try:
            return AtHand(files.read(path, MAX_SIDECAR_BYTES, follow=False))
        except InputError as error:
            if not os.path.lexists(path):
                raise KeyError(leaf) from None
            return AtHand(fault=error.detail)


class BenchmarkFolder(Lookup[tuple[str, str], Benchmark]):
    """Benchmarks by repository and commit: `DIR/OWNER/NAME/REVISION/eval.yaml`, the layout of a snapshot download. An
    unusable file counts as missing; `faults` has the reason until `take_faults`."""

    def __init__(self, path: Path) -> None:
        self.faults: list[InputError] = []
        self._path = path
        self._cache: dict[tuple[str, str], Benchmark | None] = {}

    def __getitem__(self, key: tuple[str, str]) -> Benchmark:
        """Return a benchmark. Raises KeyError if it is missing."""
        if key not in self._cache:
            if len(self._cache) >= MAX_BENCHMARKS:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._read(*key)
        if (found := self._cache[key]) is None:
            raise KeyError(key)
        return found

    def _read(self, repo: str, revision: str) -> Benchmark | None:
        # Both parts come from a stranger's file and become a path here.
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
    """Return the faults of a folder's definitions since the last call."""
    if not isinstance(benchmarks, BenchmarkFolder):
        return []
    taken, benchmarks.faults = benchmarks.faults, []
    return taken


class OneBenchmark(Lookup[tuple[str, str], Benchmark]):
    """One `eval.yaml` that the user vouches for, for every benchmark and commit."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark

    def __getitem__(self, key: tuple[str, str]) -> Benchmark:
        """Return the benchmark for any key."""
        return self._benchmark
