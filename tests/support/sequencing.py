"""A log with everything that belongs to it: database, key, records; and leaves to append."""

import asyncio
import hashlib
import os
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from msgspec.structs import replace

from issuer.io import keyfile
from issuer.service.log.database.store import LogStore, Reader, StoredLeaf
from issuer.service.log.sequencer.records import FileRecord, HeadRecord, Records, Seal
from issuer.service.log.sequencer.sequencer import Placed, Sequencer, entry_of
from issuer.service.log.sequencer.server import serve
from issuer.service.log.sequencer.setup import LogSettings, init
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, TokenLeaf
from issuer.tlog.note import NoteSigner, parse_note, verify_note
from tests.support.log_store import ORIGIN, Place, created
from tests.support.received import proved

KID = "A" * 42 + "E"
IAT = 1_792_000_000
POLICY = f"sha256:{hashlib.sha256(b'policy').hexdigest()}"


def token_leaf(number: int, iat: int = IAT) -> bytes:
    digest = hashlib.sha256(b"%d" % number).digest()
    return TokenLeaf("https://issuer.example", "inspect-ai", KID, iat, iat + 3600, POLICY, digest).to_bytes()


def key_leaf(since: int) -> bytes:
    """Make the leaf of a key that is active since then."""
    return KeyLeaf("https://issuer.example", KID, KID, "active", since).to_bytes()


def policy_leaf() -> bytes:
    """Make the leaf of the policy of those tokens."""
    return PolicyLeaf("https://issuer.example", "inspect-ai", POLICY).to_bytes()


def tokens(*numbers: int) -> list[StoredLeaf]:
    return [entry_of(token_leaf(number)) for number in numbers]


def new_log(folder: Path, origin: str = ORIGIN, **changes: str) -> LogSettings:
    """Begin a log in a folder, in a SQLite file, and return its settings."""
    key_file = folder / "keys" / "log" / "log.pem"
    key_file.parent.mkdir(parents=True, mode=0o700)
    keyfile.write(key_file, keyfile.generate())
    plain = LogSettings(
        origin=origin,
        database=str(folder / "data" / "log" / "log.sqlite"),
        key_file=str(key_file),
        records=str(folder / "records"),
        keys=str(folder / "keys"),
        data=str(folder / "data"),
    )
    settings = replace(plain, **changes)
    init(settings)
    return settings


@asynccontextmanager
async def served_here(settings: LogSettings) -> AsyncIterator[Path]:
    """Write a log as the sequencer process does, in this event loop: to start a process takes longer than most tests of
    what a log says. Yields the socket."""
    (end, held), (heard, beats), listening = os.pipe(), os.pipe(), asyncio.Event()
    umask = os.umask(0o077)  # which it sets for its process
    with tempfile.TemporaryDirectory() as folder:
        life = asyncio.create_task(serve(settings, Path(folder, "s"), end, beats, listening.set))
        try:
            await listening.wait()
            yield Path(folder, "s")
        finally:
            os.close(held)
            await life
            os.umask(umask)
            for descriptor in (end, beats, heard):
                os.close(descriptor)


def listener_of(path: Path) -> int:
    """Return the process that listens on a socket (unix(7), SO_PEERCRED)."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Log:
    """One log. `open` makes a sequencer on it, started; any number of them may be made."""

    def __init__(self, place: Place, folder: Path, signer: NoteSigner | None = None) -> None:
        self.place = place
        self.folder = folder / "records"
        self.folder.mkdir(mode=0o700, parents=True)
        self.signer = signer or NoteSigner(ORIGIN, keyfile.generate())
        self.seal = Seal(self.signer)
        self.store = created(place.connect())
        self.store.database.close()

    @property
    def file_record(self) -> FileRecord:
        return FileRecord(self.folder, ORIGIN)

    @contextmanager
    def open(self, *more: HeadRecord, start: bool = True, database: LogStore | None = None) -> Iterator[Sequencer]:
        """Run a sequencer on this log, with the record in a file and others."""
        store = LogStore(self.place.connect()) if database is None else database
        sequencer = Sequencer(store, self.seal, Records(self.seal, (self.file_record, *more)))
        try:
            if start:
                sequencer.start()
            yield sequencer
        finally:
            sequencer.close()

    def checkpoint(self, note: bytes) -> Checkpoint:
        """Return the checkpoint of a note that the log signed."""
        parsed = parse_note(note)
        assert verify_note(parsed, (self.signer.verifier,))
        return parse_checkpoint(parsed.text)

    def demand_placed(self, entries: Sequence[StoredLeaf], places: Sequence[Placed | None]) -> Checkpoint:
        """Demand that each leaf is where its place says, by its proof; return the checkpoint that all are under."""
        assert len(entries) == len(places)
        seen = set()
        for entry, place in zip(entries, places, strict=True):
            assert place is not None
            index, checkpoint = proved(place.proof, entry.hash, self.signer.verifier)
            assert (index, checkpoint.origin) == (place.index, ORIGIN)
            seen.add(checkpoint)
        (only,) = seen
        return only

    def leaves(self) -> tuple[bytes, ...]:
        reader = Reader(self.place.read())
        head = reader.head()
        assert head is not None
        return reader.leaves(0, head.size)
