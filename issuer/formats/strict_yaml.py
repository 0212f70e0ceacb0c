"""A strict YAML reader (contract section 3, reading YAML).

YAML readers disagree about plain scalars (`1e3`, `017`, `12:30`, `on`, `1_000`, a bare date). So libyaml only composes
the nodes, and this file reads the scalars. It accepts a plain scalar only if PyYAML, ruamel.yaml, js-yaml and yaml all
read it as the same number, constant or text. Each refusal has a line, a column and advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct
from yaml._yaml import CParser

from issuer.codes import Code
from issuer.errors import Finding, FormatError, InputError, Place
from issuer.formats.strict_json import (
    JSON,
    MAX_EXACT_INTEGER,
    Misfit,
    Path,
    convert,
    exact_number,
    misfits,
    pointer_along,
)  # fmt: skip
from issuer.formats.yaml_layout import explain_syntax, find_fault

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
MAX_NODES = 200_000
MAX_KEY = 1024  # YAML's own limit for a key without a question mark (YAML 1.2.2, 7.4)
MAX_REFUSALS = 100  # that `examine` and `misfits` collect from one file

# The kinds of plain scalars, in the order of matching. A scalar that matches no kind is text to all readers.
_PLAIN = re.compile(
    r"""
    # The same decimal number to all four; exponents need a point and a sign for PyYAML (YAML 1.1).
    (?P<number> [-+]?(?: 0 | [1-9][0-9]* | [0-9]+\.[0-9]*(?:[eE][-+][0-9]+)? ) | \.[0-9]+(?:[eE][-+][0-9]+)? )
    | (?P<hexadecimal> 0x[0-9a-fA-F]+ )
    | (?P<constant> true | false | null )
    | (?P<empty> ~? )
    | (?P<word> (?i: yes | no | on | off | true | false | null ) )
    # A number to at least one of them: in any base, with separators, base 60, or not finite.
    | (?P<numeric> [-+]?(?i: 0[bo][0-7_]* | 0x[0-9a-f_]* | [0-9][0-9_]*(?::[0-9_]+)*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?
                           | \.[0-9_]+(?:e[-+]?[0-9]+)? | \.inf | \.nan ) )
    | (?P<timestamp> [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\ \t].*)? )
    | (?P<sign> = | << )
    """,
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Characters that only some readers see as line breaks (npm's yaml does not for a lone CR), a byte order mark, control
# and non-characters.
_DISPUTED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)")
# Most files have only these bytes and need no search, which would cost more than the rest of reading.
_HARMLESS = bytes(range(0x20, 0x7F)) + b"\t\n"
# The first character of an alias or of a node with an anchor or a tag. No other node begins with it.
_PROPERTIES = {
    "&": "an anchor (&name): leave it out",
    "!": "an explicit tag (!tag): leave it out",
    "*": "an alias (*name): write the value out",
}


# An escaped line end with an empty line below it. Readers disagree whether this is a space, a line break or nothing.
_JOINED = re.compile(r"\\\r?\n[ \t]*\r?\n")
# A question mark that may begin a key, unlike those in URLs. The sign is first in the pattern, for a fast search.
_QUESTION = re.compile(r"\?(?<=[\s,\[{]\?)\S")

# The composer's errors, except the one for an alias without an anchor.
_COMPOSED = {
    "but found another document": "a second document: one file holds one document",
    "second occurrence": _PROPERTIES["&"],
}


class Document(Struct, frozen=True, eq=False):
    """The content of a file: its value as JSON, and the place of the node at any JSON pointer. `root` is libyaml's node
    graph, or None for a value that was not read from text."""

    name: str
    value: JSON
    root: Any = None
    _members: dict[int, dict[str, Any]] = msgspec.field(default_factory=dict)

    def place(self, pointer: str) -> Place:
        """Return the place of the node at the pointer, or of the nearest node around it."""
        return _place(self.name, self._node(pointer))

    def span(self, pointer: str) -> tuple[int, int]:
        """Return the begin and end of the node's text, in characters. A block ends at the end of its last value."""
        node = last = self._node(pointer)
        while not isinstance(last, yaml.ScalarNode) and last.value and not last.flow_style:
            last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
        return node.start_mark.index, last.end_mark.index

    def first_comment(self, text: str) -> Place | None:
        """Return the place of the first comment. `text` is the text of the file. A # in a value is not a comment."""
        end = 0
        for node in _leaves(self.root):
            begin = node.start_mark.index
            # The header line of block text may end in a comment.
            header = text.find("\n", begin) if node.style in {"|", ">"} else begin
            if (sign := text.find("#", end, max(begin, header))) >= 0:
                return _place_at(self.name, text, sign)
            end = node.end_mark.index
        sign = text.find("#", end)
        return None if sign < 0 else _place_at(self.name, text, sign)

    def _node(self, pointer: str) -> Any:
        node = self.root
        for name in pointer.split("/")[1:]:
            step = name.replace("~1", "/").replace("~0", "~")
            if isinstance(node, yaml.MappingNode):
                inner = self._members_of(node).get(step)
            elif isinstance(node, yaml.SequenceNode) and _INDEX.fullmatch(step) and int(step) < len(node.value):
                inner = node.value[int(step)]
            else:
                inner = None
            if inner is None:
                break
            node = inner
        return node

    def _members_of(self, node: Any) -> dict[str, Any]:
        """Return the value of each member by its name, the first of duplicates. Cached: without the cache, asking for
        many places in one map takes quadratic time."""
        if id(node) not in self._members:
            self._members[id(node)] = {key.value: value for key, value in reversed(node.value)}
        return self._members[id(node)]

    def error(self, code: Code, pointer: str, detail: str) -> InputError:
        """Return the error for the node at the pointer."""
        return InputError(code, detail, self.place(pointer), pointer)

    def locate(self, error: FormatError, parent: str = "") -> InputError:
        """Return an error with its place in this file. Its pointer begins at the pointer `parent`."""
        return self.error(error.code, parent + error.pointer, describe(error))

    def convert(self, kind: type[T]) -> T:
        """Convert the whole document to a typed value. Raises InputError with the line and column."""
        return self.convert_part("", self.value, kind)

    def convert_part(self, pointer: str, value: JSON, kind: type[T]) -> T:
        """Convert the value at `pointer` to a typed value. Raises InputError with the line and column."""
        try:
            return convert(value, kind)
        except Misfit as misfit:
            raise self.locate(misfit, pointer) from None

    def misfits(self, kind: type) -> list[Finding]:
        """Return a finding for each of the first MAX_REFUSALS members that do not fit the type, and one more that says
        so if there are others. A finding takes half a millisecond, and the service loads each file between two beats.
        """
        found = [self.locate(misfit).finding for misfit in islice(misfits(self.value, kind), MAX_REFUSALS + 1)]
        if len(found) > MAX_REFUSALS:
            rule = f"more than {MAX_REFUSALS} faults: the rest is not shown"
            found[MAX_REFUSALS] = Finding(Code.FILE_RULE, found[MAX_REFUSALS].place, rule)
        return found


