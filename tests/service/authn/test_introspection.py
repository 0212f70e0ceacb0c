"""Opaque tokens against a real OAuth server over HTTP: what its word must be, how long it serves, and what is shown."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import Charged, IssuerError, Refused
from issuer.identity.table import Introspection, Provider
from issuer.io.bounds import CALL_S
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
from issuer.service.http.bounds import BODY_DEADLINE_S
from tests.support.clock import Clock
from tests.support.oauth_server import METADATA_PATH, OAuthServer, oauth_server
from tests.support.tls import NO_ROOTS

AUDIENCE = "https://evals.example"
SOURCE = "192.0.2.1"
A_WHILE_S = 0.1  # long enough for a question that should not be there
UNDECIDED = str(Code.DEPENDENCY_INTROSPECTION)
OIDC_PATH = "/.well-known/openid-configuration"


class Opened:
    """An introspector with its own clock, and what it reported."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.reasons: list[str] = []
        self.told: list[str] = []  # every error, with what it came from
        settings: dict[str, Any] = {"development": True, "deadline_s": ASK_S, "ssl_context": NO_ROOTS, **options}
        self.introspector = Introspector(
            ProviderFetcher(**settings),
            monotonic=self.clock,
            report=lambda _provider, reason: self.reasons.append(reason),
        )

    async def outcome(self, provider: Provider, token: str, retry_after_s: int = 0, later_s: int = 0) -> str:
        """Return the client that was found, or the code."""
        now = int(time.time()) + later_s
        try:
            caller = await self.introspector.verify(token, provider, now, Allowance(SOURCE, retry_after_s))
        except IssuerError as error:
            self.told.append(f"{error!r} {error.__cause__!r} {error.__context__!r}")
            return str(error.code)
        return str(caller.claims["client_id"])

    async def aclose(self) -> None:
        await self.introspector.aclose()


def opened(**options: Any) -> aclosing[Opened]:
    return aclosing(Opened(**options))


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
    return Provider(
        id="oauth",
        profile="oauth-introspection",
        issuer=server.issuer,
        audience=AUDIENCE,
        algorithms=(),
        max_lifetime_s=0,
        max_age_s=0,
        uses=1,
        keys="discovery",
        events=(),
        introspection=Introspection(client_secret_file=str(secret), **settings),
    )


async def until_asked(server: OAuthServer, times: int) -> None:
    async with asyncio.timeout(60):
        while server.introspected < times:  # noqa: ASYNC110  (the condition is another process's)
            await asyncio.sleep(0.01)


# -- the question -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["opaque", "jwt"])
async def test_a_token_that_its_server_calls_active_is_a_caller(
    server: OAuthServer, provider: Provider, form: str
) -> None:
    before = int(time.time())
    token, now = server.token(AUDIENCE, form=form), int(time.time())
    async with opened() as here:
        caller = await here.introspector.verify(token, provider, now, Allowance(SOURCE))
    assert caller.claims["client_id"] == server.client_id
    assert caller.claims["scope"] == "tokens:issue"
    assert caller.use_parts == (
        "nonce",
        "oauth",
        json.dumps([server.client_id, server.client_id], separators=(",", ":")),
    )
    assert before <= caller.issued_at <= now
    assert caller.expires_at == caller.claims["exp"]
    assert not here.reasons


async def test_a_fresh_token_of_the_same_client_is_the_same_credential(server: OAuthServer, provider: Provider) -> None:
    async with opened() as here:
        callers = [
            await here.introspector.verify(server.token(AUDIENCE), provider, int(time.time()), Allowance(SOURCE))
            for _ in range(2)
        ]
    assert callers[0].use_parts == callers[1].use_parts


