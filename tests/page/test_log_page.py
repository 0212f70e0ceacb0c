"""The page of the transparency log, in Chromium: a real log, a lying server, and the checkpoint that a browser keeps."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.browser import drive
from tests.support.browser.steps import ONCE
from tests.support.logged import Begun
from tests.support.lying import Alter, lying
from tests.support.running import Running
from tests.support.tlog import policy_text
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(600)]


class Site:
    """A service with a log, the checkpoint as it was with fewer entries, and a token of it."""

    def __init__(self, live: Running) -> None:
        self.live = live
        start = self.size
        self.tokens = [self._token() for _ in range(3)]
        eventually(lambda: self.size >= start + 3)
        self.earlier = live.http.get("/log/checkpoint").text
        self.tokens += [self._token() for _ in range(5)]
        eventually(lambda: self.size >= start + 8)
        self.origin = self.earlier.splitlines()[0]

    def _token(self) -> str:
        token: str = self.live.post(self.live.token()).json()["verify_token"]
        return token

    @property
    def size(self) -> int:
        return int(self.live.http.get("/log/checkpoint").text.splitlines()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    begun = Begun(tmp_path_factory.mktemp("logged"))
    with LocalProvider() as provider, begun.witnessed(provider) as live:
        yield Site(live)


def one(steps: Sequence[object], folder: Path) -> dict[str, Any]:
    (visit,) = drive(steps, folder, **ONCE)
    look: dict[str, Any] = visit["look"]
    return look


def remembered(origin: str, note: str, address: str = "") -> str:
    kept = json.dumps(json.dumps({"note": note, "address": address, "at": 1_790_000_000}))
    return f"localStorage.setItem({json.dumps(f'issuer.log {origin}')}, {kept})"


def test_the_log_is_shown_and_every_answer_is_checked(place: Site, tmp_path: Path) -> None:
    live = place.live
    steps = [
        ["goto", f"{live.url}/ui/log"], ["wait", "#state .verdict"], ["wait", "#visits .note"], ["axe", "axe-first"],
        ["text", "state", "#state .verdict"], ["text", "first", "#visits"],
        ["fill", "#token", place.tokens[1]], ["click", "#find button"], ["wait", "#found .climb"],
        ["text", "found", "#found .note"], ["texts", "steps", "#found tbody tr"],
        ["click", "#read"], ["wait", "#growth table"], ["text", "read", "#growth p"],
        ["texts", "days", "#growth tbody tr"], ["axe", "axe"], ["shot", "log"],
        ["goto", f"{live.url}/ui/log"], ["wait", "#visits .note"], ["text", "second", "#visits"],
        ["click", "#forget"], ["evaluate", "kept", "localStorage.length"],
    ]  # fmt: skip
    for visit in drive(steps, tmp_path):
        look = visit["look"]
        assert (visit["said"], visit["cookies"], look["axe-first"], look["axe"]) == ([], [], [], [])
        assert look["wider"] <= 0
        assert {url for _, url, _ in visit["requests"] if not url.startswith(f"{live.url}/")} == set()
        assert not any(place.tokens[1] in url for _, url, _ in visit["requests"])
        assert place.origin in look["state"]
        assert "first visit" in look["first"]
        assert "It is entry" in look["found"]
        assert "the root" in look["steps"][-1]
        assert f"{place.size:,} of {place.size:,} entries" in look["read"]
        assert any("inspect-ai" in row and "8" in row for row in look["days"])
        assert "Nothing was added" in look["second"]
        assert look["kept"] == 0


def test_new_entries_are_counted_and_a_rewritten_history_is_caught(place: Site, tmp_path: Path) -> None:
    url, earlier = f"{place.live.url}/ui/log", place.earlier
    size = earlier.splitlines()[1]
    forged = earlier.replace(earlier.splitlines()[2], "A" * 43 + "=")
    larger = earlier.replace(f"\n{size}\n", "\n1000000\n")
    for note, wanted in (
        (earlier, f"{place.size - int(size)} entries were added"),
        (forged, "History was rewritten"),
        (larger, "smaller than it was"),
    ):
        steps = [
            ["goto", url], ["wait", "#visits .note"], ["evaluate", "set", remembered(place.origin, note)],
            ["goto", url], ["wait", "#visits .note"], ["text", "visits", "#visits"],
            ["evaluate", "kept", f"localStorage.getItem({json.dumps(f'issuer.log {place.origin}')}).includes('1790000000')"],
        ]  # fmt: skip
        look = one(steps, tmp_path)
        assert wanted in look["visits"]
        assert look["kept"] is (note is not earlier), "the evidence of a rewritten history is not overwritten"


def flipped(path: str) -> Alter:
    def alter(asked: str, body: bytes) -> bytes:
        return bytes([*body[:-9], body[-9] ^ 1, *body[-8:]]) if path in asked else body

    return alter


def test_a_server_that_lies_is_caught_in_the_browser(place: Site, tmp_path: Path) -> None:
    begin = [["wait", "#state .verdict, #state .note.bad"], ["text", "state", "#state"]]
    read = [*begin, ["click", "#read"], ["wait", "#growth .note"], ["text", "said", "#growth"]]
    find = [
        *begin, ["fill", "#token", place.tokens[0]], ["click", "#find button"], ["wait", "#found .note"],
        ["text", "said", "#found"],
    ]  # fmt: skip

    def other_index(asked: str, body: bytes) -> bytes:
        return body.replace(b"\nindex ", b"\nindex 1") if "/log/proof" in asked else body

    for alter, steps in ((flipped("/log/tile/0/"), read), (flipped("/log/tile/entries/"), read), (other_index, find)):
        with lying(place.live, alter) as url:
            look = one([["goto", f"{url}/ui/log"], *steps], tmp_path)
        assert "Signed by the log" in look["state"]
        assert "The log is wrong." in look["said"], look
    larger = str(place.size + 1).encode()

    def grown(asked: str, body: bytes) -> bytes:
        lines = body.split(b"\n")
        return b"\n".join([lines[0], larger, *lines[2:]]) if asked.endswith("/log/checkpoint") else body

    with lying(place.live, grown) as url:
        look = one([["goto", f"{url}/ui/log"], *begin], tmp_path)
    assert "The log is wrong." in look["state"]


def stalled(asked: str, body: bytes) -> bytes:
    """Answer for the checkpoint later than the page waits for."""
    if asked.endswith("/log/checkpoint"):
        time.sleep(17)  # a slow peer
    return body


def test_a_missing_stalled_or_too_large_log_is_never_drawn_as_good(place: Site, tmp_path: Path) -> None:
    for alter in (
        stalled,
        lambda asked, body: b"x" * 2_000_000 if asked.endswith("/log/checkpoint") else body,
        lambda asked, body: b"" if asked.endswith("/log/log.json") else body,
    ):
        with lying(place.live, alter) as url:
            look = one([["goto", f"{url}/ui/log"], ["wait", "#state .note"], ["text", "state", "#state"],
                        ["count", "good", ".verdict"]], tmp_path)  # fmt: skip
        assert look["good"] == 0
        assert "cannot be checked now" in look["state"] or "not as it must be" in look["state"]


def test_a_log_of_another_name_at_the_same_address_is_no_first_visit(place: Site, tmp_path: Path) -> None:
    url = f"{place.live.url}/ui/log"
    for address, wanted in (
        (f"{place.live.url}/log/", "another log than before"),
        ("https://a.example/", "first visit"),
    ):
        steps = [
            ["goto", f"{place.live.url}/ui"], ["evaluate", "-", remembered("old.example/log", place.earlier, address)],
            ["goto", url], ["wait", "#visits .note"], ["goto", url], ["wait", "#visits .note"], ["text", "visits", "#visits"],
            ["click", "#forget"], ["goto", url], ["wait", "#visits .note"], ["text", "forgotten", "#visits"],
        ]  # fmt: skip
        look = one(steps, tmp_path)
        assert (wanted in look["visits"]) is (wanted != "first visit"), look
        assert ("old.example/log" in look["visits"]) is (wanted != "first visit")
        assert "first visit" in look["forgotten"]


def test_a_slow_answer_takes_the_place_of_no_newer_one(place: Site, tmp_path: Path) -> None:
    """The server's own policy, which is good, is asked about first and answered last."""
    asked: list[str] = []

    def slow(path: str, body: bytes) -> bytes:
        if path.endswith("/log/checkpoint"):
            asked.append(path)
            time.sleep(3 if len(asked) == 2 else 0)  # a slow peer
        return body

    check: list[object] = ["click", "#trust button"]
    with lying(place.live, slow) as url:
        steps = [
            ["goto", f"{url}/ui/log"], ["wait", "#state .verdict"], check, ["fill", "#policy", policy_text()], check,
            ["wait", "#state .note"], ["evaluate", "-", "new Promise((done) => setTimeout(done, 4000))"],
            ["text", "state", "#state"], ["count", "good", ".verdict, .note.good"],
        ]  # fmt: skip
        look = one(steps, tmp_path)
    assert (len(asked), look["good"]) == (3, 0), look


