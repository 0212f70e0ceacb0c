"""The operator's view of a real service, as Chromium shows it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port
from issuer.formats.times import show_time
from issuer.page.operator import loaded
from issuer.service.signing.keyring import generate
from tests.support.browser import drive, looks
from tests.support.command import clean, issuer
from tests.support.running import Running, body, numbered, register, running
from tests.support.scraping import scraped, total
from tests.support.stores import Store
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]


def address(live: Running) -> str:
    return f"http://127.0.0.1:{live.settings.metrics.port}/"


def test_it_shows_what_was_answered_and_is_for_every_reader(live: Running, tmp_path: Path) -> None:
    before = time.time()
    for _ in range(7):
        assert live.post(live.token()).status_code == 201
    for _ in range(3):
        assert live.post(live.token(ref="refs/heads/fork")).status_code == 403
    url = address(live)
    steps = [
        ["goto", url], ["axe", "axe"], ["shot", "operator"], ["text", "verdict", ".verdict h2"],
        ["texts", "bars", ".bars figcaption"], ["texts", "rows", "table.plain tbody tr"], ["texts", "times", "time"],
    ]  # fmt: skip
    for visit in drive(steps, tmp_path):
        look = visit["look"]
        assert (visit["said"], visit["cookies"], look["axe"]) == ([], [], [])
        assert {sent for _, sent, _ in visit["requests"]} <= {url, *(url + name for name in loaded())}
        # In Berlin, where the browser is, and in UTC.
        assert look["times"]
        assert all(re.fullmatch(r"\d.* \d{4}, \d\d:\d\d:\d\d \(\d{4}-.* UTC\)|", text) for text in look["times"])
        assert look.get("wider", 0) <= 0
        assert "All is well" in look["verdict"]
        signed, refused, open_, *_ = (int(text.split(": ")[1].split()[0]) for text in look["bars"])
        assert (signed, refused, open_) >= (7, 3, 0)
        assert any("identity.claim_mismatch" in row for row in look["rows"])
    assert time.time() - before < 600


def test_it_lets_nobody_change_anything_and_tells_no_secret(live: Running) -> None:
    token = live.token()
    assert live.post(token).status_code == 201
    shown = httpx.get(address(live))
    assert shown.headers["cache-control"] == "no-store"
    assert token not in shown.text
    for secret in live.secrets:
        assert secret not in shown.text
    assert httpx.post(address(live), content=b"x").status_code == 501
    assert httpx.get(f"{address(live)}?again").text.count('http-equiv="refresh" content="30"') == 1


def test_signals_of_abuse_are_counted_and_shown(live: Running) -> None:
    """One model's score, signed with another value each time."""
    for number in range(8):
        value = body(model_revision="1" * 40, metrics=[{"metric_id": "accuracy", "value": 0.5 + number / 1000}])
        assert live.post(live.token(), value).status_code == 201
    series = {"signal": "attempts", "then": "warn", "integration": "inspect-ai"}
    eventually(lambda: total(scraped(live), "issuer_abuse_signals_total", **series) >= 2)
    assert "inspect-ai: attempts, warn" in httpx.get(address(live)).text


def test_what_is_not_well_is_said(live: Running) -> None:
    """A folder of policies that does not load."""
    file = live.folder / "policies" / "inspect-ai.yaml"
    good = file.read_bytes()
    file.write_bytes(b"schema: [")
    try:
        eventually(lambda: "the folder does not load" in httpx.get(address(live)).text)
        assert "<title>1 not well</title>" in httpx.get(address(live)).text
    finally:
        file.write_bytes(good)
    eventually(lambda: "<title>All is well</title>" in httpx.get(address(live)).text)


def test_a_key_that_lies_ready_is_shown_with_what_it_waits_for(live: Running) -> None:
    generate(live.folder / "keys", "next")
    eventually(lambda: "may sign 15 min after every host has published it" in httpx.get(address(live)).text)
    text = httpx.get(address(live)).text
    assert ">active<" in text
    assert ">next<" in text


LIMITS = """limits:
  identity: {count: 6, per_s: 3600, burst: 20}
  integration: {count: 6, per_s: 3600, burst: 100}
  refusals: {count: 6, per_s: 3600, burst: 6}
"""


def test_limits_and_quarantines_are_those_of_the_store_and_of_the_newest_policies(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """As `issuer abuse list` has them; and a store that is gone is said, and no scrape fails by it."""
    with (
        Store(tmp_path / "store") as store,
        running(tmp_path, provider, limits=LIMITS, store_url=store.url, metrics_port=free_port()) as live,
    ):
        for number in range(5):
            assert live.post(live.token(), numbered(number)).status_code == 201
        refused = [live.post(live.token(), body(benchmark_repo="no/such")).json().get("code") for _ in range(8)]
        assert refused[-1] == "abuse.quarantined", refused
        (new,) = register(live.folder, 1)
        eventually(lambda: live.post(live.token(repository_id=new), numbered(9)).status_code == 201)
        env = {**clean(), **environment(live.settings)}
        order = ("quarantine", "inspect-ai", f"other-{new}", "--for", "2h", "--reason", "a test")
        assert issuer("abuse", *order, env=env).returncode == 0
        listed = [msgspec.json.decode(line) for line in issuer("abuse", "list", "--json", env=env).stdout.splitlines()]
        ends = {f"inspect-ai/{one['identity']}": show_time(one["quarantined_until"]) for one in listed}
        assert len(ends) == 2
        program = """[...document.querySelectorAll("tbody tr")].filter((row) => row.textContent.includes("quarantined by"))
            .map((row) => [row.cells[0].textContent, row.querySelector("time").dateTime])"""
        steps = [["goto", address(live)], ["axe", "axe"], ["shot", "held"], ["texts", "rows", "tbody tr"],
                 ["evaluate", "ends", program]]  # fmt: skip
        (look,) = looks(drive(steps, tmp_path, themes=("light",), widths=(390,)), address(live)[:-1])
        assert dict(look["ends"]) == ends
        rows = [" ".join(row.split()) for row in look["rows"]]
        assert "inspect-ai: rate of the integration 6 100 6 %" in rows
        assert any(re.fullmatch(r"inspect-ai/\S+: refusals [67] 6 100 %", row) for row in rows), rows
        store.kill()
        eventually(lambda: "are unknown: <bdi>the store at 127.0.0.1" in httpx.get(address(live), timeout=20).text)
        assert total(scraped(live), "issuer_workers") == 1
