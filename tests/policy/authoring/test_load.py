"""The policy loader: what it takes, and every rule that it enforces with the place and the reason that it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.dev.sandbox import write_policies
from issuer.errors import InputError
from issuer.formats import jcs, jose
from issuer.identity.profiles import PROFILES
from issuer.identity.table import Bounded, Introspection, KeySource
from issuer.policy.authoring.load import MAX_SHARING, check_policies, load_policies
from tests.support.policies import ISSUER_URL, NOW, POLICY, PROVIDERS, REUSABLE, changed, load, write
from tests.support.roca import roca_modulus
from tests.support.shared import ROOT

SAMPLES = ROOT / "policies"


def refused(folder: Path, providers: str = PROVIDERS, *, development: bool = False, **policies: str) -> InputError:
    with pytest.raises(InputError) as error:
        load(folder, providers, development=development, **policies)
    return error.value


def line_and_column(text: str, snippet: str) -> tuple[int, int]:
    """Where a snippet begins that occurs in the text once, both from 1."""
    assert text.count(snippet) == 1, snippet
    before = text[: text.index(snippet)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def check(error: InputError, file: Path, text: str, snippet: str, code: Code, reason: str) -> None:
    line, column = line_and_column(text, snippet)
    assert str(error) == f"{file}:{line}:{column}: {code}: {error.detail}"
    assert error.code is code
    assert reason in error.detail


# -- what loads --------------------------------------------------------------------------------------------------------


def test_the_shipped_samples_load() -> None:
    policies = load_policies(SAMPLES, ISSUER_URL)
    assert set(policies.policies) == {"inspect-ai", "lm-eval"}
    assert {provider.id for provider in policies.providers.values()} == {"github-actions", "gitlab-ci"}


def test_the_shipped_samples_are_beyond_doubt() -> None:
    policies, findings = check_policies(SAMPLES, ISSUER_URL, NOW)
    assert policies is not None
    assert findings == ()


def test_the_sandbox_of_the_samples_loads(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies", "http://127.0.0.1:1")
    assert set(load_policies(tmp_path / "policies", ISSUER_URL, development=True).policies) >= {"inspect-ai"}


def test_what_a_provider_leaves_out_comes_from_its_profile(tmp_path: Path) -> None:
    github, gitlab, acme = load(tmp_path).providers.values()
    profile = PROFILES["github-actions"]
    assert github.issuer == profile.issuer == "https://token.actions.githubusercontent.com"
    assert github.audience == acme.audience == ISSUER_URL
    assert (github.algorithms, github.events, github.uses) == (profile.algorithms, profile.events, 1)
    assert (github.max_lifetime_s, github.max_age_s) == (profile.max_lifetime_s, profile.max_age_s)
    assert (gitlab.uses, acme.keys) == (10, "discovery")


def test_what_a_provider_says_wins_over_its_profile(tmp_path: Path) -> None:
    said = """
version: 1
providers:
  ghes:
    profile: github-actions
    issuer: "https://ghes.example/_services/token"
    audience: "https://another.example"
    algorithms: [ES256]
    max_lifetime_s: 600
    max_age_s: 300
    uses: single
    keys: {jwks_uri: "https://ghes.example/jwks"}
    events: [workflow_dispatch]
