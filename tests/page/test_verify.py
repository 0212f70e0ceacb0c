"""`/ui/verify` of a real service, and the exported page, as Chromium shows them, compared with `issuer verify`."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.page.site import export
from issuer.results.entry import write_entry
from issuer.verify.check_log import sidecar_name
from tests.support import make
from tests.support.answering import answering
from tests.support.boards import PAYLOADS
from tests.support.browser import drive, looks
from tests.support.browser.steps import (
    FOUND,
    ONCE,
    REPO,
    Steps,
    asking,
    by_trust_file,
    many_entries,
    signed,
    statuses,
    trusting,
    without_404,
)
from tests.support.in_process import run
from tests.support.judging import write_trust
from tests.support.running import Running, body, numbered, running
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, policy_text

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]


def by_command(live: Running, text: str, folder: Path) -> dict[str, Any]:
    """Return the report of `issuer verify` on the same file, under the same trust."""
    (folder / "gsm8k.yaml").write_text(text, "utf-8")
    trust = write_trust(folder, live.url)
    given = ["gsm8k.yaml", "--repo", REPO, "--path", ".eval_results/gsm8k.yaml", "--trust", str(trust), "--json"]
    return dict(json.loads(run(["verify", *given], folder).out)["reports"][0])


def test_a_verified_file_has_the_evidence_of_the_command(live: Running, folder: Path, tmp_path: Path) -> None:
    text, token = signed(live)
    report = by_command(live, text, tmp_path)
    assert report["verdict"] == "verified"
    steps = [
        *asking(live, text), ["texts", "named", "#plan li code"], ["shot", "plan"], ["axe", "axe-plan"], *FOUND,
        ["links", "links", "#answer a"], ["shot", "verified"], ["axe", "axe-answer"], ["focused", "focused"],
    ]  # fmt: skip
    visits = without_404(drive(steps, folder))
    for visit in visits:
        asked = [url for method, url, _ in visit["requests"] if "/.well-known/" in url]
        assert asked == visit["look"]["named"]
        assert not [url for _, url, _ in visit["requests"] if token[:20] in url or token[-20:] in url]
        assert {method for method, _, _ in visit["requests"]} == {"GET"}
    for look in looks(visits, live.url):
        assert look["verdict"][0].startswith("Verified")
        assert statuses(look) == [check["status"] for check in report["checks"]]
        for row, check in zip(look["rows"], report["checks"], strict=True):
            assert f"{check['number']}. {check['name']}" in row
            if check["number"] not in {2, 5}:  # they say when
                assert check["evidence"] in row
        texts = (
            "0.62437518", "inspect-ai", live.url, "github-actions", "What would make it stronger", "This proves", "UTC",
        )  # fmt: skip
        assert [text for text in texts if text not in look["answer"]] == []
        assert all(link.startswith("https://") for link in look["links"])


def test_a_changed_digit_fails_with_both_values_side_by_side(live: Running, folder: Path, tmp_path: Path) -> None:
    text, _ = signed(live)
    changed = text.replace("0.62437518", "0.92437518")
    report = by_command(live, changed, tmp_path)
    steps = [*asking(live, changed), *FOUND, ["shot", "tampered"], ["axe", "axe"]]
    visits = without_404(drive(steps, folder))
    for look in looks(visits, live.url):
        assert look["verdict"][0].startswith("Not verified")
        assert "Verified" not in look["answer"].replace("Not verified", "")
        assert statuses(look) == [check["status"] for check in report["checks"]]
        eighth = look["rows"][7]
        assert "FAIL" in eighth
        assert "0.62437518" in eighth
        assert "0.92437518" in eighth


def test_a_token_alone_is_described_and_never_verified(live: Running, folder: Path) -> None:
    _, token = signed(live)
    texts = {
        "alone": f"  {token}\n",
        "of a file": f'  verify_token: "{token}"\n',
        "of a log": f"{token[:80]}\n{token[80:]}\n",
    }
    for kind, text in texts.items():
        steps = [
            ["goto", f"{live.url}/ui/verify"], ["fill", "#text", text], ["fill", "#audience", AUDIENCE], ["click", "#look"],
            ["wait", "#go"], *FOUND, ["shot", "token"], ["axe", "axe"],
        ]  # fmt: skip
        for look in looks(without_404(drive(steps, folder, themes=["light"])), live.url):
            assert look["verdict"][0].startswith("A token of this issuer"), kind
            assert "Verified" not in look["answer"], kind
            assert statuses(look)[:9] == ["pass"] * 5 + ["skip"] * 4, kind


def test_a_copied_link_has_digests_and_no_token_and_finds_the_entry_again(live: Running, folder: Path) -> None:
    text, token = signed(live)
    steps = [
        *asking(live, text), *FOUND, ["click", "#answer article > details:last-child summary"],
        ["evaluate", "-", "navigator.clipboard.writeText = async (text) => { window.copied = text; }"],
        ["click", "#answer .buttons button"], ["wait", "#answer [role=status]:has-text('Copied')"],
        ["evaluate", "copied", "window.copied"],
    ]  # fmt: skip
    (visit,) = drive(steps, folder, **ONCE)
    copied = visit["look"]["copied"]
    assert copied.startswith(f"{live.url}/ui/verify#")
    assert not [part for part in token.split(".") if part in copied]
    again = [*asking(live, text, page=copied), ["text", "linked", "#linked"], ["value", "repo", "#repo"], *FOUND]
    other, _ = signed(live, numbered(2))
    for sent, wanted in ((text, "is the one that the link names"), (other, "so the link is about another result")):
        again[1] = ["drop", "#what", "gsm8k.yaml", sent]
        (visit,) = drive(again, folder, **ONCE)
        assert "is about the entry" in visit["look"]["linked"]
        assert visit["look"]["repo"] == REPO
        assert wanted in visit["look"]["answer"]


def test_the_trust_is_never_taken_from_a_link(live: Running, folder: Path) -> None:
    link = f"{live.url}/ui/verify#repo=a/b&content=sha256:{'0' * 64}&issuer=https://evil.example&audience=x&trust=y"
    steps = [["goto", link], ["value", "issuer", "#issuer"], ["value", "audience", "#audience"]]
    (look,) = looks(drive(steps, folder, **ONCE), live.url)
    assert (look["issuer"], look["audience"]) == (live.url, "https://huggingface.co")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_from_outside_runs(live: Running, folder: Path, tmp_path: Path, payload: str) -> None:
    """In every field of a file and of a token that a trusted issuer has signed, in the names of files and in a trust file."""
    text = payload.replace("\r\n", " ").replace("\u2028", " ").replace("\x85", " ")
    caller = {"provider": text, "issuer": text, "run_id": text, "job_workflow_ref": text, "sha": text, text: text}
    command = "".join(sign for sign in text if sign.isprintable())
    framework = {"name": "inspect-ai", "version": "1", "command": command}
    item = make.submission(
        {"notes": text, "run": {"selection": {"accuracy": text}, "completeness": text}}, framework=framework
    )
    good = make.file_for(item, iss=make.ISSUER, caller=caller, sub=text)
    quoted = json.dumps(text)
    strange = (
        f"- dataset: {{id: {quoted}, task_id: {quoted}, revision: {quoted}}}\n  model_revision: {quoted}\n"
        f"  framework: {{name: {quoted}, version: {quoted}, command: {quoted}}}\n"
        f"  metrics:\n  - {{metric_id: {quoted}, value: 1, slice: {quoted}}}\n  notes: {quoted}\n  verify_token: {quoted}\n"
    )
    trust = json.loads(trusting(tmp_path).read_bytes())
    trust["issuers"].append({"issuer": text, "keys": {"file": text}})
    (tmp_path / "trust.yaml").write_text(json.dumps(trust), "utf-8")
    for sent in (good, strange):
        steps = [
            ["goto", f"{live.url}/ui/verify"], ["drop", "#what", f"{payload}.yaml", sent], ["wait", "#chosen:has-text('bytes')"],
            ["fill", "#repo", REPO], ["click", "#by-file"], ["files", "#trust-file", [str(tmp_path / "trust.yaml")]],
            ["click", "#look"], ["wait", "#go"], *FOUND, ["evaluate", "title", "document.title"], ["axe", "axe"],
            ["evaluate", "turned", "/[\\u202e\\u2028]/.test(document.body.textContent)"], ["links", "links", "main a"],
        ]  # fmt: skip
        (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
        assert (look["title"], look["turned"], look["links"]) == ("Verify a result", False, [])
        assert not look["verdict"][0].startswith("Verified")
        assert ("Signed by" in look["answer"]) is (sent == good)


def test_a_log_is_asked_and_only_its_own_answer_fails_the_check(live: Running, folder: Path, tmp_path: Path) -> None:
    now = int(time.time()) - 10
    item = make.submission()
    token = make.token_for(item, iat=now, nbf=now, exp=now + 3600, log=ORIGIN)
    proof = TestLog(token).proof(token, now + 1, now + 1)
    (tmp_path / "policy.txt").write_text(policy_text(), "utf-8")
    (tmp_path / "gsm8k.yaml").write_text(write_entry(item.form, token), "utf-8")
    beside = tmp_path / sidecar_name("gsm8k.yaml", leaf_of(token).token)
    beside.write_bytes(proof)
    no = json.dumps({"code": "log.no_leaf"}).encode()
    documents = {"/log/proof": ("text/plain", proof), "/denies/proof": ("application/problem+json", no)}
    with answering(documents) as host:
        for url, given, wanted, status in (
            ("/log", [], "Verified", "pass"), ("", [beside], "Verified", "pass"), ("/none", [], "Undecided", "unknown"),
            ("/denies", [], "Not verified", "fail"),
        ):  # fmt: skip
            log = {"policy": {"file": "policy.txt"}, **({"url": f"{host}{url}"} if url else {})}
            trust = trusting(tmp_path, of_issuer={"log": log}, require=["log"])
            chosen = ["files", "#file", [str(tmp_path / "gsm8k.yaml"), *map(str, given)]]
            steps = [
                *by_trust_file(live.url, chosen, trust), ["files", "#need-0", [str(tmp_path / "policy.txt")]], *FOUND, ["shot", "logged"],
            ]  # fmt: skip
            (look,) = looks(without_404(drive(steps, folder, **ONCE)), live.url, host)
            assert (look["verdict"][0].startswith(wanted), statuses(look)[10]) == (True, status), look["rows"][10]


def test_only_an_eval_yaml_that_the_person_vouches_for_defines_a_benchmark(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    trust, text = trusting(tmp_path, require=["benchmark"]), many_entries(1)
    good = make.BENCHMARK_TEXT.replace('"gsm8k"', '"task-0"')
    dropped, own = ["drop", "#what", "gsm8k.yaml", text], tmp_path / "own.yaml"

    def vouched(definition: str) -> Steps:
        own.write_text(definition)
        before, *rest = by_trust_file(live.url, dropped, trust)
        return [before, ["files", "#definition", [str(own)] if definition else []], *rest]

    for definition, verdict, status in (
        (good, "Verified", "pass"), (make.BENCHMARK_TEXT, "Not verified", "fail"), ("", "Undecided", "unknown"),
    ):  # fmt: skip
        steps = [*vouched(definition), *FOUND, ["axe", "axe"]]
        (look,) = looks(drive(steps, folder, **ONCE), live.url)
        assert (look["verdict"][0].partition("\n")[0], statuses(look)[9]) == (verdict, status)
        digest = f"sha256:{hashlib.sha256(definition.encode()).hexdigest()}"
        assert (digest in look["answer"], "you vouch for" in look["answer"]) == (bool(definition),) * 2
        named = any(f"{side}\ntask task-0" in look["rows"][9] for side in ("In the token", "Here"))
        assert named is (status == "fail")
    noted = [["wait", "#plan .note"], ["text", "plan", "#plan"]]
    (look,) = looks(drive([*vouched("- a\n"), ["click", "#go"], *noted], folder, **ONCE), live.url)
    assert "Not checked" in look["plan"]
    assert "Where: eval.yaml" in look["plan"]
    beside = ["drop", "#what", "gsm8k.yaml", text, "eval.yaml", good]
    steps = [["goto", f"{live.url}/ui/verify"], beside, ["text", "chosen", "#chosen"], ["click", "#look"], *noted]
    (look,) = looks(drive(steps, folder, **ONCE), live.url)
    assert "If you vouch for it, choose it under 3" in look["chosen"]
    assert "1. Drop a result file" in look["plan"], "nothing is judged by a stranger's definition"


def test_many_entries_are_drawn_twenty_at_a_time(live: Running, folder: Path, tmp_path: Path) -> None:
    text = many_entries(45)
    changed = text[:-9000] + text[-9000:].replace("20.9", "20.8", 1)
    assert changed != text
    trust, button = trusting(tmp_path), "#answer > button"
    steps = [
        *by_trust_file(live.url, ["drop", "#what", "gsm8k.yaml", changed], trust), ["text", "plan", "#plan"],
        ["click", "#go"], ["wait", "#answer article"], ["count", "first", "article"], ["texts", "counts", "#answer > div table tr"],
        ["text", "more", button], ["axe", "axe"], ["click", button], ["count", "second", "article"], ["text", "rest", button],
        ["evaluate", "at", "[...document.querySelectorAll('article')].indexOf(document.activeElement)"],
        ["click", button], ["count", "third", "article"], ["count", "buttons", button], ["texts", "verdicts", "article .verdict h2"],
    ]  # fmt: skip
    (look,) = looks(drive(steps, folder, **ONCE), live.url)
    assert "45 entries, 45 with a token" in look["plan"]
    assert [row.split() for row in look["counts"][1:]] == [["Verified", "44"], ["Not", "verified", "1"]]
    assert (look["first"], look["second"], look["third"], look["buttons"]) == (20, 40, 45, 0)
    assert (look["more"], look["rest"], look["at"]) == ("Show more (25 left)", "Show more (5 left)", 20)
    assert sorted(look["verdicts"]) == ["Not verified"] + ["Verified"] * 44


TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}
EXPORTED = {f"/{name}": (TYPES[name.rpartition(".")[2]], raw) for name, raw in export().items()}


def test_the_page_on_another_host_verifies_by_what_the_issuer_publishes(live: Running, folder: Path) -> None:
    text, _ = signed(live)
    with answering(EXPORTED) as host:
        steps = [*asking(live, text, page=f"{host}/index.html"), *FOUND, ["axe", "axe"], ["shot", "exported"]]
        (look,) = looks(without_404(drive(steps, folder, **ONCE)), live.url, host)
    assert look["verdict"][0].startswith("Verified")


def test_a_page_of_a_replaced_version_asks_to_be_loaded_again(live: Running, folder: Path) -> None:
    """Its scripts are gone; or the worker, which it loads later, when the host has another version."""
    text, _ = signed(live)
    without_scripts = {path: file for path, file in EXPORTED.items() if not path.endswith(".js")}
    with answering(without_scripts) as host:
        steps = [["goto", f"{host}/index.html"], ["wait", "#late"], ["text", "late", "#late"], ["axe", "axe"]]
        (look,) = looks(without_404(drive(steps, folder, **ONCE)), host)
    assert "Load the page again" in look["late"]
    for missing in ("/ui/checking.js", "/verify/index.js"):
        with answering({path: file for path, file in EXPORTED.items() if not path.endswith(missing)}) as host:
            asked = asking(live, text, page=f"{host}/index.html")
            asked += [["text", "plan", "#plan"], ["workers", "left", 0]]
            (look,) = looks(without_404(drive(asked, folder, **ONCE)), live.url, host)
        assert "so there is no verdict" in look["plan"]
        assert look["left"] == 0
    with answering(EXPORTED) as host:
        steps = [["goto", f"{host}/index.html"], ["count", "late", "#late"]]
        (look,) = looks(drive(steps, folder, **ONCE), host)
    assert look["late"] == 0
    gone = live.http.get("/ui/static/0123456789abcdef/ui/verifying.js")
    assert (gone.status_code, gone.headers["cache-control"]) == (404, "no-store")


def test_the_whole_page_is_done_by_the_keyboard(live: Running, folder: Path) -> None:
    text, _ = signed(live, body(task_id="gsm8k"))
    steps = [
        *asking(live, text), ["focused", "after-look"], ["press", "Enter"], ["wait", "#answer .checks"],
        ["focused", "after-check"], ["texts", "verdict", "#answer .verdict"],
    ]  # fmt: skip
    (visit,) = drive(steps, folder, **ONCE)
    assert (visit["look"]["after-look"], visit["look"]["after-check"]) == ("go", "answer")
    assert visit["look"]["verdict"][0].startswith("Verified")


def test_a_service_whose_pages_are_off_has_none(tmp_path: Path) -> None:
    with LocalProvider() as provider, running(tmp_path, provider, ui=False) as service:
        for path in ("/ui", "/ui/verify", "/ui/refused"):
            assert service.http.get(path).status_code == 404
        assert b"ui/" not in service.http.get("/", headers={"Accept": "text/html"}).content
