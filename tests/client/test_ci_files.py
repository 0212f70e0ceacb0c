"""The files for CI systems and clusters, judged by what their vendors publish; and each of these tools finds a planted fault."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ci_files import by_actionlint, by_kubernetes, by_schema, by_zizmor
from tests.support.runs import MODEL_COMMIT
from tests.support.shared import ROOT

ACTION = ROOT / "deploy" / "github-action" / "action.yml"
COMPONENT = ROOT / "deploy" / "gitlab" / "templates" / "submit.yml"
EXAMPLES = ROOT / "deploy" / "examples"
WORKFLOW = EXAMPLES / "github.yml"
JOB = EXAMPLES / "kubernetes.yaml"

pytestmark = pytest.mark.long
Edited = Callable[..., Path]


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


def test_it_finds_an_input_in_a_shell_text(edited: Edited) -> None:
    found = by_zizmor(edited(ACTION, '-- "$RUNS"', '-- "${{ inputs.runs }}"'))
    assert "[template-injection]" in found


@pytest.mark.needs_tool("node", "npm")
def test_a_linter_of_workflows_finds_nothing_in_ours_and_a_planted_fault(
    tmp_path_factory: pytest.TempPathFactory, edited: Edited
) -> None:
    folder = tmp_path_factory.mktemp("actionlint")
    assert by_actionlint(folder, WORKFLOW) == ""
    assert 'undefined variable "secret"' in by_actionlint(
        folder, edited(WORKFLOW, "secrets.HF_TOKEN", "secret.HF_TOKEN")
    )


def test_a_cluster_takes_the_job_and_no_member_that_it_does_not_know(edited: Edited) -> None:
    assert by_kubernetes(JOB) == ""
    assert "automountServiceAccountTokens" in by_kubernetes(
        edited(JOB, "automountServiceAccountToken:", "automountServiceAccountTokens:")
    )
    assert "Jobb" in by_kubernetes(edited(JOB, "kind: Job", "kind: Jobb")), "a kind without a schema is refused"
