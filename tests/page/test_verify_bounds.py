"""Hostile files, key sets and logs at `/ui/verify`: bounded memory, a clear message, and never "verified"."""

import time
from pathlib import Path

import pytest

from issuer.dev.sandbox import AUDIENCE
from issuer.results.entry import write_entry
from tests.support import make
from tests.support.answering import STALLS, answering
from tests.support.browser import drive, looks
from tests.support.browser.steps import (
    FOUND,
    ONCE,
    REPO,
    asking,
    by_trust_file,
    many_entries,
    signed,
    statuses,
    trusting,
    without_404,
)
from tests.support.running import Running
from tests.support.witnessed import ORIGIN, TestLog, policy_text

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]

MOST_MIB = 400


HOSTILE = {
    "a long list": "- a\n" * 200_000 + "\n" * 100_000, "a million lines": "\n" * 1_000_000, "deep": "[" * 500_000,
    "an alias": "- &a [*a]\n", "bidirectional": "- \u202e\n", "a mark": "\ufeff- 1\n",
    "a number": "- dataset: {id: 1}\n", "a map": "a: 1\n", "a long text": "- notes: |\n" + "  a\n" * 250_000,
    "many names": "- " + "".join(f"a{number}: 1\n  " for number in range(60_000)),
    "many entries": "- dataset: {id: a}\n" * 1001,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_bounded_memory_and_never_drawn_as_verified(
    live: Running, folder: Path, name: str
) -> None:
    steps = [*asking(live, HOSTILE[name]), ["memory", "memory"], ["text", "plan", "#plan"], ["text", "all", "main"]]
    (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
    wanted = "the file is empty" if name == "a million lines" else "Not checked"
    assert wanted in look["plan"] or "gives no verdict" in look["plan"]
    assert "Verified" not in look["all"]
    assert look["memory"] < MOST_MIB


def test_a_file_that_is_too_large_is_not_read(live: Running, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"\n" * (2 * 1024 * 1024))
    steps = [
        ["goto", f"{live.url}/ui/verify"], ["files", "#file", [str(tmp_path / "large.yaml")]],
        ["wait", "#chosen:has-text('At most 1,048,576')"], ["fill", "#repo", REPO], ["fill", "#audience", AUDIENCE],
        ["click", "#look"], ["wait", "#plan > .note"], ["text", "plan", "#plan"],
    ]  # fmt: skip
    (look,) = looks(drive(steps, folder, themes=["light"], widths=[360]), live.url)
    assert "1. Drop a result file" in look["plan"]


def test_a_too_large_stalled_or_missing_key_set_leaves_it_undecided(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    text, _ = signed(live)
    large = b'{"keys": [' + b'{"kty": "x"},' * 80_000 + b'{"kty": "x"}]}'
    trust = tmp_path / "trust.yaml"
    with answering({"/large": ("application/json", large), "/broken": ("application/json", b"{")}) as elsewhere:
        for path, wanted in {
            "/large": "more than", STALLS: "no complete answer", "/none": "404", "/broken": "keys",
        }.items():  # fmt: skip
            issuer = f"- issuer: {live.url}\n  keys: {{url: {elsewhere}{path}}}\n"
            trust.write_text(f"version: 1\naudience: {AUDIENCE}\nissuers:\n{issuer}", "utf-8")
            steps = [
                *by_trust_file(live.url, ["drop", "#what", "gsm8k.yaml", text], trust), *FOUND, ["shot", "undecided"], ["axe", "axe"],
            ]  # fmt: skip
            visits = drive(steps, folder, themes=["dark"], widths=[360])
            (look,) = looks(without_404(visits), live.url, elsewhere)
            assert look["verdict"][0].startswith("Undecided")
            assert wanted in look["answer"]


def test_a_log_that_stalls_lies_or_sends_too_much_leaves_it_undecided(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    now = int(time.time()) - 10
    item = make.submission()
    token = make.token_for(item, iat=now, nbf=now, exp=now + 3600, log=ORIGIN)
    proof = TestLog(token).proof(token, now + 1, now + 1)
    (tmp_path / "gsm8k.yaml").write_text(write_entry(item.form, token), "utf-8")
    lie = proof.replace(b"\nindex ", b"\nindex 1")
    assert lie != proof
    documents = {"/lies/proof": ("text/plain", lie), "/floods/proof": ("text/plain", proof + b"a" * 600_000)}
    with answering(documents) as host:
        for path, wanted in (
            (STALLS, "no complete answer in 15 s"),
            ("/lies", "the proof at hand is not usable"),
            ("/floods", "more than 524,288 bytes"),
        ):
            log = {"policy": {"inline": policy_text()}, "url": f"{host}{path}"}
            trust = trusting(tmp_path, of_issuer={"log": log}, require=["log"])
            chosen = ["files", "#file", [str(tmp_path / "gsm8k.yaml")]]
            visits = drive([*by_trust_file(live.url, chosen, trust), *FOUND], folder, **ONCE)
            (look,) = looks(visits, live.url, host)
            assert (look["verdict"][0].partition("\n")[0], statuses(look)[10]) == ("Undecided", "unknown")
            assert wanted in look["answer"]


def test_a_check_without_an_end_is_stopped_after_a_minute_without_a_verdict(
    live: Running, folder: Path, tmp_path: Path
) -> None:
    """A file of 600 signed entries keeps the verifier busy; the page's clock alone is put forward."""
    (tmp_path / "many.yaml").write_text(many_entries(600), "utf-8")
    chosen = ["files", "#file", [str(tmp_path / "many.yaml")]]
    steps = [
        ["clock"], *by_trust_file(live.url, chosen, trusting(tmp_path)), ["click", "#go"], ["workers", "busy"],
        ["forward", 60_000], ["wait", "#plan .note"], ["workers", "left", 0], ["text", "plan", "#plan"], ["text", "all", "main"],
        ["count", "reports", "#answer article"],
    ]  # fmt: skip
    (look,) = looks(drive(steps, folder, **ONCE), live.url)
    assert (look["busy"], look["left"], look["reports"]) == (1, 0, 0)
    assert "could not be checked in 60 s, so it was stopped without a verdict" in look["plan"]
    assert "Verified" not in look["all"]