"""
    (provider,) = load(tmp_path, said).providers.values()
    assert (provider.issuer, provider.audience) == ("https://ghes.example/_services/token", "https://another.example")
    assert (provider.algorithms, provider.events, provider.uses) == (("ES256",), ("workflow_dispatch",), 1)
    assert (provider.max_lifetime_s, provider.max_age_s) == (600, 300)
    assert provider.keys == KeySource(jwks_uri="https://ghes.example/jwks")


def test_the_digest_is_over_the_policy_after_defaults_and_the_effective_provider(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    ((registration,),) = policies.registrations.values()
    value = json.loads(policies.digests[registration.digest])
    assert registration.digest == jcs.digest_of_bytes(policies.digests[registration.digest]) == jcs.digest(value)
    assert set(value) == {"policy", "provider"}
    assert value["policy"]["limits"]["quarantine_s"] == 900
    assert value["provider"] == json.loads(msgspec.json.encode(registration.provider))
    assert value["provider"]["events"] == list(PROFILES["github-actions"].events)


@pytest.mark.parametrize(
    ("old", "new"),
    [("refs/heads/main", "refs/heads/next"), ("ttl_s: 3600", "ttl_s: 60"), ("burst: 200", "burst: 201")],
)
def test_every_change_of_a_policy_changes_its_digest(tmp_path: Path, old: str, new: str) -> None:
    before = set(load(tmp_path, inspect_ai=POLICY).digests)
    assert before.isdisjoint(load(tmp_path, inspect_ai=changed(POLICY, old, new)).digests)
    events = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: [push]}")
    assert before.isdisjoint(load(tmp_path, events, inspect_ai=POLICY).digests)


def test_a_comment_and_another_order_of_members_leave_the_digest(tmp_path: Path) -> None:
    before = load(tmp_path, inspect_ai=POLICY).digests
    moved = "# a comment\n" + changed(POLICY, "mode: active\n", "") + "mode: active\n"
    assert load(tmp_path, inspect_ai=moved).digests == before


def test_each_part_of_a_directory_counts_into_its_digest(tmp_path: Path) -> None:
    seen = {load(tmp_path, inspect_ai=POLICY).digest}
    assert load(tmp_path, inspect_ai="# a comment\n" + POLICY).digest in seen
    seen.add(load(tmp_path, inspect_ai=changed(POLICY, "burst: 200", "burst: 201")).digest)
    seen.add(load(tmp_path, changed(PROVIDERS, "id.acme.example", "other.example"), inspect_ai=POLICY).digest)
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    seen.add(load(tmp_path, inspect_ai=POLICY, other=other).digest)
    assert len(seen) == 4
    assert all(digest.startswith("sha256:") for digest in seen)


def test_the_digest_of_a_policy_tells_its_providers_apart(tmp_path: Path) -> None:
    gitlab = '  - id: other\n    provider: gitlab-ci\n    pins: {project_id: "1", namespace_id: "2"}\n'
    gitlab += '    require: {environment_protected: "true"}\n'
    policies = load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", gitlab + "grants:\n"))
    registrations = [registration for bucket in policies.registrations.values() for registration in bucket]
    assert {registration.digest for registration in registrations} == set(policies.digests)
    for registration in registrations:
        value = json.loads(policies.digests[registration.digest])
        assert value["provider"]["id"] == registration.identity.provider
        assert jcs.digest(value) == registration.digest


# -- all errors, not only the first ------------------------------------------------------------------------------------


def found(folder: Path, providers: str = PROVIDERS, **policies: str) -> list[tuple[str, str, str]]:
    """Each error as file name, pointer and detail."""
    _, findings = check_policies(write(folder, providers, **policies), ISSUER_URL, NOW)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert errors == sorted(errors, key=lambda f: (f.place.file, f.place.line, f.place.column))
    return [(Path(finding.place.file).name, finding.pointer, finding.detail) for finding in errors]


def test_every_error_of_every_file_is_found_in_order(tmp_path: Path) -> None:
    bad_types = changed(changed(POLICY, "version: 1", 'version: "1"'), 'repository_id: "7"', "repository_id: 7")
    bad_types = changed(changed(bad_types, "burst: 200", "brust: 200"), "  tasks:", "  taks:")
    bad_rules = changed(changed(POLICY, "integration: inspect-ai", "integration: other"), '"cais/*"', '"cais"')
    bad_rules = changed(changed(bad_rules, ">=0.3.100,<0.4", "latest"), "provider: github-actions", "provider: github")
    bad_table = changed(changed(PROVIDERS, "{bounded: 10}", "none"), "  acme:", "  Acme:")
    assert found(tmp_path, bad_table, a=bad_types, other=bad_rules, c="a: [", d=POLICY) == [
        ("a.yaml", "/version", "expected a whole number, got text: write it without quotes"),
        ("a.yaml", "/identities/0/pins/repository_id", "expected text, got a whole number: put it in double quotes"),
        ("a.yaml", "/grants", "object missing required field `tasks`"),
        ("a.yaml", "/grants/taks", "this member is not known here (did you mean `tasks`?)"),
        ("a.yaml", "/limits/identity", "object missing required field `burst`"),
        ("a.yaml", "/limits/identity/brust", "this member is not known here (did you mean `burst`?)"),
        ("c.yaml", "", "this [ is never closed: write ] where it ends"),
        ("d.yaml", "/integration", "this integration's file is inspect-ai.yaml"),
        ("other.yaml", "/grants/frameworks/0/versions", "must be a PEP 440 range such as `>=0.3,<0.4`"),
        ("other.yaml", "/grants/benchmarks/1", "must be `owner/name`; each side may have `*`, which never matches `/`"),
        ("providers.yaml", "/providers/gitlab-ci/uses", "invalid enum value 'none'"),
    ]


def test_a_broken_provider_does_not_make_its_identities_wrong(tmp_path: Path) -> None:
    broken = changed(PROVIDERS, "{profile: github-actions}", "{profile: github}")
    assert [name for name, _, _ in found(tmp_path, broken, inspect_ai=POLICY)] == ["providers.yaml"]
    assert [name for name, _, _ in found(tmp_path, "a: [", inspect_ai=POLICY)] == ["providers.yaml"]


def test_what_rests_on_a_broken_table_or_benchmark_is_not_tested(tmp_path: Path) -> None:
    tested = POLICY + (
        'tests: [{name: x, provider: github-actions, identity: {repository_id: "7"}, expect: granted}]\n'
    )
    broken = changed(PROVIDERS, "{profile: github-actions}", "{profile: github}")
    assert [name for name, _, _ in found(tmp_path, broken, inspect_ai=tested)] == ["providers.yaml"]
    (tmp_path / "benchmarks" / "a" / "b").mkdir(parents=True)
    (tmp_path / "benchmarks" / "a" / "b" / "eval.yaml").write_text("name: 7\n")
    assert {name for name, _, _ in found(tmp_path, inspect_ai=tested)} == {"eval.yaml"}


def test_a_sound_file_is_tested_beside_a_broken_one(tmp_path: Path) -> None:
    failing = POLICY + (
        'tests: [{name: x, provider: github-actions, identity: {repository_id: "7"}, expect: granted}]\n'
    )
    assert [name for name, _, _ in found(tmp_path, broken="a: [", inspect_ai=failing)] == [
        "broken.yaml", "inspect-ai.yaml",
    ]  # fmt: skip


def test_the_first_error_says_how_many_more_there_are(tmp_path: Path) -> None:
    text = changed(changed(POLICY, "version: 1", 'version: "1"'), "ttl_s: 3600", "ttl_s: 0")
    error = refused(tmp_path, inspect_ai=text)
    assert (error.pointer, error.detail) == (
        "/version", "expected a whole number, got text: write it without quotes (and 1 more: run `issuer policy check`)",
    )  # fmt: skip


def test_a_directory_with_an_error_gives_no_policies(tmp_path: Path) -> None:
    write(tmp_path, inspect_ai=POLICY, other="a: [")
    assert check_policies(tmp_path, ISSUER_URL, NOW)[0] is None


@pytest.mark.parametrize(
    ("metrics", "warned"),
    [
        ('["*", {id: "acc", min: 0}]', ["* already grants every value of these metrics"]),
        ('[{id: "acc", min: 0}, {id: "a*"}]', ["a* already grants every value of these metrics"]),
        ('["a*c", {id: "a*", min: 0}]', []),
        ('["f1", {id: "acc", min: 0}]', []),
        ('["*", {id: "pass@*", max: 1}]', []),
        ('[{id: "acc", min: 0}, {id: "acc", max: 1}]', []),
    ],
)
def test_a_range_that_a_wider_grant_makes_pointless_is_warned_of(
    tmp_path: Path, metrics: str, warned: list[str]
) -> None:
    write(tmp_path, inspect_ai=changed(POLICY, '["*"]\ntoken', f"{metrics}\ntoken"))
    policies, findings = check_policies(tmp_path, ISSUER_URL, NOW)
    assert policies is not None
    assert [finding.detail for finding in findings if finding.code is Code.LINT_SHADOWED] == warned


# -- the types of an integration's file --------------------------------------------------------------------------------

UNKNOWN = "not known here"

SCHEMA = [
    # unknown members, everywhere
    ("mode: active", "mode: active\nsuite: [1]", "[1]", UNKNOWN),
    ("provider: github", "disclose: true\n    provider: github", "true", UNKNOWN),
    ('any_of: ["github-hosted"]', 'any_of: ["github-hosted"], none_of: "x"', '"x"', UNKNOWN),
    ("  tasks:", '  languages: ["x"]\n  tasks:', '["x"]', UNKNOWN),
    ("  tasks:", '  deny: {metrics: ["x"]}\n  tasks:', '["x"]', UNKNOWN),
    ('metrics: ["*"]', 'metrics: [{id: "*", most: 7}]', "7}", UNKNOWN),
    ("limits:", "tests: [{name: x, expect: granted, when: 7}]\nlimits:", "7}", UNKNOWN),
    ("limits:", "tests: [{name: x, expect: granted, override: {provider: x}}]\nlimits:", "x}}", UNKNOWN),
    ('versions: ">', 'range: "x", versions: ">', '"x"', UNKNOWN),
    ("ttl_s: 3600", "ttl_s: 3600, ttl: 7", "7}", UNKNOWN),
    ("limits:", "limits:\n  source: 8", "8\n", UNKNOWN),
    ("burst: 200", "burst: 200, jitter: 9", "9}", UNKNOWN),
    # missing ones
    ("version: 1\n", "", "integration: inspect", "missing required field `version`"),
    ("mode: active\n", "", "version: 1", "missing required field `mode`"),
    ('contacts: ["evals@example.org"]\n', "", "version: 1", "missing required field `contacts`"),
    ('token: {audiences: ["https://hub.example"], ttl_s: 3600}\n', "", "version: 1", "missing required field `token`"),
    ('audiences: ["https://hub.example"], ', "", "{ttl_s", "missing required field `audiences`"),
    ("    provider: github-actions\n", "", "id: main", "missing required field `provider`"),
    ('    pins: {repository_id: "7", repository_owner_id: "6"}\n', "", "id: main", "missing required field `pins`"),
    ('name: "inspect-ai", ', "", "{versions", "missing required field `name`"),
    ("  benchmarks: [", "  # benchmarks: [", "frameworks:", "missing required field `benchmarks`"),
    ("  models: [", "  # models: [", "frameworks:", "missing required field `models`"),
    ("  tasks: [", "  # tasks: [", "frameworks:", "missing required field `tasks`"),
    ("  metrics: [", "  # metrics: [", "frameworks:", "missing required field `metrics`"),
    # an unquoted id says what to do
    ('repository_id: "7"', "repository_id: 7", "7, rep", "expected text, got a whole number: put it in double quotes"),
    ('owner_id: "6"', "owner_id: 6", "6}", "expected text, got a whole number: put it in double quotes"),
    ("id: main", "id: 1", "1\n    provider", "put it in double quotes"),
    # other types
    ("version: 1", "version: 2", "2\n", "invalid enum value 2"),
    ("version: 1", "version: true", "true", "expected a whole number"),
    ("version: 1", "version: 1.0", "1.0", "expected a whole number"),
    ("mode: active", "mode: stagd", "stagd", "invalid enum value 'stagd'"),
    ("mode: active", "mode: true", "true", "expected text"),
    ('contacts: ["evals@example.org"]', "contacts: []", "[]", "length >= 1"),
    ('contacts: ["evals@example.org"]', 'contacts: "me"', '"me"', "expected a list, got text"),
    ('pins: {repository_id: "7", repository_owner_id: "6"}', "pins: {}", "{}", "length >= 1"),
    ('"refs/heads/main"', "1.5", "1.5", "got a number"),
    ('"refs/heads/main"', "null", "null", "got nothing"),
    ('"refs/heads/main"', '["a"]', '["a"]', "got a list"),
    ('any_of: ["github-hosted"]', "any_of: []", "[]", "length >= 1"),
    ('any_of: ["github-hosted"]', 'any_of: "github-hosted"', '"github-hosted"', "expected a list"),
    ('any_of: ["github-hosted"]', 'glob: ""', '""', "length >= 1"),
    ('benchmarks: ["openai/gsm8k", "cais/*"]', "benchmarks: []", "[]", "length >= 1"),
    ('tasks: ["*"]', 'tasks: "*"', '"*"\n  metrics', "expected a list"),
    ('metrics: ["*"]', "metrics: []", "[]", "length >= 1"),
    ('metrics: ["*"]', "metrics: [{min: 0}]", "{min: 0}", "missing required field `id`"),
    ('metrics: ["*"]', 'metrics: [{id: x, max: "1"}]', '"1"}', "expected a number"),
    ('  metrics: ["*"]', '  metrics: ["*"]\n  command: yes please', "yes please", "invalid enum value"),
    ('  metrics: ["*"]', '  metrics: ["*"]\n  registered_only: 1', "1\ntoken", "expected true or false"),
    ("mode: active", "mode: active\npublic: 7", "7\ncontacts", "expected true or false"),
    ("mode: active", "mode: active\ndisclose: [contacts]", "contacts]", "invalid enum value 'contacts'"),
    ('    - {name: "inspect-ai", versions: ">=0.3.100,<0.4"}', "    []", "[]", "length >= 1"),
    ("ttl_s: 3600", "ttl_s: 0", "0}\nlimits", ">= 1"),
    ("ttl_s: 3600", "ttl_s: 86401", "86401", "<= 86400"),
    ("ttl_s: 3600", 'ttl_s: "3600"', '"3600"', "expected a whole number, got text"),
    ('"https://hub.example"', '""', '""', "length >= 1"),
    ('audiences: ["https://hub.example"]', "audiences: []", "[]", "length >= 1"),
    ("count: 600", "count: 0", "0, per", ">= 1"),
    ("burst: 200", "burst: 50001", "50001", "<= 50000"),
    ("identity: {count: 600, per_s: 3600, burst: 200}", "identity: {count: 5}", "{count", "missing required field"),
    ("limits:\n", "limits:\n  quarantine_s: 86401\n", "86401", "<= 86400"),
]


@pytest.mark.parametrize(("old", "new", "snippet", "reason"), SCHEMA, ids=[f"{new!r}" for _, new, _, _ in SCHEMA])
def test_a_member_of_another_type_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, snippet: str, reason: str
) -> None:
    text = changed(POLICY, old, new)
    error = refused(tmp_path, inspect_ai=text)
    code = Code.FILE_UNKNOWN_MEMBER if reason == UNKNOWN else Code.FILE_SCHEMA
    check(error, tmp_path / "inspect-ai.yaml", text, snippet, code, reason)


@pytest.mark.parametrize("kept", ["frameworks", "benchmarks", "models", "tasks", "metrics"])
def test_nothing_is_granted_by_leaving_the_other_grants_out(tmp_path: Path, kept: str) -> None:
    head, _, rest = POLICY.partition("grants:\n")
    grants = {
        "frameworks": "[{name: x}]", "benchmarks": '["*/*"]', "models": '["*/*"]', "tasks": '["*"]', "metrics": '["*"]'
    }  # fmt: skip
    text = f"{head}grants: {{{kept}: {grants[kept]}}}\n{rest[rest.index('token:') :]}"
    error = refused(tmp_path, inspect_ai=text)
    check(error, tmp_path / "inspect-ai.yaml", text, f"{{{kept}: ", Code.FILE_SCHEMA, "missing required field")


# -- the rules of an integration's file --------------------------------------------------------------------------------

TWICE = """\
  - id: main
    provider: gitlab-ci
    pins: {project_id: "1", namespace_id: "2"}
    require: {environment_protected: "true"}
