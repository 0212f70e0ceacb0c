"""The claims in the token of a sample job: a job that fits its policy, with the changes that the author requests. Pure.

A job starts as the sample of its provider's profile. If a policy has an identity of that provider, the job gets the
claims of this identity and of the policy's granted test. The author's changes are applied last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.dev.provider import OWNER_ID, REF, REPOSITORY, REPOSITORY_ID, SHA
from issuer.errors import SetupError
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import TOKENS_ISSUE, Profile
from issuer.identity.table import Provider
from issuer.policy.model import Identity, Policy, exact_values

# The path at which the local provider issues the token of any job.
JOB_PATH = "/job"
GRANTED = "granted"
# The claims of each profile that name the branch.
_BRANCH: Mapping[str, Mapping[str, str]] = {
    "github-actions": {"ref": "refs/heads/{}", "ref_type": "branch"},
    "gitlab-ci": {"ref": "{}", "ref_path": "refs/heads/{}", "ref_type": "branch", "ref_protected": "false"},
    "buildkite": {"build_branch": "{}"},
    "circleci": {"oidc.circleci.com/vcs-ref": "refs/heads/{}"},
    "bitbucket": {"branchName": "{}"},
    "codefresh": {"scm_ref": "{}"},
}
_PULL_REQUEST: Mapping[str, Mapping[str, str]] = {
    "github-actions": {"event_name": "pull_request", "ref": "refs/pull/7/merge", "head_ref": "feature",
                       "base_ref": "main"},
    "gitlab-ci": {"pipeline_source": "merge_request_event", "ref": "feature", "ref_path": "refs/merge-requests/7/head",
                  "ref_protected": "false"},
    "buildkite": {"build_source": "webhook", "build_branch": "feature"},
    "codefresh": {"scm_pull_request_target_branch": "main"},
}  # fmt: skip
_NEXT_DIGIT = str.maketrans("0123456789", "1234567890")


class Job(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job, good or bad. `provider` is an id in providers.yaml, and `integration` the owner of the job; "" is the
    first. `claims` replace claims of the token, `without` removes some. `audience` replaces the issuer's URL."""

    provider: str = ""
    integration: str = ""
    claims: dict[str, Any] = {}
    without: tuple[str, ...] = ()
    branch: str = ""
    fork: bool = False
    pull_request: bool = False
    expired: bool = False
    audience: str = ""


def find_provider(job: Job, providers: Iterable[Provider]) -> Provider:
    """Return the provider of a job. Raises SetupError, which lists the known providers."""
    known = {provider.id: provider for provider in providers}
    if (provider := known.get(job.provider or next(iter(known), ""))) is None:
        raise SetupError(Code.DEV_JOB, f"no such provider; providers.yaml has {', '.join(known)}")
    return provider


def claims_of(job: Job, provider: Provider, policies: Collection[Policy]) -> dict[str, Any]:
    """Return the claims of a job's token, except iss, aud, jti and times; `without` is not applied yet. UNSET is a
    claim to omit. Raises SetupError for a change that tokens of this provider cannot express."""
    claims = _SAMPLES.get(provider.profile, _any_profile)(_registered(job, provider, policies))
    if job.fork:
        claims |= _of_a_fork(provider.rules, claims)
    if job.branch:
        claims |= _moved(provider, claims, _BRANCH, job.branch)
    if job.pull_request:
        claims |= _moved(provider, claims, _PULL_REQUEST, "")
    return {**claims, **job.claims}


