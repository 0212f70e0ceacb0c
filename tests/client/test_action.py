"""The GitHub Action: the very shell texts of its steps, run by bash as a runner does, against a real issuer and a Hub."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from issuer.dev.provider import LocalProvider
from tests.support.command import clean, install_issuer
from tests.support.hub_server import HubServer
from tests.support.running import Running, running
from tests.support.runs import DATA, MODEL_COMMIT, edited
from tests.support.shared import ROOT
from tests.support.submitting import MODEL, PATH, fill, texts_on, verify_open

FOLDER = ROOT / "deploy" / "github-action"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text("utf-8"))
SAMPLE: dict[Any, Any] = yaml.safe_load((ROOT / "deploy/examples/github.yml").read_text("utf-8"))
INSTALL, SUBMIT = ACTION["runs"]["steps"]
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
LOG = (DATA / "inspect_two_scorers.json").read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")
USED: dict[str, str] = SAMPLE["jobs"]["evaluate"]["steps"][-1]["with"]


def test_no_input_is_part_of_a_shell_text_and_the_sample_needs_only_an_identity() -> None:
    for step in (INSTALL, SUBMIT):
        assert "${{" not in step["run"]
        assert "uses" not in step, "no other action is used"
    assert "HF_TOKEN" not in SUBMIT["env"], "it is of the environment, and no input"
    named = {match for value in SUBMIT["env"].values() for match in INPUT.findall(value)}
    assert named == set(ACTION["inputs"]), "every input reaches the step, as a variable"
    wanted = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert wanted <= set(USED) <= set(ACTION["inputs"])
    assert SAMPLE["permissions"] == {}
    assert SAMPLE["jobs"]["evaluate"]["permissions"] == {"contents": "read", "id-token": "write"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        fill(hub)
        yield hub


def step(
    folder: Path, one: dict[str, Any], service: Running, given: dict[str, str], **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does: `bash -eo pipefail` on its text, inputs in its variables, `more` in its environment."""
    inputs = {name: str(member.get("default", "")) for name, member in ACTION["inputs"].items()} | given
    own = {name: INPUT.sub(lambda match: inputs[match[1]], value) for name, value in one["env"].items()}
    own = {name: value.replace("${{ github.action_path }}", str(FOLDER)) for name, value in own.items()}
    names = {"RUNNER_TEMP": "temp", "GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "out"}
    runner = {variable: str(folder / name) for variable, name in names.items()}
    env = {**clean(), **service.provider.environment, **own, **more, **runner}
    (folder / "temp" / "issuer").mkdir(parents=True, exist_ok=True)
    passed: tuple[int, ...] = ()
    if one is SUBMIT:
        shutil.rmtree(folder / "temp" / "issuer" / "bin", ignore_errors=True)
        passed = (install_issuer(folder / "temp" / "issuer" / "bin"),)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"]], cwd=folder, env=env, pass_fds=passed,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run.json").write_bytes(LOG)


def submit(
    folder: Path, service: Running, hub: HubServer, token: str, **given: str
) -> subprocess.CompletedProcess[str]:
    """Submit as the sample does; no secret may be in what is said or written."""
    (folder / "summary.md").write_text("")
    (folder / "out").write_text("")
    inputs = {**USED, "issuer": service.url, **given}
    done = step(folder, SUBMIT, service, inputs, HF_TOKEN=token, HF_ENDPOINT=hub.url)
    said = [done.stdout, done.stderr, (folder / "summary.md").read_text(), (folder / "out").read_text(), *texts_on(hub)]
    secrets = [secret for secret in (service.provider.request_token, token) if secret]
    assert not [text for text in said for secret in secrets if secret in text]
    return done


@pytest.mark.long
def test_a_job_ends_with_an_open_pull_request_that_verifies_and_a_summary(
    tmp_path: Path, service: Running, hub: HubServer
) -> None:
    token = hub.token()
    done = submit(tmp_path, service, hub, token)
    assert done.returncode == 0, done.stdout + done.stderr
    url = f"{hub.url}/{MODEL}/discussions/1"
    assert (tmp_path / "out").read_text() == f"pull-requests={url}\n"
    verify_open(hub, service.url, tmp_path / "arrived")
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Submitted\n")
    assert f"[proposed]({url})" in summary
    assert f"| model_revision | `{MODEL_COMMIT}` | run |" in summary
    assert re.search(r"\| content digest \| `sha256:[0-9a-f]{64}` \|", summary)
    assert re.findall(r"^\| (\d+)\. .* \| (?:pass|skip) \|", summary, re.MULTILINE) == list(map(str, range(1, 12)))
    again = submit(tmp_path, service, hub, token)
    assert (again.returncode, len(hub.repos["model", MODEL].talks)) == (0, 1), "a job that runs again finds it"
    assert (tmp_path / "out").read_text() == f"pull-requests={url}\n"