_QUOTES = {"": "", "missing": ": put it in double quotes", "needless": ": write it without quotes"}


def describe(error: FormatError) -> str:
    """Return the detail of an error in a YAML file, with advice if quotes are missing or needless."""
    return error.detail + (_QUOTES[error.quotes] if isinstance(error, Misfit) else "")


def _no_dates(_pointer: str) -> bool:
    return False


def load(
    raw: bytes, name: str, *, bare_dates: Callable[[str], bool] = _no_dates, max_values: int = MAX_NODES
) -> Document:
    """Read one YAML document of at most 1 MiB, 16 levels and `max_values` values, keys among them. A bare ISO date is
    text at the pointers that `bare_dates` accepts. Raises only InputError, with its place (contract section 3)."""
    return _Reader(_decode(raw, name), name, bare_dates, 1, max_values).read()


def examine(
    raw: bytes, name: str, *, bare_dates: Callable[[str], bool] = _no_dates
) -> tuple[Document | None, tuple[InputError, ...]]:
    """Read a document as `load` does, and return it with up to 100 errors, in the file's order. A refused value is in
    the document as text. The document is None if the reader could not continue."""
    try:
        reader = _Reader(_decode(raw, name), name, bare_dates, MAX_REFUSALS)
    except InputError as error:
        return None, (error,)
    try:
        return reader.read(), tuple(reader.refusals)
    except InputError as error:
        return None, tuple(reader.refusals) if error in reader.refusals else (*reader.refusals, error)


