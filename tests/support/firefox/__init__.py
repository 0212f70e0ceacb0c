"""Debian's Firefox: `drive.mjs` does on a page the steps that a test names. Playwright drives only a Firefox of its own
making: this one is driven by WebDriver BiDi."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def drive(steps: Sequence[object], folder: Path) -> dict[str, Any]:
    """Do these steps in a browser that has seen nothing; return what the visit saw, as `tests.support.browser` does."""
    _install(folder)
    plan = folder / "steps.json"
    plan.write_text(json.dumps(steps), "utf-8")
    command = ["node", "drive.mjs", str(plan), str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _install(folder: Path) -> None:
    if not (folder / "node_modules").exists():
        shutil.copytree(_HERE, folder, dirs_exist_ok=True)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
