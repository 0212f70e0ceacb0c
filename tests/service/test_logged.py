"""Tokens of a real service with a transparency log: each has a public leaf before it is signed."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.io import keyfile
from issuer.service.log.sequencer.setup import log_settings
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, TokenLeaf
from issuer.tlog.tiles import read_entries
from tests.support.logged import Begun, demand_logged, leaf_of, leaves_in, logged_service, sequencers
from tests.support.processes import family
from tests.support.running import Running, numbered
from tests.support.sequencing import parent_of
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, logged_service(tmp_path_factory.mktemp("logged"), provider) as service:
        yield service


def test_a_token_and_its_repeat_come_with_a_proof_of_the_same_leaf(service: Running) -> None:
    identity = service.token()
    first, again = service.post(identity), service.post(identity).json()
    assert first.status_code == 201
    assert again["verify_token"] == first.json()["verify_token"]
    assert again["log"]["index"] == first.json()["log"]["index"]
    for answer in (first.json(), again):
        demand_logged(service, answer)


def test_a_batch_is_one_append(service: Running) -> None:
    results = [numbered(number) for number in range(5)]
    tokens = service.post(service.token(), {"results": results}, "/tokens/batch").json()["tokens"]
    assert [token["log"]["index"] - tokens[0]["log"]["index"] for token in tokens] == [0, 1, 2, 3, 4]
    assert len({demand_logged(service, token) for token in tokens}) == 1


def test_keys_and_policies_are_in_the_log_before_the_first_token(service: Running) -> None:
    token = service.post(service.token()).json()["verify_token"]
    leaves = leaves_in(service)
    first = next(index for index, leaf in enumerate(leaves) if isinstance(leaf, TokenLeaf))
    said = leaves[first]
    assert isinstance(said, TokenLeaf)
    assert any(isinstance(leaf, KeyLeaf) and leaf.kid == said.kid for leaf in leaves[:first])
    assert PolicyLeaf(said.iss, said.sub, said.policy) in leaves[:first]
    assert leaf_of(token) in [leaf.to_bytes() for leaf in leaves if isinstance(leaf, TokenLeaf)]


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


def test_a_service_whose_log_was_never_begun_does_not_start(tmp_path: Path) -> None:
    begun, elsewhere = Begun(tmp_path), str(tmp_path / "elsewhere" / "log.sqlite")
    with LocalProvider() as provider, pytest.raises(AssertionError, match=r"log\.absent"):  # noqa: SIM117
        with begun.served(provider, log_database=elsewhere):
            pass
