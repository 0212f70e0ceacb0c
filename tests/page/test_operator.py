"""The operator's view: faults come first, every drawing has its numbers, and the page offers no action."""

import re
from html.parser import HTMLParser

from issuer.page.operator import (
    HEADERS,
    MOST_ROWS,
    AnswerCounts,
    Condition,
    KeyView,
    NumbersLine,
    Overview,
    Stand,
    StandingsView,
    Unmatched,
    Unneeded,
    Used,
    loaded,
    write_overview,
)
from tests.support.boards import PAYLOADS

NOW = 1_790_000_000
SPAN = AnswerCounts("minute", NOW - 120, 60, {"issued": [0, 4, 2], "no": [0, 1, 0], "undecided": [0, 0, 0]})


def written(**changes: object) -> str:
    parts: dict[str, object] = {
        "version": "issuer 0", "at": NOW, "since": NOW - 60, "conditions": [Condition("Store", True, "role master")],
        "spans": [SPAN], "integrations": [NumbersLine("inspect-ai", (6, 1, 0))], "codes": [NumbersLine("policy.model", (1,))], "held": StandingsView(""), "signals": [], "unmatched": Unmatched(NOW),
        "providers": [], "keys": [KeyView("k1", "active", NOW - 9, None)], **changes,
    }  # fmt: skip
    return write_overview(Overview(**parts)).decode()  # type: ignore[arg-type]


class Text(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_fault_is_the_title_and_the_first_text() -> None:
    bad = Condition("Policies", False, "the folder has not loaded since")
    html = written(conditions=[Condition("Store", True, "role master"), bad])
    assert "<title>1 not well</title>" in html
    assert Text(html).text.index("1 not well") < Text(html).text.index("the folder has not loaded since")
    assert "<title>All is well</title>" in written()


def test_a_drawing_has_its_sum_and_its_numbers() -> None:
    html = written()
    assert "Signed: 6 in the last 3 minutes, at most 4 in one" in html
    rows = [re.findall(r"[\d,]+(?=</td>)", row) for row in re.findall(r"<details>.*?</details>", html, re.S)]
    assert rows == [["2", "0", "0", "4", "1", "0"]], "the minute without an answer is left out"


def test_the_rest_of_many_integrations_and_held_identities_is_one_row_with_their_sum() -> None:
    html = written(integrations=[NumbersLine(f"i{number}", (2, 1, 0)) for number in range(10_000)])
    assert html.count('rowheader"><bdi>i') == MOST_ROWS
    assert f'<bdi>9,950 others</bdi></th><td class="number" role="cell">{9950 * 2:,}</td>' in html
    held = [Stand(f"i/{number}", "throttled", NOW) for number in range(10_000)]
    html = written(held=StandingsView("", held, left_out=7))
    assert html.count("<bdi>i/") == MOST_ROWS
    assert "9,950 others" in html
    assert "7 identities are left out" in html


def test_held_identities_and_used_limits_are_shown_with_ends_and_numbers() -> None:
    standings = [Stand("inspect-ai/ci", "quarantined by refusals", NOW), Stand("inspect-ai/odd", "broken", 0)]
    text = Text(written(held=StandingsView("", standings, [Used("inspect-ai/ci: rate", 1500, 2000)]))).text
    assert "inspect-ai/ciquarantined by refusals2026-09-21 14:13:20 UTC\ninspect-ai/oddbrokenit is mended" in text
    assert "inspect-ai/ci: rate1,5002,00075 %" in text
    assert "No identity." in Text(written()).text
    unknown = Text(written(held=StandingsView("the store at valkey:6379 does not work: no answer"))).text
    assert "are unknown: the store at valkey:6379 does not work: no answer." in unknown
    assert "No identity." not in unknown, "the number of held identities is unknown"


def test_entries_that_never_matched_are_named_and_silent_policies_counted() -> None:
    never = ["identities.old", *(f"grants.models[{index}]" for index in (0, 3, 4, 5, 9)), "grants.tasks[1]"]
    never += [f"identities.old-{index}" for index in range(30)]
    unmatched = Unmatched(NOW, [Unneeded("inspect-ai", never, 40)], [f"i{number}" for number in range(1000)], unread=2)
    text = Text(written(unmatched=unmatched)).text
    places = "identities.old, grants.models[0, 3–5, 9], grants.tasks[1], identities.old-0, "
    assert f"inspect-ai{places}" in text
    assert "identities.old-16 and 13 others3740" in text
    assert "1,000 policies made no decision: i0, i1, " in text
    assert "2 large batches" in text


def test_the_page_has_one_script_and_neither_sends_nor_loads_from_elsewhere() -> None:
    html, policy = written(), dict(HEADERS)["Content-Security-Policy"]
    assert not {"form", "input", "button", "iframe", "img", "style"} & set(Text(html).tags)
    assert re.findall(r"<script[^>]*>[^<]*", html) == ['<script type="module" src="times.js">']
    assert not re.findall(r"\sstyle=|\son[a-z]+=|https?:", html)
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; ")
    assert policy.endswith("trusted-types 'none'; require-trusted-types-for 'script'")
    assert "unsafe" not in policy
    assert b"\n.bars " in loaded()["style.css"][0]
    asked = re.findall(r'(?:href|src)="([a-z.]+)"', html)
    asked += re.findall(r'from "\./(.+)"', loaded()["times.js"][0].decode())
    assert set(asked) - {"metrics"} == loaded().keys()


def test_the_next_step_of_a_key_is_shown_with_its_time() -> None:
    def says(state: str, moves_from: int | None) -> str:
        return Text(written(keys=[KeyView("k1", state, NOW, moves_from)])).text.partition("Next step")[2]

    at = "from 2026-09-21 14:13:20 UTC on"
    assert f"may sign, {at}" in says("next", NOW)
    assert "may sign 15 min after every host has published it" in says("next", None)
    assert f"may give way to the next key, {at}" in says("active", NOW)
    assert "signs until a next key is made" in says("active", None)
    assert f"may leave the key set, its last token having expired, {at}" in says("retiring", NOW)
    assert "may leave the key set, its last token having expired now" in says("retiring", 0)


def strange(text: str) -> str:
    """Write the view with this text in every place for a text from outside."""
    return written(
        conditions=[Condition("Policies", False, text)], integrations=[NumbersLine(text, (1, 1, 1))],
        codes=[NumbersLine(text, (1,))], signals=[NumbersLine(text, (1,))], providers=[NumbersLine(text, (1, 0))],
        keys=[KeyView(text, "active", 1, 2)], held=StandingsView("", [Stand(text, text, 1)], [Used(text, 1, 2)]),
        unmatched=Unmatched(1, [Unneeded(text, [text], 2)], [text]),
    )  # fmt: skip


def test_a_text_from_outside_is_text() -> None:
    for payload in PAYLOADS:
        assert Text(strange(payload)).tags == Text(strange("x")).tags
        assert not re.findall("[\u202e\u2028\x85]", strange(payload))
