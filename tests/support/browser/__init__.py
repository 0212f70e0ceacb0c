"""Pages in Debian's Chromium: `look.mjs` opens a leaderboard, `drive.mjs` does the steps that a test names. npm installs
what they need by its lock."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
THEMES, WIDTHS = ("light", "dark"), (1280, 360)


def look(page: Path, folder: Path) -> Any:
    """Open a page in both themes and at two widths; screenshots are in `folder`, where the packages are installed."""
    _install(folder)
    return json.loads(_run(["node", "look.mjs", str(page), str(folder)], folder))


def drive(
    steps: Sequence[object], folder: Path, *, themes: Sequence[str] = THEMES, widths: Sequence[int] = WIDTHS
) -> Any:
    """Do these steps at each theme and width, each in a browser that has seen nothing; return what each visit saw."""
    _install(folder)
    plan = folder / "steps.json"
    plan.write_text(json.dumps({"themes": themes, "widths": widths, "steps": steps}), "utf-8")
    return json.loads(_run(["node", "drive.mjs", str(plan), str(folder)], folder))["visits"]


def looks(visits: Sequence[dict[str, Any]], *origins: str) -> list[dict[str, Any]]:
    """Return what was looked at, after what must hold of every visit: nothing was said, kept or asked elsewhere, axe
    found nothing serious, and no page was wider than its window."""
    for visit in visits:
        assert visit["said"] == []
        assert visit["cookies"] == []
        assert [
            url for _, url, _ in visit["requests"] if not url.startswith(tuple(f"{each}/" for each in origins))
        ] == []
        look = visit["look"]
        serious = {name: found for name, found in look.items() if name.startswith("axe") and found}
        assert not serious, serious
        assert look.get("wider", 0) <= 0, "the page is wider than its window"
    return [visit["look"] for visit in visits]


def _install(folder: Path) -> None:
    if not (folder / "node_modules").exists():
        shutil.copytree(_HERE, folder, dirs_exist_ok=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