@pytest.mark.long
def test_a_rehearsal_shows_the_change_and_opens_nothing(tmp_path: Path, service: Running, hub: HubServer) -> None:
    done = submit(tmp_path, service, hub, "", **{"dry-run": "true"})
    assert done.returncode == 0, done.stdout + done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### A dry run without signatures\n")
    assert f"+++ b/{MODEL}/{PATH}" in done.stdout
    assert "| `benchmark` | `the run names openai/gsm8k` |" in summary, "the summary also lists the checks that pass"
    assert (hub.repos["model", MODEL].talks, (tmp_path / "out").read_text()) == ([], "pull-requests=\n")


@pytest.mark.long
def test_a_refusal_is_in_the_summary_with_what_to_change_and_fails_the_job(
    tmp_path: Path, service: Running, hub: HubServer
) -> None:
    (tmp_path / "logs" / "run.json").write_bytes(edited(LOG, "/eval/packages/inspect_ai", "0.4.0"))
    done = submit(tmp_path, service, hub, hub.token())
    assert done.returncode == 5, done.stdout + done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("### Not everything was submitted\n")
    assert re.search(r"\| `policy.version` \| `/claims/framework/version` \| `[^|]*0\.4\.0` \|", summary)
    assert "Run a registered version, or ask the operator to extend the range of versions." in summary
    assert (hub.repos["model", MODEL].talks, (tmp_path / "out").read_text()) == ([], "pull-requests=\n")


@pytest.mark.long
def test_no_input_is_run(tmp_path: Path, service: Running, hub: HubServer) -> None:
    hostile = {"model-revision": '$(touch pwned) `touch pwned` "; touch pwned; "', "command": "$(touch pwned)"}
    done = submit(tmp_path, service, hub, hub.token(), **hostile)
    assert done.returncode == 3, done.stdout + done.stderr
    assert not list(tmp_path.rglob("pwned"))
    heading, _, *lines = (tmp_path / "summary.md").read_text().splitlines()
    assert heading == "### The job ended with exit code 3"
    assert all(line.startswith("    ") for line in lines), "none of it is Markdown"
    assert "model_revision" in "".join(lines)
    assert (tmp_path / "out").read_text() == ""


@pytest.mark.long
@pytest.mark.parametrize("member", ["/eval/task", "/eval/model", "/eval/dataset/name", "/eval/packages/inspect_ai"])
def test_text_of_a_run_gives_the_runner_no_command_and_sets_no_output(
    tmp_path: Path, service: Running, hub: HubServer, member: str
) -> None:
    said = f"x\n::set-env name=PATH::/evil\r::add-path::/evil\n##[command]x\npull-requests=https://evil.example\n: in an open pull request already: https://evil.example\n### Submitted\n<b>|`{member}"
    hostile = tmp_path / "logs" / "x\n::set-env name=A::b\n.json"
    hostile.write_bytes(edited((tmp_path / "logs" / "run.json").read_bytes(), member, said))
    (tmp_path / "logs" / "run.json").unlink()
    done = submit(tmp_path, service, hub, hub.token())
    assert done.returncode in {0, 3, 5}, done.stdout + done.stderr
    for line in re.split(r"[\r\n]", done.stdout + done.stderr):
        assert not line.lstrip().startswith("::"), line
        assert "##[" not in line
    url = f"{hub.url}/{MODEL}/discussions/1"
    assert (tmp_path / "out").read_text() in {"", "pull-requests=\n", f"pull-requests={url}\n"}
    summary = (tmp_path / "summary.md").read_text()
    assert len(re.findall("^#+ ", summary, re.MULTILINE)) <= 3
    assert not re.search("^(?:<|pull-requests=|::)", summary, re.MULTILINE)


@pytest.mark.long
def test_the_action_s_own_checkout_is_installed_whatever_the_job_s_folder_has(tmp_path: Path, service: Running) -> None:
    for name in ("venv", "ensurepip", "pip", "json", "sitecustomize", "hatchling"):
        (tmp_path / f"{name}.py").write_text("open('pwned', 'w')\n")
    done = step(tmp_path, INSTALL, service, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("pwned"))
    version = subprocess.run(
        [tmp_path / "temp/issuer/bin/issuer", "submit", "--help"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )  # fmt: skip
    assert "pull request" in version.stdout
