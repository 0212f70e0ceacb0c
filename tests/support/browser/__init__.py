"""Pages in Debian's Chromium: `look.mjs` opens a leaderboard, `drive.mjs` does the steps of a test. npm installs their
packages by its lock."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.node import install_node, run_node

_HERE = Path(__file__).parent
THEMES, WIDTHS = ("light", "dark"), (1280, 360)


def look(page: Path, folder: Path) -> Any:
    """Open a page in both themes and at two widths; screenshots are in `folder`, where the packages are installed."""
    install_node(_HERE, folder)
    return json.loads(run_node(folder, "look.mjs", page, folder))


def drive(
    steps: Sequence[object], folder: Path, *, themes: Sequence[str] = THEMES, widths: Sequence[int] = WIDTHS
) -> Any:
    """Do these steps at each theme and width, each in a browser that has seen nothing; return what each visit saw."""
    install_node(_HERE, folder)
    plan = folder / "steps.json"
    plan.write_text(json.dumps({"themes": themes, "widths": widths, "steps": steps}), "utf-8")
    return json.loads(run_node(folder, "drive.mjs", plan, folder))["visits"]


def looks(visits: Sequence[dict[str, Any]], *origins: str) -> list[dict[str, Any]]:
    """Return the looks of visits, each without a message, a cookie, a request to another origin, a serious finding of axe,
    or a page wider than its window."""
    own = tuple(f"{each}/" for each in origins)
    for visit in visits:
        assert visit["said"] == []
        assert visit["cookies"] == []
        assert [url for _, url, _ in visit["requests"] if not url.startswith(own)] == []
        look = visit["look"]
        assert {name: found for name, found in look.items() if name.startswith("axe") and found} == {}
        assert look.get("wider", 0) <= 0, "the page is wider than its window"
    return [visit["look"] for visit in visits]
