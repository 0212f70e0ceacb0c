"""The GitHub Action: the very shell texts of its steps, run by bash as a runner does, against a real issuer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import issuer
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from tests.support.command import clean, install_issuer
from tests.support.running import Running, running
from tests.support.runs import DATA, MODEL_COMMIT
from tests.support.shared import ROOT

FOLDER = ROOT / "deploy" / "github-action"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))
SAMPLE: dict[Any, Any] = yaml.safe_load((FOLDER / "sample.yml").read_text("utf-8"))
INSTALL, SIGN = ACTION["runs"]["steps"]
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
LOG = (DATA / "inspect_two_scorers.json").read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")
USED: dict[str, str] = SAMPLE["jobs"]["evaluate"]["steps"][-1]["with"]


def test_no_input_is_part_of_a_shell_text_and_no_other_action_is_used() -> None:
    for step in (INSTALL, SIGN):
        assert "${{" not in step["run"]
        assert "uses" not in step
    named = {match for value in SIGN["env"].values() for match in INPUT.findall(value)}
    assert named == set(ACTION["inputs"]), "every input reaches the step, as a variable"


def test_the_sample_gives_inputs_that_are_there_and_asks_for_no_more_than_an_identity() -> None:
    wanted = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert wanted <= set(USED) <= set(ACTION["inputs"])
    assert SAMPLE["permissions"] == {}
    assert SAMPLE["jobs"]["evaluate"]["permissions"] == {"contents": "read", "id-token": "write"}


@pytest.mark.long
def test_the_vendor_s_schemas_take_both_files() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema, name in (("vendor.github-actions", "action.yml"), ("vendor.github-workflows", "sample.yml")):
        done = subprocess.run([*check, schema, str(FOLDER / name)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def step(folder: Path, one: dict[str, Any], service: Running, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does: `bash -eo pipefail` on its text, inputs in its variables."""
    inputs = {name: str(member.get("default", "")) for name, member in ACTION["inputs"].items()} | given
    own = {name: INPUT.sub(lambda match: inputs[match[1]], value) for name, value in one["env"].items()}
    own = {name: value.replace("${{ github.action_path }}", str(FOLDER)) for name, value in own.items()}
    runner = {
        "RUNNER_TEMP": folder / "temp",
        "GITHUB_STEP_SUMMARY": folder / "summary.md",
        "GITHUB_OUTPUT": folder / "out",
    }
    env = {**clean(), **service.provider.environment, **own, **{name: str(path) for name, path in runner.items()}}
    (folder / "temp" / "issuer").mkdir(parents=True, exist_ok=True)
    if one is SIGN:
        shutil.rmtree(folder / "temp" / "issuer" / "bin", ignore_errors=True)
        return bash(folder, one["run"], env, (install_issuer(folder / "temp" / "issuer" / "bin"),))
    return bash(folder, one["run"], env)


def bash(
    folder: Path, text: str, env: dict[str, str], passed: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text], cwd=folder, env=env, pass_fds=passed,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def checkout(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "run.json").write_bytes(LOG)
    (folder / ".eval_results").mkdir()


@pytest.mark.long
def test_a_job_ends_with_a_result_file_that_verifies_and_a_summary(tmp_path: Path, service: Running) -> None:
    checkout(tmp_path)
    done = step(tmp_path, SIGN, service, **{**USED, "issuer": service.url})
    assert done.returncode == 0, done.stdout + done.stderr
    again = step(tmp_path, SIGN, service, **{**USED, "issuer": service.url})
    assert again.returncode == 0, "a job that runs again finds its entry there"
    assert (tmp_path / "out").read_text() == 2 * "file=.eval_results/gsm8k.yaml\ncount=1\n"
    assert [path.name for path in (tmp_path / ".eval_results").iterdir()] == ["gsm8k.yaml"]
    trust = issuer.trust_issuer(service.url, AUDIENCE)
    file = tmp_path / ".eval_results" / "gsm8k.yaml"
    (report,) = issuer.verify_file(file, repo="acme/open-model", trust=trust, received="now")
    assert report.verdict == "verified"
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### 1 signed\n```text\nverify token")
    assert MODEL_COMMIT in summary
    secret = service.provider.request_token
    assert not [text for text in (done.stdout, done.stderr, summary) if secret in text]


@pytest.mark.long
def test_a_refusal_is_in_the_summary_and_fails_the_job(tmp_path: Path, service: Running) -> None:
    checkout(tmp_path)
    hostile = {"model-revision": '$(touch pwned) `touch pwned` "; touch pwned; "', "command": "$(touch pwned)"}
    done = step(tmp_path, SIGN, service, **{**USED, "issuer": service.url, **hostile})
    assert done.returncode == 1
    assert not list(tmp_path.rglob("pwned"))
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### No result was signed\n")
    assert "model_revision" in summary
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_its_own_checkout_is_what_is_installed(tmp_path: Path, service: Running) -> None:
    done = step(tmp_path, INSTALL, service)
    assert done.returncode == 0, done.stdout + done.stderr
    version = subprocess.run(
        [tmp_path / "temp/issuer/bin/issuer", "--help"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )  # fmt: skip
    assert "evaluation results signed" in version.stdout
