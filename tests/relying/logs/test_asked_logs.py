"""Asking an issuer's log about a token whose proof is not at hand: over HTTP, bounded, and only its no is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.relying.logs.proof import MAX_QUESTIONS, AskedLogs
from issuer.relying.verifier import FileVerifier
from issuer.verify import Context
from issuer.verify.check_log import AtHand, sidecar_name
from issuer.verify.report import Report, Status
from tests.support import make
from tests.support.command import issuer
from tests.support.scripted import Action, Scripted, hang_up, reply
from tests.support.tree import write_result
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, trusted_log, write_logged_trust

SAID = make.submission()
TOKEN = make.token_for(SAID, log=ORIGIN)
OTHER = make.token_for(make.submission(task_id="other"), log=ORIGIN)
LOG = TestLog(TOKEN, OTHER)
LEAF = leaf_of(TOKEN)
GOOD = LOG.proof(TOKEN, make.NOW, make.NOW)
NO = reply(404, {"code": "log.no_leaf"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_result(tmp_path, make.REPO, "gsm8k.yaml", make.file_for(SAID, log=ORIGIN))


def judge(file: Path, *answers: Action, require: bool = True, now: int = make.NOW + 9) -> tuple[Report, list[str]]:
    with Scripted(list(answers)) as server:
        required = frozenset({"log"}) if require else frozenset()
        trust = make.trust(log=trusted_log(url=f"{server.url}/log"), require=required)
        context = Context(now, asked=AskedLogs(trust, now, patience_s=0.5))
        (report,) = FileVerifier(trust, None, context).verify(file.read_bytes(), str(file), make.REPO)
        return report, [seen.line for seen in server.seen]


def test_a_proof_that_the_log_gives_serves_as_one_beside_the_file(file: Path) -> None:
    report, seen = judge(file, reply(200, GOOD))
    assert (report.verdict, report.checks[10].status) == ("verified", Status.PASS)
    assert seen == [f"GET /log/proof?iat={LEAF.iat}&token={LEAF.token.hex()} HTTP/1.1"]


def test_the_log_s_own_no_is_a_no(file: Path) -> None:
    report, _ = judge(file, NO)
    assert (report.failed, report.checks[10].evidence) == ((11,), "the log answered that it has no such leaf")


@pytest.mark.parametrize(
    "answer",
    [
        reply(404), reply(404, b"<html>"), reply(404, {"code": "request.not_found"}), reply(503, {"code": "log.pending"}), reply(500), hang_up,
        reply(200, b"<html>"), reply(200, LOG.proof(OTHER, make.NOW, make.NOW)), reply(200, LOG.proof(TOKEN)), reply(302, Location="https://elsewhere.example/"),
    ],
    ids=["404", "a page", "a mirror", "pending", "500", "no answer", "no proof", "another leaf's", "no quorum", "elsewhere"],
)  # fmt: skip
def test_anything_else_decides_nothing(file: Path, answer: Action) -> None:
    report, _ = judge(file, answer)
    assert (report.verdict, report.checks[10].status) == ("undecided", Status.UNKNOWN)


def test_a_proof_beside_the_file_that_serves_has_nobody_asked_and_one_that_does_not_has(file: Path) -> None:
    beside = file.with_name(sidecar_name(file.name, LEAF.token))
    beside.write_bytes(GOOD)
    report, seen = judge(file, NO)
    assert (report.verdict, seen) == ("verified", [])
    beside.write_bytes(b"?")
    assert judge(file, reply(200, GOOD))[0].verdict == "verified"
    assert judge(file, NO)[0].failed == (11,)


def test_where_the_log_is_not_required_it_is_asked_of_tokens_that_have_ended(file: Path) -> None:
    end = make.NOW + 3600
    assert judge(file, reply(200, GOOD), require=False, now=end)[1] == []
    report, seen = judge(file, reply(200, GOOD), require=False, now=end + 1)
    assert (report.verdict, report.at_from, len(seen)) == ("verified", "log", 1)
    assert judge(file, NO, require=False, now=end + 1)[0].verdict == "good_when_issued", "it has been asked"


def test_a_token_that_its_issuer_has_not_signed_is_asked_about_nowhere(file: Path) -> None:
    file.write_text(file.read_text()[:-8] + 'AAAAAA"\n')
    assert judge(file, NO)[1] == []


def test_a_log_without_a_url_is_not_asked_nor_is_one_that_does_not_answer_asked_again() -> None:
    trust = make.trust(log=trusted_log(), require=frozenset({"log"}))
    assert LEAF not in AskedLogs(trust, make.NOW)
    with Scripted([hang_up]) as server:
        asked = AskedLogs(
            make.trust(log=trusted_log(url=server.url), require=frozenset({"log"})), make.NOW, patience_s=0.3
        )
        assert asked[LEAF].fault.startswith("the log does not answer")
        count = len(server.seen)
        assert asked.get(LEAF) is None
        assert len(server.seen) == count


def test_a_file_has_a_log_asked_a_hundred_times_at_most() -> None:
    with Scripted([NO]) as server:
        asked = AskedLogs(make.trust(log=trusted_log(url=server.url), require=frozenset({"log"})), make.NOW)
        found = [asked.get(LEAF) for _ in range(MAX_QUESTIONS + 5)]
    assert found == [AtHand(denied=True)] * MAX_QUESTIONS + [None] * 5
    assert len(server.seen) == MAX_QUESTIONS


def test_a_url_that_may_not_be_asked_says_so() -> None:
    asked = AskedLogs(make.trust(log=trusted_log(url="http://log.example"), require=frozenset({"log"})), make.NOW)
    assert "must be https" in asked[LEAF].fault


def command(file: Path, url: str, *more: str) -> tuple[int, Any]:
    trust = write_logged_trust(file.parents[3])
    trust.write_text(trust.read_text().replace("{file: policy}", f'{{file: policy}}, url: "{url}/log"'))
    done = issuer("verify", file, "--repo", make.REPO, "--trust", trust, "--at", make.NOW, "--json", *more)
    return done.returncode, json.loads(done.stdout)["reports"][0]["checks"][10]["status"]


def test_the_command_asks_for_one_file_unless_it_is_offline(file: Path) -> None:
    with Scripted([reply(200, GOOD)]) as server:
        assert command(file, server.url) == (0, "pass")
        assert command(file, server.url, "--offline") == (4, "unknown")
        assert len(server.seen) == 1
