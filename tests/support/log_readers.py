"""Readers of a log's public files that share no code with this issuer: Go's sumdb, and `tlog_scales` of PyPI.

Both get a folder with `checkpoint` and `tile/`, as a log serves them, and return only content that they have verified. `check_with_go` needs `@pytest.mark.needs_tool("go")`.
"""

import atexit
import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from tlog_scales.backend import LocalBackend
from tlog_scales.reader import TilesReader
from tlog_scales.signing import Vkey
from tlog_scales.tiles import leaf_hash
from tlog_scales.tlog import Checkpoint, ConsistencyProofInvalid, InclusionProofInvalid

SOURCE = Path(__file__).with_name("read_log.go")
GOCODE = Path("/usr/share/gocode")  # where Debian keeps the libraries of Go


class NotVerifiedError(Exception):
    """A reader found a fault, which the message names."""


class Seen(NamedTuple):
    """The tree of a checkpoint and some entries, all verified by a reader."""

    origin: str
    size: int
    root: bytes
    entries: dict[int, bytes]


def check_with_go(folder: Path, vkey: str, indexes: Collection[int] = (), older: Collection[bytes] = ()) -> Seen:
    """Verify the checkpoint's signature, every tile and entry of its tree, proofs of inclusion of the entries at `indexes`,
    and proofs of consistency with `older` checkpoints. Raises NotVerifiedError.

    Not for the empty tree: sumdb's root of it differs from that of RFC 6962.
    """
    asked = {"indexes": list(indexes), "older": [base64.b64encode(note).decode() for note in older]}
    done = subprocess.run(
        [go_reader(), folder, vkey], input=json.dumps(asked), capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode:
        raise NotVerifiedError(done.stderr.strip())
    seen = json.loads(done.stdout)
    entries = {int(index): base64.b64decode(entry) for index, entry in seen["entries"].items()}
    return Seen(seen["origin"], seen["size"], base64.b64decode(seen["root"]), entries)


def go_reader() -> Path:
    """Return the reader in Go, built once. It vanishes with this process."""
    return Path(_built().name) / "read_log"


@cache
def _built() -> tempfile.TemporaryDirectory[str]:
    """Build without network, against the libraries that Debian has."""
    assert (GOCODE / "src/golang.org/x/mod/sumdb").is_dir(), "apt-get install golang-golang-x-mod-dev"
    folder = tempfile.TemporaryDirectory(prefix="read-log-")
    atexit.register(folder.cleanup)
    places = {"GOPATH": str(GOCODE), "GOCACHE": f"{folder.name}/cache", "HOME": folder.name}
    env = {**os.environ, **places, "GO111MODULE": "off", "GOFLAGS": ""}
    command = ["go", "build", "-o", f"{folder.name}/read_log", str(SOURCE)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def check_with_scales(folder: Path, vkey: str, indexes: Collection[int] = (), older: Collection[bytes] = ()) -> Seen:
    """Verify the checkpoint's signature, that the tiles at its edge have its root, proofs of inclusion of the entries at
    `indexes`, and proofs of consistency with `older` checkpoints. Raises NotVerifiedError."""
    with _refusing():
        reader, key = TilesReader(LocalBackend(folder)), Vkey.from_string(vkey)
        checkpoint = _opened(reader.get_checkpoint(), key)
        assert reader.calculate_root_hash() == checkpoint.root_hash, "the tiles have another root"
        entries = {index: reader.get_entry(index) for index in indexes}
        for index, entry in entries.items():
            reader.get_inclusion_proof(index, checkpoint.size).check(leaf_hash(entry), checkpoint.root_hash)
        for note in older:
            old = _opened(Checkpoint.from_text(note.decode()), key)
            reader.get_consistency_proof(old.size, checkpoint.size).check(old.root_hash, checkpoint.root_hash)
    return Seen(checkpoint.origin, checkpoint.size, checkpoint.root_hash, entries)


def _opened(checkpoint: Checkpoint, key: Vkey) -> Checkpoint:
    assert checkpoint.origin == key.name, f"no checkpoint of {key.name}"
    checkpoint.verify(key)
    return checkpoint


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise NotVerifiedError for the many errors of the library."""
    refusals = (AssertionError, LookupError, RuntimeError, ValueError, InvalidSignature, InclusionProofInvalid)
    try:
        yield
    except (*refusals, ConsistencyProofInvalid) as error:
        raise NotVerifiedError(repr(error)) from error
