"""Identity tokens, from bytes to the Caller: every variant of the attacks J1 to J14 of SECURITY.md, in one process.

The provider is real, its keys are real, and it signs anything.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from id import AmbientCredentialError, detect_credential
from msgspec import UNSET

from issuer.codes import Code
from issuer.dev.provider import REPOSITORY_ID, LocalProvider, ProviderKey, make_key
from issuer.errors import IssuerError, Refused
from issuer.formats.times import LEEWAY_S
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.limits.rate import Rate
from issuer.limits.sources import Sources
from issuer.policy.authoring.explain import ReadCredential, present_token
from issuer.policy.match import PolicySet
from issuer.service.authn.authenticator import ProviderAuthenticator, SignedTokens
from issuer.service.authn.keysets import KeySets, ProviderFetcher
from tests.support.tls import NO_ROOTS

NOW = 1_795_000_000
AUDIENCE = "https://evals.example"
SOURCE = "192.0.2.7"
LIFETIME_S = 3600
AGE_S = 900

MALFORMED = Code.IDENTITY_MALFORMED
ALGORITHM = Code.IDENTITY_ALGORITHM_REFUSED
ISSUER = Code.IDENTITY_ISSUER_UNKNOWN
TYPE = Code.IDENTITY_TYPE_REFUSED
AUDIENCE_MISMATCH = Code.IDENTITY_AUDIENCE_MISMATCH
SIGNATURE = Code.IDENTITY_SIGNATURE_INVALID
EXPIRED = Code.IDENTITY_EXPIRED
NOT_YET = Code.IDENTITY_NOT_YET_VALID
TOO_LONG = Code.IDENTITY_LIFETIME_TOO_LONG
TOO_OLD = Code.IDENTITY_TOO_OLD


Forge = Callable[[LocalProvider], str]


def registered(issuer: str) -> Provider:
    signed = ("RS256", "ES256")
    return Provider("local", "github-actions", issuer, AUDIENCE, signed, LIFETIME_S, AGE_S, 1, "discovery", ("push",))


class Subject:
    """An authenticator with an empty key cache, and its parts."""

    def __init__(self, local: LocalProvider) -> None:
        self.provider = registered(local.issuer)
        self.key_sets = KeySets(ProviderFetcher(development=True, ssl_context=NO_ROOTS), monotonic=lambda: 0.0)
        self.sources = Sources(Rate(count=1, per_s=60, burst=1))

    async def admit(self, bearer: str, source: str = SOURCE) -> Caller:
        tokens = SignedTokens(self.key_sets)
        authenticator = ProviderAuthenticator(
            {self.provider.issuer: self.provider}, tokens, {}, self.sources, lambda: NOW * 1_000_000_000
        )
        return await authenticator.authenticate(bearer, source, NOW)

    async def outcome(self, bearer: str, source: str = SOURCE) -> str:
        try:
            await self.admit(bearer, source)
        except IssuerError as error:
            return str(error.code)
        return "ok"

    async def aclose(self) -> None:
        await self.key_sets.aclose()


@pytest.fixture(scope="module")
def local() -> Iterator[LocalProvider]:
    with LocalProvider(clock=lambda: NOW) as provider:
        yield provider


@pytest.fixture
async def subject(local: LocalProvider) -> AsyncIterator[Subject]:
    async with aclosing(Subject(local)) as subject:
        yield subject


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def headed(**changes: Any) -> Forge:
    """A good token but for its header, signed as it is; `UNSET` leaves a member out."""

    def forge(local: LocalProvider) -> str:
        header = {"alg": "RS256", "kid": local.rs256.kid, "typ": "JWT", **changes}
        return local.sign({k: v for k, v in header.items() if v is not UNSET}, local.claims(aud=AUDIENCE))

    return forge


def claiming(**changes: Any) -> Forge:
    """A good token but for its claims."""
    audience = changes.pop("aud", AUDIENCE)
    return lambda local: local.token(audience, **changes)


def spelled(payload: Callable[[str], str | bytes]) -> Forge:
    """A token whose payload text is changed before it is signed."""

    def forge(local: LocalProvider) -> str:
        text = payload(json.dumps(local.claims(aud=AUDIENCE)))
        raw = text if isinstance(text, bytes) else text.encode()
        return local.sign({"alg": "RS256", "kid": local.rs256.kid}, raw)

    return forge


def respelled(change: Callable[[list[str]], str]) -> Forge:
    """A good token, taken apart and put together in another way."""
    return lambda local: change(local.token(AUDIENCE).split("."))


# -- what is good -----------------------------------------------------------------------------------------------------


async def test_a_genuine_token_becomes_a_caller(subject: Subject, local: LocalProvider) -> None:
    for alg in ("RS256", "ES256"):
        caller = await subject.admit(local.token(AUDIENCE, alg=alg, jti="one"))
        assert caller.provider is subject.provider
        assert caller.claims["repository_id"] == REPOSITORY_ID
        assert (caller.issued_at, caller.expires_at) == (NOW, NOW + 300)
        assert caller.use_record("") == hashlib.sha256(rfc8785.dumps(["use", local.issuer, "one"])).hexdigest()


GOOD: dict[str, Forge] = {
    "no typ": headed(typ=UNSET),
    "typ in another case": headed(typ="jwt"),
    "typ as a media type": headed(typ="application/JWT"),
    "typ as a media type in another case": headed(typ="Application/jwt"),
    "x5t, as GitHub's": headed(x5t="abc"),
    "an unknown header member": headed(nonsense=[1]),
    "the audience alone in a list": claiming(aud=[AUDIENCE]),
    "no nbf": claiming(nbf=UNSET),
    "no jti": claiming(jti=UNSET),
    "the longest jti": claiming(jti="j" * 256),
    "issued by a clock that is ahead": claiming(iat=NOW + LEEWAY_S),
    "good soon, by a clock that is ahead": claiming(nbf=NOW + LEEWAY_S),
    "expired, by a clock that is behind": claiming(iat=NOW - 300, exp=NOW - LEEWAY_S + 1),
    "the longest life": claiming(exp=NOW + LIFETIME_S),
    "the oldest": claiming(iat=NOW - AGE_S - LEEWAY_S),
    "a time in the age of the dinosaurs": claiming(nbf=0),
    "200 claims": spelled(lambda text: text[:-1] + "".join(f', "n{n}": 1' for n in range(200 - 31)) + "}"),
    "depth 8": claiming(deep=[[[[[[[1]]]]]]]),
}


async def test_every_form_of_a_genuine_token_passes(subject: Subject, local: LocalProvider) -> None:
    outcomes = {name: await subject.outcome(forge(local)) for name, forge in GOOD.items()}
    assert outcomes == dict.fromkeys(GOOD, "ok")


# -- refused before any key is looked up ------------------------------------------------------------------------------


def symmetric(alg: str) -> Forge:
    """Sign by HMAC, with the public key as the secret (RFC 8725 2.1)."""

    def forge(local: LocalProvider) -> str:
        secret = json.dumps(dict(local.rs256.jwk)).encode()
        key = ProviderKey(alg, local.rs256.kid, lambda text: hmac.digest(secret, text, "sha256"), {})
        return local.sign({"alg": alg, "kid": key.kid, "typ": "JWT"}, local.claims(aud=AUDIENCE), key)

    return forge


def issued_by(change: Callable[[str], object]) -> tuple[Forge, Code]:
    return lambda local: local.token(AUDIENCE, iss=change(local.issuer)), ISSUER


NO_IDS: list[Any] = ["", None, 5, True, ["a"], {}]
BEFORE_KEYS: dict[str, tuple[Forge, Code]] = {
    # J1: algorithms
    **{f"alg {alg}": (headed(alg=alg), ALGORITHM) for alg in ("none", "None", "NONE", "nOnE", "", "RS256 ", "rs256")},
    **{f"alg {alg!r}": (headed(alg=alg), ALGORITHM) for alg in (None, 5, True, ["RS256"], {"RS256": 1})},
    **{f"alg {alg}": (headed(alg=alg), ALGORITHM) for alg in ("RS384", "RS512", "PS256", "ES384", "EdDSA", "RSA1_5")},
    **{f"by {alg} keyed with the public key": (symmetric(alg), ALGORITHM) for alg in ("HS256", "HS384", "HS512")},
    "no alg": (headed(alg=UNSET), ALGORITHM),
    # J2: key ids
    **{
        f"kid {kid!r}": (headed(kid=kid), MALFORMED)
        for kid in (*NO_IDS, "k" * 257, "a b", "kid\n", "\tkid", "k\x00", "kïd", "\x7f")
    },
    "no kid": (headed(kid=UNSET), MALFORMED),
    # J3: keys, addresses and extensions in the header
    **{
        f"{member} {value!r}": (headed(**{member: value}), MALFORMED)
        for member, value in (
            ("jku", "https://evil.example/jwks"), ("jku", None), ("x5u", "http://169.254.169.254/"), ("jwk", {"kty": "RSA"}),
            ("x5c", ["MIIB"]), ("crit", []), ("crit", ["exp"]), ("b64", False), ("b64", True), ("zip", "DEF"), ("enc", "A128GCM"),
        )
    },
    # J4: other kinds of token
    **{
        f"typ {typ!r}": (headed(typ=typ), TYPE)
        for typ in ("at+jwt", "application/at+jwt", "JOSE", "", "JWT ", "JWT\n", "JWT;a=b", "ＪＷＴ", None, 5, ["JWT"])
    },
    # J5: other spellings
    "two segments": (respelled(lambda parts: ".".join(parts[:2])), MALFORMED),
    "no signature": (respelled(lambda parts: f"{parts[0]}.{parts[1]}."), MALFORMED),
    "four segments": (respelled(lambda parts: ".".join([*parts, parts[2]])), MALFORMED),
    "nothing": (lambda _: "", MALFORMED),
    "padding": (respelled(lambda parts: ".".join(parts) + "=="), MALFORMED),
    "the standard alphabet": (respelled(lambda parts: f"{parts[0]}.{parts[1]}.{'+/' * 128}"), MALFORMED),
    "a space before": (respelled(lambda parts: " " + ".".join(parts)), MALFORMED),
    "a line break after": (respelled(lambda parts: ".".join(parts) + "\n"), MALFORMED),
    "non-zero trailing bits": (respelled(lambda parts: f"{parts[0]}.{parts[1]}.{parts[2][:-1]}{'B'}"), MALFORMED),
    "a length that base64 never has": (respelled(lambda parts: f"{parts[0]}.{parts[1]}.AAAAA"), MALFORMED),
    "JSON serialization": (lambda _: json.dumps({"payload": "e30", "signatures": []}), MALFORMED),
    "a letter that is not ASCII": (respelled(lambda parts: "é" + ".".join(parts)), MALFORMED),
    "alg twice": (
        lambda local: local.sign(b'{"alg": "none", "alg": "RS256", "kid": "a"}', local.claims(aud=AUDIENCE)),
        MALFORMED,
    ),
    "iss twice": (spelled(lambda text: text[:-1] + ', "iss": "https://evil.example"}'), MALFORMED),
    "exp twice, once in escapes": (spelled(lambda text: text[:-1] + ', "\\u0065xp": 9999999999}'), MALFORMED),
    # J6: sizes
    "a token over 16 KiB": (claiming(filler="x" * 16_000), MALFORMED),
    "a header over 4 KiB": (headed(filler="x" * 4_000), MALFORMED),
    "depth 9": (claiming(deep=[[[[[[[[1]]]]]]]]), MALFORMED),
    "a header of depth 9": (headed(deep=[[[[[[[[1]]]]]]]]), MALFORMED),
    "depth 2000": (spelled(lambda text: text[:-1] + f', "deep": {"[" * 2000}{"]" * 2000}}}'), MALFORMED),
    "201 claims": (
        spelled(lambda text: text[:-1] + "".join(f', "n{n}": 1' for n in range(201 - 31)) + "}"), MALFORMED
    ),
    "an integer of 4300 digits": (spelled(lambda text: text[:-1] + f', "n": {"9" * 4300}}}'), MALFORMED),
    "an integer of 4300 digits in the header": (
        lambda local: local.sign(b'{"alg": ' + b"9" * 2900 + b"}", local.claims(aud=AUDIENCE)), MALFORMED,
    ),
    # J7: numbers that readers understand differently
    "exp NaN": (spelled(lambda text: text[:-1] + ', "n": NaN}'), MALFORMED),
    "exp 1e400": (spelled(lambda text: text[:-1] + ', "n": 1e400}'), MALFORMED),
    # J9: issuers
    "iss with a slash": issued_by(lambda issuer: issuer + "/"),
    "iss in capitals": issued_by(str.upper),
    "iss with a user": issued_by(lambda issuer: issuer.replace("//", "//user@")),
    "iss on another port": issued_by(lambda issuer: issuer + "1"),
    "iss with a path": issued_by(lambda issuer: issuer + "/a"),
    "iss with a query": issued_by(lambda issuer: issuer + "?a"),
    "iss with a fragment": issued_by(lambda issuer: issuer + "#a"),
    "iss with a line break": issued_by(lambda issuer: issuer + "\n"),
    "iss with a zero-width space": issued_by(lambda issuer: issuer + "\u200b"),
    "iss with a full-width digit": issued_by(lambda issuer: issuer.replace("1", "１", 1)),
    "iss cut short": issued_by(lambda issuer: issuer[:-1]),
    "iss of a stranger": issued_by(lambda _: "https://token.actions.githubusercontent.com"),
    "iss null": issued_by(lambda _: None),
    "iss a list": issued_by(lambda issuer: [issuer]),
    "iss an object": issued_by(lambda issuer: {issuer: issuer}),
    "no iss": issued_by(lambda _: UNSET),
    # J11: payloads
    **{
        f"the payload {raw!r}": (spelled(lambda _, raw=raw: raw), MALFORMED)  # type: ignore[misc]
        for raw in (b"[]", b"null", b"5", b"{}{}", b"{", b'{"a": "\\ud800"}', b"\xed")
    },
    "a byte order mark": (spelled(lambda text: b"\xef\xbb\xbf" + text.encode()), MALFORMED),
    "UTF-16": (spelled(lambda text: text.encode("utf-16")), MALFORMED),
    "NUL": (claiming(sub="a\x00b"), MALFORMED),
    "half of a surrogate pair in a name": (spelled(lambda text: text[:-1] + ', "\\udc00": 1}'), MALFORMED),
    "a header that is a list": (lambda local: local.sign(b"[]", local.claims(aud=AUDIENCE)), MALFORMED),
    "a header with a byte order mark": (
        lambda local: local.sign(b"\xef\xbb\xbf{}", local.claims(aud=AUDIENCE)), MALFORMED,
    ),
}  # fmt: skip


async def test_a_refusal_before_the_key_makes_no_connection_and_names_only_its_code(
    subject: Subject, local: LocalProvider
) -> None:
    before, wrong = local.connections, {}
    for name, (forge, code) in BEFORE_KEYS.items():
        with pytest.raises(Refused) as refused:
            await subject.admit(forge(local))
        found = (refused.value.code, refused.value.detail, refused.value.faults)
        if found != (code, code.meaning.title, ()):
            wrong[name] = found
    assert wrong == {}
    assert local.connections == before


# -- refused under the key --------------------------------------------------------------------------------------------


def by_another_key(local: LocalProvider) -> str:
    stranger = make_key("RS256")
    return local.sign({"alg": "RS256", "kid": local.rs256.kid}, local.claims(aud=AUDIENCE), stranger)


def es256_with(signature: Callable[[bytes], bytes]) -> Forge:
    def forge(local: LocalProvider) -> str:
        genuine = local.es256.signature
        key = ProviderKey("ES256", local.es256.kid, lambda text: signature(genuine(text)), {})
        return local.sign({"alg": "ES256", "kid": key.kid}, local.claims(aud=AUDIENCE), key)

    return forge


def as_der(raw: bytes) -> bytes:
    return encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))


def payload_of_another(local: LocalProvider) -> str:
    header, _, signature = local.token(AUDIENCE).split(".")
    return f"{header}.{local.token(AUDIENCE).split('.')[1]}.{signature}"


UNDER_KEYS: dict[str, tuple[Forge, Code]] = {
    # J1, J2: the key decides
    "ES256 by the RSA key": (headed(alg="ES256"), ALGORITHM),
    "RS256 by the EC key": (
        lambda local: local.sign({"alg": "RS256", "kid": local.es256.kid}, local.claims(aud=AUDIENCE)), ALGORITHM,
    ),
    # J10: signatures
    "by another key": (by_another_key, SIGNATURE),
    "with another token's payload": (payload_of_another, SIGNATURE),
    "a signature cut short": (respelled(lambda parts: f"{parts[0]}.{parts[1]}.{parts[2][:-2]}"), SIGNATURE),
    "a signature of one byte": (respelled(lambda parts: f"{parts[0]}.{parts[1]}.AA"), SIGNATURE),
    "r = s = 0": (es256_with(lambda _: bytes(64)), SIGNATURE),
    "DER": (es256_with(as_der), SIGNATURE),
    "r and s too long": (es256_with(lambda raw: b"\0" + raw[:32] + b"\0" + raw[32:]), SIGNATURE),
    # J7: times
    **{
        f"{claim} {value!r}": (claiming(**{claim: value}), MALFORMED)
        for claim in ("iat", "exp", "nbf")
        for value in (str(NOW), float(NOW) + 0.5, True, None, [NOW], -1, NOW * 1000, 2**33 + 1)
    },
    "no exp": (claiming(exp=UNSET), MALFORMED),
    "no iat": (claiming(iat=UNSET), MALFORMED),
    "exp in exponents": (spelled(lambda text: text.replace(f'"exp": {NOW + 300}', '"exp": 1.7950003e9')), MALFORMED),
    "exp = iat": (claiming(exp=NOW), MALFORMED),
    "exp before iat": (claiming(exp=NOW - 1), MALFORMED),
    "expired": (claiming(iat=NOW - 300, exp=NOW - LEEWAY_S), EXPIRED),
    "long expired": (claiming(iat=NOW - 9000, exp=NOW - 8000), EXPIRED),
    "issued in the future": (claiming(iat=NOW + LEEWAY_S + 1), NOT_YET),
    "good only later": (claiming(nbf=NOW + LEEWAY_S + 1), NOT_YET),
    "living too long": (claiming(exp=NOW + LIFETIME_S + 1), TOO_LONG),
    "too old": (claiming(iat=NOW - AGE_S - LEEWAY_S - 1), TOO_OLD),
    # J8: audiences
    **{
        f"aud {audience!r}": (claiming(aud=audience), AUDIENCE_MISMATCH)
        for audience in (
            UNSET, None, "", [], {}, 5, True, AUDIENCE + "/", AUDIENCE.upper(), AUDIENCE[:-1], AUDIENCE + "\n",
            AUDIENCE + "\u200b", AUDIENCE.replace("e", "е"), [AUDIENCE, "https://evil.example"], [AUDIENCE, AUDIENCE],
            [[AUDIENCE]], [5], {AUDIENCE: 1}, "https://github.com/example-org",
        )
    },
    # J14: what names the use record
    **{f"jti {jti!r}": (claiming(jti=jti), MALFORMED) for jti in (*NO_IDS, "j" * 257)},
}  # fmt: skip


async def test_a_refusal_under_the_provider_s_keys_has_the_code_of_its_rule(
    subject: Subject, local: LocalProvider
) -> None:
    outcomes = {name: await subject.outcome(forge(local)) for name, (forge, _) in UNDER_KEYS.items()}
    assert outcomes == {name: str(code) for name, (_, code) in UNDER_KEYS.items()}


async def test_a_kid_is_only_looked_up_whatever_it_says(local: LocalProvider) -> None:
    for kid in ("../../etc/passwd", "https://evil.example/key", "k" * 256):
        async with aclosing(Subject(local)) as subject:
            assert await subject.outcome(headed(kid=kid)(local)) == Code.IDENTITY_KEY_UNKNOWN


def test_offline_the_first_failing_check_is_the_service_s_refusal(local: LocalProvider) -> None:
    """Except for the faults that only the key shows."""
    policies = PolicySet({local.issuer: registered(local.issuer)}, {}, {}, {}, "")
    cases = {**{name: (forge, None) for name, forge in GOOD.items()}, **BEFORE_KEYS, **UNDER_KEYS}
    wrong = {}
    for name, (forge, code) in cases.items():
        if name in UNDER_KEYS and code in {SIGNATURE, ALGORITHM}:
            continue
        presented = present_token(policies, forge(local), NOW)
        assert isinstance(presented, ReadCredential)
        failed = [check.code for check in presented.checks if not check.passed]
        if failed[:1] != ([] if code is None else [code]):
            wrong[name] = failed
    assert wrong == {}


async def test_one_flipped_bit_anywhere_is_refused(subject: Subject, local: LocalProvider) -> None:
    token = local.token(AUDIENCE, alg="ES256")
    assert await subject.outcome(token) == "ok"
    for place in range(0, len(token), 7):
        flipped = token[:place] + chr(ord(token[place]) ^ 1) + token[place + 1 :]
        assert await subject.outcome(flipped) != "ok"


async def test_claims_are_judged_only_under_a_verified_signature(subject: Subject, local: LocalProvider) -> None:
    token = local.token("https://elsewhere.example", iat=NOW - 9000, exp=NOW - 8000)
    header, payload, _ = token.split(".")
    assert await subject.outcome(f"{header}.{payload}.{base64url(bytes(256))}") == SIGNATURE


async def test_an_algorithm_that_is_not_registered_is_refused(subject: Subject, local: LocalProvider) -> None:
    subject.provider = msgspec.structs.replace(subject.provider, algorithms=("ES256",))
    assert await subject.outcome(local.token(AUDIENCE)) == ALGORITHM
    assert await subject.outcome(local.token(AUDIENCE, alg="ES256")) == "ok"


# -- use records ------------------------------------------------------------------------------------------------------


async def test_a_jti_names_the_use_record_of_its_issuer(subject: Subject, local: LocalProvider) -> None:
    first = await subject.admit(local.token(AUDIENCE, jti="one"))
    again = await subject.admit(local.token(AUDIENCE, jti="one", alg="ES256", run_id="2"))
    other = await subject.admit(local.token(AUDIENCE, jti="two"))
    with LocalProvider(clock=lambda: NOW) as neighbour:
        async with aclosing(Subject(neighbour)) as elsewhere:
            foreign = await elsewhere.admit(neighbour.token(AUDIENCE, jti="one"))
    records = [caller.use_record("") for caller in (first, again, other, foreign)]
    assert records[0] == records[1]
    assert len(set(records)) == 3


async def test_without_a_jti_the_signing_input_names_the_use_record(subject: Subject, local: LocalProvider) -> None:
    header, payload = {"alg": "ES256", "kid": local.es256.kid}, local.claims(aud=AUDIENCE, jti=UNSET)
    one, two = (local.sign(header, payload, local.es256) for _ in range(2))
    assert one != two  # ECDSA signs with fresh randomness
    first, second = await subject.admit(one), await subject.admit(two)
    signed = hashlib.sha256(one.rpartition(".")[0].encode()).hexdigest()
    assert first.use_record("") == second.use_record("") == hashlib.sha256(rfc8785.dumps(["input", signed])).hexdigest()


# -- sources over their limit -----------------------------------------------------------------------------------------


async def test_a_source_above_its_limit_learns_only_that_and_causes_no_fetch(
    subject: Subject, local: LocalProvider
) -> None:
    subject.sources.refuse(SOURCE, NOW * 1_000_000)
    before = local.connections
    for table, name in ((BEFORE_KEYS, "no kid"), (BEFORE_KEYS, "no iss"), (UNDER_KEYS, "DER")):
        with pytest.raises(Refused) as refused:
            await subject.admit(table[name][0](local))
        assert (refused.value.code, refused.value.retry_after_s) == (Code.RATE_SOURCE, 60)
    assert local.connections == before


async def test_a_source_above_its_limit_is_served_under_kept_keys(subject: Subject, local: LocalProvider) -> None:
    assert await subject.outcome(local.token(AUDIENCE)) == "ok"
    assert await subject.outcome("x") == MALFORMED
    assert len(subject.sources) == 0, "the authenticator counts no refusal"
    subject.sources.refuse(SOURCE, NOW * 1_000_000)
    assert await subject.outcome(local.token(AUDIENCE)) == "ok"
    assert await subject.outcome(claiming(aud="x")(local)) == Code.RATE_SOURCE
    assert await subject.outcome(claiming(aud="x")(local), "192.0.2.8") == AUDIENCE_MISMATCH


# -- the provider's own door ------------------------------------------------------------------------------------------


def test_a_job_finds_the_local_provider_as_it_finds_github_s(
    local: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in local.environment.items():
        monkeypatch.setenv(name, value)
    token = detect_credential(AUDIENCE)
    assert token is not None
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["aud"], claims["repository_id"]) == (AUDIENCE, REPOSITORY_ID)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "guessed")
    with pytest.raises(AmbientCredentialError):
        detect_credential(AUDIENCE)
