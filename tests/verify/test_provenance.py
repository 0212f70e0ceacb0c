"""A link to the run of a token's caller, if the bound claims name it in full."""

from typing import Any

from issuer.identity.profiles import PROFILES
from issuer.verify.provenance import describe_caller, doubt_of_two_owners, owner_of, run_url
from tests.support.samples import SAMPLES

PUBLIC: dict[str, dict[str, Any]] = {
    sample.name: {"provider": sample.name, "issuer": sample.issuer, **sample.public} for sample in SAMPLES
}
GITHUB, GITLAB = PUBLIC["github-actions"], PUBLIC["gitlab-ci"]


def test_a_run_of_github_actions_has_its_page_at_the_site_of_its_enterprise() -> None:
    assert run_url(GITHUB) == "https://github.com/example-org/evals/actions/runs/19512345678/attempts/1"
    without = {name: value for name, value in GITHUB.items() if name != "run_attempt"}
    assert run_url(without) == "https://github.com/example-org/evals/actions/runs/19512345678"
    for issuer, site in (
        ("https://token.actions.githubusercontent.com/acme", "https://github.com"),
        ("https://git.acme.example/_services/token", "https://git.acme.example"),
        ("https://token.actions.acme.ghe.com", "https://acme.ghe.com"),
    ):
        assert run_url({**GITHUB, "issuer": issuer}).startswith(f"{site}/example-org/evals/actions/runs/")


def test_a_job_of_gitlab_has_its_page() -> None:
    assert run_url(GITLAB) == "https://gitlab.com/example-group/evals/-/jobs/10"
    site = "acme.example:8443/gitlab"
    below = {"issuer": f"https://{site}", "ci_config_ref_uri": f"{site}/a/b/c//x.yml@main"}
    assert run_url({**GITLAB, **below}) == "https://acme.example:8443/gitlab/a/b/c/-/jobs/10"


def test_bound_claims_that_do_not_name_the_run_in_full_give_no_link() -> None:
    workflow = "/.github/workflows/x.yml@"
    github: list[dict[str, Any]] = [
        {"issuer": "https://evil.example"}, {"issuer": "http://127.0.0.1:8080"}, {"issuer": "https://github.com@evil.example/_services/token"},
        {"job_workflow_sha": "a" * 40},  # a reusable workflow of another repository: the claims do not name the caller
        {"job_workflow_sha": "", "workflow_sha": ""}, {"job_workflow_ref": "example-org/evals"},
        *({"job_workflow_ref": f"{path}{workflow}main"} for path in ("../../evil", "a/b\n", "acme/..", "acme/.")),
        {"run_id": "1/../../x"}, {"run_id": 5}, {"run_id": ""},
    ]  # fmt: skip
    pages = ("https://gitlab.com\n", "https://gitlab.com?x=", "https://gitlab.com/..")
    gitlab: list[dict[str, Any]] = [
        {"issuer": "https://evil.example"}, {"issuer": "javascript://gitlab.com/%0aalert(1)//"},
        {"issuer": "javascript:alert(1)", "ci_config_ref_uri": "javascript:alert(1)/a/b//.gitlab-ci.yml@main"},
        *({"issuer": page, "ci_config_ref_uri": f"{page[8:]}/a/b//.gitlab-ci.yml@main"} for page in pages),
        {"ci_config_sha": "a" * 40}, {"job_id": "x"},
        *({"ci_config_ref_uri": uri} for uri in ("gitlab.com//x@y", "gitlab.com/../../evil//x@y", "evil.example/gitlab.com/a/b//x@y")),
    ]  # fmt: skip
    callers = [*({**GITHUB, **changes} for changes in github), *({**GITLAB, **changes} for changes in gitlab)]
    assert [caller for caller in callers if run_url(caller)] == []


def test_a_caller_is_described_by_its_provider_and_ids() -> None:
    for name in PUBLIC.keys() - {"github-actions", "gitlab-ci"}:
        assert run_url(PUBLIC[name]) == ""
        assert describe_caller(PUBLIC[name]).startswith(name)
    assert describe_caller(GITHUB) == "github-actions, repository_id 700000001, run_id 19512345678"
    assert describe_caller({}) == "an unnamed provider"


OWNED = {"github-actions", "buildkite", "circleci", "bitbucket", "azure", "aws", "codefresh", "pat", "huggingface"}


def test_the_owner_is_known_at_the_providers_whose_tokens_name_it() -> None:
    """At the others only a part of the owner's tree is public: a group that may be a subgroup, a project, a workload."""
    for name, profile in PROFILES.items():
        bound = dict.fromkeys(profile.provenance, "1")
        assert owner_of({"issuer": "https://a.example", **bound}) == ("1" if name in OWNED else None), name


def doubt(first: dict[str, Any], second: dict[str, Any]) -> str:
    assert doubt_of_two_owners(first, second) == doubt_of_two_owners(second, first)
    return doubt_of_two_owners(first, second)


UNKNOWN = "the owner of a caller is unknown"


def test_two_owner_ids_of_one_provider_or_of_two_are_two_owners() -> None:
    other, elsewhere = {**GITHUB, "repository_owner_id": "2"}, {**GITHUB, "issuer": "https://a.example"}
    assert [doubt(GITHUB, each) for each in (other, PUBLIC["buildkite"], elsewhere)] == [""] * 3
    assert doubt(GITHUB, GITLAB) == UNKNOWN
    assert "workloads of one owner" in doubt(GITHUB, {**GITHUB, "repository_id": "2"})
    own = {**other, "issuer": "https://token.actions.githubusercontent.com/acme"}
    assert doubt(GITHUB, own) == "", "an enterprise's own issuer has the owners of github.com"
    assert "workloads of one owner" in doubt({**GITHUB, "issuer": own["issuer"]}, GITHUB)


def test_a_personal_access_token_beside_another_provider_is_not_a_second_owner() -> None:
    for issuer, owner in (("https://issuer.example", "account"), ("https://huggingface.co", "id")):
        person = {"issuer": issuer, owner: "1"}
        assert doubt(GITHUB, person) == "the holder of a personal access token may also own the other caller"
        assert doubt(person, {**person, owner: "2"}) == "", "one issuer knows its accounts"


def test_two_subgroups_or_workloads_at_one_provider_may_have_one_owner() -> None:
    for name in PUBLIC.keys() - OWNED:
        first = PUBLIC[name]
        second = {member: value if member in {"provider", "issuer"} else f"{value}2" for member, value in first.items()}
        assert doubt(first, second) == doubt(first, {**second, "issuer": "https://b.example"}) == UNKNOWN, name
