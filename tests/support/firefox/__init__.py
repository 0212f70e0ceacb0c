"""Debian's Firefox: `drive.mjs` does the steps of a test on a page, by WebDriver BiDi (Playwright needs its own Firefox)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.node import install_node, run_node


def drive(steps: Sequence[object], folder: Path) -> dict[str, Any]:
    """Do these steps in a fresh browser, and return the visit in the form of `tests.support.browser`."""
    install_node(Path(__file__).parent, folder)
    plan = folder / "steps.json"
    plan.write_text(json.dumps(steps), "utf-8")
    return dict(json.loads(run_node(folder, "drive.mjs", plan, folder)))
