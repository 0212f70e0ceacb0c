"""When what must not be lost was copied last: `deploy/backup.sh` says so with a file in the folder of data.

Knows when that file was written, and nothing of what the copy holds or where it is.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "backed-up"


def backed_up_at(data: Path) -> int | None:
    """Return when the last copy was whole, in Unix seconds; None where there never was one, or it cannot be known."""
    try:
        return int(os.stat(data / NAME).st_mtime)
    except OSError:
        return None
