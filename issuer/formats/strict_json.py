"""A strict JSON reader (RFC 8259, I-JSON of RFC 7493), with conversion to typed values.

It refuses everything that parsers disagree about: duplicate members (also in escaped spelling), lone surrogates, NUL, a
byte order mark, other encodings, NaN, and numbers that a double cannot hold exactly (contract section 2). msgspec reads
objects that are clearly good, in a third of the time. The standard library's C scanner reads the rest. If a document
breaks a rule, the scanner's hooks put an error into the tree, and a walk finds its pointer.
"""

from __future__ import annotations

import json
import math
import re
import threading
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
    """The member that every line of version 1 has. Other members are ignored."""

    version: Literal[1]


JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Scalar: TypeAlias = str | bool | int
T = TypeVar("T")

MAX_EXACT_INTEGER = 2**53 - 1
MAX_SIGNIFICANT_DIGITS = 17
SHORT_CHARS = 15
LONGEST = 500  # characters of a message that quotes the document

_SURROGATE = re.compile("[\ud800-\udfff]")
_SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
_MANTISSA = re.compile(r"[-+]?([0-9]*)\.?([0-9]*)")


def exact_number(text: str) -> int | float:
    """Read a decimal number as an int if it is spelled as one, otherwise as the nearest double; `-0` becomes 0. Raises
    ValueError with the broken rule: not finite, over- or underflow, integral beyond 2^53 - 1 in any spelling, more than
    17 significant digits (contract section 2)."""
    if len(text) <= SHORT_CHARS and _INTEGER.fullmatch(text):
        return int(text)  # a time or a count: too short to break a rule below
    if len(text) <= SHORT_CHARS and _DECIMAL.fullmatch(text) and (value := float(text)):
        return value  # a score: too short to break a rule below
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


class _Hooks:
    """The scanner's hooks, which put an error in place of each value that breaks a rule, until the walk raises it."""

    def __init__(self, number: Callable[[str], object]) -> None:
        self._errors: dict[str, FormatError] = {}
        self._number = number

    @property
    def has_errors(self) -> bool:
        return bool(self._errors)

    def _error(self, code: Code, detail: str) -> FormatError:
        """Return the same error for all values that break a rule. The walk raises it for the first of them."""
        return self._errors.setdefault(detail, FormatError(code, detail))

    def number(self, text: str) -> object:
        try:
            return self._number(text)
        except ValueError as error:
            return self._error(Code.FILE_NUMBER, str(error))

    def members(self, pairs: list[tuple[str, object]]) -> object:
        members = dict(pairs)
        if len(members) != len(pairs):
            names: set[str] = set()
            for name, _ in pairs:
                if name in names:
                    members[name] = self._error(Code.FILE_DUPLICATE_KEY, "this member is named twice")
                names.add(name)
        return members


def pointer_to(parent: str, name: str | int) -> str:
    """Append one reference token to a JSON pointer (RFC 6901 section 4)."""
    return f"{parent}/{str(name).replace('~', '~0').replace('/', '~1')}"


Path: TypeAlias = "tuple[Path, str | int] | None"


def pointer_along(path: Path) -> str:
    """Return the JSON pointer of a path, a chain of names from the leaf to the root. A walk carries a path, and makes
    the pointer only if it fails: a pointer for each value takes quadratic time below a long name."""
    names: list[str | int] = []
    while path is not None:
        path, name = path
        names.append(name)
    return "".join(pointer_to("", name) for name in reversed(names))


def _walk(value: object, path: Path, depth: int, max_depth: int) -> None:
    """Raise FormatError for the first value that breaks a rule, in document order."""
    if isinstance(value, FormatError):
        raise value.within(pointer_along(path))
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


