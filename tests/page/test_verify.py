"""`/ui/verify` of a real service, and the exported page, as Chromium shows them; beside what `issuer verify` says."""

from __future__ import annotations

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
from tests.support.answering import STALLS, answering
from tests.support.boards import PAYLOADS
from tests.support.browser import drive, looks
from tests.support.browser.steps import FOUND, REPO, asking, signed, statuses
from tests.support.in_process import run
from tests.support.judging import write_trust
from tests.support.running import Running, body, numbered, running
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, policy_text

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]


def by_command(live: Running, text: str, folder: Path) -> dict[str, Any]:
    """Return what `issuer verify` says of the same file, under the same trust."""
    (folder / "gsm8k.yaml").write_text(text, "utf-8")
    trust = write_trust(folder, live.url)
    given = ["gsm8k.yaml", "--repo", REPO, "--path", ".eval_results/gsm8k.yaml", "--trust", str(trust), "--json"]
    return dict(json.loads(run(["verify", *given], folder).out)["reports"][0])


def test_a_file_is_verified_with_the_evidence_of_each_check_as_the_command_has_it(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    text, token = signed(live)
    said = by_command(live, text, tmp_path)
    assert said["verdict"] == "verified"
    steps = [
        *asking(live, text), ["texts", "named", "#plan li code"], ["shot", "plan"], ["axe", "axe-plan"], *FOUND,
        ["links", "links", "#answer a"], ["shot", "verified"], ["axe", "axe-answer"], ["focused", "focused"],
    ]  # fmt: skip
    visits = drive(steps, folder)
    for visit in visits:
        visit["said"] = [line for line in visit["said"] if "status of 404" not in line]  # it has revoked nothing
        asked = [url for method, url, _ in visit["requests"] if "/.well-known/" in url]
        assert asked == visit["look"]["named"]
        assert not [url for _, url, _ in visit["requests"] if token[:20] in url or token[-20:] in url]
        assert {method for method, _, _ in visit["requests"]} == {"GET"}
    for look in looks(visits, live.url):
        assert look["verdict"][0].startswith("Verified")
        assert statuses(look) == [check["status"] for check in said["checks"]]
        for row, check in zip(look["rows"], said["checks"], strict=True):
            assert f"{check['number']}. {check['name']}" in row
            if check["number"] not in {2, 5}:  # they say when
                assert check["evidence"] in row
        for told in (
            "0.62437518",
            "inspect-ai",
            live.url,
            "github-actions",
            "What would make it stronger",
            "This proves",
        ):
            assert told in look["answer"]
        assert "UTC" in look["answer"]
        assert all(link.startswith("https://") for link in look["links"])


def test_a_tampered_digit_is_never_verified_and_both_values_stand_beside_each_other(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    text, _ = signed(live)
    changed = text.replace("0.62437518", "0.92437518")
    said = by_command(live, changed, tmp_path)
    steps = [*asking(live, changed), *FOUND, ["shot", "tampered"], ["axe", "axe"]]
    visits = drive(steps, folder)
    for visit in visits:
        visit["said"] = [line for line in visit["said"] if "status of 404" not in line]
    for look in looks(visits, live.url):
        assert look["verdict"][0].startswith("Not verified")
        assert "Verified" not in look["answer"].replace("Not verified", "")
        assert statuses(look) == [check["status"] for check in said["checks"]]
        eighth = look["rows"][7]
        assert "FAIL" in eighth
        assert "0.62437518" in eighth
        assert "0.92437518" in eighth


def test_a_token_alone_is_told_and_never_verified(live: Running, folder: Path) -> None:
    _, token = signed(live)
    steps = [
        ["goto", f"{live.url}/ui/verify"], ["fill", "#text", f"  {token}\n"], ["fill", "#audience", AUDIENCE], ["click", "#look"],
        ["wait", "#go"], *FOUND, ["shot", "token"], ["axe", "axe"],
    ]  # fmt: skip
    visits = drive(steps, folder, themes=["light"])
    for visit in visits:
        visit["said"] = [line for line in visit["said"] if "status of 404" not in line]
    for look in looks(visits, live.url):
        assert look["verdict"][0].startswith("A token of this issuer")
        assert "Verified" not in look["answer"]
        assert statuses(look)[:9] == ["pass"] * 5 + ["skip"] * 4


def test_a_copied_link_has_digests_and_no_token_and_finds_the_entry_again(live: Running, folder: Path) -> None:
    text, token = signed(live)
    steps = [
        *asking(live, text), *FOUND, ["click", "#answer article > details:last-child summary"],
        ["evaluate", "-", "navigator.clipboard.writeText = async (text) => { window.copied = text; }"],
        ["click", "#answer .buttons button"], ["wait", "#answer [role=status]:has-text('Copied')"],
        ["evaluate", "copied", "window.copied"],
    ]  # fmt: skip
    (visit,) = drive(steps, folder, themes=["light"], widths=[1280])
    copied = visit["look"]["copied"]
    assert copied.startswith(f"{live.url}/ui/verify#")
    assert not [part for part in token.split(".") if part in copied]
    again = [*asking(live, text, page=copied), ["text", "linked", "#linked"], ["value", "repo", "#repo"], *FOUND]
    other, _ = signed(live, numbered(2))
    for sent, wanted in ((text, "is the one that the link speaks of"), (other, "it speaks of another result")):
        again[1] = ["drop", "#what", "gsm8k.yaml", sent]
        (visit,) = drive(again, folder, themes=["light"], widths=[1280])
        assert "speaks of the entry" in visit["look"]["linked"]
        assert visit["look"]["repo"] == REPO
        assert wanted in visit["look"]["answer"]


def test_whom_to_trust_is_never_taken_from_a_link(live: Running, folder: Path) -> None:
    link = f"{live.url}/ui/verify#repo=a/b&content=sha256:{'0' * 64}&issuer=https://evil.example&audience=x&trust=y"
    steps = [["goto", link], ["value", "issuer", "#issuer"], ["value", "audience", "#audience"]]
    (look,) = looks(drive(steps, folder, themes=["light"], widths=[1280]), live.url)
    assert (look["issuer"], look["audience"]) == (live.url, "")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_of_a_stranger_runs(live: Running, folder: Path, tmp_path: Path, payload: str) -> None:
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
    trust = {"version": 1, "audience": make.AUDIENCE, "issuers": [
        {"issuer": make.ISSUER, "keys": {"inline": json.loads(make.jwks(make.KEY))}},
        {"issuer": text, "keys": {"file": text}},
    ]}  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- a\n" * 200_000 + "\n" * 100_000, "Not checked"),
        ("\n" * 1_000_000, "the file is empty"),
        ("[" * 500_000, "Not checked"),
        ("- &a [*a]\n", "Not checked"),
        ("- \u202e\n", "Not checked"),
        ("\ufeff- 1\n", "Not checked"),
        ("- dataset: {id: 1}\n", "Not checked"),
        ("a: 1\n", "Not checked"),
    ],
    ids=["a long list", "a million lines", "deep", "an alias", "bidirectional", "a mark", "a number", "a map"],
)
def test_a_hostile_file_is_refused_in_bounded_time_and_never_drawn_as_verified(
    live: Running, folder: Path, text: str, wanted: str
) -> None:
    steps = [*asking(live, text), ["text", "plan", "#plan"], ["text", "all", "main"]]
    (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
    assert wanted in look["plan"] or "nothing is known" in look["plan"]
    assert "Verified" not in look["all"]


def test_a_file_that_is_too_large_is_not_read(live: Running, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"\n" * (2 * 1024 * 1024))
    steps = [
        ["goto", f"{live.url}/ui/verify"], ["files", "#file", [str(tmp_path / "large.yaml")]],
        ["wait", "#chosen:has-text('At most 1,048,576')"], ["fill", "#repo", REPO], ["fill", "#audience", AUDIENCE],
        ["click", "#look"], ["wait", "#plan > .note"], ["text", "plan", "#plan"],
    ]  # fmt: skip
    (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
    assert "1. Drop a result file" in look["plan"]


def test_a_key_set_that_is_too_large_stalls_or_is_not_there_leaves_it_undecided(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    text, _ = signed(live)
    large = b'{"keys": [' + b'{"kty": "x"},' * 80_000 + b'{"kty": "x"}]}'
    with answering({"/large": ("application/json", large), "/broken": ("application/json", b"{")}) as elsewhere:
        for path, wanted in (
            ("/large", "more than"),
            (STALLS, "no whole answer"),
            ("/none", "404"),
            ("/broken", "keys"),
        ):
            trust = f"version: 1\naudience: {AUDIENCE}\nissuers:\n- issuer: {live.url}\n  keys: {{url: {elsewhere}{path}}}\n"
            (tmp_path / "trust.yaml").write_text(trust, "utf-8")
            steps = [
                ["goto", f"{live.url}/ui/verify"], ["drop", "#what", "gsm8k.yaml", text], ["wait", "#chosen:has-text('bytes')"],
                ["fill", "#repo", REPO], ["click", "#by-file"], ["files", "#trust-file", [str(tmp_path / "trust.yaml")]],
                ["click", "#look"], ["wait", "#go"], *FOUND, ["shot", "undecided"], ["axe", "axe"],
            ]  # fmt: skip
            visits = drive(steps, folder, themes=["dark"], widths=[360])
            visits[0]["said"] = [line for line in visits[0]["said"] if "status of 404" not in line]
            (look,) = looks(visits, live.url, elsewhere)
            assert look["verdict"][0].startswith("Undecided")
            assert wanted in look["answer"]


def test_a_log_is_asked_where_the_trust_file_has_it_and_only_its_own_word_is_a_no(
    live: Running, folder: Path, tmp_path: Path
) -> None:
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
            keys = {"inline": json.loads(make.jwks(make.KEY))}
            trusted = {"issuer": make.ISSUER, "keys": keys, "log": log}
            trust = {"version": 1, "audience": make.AUDIENCE, "issuers": [trusted], "require": ["log"]}
            (tmp_path / "trust.yaml").write_text(json.dumps(trust), "utf-8")
            steps = [
                ["goto", f"{live.url}/ui/verify"], ["files", "#file", [str(tmp_path / "gsm8k.yaml"), *map(str, given)]],
                ["wait", "#chosen:has-text('bytes')"], ["fill", "#repo", REPO], ["click", "#by-file"],
                ["files", "#trust-file", [str(tmp_path / "trust.yaml")]], ["click", "#look"], ["wait", "#go"],
                ["files", "#need-0", [str(tmp_path / "policy.txt")]], ["click", "#go"], ["wait", "#answer .checks"],
                *FOUND[2:], ["shot", "logged"],
            ]  # fmt: skip
            visits = drive(steps, folder, themes=["light"], widths=[1280])
            visits[0]["said"] = [line for line in visits[0]["said"] if "status of 404" not in line]
            (look,) = looks(visits, live.url, host)
            assert (look["verdict"][0].startswith(wanted), statuses(look)[10]) == (True, status), look["rows"][10]


def test_the_page_on_another_host_verifies_by_what_the_issuer_publishes(live: Running, folder: Path) -> None:
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html; charset=utf-8"}
    documents = {f"/{name}": (types[name.rpartition(".")[2]], raw) for name, raw in export().items()}
    text, _ = signed(live)
    with answering(documents) as host:
        steps = [*asking(live, text, page=f"{host}/index.html"), *FOUND, ["axe", "axe"], ["shot", "exported"]]
        visits = drive(steps, folder, themes=["light"], widths=[1280])
        visits[0]["said"] = [line for line in visits[0]["said"] if "status of 404" not in line]
        (look,) = looks(visits, live.url, host)
    assert look["verdict"][0].startswith("Verified")


def test_the_whole_page_is_done_by_the_keyboard(live: Running, folder: Path) -> None:
    text, _ = signed(live, body(task_id="gsm8k"))
    steps = [
        *asking(live, text), ["focused", "after-look"], ["press", "Enter"], ["wait", "#answer .checks"],
        ["focused", "after-check"], ["texts", "verdict", "#answer .verdict"],
    ]  # fmt: skip
    (visit,) = drive(steps, folder, themes=["light"], widths=[1280])
    assert (visit["look"]["after-look"], visit["look"]["after-check"]) == ("go", "answer")
    assert visit["look"]["verdict"][0].startswith("Verified")


def test_a_service_whose_pages_are_off_has_none(tmp_path: Path) -> None:
    with LocalProvider() as provider, running(tmp_path, provider, ui=False) as service:
        for path in ("/ui", "/ui/verify", "/ui/refused"):
            assert service.http.get(path).status_code == 404
        assert b"ui/" not in service.http.get("/", headers={"Accept": "text/html"}).content
