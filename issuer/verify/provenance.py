"""Who asked for a token, and where the run can be looked at: words and a link from a token's `caller`. Pure.

The caller is what the issuer verified of a workload identity: ids that are public and stay. A link needs names, too, so
there is one only where what is bound spells them out, for GitHub Actions and GitLab; it is for people, and no check
rests on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CallerClaims = Mapping[str, str | int | bool]

_GITHUB = re.compile(r"https://token\.actions\.(githubusercontent\.com|([a-z0-9-]+)\.ghe\.com)(?:/[A-Za-z0-9_-]+)?")
_GITHUB_SERVER = re.compile(r"(https://[A-Za-z0-9.-]+(?::[0-9]+)?)/_services/token")
# No part of a path is `.` or `..`, by which a link would lead elsewhere than it reads.
_PART = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_.-]+"
_GITHUB_WORKFLOW = re.compile(rf"([A-Za-z0-9-]+/{_PART})/\.github/workflows/[^@]+@.+")
_GITLAB = re.compile(rf"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/{_PART})*")
_GITLAB_CONFIG = re.compile(rf"({_PART}(?:/{_PART})+)//[^@]+@.+")
_NUMBER = re.compile(r"[0-9]{1,20}")
# Shown where there is no link: what tells one run from another, in the words of its provider.
_IDS = ("repository_id", "run_id", "project_id", "pipeline_id", "job_id", "build_number", "client_id", "account")

# The owner of a workload, by the id that outlives its name. What one owner may have several of is not among them: a
# GitLab namespace may be a subgroup, and of Google, Kubernetes and OAuth only project, workload and client are bound.
_OWNERS = (
    "repository_owner_id", "organization_id", "oidc.circleci.com/org-id", "workspaceUuid", "tid",
    "https://sts.amazonaws.com/aws_account", "account_id", "account", "id",
)  # fmt: skip


def run_url(caller: CallerClaims) -> str:
    """Return where people can look at the run that asked for the token, or "" where what is bound does not say. The
    name of its repository is in that of the workflow's file, which may lie in another repository: it counts where both
    are of one commit."""
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
    # What it begins by is the instance, with the path below which that lies.
    instance, _, path = _text(caller, "ci_config_ref_uri").partition(f"{issuer.removeprefix('https://')}/")
    config = _GITLAB_CONFIG.fullmatch(path)
    own = _text(caller, "ci_config_sha") == _text(caller, "sha") != ""
    if instance or not (_GITLAB.fullmatch(issuer) and config and own and _NUMBER.fullmatch(job)):
        return ""
    return f"{issuer}/{config[1]}/-/jobs/{job}"


def owner_of(caller: CallerClaims) -> str | None:
    """Return who owns the workload that asked for the token, by the id at its provider, which stays; None where what is
    bound names no owner."""
    return next((str(caller[name]) for name in _OWNERS if name in caller), None)


def doubt_of_two_owners(first: CallerClaims, second: CallerClaims) -> str:
    """Return why two workloads may be one owner's, or "": they are at two providers, or at one of two owners."""
    if _provider_of(first) != _provider_of(second):
        return ""
    owners = owner_of(first), owner_of(second)
    if None in owners:
        return "both were asked for at one provider, and whether by two owners cannot be told"
    return "both were asked for by workloads of one owner" if owners[0] == owners[1] else ""


def _provider_of(caller: CallerClaims) -> str:
    """Return within what an id is one owner's. An enterprise's own issuer at github.com has the ids of github.com."""
    issuer = _text(caller, "issuer")
    return _github_site(issuer) or issuer


def describe_caller(caller: CallerClaims) -> str:
    """Say in a few words who asked for the token: `github-actions, repository_id 1, run_id 2`."""
    ids = [f"{name} {caller[name]}" for name in _IDS if name in caller]
    return ", ".join([_text(caller, "provider") or "an unnamed provider", *ids])


def _text(caller: CallerClaims, name: str) -> str:
    value = caller.get(name, "")
    return value if isinstance(value, str) else ""
