"""The types that the verifier in JavaScript states in its comments are true, by TypeScript's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.javascript import VERIFIER
from tests.support.shared import ROOT

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("node", "npm"), pytest.mark.timeout(300)]

WRONG = """import { leafHash } from "./log/merkle.js";
/** @type {Promise<string>} */
export const hash = leafHash("no bytes");
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler, by its lock, and a copy of the verifier."""
    made = tmp_path_factory.mktemp("types")
    shutil.copytree(ROOT / "tests/support/javascript/types", made, dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=made, check=True, capture_output=True, timeout=200)
    shutil.copytree(VERIFIER, made / "verify")
    return made


def complaints(folder: Path) -> list[str]:
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", "--project", "."], cwd=folder, check=False, capture_output=True, text=True
    )  # fmt: skip
    assert (done.returncode == 0) == (not done.stdout.strip())
    return done.stdout.splitlines()


def test_every_type_is_true_under_the_strict_rules(folder: Path) -> None:
    assert complaints(folder) == []


def test_a_call_with_another_type_is_noticed(folder: Path) -> None:
    wrong = folder / "verify/wrong.js"
    wrong.write_text(WRONG)
    found = complaints(folder)
    wrong.unlink()
    assert {line.partition("(")[0] for line in found if not line.startswith(" ")} == {"verify/wrong.js"}
    assert sum("error TS2345" in line or "error TS2322" in line for line in found) == 2
