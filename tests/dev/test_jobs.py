"""The jobs that `issuer dev` plays: judged by the real policies, each gets what such a job deserves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.codes import Code
from issuer.dev.jobs import JOB_PATH, Job
from issuer.dev.local_issuer import Bench, mirror, write_samples
from issuer.dev.provider import KEY_SET_PATH, LocalProvider
from issuer.dev.sandbox import settings_for
from issuer.errors import InputError, SetupError
from issuer.formats import jose
from issuer.io.http_client import HttpAnswer, HttpRequest, send
from issuer.policy.authoring.explain import ReadCredential, explain, present_token
from issuer.policy.authoring.load import load_policies
from issuer.policy.match import PolicySet
from issuer.service.authn.pat_records import read_records
from tests.support.samples import SAMPLES, Sample, policy_of, text_of

URL = "http://127.0.0.1:9"


class Played:
    """A bench on a folder of policies, and what its mirror says of jobs."""

    def __init__(self, folder: Path, source: Path, local: LocalProvider) -> None:
        self.local = local
        self.pats = folder / "pats"
        self.bench = Bench(self.local, self.pats, source, load_policies(source, URL, development=True))
        mirror(source, folder / "mirror", self.bench.issuer_of)
        self.policies: PolicySet = load_policies(folder / "mirror", URL, development=True)

    def code(self, **job: Any) -> Code | None:
        """Return what refuses a job at this service; None where it is granted."""
        presented = present_token(self.policies, self.bench.credential(Job(**job), URL)[0], int(time.time()))
        assert isinstance(presented, ReadCredential)
        explained = explain(self.policies, presented, (), int(time.time()))
        return explained.code

    def claims(self, **job: Any) -> dict[str, Any]:
        payload = jose.parse_compact(self.bench.credential(Job(**job), URL)[0]).unverified_payload
        found: dict[str, Any] = msgspec.json.decode(payload)
        return found


@pytest.fixture(scope="module")
def other() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("bench")
    with LocalProvider() as local:
        yield Played(folder, write_samples(folder / "sample"), local)


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({}, None),
        ({"provider": "github-actions"}, None),
        ({"provider": "gitlab-ci"}, None),
        ({"provider": "oauth"}, None),
        ({"fork": True}, Code.INTEGRATION_UNKNOWN),
        ({"branch": "experiment"}, Code.IDENTITY_CLAIM_MISMATCH),
        ({"pull_request": True}, Code.IDENTITY_EVENT_FORBIDDEN),
        ({"expired": True}, Code.IDENTITY_EXPIRED),
        ({"audience": "https://other.example"}, Code.IDENTITY_AUDIENCE_MISMATCH),
        ({"claims": {"ref": "refs/tags/v1"}}, Code.IDENTITY_CLAIM_MISMATCH),
        ({"claims": {"event_name": "issue_comment"}}, Code.IDENTITY_EVENT_FORBIDDEN),
        ({"without": ("ref",)}, Code.IDENTITY_CLAIM_MISSING),
        ({"without": ("jti",)}, None),
        ({"claims": {"job_workflow_ref": "evil/x/.github/workflows/x.yml@refs/heads/main"}}, Code.IDENTITY_CLAIM_MISMATCH),
        ({"provider": "gitlab-ci", "fork": True}, Code.INTEGRATION_UNKNOWN),
        ({"provider": "gitlab-ci", "branch": "experiment"}, Code.IDENTITY_CLAIM_MISMATCH),
        ({"provider": "gitlab-ci", "pull_request": True}, Code.IDENTITY_EVENT_FORBIDDEN),
        ({"provider": "gitlab-ci", "expired": True}, Code.IDENTITY_EXPIRED),
        ({"provider": "oauth", "fork": True}, Code.INTEGRATION_UNKNOWN),
        ({"provider": "oauth", "claims": {"sub": "somebody"}}, Code.IDENTITY_CLAIM_MISMATCH),
        ({"provider": "oauth", "claims": {"scope": "openid"}}, Code.IDENTITY_CLAIM_MISMATCH),
    ],
)  # fmt: skip
def test_a_job_gets_what_it_deserves(played: Played, job: dict[str, Any], code: Code | None) -> None:
    assert played.code(**job) == code


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.profile)
def test_a_job_of_any_provider_is_that_of_its_policy_s_own_test(
    sample: Sample, tmp_path: Path, other: LocalProvider
) -> None:
    """No profile has a job that only its source code knows: the granted test of the policy is one."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "providers.yaml").write_text(text_of(sample.providers()))
    test = {"name": "a job", "expect": "granted", "provider": sample.profile, "identity": sample.claims}
    policy = {**msgspec.json.decode(policy_of(sample.identity())), "tests": [test]}
    (tmp_path / "source" / "inspect-ai.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(policy)))
    played = Played(tmp_path, tmp_path / "source", other)
    assert played.code() is None
    assert played.code(fork=True) is Code.INTEGRATION_UNKNOWN
    token = jose.parse_compact(played.bench.credential(Job(), URL)[0])
    assert token.header["alg"] in played.policies.providers[played.bench.issuer_of(sample.profile)].algorithms


def test_a_token_is_signed_by_the_key_that_the_provider_publishes(played: Played) -> None:
    discovery = send(HttpRequest("GET", f"{played.local.issuer}/gitlab-ci/.well-known/openid-configuration"))
    about = msgspec.json.decode(discovery.body)
    assert (about["issuer"], about["jwks_uri"]) == (
        f"{played.local.issuer}/gitlab-ci",
        played.local.issuer + KEY_SET_PATH,
    )
    keys = jose.parse_key_set(send(HttpRequest("GET", about["jwks_uri"])).body)
    token = jose.parse_compact(played.bench.credential(Job(provider="gitlab-ci"), URL)[0])
    assert keys.keys[str(token.header["kid"])].verifies(str(token.header["alg"]), token.signing_input, token.signature)


def test_an_access_token_is_in_the_folder_that_the_service_reads(played: Played) -> None:
    token, provider = played.bench.credential(Job(provider="pat"), URL)
    assert token.startswith("evi_pat_")
    (record,), bad = read_records(played.pats)
    assert (provider.id, record.account, record.scopes, bad) == ("pat", "my-framework-nightly", ("tokens:issue",), [])
    played.bench.credential(Job(provider="pat", expired=True), URL)
    assert sorted(each.expires > time.time() for each in read_records(played.pats)[0]) == [False, True]


@pytest.mark.parametrize(
    "job",
    [{"provider": "none"}, {"integration": "none"}, {"integration": "inspect-ai", "provider": "oauth"},
     {"provider": "oauth", "pull_request": True}, {"provider": "oauth", "branch": "x"},
     {"provider": "pat", "without": ("account",)}, {"provider": "pat", "without": ("scope",)},
     {"provider": "pat", "claims": {"account": 7}}],
)  # fmt: skip
def test_a_job_that_cannot_be_played_is_said(played: Played, job: dict[str, Any]) -> None:
    with pytest.raises(SetupError) as caught:
        played.bench.credential(Job(**job), URL)
    assert caught.value.code is Code.DEV_JOB


def test_a_claim_that_the_good_job_has_not_cannot_be_lacking_and_the_nearest_is_named(played: Played) -> None:
    with pytest.raises(SetupError) as caught:
        played.bench.credential(Job(without=("repositoryid",)), URL)
    assert "no claim repositoryid to remove; did you mean repository_id?" in caught.value.detail


def ask(played: Played, job: str, bearer: str = "") -> HttpAnswer:
    given = {"Authorization": f"bearer {bearer or played.local.request_token}"}
    return send(HttpRequest("GET", f"{played.local.issuer}{JOB_PATH}?audience={URL}&job={job}", given))


def test_who_has_no_request_token_gets_no_job(played: Played) -> None:
    assert ask(played, "{}").status == 200
    assert ask(played, "{}", "x").status == 401
    for bad in ("x", "[]", "{", '{"unknown":1}', '{"claims":[]}', '{"provider":"none"}'):
        assert ask(played, bad).status == 400, bad


def test_only_a_service_in_development_takes_the_local_provider(played: Played, tmp_path: Path) -> None:
    shutil.copytree(played.pats.parent / "mirror", tmp_path / "policies")
    with pytest.raises(InputError, match="https"):
        load_policies(tmp_path / "policies", "https://issuer.example")
    assert {
        provider.issuer.partition("//")[2].partition(":")[0] for provider in played.policies.providers.values()
    } == {"127.0.0.1"}
    assert played.local._server.server_address[0] == settings_for(tmp_path, 1).listen.host == "127.0.0.1"


def test_the_mirror_limits_nobody_and_changes_nothing_else(played: Played, tmp_path: Path) -> None:
    source = load_policies(write_samples(tmp_path / "sample"), URL, development=True)
    for name, policy in played.policies.policies.items():
        limits = policy.limits
        assert (limits.identity.burst, limits.integration.burst, limits.refusals.burst) == (50_000, 50_000, 50_000)
        assert msgspec.structs.replace(policy, limits=source.policies[name].limits) == source.policies[name]


def test_a_file_that_is_gone_is_gone_in_the_mirror(tmp_path: Path) -> None:
    source = write_samples(tmp_path / "sample")
    (source / "benchmarks" / "a" / "b").mkdir(parents=True)
    (source / "benchmarks" / "a" / "b" / "eval.yaml").write_text("x: 1\n")
    (source / "stops.yaml").write_text("version: 1\nstops: []\n")
    mirror(source, tmp_path / "to", lambda id: f"http://127.0.0.1:1/{id}")
    assert (tmp_path / "to" / "benchmarks" / "a" / "b" / "eval.yaml").read_text() == "x: 1\n"
    for name in ("my-framework.yaml", "stops.yaml", "benchmarks/a/b/eval.yaml"):
        (source / name).unlink()
    mirror(source, tmp_path / "to", lambda id: f"http://127.0.0.1:1/{id}")
    assert sorted(path.name for path in (tmp_path / "to").rglob("*.yaml")) == [
        "inspect-ai.yaml", "lm-eval.yaml", "providers.yaml",
    ]  # fmt: skip
