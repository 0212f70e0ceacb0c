"""Values as a message shows them: shortened, absent ones named, and no number mistaken for a text. Pure."""

from __future__ import annotations

import msgspec

MAX_CHARS = 200


def show_value(value: object) -> str:
    """Show a claim's value to the caller whose claim it is, shortened."""
    if value is None:
        return "absent"
    text = show_typed(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def show_typed(value: object) -> str:
    """Show a value so that the number 1 and the text "1", which never match, do not look alike."""
    if isinstance(value, str):
        return value
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "structure"
    return f"the {kind} {msgspec.json.encode(value).decode()}"


def visible(text: str) -> str:
    """Escape what is not seen, or turns what is: control characters, line ends, marks of direction."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
