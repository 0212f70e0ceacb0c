"""A program whose clock is wrong: a library that is preloaded into it, compiled of `skewed_clock.c`."""

import os
import subprocess
from pathlib import Path

from tests.support.shared import ROOT


def clock_ahead(folder: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is so many seconds ahead, behind where they are negative. It takes
    a C compiler: `needs_tool("cc")`."""
    library = folder / "skewed_clock.so"
    if not library.exists():
        source = ROOT / "tests" / "support" / "skewed_clock.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "AHEAD_S": str(seconds)}
