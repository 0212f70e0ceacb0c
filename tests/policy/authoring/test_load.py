"""The policy loader: good folders, and every rule that it enforces, with the place and the reason of each refusal."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs, jose
from issuer.identity.profiles import PROFILES
from issuer.identity.table import Introspection, KeySource
from issuer.limits.rate import DEFAULT_CEILINGS, Ceilings
from issuer.policy.authoring.load import MAX_SHARING, Folder, PolicySource, check_policies, load_folder, load_policies
from tests.support.policies import ISSUER_URL, NOW, POLICY, PROVIDERS, REUSABLE, changed, load, write
from tests.support.shared import ROOT


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


def test_the_shipped_samples_load_without_a_finding() -> None:
    policies, findings = check_policies(ROOT / "policies", ISSUER_URL, NOW)
    assert policies is not None
    assert findings == ()
    assert set(policies.policies) == {"inspect-ai", "lm-eval"}
    assert {provider.id for provider in policies.providers.values()} == {"github-actions", "gitlab-ci"}


def test_what_a_provider_says_wins_over_its_profile_which_has_the_rest(tmp_path: Path) -> None:
    github, gitlab, acme = load(tmp_path).providers.values()
    profile = PROFILES["github-actions"]
    assert github.issuer == profile.issuer == "https://token.actions.githubusercontent.com"
    assert github.audience == acme.audience == ISSUER_URL
    assert (github.algorithms, github.events, github.uses) == (profile.algorithms, profile.events, 1)
    assert (github.max_lifetime_s, github.max_age_s) == (profile.max_lifetime_s, profile.max_age_s)
    assert (gitlab.uses, acme.uses, acme.keys) == (10, 1, "discovery")
    text = """
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
    (provider,) = load(tmp_path, text).providers.values()
    assert (provider.issuer, provider.audience) == ("https://ghes.example/_services/token", "https://another.example")
    assert (provider.algorithms, provider.events, provider.uses) == (("ES256",), ("workflow_dispatch",), 1)
    assert (provider.max_lifetime_s, provider.max_age_s) == (600, 300)
    assert provider.keys == KeySource(jwks_uri="https://ghes.example/jwks")


def test_the_digest_is_over_the_policy_after_defaults_and_the_effective_provider(tmp_path: Path) -> None:
    gitlab = '  - id: other\n    provider: gitlab-ci\n    pins: {project_id: "1", namespace_id: "2"}\n'
    gitlab += '    require: {environment_protected: "true"}\n'
    policies = load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", gitlab + "grants:\n"))
    registrations = [registration for bucket in policies.registrations.values() for registration in bucket]
    assert len(registrations) == len({registration.digest for registration in registrations}) == 2
    assert {registration.digest for registration in registrations} == set(policies.digests)
    for registration in registrations:
        value = json.loads(policies.digests[registration.digest])
        assert registration.digest == jcs.digest_of_bytes(policies.digests[registration.digest]) == jcs.digest(value)
        assert set(value) == {"policy", "provider"}
        assert value["policy"]["limits"]["quarantine_s"] == 900
        assert value["provider"] == json.loads(msgspec.json.encode(registration.provider))
        assert value["provider"]["events"] == list(PROFILES[registration.identity.provider].events)


def test_every_part_of_a_policy_and_of_a_directory_counts_into_its_digest(tmp_path: Path) -> None:
    before = load(tmp_path, inspect_ai=POLICY)
    changes = {"refs/heads/main": "refs/heads/next", "ttl_s: 3600": "ttl_s: 60", "burst: 200": "burst: 201"}
    for old, new in changes.items():
        assert set(before.digests).isdisjoint(load(tmp_path, inspect_ai=changed(POLICY, old, new)).digests)
    events = changed(PROVIDERS, "{profile: github-actions}", "{profile: github-actions, events: [push]}")
    assert set(before.digests).isdisjoint(load(tmp_path, events, inspect_ai=POLICY).digests)
    moved = "# a comment\n" + changed(POLICY, "mode: active\n", "") + "mode: active\n"
    same = load(tmp_path, inspect_ai=moved)
    assert (same.digests, same.digest) == (before.digests, before.digest)
    seen = {before.digest, load(tmp_path, inspect_ai=changed(POLICY, "burst: 200", "burst: 201")).digest}
    seen.add(load(tmp_path, changed(PROVIDERS, "id.acme.example", "other.example"), inspect_ai=POLICY).digest)
    other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
    seen.add(load(tmp_path, inspect_ai=POLICY, other=other).digest)
    (tmp_path / "benchmarks" / "a" / "b").mkdir(parents=True)
    for comment in ("", "# a comment\n"):
        (tmp_path / "benchmarks" / "a" / "b" / "eval.yaml").write_text(f'name: "x"\ntasks: [{{id: main}}]\n{comment}')
        seen.add(load(tmp_path, inspect_ai=POLICY, other=other).digest)
    assert len(seen) == 6
    assert all(digest.startswith("sha256:") for digest in seen)


