"""A strict JSON reader (RFC 8259, I-JSON of RFC 7493), and typed values out of what it read.

Refuses what parsers disagree about: duplicate members (also in escaped spelling), lone surrogates, NUL, a byte order
mark, other encodings, NaN, and numbers that a double cannot carry exactly (contract section 2). The standard
library's C scanner does the reading; its hooks leave a mark where a rule is broken, and only then is the tree walked
for the place. msgspec reads objects that are clearly good in a third of the time; it alone refuses nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place


class VersionOne(Struct, frozen=True):
    """What a line of the first version has, whatever else it has."""

    version: Literal[1]


JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Scalar: TypeAlias = str | bool | int
T = TypeVar("T")

MAX_EXACT_INTEGER = 2**53 - 1
MAX_SIGNIFICANT_DIGITS = 17
SHORT_CHARS = 15
LONGEST = 500  # of a message that quotes

_write = msgspec.json.Encoder().encode

_SURROGATE = re.compile("[\ud800-\udfff]")
_SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
_MANTISSA = re.compile(r"[-+]?([0-9]*)\.?([0-9]*)")


def exact_number(text: str) -> int | float:
    """Read a decimal number as the nearest double, or as an int where it is spelled as one; `-0` becomes 0. Raises
    ValueError, saying which rule is broken: not finite, over- or underflow, integral beyond 2^53 - 1 in any spelling,
    more than 17 significant digits (contract section 2)."""
    if len(text) <= SHORT_CHARS and _INTEGER.fullmatch(text):
        return int(text)  # a time, a count: the rules below cannot refuse it
    if len(text) <= SHORT_CHARS and _DECIMAL.fullmatch(text) and (value := float(text)):
        return value  # a score: neither too large nor too small, and with few enough digits
    match = _MANTISSA.match(text)
    digits = "".join(match.groups()).lstrip("0") if match else ""
    if len(digits) > MAX_SIGNIFICANT_DIGITS:
        raise ValueError(f"more than {MAX_SIGNIFICANT_DIGITS} significant digits")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite as a double")
    if value == 0 and digits:
        raise ValueError("too small for a double")
    if value.is_integer() and abs(value) > MAX_EXACT_INTEGER:
        raise ValueError("an integer beyond 2^53 - 1, which readers round differently")
    return int(value) if _INTEGER.fullmatch(text) else value + 0.0  # -0.0 + 0.0 is 0.0


class _Broken:
    """Marks the place in the tree where a rule was broken, until the walk has found its pointer."""

    __slots__ = ("code", "detail")

    def __init__(self, code: Code, detail: str) -> None:
        self.code = code
        self.detail = detail


class _Reading:
    """The scanner's hooks, and whether one of them left a mark."""

    def __init__(self, number: Callable[[str], object]) -> None:
        self.broken = False
        self._number = number

    def _mark(self, code: Code, detail: str) -> _Broken:
        self.broken = True
        return _Broken(code, detail)

    def number(self, text: str) -> object:
        try:
            return self._number(text)
        except ValueError as error:
            return self._mark(Code.FILE_NUMBER, str(error))

    def members(self, pairs: list[tuple[str, object]]) -> object:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    members[name] = self._mark(Code.FILE_DUPLICATE_KEY, "this member is named twice")
                seen.add(name)
        return members


def pointer_to(parent: str, name: str | int) -> str:
    """Append one reference token to a JSON pointer (RFC 6901 section 4)."""
    return f"{parent}/{str(name).replace('~', '~0').replace('/', '~1')}"


Path: TypeAlias = "tuple[Path, str | int] | None"


def pointer_along(path: Path) -> str:
    """Return the JSON pointer of a path, which is a chain from the leaf up. Walks carry a path and make the pointer
    where they fail: one pointer per value is quadratic under a long name."""
    names: list[str | int] = []
    while path is not None:
        path, name = path
        names.append(name)
    return "".join(pointer_to("", name) for name in reversed(names))


