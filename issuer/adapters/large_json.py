"""Reads the small part of a large JSON object that is needed: the rest is skipped, not parsed into anything. Pure.

msgspec's scanner skips 100 MB in a tenth of a second and without memory; what it does not skip goes to the strict
reader. It knows neither `NaN` nor duplicate members: the rest of this file is about these.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from issuer.adapters.evidence import Octets
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_json import pointer_to

MAX_REST = 8 * 2**20  # of a document, without the members that may be large
MAX_MEMBERS = 1000
MAX_NOT_NUMBERS = 200_000
MAX_LOOKED_AT = 1_000_000
_CHUNK = 2**20

T = TypeVar("T")

_MEMBER = re.compile(rb'[ \t\n\r]*("(?:[^"\\]|\\.)*")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_AFTER = re.compile(rb"[ \t\n\r]*([,}])")
_OPEN = re.compile(rb"[ \t\n\r]*\{")
_BYTE = re.compile(r"(.*) \(byte ([0-9]+)\)")
# Of the same length, so that nothing moves: only that there is a value matters, not which.
_NUMBERS = {b"NaN": b"0.0", b"-Infinity": b"-0.000000", b"Infinity": b"0.000000"}


def without(raw: Octets, members: frozenset[str], *, name: str) -> bytes:
    """Return the JSON object with `null` for the values of these members, which are well-formed JSON but for NaN. A
    bytearray is used in place, and unchanged afterwards; bytes with a NaN in them are copied. Raises InputError:
    `file.encoding`, `file.syntax`, `file.schema` where it is not an object, `file.too_large` for absurd nesting,
    `file.duplicate_key` for a member (of the object itself) that is named twice."""
    kept, start = [], 0
    for member, begin, end in spans(raw, name):
        if member in members:
            kept += [bytes(raw[start:begin]), b"null"]
            start = end
    return b"".join([*kept, bytes(raw[start:])])


def members(raw: Octets, name: str) -> frozenset[str]:
    """Return the names of an object's members. Raises as `without` does."""
    return frozenset(member for member, _, _ in spans(raw, name))


def spans(raw: Octets, name: str) -> list[tuple[str, int, int]]:
    """Return each member of the object with the begin and end of its value. Raises as `without` does."""
    _demand_utf8(raw, name)
    return _with_numbers(raw, name, lambda text: _scanned(text, name))


def picked(raw: Octets, kind: type[T], name: str, rule: str) -> T:
    """Decode what `kind` names of a document, and skip the rest. A NaN in it is read as some number. Raises InputError:
    `file.schema` with this rule for a value of another type, `file.syntax` for no JSON."""
    return _with_numbers(raw, name, lambda text: _decoded(text, kind, name, rule))


def _with_numbers(raw: Octets, name: str, work: Callable[[Octets], T]) -> T:
    """Do the work on the text, or where it meets a NaN, on the text with a number in place of each."""
    try:
        return work(raw)
    except _NotANumberError:
        buffer = raw if isinstance(raw, bytearray) else bytearray(raw)
        taken_out = _take_out(buffer, name)
        try:
            return work(buffer)
        except _NotANumberError as error:
            raise _syntax(raw, "invalid character", error.at, name) from None
        finally:
            for at, word in taken_out:
                buffer[at : at + len(word)] = word


class _Large(msgspec.Struct):
    """The members that may be large in a document of any format."""

    samples: msgspec.Raw = msgspec.Raw()
    reductions: msgspec.Raw = msgspec.Raw()
    body: msgspec.Raw = msgspec.Raw()


class _NotANumberError(Exception):
    def __init__(self, at: int) -> None:
        self.at = at


def _demand_utf8(raw: Octets, name: str) -> None:
    if raw.isascii():
        return
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(raw)
    for start in range(0, len(raw) + 1, _CHUNK):
        chunk = view[start : start + _CHUNK]
        try:
            decoder.decode(chunk, final=start + _CHUNK > len(raw))
        except UnicodeDecodeError as error:
            rule = f"not UTF-8 near byte {start + error.start}"
            raise InputError(Code.FILE_ENCODING, rule, Place(name)) from None