def _decode(raw: bytes, name: str) -> str:
    if len(raw) > MAX_BYTES:
        raise InputError(Code.FILE_TOO_LARGE, f"larger than {MAX_BYTES} bytes", Place(name))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Code.FILE_ENCODING, "not UTF-8", Place(name, line, 1)) from None
    if raw.translate(None, _HARMLESS) and (found := _DISPUTED.search(text)):
        place = _place_at(name, text, found.start())
        names = {"\ufeff": "a byte order mark", "\r": "a carriage return without a line feed"}
        what = names.get(found[0], f"the character U+{ord(found[0]):04X}")
        raise InputError(Code.FILE_ENCODING, f"{what}: leave it out or escape it in double quotes", place)
    return text


def _place(name: str, node: Any) -> Place:
    if node is None:
        return Place(name)
    mark = node.start_mark
    return Place(name, mark.line + 1, mark.column + 1)


def _place_at(name: str, text: str, index: int) -> Place:
    return Place(name, text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index), _line_at(text, index))


def _line_at(text: str, index: int) -> str:
    end = text.find("\n", index)
    return text[text.rfind("\n", 0, index) + 1 : len(text) if end < 0 else end].rstrip("\r")


def _place_of_mark(name: str, text: str, mark: Any) -> Place:
    return Place(name, mark.line + 1, mark.column + 1, _line_at(text, min(mark.index, len(text))))


def _leaves(node: Any) -> Iterator[Any]:
    """Yield the scalars below a node, keys among them, in the file's order."""
    if isinstance(node, yaml.ScalarNode):
        yield node
        return
    for inner in node.value:
        for part in inner if isinstance(node, yaml.MappingNode) else (inner,):
            yield from _leaves(part)


class _Composer(CParser):
    """libyaml's composer without the resolution of scalars. It recurses in C, so the hooks bound the depth before the
    stack overflows. The hooks are private to PyYAML's C extension; a test notices if it calls them differently."""

    def __init__(self, text: str, name: str, max_values: int) -> None:
        super().__init__(text)
        self._max_values = max_values
        self._name = name
        self._depth = 0
        self._nodes = 0

    def descend_resolver(self, parent: Any, _index: Any) -> None:
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH + 1:
            raise InputError(Code.FILE_TOO_LARGE, f"nested deeper than {MAX_DEPTH}", _place(self._name, parent))
        if self._nodes > self._max_values:
            raise InputError(Code.FILE_TOO_LARGE, f"more than {self._max_values} values", _place(self._name, parent))

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def resolve(self, _kind: Any, _value: Any, _implicit: Any) -> None:
        return None


def _compose(text: str, name: str, max_values: int) -> yaml.Node:
    try:
        root: yaml.Node | None = _Composer(text, name, max_values).get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
        problem = str(getattr(error, "problem", None) or "not YAML")
        if isinstance(error, yaml.composer.ComposerError):
            raise InputError(Code.FILE_FEATURE, _COMPOSED.get(problem, _PROPERTIES["*"]), place) from None
        what, mark = explain_syntax(text, error)
        where = _place_of_mark(name, text, mark) if mark else place
        raise InputError(Code.FILE_SYNTAX, what, where) from None
    if root is None:
        lines = text.split("\n")
        raise InputError(Code.FILE_SYNTAX, "the file is empty", Place(name, len(lines), len(lines[-1]) + 1))
    return root