grants:
"""

RULES = [
    ("integration: inspect-ai", "integration: Inspect", "Inspect\n", "lowercase words joined by `-`"),
    ("integration: inspect-ai", 'integration: "inspect-ai\\n"', '"inspect-ai\\n"', "lowercase words joined by `-`"),
    ("integration: inspect-ai", 'integration: "inspect-аi"', '"inspect-аi"', "lowercase words joined by `-`"),
    ("integration: inspect-ai", "integration: inspect", "inspect\n", "this integration's file is inspect.yaml"),
    ("id: main", "id: Main", "Main", "an identity's id is lowercase words joined by `-`"),
    ("id: main", 'id: ""', '""', "an identity's id is lowercase words joined by `-`"),
    ("grants:\n", TWICE, "main\n    provider: gitlab", "another identity of this file has this id"),
    ("provider: github-actions", "provider: github", "github\n", "not a provider of providers.yaml, which has acme, github-actions"),
    ('repository_id: "7", ', "", '{repository_owner_id: "6"}', "github-actions identities must pin repository_id"),
    (', repository_owner_id: "6"', "", '{repository_id: "7"}', "must pin repository_owner_id"),
    ('owner_id: "6"', 'owner_id: "6", sub: "s"', '"s"', "sub is never matched for github-actions"),
    ('owner_id: "6"', 'owner_id: "6", repository: "r"', '"r"', "can be taken over: put it under `names`"),
    ('owner_id: "6"', 'owner_id: "6", reff: "r"', '"r"', "github-actions tokens have no claim of this name"),
    ("      ref: ", '      sub: "s"\n      ref: ', '"s"', "sub is never matched for github-actions"),
    ("      ref: ", '      repository: "r"\n      ref: ', '"r"', "can be taken over: put it under `names`"),
    ("      ref: ", '      repository_owner: {glob: "*"}\n      ref: ', '{glob: "*"}', "put it under `names`"),
    ("      ref: ", "      actor_id: \"1\"\n      ref: ", '"1"', "tokens have no claim of this name that a policy can match"),
    ("      ref: ", '      repository_id: "7"\n      ref: ', '"7", repo', "both pinned and required"),
    ("names: {repository:", "names: {ref:", '"org/evals"', "not a name claim of github-actions"),
    ("names: {repository:", "names: {sub:", '"org/evals"', "not a name claim of github-actions"),
    ('{any_of: ["github-hosted"]}', "{}", "{}", "give exactly one of"),
    ('any_of: ["github-hosted"]', 'any_of: ["a"], glob: "b"', '{any_of: ["a"]', "give exactly one of"),
    ("      ref: ", '      event_name: {glob: "*"}\n      ref: ', '{glob: "*"}', "list each event_name"),
    ("    require:", "    expires: 2027-02-29\n    require:", "2027-02-29", "must be a date such as 2027-06-30"),
    ("    require:", '    expires: "2027-06-30T00:00:00Z"\n    require:', '"2027', "must be a date"),
    ("    require:", '    expires: "2027-W01-1"\n    require:', '"2027', "must be a date"),
    ("    require:", '    expires: "2027-06-30\\n"\n    require:', '"2027', "must be a date"),
    ("    require:", '    expires: "２027-06-30"\n    require:', '"２027', "must be a date"),
    ('">=0.3.100,<0.4"', '"latest"', '"latest"', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '"0.3.100"', '"0.3.100"', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '">=0.3.100 <0.4"', '">=0.3.100 <0.4"', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '""', '""', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '" , "', '" , "', "must be a PEP 440 range"),
    ('"cais/*"', '"cais"', '"cais"', "must be `owner/name`"),
    ('"cais/*"', '"*"', '"*"]\n  models', "must be `owner/name`"),
    ('"cais/*"', '"cais/*/*"', '"cais/*/*"', "must be `owner/name`"),
    ('"cais/*"', '"/hle"', '"/hle"', "must be `owner/name`"),
    ('"cais/*"', '"cais/"', '"cais/"', "must be `owner/name`"),
    ('"cais/*"', '"cais/*\\n"', '"cais/*\\n"', "must be `owner/name`"),
    ('"cais/*"', '"cаis/*"', '"cаis/*"', "must be `owner/name`"),
    ('"*/*"', '"*/*@main"', '"*/*@main"', "must be `owner/name`"),
    ("  tasks:", '  deny: {benchmarks: ["cais"]}\n  tasks:', '"cais"', "must be `owner/name`"),
    ("  tasks:", '  deny: {models: ["*"]}\n  tasks:', '"*"]}', "must be `owner/name`"),
    ('metrics: ["*"]', "metrics: [{id: x, min: 1, max: 0.5}]", "{id: x", "no value is in the range"),
    ('"https://hub.example"]', '"https://hub.example", "https://hub.example"]', '"https://hub.example"], ',
     "this audience is listed twice"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "snippet", "reason"), RULES, ids=[f"{new!r}" for _, new, _, _ in RULES])
def test_a_broken_rule_is_refused_at_its_place(tmp_path: Path, old: str, new: str, snippet: str, reason: str) -> None:
    text = changed(POLICY, old, new)
    error = refused(tmp_path, inspect_ai=text)
    check(error, tmp_path / "inspect-ai.yaml", text, snippet, Code.FILE_RULE, reason)


@pytest.mark.parametrize("claim", ["user_email", "user_login", "user_identities", "sub", "project_path"])
@pytest.mark.parametrize("where", ["pins", "require"])
def test_people_and_names_are_never_matched_at_gitlab(tmp_path: Path, where: str, claim: str) -> None:
    pins, extra = '"1", namespace_id: "2"', f'{claim}: "x"'
    narrow = 'environment_protected: "true"'
    pinned, required = (f"{pins}, {extra}", narrow) if where == "pins" else (pins, f"{narrow}, {extra}")
    head, _, rest = POLICY.partition("identities:\n")
    identity = (
        f"  - id: main\n    provider: gitlab-ci\n    pins: {{project_id: {pinned}}}\n    require: {{{required}}}\n"
    )
    text = f"{head}identities:\n{identity}{rest[rest.index('grants:') :]}"
    error = refused(tmp_path, inspect_ai=text)
    reason = "put it under `names`" if claim == "project_path" else f"{claim} is never matched for gitlab-ci"
    check(error, tmp_path / "inspect-ai.yaml", text, '"x"', Code.FILE_RULE, reason)


GENERIC = changed(
    POLICY[: POLICY.index("    names:")] + POLICY[POLICY.index("grants:") :],
    'provider: github-actions\n    pins: {repository_id: "7", repository_owner_id: "6"}\n',
    'provider: acme\n    pins: {sub: "robot"}\n    require: {"acme.example/team": "evals"}\n',
)


def test_a_generic_provider_may_match_any_claim_but_those_of_people(tmp_path: Path) -> None:
    assert load(tmp_path, inspect_ai=GENERIC).registrations
    for claim in ("email", "name", "preferred_username"):
        text = changed(GENERIC, '"acme.example/team"', claim)
        error = refused(tmp_path, inspect_ai=text)
        check(error, tmp_path / "inspect-ai.yaml", text, '"evals"', Code.FILE_RULE, f"{claim} is never matched")


def test_a_claim_whose_name_has_a_slash_is_pointed_at(tmp_path: Path) -> None:
    text = changed(GENERIC, '"evals"', "{}")
    error = refused(tmp_path, inspect_ai=text)
    check(error, tmp_path / "inspect-ai.yaml", text, "{}", Code.FILE_RULE, "give exactly one of")
    assert error.pointer == "/identities/0/require/acme.example~1team"


def test_a_generic_identity_must_pin_its_subject(tmp_path: Path) -> None:
    text = changed(GENERIC, '{sub: "robot"}', '{client: "robot"}')
    error = refused(tmp_path, inspect_ai=text)
    check(
        error, tmp_path / "inspect-ai.yaml", text, '{client: "robot"}', Code.FILE_RULE, "oidc identities must pin sub"
    )


@pytest.mark.parametrize("spelling", ["2027-06-30", '"2027-06-30"'])
def test_a_date_may_stand_bare_where_a_registration_ends(tmp_path: Path, spelling: str) -> None:
    text = changed(POLICY, "    require:", f"    expires: {spelling}\n    require:")
    ((registration,),) = load(tmp_path, inspect_ai=text).registrations.values()
    assert registration.identity.expires == "2027-06-30"


@pytest.mark.parametrize(("name", "shared"), [("inspect-ai", True), ("Inspect-AI", True), ("inspect-ai-2", False)])
def test_a_framework_that_two_integrations_may_speak_for_is_doubted(tmp_path: Path, name: str, shared: bool) -> None:
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    other = changed(other, '{name: "inspect-ai", versions', f'{{name: "{name}", versions')
    write(tmp_path, inspect_ai=POLICY, other=other)
    policies, found = check_policies(tmp_path, ISSUER_URL, NOW)
    assert policies is not None
    doubts = [finding for finding in found if finding.code is Code.LINT_FRAMEWORK_SHARED]
    assert len(doubts) == shared
    for doubt in doubts:
        assert (Path(doubt.place.file).name, doubt.pointer) == ("other.yaml", "/grants/frameworks/0/name")
        assert doubt.detail.startswith("inspect-ai may speak for this framework, too")
        assert doubt.place.line == line_and_column(other, f'"{name}"')[0]


# -- overlap -----------------------------------------------------------------------------------------------------------


def identity(name: str, require: str, pins: str = "") -> str:
    return (
        f"  - id: {name}\n    provider: github-actions\n"
        f'    pins: {{repository_id: "7", repository_owner_id: "6"{pins}}}\n    require: {{{require}}}\n'
        '    any_ref: true\n    reason: "what is tested is something else"\n'
    )


def two(first: str, second: str, integration: str = "inspect-ai") -> str:
    head, _, rest = changed(POLICY, "integration: inspect-ai", f"integration: {integration}").partition("identities:\n")
    return f"{head}identities:\n{first}{second}{rest[rest.index('grants:') :]}"


APART = [
    ('ref: "refs/heads/main"', 'ref: "refs/heads/next"'),
    ('ref: "refs/heads/main"', 'ref: {any_of: ["refs/heads/a", "refs/heads/b"]}'),
    ("run_attempt: 1", 'run_attempt: "1"'),
    ("ref_protected: true", "ref_protected: 1"),
    ('ref: "a", sha: "1"', 'ref: "a", sha: "2"'),
]
OVERLAPPING = [
    ('ref: "a"', 'ref: "a"'),
    ('ref: "a"', ""),
    ('ref: "a"', 'sha: "b"'),
    ('ref: "a"', 'ref: {any_of: ["b", "a"]}'),
    ('ref: {glob: "refs/heads/*"}', 'ref: {glob: "refs/tags/*"}'),  # patterns are not compared, even these
    ('ref: "refs/heads/main"', 'ref: {glob: "refs/tags/*"}'),
]


@pytest.mark.parametrize(("first", "second"), APART)
def test_an_exact_value_tells_two_identities_apart(tmp_path: Path, first: str, second: str) -> None:
    ((one, other),) = load(
        tmp_path, inspect_ai=two(identity("one", first), identity("two", second))
    ).registrations.values()
    assert {one.identity.id, other.identity.id} == {"one", "two"}


def test_a_pin_tells_two_identities_apart(tmp_path: Path) -> None:
    by_pin = two(identity("one", "", ', enterprise_id: "1"'), identity("two", "", ', enterprise_id: "2"'))
    assert load(tmp_path, inspect_ai=by_pin).registrations
    pin_and_requirement = two(identity("one", "", ', enterprise_id: "1"'), identity("two", 'enterprise_id: "2"'))
    assert load(tmp_path, inspect_ai=pin_and_requirement).registrations


@pytest.mark.parametrize(("first", "second"), [*OVERLAPPING, *[(second, first) for first, second in OVERLAPPING]])
def test_two_identities_that_one_token_could_match_are_refused(tmp_path: Path, first: str, second: str) -> None:
    text = two(identity("one", first), identity("two", second))
    error = refused(tmp_path, inspect_ai=text)
    reason = "overlaps inspect-ai/one: one token could match both"
    check(error, tmp_path / "inspect-ai.yaml", text, "id: two", Code.FILE_RULE, reason)


def test_identities_of_two_files_overlap_too(tmp_path: Path) -> None:
    first = two(identity("one", 'ref: "a"'), "", "alpha")
    second = two(identity("one", ""), "", "beta")
    error = refused(tmp_path, alpha=first, beta=second)
    check(error, tmp_path / "beta.yaml", second, "id: one", Code.FILE_RULE, "overlaps alpha/one")


def test_an_overlap_is_told_once_and_fails_no_test(tmp_path: Path) -> None:
    case = (
        "tests: [{name: x, provider: github-actions, expect: granted, identity: "
        '{repository_id: "7", repository_owner_id: "6", event_name: push}}]\n'
    )
    first = two(identity("one", ""), "", "alpha") + case
    second = two(identity("one", ""), "", "beta") + case
    assert [(name, pointer) for name, pointer, _ in found(tmp_path, alpha=first, beta=second)] == [
        ("beta.yaml", "/identities/0"),
    ]


def test_identities_of_two_providers_do_not_overlap(tmp_path: Path) -> None:
    providers = PROVIDERS + '  ghes: {profile: github-actions, issuer: "https://ghes.example/_services/token"}\n'
    other = identity("two", "").replace("provider: github-actions", "provider: ghes")
    assert len(load(tmp_path, providers, inspect_ai=two(identity("one", ""), other)).registrations) == 2


# -- providers ---------------------------------------------------------------------------------------------------------


def jwk(**changes: object) -> dict[str, object]:
    return {**jose.public_jwk(Ed25519PrivateKey.from_private_bytes(b"k" * 32).public_key()), **changes}


ROCA = jose.base64url_encode(roca_modulus(2048, 126, Random(1)).to_bytes(256, "big"))


def static(*keys: object) -> str:
    return f"keys: {{static: {json.dumps(keys)}}}"


PROVIDER_FAULTS = [
    ("version: 1\n", "", "providers:\n", Code.FILE_SCHEMA, "missing required field `version`"),
    ("version: 1", "version: 2", "2\n", Code.FILE_SCHEMA, "invalid enum value 2"),
    ("version: 1", "version: 1\nissuers: 7", "7\n", Code.FILE_UNKNOWN_MEMBER, UNKNOWN),
    ("profile: oidc", "profile: oidc\n    discovery: 7", "7\n", Code.FILE_UNKNOWN_MEMBER, UNKNOWN),
    ("{profile: github-actions}", "{}", "{}", Code.FILE_SCHEMA, "missing required field `profile`"),
    ("acme:", "Acme:", "profile: oidc", Code.FILE_RULE, "a provider's id is lowercase words joined by `-`"),
    ("acme:", '"acme/x":', "profile: oidc", Code.FILE_RULE, "a provider's id is lowercase words joined by `-`"),
    ("profile: oidc", "profile: oidcc", "oidcc", Code.FILE_RULE, "not a profile; the profiles are "),
    ('    issuer: "https://id.acme.example"\n', "", "profile: oidc", Code.FILE_RULE, "needs an `issuer`"),
    ("profile: oidc", "profile: oidc\n    events: [push]", "[push]", Code.FILE_RULE, "do not say what started a job"),
    ("profile: oidc", "profile: oidc\n    uses: many", "many", Code.FILE_SCHEMA, "invalid enum value 'many'"),
    ("{bounded: 10}", "{bounded: 0}", "0}", Code.FILE_SCHEMA, ">= 1"),
    ("{bounded: 10}", "{bounded: 1001}", "1001}", Code.FILE_SCHEMA, "<= 1000"),
    ("{bounded: 10}", "{bounded: 1, per: 2}", "2}", Code.FILE_UNKNOWN_MEMBER, UNKNOWN),
    ("{bounded: 10}", "10", "10", Code.FILE_SCHEMA, "got a whole number"),
    ("profile: oidc", "profile: oidc\n    max_lifetime_s: 86401", "86401", Code.FILE_SCHEMA, "<= 86400"),
    ("profile: oidc", "profile: oidc\n    max_age_s: 0", "0\n", Code.FILE_SCHEMA, ">= 1"),
    ("profile: oidc", 'profile: oidc\n    audience: ""', '""', Code.FILE_SCHEMA, "length >= 1"),
    ("profile: oidc", "profile: oidc\n    algorithms: []", "[]", Code.FILE_SCHEMA, "length >= 1"),
    *[
        ("profile: oidc", f"profile: oidc\n    algorithms: [RS256, {name}]", "[RS256", Code.FILE_RULE, "asymmetric")
        for name in ("none", "NONE", "HS256", "rs256", "RS1", "ES256K", '"RS256\\n"', '""')
    ],
    # where its keys are
    ("profile: oidc", "profile: oidc\n    keys: jwks", "jwks", Code.FILE_SCHEMA, "invalid enum value 'jwks'"),
    ("profile: oidc", "profile: oidc\n    keys: {}", "{}", Code.FILE_RULE, "exactly one of `jwks_uri` and `static`"),
    ("profile: oidc", "profile: oidc\n    keys: {uri: 7}", "7}", Code.FILE_UNKNOWN_MEMBER, UNKNOWN),
    ("profile: oidc", "profile: oidc\n    keys: {static: []}", "[]", Code.FILE_SCHEMA, "length >= 1"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "https://a.example", static: [{}]}', "{jwks_uri",
     Code.FILE_RULE, "exactly one of"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "http://a.example"}', '"http://a', Code.FILE_RULE,
     "must be https"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "https://u@a.example"}', '"https://u', Code.FILE_RULE,
     "must be a plain URL"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "snippet", "code", "reason"), PROVIDER_FAULTS, ids=[f"{fault[1]!r}" for fault in PROVIDER_FAULTS]
)
def test_a_fault_of_the_provider_table_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, snippet: str, code: Code, reason: str
) -> None:
    text = changed(PROVIDERS, old, new)
    error = refused(tmp_path, text)
    check(error, tmp_path / "providers.yaml", text, snippet, code, reason)


@pytest.mark.parametrize(
    ("issuer", "reason"),
    [
        (ISSUER_URL, "this service cannot be its own identity provider"),
        ("http://id.acme.example", "must be https"),
        ("http://localhost:8080", "must be https"),
        ("file:///etc/keys", "must be a plain URL"),
        ("id.acme.example", "must be a plain URL"),
        ("https://user@id.acme.example", "must be a plain URL"),
        ("https://id.acme.example?x=1", "must be a plain URL"),
        ("https://id.acme.example#", "must be a plain URL"),
        ("https://id.acme.example:0", "must be a plain URL"),
        ("https://id.аcme.example", "must be a plain URL"),
        ("https://[::1", "must be a plain URL"),
        ("https://id.acme.example\\n", "must be a plain URL"),
        ("https://id.acme.example\\\\evil", "must be a plain URL"),
    ],
)
def test_an_issuer_is_a_plain_https_url_of_someone_else(tmp_path: Path, issuer: str, reason: str) -> None:
    text = changed(PROVIDERS, '"https://id.acme.example"', f'"{issuer}"')
    error = refused(tmp_path, text)
    check(error, tmp_path / "providers.yaml", text, f'"{issuer}"', Code.FILE_RULE, reason)


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:8443", "http://[::1]:8443/x", "https://id.acme.example/"])
def test_plain_http_is_for_loopback_addresses_in_development(tmp_path: Path, issuer: str) -> None:
    text = changed(PROVIDERS, "https://id.acme.example", issuer)
    assert issuer in load(tmp_path, text, development=True).providers
    if issuer.startswith("http:"):
        assert "in development" in refused(tmp_path, text).detail


@pytest.mark.parametrize("host", ["localhost", "10.0.0.1", "169.254.169.254", "0.0.0.0", "127.0.0.1.evil.example"])
def test_plain_http_elsewhere_is_refused_in_development_too(tmp_path: Path, host: str) -> None:
    text = changed(PROVIDERS, "https://id.acme.example", f"http://{host}:8443")
    assert "must be https" in refused(tmp_path, text, development=True).detail


def test_static_keys_load(tmp_path: Path) -> None:
    other = jose.public_jwk(Ed25519PrivateKey.from_private_bytes(b"o" * 32).public_key())
    text = changed(PROVIDERS, "profile: oidc", f"profile: oidc\n    {static(jwk(), other)}")
    keys = [provider.keys for provider in load(tmp_path, text).providers.values()][2]
    assert isinstance(keys, KeySource)
    assert keys.static == [jwk(), other]


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "1"},
        {"kty": "RSA", "kid": "1", "e": "AQAB", "n": "2w" * 40},
        {"kty": "RSA", "kid": "1", "e": "AQAB", "n": ROCA},
        jwk(d="AAAA"),
        jwk(use="enc"),
        jwk(kid=""),
        jwk(alg="ES256"),
        jwk(x="AQ" + "A" * 41),  # the identity point: one signature fits every message
        jwk(kty="EC"),
    ],
    ids=[
        "empty",
        "symmetric",
        "short RSA",
        "ROCA",
        "private",
        "for encryption",
        "no kid",
        "other alg",
        "low order",
        "kty",
    ],
)
def test_a_static_key_that_must_not_verify_is_refused(tmp_path: Path, key: dict[str, object]) -> None:
    text = changed(PROVIDERS, "profile: oidc", f"profile: oidc\n    {static(jwk(), key)}")
    error = refused(tmp_path, text)
    check(error, tmp_path / "providers.yaml", text, json.dumps(key) + "]", Code.FILE_RULE, "not a usable public key")


def test_two_static_keys_with_one_kid_are_refused(tmp_path: Path) -> None:
    other = jose.public_jwk(Ed25519PrivateKey.from_private_bytes(b"o" * 32).public_key())
    twin = {**other, "kid": jwk()["kid"]}
    text = changed(PROVIDERS, "profile: oidc", f"profile: oidc\n    {static(jwk(), twin)}")
    error = refused(tmp_path, text)
    check(error, tmp_path / "providers.yaml", text, json.dumps(twin) + "]", Code.FILE_RULE, "another key also has")


def test_the_uses_of_a_token_are_one_unless_the_table_says_more(tmp_path: Path) -> None:
    single = changed(PROVIDERS, "uses: {bounded: 10}", "uses: single")
    assert [provider.uses for provider in load(tmp_path, single).providers.values()] == [1, 1, 1]
    assert Bounded(bounded=10).bounded == 10


# -- YAML, and the directory as a whole --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "snippet", "code", "reason"),
    [
        ("mode: active", "mode: active\nmode: suspended", "mode: suspended", Code.FILE_DUPLICATE_KEY, "twice"),
        ('repository_id: "7"', 'repository_id: "8", "repository\\u005fid": "7"', '"repository\\u005fid"',
         Code.FILE_DUPLICATE_KEY, "twice"),
        ("token: {", "token: &token {", "&token", Code.FILE_FEATURE, "an anchor"),
        ("mode: active", "mode: *mode", "*mode", Code.FILE_FEATURE, "an alias"),
        ("mode: active", "mode: !!str active", "!!str", Code.FILE_FEATURE, "an explicit tag"),
        ("mode: active", "<<: {mode: active}", "<<", Code.FILE_FEATURE, "a merge key"),
        ('"refs/heads/main"', "no", "no\n", Code.FILE_SCALAR, "quote it"),
        ('"refs/heads/main"', "on", "on\n", Code.FILE_SCALAR, "quote it"),
        ('"refs/heads/main"', "Yes", "Yes", Code.FILE_SCALAR, "quote it"),
        ('"refs/heads/main"', "2027-06-30", "2027-06-30", Code.FILE_SCALAR, "bare date"),
        ('"refs/heads/main"', "12:30", "12:30", Code.FILE_SCALAR, "readers disagree about this number"),
        ('repository_id: "7"', "repository_id: 0123", "0123", Code.FILE_SCALAR, "double quotes"),
        ('repository_id: "7"', "repository_id: 1_000", "1_000", Code.FILE_SCALAR, "double quotes"),
        ('"refs/heads/main"', "", "\n      runner_environment", Code.FILE_SCALAR, "an empty value"),
        ('"refs/heads/main"', "99999999999999999999", "99999999999999999999", Code.FILE_NUMBER, "17 significant"),
        ("limits:", "---\nlimits:", "---", Code.FILE_FEATURE, "a second document"),
        ("limits:", "\tlimits:", "limits:", Code.FILE_SYNTAX, ""),
    ],
)  # fmt: skip
def test_what_readers_disagree_about_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, snippet: str, code: Code, reason: str
) -> None:
    text = changed(POLICY, old, new)
    error = refused(tmp_path, inspect_ai=text)
    assert error.place.file == str(tmp_path / "inspect-ai.yaml")
    assert (error.code, error.place.line > 0, error.place.column > 0) == (code, True, True)
    assert reason in error.detail
    if not snippet.startswith("\n") and code is not Code.FILE_SYNTAX:
        assert (error.place.line, error.place.column) == line_and_column(text, snippet)


@pytest.mark.parametrize("name", ["other.yml", "other.YML", "other.YAML", "other.Yaml", "providers.yml"])
def test_a_file_that_would_be_overlooked_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    error = refused(tmp_path, inspect_ai=POLICY)
    assert str(error) == f"{tmp_path / name}: file.rule: the name of a policy file ends in .yaml: rename this file"


def test_other_files_and_folders_are_not_policies(tmp_path: Path) -> None:
    (tmp_path / ".#inspect-ai.yaml").symlink_to("someone@here.1234")  # an editor's lock: leads nowhere
    (tmp_path / ".inspect-ai.yml").write_text("not a policy")
    (tmp_path / "benchmarks" / "..data").mkdir(parents=True)
    (tmp_path / "benchmarks" / "..data" / "eval.yaml").write_text("not a benchmark")
    (tmp_path / "README.md").write_text("not a policy")
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "x.yaml").write_text("not a policy")
    assert set(load(tmp_path, inspect_ai=POLICY).policies) == {"inspect-ai"}


def test_one_bad_file_refuses_the_whole_directory(tmp_path: Path) -> None:
    bad = changed(POLICY, "integration: inspect-ai", "integration: zebra").replace("mode: active", "mode: off")
    error = refused(tmp_path, inspect_ai=POLICY, zebra=bad)
    assert error.place.file == str(tmp_path / "zebra.yaml")


def test_a_bad_provider_table_refuses_the_whole_directory(tmp_path: Path) -> None:
    assert refused(tmp_path, "providers: {}\n", inspect_ai=POLICY).place.file == str(tmp_path / "providers.yaml")


@pytest.mark.parametrize("raw", [b"", b"\n# nothing\n", b"\xef\xbb\xbfversion: 1\n", b"\xff\xfe", b"- 1\n", b"7\n"])
def test_a_file_that_holds_no_policy_is_refused(tmp_path: Path, raw: bytes) -> None:
    write(tmp_path)
    (tmp_path / "inspect-ai.yaml").write_bytes(raw)
    with pytest.raises(InputError) as error:
        load_policies(tmp_path, ISSUER_URL)
    assert error.value.place.file == str(tmp_path / "inspect-ai.yaml")
    assert error.value.place.line > 0


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as missing:
        load_policies(tmp_path / "nowhere", ISSUER_URL)
    assert (missing.value.code, missing.value.place.file) == (Code.FILE_UNREADABLE, str(tmp_path / "nowhere"))
    write(tmp_path)
    (tmp_path / "inspect-ai.yaml").mkdir()
    with pytest.raises(InputError) as folder:
        load_policies(tmp_path, ISSUER_URL)
    assert str(folder.value) == f"{tmp_path / 'inspect-ai.yaml'}: file.unreadable: Is a directory"


# Run as another user where we are root, who may list everything.
UNLISTABLE = """
import os, pathlib, sys
from issuer.errors import InputError
from issuer.policy.authoring.load import load_policies
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    load_policies(pathlib.Path(sys.argv[1]), "https://issuer.example")
except InputError as error:
    print(error)
