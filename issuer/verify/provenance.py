"""The caller that requested a token, and a link to its run, from the token's `caller`. Pure.

`caller` has the permanent public ids of a workload identity, as the issuer verified them. A link also needs names. So
there are links only for GitHub Actions and GitLab, if the token's claims spell the names out. Links are for people; no
check depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CallerClaims = Mapping[str, str | int | bool]

_GITHUB = re.compile(r"https://token\.actions\.(githubusercontent\.com|([a-z0-9-]+)\.ghe\.com)(?:/[A-Za-z0-9_-]+)?")
_GITHUB_SERVER = re.compile(r"(https://[A-Za-z0-9.-]+(?::[0-9]+)?)/_services/token")
# A path segment `.` or `..` would make the link lead elsewhere than it reads.
_PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.-]+"
_GITHUB_WORKFLOW = re.compile(rf"([A-Za-z0-9-]+/{_PART})/\.github/workflows/[^@]+@.+")
_GITLAB = re.compile(rf"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/{_PART})*")
_GITLAB_CONFIG = re.compile(rf"({_PART}(?:/{_PART})+)//[^@]+@.+")
_NUMBER = re.compile(r"[0-9]{1,20}")
# Shown without a link: the ids that distinguish runs, in the provider's words.
_IDS = ("repository_id", "run_id", "project_id", "pipeline_id", "job_id", "build_number", "client_id", "account")

# The accounts of personal access tokens: those of an issuer, and those of Hugging Face.
_PERSONAL = ("account", "id")
# The ids of a workload's owner that outlive its name. An id of which one owner may have several is not listed: a GitLab
# namespace may be a subgroup, and tokens of Google, Kubernetes and OAuth bind only project, workload and client.
_OWNERS = (
    "repository_owner_id", "organization_id", "oidc.circleci.com/org-id", "workspaceUuid", "tid",
    "https://sts.amazonaws.com/aws_account", "account_id", *_PERSONAL,
)  # fmt: skip


def run_url(caller: CallerClaims) -> str:
    """Return a page about the run that requested the token, or "" if the claims do not say. The repository's name comes
    from the path of the workflow file, which may be in another repository: the name counts only if both have the same
    commit."""
    return _github(caller) or _gitlab(caller)


def _github(caller: CallerClaims) -> str:
    site = _github_site(_text(caller, "issuer"))
    workflow = _GITHUB_WORKFLOW.fullmatch(_text(caller, "job_workflow_ref"))
    own = _text(caller, "job_workflow_sha") == _text(caller, "workflow_sha") != ""
    run = _text(caller, "run_id")
    if not (site and workflow and own and _NUMBER.fullmatch(run)):
        return ""
    attempt = _text(caller, "run_attempt")
    which = f"/attempts/{attempt}" if _NUMBER.fullmatch(attempt) else ""
    return f"{site}/{workflow[1]}/actions/runs/{run}{which}"


def _github_site(issuer: str) -> str:
    if found := _GITHUB.fullmatch(issuer):
        return f"https://{found[2]}.ghe.com" if found[2] else "https://github.com"
    server = _GITHUB_SERVER.fullmatch(issuer)
    return server[1] if server else ""


def _gitlab(caller: CallerClaims) -> str:
    issuer, job = _text(caller, "issuer"), _text(caller, "job_id")
    # The reference begins with the instance's host and the path under which it is served.
    instance, _, path = _text(caller, "ci_config_ref_uri").partition(f"{issuer.removeprefix('https://')}/")
    config = _GITLAB_CONFIG.fullmatch(path)
    own = _text(caller, "ci_config_sha") == _text(caller, "sha") != ""
    if instance or not (_GITLAB.fullmatch(issuer) and config and own and _NUMBER.fullmatch(job)):
        return ""
    return f"{issuer}/{config[1]}/-/jobs/{job}"


def owner_of(caller: CallerClaims) -> str | None:
    """Return the provider's permanent id of the owner of the workload that requested the token; None if the claims name
    no owner."""
    name = _owner_member(caller)
    return None if name is None else str(caller[name])


def _owner_member(caller: CallerClaims) -> str | None:
    return next((name for name in _OWNERS if name in caller), None)


def doubt_of_two_owners(first: CallerClaims, second: CallerClaims) -> str:
    """Return why two workloads may have one owner, or "" if one provider or two name two owners. Between two providers,
    the account of a personal access token does not count: the owner of a workload easily gets such a token, too."""
    owners = owner_of(first), owner_of(second)
    if None in owners:
        return "the owner of a caller is unknown"
    if _provider_of(first) == _provider_of(second):
        return "both callers are workloads of one owner" if owners[0] == owners[1] else ""
    if {_owner_member(first), _owner_member(second)} & {*_PERSONAL}:
        return "the holder of a personal access token may also own the other caller"
    return ""


def _provider_of(caller: CallerClaims) -> str:
    """Return the provider whose ids are compared. An enterprise's issuer at github.com shares the ids of github.com."""
    issuer = _text(caller, "issuer")
    return _github_site(issuer) or issuer


def describe_caller(caller: CallerClaims) -> str:
    """Describe in a few words the caller that requested the token: `github-actions, repository_id 1, run_id 2`."""
    ids = [f"{name} {caller[name]}" for name in _IDS if name in caller]
    return ", ".join([_text(caller, "provider") or "an unnamed provider", *ids])


def _text(caller: CallerClaims, name: str) -> str:
    value = caller.get(name, "")
    return value if isinstance(value, str) else ""
