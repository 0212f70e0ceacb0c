"""A small directory of policies to write down, change in one place and load."""

from collections.abc import Mapping
from pathlib import Path

from issuer.errors import Finding
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import derive
from issuer.identity.token import Caller
from issuer.policy.authoring.load import load_policies, try_policies
from issuer.policy.authoring.suite import PolicyTestOutcome
from issuer.policy.decide import Run
from issuer.policy.match import PolicySet, resolve
from issuer.policy.registration import Registration
from issuer.results.claims import read_claims
from issuer.results.entry import Submission

ISSUER_URL = "https://issuer.example"
NOW = 1_795_251_600  # 2026-11-21T09:00:00Z

PROVIDERS = """\
version: 1
providers:
  github-actions: {profile: github-actions}
  gitlab-ci:
    profile: gitlab-ci
    uses: {bounded: 10}
  acme:
    profile: oidc
    issuer: "https://id.acme.example"
"""

REUSABLE = """\
version: 1
providers:
  acme:
    profile: oauth
    issuer: "https://id.acme.example"
  opaque:
    profile: oauth-introspection
    issuer: "https://opaque.acme.example"
    introspection:
      client_id: "issuer"
      client_secret_file: "/run/secrets/introspection"
      endpoint: "https://ask.acme.example/introspect"
      token_prefix: "acme_"
  robots:
    profile: pat
  hub:
    profile: huggingface
"""

POLICY = """\
version: 1
integration: inspect-ai
mode: active
contacts: ["evals@example.org"]
identities:
  - id: main
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    names: {repository: "org/evals"}
    require:
      ref: "refs/heads/main"
      runner_environment: {any_of: ["github-hosted"]}
grants:
  frameworks:
    - {name: "inspect-ai", versions: ">=0.3.100,<0.4"}
  benchmarks: ["openai/gsm8k", "cais/*"]
  models: ["*/*"]
  tasks: ["*"]
  metrics: ["*"]
token: {audiences: ["https://hub.example"], ttl_s: 3600}
limits:
  identity: {count: 600, per_s: 3600, burst: 200}
"""

TESTS = """\
tests:
  - name: main
    expect: granted
    provider: github-actions
    identity:
      repository_id: "7"
      repository_owner_id: "6"
      ref: "refs/heads/main"
      runner_environment: "github-hosted"
      event_name: "push"
    run:
      benchmark_repo: "openai/gsm8k"
      model_repo: "org/model"
"""

GITHUB: dict[str, JSON] = {
    "iss": "https://token.actions.githubusercontent.com", "sub": "repo:org/evals:ref:refs/heads/main",
    "repository_id": "7", "repository_owner_id": "6", "repository": "org/evals", "repository_owner": "org",
    "ref": "refs/heads/main", "runner_environment": "github-hosted", "event_name": "push", "actor": "someone",
}  # fmt: skip


def write(folder: Path, providers: str = PROVIDERS, **policies: str) -> Path:
    """Write a directory; a policy's name has `_` for `-`."""
    (folder / "providers.yaml").write_text(providers, encoding="utf-8")
    for name, text in policies.items():
        (folder / f"{name.replace('_', '-')}.yaml").write_text(text, encoding="utf-8")
    return folder


def load(folder: Path, providers: str = PROVIDERS, *, development: bool = False, **policies: str) -> PolicySet:
    return load_policies(write(folder, providers, **policies), ISSUER_URL, development=development)


def outcomes(folder: Path, tests: str, text: str = POLICY) -> tuple[list[PolicyTestOutcome], list[Finding]]:
    """Run the tests of a policy: how each went, and the errors."""
    write(folder, inspect_ai=text + tests)
    done, findings = try_policies(folder, ISSUER_URL, NOW)
    return list(done), [finding for finding in findings if finding.severity == "error"]


def changed(text: str, old: str, new: str) -> str:
    """Change one place of a file, which must be there exactly once."""
    assert text.count(old) == 1, old
    return text.replace(old, new)


def caller(policies: PolicySet, claims: dict[str, JSON] = GITHUB, /, **changes: JSON) -> Caller:
    """Make an authenticated caller; a claim that is None is absent."""
    said = {name: value for name, value in {**claims, **changes}.items() if value is not None}
    provider = policies.providers[str(said["iss"])]
    return Caller(provider, derive(provider.rules, said), ("use", "x", "x"), NOW - 10, NOW + 290)


def registration(policies: PolicySet, claims: dict[str, JSON] = GITHUB, /, **changes: JSON) -> Registration:
    return resolve(policies, caller(policies, claims, **changes))


def runs_of(*submissions: Submission) -> list[Run]:
    """Return the part of submissions that a policy judges, as the body's reader does."""
    return [(f"{item.pointer}/claims", item.claims) for item in submissions]


def submission(
    pointer: str = "",
    *,
    benchmark: str = "openai/gsm8k",
    model: str = "org/model",
    task: str = "gsm8k",
    revision: str = "b" * 40,
    metrics: Mapping[str, float] = {"accuracy": 20.9},
    **framework: str,
) -> Submission:
    """Make one result as a body's reader would. Of its framework: `framework`, `version` and `command`; "": without."""
    name = framework.pop("framework", "inspect-ai")
    given = {member: value for member, value in framework.items() if value}
    claims = read_claims({
        "model_repo": model, "model_revision": "a" * 40, "benchmark_repo": benchmark, "benchmark_revision": revision,
        "task_id": task, "metrics": [{"metric_id": name, "value": value} for name, value in metrics.items()],
        "framework": {"name": name, "version": "0.3.285", **given},
    })  # fmt: skip
    return Submission.of(claims, {}, pointer)
