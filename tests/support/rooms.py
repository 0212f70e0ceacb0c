"""The house as its imports draw it: rooms, floors, arrows and circles. `python -m tests.support.rooms` prints them.

A room is a folder directly under `issuer/` or `issuer/service/`, except `service` itself, and `policy/authoring`.
Sub-folders belong to their room. `errors`, `codes`, `api` and `app` are outside the rooms, without arrows. An arrow leads from a room to a room that it imports, at any place of a file, also under `TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "issuer"

Graph = Mapping[str, frozenset[str]]


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "runs" not in path.parts)
MODULES = {module_of(path): path for path in SOURCES}


def room_of(module: str) -> str | None:
    """Name the room of a module, below the package: `formats`, `service.http`; None for a module outside the rooms."""
    path = MODULES[module].relative_to(PACKAGE)
    match path.parts[:-1]:
        case ("service", room, *_):
            return f"service.{room}"
        case ("policy", "authoring", *_):
            return "policy.authoring"
        case () | ("service",):
            return None
        case (room, *_):
            return str(room)
    return None


@cache
def tree(path: Path) -> ast.Module:
    """Parse a file without garbage collection, which would take longer than the parser."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        gc.enable()


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly in a node."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, field, ())


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over the statements of a tree, and over no expression: a tenth of its nodes."""
    for inner in statements_in(node):
        yield inner
        yield from statements(inner)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module that a file of the package imports."""
    return imports(path, tree(path))


def imports(path: Path, source: ast.Module) -> frozenset[str]:
    """Return every module that a file imports; `from a import b` names a.b if that is a module."""
    found: set[str] = set()
    for node in statements(source):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            inner = {name.name: f"{node.module}.{name.name}" for name in node.names}
            found |= {full if full in MODULES else str(node.module) for full in inner.values()}
    return frozenset(found)


def files() -> Graph:
    """Return which modules of the package each of its modules imports."""
    return {module: frozenset(imported(path) & MODULES.keys() - {module}) for module, path in MODULES.items()}


def rooms() -> Graph:
    drawn: dict[str, set[str]] = {room: set() for module in MODULES if (room := room_of(module))}
    for module, others in files().items():
        if room := room_of(module):
            drawn[room] |= {below for other in others if (below := room_of(other)) and below != room}
    return {room: frozenset(below) for room, below in drawn.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return each set of nodes that can reach one another; of single nodes only those that reach themselves."""
    reach = {node: _reached(graph, node) for node in graph}
    found = {frozenset(other for other in reach[node] if node in reach[other]) for node in graph if node in reach[node]}
    return sorted(sorted(circle) for circle in found)


def _reached(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def function_lengths() -> list[int]:
    """Return the length in lines of every function of the package, the shortest first."""
    return sorted(
        length_of(node)
        for path in SOURCES
        for node in statements(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def length_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def counts() -> str:
    """Count the house in one line."""
    drawn, lengths = rooms(), function_lengths()
    arrows = sum(map(len, drawn.values()))
    circled = f"{len(circles(drawn))} circles of rooms, {len(circles(files()))} of files"
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in SOURCES)
    functions = f"median function {lengths[len(lengths) // 2]} lines, longest {lengths[-1]}"
    return f"{len(drawn)} rooms, {arrows} arrows, {circled}; {len(MODULES)} files, {lines} lines; {functions}"


if __name__ == "__main__":
    print("\n".join(f"{room:<20} {', '.join(sorted(below))}" for room, below in rooms().items()))
    print("\n".join(f"circle: {', '.join(circle)}" for circle in [*circles(rooms()), *circles(files())]))
    print(counts())
