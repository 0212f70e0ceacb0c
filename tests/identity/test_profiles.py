"""Provider profiles: tokens that pass, tokens that fail for each reason, and entries that do not load. Tokens take the
way that they take in the service, without their bytes and key: header, times, audience, derived claims, registration,
decision.
"""

import itertools
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

EVERY_SAMPLE = [*SAMPLES, *OPAQUE_SAMPLES]
GITHUB = BY_NAME["github-actions"]
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


def test_the_tables_of_this_file_name_every_profile() -> None:
    assert set(BY_NAME) == set(PROFILES)
    assert {name: profile.scope for name, profile in PROFILES.items() if profile.scope} == dict.fromkeys(
        SCOPED, "tokens:issue"
    )
    assert {name for name, profile in PROFILES.items() if profile.event_claim} == set(EVENTS)
    demands = {(name, claim) for name, profile in PROFILES.items() for claim in profile.demands}
    assert demands == {(profile, claim) for profile, claim, *_ in DEMANDS}


def test_a_documented_token_passes_and_its_public_caller_names_no_person(policies: PolicySet) -> None:
    for sample in EVERY_SAMPLE:
        assert outcome(policies, token(sample)) == outcome(policies, token(sample, aud=[AUDIENCE])) == GRANTED
        shown = caller_of(policies, token(sample)).provenance()
        assert shown == {"provider": sample.profile, "issuer": sample.issuer, **sample.public}
        assert PERSON not in json.dumps(shown)
        assert PERSON in json.dumps(sample.claims) or sample.profile in {"buildkite", "kubernetes", "spiffe", "pat"}
    subjects = [*GITHUB_SUBJECTS, "repo:evil/evals:ref:refs/heads/main", "", 7, None, ["a"], ...]
    assert {outcome(policies, changed(GITHUB, ("sub",), subject)) for subject in subjects} == {GRANTED}


def test_only_the_algorithms_and_types_of_a_profile_are_taken(policies: PolicySet) -> None:
    """An ID token of the same client, for the same audience, may have no `typ`: an access token needs one."""

    def outcomes(sample: Sample, **header: Any) -> str:
        return outcome(policies, token(sample), {"kid": "k", **header})

    for sample in SAMPLES:
        known, types = provider_of(policies, sample).algorithms, PROFILES[sample.profile].types
        for algorithm in known:
            assert {outcomes(sample, alg=algorithm, typ=typ) for typ in types} == {GRANTED}
        untyped = "identity.type_refused" if sample.profile == "oauth" else GRANTED
        assert outcomes(sample, alg=known[0]) == untyped
        for other in ["none", "HS256", "ES256K", "rs256", "", None, ["RS256"]]:
            assert outcomes(sample, alg=other, typ="JWT") == "identity.algorithm_refused", (sample.profile, other)
        for typ in ["eval-verify+jwt", "at+jwt", "logout+jwt", "", 7, "ＪWT"]:
            another = "JWT" if typ in provider_of(policies, sample).rules.types else typ
            assert outcomes(sample, alg=known[0], typ=another) == "identity.type_refused", (sample.profile, typ)


def test_a_token_may_live_and_age_as_long_as_its_profile_says(policies: PolicySet) -> None:
    """If the allowed age is the lifetime, a token that is too old has already expired."""
    for sample in SAMPLES:
        provider = provider_of(policies, sample)
        longest, born = provider.max_lifetime_s, NOW - provider.max_age_s
        too_old = "identity.expired" if provider.max_age_s == longest else "identity.too_old"
        times: list[tuple[dict[str, Any], str]] = [
            ({"exp": NOW + longest}, GRANTED),
            ({"exp": NOW + longest + 1}, "identity.lifetime_too_long"),
            ({"iat": born, "exp": max(NOW, born + longest)}, GRANTED),
            ({"iat": born - LEEWAY_S - 1, "exp": born - LEEWAY_S - 1 + longest}, too_old),
            ({"iat": NOW - 100, "exp": NOW - LEEWAY_S}, "identity.expired"),
            ({"iat": NOW + LEEWAY_S + 1, "exp": NOW + 300}, "identity.not_yet_valid"),
            ({"nbf": NOW + LEEWAY_S + 1}, "identity.not_yet_valid"),
        ]
        found = [outcome(policies, token(sample, **changes)) for changes, _ in times]
        assert found == [code for _, code in times], sample.profile
        for missing in ("iat", "exp"):
            assert outcome(policies, token(sample, missing)) == "identity.malformed"


SCOPED = ["oauth", "oauth-introspection", "pat"]


