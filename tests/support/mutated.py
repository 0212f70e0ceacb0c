"""Values and texts that are changed in one place, for fuzzing."""

import random
from typing import Any


def mutated(dice: random.Random, value: Any) -> Any:
    """Return a JSON value with one place in it replaced, removed or doubled."""
    bad: list[Any] = [None, True, "", " ", "\x00", "a" * 70_000, -1, 1e300, 2**53, 0.1 + 0.2, [], {}, [[]] * 20, "\u202e", "../..",
                      "\ud7ff"]  # fmt: skip
    if isinstance(value, dict) and value and dice.random() < 0.85:
        name = dice.choice(list(value))
        match dice.randrange(4):
            case 0:
                return {other: member for other, member in value.items() if other != name}
            case 1:
                return {**value, name + dice.choice(["x", " ", "\u0131"]): value[name]}
            case _:
                return {**value, name: mutated(dice, value[name])}
    if isinstance(value, list) and value and dice.random() < 0.7:
        return [mutated(dice, value[0]), *value] if dice.random() < 0.5 else [*value, *value]
    return dice.choice(bad)


def bytes_mutated(dice: random.Random, text: bytes) -> bytes:
    at = dice.randrange(len(text))
    junk = dice.choice([b"", b"\xff", b"\x00", b'"', b"{", b"\\u0000", b"1e999", b"\xef\xbb\xbf", dice.randbytes(3)])
    return text[:at] + junk + text[at + dice.randrange(3) :]
