"""Parsing steps that all readers share: JSON with bounds, numbers, times, digests, and the place of a text. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import chain
from pathlib import PurePath
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta, Struct

from issuer.adapters.run import RunText
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, reading
from issuer.formats import strict_json
from issuer.formats.strict_json import JSON
from issuer.results.claims import REVISION, is_repo

Octets: TypeAlias = bytes | bytearray
T = TypeVar("T")

MAX_BYTES = 8 * 2**20  # of a file that is parsed whole
MAX_VALUES = 500_000  # in such a file: at most 300 bytes of memory each
MAX_DEPTH = 64
MAX_SCORES = 10_000
MAX_NAME = 512  # characters of a task's or metric's name, which each of its scores repeats
SERVED = "The model was reached at a server's address; the file does not say which weights the server had."

MAX_COUNT = 2**53 - 1
MAX_WORD = 256


class ResultsFile(Struct, frozen=True):
    """The member that the results files of several frameworks share: the metrics of each task, and their values."""

    results: Annotated[
        dict[str, Annotated[dict[str, object], Meta(max_length=1000)]], Meta(min_length=1, max_length=2000)
    ]


F = TypeVar("F", bound=ResultsFile)


class InexactNumber(Struct, frozen=True):
    """A number that claims cannot represent (NaN, 30 digits). It matters only if a claim needs it."""

    text: str
    rule: str

    def __str__(self) -> str:
        return self.text


def _lenient_number(text: str) -> int | float | InexactNumber:
    try:
        return strict_json.exact_number(text)
    except ValueError as error:
        return InexactNumber(text, str(error))


def read_json(raw: Octets, kind: type[T], name: str, *, max_depth: int = MAX_DEPTH) -> T:
    """Read a JSON file of at most 8 MiB and 500,000 values. Unknown members are skipped, and numbers that no claim uses
    may be NaN. Raises InputError: `file.*` of the strict reader, `file.schema` for a member of the wrong type."""
    with reading(name):
        tree = strict_json.loads(
            bytes(raw), max_bytes=MAX_BYTES, max_depth=max_depth, max_values=MAX_VALUES, number=_lenient_number
        )
        return strict_json.convert(tree, kind)


def read_results(raw: Octets, kind: type[F], name: str) -> F:
    """Read a results file. Raises InputError as `read_json`, `file.rule` for more than 10,000 scores, and
    `file.too_large` for a long name."""
    file = read_json(raw, kind, name)
    demand_short(chain(file.results, *file.results.values()), name, "/results")
    if sum(map(len, file.results.values())) > MAX_SCORES:
        raise broken(name, "/results", f"more than {MAX_SCORES} scores")
    return file


def demand_short(names: Iterable[str], file: str, pointer: str) -> None:
    """Raise InputError(`file.too_large`) for a name of more than 512 characters."""
    if any(len(name) > MAX_NAME for name in names):
        raise too_large(file, f"a name of more than {MAX_NAME} characters", pointer)


def same(texts: Iterable[str]) -> str:
    """Return the text if all of these are equal, or "" if they differ."""
    different = set(texts)
    return different.pop() if len(different) == 1 else ""


def total(counts: Collection[int | None]) -> int | None:
    """Return the sum of these counts; None if one of them is not known, or the sum is 0."""
    return None if None in counts else sum(count for count in counts if count) or None


def used_of(counts: Mapping[str, tuple[int | None, int | None]]) -> str:
    """Return the reason for a partial run. `counts` has for each task the numbers of used and of existing samples."""
    used, available = (sum(count[which] or 0 for count in counts.values()) for which in (0, 1))
    tasks = repr(next(iter(counts))[:64]) if len(counts) == 1 else f"{len(counts)} tasks"
    return f"{used} of {available} samples of {tasks} were used"


def measured(value: object, pointer: str) -> tuple[int | float, Fault | None]:
    """Return a score's value, or 0 and the reason why the score has no value (`N/A`, NaN, null, text)."""
    if isinstance(value, InexactNumber):
        return 0, Fault(Code.FILE_NUMBER, pointer, value.rule)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0, Fault(Code.FILE_SCHEMA, pointer, "a metric's value must be a number")
    return value, None


def said(text: str | None, pointer: str) -> RunText | None:
    """Return a text of the run with its place, or None for "", which frameworks write for an absent text."""
    return RunText(text, pointer) if text else None


def count_of(value: object) -> int | None:
    """Return a number of samples or repetitions; None for anything else, as frameworks write -1 or null for unknown."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None


def word_of(value: object) -> str:
    """Return a short text or an integer of the run as text for `details.run`; "" for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    # The length comes first: the readers ask again for each task.
    return text if len(text) <= MAX_WORD and text.isprintable() else ""


def commit_of(value: object) -> str:
    """Return a full commit, "" for anything else, such as `main`."""
    return value if isinstance(value, str) and REVISION.fullmatch(value) else ""


def repo_of(value: object) -> str:
    """Return a name in the shape `owner/name`, "" for anything else."""
    return value if isinstance(value, str) and is_repo(value) else ""


def artifact(raw: Octets, name: str) -> dict[str, JSON]:
    """Return the name and digest of an evidence file, without its folder, which is private."""
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    file_name = PurePath(name).name
    return {"name": file_name, "sha256": digest} if file_name else {"sha256": digest}


def words(members: Mapping[str, str | int | None]) -> dict[str, JSON]:
    """Return the members of `details.run` that have a value."""
    return {name: word for name, word in members.items() if word not in {None, ""}}


def is_moment(text: str) -> bool:
    """Return whether the text is an ISO 8601 date and time with an offset."""
    try:
        return len(text) >= 20 and text[10] == "T" and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def reason(pointer: str, rule: str) -> Fault:
    """Return a reason why a score or the completeness of a run is in doubt."""
    return Fault(Code.FILE_RULE, pointer, rule)


def broken(name: str, pointer: str, rule: str) -> InputError:
    """Return the error for a run that must not be used."""
    return InputError(Code.FILE_RULE, rule, Place(name), pointer)


def too_large(name: str, rule: str, pointer: str = "") -> InputError:
    """Return the error for a file that exceeds a bound."""
    return InputError(Code.FILE_TOO_LARGE, rule, Place(name), pointer)