"""


def test_a_folder_that_cannot_be_listed_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which another user cannot reach
        folder = write(Path(name), inspect_ai=POLICY)
        for path in folder.iterdir():
            path.chmod(0o644)
        folder.chmod(0o111)
        done = subprocess.run([sys.executable, "-c", UNLISTABLE, name], capture_output=True, text=True, check=False)
        folder.chmod(0o700)
    assert (done.stdout, done.stderr) == (f"{name}: file.unreadable: Permission denied\n", "")


# -- what else may lie in the folder -----------------------------------------------------------------------------------


def checked(folder: Path) -> str:
    """Check a folder in a process that may neither wait for ever nor fill the machine's memory."""
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))"
    program = f"{limits}; from issuer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "policy", "check", str(folder)], capture_output=True, text=True, timeout=120
    )
    return done.stdout + done.stderr


def test_what_has_no_end_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A service that watches the folder would never look at it again."""
    write(tmp_path, inspect_ai=POLICY)
    wanted: dict[Path, str] = {}
    for name in ("{}.yaml", "benchmarks/openai/{}/eval.yaml"):
        pipe, device, large = (tmp_path / name.format(kind) for kind in ("pipe", "device", "large"))
        for path in (pipe, device, large):
            path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(pipe)
        device.symlink_to("/dev/zero")
        large.touch()
        os.truncate(large, 2**32)
        wanted |= dict.fromkeys((pipe, device), "file.unreadable: not a plain file")
        wanted[large] = "file.too_large: larger than"
    said = checked(tmp_path)
    for path, fault in wanted.items():
        assert f"{path}: {fault}" in said


def test_folders_that_contain_themselves_end(tmp_path: Path) -> None:
    """Each of two links doubles what is below it, forty times over."""
    owner = write(tmp_path, inspect_ai=POLICY) / "benchmarks" / "openai"
    owner.mkdir(parents=True)
    (owner / "one").symlink_to(owner)
    (owner / "two").symlink_to(owner)
    assert "good: 1 integration" in checked(tmp_path)


@pytest.mark.parametrize("pattern", ["\u0430rc*", "a b", "a\\nb", "x" * 129])
@pytest.mark.parametrize("place", ["tasks", "metrics", "deny"])
def test_a_pattern_that_no_task_or_metric_can_meet_is_refused(tmp_path: Path, place: str, pattern: str) -> None:
    old = {"tasks": '  tasks: ["*"]\n', "metrics": '  metrics: ["*"]\n', "deny": "token:"}[place]
    new = {"tasks": f'  tasks: ["{pattern}"]\n', "metrics": f'  metrics: [{{id: "{pattern}", max: 1}}]\n',
           "deny": f'  deny: {{tasks: ["{pattern}"]}}\ntoken:'}[place]  # fmt: skip
    with pytest.raises(InputError, match="printable ASCII") as refused:
        load(tmp_path, inspect_ai=changed(POLICY, old, new))
    assert refused.value.pointer == f"/grants/{'deny/tasks' if place == 'deny' else place}/0"


def test_only_so_many_identities_may_share_their_first_pin_because_each_request_asks_them_all(tmp_path: Path) -> None:
    def text(count: int) -> str:
        identities = "".join(
            f'  - {{id: a{n}, provider: acme, pins: {{sub: s}}, require: {{team: "{n}"}}}}\n' for n in range(count)
        )
        head, _, rest = POLICY.partition("  - id: main")
        return head + identities + rest[rest.index("grants:") :]

    assert len(load(tmp_path, inspect_ai=text(MAX_SHARING)).registrations["acme", "s"]) == MAX_SHARING
    with pytest.raises(InputError, match="identities share the first pin of this one") as refused:
        load(tmp_path, inspect_ai=text(MAX_SHARING + 1))
    assert refused.value.pointer == f"/identities/{MAX_SHARING}"


@pytest.mark.parametrize(("issuer", "profile"), [("https://token.actions.githubusercontent.com", "github-actions"),
                                                 ("https://token.actions.githubusercontent.com/acme", "github-actions"),
                                                 ("https://gitlab.com", "gitlab-ci"),
                                                 ("https://accounts.google.com", "google")])  # fmt: skip
@pytest.mark.parametrize("taken", ["oidc", "jenkins", "spiffe"])
def test_an_issuer_that_a_profile_knows_is_not_taken_under_another(
    tmp_path: Path, issuer: str, profile: str, taken: str
) -> None:
    providers = f'version: 1\nproviders:\n  acme: {{profile: {taken}, issuer: "{issuer}"}}\n'
    with pytest.raises(InputError, match=f"use the profile {profile}"):
        load(tmp_path, providers)


def test_two_providers_never_have_one_issuer(tmp_path: Path) -> None:
    text = PROVIDERS + '  copy:\n    profile: oidc\n    issuer: "https://id.acme.example"\n'
    error = refused(tmp_path, text)
    assert (error.pointer, error.detail) == ("/providers/copy/issuer", "another provider already has this issuer")


# -- providers of reusable credentials ----------------------------------------------------------------------------------


def test_every_kind_of_reusable_credential_loads(tmp_path: Path) -> None:
    acme, opaque, robots, hub = load(tmp_path, REUSABLE).providers.values()
    assert [p.rules.kind for p in (acme, opaque, robots, hub)] == [
        "access-token",
        "introspection",
        "pat",
        "huggingface",
    ]
    assert acme.algorithms == PROFILES["oauth"].algorithms
    assert (acme.max_lifetime_s, acme.max_age_s) == (3600, 3600)
    assert opaque.introspection == Introspection(
        client_id="issuer",
        client_secret_file="/run/secrets/introspection",
        endpoint="https://ask.acme.example/introspect",
        token_prefix="acme_",
    )
    assert (robots.issuer, hub.issuer) == (ISSUER_URL, "https://huggingface.co")
    assert {p.audience for p in (acme, opaque, robots, hub)} == {ISSUER_URL}
    assert {p.uses for p in (acme, opaque, robots, hub)} == {1}, "of a nonce"
    assert {p.max_lifetime_s + p.max_age_s for p in (opaque, robots, hub)} == {0}, "not judged"


def test_where_the_secret_lies_is_in_the_digest_and_the_secret_in_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret-of-the-client", "utf-8")
    text = changed(REUSABLE, "/run/secrets/introspection", str(secret))
    policy = changed(changed(POLICY, "provider: github-actions", "provider: opaque"), POLICY_PINS, OPAQUE_PINS)
    (value,) = load(tmp_path, text, inspect_ai=policy).digests.values()
    assert str(secret).encode() in value
    assert b"s3cret" not in value


POLICY_PINS = """    pins: {repository_id: "7", repository_owner_id: "6"}
    names: {repository: "org/evals"}
    require:
      ref: "refs/heads/main"
      runner_environment: {any_of: ["github-hosted"]}
