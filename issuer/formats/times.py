"""Times in Unix seconds: their type and bounds, and their text for people. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

# The year 2242. A time in milliseconds is larger, so no reader can mistake it for one in seconds.
MAX_UNIX_S = 2**33
UnixTime = Annotated[int, Meta(ge=0, le=MAX_UNIX_S)]
# How far a provider's clock may be off: one constant for the decoder and for the life of the use record.
LEEWAY_S = 30
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def show_time(moment: int) -> str:
    """Return Unix seconds as text: `2026-11-21T09:00:00Z`."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # datetime ends at the year 9999
        return f"Unix second {moment}"


def show_span(seconds: int) -> str:
    """Return a length of time in its largest unit and the next smaller one: `1 d 19 h`, `1 h`, `45 s`."""
    left = abs(seconds)
    largest = next((index for index, (_, size) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    parts: list[str] = []
    for name, size in _UNITS[largest : largest + 2]:
        count, left = divmod(left, size)
        if count or not parts:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def show_when(moment: int, now: int) -> str:
    """Return Unix seconds as text, with their distance from now: `2026-11-21T09:00:00Z (2 h ago)`."""
    span = show_span(moment - now)
    return f"{show_time(moment)} ({f'in {span}' if moment > now else f'{span} ago'})"
