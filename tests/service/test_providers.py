"""Every profile over HTTP: the real service, and a real provider of each kind that signs tokens of the documented shape."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from issuer import jose
from issuer.dev.provider import LocalProvider, SigningKey, eddsa_key, es384_key, ps256_key
from issuer.policy.profiles import PROFILES
from issuer.service.keyring import generate
from tests.policy.samples import BY_NAME, COMMIT, GITHUB_SUBJECTS, PERSON, SAMPLES, Sample, policy_of, text_of
from tests.running import Running, numbered, running
from tests.service.conftest import assert_nothing_secret

_numbers = itertools.count(1)
each = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.profile)
# What a provider of the profile signs with, beside RS256 and ES256, which every local provider has.
MORE_KEYS = {"aws": [es384_key], "spiffe": [es384_key, ps256_key], "jenkins": [eddsa_key]}
ENTRIES = {"jenkins": {"algorithms": ["RS256", "EdDSA"]}, "kubernetes": {"algorithms": ["RS256", "ES256"]}}


@dataclass
class Stage:
    """A service with thirteen providers; `locals` by profile, `keys` those of each by algorithm."""

    live: Running
    locals: dict[str, LocalProvider]
    keys: dict[str, dict[str, SigningKey]]

    def token(self, sample: Sample, *, alg: str = "RS256", claims: dict[str, Any] | None = None, **times: Any) -> str:
        """Sign a token that nobody has used: of the sample's claims, or of these."""
        key, local, now = self.keys[sample.profile][alg], self.locals[sample.profile], int(time.time())
        said = {"iss": local.issuer, "aud": self.live.url, "iat": now, "exp": now + 300,
                **(sample.claims if claims is None else claims), "jti": f"token-{next(_numbers)}", **times}  # fmt: skip
        return local.sign({"alg": alg, "kid": key.kid}, said, key)

    def outcome(self, token: str) -> str:
        """Post a good body and return the code of the refusal, or `issued`."""
        answer = self.live.post(token, numbered(next(_numbers)))
        if answer.status_code == 201:
            return "issued"
        code: str = answer.json()["code"]
        return code


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("providers")
    with ExitStack() as stack:
        locals_ = {sample.profile: stack.enter_context(LocalProvider()) for sample in SAMPLES}
        for name, makers in MORE_KEYS.items():
            locals_[name].published += [maker() for maker in makers]
        entries: dict[str, Any] = {}
        for sample in SAMPLES:
            issuer = locals_[sample.profile].issuer
            entries |= sample.providers(issuer=issuer, **ENTRIES.get(sample.profile, {}))
        identities = [{**sample.identity(), "id": sample.profile} for sample in SAMPLES]
        (folder / "policies").mkdir()
        (folder / "policies" / "providers.yaml").write_text(text_of(entries), "utf-8")
        (folder / "policies" / "inspect-ai.yaml").write_text(policy_of(*identities), "utf-8")
        generate(folder / "keys", "active")
        live = stack.enter_context(running(folder, locals_["github-actions"]))
        keys = {name: {key.alg: key for key in local.published} for name, local in locals_.items()}
        yield Stage(live, locals_, keys)
        live.process.terminate()
        assert live.process.wait(30) == 0
        assert_nothing_secret(live)


@each
def test_a_token_of_every_profile_is_issued_for_and_shows_no_person(stage: Stage, sample: Sample) -> None:
    for alg in {"RS256", *(key for key in stage.keys[sample.profile] if key in _algorithms(sample))}:
        answer = stage.live.post(stage.token(sample, alg=alg), numbered(next(_numbers)))
        assert answer.status_code == 201, answer.text
        payload = json.loads(jose.parse_compact(answer.json()["verify_token"]).unverified_payload)
        assert payload["caller"] == {
            "provider": sample.profile, "issuer": stage.locals[sample.profile].issuer, **sample.public,
        }  # fmt: skip
        assert PERSON not in json.dumps(payload)


def _algorithms(sample: Sample) -> tuple[str, ...]:
    entry = {**sample.entry, **ENTRIES.get(sample.profile, {})}
    return tuple(entry.get("algorithms", PROFILES[sample.profile].algorithms))


@pytest.mark.parametrize("subject", GITHUB_SUBJECTS)
def test_both_forms_of_github_s_subject_pass(stage: Stage, subject: str) -> None:
    sample = BY_NAME["github-actions"]
    assert stage.outcome(stage.token(sample, claims={**sample.claims, "sub": subject})) == "issued"


