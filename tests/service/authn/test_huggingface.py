"""Hugging Face tokens: a Hub over HTTP that answers `whoami-v2` like the real one, and gets the client's own request."""

import datetime
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.errors import IssuerError
from issuer.formats.times import LEEWAY_S
from issuer.identity.table import Provider
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import ANSWER_KEPT_S, ASK_S
from issuer.service.authn.huggingface import HuggingFace
from issuer.service.authn.keysets import ProviderFetcher
from tests.support.clock import Clock
from tests.support.hub import ACCOUNT_ID, BESIDE, Hub, auth
from tests.support.leaks import assert_nothing_secret
from tests.support.responders import silent
from tests.support.reusable import new_nonce, with_nonce
from tests.support.running import Running, rewrite, running, write_folder
from tests.support.tls import NO_ROOTS, certificate

UNDECIDED = str(Code.DEPENDENCY_INTROSPECTION)
SOURCE = "192.0.2.1"


class Opened:
    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.reasons: list[str] = []
        settings: dict[str, Any] = {"development": True, "deadline_s": ASK_S, "ssl_context": NO_ROOTS, **options}
        self.verifier = HuggingFace(
            ProviderFetcher(**settings),
            monotonic=self.clock,
            report=lambda _provider, reason: self.reasons.append(reason),
        )

    async def outcome(self, provider: Provider, token: str, retry_after_s: int = 0, later_s: int = 0) -> str:
        try:
            now = int(time.time()) + later_s
            caller = await self.verifier.verify(token, provider, now, Allowance(SOURCE, retry_after_s))
        except IssuerError as error:
            return str(error.code)
        return str(caller.claims["id"])

    async def aclose(self) -> None:
        await self.verifier.aclose()


def opened(**options: Any) -> aclosing[Opened]:
    return aclosing(Opened(**options))


@pytest.fixture
async def verifier() -> AsyncIterator[Opened]:
    async with opened() as verifier:
        yield verifier


def registered(issuer: str) -> Provider:
    return Provider("hub", "huggingface", issuer, "https://evals.example", (), 0, 0, 1, "discovery", ())


@pytest.fixture(scope="module")
def served() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


@pytest.fixture
def hub(served: LocalProvider) -> Hub:
    served.answers.clear()
    served.requests.clear()
    return Hub(served)


@pytest.fixture
def provider(hub: Hub) -> Provider:
    return registered(hub.provider.issuer)


# -- the account of a token -------------------------------------------------------------------------------------------


async def test_a_token_is_of_the_account_with_the_persistent_id(verifier: Opened, hub: Hub, provider: Provider) -> None:
    now = int(time.time())
    caller = await verifier.verifier.verify(hub.token(), provider, now, Allowance(SOURCE))
    assert caller.use_parts == ("nonce", "hub", ACCOUNT_ID)
    assert {name: caller.claims[name] for name in ("id", "name", "type", "token_role")} == {
        "id": ACCOUNT_ID, "name": "evals-bot", "type": "user", "token_role": "fineGrained",
    }  # fmt: skip
    assert caller.provenance() == {"provider": "hub", "issuer": provider.issuer, "id": ACCOUNT_ID}
    for personal in ("bot@example.org", "Evals Bot", "example-org", "nightly", "avatars"):
        assert personal not in str(caller)


async def test_the_hub_gets_the_request_of_its_own_client(verifier: Opened, hub: Hub, provider: Provider) -> None:
    token = hub.token()
    assert HfApi(endpoint=hub.provider.issuer).whoami(token)["id"] == ACCOUNT_ID
    assert await verifier.outcome(provider, token) == ACCOUNT_ID
    theirs, ours = ({name.lower(): value for name, value in sent.items()} for sent in hub.headers)
    assert ours["authorization"] == theirs["authorization"]
    assert ours.keys() == {"host", "accept", "accept-encoding", "user-agent", "authorization"}


async def test_only_an_access_token_of_hugging_face_is_sent_there(
    verifier: Opened, hub: Hub, provider: Provider
) -> None:
    a, before = "a" * 34, hub.provider.connections
    others = [
        "hf_oauth_eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxIn0.c2ln", f"hf_jwt_{a}", "hf_" + "a" * 15, "hf_" + "a" * 129,
        "hf_" + "a" * 30 + "-b", "hf_" + "ä" * 34, f"hf_{a}\n", f"HF_{a}", f"api_{a}", "evi_pat_" + "a" * 62, "",
    ]  # fmt: skip
    assert [await verifier.outcome(provider, token) for token in others] == [Code.IDENTITY_MALFORMED] * len(others)
    assert hub.provider.connections == before


async def test_an_unknown_token_and_one_that_was_made_for_an_app_are_refused(
    verifier: Opened, hub: Hub, provider: Provider
) -> None:
    for _ in range(2):
        assert await verifier.outcome(provider, "hf_" + "a" * 34) == Code.IDENTITY_CREDENTIAL_UNKNOWN
    assert (hub.asked, verifier.reasons) == (2, []), "it is asked about again"
    for member in (auth("app_token"), auth("app_token_as_user"), auth("oauth"), {}, None, ..., "x"):
        assert await verifier.outcome(provider, hub.token(auth=member)) == Code.IDENTITY_TYPE_REFUSED, member


