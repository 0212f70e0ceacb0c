"""Times in Unix seconds, as they are read everywhere here, and how people see them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

# The year 2242. A time in milliseconds lies beyond it, and so is never taken for one in seconds.
MAX_UNIX_S = 2**33
UnixTime = Annotated[int, Meta(ge=0, le=MAX_UNIX_S)]
# How far a provider's clock may be off: one constant for the decoder and for the life of the use record.
LEEWAY_S = 30
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def show_time(moment: int) -> str:
    """Show Unix seconds as people read them: `2026-11-21T09:00:00Z`."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # beyond the years that have names
        return f"Unix second {moment}"


def show_span(seconds: int) -> str:
    """Show a length of time by its largest unit and the one below: `1 d 19 h`, `1 h`, `45 s`."""
    left = abs(seconds)
    largest = next((index for index, (_, size) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    parts: list[str] = []
    for name, size in _UNITS[largest : largest + 2]:
        count, left = divmod(left, size)
        if count or not parts:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def show_when(moment: int, now: int) -> str:
    """Show Unix seconds, and how long ago that was or in what time it will be: `2026-11-21T09:00:00Z (2 h ago)`."""
    span = show_span(moment - now)
    return f"{show_time(moment)} ({f'in {span}' if moment > now else f'{span} ago'})"
