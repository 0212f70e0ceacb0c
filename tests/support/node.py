"""Programs for Node with packages that npm installs by a lock."""

import shutil
import subprocess
from pathlib import Path


def install_node(source: Path, folder: Path) -> None:
    """Copy a folder of programs, and install the packages of its lock beside them, once."""
    if not (folder / "node_modules").exists():
        shutil.copytree(source, folder, dirs_exist_ok=True)
        _run(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def run_node(folder: Path, *arguments: object, given: str = "") -> str:
    """Run a program in its folder with a text as its input, and return its output."""
    return _run(folder, "node", *map(str, arguments), given=given)


def _run(folder: Path, *command: str, given: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
