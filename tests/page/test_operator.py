"""The operator's view: what is not well is said first, every drawing has its numbers, and nothing can be done with it."""

from __future__ import annotations

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


def test_what_is_not_well_is_the_title_and_the_first_thing_said() -> None:
    bad = Condition("Policies", False, "the folder has not loaded since")
    html = written(conditions=[Condition("Store", True, "role master"), bad])
    assert "<title>1 not well</title>" in html
    assert Text(html).text.index("1 not well") < Text(html).text.index("the folder has not loaded since")
    assert "<title>All is well</title>" in written()


def test_a_drawing_says_its_sum_and_stands_beside_its_numbers() -> None:
    html = written()
    assert "Signed: 6 in the last 3 minutes, at most 4 in one" in html
    rows = [re.findall(r"[\d,]+(?=</td>)", row) for row in re.findall(r"<details>.*?</details>", html, re.S)]
    assert rows == [["2", "0", "0", "4", "1", "0"]], "the minute without an answer is left out"


def test_of_many_integrations_the_rest_is_one_row_and_no_answer_is_lost() -> None:
    html = written(integrations=[NumbersLine(f"i{number}", (2, 1, 0)) for number in range(10_000)])
    assert html.count('rowheader"><bdi>i') == MOST_ROWS
    assert f'<bdi>9,950 others</bdi></th><td class="number" role="cell">{9950 * 2:,}</td>' in html


def test_who_is_held_back_and_what_is_used_is_said_with_ends_and_numbers() -> None:
    stands = [Stand("inspect-ai/ci", "quarantined by refusals", NOW), Stand("inspect-ai/odd", "broken", 0)]
    text = Text(written(held=StandingsView("", stands, [Used("inspect-ai/ci: rate", 1500, 2000)]))).text
    assert "inspect-ai/ciquarantined by refusals2026-09-21 14:13:20 UTC\ninspect-ai/oddbrokenit is mended" in text
    assert "inspect-ai/ci: rate1,5002,00075 %" in text
    assert "No identity." in Text(written()).text
    unknown = Text(written(held=StandingsView("the store at valkey:6379 does not work: no answer"))).text
    assert "are unknown: the store at valkey:6379 does not work: no answer." in unknown
    assert "No identity." not in unknown, "nobody knows whether anybody is"


def test_of_many_who_are_held_back_the_rest_is_counted() -> None:
    html = written(
        held=StandingsView("", [Stand(f"i/{number}", "throttled", NOW) for number in range(10_000)], left_out=7)
    )
    assert html.count("<bdi>i/") == MOST_ROWS
    assert "9,950 others" in html
    assert "7 identities are left out" in html


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


def test_one_script_shows_times_nothing_is_sent_and_nothing_comes_from_elsewhere() -> None:
    html, policy = written(), dict(HEADERS)["Content-Security-Policy"]
    assert not {"form", "input", "button", "iframe", "img", "style"} & set(Text(html).tags)
    assert re.findall(r"<script[^>]*>[^<]*", html) == ['<script type="module" src="times.js">']
    assert not re.findall(r"\sstyle=|\son[a-z]+=|https?:", html)
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; ")
    assert policy.endswith("trusted-types 'none'; require-trusted-types-for 'script'")
    assert "unsafe" not in policy
    assert b"\n.bars " in loaded()["style.css"][0]
    asked = re.findall(r'(?:href|src)="([a-z.]+)"', html) + re.findall(
        r'from "\./(.+)"', loaded()["times.js"][0].decode()
    )
    assert set(asked) - {"metrics"} == loaded().keys()


def test_what_comes_next_for_a_key_is_said_with_its_time() -> None:
    def says(state: str, moves_from: int | None) -> str:
        return Text(written(keys=[KeyView("k1", state, NOW, moves_from)])).text.partition("Next step")[2]

    at = "from 2026-09-21 14:13:20 UTC on"
    assert f"may sign, {at}" in says("next", NOW)
    assert "may sign 15 min after every host has published it" in says("next", None)
    assert f"may give way to the next key, {at}" in says("active", NOW)
    assert "signs until a next key is made" in says("active", None)
    assert f"may leave the key set, its last token having expired, {at}" in says("retiring", NOW)
    assert "may leave the key set, its last token having expired now" in says("retiring", 0)


def test_a_text_from_outside_is_text() -> None:
    for payload in PAYLOADS:
        html = written(
            conditions=[Condition("Policies", False, payload)], integrations=[NumbersLine(payload, (1, 1, 1))],
            codes=[NumbersLine(payload, (1,))], signals=[NumbersLine(payload, (1,))], providers=[NumbersLine(payload, (1, 0))], keys=[KeyView(payload, "active", 1, 2)],
            held=StandingsView("", [Stand(payload, payload, 1)], [Used(payload, 1, 2)]),
            unmatched=Unmatched(1, [Unneeded(payload, [payload], 2)], [payload]),
        )  # fmt: skip
        assert Text(html).tags == Text(written(
            conditions=[Condition("Policies", False, "x")], integrations=[NumbersLine("x", (1, 1, 1))],
            codes=[NumbersLine("x", (1,))], signals=[NumbersLine("x", (1,))], providers=[NumbersLine("x", (1, 0))], keys=[KeyView("x", "active", 1, 2)],
            held=StandingsView("", [Stand("x", "x", 1)], [Used("x", 1, 2)]),
            unmatched=Unmatched(1, [Unneeded("x", ["x"], 2)], ["x"]),
        )).tags  # fmt: skip
        assert not re.findall("[\u202e\u2028\x85]", html)
