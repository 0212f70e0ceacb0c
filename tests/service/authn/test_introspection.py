"""Opaque tokens against a real OAuth server over HTTP: good answers, how long they serve, and the request."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused
from issuer.identity.table import Introspection, Provider
from issuer.limits.sources import Allowance
from issuer.policy.model import Matcher, is_met
from issuer.service.authn.bounds import (
    ANSWER_KEPT_S,
    ASK_S,
    ENDPOINT_KEPT_S,
    MAX_ANSWER_BYTES,
    MAX_ASKED_FOR_SOURCE,
    MAX_WAITING,
    MAX_WAITING_IN_ALL,
)
from issuer.service.authn.introspection import Introspector
from issuer.service.authn.keysets import ProviderFetcher
from issuer.service.authn.opaque_tokens import AnswerCache, ProviderAnswer
from tests.support.clock import Clock
from tests.support.oauth_server import METADATA_PATH, OAuthServer, oauth_server
from tests.support.tls import NO_ROOTS

AUDIENCE = "https://evals.example"
SOURCE = "192.0.2.1"

UNDECIDED = str(Code.DEPENDENCY_INTROSPECTION)
OIDC_PATH = "/.well-known/openid-configuration"


class Opened:
    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.reasons: list[str] = []
        self.errors: list[str] = []  # each with its cause
        settings: dict[str, Any] = {"development": True, "deadline_s": ASK_S, "ssl_context": NO_ROOTS, **options}
        self.introspector = Introspector(
            ProviderFetcher(**settings),
            monotonic=self.clock,
            report=lambda _provider, reason: self.reasons.append(reason),
        )

    async def outcome(self, provider: Provider, token: str, retry_after_s: int = 0, later_s: int = 0) -> str:
        now = int(time.time()) + later_s
        try:
            caller = await self.introspector.verify(token, provider, now, Allowance(SOURCE, retry_after_s))
        except IssuerError as error:
            self.errors.append(f"{error!r} {error.__cause__!r} {error.__context__!r}")
            return str(error.code)
        return str(caller.claims["client_id"])

    async def aclose(self) -> None:
        await self.introspector.aclose()


def opened(**options: Any) -> aclosing[Opened]:
    return aclosing(Opened(**options))


@pytest.fixture
async def asking() -> AsyncIterator[Opened]:
    async with opened() as asking:
        yield asking


@pytest.fixture(scope="module")
def running() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@pytest.fixture
def server(running: OAuthServer) -> OAuthServer:
    """The server, well-behaved again and with its counters at zero."""
    running.forget()
    return running


@pytest.fixture
def provider(server: OAuthServer, tmp_path: Path) -> Provider:
    return registered(server, tmp_path)


def registered(server: OAuthServer, folder: Path, **how: Any) -> Provider:
    secret = folder / "client-secret"
    if not secret.exists():
        secret.write_text(server.resource_secret + "\n", "utf-8")
        secret.chmod(0o600)
    settings = {"client_id": server.resource_id, "endpoint": server.introspection_endpoint, **how}
    asked = Introspection(client_secret_file=str(secret), **settings)
    return Provider(
        "oauth", "oauth-introspection", server.issuer, AUDIENCE, (), 0, 0, 1, "discovery", (), introspection=asked
    )


# -- the question -----------------------------------------------------------------------------------------------------


async def test_an_active_token_is_a_caller_whose_credential_is_its_client(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    credential = json.dumps([server.client_id, server.client_id], separators=(",", ":"))
    for form in ("opaque", "jwt"):
        before = int(time.time())
        token, now = server.token(AUDIENCE, form=form), int(time.time())
        caller = await asking.introspector.verify(token, provider, now, Allowance(SOURCE))
        assert (caller.claims["client_id"], caller.claims["scope"]) == (server.client_id, "tokens:issue")
        assert caller.use_parts == ("nonce", "oauth", credential)
        assert before <= caller.issued_at <= now
        assert caller.expires_at == caller.claims["exp"]
    assert not asking.reasons


async def test_the_question_is_a_form_with_client_authentication_and_nothing_else(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    """Id and secret hold every character that RFC 6749 2.3.1 has encoded: unencoded, the server refuses the client."""
    server.behave("cookie")
    assert await asking.outcome(provider, server.token(AUDIENCE)) == server.client_id
    token = server.token(AUDIENCE, prefix="-._~+/%2B=&")  # RFC 6750 2.1, and what would end a form's field
    assert await asking.outcome(provider, token) == server.client_id
    form, headers = server.last["form"], server.last["headers"]
    assert form == {"token": [token], "token_type_hint": ["access_token"]}
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "identity")
    assert "Cookie" not in headers


async def test_the_client_secret_is_read_for_each_question_and_must_be_private(
    asking: Opened, server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    token, secret = server.token(AUDIENCE), tmp_path / "client-secret"
    secret.write_text("old", "utf-8")
    assert await asking.outcome(provider, token) == UNDECIDED
    assert asking.reasons == ["the provider answered 401"]
    secret.write_text(server.resource_secret, "utf-8")
    secret.chmod(0o644)
    assert await asking.outcome(provider, token) == UNDECIDED
    assert "0644" in asking.reasons.pop()
    secret.chmod(0o600)
    for unusable in ("", "\n", "two\nlines", "x" * 1025):
        secret.write_text(unusable, "utf-8")
        assert await asking.outcome(provider, token) == UNDECIDED
        assert asking.reasons.pop().startswith("the client secret's file")
    secret.write_text(server.resource_secret, "utf-8")
    assert await asking.outcome(provider, token) == server.client_id


async def test_this_machine_is_not_connected_to_in_production_nor_for_a_long_token(
    server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    for scheme, reason in (("http", "a URL is not https"), ("https", "the provider's host has an address")):
        elsewhere = server.introspection_endpoint.replace("http", scheme)
        async with opened(development=False) as asking:
            assert await asking.outcome(registered(server, tmp_path, endpoint=elsewhere), "any") == UNDECIDED
        assert asking.reasons[0].startswith(reason)
    async with opened() as asking:
        assert await asking.outcome(provider, "x" * 16_385) == Code.IDENTITY_MALFORMED
    assert server.introspected == 0


# -- where to ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [OIDC_PATH, METADATA_PATH])
async def test_an_unregistered_endpoint_is_discovered_and_kept_for_a_while(
    asking: Opened, server: OAuthServer, tmp_path: Path, path: str
) -> None:
    server.serve_metadata(path)
    provider, tokens = registered(server, tmp_path, endpoint=UNSET), [server.token(AUDIENCE) for _ in range(10)]
    found = await asyncio.gather(*(asking.outcome(provider, token) for token in tokens[:8]))
    assert set(found) == {server.client_id}
    for later_s, token, asked in ((0, tokens[0], 1), (ENDPOINT_KEPT_S - 1, tokens[8], 1), (1, tokens[9], 2)):
        asking.clock.s += later_s
        await asking.outcome(provider, token)
        assert server.asked[path] == asked


async def test_metadata_that_point_elsewhere_are_not_followed(server: OAuthServer, tmp_path: Path) -> None:
    token, provider = server.token(AUDIENCE), registered(server, tmp_path, endpoint=UNSET)
    members: list[dict[str, Any]] = [
        {"issuer": "https://other.example"}, {"introspection_endpoint": "http://127.0.0.2:1/introspect"},
        {"introspection_endpoint": None}, {"introspection_endpoint": ["http://127.0.0.1/introspect"]},
    ]  # fmt: skip
    for changes in members:
        server.serve_metadata(OIDC_PATH, **changes)
        async with opened() as asking:
            assert await asking.outcome(provider, token) == UNDECIDED, changes
    assert server.introspected == 0


# -- the answer -------------------------------------------------------------------------------------------------------

NOW = 1_795_000_000
HOUR = 3600


def refused_at(now: int) -> dict[str, tuple[dict[str, Any], Code]]:
    """Return what is refused, and how, when it is asked about at `now`."""
    return {
        "another issuer": ({"iss": "https://other.example"}, Code.IDENTITY_ISSUER_UNKNOWN),
        "no issuer": ({"iss": None}, Code.IDENTITY_ISSUER_UNKNOWN),
        "another audience": ({"aud": "https://other.example"}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "no audience": ({"aud": None}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "an audience beside ours": ({"aud": [AUDIENCE, "account"]}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "an empty list": ({"aud": []}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "exp true": ({"exp": True}, Code.IDENTITY_MALFORMED),
        "exp as a double": ({"exp": now + HOUR + 0.5}, Code.IDENTITY_MALFORMED),
        "exp in milliseconds": ({"exp": (now + HOUR) * 1000}, Code.IDENTITY_MALFORMED),
        "no exp": ({"exp": None}, Code.IDENTITY_MALFORMED),
        "exp as text": ({"exp": str(now + HOUR)}, Code.IDENTITY_MALFORMED),
        "exp in the past": ({"exp": now - 31, "iat": now - HOUR}, Code.IDENTITY_EXPIRED),
        "iat as text": ({"iat": "now"}, Code.IDENTITY_MALFORMED),
        "iat in the future": ({"iat": now + HOUR, "exp": now + 2 * HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "iat later than nbf": ({"iat": now + HOUR, "nbf": now, "exp": now + 2 * HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "nbf in the future": ({"nbf": now + HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "nbf as text": ({"nbf": "now"}, Code.IDENTITY_MALFORMED),
        "a refresh token": ({"token_type": "refresh_token"}, Code.IDENTITY_TYPE_REFUSED),
        "a token for DPoP": ({"token_type": "DPoP"}, Code.IDENTITY_TYPE_REFUSED),
        "a type that is a list": ({"token_type": ["Bearer"]}, Code.IDENTITY_TYPE_REFUSED),
        "Hydra's refresh token": ({"token_use": "refresh_token"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's refresh token": ({"token_type": None, "typ": "Refresh"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's offline token": ({"typ": "Offline"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's ID token": ({"typ": "ID"}, Code.IDENTITY_TYPE_REFUSED),
        "bound to a key": ({"cnf": {"jkt": "x"}}, Code.IDENTITY_TYPE_REFUSED),
        "no client": ({"client_id": None}, Code.IDENTITY_MALFORMED),
        "an empty client": ({"client_id": ""}, Code.IDENTITY_MALFORMED),
        "a client that is a number": ({"client_id": 7}, Code.IDENTITY_MALFORMED),
        "a subject that is a number": ({"sub": 7}, Code.IDENTITY_MALFORMED),
    }


async def test_a_token_that_is_not_for_us_or_not_active_is_refused_and_not_kept(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    listed = {"iss": [server.issuer]}, Code.IDENTITY_ISSUER_UNKNOWN
    cases = refused_at(int(time.time())) | {"a list with the issuer": listed}
    for name, (claims, code) in cases.items():
        token = server.token(AUDIENCE, **claims)
        assert [await asking.outcome(provider, token) for _ in range(2)] == [code] * 2, name
    assert server.introspected == 2 * len(cases)
    assert not asking.reasons
    assert await asking.outcome(provider, "made-up") == Code.IDENTITY_INACTIVE
    token = server.token(AUDIENCE)
    for active in ("true", 1, [True], None, False):
        server.behave(json.dumps({"active": active}))
        assert await asking.outcome(provider, token) == Code.IDENTITY_INACTIVE, active


def good_at(now: int) -> dict[str, dict[str, Any]]:
    """Return what is understood when it is asked about at `now`."""
    return {
        "an audience in a list": {"aud": [AUDIENCE]},
        "a type in small letters": {"token_type": "bearer"},
        "no type": {"token_type": None},
        "no issue time": {"iat": None},
        "just expired": {"exp": now - 5, "iat": now - HOUR},
        # As their sources have it: node oidc-provider names no subject of a client; its opaque token may be its own
        # `jti`.
        "node oidc-provider": {"sub": None, "jti": "x" * 43, "sid": "s", "token_type": "Bearer"},
        "Keycloak": {
            "typ": "Bearer", "azp": "ci", "nbf": 0, "acr": "1", "allowed-origins": ["/*"],
            "username": "service-account-ci", "realm_access": {"roles": ["default-roles-evals", "offline_access"]},
            "email_verified": False, "resource_access": {"account": {"roles": ["view-profile"]}}, "clientHost": "192.0.2.7",
            "jti": "trrtcc:1", "preferred_username": "service-account-ci", "session_state": "s", "auth_time": now,
        },
        "Hydra": {"token_use": "access_token", "aud": [AUDIENCE], "ext": {"team": "evals"}, "nbf": now},
    }  # fmt: skip


async def test_the_answers_of_good_servers_are_understood(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    for name, claims in good_at(int(time.time())).items():
        assert await asking.outcome(provider, server.token(AUDIENCE, **claims)) == server.client_id, name
    for headers in ("charset", "text", "cookie"):
        server.behave(headers)
        assert await asking.outcome(provider, server.token(AUDIENCE)) == server.client_id, headers
    assert not asking.reasons


# -- a server that is down, slow, broken or hostile ------------------------------------------------------------------

BROKEN = {
    "huge": f"the answer is larger than {MAX_ANSWER_BYTES} bytes",
    "garbage": "file.syntax",
    "array": "the answer is not an object",
    "twice": "file.duplicate_key",
    "gzip": "the answer is compressed",
    "redirect": "the provider answered 307",
    "cut": "RemoteProtocolError",
    "204": "the provider answered 204",
    "400": "the provider answered 400",
    "401": "the provider answered 401",
    "403": "the provider answered 403",
    "404": "the provider answered 404",
    "429": "the provider answered 429",
    "500": "the provider answered 500",
    "503": "the provider answered 503",
    json.dumps({"deep": json.loads("[" * 16 + "]" * 16)}): "file.too_large",
    json.dumps({f"member-{number}": 1 for number in range(200)}): "the answer is not an object, or has too many",
}


async def test_a_broken_answer_decides_nothing_is_not_quoted_and_is_not_kept(
    server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    """Without its fault, each of these would be the answer of an active token."""
    token = server.token(AUDIENCE)
    for how, reason in BROKEN.items():
        server.behave(how)
        async with opened() as asking:
            assert await asking.outcome(provider, token) == UNDECIDED, how
            assert [text[: len(reason)] for text in asking.reasons] == [reason], how
            for secret in (token, server.resource_secret, server.client_id, "server_error"):
                assert secret not in f"{asking.reasons} {asking.errors}", how
            server.behave()
            assert await asking.outcome(provider, token) == server.client_id, how
    assert server.asked.get("/introspect/moved", 0) == 0
    async with opened() as asking:
        assert await asking.outcome(registered(server, tmp_path, endpoint="http://127.0.0.1:1/"), "any") == UNDECIDED


async def test_an_answer_after_the_deadline_decides_nothing(server: OAuthServer, provider: Provider) -> None:
    """Each byte of the dripping one comes in time; all of them take ten seconds or more."""
    for how, seconds in (("slow", 20), ("drip", 0.05)):
        server.behave(how, seconds=seconds)
        async with opened(deadline_s=0.3) as asking:
            assert await asking.outcome(provider, server.token(AUDIENCE)) == UNDECIDED
        assert asking.reasons == ["TimeoutError"]


async def test_discovery_and_introspection_share_one_deadline(server: OAuthServer, tmp_path: Path) -> None:
    token, provider = server.token(AUDIENCE), registered(server, tmp_path, endpoint=UNSET)
    server.serve_metadata(OIDC_PATH, seconds=0.25)
    server.behave("slow", seconds=0.25)
    async with opened(deadline_s=0.4) as asking:
        assert await asking.outcome(provider, token) == UNDECIDED
        assert asking.reasons == ["TimeoutError"]
    async with opened(deadline_s=60) as asking:
        assert await asking.outcome(provider, token) == server.client_id


# -- what is kept, and for how long ----------------------------------------------------------------------------------


async def test_a_revoked_token_is_refused_within_a_minute(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    token = server.token(AUDIENCE)
    assert await asking.outcome(provider, token) == server.client_id
    server.revoke(token)
    asking.clock.s += ANSWER_KEPT_S - 0.1
    assert await asking.outcome(provider, token) == server.client_id
    asking.clock.s += 0.1
    assert await asking.outcome(provider, token) == Code.IDENTITY_INACTIVE
    assert await asking.outcome(provider, token) == Code.IDENTITY_INACTIVE
    assert server.introspected == 3, "an inactive answer is never kept"


async def test_a_kept_answer_has_short_values_and_the_names_of_the_others(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    short: dict[str, Any] = {"scope": " ".join(f"scope:{number}" for number in range(80)), "short": "x" * 512, "number": 7,
             "yes": True, "nothing": "", "aud": [AUDIENCE]}  # fmt: skip
    token = server.token(AUDIENCE, **short, text="x" * 513, list=["y"] * 999, deep={"z": ["z"]})
    caller = await asking.introspector.verify(token, provider, int(time.time()), Allowance(SOURCE))
    assert {name: caller.claims[name] for name in short} == short
    for name in ("text", "list", "deep"):
        assert caller.claims[name] in ([], {})
        assert not is_met(caller.claims, name, Matcher(absent=True))
        assert not is_met(caller.claims, name, Matcher(glob="**"))
    server.behave(json.dumps({"jti": (repeated := server.token(AUDIENCE))}))
    caller = await asking.introspector.verify(repeated, provider, int(time.time()), Allowance(SOURCE))
    assert repeated not in f"{caller} {vars(asking.introspector._answers._answers)}", "no token is kept in memory"


async def test_an_answer_that_would_take_too_much_memory_decides_nothing(
    server: OAuthServer, provider: Provider
) -> None:
    answers: list[dict[str, Any]] = [
        {f"member-{number}": 1 for number in range(64)}, {"name" * 2100: 1}, {"scope": "tokens:issue " * 700},
        {f"text-{number}": "x" * 500 for number in range(17)},
    ]  # fmt: skip
    token = server.token(AUDIENCE)
    for members in answers:
        server.behave(json.dumps(members))
        async with opened() as asking:
            assert await asking.outcome(provider, token) == UNDECIDED
            assert asking.introspector._answers._answers._kept == {}
        assert len(asking.reasons) == 1


async def test_an_answer_serves_no_longer_than_the_token_lives(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    token = server.token(AUDIENCE, exp=int(time.time()) + 60)
    for later_s, asked in ((0, 1), (10, 1), (61, 2), (100, 3)):
        outcome = await asking.outcome(provider, token, later_s=later_s)
        assert outcome == (Code.IDENTITY_EXPIRED if later_s == 100 else server.client_id)
        assert server.introspected == asked


async def test_a_kept_answer_serves_one_token_under_the_registration_of_now(
    asking: Opened, server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    token = server.token(AUDIENCE)
    elsewhere = registered(server, tmp_path, endpoint="http://127.0.0.1:1/")
    assert await asking.outcome(provider, token) == server.client_id
    moved = msgspec.structs.replace(provider, audience="https://elsewhere.example")
    assert await asking.outcome(moved, token) == Code.IDENTITY_AUDIENCE_MISMATCH
    assert server.introspected == 1
    assert await asking.outcome(elsewhere, token) == UNDECIDED, "another endpoint is another server"
    for other in (token + "x", token[:-1], token.upper(), ""):
        assert await asking.outcome(provider, other) == Code.IDENTITY_INACTIVE


# -- many at once -----------------------------------------------------------------------------------------------------


async def test_many_requests_with_one_token_ask_once(asking: Opened, server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    server.behave("slow", seconds=0.2)
    found = await asyncio.gather(*(asking.outcome(provider, token) for _ in range(64)))
    assert set(found) == {server.client_id}
    assert server.introspected == 1


async def test_a_bounded_number_of_questions_is_asked_for_one_source(provider: Provider) -> None:
    """A request that waits for the question of another asks nothing."""
    stuck = Stuck(provider)
    await stuck.all_wait(*(stuck.find(str(n % MAX_ASKED_FOR_SOURCE)) for n in range(2 * MAX_ASKED_FOR_SOURCE)))
    with pytest.raises(Charged, match=UNDECIDED):
        await stuck.find("one more")
    await stuck.all_wait(stuck.find("one more", "192.0.2.2"))
    await stuck.close()
    assert not stuck.answers._sources, "no source is kept"


async def test_a_bounded_number_of_requests_wait_for_one_provider_and_for_all(provider: Provider) -> None:
    stuck, every = Stuck(provider), Stuck(provider)
    await stuck.all_wait(*(stuck.find(str(n), f"192.0.2.{n}") for n in range(MAX_WAITING - 1)), stuck.find("0"))
    await every.all_wait(*(every.find(str(n), f"192.0.2.{n}", f"other-{n % 2}") for n in range(MAX_WAITING_IN_ALL)))
    for full in (stuck, every):
        with pytest.raises(Charged, match=UNDECIDED):
            await full.find("0")
    await stuck.all_wait(stuck.find("0", provider="another"))
    assert await stuck.close() == await every.close() == {UNDECIDED}


async def test_questions_of_requests_that_hung_up_count_too(provider: Provider) -> None:
    stuck = Stuck(provider)
    await stuck.all_wait(*(stuck.find(str(n), f"192.0.2.{n}") for n in range(MAX_WAITING)))
    for task in stuck.waiting:
        task.cancel()
    await asyncio.wait(stuck.waiting)
    with pytest.raises(IssuerError, match=UNDECIDED):
        await stuck.find("one more")
    await stuck.close()


class Stuck:
    """Answers of a provider that never answers, and the requests that wait for them."""

    def __init__(self, provider: Provider) -> None:
        self.answers, self.waiting, self._provider = AnswerCache(), list[asyncio.Task[ProviderAnswer]](), provider

    def find(self, token: str, source: str = SOURCE, provider: str = "") -> Coroutine[Any, Any, ProviderAnswer]:
        async def ask() -> ProviderAnswer:
            await asyncio.Event().wait()
            raise AssertionError

        asked = msgspec.structs.replace(self._provider, id=provider) if provider else self._provider
        return self.answers.find(asked, token, NOW, Allowance(source), ask)

    async def all_wait(self, *requests: Coroutine[Any, Any, ProviderAnswer]) -> None:
        """Start requests, and let all of them come to their wait."""
        self.waiting += [asyncio.create_task(request) for request in requests]
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in self.waiting)

    async def close(self) -> set[str]:
        """End all waits, and return the codes that they got."""
        await self.answers.aclose()
        outcomes = await asyncio.gather(*self.waiting, return_exceptions=True)
        return {str(getattr(outcome, "code", outcome)) for outcome in outcomes}


async def test_a_source_over_its_limit_asks_nothing_and_is_served_by_kept_answers(
    asking: Opened, server: OAuthServer, provider: Provider
) -> None:
    token = server.token(AUDIENCE)
    with pytest.raises(Refused) as refused:
        await asking.introspector.verify(token, provider, int(time.time()), Allowance(SOURCE, 7))
    assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_SOURCE, 7)
    assert server.introspected == 0
    await asking.outcome(provider, token)
    assert await asking.outcome(provider, token, retry_after_s=7) == server.client_id
    assert server.introspected == 1
