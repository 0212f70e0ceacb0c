"""One token of every profile, shaped as its provider documents it, and a policy that it passes.

Ids are made up. `person` is in every place where a provider writes who started the job: it must never be public.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from issuer.identity.profiles import PROFILES
from issuer.identity.table import judges

PERSON = "mona-the-person"
PERSON_MAIL = f"{PERSON}@mail.example"
AUDIENCE = "https://issuer.example"
UUID = "0184990a-477b-4fa8-9968-49607448{:04x}"
COMMIT = "b5ffe3aeea51cec6c41aef16e45ee6bce47d8810"
OTHER_COMMIT = "a" * 40


@dataclass(frozen=True)
class Sample:
    """`claims` are the token's, without iss, aud, iat and exp; `entry` is what `providers.yaml` needs beside the
    profile; `public` is the `caller` of a verify token."""

    profile: str
    issuer: str
    claims: dict[str, Any]
    pins: dict[str, str]
    require: dict[str, Any]
    public: dict[str, Any]
    entry: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.profile

    def providers(self, **changes: Any) -> dict[str, Any]:
        """Return the table's entries with this one; `changes` are its members."""
        profile = PROFILES[self.profile]
        own = {"issuer": self.issuer} if judges(profile, "issuer") and profile.issuer != self.issuer else {}
        return {self.profile: {"profile": self.profile, **own, **self.entry, **changes}}

    def identity(self, **changes: Any) -> dict[str, Any]:
        return {"id": "main", "provider": self.profile, "pins": self.pins, "require": self.require, **changes}


def text_of(providers: dict[str, Any]) -> str:
    """Write a provider table; JSON is YAML."""
    return json.dumps({"version": 1, "providers": providers}, ensure_ascii=False)


def policy_of(*identities: dict[str, Any]) -> str:
    """Write a policy with these identities, which grants everything."""
    everything = {"benchmarks": ["*/*"], "models": ["*/*"], "tasks": ["*"], "metrics": ["*"]}
    return json.dumps({
        "version": 1, "integration": "inspect-ai", "mode": "active", "contacts": ["evals@example.org"],
        "identities": identities, "grants": {"frameworks": [{"name": "inspect-ai"}], **everything},
        "token": {"audiences": ["https://huggingface.co"]},
    }, ensure_ascii=False)  # fmt: skip


_WORKFLOW = "example-org/evals/.github/workflows/evaluate.yml@refs/heads/main"
_CIRCLE = "oidc.circleci.com"
_ROLE = "arn:aws:iam::123456789012:role/Evaluations"