def found(folder: Path, providers: str = PROVIDERS, **policies: str) -> list[tuple[str, str, str]]:
    """Each error as file name, pointer and detail."""
    loaded, findings = check_policies(write(folder, providers, **policies), ISSUER_URL, NOW)
    errors = [finding for finding in findings if finding.severity == "error"]
    assert (loaded is None) == bool(errors)
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
    first = refused(tmp_path, bad_table, a=bad_types, other=bad_rules, c="a: [", d=POLICY)
    assert (Path(first.place.file).name, first.pointer) == ("a.yaml", "/version")
    assert first.detail.endswith("write it without quotes (and 10 more: run `issuer policy check`)")


def test_a_file_of_unknown_members_is_refused_with_the_first_hundred(tmp_path: Path) -> None:
    """Each finding takes half a millisecond: 20,000 of them kept the helper from its next beat, so it was restarted."""
    many = POLICY + "".join(f"x{number:05}: 1\n" for number in range(20_000))
    *shown, (_, _, last) = found(tmp_path, inspect_ai=many)
    assert [pointer for _, pointer, _ in shown] == [f"/x{number:05}" for number in range(100)]
    assert last == "more than 100 faults: the rest is not shown"


def test_what_needs_a_broken_file_is_not_judged_and_the_rest_is(tmp_path: Path) -> None:
    case = 'tests: [{name: x, provider: github-actions, identity: {repository_id: "7"}, expect: granted}]\n'
    broken = changed(PROVIDERS, "{profile: github-actions}", "{profile: github}")
    for providers in (broken, "a: ["):
        assert [name for name, _, _ in found(tmp_path, providers, inspect_ai=POLICY + case)] == ["providers.yaml"]
    both = found(tmp_path, broken="a: [", inspect_ai=POLICY + case)
    assert [name for name, _, _ in both] == ["broken.yaml", "inspect-ai.yaml"]
    (tmp_path / "broken.yaml").unlink()
    (tmp_path / "benchmarks" / "a" / "b").mkdir(parents=True)
    (tmp_path / "benchmarks" / "a" / "b" / "eval.yaml").write_text("name: 7\n")
    assert {name for name, _, _ in found(tmp_path, inspect_ai=POLICY + case)} == {"eval.yaml"}


def test_a_range_that_a_wider_grant_makes_pointless_is_warned_of(tmp_path: Path) -> None:
    for metrics, wider in {
        '["*", {id: "acc", min: 0}]': ["*"], '[{id: "acc", min: 0}, {id: "a*"}]': ["a*"],
        '["a*c", {id: "a*", min: 0}]': [], '["f1", {id: "acc", min: 0}]': [], '["*", {id: "pass@*", max: 1}]': [],
        '[{id: "acc", min: 0}, {id: "acc", max: 1}]': [],
    }.items():  # fmt: skip
        write(tmp_path, inspect_ai=changed(POLICY, '["*"]\ntoken', f"{metrics}\ntoken"))
        policies, findings = check_policies(tmp_path, ISSUER_URL, NOW)
        assert policies is not None
        warnings = [finding.detail for finding in findings if finding.code is Code.LINT_SHADOWED]
        assert warnings == [f"{each} already grants every value of these metrics" for each in wider], metrics


def test_a_value_above_the_operator_s_ceilings_is_an_error_that_names_the_ceiling(tmp_path: Path) -> None:
    low = Ceilings(per_hour=3599, burst=999, ttl_s=3599)
    for limits, ceilings, wanted in (
        ("identity: {count: 100, per_s: 1, burst: 10000}", DEFAULT_CEILINGS, []),
        (
            "identity: {count: 101, per_s: 1, burst: 10001}",
            DEFAULT_CEILINGS,
            [("/limits/identity", "ceilings.per_hour")],
        ),
        ("refusals: {count: 1, per_s: 1, burst: 10001}", DEFAULT_CEILINGS, [("/limits/refusals", "ceilings.burst")]),
        ("quarantine_s: 1", low, [("/token/ttl_s", "ceilings.ttl_s"), ("/limits/integration", "ceilings.per_hour")]),
    ):
        write(tmp_path, inspect_ai=changed(POLICY, "identity: {count: 600, per_s: 3600, burst: 200}", limits))
        _, findings = check_policies(tmp_path, ISSUER_URL, NOW, ceilings=ceilings)
        errors = [finding for finding in findings if finding.severity == "error"]
        assert [(each.pointer, each.detail.split("`")[1]) for each in errors] == wanted, limits
    load_folder(PolicySource(tmp_path, ISSUER_URL), Folder(), {})
    with pytest.raises(InputError, match=r"3600 s: more than the operator's `ceilings.ttl_s`, 3599"):
        load_folder(PolicySource(tmp_path, ISSUER_URL, ceilings=low), Folder(), {})


