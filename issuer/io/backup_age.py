"""The age of the last backup: `deploy/backup.sh` touches a file in the data folder after each complete copy."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "backed-up"


def backed_up_at(data: Path) -> int | None:
    """Return the time of the last complete copy in Unix seconds, or None if it is unknown."""
    try:
        return int(os.stat(data / NAME).st_mtime)
    except OSError:
        return None
