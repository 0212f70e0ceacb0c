"""A strict YAML reader on the parser's events (contract section 3, reading YAML).

YAML readers disagree about plain scalars (`1e3`, `017`, `12:30`, `on`, `1_000`, a bare date), so nothing is resolved by
a YAML library: libyaml gives events, and a plain scalar is a number, `true`, `false`, `null` or text only where PyYAML,
ruamel.yaml, js-yaml and yaml all read it so. Everything else is refused with its line and column, and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TypeVar

import yaml
from msgspec import Struct

from issuer.errors import Code, InputError, Place
from issuer.strict_json import JSON, convert, exact_number, pointer_to

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
MAX_NODES = 200_000
MAX_KEY = 1024  # what YAML itself allows a key without a question mark (YAML 1.2.2, 7.4)
MAX_POINTERS = 32 * 1024 * 1024  # characters of all places together: a value under long keys has a long pointer

# What all four readers see as the same decimal number; exponents need a point and a sign for PyYAML (YAML 1.1).
_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*|[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?)|\.[0-9]+(?:[eE][-+][0-9]+)?")
# What at least one of them sees as a number, in any base, with separators, base 60, or not finite.
_NUMERIC = re.compile(
    r"""[-+]?(?: 0[bo][0-7_]* | 0x[0-9a-f_]* | [0-9][0-9_]*(?::[0-9_]+)*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?
               | \.[0-9_]+(?:e[-+]?[0-9]+)? | \.inf | \.nan )""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = re.compile(r"(?:yes|no|on|off|true|false|null)", re.IGNORECASE)
_CONSTANTS = {"true": True, "false": False, "null": None}
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")
# Line breaks to some readers only (a lone CR is none to npm's yaml), a byte order mark, control and non-characters.
_DISPUTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)")


class Document(Struct, frozen=True):
    """What a file says: its value as JSON, and the place of every node (and of every key) by JSON pointer."""

    name: str
    value: JSON
    places: dict[str, Place]

    def place(self, pointer: str) -> Place:
        """Return where the node is, or the nearest node around it."""
        while pointer and pointer not in self.places:
            pointer = pointer.rpartition("/")[0]
        return self.places.get(pointer, Place(self.name, 1, 1))

    def error(self, code: Code, pointer: str, detail: str) -> InputError:
        """Make the error for one node of this file."""
        return InputError(code, detail, self.place(pointer), pointer)

    def convert(self, kind: type[T]) -> T:
        """Turn the whole document into a typed value. Raises InputError(`file.schema`) with its line and column."""
        try:
            return convert(self.value, kind, self.name)
        except InputError as error:
            hint = ": put it in double quotes" if error.detail.startswith("expected text, got") else ""
            raise self.error(error.code, error.pointer, error.detail + hint) from None


def load(raw: bytes, name: str, *, bare_dates: Callable[[str], bool] = lambda _: False) -> Document:
    """Read one YAML document of at most 1 MiB, 16 levels.

    `bare_dates` says at which pointers a bare ISO date is text. Raises InputError with line and column for everything
    that contract section 3 refuses, never anything else.
    """
    if len(raw) > MAX_BYTES:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES} bytes", Place(name))
    text = _decode(raw, name)
    reader = _Reader(name, bare_dates)
    try:
        value = reader.read(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
        raise InputError(Code.FILE_SYNTAX, str(getattr(error, "problem", None) or "not YAML"), place) from None
    return Document(name, value, reader.places)


def _decode(raw: bytes, name: str) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Code.FILE_ENCODING, "not UTF-8", Place(name, line, 1)) from None
    if found := _DISPUTED.search(text):
        before = text[: found.start()]
        place = Place(name, before.count("\n") + 1, found.start() - before.rfind("\n"))
        names = {"\ufeff": "a byte order mark", "\r": "a carriage return without a line feed"}
        what = names.get(found[0], f"the character U+{ord(found[0]):04X}")
        raise InputError(Code.FILE_ENCODING, f"{what}: leave it out or escape it in double quotes", place)
    return text