def without(claims: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the claims of a token without those of these names. Raises SetupError for a name that the token lacks,
    because the job would be unchanged."""
    present = {name: value for name, value in claims.items() if value is not UNSET}
    for name in names:
        if name not in present:
            near = get_close_matches(name, present, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(present))}"
            raise SetupError(Code.DEV_JOB, f"the token of this job has no claim {name} to remove; {hint}")
    return {name: value for name, value in present.items() if name not in set(names)}


# -- the registration --------------------------------------------------------------------------------------------------


def _registered(job: Job, provider: Provider, policies: Collection[Policy]) -> dict[str, JSON]:
    """Return the claims of the provider's first identity: its names, exact values and pins, and its policy's test."""
    for policy in policies:
        if job.integration in {"", policy.integration}:
            for identity in policy.identities:
                if identity.provider == provider.id:
                    return {**_required(identity, provider.rules), **_tested(policy, provider.id)}
    if job.integration:
        known = [policy.integration for policy in policies if any(i.provider == provider.id for i in policy.identities)]
        names = ", ".join(known) or "none"
        detail = f"no integration of this name has an identity of {provider.id}; integrations with one: {names}"
        raise SetupError(Code.DEV_JOB, detail)
    return {}


def _required(identity: Identity, rules: Profile) -> dict[str, JSON]:
    exact = {name: value for name, rule in identity.require.items() for value in exact_values(rule)[:1] if value}
    claims: dict[str, JSON] = {**identity.names, **exact, **identity.pins}
    return {name: value for name, value in claims.items() if name not in rules.derived}


def _tested(policy: Policy, provider: str) -> Mapping[str, JSON]:
    granted = (test for test in policy.tests if test.expect == GRANTED and test.provider == provider)
    return next((test.identity for test in granted if test.identity is not UNSET), {})


# -- samples -----------------------------------------------------------------------------------------------------------


def _github(claims: Mapping[str, JSON]) -> dict[str, Any]:
    """Return a job of GitHub Actions, with a workflow in its repository."""
    ref, workflow = claims.get("ref", REF), str(claims.get("workflow_ref", ""))
    repository = str(claims.get("repository") or "/".join(workflow.split("/")[:2]) or REPOSITORY)
    workflow = workflow or f"{repository}/.github/workflows/evaluate.yml@{ref}"
    return {
        "sub": f"repo:{repository}:ref:{ref}", "environment": UNSET, "ref": ref, "repository": repository,
        "repository_id": REPOSITORY_ID, "repository_owner": repository.partition("/")[0],
        "repository_owner_id": OWNER_ID, "workflow_ref": workflow, "job_workflow_ref": workflow, **claims,
    }  # fmt: skip


def _gitlab(claims: Mapping[str, JSON]) -> dict[str, Any]:
    """Return a job of GitLab CI on a protected branch."""
    path, ref_path = str(claims.get("project_path", "example-group/evals")), claims.get("ref_path", REF)
    return {
        "sub": f"project_path:{path}:ref_type:branch:ref:main", "namespace_id": "31000001",
        "namespace_path": path.rpartition("/")[0], "project_id": "41000001", "project_path": path,
        "project_visibility": "public", "user_id": "1", "user_login": "octocat", "pipeline_id": "19512345",
        "pipeline_source": "push", "job_id": "19512346", "ref": "main", "ref_type": "branch", "ref_path": ref_path,
        "ref_protected": "true", "runner_id": 7, "runner_environment": "gitlab-hosted", "sha": SHA,
        "ci_config_ref_uri": f"gitlab.com/{path}//.gitlab-ci.yml@{ref_path}", "ci_config_sha": SHA, **claims,
    }  # fmt: skip


def _client(claims: Mapping[str, JSON]) -> dict[str, Any]:
    """Return an OAuth client that acts for itself."""
    client = claims.get("client_id", "evals")
    return {"client_id": client, "sub": client, "scope": TOKENS_ISSUE, **claims}


def _any_profile(claims: Mapping[str, JSON]) -> dict[str, Any]:
    return {"sub": "robot", **claims}


_SAMPLES: Mapping[str, Callable[[Mapping[str, JSON]], dict[str, Any]]] = {
    "github-actions": _github,
    "gitlab-ci": _gitlab,
    "oauth": _client,
    "pat": lambda claims: {"account": "robot", "scope": TOKENS_ISSUE, **claims},
}


# -- changes -----------------------------------------------------------------------------------------------------------


def _moved(
    provider: Provider, claims: Mapping[str, Any], table: Mapping[str, Mapping[str, str]], branch: str
) -> dict[str, Any]:
    """Return the changed claims of a job at another ref. Claims that name a file at a ref get the new ref."""
    if provider.profile not in table:
        detail = f"`issuer dev` knows no claims for that in tokens of {provider.profile}: give them by --claim"
        raise SetupError(Code.DEV_JOB, detail)
    moved = {name: text.replace("{}", branch) for name, text in table[provider.profile].items()}
    ref = moved.get("ref_path", moved.get("ref", ""))
    for derived in provider.rules.derived.values():
        path, at, _ = str(claims.get(derived.path[0], "")).partition("@")
        if derived.part and at:
            moved[derived.path[0]] = f"{path}@{ref}"
    return moved


def _of_a_fork(rules: Profile, claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed ids and names of a fork: a repository, project or account with another owner."""
    changed: dict[str, Any] = {}
    for name in rules.pins:
        path = rules.derived[name].path if name in rules.derived else (name,)
        changed[path[0]] = _changed({**claims, **changed}, path)[path[0]]
    names = {name: str(claims[name]) for name, of in rules.names.items() if of in changed and name in claims}
    return {**changed, **{name: "/".join(["somebody", *value.split("/")[1:]]) for name, value in names.items()}}


def _changed(claims: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return claims with another id of the same form at a path."""
    name, *inner = path
    inside = claims.get(name)
    if inner:
        return {**claims, name: _changed(inside if isinstance(inside, dict) else {}, tuple(inner))}
    other = str(inside or "").translate(_NEXT_DIGIT)
    return {**claims, name: other if other != inside else f"{other}-fork"}
