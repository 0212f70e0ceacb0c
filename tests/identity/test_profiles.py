"""Provider profiles: tokens that pass, tokens that fail for each reason, and entries that do not load. Tokens take the
way that they take in the service, without their bytes and key: header, times, audience, derived claims, registration,
decision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer.errors import InputError, Refused
from issuer.formats.times import LEEWAY_S
from issuer.identity.profiles import PROFILES, derive
from issuer.identity.table import SIGNED, Provider, judges
from issuer.identity.token import Caller, check_audience, read_header, read_times
from issuer.policy.authoring.load import load_policies
from issuer.policy.decide import Grant, decide
from issuer.policy.disclose import refusal_for
from issuer.policy.match import PolicySet, resolve
from tests.support.policies import NOW, write
from tests.support.samples import (
    AUDIENCE,
    BY_NAME,
    COMMIT,
    GITHUB_SUBJECTS,
    OPAQUE_SAMPLES,
    OTHER_COMMIT,
    PERSON,
    SAMPLES,
    UUID,
    Sample,
    policy_of,
    text_of,
)

each = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.profile)
EVERY_SAMPLE = [*SAMPLES, *OPAQUE_SAMPLES]
every = pytest.mark.parametrize("sample", EVERY_SAMPLE, ids=lambda sample: sample.profile)
GRANTED = "granted"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> PolicySet:
    """Every profile's sample in one directory."""
    providers: dict[str, Any] = {}
    for sample in EVERY_SAMPLE:
        providers |= sample.providers()
    identities = [{**sample.identity(), "id": sample.profile} for sample in EVERY_SAMPLE]
    folder = tmp_path_factory.mktemp("policies")
    write(folder, text_of(providers), inspect_ai=policy_of(*identities))
    return load_policies(folder, AUDIENCE)


def loaded(folder: Path, sample: Sample, identity: dict[str, Any], **entry: Any) -> PolicySet:
    write(folder, text_of(sample.providers(**entry)), inspect_ai=policy_of(identity))
    return load_policies(folder, AUDIENCE)


def provider_of(policies: PolicySet, sample: Sample) -> Provider:
    return policies.providers[sample.issuer]


def token(sample: Sample, *absent: str, **times: Any) -> dict[str, Any]:
    """Return the claims of a good token of five minutes, without some, with other times or audience."""
    claims = {"iss": sample.issuer, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 300, **sample.claims, **times}
    return {name: value for name, value in claims.items() if name not in absent}


