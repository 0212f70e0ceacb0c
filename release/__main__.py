"""`make dist`: the commit's sdist and wheel, a bill of materials, and their digests, in dist/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from release.dist import Differs, release

if __name__ == "__main__":
    root = Path(__file__).parents[1]
    try:
        for made in release(root, root / "dist"):
            print(made.relative_to(root))
    except (Differs, subprocess.CalledProcessError) as failed:
        sys.exit(f"release: {failed}")
