"""A log that a test writes and cosigns, and its public side over HTTP.

`python -m tests.support.public_log DATABASE` is `issuer serve` with the public side of an existing log.
"""

import contextlib
import http.client
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from litestar import Litestar

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.service.http.log import log_routes
from issuer.service.http.protocol import protocol_for
from issuer.service.http.public_documents import LogInfo
from issuer.service.http.request_limits import Tarpit
from issuer.service.http.routes import exception_handlers
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.public import PublicLog
from issuer.service.log.database.store import LogStore, StoredLeaf
from issuer.service.metrics.counts import Board, Counters
from issuer.service.process.server import server, store
from issuer.service.settings.log_stream import configure_logging
from issuer.service.settings.model import changed
from issuer.service.settings.reader import read_settings
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Cosigner, Note, NoteSigner
from tests.support.log_store import ORIGIN, Place, append, created, token
from tests.support.received import proved
from tests.support.waiting import eventually

URL = "https://issuer.example"
NAMED = "/log/2026-11-22-7f3a"
NOW = 1_792_000_000
SIGNER = NoteSigner(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
WITNESS = Cosigner("witness.example", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
VKEY = SIGNER.verifier.to_text()
INFO = LogInfo(URL, ORIGIN, (VKEY,), "quorum none\n")


class Writer:
    """The writer of one log: leaf n is the leaf of `token(n)`."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.entries: list[StoredLeaf] = []

    def grow(self, count: int) -> None:
        """Append tokens."""
        new = [token(number) for number in range(len(self.entries), len(self.entries) + count)]
        append(self.store, new)
        self.entries += new

    def cosign(self) -> bytes:
        """Keep the checkpoint of the current tree, signed and cosigned."""
        head = self.store.head()
        assert head is not None
        text = Checkpoint(head.origin, head.size, head.root).to_text()
        note = Note(text, (SIGNER.sign(text), WITNESS.cosign(text, NOW))).to_bytes()
        self.store.database.begin()
        self.store.keep_cosigned(head.size, note)
        self.store.database.commit()
        return note


@contextlib.contextmanager
def writing(place: Place) -> Iterator[Writer]:
    """Begin a log."""
    with closing(place.connect()) as database:
        yield Writer(created(database))


def asked_for(number: int) -> str:
    """Return the query for the proof of a leaf."""
    key = token(number).key
    assert key.token is not None
    return f"iat={key.iat}&token={key.token.hex()}"


def size_proved(raw: bytes, number: int) -> int:
    """Verify the proof of leaf n, and return the size of its tree."""
    index, checkpoint = proved(raw, token(number).hash, SIGNER.verifier, WITNESS.verifier)
    assert index == number
    return checkpoint.size


class Sequencer:
    """A sequencer that the test lets append or not."""

    def __init__(self) -> None:
        self.could_append = True

    async def check(self) -> None:
        if not self.could_append:
            raise Undecided(Code.DEPENDENCY_LOG)


@dataclass
class Answered:
    """One answer. Names of headers are in lowercase."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Served:
    """The public side of a log on a port of this machine."""

    port: int
    sequencer: Sequencer

    def get(self, path: str, method: str = "GET", **headers: str) -> Answered:
        """Ask for a path exactly as it is written."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def send(self, request: bytes) -> bytes:
        """Send these bytes, and return all that comes back until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(65536), b""))


@contextlib.contextmanager
def serving(setting: str, info: LogInfo = INFO) -> Iterator[Served]:
    """Serve the log of this setting, until the block ends."""
    sequencer, log = Sequencer(), PublicLog(info.origin, partial(reading_at, setting))
    app = Litestar(
        log_routes(log, info, sequencer.check, Tarpit(URL), Counters(Board().rows[0])),
        on_shutdown=[log.aclose],
        exception_handlers=exception_handlers(URL, Counters(Board().rows[0])),
        openapi_config=None,
        logging_config=None,
    )
    config = uvicorn.Config(app, port=0, http=protocol_for(URL), loop="uvloop", ws="none", log_config=None)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        eventually(lambda: running.started)
        yield Served(running.servers[0].sockets[0].getsockname()[1], sequencer)
    finally:
        running.should_exit = True
        thread.join(60)


def _serve(setting: str) -> None:
    configure_logging()
    settings = read_settings()
    with store(settings, []) as store_url:
        running, sequencer = server(changed(settings, store_url=store_url)), Sequencer()
        log, info = PublicLog(ORIGIN, partial(reading_at, setting)), LogInfo(settings.url, ORIGIN, ())
        assert isinstance(running.config.app, Litestar)
        for handler in log_routes(log, info, sequencer.check, Tarpit(settings.url), Counters(Board().rows[0])):
            running.config.app.register(handler)
        running.run()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
