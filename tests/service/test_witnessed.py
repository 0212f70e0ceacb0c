"""A real service whose log has witnesses: our own in processes, and others that lie, stall or do not answer."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import settings_for
from issuer.errors import SetupError
from issuer.service.log.bounds import WITNESS_MISSES, WITNESS_S
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.settings.model import changed
from issuer.tlog.note import Cosigner
from tests.support.logged import (
    Begun,
    check_proof,
    demand_cosigned,
    demand_logged,
    log_status,
    logged_service,
    sequencers,
)
from tests.support.running import Running
from tests.support.scripted import hang_up, reply, stall
from tests.support.waiting import eventually, within
from tests.support.witnessing import Answering, ScriptedWitness, cosigning, witnessing


def issued(service: Running) -> str:
    answer = service.post(service.token())
    assert answer.status_code == 201, answer.text
    return str(answer.json()["verify_token"])


def is_logged(service: Running, event: str, witness: str) -> bool:
    """Say whether the log stream has such an event of a witness."""
    return any(f'"{event}"' in line and f'"{witness}"' in line for line in service.log_text().splitlines())


def in_database(service: Running, query: str) -> list[int]:
    with contextlib.closing(SqliteReading(Path(log_settings(service.settings, "").database))) as database:
        return [int(value) for (value,) in database.fetch(query)]


def size_of(service: Running) -> int:
    return in_database(service, "SELECT size FROM head")[0]


# Other lies, at other times: tests/service/log/witnesses.
FAULTS: dict[str, Answering] = {
    "dead": lambda *_: hang_up,
    "stalls": lambda *_: stall,
    "signs by another key": lambda submission, _: cosigning(
        submission, Cosigner("scripted.example/w", Ed25519PrivateKey.generate())
    ),
}


@dataclass
class Three:
    """A service that demands two of three witnesses, of which a test scripts the third."""

    service: Running
    third: ScriptedWitness


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("witnessed")
    with contextlib.ExitStack() as stack:
        log = Begun(folder)
        real = [stack.enter_context(witnessing(folder / name, [log.vkey], f"witness.example/{name}")) for name in "ab"]
        third = stack.enter_context(ScriptedWitness(cosigning))
        log.trust(*real, third, quorum=2)
        yield Three(stack.enter_context(log.witnessed(provider)), third)


def test_a_token_is_proved_under_a_checkpoint_of_the_quorum(three: Three) -> None:
    before = int(time.time())
    witnessed = demand_cosigned(three.service, issued(three.service))
    assert witnessed.time is not None
    assert witnessed.time >= before
    status = log_status(three.service)
    assert status["origin"] == three.service.settings.log.origin
    assert status["cosigned"]["size"] <= status["size"]
    assert status["cosigned"]["age_s"] < 60


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=[pytest.mark.long] * (each == "stalls")) for each in FAULTS]
)
def test_a_witness_that_fails_is_named_and_the_others_are_enough(three: Three, fault: str) -> None:
    three.third.answering = FAULTS[fault]
    try:
        assert demand_cosigned(three.service, issued(three.service)).time
        eventually(lambda: log_status(three.service)["failing_witnesses"] == ["w3"])
        assert is_logged(three.service, "witness fails", "w3")
        assert not is_logged(three.service, "log contradicted", "w3"), "it has shown no checkpoint of the log's key"
    finally:
        three.third.answering = cosigning
    eventually(lambda: bool(issued(three.service)) and not log_status(three.service)["failing_witnesses"])


@pytest.mark.long
def test_a_restarted_sequencer_does_not_wait_for_a_stalled_witness(tmp_path: Path, provider: LocalProvider) -> None:
    log = Begun(tmp_path)
    with ScriptedWitness(lambda *_: stall) as witness:
        log.trust(witness, quorum=1)
        with log.witnessed(provider) as service:
            away = []
            for _ in range(3):
                issued(service)
                (pid,) = sequencers(service)
                os.kill(pid, signal.SIGKILL)
                begun = time.monotonic()
                identity = service.token()
                eventually(lambda identity=identity: service.post(identity).status_code in {200, 201})  # type: ignore[misc]
                away.append(time.monotonic() - begun)
            assert min(away) < WITNESS_S


@pytest.mark.long
def test_tokens_that_wait_for_witnesses_need_a_quorum(tmp_path: Path, provider: LocalProvider) -> None:
    log = Begun(tmp_path)
    with ScriptedWitness(cosigning) as first, ScriptedWitness(cosigning, name="scripted.example/v") as second:
        log.trust(first, second, quorum=2)
        with log.witnessed(provider, log_witnesses="sync") as service:
            before = int(time.time())
            answer = service.post(service.token())
            assert answer.status_code == 201
            place = answer.json()["log"]
            witnessed = check_proof(service, answer.json()["verify_token"], place["proof"].encode())
            assert witnessed.time is not None
            assert witnessed.time >= before
            assert witnessed.checkpoint.size > place["index"]

            second.answering = lambda *_: reply(500)
            identity = service.token()
            refused = service.post(identity)
            assert (refused.status_code, refused.json()["code"]) == (503, "dependency.log")
            assert "verify_token" not in refused.text
            eventually(lambda: service.http.get("/health/ready").status_code == 503)
            assert "witnesses" in service.http.get("/health/ready").json()["detail"]

            # Without a quorum nothing is appended.
            (size,) = {
                size_of(service) for _ in range(WITNESS_MISSES) if service.post(service.token()).status_code == 503
            }

            second.answering = cosigning
            eventually(lambda: service.http.get("/health/ready").status_code == 200)
            again = service.post(identity)
            assert again.status_code == 200, "its use was claimed"
            assert again.json()["log"]["index"] < size, "its leaf was there"
            assert check_proof(service, again.json()["verify_token"], again.json()["log"]["proof"].encode()).time


def test_incomplete_settings_of_witnesses_are_refused(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, 0)
    for why, changes in {
        "write NAME=URL": {"log_witness_policy": "/nowhere/policy", "log_witness_monitors": "w1"},
        "need a policy that names them": {"log_witness_policy": "", "log_witnesses": "sync"},
    }.items():
        with pytest.raises(SetupError, match=why):
            log_settings(changed(settings, **changes), "")


@pytest.mark.long
def test_without_witnesses_every_leaf_is_public_and_idle_seconds_add_nothing(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with logged_service(tmp_path, provider) as service:
        for _ in range(3):
            answer = service.post(service.token()).json()
            demand_logged(service, answer)
            assert demand_cosigned(service, answer["verify_token"]).time is None, "without a cosignature"
        eventually(lambda: log_status(service)["cosigned"]["size"] == size_of(service))
        cosigned = "SELECT size FROM cosigned ORDER BY size"
        kept = in_database(service, cosigned)
        assert not within(1.5, lambda: in_database(service, cosigned) != kept)
        assert len(kept) <= size_of(service)
