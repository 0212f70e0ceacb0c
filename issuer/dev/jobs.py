"""What a job says of itself in its token: as its policy wants it, and then bent as the author asks. Pure.

A job begins as the sample of its provider's profile. Where a policy has an identity of that provider, it becomes that
identity's job, by the claims of the policy's own granted test. What was asked for comes last.
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
from issuer.policy.model import Identity, Policy
from issuer.policy.requirement import exact_values

# Where the local provider answers for any job.
JOB_PATH = "/job"
GRANTED = "granted"
# How a branch is called in the claims of each profile.
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
    """A job, good or bad. `provider` is an id of providers.yaml, and `integration` whose job it is; "" is the first.
    `claims` replace what the token says, `without` are left out of it. `audience` is for a token of another service
    than the one that asks."""

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
    """Return the provider of a job. Raises SetupError, which names those that there are."""
    known = {provider.id: provider for provider in providers}
    if (found := known.get(job.provider or next(iter(known), ""))) is None:
        raise SetupError(Code.DEV_JOB, f"no such provider; providers.yaml has {', '.join(known)}")
    return found


def claims_of(job: Job, provider: Provider, policies: Collection[Policy]) -> dict[str, Any]:
    """Return what the token of a job says, but for iss, aud, jti and times, and with what it is to lack (`without`);
    UNSET is a claim to leave out. Raises SetupError for what cannot be said of this provider's jobs."""
    said = _registered(job, provider, policies)
    claims = _SAMPLES.get(provider.profile, _anybody)(said)
    if job.fork:
        claims |= _of_a_fork(provider.rules, claims)
    for asked, table, value in ((job.branch, _BRANCH, job.branch), (job.pull_request, _PULL_REQUEST, "")):
        if asked:
            claims |= _moved(provider, claims, _known(table, provider.profile), value)
    return {**claims, **job.claims}


