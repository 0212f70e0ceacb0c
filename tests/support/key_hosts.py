"""Hosts that follow their keys: each with its own folders, on one history, one store and one clock that a test moves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats import jose
from issuer.io.common_documents import FolderHome
from issuer.io.shared_memory import SharedPage
from issuer.service.audit.sink import FileAudit
from issuer.service.signing.active_keys import Hosts, LiveSigner
from issuer.service.signing.bounds import HISTORY_TURN_S
from issuer.service.signing.history import KeyHistory, LiveHistory
from issuer.service.signing.keyring import find_keys, generate
from issuer.service.signing.lifecycle import KeyEvent, KeyLife, KeyState, What

# An address without a server.
NO_STORE = "redis://127.0.0.1:1"


class Seconds:
    """Unix seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 1_795_251_600

    def __call__(self) -> int:
        return self.now


@contextlib.contextmanager
def another_worker(page: SharedPage, digest: bytes) -> Iterator[None]:
    """Have another process of the host publish keys of this digest until the block ends."""
    fork = multiprocessing.get_context("fork")
    published, end = fork.Event(), fork.Event()
    worker = fork.Process(target=_publish, args=(page, digest, published, end))
    worker.start()
    try:
        assert published.wait(60)
        yield
    finally:
        end.set()
        worker.join(60)


def _publish(page: SharedPage, digest: bytes, published: Event, end: Event) -> None:
    page.publish("keys", digest)
    published.set()
    end.wait(60)


class KeyHost:
    """A host with one worker: its folders of keys, and the signer that follows them. `data` may be shared."""

    def __init__(self, folder: Path, clock: Seconds, data: Path | None = None, store: str = NO_STORE) -> None:
        self.keys = folder / "keys"
        self.data = data or folder / "data"
        self.events = folder / "audit.jsonl"
        self.clock = clock
        self.store = store
        self.page = SharedPage()
        self.passphrase: bytes | None = None
        self.wait_s = HISTORY_TURN_S
        self.audit = FileAudit(self.events)
        self.paths: list[Path] = []
        self.signer: LiveSigner

    def has(self, *states: KeyState) -> KeyHost:
        self.paths += [generate(self.keys, state) for state in states]
        return self

    def start(self) -> KeyHost:
        hosts = Hosts(self.store, self.page, now=self.clock, seconds=self.clock)
        history = LiveHistory(FolderHome(self.data), self.wait_s)
        self.signer = LiveSigner(self.keys, self.tell, self.audit, history, hosts, self.clock)
        return self

    async def stop(self) -> None:
        await self.signer.aclose()
        self.audit.close()

    def tell(self) -> bytes | None:
        if self.passphrase == b"gone":
            raise SetupError(Code.SETTINGS_INVALID, "keys.passphrase_file: No such file")
        return self.passphrase

    async def turn(self, asked: bool = False, times: int = 1) -> None:
        """Take a turn, and wait for its work on the history."""
        for _ in range(times):
            await self.signer.turn(asked)
            if self.signer._history_task is not None:
                await asyncio.wait({self.signer._history_task})

    def move(self, path: Path, state: KeyState) -> Path:
        """Move a key, as `mv` does."""
        (self.keys / state).mkdir(0o700, exist_ok=True)
        return path.rename(self.keys / state / path.name)

    def copy(self, path: Path, state: KeyState) -> Path:
        """Bring a key from another host."""
        there = self.keys / state / path.name
        there.parent.mkdir(0o700, parents=True, exist_ok=True)
        there.touch(0o600)
        there.write_bytes(path.read_bytes())
        return there

    def write(self, what: What, path: Path, ago: int = 0) -> None:
        """Write an event of a key into the history, as an operator's command does."""
        write_event(self.data, what, path, self.clock.now - ago)

    def life(self, path: Path) -> KeyLife:
        return KeyHistory(FolderHome(self.data)).read()[path.stem]

    def history(self) -> list[tuple[str, str]]:
        lines = (self.data / "key-history.jsonl").read_text().splitlines()
        return [(event["what"], event["kid"]) for event in map(json.loads, lines)]

    def recorded(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.events.read_text().splitlines()]

    @property
    def published(self) -> set[str]:
        return {key["kid"] for key in json.loads(self.signer.keyring.jwks)["keys"]}

    @property
    def signs(self) -> str | None:
        try:
            return self.signer.active_kid
        except Undecided:
            return None


def write_event(data: Path, what: What, path: Path, at: int) -> None:
    """Write an event of a key into the history. The file of the key is named by its kid, in a folder of keys."""
    key = next(key for key in find_keys(path.parents[1], lambda: None).keys if key.kid == path.stem)
    x = str(jose.public_jwk(key.private.public)["x"])
    KeyHistory(FolderHome(data)).record(lambda _: [KeyEvent(at, what, path.stem, x, "a test")])
