"""A transparency log of the tests, and its witnesses: real keys, a real tree, and cosignatures at given times. A real log
could have made each of its proofs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.formats import jcs
from issuer.results.entry import read_entries
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import TokenLeaf
from issuer.tlog.merkle import inclusion_proof, leaf_hash, node_hash, root
from issuer.tlog.note import Cosigner, Note, NoteSigner
from issuer.tlog.proof import Proof
from issuer.tlog.witness_policy import parse_policy
from issuer.token.verify_token import unverified_leaf
from issuer.verify.check_log import AtHand, sidecar_name
from issuer.verify.trust import TrustedLog
from tests.support.make import NOW
from tests.support.tree import write_trust

ORIGIN = "issuer.example/log/2026-11-22-7f3a"
SPARE = "issuer.example/log/2026-11-22-9c01"
LOG_KEY = Ed25519PrivateKey.from_private_bytes(b"l" * 32)
SPARE_KEY = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
LOGS = {ORIGIN: LOG_KEY, SPARE: SPARE_KEY}
WITNESSES = tuple(
    Cosigner(f"witness{number}.example", Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    for number in (1, 2, 3)
)


def policy_text(quorum: int = 2, origins: Iterable[str] = (ORIGIN, SPARE)) -> str:
    """Return the policy that trusts these logs with cosignatures of so many of the three witnesses."""
    logs = [f"log {NoteSigner(origin, LOGS[origin]).verifier.to_text()}\n" for origin in origins]
    named = [f"witness w{number} {witness.verifier.to_text()}\n" for number, witness in enumerate(WITNESSES)]
    group = f"group enough {quorum} w0 w1 w2\nquorum enough\n" if quorum else "quorum none\n"
    return "".join((*logs, *named, group))


def trusted_log(quorum: int = 2, origins: Iterable[str] = (ORIGIN, SPARE), url: str = "") -> TrustedLog:
    """Trust the logs by that policy."""
    return log_by(policy_text(quorum, origins), url)


def log_by(text: str, url: str = "") -> TrustedLog:
    raw = text.encode()
    return TrustedLog(parse_policy(raw, "policy"), jcs.digest_of_bytes(raw), url)


leaf_of = unverified_leaf


class TestLog:
    """The leaves of one log, in their order, after the leaves of `others` tokens."""

    __test__ = False

    def __init__(self, *tokens: str, origin: str = ORIGIN, others: int = 5) -> None:
        self.signer = NoteSigner(origin, LOGS[origin])
        self._hashes = [leaf_hash(b"a stranger's leaf %d\n" % number) for number in range(others)]
        self._index: dict[bytes, int] = {}
        self._nodes: dict[tuple[int, int], bytes] = {}
        for token in tokens:
            self.add(token)

    def add(self, token: str) -> None:
        leaf = leaf_of(token)
        self._index[leaf.token] = len(self._hashes)
        self._hashes.append(leaf_hash(leaf.to_bytes()))

    def note(self, times: Mapping[int, int], *, signer: NoteSigner | None = None) -> Note:
        """Sign the checkpoint of all leaves; `times` has when each witness, by its number, cosigns."""
        text = Checkpoint(self.signer.name, len(self._hashes), root(self._hashes)).to_text()
        cosigned = [WITNESSES[number].cosign(text, time) for number, time in times.items()]
        return Note(text, ((signer or self.signer).sign(text), *cosigned))

    def proof(self, token: str, *times: int, note: Note | None = None) -> bytes:
        """Prove a token's inclusion in all leaves, cosigned at these times by the first witness, the second, and so on."""
        note = note or self.note(dict(enumerate(times)))
        index = self._index[leaf_of(token).token]
        return Proof(index, inclusion_proof(index, len(self._hashes), self._node), note.to_bytes()).to_bytes()

    def _node(self, level: int, index: int) -> bytes:
        if level == 0:
            return self._hashes[index]
        if (level, index) not in self._nodes:
            halves = self._node(level - 1, 2 * index), self._node(level - 1, 2 * index + 1)
            self._nodes[level, index] = node_hash(*halves)
        return self._nodes[level, index]


def write_sidecars(files: Iterable[Path], *, note_s: int = 1, a_note: int = 100) -> None:
    """Write the proof of the first token of each result file beside it: one log, and a checkpoint of other bytes for each
    `a_note` of them, cosigned `note_s` after NOW."""
    tokens = {file: read_token(file) for file in files}
    log = TestLog(*tokens.values())
    note = log.note({})
    for number, (file, token) in enumerate(tokens.items()):
        if number % a_note == 0:
            note = log.note({0: NOW + note_s, 1: NOW + note_s, 2: NOW + number + 1})
        sidecar = file.with_name(sidecar_name(file.name, leaf_of(token).token))
        sidecar.write_bytes(log.proof(token, note=note))


def read_token(file: Path) -> str:
    """Return the token of the first entry of a file."""
    return str(read_entries(file.read_bytes(), str(file))[0].token)


def write_logged_trust(folder: Path, *, quorum: int = 2, require: str = "[log]") -> Path:
    """Write a trust file in the issuer of the tests and its log, with its policy beside it."""
    (folder / "policy").write_text(policy_text(quorum))
    trust = write_trust(folder, f"    log: {{policy: {{file: policy}}}}\nrequire: {require}\n")
    return trust.rename(folder / "logged.yaml")


def at_hand(token: str, proof: bytes) -> dict[TokenLeaf, AtHand]:
    """Return a proof in the form that the verifier of a token takes."""
    return {leaf_of(token): AtHand(proof)}
