"""The size of a leaderboard: what the input pays for, ranked rows in any case, and the others by turns."""

from collections import Counter
from typing import Any

import pytest

from issuer.relying.leaderboard.page import as_html
from issuer.relying.leaderboard.ranking import BoardScore, Unread
from issuer.relying.leaderboard.size import FREE_BYTES, TIMES, bounded, fit
from issuer.relying.leaderboard.text_formats import as_csv, as_json, as_markdown
from tests.support.boards import board, entry, only

HUB = "https://hub.example"
UNSIGNED: dict[str, Any] = {"tier": "self-reported", "token_digest": ""}


@pytest.mark.parametrize("sign", ["&", '"', "|", "\U000e0041", "a"])
@pytest.mark.parametrize("member", ["framework", "task", "repo"])
def test_the_files_are_no_larger_than_the_input_allows(sign: str, member: str) -> None:
    def of(number: int, tier: str) -> Any:
        texts: dict[str, Any] = {"subset": sign * 200, member: f"{sign * 200}{number}"}
        return entry(**{"repo": f"a/{number}", **UNSIGNED, "tier": tier, "tier_reason": sign * 200, **texts})

    faults = [Unread(f"{sign * 200}{number}", 1, 1, "file.syntax", sign * 200) for number in range(500)]
    entries = [of(number, tier) for number in range(900) for tier in ("self-reported", "refuted")]
    made = fit(board(*entries, unread=faults), 10_000)
    assert made.left_out.keys() == {"rows", "refuted", "unread"}
    sizes = (len(as_json(made)), *(len(write(made, HUB).encode()) for write in (as_csv, as_markdown, as_html)))
    assert FREE_BYTES / 4 < sum(sizes) <= TIMES * 10_000 + FREE_BYTES
    assert "not listed" in as_html(made, HUB).lower()


def test_ranked_rows_are_all_listed_and_the_others_by_turns() -> None:
    good = [entry(f"good/{number}", number) for number in range(300)]
    loud = [entry("a/loud", 1000 + number, framework=f"f{number}", tier="signed") for number in range(256)]
    quiet = [entry(f"quiet/{number}", number, tier="signed") for number in range(250)]
    whole = board(*loud, *good, *quiet)
    made = fit(whole, 0)
    rows = only(made).rows
    listed = Counter(row.entry.repo.split("/")[0] for row in rows)
    assert (listed["good"], listed["quiet"]) == (300, 250)
    assert 1 < listed["a"] < 256
    assert made.left_out == {"rows": 256 - listed["a"]}
    assert [row.rank for row in rows if row.rank] == list(range(1, 301))
    assert all(only(made).settings[row.setting].framework == row.entry.framework for row in rows)
    assert fit(whole, 1_000_000) == whole
    assert len(only(fit(board(*(entry(f"good/{number}", number) for number in range(900))), 0)).rows) == 900


def test_a_repository_has_a_bounded_number_of_rows_and_the_strongest_come_first() -> None:
    scores = tuple(BoardScore(f"m{number}", "", number) for number in range(300))
    unsigned, signed = entry(scores=scores, **UNSIGNED), entry(pointer="/1", scores=scores, tier="signed")
    verified, other = entry(pointer="/2"), entry("b/b")
    for entries, count in (((unsigned, signed, verified, other), 257), ((unsigned, verified, other), 66)):
        made = board(*entries)
        rows = [row for table in made.tables for row in table.rows]
        assert (len(rows), made.left_out) == (count, {"rows": 300 * (len(entries) - 2) + 2 - count})
        assert [row.entry.repo for row in rows if row.rank] == ["acme/open-model", "b/b"]
        assert {row.entry.tier for row in rows} == {entries[-3].tier, "verified"}


def test_a_long_text_is_cut_and_remains_different_from_others() -> None:
    assert bounded("x" * 256) == "x" * 256
    one, two = bounded("x" * 300 + "1"), bounded("x" * 300 + "2")
    assert one != two
    assert len(one) < 256
    assert one.startswith("x" * 128 + "… sha256:")
