"""Every command in a hostile checkout: it ends, says nothing that a terminal obeys, shows and changes nothing outside.

A new command or a new path of one has to be added to COMMANDS, or the first test fails.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from issuer.cli import cli
from issuer.dev.sandbox import SAMPLE_POLICIES, SAMPLE_RUN
from tests.support.command import clean, issuer
from tests.support.hostile_checkout import CANARY, HostileCheckout, lay, problem
from tests.support.hostile_issuer import HostileIssuer
from tests.support.scripted import reply

HERE = "{here}"  # the hostile path
REQUEST = ("token", "request", "--issuer", "{issuer}")
CLAIMS = (*REQUEST, "--claims", "{good}/claims.json")
VERIFY = ("verify", "{good}/gsm8k.yaml", "--repo", "acme/open-model", "--path", ".eval_results/gsm8k.yaml")
TRUST = ("--trust", "{good}/trust.yaml")
BUILD = ("results", "build", "{run}", "--allow-mock", "mockllm/model", "--metric", "accuracy=match/accuracy", "--command", "x",
         "--model-repo", "acme/open-model", "--model-revision", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321", "--out")  # fmt: skip
EXPORT = ("results", "export", "{good}/gsm8k.yaml", "--to", "eee", "--repo", "acme/open-model", "--source-type", "evaluation_run",
          "--organization", "x", "--evaluator", "other", "--benchmark")  # fmt: skip
EXPLAIN = ("policy", "explain", "{policies}", "--url", "https://issuer.example")
KEYS = ("keys", "--dir", "{made}/keys", "--data", "{made}/data")
LOG = ("{good}/log", "--policy", "{good}/policy.txt")
REVOKE = ("keys", "revoke", "key-" + "A" * 43, "--from", "0", "--reason", "x")


BOARDLESS = ("leaderboard", "build", "{policies}", "--jobs", "1", "--out", "{made}/board")
BOARD = ("leaderboard", "build", "{policies}", "--jobs", "1", *TRUST)


def placed(*command: str) -> dict[str, tuple[str, ...]]:
    """Return what the commands of the list of revocations are given."""
    places = {"keys": ("--dir", "{made}/keys"), "data": ("--data", "{made}/data")}
    url = ("--url", "https://issuer.example")
    return {
        "config": (*command, "--config", HERE),
        "keys": (*command, "--dir", HERE, *places["data"], *url),
        "data": (*command, *places["keys"], "--data", HERE, *url),
        "passphrase_file": (*command, *places["keys"], *places["data"], *url, "--passphrase-file", HERE),
    }


# Every command with a path, and for each path the arguments that have it.
DOCTOR = ("doctor", "--issuer", "{issuer}")
CHECK = ("check", "--issuer", "{issuer}")
SUBMIT = ("submit", "--issuer", "{issuer}", "--model-repo", "acme/open-model", "--model-revision", "a" * 40, "--command", "x",
          "--metric", "accuracy=match/accuracy", "--allow-mock", "mockllm/model")  # fmt: skip
KEPT = ("--state", "{made}/state")
SENT = (*SUBMIT, "{run}", "--access-token-file", "{good}/credential")
COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "audit find": {"files": ("audit", "find", HERE, "--integration", "x")},
    "audit tail": {"file": ("audit", "tail", HERE)},
    "audit verify": {"files": ("audit", "verify", HERE), "heads": ("audit", "verify", "{good}/identity.json", "--heads", HERE)},
    "benchmark init": {"out": ("benchmark", "init", "--name", "x", "--description", "x", "--higher", "m=M", "--task", "t", "--out", HERE)},
    "benchmark lint": {"paths": ("benchmark", "lint", HERE)},
    "check": {
        "id_token_file": (*CHECK, "--id-token-file", HERE),
        "access_token_file": (*CHECK, "--access-token-file", HERE),
        "client_secret_file": (*CHECK, "--token-endpoint", "{issuer}", "--client-id", "x", "--client-secret-file", HERE),
    },
    "config check": {"config": ("config", "check", "--config", HERE)},
    "config show": {"config": ("config", "show", "--origin", "--config", HERE)},
    "demo": {"keep": ("demo", "--keep", HERE)},
    "doctor": {
        "config": ("doctor", "--server", "--config", HERE),
        "id_token_file": (*DOCTOR, "--id-token-file", HERE),
        "access_token_file": (*DOCTOR, "--access-token-file", HERE),
        "client_secret_file": (*DOCTOR, "--token-endpoint", "{issuer}", "--client-id", "x", "--client-secret-file", HERE),
    },
    "init": {"folder": ("init", HERE, "--url", "https://issuer.example")},
    "keys generate": {
        "config": ("keys", "generate", "--config", HERE),
        "folder": ("keys", "generate", "--dir", HERE, "--data", "{made}/data"),
        "data": ("keys", "generate", "--dir", "{made}/keys", "--data", HERE),
        "passphrase_file": (*KEYS[:1], "generate", *KEYS[1:], "--passphrase-file", HERE),
    },
    "leaderboard build": {
        "path": (*BOARD[:2], HERE, *BOARD[3:], "--out", "{made}/board"),
        "out": (*BOARD, "--out", HERE),
        "trust": ("leaderboard", "build", "{policies}", "--out", "{made}/board", "--trust", HERE),
        "receipts": (*BOARD, "--out", "{made}/board", "--receipts", HERE),
        "benchmarks": (*BOARD, "--out", "{made}/board", "--benchmarks", HERE),
        "cache": (*BOARDLESS, "--issuer", "{issuer}", "--audience", "x", "--cache", HERE),
        "state": (*BOARDLESS, "--issuer", "{issuer}", "--audience", "x", "--state", HERE),
    },
    "page export": {"folder": ("page", "export", HERE)},
    "keys list": {
        "config": ("keys", "list", "--config", HERE),
        "folder": ("keys", "list", "--json", "--dir", HERE, "--data", "{made}/data"),
        "data": ("keys", "list", "--dir", "{good}", "--data", HERE),
        "passphrase_file": (*KEYS[:1], "list", *KEYS[1:], "--passphrase-file", HERE),
    },
    "keys public": {
        "config": ("keys", "public", "--config", HERE),
        "folder": ("keys", "public", "--dir", HERE, "--data", "{made}/data"),
        "data": ("keys", "public", "--dir", "{good}", "--data", HERE),
        "passphrase_file": (*KEYS[:1], "public", *KEYS[1:], "--passphrase-file", HERE),
        "kind": ("keys", "public", "--of", HERE),
    },
    "keys rotate": {
        "config": ("keys", "rotate", "--config", HERE),
        "folder": ("keys", "rotate", "--dir", HERE, "--data", "{made}/data"),
        "data": ("keys", "rotate", "--dir", "{made}/keys", "--data", HERE),
        "passphrase_file": (*KEYS[:1], "rotate", *KEYS[1:], "--passphrase-file", HERE),
    },
    "keys revoke": {
        "config": (*REVOKE, "--config", HERE),
        "folder": (*REVOKE, "--dir", HERE, "--data", "{made}/data"),
        "data": (*REVOKE, "--dir", "{good}", "--data", HERE),
        "passphrase_file": (*REVOKE, *KEYS[1:], "--passphrase-file", HERE),
    },
    "log verify": {"policy_file": ("log", "verify", "{good}/log", "--policy", HERE)},
    "log export": {
        "folder": ("log", "export", HERE, "--from", "{good}/log"),
        "policy_file": ("log", "export", "{made}/log", "--from", "{good}/log", "--policy", HERE),
    },
    "log monitor": {
        "policy_file": ("log", "monitor", "{good}/log", "--policy", HERE, "--state", "{made}/state"),
        "state": ("log", "monitor", *LOG, "--state", HERE),
        "tokens": ("log", "monitor", *LOG, "--state", "{made}/state", "--integration", "inspect-ai", "--tokens", HERE),
    },
    "log proof": {
        "policy_file": ("log", "proof", "{good}/log", "--policy", HERE, "--for", "{good}/gsm8k.yaml#0"),
        # Of no token that is there: a proof would take the place of a file that the tests after this one read.
        "out": ("log", "proof", *LOG, "--iat", "1", "--token", "0" * 64, "--out", HERE),
    },
    "log init": {"config": ("log", "init", "--config", HERE)},
    "log accept": {"config": ("log", "accept", "--size", "0", "--root", "0" * 64, "--reason", "x", "--config", HERE)},
    "log restore": {"config": ("log", "restore", "{good}/log", "--config", HERE)},
    "abuse list": {"config": ("abuse", "list", "--config", HERE)},
    "abuse show": {"config": ("abuse", "show", "x", "y", "--config", HERE)},
    "abuse release": {"config": ("abuse", "release", "x", "y", "--for", "1h", "--reason", "x", "--config", HERE)},
    "abuse quarantine": {"config": ("abuse", "quarantine", "x", "y", "--for", "1h", "--reason", "x", "--config", HERE)},
    "abuse across": {"files": ("abuse", "across", HERE)},
    "pat create": {
        "config": ("pat", "create", "--account", "x", "--config", HERE),
        "folder": ("pat", "create", "--account", "x", "--dir", HERE),
    },
    "pat list": {"config": ("pat", "list", "--config", HERE), "folder": ("pat", "list", "--json", "--dir", HERE)},
    "pat revoke": {
        "config": ("pat", "revoke", "4Fq0ZtB2x9Lm", "--config", HERE),
        "folder": ("pat", "revoke", "4Fq0ZtB2x9Lm", "--dir", HERE),
    },
    "policy check": {"directory": ("policy", "check", HERE)},
    "policy test": {"directory": ("policy", "test", HERE)},
    "policy explain": {
        "directory": ("policy", "explain", HERE, "--identity-claims-file", "{good}/identity.json"),
        "token_file": (*EXPLAIN, "--identity-token-file", HERE),
        "claims_file": (*EXPLAIN, "--identity-claims-file", HERE),
        "run_file": (*EXPLAIN, "--identity-claims-file", "{good}/identity.json", "--claims", HERE),
        "counts_file": (*EXPLAIN, "--identity-claims-file", "{good}/identity.json", "--counts", HERE),
    },
    "policy new": {
        "token_file": ("policy", "new", "mine", "--from-token", HERE, "--dir", "{made}/new"),
        "directory": ("policy", "new", "mine", "--from-token", "{good}/job.json", "--dir", HERE),
    },
    "policy plan": {
        "old": ("policy", "plan", HERE, "{policies}", "--audit", "{good}/identity.json"),
        "new": ("policy", "plan", "{policies}", HERE, "--audit", "{good}/identity.json"),
        "audit": ("policy", "plan", "{policies}", "{policies}", "--audit", HERE),
    },
    "policy fmt": {"files": ("policy", "fmt", HERE)},
    "reproduce compare": {
        "paths": ("reproduce", "compare", HERE, HERE),
        "map_path": ("reproduce", "compare", "{run}", "{run}", "--map", HERE),
        "verievals_ledger": ("reproduce", "compare", "{run}", "{run}", "--verievals-key", "00", "--verievals-root", "00", "--verievals-ledger", HERE),
    },
    "results build": {
        "paths": ("results", "build", HERE, "--out", "{made}/out"),
        "map_path": (*BUILD, "{made}/out", "--map", HERE),
        "benchmark_path": (*BUILD, "{made}/out", "--profile", "both", "--benchmark", HERE),
        "out": (*BUILD, HERE),
        "verievals_ledger": (*BUILD, "{made}/out", "--verievals-key", "00", "--verievals-root", "00", "--verievals-ledger", HERE),
    },
    "results export": {
        "file": (*EXPORT[:2], HERE, *EXPORT[3:], "{good}/eval.yaml", "-o", "{made}/records"),
        "benchmark_path": (*EXPORT, HERE, "-o", "{made}/records"),
        "out": (*EXPORT, "{good}/eval.yaml", "-o", HERE),
        "trust": (*EXPORT, "{good}/eval.yaml", "-o", "{made}/records", "--trust", HERE),
    },
    "results lint": {
        "paths": ("results", "lint", HERE),
        "benchmark_path": ("results", "lint", "{good}/gsm8k.yaml", "--benchmark", HERE),
    },
    "results fmt": {
        "paths": ("results", "fmt", HERE, "--drop-comments"),
        "benchmark_path": ("results", "fmt", "--check", "{good}/gsm8k.yaml", "--benchmark", HERE),
    },
    "results digest": {"paths": ("results", "digest", "--repo", "acme/open-model", HERE)},
    "results diff": {"left": ("results", "diff", HERE, "{good}/gsm8k.yaml"), "right": ("results", "diff", "{good}/gsm8k.yaml", HERE)},
    "revocations init": placed("revocations", "init"),
    "revocations renew": placed("revocations", "renew"),
    "revocations show": placed("revocations", "show"),
    "revoke": placed("revoke", "--jti", "A" * 22, "--reason", "x"),
    "stop": {
        "config": ("stop", "everything", "--reason", "x", "--config", HERE),
        "folder": ("stop", "everything", "--reason", "x", "--dir", HERE),
    },
    "resume": {"config": ("resume", "everything", "--config", HERE), "folder": ("resume", "everything", "--dir", HERE)},
    "stops": {"config": ("stops", "--config", HERE), "folder": ("stops", "--dir", HERE)},
    "serve": {"config": ("serve", "--config", HERE)},
    "submit": {
        "paths": (*SUBMIT, HERE, "--access-token-file", "{good}/credential", *KEPT, "--out", "{made}/out"),
        "map_path": (*SENT, *KEPT, "--out", "{made}/out", "--map", HERE),
        "verievals_ledger": (
            *SENT, *KEPT, "--out", "{made}/out", "--verievals-key", "00", "--verievals-root", "00", "--verievals-ledger", HERE,
        ),
        "benchmark_path": (*SENT, *KEPT, "--out", "{made}/out", "--benchmark", HERE),
        "state": (*SENT, "--out", "{made}/out", "--state", HERE),
        "report": (*SENT, *KEPT, "--out", "{made}/out", "--report", HERE + ".json"),
        "summary": (*SENT, *KEPT, "--out", "{made}/out", "--summary", HERE + ".md"),
        "out": (*SENT, *KEPT, "--out", HERE),
        "id_token_file": (*SUBMIT, "{run}", *KEPT, "--out", "{made}/out", "--id-token-file", HERE),
        "access_token_file": (*SUBMIT, "{run}", *KEPT, "--out", "{made}/out", "--access-token-file", HERE),
        "client_secret_file": (
            *SUBMIT, "{run}", *KEPT, "--out", "{made}/out", "--token-endpoint", "{issuer}", "--client-id", "x",
            "--client-secret-file", HERE,
        ),
    },
    "token request": {
        "claims_path": (*REQUEST, "--access-token-file", "{good}/credential", "--claims", HERE),
        "inspect_log": (*REQUEST, "--access-token-file", "{good}/credential", "--allow-mock", "mockllm/model", "--inspect-log", HERE),
        "out": (*CLAIMS, "--access-token-file", "{good}/credential", "--out", HERE),
        "benchmark_path": (*CLAIMS, "--access-token-file", "{good}/credential", "--profile", "both", "--benchmark", HERE),
        "id_token_file": (*CLAIMS, "--id-token-file", HERE),
        "access_token_file": (*CLAIMS, "--access-token-file", HERE),
        "client_secret_file": (*CLAIMS, "--token-endpoint", "{issuer}", "--client-id", "x", "--client-secret-file", HERE),
    },
    "verify": {
        "path": ("verify", HERE, "--repo", "acme/open-model", *TRUST),
        "trust": (*VERIFY, "--trust", HERE),
        "receipts": (*VERIFY, *TRUST, "--receipts", HERE),
        "keep_receipts": (*VERIFY, *TRUST, "--keep-receipts", HERE),
        "receipt_key": (*VERIFY, *TRUST, "--keep-receipts", "{good}", "--receipt-key", HERE),
        "benchmark": (*VERIFY, *TRUST, "--benchmark", HERE),
        "badge": (*VERIFY, *TRUST, "--badge", HERE),
        "benchmarks": (*VERIFY, *TRUST, "--benchmarks", HERE),
        "to": ("verify", "{good}", "--jobs", "1", *TRUST, "--to", HERE + ".parquet"),
        "engine_tls": ("verify", "{good}", *TRUST, "--engine", "tls://127.0.0.1:1", "--engine-tls", HERE),
        "cache": (*VERIFY, "--issuer", "{issuer}", "--audience", "x", "--cache", HERE),
        "state": (*VERIFY, "--issuer", "{issuer}", "--audience", "x", "--state", HERE),
    },
    "witness init": {"folder": ("witness", "init", "--name", "w.example/1", "--dir", HERE)},
    "witness serve": {
        # The command before has made witnesses in these folders; an address for documentation ends it where it would serve.
        "folder": ("witness", "serve", "--host", "192.0.2.1", "--logs", "{good}/policy.txt", "--dir", HERE),
        "logs": ("witness", "serve", "--dir", "{made}", "--logs", HERE),
    },
}  # fmt: skip
# The same in the form for machines, and where a folder is judged.
MORE: dict[str, tuple[str, ...]] = {
    "token inspect given": ("token", "inspect", HERE),
    "policy check as github": ("policy", "check", HERE, "--format", "github"),
    "policy test as junit": ("policy", "test", HERE, "--format", "junit"),
    "policy test as json": ("policy", "test", HERE, "--format", "json"),
    "results lint as json": ("results", "lint", HERE, "--format", "json"),
    "results lint as sarif": ("results", "lint", HERE, "--format", "sarif"),
    "results lint as junit": ("results", "lint", HERE, "--format", "junit"),
    "results lint as github": ("results", "lint", HERE, "--format", "github"),
    "results digest as json": ("results", "digest", HERE, "--json"),
    "results diff as json": ("results", "diff", HERE, "{good}/gsm8k.yaml", "--json"),
    "policy plan as json": ("policy", "plan", "{policies}", "{policies}", "--json", "--audit", HERE),
    "log verify a log": ("log", "verify", HERE, "--policy", "{good}/policy.txt"),
    "log monitor a log": ("log", "monitor", HERE, "--policy", "{good}/policy.txt", "--state", "{made}/state"),
    "log export a log": ("log", "export", "{made}/log", "--from", HERE),
    "log proof from a log": ("log", "proof", HERE, "--policy", "{good}/policy.txt", "--for", "{good}/gsm8k.yaml#0"),
    "log proof for an entry": ("log", "proof", *LOG, "--for", HERE + "#0"),
    "log restore from a log": ("log", "restore", HERE, "--config", "{good}/settings.yaml"),
    "leaderboard build a table": ("leaderboard", "build", HERE + "/r.parquet", "--out", "{made}/board"),
    "verify as json": ("verify", HERE, "--repo", "acme/open-model", "--json", *TRUST),
    "verify as junit": ("verify", HERE, "--repo", "acme/open-model", "--format", "junit", *TRUST),
    "verify as csv": ("verify", HERE, "--repo", "acme/open-model", "--format", "csv", *TRUST),
    "verify a folder as sarif": ("verify", HERE, "--jobs", "1", "--format", "sarif", *TRUST),
    "verify a folder as github": ("verify", HERE, "--jobs", "1", "--format", "github", *TRUST),
    "verify to a folder's": ("verify", "{good}", "--jobs", "1", *TRUST, "--to", HERE + "/results.parquet"),
    "verify a folder": ("verify", HERE, "--jobs", "1", *TRUST),
    "verify a folder as json": ("verify", HERE, "--jobs", "1", "--json", *TRUST),
}
# Folders that an operator names may be links (issuer/DECISIONS.md); they hold no files of others.
OPERATOR_S = {
    "keys generate data",
    "keys rotate data",
    "log export folder",
    "pat create folder",
    "pat create config",
    "verify keep_receipts",
    "verify receipts",
    "leaderboard build receipts",
    "leaderboard build cache",
    "leaderboard build state",
    "verify cache",
    "verify state",
    "stop folder",
    "resume folder",
    "revoke data",
    "witness init folder",
}
EACH = {
    f"{command} {name}": arguments for command, paths in COMMANDS.items() for name, arguments in paths.items()
} | MORE
# The one starts a service, the other follows a file until it is interrupted.
APART = {"demo keep", "audit tail file"}
# What `make test` tries; `make check` tries everything in the checkout.
FEW = ("'repository'", "'pipe.yaml'", "'results.yaml'")
LINKED = ("'link to a folder'", "'link to results.yaml'", "'dangling.yaml'")
WRITE = {
    "keys generate folder",
    "leaderboard build out",
    "log export folder",
    "log monitor state",
    "page export folder",
    "log proof out",
    "keys rotate folder",
    "policy fmt files",
    "policy new directory",
    "benchmark init out",
    "results build out",
    "results export out",
    "results fmt paths",
    "submit out",
    "submit report",
    "submit state",
    "submit summary",
    "token request out",
    "verify to",
    "verify to a folder's",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> HostileCheckout:
    return lay(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def server() -> Iterator[HostileIssuer]:
    with HostileIssuer(answers=[reply(403, problem())]) as server:
        yield server


def fill(
    arguments: tuple[str, ...], path: Path, hostile: HostileCheckout, server: HostileIssuer, made: Path
) -> list[str]:
    names = {
        "here": path,
        "good": hostile.good,
        "issuer": server.url,
        "policies": SAMPLE_POLICIES,
        "run": SAMPLE_RUN,
        "made": made,
    }
    return [argument.format(**names) for argument in arguments]


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for inner in command.list_commands(context):
        found = command.get_command(context, inner)
        assert found
        yield from leaves(found, f"{name} {inner}".strip())


def test_every_path_that_a_command_takes_is_tried_here() -> None:
    taken = {
        name: {option.name for option in command.params if isinstance(option.type, click.Path)}
        for name, command in leaves(cli)
    }
    assert {name: paths for name, paths in taken.items() if paths} == {
        name: set(paths) for name, paths in COMMANDS.items()
    }


def assert_harmless(written: str) -> None:
    assert "Traceback" not in written, written
    obeyed = {sign for sign in written if not sign.isprintable()} - {"\n", "\t"}
    assert not obeyed, (obeyed, written)
    assert CANARY not in written


@pytest.mark.parametrize("name", sorted(EACH.keys() - APART))
def test_a_command_in_a_hostile_checkout_harms_nobody(
    hostile: HostileCheckout, server: HostileIssuer, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    paths = hostile.paths
    few = [*FEW, *(LINKED if name in WRITE else ())]
    for chosen in few if request.config.option.markexpr == "not long" else paths:
        before, path = hostile.seen_outside(), paths[chosen]
        arguments = fill(EACH[name], path, hostile, server, tmp_path / "made")
        done = issuer(*arguments, env={"ISSUER_URL": "https://issuer.example"})
        assert done.returncode in range(7), (path, done)
        assert_harmless(done.stdout + done.stderr)
        if not (name in OPERATOR_S and path.is_symlink()):
            assert hostile.seen_outside() == before, path


def test_links_are_read_by_no_command_of_results(hostile: HostileCheckout) -> None:
    repository = hostile.paths["'repository'"]
    said = issuer("results", "lint", repository).stdout.splitlines()
    refused = [line for line in said if "a symbolic link: not followed" in line]
    links = [path for path in repository.rglob("*.yaml") if path.is_symlink()]
    assert len(links) > 5
    assert len(refused) == len(links) + 1, "and the folder of results that is one"
    assert issuer("results", "digest", repository / "acme" / "linked" / ".eval_results").returncode == 3


# Colours and the line of progress are ours; a terminal makes CR LF of a line's end.
_OURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K|\r\n")
ON_A_TERMINAL = (
    "results lint paths",
    "verify path",
    "verify as json",
    "verify a folder",
    "policy check directory",
    "token request claims_path",
)


@pytest.mark.parametrize("name", ON_A_TERMINAL)
def test_a_terminal_gets_nothing_to_obey_but_our_colours(
    hostile: HostileCheckout, server: HostileIssuer, tmp_path: Path, name: str
) -> None:
    path = hostile.paths[
        "'claims.json'" if "claims" in name else "'repository'" if "folder" in name else "'results.yaml'"
    ]
    arguments = fill(EACH[name], path.parent if "policy" in name else path, hostile, server, tmp_path)
    ours, theirs = pty.openpty()
    env = {**clean(), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "issuer", *arguments], stdout=theirs, stderr=theirs, stdin=theirs, env=env
    ) as child:
        os.close(theirs)
        written = b"".join(iter(lambda: read(ours), b"")).decode()
    os.close(ours)
    assert child.returncode in range(7)
    assert_harmless(_OURS.sub("\n", written))
    assert "verified" in written, "what drew is shown, escaped"


def read(descriptor: int) -> bytes:
    """Read what a terminal was sent; Linux says EIO where nobody has it open any more."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


@pytest.mark.long
def test_the_demo_keeps_nothing_behind_a_link(hostile: HostileCheckout) -> None:
    before = hostile.seen_outside()
    done = issuer("demo", "--keep", hostile.paths["'link to a folder'"])
    assert (done.returncode, "symbolic link" in done.stderr) == (6, True)
    assert hostile.seen_outside() == before
