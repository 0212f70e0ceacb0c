"""The types that the JavaScript of the pages states in its comments are true, by TypeScript's compiler."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.shared import ROOT

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("node", "npm"), pytest.mark.timeout(300)]

ROOM = ROOT / "issuer/page"
WRONG = """import { leafHash } from "../verify/log/merkle.js";
/** @type {Promise<string>} */
export const hash = leafHash("no bytes");
"""
ANY = """const read = JSON.parse("1");
/** @param {any} value */
export const same = (value) => /** @type {any} */ (read ?? value);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler, by its lock, and a copy of the scripts."""
    made = tmp_path_factory.mktemp("types")
    shutil.copytree(ROOT / "tests/support/javascript/types", made, dirs_exist_ok=True)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=made, check=True, capture_output=True, timeout=200)
    for name in ("ui", "verify"):
        shutil.copytree(ROOM / name, made / name)
    return made


def printed(folder: Path, *program: str) -> list[str]:
    done = subprocess.run(["node", *program], cwd=folder, check=False, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.splitlines()


def with_a_script(folder: Path, script: str, *program: str) -> list[str]:
    """Return what is printed with one script more."""
    wrong = folder / "ui/wrong.js"
    wrong.write_text(script)
    found = printed(folder, *program)
    wrong.unlink()
    return found


TYPES, ANYS = ("node_modules/typescript/bin/tsc", "--project", "."), ("any.mjs",)


def test_every_script_of_the_room_is_among_them(folder: Path) -> None:
    listed = printed(folder, *TYPES, "--listFilesOnly")
    seen = {Path(name).relative_to(folder).as_posix() for name in listed if "node_modules" not in name}
    assert seen == {path.relative_to(ROOM).as_posix() for path in ROOM.rglob("*.js")}


def test_every_type_is_true_and_a_call_with_another_one_is_noticed(folder: Path) -> None:
    assert printed(folder, *TYPES) == []
    found = with_a_script(folder, WRONG, *TYPES)
    assert {line.partition("(")[0] for line in found if not line.startswith(" ")} == {"ui/wrong.js"}
    assert sum("error TS2345" in line or "error TS2322" in line for line in found) == 2


def test_nothing_is_of_any_type_and_no_complaint_is_silenced(folder: Path) -> None:
    assert printed(folder, *ANYS) == []
    assert [path.name for path in ROOM.rglob("*.js") if "@ts-" in path.read_text("utf-8")] == []
    found = with_a_script(folder, ANY, *ANYS)
    places = [line.partition("wrong.js:")[2].partition(" =")[0] for line in found]
    assert places == ["1: read", "3: (value)", "3: value", "3: (read ?? value)"], "a name, a cast and an answer"