def test_a_reusable_credential_must_have_the_scope_and_no_policy_waives_it(policies: PolicySet, tmp_path: Path) -> None:
    others: list[Any] = ["", "tokens:issued", "tokens:issu", "TOKENS:ISSUE", "tokens:issue\n", "openid,tokens:issue",
                         "a\ttokens:issue", ["tokens:issue"], {"tokens:issue": True}, None, 1]  # fmt: skip
    for profile in SCOPED:
        for scope in ("tokens:issue", "openid tokens:issue", "tokens:issue a", "a  tokens:issue b"):
            assert outcome(policies, changed(BY_NAME[profile], ("scope",), scope)) == GRANTED
        for other in others:
            assert outcome(policies, changed(BY_NAME[profile], ("scope",), other)) == "identity.claim_mismatch", other
        assert outcome(policies, changed(BY_NAME[profile], ("scope",), ...)) == "identity.claim_missing"
    rules: list[Any] = [{"absent": True}, {"contains_all": ["openid"]}, "openid"]
    for sample, rule in itertools.product((BY_NAME[profile] for profile in SCOPED), rules):
        policies = loaded(tmp_path, sample, sample.identity(require={**sample.require, "scope": rule}))
        unscoped = changed(sample, ("scope",), ... if rule == {"absent": True} else "openid")
        assert outcome(policies, unscoped).startswith("identity.claim_mis"), (sample.profile, rule)


AUDIENCES = [
    "https://huggingface.co", f"{AUDIENCE}/", AUDIENCE.upper(), f"{AUDIENCE}\n", f" {AUDIENCE}", AUDIENCE[:-1], "", None,
    [], [AUDIENCE, "https://other.example"], [AUDIENCE, AUDIENCE], {"aud": AUDIENCE}, "https://github.com/example-org",
    "https://kubernetes.default.svc", UUID.format(1), "https://issuer.exаmple",
]  # fmt: skip


def test_a_token_needs_the_audience_which_is_of_this_service_alone(policies: PolicySet, tmp_path: Path) -> None:
    for sample in SAMPLES:
        tokens = [token(sample, "aud"), *(token(sample, aud=audience) for audience in AUDIENCES)]
        wrong = [claims for claims in tokens if outcome(policies, claims) != "identity.audience_mismatch"]
        assert wrong == []
    for profile, audience in SHARED_AUDIENCES:
        assert "pose as the caller" in refused(tmp_path, BY_NAME[profile], audience=audience), (profile, audience)
    audiences = ["https://github.com/example-org/evals/issuer", "api://evals", "evals", "https://e.example/kubernetes"]
    for sample, audience in itertools.product(SAMPLES, audiences):
        policies = loaded(tmp_path, sample, sample.identity(), audience=audience)
        assert outcome(policies, token(sample, aud=audience)) == GRANTED
        assert outcome(policies, token(sample)) == "identity.audience_mismatch"


def near_misses(value: str) -> list[Any]:
    """Return values that differ by one character, a look-alike, an invisible character, or only by type."""
    lookalike = value.translate(str.maketrans("aeo07", "аео０７"))
    return [f"{value}x", f"x{value}", value[:-1], value[1:], f"{value}\n", f"\n{value}", f" {value}", f"{value} ",
            f"{value}\u200b", f"\ufeff{value}", value.swapcase() + "X", lookalike if lookalike != value else f"{value}і",
            "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in value), f"{value}\x00", f"{value}/../x",
            f"{value}@x", f"*{value}", "*", "", [value], {value: value}, None, True, 7]  # fmt: skip


def test_a_near_miss_of_a_pin_is_an_unknown_caller(policies: PolicySet) -> None:
    for sample in EVERY_SAMPLE:
        misses = [(place(sample, pin), near) for pin, good in sample.pins.items() for near in (..., *near_misses(good))]
        known = [miss for miss in misses if outcome(policies, changed(sample, *miss)) != "integration.unknown"]
        assert known == [], sample.profile


def test_a_requirement_that_is_not_met_is_refused(policies: PolicySet) -> None:
    for sample in EVERY_SAMPLE:
        for name, required in sample.require.items():
            where, how = place(sample, name), PROFILES[sample.profile].derived.get(name)
            assert outcome(policies, changed(sample, where, ...)) == "identity.claim_missing"
            for value in ["something-else", "", 0, ["x"], {"x": "x"}]:
                found = outcome(policies, changed(sample, where, value))
                assert found == "identity.claim_mismatch" or (how and found == "identity.claim_missing"), (name, value)
            for near in near_misses(required) if isinstance(required, str) else ():
                whole = f"{near}@refs/heads/main" if how is not None and how.part == "path" else near
                assert outcome(policies, changed(sample, where, whole)) != GRANTED, (name, near)


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


