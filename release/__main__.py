"""`make dist`: the sdist, the wheel, the bill of materials and the digests of the commit, in dist/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from release.dist import Differs, release

if __name__ == "__main__":
    root = Path(__file__).parents[1]
    try:
        for file in release(root, root / "dist"):
            print(file.relative_to(root))
    except (Differs, subprocess.CalledProcessError) as error:
        sys.exit(f"release: {error}")
