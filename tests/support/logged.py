"""A service with a transparency log, and what its tests ask of the log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY, begin_log, free_port, settings_for
from issuer.formats import jose
from issuer.service.log.sqlite import SqliteReading
from issuer.service.log.store import Reader
from issuer.service.server import log_settings
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.leaf import Leaf, read_leaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.tlog.witness_policy import parse_policy
from issuer.verify_token import read_unverified, token_leaf
from tests.support.running import Running, running


@contextlib.contextmanager
def logged_service(folder: Path, provider: LocalProvider, **changes: Any) -> Iterator[Running]:
    """Run a service with a fresh log."""
    port = free_port()
    settings = begin_log(settings_for(folder, port), folder)
    log = {name: getattr(settings, name) for name in ("log_origin", "log_records")}
    with running(folder, provider, port=port, **(log | changes)) as service:
        yield service


def leaf_of(token: str) -> bytes:
    """Rebuild a token's leaf out of the token alone."""
    jws = jose.parse_compact(token)
    claims, _ = read_unverified(jws.unverified_payload)
    return token_leaf(claims, str(jws.header["kid"]), jws.signing_input).to_bytes()


def demand_logged(service: Running, answer: dict[str, Any]) -> Checkpoint:
    """Demand a good proof in the answer of a token, and return the checkpoint that it is under."""
    place = answer["log"]
    assert place["origin"] == service.settings.log_origin
    proof = parse_proof(place["proof"].encode())
    assert proof.index == place["index"]
    policy = parse_policy((service.folder / LOG_POLICY).read_bytes(), LOG_POLICY)
    checkpoint = policy.check(parse_note(proof.checkpoint), 2**33).checkpoint
    hashed = leaf_hash(leaf_of(answer["verify_token"]))
    assert verify_inclusion(proof.index, checkpoint.size, hashed, proof.hashes, checkpoint.root)
    assert parse_checkpoint(parse_note(proof.checkpoint).text) == checkpoint
    return checkpoint


def leaves_in(service: Running) -> list[Leaf]:
    """Return every leaf of the log, in its order."""
    with contextlib.closing(SqliteReading(Path(log_settings(service.settings, "").database))) as database:
        reader = Reader(database)
        head = reader.head()
        return [read_leaf(raw) for raw in reader.leaves(0, head.size if head else 0)]


def sequencers(service: Running) -> list[int]:
    """Return the processes that write the service's log, each below the one that watches it."""
    below = [child for pid in _children(service.process.pid) for child in _children(pid)]
    return [pid for pid in below if b"issuer.service.log.process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _children(pid: int) -> list[int]:
    return [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
