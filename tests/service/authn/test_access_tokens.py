"""OAuth access tokens (RFC 9068), and where a credential goes by its form; at the level of one call, with real keys."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from issuer.codes import Code
from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, LocalProvider, make_key
from issuer.errors import IssuerError
from issuer.identity.profiles import PROFILES, TOKEN_PREFIXES
from issuer.identity.table import Introspection, Provider
from issuer.identity.token import Caller
from issuer.limits.rate import Rate
from issuer.limits.sources import Allowance, Sources
from issuer.policy.authoring.explain import ReadCredential, present_token
from issuer.policy.match import PolicySet
from issuer.service.authn.authenticator import ProviderAuthenticator, SignedTokens
from issuer.service.authn.keysets import KeySets, ProviderFetcher
from tests.support.tls import NO_ROOTS

NOW = 1_795_000_000
AUDIENCE = "https://evals.example"
SOURCE = "192.0.2.7"
OAUTH_PATH = "/.well-known/oauth-authorization-server"

MALFORMED = Code.IDENTITY_MALFORMED
TYPE = Code.IDENTITY_TYPE_REFUSED


def registered(profile: str, issuer: str, name: str = "acme", token_prefix: str = "") -> Provider:
    how = Introspection("x", "/x", token_prefix=token_prefix or UNSET) if profile == "oauth-introspection" else None
    return Provider(
        id=name, profile=profile, issuer=issuer, audience=AUDIENCE, algorithms=PROFILES[profile].algorithms,
        max_lifetime_s=3600, max_age_s=3600, uses=1, keys="discovery", events=(), introspection=how,
    )  # fmt: skip


class Recording:
    """A verifier that says who was asked about what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        self.asked.append((provider.id, bearer))
        return Caller(provider, {}, ("nonce", provider.id, f"{allowance.retry_after_s} {allowance.source}"), now, now)


class Door:
    """An authenticator with an empty key cache that knows these providers."""

    def __init__(self, *providers: Provider) -> None:
        self.reasons: list[str] = []
        self.key_sets = KeySets(
            ProviderFetcher(development=True, ssl_context=NO_ROOTS),
            monotonic=lambda: 0.0,
            report=lambda _, reason: self.reasons.append(reason),
        )
        self.sources = Sources(Rate(count=1, per_s=60, burst=1))
        self.others = Recording()
        self.authenticator = ProviderAuthenticator(
            {provider.issuer: provider for provider in providers},
            SignedTokens(self.key_sets),
            {"introspection": self.others, "pat": self.others, "huggingface": self.others},
            self.sources,
            lambda: NOW * 1_000_000_000,
        )

    async def admit(self, bearer: str) -> Caller:
        return await self.authenticator.authenticate(bearer, SOURCE, NOW)

    async def outcome(self, bearer: str) -> str:
        """Return the code, or who was asked, or `ok`."""
        before = len(self.others.asked)
        try:
            await self.admit(bearer)
        except IssuerError as error:
            return str(error.code)
        return self.others.asked[-1][0] if len(self.others.asked) > before else "ok"

    async def aclose(self) -> None:
        await self.key_sets.aclose()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalProvider]:
    with LocalProvider(clock=lambda: NOW) as provider:
        yield provider


@pytest.fixture
def local(running: LocalProvider) -> LocalProvider:
    running.answers.clear()
    running.requests.clear()
    running.published = [running.rs256, running.es256]
    return running


@pytest.fixture
async def door(local: LocalProvider) -> AsyncIterator[Door]:
    async with aclosing(Door(registered("oauth", local.issuer))) as door:
        yield door


def claims_of(local: LocalProvider, **changes: Any) -> dict[str, Any]:
    """Return the claims of a good access token (RFC 9068 2.2); `UNSET` leaves one out."""
    claims = {
        "iss": local.issuer, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 300, "sub": "evals-ci", "client_id": "evals-ci",
        "jti": "one", "scope": "openid tokens:issue",
    }  # fmt: skip
    return {name: value for name, value in {**claims, **changes}.items() if value is not UNSET}


