"""OAuth access tokens (RFC 9068), and where a credential goes by its form; at the level of one call, with real keys."""

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
from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, LocalProvider, Responder, make_key
from issuer.errors import IssuerError, Refused
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
    """A verifier that records which provider was asked about which credential."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def verify(self, bearer: str, provider: Provider, now: int, allowance: Allowance) -> Caller:
        self.asked.append((provider.id, bearer))
        if bearer.endswith("_refused"):
            raise Refused(Code.IDENTITY_CREDENTIAL_UNKNOWN)
        return Caller(provider, {}, ("nonce", provider.id, f"{allowance.retry_after_s} {allowance.source}"), now, now)


class Door:
    """An authenticator with an empty key cache that has these providers."""

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
        """Return the code, or the provider that was asked, or `ok`."""
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
    parts = [*caller.use_parts, "n" * 22]
    assert caller.use_record("n" * 22) == hashlib.sha256(rfc8785.dumps(parts)).hexdigest()
    assert caller.provenance() == {"provider": "acme", "issuer": local.issuer, "client_id": "evals-ci"}


async def test_a_fresh_token_of_the_client_makes_the_same_request(door: Door, local: LocalProvider) -> None:
    first = await door.admit(access_token(local, jti="one"))
    renewed = await door.admit(access_token(local, jti="two", iat=NOW - 9, exp=NOW + 600))
    assert first.use_record("n" * 22) == renewed.use_record("n" * 22) != renewed.use_record("m" * 22)
    for other in ({"client_id": "other"}, {"sub": "other"}, {"client_id": "evals", "sub": "ci-evals-ci"}):
        assert (await door.admit(access_token(local, **other))).use_parts != first.use_parts


async def test_every_algorithm_of_the_profile_verifies(local: LocalProvider) -> None:
    keys = local.published = [make_key(alg) for alg in PROFILES["oauth"].algorithms]
    async with aclosing(Door(registered("oauth", local.issuer))) as door:
        for key in keys:
            token = local.sign({"alg": key.alg, "kid": key.kid, "typ": "at+jwt"}, claims_of(local), key)
            assert await door.outcome(token) == "ok", key.alg


GOOD: list[dict[str, Any]] = [
    {"typ": "application/at+jwt"}, {"typ": "AT+JWT"}, {"aud": [AUDIENCE]}, {"scope": UNSET}, {"auth_time": NOW - 60},
    {"amr": ["pwd"], "acr": "0"}, {"groups": ["a"], "roles": [], "entitlements": "x"}, {"nbf": NOW - 10},
]  # fmt: skip


async def test_an_access_token_may_have_all_that_the_rfc_allows(door: Door, local: LocalProvider) -> None:
    """The policy reports a missing scope."""
    assert [changes for changes in GOOD if await door.outcome(access_token(local, **changes)) != "ok"] == []


# -- what is refused --------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], Code]] = [
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
BAD_TO_AUTHLIB: list[tuple[dict[str, Any], Code]] = [
    *[({"amr": amr}, MALFORMED) for amr in ("pwd", 7, {"pwd": 1}, None)],
    *[({"auth_time": time}, MALFORMED) for time in ("yesterday", ["x"], None)],
]


async def test_other_tokens_are_refused_and_offline_by_the_same_check(door: Door, local: LocalProvider) -> None:
    policies = PolicySet({local.issuer: registered("oauth", local.issuer)}, {}, {}, {}, "")
    wrong = []
    for changes, code in [*BAD, *BAD_TO_AUTHLIB]:
        token = access_token(local, **changes)
        presented = present_token(policies, token, NOW)
        assert isinstance(presented, ReadCredential)
        offline = next((check.code for check in presented.checks if not check.passed), None)
        found = await door.outcome(token)
        if found != code or (offline != code and (changes, code) in BAD):
            wrong.append((changes, found, offline))
    assert wrong == []


async def test_a_refusal_quotes_no_claim(door: Door, local: LocalProvider) -> None:
    with pytest.raises(IssuerError) as refusal:
        await door.admit(access_token(local, amr="a-claim-that-nobody-may-read"))
    assert "nobody" not in str(refusal.value)
    assert refusal.value.__suppress_context__, "the text of Authlib's error quotes the claim"


REGISTERED = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "client_id", "auth_time", "acr", "amr", "scope", "groups",
              "roles", "entitlements", "cnf", "validate", "self", "now", "claims"]  # fmt: skip
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6,
)  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(REGISTERED), ANY, max_size=4))
async def test_any_signed_claims_are_taken_or_refused_with_401(
    door: Door, local: LocalProvider, changes: dict[str, Any]
) -> None:
    refusals = {str(code) for code in Code if code.meaning.status == 401}
    assert await door.outcome(access_token(local, **changes)) in {"ok", *refusals}


# -- where its keys are -----------------------------------------------------------------------------------------------


def fixed(status: int, body: bytes = b"") -> Responder:
    return lambda exchange: exchange.reply(status, body)


def metadata(local: LocalProvider, issuer: str, changes: Mapping[str, Any] = {}) -> bytes:
    return msgspec.json.encode({"issuer": issuer, "jwks_uri": local.issuer + KEY_SET_PATH, **changes})


async def test_an_oauth_server_without_openid_is_discovered_as_rfc_8414_says(local: LocalProvider) -> None:
    """Its own path comes after the well-known one."""
    for path, status in (("", 404), ("", 400), ("", 401), ("/tenant", 403), ("/tenant/", 410)):
        issuer = local.issuer + path
        asked = f"{OAUTH_PATH}{path.removesuffix('/')}"
        local.requests.clear()
        local.answers[f"{path.removesuffix('/')}{DISCOVERY_PATH}"] = fixed(status)
        local.answers[asked] = fixed(200, metadata(local, issuer))
        async with aclosing(Door(registered("oauth", issuer))) as door:
            assert await door.outcome(access_token(local, iss=issuer)) == "ok", (path, status)
        assert local.requests[asked] == 1


async def test_oauth_metadata_are_not_requested_in_place_of_good_or_broken_ones(local: LocalProvider) -> None:
    """Nor of a provider of identity tokens."""
    undecided = str(Code.DEPENDENCY_ISSUER_KEYS)
    cases = [("oauth", 0, "ok"), *(("oauth", status, undecided) for status in (500, 302)), ("oidc", 404, undecided)]
    for profile, status, outcome in cases:
        local.requests.clear()
        if status:
            local.answers[DISCOVERY_PATH] = fixed(status)
        token = access_token(local) if profile == "oauth" else local.token(AUDIENCE)
        async with aclosing(Door(registered(profile, local.issuer))) as door:
            assert await door.outcome(token) == outcome
        assert OAUTH_PATH not in local.requests, (profile, status)


async def test_oauth_metadata_are_checked_like_those_of_openid(local: LocalProvider) -> None:
    local.answers[DISCOVERY_PATH] = fixed(404)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"issuer": "https://evil.example"}, "of another issuer"),
        ({"jwks_uri": "https://evil.example/keys"}, "on another host than the issuer"),
        ({"jwks_uri": None}, "has no jwks_uri"),
    ]
    for changes, reason in cases:
        local.answers[OAUTH_PATH] = fixed(200, metadata(local, local.issuer, changes))
        async with aclosing(Door(registered("oauth", local.issuer))) as door:
            assert await door.outcome(access_token(local)) == Code.DEPENDENCY_ISSUER_KEYS
        assert [reason in text for text in door.reasons] == [True], door.reasons
    assert KEY_SET_PATH not in local.requests


# -- where a credential goes --------------------------------------------------------------------------------------------

OURS = "https://evals.example"


@pytest.fixture
async def every_kind(local: LocalProvider) -> AsyncIterator[Door]:
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


ROUTES = [
    ("aaa_x", "a"), ("bbb_x", "b"), ("aaa_", "a"), ("evi_pat_x", "pat"), ("hf_x", "hub"), ("hf_x.y.z", "hub"),
    ("aaa_x.y.z", "a"), ("aab_x", MALFORMED), ("AAA_x", MALFORMED), ("evi_PAT_x", MALFORMED), ("x", MALFORMED),
    ("xhf_y", MALFORMED), ("eyJ.x", MALFORMED), ("eyJ.x.y.z", MALFORMED), ("eyJ..", MALFORMED), ("a.b.c", MALFORMED),
]  # fmt: skip


async def test_an_opaque_credential_goes_only_to_the_provider_of_its_prefix(every_kind: Door) -> None:
    for bearer, provider in ROUTES:
        every_kind.others.asked.clear()
        assert await every_kind.outcome(bearer) == provider, bearer
        assert every_kind.others.asked == ([] if provider is MALFORMED else [(provider, bearer)])


async def test_a_jwt_goes_to_its_issuer_alone(every_kind: Door, local: LocalProvider) -> None:
    """Our own verify tokens are public: they are not credentials."""
    assert await every_kind.outcome(access_token(local)) == "ok"
    assert await every_kind.outcome(access_token(local, iss="https://a.example")) == "a", "introspected on demand"
    every_kind.others.asked.clear()
    strangers = ("https://c.example", "https://a.example/", "", None, ["https://a.example"])
    for issuer in (*strangers, OURS, "https://huggingface.co"):
        for typ in ("at+jwt", "eval-verify+jwt"):
            assert await every_kind.outcome(access_token(local, typ, iss=issuer)) == Code.IDENTITY_ISSUER_UNKNOWN
    assert every_kind.others.asked == []


async def test_a_provider_of_any_opaque_token_gets_no_credential_of_a_known_form(local: LocalProvider) -> None:
    """Nor a JWT, nor what is encrypted or looks like either; an opaque token may have dots."""
    known = [access_token(local), *(f"{prefix}x" for prefix in TOKEN_PREFIXES)]
    jwts = ["e30.e30.", "eyJ.x.y", "ICB7ICJhbGc.x.y", "eyJhbGciOiJkaXIifQ..aXY.Y3Q.dGFn", "eyJhbGciOi.a.b.c.d"]
    opaque = ["whatever", "a.b.c", "..", "eyJhbGciOi.x", "ey.x.y", "e-_.x.y", "~~.x.y", "x.e30.e30", "e.x.y"]
    async with aclosing(Door(registered("oauth-introspection", "https://a.example", "any"))) as door:
        assert {await door.outcome(bearer) for bearer in known} == {str(Code.IDENTITY_ISSUER_UNKNOWN)}
        assert {await door.outcome(bearer) for bearer in jwts} == {str(MALFORMED)}
        assert {await door.outcome(bearer) for bearer in opaque} == {"any"}
        assert [asked for _, asked in door.others.asked] == opaque


async def test_a_jwt_with_white_space_in_its_header_goes_to_no_other_provider(local: LocalProvider) -> None:
    """White space is allowed in it (RFC 7515, section 3)."""
    providers = registered("oauth", local.issuer), registered("oauth-introspection", "https://a.example", "any")
    async with aclosing(Door(*providers)) as door:
        for begins in ("{", " {", "\t{", "\r\n {", "{ ", "{\n", " " * 65 + "{\t"):
            header = f'{begins}"alg": "RS256", "kid": "{local.rs256.kid}", "typ": "at+jwt"}}'.encode()
            assert await door.outcome(local.sign(header, claims_of(local))) == "ok"
            stranger = local.sign(header, claims_of(local, iss="https://other.example"))
            assert await door.outcome(stranger) == Code.IDENTITY_ISSUER_UNKNOWN
        assert door.others.asked == []


async def test_a_source_over_its_limit_learns_that_for_every_form_of_credential(every_kind: Door) -> None:
    for _ in range(2):
        every_kind.sources.refuse(SOURCE, NOW * 1_000_000)
    for bearer in ("x", "eyJ..", "evi_PAT_", "evi_pat_refused", "aaa_refused"):
        assert await every_kind.outcome(bearer) == Code.RATE_SOURCE, bearer
    caller = await every_kind.admit("aaa_x")
    retry_after_s, source = caller.use_parts[2].split()
    assert (int(retry_after_s) > 0, source) == (True, SOURCE), "the verifier learns both"