class _Reader:
    """One walk over the node graph, which stops at the `limit`th error. It recurses at most MAX_DEPTH deep."""

    def __init__(
        self, text: str, name: str, bare_dates: Callable[[str], bool], limit: int, max_values: int = MAX_NODES
    ) -> None:
        self.refusals: list[InputError] = []
        self._name = name
        self._bare_dates = bare_dates
        self._limit = limit
        self._max_values = max_values
        self._text = text
        self._has_properties = any(sign in text for sign in _PROPERTIES)
        ends = text.endswith("\n")
        # Block text that ends at this index or later lacks its line end.
        self._cut_short = MAX_BYTES + 1 if ends else len(text.rstrip())
        self._may_differ = not ends or bool(_QUESTION.search(text) or _JOINED.search(text))

    def read(self) -> Document:
        self._demand_no_directive()
        root = _compose(self._text, self._name, self._max_values)
        value = self._value(root, None, 0)
        # With an alias the graph may be infinite. After any other error the author has something to mend first.
        if not self.refusals and (fault := find_fault(self._text, root)):
            source = self._text.split("\n")[fault.line - 1].rstrip("\r")
            raise InputError(Code.FILE_SYNTAX, fault.detail, Place(self._name, fault.line, fault.column, source))
        return Document(self._name, value, root)

    def _demand_no_directive(self) -> None:
        """Refuse the directives %YAML and %TAG, which do not appear in the node graph."""
        if not self._text.startswith("%") and "\n%" not in self._text:
            return
        try:
            events = yaml.parse(self._text, Loader=yaml.CSafeLoader)
            for event in takewhile(lambda event: not isinstance(event, yaml.DocumentEndEvent), events):
                if getattr(event, "version", None) or (isinstance(event, yaml.DocumentStartEvent) and event.tags):
                    raise InputError(
                        Code.FILE_FEATURE, "directives (%YAML, %TAG) are refused", _place(self._name, event)
                    )
        except yaml.YAMLError:
            return  # the composer reports it

    def _refuse(self, node: Any, code: Code, detail: str, path: Path) -> None:
        place = _place_of_mark(self._name, self._text, node.start_mark)
        self.refusals.append(InputError(code, detail, place, pointer_along(path)))
        if len(self.refusals) >= self._limit:
            raise self.refusals[-1]

    def _property(self, node: Any) -> str | None:
        start = node.start_mark.index
        return _PROPERTIES.get(self._text[start : start + 1])

    def _value(self, node: Any, path: Path, depth: int) -> JSON:
        if self._has_properties and (what := self._property(node)):
            self._refuse(node, Code.FILE_FEATURE, what, path)
            return ""
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path, self._bare_dates)
        if depth >= MAX_DEPTH:
            self._refuse(node, Code.FILE_TOO_LARGE, f"nested deeper than {MAX_DEPTH}", path)
            return ""
        if isinstance(node, yaml.MappingNode):
            return self._map(node, path, depth + 1)
        return [self._value(item, (path, index), depth + 1) for index, item in enumerate(node.value)]

    def _map(self, node: Any, path: Path, depth: int) -> JSON:
        members: dict[str, JSON] = {}
        for key_node, item in node.value:
            key = self._key(key_node, path)
            if key in members:
                self._refuse(key_node, Code.FILE_DUPLICATE_KEY, "this key is here twice", (path, key))
            members[key] = self._value(item, (path, key), depth)
        return members

    def _key(self, node: Any, path: Path) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, Code.FILE_FEATURE, "a key must be text", path)
            return ""
        text: str = node.value
        if not (self._has_properties or self._may_differ or node.style) and _is_text(text):
            return text  # most keys
        if self._has_properties and (what := self._property(node)):
            self._refuse(node, Code.FILE_FEATURE, what, path)
        elif len(text) > MAX_KEY:
            self._refuse(node, Code.FILE_TOO_LARGE, f"a key longer than {MAX_KEY} characters", path)
        elif text == "<<" and not node.style:
            self._refuse(node, Code.FILE_FEATURE, "a merge key (<<): write the members out", path)
        elif not isinstance(self._scalar(node, path, _no_dates), str):
            self._refuse(node, Code.FILE_SCALAR, "a key must be text: put it in double quotes", path)
        return text

    def _scalar(self, node: Any, path: Path, bare_dates: Callable[[str], bool]) -> JSON:
        text: str = node.value
        if "\x00" in text:  # libyaml refuses escaped lone surrogates, but not an escaped NUL
            self._refuse(node, Code.FILE_ENCODING, "a NUL character", path)
        if self._may_differ and (advice := self._difference(node)):
            self._refuse(node, Code.FILE_SCALAR, advice, path)
        if node.style or (disputed := _PLAIN.fullmatch(text)) is None:
            return text
        if _is_date(text) and bare_dates(pointer_along(path)):
            return text
        try:
            return _resolve(text, disputed)
        except ValueError as error:
            code = Code.FILE_NUMBER if disputed.lastgroup in {"number", "hexadecimal"} else Code.FILE_SCALAR
            self._refuse(node, code, str(error), path)
            return text

    def _difference(self, node: Any) -> str | None:
        """Return advice if readers disagree about the end or the joined lines of this text, otherwise None."""
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in {"|", ">"}:
            if end < self._cut_short or "-" in self._text[start:end].split(maxsplit=1)[0]:
                return None
            return "readers disagree about the end of this text: end the file with a line break"
        if node.style == '"' and _JOINED.search(self._text, start, end):
            return "readers disagree about an empty line below an escaped line end: write the text on one line"
        if self._text[start - 1 : start] == "?":
            return "readers disagree about a question mark before a key: put the key in double quotes"
        return None