class _Reader:
    """One pass over libyaml's events. Nothing here recurses deeper than MAX_DEPTH."""

    def __init__(self, name: str, bare_dates: Callable[[str], bool]) -> None:
        self.places: dict[str, Place] = {}
        self._name = name
        self._bare_dates = bare_dates
        self._pointers = 0
        self._events: Iterator[yaml.Event] = iter(())

    def read(self, text: str) -> JSON:
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        next(self._events)  # stream start
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise self._refuse(start, Code.FILE_SYNTAX, "the file is empty")
        if getattr(start, "version", None) or getattr(start, "tags", None):
            raise self._refuse(start, Code.FILE_FEATURE, "directives (%YAML, %TAG) are refused")
        value = self._node(next(self._events), "", 0)
        next(self._events)  # document end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._refuse(after, Code.FILE_FEATURE, "a second document: one file holds one document")
        return value

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        return Place(self._name, mark.line + 1, mark.column + 1) if mark else Place(self._name)

    def _refuse(self, event: yaml.Event, code: Code, detail: str, pointer: str = "") -> InputError:
        return InputError(code, detail, self._place(event), pointer)

    def _node(self, event: yaml.Event, pointer: str, depth: int) -> JSON:
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse(event, Code.FILE_FEATURE, "an alias (*name): write the value out", pointer)
        if getattr(event, "anchor", None) is not None:
            raise self._refuse(event, Code.FILE_FEATURE, "an anchor (&name): leave it out", pointer)
        if getattr(event, "tag", None) is not None:
            raise self._refuse(event, Code.FILE_FEATURE, "an explicit tag (!tag): leave it out", pointer)
        if len(self.places) >= MAX_NODES:
            raise self._refuse(event, Code.FILE_TOO_LARGE, f"more than {MAX_NODES} values", pointer)
        self._pointers += len(pointer)
        if self._pointers > MAX_POINTERS:
            raise self._refuse(event, Code.FILE_TOO_LARGE, "keys too long for so many values below them")
        self.places[pointer] = self._place(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, pointer)
        if depth >= MAX_DEPTH:
            raise self._refuse(event, Code.FILE_TOO_LARGE, f"nested deeper than {MAX_DEPTH}", pointer)
        return (self._map if isinstance(event, yaml.MappingStartEvent) else self._list)(pointer, depth)

    def _list(self, pointer: str, depth: int) -> JSON:
        items: list[JSON] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, pointer_to(pointer, len(items)), depth + 1))
        return items

    def _map(self, pointer: str, depth: int) -> JSON:
        members: dict[str, JSON] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, pointer)
            if key in members:
                raise self._refuse(event, Code.FILE_DUPLICATE_KEY, "this key stands here twice", pointer)
            members[key] = self._node(next(self._events), pointer_to(pointer, key), depth + 1)
        return members

    def _key(self, event: yaml.Event, pointer: str) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse(event, Code.FILE_FEATURE, "a key must be text", pointer)
        if event.anchor is not None or event.tag is not None:
            raise self._refuse(event, Code.FILE_FEATURE, "a key with an anchor or a tag", pointer)
        if not event.style and event.value == "<<":
            raise self._refuse(event, Code.FILE_FEATURE, "a merge key (<<): write the members out", pointer)
        if len(event.value) > MAX_KEY:
            raise self._refuse(event, Code.FILE_TOO_LARGE, f"a key longer than {MAX_KEY} characters", pointer)
        key = self._scalar(event, pointer, bare_date=False)
        if not isinstance(key, str):
            raise self._refuse(event, Code.FILE_SCALAR, "a key must be text: put it in double quotes", pointer)
        return key

    def _scalar(self, event: yaml.ScalarEvent, pointer: str, *, bare_date: bool = True) -> JSON:
        text: str = event.value
        if "\x00" in text:  # libyaml refuses the escapes of lone surrogates, not that of NUL
            raise self._refuse(event, Code.FILE_ENCODING, "a NUL character", pointer)
        if event.style or (bare_date and _DATE.fullmatch(text) and self._bare_dates(pointer)):
            return text
        try:
            return resolve_plain(text)
        except ValueError as error:
            code = Code.FILE_NUMBER if _NUMBER.fullmatch(text) else Code.FILE_SCALAR
            raise self._refuse(event, code, str(error), pointer) from None


def resolve_plain(text: str) -> int | float | str | bool | None:
    """Read a plain (unquoted) scalar as what all four readers read it as.

    Raises ValueError with what to write instead where they differ, or where a number cannot be carried exactly.
    """
    if _NUMBER.fullmatch(text):
        return exact_number(text)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text in {"", "~"}:
        raise ValueError('an empty value: write "" for empty text, null for nothing, or leave the member out')
    if _WORDS.fullmatch(text):
        raise ValueError("readers disagree about this word: write true, false or null in lower case, or quote it")
    if _NUMERIC.fullmatch(text):
        raise ValueError(f"readers disagree about this number: {_other_spelling(text)}")
    if _TIMESTAMP.fullmatch(text):
        raise ValueError("readers disagree about a bare date: put it in double quotes")
    if text in {"=", "<<"}:
        raise ValueError("readers disagree about this sign: put it in double quotes")
    return text


def _other_spelling(text: str) -> str:
    """Return the spelling to use, for a decimal number that only some readers see as one."""
    try:
        value = exact_number(text) if re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text) else None
    except ValueError:
        value = None
    if value is None:
        return "write a plain decimal number, or put it in double quotes if it is text"
    return f"write {number_text(value)}, or put it in double quotes if it is text"


def number_text(value: float) -> str:
    """Write a number so that all four readers read the same double back: `20.9`, `0.00002`, `1.0e-7`."""
    if float(value).is_integer():
        return str(int(value))
    text = repr(float(value))
    if "e" not in text:
        return text
    if abs(value) >= 1e-6:
        return format(Decimal(text), "f")
    mantissa, _, exponent = text.partition("e")
    point = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{point}e{int(exponent):+d}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(text: str) -> str:
    """Write text as a double-quoted scalar on one line that every reader reads alike."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(char) or _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
