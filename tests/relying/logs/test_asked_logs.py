"""Requests to an issuer's log about a token without a proof beside it: over HTTP, bounded, and only its denial counts."""

import json
from pathlib import Path

import pytest

from issuer.relying.logs.proof import MAX_QUESTIONS, AskedLogs
from issuer.relying.verifier import FileVerifier
from issuer.verify import Context
from issuer.verify.check_log import AtHand, sidecar_name
from issuer.verify.report import Report, Status
from tests.support import make
from tests.support.in_process import run
from tests.support.scripted import Action, Scripted, hang_up, reply
from tests.support.tree import write_result
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, trusted_log, write_logged_trust

SUBMISSION = make.submission()
TOKEN = make.token_for(SUBMISSION, log=ORIGIN)
OTHER = make.token_for(make.submission(task_id="other"), log=ORIGIN)
LOG = TestLog(TOKEN, OTHER)
LEAF = leaf_of(TOKEN)
GOOD = LOG.proof(TOKEN, make.NOW, make.NOW)
NO = reply(404, {"code": "log.no_leaf"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_result(tmp_path, make.REPO, "gsm8k.yaml", make.file_for(SUBMISSION, log=ORIGIN))


def judge(file: Path, *answers: Action, require: bool = True, now: int = make.NOW + 9) -> tuple[Report, list[str]]:
    with Scripted(list(answers)) as server:
        required = frozenset({"log"}) if require else frozenset()
        trust = make.trust(log=trusted_log(url=f"{server.url}/log"), require=required)
        context = Context(now, asked=AskedLogs(trust, now, patience_s=0.5))
        (report,) = FileVerifier(trust, None, context).verify(file.read_bytes(), str(file), make.REPO)
        return report, [seen.line for seen in server.seen]


def test_only_a_proof_or_the_log_s_own_denial_decides(file: Path) -> None:
    report, seen = judge(file, reply(200, GOOD))
    assert (report.verdict, report.checks[10].status) == ("verified", Status.PASS)
    assert seen == [f"GET /log/proof?iat={LEAF.iat}&token={LEAF.token.hex()} HTTP/1.1"]
    report, _ = judge(file, NO)
    assert (report.failed, report.checks[10].evidence) == ((11,), "the log answered that it has no such leaf")
    others: dict[str, Action] = {
        "404": reply(404), "a page": reply(404, b"<html>"), "a mirror": reply(404, {"code": "request.not_found"}),
        "pending": reply(503, {"code": "log.pending"}), "500": reply(500), "no answer": hang_up,
        "no proof": reply(200, b"<html>"), "another leaf's": reply(200, LOG.proof(OTHER, make.NOW, make.NOW)),
        "no quorum": reply(200, LOG.proof(TOKEN)), "elsewhere": reply(302, Location="https://elsewhere.example/"),
    }  # fmt: skip
    for name, answer in others.items():
        report, _ = judge(file, answer)
        assert (report.verdict, report.checks[10].status) == ("undecided", Status.UNKNOWN), name


def test_the_log_is_asked_about_a_signed_token_without_a_usable_proof_beside_it(file: Path) -> None:
    beside = file.with_name(sidecar_name(file.name, LEAF.token))
    beside.write_bytes(GOOD)
    report, seen = judge(file, NO)
    assert (report.verdict, seen) == ("verified", [])
    beside.write_bytes(b"?")
    assert judge(file, reply(200, GOOD))[0].verdict == "verified"
    assert judge(file, NO)[0].failed == (11,)
    file.write_text(file.read_text()[:-8] + 'AAAAAA"\n')
    assert judge(file, NO)[1] == [], "its issuer has not signed the token"


def test_a_log_that_is_not_required_is_asked_about_tokens_that_have_ended(file: Path) -> None:
    end = make.NOW + 3600
    assert judge(file, reply(200, GOOD), require=False, now=end)[1] == []
    report, seen = judge(file, reply(200, GOOD), require=False, now=end + 1)
    assert (report.verdict, report.at_from, len(seen)) == ("verified", "log", 1)
    assert judge(file, NO, require=False, now=end + 1)[0].verdict == "good_when_issued", "it has been asked"


def asked_at(url: str = "", **options: float) -> AskedLogs:
    log = trusted_log(url=url) if url else trusted_log()
    return AskedLogs(make.trust(log=log, require=frozenset({"log"})), make.NOW, **options)


def test_requests_to_a_log_are_bounded_and_need_a_good_url() -> None:
    assert LEAF not in asked_at()
    assert "must be https" in asked_at("http://log.example")[LEAF].fault
    with Scripted([hang_up]) as server:
        asked = asked_at(server.url, patience_s=0.3)
        assert asked[LEAF].fault.startswith("the log does not answer")
        count = len(server.seen)
        assert asked.get(LEAF) is None
        assert len(server.seen) == count, "it is not asked again"
    with Scripted([NO]) as server:
        asked = asked_at(server.url)
        found = [asked.get(LEAF) for _ in range(MAX_QUESTIONS + 5)]
    assert found == [AtHand(denied=True)] * MAX_QUESTIONS + [None] * 5
    assert len(server.seen) == MAX_QUESTIONS


def test_the_command_asks_for_one_file_unless_it_is_offline(file: Path) -> None:
    folder = file.parents[3]
    trust = write_logged_trust(folder)
    with Scripted([reply(200, GOOD)]) as server:
        trust.write_text(trust.read_text().replace("{file: policy}", f'{{file: policy}}, url: "{server.url}/log"'))
        asked = ["verify", str(file), "--repo", make.REPO, "--trust", str(trust), "--at", str(make.NOW), "--json"]
        for more, code, status in (([], 0, "pass"), (["--offline"], 4, "unknown")):
            done = run([*asked, *more], folder)
            assert (done.code, json.loads(done.out)["reports"][0]["checks"][10]["status"]) == (code, status)
        assert len(server.seen) == 1