UNKNOWN = "not known here"

SCHEMA = [
    # unknown members, everywhere
    ("mode: active", "mode: active\nsuite: [1]", "[1]", UNKNOWN),
    ("provider: github", "disclose: true\n    provider: github", "true", UNKNOWN),
    ('any_of: ["github-hosted"]', 'any_of: ["github-hosted"], none_of: "x"', '"x"', UNKNOWN),
    ("  tasks:", '  languages: ["x"]\n  tasks:', '["x"]', UNKNOWN),
    ("  tasks:", '  deny: {metrics: ["x"]}\n  tasks:', '["x"]', UNKNOWN),
    ("ttl_s: 3600", "ttl_s: 3600, ttl: 7", "7}", UNKNOWN),
    # missing ones
    ("version: 1\n", "", "integration: inspect", "missing required field `version`"),
    ("mode: active\n", "", "version: 1", "missing required field `mode`"),
    ('contacts: ["evals@example.org"]\n', "", "version: 1", "missing required field `contacts`"),
    ('    pins: {repository_id: "7", repository_owner_id: "6"}\n', "", "id: main", "missing required field `pins`"),
    *[(f"  {name}: [", f"  # {name}: [", "frameworks:", f"missing required field `{name}`")
      for name in ("benchmarks", "models", "tasks", "metrics")],
    # an unquoted id says what to do
    ('repository_id: "7"', "repository_id: 7", "7, rep", "expected text, got a whole number: put it in double quotes"),
    # other types
    ("version: 1", "version: 2", "2\n", "invalid enum value 2"),
    ("mode: active", "mode: stagd", "stagd", "invalid enum value 'stagd'"),
    ('contacts: ["evals@example.org"]', "contacts: []", "[]", "length >= 1"),
    ('pins: {repository_id: "7", repository_owner_id: "6"}', "pins: {}", "{}", "length >= 1"),
    ('benchmarks: ["openai/gsm8k", "cais/*"]', "benchmarks: []", "[]", "length >= 1"),
    ('  metrics: ["*"]', '  metrics: ["*"]\n  command: yes please', "yes please", "invalid enum value"),
    ('  metrics: ["*"]', '  metrics: ["*"]\n  registered_only: 1', "1\ntoken", "expected true or false"),
    ('  metrics: ["*"]', '  metrics: ["*"]\n  definitions: {"a/b": []}', "[]}", "length >= 1"),
    ("mode: active", "mode: active\ndisclose: [contacts]", "contacts]", "invalid enum value 'contacts'"),
    ("ttl_s: 3600", "ttl_s: 0", "0}\nlimits", ">= 1"),
    ("ttl_s: 3600", "ttl_s: 86401", "86401", "<= 86400"),
    ("burst: 200", "burst: 50001", "50001", "<= 50000"),
    ("limits:\n", "limits:\n  quarantine_s: 86401\n", "86401", "<= 86400"),
]  # fmt: skip


TWICE = """\
  - id: main
    provider: gitlab-ci
    pins: {project_id: "1", namespace_id: "2"}
    require: {environment_protected: "true"}
grants:
"""