def test_only_events_that_strangers_cannot_cause_are_allowed(policies: PolicySet) -> None:
    for profile, (allowed, forbidden) in EVENTS.items():
        claim, sample = PROFILES[profile].event_claim, BY_NAME[profile]
        assert claim is not None
        assert list(PROFILES[profile].events) == allowed
        assert {outcome(policies, changed(sample, (claim,), event)) for event in allowed} == {GRANTED}
        for event in [*forbidden, *near_misses(allowed[0]), ...]:
            assert outcome(policies, changed(sample, (claim,), event)) == "identity.event_forbidden", event


# What a profile demands of every token: a claim, its bad values, and a rule of a policy that allows another.
DEMANDS: list[tuple[str, str, list[Any], Any, Any]] = [
    ("circleci", "oidc.circleci.com/ssh-rerun", [True, "false", 0, ...], True, True),
    ("codefresh", "scm_pull_request_target_branch", ["main"], {"any_of": ["main"]}, "main"),
    ("azure", "scp", ["evals.sign", "", None], {"contains_all": ["evals.sign"]}, "openid evals.sign"),
]


def test_a_profile_s_demand_holds_unless_a_policy_names_the_claim(policies: PolicySet, tmp_path: Path) -> None:
    for profile, claim, bad, rule, value in DEMANDS:
        sample = BY_NAME[profile]
        for other in bad:
            code = "identity.claim_missing" if other is ... else "identity.claim_mismatch"
            assert outcome(policies, changed(sample, (claim,), other)) == code, (profile, other)
        own = loaded(tmp_path, sample, sample.identity(require={**sample.require, claim: rule}))
        assert outcome(own, changed(sample, (claim,), value)) == GRANTED
        assert outcome(own, token(sample)) != GRANTED


REF = "refs/heads/main"
FILE = "org/evals/.github/workflows/evaluate.yml"


def test_a_path_and_a_git_ref_are_parted_at_the_first_at_sign() -> None:
    """A branch and a file name may contain an `@`: the name before one is never read as the whole name."""
    parted: dict[str, tuple[str, str]] = {
        f"{FILE}@{REF}": (FILE, REF),
        f"{FILE}@refs/tags/v1.0": (FILE, "refs/tags/v1.0"),
        f"{FILE}@{COMMIT}": (FILE, COMMIT),
        f"org/evals/two words.yml@{REF}": ("org/evals/two words.yml", REF),
        f"{FILE}@refs/heads/x@{REF}": (FILE, f"refs/heads/x@{REF}"),
    }
    whole: list[Any] = [
        f"{FILE}@x.yml@{REF}", f"{FILE}@{COMMIT}.yml@{REF}", f"{FILE}@", f"@{REF}", FILE, f"{FILE}@main", f"{FILE}@{REF}\n",
        f"{FILE}\n@{REF}", f"{FILE}@{COMMIT[:-1]}", f"{FILE}@{COMMIT.upper()}", "", 7, None, [f"{FILE}@{REF}"],
    ]  # fmt: skip
    for text, parts in [*parted.items(), *((text, (None, None)) for text in whole)]:
        for source, path, git_ref in (("workflow_ref", "workflow_path", "workflow_git_ref"),
                                      ("job_workflow_ref", "job_workflow_path", "job_workflow_git_ref")):  # fmt: skip
            found = derive(PROFILES["github-actions"], {source: text})
            assert (found.get(path), found.get(git_ref)) == parts, text
            assert found[source] == text
    uri = "gitlab.com/group/evals//.gitlab-ci.yml@refs/heads/main"
    config = derive(PROFILES["gitlab-ci"], {"ci_config_ref_uri": uri})["config_path"]
    assert config == "gitlab.com/group/evals//.gitlab-ci.yml"


def test_a_claim_of_the_token_itself_never_replaces_a_derived_one(policies: PolicySet) -> None:
    for sample in SAMPLES:
        names = PROFILES[sample.profile].derived
        spoofed = {**token(sample), **dict.fromkeys(names, "spoofed")}
        assert "spoofed" not in derive(PROFILES[sample.profile], spoofed).values() or not names
        assert outcome(policies, spoofed) == GRANTED
        sources = {how.path[0] for how in names.values()}
        without = {name: value for name, value in spoofed.items() if name not in sources}
        assert not names.keys() & derive(PROFILES[sample.profile], without).keys()


def test_a_claim_of_another_form_or_at_another_place_is_absent(policies: PolicySet) -> None:
    """CircleCI's claims have slashes in their names: one that is nested is another claim. AWS's tags are the caller's."""
    inner: list[Any] = [None, "evals", 7, ["serviceaccount"], {"serviceaccount": "uid"}, {"serviceaccount": []}]
    pods = [changed(BY_NAME["kubernetes"], ("kubernetes.io",), value) for value in inner]
    assert {outcome(policies, pod) for pod in pods} == {"integration.unknown"}
    claims = token(BY_NAME["circleci"], "oidc.circleci.com/project-id")
    claims["oidc.circleci.com"] = {"project-id": BY_NAME["circleci"].pins["oidc.circleci.com/project-id"]}
    assert outcome(policies, claims) == "integration.unknown"
    nested = {"request_tags": {"aws_account": "123456789012"}, "org_id": "o-abc1234567"}
    tagged = changed(BY_NAME["aws"], ("https://sts.amazonaws.com/",), nested)
    assert outcome(policies, tagged) == "identity.claim_missing"


