"""Quick changes on a page, and a thief beside it: an answer is never drawn for another question. In Chromium."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.sandbox import AUDIENCE
from tests.support.answering import STALLS, answering
from tests.support.browser import drive
from tests.support.browser.steps import FOUND, ONCE, REPO, Steps, asking, by_trust_file, signed
from tests.support.lying import lying
from tests.support.running import BODY, Running

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]

LEFT: Steps = [["count", "plan", "#plan > *"], ["count", "answer", "#answer > *"]]
# The names of files, dropped together on a place; says whether the page took the drop from the browser.
DROP = """(() => {
  const dropped = new DataTransfer();
  for (const name of %s) dropped.items.add(new File(["- {}"], name));
  if (!dropped.items.length) dropped.setData("text/plain", "a text");
  const drop = new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true });
  document.querySelector("%s").dispatchEvent(drop);
  return drop.defaultPrevented;
})()"""


def visit(steps: Sequence[object], folder: Path) -> dict[str, Any]:
    (seen,) = drive(steps, folder, **ONCE)
    return dict(seen)


def dropped(name: str, place: str, *names: str) -> list[object]:
    return ["evaluate", name, DROP % (json.dumps(names), place)]


def waits(seconds: float) -> list[object]:
    return ["evaluate", "-", f"new Promise((done) => setTimeout(done, {seconds * 1000}))"]


def test_another_link_in_the_same_page_clears_the_answer(live: Running, folder: Path) -> None:
    text, _ = signed(live)
    link = f"#repo=evil/model&content=sha256:{'0' * 64}&path=a%E2%80%AEb"
    steps = [
        *asking(live, text), *FOUND, ["evaluate", "-", f"location.hash = '{link}'"], ["wait", "#linked .note"],
        ["value", "repo", "#repo"], ["value", "path", "#path"], *LEFT,
    ]  # fmt: skip
    look = visit(steps, folder)["look"]
    assert look["verdict"][0].startswith("Verified")
    assert (look["repo"], look["path"], look["plan"], look["answer"]) == ("evil/model", "", 0, 0)


def test_a_second_check_clears_the_answer_of_the_first(live: Running, folder: Path, tmp_path: Path) -> None:
    text, _ = signed(live)
    (tmp_path / "keys.json").write_bytes(live.http.get("/.well-known/jwks.json").content)
    (tmp_path / "large.json").write_bytes(b" " * (5 * 1024 * 1024))
    trust = {"version": 1, "audience": AUDIENCE, "issuers": [{"issuer": live.url, "keys": {"file": "keys.json"}}]}
    (tmp_path / "trust.yaml").write_text(json.dumps(trust), "utf-8")
    steps = [
        *by_trust_file(live.url, ["drop", "#what", "gsm8k.yaml", text], tmp_path / "trust.yaml"),
        ["files", "#need-0", [str(tmp_path / "keys.json")]], *FOUND,
        ["files", "#need-0", [str(tmp_path / "large.json")]], ["count", "changed", "#answer > *"],
        ["click", "#go"], ["wait", "#plan .note.bad"], *LEFT,
    ]  # fmt: skip
    look = visit(steps, folder)["look"]
    assert look["verdict"][0].startswith("Verified")
    assert (look["changed"], look["answer"]) == (0, 0)


def test_a_changed_form_stops_the_requests_of_the_check_before(live: Running, folder: Path, tmp_path: Path) -> None:
    text, _ = signed(live)
    with answering({"/later": ("application/json", b"{}")}) as elsewhere:
        issuer = {"issuer": live.url, "keys": {"url": f"{elsewhere}{STALLS}"}, "archive": {"url": f"{elsewhere}/later"}}
        trust = {"version": 1, "audience": AUDIENCE, "issuers": [issuer]}
        (tmp_path / "trust.yaml").write_text(json.dumps(trust), "utf-8")
        steps = [
            *by_trust_file(live.url, ["drop", "#what", "gsm8k.yaml", text], tmp_path / "trust.yaml"), ["click", "#go"], ["wait", "#plan .busy:has-text('0 of 2')"], ["fill", "#repo", "other/model"], waits(17), *LEFT,
        ]  # fmt: skip
        seen = visit(steps, folder)
        asked = [url for _, url, _ in seen["requests"] if url.startswith(elsewhere)]
    assert asked == [f"{elsewhere}{STALLS}"]
    assert (seen["look"]["plan"], seen["look"]["answer"]) == (0, 0)


def test_many_files_are_refused_and_another_file_replaces_the_one_before(live: Running, folder: Path) -> None:
    text, _ = signed(live)
    many = [f"{number}.yaml" for number in range(100)]
    steps: Steps = [
        ["goto", f"{live.url}/ui/verify"], dropped("-", "#what", "a.yaml", "a.tlog-proof"),
        ["text", "first", "#chosen"], ["value", "of-first", "#path"], dropped("-", "#what", "b.yaml"),
        ["text", "second", "#chosen"], ["value", "of-second", "#path"],
        dropped("-", "#what", "b.yaml", "eval.yaml"), ["text", "beside", "#chosen"],
        dropped("-", "#what", *many[:2]), ["text", "two", "#chosen"],
        dropped("-", "#what", *many), ["text", "many", "#chosen"], ["click", "#look"], ["wait", "#plan .note"], ["text", "plan", "#plan"],
        dropped("-", "#what", "c.yaml"), ["fill", "#text", text], ["text", "pasted", "#chosen"],
    ]  # fmt: skip
    look = visit(steps, folder)["look"]
    assert all(name in look["first"] for name in ("a.yaml", "proofs of the log: 1"))
    assert look["second"] == "b.yaml, 4 bytes"
    assert look["beside"].startswith("eval.yaml is a benchmark's definition, not a result.")
    assert (look["of-first"], look["of-second"]) == (".eval_results/a.yaml", ".eval_results/b.yaml")
    assert "2 result files. One is checked at a time" in look["two"]
    assert "100 result files" in look["many"]
    assert "One is checked at a time" in look["many"]
    assert "1. Drop a result file" in look["plan"]
    assert "c.yaml" not in look["pasted"]


def test_the_opener_of_a_page_has_no_access_to_it(live: Running, folder: Path) -> None:
    with answering({"/thief": ("text/html", b"<title>thief</title>")}) as elsewhere:
        steps: Steps = [
            ["goto", f"{elsewhere}/thief"], ["evaluate", "-", f"void (window.opened = open('{live.url}/ui/verify'))"], waits(4),
            ["evaluate", "held", "!window.opened.closed"],
        ]  # fmt: skip
        assert visit(steps, folder)["look"]["held"] is False


def test_a_paste_of_twenty_megabytes_is_refused_unread(live: Running, folder: Path) -> None:
    steps: Steps = [
        ["goto", f"{live.url}/ui/verify"], ["evaluate", "-", "document.getElementById('text').value = 'a'.repeat(2e7)"],
        ["fill", "#repo", REPO], ["click", "#look"], ["wait", "#plan .note"], ["text", "plan", "#plan"],
    ]  # fmt: skip
    assert "longer than 1 MiB" in visit(steps, folder)["look"]["plan"]


def test_a_file_beside_the_place_for_files_opens_nothing(live: Running, folder: Path) -> None:
    for page, place in (("verify", "#what"), ("refused", "#paste")):
        steps: Steps = [
            ["goto", f"{live.url}/ui/{page}"], dropped("beside", "h1", "a.yaml"), dropped("on", place, "a.yaml"),
            dropped("text", place), *([dropped("input", "#trust-file", "a.yaml")] if page == "verify" else []),
        ]  # fmt: skip
        look = visit(steps, folder)["look"]
        assert (look["beside"], look["on"], look["text"], look.get("input", False)) == (True, True, False, False)


def test_an_answer_belongs_to_its_question_and_a_pasted_one_is_not_trusted(live: Running, folder: Path) -> None:
    granted = json.dumps({"verdict": "granted", "checks": []})
    ask: Steps = [["fill", "#credential", live.token()], ["fill", "#body", json.dumps(BODY)], ["click", "#send"]]
    steps: Steps = [
        ["goto", f"{live.url}/ui/refused"], ["fill", "#problem", granted], ["click", "#paste button[type=submit]"],
        ["wait", "#answer .verdict"], ["text", "pasted", "#answer .verdict"], ["count", "good", "#answer .good"],
        ["fill", "#problem", "{}"], ["count", "other", "#answer > *"],
        *ask, ["wait", "#explained .verdict.good"], ["fill", "#body", "{}"], ["count", "edited", "#explained > *"],
        dropped("-", "#paste", "a.json", "b.json"), ["text", "two", "#answer"],
    ]  # fmt: skip
    look = visit(steps, folder)["look"]
    assert look["pasted"].startswith("What you pasted says")
    assert (look["good"], look["other"], look["edited"]) == (0, 0, 0)
    assert "One answer is read at a time" in look["two"]


def test_the_answer_to_a_forgotten_credential_is_not_shown(live: Running, folder: Path) -> None:
    def slow(path: str, body: bytes) -> bytes:
        time.sleep(2 if path == "/tokens/explain" else 0)  # a slow peer
        return body

    with lying(live, slow) as url:
        steps: Steps = [
            ["goto", f"{url}/ui/refused"], ["fill", "#credential", live.token()], ["click", "#send"],
            ["wait", "#explained .busy"], ["click", "#forget"], waits(4), ["count", "left", "#explained > *"],
            ["value", "credential", "#credential"],
        ]  # fmt: skip
        look = visit(steps, folder)["look"]
    assert (look["left"], look["credential"]) == (0, "")


def test_a_credential_is_kept_in_no_place_that_outlives_the_page(live: Running, folder: Path) -> None:
    credential = live.token()
    kept = "JSON.stringify([location.href, document.referrer, {...localStorage}, {...sessionStorage}, history.state])"
    steps: Steps = [
        ["goto", f"{live.url}/ui/refused"], ["fill", "#credential", credential], ["click", "#send"],
        ["wait", "#explained .verdict"], ["evaluate", "kept", kept], ["reload"], ["value", "reloaded", "#credential"],
        ["fill", "#credential", credential], ["click", "nav a"], ["wait", "body:not(:has(#credential))"],
        ["evaluate", "elsewhere", kept], ["back"], ["value", "back", "#credential"],
    ]  # fmt: skip
    look = visit(steps, folder)["look"]
    assert (look["reloaded"], look["back"]) == ("", "")
    assert credential[:20] not in look["kept"] + look["elsewhere"]
    assert '""' in look["elsewhere"]  # no referrer