RULES = [
    ("integration: inspect-ai", "integration: Inspect", "Inspect\n", "lowercase words joined by `-`"),
    ("integration: inspect-ai", "integration: inspect", "inspect\n", "this integration's file is inspect.yaml"),
    ("id: main", "id: Main", "Main", "an identity's id is lowercase words joined by `-`"),
    ("grants:\n", TWICE, "main\n    provider: gitlab", "another identity of this file has this id"),
    ("provider: github-actions", "provider: github", "github\n", "not a provider of providers.yaml, which has acme, github-actions"),
    ('repository_id: "7", ', "", '{repository_owner_id: "6"}', "github-actions identities must pin repository_id"),
    (', repository_owner_id: "6"', "", '{repository_id: "7"}', "must pin repository_owner_id"),
    ('owner_id: "6"', 'owner_id: "6", sub: "s"', '"s"', "sub is never matched for github-actions"),
    ('owner_id: "6"', 'owner_id: "6", reff: "r"', '"r"', "github-actions tokens have no claim of this name"),
    ("      ref: ", '      sub: "s"\n      ref: ', '"s"', "sub is never matched for github-actions"),
    ("      ref: ", '      repository: "r"\n      ref: ', '"r"', "can be taken over: put it under `names`"),
    ("      ref: ", '      repository_owner: {glob: "*"}\n      ref: ', '{glob: "*"}', "put it under `names`"),
    ("      ref: ", "      actor_id: \"1\"\n      ref: ", '"1"', "tokens have no claim of this name that a policy can match"),
    ("      ref: ", '      repository_id: "7"\n      ref: ', '"7", repo', "both pinned and required"),
    ("names: {repository:", "names: {ref:", '"org/evals"', "not a name claim of github-actions"),
    ("    require:", '    expires: "2027-02-29"\n    require:', '"2027-02-29"', "must be a date such as 2027-06-30"),
    ("    require:", '    expires: "2027-06-30\\n"\n    require:', '"2027', "must be a date"),
    ("    require:", '    expires: "２027-06-30"\n    require:', '"２027', "must be a date"),
    ('">=0.3.100,<0.4"', '"latest"', '"latest"', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '"0.3.100"', '"0.3.100"', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '""', '""', "must be a PEP 440 range"),
    ('">=0.3.100,<0.4"', '" , "', '" , "', "must be a PEP 440 range"),
    ('"cais/*"', '"*"', '"*"]\n  models', "must be `owner/name`"),
    ('"cais/*"', '"cais/*/*"', '"cais/*/*"', "must be `owner/name`"),
    ('"cais/*"', '"cais/*\\n"', '"cais/*\\n"', "must be `owner/name`"),
    ('"cais/*"', '"cаis/*"', '"cаis/*"', "must be `owner/name`"),
    ('"*/*"', '"*/*@main"', '"*/*@main"', "must be `owner/name`"),
    ("  tasks:", '  deny: {benchmarks: ["cais"]}\n  tasks:', '"cais"', "must be `owner/name`"),
    ("  tasks:", '  deny: {models: ["*"]}\n  tasks:', '"*"]}', "must be `owner/name`"),
    ('metrics: ["*"]', "metrics: [{id: x, min: 1, max: 0.5}]", "{id: x", "no value is in the range"),
    ("  tasks:", '  definitions: {"openai/gsm8k": "main"}\n  tasks:', '"main"', "must be `any`, a full commit (40 or 64 lowercase"),
    ("  tasks:", f'  definitions: {{"cais/x": ["{"a" * 40}", "any"]}}\n  tasks:', '"any"', "must be a full commit (40"),
    ("  tasks:", '  definitions: {"cais/x": "any", "Cais/X": "any"}\n  tasks:', '"any"}', "this benchmark occurs twice"),
    ("  tasks:", '  definitions: {"openai/gms8k": "any"}\n  tasks:', '"any"', "does not grant this benchmark"),
    ('"https://hub.example"]', '"https://hub.example", "https://hub.example"]', '"https://hub.example"], ',
     "this audience is listed twice"),
]  # fmt: skip


def test_a_member_of_another_type_and_a_broken_rule_are_refused_at_their_place(tmp_path: Path) -> None:
    cases = [(Code.FILE_SCHEMA, case) for case in SCHEMA] + [(Code.FILE_RULE, case) for case in RULES]
    for code, (old, new, snippet, reason) in cases:
        text = changed(POLICY, old, new)
        found = Code.FILE_UNKNOWN_MEMBER if reason == UNKNOWN else code
        check(refused(tmp_path, inspect_ai=text), tmp_path / "inspect-ai.yaml", text, snippet, found, reason)


def with_identity(identity: str) -> str:
    """Return the policy with another identity."""
    head, _, rest = POLICY.partition("  - id: main\n")
    return f"{head}{identity}{rest[rest.index('grants:') :]}"


def test_people_and_names_are_never_matched_at_gitlab(tmp_path: Path) -> None:
    for claim in ("user_email", "user_login", "user_identities", "sub", "project_path"):
        for pin, requirement in ((f', {claim}: "x"', ""), ("", f', {claim}: "x"')):
            text = with_identity(
                f'  - {{id: main, provider: gitlab-ci, pins: {{project_id: "1", namespace_id: "2"{pin}}}, '
                f'require: {{environment_protected: "true"{requirement}}}}}\n'
            )
            reason = "put it under `names`" if claim == "project_path" else f"{claim} is never matched for gitlab-ci"
            check(refused(tmp_path, inspect_ai=text), tmp_path / "inspect-ai.yaml", text, '"x"', Code.FILE_RULE, reason)


