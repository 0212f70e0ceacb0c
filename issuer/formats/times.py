"""Times in Unix seconds, as they are read everywhere here, and how people see them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

# The year 2242. A time in milliseconds lies beyond it, and so is never taken for one in seconds.
MAX_UNIX_S = 2**33
UnixTime = Annotated[int, Meta(ge=0, le=MAX_UNIX_S)]


def show_time(moment: int) -> str:
    """Show Unix seconds as people read them: `2026-11-21T09:00:00Z`."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # beyond the years that have names
        return f"Unix second {moment}"
