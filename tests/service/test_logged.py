"""Tokens of a real service with a transparency log: each has a public leaf before it is signed."""

import base64
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.io import keyfile
from issuer.service.log.bounds import LOG_BATCH_LEAVES
from issuer.service.log.database.engines import reading_at
from issuer.service.log.sequencer.sequencer import entry_of
from issuer.service.log.sequencer.setup import log_settings, sequencer_of
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, TokenLeaf, read_leaf
from issuer.tlog.tiles import read_entries
from tests.support.log_readers import check_with_go, check_with_scales
from tests.support.logged import Begun, demand_logged, leaf_of, leaves_in, logged_service, sequencers
from tests.support.processes import family
from tests.support.promised import Promised, export_of
from tests.support.running import BODY, Running, numbered, serve
from tests.support.sequencing import IAT, key_leaf, parent_of, policy_leaf, tokens
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with logged_service(tmp_path_factory.mktemp("logged"), provider) as service:
        yield service


def test_a_token_and_its_repeat_have_a_proof_of_one_leaf_behind_their_key_and_policy(service: Running) -> None:
    identity = service.token()
    first, again = service.post(identity), service.post(identity).json()
    assert first.status_code == 201
    assert again["verify_token"] == first.json()["verify_token"]
    assert again["log"]["index"] == first.json()["log"]["index"]
    for answer in (first.json(), again):
        demand_logged(service, answer)
    leaves, said = leaves_in(service), read_leaf(leaf_of(again["verify_token"]))
    assert isinstance(said, TokenLeaf)
    before = leaves[: next(index for index, leaf in enumerate(leaves) if isinstance(leaf, TokenLeaf))]
    assert any(isinstance(leaf, KeyLeaf) and leaf.kid == said.kid for leaf in before)
    assert PolicyLeaf(said.iss, said.sub, said.policy) in before
    results = [numbered(number) for number in range(5)]
    tokens = service.post(service.token(), {"results": results}, "/tokens/batch").json()["tokens"]
    assert [token["log"]["index"] - tokens[0]["log"]["index"] for token in tokens] == [0, 1, 2, 3, 4]
    assert len({demand_logged(service, token) for token in tokens}) == 1, "a batch is one append"


def test_the_log_is_public_and_the_metadata_names_it(service: Running) -> None:
    token = service.post(service.token()).json()
    size, origin = token["log"]["index"] + 1, service.settings.log.origin
    about = service.http.get("/.well-known/eval-token-issuer").json()
    assert (about["log_origin"], about["log_url"]) == (origin, f"http://{origin}")
    for prefix in ("/log", about["log_url"].removeprefix(service.url)):
        assert service.http.get(f"{prefix}/log.json").json()["origin"] == origin
        bundle = service.http.get(f"{prefix}/tile/entries/000.p/{size}")
        assert read_entries(bundle.content)[-1] == leaf_of(token["verify_token"])
    absent = service.http.get("/log/proof", params={"iat": 0, "token": "0" * 64})
    assert (absent.status_code, absent.json()["code"]) == (404, "log.no_leaf")
    assert "/log/proof" in service.http.get("/openapi.json").json()["paths"]


def test_without_the_sequencer_nothing_is_issued_until_it_is_back(service: Running) -> None:
    identity = service.token()
    (pid,) = sequencers(service)
    os.kill(pid, signal.SIGSTOP)
    try:
        refused = service.post(identity)
        assert (refused.status_code, refused.json()["code"]) == (503, "dependency.log")
        assert "verify_token" not in refused.text
        assert service.http.get("/health/ready").json()["code"] == "dependency.log"
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: service.http.get("/health/ready").status_code == 200)
    answer = service.post(identity)
    assert answer.status_code == 200, "its use was claimed before the log was away"
    demand_logged(service, answer.json())


def test_only_the_sequencer_has_the_log_s_key(service: Running) -> None:
    """An intruder in a worker signs no checkpoint."""
    assert service.post(service.token()).status_code == 201
    key = keyfile.read(Path(log_settings(service.settings, "").key_file), None)
    seed = key.private_bytes_raw()
    (sequencer,) = sequencers(service)
    assert holds(sequencer, seed), "this is how a key is found"
    (watcher,) = {parent_of(sequencer)}
    assert not [pid for pid in (*family(service.process.pid), watcher) if holds(pid, seed)]