def test_a_generic_identity_pins_its_subject_and_matches_no_claim_of_a_person(tmp_path: Path) -> None:
    generic = with_identity(
        '  - {id: main, provider: acme, pins: {sub: "robot"}, require: {"acme.example/team": "evals"}}\n'
    )
    assert load(tmp_path, inspect_ai=generic).registrations
    for old, new, snippet, reason in [
        *[('"acme.example/team"', claim, '"evals"', f"{claim} is never matched")
          for claim in ("email", "name", "preferred_username")],
        ('{sub: "robot"}', '{client: "robot"}', '{client: "robot"}', "oidc identities must pin sub"),
        ('"evals"', "{}", "{}", "give exactly one of"),
    ]:  # fmt: skip
        text = changed(generic, old, new)
        error = refused(tmp_path, inspect_ai=text)
        check(error, tmp_path / "inspect-ai.yaml", text, snippet, Code.FILE_RULE, reason)
        assert snippet != "{}" or error.pointer == "/identities/0/require/acme.example~1team"


def test_a_framework_that_two_integrations_may_speak_for_is_warned_of(tmp_path: Path) -> None:
    for name, count in (("inspect-ai", 1), ("Inspect-AI", 1), ("inspect-ai-2", 0)):
        other = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
        other = changed(other, '{name: "inspect-ai", versions', f'{{name: "{name}", versions')
        policies, found = check_policies(write(tmp_path, inspect_ai=POLICY, other=other), ISSUER_URL, NOW)
        assert policies is not None
        warnings = [finding for finding in found if finding.code is Code.LINT_FRAMEWORK_SHARED]
        assert len(warnings) == count
        for warning in warnings:
            assert (Path(warning.place.file).name, warning.pointer) == ("other.yaml", "/grants/frameworks/0/name")
            assert warning.detail.startswith("inspect-ai may speak for this framework, too")
            assert warning.place.line == line_and_column(other, f'"{name}"')[0]


def identity(name: str, require: str, pins: str = "") -> str:
    return (
        f"  - id: {name}\n    provider: github-actions\n"
        f'    pins: {{repository_id: "7", repository_owner_id: "6"{pins}}}\n    require: {{{require}}}\n'
        '    any_ref: true\n    reason: "what is tested is something else"\n'
    )


def two(first: str, second: str, integration: str = "inspect-ai") -> str:
    head, _, rest = changed(POLICY, "integration: inspect-ai", f"integration: {integration}").partition("identities:\n")
    return f"{head}identities:\n{first}{second}{rest[rest.index('grants:') :]}"


def test_an_exact_value_a_pin_or_a_provider_tells_two_identities_apart(tmp_path: Path) -> None:
    for value in ('"refs/heads/next"', '{any_of: ["refs/heads/a", "refs/heads/b"]}'):
        first, second = 'ref: "refs/heads/main"', f"ref: {value}"
        text = two(identity("one", first), identity("two", second))
        ((one, other),) = load(tmp_path, inspect_ai=text).registrations.values()
        assert {one.identity.id, other.identity.id} == {"one", "two"}
    pinned, ghes = ', enterprise_id: "1"', identity("two", "").replace("provider: github-actions", "provider: ghes")
    for other_pin in (identity("two", "", ', enterprise_id: "2"'), identity("two", 'enterprise_id: "2"')):
        assert load(tmp_path, inspect_ai=two(identity("one", "", pinned), other_pin)).registrations
    providers = PROVIDERS + '  ghes: {profile: github-actions, issuer: "https://ghes.example/_services/token"}\n'
    assert len(load(tmp_path, providers, inspect_ai=two(identity("one", ""), ghes)).registrations) == 2


def test_two_identities_that_one_token_could_match_are_refused(tmp_path: Path) -> None:
    overlapping = [
        ('ref: "a"', ""),
        ('ref: "a"', 'ref: {any_of: ["b", "a"]}'),
        ('ref: {glob: "refs/heads/*"}', 'ref: {glob: "refs/tags/*"}'),  # patterns are not compared, even these
    ]
    for first, second in [*overlapping, *[(second, first) for first, second in overlapping]]:
        text = two(identity("one", first), identity("two", second))
        error = refused(tmp_path, inspect_ai=text)
        reason = "overlaps inspect-ai/one: one token could match both"
        check(error, tmp_path / "inspect-ai.yaml", text, "id: two", Code.FILE_RULE, reason)


def test_an_overlap_of_two_files_is_found_once_and_fails_no_test(tmp_path: Path) -> None:
    case = (
        "tests: [{name: x, provider: github-actions, expect: granted, identity: "
        '{repository_id: "7", repository_owner_id: "6", event_name: push}}]\n'
    )
    first, second = (two(identity("one", ""), "", name) + case for name in ("alpha", "beta"))
    ((name, pointer, detail),) = found(tmp_path, alpha=first, beta=second)
    assert (name, pointer) == ("beta.yaml", "/identities/0")
    assert detail.startswith("overlaps alpha/one: one token could match both")


def jwk(**changes: object) -> dict[str, object]:
    return {**jose.public_jwk(Ed25519PrivateKey.from_private_bytes(b"k" * 32).public_key()), **changes}


def static(*keys: object) -> str:
    return f"keys: {{static: {json.dumps(keys)}}}"


