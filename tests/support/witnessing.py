"""A log that a test grows and signs, and its real witnesses: `issuer witness serve` in processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.dev.sandbox import free_port
from issuer.errors import FormatError
from issuer.service.log.witnesses.witness import SignedHead
from issuer.tlog.checkpoint import (
    ADD_CHECKPOINT_PATH,
    Checkpoint,
    WitnessSubmission,
    checkpoint_path,
    parse_checkpoint,
    read_submission,
)
from issuer.tlog.merkle import Node, Peaks, consistency_proof, leaf_hash, root
from issuer.tlog.note import (
    Cosigner,
    Note,
    NoteSigner,
    Verified,
    Verifier,
    parse_note,
    parse_signatures,
    parse_vkey,
    verify_note,
)
from issuer.witness.server import init
from tests.support.command import Forked, start_issuer
from tests.support.no_tls import NO_TLS
from tests.support.processes import listens
from tests.support.scripted import Action, Scripted, Seen, hang_up, reply
from tests.support.waiting import eventually


class Tree:
    """The leaves of a log, as many as a test needs: leaf i is the number i, after the text `another`."""

    def __init__(self, another: str = "") -> None:
        self._another = another
        self._hashes: list[bytes] = []

    def root(self, size: int) -> bytes:
        return root(self._leaves(size))

    def proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Return the proof from one size to another; none from 0."""
        return consistency_proof(old, new, self._node(new)) if old else ()

    def _leaves(self, size: int) -> list[bytes]:
        self._hashes += [leaf_hash(f"{self._another}{number}".encode()) for number in range(len(self._hashes), size)]
        return self._hashes[:size]

    def _node(self, size: int) -> Node:
        leaves = self._leaves(size)
        return lambda level, index: Peaks().extend(leaves[index << level : (index + 1) << level]).root


@dataclass
class TestLog:
    """A log with a key. `checkpoint(size)` is the note that it signs of its tree."""

    __test__ = False

    origin: str
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    tree: Tree = field(default_factory=Tree)

    @property
    def signer(self) -> NoteSigner:
        return NoteSigner(self.origin, self.key)

    @property
    def vkey(self) -> str:
        return self.signer.verifier.to_text()

    def text(self, size: int) -> str:
        return Checkpoint(self.origin, size, self.tree.root(size)).to_text()

    def checkpoint(self, size: int) -> bytes:
        text = self.text(size)
        return Note(text, (self.signer.sign(text),)).to_bytes()

    def submission(self, old: int, new: int) -> bytes:
        """Return the body that shows a witness at size `old` the tree of size `new`."""
        return WitnessSubmission(old, self.tree.proof(old, new), self.checkpoint(new)).to_bytes()

    def forked(self) -> TestLog:
        """Return a log of this name and key with another history."""
        return TestLog(self.origin, self.key, Tree("another "))


def policy_text(logs: Iterable[str], witnesses: Iterable[str] = (), quorum: str = "quorum none") -> str:
    """Return a policy file; `logs` are vkeys, `witnesses` and `quorum` lines."""
    return "".join(f"{line}\n" for line in (*(f"log {vkey}" for vkey in logs), *witnesses, quorum))


@dataclass
class RunningWitness:
    """A witness in its own process, on a port that it keeps. `folder` is its --dir."""

    folder: Path
    name: str
    vkey: str
    logs: Path
    port: int
    process: Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def verifier(self) -> Verifier:
        return parse_vkey(self.vkey)

    def start(self) -> None:
        """Run it until it listens."""
        command = ("witness", "serve", "--dir", self.folder, "--logs", self.logs, "--port", self.port)
        with (self.folder / "log").open("ab") as log:
            self.process = process = start_issuer(command, dict(os.environ), log)

        def is_ready() -> bool:
            assert process.poll() is None, (self.folder / "log").read_text()
            return listens(self.port)

        eventually(is_ready)

    def kill(self) -> None:
        """Kill it as a power failure does, as far as a process can see."""
        self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def submit(self, body: bytes) -> httpx.Response:
        return httpx.post(self.url + ADD_CHECKPOINT_PATH, content=body, timeout=30, verify=NO_TLS)

    def shown(self, origin: str) -> httpx.Response:
        """Return the checkpoint that it cosigned last, as it publishes it."""
        return httpx.get(self.url + checkpoint_path(origin), timeout=30, verify=NO_TLS)

    def cosigned(self, log: TestLog, size: int, answer: httpx.Response) -> Verified:
        """Verify the one line of an answer over a checkpoint."""
        assert answer.status_code == 200, answer.text
        (line,) = parse_signatures(answer.content)
        (verified,) = verify_note(Note(log.text(size), (line,)), [self.verifier])
        return verified


def both_verify(shown: httpx.Response, log: TestLog, witness: RunningWitness) -> Note:
    """Verify a note of a monitoring prefix under the log's key and the witness's, and return it."""
    assert shown.status_code == 200, shown.text
    note = parse_note(shown.content)
    assert {found.verifier for found in verify_note(note, [log.signer.verifier, witness.verifier])} == {
        log.signer.verifier,
        witness.verifier,
    }
    return note


@contextlib.contextmanager
def witnessing(folder: Path, logs: Iterable[str], name: str = "witness.example/w1") -> Iterator[RunningWitness]:
    """Run a witness of these logs (vkeys) until the block ends."""
    vkey = init(folder, name)
    file = folder / "logs.txt"
    file.write_text(policy_text(logs))
    witness = RunningWitness(folder, name, vkey, file, free_port())
    try:
        witness.start()
        yield witness
    finally:
        if witness.process is not None:
            witness.kill()


class GrowingLog:
    """Implements `WitnessedLog` by a test's log of `size` leaves. `kept` are the cosigned notes."""

    def __init__(self, log: TestLog, size: int = 0) -> None:
        self.log = log
        self.size = size
        self.kept: dict[int, Note] = {}

    async def head(self) -> SignedHead:
        note = parse_note(self.log.checkpoint(self.size))
        return SignedHead(parse_checkpoint(note.text), note)

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        assert 0 < old <= new <= self.size
        return self.log.tree.proof(old, new)

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        assert size <= self.size
        self.kept.setdefault(size, parse_note(note))


Answering = Callable[[WitnessSubmission, Cosigner], Action]


class ScriptedWitness(Scripted):
    """A witness on a raw socket. The test answers its submissions; it publishes `shown`."""

    def __init__(self, answering: Answering, shown: bytes = b"", name: str = "scripted.example/w") -> None:
        super().__init__([])
        self.cosigner = Cosigner(name, Ed25519PrivateKey.generate())
        self.shown = shown
        self.answering = answering
        self.submissions: list[WitnessSubmission] = []

    @property
    def vkey(self) -> str:
        return self.cosigner.verifier.to_text()

    def action_for(self, seen: Seen) -> Action:
        """Answer a submission, or publish `shown`."""
        if seen.line.startswith("GET"):
            return reply(200, self.shown) if self.shown else reply(404)
        try:
            submission = read_submission(seen.body)
        except FormatError:
            return hang_up  # the client gave up halfway
        self.submissions.append(submission)
        return self.answering(submission, self.cosigner)


def cosigning(submission: WitnessSubmission, cosigner: Cosigner) -> bytes:
    return reply(200, cosigner.cosign(parse_note(submission.note).text, int(time.time())).to_text().encode())