"""
OPAQUE_PINS = '    pins: {client_id: "ci", sub: "ci"}\n'
NAMES = {"oauth": "acme", "oauth-introspection": "opaque", "pat": "robots", "huggingface": "hub"}
# What each kind is not judged by.
NOT_JUDGED = {
    "oauth": "uses introspection",
    "oauth-introspection": "algorithms max_lifetime_s max_age_s uses keys",
    "pat": "issuer audience algorithms max_lifetime_s max_age_s uses keys introspection",
    "huggingface": "audience algorithms max_lifetime_s max_age_s uses keys introspection",
}
SAID = {
    "issuer": '"https://issuer.example/pat"', "audience": '"https://other.example"', "algorithms": "[ES384]",
    "max_lifetime_s": "600", "max_age_s": "600", "uses": "single", "keys": "discovery",
    "introspection": '{client_id: "x", client_secret_file: "/x"}',
}  # fmt: skip
PREFIX = "another provider's credentials begin like this one's"
REUSABLE_FAULTS = [
    *[
        (f"profile: {name}\n", f"profile: {name}\n    {member}: {SAID[member]}\n", f"{NAMES[name]}/{member}",
         f"{name} providers do not use this member")
        for name, members in NOT_JUDGED.items()
        for member in members.split()
    ],
    *[
        (f"profile: {name}\n", f"profile: {name}\n    events: [push]\n", f"{id}/events", "do not say what started a job")
        for name, id in NAMES.items()
    ],
    # what must be there
    ('    issuer: "https://id.acme.example"\n', "", "acme", "the profile oauth needs an `issuer`"),
    ('    issuer: "https://opaque.acme.example"\n', "", "opaque", "oauth-introspection needs an `issuer`"),
    ("profile: oauth\n", "profile: oauth-introspection\n", "acme", "needs `introspection`"),
    # whose it is
    ("https://id.acme.example", ISSUER_URL, "acme/issuer", "this service cannot be its own identity provider"),
    ("https://opaque.acme.example", ISSUER_URL, "opaque/issuer", "this service cannot be its own identity provider"),
    ("https://opaque.acme.example", "https://id.acme.example", "opaque/issuer", "another provider already has this"),
    ("profile: huggingface", 'profile: huggingface\n    issuer: "https://h.example"', "hub/issuer", "not an issuer of"),
    ("https://id.acme.example", "https://huggingface.co", "acme/issuer", "use the profile huggingface"),
    ("profile: huggingface", "profile: pat", "hub", "another provider also has the profile pat"),
    ("profile: pat", "profile: huggingface", "hub", "another provider also has the profile huggingface"),
    # how it is asked
    ("https://ask.acme", "http://ask.acme", "opaque/introspection/endpoint", "must be https"),
    ("https://ask.acme", "https://u@ask.acme", "opaque/introspection/endpoint", "must be a plain URL"),
    ('"acme_"', '"a me"', "opaque/introspection/token_prefix", "a bearer token cannot begin like this"),
    ('"acme_"', '"acme_\\n"', "opaque/introspection/token_prefix", "a bearer token cannot begin like this"),
    *[
        ('"acme_"', f'"{prefix}"', "opaque/introspection/token_prefix", PREFIX)
        for prefix in ("evi_pat_", "evi_", "e", "evi_pat_x", "hf_", "h", "hf_x")
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"), REUSABLE_FAULTS, ids=[f"{fault[1]!r} {fault[2]}" for fault in REUSABLE_FAULTS]
)
def test_a_fault_of_a_provider_of_reusable_credentials_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, place: str, reason: str
) -> None:
    error = refused(tmp_path, changed(REUSABLE, old, new))
    assert (error.code, error.pointer) == (Code.FILE_RULE, f"/providers/{place}")
    assert reason in error.detail
    assert error.place.line > 2


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("acme_", "other_", True), ("acme_", "acmE_", True), ("acme_", "acme_", False), ("acme_", "acme_x", False),
        ("acme_x", "acme_", False), ("acme_", "", False), ("", "acme_", False), ("", "", False),
    ],
)  # fmt: skip
def test_an_opaque_token_is_never_shown_to_two_providers(tmp_path: Path, first: str, second: str, apart: bool) -> None:
    def entry(name: str, prefix: str) -> str:
        told = f', token_prefix: "{prefix}"' if prefix else ""
        how = f'{{client_id: "x", client_secret_file: "/x"{told}}}'
        return f'  {name}: {{profile: oauth-introspection, issuer: "https://{name}.example", introspection: {how}}}\n'

    text = f"version: 1\nproviders:\n{entry('a', first)}{entry('b', second)}"
    if apart:
        assert len(load(tmp_path, text).providers) == 2
    else:
        error = refused(tmp_path, text)
        assert error.pointer == "/providers/b/introspection/token_prefix"
        assert PREFIX in error.detail


def test_one_provider_may_have_every_opaque_token_that_no_other_s_begin_like(tmp_path: Path) -> None:
    assert len(load(tmp_path, changed(REUSABLE, '      token_prefix: "acme_"\n', "")).providers) == 4


def test_hugging_face_may_stand_on_loopback_in_development_alone(tmp_path: Path) -> None:
    text = changed(REUSABLE, "profile: huggingface", 'profile: huggingface\n    issuer: "http://127.0.0.1:8443"')
    assert "http://127.0.0.1:8443" in load(tmp_path, text, development=True).providers
    assert "in development" in refused(tmp_path, text).detail
