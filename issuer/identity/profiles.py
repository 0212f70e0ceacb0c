"""Built-in profiles of identity providers: one table of data, without code for a provider. Pure.

A profile states what is true of every token of its kind of provider. `providers.yaml` may narrow or fill in each value,
and must give the values that neither the provider's documentation nor a published token shows. Each profile names its
source.

No library has such a table. We considered PyPI's Warehouse, and took some values from it; it has a class for each of
its four providers, which depends on its database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from issuer.formats.strict_json import JSON

MINUTE = 60
HOUR = 3600


class Derived(Struct, frozen=True):
    """A claim that this service derives from another one. `path` has the names of the members that lead to the value.
    `part` is "" for the whole value, or names one side of a value `path@git_ref`."""

    path: tuple[str, ...]
    part: Literal["", "path", "git_ref"] = ""

    def of(self, claims: Mapping[str, JSON]) -> JSON:
        """Return the value in these claims, or None if it is absent or has another form."""
        value = claims.get(self.path[0])
        for member in self.path[1:]:
            value = value.get(member) if isinstance(value, dict) else None
        if not self.part:
            return value
        match = _path_at_git_ref(value) if isinstance(value, str) else None
        return match[self.part] if match else None


# The first `@` separates path and ref, and a full ref or a commit must follow. So a branch `x@refs/heads/main` remains
# a branch, and a file `evaluate.yml@x.yml` is not read as `evaluate.yml`.
_PATH_AT_GIT_REF = re.compile(
    r"(?P<path>[^@\x00-\x1f\x7f]+)@(?P<git_ref>refs/[^\x00-\x20\x7f]+|[0-9a-f]{40}(?:[0-9a-f]{24})?)"
)
_path_at_git_ref = lru_cache(256)(_PATH_AT_GIT_REF.fullmatch)  # many jobs share few workflows


class Foreign(Struct, frozen=True):
    """Code that a job may use from another repository. `claims` name that code, and `home` names the job's repository.
    For code from elsewhere, `commit` must be pinned: the other repository's owner can move its branches and tags."""

    claims: tuple[str, ...]
    home: str
    commit: str


# The scope that an access token must have.
TOKENS_ISSUE = "tokens:issue"
# The kind of a provider's credentials selects their verifier. `identity-token`: OIDC. `access-token`: OAuth JWTs
# (RFC 9068). `introspection`: opaque OAuth tokens; the service asks the provider about them (RFC 7662). `pat` and
# `huggingface`: personal access tokens of this service and of Hugging Face.
Kind = Literal["identity-token", "access-token", "introspection", "pat", "huggingface"]


class Profile(Struct, frozen=True, kw_only=True):
    """The facts about a kind of provider.

    `kind` is the kind of its credentials. Identity tokens are for one request or a few; the other kinds are `reusable`,
    and a nonce distinguishes their requests. The credential's `scope` must contain the word `scope`. Every credential
    begins with `prefix`.

    `issuer` is set if all customers share one. `issuer_form` and `audience_form` are regular expressions for the whole
    text of the existing issuers, and of the audiences that a token for this service can have; "" allows any.
    `algorithms` and `max_lifetime_s` are empty if `providers.yaml` must give them. If `max_age_s` is None, the lifetime
    is the limit. `uses` is the number of different requests that one token may make: 1 if a job can mint a token for
    each.

    Every registered identity must pin the immutable ids `pins`; the most specific is first. `names` maps readable names
    to their ids; a wrong name only causes a warning. `never` has the claims that a policy must not match, with reasons.
    `require` may name the claims in `matchable` (None: any claim that is not in `never`), and must name those in
    `must_require`, which has reasons. `narrowed_by` has the ways to restrict an identity to a ref, environment or
    workflow: each is one or several claims, with a value if only that value will do. An identity must use one of these
    ways or say `any_ref`. `demands` has claims that every token must have with that value, or must not have (None),
    unless the identity's `require` names them.

    `event_claim` names the event that started the job; strangers cannot cause those in `events`. `derived` has claims
    that are derived from others, by the name that policies use. Values of the claims in `lowercase` never have a
    capital. `run` is the claim that names the CI run, or "". The claims in `provenance` are public and immutable, so
    they may be in the verify token's `caller`: never an e-mail address, an actor or a display name. `names_any_case`
    says that names ignore case. A name is unique only among tokens with the same values of the claims `names_within`.
    """

    kind: Kind = "identity-token"
    scope: str = ""
    prefix: str = ""
    issuer: str | None = None
    issuer_form: str = ""
    algorithms: tuple[str, ...] = ("RS256",)
    audience_form: str = ""
    max_lifetime_s: int | None = HOUR
    max_age_s: int | None = None
    uses: int = 1
    types: tuple[str, ...] = ("JWT",)
    pins: tuple[str, ...]
    names: Mapping[str, str] = {}
    names_any_case: bool = False
    names_within: frozenset[str] = frozenset()
    never: Mapping[str, str] = {}
    matchable: frozenset[str] | None = None
    must_require: Mapping[str, str] = {}
    narrowed_by: tuple[Mapping[str, str | None], ...] = ()
    demands: Mapping[str, str | bool | int | None] = {}
    event_claim: str | None = None
    events: tuple[str, ...] = ()
    derived: Mapping[str, Derived] = {}
    foreign: Foreign | None = None
    lowercase: frozenset[str] = frozenset()
    run: str = ""
    provenance: tuple[str, ...] = ()

    @property
    def reusable(self) -> bool:
        """Whether a credential may be sent with many requests. Then each request needs a nonce."""
        return self.kind != "identity-token"


