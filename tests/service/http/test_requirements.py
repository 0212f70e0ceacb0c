"""The document of `GET /integrations/{id}/requirements`: only what the policy discloses."""

from pathlib import Path

import msgspec

from issuer.service.http.public_documents import requirements
from tests.support.policies import ISSUER_URL as URL
from tests.support.policies import POLICY, load

OPAQUE = "{client_id: x, client_secret_file: /x, token_prefix: acme_}"
REUSABLE = f"""version: 1
providers:
  apps: {{profile: oauth, issuer: "https://apps.example"}}
  opaque: {{profile: oauth-introspection, issuer: "https://o.example", introspection: {OPAQUE}}}
  robots: {{profile: pat}}
  hub: {{profile: huggingface}}
"""
IDENTITIES = """
  - {id: app, provider: apps, pins: {client_id: "a", sub: "a"}}
  - {id: opaque-app, provider: opaque, pins: {client_id: "b", sub: "b"}}
  - {id: robot, provider: robots, pins: {account: "c"}}
  - {id: account, provider: hub, pins: {id: "d", token_role: "write"}}
"""


def test_requirements_of_reusable_credentials_have_their_rules_and_no_secret(tmp_path: Path) -> None:
    policy = POLICY.replace("mode: active", "mode: active\npublic: true")
    head, _, rest = policy.partition("identities:")
    text = f"{head}identities:{IDENTITIES}{rest[rest.index('grants:') :]}"
    document = requirements(URL, load(tmp_path, REUSABLE, inspect_ai=text))["inspect-ai"].answer("").body
    required = msgspec.json.decode(document)
    common = {"nonce": "required", "require": {}}
    scoped = {**common, "scope": "tokens:issue"}
    assert required["identities"] == [
        {"provider": "apps", "kind": "access-token", "issuer": "https://apps.example", "audience": URL,
         "algorithms": ["RS256", "PS256", "ES256", "EdDSA"], "max_lifetime_s": 3600, "max_age_s": 3600,
         "pins": ["client_id", "sub"], **scoped},
        {"provider": "opaque", "kind": "introspection", "issuer": "https://o.example", "audience": URL,
         "pins": ["client_id", "sub"], **scoped},
        {"provider": "robots", "kind": "pat", "issuer": URL, "pins": ["account"], **scoped},
        {"provider": "hub", "kind": "huggingface", "issuer": "https://huggingface.co", "pins": ["id", "token_role"], **common},
    ]  # fmt: skip
    (example,) = required["requests"]
    assert example["headers"]["Authorization"] == "Bearer <access token>"
    assert example["body"]["nonce"].startswith("<"), "a placeholder"
    assert b"client_secret_file" not in document
    assert b"acme_" not in document
    text = policy.replace("identities:", f"identities:{IDENTITIES.rstrip()}", 1)
    providers = REUSABLE + "  github-actions: {profile: github-actions}\n"
    (tmp_path / "mixed").mkdir()
    document = requirements(URL, load(tmp_path / "mixed", providers, inspect_ai=text))["inspect-ai"].answer("").body
    ci, reusable = msgspec.json.decode(document)["requests"]
    assert (ci["headers"]["Authorization"], "nonce" in ci["body"]) == ("Bearer <identity token>", False)
    assert (reusable["headers"]["Authorization"], "nonce" in reusable["body"]) == ("Bearer <access token>", True)


def test_requirements_have_only_what_the_policy_discloses(tmp_path: Path) -> None:
    policy = POLICY.replace("mode: active", "mode: active\npublic: true\ndisclose: []")
    text = policy.replace(
        '      ref: "refs/heads/main"\n', '      ref: "refs/heads/main"\n      event_name: {any_of: ["push"]}\n'
    )
    raw = requirements(URL, load(tmp_path, inspect_ai=text))["inspect-ai"].answer("").body
    document = msgspec.json.decode(raw)
    (identity,) = document["identities"]
    assert sorted(identity["require"]) == ["event_name", "ref", "runner_environment"]
    assert not {"frameworks"} & document.keys()
    assert "events" not in identity
    for hidden in (b"refs/heads/main", b"github-hosted", b"0.3.100", b"push"):
        assert hidden not in raw, hidden
