"""`issuer doctor` for a caller: against a real issuer, and against servers that are not one."""

import json
import random
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from issuer.client.credential import identity_token
from issuer.client.doctor import examine
from issuer.dev.provider import LocalProvider
from issuer.identity import pat
from tests.support import make
from tests.support.in_process import Done, run
from tests.support.running import Running, body, running
from tests.support.scripted import Scripted, reply

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def doctor(
    folder: Path, url: str, *more: str, env: dict[str, str] | None = None
) -> tuple[Done, dict[str, dict[str, str]]]:
    done = run(["doctor", "--issuer", url, "--json", *more], folder, env=env or {})
    document = json.loads(done.out)
    assert (document["version"], document["issuer"], done.err) == (1, url, "")
    return done, {line["name"]: line for line in document["lines"]}


def verdicts(lines: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: line["verdict"] for name, line in lines.items()}


def test_every_check_of_a_registered_job_passes(tmp_path: Path, service: Running) -> None:
    done, lines = doctor(tmp_path, service.url, env=service.provider.environment)
    assert done.code == 0, done
    assert set(verdicts(lines).values()) == {"pass"}
    assert list(lines) == ["issuer", "clock", "keys", "identity", "provider", "audience", "life", "registered"]
    assert "inspect-ai/" in lines["registered"]["detail"]
    assert service.provider.issuer in lines["identity"]["detail"]


@pytest.mark.long
def test_two_hundred_jobs_may_run_doctor_under_the_default_limits(tmp_path: Path) -> None:
    """More than sixty refusals in an hour would end in a quarantine; after thirty the service warns."""
    with LocalProvider() as provider, running(tmp_path, provider, limits="limits: {}\n") as live:
        for _ in range(200):
            lines = list(examine(live.url, lambda: identity_token(live.token(), "a test"), int(time.time())))
            assert {line.verdict for line in lines} == {"pass"}, lines
        assert {event.get("verdict") for event in live.audit()} <= {"granted", None}
        answer = live.post(live.token(), body(benchmark_repo="x/y")).json()
    assert (answer["code"], answer.get("warnings")) == ("policy.benchmark", None)


def test_each_fault_of_an_identity_fails_one_check_with_the_next_step(tmp_path: Path, service: Running) -> None:
    rows: list[tuple[dict[str, Any], str, str]] = [
        ({"iss": "https://elsewhere.example"}, "provider", "identity.issuer_unknown"),
        ({"iat": 1, "nbf": 1, "exp": 300}, "life", "identity.expired"),
        ({"repository_id": "1"}, "registered", "integration.unknown"),
        ({"ref": "refs/heads/other"}, "registered", "identity.claim_mismatch"),
    ]
    for claims, name, code in rows:
        done, lines = doctor(tmp_path, service.url, env={"ISSUER_ID_TOKEN": service.token(**claims)})
        assert (done.code, lines[name]["verdict"], lines[name]["code"]) == (5, "FAIL", code)
        assert lines[name]["next"]
    token = service.provider.token("https://other.example")
    done = run(["doctor", "--issuer", service.url], tmp_path, env={"ISSUER_ID_TOKEN": token})
    assert done.code == 5
    assert "FAIL     audience: the token's audience is https://other.example; the issuer requires " in done.out
    assert "(identity.audience_mismatch)\n         next: " in done.out
    assert not any(part in done.out + done.err for part in token.split(".")), "no line holds the token"
    assert "registered" not in done.out, "checks that depend on a failed one are left out"
    unknown = pat.make(random.Random(3).randbytes(pat.RANDOM_BYTES))  # only the service knows that it is unregistered
    done, lines = doctor(tmp_path, service.url, env={"ISSUER_ACCESS_TOKEN": unknown})
    assert (done.code, lines["identity"]["verdict"], lines["registered"]["verdict"]) == (5, "pass", "FAIL")
    assert ((pat.token_id(unknown) or unknown) in lines["identity"]["detail"], unknown in done.out) == (True, False)


def test_the_clock_is_compared_with_the_issuer_s(tmp_path: Path) -> None:
    for skew_s, verdict in {0: "pass", 20: "warning", -20: "warning", 90: "FAIL", -90: "FAIL", None: "warning"}.items():
        date = {} if skew_s is None else {"Date": formatdate(time.time() - skew_s, usegmt=True)}
        with Scripted([]) as server:
            server.actions.append(reply(200, {"issuer": server.url}, **date))
            _, lines = doctor(tmp_path, server.url)
        assert (lines["clock"]["verdict"], bool(lines["clock"]["next"])) == (verdict, verdict != "pass"), skew_s


def test_a_server_that_is_not_the_issuer_fails_and_gets_no_identity(tmp_path: Path) -> None:
    for answer, code, ends in (
        (reply(200, {"issuer": "https://other.example"}), "answer.unverified", 1),
        (reply(200, b"<html>"), "dependency.server", 4),
        (reply(404), "dependency.server", 4),
        (reply(200, b" " * 300_000), "dependency.server", 4),
    ):
        with Scripted([answer]) as server:
            env = {"ISSUER_ID_TOKEN": make.token_for(make.submission())}
            done, lines = doctor(tmp_path, server.url, env=env)
            assert [seen.line.split()[0] for seen in server.seen] == ["GET"]
        assert (done.code, lines["issuer"]["verdict"], lines["issuer"]["code"]) == (ends, "FAIL", code)
    done, lines = doctor(tmp_path, NOWHERE)
    assert done.code == 6, "a fault of this machine is worse than a server that does not answer"
    assert verdicts(lines) == {"issuer": "FAIL", "identity": "FAIL"}
    assert (lines["issuer"]["code"], lines["identity"]["code"]) == ("dependency.server", "credential.absent")
    alone, _ = doctor(tmp_path, NOWHERE, env={"ISSUER_ID_TOKEN": make.token_for(make.submission())})
    assert alone.code == 4
