"""Hugging Face tokens: a Hub over HTTP that answers `whoami-v2` as the real one does, and is asked as the client asks it."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Iterator
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
    """A verifier with its own clock, and what it reported."""

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
        """Return the account's id, or the code."""
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


def registered(issuer: str) -> Provider:
    return Provider(
        id="hub", profile="huggingface", issuer=issuer, audience="https://evals.example", algorithms=(),
        max_lifetime_s=0, max_age_s=0, uses=1, keys="discovery", events=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


@pytest.fixture
def hub(served: LocalProvider) -> Hub:
    """A Hub without accounts, its counters at zero."""
    served.answers.clear()
    served.requests.clear()
    return Hub(served)


@pytest.fixture
def provider(hub: Hub) -> Provider:
    return registered(hub.provider.issuer)


# -- whose a token is -------------------------------------------------------------------------------------------------


async def test_a_token_is_its_account_s_by_the_persistent_id(hub: Hub, provider: Provider) -> None:
    now = int(time.time())
    async with opened() as here:
        caller = await here.verifier.verify(hub.token(), provider, now, Allowance(SOURCE))
    assert caller.use_parts == ("nonce", "hub", ACCOUNT_ID)
    assert {name: caller.claims[name] for name in ("id", "name", "type", "token_role")} == {
        "id": ACCOUNT_ID, "name": "evals-bot", "type": "user", "token_role": "fineGrained",
    }  # fmt: skip
    assert caller.provenance() == {"provider": "hub", "issuer": provider.issuer, "id": ACCOUNT_ID}
    for personal in ("bot@example.org", "Evals Bot", "example-org", "nightly", "avatars"):
        assert personal not in str(caller)


async def test_the_hub_is_asked_as_its_own_client_asks(hub: Hub, provider: Provider) -> None:
    token = hub.token()
    assert HfApi(endpoint=hub.provider.issuer).whoami(token)["id"] == ACCOUNT_ID
    async with opened() as here:
        assert await here.outcome(provider, token) == ACCOUNT_ID
    theirs, ours = ({name.lower(): value for name, value in sent.items()} for sent in hub.headers)
    assert ours["authorization"] == theirs["authorization"]
    assert ours.keys() == {"host", "accept", "accept-encoding", "user-agent", "authorization"}


@pytest.mark.parametrize(
    "token",
    [
        "hf_oauth_eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiIxIn0.c2ln",
        "hf_jwt_" + "a" * 34,
        "hf_" + "a" * 15,
        "hf_" + "a" * 129,
        "hf_" + "a" * 30 + "-b",
        "hf_" + "ä" * 34,
        "hf_" + "a" * 34 + "\n",
        "HF_" + "a" * 34,
        "api_" + "a" * 34,
        "evi_pat_" + "a" * 62,
        "",
    ],
)
async def test_nothing_but_an_access_token_of_hugging_face_is_sent_there(
    hub: Hub, provider: Provider, token: str
) -> None:
    before = hub.provider.connections
    async with opened() as here:
        assert await here.outcome(provider, token) == Code.IDENTITY_MALFORMED
    assert hub.provider.connections == before


async def test_a_token_that_the_hub_does_not_know_is_refused_and_asked_about_again(
    hub: Hub, provider: Provider
) -> None:
    token = "hf_" + "a" * 34
    async with opened() as here:
        assert await here.outcome(provider, token) == Code.IDENTITY_CREDENTIAL_UNKNOWN
        assert await here.outcome(provider, token) == Code.IDENTITY_CREDENTIAL_UNKNOWN
    assert hub.asked == 2
    assert not here.reasons


@pytest.mark.parametrize(
    "said", [auth("app_token"), auth("app_token_as_user"), auth("oauth"), {}, None, ..., "x"], ids=str
)
async def test_a_token_that_was_made_for_an_app_is_refused(hub: Hub, provider: Provider, said: Any) -> None:
    async with opened() as here:
        assert await here.outcome(provider, hub.token(auth=said)) == Code.IDENTITY_TYPE_REFUSED


@pytest.mark.parametrize(
    "members",
    [
        {"id": ...},
        {"id": ""},
        {"id": 7},
        {"id": "a b"},
        {"id": "a" * 65},
        {"name": ...},
        {"type": None},
        {"auth": {"type": "access_token"}},
        {"auth": auth(expiration=1_900_000_000)},
        {"auth": auth(expiration="tomorrow")},
        {"auth": auth(expiration="2030-01-01T00:00:00")},
        {"auth": auth(expiration="")},
        {"auth": auth(expiration=0)},
        {"auth": auth(expiration=False)},
        {"auth": {**auth(), "expiresAt": ""}},
        {"auth": {**auth(expiration=""), "expiresAt": "2099-01-01T00:00:00Z"}},
    ],
    ids=str,
)
async def test_an_answer_that_names_no_account_decides_nothing(
    hub: Hub, provider: Provider, members: dict[str, Any]
) -> None:
    async with opened() as here:
        assert await here.outcome(provider, hub.token(**members)) == UNDECIDED
    assert len(here.reasons) == 1


@pytest.mark.parametrize("status", [204, 302, 400, 403, 404, 429, 500, 503])
async def test_another_status_decides_nothing(hub: Hub, provider: Provider, status: int) -> None:
    token = hub.token()
    hub.answer = lambda exchange: exchange.reply(status, hub.tokens[token], Location="/elsewhere")
    async with opened() as here:
        assert await here.outcome(provider, token) == UNDECIDED
    assert here.reasons == [f"the provider answered {status}"]
    assert hub.provider.requests["/elsewhere"] == 0


async def test_an_answer_that_takes_too_long_decides_nothing(hub: Hub, provider: Provider) -> None:
    hub.answer = silent
    async with opened(deadline_s=0.3) as here:
        assert await here.outcome(provider, hub.token()) == UNDECIDED
    assert here.reasons == ["TimeoutError"]


# -- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_token_that_is_taken_back_is_refused_within_a_minute(hub: Hub, provider: Provider) -> None:
    token = hub.token()
    async with opened() as here:
        assert await here.outcome(provider, token) == ACCOUNT_ID
        del hub.tokens[token]
        here.clock.s += ANSWER_KEPT_S - 0.1
        assert await here.outcome(provider, token, retry_after_s=7) == ACCOUNT_ID
        here.clock.s += 0.1
        assert await here.outcome(provider, token, retry_after_s=7) == Code.RATE_SOURCE
        assert hub.asked == 1
        assert await here.outcome(provider, token) == Code.IDENTITY_CREDENTIAL_UNKNOWN


@pytest.mark.parametrize("where", ["expiration", "expiresAt"])
async def test_an_answer_serves_no_longer_than_the_token_lives(hub: Hub, provider: Provider, where: str) -> None:
    end = datetime.datetime.fromtimestamp(int(time.time()) + 60, datetime.UTC).isoformat().replace("+00:00", "Z")
    said = auth(expiration=end) if where == "expiration" else {**auth(), "expiresAt": end}
    token = hub.token(auth=said)
    async with opened() as here:
        for later_s, asked in ((0, 1), (10, 1), (61, 2)):
            await here.outcome(provider, token, later_s=later_s)
            assert hub.asked == asked


@pytest.mark.parametrize(
    "said",
    [
        auth(expiration="2020-01-01T00:00:00Z"),
        {**auth(), "expiresAt": "2020-01-01T00:00:00.000Z"},
        {**auth(expiration="2099-01-01T00:00:00Z"), "expiresAt": "2020-01-01T00:00:00Z"},
    ],
    ids=["expiration", "expiresAt", "the earlier of two"],
)
async def test_a_token_that_has_expired_is_refused_whatever_the_hub_thinks_of_it(
    hub: Hub, provider: Provider, said: dict[str, Any]
) -> None:
    token = hub.token(auth=said)
    async with opened() as here:
        assert await here.outcome(provider, token) == Code.IDENTITY_EXPIRED
        assert await here.outcome(provider, token) == Code.IDENTITY_EXPIRED
    assert hub.asked == 2
    assert not here.reasons


async def test_a_token_that_has_just_expired_is_good_while_the_hub_says_so_for_its_clock_may_be_off(
    hub: Hub, provider: Provider
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for ago_s, told in ((1, ACCOUNT_ID), (LEEWAY_S + 1, Code.IDENTITY_EXPIRED)):
        end = (now - datetime.timedelta(seconds=ago_s)).isoformat()
        async with opened() as here:
            assert await here.outcome(provider, hub.token(auth=auth(expiration=end))) == told


# -- where it is shown ------------------------------------------------------------------------------------------------


async def test_the_token_is_shown_to_nobody_without_the_hub_s_certificate(tmp_path: Path) -> None:
    with LocalProvider(host="hub.test", tls=certificate("hub.test", tmp_path)) as served:
        hub, trusting = Hub(served), ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        token, provider = hub.token(), registered(served.issuer)

        async def here_it_is(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with opened(resolve=here_it_is, ssl_context=trusting) as here:
            assert await here.outcome(provider, token) == ACCOUNT_ID
            other = registered(served.issuer.replace("hub.test", "other.test"))
            assert await here.outcome(other, token) == UNDECIDED
        async with opened(resolve=here_it_is) as stranger:
            assert await stranger.outcome(provider, token) == UNDECIDED
        async with opened(resolve=here_it_is, ssl_context=trusting, development=False) as inside:
            assert await inside.outcome(provider, token) == UNDECIDED
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


def test_an_account_that_is_pinned_gets_a_token_and_no_other_does(hub: Hub, live: Running) -> None:
    answer = live.post(hub.token(), with_nonce(new_nonce()))
    assert (answer.status_code, answer.json()["identity"]) == (201, "bot")
    stranger = live.post(hub.token(id="7" * 24), with_nonce(new_nonce()))
    assert (stranger.status_code, stranger.json()["code"]) == (403, "integration.unknown")
    unknown = live.post("hf_" + "a" * 34, with_nonce(new_nonce()))
    assert (unknown.status_code, unknown.json()["code"]) == (401, "identity.credential_unknown")


def test_an_account_that_was_renamed_is_still_the_same(hub: Hub, live: Running) -> None:
    answer = live.post(hub.token(name="renamed"), with_nonce(new_nonce()))
    assert answer.status_code == 201
    assert "renamed" in " ".join(answer.json()["warnings"])