def access_token(local: LocalProvider, typ: Any = "at+jwt", **changes: Any) -> str:
    header = {"alg": "RS256", "kid": local.rs256.kid, "typ": typ}
    return local.sign({k: v for k, v in header.items() if v is not UNSET}, claims_of(local, **changes))


# -- what is good -----------------------------------------------------------------------------------------------------


async def test_an_access_token_becomes_a_caller_whose_nonce_names_the_request(door: Door, local: LocalProvider) -> None:
    caller = await door.admit(access_token(local))
    assert caller.claims["client_id"] == "evals-ci"
    assert (caller.issued_at, caller.expires_at) == (NOW, NOW + 300)
    assert caller.use_parts == ("nonce", "acme", '["evals-ci","evals-ci"]')
    nonce = "n" * 22
    parts = ["nonce", "acme", '["evals-ci","evals-ci"]', nonce]
    assert caller.use_record(nonce) == hashlib.sha256(rfc8785.dumps(parts)).hexdigest()
    assert caller.provenance() == {"provider": "acme", "issuer": local.issuer, "client_id": "evals-ci"}


async def test_a_fresh_token_of_the_client_makes_the_same_request_and_another_s_does_not(
    door: Door, local: LocalProvider
) -> None:
    first = await door.admit(access_token(local, jti="one"))
    renewed = await door.admit(access_token(local, jti="two", iat=NOW - 9, exp=NOW + 600))
    assert first.use_record("n" * 22) == renewed.use_record("n" * 22) != renewed.use_record("m" * 22)
    for other in ({"client_id": "other"}, {"sub": "other"}, {"client_id": "evals", "sub": "ci-evals-ci"}):
        assert (await door.admit(access_token(local, **other))).use_parts != first.use_parts


@pytest.mark.parametrize("alg", PROFILES["oauth"].algorithms)
async def test_every_algorithm_of_the_profile_verifies(local: LocalProvider, alg: str) -> None:
    key = make_key(alg)
    local.published = [key]
    async with aclosing(Door(registered("oauth", local.issuer))) as door:
        assert (
            await door.outcome(local.sign({"alg": alg, "kid": key.kid, "typ": "at+jwt"}, claims_of(local), key)) == "ok"
        )


GOOD = [
    {"typ": "application/at+jwt"}, {"typ": "AT+JWT"}, {"aud": [AUDIENCE]}, {"scope": UNSET}, {"auth_time": NOW - 60},
    {"amr": ["pwd"], "acr": "0"}, {"groups": ["a"], "roles": [], "entitlements": "x"}, {"nbf": NOW - 10},
]  # fmt: skip


@pytest.mark.parametrize("changes", GOOD, ids=str)
async def test_what_the_rfc_allows_is_taken(door: Door, local: LocalProvider, changes: dict[str, Any]) -> None:
    """The policy reports a missing scope."""
    assert await door.outcome(access_token(local, **changes)) == "ok"


# -- what is refused --------------------------------------------------------------------------------------------------

BAD = [
    *[({"typ": typ}, TYPE) for typ in (UNSET, "JWT", "", "at+jwtx", "id+jwt", 7, None, ["at+jwt"], "eval-verify+jwt")],
    *[({"cnf": cnf}, TYPE) for cnf in ({"jkt": "x"}, {"x5t#S256": "x"}, {}, None)],
    *[({name: UNSET}, MALFORMED) for name in ("client_id", "sub", "jti")],
    *[({name: bad}, MALFORMED) for name in ("client_id", "sub", "jti") for bad in ("", 7, None, ["a"], "x" * 513)],
    ({"aud": "https://elsewhere.example"}, Code.IDENTITY_AUDIENCE_MISMATCH),
    ({"aud": [AUDIENCE, "https://elsewhere.example"]}, Code.IDENTITY_AUDIENCE_MISMATCH),
    ({"aud": UNSET}, Code.IDENTITY_AUDIENCE_MISMATCH),
    ({"exp": NOW - 31, "iat": NOW - 60}, Code.IDENTITY_EXPIRED),
    ({"exp": NOW + 3601}, Code.IDENTITY_LIFETIME_TOO_LONG),
    ({"exp": UNSET}, MALFORMED),
    ({"iat": UNSET}, MALFORMED),
]
BAD_TO_AUTHLIB = [
    *[({"amr": amr}, MALFORMED) for amr in ("pwd", 7, {"pwd": 1}, None)],
    *[({"auth_time": time}, MALFORMED) for time in ("yesterday", ["x"], None)],
]


