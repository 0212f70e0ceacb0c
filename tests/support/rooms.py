"""The house as its imports draw it: rooms, floors, arrows and circles. `python -m tests.support.rooms` prints them.

A room is a folder of the package, or a file directly in `issuer/` or `issuer/service/`, each of which is a subject of
its own. An arrow leads from a room to one that it imports, at any place of a file, also under `TYPE_CHECKING`. A floor
is the length of the longest way down.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "issuer"
# Folders in which each file is a room.
OPEN_FOLDERS = {"issuer", "issuer.service"}

Graph = Mapping[str, frozenset[str]]


def module_of(path: Path) -> str:
    """Name the module of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "runs" not in path.parts)
MODULES = {module_of(path): path for path in SOURCES}


def room_of(module: str) -> str:
    """Name the room of a module, below the package: `formats`, `service.http`, `errors`, `service.app`."""
    folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    room = module if folder in OPEN_FOLDERS else folder
    return room.partition(".")[2] or room


def parsed(path: Path) -> ast.Module:
    """Parse a file. To look for garbage among its nodes would take longer."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        gc.enable()


tree = cache(parsed)  # for files of which several things are asked


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over the statements of a tree, and over no expression: a tenth of its nodes."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every module that a file of the package imports."""
    return imports(path, tree(path))


def imports(path: Path, source: ast.Module) -> frozenset[str]:
    """Return every module that a file imports; `from a import b` names a.b where that is one."""
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
    """Return which rooms each room imports."""
    drawn: dict[str, set[str]] = {room_of(module): set() for module in MODULES}
    for module, others in files().items():
        drawn[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
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


def floors(graph: Graph) -> list[list[str]]:
    """Sort the nodes of a graph without circles by the length of the longest way down from each."""
    height: dict[str, int] = {}
    while len(height) < len(graph):
        ready = [node for node in graph if node not in height and graph[node] <= height.keys()]
        assert ready, "a circle has no floor"
        height |= {node: 1 + max((height[below] for below in graph[node]), default=-1) for node in ready}
    return [sorted(node for node in graph if height[node] == floor) for floor in range(max(height.values()) + 1)]


def lines() -> Iterator[str]:
    """Describe the house in words, from the top floor down."""
    drawn = rooms()
    found, of_files = circles(drawn), circles(files())
    levels = [] if found else floors(drawn)
    for number, level in reversed(list(enumerate(levels))):
        for room in level:
            yield f"{number:>3}  {room:<20} {', '.join(sorted(drawn[room]))}"
    arrows = sum(map(len, drawn.values()))
    circled = f"{len(found)} circles of rooms, {len(of_files)} of files"
    yield f"{len(drawn)} rooms, {len(levels)} floors, {arrows} arrows, {circled}; {len(MODULES)} files"
    yield from (f"circle: {', '.join(circle)}" for circle in [*found, *of_files])


if __name__ == "__main__":
    print("\n".join(lines()))
