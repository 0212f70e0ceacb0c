"""Times on the command line."""

from __future__ import annotations

from datetime import datetime

import click


def read_time(text: str, option: str) -> int:
    """Read Unix seconds, or ISO 8601 with an offset; return Unix seconds. Raises click.BadParameter."""
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        rule = "give Unix seconds, or ISO 8601 with an offset, as 2026-11-21T09:00:00Z"
        raise click.BadParameter(rule, param_hint=option)
    return int(moment.timestamp())