def test_two_histories_are_noticed(place: Site, tmp_path: Path) -> None:
    """The log shows an earlier checkpoint, and a proof under a newer one that does not extend it."""
    flip = flipped("/log/tile/0/")

    def alter(asked: str, body: bytes) -> bytes:
        return place.earlier.encode() if asked.endswith("/log/checkpoint") else flip(asked, body)

    for change, wanted in ((alter, "two histories"), (lambda _, body: body, "It is entry")):
        with lying(place.live, change) as url:
            steps = [["goto", f"{url}/ui/log"], ["wait", "#state .verdict"], ["fill", "#token", place.tokens[-1]],
                     ["click", "#find button"], ["wait", "#found .note"], ["text", "found", "#found"]]  # fmt: skip
            assert wanted in one(steps, tmp_path)["found"]


def test_a_text_of_the_log_is_text(place: Site, tmp_path: Path) -> None:
    payload = "<img src=x onerror=document.title='pwned'>"

    def alter(asked: str, body: bytes) -> bytes:
        info = {"origin": payload, "vkeys": [payload], "urls": [payload], "witness_policy": f"log {payload}\n"}
        return json.dumps(info).encode() if asked.endswith("/log/log.json") else body

    with lying(place.live, alter) as url:
        look = one([["goto", f"{url}/ui/log"], ["wait", "#state .note"], ["evaluate", "title", "document.title"],
                    ["count", "images", "img"]], tmp_path)  # fmt: skip
    assert (look["title"], look["images"]) == ("The log", 0)
