"""The faults: every small change of one Python file that a hasty edit could make. Pure, and the same in every run.

A mutant changes one place of the text and keeps all others, so that a diff shows it. These are not changed: annotations,
aliases of types, docstrings, text, the inside of an f-string, `frozen` of a struct, which the type checker enforces, and
`strict` of a zip, which states an invariant.
"""

import ast
import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

# Comparisons get their bound moved and themselves turned round; `and` is one place between two values.
OPERATORS: dict[type[ast.AST], tuple[str, tuple[str, ...]]] = {
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.Lt: ("<", ("<=", ">=")), ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")), ast.GtE: (">=", (">", "<")), ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)), ast.In: ("in", ("not in",)), ast.NotIn: (r"not\s+in", ("in",)),
    ast.And: (r"\band\b", ("or",)), ast.Or: (r"\bor\b", ("and",)), ast.Add: (r"\+", ("-",)), ast.Sub: ("-", ("+",)),
    ast.Mult: (r"\*", ("+",)), ast.Div: ("/", ("*",)), ast.FloorDiv: ("//", ("*",)), ast.Mod: ("%", ("+",)),
    ast.BitAnd: ("&", ("|",)),
}  # fmt: skip
TURNED = {"min": "max", "max": "min", "any": "all", "all": "any"}
Removable = ast.Expr | ast.Raise | ast.AugAssign | ast.Delete
Placed = ast.expr | ast.stmt
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """Text that takes the place of the bytes from `start` to `end`."""

    start: int
    end: int
    text: str


class Mutant(NamedTuple):
    """One changed file. `name` stays the same when lines above it come and go; `line` is for people."""

    path: str
    line: int
    name: str
    source: bytes
    original: bytes

    def diff(self) -> str:
        old, new = (each.decode().splitlines() for each in (self.original, self.source))
        return "\n".join(list(difflib.unified_diff(old, new, lineterm="", n=1))[3:])


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Make every mutant of a file, in the order of its lines."""
    text = _Text(source)
    seen: Counter[str] = Counter()
    found = {edit: where for where, edit in _edits(text, ast.parse(source), "") if edit.text.encode() != text[edit]}
    for edit in sorted(found):
        name = (
            f"{path} {found[edit]}: {_line(text[edit].decode())} -> {_line(edit.text) or 'nothing'}{text.context(edit)}"
        )
        seen[name] += 1
        name += f" #{seen[name]}" * (seen[name] > 1)
        changed = source[: edit.start] + edit.text.encode() + source[edit.end :]
        yield Mutant(path, source.count(b"\n", 0, edit.start) + 1, name, changed, source)


def _line(text: str) -> str:
    return " ".join(text.split())[:80]


class _Text:
    """A source, and where the nodes of its tree are in it."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]

    def __getitem__(self, edit: Edit) -> bytes:
        return self.source[edit.start : edit.end]

    def start(self, node: Placed) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: Placed) -> int:
        return self._lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def of(self, node: Placed) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def context(self, edit: Edit) -> str:
        """Quote the line that an edit begins in, where more than the edit is in it."""
        begin = self.source.rfind(b"\n", 0, edit.start) + 1
        whole = self.source[begin : self.source.find(b"\n", begin)].strip()
        return "" if self[edit].startswith(whole) else f" in `{_line(whole.decode())}`"

    def put(self, node: Placed, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), text)

    def between(self, left: Placed, right: Placed, pattern: str, text: str) -> Edit:
        """Replace what matches between two nodes."""
        begin = self.end(left)
        found = re.search(pattern, self.source[begin : self.start(right)].decode())
        assert found, (pattern, self.of(left))
        return Edit(begin + found.start(), begin + found.end(), text)


def _edits(text: _Text, node: ast.AST, where: str) -> Iterator[tuple[str, Edit]]:
    """Find the edits of a node and below it, each with the name of the function or class that it is in."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in {"frozen", "strict"}):
        return
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
        return
    if isinstance(node, Function | ast.ClassDef):
        where = f"{where}.{node.name}".removeprefix(".")
    for edit in itertools.chain(_of_expression(text, node), _of_statement(text, node)):
        yield where or "module", edit
    annotation = {"annotation", "returns"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in annotation:
                yield from _edits(text, child, where)


def _of_expression(text: _Text, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare():
            for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield from _turned(text, left, operator, right)
        case ast.BoolOp():
            for left, right in itertools.pairwise(node.values):
                yield from _turned(text, left, node.op, right)
        case ast.BinOp(op=ast.BitOr()):
            yield text.put(node, text.of(node.left))
            yield text.put(node, text.of(node.right))
        case ast.BinOp():
            yield from _turned(text, node.left, node.op, node.right)
        case ast.UnaryOp(op=ast.Not()):
            yield Edit(text.start(node), text.start(node) + 3, "")
        case ast.Constant(value=bool()):
            yield text.put(node, str(not node.value))
        case ast.Constant(value=int() | float() as number):
            yield text.put(node, repr(number + 1))
        case ast.Name(id="min" | "max" | "any" | "all"):
            yield text.put(node, TURNED[node.id])
        case ast.If() | ast.While() | ast.IfExp():
            yield from _negated(text, node.test)
        case ast.comprehension():
            for test in node.ifs:
                yield from _negated(text, test)
        case _:
            pass


def _turned(text: _Text, left: Placed, operator: ast.AST, right: Placed) -> Iterator[Edit]:
    if rule := OPERATORS.get(type(operator)):
        for other in rule[1]:
            yield text.between(left, right, rule[0], other)


def _negated(text: _Text, test: ast.expr) -> Iterator[Edit]:
    """Turn a condition round, where no operator in it can be."""
    if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield text.put(test, f"not ({text.of(test)})")


def _of_statement(text: _Text, node: ast.AST) -> Iterator[Edit]:
    """Leave a statement out, or do two in the other order."""
    for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
        if isinstance(body, list) and all(isinstance(child, ast.stmt) for child in body):
            yield from (text.put(child, "pass") for child in body if _is_removable(child))
            for first, second in itertools.pairwise(body):
                if _are_swappable(first, second):
                    middle = text.source[text.end(first) : text.start(second)].decode()
                    yield Edit(text.start(first), text.end(second), f"{text.of(second)}{middle}{text.of(first)}")
    if isinstance(node, ast.Break | ast.Continue):
        yield text.put(node, "continue" if isinstance(node, ast.Break) else "break")


def _is_removable(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, Removable)


def _are_swappable(first: ast.stmt, second: ast.stmt) -> bool:
    """Say whether both do something outside, and the second one can do it without the first."""
    if not (_has_effect(first) and _has_effect(second)):
        return False
    stored = {node.id for node in ast.walk(first) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored.isdisjoint(node.id for node in ast.walk(second) if isinstance(node, ast.Name))


def _has_effect(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Assign) and any(isinstance(below, ast.Await) for below in ast.walk(node))
