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


def test_a_caller_with_the_name_and_other_ids_is_found(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    assert holders(policies, **TAKEN) == ["inspect-ai/main"]
    assert holders(policies, repository_owner_id="9") == ["inspect-ai/main"], "one id is another"
    assert holders(policies) == [], "it is the registered one"
    for near_miss in ("org/evals2", "xorg/evals", "", 7, None):
        assert holders(policies, **{**TAKEN, "repository": near_miss}) == []


def test_a_capital_makes_no_other_name_where_the_provider_says_so(tmp_path: Path) -> None:
    assert holders(load(tmp_path, inspect_ai=POLICY), **TAKEN, repository="ORG/Evals") == ["inspect-ai/main"]
    capital = changed(POLICY, '"org/evals"', '"Org/EVALS"')
    assert holders(load(tmp_path, inspect_ai=capital), **TAKEN) == ["inspect-ai/main"]


def test_all_names_of_an_identity_must_be_the_caller_s(tmp_path: Path) -> None:
    both = changed(POLICY, '"org/evals"}', '"org/evals", repository_owner: "org"}')
    policies = load(tmp_path, inspect_ai=both)
    assert holders(policies, **TAKEN) == ["inspect-ai/main"]
    assert holders(policies, **TAKEN, repository_owner="another") == []
    owner = changed(POLICY, 'repository: "org/evals"', 'repository_owner: "org"')
    assert holders(load(tmp_path, inspect_ai=owner), **TAKEN, repository="org/x") == ["inspect-ai/main"]


def test_a_name_at_another_provider_or_of_a_removed_identity_is_not_found(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    ids: dict[str, JSON] = {"project_id": "8", "namespace_id": "9"}
    other: dict[str, JSON] = {"iss": "https://gitlab.com", **ids, "project_path": "org/evals"}
    assert policies.named.find(caller(policies, other)) == ()
    assert holders(narrow(policies, {}), **TAKEN) == []


def test_a_name_that_is_one_s_own_within_a_namespace_is_found_there(tmp_path: Path) -> None:
    policies = load(tmp_path, PROVIDERS + KUBERNETES, inspect_ai=POD)
    for namespace, found in (("evals", 1), ("elsewhere", 0)):
        inner: dict[str, JSON] = {"namespace": namespace, "serviceaccount": {"name": "runner", "uid": "another"}}
        claims: dict[str, JSON] = {"iss": "https://cluster.example", "kubernetes.io": inner}
        assert len(policies.named.find(caller(policies, claims))) == found


def test_a_change_copies_only_what_it_is_in(tmp_path: Path) -> None:
    index = load(tmp_path, inspect_ai=POLICY).named
    (one,) = (one for part in index.parts for bucket in part.values() for one in bucket)
    empty = index.replaced([one], [])
    assert empty == NameIndex()
    assert sum(a is b for a, b in zip(index.parts, empty.parts, strict=True)) == len(index.parts) - 1
