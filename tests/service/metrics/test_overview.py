"""The operator's view of a real service, as Chromium shows it."""

import re
import time
from pathlib import Path

import httpx
import pytest

from issuer.page.operator import loaded
from issuer.service.signing.keyring import generate
from tests.support.browser import drive
from tests.support.running import METRIC_VALUE, Running, body
from tests.support.scraping import scraped, total
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
    metrics = httpx.get(f"{address(live)}metrics").text
    assert not [secret for secret in live.secrets if secret in shown.text + metrics]
    for secret in (str(METRIC_VALUE), "acme/open-model", "inspect eval", str(live.folder), "refs/heads"):
        assert secret not in metrics
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
