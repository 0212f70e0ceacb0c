"""`issuer dev env`: what a shell evaluates, and how a job's claims are given on a command line."""

import socket
import subprocess
from pathlib import Path

from issuer.cli.dev import _shell_text
from issuer.dev.discovery import RunningIssuer, announced
from tests.support.command import issuer
from tests.support.in_process import run

HOSTILE = [
    "'; touch x; '", "$(touch x)", "`touch x`", "a\nexport B=c", 'a"b', "\\", "!!", "a b  c", "-n", "*", "é\u202e", "",
]  # fmt: skip


def test_a_shell_reads_every_value_as_text(tmp_path: Path) -> None:
    def evaluated(script: str, text: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["sh", "-uc", script, "sh", text], capture_output=True, check=True, cwd=tmp_path)

    for value in HOSTILE:
        done = evaluated('eval "$1"; printf %s "$ISSUER_URL"', _shell_text({"ISSUER_URL": value}))
        assert (done.stdout.decode(), done.stderr, [*tmp_path.iterdir()]) == (value, b"", [])
    script = (
        'GITLAB_CI=x ISSUER_ID_TOKEN=x; eval "$1"; echo "${GITLAB_CI-gone} ${ISSUER_ID_TOKEN-gone} $GITHUB_ACTIONS"'
    )
    done = evaluated(script, _shell_text({"GITHUB_ACTIONS": "true"}))
    assert done.stdout == b"gone gone true\n", "the variables of another job are unset"


def test_dev_refuses_a_malformed_option_a_port_in_use_and_bad_policies_at_once(tmp_path: Path) -> None:
    for given in ("x", "=y", ":=1", "a:=", "a:={", "a:=x", f"a:={'[' * 5000}"):
        assert run(["dev", "token", "--claim", given], tmp_path).code == 2, given
    for option in ("--branch", "--audience", "--provider", "--integration"):
        empty = run(["dev", "token", option, ""], tmp_path)
        assert (empty.code, "the value is empty" in empty.err) == (2, True)
    misplaced = run(["dev", "--policies", str(tmp_path), "token"], tmp_path)
    assert misplaced.code == 2, "an option of the issuer, not of a job"
    with announced(tmp_path / "eval-token-issuer", RunningIssuer("http://127.0.0.1:1", "http://127.0.0.1:1", "x")):
        done = issuer("dev", "token", "--branch", "\udce9", env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr.count("\n"), "is not UTF-8" in done.stderr) == (6, 2, True)
    done = issuer("dev", "env")
    assert (done.returncode, done.stdout, "Start `issuer dev` in another terminal" in done.stderr) == (6, "", True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = issuer("dev", "--port", str(taken.getsockname()[1]), env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, "service.address" in done.stderr) == (6, "", True)
    (tmp_path / "providers.yaml").write_text("version: 1\nproviders: {x: {profile: none}}\n")
    done = issuer("dev", "--policies", tmp_path)
    assert (done.returncode, done.stdout, "providers.yaml:2:" in done.stderr) == (3, "", True)