@pytest.mark.parametrize(("changes", "code"), [*BAD, *BAD_TO_AUTHLIB], ids=str)
async def test_what_is_no_access_token_for_us_is_refused(
    door: Door, local: LocalProvider, changes: dict[str, Any], code: Code
) -> None:
    assert await door.outcome(access_token(local, **changes)) == code


@pytest.mark.parametrize(("changes", "code"), BAD, ids=str)
def test_offline_the_first_check_that_fails_is_the_one_that_the_service_refuses_by(
    local: LocalProvider, changes: dict[str, Any], code: Code
) -> None:
    policies = PolicySet({local.issuer: registered("oauth", local.issuer)}, {}, {}, {}, "")
    presented = present_token(policies, access_token(local, **changes), NOW)
    assert isinstance(presented, ReadCredential)
    assert next(check.code for check in presented.checks if not check.passed) == code


async def test_an_access_token_is_no_identity_token_and_the_other_way_round(local: LocalProvider) -> None:
    """Each says of itself what it is, and each provider is registered for one of the two."""
    async with aclosing(Door(registered("oidc", local.issuer))) as door:
        assert await door.outcome(access_token(local)) == TYPE
        assert await door.outcome(access_token(local, typ="JWT")) == "ok"


async def test_a_refusal_quotes_no_claim(door: Door, local: LocalProvider) -> None:
    with pytest.raises(IssuerError) as refusal:
        await door.admit(access_token(local, amr="a-claim-that-nobody-may-read"))
    assert "nobody" not in str(refusal.value)
    assert refusal.value.__suppress_context__, "Authlib's error, whose text quotes the claim, is not told"


REGISTERED = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "auth_time", "acr", "amr", "scope", "groups",
              "roles", "entitlements", "cnf", "validate", "self", "now", "claims"]  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(REGISTERED), ANY, max_size=4))
async def test_whatever_a_provider_signs_is_taken_or_refused_and_never_a_fault_of_ours(
    door: Door, local: LocalProvider, changes: dict[str, Any]
) -> None:
    assert await door.outcome(access_token(local, **changes)) in {
        "ok",
        *(str(code) for code in Code if code.meaning.status == 401),
    }


# -- where its keys are -----------------------------------------------------------------------------------------------


def metadata(local: LocalProvider, issuer: str, changes: Mapping[str, Any] = {}) -> bytes:
    return msgspec.json.encode({"issuer": issuer, "jwks_uri": local.issuer + KEY_SET_PATH, **changes})


@pytest.mark.parametrize("status", [404, 400, 401, 403, 410])
@pytest.mark.parametrize("path", ["", "/tenant", "/tenant/"])
async def test_an_oauth_server_without_openid_is_discovered_as_rfc_8414_says(
    local: LocalProvider, path: str, status: int
) -> None:
    """Its own path comes after the well-known one."""
    issuer = local.issuer + path
    asked = f"{OAUTH_PATH}{path.removesuffix('/')}"
    local.answers[DISCOVERY_PATH] = lambda exchange: exchange.reply(status, b"")
    local.answers[f"{path.removesuffix('/')}{DISCOVERY_PATH}"] = lambda exchange: exchange.reply(status, b"")
    local.answers[asked] = lambda exchange: exchange.reply(200, metadata(local, issuer))
    async with aclosing(Door(registered("oauth", issuer))) as door:
        assert await door.outcome(access_token(local, iss=issuer)) == "ok"
    assert local.requests[asked] == 1


async def test_openid_s_metadata_are_enough_where_they_are(local: LocalProvider, door: Door) -> None:
    assert await door.outcome(access_token(local)) == "ok"
    assert local.requests == {DISCOVERY_PATH: 1, KEY_SET_PATH: 1}