PROVIDER_FAULTS = [
    ("version: 1\n", "", "providers:\n", Code.FILE_SCHEMA, "missing required field `version`"),
    ("profile: oidc", "profile: oidc\n    discovery: 7", "7\n", Code.FILE_UNKNOWN_MEMBER, UNKNOWN),
    ("{profile: github-actions}", "{}", "{}", Code.FILE_SCHEMA, "missing required field `profile`"),
    ("acme:", "Acme:", "profile: oidc", Code.FILE_RULE, "a provider's id is lowercase words joined by `-`"),
    ("profile: oidc", "profile: oidcc", "oidcc", Code.FILE_RULE, "not a profile; the profiles are "),
    ('    issuer: "https://id.acme.example"\n', "", "profile: oidc", Code.FILE_RULE, "needs an `issuer`"),
    ("profile: oidc", "profile: oidc\n    events: [push]", "[push]", Code.FILE_RULE, "do not say what started a job"),
    ("profile: oidc", "profile: oidc\n    uses: many", "many", Code.FILE_SCHEMA, "invalid enum value 'many'"),
    ("{bounded: 10}", "{bounded: 0}", "0}", Code.FILE_SCHEMA, ">= 1"),
    ("{bounded: 10}", "{bounded: 1001}", "1001}", Code.FILE_SCHEMA, "<= 1000"),
    ("profile: oidc", "profile: oidc\n    max_lifetime_s: 86401", "86401", Code.FILE_SCHEMA, "<= 86400"),
    ("profile: oidc", "profile: oidc\n    algorithms: []", "[]", Code.FILE_SCHEMA, "length >= 1"),
    *[
        ("profile: oidc", f"profile: oidc\n    algorithms: [RS256, {name}]", "[RS256", Code.FILE_RULE, "asymmetric")
        for name in ("none", "HS256", "rs256", "ES256K", '"RS256\\n"')
    ],
    # where its keys are
    ("profile: oidc", "profile: oidc\n    keys: jwks", "jwks", Code.FILE_SCHEMA, "invalid enum value 'jwks'"),
    ("profile: oidc", "profile: oidc\n    keys: {}", "{}", Code.FILE_RULE, "exactly one of `jwks_uri` and `static`"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "https://a.example", static: [{}]}', "{jwks_uri",
     Code.FILE_RULE, "exactly one of"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "http://a.example"}', '"http://a', Code.FILE_RULE,
     "must be https"),
    ("profile: oidc", 'profile: oidc\n    keys: {jwks_uri: "https://u@a.example"}', '"https://u', Code.FILE_RULE,
     "must be a plain URL"),
    *[("https://id.acme.example", issuer, f'"{issuer}"', Code.FILE_RULE, reason) for issuer, reason in (
        (ISSUER_URL, "this service cannot be its own identity provider"), ("http://id.acme.example", "must be https"),
        ("https://user@id.acme.example", "must be a plain URL"), ("https://id.acme.example?x=1", "must be a plain URL"),
    )],
]  # fmt: skip


def test_a_fault_of_the_provider_table_is_refused_at_its_place(tmp_path: Path) -> None:
    for old, new, snippet, code, reason in PROVIDER_FAULTS:
        text = changed(PROVIDERS, old, new)
        check(refused(tmp_path, text), tmp_path / "providers.yaml", text, snippet, code, reason)


def test_plain_http_is_for_loopback_addresses_in_development(tmp_path: Path) -> None:
    acme, hub = (PROVIDERS, "https://id.acme.example"), (REUSABLE, "profile: huggingface")
    for (text, old), new, issuer in (
        (acme, "http://[::1]:8443/x", "http://[::1]:8443/x"),
        (hub, 'profile: huggingface\n    issuer: "http://127.0.0.1:8443"', "http://127.0.0.1:8443"),
    ):
        assert issuer in load(tmp_path, changed(text, old, new), development=True).providers
        assert "in development" in refused(tmp_path, changed(text, old, new)).detail
    for host in ("localhost", "10.0.0.1", "169.254.169.254", "0.0.0.0", "127.0.0.1.evil.example"):
        text = changed(PROVIDERS, "https://id.acme.example", f"http://{host}:8443")
        assert "must be https" in refused(tmp_path, text, development=True).detail