def _walk(value: object, path: Path, depth: int, max_depth: int) -> None:
    """Raise for the first thing in the tree that breaks a rule, in document order."""
    if isinstance(value, _Broken):
        raise FormatError(value.code, value.detail, pointer_along(path))
    if isinstance(value, str):
        if "\x00" in value:
            raise FormatError(Code.FILE_ENCODING, "a NUL character", pointer_along(path))
        if not value.isascii() and _SURROGATE.search(value):
            raise FormatError(Code.FILE_ENCODING, "half of a surrogate pair", pointer_along(path))
    elif isinstance(value, list | dict):
        if depth >= max_depth:
            raise FormatError(Code.FILE_TOO_LARGE, f"nested deeper than {max_depth}", pointer_along(path))
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(name, str):
                _walk(name, path, depth, max_depth)
            _walk(item, (path, name), depth + 1, max_depth)


def loads(raw: bytes, *, max_bytes: int, max_depth: int, number: Callable[[str], object] = exact_number) -> JSON:
    """Read one JSON document of at most `max_bytes`, whose arrays and objects nest at most `max_depth` deep. `number`
    reads each number's text, `NaN` and `Infinity` among them, and raises ValueError for one that it refuses: by default
    everything that a double does not carry exactly. Raises FormatError with a `file.*` code, and a pointer or a line
    and column, never anything else."""
    if len(raw) > max_bytes:
        raise FormatError(Code.FILE_TOO_LARGE, f"larger than {max_bytes} bytes")
    if number is exact_number and (members := _read_quickly(raw, max_depth)) is not None:
        return members
    reading = _Reading(number)
    try:
        text = raw.decode("utf-8")
        value = _scan(text, reading, number)
    except UnicodeDecodeError as error:
        raise FormatError(Code.FILE_ENCODING, f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        # The scanner's own words, without the text that it refused.
        raise FormatError(Code.FILE_SYNTAX, error.msg, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise FormatError(Code.FILE_TOO_LARGE, f"nested deeper than {max_depth}") from None
    # Fewer brackets than the allowed depth cannot nest deeper than it; most documents are not walked at all.
    if reading.broken or text.count("{") + text.count("[") > max_depth or _SUSPECT_ESCAPE.search(text):
        _walk(value, None, 0, max_depth)
    return value


def count_values(raw: bytes, most: int) -> int:
    """Count the values of a JSON document, containers and what is in them, up to `most` + 1; names are no values. For
    bytes that are known to be JSON. Builds nothing, so that a bound comes before the work that it is for."""
    # A value comes first, or after a comma or an opening bracket: nearly every document is counted by these alone.
    opened = raw.count(b"[") + raw.count(b"{") - raw.count(b"[]") - raw.count(b"{}")
    if (at_most := 1 + raw.count(b",") + opened) <= most:
        return at_most
    count = 1
    for token in _TOKEN.finditer(raw):
        count += token.lastindex is not None
        if count > most:
            break
    return count


# Text, up to the end where it has none; an empty container; and, in the group, what a value comes after.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{][ \t\r\n]*+[\]}]|([,\[{])', re.DOTALL)


_read_members = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode
# More digits than a whole number may have: as many zeros, where each digit is made one, which is seen in no time. And
# where one may begin: a colon is before it where it is after a quote.
_LARGE, _DIGITS = b"0" * 16, bytes.maketrans(b"123456789", b"0" * 9)
_LARGE_NUMBER = re.compile(rb'[:,\[](?<![^"]:)-?[0-9]{16}')
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
# A container that holds none.
_INNERMOST = re.compile(rb"\[[^\[\]{}]*+\]|\{[^\[\]{}]*+\}")


def _read_quickly(raw: bytes, max_depth: int) -> dict[str, JSON] | None:
    """Read an object in C; None where anything is in doubt. What msgspec does not know is seen to here: members that
    are named twice, numbers that no double carries, and depth."""
    try:
        value = _read_members(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    written = _write(value)
    is_whole = (written == raw and b"\\" not in raw) or _as_many_texts(raw, written)
    good = is_whole and not _has_large_number(written) and _nests_at_most(written, max_depth)
    return value if good else None


def _has_large_number(written: bytes) -> bool:
    """Say whether JSON that msgspec wrote may have a whole number of 16 digits or more."""
    return _LARGE in written.translate(_DIGITS) and _LARGE_NUMBER.search(written) is not None


def _nests_at_most(written: bytes, depth: int) -> bool:
    """Say whether JSON that msgspec wrote nests at most so deep."""
    if written.count(b"{") + written.count(b"[") <= depth:
        return True
    written = _TEXT.sub(b"", written)  # a bracket in a text opens and closes nothing
    for _ in range(depth):
        written = _INNERMOST.sub(b"", written)
    return not written


def _as_many_texts(raw: bytes, written: bytes) -> bool:
    r"""Say whether msgspec, which keeps the last of two members, has read all of a document; False where in doubt. Each
    string that was read is written with as many quotes as it had, unless one was spelled `\u0022`. So there are fewer
    quotes if and only if a string was lost."""
    return b"\\u" not in raw and raw.count(b'"') == written.count(b'"')


def _scan(text: str, reading: _Reading, number: Callable[[str], object]) -> JSON:
    """Scan the text; hooks that leave marks are used only for one that breaks a rule: they cost more than the scan."""
    try:
        return _decoder(number).decode(text)  # type: ignore[no-any-return]
    except ValueError:
        return json.loads(  # type: ignore[no-any-return]
            text,
            object_pairs_hook=reading.members,
            parse_int=reading.number,
            parse_float=reading.number,
            parse_constant=reading.number,
        )


@lru_cache(8)
def _decoder(number: Callable[[str], object]) -> json.JSONDecoder:
    """Return a decoder that raises ValueError at the first broken rule. Making one takes longer than most scans."""
    return json.JSONDecoder(object_pairs_hook=_distinct, parse_int=number, parse_float=number, parse_constant=number)


def _distinct(pairs: list[tuple[str, object]]) -> object:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is named twice")
    return members


class Misfit(FormatError):
    """A member that does not fit its type: `file.schema`, or `file.unknown_member` where the type has no such member.
    `quotes` is what a YAML file has wrong with them: they are missing around text, or needless around a number."""

    def __init__(self, code: Code, detail: str, quotes: Literal["", "missing", "needless"] = "") -> None:
        super().__init__(code, detail)
        self.quotes = quotes


def convert(value: JSON, kind: type[T]) -> T:
    """Turn the result of a strict reader into a typed value: strict types, unknown members refused. Raises Misfit with
    the pointer of the first member that does not fit."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        raise next(misfits(value, kind)) from None


def misfits(value: JSON, kind: Any) -> Iterator[Misfit]:
    """Yield each member that does not fit the type; nothing if all fit. msgspec stops at the first and hides the keys
    of maps, so a value that does not fit is taken apart along its type: the fault is in the value that does not fit
    although every part of it does."""
    for path, misfit in _misfits(value, kind, None):
        yield misfit.within(pointer_along(path))


_Misfits: TypeAlias = Iterator[tuple[Path, Misfit]]


def _misfits(value: JSON, kind: Any, path: Path) -> _Misfits:
    try:
        msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        message = _PLACE.sub("", str(error))
    else:
        return
    within = _misfits_within(value, _container(value, kind), path)
    first = next(within, None)
    if first is None:
        detail = _in_plain_words(message) + (_choice(kind) if isinstance(value, str) else "")
        yield path, Misfit(Code.FILE_SCHEMA, detail, _quotes(message))
    else:
        yield first
        yield from within


def _misfits_within(value: JSON, kind: Any, path: Path) -> _Misfits:
    """Yield the misfits of the parts of a map or a list; nothing where the type does not describe them."""
    items: Iterable[tuple[str | int, JSON]] = ()
    if isinstance(value, Mapping) and _is_struct(kind):
        yield from _misfits_of_members(value, kind, path)
    elif isinstance(value, Mapping) and get_origin(kind) is dict:
        items, kind = value.items(), get_args(kind)[1]
    elif isinstance(value, list) and (get_origin(kind) is list or get_args(kind)[1:] == (...,)):
        items, kind = enumerate(value), get_args(kind)[0]
    for name, item in items:
        yield from _misfits(item, kind, (path, name))


def _misfits_of_members(members: Mapping[str, JSON], kind: type[msgspec.Struct], path: Path) -> _Misfits:
    fields, config = {field.encode_name: field for field in msgspec.structs.fields(kind)}, kind.__struct_config__
    for name, item in members.items():
        if name in fields:
            yield from _misfits(item, fields[name].type, (path, name))
        elif config.forbid_unknown_fields and name != config.tag_field:
            yield (path, name), _unknown(name, list(fields))
    for name in (name for name, field in fields.items() if field.required and name not in members):
        yield path, Misfit(Code.FILE_SCHEMA, f"object missing required field `{name}`")


def _container(value: JSON, kind: Any) -> Any:
    """Return the type along which a map or a list is taken apart; of a union its one member of that shape."""
    if get_origin(kind) is Annotated:
        return _container(value, get_args(kind)[0])
    if get_origin(kind) not in {Union, UnionType}:
        return kind
    members = [_container(value, member) for member in get_args(kind)]
    shapes = {dict} if isinstance(value, Mapping) else {list, tuple}
    fitting = [m for m in members if get_origin(m) in shapes or (isinstance(value, Mapping) and _is_struct(m))]
    return fitting[0] if len(fitting) == 1 else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unknown(name: str, known: list[str]) -> Misfit:
    near = get_close_matches(name, known, 1, 0.7)
    meant = f" (did you mean `{near[0]}`?)" if near else ""
    return Misfit(Code.FILE_UNKNOWN_MEMBER, f"this member is not known here{meant}")


# Only at the very end: the message quotes the text, which may look like a place.
_PLACE = re.compile(r" - at `\$[^`]*`\Z")
_KINDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing (null)",
    "object": "a map", "array": "a list",
}  # fmt: skip
_TYPES = re.compile(rf"`((?:{'|'.join(_KINDS)})(?: \| (?:{'|'.join(_KINDS)}))*)`")


def _in_plain_words(message: str) -> str:
    """Put msgspec's message into the words of the file's author, not of Python's types; it may quote a long text."""
    message = _TYPES.sub(_in_words, message if len(message) <= LONGEST else f"{message[:LONGEST]} ...")
    return message[:1].lower() + message[1:]


_MISQUOTED = re.compile("Expected `(?:(str)|int|float)`, got `(?(1).*|str)`")


def _quotes(message: str) -> Literal["", "missing", "needless"]:
    """Tell from msgspec's message whether the value would fit with quotes, or without."""
    match = _MISQUOTED.fullmatch(message)
    return "" if match is None else "missing" if match[1] else "needless"


def _in_words(kinds: re.Match[str]) -> str:
    return " or ".join(_KINDS[kind] for kind in kinds[1].split(" | "))


def _choice(kind: Any) -> str:
    """Name the words that a type allows, if it consists of words."""
    if get_origin(kind) is Annotated:
        return _choice(get_args(kind)[0])
    words = get_args(kind) if get_origin(kind) is Literal else ()
    return "; it is one of " + ", ".join(words) if words and all(isinstance(word, str) for word in words) else ""


Text = Annotated[str, Meta(min_length=1, max_length=512)]


# -- JSON Lines -------------------------------------------------------------------------------------------------------

# The history of the keys, the record of revocations and the audit: an object on each line, its version first.

Line = TypeVar("Line", bound=Struct)
_write = msgspec.json.Encoder().encode


def to_line(value: Struct) -> bytes:
    """Write an object, and the line feed behind it."""
    return _write(value) + b"\n"


def read_lines(
    raw: bytes, read: Callable[[bytes, Line | None], Line], name: str
) -> tuple[tuple[Line, ...], InputError | None]:
    """Return the good lines of a file, and what is wrong with the first one that is not good. `read` gets a line and
    what the good line before it says, and raises FormatError."""
    good: list[Line] = []
    first: InputError | None = None
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            good.append(read(line, good[-1] if good else None))
        except FormatError as error:
            first = first or InputError(error.code, error.detail, Place(name, number, 1), error.pointer)
    return tuple(good), first
