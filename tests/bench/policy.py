"""A directory of many integrations, and decisions among them, for the benchmarks."""

import itertools
from collections.abc import Callable
from pathlib import Path

from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.policy.decide import Grant, decide
from issuer.policy.match import PolicySet, resolve
from issuer.results.claims import read_claims
from tests.support import make

URL = "https://issuer.example"
PROVIDERS = "version: 1\nproviders:\n  github-actions: {profile: github-actions}\n"
IDENTITY = """\
  - id: branch-{ref}
    provider: github-actions
    pins: {{repository_id: "{number}", repository_owner_id: "6"}}
    names: {{repository: "org/evals-{number}"}}
    require:
      ref: "refs/heads/{ref}"
      runner_environment: {{any_of: ["github-hosted"]}}
"""
REST = """\
grants:
  frameworks:
    - {name: "inspect-ai", versions: ">=0.3.100,<0.4"}
  benchmarks: ["openai/gsm8k", "lab-NUMBER/*", "cais/*", "TIGER-Lab/MMLU-Pro"]
  models: ["lab-NUMBER/*", "*/*"]
  tasks: ["task-NUMBER-*", "*"]
  metrics: ["*", {id: "pass@*", min: 0, max: 1}]
  deny: {models: ["evil-NUMBER/*"]}
token: {audiences: ["https://huggingface.co"], ttl_s: 3600}
"""
TESTS = """\
tests:
  - name: the nightly run
    expect: granted
    provider: github-actions
    identity:
      repository_id: "{number}"
      repository_owner_id: "6"
      ref: "refs/heads/main"
      runner_environment: "github-hosted"
      event_name: "schedule"
    run: {{benchmark_repo: "openai/gsm8k", model_repo: "org/model", task_id: "gsm8k"}}
  - {{name: a pull request, claims_from: the nightly run, override: {{identity: {{event_name: "pull_request"}}}},
     expect: identity.event_forbidden}}
  - {{name: another benchmark, claims_from: the nightly run, override: {{run: {{benchmark_repo: "org/other"}}}},
     expect: policy.benchmark}}
"""
FRAMEWORK = {"name": "inspect-ai", "version": "0.3.285"}
RUN = make.claims(model_repo="org/model", benchmark_repo="cais/hle", task_id="hle", framework=FRAMEWORK)


def write_many(folder: Path, count: int, *, tested: bool) -> Path:
    """Write a directory of `count` integrations with three identities and separate lists of names each."""
    (folder / "providers.yaml").write_text(PROVIDERS, "utf-8")
    for number in range(count):
        head = f'version: 1\nintegration: framework-{number}\nmode: active\ncontacts: ["a@b.example"]\nidentities:\n'
        identities = "".join(IDENTITY.format(number=number, ref=ref) for ref in ("main", "next", "old"))
        rest = REST.replace("NUMBER", str(number))
        tests = TESTS.format(number=number) if tested else ""
        (folder / f"framework-{number}.yaml").write_text(head + identities + rest + tests, "utf-8")
    return folder


def judging(policies: PolicySet, provider: Provider, numbers: list[int]) -> Callable[[], Grant]:
    """Return a function that judges one run, each time of the next integration. As in a request, the claims were just read."""
    turns = itertools.cycle(map(str, numbers))
    runs = (("/claims", read_claims(RUN)),)

    def judge() -> Grant:
        number = next(turns)
        claims: dict[str, JSON] = {
            "repository_id": number, "repository_owner_id": "6", "repository": f"org/evals-{number}",
            "ref": "refs/heads/old", "runner_environment": "github-hosted", "event_name": "push",
        }  # fmt: skip
        caller = Caller(provider, claims, ("use", "x", "x"), 0, 0)
        verdict = decide(resolve(policies, caller), caller, runs, 1)
        assert isinstance(verdict, Grant)
        return verdict

    return judge
