"""The evaluation frameworks themselves and other Pythons, where they are installed; for tests marked long.

`check.lock` has all except HELM, which needs an older zstandard than the others. Each is looked for beside this Python, in
the folders of $EVAL_FRAMEWORKS (`bin` folders of virtual environments, separated by colons) and on PATH.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_BESIDE = str(Path(sys.executable).parent)
_FOLDERS = os.pathsep.join([_BESIDE, *os.environ.get("EVAL_FRAMEWORKS", "").split(":"), os.environ["PATH"]])


def framework(command: str) -> str:
    """Return the path of a framework's command; without one the test is skipped."""
    found = shutil.which(command, path=_FOLDERS)
    if found is None:
        pytest.skip(f"needs {command}: install it, and name its folder in $EVAL_FRAMEWORKS")
    return found


def interpreter(version: str) -> str:
    """Find an interpreter on the path, or as uv does, without a download; "" if it is missing."""
    uv = str(Path(sys.executable).parent / "uv")
    for command in ([f"python{version}"], [uv, "python", "find", "--no-python-downloads", "--system", version]):
        asked = [*command, "-c", "import sys; print(sys.executable)"] if len(command) == 1 else command
        try:
            done = subprocess.run(asked, capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return ""


def run(folder: Path, *command: object, env: Mapping[str, str] | None = None, timeout_s: int = 600) -> str:
    """Run a framework in a folder, offline, with nothing of this environment but `env`; return what it prints."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**own, **(env or {})},
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr
