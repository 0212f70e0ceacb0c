"""`make soak`: a million requests, and whether anything grew."""

import sys
import tempfile
import time
from pathlib import Path

from tests.support.soak import judge, soak

TOTAL = 1_000_000

if __name__ == "__main__":
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        faults = judge(soak(Path(made), int(sys.argv[1]) if len(sys.argv) > 1 else TOTAL))
    print(*(faults or [f"  no growth; {time.monotonic() - began:.0f} s"]), sep="\n")
    sys.exit(bool(faults))