def test_static_keys_load_unless_one_must_not_verify_or_shares_its_kid(tmp_path: Path) -> None:
    twin = jose.public_jwk(Ed25519PrivateKey.from_private_bytes(b"o" * 32).public_key())
    good = load(tmp_path, changed(PROVIDERS, "profile: oidc", f"profile: oidc\n    {static(jwk(), twin)}")).providers
    assert good["https://id.acme.example"].keys == KeySource(static=[jwk(), twin])
    low_order = jwk(x="AQ" + "A" * 41)  # the identity point: one signature fits every message
    for key, reason in (
        ({"kty": "oct", "k": "c2VjcmV0", "kid": "1"}, "not a usable public key"),
        (jwk(d="AAAA"), "not a usable public key"),
        (low_order, "not a usable public key"),
        ({**twin, "kid": jwk()["kid"]}, "another key also has"),
    ):
        text = changed(PROVIDERS, "profile: oidc", f"profile: oidc\n    {static(jwk(), key)}")
        error = refused(tmp_path, text)
        check(error, tmp_path / "providers.yaml", text, json.dumps(key) + "]", Code.FILE_RULE, reason)


def test_a_file_that_would_be_overlooked_is_refused_and_no_other_file_is_a_policy(tmp_path: Path) -> None:
    for name in ("other.yml", "other.YAML", "providers.yml"):
        path = tmp_path / name
        path.write_text("")
        error = refused(tmp_path, inspect_ai=POLICY)
        assert str(error) == f"{path}: file.rule: the name of a policy file ends in .yaml: rename this file"
        path.unlink()
    (tmp_path / ".#inspect-ai.yaml").symlink_to("someone@here.1234")  # an editor's lock: leads nowhere
    for place in (".inspect-ai.yml", "benchmarks/..data/eval.yaml", "README.md", "schema/x.yaml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("neither a policy nor a benchmark")
    assert set(load(tmp_path, inspect_ai=POLICY).policies) == {"inspect-ai"}


# Run as another user where we are root: root may list every folder.
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


def test_a_folder_or_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which another user cannot reach
        folder = write(Path(name), inspect_ai=POLICY)
        for path in folder.iterdir():
            path.chmod(0o644)
        folder.chmod(0o111)
        done = subprocess.run([sys.executable, "-c", UNLISTABLE, name], capture_output=True, text=True, check=False)
        folder.chmod(0o700)
    assert (done.stdout, done.stderr) == (f"{name}: file.unreadable: Permission denied\n", "")
    with pytest.raises(InputError) as missing:
        load_policies(tmp_path / "nowhere", ISSUER_URL)
    assert (missing.value.code, missing.value.place.file) == (Code.FILE_UNREADABLE, str(tmp_path / "nowhere"))
    (tmp_path / "inspect-ai.yaml").mkdir()
    assert str(refused(tmp_path)) == f"{tmp_path / 'inspect-ai.yaml'}: file.unreadable: Is a directory"


def checked(folder: Path) -> str:
    """Check a folder in a process that may neither wait for ever nor fill the machine's memory."""
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))"
    program = f"{limits}; from issuer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "policy", "check", str(folder)], capture_output=True, text=True, timeout=120
    )
    return done.stdout + done.stderr


def test_endless_files_are_refused_and_folders_that_contain_themselves_end(tmp_path: Path) -> None:
    """A service that watches the folder would never look at it again. Each of two links doubles what is below it."""
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
    owner = tmp_path / "benchmarks" / "openai"
    for link in ("one", "two"):
        (owner / link).symlink_to(owner)
    printed = checked(tmp_path)
    assert [path for path, fault in wanted.items() if f"{path}: {fault}" not in printed] == []


def test_a_pattern_that_no_task_or_metric_can_meet_is_refused(tmp_path: Path) -> None:
    places = {
        "tasks": ('  tasks: ["*"]\n', '  tasks: ["{}"]\n'),
        "metrics": ('  metrics: ["*"]\n', '  metrics: [{{id: "{}", max: 1}}]\n'),
        "deny/tasks": ("token:", '  deny: {{tasks: ["{}"]}}\ntoken:'),
    }
    for (place, (old, new)), pattern in itertools.product(places.items(), ["\u0430rc*", "a b", "a\\nb", "x" * 129]):
        error = refused(tmp_path, inspect_ai=changed(POLICY, old, new.format(pattern)))
        assert (error.pointer, "printable ASCII" in error.detail) == (f"/grants/{place}/0", True), pattern


def test_only_so_many_identities_may_share_their_first_pin(tmp_path: Path) -> None:
    """Each request compares them all."""

    def text(count: int) -> str:
        return with_identity("".join(
            f'  - {{id: a{n}, provider: acme, pins: {{sub: s}}, require: {{team: "{n}"}}}}\n' for n in range(count)
        ))  # fmt: skip

    assert len(load(tmp_path, inspect_ai=text(MAX_SHARING)).registrations["acme", "s"]) == MAX_SHARING
    error = refused(tmp_path, inspect_ai=text(MAX_SHARING + 1))
    assert "identities share the first pin of this one" in error.detail
    assert error.pointer == f"/identities/{MAX_SHARING}"


