"""A transparency log of known keys as a value: leaves, signed and cosigned heads, and its files.

It uses the pure modules alone, so tests of its readers need no service. The files are a dictionary: a test plays a hostile
log by a change to it.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.formats import jose
from issuer.tlog import merkle, tiles
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, TokenLeaf
from issuer.tlog.note import Cosigner, Note, NoteSigner
from issuer.tlog.proof import Proof
from tests.support import make
from tests.support.answering import Handler, serving

ORIGIN = "log.example/2026-11-22-7f3a"
LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"l" * 32)
WITNESS_KEYS = tuple(Ed25519PrivateKey.from_private_bytes(sign * 32) for sign in (b"1", b"2", b"3"))
WITNESSES = tuple(Cosigner(f"witness{number}.example", key) for number, key in enumerate(WITNESS_KEYS, 1))
POLICY = "sha256:" + "0" * 64
X = str(jose.public_jwk(make.KEY.public_key())["x"])


def key_leaf(**members: object) -> bytes:
    """The announcement of the key that `make` signs with."""
    terms = {"iss": make.ISSUER, "kid": make.KID, "x": X, "state": "active", "since": make.NOW - 86_400, **members}
    return KeyLeaf(**terms).to_bytes()  # type: ignore[arg-type]


def policy_leaf(**members: object) -> bytes:
    """The announcement of the policy of `make`'s tokens."""
    return PolicyLeaf(**{"iss": make.ISSUER, "sub": "inspect-ai", "policy": POLICY, **members}).to_bytes()  # type: ignore[arg-type]


def token_leaf(number: int = 0, **members: object) -> bytes:
    """A leaf for each number, of a token that does not exist."""
    terms = {"iss": make.ISSUER, "sub": "inspect-ai", "kid": make.KID, "iat": make.NOW, "exp": make.NOW + 3600}
    return TokenLeaf(**{**terms, "policy": POLICY, "token": number.to_bytes(32), **members}).to_bytes()  # type: ignore[arg-type]


ANNOUNCED = (key_leaf(), policy_leaf())


def policy_text(
    witnesses: Sequence[Cosigner] = WITNESSES[:2],
    quorum: str = "all",
    logs: Sequence[NoteSigner] = (NoteSigner(ORIGIN, LOG_KEY),),
) -> str:
    """Write a witness policy that trusts the log and demands these witnesses, `all` of them, `any`, or `none`."""
    lines = [f"log {log.verifier.to_text()}" for log in logs]
    lines += [f"witness w{number} {witness.verifier.to_text()}" for number, witness in enumerate(witnesses)]
    if quorum != "none":
        lines.append(f"group needed {quorum} " + " ".join(f"w{number}" for number in range(len(witnesses))))
    return "\n".join([*lines, f"quorum {'none' if quorum == 'none' else 'needed'}", ""])


class Tree:
    """A log's leaves, with its hashes, notes, proofs and files. Its witnesses cosign at `time`."""

    def __init__(
        self,
        leaves: Sequence[bytes] = ANNOUNCED,
        *,
        origin: str = ORIGIN,
        key: Ed25519PrivateKey = LOG_KEY,
        time: int = make.NOW + 1,
    ) -> None:
        self.leaves = list(leaves)
        self.origin = origin
        self.signer = NoteSigner(origin, key)
        self.time = time

    def node(self, level: int, index: int) -> bytes:
        """The hash of a complete subtree of 2^level leaves."""
        part = self.leaves[index << level : (index + 1) << level]
        return merkle.root(map(merkle.leaf_hash, part))

    def root(self, size: int | None = None) -> bytes:
        return merkle.root(map(merkle.leaf_hash, self.leaves[:size]))

    def note(
        self, size: int | None = None, *, witnesses: Sequence[Cosigner] = WITNESSES, time: int | None = None
    ) -> Note:
        """The signed checkpoint of the first `size` leaves, cosigned by these witnesses."""
        size = len(self.leaves) if size is None else size
        text = Checkpoint(self.origin, size, self.root(size)).to_text()
        cosigned = (witness.cosign(text, time or self.time) for witness in witnesses)
        return Note(text, (self.signer.sign(text), *cosigned))

    def proof(self, index: int, size: int | None = None) -> bytes:
        """The inclusion proof of a leaf under the checkpoint of the first `size` leaves."""
        size = len(self.leaves) if size is None else size
        return Proof(index, merkle.inclusion_proof(index, size, self.node), self.note(size).to_bytes()).to_bytes()

    def files(self, size: int | None = None) -> dict[str, bytes]:
        """Every file of the tree of the first `size` leaves, by its path."""
        size = len(self.leaves) if size is None else size
        shown = {str(path): self._content(path) for path in tiles.tiles_between(0, size)}
        return {"checkpoint": self.note(size).to_bytes(), **shown}

    def _content(self, path: tiles.TilePath) -> bytes:
        numbers = range(path.index * tiles.WIDTH, path.index * tiles.WIDTH + path.width)
        if path.level == "entries":
            return tiles.write_entries(self.leaves[number] for number in numbers)
        level = path.level * tiles.HEIGHT
        return b"".join(self.node(level, number) for number in numbers)

    def write(self, folder: Path, size: int | None = None) -> Path:
        """Write its files into a folder; return that."""
        for path, raw in self.files(size).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(raw)
        return folder


class InMemory:
    """A log's files in memory; `asked` are the paths that were read. A test changes `files` between two reads."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.name = "memory"
        self.files = files
        self.asked: list[str] = []

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return a file, at most one byte more than is allowed: every real place refuses that."""
        self.asked.append(path)
        raw = self.files.get(path)
        return raw if raw is None else raw[: max_bytes + 1]


def no_leaf(handler: Handler) -> None:
    """Answer as the service does for a leaf that its log does not have."""
    handler.reply(404, b'{"type":"x","status":404,"code":"log.no_leaf"}', Content_Type="application/problem+json")


# The answer to a path: a body, None for 404, or a function that answers by itself.
Answer = bytes | None | Callable[[Handler], None]


@dataclass
class LogSite:
    """Serves a log's files over real HTTP on loopback. `answers` come before the files, `seen` are the requested paths."""

    files: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        site = self

        class Files(Handler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                path = self.path.removeprefix("/log/")
                site.seen.append(path)
                answer = site.answers.get(path, site.files.get(path))
                if callable(answer):
                    answer(self)
                else:
                    self.reply(404 if answer is None else 200, answer or b"")

        self._stack = ExitStack()
        self.url = f"{self._stack.enter_context(serving(Files))}/log"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