SAMPLES = [
    Sample(
        "github-actions",
        "https://token.actions.githubusercontent.com",
        claims={
            "jti": "a3c8", "sub": "repo:example-org/evals:ref:refs/heads/main", "actor": PERSON, "actor_id": "583231",
            "repository_id": "700000001", "repository_owner_id": "600000001", "repository": "example-org/evals",
            "repository_owner": "example-org", "ref": "refs/heads/main", "event_name": "push", "sha": COMMIT,
            "run_id": "19512345678", "run_attempt": "1", "runner_environment": "github-hosted",
            "workflow_ref": _WORKFLOW, "workflow_sha": COMMIT, "job_workflow_ref": _WORKFLOW,
            "job_workflow_sha": COMMIT,
        },
        pins={"repository_id": "700000001", "repository_owner_id": "600000001"},
        require={"workflow_path": "example-org/evals/.github/workflows/evaluate.yml",
                 "workflow_git_ref": {"any_of": ["refs/heads/main"]}, "runner_environment": "github-hosted"},
        public={
            "repository_id": "700000001", "repository_owner_id": "600000001", "ref": "refs/heads/main",
            "event_name": "push", "sha": COMMIT, "run_id": "19512345678", "run_attempt": "1",
            "runner_environment": "github-hosted", "workflow_sha": COMMIT, "job_workflow_ref": _WORKFLOW,
            "job_workflow_sha": COMMIT,
        },
    ),
    Sample(
        "gitlab-ci",
        "https://gitlab.com",
        claims={
            "jti": "b1", "sub": "project_path:example-group/evals:ref_type:branch:ref:main", "user_login": PERSON,
            "user_email": PERSON_MAIL, "user_id": "1", "project_id": "41000001", "namespace_id": "31000001",
            "project_path": "example-group/evals", "namespace_path": "example-group", "pipeline_id": "9",
            "job_id": "10", "pipeline_source": "push", "ref": "main", "ref_path": "refs/heads/main",
            "ref_type": "branch", "ref_protected": "true", "runner_id": 7, "runner_environment": "gitlab-hosted",
            "sha": COMMIT, "ci_config_sha": COMMIT,
            "ci_config_ref_uri": "gitlab.com/example-group/evals//.gitlab-ci.yml@refs/heads/main",
        },
        pins={"project_id": "41000001", "namespace_id": "31000001"},
        require={"ref_protected": "true", "ref_path": "refs/heads/main",
                 "config_path": "gitlab.com/example-group/evals//.gitlab-ci.yml",
                 "runner_id": 7},
        public={
            "project_id": "41000001", "namespace_id": "31000001", "pipeline_id": "9", "job_id": "10", "sha": COMMIT,
            "ref_path": "refs/heads/main", "ci_config_sha": COMMIT, "pipeline_source": "push",
            "ci_config_ref_uri": "gitlab.com/example-group/evals//.gitlab-ci.yml@refs/heads/main",
            "runner_environment": "gitlab-hosted",
        },
    ),
    Sample(
        "buildkite",
        "https://agent.buildkite.com",
        claims={
            "jti": UUID.format(9), "organization_slug": "acme-inc", "pipeline_slug": "evals", "build_number": 5,
            "sub": f"organization:acme-inc:pipeline:evals:ref:refs/heads/main:commit:{COMMIT}:step:",
            "build_branch": "main", "build_tag": None, "build_commit": COMMIT, "step_key": None,
            "job_id": UUID.format(3), "agent_id": UUID.format(4), "build_source": "schedule",
            "runner_environment": "buildkite-hosted", "organization_id": UUID.format(1), "pipeline_id": UUID.format(2),
        },
        pins={"pipeline_id": UUID.format(2), "organization_id": UUID.format(1)},
        require={"build_branch": "main", "runner_environment": {"any_of": ["buildkite-hosted", "self-hosted"]}},
        public={
            "organization_id": UUID.format(1), "pipeline_id": UUID.format(2), "build_number": 5,
            "job_id": UUID.format(3), "build_commit": COMMIT, "build_branch": "main", "build_source": "schedule",
            "runner_environment": "buildkite-hosted",
        },
    ),
    Sample(
        "circleci",
        f"https://oidc.circleci.com/org/{UUID.format(1)}",
        claims={
            "sub": f"org/{UUID.format(1)}/project/{UUID.format(2)}/user/{PERSON}",
            f"{_CIRCLE}/org-id": UUID.format(1), f"{_CIRCLE}/project-id": UUID.format(2),
            f"{_CIRCLE}/context-ids": [UUID.format(5)], f"{_CIRCLE}/job-id": UUID.format(6),
            f"{_CIRCLE}/workflow-id": UUID.format(7), f"{_CIRCLE}/ssh-rerun": False,
            f"{_CIRCLE}/vcs-origin": "github.com/example-org/evals", f"{_CIRCLE}/vcs-ref": "refs/heads/main",
        },
        pins={f"{_CIRCLE}/project-id": UUID.format(2)},
        require={f"{_CIRCLE}/vcs-origin": "github.com/example-org/evals",
                 f"{_CIRCLE}/vcs-ref": {"glob": "refs/heads/*"}},
        public={
            f"{_CIRCLE}/org-id": UUID.format(1), f"{_CIRCLE}/project-id": UUID.format(2),
            f"{_CIRCLE}/job-id": UUID.format(6), f"{_CIRCLE}/workflow-id": UUID.format(7),
            f"{_CIRCLE}/vcs-ref": "refs/heads/main",
        },
    ),
    Sample(
        "bitbucket",
        "https://api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc",
        claims={
            "sub": f"{{{UUID.format(1)}}}:{{{UUID.format(3)}}}", "stepUuid": f"{{{UUID.format(3)}}}",
            "repositoryUuid": f"{{{UUID.format(1)}}}", "workspaceUuid": f"{{{UUID.format(2)}}}", "branchName": "main",
            "pipelineUuid": f"{{{UUID.format(4)}}}", "accountUuid": PERSON,
        },
        pins={"repositoryUuid": f"{{{UUID.format(1)}}}", "workspaceUuid": f"{{{UUID.format(2)}}}"},
        require={"branchName": "main"},
        public={
            "repositoryUuid": f"{{{UUID.format(1)}}}", "workspaceUuid": f"{{{UUID.format(2)}}}",
            "pipelineUuid": f"{{{UUID.format(4)}}}", "stepUuid": f"{{{UUID.format(3)}}}", "branchName": "main",
        },
        entry={"algorithms": ["RS256"], "max_lifetime_s": 3600},
    ),
    Sample(
        "google",
        "https://accounts.google.com",
        claims={
            "sub": "113774264463038321964", "azp": "113774264463038321964", "email": PERSON_MAIL,
            "email_verified": True,
            "google": {"compute_engine": {
                "project_id": "evals", "project_number": 739419398126, "zone": "us-west1-a",
                "instance_id": "152986662232938449", "instance_name": "runner", "license_id": ["1"],
            }},
        },
        pins={"sub": "113774264463038321964"},
        require={"google.compute_engine/project_id": "evals", "email_verified": True},
        public={"sub": "113774264463038321964", "google.compute_engine/instance_id": "152986662232938449",
                "google.compute_engine/project_number": 739419398126},
    ),
    Sample(
        "azure",
        f"https://login.microsoftonline.com/{UUID.format(1)}/v2.0",
        claims={
            "sub": UUID.format(2), "oid": UUID.format(2), "tid": UUID.format(1), "azp": UUID.format(3), "azpacr": "1",
            "uti": "x", "ver": "2.0", "idtyp": "app", "roles": ["a"], "name": PERSON, "aio": "opaque",
        },
        pins={"oid": UUID.format(2), "tid": UUID.format(1)},
        require={"idtyp": "app", "azp": UUID.format(3)},
        public={"oid": UUID.format(2), "tid": UUID.format(1), "azp": UUID.format(3)},
    ),
    Sample(
        "aws",
        "https://abc123-def456-ghi789-jkl012.tokens.sts.global.api.aws",
        claims={
            "sub": _ROLE, "jti": "xyz123",
            "https://sts.amazonaws.com/": {
                "aws_account": "123456789012", "source_region": "us-east-1", "org_id": "o-abc1234567",
                "identity_store_user_id": PERSON, "request_tags": {"aws_account": "999999999999"},
            },
        },
        pins={"sub": _ROLE},
        require={"https://sts.amazonaws.com/aws_account": "123456789012",
                 "https://sts.amazonaws.com/org_id": "o-abc1234567"},
        public={"https://sts.amazonaws.com/aws_account": "123456789012"},
    ),
    Sample(
        "kubernetes",
        "https://oidc.eks.eu-west-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B716D3041E",
        claims={
            "sub": "system:serviceaccount:evals:runner", "jti": UUID.format(8),
            "kubernetes.io": {
                "namespace": "evals", "node": {"name": "node-1", "uid": UUID.format(5)},
                "pod": {"name": "runner-0", "uid": UUID.format(6)},
                "serviceaccount": {"name": "runner", "uid": UUID.format(7)}, "warnafter": 1_795_254_000,
            },
        },
        pins={"kubernetes.io/serviceaccount/uid": UUID.format(7)},
        require={"kubernetes.io/namespace": "evals", "sub": "system:serviceaccount:evals:runner"},
        public={"kubernetes.io/serviceaccount/uid": UUID.format(7), "kubernetes.io/pod/uid": UUID.format(6)},
    ),
    Sample(
        "spiffe",
        "https://oidc.spire.example.org",
        claims={"sub": "spiffe://example.org/evals/runner"},
        pins={"sub": "spiffe://example.org/evals/runner"},
        require={},
        public={"sub": "spiffe://example.org/evals/runner"},
    ),
    Sample(
        "codefresh",
        "https://oidc.codefresh.io",
        claims={
            "sub": f"account:5f30:pipeline:64f0:initiator:{PERSON}", "account_id": "5f30ebd30312313ae7008",
            "account_name": "acme", "pipeline_id": "64f0c40800aafd1455566", "pipeline_name": "oidc/git-run",
            "workflow_id": "64f447c02199f903000", "initiator": PERSON, "scm_user_name": PERSON,
            "scm_repo_url": "https://github.com/example-org/evals", "scm_ref": "main", "runner_environment": "hosted",
        },
        pins={"pipeline_id": "64f0c40800aafd1455566", "account_id": "5f30ebd30312313ae7008"},
        require={"scm_ref": "main", "scm_repo_url": "https://github.com/example-org/evals"},
        public={"account_id": "5f30ebd30312313ae7008", "pipeline_id": "64f0c40800aafd1455566",
                "workflow_id": "64f447c02199f903000", "scm_ref": "main", "runner_environment": "hosted"},
        entry={"algorithms": ["RS256"]},
    ),
    Sample(
        "jenkins",
        "https://jenkins.example.org/oidc",
        claims={"sub": "https://jenkins.example.org/job/evals/", "build_number": 42, "branch": "main", "name": PERSON},
        pins={"sub": "https://jenkins.example.org/job/evals/"},
        require={"branch": "main"},
        public={"build_number": 42},
    ),
    Sample(
        "oidc",
        "https://id.acme.example",
        claims={"sub": f"robot-of-{PERSON}", "scope": "evals:sign openid", "email": PERSON_MAIL, "team": "evals"},
        pins={"sub": f"robot-of-{PERSON}"},
        require={"scope": {"contains_all": ["evals:sign"]}, "team": "evals"},
        public={},
    ),
    Sample(
        "oauth",
        "https://auth.acme.example",
        claims={"sub": f"service-of-{PERSON}", "client_id": "evals-ci", "jti": "c1", "scope": "openid tokens:issue",
                "team": "evals", "email": PERSON_MAIL},
        pins={"client_id": "evals-ci"},
        require={"sub": f"service-of-{PERSON}", "team": "evals"},
        public={"client_id": "evals-ci"},
    ),
]  # fmt: skip
# Credentials other than JWTs: `claims` are what is known about them once they are verified.
OPAQUE_SAMPLES = [
    Sample(
        "oauth-introspection",
        "https://opaque.acme.example",
        claims={"active": True, "sub": f"service-of-{PERSON}", "client_id": "evals-ci", "username": PERSON,
                "scope": "tokens:issue", "team": "evals"},
        pins={"client_id": "evals-ci"},
        require={"sub": f"service-of-{PERSON}", "team": "evals"},
        public={"client_id": "evals-ci"},
        entry={"introspection": {"client_id": "issuer", "client_secret_file": "/run/secrets/introspection"}},
    ),
    Sample(
        "pat",
        AUDIENCE,
        claims={"account": "my-framework-nightly", "token_id": "4Fq0ZtB2x9Lm", "scope": "tokens:issue"},
        pins={"account": "my-framework-nightly"},
        require={"token_id": {"any_of": ["4Fq0ZtB2x9Lm"]}},
        public={"account": "my-framework-nightly", "token_id": "4Fq0ZtB2x9Lm"},
    ),
    Sample(
        "huggingface",
        "https://huggingface.co",
        claims={"id": "63f0c4080aafd14555660000", "name": PERSON, "type": "user",
                "auth": {"accessToken": {"role": "fineGrained"}}},
        pins={"id": "63f0c4080aafd14555660000"},
        require={"type": "user", "token_role": "fineGrained"},
        public={"id": "63f0c4080aafd14555660000"},
    ),
]  # fmt: skip
BY_NAME = {sample.profile: sample for sample in [*SAMPLES, *OPAQUE_SAMPLES]}

# Both forms that GitHub writes: repositories made, renamed or moved since 2026-07-15 have the second.
GITHUB_SUBJECTS = [
    "repo:example-org/evals:ref:refs/heads/main",
    "repo:example-org@600000001/evals@700000001:ref:refs/heads/main",
]
