"""Every profile over HTTP: the real service, and a real provider of each kind that signs tokens of the documented shape."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from msgspec import UNSET

from issuer.dev.provider import LocalProvider, ProviderKey, make_key
from issuer.formats import jose
from issuer.formats.times import LEEWAY_S
from issuer.identity.profiles import PROFILES
from issuer.service.authn.huggingface import WHOAMI
from tests.support.every_provider import TYPES, WORKLOADS, Providers, algorithms_of, providers_of
from tests.support.leaks import assert_nothing_secret
from tests.support.running import Running, numbered, running
from tests.support.samples import BY_NAME, COMMIT, GITHUB_SUBJECTS, PERSON, UUID, Sample

_numbers = itertools.count(1)
each = pytest.mark.parametrize("sample", WORKLOADS, ids=lambda sample: sample.profile)
ELSEWHERE = "https://other.example"


@dataclass
class Stage:
    """A service, and a provider of every kind; `unnamed` are PS256 keys whose JWK says neither `alg` nor `use`."""

    live: Running
    providers: Providers
    unnamed: dict[str, ProviderKey]

    def claims(self, sample: Sample, **changes: Any) -> dict[str, Any]:
        return self.providers.claims(sample, self.live.url, **changes)

    def token(self, sample: Sample, alg: str = "RS256", **changes: Any) -> str:
        """Sign an unused token; `UNSET` removes a claim."""
        return self.providers.sign(sample, self.claims(sample, **changes), alg)

    def post(self, token: str) -> httpx.Response:
        return self.live.post(token, numbered(next(_numbers)))

    def outcome(self, token: str) -> str:
        """Post a good body and return the code of the refusal, or `issued`."""
        answer = self.post(token)
        if answer.status_code == 201:
            return "issued"
        problem = answer.json()
        code: str = problem["code"]
        assert answer.status_code == (401 if code in UNVERIFIED else 403)
        assert (problem["errors"] == []) == (code in UNVERIFIED), "an unverified token learns a code and nothing else"
        return code


UNVERIFIED = {
    f"identity.{name}"
    for name in ("malformed", "algorithm_refused", "issuer_unknown", "key_unknown", "type_refused", "signature_invalid",
                 "expired", "too_old", "lifetime_too_long", "audience_mismatch")
}  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("providers")
    with providers_of(WORKLOADS) as providers:
        providers.write(folder, WORKLOADS)
        unnamed = {profile: with_an_unnamed_key(providers.locals[profile]) for profile in ("spiffe", "google")}
        with running(folder, providers.locals["github-actions"]) as live:
            yield Stage(live, providers, unnamed)
            live.process.terminate()
            assert live.process.wait(60) == 0
            assert_nothing_secret(live)


def with_an_unnamed_key(local: LocalProvider) -> ProviderKey:
    """Publish one more key, as SPIRE does."""
    key = make_key("PS256")
    jwk = {name: value for name, value in key.jwk.items() if name not in {"alg", "use"}}
    local.published.append(ProviderKey(key.alg, key.kid, key.signature, jwk))
    return key


# -- tokens that pass ---------------------------------------------------------------------------------------------------


@each
def test_a_token_of_every_profile_is_issued_for_and_shows_no_person(stage: Stage, sample: Sample) -> None:
    local = stage.providers.locals[sample.profile]
    for alg in algorithms_of(sample):
        answer = stage.post(stage.token(sample, alg))
        assert answer.status_code == 201, answer.text
        payload = json.loads(jose.parse_compact(answer.json()["verify_token"]).unverified_payload)
        assert payload["caller"] == {"provider": sample.profile, "issuer": local.issuer, **sample.public}
        assert PERSON not in json.dumps(payload)


@each
def test_a_type_that_the_provider_writes_passes_and_another_does_not(stage: Stage, sample: Sample) -> None:
    def outcome(typ: str) -> str:
        return stage.outcome(stage.providers.sign(sample, stage.claims(sample), typ=typ))

    assert {outcome(typ) for typ in TYPES.get(sample.profile, ("JWT",))} == {"issued"}
    assert outcome("at+jwt") == outcome("eval-verify+jwt") == "identity.type_refused"


@each
def test_an_audience_may_be_a_list_of_one(stage: Stage, sample: Sample) -> None:
    assert stage.outcome(stage.token(sample, aud=[stage.live.url])) == "issued"


@each
def test_a_token_may_live_as_long_as_its_profile_says(stage: Stage, sample: Sample) -> None:
    now = int(time.time())
    assert stage.outcome(stage.token(sample, iat=now, exp=now + longest(sample))) == "issued"


@pytest.mark.parametrize("subject", GITHUB_SUBJECTS)
def test_both_forms_of_github_s_subject_pass(stage: Stage, subject: str) -> None:
    assert stage.outcome(stage.token(BY_NAME["github-actions"], sub=subject)) == "issued"


@pytest.mark.parametrize(("profile", "outcome"), [("spiffe", "issued"), ("google", "identity.algorithm_refused")])
def test_a_key_that_names_no_algorithm_verifies_by_those_that_are_registered(
    stage: Stage, profile: str, outcome: str
) -> None:
    key, sample = stage.unnamed[profile], BY_NAME[profile]
    signed = stage.providers.locals[profile].sign({"alg": "PS256", "kid": key.kid}, stage.claims(sample), key)
    assert stage.outcome(signed) == outcome


def longest(sample: Sample) -> int:
    """Return how many seconds a token of this kind may live."""
    lifetime_s: int = sample.entry.get("max_lifetime_s") or PROFILES[sample.profile].max_lifetime_s or 0
    return lifetime_s


# -- tokens that fail, for each reason ----------------------------------------------------------------------------------


def with_header(**header: Any) -> Forge:
    return lambda stage, sample: stage.providers.sign(sample, stage.claims(sample), **header)


def without_kid(stage: Stage, sample: Sample) -> str:
    key = stage.providers.keys[sample.profile]["RS256"]
    return stage.providers.locals[sample.profile].sign({"alg": "RS256"}, stage.claims(sample), key)


def saying(**changes: Any) -> Forge:
    return lambda stage, sample: stage.token(sample, **changes)


def for_audiences(*audiences: str) -> Forge:
    """`ours` stands for this service."""
    return lambda stage, sample: stage.token(
        sample, aud=[stage.live.url if audience == "ours" else audience for audience in audiences]
    )


def aged(age_s: int) -> Forge:
    """A token that was issued so long ago and lives as long as it may."""

    def forge(stage: Stage, sample: Sample) -> str:
        issued_at = int(time.time()) - age_s
        return stage.token(sample, iat=issued_at, exp=issued_at + longest(sample))

    return forge


def living_too_long(stage: Stage, sample: Sample) -> str:
    now = int(time.time())
    return stage.token(sample, iat=now, exp=now + longest(sample) + 1)


def unregistered(stage: Stage, sample: Sample) -> str:
    """Sign by a key that the provider publishes, for an algorithm that it is not registered with."""
    (alg, *_) = sorted(stage.providers.keys[sample.profile].keys() - set(algorithms_of(sample)))
    return stage.token(sample, alg)


def by_another_provider(stage: Stage, sample: Sample) -> str:
    """Name the provider's own key, and sign by another provider's."""
    other = "oidc" if sample.profile != "oidc" else "jenkins"
    kid = stage.providers.keys[sample.profile]["RS256"].kid
    return stage.providers.sign(BY_NAME[other], stage.claims(sample), kid=kid)


def with_other_claims(stage: Stage, sample: Sample) -> str:
    header, _, signature = stage.token(sample).split(".")
    return ".".join((header, stage.token(sample).split(".")[1], signature))


def with_another_signature(stage: Stage, sample: Sample) -> str:
    head, _, signature = stage.token(sample).rpartition(".")
    return f"{head}.{'AAAA' if signature[:4] != 'AAAA' else 'BBBB'}{signature[4:]}"


def with_a_header_of_its_own(stage: Stage, sample: Sample) -> str:
    claims = stage.claims(sample)
    header, payload, _ = stage.providers.sign(sample, claims, x5t="AAAA").split(".")
    return ".".join((header, payload, stage.providers.sign(sample, claims).split(".")[2]))


Forge = Callable[[Stage, Sample], str]
FAILURES: dict[str, tuple[Forge, str]] = {
    "for somebody else": (saying(aud=ELSEWHERE), "identity.audience_mismatch"),
    "for somebody else, as a list": (for_audiences(ELSEWHERE), "identity.audience_mismatch"),
    "for us and somebody else": (for_audiences("ours", ELSEWHERE), "identity.audience_mismatch"),
    "for somebody else and us": (for_audiences(ELSEWHERE, "ours"), "identity.audience_mismatch"),
    "for us twice": (for_audiences("ours", "ours"), "identity.audience_mismatch"),
    "for ten": (for_audiences("ours", *[f"{ELSEWHERE}/{n}" for n in range(9)]), "identity.audience_mismatch"),
    "for nobody, as a list": (for_audiences(), "identity.audience_mismatch"),
    "for nobody": (saying(aud=UNSET), "identity.audience_mismatch"),
    "by an algorithm that is not registered": (unregistered, "identity.algorithm_refused"),
    "by a key of another algorithm": (
        lambda stage, sample: stage.providers.sign(
            sample, stage.claims(sample), kid=stage.providers.keys[sample.profile]["EdDSA"].kid
        ),
        "identity.algorithm_refused",
    ),
    "living too long": (living_too_long, "identity.lifetime_too_long"),
    "without an end": (saying(exp=UNSET), "identity.malformed"),
    "without a beginning": (saying(iat=UNSET), "identity.malformed"),
    "without a kid": (without_kid, "identity.malformed"),
    "with an empty jti": (saying(jti=""), "identity.malformed"),
    "of another kind": (with_header(typ="logout+jwt"), "identity.type_refused"),
    "by another provider's key": (by_another_provider, "identity.signature_invalid"),
    "with the claims of another": (with_other_claims, "identity.signature_invalid"),
    "with another signature": (with_another_signature, "identity.signature_invalid"),
    "with another header": (with_a_header_of_its_own, "identity.signature_invalid"),
    "of an issuer with a slash": (
        lambda stage, sample: stage.token(sample, iss=f"{stage.providers.locals[sample.profile].issuer}/"),
        "identity.issuer_unknown",
    ),
    # An issuer of the provider's real kind that the table does not have.
    "of the real issuer": (lambda stage, sample: stage.token(sample, iss=sample.issuer), "identity.issuer_unknown"),
}


@each
@pytest.mark.parametrize("failure", FAILURES)
def test_a_token_is_refused_for_the_reason_that_there_is(stage: Stage, sample: Sample, failure: str) -> None:
    forge, code = FAILURES[failure]
    assert stage.outcome(forge(stage, sample)) == code


@each
def test_a_token_that_is_too_old_is_refused(stage: Stage, sample: Sample) -> None:
    """Where a token may age as long as it lives, it has expired by then."""
    profile, margin_s = PROFILES[sample.profile], 10
    age_s = profile.max_age_s or longest(sample)
    code = "identity.too_old" if profile.max_age_s else "identity.expired"
    assert stage.outcome(aged(age_s + LEEWAY_S + margin_s)(stage, sample)) == code
    # The store of these tests is as young as they are: it cannot know what a token of this age was used for.
    answer = stage.post(aged(age_s + LEEWAY_S - margin_s)(stage, sample))
    assert (answer.status_code, answer.json()["code"]) == (503, "dependency.state_reset")


@each
def test_a_pin_that_is_absent_or_one_character_away_is_nobody(stage: Stage, sample: Sample) -> None:
    for pin, value in sample.pins.items():
        for near in (UNSET, f"{value}\u200b", f"{value}x", value[:-1], [value]):
            assert stage.outcome(stage.token(sample, **_with(sample, pin, near))) == "integration.unknown", near


@each
def test_a_requirement_that_is_not_met_is_told_with_its_place(stage: Stage, sample: Sample) -> None:
    for name in sample.require:
        for value, codes in (
            (UNSET, {"identity.claim_missing"}),
            ("something-else", {"identity.claim_mismatch", "identity.claim_missing"}),
        ):
            answer = stage.post(stage.token(sample, **_with(sample, name, value)))
            assert answer.status_code == 403
            assert answer.json()["code"] in codes
            assert f"identities.{sample.profile}.require.{name}" in answer.text


def _with(sample: Sample, name: str, value: Any) -> dict[str, Any]:
    """Return the claims that differ when what a policy calls by this name has another value; `UNSET` takes it away."""
    how = PROFILES[sample.profile].derived.get(name)
    first, *rest = how.path if how else (name,)
    if not rest:
        return {first: value}
    outer = inner = json.loads(json.dumps(sample.claims[first]))
    for member in rest[:-1]:
        inner = inner[member]
    inner[rest[-1]] = value
    if value is UNSET:
        del inner[rest[-1]]
    return {first: outer}


# -- what each provider's documentation warns of ------------------------------------------------------------------------

LEGACY_SECRET = {"aud": UNSET, "exp": UNSET, "iat": UNSET, "iss": "kubernetes/serviceaccount"}
PITFALLS: list[tuple[str, dict[str, Any], str]] = [
    ("github-actions", {"event_name": "pull_request_target"}, "identity.event_forbidden"),
    ("github-actions", {"event_name": UNSET}, "identity.event_forbidden"),
    ("github-actions", {"job_workflow_ref": f"evil/x/.github/workflows/a.yml@{COMMIT}"}, "identity.claim_mismatch"),
    ("gitlab-ci", {"pipeline_source": "merge_request_event"}, "identity.event_forbidden"),
    ("gitlab-ci", {"pipeline_source": UNSET}, "identity.event_forbidden"),
    ("gitlab-ci", {"iss": "gitlab.com"}, "identity.issuer_unknown"),  # CI_JOB_JWT
    ("gitlab-ci", {"project_id": 41000001}, "integration.unknown"),  # ids are text
    ("buildkite", {"build_source": "webhook"}, "identity.event_forbidden"),
    ("buildkite", {"build_source": "trigger_job"}, "identity.event_forbidden"),
    ("buildkite", {"organization_id": UUID.format(99)}, "integration.unknown"),  # the issuer is everybody's
    ("circleci", {"oidc.circleci.com/ssh-rerun": True}, "identity.claim_mismatch"),
    ("circleci", {"oidc.circleci.com/ssh-rerun": UNSET}, "identity.claim_missing"),
    ("circleci", {"oidc.circleci.com/vcs-origin": "github.com/fork/evals"}, "identity.claim_mismatch"),
    ("circleci", {"aud": UUID.format(1)}, "identity.audience_mismatch"),  # the default
    ("google", {"iss": "accounts.google.com"}, "identity.issuer_unknown"),
    ("google", {"sub": "113774264463038321965"}, "integration.unknown"),  # people have the same issuer
    ("google", {"email_verified": "true"}, "identity.claim_mismatch"),
    ("azure", {"scp": "evals.sign"}, "identity.claim_mismatch"),  # a person's
    ("azure", {"iss": f"https://sts.windows.net/{UUID.format(1)}/"}, "identity.issuer_unknown"),  # version 1
    ("azure", {"tid": UUID.format(9)}, "integration.unknown"),
    (
        "aws",
        {"https://sts.amazonaws.com/": {"request_tags": {"aws_account": "123456789012"}}},
        "identity.claim_missing",
    ),
    ("kubernetes", LEGACY_SECRET, "identity.issuer_unknown"),
    ("kubernetes", {**LEGACY_SECRET, "iss": UNSET}, "identity.issuer_unknown"),
    ("kubernetes", {"exp": UNSET}, "identity.malformed"),
    ("kubernetes", {"aud": ["https://kubernetes.default.svc"]}, "identity.audience_mismatch"),
    ("spiffe", {"iss": UNSET}, "identity.issuer_unknown"),
    ("spiffe", {"sub": "spiffe://example.org/evals/runner/x"}, "integration.unknown"),
    ("spiffe", {"sub": "spiffe://evil.example/evals/runner"}, "integration.unknown"),
    ("codefresh", {"scm_pull_request_target_branch": "main"}, "identity.claim_mismatch"),
    ("codefresh", {"aud": "https://g.codefresh.io"}, "identity.audience_mismatch"),
]


@pytest.mark.parametrize(("profile", "changes", "code"), PITFALLS)
def test_what_the_documentation_warns_of_is_refused(
    stage: Stage, profile: str, changes: dict[str, Any], code: str
) -> None:
    assert stage.outcome(stage.token(BY_NAME[profile], **changes)) == code


def test_a_token_says_only_what_its_own_provider_may(stage: Stage) -> None:
    """One provider's token with another's ids: pins are of a provider, and the derived claims of a profile."""
    forged = stage.claims(BY_NAME["oidc"]) | BY_NAME["github-actions"].claims | {"sub": "somebody"}
    assert stage.outcome(stage.providers.sign(BY_NAME["oidc"], forged)) == "integration.unknown"
    uid = "kubernetes.io/serviceaccount/uid"
    spoofed: dict[str, Any] = {
        "sub": "x",
        uid: BY_NAME["kubernetes"].pins[uid],
        "kubernetes.io": UNSET,
        "kubernetes.io/namespace": "evals",
    }
    assert stage.outcome(stage.token(BY_NAME["kubernetes"], **spoofed)) == "integration.unknown"


def test_without_a_hub_in_the_file_no_token_of_its_is_sent_anywhere(stage: Stage) -> None:
    assert stage.outcome("hf_" + "a" * 34) == "identity.issuer_unknown"
    assert all(WHOAMI not in local.requests for local in stage.providers.locals.values())