def changed(sample: Sample, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a good token with another value for one claim, at any depth. `...` removes the claim."""
    claims: dict[str, Any] = json.loads(json.dumps(token(sample)))
    inner = claims
    for member in path[:-1]:
        inner = inner[member]
    inner.pop(path[-1], None)
    if value is not ...:
        inner[path[-1]] = value
    return claims


def outcome(policies: PolicySet, claims: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> str:
    """Return the code of a token's refusal, or `granted`."""
    try:
        caller = caller_of(policies, claims, header)
        registration = resolve(policies, caller)
        verdict = decide(registration, caller, (), NOW)
    except Refused as refusal:
        return str(refusal.code)
    if isinstance(verdict, Grant):
        return GRANTED
    assert refusal_for(verdict.checks, registration.policy).code == verdict.code
    return str(verdict.code)


def caller_of(policies: PolicySet, claims: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Caller:
    provider = policies.providers[claims["iss"]]
    issued_at, expires_at = NOW, NOW
    if provider.rules.kind in SIGNED:
        good = {"alg": provider.algorithms[0], "kid": "k", "typ": provider.rules.types[0]}
        read_header(good if header is None else header, provider)
        issued_at, expires_at = read_times(claims, provider, NOW)
        check_audience(claims.get("aud"), provider.audience)
    return Caller(provider, derive(provider.rules, claims), ("use", "x", "x"), issued_at, expires_at)


def place(sample: Sample, name: str) -> tuple[str, ...]:
    """Return the place in a token of the claim that policies know by this name."""
    how = PROFILES[sample.profile].derived.get(name)
    return how.path if how else (name,)


# -- tokens that pass --------------------------------------------------------------------------------------------------


def test_every_profile_has_a_sample() -> None:
    assert set(BY_NAME) == set(PROFILES)


@every
def test_a_documented_token_passes(policies: PolicySet, sample: Sample) -> None:
    assert outcome(policies, token(sample)) == GRANTED
    assert outcome(policies, token(sample, aud=[AUDIENCE])) == GRANTED


@pytest.mark.parametrize("subject", [*GITHUB_SUBJECTS, "repo:evil/evals:ref:refs/heads/main", "", 7, None, ["a"]])
def test_github_s_subject_decides_nothing_whatever_its_form(policies: PolicySet, subject: Any) -> None:
    assert outcome(policies, changed(BY_NAME["github-actions"], ("sub",), subject)) == GRANTED
    assert outcome(policies, changed(BY_NAME["github-actions"], ("sub",), ...)) == GRANTED


@each
def test_every_algorithm_of_a_profile_is_taken(policies: PolicySet, sample: Sample) -> None:
    for algorithm in provider_of(policies, sample).algorithms:
        types: list[dict[str, str]] = [{"typ": typ} for typ in PROFILES[sample.profile].types]
        for typ in types if sample.profile == "oauth" else [{}, *types]:
            assert outcome(policies, token(sample), {"alg": algorithm, "kid": "k", **typ}) == GRANTED


@each
def test_a_token_may_live_and_age_as_long_as_its_profile_says(policies: PolicySet, sample: Sample) -> None:
    provider = provider_of(policies, sample)
    born = NOW - provider.max_age_s
    assert outcome(policies, token(sample, exp=NOW + provider.max_lifetime_s)) == GRANTED
    assert outcome(policies, token(sample, iat=born, exp=max(NOW, born + provider.max_lifetime_s))) == GRANTED


@every
def test_the_public_caller_is_what_the_profile_allows_and_no_person(policies: PolicySet, sample: Sample) -> None:
    shown = caller_of(policies, token(sample)).provenance()
    assert shown == {"provider": sample.profile, "issuer": sample.issuer, **sample.public}
    assert PERSON not in json.dumps(shown)
    assert PERSON in json.dumps(sample.claims) or sample.profile in {"buildkite", "kubernetes", "spiffe", "pat"}


SCOPED = [name for name, profile in PROFILES.items() if profile.scope]


def test_the_kinds_that_are_scoped_are_these() -> None:
    assert SCOPED == ["oauth", "oauth-introspection", "pat"]
    assert {PROFILES[name].scope for name in SCOPED} == {"tokens:issue"}


@pytest.mark.parametrize("profile", SCOPED)
def test_a_reusable_credential_must_have_the_scope(policies: PolicySet, profile: str) -> None:
    for scope in ("tokens:issue", "openid tokens:issue", "tokens:issue a", "a  tokens:issue b"):
        assert outcome(policies, changed(BY_NAME[profile], ("scope",), scope)) == GRANTED
    other: Any
    for other in ("", "tokens:issued", "tokens:issu", "TOKENS:ISSUE", "tokens:issue\n", "openid,tokens:issue",
                  "a\ttokens:issue", ["tokens:issue"], {"tokens:issue": True}, None, 1):  # fmt: skip
        assert outcome(policies, changed(BY_NAME[profile], ("scope",), other)) == "identity.claim_mismatch", other
    assert outcome(policies, changed(BY_NAME[profile], ("scope",), ...)) == "identity.claim_missing"


@pytest.mark.parametrize("profile", SCOPED)
@pytest.mark.parametrize("rule", [{"absent": True}, {"contains_all": ["openid"]}, "openid"])
def test_no_policy_waives_the_scope(tmp_path: Path, profile: str, rule: Any) -> None:
    sample = BY_NAME[profile]
    policies = loaded(tmp_path, sample, sample.identity(require={**sample.require, "scope": rule}))
    unscoped = changed(sample, ("scope",), ... if rule == {"absent": True} else "openid")
    assert outcome(policies, unscoped).startswith("identity.claim_mis")


# -- tokens that fail, for each reason -----------------------------------------------------------------------------------


@each
def test_another_algorithm_is_refused(policies: PolicySet, sample: Sample) -> None:
    for algorithm in ["none", "HS256", "ES256K", "rs256", "", None, ["RS256"]]:
        header = {"alg": algorithm, "kid": "k", "typ": "JWT"}
        assert outcome(policies, token(sample), header) == "identity.algorithm_refused", algorithm


@each
def test_another_kind_of_token_is_refused(policies: PolicySet, sample: Sample) -> None:
    for typ in ["eval-verify+jwt", "at+jwt", "logout+jwt", "", 7, "ＪWT"]:
        provider = provider_of(policies, sample)
        another = "JWT" if typ in provider.rules.types else typ
        header = {"alg": provider.algorithms[0], "kid": "k", "typ": another}
        assert outcome(policies, token(sample), header) == "identity.type_refused", typ


def test_an_access_token_that_does_not_say_that_it_is_one_is_refused(policies: PolicySet) -> None:
    """An ID token of the same client, for the same audience, may have no `typ`."""
    header = {"alg": "RS256", "kid": "k"}
    assert outcome(policies, token(BY_NAME["oauth"]), header) == "identity.type_refused"


@each
def test_a_token_that_lives_too_long_is_refused(policies: PolicySet, sample: Sample) -> None:
    longest = provider_of(policies, sample).max_lifetime_s
    assert outcome(policies, token(sample, exp=NOW + longest + 1)) == "identity.lifetime_too_long"
    assert outcome(policies, token(sample, exp=NOW + 10 * 86_400)) == "identity.lifetime_too_long"


@each
def test_a_token_that_is_too_old_is_refused(policies: PolicySet, sample: Sample) -> None:
    """If the allowed age is the lifetime, a token that is too old has already expired."""
    provider = provider_of(policies, sample)
    born = NOW - provider.max_age_s - LEEWAY_S - 1
    code = "identity.expired" if provider.max_age_s == provider.max_lifetime_s else "identity.too_old"
    assert outcome(policies, token(sample, iat=born, exp=born + provider.max_lifetime_s)) == code


@each
def test_a_token_of_another_time_is_refused(policies: PolicySet, sample: Sample) -> None:
    ended = token(sample, iat=NOW - 100, exp=NOW - LEEWAY_S)
    assert outcome(policies, ended) == "identity.expired"
    assert outcome(policies, token(sample, iat=NOW + LEEWAY_S + 1, exp=NOW + 300)) == "identity.not_yet_valid"
    assert outcome(policies, token(sample, nbf=NOW + LEEWAY_S + 1)) == "identity.not_yet_valid"
    for missing in ("iat", "exp"):
        assert outcome(policies, token(sample, missing)) == "identity.malformed"


AUDIENCES = [
    "https://huggingface.co", f"{AUDIENCE}/", AUDIENCE.upper(), f"{AUDIENCE}\n", f" {AUDIENCE}", AUDIENCE[:-1], "", None,
    [], [AUDIENCE, "https://other.example"], [AUDIENCE, AUDIENCE], {"aud": AUDIENCE}, "https://github.com/example-org",
    "https://kubernetes.default.svc", UUID.format(1), "https://issuer.exаmple",
]  # fmt: skip


@each
def test_a_token_for_somebody_else_is_refused(policies: PolicySet, sample: Sample) -> None:
    for audience in AUDIENCES:
        assert outcome(policies, token(sample, aud=audience)) == "identity.audience_mismatch", audience


@each
def test_a_token_without_an_audience_is_refused(policies: PolicySet, sample: Sample) -> None:
    assert outcome(policies, token(sample, "aud")) == "identity.audience_mismatch"


PINS = [(sample, pin) for sample in EVERY_SAMPLE for pin in sample.pins]
REQUIREMENTS = [(sample, name) for sample in EVERY_SAMPLE for name in sample.require]


def near_misses(value: str) -> list[Any]:
    """Return values that differ by one character, a look-alike, an invisible character, or only by type."""
    lookalike = value.translate(str.maketrans("aeo07", "аео０７"))
    return [f"{value}x", f"x{value}", value[:-1], value[1:], f"{value}\n", f"\n{value}", f" {value}", f"{value} ",
            f"{value}\u200b", f"\ufeff{value}", value.swapcase() + "X", lookalike if lookalike != value else f"{value}і",
            "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in value), f"{value}\x00", f"{value}/../x",
            f"{value}@x", f"*{value}", "*", "", [value], {value: value}, None, True]  # fmt: skip


def test_a_near_miss_of_a_pin_is_nobody(policies: PolicySet) -> None:
    for sample, pin in PINS:
        for value in [..., *near_misses(sample.pins[pin])]:
            found = outcome(policies, changed(sample, place(sample, pin), value))
            assert found == "integration.unknown", (sample.profile, pin, value)


@pytest.mark.parametrize(("sample", "name"), REQUIREMENTS, ids=[f"{sample.profile} {n}" for sample, n in REQUIREMENTS])
def test_a_requirement_that_is_not_met_is_named(policies: PolicySet, sample: Sample, name: str) -> None:
    where = place(sample, name)
    assert outcome(policies, changed(sample, where, ...)) == "identity.claim_missing"
    for value in ["something-else", "", 0, ["x"], {"x": "x"}]:
        found = outcome(policies, changed(sample, where, value))
        assert found in {"identity.claim_mismatch", "identity.claim_missing"}, value
        assert found == "identity.claim_mismatch" or name in PROFILES[sample.profile].derived


EXACT = [(sample, name) for sample, name in REQUIREMENTS if isinstance(sample.require[name], str)]


@pytest.mark.parametrize(("sample", "name"), EXACT, ids=[f"{sample.profile} {name}" for sample, name in EXACT])
def test_a_near_miss_of_a_requirement_is_refused(policies: PolicySet, sample: Sample, name: str) -> None:
    value, where = sample.require[name], place(sample, name)
    how = PROFILES[sample.profile].derived.get(name)
    for near in near_misses(value):
        whole = f"{near}@refs/heads/main" if how is not None and how.part == "path" else near
        assert outcome(policies, changed(sample, where, whole)) != GRANTED, near


EVENTS = {
    "github-actions": (
        ["push", "workflow_dispatch", "schedule", "release"],
        ["pull_request", "pull_request_target", "pull_request_review", "workflow_run", "workflow_call", "issues",
         "issue_comment", "discussion", "discussion_comment", "merge_group", "repository_dispatch", "fork", "watch",
         "check_run", "deployment", "page_build"],
    ),
    "gitlab-ci": (
        ["push", "schedule", "web"],
        ["merge_request_event", "external_pull_request_event", "trigger", "pipeline", "parent_pipeline", "api", "chat",
         "webide", "ondemand_dast_scan"],
    ),
    "buildkite": (["schedule"], ["ui", "api", "webhook", "trigger_job"]),
}  # fmt: skip


@pytest.mark.parametrize("profile", EVENTS)
def test_only_events_that_strangers_cannot_cause_are_allowed(policies: PolicySet, profile: str) -> None:
    claim, (allowed, forbidden) = PROFILES[profile].event_claim, EVENTS[profile]
    assert claim is not None
    assert list(PROFILES[profile].events) == allowed
    for event in allowed:
        assert outcome(policies, changed(BY_NAME[profile], (claim,), event)) == GRANTED
    for event in [*forbidden, *near_misses(allowed[0]), ...]:
        assert outcome(policies, changed(BY_NAME[profile], (claim,), event)) == "identity.event_forbidden"


def test_the_profiles_with_events_are_these() -> None:
    assert {name for name, profile in PROFILES.items() if profile.event_claim} == set(EVENTS)


DEMANDS = [
    ("circleci", "oidc.circleci.com/ssh-rerun", True, "identity.claim_mismatch"),
    ("circleci", "oidc.circleci.com/ssh-rerun", "false", "identity.claim_mismatch"),
    ("circleci", "oidc.circleci.com/ssh-rerun", 0, "identity.claim_mismatch"),
    ("circleci", "oidc.circleci.com/ssh-rerun", ..., "identity.claim_missing"),
    ("azure", "scp", "evals.sign", "identity.claim_mismatch"),
    ("azure", "scp", "", "identity.claim_mismatch"),
    ("azure", "scp", None, "identity.claim_mismatch"),
    ("codefresh", "scm_pull_request_target_branch", "main", "identity.claim_mismatch"),
]


@pytest.mark.parametrize(("profile", "claim", "value", "code"), DEMANDS)
def test_what_a_profile_demands_of_every_token_is_demanded(
    policies: PolicySet, profile: str, claim: str, value: Any, code: str
) -> None:
    assert outcome(policies, changed(BY_NAME[profile], (claim,), value)) == code


def test_the_profiles_with_demands_are_these() -> None:
    found = {(name, claim) for name, profile in PROFILES.items() for claim in profile.demands}
    assert found == {(profile, claim) for profile, claim, _, _ in DEMANDS}


@pytest.mark.parametrize(
    ("profile", "claim", "rule", "value"),
    [
        ("circleci", "oidc.circleci.com/ssh-rerun", True, True),
        ("codefresh", "scm_pull_request_target_branch", {"any_of": ["main"]}, "main"),
        ("azure", "scp", {"contains_all": ["evals.sign"]}, "openid evals.sign"),
    ],
)
def test_a_policy_that_names_the_claim_decides_instead_of_the_profile(
    tmp_path: Path, profile: str, claim: str, rule: Any, value: Any
) -> None:
    sample = BY_NAME[profile]
    identity = sample.identity(require={**sample.require, claim: rule})
    policies = loaded(tmp_path, sample, identity)
    assert outcome(policies, changed(sample, (claim,), value)) == GRANTED
    assert outcome(policies, token(sample)) != GRANTED


# -- derived claims ----------------------------------------------------------------------------------------------------

REF = "refs/heads/main"
FILE = "org/evals/.github/workflows/evaluate.yml"


@pytest.mark.parametrize(
    ("whole", "path", "git_ref"),
    [
        (f"{FILE}@{REF}", FILE, REF),
        (f"{FILE}@refs/tags/v1.0", FILE, "refs/tags/v1.0"),
        (f"{FILE}@{COMMIT}", FILE, COMMIT),
        ("org/evals/.github/workflows/two words.yml@refs/heads/main", "org/evals/.github/workflows/two words.yml", REF),
        # A branch may contain an `@`. The text after the first one is the ref.
        (f"{FILE}@refs/heads/x@{REF}", FILE, f"refs/heads/x@{REF}"),
        # A file name may also contain an `@`, and must not be read as the name before it.
        (f"{FILE}@x.yml@{REF}", None, None),
        (f"{FILE}@{COMMIT}.yml@{REF}", None, None),
        (f"{FILE}@", None, None),
        (f"@{REF}", None, None),
        (FILE, None, None),
        (f"{FILE}@main", None, None),
        (f"{FILE}@{REF}\n", None, None),
        (f"{FILE}\n@{REF}", None, None),
        (f"{FILE}@{COMMIT[:-1]}", None, None),
        (f"{FILE}@{COMMIT.upper()}", None, None),
        ("", None, None),
        (7, None, None),
        (None, None, None),
        ([f"{FILE}@{REF}"], None, None),
    ],
)
def test_a_path_and_a_git_ref_are_parted_at_the_first_at_sign(
    whole: Any, path: str | None, git_ref: str | None
) -> None:
    for source, names in (("workflow_ref", ("workflow_path", "workflow_git_ref")),
                          ("job_workflow_ref", ("job_workflow_path", "job_workflow_git_ref"))):  # fmt: skip
        found = derive(PROFILES["github-actions"], {source: whole})
        assert (found.get(names[0]), found.get(names[1])) == (path, git_ref)
        assert found[source] == whole


def test_gitlab_s_config_path_is_that_of_its_ci_config() -> None:
    uri = "gitlab.com/group/evals//.gitlab-ci.yml@refs/heads/main"
    assert (
        derive(PROFILES["gitlab-ci"], {"ci_config_ref_uri": uri})["config_path"]
        == "gitlab.com/group/evals//.gitlab-ci.yml"
    )


@each
def test_a_claim_of_the_token_s_own_never_stands_for_a_derived_one(policies: PolicySet, sample: Sample) -> None:
    names = PROFILES[sample.profile].derived
    spoofed = {**token(sample), **dict.fromkeys(names, "spoofed")}
    assert "spoofed" not in derive(PROFILES[sample.profile], spoofed).values() or not names
    assert outcome(policies, spoofed) == GRANTED
    sources = {how.path[0] for how in names.values()}
    without = {name: value for name, value in spoofed.items() if name not in sources}
    assert not names.keys() & derive(PROFILES[sample.profile], without).keys()


@pytest.mark.parametrize(
    "inner", [None, "evals", 7, ["serviceaccount"], {"serviceaccount": "uid"}, {"serviceaccount": []}]
)
def test_a_nested_claim_of_another_form_is_absent(policies: PolicySet, inner: Any) -> None:
    assert outcome(policies, changed(BY_NAME["kubernetes"], ("kubernetes.io",), inner)) == "integration.unknown"


def test_a_name_with_a_slash_is_no_path(policies: PolicySet) -> None:
    """CircleCI's claims have slashes in their names; one that is nested is another claim."""
    sample = BY_NAME["circleci"]
    claims = token(sample, "oidc.circleci.com/project-id")
    claims["oidc.circleci.com"] = {"project-id": sample.pins["oidc.circleci.com/project-id"]}
    assert outcome(policies, claims) == "integration.unknown"


def test_tags_that_the_caller_chose_are_not_its_account(policies: PolicySet) -> None:
    nested = {"request_tags": {"aws_account": "123456789012"}, "org_id": "o-abc1234567"}
    claims = changed(BY_NAME["aws"], ("https://sts.amazonaws.com/",), nested)
    assert outcome(policies, claims) == "identity.claim_missing"


def test_an_old_job_token_of_gitlab_does_not_pass(policies: PolicySet) -> None:
    """CI_JOB_JWT had the host as its issuer; its second version had the instance as issuer and as audience."""
    assert "gitlab.com" not in policies.providers
    assert outcome(policies, token(BY_NAME["gitlab-ci"], aud="https://gitlab.com")) == "identity.audience_mismatch"


# -- code of another repository ------------------------------------------------------------------------------------------

FOREIGN = "octo-org/shared/.github/workflows/evaluate.yml@refs/heads/main"
GITHUB = BY_NAME["github-actions"]


@pytest.mark.parametrize(
    "borrowed",
    [FOREIGN, "example-org/evals-evil/.github/workflows/a.yml@refs/heads/main", "example-org/evals", "", None, 7,
     "Example-Org/evals/.github/workflows/evaluate.yml@refs/heads/main", "xexample-org/evals/.github/workflows/a.yml@r"],
)  # fmt: skip
def test_a_job_of_borrowed_code_is_refused_where_the_policy_names_no_commit(policies: PolicySet, borrowed: Any) -> None:
    assert outcome(policies, changed(GITHUB, ("job_workflow_ref",), borrowed)) == "identity.claim_mismatch"


def test_a_job_that_borrows_no_code_is_not_asked_for_a_commit(policies: PolicySet) -> None:
    assert outcome(policies, changed(GITHUB, ("job_workflow_ref",), ...)) == GRANTED
    renamed = {
        **token(GITHUB),
        "repository": "new-org/evals",
        "job_workflow_ref": "new-org/evals/.github/workflows/a.yml@r",
    }
    assert outcome(policies, renamed) == GRANTED
    assert outcome(policies, {**renamed, "repository": "old-org/evals"}) == "identity.claim_mismatch"
    assert outcome(policies, {k: v for k, v in renamed.items() if k != "repository"}) == "identity.claim_mismatch"


@pytest.mark.parametrize("rule", [COMMIT, {"any_of": [COMMIT, "c" * 40]}])
def test_borrowed_code_at_a_named_commit_passes(tmp_path: Path, rule: Any) -> None:
    require = {**GITHUB.require, "job_workflow_ref": FOREIGN, "job_workflow_sha": rule}
    policies = loaded(tmp_path, GITHUB, GITHUB.identity(require=require))
    good = {**token(GITHUB), "job_workflow_ref": FOREIGN}
    assert outcome(policies, good) == GRANTED
    assert outcome(policies, {**good, "job_workflow_sha": OTHER_COMMIT}) == "identity.claim_mismatch"
    assert outcome(policies, {k: v for k, v in good.items() if k != "job_workflow_sha"}) == "identity.claim_missing"


# -- providers.yaml ------------------------------------------------------------------------------------------------------


def refused(folder: Path, sample: Sample, **entry: Any) -> str:
    write(folder, text_of(sample.providers(**entry)))
    with pytest.raises(InputError) as caught:
        load_policies(folder, AUDIENCE)
    return caught.value.detail


ISSUERS = {
    "github-actions": [
        "https://token.actions.githubusercontent.com", "https://token.actions.githubusercontent.com/acme-corp",
        "https://ghes.example.org/_services/token", "https://token.actions.acme.ghe.com",
    ],
    "gitlab-ci": ["https://gitlab.com", "https://gitlab.example.org", "https://example.org/gitlab"],
    "buildkite": ["https://agent.buildkite.com"],
    "circleci": [f"https://oidc.circleci.com/org/{UUID.format(7)}"],
    "bitbucket": ["https://api.bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc"],
    "google": ["https://accounts.google.com"],
    "azure": [f"https://login.microsoftonline.com/{UUID.format(1)}/v2.0", f"https://sts.windows.net/{UUID.format(1)}/"],
    "aws": ["https://a103a2cc-b461-473d-84fe-6c4f6d45af88.tokens.sts.global.api.aws"],
    "kubernetes": [
        "https://oidc.eks.eu-west-1.amazonaws.com/id/EXAMPLE",
        "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
        "https://eastus.oic.prod-aks.azure.com/t/i/",
    ],
    "spiffe": ["https://oidc.spire.example.org"],
    "codefresh": ["https://oidc.codefresh.io"],
    "jenkins": ["https://jenkins.example.org/oidc", "https://jenkins.example.org/job/folder/oidc"],
    "oidc": ["https://id.acme.example"],
}  # fmt: skip
STRANGE_ISSUERS = {
    "github-actions": [
        "https://token.actions.githubusercontent.com/", "https://token.actions.githubusercontent.com/a/b",
        "https://token.actions.githubusercontent.com.evil.example", "https://evil.example/_services/token/x",
        "https://github.com", "https://token.actions.evil.example", "https://token.actions.a.b.ghe.com",
        "https://evil.example/x/_services/token",
    ],
    "buildkite": ["https://agent.buildkite.com/", "https://buildkite.com", "https://agent.buildkite.com.evil.example"],
    "circleci": [
        "https://oidc.circleci.com/org/", "https://oidc.circleci.com", f"https://oidc.circleci.com/org/{UUID.format(7)}/",
        f"https://oidc.circleci.com/org/{UUID.format(7)[:-1]}", f"https://oidc.circleci.com/org/{UUID.format(10).upper()}",
        f"https://evil.example/org/{UUID.format(7)}",
    ],
    "bitbucket": [
        "https://api.bitbucket.org/2.0/workspaces//pipelines-config/identity/oidc",
        "https://api.bitbucket.org/2.0/workspaces/a/b/pipelines-config/identity/oidc",
        "https://bitbucket.org/2.0/workspaces/acme/pipelines-config/identity/oidc",
    ],
    "google": ["https://accounts.google.com/", "https://accounts.google.co"],
    "azure": [
        "https://login.microsoftonline.com/common/v2.0", "https://login.microsoftonline.com/organizations/v2.0",
        "https://login.microsoftonline.com/consumers/v2.0", "https://login.microsoftonline.com/contoso.com/v2.0",
        "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0",
        f"https://login.microsoftonline.com/{UUID.format(1)}", f"https://login.microsoftonline.com/{UUID.format(1)}/v2.0/",
        f"https://sts.windows.net/{UUID.format(1)}", f"https://sts.windows.net/{UUID.format(1)}/v2.0",
    ],
    "aws": ["https://sts.amazonaws.com", "https://tokens.sts.global.api.aws", "https://a.b.tokens.sts.global.api.aws",
            "https://a.tokens.sts.global.api.aws/"],
    "codefresh": ["https://oidc.codefresh.io/", "https://g.codefresh.io"],
}  # fmt: skip


@pytest.mark.parametrize(("profile", "issuer"), [(name, issuer) for name, all_ in ISSUERS.items() for issuer in all_])
def test_an_issuer_of_the_profile_s_form_is_taken(tmp_path: Path, profile: str, issuer: str) -> None:
    sample = BY_NAME[profile]
    policies = loaded(tmp_path, sample, sample.identity(), issuer=issuer)
    assert outcome(policies, {**token(sample), "iss": issuer}) == GRANTED


@pytest.mark.parametrize(
    ("profile", "issuer"), [(name, issuer) for name, all_ in STRANGE_ISSUERS.items() for issuer in all_]
)
def test_an_issuer_that_is_not_the_profile_s_is_refused(tmp_path: Path, profile: str, issuer: str) -> None:
    assert f"not an issuer of {profile}" in refused(tmp_path, BY_NAME[profile], issuer=issuer)


def test_google_s_old_issuer_without_a_scheme_is_refused(tmp_path: Path) -> None:
    assert "plain URL" in refused(tmp_path, BY_NAME["google"], issuer="accounts.google.com")


SHARED_AUDIENCES = [
    ("github-actions", "https://github.com/example-org"),
    ("buildkite", "https://buildkite.com/acme-inc"),
    ("circleci", UUID.format(1)),
    ("codefresh", "https://g.codefresh.io"),
    ("kubernetes", "https://kubernetes.default.svc"),
    ("kubernetes", "https://kubernetes.default.svc.cluster.local"),
    ("kubernetes", "https://kubernetes.default.svc/"),
    ("kubernetes", "kubernetes.default"),
    *((sample.profile, sample.issuer) for sample in SAMPLES),
]


@pytest.mark.parametrize(("profile", "audience"), SHARED_AUDIENCES)
def test_an_audience_that_every_job_s_token_has_is_refused(tmp_path: Path, profile: str, audience: str) -> None:
    assert "pose as the caller" in refused(tmp_path, BY_NAME[profile], audience=audience)


@each
def test_an_audience_of_this_service_s_own_is_taken(tmp_path: Path, sample: Sample) -> None:
    for audience in (
        "https://github.com/example-org/evals/issuer",
        "api://evals",
        "evals",
        "https://e.example/kubernetes",
    ):
        policies = loaded(tmp_path, sample, sample.identity(), audience=audience)
        assert outcome(policies, token(sample, aud=audience)) == GRANTED
        assert outcome(policies, token(sample)) == "identity.audience_mismatch"


@pytest.mark.parametrize(
    ("profile", "member"), [("bitbucket", "algorithms"), ("bitbucket", "max_lifetime_s"), ("codefresh", "algorithms")]
)
def test_what_no_documentation_says_must_be_given(tmp_path: Path, profile: str, member: str) -> None:
    sample = BY_NAME[profile]
    entry = {name: value for name, value in sample.entry.items() if name != member}
    assert f"`{member}`" in refused(tmp_path, Sample(**{**vars(sample), "entry": entry}))


@pytest.mark.parametrize(
    "profile", [name for name, profile in PROFILES.items() if profile.issuer is None and judges(profile, "issuer")]
)
def test_a_provider_of_which_every_customer_has_its_own_needs_an_issuer(tmp_path: Path, profile: str) -> None:
    write(tmp_path, text_of({profile: {"profile": profile, **BY_NAME[profile].entry}}))
    with pytest.raises(InputError, match="needs an `issuer`"):
        load_policies(tmp_path, AUDIENCE)


# -- the table itself ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_consistent(name: str) -> None:
    profile = PROFILES[name]
    assert profile.pins
    re.compile(profile.issuer_form)
    re.compile(profile.audience_form)
    matchable = profile.matchable or frozenset()
    assert not matchable & {*profile.pins, *profile.names, *profile.never}, "one claim, one role"
    assert not {*profile.names, *profile.never} & {*profile.pins, *profile.must_require, *profile.provenance}
    if profile.matchable is not None:
        assert {*profile.demands, *profile.must_require} <= matchable
        assert {*profile.names.values()} <= {*matchable, *profile.pins}
        assert {*profile.derived} <= {*matchable, *profile.pins, *profile.names}
        assert profile.event_claim is None or profile.event_claim in matchable
    assert bool(profile.events) == (profile.event_claim is not None)
    assert profile.max_lifetime_s is None or profile.max_lifetime_s <= 86_400


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_publishes_a_person(name: str) -> None:
    people = re.compile(r".*(?:actor|mail|login|user|initiator|creator|_slug|/name|display).*|name|(?:upn|azpacr)")
    assert not [claim for claim in PROFILES[name].provenance if people.fullmatch(claim)]