def test_an_issuer_that_a_profile_knows_is_not_taken_under_another(tmp_path: Path) -> None:
    for issuer, profile in {
        "https://token.actions.githubusercontent.com/acme": "github-actions",
        "https://gitlab.com": "gitlab-ci",
        "https://accounts.google.com": "google",
    }.items():
        for other in ("oidc", "jenkins", "spiffe"):
            providers = f'version: 1\nproviders:\n  acme: {{profile: {other}, issuer: "{issuer}"}}\n'
            assert f"use the profile {profile}" in refused(tmp_path, providers).detail


def test_every_kind_of_reusable_credential_loads_and_no_digest_has_its_secret(tmp_path: Path) -> None:
    acme, opaque, robots, hub = load(tmp_path, REUSABLE).providers.values()
    kinds = ["access-token", "introspection", "pat", "huggingface"]
    assert [p.rules.kind for p in (acme, opaque, robots, hub)] == kinds
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
    secret = tmp_path / "secret"
    secret.write_text("s3cret-of-the-client", "utf-8")
    text = changed(REUSABLE, "/run/secrets/introspection", str(secret))
    policy = with_identity('  - {id: main, provider: opaque, pins: {client_id: "ci", sub: "ci"}}\n')
    (value,) = load(tmp_path, text, inspect_ai=policy).digests.values()
    assert (str(secret).encode() in value, b"s3cret" in value) == (True, False), "the path of the secret alone"


NAMES = {"oauth": "acme", "oauth-introspection": "opaque", "pat": "robots", "huggingface": "hub"}
# Members that each kind does not use.
UNUSED = {
    "oauth": "uses introspection",
    "oauth-introspection": "algorithms max_lifetime_s max_age_s uses keys",
    "pat": "issuer audience algorithms max_lifetime_s max_age_s uses keys introspection",
    "huggingface": "audience algorithms max_lifetime_s max_age_s uses keys introspection",
}
VALUES = {
    "issuer": '"https://issuer.example/pat"', "audience": '"https://other.example"', "algorithms": "[ES384]",
    "max_lifetime_s": "600", "max_age_s": "600", "uses": "single", "keys": "discovery",
    "introspection": '{client_id: "x", client_secret_file: "/x"}',
}  # fmt: skip
PREFIX = "another provider's credentials begin like this one's"
REUSABLE_FAULTS = [
    *[
        (f"profile: {name}\n", f"profile: {name}\n    {member}: {VALUES[member]}\n", f"{NAMES[name]}/{member}",
         f"{name} providers do not use this member")
        for name, members in UNUSED.items()
        for member in members.split()
    ],
    *[
        (f"profile: {name}\n", f"profile: {name}\n    events: [push]\n", f"{id}/events", "do not say what started a job")
        for name, id in NAMES.items()
    ],
    # missing members
    ('    issuer: "https://id.acme.example"\n', "", "acme", "the profile oauth needs an `issuer`"),
    ('    issuer: "https://opaque.acme.example"\n', "", "opaque", "oauth-introspection needs an `issuer`"),
    ("profile: oauth\n", "profile: oauth-introspection\n", "acme", "needs `introspection`"),
    # the owner of an issuer or a profile
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
        for prefix in ("evi_pat_", "e", "evi_pat_x", "hf_x")
    ],
]  # fmt: skip


def test_a_fault_of_a_provider_of_reusable_credentials_is_refused_at_its_place(tmp_path: Path) -> None:
    for old, new, place, reason in REUSABLE_FAULTS:
        error = refused(tmp_path, changed(REUSABLE, old, new))
        assert (error.code, error.pointer) == (Code.FILE_RULE, f"/providers/{place}")
        assert reason in error.detail
        assert error.place.line > 2


def test_an_opaque_token_is_never_shown_to_two_providers(tmp_path: Path) -> None:
    def entry(name: str, prefix: str) -> str:
        member = f', token_prefix: "{prefix}"' if prefix else ""
        how = f'{{client_id: "x", client_secret_file: "/x"{member}}}'
        return f'  {name}: {{profile: oauth-introspection, issuer: "https://{name}.example", introspection: {how}}}\n'

    for first, second in (("acme_", "other_"), ("acme_", "acmE_")):
        assert len(load(tmp_path, f"version: 1\nproviders:\n{entry('a', first)}{entry('b', second)}").providers) == 2
    for first, second in itertools.product(("acme_", "acme_x", ""), repeat=2):
        error = refused(tmp_path, f"version: 1\nproviders:\n{entry('a', first)}{entry('b', second)}")
        assert (error.pointer, PREFIX in error.detail) == ("/providers/b/introspection/token_prefix", True)
    whatever_is_left = changed(REUSABLE, '      token_prefix: "acme_"\n', "")
    assert len(load(tmp_path, whatever_is_left).providers) == 4