def loads(
    raw: bytes,
    *,
    max_bytes: int,
    max_depth: int,
    max_values: int | None = None,
    number: Callable[[str], object] = exact_number,
) -> JSON:
    """Read one JSON document of at most `max_bytes`, whose arrays and objects nest at most `max_depth` deep, with at
    most `max_values` values: a value of three bytes can take 250 bytes of memory. `number` reads each number's text,
    also `NaN` and `Infinity`, and may raise ValueError; by default, for numbers that a double cannot hold exactly.
    Raises only FormatError, with a `file.*` code and a pointer or a line and column."""
    if len(raw) > max_bytes:
        raise FormatError(Code.FILE_TOO_LARGE, f"larger than {max_bytes} bytes")
    if max_values is not None and count_values(raw, max_values) > max_values:
        raise FormatError(Code.FILE_TOO_LARGE, f"more than {max_values} values")
    if number is exact_number and (members := _read_quickly(raw, max_depth)) is not None:
        return members
    hooks = _Hooks(number)
    try:
        text = raw.decode("utf-8")
        value = _scan(text, hooks, number)
    except UnicodeDecodeError as error:
        raise FormatError(Code.FILE_ENCODING, f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        # Keep the scanner's message. It does not quote the text.
        raise FormatError(Code.FILE_SYNTAX, error.msg, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise FormatError(Code.FILE_TOO_LARGE, f"nested deeper than {max_depth}") from None
    # A document with few brackets cannot nest too deep, so most documents need no walk.
    if hooks.has_errors or text.count("{") + text.count("[") > max_depth or _SUSPECT_ESCAPE.search(text):
        _walk(value, None, 0, max_depth)
    return value


def count_values(raw: bytes, most: int) -> int:
    """Count the values of a JSON document, with containers but without names, up to `most` + 1. The bytes must be
    JSON. Use it to enforce a bound before the values are built."""
    # A value is the first thing in the text, or follows a comma or an opening bracket. The upper bound from this rule
    # is enough for nearly every document.
    opened = raw.count(b"[") + raw.count(b"{") - raw.count(b"[]") - raw.count(b"{}")
    if (at_most := 1 + raw.count(b",") + opened) <= most:
        return at_most
    count = 1
    for token in _TOKEN.finditer(raw):
        count += token.lastindex is not None
        if count > most:
            break
    return count


# A string (to the end of the bytes if it is not closed), an empty container, or, in the group, a sign before a value.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{][ \t\r\n]*+[\]}]|([,\[{])', re.DOTALL)


_read_members = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode
# Sixteen digits, one more than a harmless whole number has. Translating every digit to 0 makes them fast to find.
_LARGE, _DIGITS = b"0" * 16, bytes.maketrans(b"123456789", b"0" * 9)
# A number follows a bracket, a comma or the colon of a member, which follows a quote.
_LARGE_NUMBER = re.compile(rb'[:,\[](?<![^"]:)-?[0-9]{16}')
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
# A container without containers in it.
_INNERMOST = re.compile(rb"\[[^\[\]{}]*+\]|\{[^\[\]{}]*+\}")


def _read_quickly(raw: bytes, max_depth: int) -> dict[str, JSON] | None:
    """Read an object with msgspec, and check the rules that msgspec does not check: duplicate members, inexact numbers
    and depth. Return None if the document may break a rule."""
    try:
        value = _read_members(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    written = _write(value)
    is_complete = (written == raw and b"\\" not in raw) or _as_many_texts(raw, written)
    may_be_large = _LARGE in written.translate(_DIGITS) and _LARGE_NUMBER.search(written) is not None
    return value if is_complete and not may_be_large and _nests_at_most(written, max_depth) else None


def _nests_at_most(written: bytes, depth: int) -> bool:
    """Say whether JSON that msgspec wrote nests at most `depth` deep."""
    if written.count(b"{") + written.count(b"[") <= depth:
        return True
    written = _TEXT.sub(b"", written)  # brackets in strings do not count
    for _ in range(depth):
        written = _INNERMOST.sub(b"", written)
    return not written


def _as_many_texts(raw: bytes, written: bytes) -> bool:
    r"""Say whether msgspec kept every string of a document. Of two members with one name it keeps only the last, so
    fewer quotes are written than were read. A quote that is spelled `\u0022` would break this rule: return False."""
    return b"\\u" not in raw and raw.count(b'"') == written.count(b'"')


def _scan(text: str, hooks: _Hooks, number: Callable[[str], object]) -> JSON:
    """Scan the text. If it breaks a rule, scan again with the hooks, which cost more than the scan."""
    try:
        return _decoder(number).decode(text)  # type: ignore[no-any-return]
    except ValueError:
        return json.loads(  # type: ignore[no-any-return]
            text,
            object_pairs_hook=hooks.members,
            parse_int=hooks.number,
            parse_float=hooks.number,
            parse_constant=hooks.number,
        )


@lru_cache(8)
def _decoder(number: Callable[[str], object]) -> json.JSONDecoder:
    """Return a decoder that raises ValueError at the first broken rule. Cached: making one takes longer than a scan."""
    return json.JSONDecoder(object_pairs_hook=_distinct, parse_int=number, parse_float=number, parse_constant=number)


def _distinct(pairs: list[tuple[str, object]]) -> object:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is named twice")
    return members


class Misfit(FormatError):
    """A member that does not fit its type (`file.schema`), or that the type does not have (`file.unknown_member`). In
    YAML, quotes may be `missing` around text or `needless` around a number."""

    def __init__(self, code: Code, detail: str, quotes: Literal["", "missing", "needless"] = "") -> None:
        super().__init__(code, detail)
        self.quotes = quotes


def convert(value: JSON, kind: type[T]) -> T:
    """Convert the result of a strict reader to a typed value, without coercion. Unknown members are refused. Raises
    Misfit with the pointer of the first member that does not fit."""
    prepare(kind)
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        raise next(misfits(value, kind)) from None


# msgspec 0.22 crashes the process if two threads use a type of Struct for the first time at once.
_preparing, _prepared = threading.Lock(), set[Any]()


def prepare(kind: Any) -> None:
    """Let msgspec see a type, and the types of its members, in one thread at a time."""
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
        _prepared.add(kind)


def misfits(value: JSON, kind: Any) -> Iterator[Misfit]:
    """Yield each member that does not fit the type. msgspec stops at the first one and hides the keys of maps. So if a
    value does not fit, its parts are tried one by one; if all of them fit, the value itself is at fault."""
    prepare(kind)
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
    """Yield the misfits of the parts of a map or list, if the type describes its parts."""
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
    """Return the type that describes the parts of a map or list. In a union, this is its only member of that shape."""
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
    near = get_close_matches(name, known, 1, 0.7) if len(name) <= LONGEST else []  # of 8 MB it takes a gigabyte
    meant = f" (did you mean `{near[0]}`?)" if near else ""
    return Misfit(Code.FILE_UNKNOWN_MEMBER, f"this member is not known here{meant}")


# Only at the end of the message: earlier it may quote text that looks like a place.
_PLACE = re.compile(r" - at `\$[^`]*`\Z")
_KINDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing (null)",
    "object": "a map", "array": "a list",
}  # fmt: skip
_TYPES = re.compile(rf"`((?:{'|'.join(_KINDS)})(?: \| (?:{'|'.join(_KINDS)}))*)`")


def _in_plain_words(message: str) -> str:
    """Replace Python's types in msgspec's message by words for the file's author. Cut it: it may quote a long text."""
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."
    message = _TYPES.sub(lambda kinds: " or ".join(map(_KINDS.__getitem__, kinds[1].split(" | "))), message)
    return message[:1].lower() + message[1:]


_MISQUOTED = re.compile("Expected `(?:(str)|int|float)`, got `(?(1).*|str)`")


def _quotes(message: str) -> Literal["", "missing", "needless"]:
    """Derive from msgspec's message whether the value would fit with quotes or without them."""
    match = _MISQUOTED.fullmatch(message)
    return "" if match is None else "missing" if match[1] else "needless"


def _choice(kind: Any) -> str:
    """Return a list of the words that a type allows, if it is a choice of words."""
    if get_origin(kind) is Annotated:
        return _choice(get_args(kind)[0])
    words = get_args(kind) if get_origin(kind) is Literal else ()
    return "; it is one of " + ", ".join(words) if words and all(isinstance(word, str) for word in words) else ""


Text = Annotated[str, Meta(min_length=1, max_length=512)]


# -- JSON Lines -------------------------------------------------------------------------------------------------------

# The key history, the record of revocations and the audit file have an object on each line, with its version first.

Line = TypeVar("Line", bound=Struct)
_write = msgspec.json.Encoder().encode


def to_line(value: Struct) -> bytes:
    """Write an object as one line, with its line feed."""
    return _write(value) + b"\n"


def read_lines(
    raw: bytes, read: Callable[[bytes, Line | None], Line], name: str
) -> tuple[tuple[Line, ...], InputError | None]:
    """Return the good lines of a file, and the error of the first bad one. `read` takes a line and the value of the
    last good line before it, and raises FormatError."""
    good: list[Line] = []
    first: InputError | None = None
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            good.append(read(line, good[-1] if good else None))
        except FormatError as error:
            first = first or InputError(error.code, error.detail, Place(name, number, 1), error.pointer)
    return tuple(good), first
