"""`issuer dev env`: what a shell evaluates, and how a job's claims are given on a command line."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from issuer.cli.dev import _shell_text
from issuer.client.credential import gitlab_variable
from issuer.dev.discovery import RunningIssuer, announced
from issuer.formats.jose import base64url_encode
from tests.support.command import issuer

HOSTILE = [
    "'; touch x; '",
    "$(touch x)",
    "`touch x`",
    "a\nexport B=c",
    'a"b',
    "\\",
    "!!",
    "a b  c",
    "-n",
    "*",
    "é\u202e",
    "",
]


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_a_shell_reads_a_value_as_text_and_nothing_else(value: str, tmp_path: Path) -> None:
    script = 'eval "$1"; printf %s "$ISSUER_URL"'
    done = subprocess.run(
        ["sh", "-uc", script, "sh", _shell_text({"ISSUER_URL": value})], capture_output=True, check=True, cwd=tmp_path
    )
    assert (done.stdout.decode(), done.stderr, [*tmp_path.iterdir()]) == (value, b"", [])


def test_what_another_job_has_set_is_unset() -> None:
    script = (
        'GITLAB_CI=x ISSUER_ID_TOKEN=x; eval "$1"; echo "${GITLAB_CI-gone} ${ISSUER_ID_TOKEN-gone} $GITHUB_ACTIONS"'
    )
    text = _shell_text({"GITHUB_ACTIONS": "true"})
    done = subprocess.run(["sh", "-uc", script, "sh", text], capture_output=True, check=True)
    assert done.stdout == b"gone gone true\n"


@pytest.mark.parametrize(
    ("audience", "variable"),
    [
        ("http://127.0.0.1:8080", "HTTP___127_0_0_1_8080_ID_TOKEN"),
        ("https://issuer.example", "HTTPS___ISSUER_EXAMPLE_ID_TOKEN"),
        ("1a", "_A_ID_TOKEN"),
    ],
)
def test_gitlab_s_variable_is_the_one_that_the_client_looks_for(
    audience: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import id as ambient

    assert gitlab_variable(audience) == variable
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITLAB_CI", "true")
    token = f"e30.{base64url_encode(msgspec.json.encode({'aud': audience}))}.e30"
    monkeypatch.setenv(variable, token)
    assert ambient.detect_credential(audience) == token


@pytest.mark.parametrize("given", ["x", "=y", ":=1", "a:=", "a:={", "a:=x", f"a:={'[' * 5000}"])
def test_a_claim_that_is_no_claim_is_a_usage_error(given: str) -> None:
    assert issuer("dev", "token", "--claim", given).returncode == 2


@pytest.mark.parametrize("option", ["--branch", "--audience", "--provider", "--integration"])
def test_an_option_without_its_text_is_not_the_good_job(option: str) -> None:
    done = issuer("dev", "token", option, "")
    assert (done.returncode, "the value is empty" in done.stderr) == (2, True)


def test_what_is_not_utf_8_is_told_in_one_line(tmp_path: Path) -> None:
    with announced(tmp_path / "eval-token-issuer", RunningIssuer("http://127.0.0.1:1", "http://127.0.0.1:1", "x")):
        done = issuer("dev", "token", "--branch", "\udce9", env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr.count("\n")) == (6, 2)
    assert "is not UTF-8" in done.stderr


def test_a_port_that_is_taken_is_told_before_anything_is_said_to_be_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = issuer("dev", "--port", str(taken.getsockname()[1]), env={"XDG_STATE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (6, "")
    assert "service.address" in done.stderr


def test_without_an_issuer_that_runs_the_next_command_is_told() -> None:
    done = issuer("dev", "env")
    assert (done.returncode, done.stdout) == (6, "")
    assert "Start `issuer dev` in another terminal" in done.stderr


def test_options_of_the_issuer_are_not_taken_for_those_of_a_job(tmp_path: Path) -> None:
    assert issuer("dev", "--policies", tmp_path, "token").returncode == 2


def test_policies_that_are_not_good_end_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text("version: 1\nproviders: {x: {profile: none}}\n")
    done = issuer("dev", "--policies", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "providers.yaml:2:" in done.stderr