@lru_cache(maxsize=1024)  # all files have the same few keys
def _is_text(plain: str) -> bool:
    return len(plain) <= MAX_KEY and _PLAIN.fullmatch(plain) is None


def _is_date(text: str) -> bool:
    """Say whether text is an ISO date. PyYAML fails for one that is in no calendar, such as 2026-02-30."""
    try:
        return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


_ADVICE = {
    "empty": 'an empty value: write "" for empty text, null for nothing, or leave the member out',
    "word": "readers disagree about this word: write true, false or null in lower case, or quote it",
    "timestamp": "readers disagree about a bare date: put it in double quotes",
    "sign": "readers disagree about this sign: put it in double quotes",
}


def _resolve(text: str, matched: re.Match[str]) -> int | float | bool | None:
    if matched.lastgroup == "number":
        return exact_number(text)
    if matched.lastgroup == "hexadecimal":
        if (value := int(text, 16)) > MAX_EXACT_INTEGER:
            raise ValueError("an integer beyond 2^53 - 1, which readers round differently")
        return value
    if matched.lastgroup == "constant":
        return _CONSTANTS[text]
    if matched.lastgroup == "numeric":
        raise ValueError(f"readers disagree about this number: {_other_spelling(text)}")
    raise ValueError(_ADVICE[str(matched.lastgroup)])


def _other_spelling(text: str) -> str:
    """Return advice for text that only some readers read as a number, with its plain spelling if it is decimal."""
    try:
        value = exact_number(text) if re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", text) else None
    except ValueError:
        value = None
    if value is None:
        return "write a plain decimal number, or put it in double quotes if it is text"
    return f"write {number_text(value)}, or put it in double quotes if it is text"


def number_text(value: float) -> str:
    """Write a number that all four readers read as the same double: `20.9`, `0.00002`, `1.0e-7`."""
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
    """Write text as a double-quoted scalar on one line. All readers read the same text."""
    if text.isprintable():
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    else:  # call `_escape` once for each different character: half a million calls take 0.1 s
        text = text.translate({ord(char): _ESCAPES.get(char) or _escape(char) for char in set(text)})
    return f'"{text}"'


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
