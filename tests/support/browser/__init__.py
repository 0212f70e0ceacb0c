"""Pages in Debian's Chromium: `look.mjs` opens one and says what was seen; npm installs what that needs by its lock."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def look(page: Path, folder: Path) -> Any:
    """Open a page in both themes and at two widths; screenshots are in `folder`, where the packages are installed."""
    if not (folder / "node_modules").exists():
        shutil.copytree(_HERE, folder, dirs_exist_ok=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return json.loads(_run(["node", "look.mjs", str(page), str(folder)], folder))


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout
