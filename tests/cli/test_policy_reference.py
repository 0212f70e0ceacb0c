"""The transcripts in policies/README.md: each was run, and says what it says today."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from issuer.formats.strict_json import JSON
from issuer.policy.authoring.load import load_policies
from tests.support.audited import recorded
from tests.support.policies import submission
from tests.support.shared import ROOT

SAMPLES = ROOT / "policies"
TRANSCRIPTS = re.findall(r"^```console\n(.*?)^```", (SAMPLES / "README.md").read_text("utf-8"), re.S | re.M)


def steps(transcript: str) -> list[tuple[str, str]]:
    """Return the commands of a transcript, each with its output."""
    parts = re.split(r"^\$ (.*)\n", transcript, flags=re.M)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))


def pattern(output: str) -> str:
    """Make a regular expression of an output: a line `...` is any lines, `...` within one any text."""
    lines = []
    for line in output.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            inside = re.sub(r"\\ (?:\\ )+", r" +", re.escape(line)).replace(r"\.\.\.", ".*")
            lines.append(f"{inside}\n")
    return "".join(lines)


def write_audit(folder: Path) -> None:
    """Record three decisions of the sample policies by the real line's audit."""
    policies = load_policies(folder / "policies", "https://issuer.example.org")
    claims: dict[str, JSON] = {
        "iss": "https://token.actions.githubusercontent.com", "repository_id": "700000001",
        "repository_owner_id": "600000001", "ref": "refs/heads/main", "event_name": "push",
        "repository": "example-org/inspect-evals", "repository_owner": "example-org",
        "runner_environment": "github-hosted",
        "workflow_ref": "example-org/inspect-evals/.github/workflows/nightly.yml@refs/heads/main",
    }  # fmt: skip
    lines = [
        recorded(policies, submission(), claims=claims),
        recorded(policies, submission(version="0.3.150"), claims=claims),
        recorded(policies, submission(benchmark="a/b"), claims=claims),
    ]
    events = [{**msgspec.json.decode(line), "request_id": f"r-{number}"} for number, line in enumerate(lines, 1)]
    (folder / "audit.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def test_there_are_transcripts() -> None:
    commands = [command for transcript in TRANSCRIPTS for command, _ in steps(transcript)]
    for name in ("check", "test", "explain", "plan"):
        assert [command for command in commands if command.startswith(f"issuer policy {name}")], name


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda text: str(text.partition("\n")[0]))
def test_a_transcript_says_what_is_said(transcript: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path / "policies")
    write_audit(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ISSUER_")}
    env = {**clean, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command, output in steps(transcript):
        if command.startswith("cat ") and not (tmp_path / command[4:]).exists():
            (tmp_path / command[4:]).write_text(output)  # a file that the page tells its reader to make
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert re.fullmatch(pattern(output), done.stdout), f"$ {command}\n{done.stdout}{done.stderr}"
        assert done.stderr == ""