def derive(profile: Profile, claims: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a token's claims and the claims that its profile derives from them.

    If the token has a claim with the name of a derived one, that claim is dropped: the caller may have invented it.
    """
    complete = dict(claims)
    for name, claim in profile.derived.items():
        complete.pop(name, None)
        if (value := claim.of(claims)) is not None:
            complete[name] = value
    return complete


_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_KUBERNETES = ("serviceaccount/uid", "serviceaccount/name", "namespace", "pod/uid", "pod/name", "node/uid", "node/name")
_AWS = "https://sts.amazonaws.com/"
_AWS_CLAIMS = ("aws_account", "org_id", "ou_path", "source_region", "lambda_source_function_arn",
               "ec2_source_instance_arn")  # fmt: skip
_GOOGLE = ("project_id", "project_number", "zone", "instance_id", "instance_name")
_PERSON = "it names a person, and can name another person later"
_CLIENT_ALONE = "a client that signs people in also has tokens for them; only its own tokens have the client as `sub`"

PROFILES: dict[str, Profile] = {
    # https://docs.github.com/en/actions/reference/security/oidc
    "github-actions": Profile(
        issuer="https://token.actions.githubusercontent.com",
        # github.com, an enterprise's issuer on github.com, GitHub Enterprise Server, and GHE.com.
        issuer_form=(
            r"https://token\.actions\.githubusercontent\.com(?:/[A-Za-z0-9_-]+)?|https://[^/]+/_services/token"
            r"|https://token\.actions\.[a-z0-9-]+\.ghe\.com"
        ),
        # The default audience is the owner's page, which is the same for every service that accepts such tokens.
        audience_form=r"(?!https://github\.com/[^/]*$).*",
        max_age_s=15 * MINUTE,
        pins=("repository_id", "repository_owner_id"),
        names={"repository": "repository_id", "repository_owner": "repository_owner_id", "enterprise": "enterprise_id"},
        names_any_case=True,
        never={"sub": "its form changed on 2026-07-15, and repositories can customize it; use the pinned ids and "
                      "`ref` or `workflow_ref` instead"},
        matchable=frozenset({
            "base_ref", "enterprise_id", "environment", "event_name", "head_ref", "job_workflow_git_ref",
            "job_workflow_path", "job_workflow_ref", "job_workflow_sha", "ref", "ref_protected", "ref_type",
            "repository_visibility", "run_attempt", "runner_environment", "sha", "workflow", "workflow_git_ref",
            "workflow_path", "workflow_ref", "workflow_sha",
        }),
        # A path without a ref is not a restriction: every branch may have a different file at this path. Nor is an
        # environment: without protection rules, which no token shows, every branch may use it.
        narrowed_by=tuple({claim: None} for claim in (
            "ref", "workflow_ref", "job_workflow_ref", "workflow_git_ref", "job_workflow_git_ref", "sha",
            "workflow_sha", "job_workflow_sha",
        )),
        event_claim="event_name",
        events=("push", "workflow_dispatch", "schedule", "release"),
        derived={
            "workflow_path": Derived(("workflow_ref",), "path"),
            "workflow_git_ref": Derived(("workflow_ref",), "git_ref"),
            "job_workflow_path": Derived(("job_workflow_ref",), "path"),
            "job_workflow_git_ref": Derived(("job_workflow_ref",), "git_ref"),
        },
        foreign=Foreign(("job_workflow_ref", "job_workflow_path"), "repository", "job_workflow_sha"),
        lowercase=frozenset({
            "event_name", "job_workflow_sha", "ref_protected", "ref_type", "repository_visibility",
            "runner_environment", "sha", "workflow_sha",
        }),
        run="run_id",
        provenance=(
            "repository_id", "repository_owner_id", "run_id", "run_attempt", "sha", "ref", "job_workflow_ref",
            "job_workflow_sha", "workflow_sha", "event_name", "runner_environment",
        ),
    ),
    # https://docs.gitlab.com/ci/secrets/id_token_authentication/
    "gitlab-ci": Profile(
        issuer="https://gitlab.com",  # each self-hosted instance is a provider with its URL as `issuer`
        max_lifetime_s=2 * HOUR,
        # GitLab gives a job one fixed token, and a job may have a handful of runs to sign.
        uses=10,
        pins=("project_id", "namespace_id"),
        names={"project_path": "project_id", "namespace_path": "namespace_id"},
        names_any_case=True,
        never={"sub": "it is made of names that can be taken over", "user_email": _PERSON, "user_login": _PERSON,
               "user_identities": _PERSON},
        matchable=frozenset({
            "ci_config_ref_uri", "ci_config_sha", "config_path", "deployment_tier", "environment",
            "environment_protected", "pipeline_source", "project_visibility", "ref", "ref_path", "ref_protected",
            "ref_type", "runner_environment", "runner_id", "sha",
        }),
        narrowed_by=({"ref_protected": "true", "ref_path": None}, {"environment_protected": "true"}),
        event_claim="pipeline_source",
        events=("push", "schedule", "web"),
        derived={"config_path": Derived(("ci_config_ref_uri",), "path")},
        lowercase=frozenset({
            "ci_config_sha", "deployment_tier", "environment_protected", "pipeline_source", "project_visibility",
            "ref_protected", "ref_type", "runner_environment", "sha",
        }),
        run="pipeline_id",
        provenance=(
            "project_id", "namespace_id", "pipeline_id", "job_id", "sha", "ref_path", "ci_config_ref_uri",
            "ci_config_sha", "pipeline_source", "runner_environment",
        ),
    ),
    # https://buildkite.com/docs/agent/cli/reference/oidc; RS256 and jti: the token in
    # https://github.com/rubygems/rubygems.org/issues/5412
    "buildkite": Profile(
        issuer="https://agent.buildkite.com",  # shared by all organizations; a job requests the ids with --claim
        issuer_form=r"https://agent\.buildkite\.com",
        audience_form=r"(?!https://buildkite\.com/[^/]*$).*",
        max_age_s=15 * MINUTE,
        pins=("pipeline_id", "organization_id"),
        names={"pipeline_slug": "pipeline_id", "organization_slug": "organization_id", "cluster_name": "cluster_id",
               "queue_key": "queue_id"},
        never={"sub": "it is made of slugs, and a job can choose another one"},
        matchable=frozenset({
            "build_branch", "build_commit", "build_source", "build_tag", "cluster_id", "queue_id",
            "runner_environment", "step_key",
        }),
        narrowed_by=({"build_branch": None},),
        event_claim="build_source",
        # Any other source may build a stranger's pull request: a webhook, a trigger, a person's rebuild (`ui`) or a bot
        # (`api`).
        events=("schedule",),
        lowercase=frozenset({"build_commit", "build_source", "cluster_id", "organization_id", "pipeline_id",
                             "queue_id", "runner_environment"}),
        run="build_id",
        provenance=(
            "organization_id", "pipeline_id", "build_id", "build_number", "job_id", "build_commit", "build_branch",
            "build_source", "runner_environment",
        ),
    ),
    # https://circleci.com/docs/openid-connect-tokens/; org-id and the other ids:
    # https://github.com/pypi/warehouse (warehouse/oidc/models/circleci.py)
    "circleci": Profile(
        issuer_form=f"https://oidc\\.circleci\\.com/org/{_UUID}",
        # Without `circleci run oidc get --claims`, the audience is the organization, the same for every service.
        audience_form=f"(?!{_UUID}$).*",
        max_age_s=15 * MINUTE,
        pins=("oidc.circleci.com/project-id",),
        never={"sub": "it holds the id of a person"},
        matchable=frozenset(f"oidc.circleci.com/{name}" for name in (
            "org-id", "pipeline-definition-id", "ssh-rerun", "vcs-origin", "vcs-ref",
        )),
        must_require={"oidc.circleci.com/vcs-origin": "the build of a fork can have the project's token"},
        demands={"oidc.circleci.com/ssh-rerun": False},  # in a rerun with SSH, a person controls the job
        lowercase=frozenset({"oidc.circleci.com/org-id", "oidc.circleci.com/pipeline-definition-id",
                             "oidc.circleci.com/project-id"}),
        run="oidc.circleci.com/pipeline-id",
        provenance=tuple(f"oidc.circleci.com/{name}" for name in (
            "org-id", "project-id", "pipeline-definition-id", "pipeline-id", "workflow-id", "job-id", "vcs-ref",
        )),
    ),
    # https://support.atlassian.com/bitbucket-cloud/docs/integrate-pipelines-with-resource-servers-using-oidc/;
    # algorithm and lifetime are not documented: `providers.yaml` must give them.
    "bitbucket": Profile(
        issuer_form=r"https://api\.bitbucket\.org/2\.0/workspaces/[^/]+/pipelines-config/identity/oidc",
        algorithms=(),
        max_lifetime_s=None,
        uses=10,  # each step has one fixed token
        pins=("repositoryUuid", "workspaceUuid"),
        never={"sub": "it changes with every step"},
        matchable=frozenset({"branchName", "deploymentEnvironmentUuid"}),
        lowercase=frozenset({"deploymentEnvironmentUuid", "repositoryUuid", "workspaceUuid"}),
        run="pipelineUuid",
        provenance=("repositoryUuid", "workspaceUuid", "pipelineUuid", "stepUuid", "deploymentEnvironmentUuid",
                    "branchName"),
    ),
    # https://cloud.google.com/compute/docs/instances/verifying-instance-identity
    "google": Profile(
        issuer="https://accounts.google.com",  # also the issuer for people: only the pinned account id excludes them
        issuer_form=r"https://accounts\.google\.com",  # Google also used to write it without the scheme
        uses=10,  # the metadata server may cache a token
        pins=("sub",),
        matchable=frozenset({"azp", "email", "email_verified", *(f"google.compute_engine/{n}" for n in _GOOGLE)}),
        derived={f"google.compute_engine/{name}": Derived(("google", "compute_engine", name)) for name in _GOOGLE},
        provenance=("sub", "google.compute_engine/instance_id", "google.compute_engine/project_number"),
    ),
    # https://learn.microsoft.com/en-us/entra/identity-platform/access-token-claims-reference and
    # .../configurable-token-lifetimes: 60 to 90 minutes; tokens of a managed identity last up to a day
    "azure": Profile(
        # Only an organization's tenant: not `common`, `organizations`, `consumers` or the tenant of personal accounts.
        issuer_form=(
            f"https://(?!login\\.microsoftonline\\.com/9188040d-6c67-4c5b-b112-36a304b66dad/)"
            f"(?:login\\.microsoftonline\\.com/{_UUID}/v2\\.0|sts\\.windows\\.net/{_UUID}/)"
        ),
        max_lifetime_s=90 * MINUTE,
        uses=10,  # the platform caches tokens for hours
        pins=("oid", "tid"),
        never=dict.fromkeys(("email", "name", "preferred_username", "unique_name", "upn"), _PERSON),
        matchable=frozenset({"appid", "appidacr", "azp", "azpacr", "idtyp", "scp", "ver"}),
        demands={"scp": None},  # only tokens for people have it
        lowercase=frozenset({"appid", "azp", "idtyp", "oid", "tid"}),
        provenance=("tid", "oid", "azp", "appid"),
    ),
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_outbound_token_claims.html
    "aws": Profile(
        issuer_form=r"https://[0-9a-z-]+\.tokens\.sts\.global\.api\.aws",  # each account has its own
        algorithms=("RS256", "ES384"),
        max_age_s=15 * MINUTE,
        pins=("sub",),
        matchable=frozenset(_AWS + name for name in _AWS_CLAIMS),
        derived={_AWS + name: Derived((_AWS, name)) for name in _AWS_CLAIMS},
        # `sub` may be the ARN of a user.
        provenance=(_AWS + "aws_account",),
    ),
    # https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
    "kubernetes": Profile(
        # Every pod has a token without a requested audience, which has this one: the API server.
        audience_form=r"(?!(?:https://)?kubernetes\.default).*",
        uses=10,  # a mounted token is used until the kubelet renews it
        pins=("kubernetes.io/serviceaccount/uid",),
        names={f"kubernetes.io/{kind}/name": f"kubernetes.io/{kind}/uid" for kind in ("serviceaccount", "pod", "node")},
        names_within=frozenset({"kubernetes.io/namespace"}),
        matchable=frozenset({"sub", "kubernetes.io/namespace", "kubernetes.io/pod/uid", "kubernetes.io/node/uid"}),
        derived={f"kubernetes.io/{name}": Derived(("kubernetes.io", *name.split("/"))) for name in _KUBERNETES},
        lowercase=frozenset(f"kubernetes.io/{name}" for name in _KUBERNETES),
        run="kubernetes.io/pod/uid",
        provenance=("kubernetes.io/serviceaccount/uid", "kubernetes.io/pod/uid"),
    ),
    # https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md; `iss` is optional there and required here
    "spiffe": Profile(
        algorithms=("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"),
        max_lifetime_s=15 * MINUTE,
        uses=10,  # a workload gets the same token until shortly before it expires
        types=("JWT", "JOSE"),
        pins=("sub",),
        matchable=frozenset(),
        provenance=("sub",),
    ),
    # https://codefresh.io/docs/docs/integrations/oidc-pipelines/; the algorithm is not documented
    "codefresh": Profile(
        issuer="https://oidc.codefresh.io",
        issuer_form=r"https://oidc\.codefresh\.io",
        algorithms=(),
        audience_form=r"(?!https://g\.codefresh\.io$).*",
        max_lifetime_s=15 * MINUTE,
        pins=("pipeline_id", "account_id"),
        names={"pipeline_name": "pipeline_id", "account_name": "account_id"},
        never={"sub": "its form changes with the trigger, and it may name a person", "initiator": _PERSON,
               "scm_user_name": _PERSON},
        matchable=frozenset({
            "platform_url", "runner_environment", "scm_pull_request_target_branch", "scm_ref", "scm_repo_url",
            "workflow_id",
        }),
        demands={"scm_pull_request_target_branch": None},  # only builds of pull requests have it, also strangers'
        lowercase=frozenset({"account_id", "pipeline_id", "workflow_id"}),
        run="workflow_id",
        provenance=("account_id", "pipeline_id", "workflow_id", "scm_ref", "runner_environment"),
    ),
    # https://plugins.jenkins.io/oidc-provider/; the operator of a Jenkins configures the claims
    "jenkins": Profile(
        max_age_s=15 * MINUTE,
        pins=("sub",),
        never=dict.fromkeys(("email", "name", "preferred_username"), _PERSON),
        run="build_number",
        provenance=("build_number",),  # `sub` is a URL in the organization's private network
    ),
    "oidc": Profile(
        algorithms=("RS256", "ES256"),
        pins=("sub",),
        never=dict.fromkeys(("email", "name", "preferred_username"), _PERSON),
        # `provenance` is empty, because a generic `sub` may be a person's address
    ),
    # RFC 9068. Its section 2.1 requires support for RS256; the other algorithms are those of FAPI 2.0, section 5.4.1
    "oauth": Profile(
        kind="access-token",
        scope=TOKENS_ISSUE,
        algorithms=("RS256", "PS256", "ES256", "EdDSA"),
        types=("at+jwt",),
        pins=("client_id",),
        must_require={"sub": _CLIENT_ALONE},
        never=dict.fromkeys(("email", "name", "preferred_username"), _PERSON),
        provenance=("client_id",),
    ),
    # RFC 7662
    "oauth-introspection": Profile(
        kind="introspection",
        scope=TOKENS_ISSUE,
        algorithms=(),
        max_lifetime_s=None,
        pins=("client_id",),
        must_require={"sub": _CLIENT_ALONE},
        never=dict.fromkeys(("email", "name", "preferred_username", "username"), _PERSON),
        provenance=("client_id",),
    ),
    # issuer/identity/pat.py
    "pat": Profile(
        kind="pat",
        scope=TOKENS_ISSUE,
        prefix="evi_pat_",
        algorithms=(),
        max_lifetime_s=None,
        pins=("account",),
        matchable=frozenset({"scope", "token_id"}),
        provenance=("account", "token_id"),
    ),
    # https://huggingface.co/docs/hub/api: GET /api/whoami-v2
    "huggingface": Profile(
        kind="huggingface",
        prefix="hf_",
        issuer="https://huggingface.co",
        issuer_form=r"https://huggingface\.co",
        algorithms=(),
        max_lifetime_s=None,
        pins=("id",),
        names={"name": "id"},
        never=dict.fromkeys(("email", "fullname"), _PERSON),
        matchable=frozenset({"token_role", "type"}),
        must_require={"token_role": "read-only tokens are often pasted into Spaces and notebooks that others can see"},
        derived={"token_role": Derived(("auth", "accessToken", "role"))},
        provenance=("id",),
    ),
}  # fmt: skip
# Each prefix belongs to one kind of opaque credentials, even if a provider of another kind would accept them.
TOKEN_PREFIXES = tuple(profile.prefix for profile in PROFILES.values() if profile.prefix)
