"""The bounds on the length and depth of a function, in the package and in the harness of the tests.

Ruff bounds branches and parameters (pyproject.toml).
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.rooms import SOURCES, tree

MAX_LINES = 60
MAX_DEPTH = 4

ROOT = Path(__file__).parents[1]
FILES = [*SOURCES, *sorted((ROOT / "tests/support").rglob("*.py"))]

# A lambda, a comprehension and a conditional expression add no depth: they are one thought, or ruff's complexity counts.
Block = (
    ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
    | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
)  # fmt: skip


class Size(NamedTuple):
    """The size of a function: `name` as in the source, `lines` from `def` to its last line."""

    name: str
    line: int
    lines: int
    depth: int


def sizes(module: ast.Module) -> Iterator[Size]:
    """Measure every function of a module, also inner functions and methods."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            yield Size(node.name, node.lineno, node.end_lineno - node.lineno + 1, depth(node))


def depth(node: ast.AST) -> int:
    """Return how many blocks are open at the deepest place below a node; an `elif` is as deep as its `if`."""
    return max((_below(node, child) for child in ast.iter_child_nodes(node)), default=0)


def _below(parent: ast.AST, child: ast.AST) -> int:
    is_elif = isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]
    return depth(child) + (isinstance(child, Block) and not is_elif)


def test_no_function_is_too_long_or_too_deep() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{size.line}: {size.name} has {size.lines} lines (at most {MAX_LINES}) and is {size.depth} deep (at most {MAX_DEPTH})"
        for path in FILES
        for size in sizes(tree(path))
        if size.lines > MAX_LINES or size.depth > MAX_DEPTH
    ]
    assert not found, "\n".join(found)


def test_depth_counts_open_blocks_and_an_elif_none() -> None:
    source = """
def flat():
    return [a for b in c for a in b if a]

def chained():
    if a:
        pass
    elif b:
        pass
    elif c:
        pass
    else:
        pass

async def deep():
    async with a:
        try:
            pass
        except b:
            for c in d:
                def inner():
                    while e:
                        pass
"""
    assert {size.name: (size.lines, size.depth) for size in sizes(ast.parse(source))} == {
        "flat": (2, 0),
        "chained": (9, 1),
        "deep": (9, 5),
        "inner": (3, 1),
    }