@pytest.mark.parametrize("profile", ["oidc", "gitlab-ci"])
async def test_a_provider_of_identity_tokens_is_not_asked_for_oauth_s_metadata(
    local: LocalProvider, profile: str
) -> None:
    local.answers[DISCOVERY_PATH] = lambda exchange: exchange.reply(404, b"")
    async with aclosing(Door(registered(profile, local.issuer))) as door:
        assert await door.outcome(local.token(AUDIENCE)) == Code.DEPENDENCY_ISSUER_KEYS
    assert local.requests == {DISCOVERY_PATH: 1}


@pytest.mark.parametrize("status", [500, 503, 302])
async def test_a_server_that_is_ill_is_not_asked_elsewhere(local: LocalProvider, door: Door, status: int) -> None:
    local.answers[DISCOVERY_PATH] = lambda exchange: exchange.reply(status, b"")
    assert await door.outcome(access_token(local)) == Code.DEPENDENCY_ISSUER_KEYS
    assert local.requests == {DISCOVERY_PATH: 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "https://evil.example"}, "of another issuer"),
        ({"jwks_uri": "https://evil.example/keys"}, "on another host than the issuer"),
        ({"jwks_uri": None}, "has no jwks_uri"),
    ],
)
async def test_oauth_s_metadata_are_believed_no_more_than_openid_s(
    local: LocalProvider, door: Door, changes: dict[str, Any], reason: str
) -> None:
    local.answers[DISCOVERY_PATH] = lambda exchange: exchange.reply(404, b"")
    local.answers[OAUTH_PATH] = lambda exchange: exchange.reply(200, metadata(local, local.issuer, changes))
    assert await door.outcome(access_token(local)) == Code.DEPENDENCY_ISSUER_KEYS
    assert KEY_SET_PATH not in local.requests
    assert [reason in told for told in door.reasons] == [True], door.reasons


# -- where a credential goes --------------------------------------------------------------------------------------------

OURS = "https://evals.example"


@pytest.fixture
async def hall(local: LocalProvider) -> AsyncIterator[Door]:
    """A door with a provider of every kind."""
    providers = [
        registered("oauth", local.issuer, "jwt"),
        registered("oauth-introspection", "https://a.example", "a", "aaa_"),
        registered("oauth-introspection", "https://b.example", "b", "bbb_"),
        registered("pat", OURS, "pat"),
        registered("huggingface", "https://huggingface.co", "hub"),
    ]
    async with aclosing(Door(*providers)) as door:
        yield door


def of(local: LocalProvider, issuer: str) -> str:
    return access_token(local, iss=issuer)


ROUTES = [
    ("aaa_x", "a"), ("bbb_x", "b"), ("aaa_", "a"), ("evi_pat_x", "pat"), ("hf_x", "hub"), ("hf_x.y.z", "hub"),
    ("aaa_x.y.z", "a"), ("aab_x", MALFORMED), ("AAA_x", MALFORMED), ("evi_PAT_x", MALFORMED), ("x", MALFORMED),
    ("xhf_y", MALFORMED), ("eyJ.x", MALFORMED), ("eyJ.x.y.z", MALFORMED), ("eyJ..", MALFORMED), ("a.b.c", MALFORMED),
]  # fmt: skip


@pytest.mark.parametrize(("bearer", "whose"), ROUTES)
async def test_an_opaque_credential_goes_to_the_provider_whose_it_must_be_or_to_nobody(
    hall: Door, bearer: str, whose: str
) -> None:
    assert await hall.outcome(bearer) == whose
    assert hall.others.asked == ([] if whose is MALFORMED else [(whose, bearer)])


async def test_a_jwt_goes_to_its_issuer_alone(hall: Door, local: LocalProvider) -> None:
    assert await hall.outcome(access_token(local)) == "ok"
    assert await hall.outcome(of(local, "https://a.example")) == "a", "its provider wants it introspected"
    for stranger in ("https://c.example", "https://a.example/", "", None, ["https://a.example"]):
        assert await hall.outcome(access_token(local, iss=stranger)) == Code.IDENTITY_ISSUER_UNKNOWN


