"""`/ui` and `/ui/refused` of a real service as Chromium shows them."""

import json
from pathlib import Path

import pytest

from tests.support.boards import PAYLOADS
from tests.support.browser import drive, looks
from tests.support.running import BODY, Running, body

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]


def test_the_first_page_leads_to_the_others(live: Running, folder: Path) -> None:
    steps = [["goto", f"{live.url}/ui"], ["axe", "axe"], ["shot", "index"], ["links", "links", ".cards a"]]
    for look in looks(drive(steps, folder), live.url):
        assert look["links"] == [f"{live.url}/ui/{name}" for name in ("verify", "refused")]


def test_a_pasted_refusal_is_shown_check_by_check_with_the_next_step(live: Running, folder: Path) -> None:
    refusal = live.post(live.token(ref="refs/heads/fork"), BODY)
    assert refusal.status_code == 403
    steps = [
        ["goto", f"{live.url}/ui/refused"], ["shot", "refused-empty"], ["axe", "axe-empty"],
        ["fill", "#problem", f"2026-11-23 error: {refusal.text} (end of the log)"],
        ["click", "#paste button[type=submit]"], ["wait", "#answer table"],
        ["text", "verdict", "#answer .verdict"], ["texts", "rows", ".checks tbody tr"], ["text", "next", "#answer .note"],
        ["shot", "refused"], ["axe", "axe-answer"],
    ]  # fmt: skip
    for look in looks(drive(steps, folder), live.url):
        assert look["verdict"].startswith("Refused: ")
        assert "identity.claim_mismatch" in look["verdict"]
        first, *others = look["rows"]
        assert [text for text in ("failed", "refs/heads/fork", "refs/heads/main") if text not in first] == []
        assert others
        assert all("passed" in row for row in others)
        assert look["next"].startswith("What to do")


def test_the_issuer_explains_a_credential_that_is_sent_nowhere_else(live: Running, folder: Path) -> None:
    for token, sent, wanted in (
        (live.token(), BODY, "This would be granted"),
        (live.token(), body(task_id="other task"), "Refused"),
        (live.token(ref="refs/heads/fork"), {}, "This would be refused"),
        ("no-token", {}, "Refused"),
    ):
        live.secrets.append(token)
        steps = [
            ["goto", f"{live.url}/ui/refused"], ["fill", "#credential", f"Bearer {token}"],
            ["fill", "#body", json.dumps(sent)], ["click", "#send"], ["wait", "#explained .verdict"],
            ["text", "verdict", "#explained .verdict"], ["shot", "explained"], ["axe", "axe"],
            ["click", "#forget"], ["value", "left", "#credential"], ["count", "answers", "#explained > *"],
        ]  # fmt: skip
        visits = drive(steps, folder, themes=["dark"], widths=[360])
        for visit in visits:
            visit["said"] = [line for line in visit["said"] if "the server responded with a status of 4" not in line]
            shown = [(method, url) for method, url, given in visit["requests"] if given or token in url]
            assert shown == [("POST", f"{live.url}/tokens/explain")]
        (look,) = looks(visits, live.url)
        assert look["verdict"].startswith(wanted)
        assert (look["left"], look["answers"]) == ("", 0)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_from_outside_runs_on_the_page_of_refusals(live: Running, folder: Path, payload: str) -> None:
    check = dict.fromkeys(("code", "pointer", "rule", "actual", "expected", "hint"), payload)
    fault = dict.fromkeys(("pointer", "code", "detail"), payload)
    problem = {
        **dict.fromkeys(("type", "title", "detail", "instance", "code", "request_id"), payload), "status": 403,
        "retryable": False, "errors": [fault], "checks": [{**check, "passed": False}], "warnings": [payload],
    }  # fmt: skip
    explained = {
        **dict.fromkeys(("integration", "identity", "policy", "audience", "code", "request_id"), payload),
        "verdict": "refused", "checks": [{**check, "passed": True}], "warnings": [payload],
    }  # fmt: skip
    for answer in (problem, explained):
        steps = [
            ["goto", f"{live.url}/ui/refused"], ["drop", "#paste", f"{payload}.json", json.dumps(answer)],
            ["wait", "#answer table"], ["evaluate", "title", "document.title"], ["axe", "axe"],
            ["evaluate", "turned", "/[\\u202e\\u2028]/.test(document.getElementById('answer').textContent)"],
        ]  # fmt: skip
        (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
        assert (look["title"], look["turned"]) == ("Why was I refused?", False)


def test_another_text_or_a_too_long_one_gets_a_clear_message(live: Running, folder: Path) -> None:
    for text, wanted in (
        ("", "Paste an answer first"),
        ("an error, it says", "no JSON object"),
        ('{"a": 1}', "not an issuer's answer"),
        ("{" * 300_000, "More than 256 KiB"),
        (f'{{"code": "x.y", "checks": {"[" * 50_000}{"]" * 50_000}}}', "Refused"),
        (f'{{"code": "x.y", "errors": [{",".join(["{}"] * 60_000)}]}}', "59,800 more are not shown"),
    ):
        steps = [
            ["goto", f"{live.url}/ui/refused"], ["fill", "#problem", text], ["click", "#paste button[type=submit]"],
            ["wait", "#answer > *"], ["text", "answer", "#answer"],
        ]  # fmt: skip
        (look,) = looks(drive(steps, folder, themes=["light"], widths=[1280]), live.url)
        assert wanted in look["answer"]
