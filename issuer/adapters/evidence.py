"""What every reader takes from a run's files: numbers, times, digests, and the place of a word. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta

from issuer.adapters.run import Said
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON

Octets: TypeAlias = bytes | bytearray
# What each task of a results file was measured as, by the task's name.
Results: TypeAlias = Annotated[
    dict[str, Annotated[dict[str, object], Meta(max_length=1000)]], Meta(min_length=1, max_length=2000)
]
T = TypeVar("T")

MAX_BYTES = 8 * 2**20  # of a file that is parsed whole
MAX_DEPTH = 64
MAX_SCORES = 10_000
SERVED = "The model was reached at a server's address: which weights were served there, the file does not say."

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


def read_json(raw: Octets, kind: type[T], name: str, *, max_depth: int = MAX_DEPTH) -> T:
    """Read a JSON file of at most 8 MiB; unknown members are skipped, and numbers that are not used may be NaN. Raises
    InputError: `file.*` of the strict reader, `file.schema` for a member of the wrong type."""
    with reading(name):
        tree = strict_json.loads(bytes(raw), max_bytes=MAX_BYTES, max_depth=max_depth, number=lenient_number)
        return strict_json.convert(tree, kind)


def demand_few_scores(results: Results, name: str) -> None:
    """Raise InputError(`file.rule`) for more scores than any run has."""
    if sum(map(len, results.values())) > MAX_SCORES:
        raise broken(name, "/results", f"more than {MAX_SCORES} scores")


def used_of(counts: Mapping[str, tuple[int | None, int | None]]) -> str:
    """Say how many samples of these tasks were used, of how many that there are."""
    used, there = (sum(count[which] or 0 for count in counts.values()) for which in (0, 1))
    tasks = repr(next(iter(counts))[:64]) if len(counts) == 1 else f"{len(counts)} tasks"
    return f"{used} of {there} samples of {tasks} were used"


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
