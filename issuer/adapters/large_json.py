"""A reader for the small part of a large JSON object that is needed; it skips the other members. Pure.

msgspec's scanner skips 100 MB in a tenth of a second and without memory. The remaining members go to the strict reader.
msgspec refuses `NaN` and accepts duplicate members; most code here handles these two cases.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from issuer.adapters.evidence import Octets, too_large
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats.strict_json import pointer_to, prepare

MAX_REST = 8 * 2**20  # of a document, without the members that may be large
MAX_MEMBERS = 1000
MAX_NOT_NUMBERS = 200_000
MAX_LOOKED_AT = 1_000_000
_CHUNK = 2**20

T = TypeVar("T")
U = TypeVar("U")

# Possessive: a long name that is matched again at each of its characters takes a hundred times its size.
_MEMBER = re.compile(rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_AFTER = re.compile(rb"[ \t\n\r]*([,}])")
_OPEN = re.compile(rb"[ \t\n\r]*\{")
_BYTE = re.compile(r"(.*) \(byte ([0-9]+)\)")
# Replacements of the same length keep all offsets. Their values do not matter.
_NUMBERS = {b"NaN": b"0.0", b"-Infinity": b"-0.000000", b"Infinity": b"0.000000"}


def without(raw: Octets, members: frozenset[str], *, name: str) -> bytes:
    """Return the JSON object with `null` as the value of these members. Their values must be well-formed JSON, in which
    NaN is allowed. A bytearray is edited in place and restored; bytes that contain a NaN are copied. Raises InputError:
    `file.encoding`, `file.syntax`, `file.schema` for a document that is not an object, `file.too_large` for deep
    nesting, `file.duplicate_key` for two members of the object with the same name."""
    pieces, start = [], 0
    for member, begin, end in spans(raw, name):
        if member in members:
            pieces += [bytes(raw[start:begin]), b"null"]
            start = end
    return b"".join([*pieces, bytes(raw[start:])])


def members(raw: Octets, name: str) -> frozenset[str]:
    """Return the names of an object's members. Raises as `without` does."""
    return frozenset(member for member, _, _ in spans(raw, name))


def spans(raw: Octets, name: str) -> list[tuple[str, int, int]]:
    """Return each member of the object with the offsets of its value's begin and end. Raises as `without` does."""
    _demand_utf8(raw, name)
    return _with_numbers(raw, name, lambda text: _scanned(text, name))


def picked(raw: Octets, kind: type[T], name: str, rule: str, use: Callable[[T], U]) -> U:
    """Decode the members that `kind` has, skip the others, and return what `use` makes of them. A NaN becomes some
    number, also in a `msgspec.Raw` until `use` returns. Raises InputError: `file.schema` with this rule for a value of
    another type, `file.syntax` if the document is not JSON."""
    return _with_numbers(raw, name, lambda text: use(_decoded(text, kind, name, rule)))


def count_nans(raw: Octets) -> int:
    """Return how many words of the text `picked` may have to look at and replace."""
    return raw.count(b"NaN") + raw.count(b"Infinity")


def _with_numbers(raw: Octets, name: str, work: Callable[[Octets], T]) -> T:
    """Call `work` with the text. If it fails at a NaN, replace each NaN by a number and call it again."""
    try:
        return work(raw)
    except _NotANumberError:
        buffer = raw if isinstance(raw, bytearray) else bytearray(raw)
        replaced = _replace_nans(buffer, name)
        try:
            return work(buffer)
        except _NotANumberError as error:
            raise _syntax(raw, "invalid character", error.at, name) from None
        finally:
            _restore(buffer, replaced)


class _Large(msgspec.Struct):
    """The members that may be large, in all formats."""

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
            raise InputError(Code.FILE_ENCODING, f"not UTF-8 near byte {start + error.start}", Place(name)) from None


def _scanned(raw: Octets, name: str) -> list[tuple[str, int, int]]:
    large = _decoded(raw, _Large, name)
    if len(raw) - len(large.samples) - len(large.reductions) - len(large.body) > MAX_REST:
        raise too_large(name, f"more than {MAX_REST} bytes beside samples and results")
    values = _decoded(raw, dict[str, msgspec.Raw], name)
    if len(values) > MAX_MEMBERS:
        raise too_large(name, f"more than {MAX_MEMBERS} members")
    return list(_walked(raw, values, name))


def _decoded(raw: Octets, kind: type[T], name: str, rule: str = "must be a JSON object") -> T:
    prepare(kind)
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise too_large(name, "nested too deep") from None
    except msgspec.ValidationError:
        raise InputError(Code.FILE_SCHEMA, rule, Place(name)) from None
    except msgspec.DecodeError as error:
        message = _BYTE.fullmatch(str(error))
        fault, at = (message[1].rpartition(": ")[2], int(message[2])) if message else ("the text ends early", len(raw))
        if any(raw[at : at + len(word)] == word for word in _NUMBERS) or raw[at - 1 : at + 8] == b"-Infinity":
            raise _NotANumberError(at) from None
        raise _syntax(raw, fault, at, name) from None
    except UnicodeDecodeError:
        raise InputError(Code.FILE_ENCODING, "not UTF-8", Place(name)) from None


def _walked(raw: Octets, values: dict[str, msgspec.Raw], name: str) -> Iterator[tuple[str, int, int]]:
    """Yield the members in the order of the text, each compared with the decoder's value. For a duplicate member the
    decoder has only the last value, so the comparison fails at the first."""
    view, names = memoryview(raw), set()
    opened = _OPEN.match(raw)
    at, following = opened.end() if opened else 0, b"," if values else b"}"
    while following == b",":
        key = _MEMBER.match(raw, at)
        member = str(json.loads(key[1], strict=False)) if key else ""
        value = memoryview(values.get(member, b""))
        begin = key.end() if key else at
        end = begin + len(value)
        after = _AFTER.match(raw, end)
        if member in names or after is None or view[begin:end] != value:
            raise InputError(Code.FILE_DUPLICATE_KEY, "this member is named twice", Place(name), pointer_to("", member))
        names.add(member)
        yield member, begin, end
        at, following = after.end(), after[1]


def _replace_nans(buffer: bytearray, name: str) -> list[tuple[int, bytes]]:
    """Replace each NaN and Infinity by a number, also inside strings. Return the replaced words with their offsets."""
    replaced: list[tuple[int, bytes]] = []
    looked_at = 0
    for word, number in _NUMBERS.items():
        at = buffer.find(word)
        while at >= 0:
            after = bytes(buffer[at + len(word) : at + len(word) + 1])
            if at and buffer[at - 1] in b" \t\n\r:,[" and after in {b" ", b"\t", b"\n", b"\r", b",", b"]", b"}"}:
                replaced.append((at, word))
                buffer[at : at + len(word)] = number
            looked_at += 1
            if len(replaced) > MAX_NOT_NUMBERS or looked_at > MAX_LOOKED_AT:
                _restore(buffer, replaced)
                raise too_large(name, "too many NaN")
            at = buffer.find(word, at + len(word))
    return replaced


def _restore(buffer: bytearray, replaced: list[tuple[int, bytes]]) -> None:
    for at, word in replaced:
        buffer[at : at + len(word)] = word


def _syntax(raw: Octets, fault: str, at: int, name: str) -> InputError:
    line = raw.count(b"\n", 0, at) + 1
    column = at - raw.rfind(b"\n", 0, at)
    return InputError(Code.FILE_SYNTAX, fault, Place(name, line, column))
