"""A link to the run that a token's caller names: where what is bound spells it out, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from issuer.identity.profiles import PROFILES
from issuer.verify.provenance import describe_caller, doubt_of_two_owners, owner_of, run_url
from tests.support.samples import SAMPLES

PUBLIC: dict[str, dict[str, Any]] = {
    sample.name: {"provider": sample.name, "issuer": sample.issuer, **sample.public} for sample in SAMPLES
}
GITHUB, GITLAB = PUBLIC["github-actions"], PUBLIC["gitlab-ci"]


def test_a_run_of_github_actions_has_its_page() -> None:
    assert run_url(GITHUB) == "https://github.com/example-org/evals/actions/runs/19512345678/attempts/1"
    without = {name: value for name, value in GITHUB.items() if name != "run_attempt"}
    assert run_url(without) == "https://github.com/example-org/evals/actions/runs/19512345678"


@pytest.mark.parametrize(
    ("issuer", "site"),
    [
        ("https://token.actions.githubusercontent.com/acme", "https://github.com"),
        ("https://git.acme.example/_services/token", "https://git.acme.example"),
        ("https://token.actions.acme.ghe.com", "https://acme.ghe.com"),
    ],
)
def test_a_site_of_an_enterprise_is_linked_by_its_own_name(issuer: str, site: str) -> None:
    assert run_url({**GITHUB, "issuer": issuer}).startswith(f"{site}/example-org/evals/actions/runs/")


def test_a_job_of_gitlab_has_its_page() -> None:
    assert run_url(GITLAB) == "https://gitlab.com/example-group/evals/-/jobs/10"
    below = {
        "issuer": "https://acme.example:8443/gitlab",
        "ci_config_ref_uri": "acme.example:8443/gitlab/a/b/c//x.yml@main",
    }
    assert run_url({**GITLAB, **below}) == "https://acme.example:8443/gitlab/a/b/c/-/jobs/10"


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://evil.example"},
        {"issuer": "http://127.0.0.1:8080"},
        {"job_workflow_sha": "a" * 40},  # a reusable workflow of another repository: whose run it is, is not said
        {"job_workflow_sha": "", "workflow_sha": ""},
        {"job_workflow_ref": "example-org/evals"},
        {"job_workflow_ref": "../../evil/.github/workflows/x.yml@refs/heads/main"},
        {"job_workflow_ref": "a/b\n/.github/workflows/x.yml@main"},
        {"job_workflow_ref": "acme/../.github/workflows/x.yml@refs/heads/main"},
        {"job_workflow_ref": "acme/./.github/workflows/x.yml@refs/heads/main"},
        {"issuer": "https://github.com@evil.example/_services/token"},
        {"run_id": "1/../../x"},
        {"run_id": 5},
        {"run_id": ""},
    ],
    ids=str,
)
def test_there_is_no_link_where_what_is_bound_does_not_spell_it_out(changes: dict[str, Any]) -> None:
    assert run_url({**GITHUB, **changes}) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://evil.example"},
        {"issuer": "javascript://gitlab.com/%0aalert(1)//"},
        {"issuer": "javascript:alert(1)", "ci_config_ref_uri": "javascript:alert(1)/a/b//.gitlab-ci.yml@main"},
        {"issuer": "https://gitlab.com\n", "ci_config_ref_uri": "gitlab.com\n/a/b//.gitlab-ci.yml@main"},
        {"issuer": "https://gitlab.com?x=", "ci_config_ref_uri": "gitlab.com?x=/a/b//.gitlab-ci.yml@main"},
        {"issuer": "https://gitlab.com/..", "ci_config_ref_uri": "gitlab.com/../a/b//.gitlab-ci.yml@main"},
        {"ci_config_sha": "a" * 40},
        {"job_id": "x"},
        {"ci_config_ref_uri": "gitlab.com//x@y"},
        {"ci_config_ref_uri": "gitlab.com/../../evil//x@y"},
        {"ci_config_ref_uri": "evil.example/gitlab.com/a/b//x@y"},
    ],
    ids=str,
)
def test_there_is_no_link_to_another_project(changes: dict[str, Any]) -> None:
    assert run_url({**GITLAB, **changes}) == ""


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - {"github-actions", "gitlab-ci"}))
def test_other_providers_are_named_by_their_ids(name: str) -> None:
    assert run_url(PUBLIC[name]) == ""
    assert describe_caller(PUBLIC[name]).startswith(name)


def test_a_caller_is_described_by_what_tells_one_run_from_another() -> None:
    assert describe_caller(GITHUB) == "github-actions, repository_id 700000001, run_id 19512345678"
    assert describe_caller({}) == "an unnamed provider"


# -- whose workload it is -------------------------------------------------------------------------------------------------


OWNED = {"github-actions", "buildkite", "circleci", "bitbucket", "azure", "aws", "codefresh", "pat", "huggingface"}


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_of_each_provider_whose_tokens_name_one_the_owner_is_known(name: str) -> None:
    """Of the others a part of what one owner has is public: a group that may be a subgroup, a project, a workload."""
    bound = dict.fromkeys(PROFILES[name].provenance, "1")
    assert owner_of({"issuer": "https://a.example", **bound}) == ("1" if name in OWNED else None)


def doubt(first: dict[str, Any], second: dict[str, Any]) -> str:
    assert doubt_of_two_owners(first, second) == doubt_of_two_owners(second, first)
    return doubt_of_two_owners(first, second)


def test_two_workloads_are_two_owners_where_their_ids_say_so_or_their_providers_differ() -> None:
    other = {**GITHUB, "repository_owner_id": "2"}
    assert (
        doubt(GITHUB, other) == doubt(GITHUB, GITLAB) == doubt(GITHUB, {**GITHUB, "issuer": "https://a.example"}) == ""
    )
    assert "workloads of one owner" in doubt(GITHUB, {**GITHUB, "repository_id": "2"})
    own = {**other, "issuer": "https://token.actions.githubusercontent.com/acme"}
    assert doubt(GITHUB, own) == "", "an enterprise's own issuer has the owners of github.com"
    assert "workloads of one owner" in doubt({**GITHUB, "issuer": own["issuer"]}, GITHUB)


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - OWNED))
def test_two_subgroups_or_workloads_at_one_provider_may_be_one_owner_s(name: str) -> None:
    first = PUBLIC[name]
    second = {member: value if member in {"provider", "issuer"} else f"{value}2" for member, value in first.items()}
    assert doubt(first, second) == "both callers have one provider, and their owners are unknown"
    assert doubt(first, {**second, "issuer": "https://b.example"}) == ""
