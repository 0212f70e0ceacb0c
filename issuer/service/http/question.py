"""The body of `POST /verify` (contract section 5): bytes in, a question to `issuer.verify` out. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Refused
from issuer.formats import strict_yaml
from issuer.formats.strict_json import Text, convert, count_values, loads
from issuer.formats.times import UnixTime
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.entry import Entry, read_entries, read_entry
from issuer.service.bounds import MAX_QUESTION_BYTES, MAX_QUESTION_DEPTH, MAX_QUESTION_VALUES


class VerifyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body: exactly one of `entry` (one entry as JSON) and `yaml` (the text of a result file), and where it sits.

    `benchmark` is the text of the benchmark's `eval.yaml` as of the entry's `dataset.revision`. `at` (Unix seconds) is
    when the file was received; without it the answer is a reader's, who cannot know.
    """

    repo: Text
    path: Text
    entry: dict[str, Any] | UnsetType = UNSET
    yaml: str | UnsetType = UNSET
    benchmark: str | UnsetType = UNSET
    at: UnixTime | UnsetType = UNSET


class Question(Struct, frozen=True):
    """What is to be judged. `at` is None where the question gives no time."""

    entries: tuple[Entry, ...]
    repo: str
    path: str
    at: int | None
    benchmarks: dict[tuple[str, str], Benchmark]


def read_question(raw: bytes) -> Question:
    """Read a body of at most 64 KiB. Raises Refused: 400 with the place in the body, and in the text within it."""
    try:
        _demand_few(raw)
        asked = convert(loads(raw, max_bytes=MAX_QUESTION_BYTES, max_depth=MAX_QUESTION_DEPTH), VerifyRequest)
    except FormatError as error:
        raise _refusal_of_body(error) from None
    entries = _read_entries(asked)
    benchmarks = _read_benchmarks(asked, entries)
    return Question(entries, asked.repo, asked.path, None if asked.at is UNSET else asked.at, benchmarks)


def _demand_few(raw: bytes) -> None:
    """Refuse more values than may be asked about, before any is read; `yaml` and `benchmark` are counted apart."""
    if count_values(raw, MAX_QUESTION_VALUES) > MAX_QUESTION_VALUES:
        raise Refused.at(Code.REQUEST_MALFORMED, "", f"more than {MAX_QUESTION_VALUES} values")


def _read_entries(asked: VerifyRequest) -> tuple[Entry, ...]:
    if (asked.entry is UNSET) == (asked.yaml is UNSET):
        raise Refused.at(Code.REQUEST_MALFORMED, "", "Give exactly one of `entry` and `yaml`")
    if asked.yaml is not UNSET:
        try:
            return read_entries(asked.yaml.encode(), "yaml", max_values=MAX_QUESTION_VALUES)
        except InputError as error:
            raise _refusal_of_text(error, "/yaml") from None
    try:
        return (read_entry(asked.entry),)  # type: ignore[arg-type]
    except FormatError as error:
        raise _refusal_of_entry(error) from None


def _read_benchmarks(asked: VerifyRequest, entries: tuple[Entry, ...]) -> dict[tuple[str, str], Benchmark]:
    """Believe that this is the `eval.yaml` of the entries' commit: the answer is only for the party that says so."""
    if asked.benchmark is UNSET:
        return {}
    try:
        benchmark = read_benchmark(asked.benchmark.encode(), "benchmark", max_values=MAX_QUESTION_VALUES)
    except InputError as error:
        raise _refusal_of_text(error, "/benchmark") from None
    return {(entry.dataset.id, entry.dataset.revision or ""): benchmark for entry in entries}


_CODES = {
    Code.FILE_DUPLICATE_KEY: Code.REQUEST_DUPLICATE_MEMBER,
    Code.FILE_UNKNOWN_MEMBER: Code.REQUEST_UNKNOWN_MEMBER,
}


def _refusal_of_body(error: FormatError) -> Refused:
    place = f"line {error.line}, column {error.column}: " if error.line else ""
    return Refused.at(_CODES.get(error.code, Code.REQUEST_MALFORMED), error.pointer, place + error.detail)


def _refusal_of_entry(error: FormatError) -> Refused:
    """Refuse for a fault in an entry that is JSON: with the same advice about quotes as for one in YAML."""
    return Refused.at(
        _CODES.get(error.code, Code.REQUEST_MALFORMED), f"/entry{error.pointer}", strict_yaml.describe(error)
    )


def _refusal_of_text(error: InputError, member: str) -> Refused:
    """Refuse for a fault in the text of a member, by its line and column there."""
    place = f"line {error.place.line}, column {error.place.column}: " if error.place.line else ""
    unknown = error.code is Code.FILE_UNKNOWN_MEMBER
    code = Code.REQUEST_UNKNOWN_MEMBER if unknown else Code.REQUEST_MALFORMED
    return Refused.at(code, member, place + error.detail)