FOREIGN = "octo-org/shared/.github/workflows/evaluate.yml@refs/heads/main"


def test_a_job_of_borrowed_code_needs_a_commit_that_the_policy_names(policies: PolicySet, tmp_path: Path) -> None:
    borrowed: list[Any] = [
        FOREIGN, "example-org/evals-evil/.github/workflows/a.yml@refs/heads/main", "example-org/evals", "", None, 7,
        "Example-Org/evals/.github/workflows/evaluate.yml@refs/heads/main", "xexample-org/evals/.github/workflows/a.yml@r",
    ]  # fmt: skip
    found = {outcome(policies, changed(GITHUB, ("job_workflow_ref",), value)) for value in borrowed}
    assert found == {"identity.claim_mismatch"}
    assert outcome(policies, changed(GITHUB, ("job_workflow_ref",), ...)) == GRANTED
    own = {"repository": "new-org/evals", "job_workflow_ref": "new-org/evals/.github/workflows/a.yml@r"}
    assert outcome(policies, token(GITHUB) | own) == GRANTED
    for changes in ({"repository": "old-org/evals"}, {"repository": None}):
        assert outcome(policies, token(GITHUB) | own | changes) == "identity.claim_mismatch"
    rules: list[Any] = [COMMIT, {"any_of": [COMMIT, "c" * 40]}]
    for rule in rules:
        require = {**GITHUB.require, "job_workflow_ref": FOREIGN, "job_workflow_sha": rule}
        policies = loaded(tmp_path, GITHUB, GITHUB.identity(require=require))
        good = {**token(GITHUB), "job_workflow_ref": FOREIGN}
        assert outcome(policies, good) == GRANTED
        assert outcome(policies, {**good, "job_workflow_sha": OTHER_COMMIT}) == "identity.claim_mismatch"
        del good["job_workflow_sha"]
        assert outcome(policies, good) == "identity.claim_missing"


def refused(folder: Path, sample: Sample, **entry: Any) -> str:
    """Return why a sample's providers, with a changed entry, do not load. `...` removes a member."""
    table = {
        name: {key: value for key, value in one.items() if value is not ...}
        for name, one in sample.providers(**entry).items()
    }
    (folder / "inspect-ai.yaml").unlink(missing_ok=True)
    write(folder, text_of(table))
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


def test_only_an_issuer_of_the_profile_s_form_is_taken(tmp_path: Path) -> None:
    for profile, issuers in ISSUERS.items():
        for issuer in issuers:
            policies = loaded(tmp_path, BY_NAME[profile], BY_NAME[profile].identity(), issuer=issuer)
            assert outcome(policies, {**token(BY_NAME[profile]), "iss": issuer}) == GRANTED, issuer
    for profile, issuers in STRANGE_ISSUERS.items():
        for issuer in issuers:
            assert f"not an issuer of {profile}" in refused(tmp_path, BY_NAME[profile], issuer=issuer), issuer


SHARED_AUDIENCES = [
    ("github-actions", "https://github.com/example-org"), ("buildkite", "https://buildkite.com/acme-inc"),
    ("circleci", UUID.format(1)), ("codefresh", "https://g.codefresh.io"),
    ("kubernetes", "https://kubernetes.default.svc"), ("kubernetes", "https://kubernetes.default.svc.cluster.local"),
    ("kubernetes", "https://kubernetes.default.svc/"), ("kubernetes", "kubernetes.default"),
    *((sample.profile, sample.issuer) for sample in SAMPLES),
]  # fmt: skip


def test_what_no_documentation_says_must_be_given(tmp_path: Path) -> None:
    for profile, member in (("bitbucket", "algorithms"), ("bitbucket", "max_lifetime_s"), ("codefresh", "algorithms")):
        assert f"`{member}`" in refused(tmp_path, BY_NAME[profile], **{member: ...})
    for profile, rules in PROFILES.items():
        if rules.issuer is None and judges(rules, "issuer"):
            assert "needs an `issuer`" in refused(tmp_path, BY_NAME[profile], issuer=...)


def test_each_profile_is_consistent_and_publishes_no_person() -> None:
    people = re.compile(r".*(?:actor|mail|login|user|initiator|creator|_slug|/name|display).*|name|(?:upn|azpacr)")
    for profile in PROFILES.values():
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
        assert not [claim for claim in profile.provenance if people.fullmatch(claim)]