def holds(pid: int, secret: bytes) -> bool:
    """Say whether a process has these bytes in its memory (proc(5))."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if "w" in rights:
                start, end = (int(each, 16) for each in span.split("-"))
                memory.seek(start)
                with suppress(OSError):  # [vvar] and the like
                    if secret in memory.read(end - start):
                        return True
    return False


def test_a_service_whose_log_was_never_begun_does_not_start(tmp_path: Path, provider: LocalProvider) -> None:
    begun, elsewhere = Begun(tmp_path), str(tmp_path / "elsewhere" / "log.sqlite")
    with pytest.raises(AssertionError, match=r"log\.absent"), begun.served(provider, log_database=elsewhere):
        pass


TABLES = ("head", "entries", "hashes", "cosigned")
# Only words of at least so many characters are searched for. A shorter one may occur by chance, as an epoch second does.
LONG = 12
CLAIMS = {
    "model_repo": "acme-canary/canary-model",
    "model_revision": "c0ffee1234c0ffee1234c0ffee1234c0ffee1234",
    "metrics": [{"metric_id": "canary_metric", "value": 0.7316482951}],
    "framework": {"name": "inspect-ai", "version": "0.3.285", "command": "inspect eval canary --secret canary-flag"},
}
DETAILS = {"notes": "notes of the canary", "date": "2026-11-21T09:07:31Z"}


def test_no_public_byte_says_what_was_signed_or_who_called(service: Running, tmp_path: Path) -> None:
    """Also not as a digest or in another encoding."""
    sent = {"claims": BODY["claims"] | CLAIMS, "details": DETAILS}
    identity = service.token()
    answer = service.post(identity, sent)
    assert answer.status_code == 201, answer.text
    token = answer.json()["verify_token"]
    leaf = {each.decode() for each in leaf_of(token).split()}
    public = b"\n".join(public_bytes(service, tmp_path / "tree"))
    assert payload(token)["sub"].encode() in public
    # A leaf, the log's name and the URL are public (tlog.md).
    known = {*leaf, service.settings.log.origin, service.url}
    values = {*words(sent), *words(payload(identity)), *words(payload(token)), token.split(".")[2]}
    secrets = {each for each in values - known if len(each) >= LONG}
    told = payload(identity)["repository"], *words(CLAIMS["model_repo"]), *words(CLAIMS["metrics"]), *words(DETAILS)
    assert secrets >= {*told}
    assert len(secrets) > 15
    assert not {each for each in secrets if any(form in public for form in disguises(each))}


def payload(token: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(jose.parse_compact(token).unverified_payload)
    return read


def words(value: Any) -> Iterator[str]:
    """Yield every text and number within a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from words(each)
    else:
        yield str(value)


def disguises(word: str) -> Iterator[bytes]:
    """Yield a word, and the encodings and digests by which a guess could be confirmed."""
    raw = word.encode()
    digest = hashlib.sha256(raw)
    yield from (raw, raw.hex().encode(), digest.digest(), digest.hexdigest().encode())
    yield from (base64.b64encode(each).rstrip(b"=") for each in (raw, digest.digest()))
    yield base64.urlsafe_b64encode(digest.digest()).rstrip(b"=")


def public_bytes(service: Running, folder: Path) -> Iterator[bytes]:
    """Return each cell of the database, each exported file, and what the service serves of its log."""
    with closing(reading_at(log_settings(service.settings, "").database)) as reading:
        for table in TABLES:
            for row in reading.fetch(f"SELECT * FROM {table}"):
                yield from (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
    export_of(service, folder)
    exported = [file for file in folder.rglob("*") if file.is_file()]
    assert len(exported) >= 3
    for file in exported:
        yield file.read_bytes()
        path = f"/log/{file.relative_to(folder)}"
        if (served := service.http.get(path)).status_code == 200:
            yield served.content
    yield service.http.get("/log/log.json").content


@contextmanager
def two_workers(folder: Path, provider: LocalProvider, leaves: int = 0) -> Iterator[Running]:
    """Run a service with two workers and a log that has so many leaves at its start."""
    begun = Begun(folder)
    with closing(sequencer_of(begun.log)) as sequencer:
        sequencer.start()
        sequencer.append(list(map(entry_of, (key_leaf(IAT), policy_leaf()))))
        for first in range(0, leaves, LOG_BATCH_LEAVES):
            sequencer.append(tokens(*range(first, min(leaves, first + LOG_BATCH_LEAVES))))
    with begun.served(provider, command=serve(2)) as service:
        yield service


def test_another_reader_verifies_the_tree_of_two_workers(tmp_path: Path, provider: LocalProvider) -> None:
    with two_workers(tmp_path / "service", provider) as service:
        promised = Promised(service)
        for numbers in [(1,), (2, 3, 4), (5,), (6,)]:
            promised.settle(service, [promised.request(service, *numbers)])
        promised.settle(service)
        seen = promised.demand_promises(service, tmp_path / "tree")
    assert set(seen.entries.values()) == set(promised.received.indexes)


@pytest.mark.long
@pytest.mark.needs_tool("go")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("edge", [256, 65_536])
def test_two_other_readers_verify_every_tree_around_a_full_tile(
    edge: int, tmp_path: Path, provider: LocalProvider
) -> None:
    """256 leaves fill a tile of level 0, 65,536 one of level 1."""
    filled = 0 if edge == 256 else edge - 40
    with two_workers(tmp_path / "service", provider, filled) as service:
        promised = Promised(service)
        number = 0
        while not promised.notes or max(promised.notes) < edge + 4:
            count = 8 if max(promised.notes, default=0) < edge - 20 else 1
            request = promised.request(service, *range(number, number + count))
            promised.settle(service, [request])
            number += count
        sizes = sorted(size for size in promised.notes if size >= edge - 12)
        assert len(set(range(edge - 2, edge + 3)) - {*sizes}) <= 1, "once a minute a leaf more comes in between"
        for size in sizes:
            export_of(service, tmp_path / "mirror", promised.notes[size])
            indexes = [index for index in promised.received.indexes.values() if index < size]
            older = [promised.notes[each] for each in sizes if each <= size]
            for check in (check_with_go, check_with_scales):
                assert check(tmp_path / "mirror", promised.vkey, indexes[-50:], older).size == size
        promised.demand_promises(service, tmp_path / "tree", go=True)