@pytest.mark.parametrize("issuer", [OURS, "https://huggingface.co"])
async def test_no_jwt_is_taken_of_an_issuer_whose_credentials_are_none(
    hall: Door, local: LocalProvider, issuer: str
) -> None:
    """Our own verify tokens among them: they are public."""
    assert await hall.outcome(of(local, issuer)) == Code.IDENTITY_ISSUER_UNKNOWN
    assert await hall.outcome(access_token(local, typ="eval-verify+jwt", iss=issuer)) == Code.IDENTITY_ISSUER_UNKNOWN
    assert hall.others.asked == []


@pytest.mark.parametrize("known", TOKEN_PREFIXES)
async def test_a_credential_of_a_known_form_is_never_shown_to_who_takes_any_other(known: str) -> None:
    async with aclosing(Door(registered("oauth-introspection", "https://a.example", "any"))) as door:
        assert await door.outcome("whatever") == "any"
        assert await door.outcome(f"{known}x") == Code.IDENTITY_ISSUER_UNKNOWN
        assert [asked for _, asked in door.others.asked] == ["whatever"]


async def test_a_jwt_of_an_unknown_issuer_is_not_shown_to_who_takes_any_opaque_token(local: LocalProvider) -> None:
    async with aclosing(Door(registered("oauth-introspection", "https://a.example", "any"))) as door:
        assert await door.outcome(access_token(local)) == Code.IDENTITY_ISSUER_UNKNOWN
        assert await door.outcome("eyJhbGciOiJub25lIn0.e30.") == Code.IDENTITY_MALFORMED
        assert door.others.asked == []


@pytest.mark.parametrize("begins", ["{", " {", "\t{", "\r\n {", "{ ", "{\n", " " * 65 + "{\t"], ids=repr)
async def test_a_jwt_is_known_however_its_header_is_written_and_shown_to_no_other_provider(
    local: LocalProvider, begins: str
) -> None:
    """White space is allowed in it (RFC 7515, section 3)."""
    header = f'{begins}"alg": "RS256", "kid": "{local.rs256.kid}", "typ": "at+jwt"}}'.encode()
    providers = registered("oauth", local.issuer), registered("oauth-introspection", "https://a.example", "any")
    async with aclosing(Door(*providers)) as door:
        assert await door.outcome(local.sign(header, claims_of(local))) == "ok"
        stranger = local.sign(header, claims_of(local, iss="https://other.example"))
        assert await door.outcome(stranger) == Code.IDENTITY_ISSUER_UNKNOWN
        assert door.others.asked == []


@pytest.mark.parametrize(
    "bearer", ["e30.e30.", "eyJ.x.y", "ICB7ICJhbGc.x.y", "eyJhbGciOiJkaXIifQ..aXY.Y3Q.dGFn", "eyJhbGciOi.a.b.c.d"]
)
async def test_what_looks_like_a_jwt_or_is_encrypted_is_shown_to_nobody(bearer: str) -> None:
    async with aclosing(Door(registered("oauth-introspection", "https://a.example", "any"))) as door:
        assert await door.outcome(bearer) == MALFORMED
        assert door.others.asked == []


@pytest.mark.parametrize("bearer", ["a.b.c", "..", "eyJhbGciOi.x", "ey.x.y", "e-_.x.y", "~~.x.y", "x.e30.e30", "e.x.y"])
async def test_an_opaque_token_may_have_dots(bearer: str) -> None:
    async with aclosing(Door(registered("oauth-introspection", "https://a.example", "any"))) as door:
        assert await door.outcome(bearer) == "any"


async def test_a_source_over_its_limit_is_told_so_whatever_the_form_of_its_credential(hall: Door) -> None:
    for _ in range(2):
        hall.sources.refuse(SOURCE, NOW * 1_000_000)
    for bearer in ("x", "eyJ..", "evi_PAT_"):
        assert await hall.outcome(bearer) == Code.RATE_SOURCE
    caller = await hall.admit("aaa_x")
    assert caller.use_parts[2].endswith(SOURCE), "the verifier knows the source,"
    assert int(caller.use_parts[2].split()[0]) > 0, "and that nobody is to be asked for it"