def _scanned(raw: Octets, name: str) -> list[tuple[str, int, int]]:
    large = _decoded(raw, _Large, name)
    if len(raw) - len(large.samples) - len(large.reductions) - len(large.body) > MAX_REST:
        rule = f"more than {MAX_REST} bytes beside samples and results"
        raise InputError(Code.FILE_TOO_LARGE, rule, Place(name))
    values = _decoded(raw, dict[str, msgspec.Raw], name)
    if len(values) > MAX_MEMBERS:
        raise InputError(Code.FILE_TOO_LARGE, f"more than {MAX_MEMBERS} members", Place(name))
    return list(_walked(raw, values, name))


def _decoded(raw: Octets, kind: type[T], name: str, rule: str = "must be a JSON object") -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise InputError(Code.FILE_TOO_LARGE, "nested too deep", Place(name)) from None
    except msgspec.ValidationError:
        raise InputError(Code.FILE_SCHEMA, rule, Place(name)) from None
    except msgspec.DecodeError as error:
        said = _BYTE.fullmatch(str(error))
        what, at = (said[1].rpartition(": ")[2], int(said[2])) if said else ("the text ends too early", len(raw))
        if any(raw[at : at + len(word)] == word for word in _NUMBERS) or raw[at - 1 : at + 8] == b"-Infinity":
            raise _NotANumberError(at) from None
        raise _syntax(raw, what, at, name) from None
    except UnicodeDecodeError:
        raise InputError(Code.FILE_ENCODING, "not UTF-8", Place(name)) from None


def _walked(raw: Octets, values: dict[str, msgspec.Raw], name: str) -> Iterator[tuple[str, int, int]]:
    """Walk the members in the order of the text, and compare each value with the text at its place. Of a member that is
    named twice the decoder kept only the last value: the comparison finds the first."""
    view, seen = memoryview(raw), set()
    opened = _OPEN.match(raw)
    at, following = opened.end() if opened else 0, b"," if values else b"}"
    while following == b",":
        key = _MEMBER.match(raw, at)
        member = str(json.loads(key[1], strict=False)) if key else ""
        value = memoryview(values.get(member, b""))
        begin = key.end() if key else at
        end = begin + len(value)
        after = _AFTER.match(raw, end)
        if member in seen or after is None or view[begin:end] != value:
            rule = "this member is named twice"
            raise InputError(Code.FILE_DUPLICATE_KEY, rule, Place(name), pointer_to("", member))
        seen.add(member)
        yield member, begin, end
        at, following = after.end(), after[1]


def _take_out(buffer: bytearray, name: str) -> list[tuple[int, bytes]]:
    """Put a number for each NaN and Infinity, also inside a string; return what was where."""
    taken_out, looked_at = [], 0
    for word, number in _NUMBERS.items():
        at = buffer.find(word)
        while at >= 0:
            after = bytes(buffer[at + len(word) : at + len(word) + 1])
            if at and buffer[at - 1] in b" \t\n\r:,[" and after in {b" ", b"\t", b"\n", b"\r", b",", b"]", b"}"}:
                taken_out.append((at, word))
                buffer[at : at + len(word)] = number
            looked_at += 1
            if len(taken_out) > MAX_NOT_NUMBERS or looked_at > MAX_LOOKED_AT:
                for start, original in taken_out:
                    buffer[start : start + len(original)] = original
                raise InputError(Code.FILE_TOO_LARGE, "too many times NaN", Place(name))
            at = buffer.find(word, at + len(word))
    return taken_out


def _syntax(raw: Octets, what: str, at: int, name: str) -> InputError:
    line = raw.count(b"\n", 0, at) + 1
    column = at - raw.rfind(b"\n", 0, at)
    return InputError(Code.FILE_SYNTAX, what, Place(name, line, column))