async def test_an_answer_without_an_account_or_with_another_status_decides_nothing(
    hub: Hub, provider: Provider
) -> None:
    answers: list[dict[str, Any]] = [
        {"id": ...}, {"id": ""}, {"id": 7}, {"id": "a b"}, {"id": "a" * 65}, {"name": ...}, {"type": None},
        {"auth": {"type": "access_token"}}, {"auth": {**auth(), "expiresAt": ""}},
        *({"auth": auth(expiration=end)} for end in (1_900_000_000, "tomorrow", "2030-01-01T00:00:00", "", 0, False)),
        {"auth": {**auth(expiration=""), "expiresAt": "2099-01-01T00:00:00Z"}},
    ]  # fmt: skip
    for members in answers:
        async with opened() as verifier:
            assert await verifier.outcome(provider, hub.token(**members)) == UNDECIDED, members
        assert len(verifier.reasons) == 1
    token = hub.token()
    for status in (204, 302, 400, 403, 404, 429, 500, 503):
        hub.answer = lambda exchange, status=status: exchange.reply(status, hub.tokens[token], Location="/elsewhere")
        async with opened() as verifier:
            assert await verifier.outcome(provider, token) == UNDECIDED
        assert verifier.reasons == [f"the provider answered {status}"]
    assert hub.provider.requests["/elsewhere"] == 0
    hub.answer = silent
    async with opened(deadline_s=0.3) as verifier:
        assert await verifier.outcome(provider, token) == UNDECIDED
    assert verifier.reasons == ["TimeoutError"]


# -- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_revoked_token_is_refused_within_a_minute(verifier: Opened, hub: Hub, provider: Provider) -> None:
    token = hub.token()
    assert await verifier.outcome(provider, token) == ACCOUNT_ID
    del hub.tokens[token]
    verifier.clock.s += ANSWER_KEPT_S - 0.1
    assert await verifier.outcome(provider, token, retry_after_s=7) == ACCOUNT_ID
    verifier.clock.s += 0.1
    assert await verifier.outcome(provider, token, retry_after_s=7) == Code.RATE_SOURCE
    assert hub.asked == 1
    assert await verifier.outcome(provider, token) == Code.IDENTITY_CREDENTIAL_UNKNOWN


async def test_an_answer_serves_no_longer_than_the_token_lives(hub: Hub, provider: Provider) -> None:
    end = datetime.datetime.fromtimestamp(int(time.time()) + 60, datetime.UTC).isoformat().replace("+00:00", "Z")
    for member in (auth(expiration=end), {**auth(), "expiresAt": end}):
        token, before = hub.token(auth=member), hub.asked
        async with opened() as verifier:
            for later_s, asked in ((0, 1), (10, 1), (61, 2)):
                await verifier.outcome(provider, token, later_s=later_s)
                assert hub.asked - before == asked


async def test_an_expired_token_is_refused_whatever_the_hub_answers(hub: Hub, provider: Provider) -> None:
    """Within the leeway the Hub decides: this clock may be wrong."""
    now = datetime.datetime.now(datetime.UTC)
    ended = [(now - datetime.timedelta(seconds=ago_s)).isoformat() for ago_s in (1, LEEWAY_S + 1)]
    past, future = "2020-01-01T00:00:00.000Z", "2099-01-01T00:00:00Z"
    for member, outcome in (
        (auth(expiration=ended[0]), ACCOUNT_ID),
        (auth(expiration=ended[1]), Code.IDENTITY_EXPIRED),
        ({**auth(), "expiresAt": past}, Code.IDENTITY_EXPIRED),
        ({**auth(expiration=future), "expiresAt": past}, Code.IDENTITY_EXPIRED),
    ):
        async with opened() as verifier:
            assert await verifier.outcome(provider, hub.token(auth=member)) == outcome, member
        assert not verifier.reasons


# -- where it is shown ------------------------------------------------------------------------------------------------


async def test_the_token_is_sent_only_to_the_hub_with_its_certificate(tmp_path: Path) -> None:
    with LocalProvider(host="hub.test", tls=certificate("hub.test", tmp_path)) as served:
        hub, trusting = Hub(served), ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        token, provider = hub.token(), registered(served.issuer)

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with opened(resolve=resolve, ssl_context=trusting) as verifier:
            assert await verifier.outcome(provider, token) == ACCOUNT_ID
            other = registered(served.issuer.replace("hub.test", "other.test"))
            assert await verifier.outcome(other, token) == UNDECIDED
        for options in ({}, {"ssl_context": trusting, "development": False}):
            async with opened(resolve=resolve, **options) as verifier:
                assert await verifier.outcome(provider, token) == UNDECIDED
        assert hub.asked == 1


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(served: LocalProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hub")
    write_folder(folder, served)
    known = f'  hub: {{profile: "huggingface", issuer: "{served.issuer}{BESIDE}"}}\n'
    rewrite(folder, r"\Z", known, "providers.yaml")
    rest = 'names: {name: "evals-bot"}, require: {token_role: "fineGrained"}'
    identity = f'  - {{id: "bot", provider: "hub", pins: {{id: "{ACCOUNT_ID}"}}, {rest}}}\n'
    rewrite(folder, r"^identities:\n", "identities:\n" + identity)
    with running(folder, served) as live:
        yield live
        assert_nothing_secret(live)


def test_a_pinned_account_gets_a_token_also_when_it_is_renamed(hub: Hub, live: Running) -> None:
    answer = live.post(hub.token(), with_nonce(new_nonce()))
    assert (answer.status_code, answer.json()["identity"]) == (201, "bot")
    renamed = live.post(hub.token(name="renamed"), with_nonce(new_nonce()))
    assert renamed.status_code == 201
    assert "renamed" in " ".join(renamed.json()["warnings"])
    stranger = live.post(hub.token(id="7" * 24), with_nonce(new_nonce()))
    assert (stranger.status_code, stranger.json()["code"]) == (403, "integration.unknown")
    unknown = live.post("hf_" + "a" * 34, with_nonce(new_nonce()))
    assert (unknown.status_code, unknown.json()["code"]) == (401, "identity.credential_unknown")
