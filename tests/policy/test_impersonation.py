"""Callers that use a registered name under other ids are detected, also after the folder changes."""

from pathlib import Path

from issuer.formats.strict_json import JSON
from issuer.policy.impersonation import NameIndex
from issuer.policy.match import PolicySet
from issuer.policy.restriction import narrow
from tests.support.policies import POLICY, PROVIDERS, caller, changed, load

# Someone else's repository, under the registered name.
TAKEN: dict[str, JSON] = {"repository_id": "8", "repository_owner_id": "9"}
KUBERNETES = """\
  cluster: {profile: kubernetes, issuer: "https://cluster.example", keys: {jwks_uri: "https://cluster.example/keys"}}
"""
POD = changed(
    POLICY,
    """\
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    names: {repository: "org/evals"}
    require:
      ref: "refs/heads/main"
      runner_environment: {any_of: ["github-hosted"]}
""",
    """\
    provider: cluster
    pins: {"kubernetes.io/serviceaccount/uid": "u"}
    names: {"kubernetes.io/serviceaccount/name": "runner"}
    require: {"kubernetes.io/namespace": "evals"}
""",
)


def holders(policies: PolicySet, **changes: JSON) -> list[str]:
    found = policies.named.find(caller(policies, **changes))
    return [f"{one.policy.integration}/{one.identity.id}" for one in found]


def test_a_caller_with_the_name_and_other_ids_is_found_at_its_provider_alone(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    assert holders(policies, **TAKEN) == ["inspect-ai/main"]
    assert holders(policies, **TAKEN, repository="ORG/Evals") == ["inspect-ai/main"], "of a provider without capitals"
    assert holders(policies, repository_owner_id="9") == ["inspect-ai/main"], "one id is another"
    assert holders(policies) == [], "it is the registered one"
    for near_miss in ("org/evals2", "xorg/evals", "", 7, None):
        assert holders(policies, **{**TAKEN, "repository": near_miss}) == []
    other: dict[str, JSON] = {"project_id": "8", "namespace_id": "9", "project_path": "org/evals"}
    assert policies.named.find(caller(policies, {"iss": "https://gitlab.com", **other})) == (), "of another provider"
    assert holders(narrow(policies, {}), **TAKEN) == [], "of a removed identity"
    capital = changed(POLICY, '"org/evals"', '"Org/EVALS"')
    assert holders(load(tmp_path, inspect_ai=capital), **TAKEN) == ["inspect-ai/main"]


def test_all_names_of_an_identity_must_be_the_caller_s(tmp_path: Path) -> None:
    both = changed(POLICY, '"org/evals"}', '"org/evals", repository_owner: "org"}')
    policies = load(tmp_path, inspect_ai=both)
    assert holders(policies, **TAKEN) == ["inspect-ai/main"]
    assert holders(policies, **TAKEN, repository_owner="another") == []
    owner = changed(POLICY, 'repository: "org/evals"', 'repository_owner: "org"')
    assert holders(load(tmp_path, inspect_ai=owner), **TAKEN, repository="org/x") == ["inspect-ai/main"]
    policies = load(tmp_path, PROVIDERS + KUBERNETES, inspect_ai=POD)  # a name that is unique in its namespace
    for namespace, found in (("evals", 1), ("elsewhere", 0)):
        inner: dict[str, JSON] = {"namespace": namespace, "serviceaccount": {"name": "runner", "uid": "another"}}
        claims: dict[str, JSON] = {"iss": "https://cluster.example", "kubernetes.io": inner}
        assert len(policies.named.find(caller(policies, claims))) == found, namespace


def test_a_change_copies_only_what_it_is_in(tmp_path: Path) -> None:
    index = load(tmp_path, inspect_ai=POLICY).named
    (one,) = (one for part in index.parts for bucket in part.values() for one in bucket)
    empty = index.replaced([one], [])
    assert empty == NameIndex()
    assert sum(a is b for a, b in zip(index.parts, empty.parts, strict=True)) == len(index.parts) - 1