async def test_the_question_is_a_form_with_client_authentication_and_nothing_else(
    server: OAuthServer, provider: Provider
) -> None:
    """Id and secret hold every character that RFC 6749 2.3.1 has encoded: unencoded, the server refuses the client."""
    token = server.token(AUDIENCE)
    server.behave("cookie")
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
        assert await here.outcome(provider, server.token(AUDIENCE)) == server.client_id
    asked = server.last
    assert asked["form"].keys() == {"token", "token_type_hint"}
    assert asked["form"]["token_type_hint"] == ["access_token"]
    headers = asked["headers"]
    assert headers["Accept"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"
    assert "Cookie" not in headers


async def test_a_token_arrives_with_every_character_that_it_may_have(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE, prefix="-._~+/%2B=&")  # RFC 6750 2.1, and what would end a form's field
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id


async def test_the_client_secret_is_read_anew_and_must_be_private(
    server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    token, secret = server.token(AUDIENCE), tmp_path / "client-secret"
    async with opened() as here:
        secret.write_text("old", "utf-8")
        assert await here.outcome(provider, token) == UNDECIDED
        assert here.reasons == ["the provider answered 401"]
        secret.write_text(server.resource_secret, "utf-8")
        secret.chmod(0o644)
        assert await here.outcome(provider, token) == UNDECIDED
        assert "0644" in here.reasons.pop()
        for unusable in ("", "\n", "two\nlines", "x" * 1025):
            secret.write_text(unusable, "utf-8")
            secret.chmod(0o600)
            assert await here.outcome(provider, token) == UNDECIDED
            assert here.reasons.pop().startswith("the client secret's file")
        secret.write_text(server.resource_secret, "utf-8")
        assert await here.outcome(provider, token) == server.client_id


async def test_a_token_longer_than_any_is_shown_to_nobody(server: OAuthServer, provider: Provider) -> None:
    async with opened() as here:
        assert await here.outcome(provider, "x" * 16_385) == Code.IDENTITY_MALFORMED
    assert server.introspected == 0


async def test_no_proxy_is_taken_from_the_environment(
    server: OAuthServer, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = server.token(AUDIENCE)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id


async def test_in_production_this_machine_is_not_even_connected_to(
    server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    for scheme, said in (("http", "a URL is not https"), ("https", "the provider's host has an address")):
        elsewhere = server.introspection_endpoint.replace("http", scheme)
        async with opened(development=False) as here:
            assert await here.outcome(registered(server, tmp_path, endpoint=elsewhere), "any") == UNDECIDED
        assert here.reasons[0].startswith(said)
    assert server.introspected == 0


# -- where to ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [OIDC_PATH, METADATA_PATH])
async def test_an_endpoint_that_is_not_registered_is_discovered_and_kept_for_a_while(
    server: OAuthServer, tmp_path: Path, path: str
) -> None:
    server.serve_metadata(path)
    provider, tokens = registered(server, tmp_path, endpoint=UNSET), [server.token(AUDIENCE) for _ in range(10)]
    async with opened() as here:
        found = await asyncio.gather(*(here.outcome(provider, token) for token in tokens[:8]))
        assert set(found) == {server.client_id}
        assert server.asked[path] == 1
        here.clock.s += ENDPOINT_KEPT_S - 1
        await here.outcome(provider, tokens[8])
        assert server.asked[path] == 1
        here.clock.s += 1
        await here.outcome(provider, tokens[9])
        assert server.asked[path] == 2


@pytest.mark.parametrize(
    "members",
    [
        {"issuer": "https://other.example"},
        {"introspection_endpoint": "http://127.0.0.2:1/introspect"},
        {"introspection_endpoint": None},
        {"introspection_endpoint": ["http://127.0.0.1/introspect"]},
    ],
    ids=str,
)
async def test_metadata_that_point_elsewhere_are_not_followed(
    server: OAuthServer, tmp_path: Path, members: dict[str, Any]
) -> None:
    token, provider = server.token(AUDIENCE), registered(server, tmp_path, endpoint=UNSET)
    server.serve_metadata(OIDC_PATH, **members)
    async with opened() as here:
        assert await here.outcome(provider, token) == UNDECIDED
    assert server.introspected == 0


# -- the answer -------------------------------------------------------------------------------------------------------

NOW = 1_795_000_000
HOUR = 3600


def refused_at(now: int) -> dict[str, tuple[dict[str, Any], Code]]:
    """Return what is refused, and how, when it is asked about at `now`."""
    return {
        "another issuer": ({"iss": "https://other.example"}, Code.IDENTITY_ISSUER_UNKNOWN),
        "a list of issuers": ({"iss": [AUDIENCE]}, Code.IDENTITY_ISSUER_UNKNOWN),
        "no issuer": ({"iss": None}, Code.IDENTITY_ISSUER_UNKNOWN),
        "another audience": ({"aud": "https://other.example"}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "an audience beside ours": ({"aud": [AUDIENCE, "account"]}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "ours with a slash": ({"aud": AUDIENCE + "/"}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "no audience": ({"aud": None}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "an empty list": ({"aud": []}, Code.IDENTITY_AUDIENCE_MISMATCH),
        "no exp": ({"exp": None}, Code.IDENTITY_MALFORMED),
        "exp as text": ({"exp": str(now + HOUR)}, Code.IDENTITY_MALFORMED),
        "exp true": ({"exp": True}, Code.IDENTITY_MALFORMED),
        "exp as a double": ({"exp": now + HOUR + 0.5}, Code.IDENTITY_MALFORMED),
        "exp in milliseconds": ({"exp": (now + HOUR) * 1000}, Code.IDENTITY_MALFORMED),
        "exp in the past": ({"exp": now - 31, "iat": now - HOUR}, Code.IDENTITY_EXPIRED),
        "iat as text": ({"iat": "now"}, Code.IDENTITY_MALFORMED),
        "iat in the future": ({"iat": now + HOUR, "exp": now + 2 * HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "iat later than nbf": ({"iat": now + HOUR, "nbf": now, "exp": now + 2 * HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "nbf in the future": ({"nbf": now + HOUR}, Code.IDENTITY_NOT_YET_VALID),
        "nbf as text": ({"nbf": "now"}, Code.IDENTITY_MALFORMED),
        "a refresh token": ({"token_type": "refresh_token"}, Code.IDENTITY_TYPE_REFUSED),
        "a token for DPoP": ({"token_type": "DPoP"}, Code.IDENTITY_TYPE_REFUSED),
        "a type that is no text": ({"token_type": ["Bearer"]}, Code.IDENTITY_TYPE_REFUSED),
        "Hydra's refresh token": ({"token_use": "refresh_token"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's refresh token": ({"token_type": None, "typ": "Refresh"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's offline token": ({"typ": "Offline"}, Code.IDENTITY_TYPE_REFUSED),
        "Keycloak's ID token": ({"typ": "ID"}, Code.IDENTITY_TYPE_REFUSED),
        "bound to a key": ({"cnf": {"jkt": "x"}}, Code.IDENTITY_TYPE_REFUSED),
        "bound to a certificate": ({"cnf": {"x5t#S256": "x"}}, Code.IDENTITY_TYPE_REFUSED),
        "no client": ({"client_id": None}, Code.IDENTITY_MALFORMED),
        "an empty client": ({"client_id": ""}, Code.IDENTITY_MALFORMED),
        "a client that is no text": ({"client_id": 7}, Code.IDENTITY_MALFORMED),
        "a subject that is no text": ({"sub": 7}, Code.IDENTITY_MALFORMED),
    }


@pytest.mark.parametrize("name", refused_at(NOW))
async def test_an_active_token_that_is_not_for_us_is_refused_and_not_remembered(
    server: OAuthServer, provider: Provider, name: str
) -> None:
    claims, code = refused_at(int(time.time()))[name]
    token = server.token(AUDIENCE, **claims)
    async with opened() as here:
        assert await here.outcome(provider, token) == code
        assert await here.outcome(provider, token) == code
    assert server.introspected == 2
    assert not here.reasons


@pytest.mark.parametrize("active", ["true", "True", 1, [True], {"a": 1}, None, False], ids=repr)
async def test_only_true_is_active(server: OAuthServer, provider: Provider, active: Any) -> None:
    token = server.token(AUDIENCE)
    server.behave(json.dumps({"active": active}))
    async with opened() as here:
        assert await here.outcome(provider, token) == Code.IDENTITY_INACTIVE


async def test_an_answer_that_does_not_say_whether_is_not_active(server: OAuthServer, provider: Provider) -> None:
    async with opened() as here:
        assert await here.outcome(provider, "made-up") == Code.IDENTITY_INACTIVE


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


@pytest.mark.parametrize("name", good_at(NOW))
async def test_what_good_servers_answer_is_understood(server: OAuthServer, provider: Provider, name: str) -> None:
    token = server.token(AUDIENCE, **good_at(int(time.time()))[name])
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
    assert not here.reasons


@pytest.mark.parametrize("how", ["charset", "text", "cookie"])
async def test_headers_of_an_answer_decide_nothing(server: OAuthServer, provider: Provider, how: str) -> None:
    token = server.token(AUDIENCE)
    server.behave(how)
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id


async def test_a_token_that_its_server_calls_its_jti_is_not_kept(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    server.behave(json.dumps({"jti": token}))
    async with opened() as here:
        caller = await here.introspector.verify(token, provider, int(time.time()), Allowance(SOURCE))
    assert token not in str(caller)


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


@pytest.mark.parametrize("how", BROKEN, ids=lambda how: how[:12])
async def test_an_answer_that_is_none_decides_nothing_and_is_not_repeated(
    server: OAuthServer, provider: Provider, how: str
) -> None:
    """Were it not for the fault, each of these would be the answer of an active token."""
    token = server.token(AUDIENCE)
    server.behave(how)
    async with opened() as here:
        assert await here.outcome(provider, token) == UNDECIDED
    assert len(here.reasons) == 1
    assert here.reasons[0].startswith(BROKEN[how])
    assert server.asked.get("/introspect/moved", 0) == 0
    for secret in (token, server.resource_secret, server.client_id, "server_error"):
        assert secret not in f"{here.reasons} {here.told}"


async def test_where_nobody_listens_nothing_is_decided(server: OAuthServer, tmp_path: Path) -> None:
    async with opened() as here:
        assert await here.outcome(registered(server, tmp_path, endpoint="http://127.0.0.1:1/"), "any") == UNDECIDED


@pytest.mark.parametrize("how", ["slow", "drip"])
async def test_an_answer_that_takes_too_long_decides_nothing(server: OAuthServer, provider: Provider, how: str) -> None:
    """Each byte of the dripping one comes in time; all of them take ten seconds or more."""
    token = server.token(AUDIENCE)
    server.behave(how, seconds=20 if how == "slow" else 0.05)
    async with opened(deadline_s=0.3) as here:
        assert await here.outcome(provider, token) == UNDECIDED
    assert here.reasons == ["TimeoutError"]


async def test_discovery_and_introspection_share_one_deadline(server: OAuthServer, tmp_path: Path) -> None:
    """Either alone would be there in time."""
    token, provider = server.token(AUDIENCE), registered(server, tmp_path, endpoint=UNSET)
    server.serve_metadata(OIDC_PATH, seconds=0.5)
    server.behave("slow", seconds=0.5)
    async with opened(deadline_s=0.8) as here:
        assert await here.outcome(provider, token) == UNDECIDED
        assert here.reasons == ["TimeoutError"]
    async with opened(deadline_s=60) as here:
        assert await here.outcome(provider, token) == server.client_id
    assert ASK_S == 3


async def test_a_server_that_is_back_is_asked_again_at_once(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    server.behave("500")
    async with opened() as here:
        assert await here.outcome(provider, token) == UNDECIDED
        server.behave()
        assert await here.outcome(provider, token) == server.client_id


# -- what is kept, and for how long ----------------------------------------------------------------------------------


async def test_a_revoked_token_is_refused_within_a_minute(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
        server.revoke(token)
        here.clock.s += ANSWER_KEPT_S - 0.1
        assert await here.outcome(provider, token) == server.client_id
        here.clock.s += 0.1
        assert await here.outcome(provider, token) == Code.IDENTITY_INACTIVE
        assert await here.outcome(provider, token) == Code.IDENTITY_INACTIVE
    assert server.introspected == 3, "what is not active is never kept"


def test_a_request_may_take_its_time_and_a_revoked_token_is_still_refused_within_a_minute() -> None:
    """It is authenticated before its body comes, and the store is asked last."""
    assert ANSWER_KEPT_S + ASK_S + BODY_DEADLINE_S + CALL_S < 60


async def test_what_is_kept_of_an_answer_is_what_can_be_read_and_that_the_rest_was_there(
    server: OAuthServer, provider: Provider
) -> None:
    scope = " ".join(f"scope:{number}" for number in range(80))
    token = server.token(AUDIENCE, scope=scope, text="x" * 513, short="x" * 512, list=["y"] * 999, deep={"z": ["z"]},
                         number=7, yes=True, nothing="", aud=[AUDIENCE])  # fmt: skip
    async with opened() as here:
        caller = await here.introspector.verify(token, provider, int(time.time()), Allowance(SOURCE))
    found = {name: caller.claims[name] for name in ("scope", "short", "number", "yes", "nothing", "aud")}
    assert found == {
        "scope": scope, "short": "x" * 512, "number": 7, "yes": True, "nothing": "", "aud": [AUDIENCE],
    }  # fmt: skip
    for name in ("text", "list", "deep"):
        assert caller.claims[name] in ([], {})
        assert not is_met(caller.claims, name, Matcher(absent=True))
        assert not is_met(caller.claims, name, Matcher(glob="**"))


@pytest.mark.parametrize(
    "members",
    [
        {f"member-{number}": 1 for number in range(64)},
        {"name" * 2100: 1},
        {f"text-{number}": "x" * 500 for number in range(17)},
        {"scope": "tokens:issue " * 700},
    ],
    ids=["members", "name", "texts", "scope"],
)
async def test_an_answer_that_would_take_too_much_memory_decides_nothing(
    server: OAuthServer, provider: Provider, members: dict[str, Any]
) -> None:
    token = server.token(AUDIENCE)
    server.behave(json.dumps(members))
    async with opened() as here:
        assert await here.outcome(provider, token) == UNDECIDED
        assert here.introspector._answers._answers._kept == {}
    assert len(here.reasons) == 1


async def test_the_minute_begins_with_the_question(server: OAuthServer, provider: Provider) -> None:
    """A slow answer is already old when it comes."""
    token = server.token(AUDIENCE)
    server.behave("slow", seconds=0.3)
    async with opened() as here:
        asking = asyncio.create_task(here.outcome(provider, token))
        await until_asked(server, 1)
        here.clock.s += ANSWER_KEPT_S
        assert await asking == server.client_id
        server.behave()
        server.revoke(token)
        assert await here.outcome(provider, token) == Code.IDENTITY_INACTIVE


async def test_use_does_not_make_an_answer_last_longer(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    async with opened() as here:
        for _ in range(4):
            assert await here.outcome(provider, token) == server.client_id
            here.clock.s += 20
        assert server.introspected == 2


async def test_an_answer_serves_no_longer_than_the_token_lives(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE, exp=int(time.time()) + 60)
    async with opened() as here:
        for later_s, asked in ((0, 1), (10, 1), (61, 2), (100, 3)):
            told = await here.outcome(provider, token, later_s=later_s)
            assert told == (Code.IDENTITY_EXPIRED if later_s == 100 else server.client_id)
            assert server.introspected == asked


async def test_the_answer_of_one_token_serves_no_other(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
        for other in (token + "x", token[:-1], token.upper(), ""):
            assert await here.outcome(provider, other) == Code.IDENTITY_INACTIVE


async def test_a_kept_answer_is_judged_by_the_registration_of_now(
    server: OAuthServer, provider: Provider, tmp_path: Path
) -> None:
    token = server.token(AUDIENCE)
    elsewhere = registered(server, tmp_path, endpoint="http://127.0.0.1:1/")
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
        moved = msgspec.structs.replace(provider, audience="https://elsewhere.example")
        assert await here.outcome(moved, token) == Code.IDENTITY_AUDIENCE_MISMATCH
        assert server.introspected == 1
        assert await here.outcome(elsewhere, token) == UNDECIDED, "another endpoint is somebody else"


async def test_no_more_than_so_many_answers_are_kept_the_least_used_goes_first(provider: Provider) -> None:
    asked: list[str] = []
    answers = AnswerCache(monotonic=Clock(), capacity=2)

    async def find(token: str) -> None:
        async def ask() -> ProviderAnswer:
            asked.append(token)
            return ProviderAnswer({}, None)

        await answers.find(provider, token, NOW, Allowance(SOURCE), ask)

    for token in ("a", "b", "a", "c", "a", "b"):
        await find(token)
    assert asked == ["a", "b", "c", "b"]


async def test_no_token_is_kept_in_memory(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    async with opened() as here:
        assert await here.outcome(provider, token) == server.client_id
        assert token not in str(vars(here.introspector._answers._answers))


# -- many at once -----------------------------------------------------------------------------------------------------


async def test_many_with_one_token_ask_once(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    server.behave("slow", seconds=0.2)
    async with opened() as here:
        found = await asyncio.gather(*(here.outcome(provider, token) for _ in range(64)))
    assert set(found) == {server.client_id}
    assert server.introspected == 1


async def test_many_with_one_bad_token_ask_once_and_are_all_refused(server: OAuthServer, provider: Provider) -> None:
    server.behave("slow", seconds=0.2)
    async with opened() as here:
        found = await asyncio.gather(*(here.outcome(provider, "made-up") for _ in range(64)))
    assert set(found) == {str(Code.IDENTITY_INACTIVE)}
    assert server.introspected == 1


async def test_who_stops_waiting_does_not_stop_the_others(server: OAuthServer, provider: Provider) -> None:
    token = server.token(AUDIENCE)
    server.behave("slow", seconds=0.3)
    async with opened() as here:
        first, second = (asyncio.create_task(here.outcome(provider, token)) for _ in range(2))
        await until_asked(server, 1)
        first.cancel()
        assert await second == server.client_id
    assert server.introspected == 1


async def test_only_so_many_wait_for_one_provider(provider: Provider, running: OAuthServer, tmp_path: Path) -> None:
    other = msgspec.structs.replace(provider, id="another")
    async with stuck() as (answers, ask):
        waiting = [
            asyncio.create_task(answers.find(provider, str(n), NOW, Allowance(f"192.0.2.{n}"), ask))
            for n in range(MAX_WAITING - 1)
        ]
        waiting.append(asyncio.create_task(answers.find(provider, "0", NOW, Allowance(SOURCE), ask)))
        await asyncio.sleep(A_WHILE_S)
        with pytest.raises(IssuerError, match=UNDECIDED):
            await answers.find(provider, "0", NOW, Allowance(SOURCE), ask)
        waiting.append(asyncio.create_task(answers.find(other, "0", NOW, Allowance(SOURCE), ask)))
        await asyncio.sleep(A_WHILE_S)
        assert not any(task.done() for task in waiting)
    assert MAX_WAITING == 128
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(getattr(outcome, "code", outcome)) for outcome in outcomes} == {UNDECIDED}


async def test_only_so_many_wait_for_all_providers_together(provider: Provider) -> None:
    others = [msgspec.structs.replace(provider, id=f"other-{n}") for n in range(3)]
    async with stuck() as (answers, ask):
        waiting = [
            asyncio.create_task(answers.find(others[n % 2], str(n), NOW, Allowance(f"192.0.2.{n}"), ask))
            for n in range(MAX_WAITING_IN_ALL)
        ]
        await asyncio.sleep(A_WHILE_S)
        with pytest.raises(Charged, match=UNDECIDED):
            await answers.find(others[2], "0", NOW, Allowance(SOURCE), ask)
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_only_so_much_is_asked_for_one_source_at_once(provider: Provider) -> None:
    """Who waits for a question that is under way asks nothing."""
    async with stuck() as (answers, ask):
        waiting = [
            asyncio.create_task(answers.find(provider, str(n % MAX_ASKED_FOR_SOURCE), NOW, Allowance(SOURCE), ask))
            for n in range(2 * MAX_ASKED_FOR_SOURCE)
        ]
        await asyncio.sleep(A_WHILE_S)
        with pytest.raises(Charged, match=UNDECIDED):
            await answers.find(provider, "one more", NOW, Allowance(SOURCE), ask)
        waiting.append(asyncio.create_task(answers.find(provider, "one more", NOW, Allowance("192.0.2.2"), ask)))
        await asyncio.sleep(A_WHILE_S)
        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not answers._sources, "no source is remembered"


async def test_questions_of_those_who_hung_up_count_too(provider: Provider) -> None:
    async with stuck() as (answers, ask):
        waiting = [
            asyncio.create_task(answers.find(provider, str(n), NOW, Allowance(f"192.0.2.{n}"), ask))
            for n in range(MAX_WAITING)
        ]
        await asyncio.sleep(A_WHILE_S)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(IssuerError, match=UNDECIDED):
            await answers.find(provider, "one more", NOW, Allowance(SOURCE), ask)


@asynccontextmanager
async def stuck() -> AsyncIterator[tuple[AnswerCache, Any]]:
    """Answers of a provider that never answers."""
    answers, never = AnswerCache(), asyncio.Event()

    async def ask() -> ProviderAnswer:
        await never.wait()
        return ProviderAnswer({}, None)

    async with asyncio.timeout(60):
        yield answers, ask
    async with asyncio.timeout(60):
        await answers.aclose()


async def test_a_source_over_its_limit_asks_nobody_but_kept_answers_serve_it(
    server: OAuthServer, provider: Provider
) -> None:
    token = server.token(AUDIENCE)
    async with opened() as here:
        with pytest.raises(Refused) as refused:
            await here.introspector.verify(token, provider, int(time.time()), Allowance(SOURCE, 7))
        assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_SOURCE, 7)
        assert server.introspected == 0
        await here.outcome(provider, token)
        assert await here.outcome(provider, token, retry_after_s=7) == server.client_id
    assert server.introspected == 1


async def test_closing_leaves_nobody_waiting(server: OAuthServer, provider: Provider) -> None:
    server.behave("slow", seconds=120)
    async with opened(deadline_s=120) as here:
        waiting = asyncio.create_task(here.outcome(provider, "any"))
        await until_asked(server, 1)
        await asyncio.wait_for(here.aclose(), 60)
        assert await waiting == UNDECIDED
