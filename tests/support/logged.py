"""A service with a transparency log, and what its tests ask of the log."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY, begin_log, free_port, settings_for
from issuer.formats import jose
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.settings.model import EMBEDDED, changed
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.leaf import Leaf, TokenLeaf, read_leaf
from issuer.tlog.merkle import leaf_hash, verify_inclusion
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.tlog.witness_policy import Witnessed, parse_policy
from issuer.token.verify_token import read_unverified, token_leaf
from issuer.token.wire import LOG_PATH
from tests.support.processes import command_of
from tests.support.running import Running, running
from tests.support.settings import by_name
from tests.support.waiting import eventually
from tests.support.witnessing import RunningWitness, ScriptedWitness, policy_text


class Begun:
    """A fresh log in a folder, and a port for its service. `policy` is the file of the witness policy."""

    def __init__(self, folder: Path, database: str = "", store: str = EMBEDDED) -> None:
        self.folder = folder
        self.policy = folder / LOG_POLICY
        plain = changed(settings_for(folder, free_port()), log_database=database, store_url=store)
        self._settings = begin_log(plain, folder)
        self.log = log_settings(self._settings, "")
        self.vkey = self.policy.read_text().split()[1]

    @property
    def port(self) -> int:
        return self._settings.listen.port

    def trust(self, *witnesses: RunningWitness | ScriptedWitness, quorum: int) -> None:
        """Write the policy that demands so many of these witnesses, which it calls w1, w2 and so on."""
        lines = [f"witness w{number} {each.vkey} {each.url}" for number, each in enumerate(witnesses, 1)]
        names = " ".join(f"w{number}" for number in range(1, len(witnesses) + 1))
        self.policy.write_text(policy_text([self.vkey], [*lines, f"group all {quorum} {names}"], "quorum all"))

    @contextlib.contextmanager
    def served(self, provider: LocalProvider, **changes: Any) -> Iterator[Running]:
        log = by_name(self._settings, "log_origin", "log_database", "log_records", "store_url") | {"port": self.port}
        with running(self.folder, provider, **(log | changes)) as service:
            yield service

    def witnessed(self, provider: LocalProvider, **changes: Any) -> contextlib.AbstractContextManager[Running]:
        return self.served(provider, log_witness_policy=str(self.policy), **changes)


@contextlib.contextmanager
def logged_service(folder: Path, provider: LocalProvider, log_database: str = "", **changes: Any) -> Iterator[Running]:
    with Begun(folder, log_database, changes.get("store_url", EMBEDDED)).served(provider, **changes) as service:
        yield service


@contextlib.contextmanager
def second_host(first: Running, **changes: Any) -> Iterator[Running]:
    """Run a further host of the first one's issuer: the same store, secret, keys and policies; data and record are its
    own."""
    names = ("url", "log_origin", "log_database", "store_url", "log_witness_policy", "log_witnesses")
    shared = by_name(first.settings, *names)
    own = first.folder.with_name(f"{first.folder.name}-second")
    (own / "records").mkdir(mode=0o700, parents=True, exist_ok=True)
    shared["store_secret_file"] = str(first.settings.store_secret)
    place = {"data": str(own / "data"), "log_records": str(own / "records")}
    with running(first.folder, first.provider, **(shared | place | changes)) as second:
        yield second


def leaf_of(token: str) -> bytes:
    """Rebuild a token's leaf out of the token alone."""
    jws = jose.parse_compact(token)
    claims, _ = read_unverified(jws.unverified_payload)
    return token_leaf(claims, str(jws.header["kid"]), jws.signing_input).to_bytes()


def demand_logged(service: Running, answer: dict[str, Any]) -> Checkpoint:
    """Demand a good proof in the answer of a token, and return the checkpoint that it is under."""
    place = answer["log"]
    assert place["origin"] == service.settings.log.origin
    raw = place["proof"].encode()
    assert parse_proof(raw).index == place["index"]
    return check_proof(service, answer["verify_token"], raw, 2**33).checkpoint


def demand_cosigned(service: Running, token: str) -> Witnessed:
    """Wait until the log proves a token under a checkpoint that the policy's quorum has cosigned, and return that."""
    leaf = read_leaf(leaf_of(token))
    assert isinstance(leaf, TokenLeaf)
    path = f"{LOG_PATH}/proof?iat={leaf.iat}&token={leaf.token.hex()}"
    eventually(lambda: service.http.get(path).status_code == 200)
    return check_proof(service, token, service.http.get(path).content)


def check_proof(service: Running, token: str, raw: bytes, now: int | None = None) -> Witnessed:
    """Check a token's proof by the service's policy, now or then, and return the checkpoint that it is under."""
    proof = parse_proof(raw)
    policy = parse_policy((service.folder / LOG_POLICY).read_bytes(), LOG_POLICY)
    witnessed = policy.check(parse_note(proof.checkpoint), int(time.time()) if now is None else now)
    checkpoint, hashed = witnessed.checkpoint, leaf_hash(leaf_of(token))
    assert verify_inclusion(proof.index, checkpoint.size, hashed, proof.hashes, checkpoint.root)
    return witnessed


def log_status(service: Running) -> dict[str, Any]:
    status: dict[str, Any] = service.http.get("/health/ready").json().get("log", {})
    return status


def leaves_in(service: Running) -> list[Leaf]:
    with contextlib.closing(reading_at(log_settings(service.settings, "").database)) as database:
        reader = Reader(database)
        head = reader.head()
        return [read_leaf(raw) for raw in reader.leaves(0, head.size if head else 0)]


def sequencers(service: Running) -> list[int]:
    """Return the processes that write the service's log, each below the one that watches it."""
    below = [child for pid in _children(service.process.pid) for child in _children(pid)]
    return [pid for pid in below if b"issuer.service.log.sequencer.process" in command_of(pid)]


def _children(pid: int) -> list[int]:
    return [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]