def without(claims: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the claims that a token has, but for those of these names. Raises SetupError for one that it has not: to
    lack it would be no bad job, but the good one."""
    there = {name: value for name, value in claims.items() if value is not UNSET}
    for name in names:
        if name not in there:
            near = get_close_matches(name, there, 1)
            meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(there))}"
            raise SetupError(Code.DEV_JOB, f"the token of this job has no claim {name} that it could lack; {meant}")
    return {name: value for name, value in there.items() if name not in set(names)}


# -- whose job it is ---------------------------------------------------------------------------------------------------


def _registered(job: Job, provider: Provider, policies: Collection[Policy]) -> dict[str, JSON]:
    """Return what the first identity of the provider says of its jobs: its names, pins, exact values, and test."""
    for policy in policies:
        if job.integration in {"", policy.integration}:
            for identity in policy.identities:
                if identity.provider == provider.id:
                    return {**_demanded(identity, provider.rules), **_tested(policy, provider.id)}
    if job.integration:
        known = [policy.integration for policy in policies if any(i.provider == provider.id for i in policy.identities)]
        detail = f"no integration of this name has an identity of {provider.id}; such are {', '.join(known) or 'none'}"
        raise SetupError(Code.DEV_JOB, detail)
    return {}


def _demanded(identity: Identity, rules: Profile) -> dict[str, JSON]:
    exact = {name: value for name, rule in identity.require.items() for value in exact_values(rule)[:1] if value}
    said: dict[str, JSON] = {**identity.names, **exact, **identity.pins}
    return {name: value for name, value in said.items() if name not in rules.derived}


def _tested(policy: Policy, provider: str) -> Mapping[str, JSON]:
    granted = (test for test in policy.tests if test.expect == GRANTED and test.provider == provider)
    return next((test.identity for test in granted if test.identity is not UNSET), {})


# -- samples -----------------------------------------------------------------------------------------------------------


def _github(said: Mapping[str, JSON]) -> dict[str, Any]:
    """Return a job of GitHub Actions in one repository: its workflow is its own."""
    ref, workflow = said.get("ref", REF), str(said.get("workflow_ref", ""))
    repository = str(said.get("repository") or "/".join(workflow.split("/")[:2]) or REPOSITORY)
    workflow = workflow or f"{repository}/.github/workflows/evaluate.yml@{ref}"
    return {
        "sub": f"repo:{repository}:ref:{ref}", "environment": UNSET, "ref": ref, "repository": repository,
        "repository_id": REPOSITORY_ID, "repository_owner": repository.partition("/")[0],
        "repository_owner_id": OWNER_ID, "workflow_ref": workflow, "job_workflow_ref": workflow, **said,
    }  # fmt: skip


def _gitlab(said: Mapping[str, JSON]) -> dict[str, Any]:
    """Return a job of GitLab CI, of a protected branch."""
    path, ref_path = str(said.get("project_path", "example-group/evals")), said.get("ref_path", REF)
    return {
        "sub": f"project_path:{path}:ref_type:branch:ref:main", "namespace_id": "31000001",
        "namespace_path": path.rpartition("/")[0], "project_id": "41000001", "project_path": path,
        "project_visibility": "public", "user_id": "1", "user_login": "octocat", "pipeline_id": "19512345",
        "pipeline_source": "push", "job_id": "19512346", "ref": "main", "ref_type": "branch", "ref_path": ref_path,
        "ref_protected": "true", "runner_id": 7, "runner_environment": "gitlab-hosted", "sha": SHA,
        "ci_config_ref_uri": f"gitlab.com/{path}//.gitlab-ci.yml@{ref_path}", "ci_config_sha": SHA, **said,
    }  # fmt: skip


def _client(said: Mapping[str, JSON]) -> dict[str, Any]:
    """Return an OAuth client, for itself."""
    client = said.get("client_id", "evals")
    return {"client_id": client, "sub": client, "scope": TOKENS_ISSUE, **said}


def _anybody(said: Mapping[str, JSON]) -> dict[str, Any]:
    return {"sub": "robot", **said}


def _holder(said: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the holder of a personal access token."""
    return {"account": "robot", "scope": TOKENS_ISSUE, **said}


_SAMPLES: Mapping[str, Callable[[Mapping[str, JSON]], dict[str, Any]]] = {
    "github-actions": _github,
    "gitlab-ci": _gitlab,
    "oauth": _client,
    "pat": _holder,
}


# -- what is bent ------------------------------------------------------------------------------------------------------


def _known(table: Mapping[str, Mapping[str, str]], profile: str) -> Mapping[str, str]:
    if profile not in table:
        detail = f"tokens of {profile} do not say so by claims that are known here: give them by --claim"
        raise SetupError(Code.DEV_JOB, detail)
    return table[profile]


def _moved(provider: Provider, claims: Mapping[str, Any], said: Mapping[str, str], branch: str) -> dict[str, Any]:
    """Return the claims of a job that is elsewhere; what names a file at a ref names it at the new one."""
    moved = {name: text.replace("{}", branch) for name, text in said.items()}
    ref = moved.get("ref_path", moved.get("ref", ""))
    for derived in provider.rules.derived.values():
        path, at, _ = str(claims.get(derived.path[0], "")).partition("@")
        if derived.part and at:
            moved[derived.path[0]] = f"{path}@{ref}"
    return moved


def _of_a_fork(rules: Profile, claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids and names of a repository, project or account like this one, that is somebody else's."""
    changed: dict[str, Any] = {}
    for name in rules.pins:
        path = rules.derived[name].path if name in rules.derived else (name,)
        changed[path[0]] = _changed({**claims, **changed}, path)[path[0]]
    names = {name: str(claims[name]) for name, of in rules.names.items() if of in changed and name in claims}
    return {**changed, **{name: "/".join(["somebody", *value.split("/")[1:]]) for name, value in names.items()}}


def _changed(claims: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return claims in which the id at a path is another one of its form."""
    name, *inner = path
    inside = claims.get(name)
    if inner:
        return {**claims, name: _changed(inside if isinstance(inside, dict) else {}, tuple(inner))}
    other = str(inside or "").translate(_NEXT_DIGIT)
    return {**claims, name: other if other != inside else f"{other}-fork"}
