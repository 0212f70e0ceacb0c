"""The simulated jobs of `issuer dev`: the real policies judge them like real jobs."""

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
from issuer.io.http_client import HttpRequest, send
from issuer.policy.authoring.explain import ReadCredential, explain, present_token
from issuer.policy.authoring.load import load_policies
from issuer.policy.match import PolicySet
from issuer.service.authn.pat_records import read_records
from tests.support.samples import SAMPLES, policy_of, text_of

URL = "http://127.0.0.1:9"


class Played:
    """A bench on a folder of policies, and the decisions of its mirror."""

    def __init__(self, folder: Path, source: Path, local: LocalProvider) -> None:
        self.local = local
        self.pats = folder / "pats"
        self.bench = Bench(self.local, self.pats, source, load_policies(source, URL, development=True))
        mirror(source, folder / "mirror", self.bench.issuer_of)
        self.policies: PolicySet = load_policies(folder / "mirror", URL, development=True)

    def code(self, **job: Any) -> Code | None:
        """Return the code of a job's refusal, None for a grant."""
        presented = present_token(self.policies, self.bench.credential(Job(**job), URL)[0], int(time.time()))
        assert isinstance(presented, ReadCredential)
        explained = explain(self.policies, presented, (), int(time.time()))
        return explained.code


@pytest.fixture(scope="module")
def other() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("bench")
    with LocalProvider() as local:
        yield Played(folder, write_samples(folder / "sample"), local)


JOBS: list[tuple[dict[str, Any], Code | None]] = [
    *((job, None) for job in ({}, *({"provider": name} for name in ("github-actions", "gitlab-ci", "oauth")))),
    ({"fork": True}, Code.INTEGRATION_UNKNOWN),
    ({"branch": "experiment"}, Code.IDENTITY_CLAIM_MISMATCH),
    ({"pull_request": True}, Code.IDENTITY_EVENT_FORBIDDEN),
    ({"expired": True}, Code.IDENTITY_EXPIRED),
    ({"audience": "https://other.example"}, Code.IDENTITY_AUDIENCE_MISMATCH),
    ({"claims": {"ref": "refs/tags/v1"}}, Code.IDENTITY_CLAIM_MISMATCH),
    ({"without": ("ref",)}, Code.IDENTITY_CLAIM_MISSING),
    ({"without": ("jti",)}, None),
    ({"provider": "gitlab-ci", "fork": True}, Code.INTEGRATION_UNKNOWN),
    ({"provider": "gitlab-ci", "branch": "experiment"}, Code.IDENTITY_CLAIM_MISMATCH),
    ({"provider": "gitlab-ci", "pull_request": True}, Code.IDENTITY_EVENT_FORBIDDEN),
    ({"provider": "gitlab-ci", "expired": True}, Code.IDENTITY_EXPIRED),
    ({"provider": "oauth", "fork": True}, Code.INTEGRATION_UNKNOWN),
    ({"provider": "oauth", "claims": {"scope": "openid"}}, Code.IDENTITY_CLAIM_MISMATCH),
]


def test_each_job_gets_the_decision_of_a_real_one(played: Played) -> None:
    assert [(job, code, found) for job, code in JOBS if (found := played.code(**job)) != code] == []


def test_a_job_of_any_provider_is_the_granted_test_of_its_policy(tmp_path: Path, other: LocalProvider) -> None:
    for sample in SAMPLES:
        source = tmp_path / sample.profile / "source"
        source.mkdir(parents=True)
        (source / "providers.yaml").write_text(text_of(sample.providers()))
        test = {"name": "a job", "expect": "granted", "provider": sample.profile, "identity": sample.claims}
        policy = {**msgspec.json.decode(policy_of(sample.identity())), "tests": [test]}
        (source / "inspect-ai.yaml").write_bytes(msgspec.json.format(msgspec.json.encode(policy)))
        played = Played(source.parent, source, other)
        assert (played.code(), played.code(fork=True)) == (None, Code.INTEGRATION_UNKNOWN), sample.profile
        token = jose.parse_compact(played.bench.credential(Job(), URL)[0])
        assert token.header["alg"] in played.policies.providers[played.bench.issuer_of(sample.profile)].algorithms


def test_a_token_is_signed_by_the_key_that_the_provider_publishes(played: Played) -> None:
    discovery = send(HttpRequest("GET", f"{played.local.issuer}/gitlab-ci/.well-known/openid-configuration"))
    about = msgspec.json.decode(discovery.body)
    assert about["issuer"] == f"{played.local.issuer}/gitlab-ci"
    assert about["jwks_uri"] == played.local.issuer + KEY_SET_PATH
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


def test_a_job_that_cannot_be_simulated_is_refused(played: Played) -> None:
    jobs: list[dict[str, Any]] = [
        {"provider": "none"}, {"integration": "none"}, {"integration": "inspect-ai", "provider": "oauth"},
        {"provider": "oauth", "pull_request": True}, {"provider": "oauth", "branch": "x"},
        {"provider": "pat", "without": ("account",)}, {"provider": "pat", "claims": {"account": 7}},
        {"without": ("repositoryid",)},
    ]  # fmt: skip
    details = []
    for job in jobs:
        with pytest.raises(SetupError) as caught:
            played.bench.credential(Job(**job), URL)
        assert caught.value.code is Code.DEV_JOB
        details.append(caught.value.detail)
    assert "no claim repositoryid to remove; did you mean repository_id?" in details[-1]


def test_a_job_needs_the_request_token_and_a_well_formed_request(played: Played) -> None:
    own = played.local.request_token
    bad = ("x", "[]", "{", '{"unknown":1}', '{"claims":[]}', '{"provider":"none"}')
    for job, bearer, status in (("{}", own, 200), ("{}", "x", 401), *((job, own, 400) for job in bad)):
        url = f"{played.local.issuer}{JOB_PATH}?audience={URL}&job={job}"
        assert send(HttpRequest("GET", url, {"Authorization": f"bearer {bearer}"})).status == status, job


def test_only_a_service_in_development_accepts_the_local_provider(played: Played, tmp_path: Path) -> None:
    shutil.copytree(played.pats.parent / "mirror", tmp_path / "policies")
    with pytest.raises(InputError, match="https"):
        load_policies(tmp_path / "policies", "https://issuer.example")
    assert all(each.issuer.startswith("http://127.0.0.1:") for each in played.policies.providers.values())
    assert played.local._server.server_address[0] == settings_for(tmp_path, 1).listen.host == "127.0.0.1"


def test_the_mirror_raises_the_limits_alone_and_lacks_what_was_deleted(played: Played, tmp_path: Path) -> None:
    source = write_samples(tmp_path / "sample")
    own = load_policies(source, URL, development=True).policies
    for name, policy in played.policies.policies.items():
        limits = policy.limits
        assert (limits.identity.burst, limits.integration.burst, limits.refusals.burst) == (50_000, 50_000, 50_000)
        assert msgspec.structs.replace(policy, limits=own[name].limits) == own[name]
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
