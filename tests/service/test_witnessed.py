"""A real service whose log has witnesses: our own in processes, and others that lie, stall and are dead."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.dev.provider import LocalProvider
from issuer.service.log.bounds import LOG_CALL_S, WITNESS_MISSES, WITNESS_S, WITNESS_SYNC_S
from issuer.service.log.database.sqlite import SqliteReading
from issuer.service.log.sequencer.setup import log_settings
from issuer.tlog.checkpoint import WitnessSubmission, parse_checkpoint
from issuer.tlog.note import Cosigner, parse_note
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
from tests.support.scripted import Action, hang_up, reply, stall
from tests.support.waiting import eventually
from tests.support.witnessing import Answering, ScriptedWitness, cosigning, witnessing

# What the service promises, and for a machine that does something else.
SLACK_S = 5.0


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


def issued(service: Running) -> str:
    """Have a token issued."""
    answer = service.post(service.token())
    assert answer.status_code == 201, answer.text
    return str(answer.json()["verify_token"])


def told(service: Running, event: str, witness: str) -> bool:
    """Say whether the log stream has such an event of a witness."""
    return any(f'"{event}"' in line and f'"{witness}"' in line for line in service.log_text().splitlines())


# -- async -----------------------------------------------------------------------------------------------------------------


def another_s_word(submission: WitnessSubmission, _: Cosigner) -> Action:
    """Answer with the line of a key that has the name of the right one."""
    return cosigning(submission, Cosigner("scripted.example/w", Ed25519PrivateKey.generate()))


def at_no_time(submission: WitnessSubmission, cosigner: Cosigner) -> Action:
    line = cosigner.cosign(parse_note(submission.note).text, int(time.time()) - 3600)
    return reply(200, line.to_text().encode())


FAULTS: dict[str, Answering] = {
    "dead": lambda *_: hang_up,
    "stalls": lambda *_: stall,
    "signs by another key": another_s_word,
    "signs for another time": at_no_time,
    "says that it has seen more": lambda *_: reply(409, b"999999\n", Content_Type="text/x.tlog.size"),
    "says that it is another history": lambda *_: reply(422),
    "floods": lambda *_: reply(200, b"x" * 100_000),
}


@dataclass
class Three:
    """A service that demands two of three witnesses, the third of which is whatever a test wants."""

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


# Each takes two seconds: the rest is part of `make check`.
QUICK = ("dead", "signs by another key")


def test_a_token_is_soon_proved_under_what_the_quorum_has_cosigned(three: Three) -> None:
    before = int(time.time())
    witnessed = demand_cosigned(three.service, issued(three.service))
    assert witnessed.time is not None
    assert before <= witnessed.time <= time.time()
    status = log_status(three.service)
    assert status["origin"] == three.service.settings.log.origin
    assert status["cosigned"]["size"] <= status["size"]
    assert status["cosigned"]["age_s"] < 60


@pytest.mark.parametrize(
    "fault", [each if each in QUICK else pytest.param(each, marks=pytest.mark.long) for each in FAULTS]
)
def test_a_witness_that_fails_is_named_and_the_others_are_enough(three: Three, fault: str) -> None:
    three.third.answering = FAULTS[fault]
    try:
        begun = time.monotonic()
        token = issued(three.service)
        assert time.monotonic() - begun < SLACK_S
        assert demand_cosigned(three.service, token).time
        eventually(lambda: log_status(three.service)["failing_witnesses"] == ["w3"])
        assert told(three.service, "witness fails", "w3")
        assert not told(three.service, "log contradicted", "w3"), "it has shown nothing that the log has signed"
    finally:
        three.third.answering = cosigning
    eventually(lambda: bool(issued(three.service)) and not log_status(three.service)["failing_witnesses"])


@pytest.mark.long
def test_a_sequencer_that_died_is_back_before_a_witness_that_stalls_has_answered(
    tmp_path: Path, provider: LocalProvider
) -> None:
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


# -- sync ------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_where_tokens_wait_for_witnesses_there_is_none_without_a_quorum(
    tmp_path: Path, provider: LocalProvider
) -> None:
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
            begun = time.monotonic()
            refused = service.post(identity)
            assert (refused.status_code, refused.json()["code"]) == (503, "dependency.log")
            assert time.monotonic() - begun < LOG_CALL_S + WITNESS_SYNC_S + SLACK_S
            assert "verify_token" not in refused.text
            eventually(lambda: service.http.get("/health/ready").status_code == 503)
            assert "witnesses" in service.http.get("/health/ready").json()["detail"]

            # Now nothing is appended that would have to wait.
            (size,) = {
                _size(service) for _ in range(WITNESS_MISSES) if service.post(service.token()).status_code == 503
            }

            second.answering = cosigning
            eventually(lambda: service.http.get("/health/ready").status_code == 200)
            again = service.post(identity)
            assert again.status_code == 200, "its use was claimed"
            assert again.json()["log"]["index"] < size, "its leaf was there"
            assert check_proof(service, again.json()["verify_token"], again.json()["log"]["proof"].encode()).time


def _size(service: Running) -> int:
    with contextlib.closing(SqliteReading(Path(log_settings(service.settings, "").database))) as database:
        return int(database.fetch("SELECT size FROM head")[0][0])


# -- starts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_service_that_was_set_back_is_refused_by_its_witness_alone_and_starts_where_that_is_excluded(
    tmp_path: Path, provider: LocalProvider
) -> None:
    log = Begun(tmp_path / "service")
    with witnessing(tmp_path / "w", [log.vkey]) as witness:
        log.trust(witness, quorum=1)
        with log.witnessed(provider) as service:
            demand_cosigned(service, issued(service))
        for name in ("data/log", "records"):
            shutil.copytree(log.folder / name, tmp_path / "old" / name)
        with log.witnessed(provider) as service:
            demand_cosigned(service, issued(service))
        for name in ("data/log", "records"):
            shutil.rmtree(log.folder / name)
            shutil.copytree(tmp_path / "old" / name, log.folder / name)
        with pytest.raises(AssertionError, match=r"log\.rollback.*witness w1"), log.witnessed(provider):
            pass
        witness.kill()
        witness.start()
        with log.witnessed(provider, log_witnesses_excluded="w1") as service:
            assert demand_logged_alone(service)
            assert "no quorum of witnesses" in service.log_text()


def demand_logged_alone(service: Running) -> bool:
    """Have a token issued whose proof nobody has cosigned."""
    place = service.post(service.token()).json()["log"]
    note = parse_note(place["proof"].encode().partition(b"\n\n")[2])
    return len(note.signatures) == 1 and parse_checkpoint(note.text).size > place["index"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"log_witnesses_excluded": "w9"}, "not name a witness 'w9'"),
        ({"log_witness_monitors": "w1"}, "NAME=URL"),
        ({"log_witness_monitors": "w1=http://elsewhere.example"}, "the URL of a witness"),
        ({"log_witness_policy": "", "log_witnesses": "sync"}, "need a policy that names them"),
        ({"log_witness_policy": "/nowhere/policy"}, "/nowhere/policy"),
    ],
)
@pytest.mark.long
def test_settings_of_witnesses_that_mean_nothing_are_refused(
    tmp_path: Path, provider: LocalProvider, changes: dict[str, str], said: str
) -> None:
    log = Begun(tmp_path)
    with ScriptedWitness(cosigning) as witness:
        log.trust(witness, quorum=1)
        with pytest.raises(AssertionError, match=said):  # noqa: SIM117
            with log.served(provider, **({"log_witness_policy": str(log.policy)} | changes)):
                pass


# -- without witnesses -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_witnesses_every_leaf_is_public_within_seconds_and_idle_seconds_add_nothing(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with logged_service(tmp_path, provider) as service:
        for _ in range(3):
            answer = service.post(service.token()).json()
            demand_logged(service, answer)
            assert demand_cosigned(service, answer["verify_token"]).time is None, "nobody has witnessed it"
        eventually(lambda: log_status(service)["cosigned"]["size"] == _size(service))
        kept = _kept(service)
        time.sleep(1.5)
        assert _kept(service) == kept
        assert len(kept) <= _size(service)


def _kept(service: Running) -> list[int]:
    with contextlib.closing(SqliteReading(Path(log_settings(service.settings, "").database))) as database:
        return [int(size) for (size,) in database.fetch("SELECT size FROM cosigned ORDER BY size")]
