"""What every reader takes from a run's files: numbers, times, digests, and the place of a word. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import TypeAlias

from issuer.adapters.run import Said
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON

Octets: TypeAlias = bytes | bytearray

MAX_COUNT = 2**53 - 1
MAX_WORD = 256


class InexactNumber:
    """A number that claims cannot carry (NaN, 30 digits). It does no harm where it is not used."""

    def __init__(self, rule: str) -> None:
        self.rule = rule


def lenient_number(text: str) -> int | float | InexactNumber:
    """Read a number for `strict_json.loads`; one that cannot be carried is refused only where it is used."""
    try:
        return strict_json.exact_number(text)
    except ValueError as error:
        return InexactNumber(str(error))


def measured(value: object, pointer: str) -> tuple[int | float, Fault | None]:
    """Return a score's value, or 0 with the reason why it has none (`N/A`, NaN, null, text)."""
    if isinstance(value, InexactNumber):
        return 0, Fault(Code.FILE_NUMBER, pointer, value.rule)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0, Fault(Code.FILE_SCHEMA, pointer, "a metric's value must be a number")
    return value, None


def said(text: str | None, pointer: str) -> Said | None:
    """Return a word of the run with its place; frameworks write "" for an absent one."""
    return Said(text, pointer) if text else None


def count_of(value: object) -> int | None:
    """Return a number of samples or repetitions, None for anything else: frameworks write -1 or null where they do
    not know it."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None


def word_of(value: object) -> str:
    """Return a short word or whole number of a run for `details.run` as text, "" for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isprintable() and len(text) <= MAX_WORD else ""


def artifact(raw: Octets, name: str) -> dict[str, JSON]:
    """Return name and digest of an evidence file; not its folder, which is private."""
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    file_name = PurePath(name).name
    return {"name": file_name, "sha256": digest} if file_name else {"sha256": digest}


def words(members: Mapping[str, str | int | None]) -> dict[str, JSON]:
    """Return the run's own words for `details.run`, without absent ones."""
    return {name: word for name, word in members.items() if word not in {None, ""}}


def is_moment(text: str) -> bool:
    """Say whether a text is an ISO 8601 date and time with its offset."""
    try:
        return len(text) >= 20 and text[10] == "T" and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def broken(name: str, pointer: str, rule: str) -> InputError:
    """Make the error for a run that must not be used."""
    return InputError(Code.FILE_RULE, rule, Place(name), pointer)
