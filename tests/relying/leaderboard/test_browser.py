"""The page in Chromium: no text of a stranger runs, the page fetches no file, and axe reports no violation."""

from pathlib import Path

import pytest

from issuer.relying.leaderboard.page import as_html
from tests.support import make
from tests.support.boards import PAYLOADS, board, entry, hostile
from tests.support.browser import look

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


def seen(folder: Path, html: str) -> dict[str, object]:
    page = folder / "page.html"
    page.write_text(html, "utf-8")
    found: dict[str, object] = look(page, folder)
    assert found["requests"] == [f"file://{page}"] * 4
    return found


def test_a_leaderboard_is_sorted_chosen_and_read_in_both_themes_and_at_two_widths(folder: Path) -> None:
    made = board(
        entry("c/c", 2, attempt=3, attempts_since=make.NOW), entry("b/b", 1, framework="lm-eval", when=make.NOW - 86_400),
        entry("a/a", 3, tier="self-reported"), entry("d/d", 9, tier="refuted"), entry("e/e", 1.5, tier="signed"),
    )  # fmt: skip
    found = seen(folder, as_html(made, "https://hub.example"))
    assert found["said"] == []
    assert found["still"] == {"rows": 4, "points": 4, "controls": 0}, "without JavaScript"
    assert len(found["looks"]) == 4  # type: ignore[arg-type]
    for one in found["looks"]:  # type: ignore[attr-defined]
        assert one["rows"] == ["a/a", "c/c", "e/e", "b/b"]
        assert one["sorted"] == ["a/a", "b/b", "c/c", "e/e"]
        assert one["verified"] == ["b/b", "c/c"]
        assert one["points"] == 2
        assert one["framework"] == ["a/a", "c/c", "e/e"]
        assert one["count"] == "3 of 4 rows"
        assert one["axe"] == []
        assert one["wider"] <= 0, "the page is wider than its window"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_stranger_runs(folder: Path, payload: str) -> None:
    found = seen(folder, as_html(hostile(payload), "https://hub.example"))
    assert found["said"] == []
    for one in found["looks"]:  # type: ignore[attr-defined]
        assert (one["title"], one["axe"]) == ("Leaderboard", [])
        assert one["wider"] <= 0
