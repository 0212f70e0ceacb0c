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
from issuer.identity.profiles import PROFILES
from issuer.service.authn.huggingface import WHOAMI
from tests.support.every_provider import TYPES, WORKLOADS, Providers, algorithms_of, providers_of
from tests.support.leaks import assert_nothing_secret
from tests.support.running import Running, numbered, running
from tests.support.samples import BY_NAME, COMMIT, PERSON, UUID, Sample

_numbers = itertools.count(1)


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
        is_unverified = answer.status_code == 401
        assert (problem["errors"] == []) == is_unverified, "an unverified token gets its code alone"
        code: str = problem["code"]
        return code


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


def test_a_token_of_every_profile_is_issued_for_and_shows_no_person(stage: Stage) -> None:
    for sample in WORKLOADS:
        local = stage.providers.locals[sample.profile]
        for alg in algorithms_of(sample):
            answer = stage.post(stage.token(sample, alg))
            assert answer.status_code == 201, (sample.profile, alg, answer.text)
            payload = json.loads(jose.parse_compact(answer.json()["verify_token"]).unverified_payload)
            assert payload["caller"] == {"provider": sample.profile, "issuer": local.issuer, **sample.public}
            assert PERSON not in json.dumps(payload)
        types = (*TYPES.get(sample.profile, ()), "at+jwt")
        found = {typ: stage.outcome(stage.providers.sign(sample, stage.claims(sample), typ=typ)) for typ in types}
        assert found == dict.fromkeys(types, "issued") | {"at+jwt": "identity.type_refused"}, sample.profile


def test_a_key_that_names_no_algorithm_verifies_by_those_that_are_registered(stage: Stage) -> None:
    for profile, outcome in (("spiffe", "issued"), ("google", "identity.algorithm_refused")):
        key, sample = stage.unnamed[profile], BY_NAME[profile]
        signed = stage.providers.locals[profile].sign({"alg": "PS256", "kid": key.kid}, stage.claims(sample), key)
        assert stage.outcome(signed) == outcome


def living_too_long(stage: Stage, sample: Sample) -> str:
    now = int(time.time())
    longest_s = sample.entry.get("max_lifetime_s") or PROFILES[sample.profile].max_lifetime_s or 0
    return stage.token(sample, iat=now, exp=now + longest_s + 1)


def unregistered(stage: Stage, sample: Sample) -> str:
    """Sign by a key that the provider publishes, for an algorithm that it is not registered with."""
    (alg, *_) = sorted(stage.providers.keys[sample.profile].keys() - set(algorithms_of(sample)))
    return stage.token(sample, alg)


def by_another_provider(stage: Stage, sample: Sample) -> str:
    """Name the provider's own key, and sign by another provider's."""
    kid = stage.providers.keys[sample.profile]["RS256"].kid
    other = "oidc" if sample.profile != "oidc" else "jenkins"
    return stage.providers.sign(BY_NAME[other], stage.claims(sample), kid=kid)


# What depends on the provider's table; tests/service/authn/test_oidc.py has what holds for every token.
FAILURES: dict[str, tuple[Callable[[Stage, Sample], str], str]] = {
    "by an algorithm that is not registered": (unregistered, "identity.algorithm_refused"),
    "living too long": (living_too_long, "identity.lifetime_too_long"),
    "by another provider's key": (by_another_provider, "identity.signature_invalid"),
    # An issuer of the provider's real kind that the table does not have.
    "of the real issuer": (lambda stage, sample: stage.token(sample, iss=sample.issuer), "identity.issuer_unknown"),
}


def test_a_token_is_refused_with_the_code_of_its_failure(stage: Stage) -> None:
    for sample in WORKLOADS:
        outcomes = {name: stage.outcome(forge(stage, sample)) for name, (forge, _) in FAILURES.items()}
        assert outcomes == {name: code for name, (_, code) in FAILURES.items()}, sample.profile


AWS = "https://sts.amazonaws.com/"
LEGACY_SECRET = {"aud": UNSET, "exp": UNSET, "iat": UNSET, "iss": "kubernetes/serviceaccount"}
PITFALLS: list[tuple[str, dict[str, Any], str]] = [
    ("github-actions", {"event_name": UNSET}, "identity.event_forbidden"),
    ("github-actions", {"job_workflow_ref": f"evil/x/.github/workflows/a.yml@{COMMIT}"}, "identity.claim_mismatch"),
    ("gitlab-ci", {"pipeline_source": "merge_request_event"}, "identity.event_forbidden"),
    ("gitlab-ci", {"iss": "gitlab.com"}, "identity.issuer_unknown"),  # CI_JOB_JWT
    ("gitlab-ci", {"project_id": 41000001}, "integration.unknown"),  # ids are text
    ("buildkite", {"build_source": "webhook"}, "identity.event_forbidden"),
    ("buildkite", {"organization_id": UUID.format(99)}, "integration.unknown"),  # all customers have one issuer
    ("circleci", {"oidc.circleci.com/ssh-rerun": True}, "identity.claim_mismatch"),
    ("circleci", {"aud": UUID.format(1)}, "identity.audience_mismatch"),  # the default
    ("google", {"sub": "113774264463038321965"}, "integration.unknown"),  # people have the same issuer
    ("google", {"email_verified": "true"}, "identity.claim_mismatch"),
    ("azure", {"scp": "evals.sign"}, "identity.claim_mismatch"),  # a person's
    ("azure", {"iss": f"https://sts.windows.net/{UUID.format(1)}/"}, "identity.issuer_unknown"),  # version 1
    ("aws", {AWS: {"request_tags": {"aws_account": "123456789012"}}}, "identity.claim_missing"),
    ("kubernetes", LEGACY_SECRET, "identity.issuer_unknown"),
    ("kubernetes", {**LEGACY_SECRET, "iss": UNSET}, "identity.issuer_unknown"),
    ("kubernetes", {"aud": ["https://kubernetes.default.svc"]}, "identity.audience_mismatch"),
    ("spiffe", {"iss": UNSET}, "identity.issuer_unknown"),
    ("spiffe", {"sub": "spiffe://example.org/evals/runner/x"}, "integration.unknown"),
    ("codefresh", {"scm_pull_request_target_branch": "main"}, "identity.claim_mismatch"),
]


def test_the_pitfalls_of_the_providers_documentation_are_refused(stage: Stage) -> None:
    outcomes = [(profile, changes, stage.outcome(stage.token(BY_NAME[profile], **changes)))
                for profile, changes, _ in PITFALLS]  # fmt: skip
    assert outcomes == PITFALLS


def test_a_token_with_another_provider_s_ids_is_of_no_integration(stage: Stage) -> None:
    forged = stage.claims(BY_NAME["oidc"]) | BY_NAME["github-actions"].claims | {"sub": "somebody"}
    assert stage.outcome(stage.providers.sign(BY_NAME["oidc"], forged)) == "integration.unknown"
    uid = "kubernetes.io/serviceaccount/uid"
    spoofed: dict[str, Any] = {"sub": "x", uid: BY_NAME["kubernetes"].pins[uid], "kubernetes.io/namespace": "evals"}
    spoofed["kubernetes.io"] = UNSET
    assert stage.outcome(stage.token(BY_NAME["kubernetes"], **spoofed)) == "integration.unknown"


def test_a_hub_token_is_sent_nowhere_if_no_hub_is_registered(stage: Stage) -> None:
    assert stage.outcome("hf_" + "a" * 34) == "identity.issuer_unknown"
    assert all(WHOAMI not in local.requests for local in stage.providers.locals.values())