@each
def test_an_algorithm_of_the_provider_s_that_is_not_registered_is_refused(stage: Stage, sample: Sample) -> None:
    unregistered = stage.keys[sample.profile].keys() - set(_algorithms(sample))
    for alg in unregistered:
        assert stage.outcome(stage.token(sample, alg=alg)) == "identity.algorithm_refused"
    assert unregistered or sample.profile in {"kubernetes", "oidc", "spiffe"}


@each
def test_an_audience_is_this_service_alone(stage: Stage, sample: Sample) -> None:
    assert stage.outcome(stage.token(sample, aud=[stage.live.url])) == "issued"
    for audience in ([stage.live.url, "https://other.example"], "https://other.example", f"{stage.live.url}/"):
        assert stage.outcome(stage.token(sample, aud=audience)) == "identity.audience_mismatch"


@each
def test_a_token_that_lives_longer_than_its_profile_allows_is_refused(stage: Stage, sample: Sample) -> None:
    longest: int = sample.entry.get("max_lifetime_s") or PROFILES[sample.profile].max_lifetime_s or 0
    now = int(time.time())
    assert stage.outcome(stage.token(sample, iat=now, exp=now + longest)) == "issued"
    assert stage.outcome(stage.token(sample, iat=now, exp=now + longest + 1)) == "identity.lifetime_too_long"


@each
def test_a_pin_that_is_one_character_away_is_nobody(stage: Stage, sample: Sample) -> None:
    for pin in sample.pins:
        assert stage.outcome(stage.token(sample, claims=_with(sample, pin, f"{sample.pins[pin]}\u200b"))) == (
            "integration.unknown"
        )


@each
def test_a_requirement_that_is_not_met_is_told_with_its_place(stage: Stage, sample: Sample) -> None:
    for name in sample.require:
        answer = stage.live.post(stage.token(sample, claims=_with(sample, name, "something-else")), numbered(1))
        assert answer.status_code == 403
        assert answer.json()["code"] in {"identity.claim_mismatch", "identity.claim_missing"}
        assert f"identities.{sample.profile}.require.{name}" in answer.text


def _with(sample: Sample, name: str, value: Any) -> dict[str, Any]:
    """Return the sample's claims in which what a policy calls by this name has another value."""
    how = PROFILES[sample.profile].derived.get(name)
    claims: dict[str, Any] = json.loads(json.dumps(sample.claims))
    inner = claims
    for member in how.path[:-1] if how else ():
        inner = inner[member]
    inner[how.path[-1] if how else name] = value
    return claims


def test_events_demands_and_borrowed_code_are_judged(stage: Stage) -> None:
    for profile, changes, code in (
        ("github-actions", {"event_name": "pull_request_target"}, "identity.event_forbidden"),
        ("gitlab-ci", {"pipeline_source": "merge_request_event"}, "identity.event_forbidden"),
        ("buildkite", {"build_source": "webhook"}, "identity.event_forbidden"),
        ("circleci", {"oidc.circleci.com/ssh-rerun": True}, "identity.claim_mismatch"),
        ("azure", {"scp": "evals.sign"}, "identity.claim_mismatch"),
        ("codefresh", {"scm_pull_request_target_branch": "main"}, "identity.claim_mismatch"),
        ("github-actions", {"job_workflow_ref": f"evil/x/.github/workflows/a.yml@{COMMIT}"}, "identity.claim_mismatch"),
    ):
        sample = BY_NAME[profile]
        assert stage.outcome(stage.token(sample, claims={**sample.claims, **changes})) == code, profile


def test_a_token_says_only_what_its_own_provider_may(stage: Stage) -> None:
    """One provider's token with another's ids: pins are of a provider, and the derived claims of a profile."""
    forged = {**BY_NAME["github-actions"].claims, "sub": "somebody"}
    assert stage.outcome(stage.token(BY_NAME["oidc"], claims=forged)) == "integration.unknown"
    uid = "kubernetes.io/serviceaccount/uid"
    spoofed = {"sub": "x", uid: BY_NAME["kubernetes"].pins[uid], "kubernetes.io/namespace": "evals"}
    assert stage.outcome(stage.token(BY_NAME["kubernetes"], claims=spoofed)) == "integration.unknown"
