"""Compact JWS and keys: canonical spelling, weak keys, and published vectors."""

import hashlib
import json
import math
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from issuer.errors import FormatError
from issuer.formats import jcs, jose
from issuer.formats.jose import base64url_decode, base64url_encode, parse_compact, parse_key, parse_key_set
from issuer.formats.weak_keys import is_good_point, is_roca
from tests.support import make
from tests.support.shared import needs_shared, published

GOOD: dict[str, Any] = dict(jose.public_jwk(make.KEY.public_key()))
P = 2**255 - 19


def malformed(text: str) -> str:
    with pytest.raises(FormatError) as caught:
        parse_compact(text)
    return caught.value.detail


def good_key(jwk: dict[str, Any]) -> jose.Key:
    key = parse_key(jwk)
    assert key is not None
    return key


def number(value: int, size: int | None = None) -> str:
    return base64url_encode(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def test_a_token_is_taken_apart_into_the_bytes_that_were_signed() -> None:
    token = make.signed(make.HEADER, b"\x00any payload bytes")
    parts = parse_compact(token)
    assert parts.header == make.HEADER
    assert parts.unverified_payload == b"\x00any payload bytes"
    assert jose.compact(parts.signing_input, parts.signature) == token
    assert parts.signing_input == jose.signing_input(make.HEADER, b"\x00any payload bytes")
    with pytest.raises(TypeError):  # a header that is cached cannot be changed
        parts.header["alg"] = "none"  # type: ignore[index]


def test_a_token_has_three_segments_with_one_spelling_each() -> None:
    for token in ("", "a", "YQ.YQ", "YQ.YQ.YQ.YQ", "....", "e30.YQ.YQ.YQ.YQ"):
        assert "segments" in malformed(token)
    for segment in [
        "", "YQ==", "YQ=", "YQ\n", " YQ", "Y Q", "YQ\x00", "+/8", "-_8=", "Y", "YWJjZ", "YR", "YWK", "\u0131w", "ＹＱ", "YQ\u200b",
    ]:  # fmt: skip
        with pytest.raises(FormatError):
            base64url_decode(segment)
        good = make.signed(make.HEADER, b"{}").split(".")
        for place in range(3):
            with pytest.raises(FormatError):
                parse_compact(".".join([*good[:place], segment, *good[place + 1 :]]))


def test_sizes_are_bounded_exactly_and_before_decoding() -> None:
    frame = len(make.signed(make.HEADER, b"x")) - 2
    fits = make.signed(make.HEADER, b"x" * ((jose.MAX_TOKEN_BYTES - frame) * 3 // 4))
    assert jose.MAX_TOKEN_BYTES - 2 <= len(fits) <= jose.MAX_TOKEN_BYTES
    parse_compact(fits)
    assert "longer than 16384" in malformed("!" * (jose.MAX_TOKEN_BYTES + 1))
    assert "header longer" in malformed("!" * (jose.MAX_HEADER_BYTES + 1) + ".YQ.YQ")


def test_a_header_that_parsers_read_differently_is_refused() -> None:
    for header in [
        b'{"alg":"EdDSA","alg":"EdDSA"}', b'{"alg":"none","\\u0061lg":"EdDSA"}', b"[]", b'"EdDSA"', b"null", b"",
        b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'{"kid":"\\ud800"}', b'{"kid":"a\\u0000"}', b'{"a":NaN}', b'{"a":1e400}',
        b'{"a":[[[[[[[[1]]]]]]]]}', b"{} {}", b"\xff",
    ]:  # fmt: skip
        malformed(f"{base64url_encode(header) if header else ''}.YQ.YQ")


@given(st.text(max_size=60) | st.text("eyJhbGciOiJFZERTQSJ9.-_=", max_size=80))
def test_any_text_is_a_token_or_an_input_error(text: str) -> None:
    try:
        parts = parse_compact(text)
    except FormatError:
        return
    assert jose.compact(parts.signing_input, parts.signature) == text


@needs_shared
def test_wycheproof_ed25519() -> None:
    suite = published("wycheproof/ed25519_test.json")
    assert sum(len(group["tests"]) for group in suite["testGroups"]) == suite["numberOfTests"] >= 145
    wrong = []
    for group in suite["testGroups"]:
        key = good_key({**group["publicKeyJwk"], "kid": "k"})
        for case in group["tests"]:
            good = key.verifies("EdDSA", bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))
            wrong += [case["tcId"]] if good is not (case["result"] == "valid") else []
    assert wrong == []


# RFC 8032 7.1, tests 1 to 3: seed, public key, message, signature.
RFC_8032 = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
     "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
     "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
     "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
]  # fmt: skip
ORDER = 2**252 + 27742317777372353535851937790883648493


def spoilt(signature: bytes, public: bytes) -> dict[str, bytes]:
    """Return changed signatures that some verifiers accept, by their fault."""
    r, s = signature[:32], signature[32:]
    scalar = int.from_bytes(s, "little")
    shifted = {f"S + {n} L": r + (scalar + n * ORDER).to_bytes(32, "little") for n in range(1, 2**256 // ORDER)}
    return {
        **shifted,
        **{f"bit {bit} of S": r + (scalar | 1 << bit).to_bytes(32, "little") for bit in (253, 254, 255)},
        **{f"S = {value:x}": r + value.to_bytes(32, "little") for value in (0, 1, ORDER - 1, ORDER, 2**256 - 1)},
        **{f"R = {point[:4]}": bytes.fromhex(point) + s for point in SMALL},
        "R = A": public + s,
        "nothing": bytes(64),
        "no bytes": b"",
        "one byte": b"\1" + bytes(63),
        "p for R and S": 2 * (2**255 - 19).to_bytes(32, "little"),
        "halves swapped": s + r,
        "truncated": signature[:-1],
        "R alone": r,
        "garbage behind": signature + b"\0",
        "garbage before": b"\0" + signature,
        "garbage amid": r + b"\0" + s,
        "in hexadecimal": signature.hex().encode(),
        "negated R": (int.from_bytes(r, "little") ^ 1 << 255).to_bytes(32, "little") + s,
    }


def test_the_vectors_of_rfc_8032_verify_and_nothing_near_them() -> None:
    for seed, public, text, signature in RFC_8032:
        good, message = bytes.fromhex(signature), bytes.fromhex(text)
        key = good_key({**GOOD, "x": base64url_encode(bytes.fromhex(public))})
        assert jose.sign(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)), message) == good
        assert key.verifies("EdDSA", message, good)
        for what, bad in spoilt(good, bytes.fromhex(public)).items():
            assert not key.verifies("EdDSA", message, bad), what
        for bit in range(512):
            assert not key.verifies("EdDSA", message, (int.from_bytes(good) ^ 1 << bit).to_bytes(64)), bit
        for other in (message + b"\0", b"\0" + message, message[:-1] or b"x"):
            assert not key.verifies("EdDSA", other, good), other


def test_both_names_of_ed25519_are_taken_on_its_own_keys_and_no_other_name() -> None:
    key, signature = good_key(GOOD), jose.sign(make.KEY, b"x")
    names = ("EdDSA", "Ed25519", "eddsa", "Ed448", "none", "HS256", "ES256", "RS256", "", "EdDSA ")
    assert [name for name in names if key.verifies(name, b"x", signature)] == ["EdDSA", "Ed25519"]


def test_rfc_8037_appendix_a() -> None:
    seed = base64url_decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
    jwk = {"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    signing_input = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    expected = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    assert jose.signing_input({"alg": "EdDSA"}, b"Example of Ed25519 signing") == signing_input
    assert base64url_encode(jose.sign(Ed25519PrivateKey.from_private_bytes(seed), signing_input)) == expected
    assert good_key(jwk).verifies("EdDSA", signing_input, base64url_decode(expected))
    assert jose.thumbprint({**jwk, "use": "sig"}) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_thumbprint_is_that_of_rfc_7638_and_names_our_own_published_key() -> None:
    modulus = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknj"
        "hMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQ"
        "vRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzK"
        "nqDKgw"
    )
    jwk = {"kty": "RSA", "n": modulus, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}
    assert jose.thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
    assert good_key(jwk).algorithms == {"RS256"}
    members = {"crv": "Ed25519", "kty": "OKP", "x": GOOD["x"]}
    assert {**members, "alg": "EdDSA", "use": "sig", "kid": make.KID} == GOOD
    raw = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    assert base64url_encode(hashlib.sha256(raw).digest()) == make.KID


def test_ecdsa_and_rsa_keys_verify_their_own_algorithm_only() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    point = private.public_key().public_numbers()
    key = good_key({"kty": "EC", "crv": "P-256", "kid": "k", "x": number(point.x, 32), "y": number(point.y, 32)})
    der = private.sign(b"x", ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(der)
    raw = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    assert key.verifies("ES256", b"x", raw)
    assert not key.verifies("ES256", b"x", der)  # DER is not a JWS signature
    assert not key.verifies("ES256", b"x", bytes(64))  # r = s = 0: CVE-2022-21449
    assert not key.verifies("ES384", b"x", raw)
    assert not key.verifies("EdDSA", b"x", raw)
    big = rsa.generate_private_key(65537, 2048)
    signature = big.sign(b"x", padding.PKCS1v15(), hashes.SHA256())
    numbers = big.public_key().public_numbers()
    members = {"kty": "RSA", "kid": "k", "n": number(numbers.n), "e": "AQAB"}
    free, bound = good_key(members), good_key({**members, "alg": "PS256"})
    assert free.verifies("RS256", b"x", signature)
    assert not free.verifies("HS256", b"x", signature)
    assert not bound.verifies("RS256", b"x", signature)


def test_a_key_that_must_not_verify_is_passed_over_and_a_good_one_taken() -> None:
    key = good_key(GOOD)
    assert (key.kid, key.algorithms) == (make.KID, frozenset({"EdDSA", "Ed25519"}))
    assert parse_key({**GOOD, "key_ops": ["verify"]}) is not None
    cases: list[dict[str, Any]] = [
        {"d": "AAAA"}, {"k": "AAAA"}, {"p": ""}, {"use": "enc"}, {"use": None}, {"use": ["sig"]}, {"key_ops": ["sign"]},
        {"key_ops": "verify"}, {"key_ops": []}, {"kid": None}, {"kid": ""}, {"kid": 7}, {"kid": "a b"}, {"kid": "a\n"},
        {"kid": "é"}, {"kid": "k" * 257}, {"kid": ["k"]}, {"kty": "oct"}, {"kty": "okp"}, {"kty": None}, {"kty": ["OKP"]},
        {"crv": "Ed448"}, {"crv": "X25519"}, {"crv": None}, {"alg": "ES256"}, {"alg": "HS256"}, {"alg": "none"},
        {"alg": "Ed448"}, {"alg": ["EdDSA"]}, {"alg": {}}, {"alg": 1}, {"alg": ""}, {"x": None}, {"x": 5}, {"x": ""},
        {"x": GOOD["x"] + "="}, {"x": GOOD["x"][:-2]}, {"x": GOOD["x"] + "AA"},
    ]  # fmt: skip
    assert [change for change in cases if parse_key({**GOOD, **change}) is not None] == []


# The eight points of small order, and the spellings of them that are not canonical (RFC 8032 5.1.3, step 1), each without
# and with the sign bit.
SMALL = [
    (y | sign << 255).to_bytes(32, "little").hex()
    for y in (
        0, 1, P - 1, P, P + 1, 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    )
    for sign in (0, 1)
]  # fmt: skip


def test_points_of_small_order_beyond_the_field_or_off_the_curve_are_refused() -> None:
    for point in SMALL:
        assert not is_good_point(bytes.fromhex(point))
        assert parse_key({**GOOD, "x": base64url_encode(bytes.fromhex(point))}) is None
    for excess in range(19):
        for sign in (0, 1 << 255):
            assert not is_good_point((P + excess | sign).to_bytes(32, "little"))
    off = [y for y in range(2, 40) if not is_good_point(y.to_bytes(32, "little"))]
    assert 5 < len(off) < 35  # about half of all y have no x
    assert [
        raw for raw in (b"", bytes(31), make.KEY.public_key().public_bytes_raw() + b"\0") if is_good_point(raw)
    ] == []


def rsa_jwk(modulus: int, exponent: int) -> dict[str, Any]:
    return {"kty": "RSA", "kid": "k", "n": number(modulus), "e": number(exponent)}


def test_an_rsa_key_without_a_flaw_is_taken_in_its_canonical_spelling_only() -> None:
    jwk = rsa_jwk(rsa.generate_private_key(65537, 2048).public_key().public_numbers().n, 65537)
    assert parse_key(jwk) is not None
    assert parse_key({**jwk, "n": jwk["n"] + "="}) is None
    assert parse_key({**jwk, "e": 65537}) is None
    assert parse_key({**jwk, "d": "AQAB"}) is None
    draw = Random(1)
    assert not any(is_roca(draw.getrandbits(4096) | 1 | 1 << 4095) for _ in range(10_000))


PRIMES = [n for n in range(2, 1428) if all(n % smaller for smaller in range(2, n))]


def roca_modulus(bits: int, primes: int, draw: Random) -> int:
    """Return p * q, each k * M + (65537^a mod M): the form of a flawed key (CVE-2017-15361). They need not be prime."""
    product = math.prod(PRIMES[:primes])
    return math.prod(
        draw.randrange(2 ** (bits // 2 - 1) // product + 1, 2 ** (bits // 2) // product) * product
        + pow(65537, draw.randrange(product), product)
        for _ in range(2)
    )


def test_a_weak_oversized_or_flawed_rsa_key_is_passed_over() -> None:
    """The paper's numbers of primes. No flawed key was made with fewer than 39, and one with each prime's mark may be good."""
    for bits, primes in ((2048, 126), (2048, 39), (3072, 126), (4096, 225)):
        for seed in range(3):
            modulus = roca_modulus(bits, primes, Random(seed))
            assert bits - 2 <= modulus.bit_length() <= bits
            assert parse_key(rsa_jwk(modulus, 65537)) is None
    weak = [
        (2**1023 + 1, 65537), (2**2046 + 1, 65537), (2**8192 + 1, 65537), (2**2047 + 1, 3), (2**2047 + 1, 1),
        (2**2047 + 1, 17), (2**2047 + 1, 65536), (2**2047 + 1, 2**32 + 1), (2**2047 + 1, 2**2046 + 1),
    ]  # fmt: skip
    assert [numbers for numbers in weak if parse_key(rsa_jwk(*numbers)) is not None] == []
    # 65537 is 2 modulo 3 and modulo 5. The exponent must be odd for the first prime and even for the second.
    residues = dict.fromkeys(PRIMES[:39], 1) | {3: 2}
    product = math.prod(residues)
    one = sum(rest * (product // prime) * pow(product // prime, -1, prime) for prime, rest in residues.items())
    assert not is_roca(one % product)
    assert is_roca(1)


def test_elliptic_keys_are_on_their_own_curve_in_full_size() -> None:
    curves: list[tuple[ec.EllipticCurve, str, int]] = [
        (ec.SECP256R1(), "P-256", 32), (ec.SECP384R1(), "P-384", 48), (ec.SECP521R1(), "P-521", 66),
    ]  # fmt: skip
    for curve, name, size in curves:
        point = ec.generate_private_key(curve).public_key().public_numbers()
        jwk = {"kty": "EC", "crv": name, "kid": "k", "x": number(point.x, size), "y": number(point.y, size)}
        assert parse_key(jwk) is not None
        for change in (
            {"y": number(point.y + 1, size)}, {"x": number(0, size), "y": number(0, size)}, {"x": number(point.x, size + 1)},
            {"crv": "secp256k1"}, {"crv": "P-256" if name != "P-256" else "P-384"}, {"alg": "EdDSA"}, {"alg": "RS256"}, {"y": None},
            {"x": number(2 ** (8 * size) - 1, size)},
        ):  # fmt: skip
            assert parse_key({**jwk, **change}) is None, change


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_bad_keys_and_keys_with_one_kid_are_passed_over_and_the_good_ones_kept() -> None:
    other = jose.public_jwk(Ed25519PrivateKey.generate().public_key())
    bad: list[Any] = [
        {"kty": "oct", "k": "AA", "kid": "a"}, {**GOOD, "kid": "b", "d": "AA"}, {**GOOD, "kid": "c", "alg": []}, None, [], "key", 7, {},
    ]  # fmt: skip
    found = parse_key_set(jwks(*bad, GOOD, {**other, "kid": GOOD["kid"]}, other))
    assert (list(found.keys), found.skipped) == ([other["kid"]], len(bad) + 2)
    assert parse_key_set(b'{"keys":[],"exp":1e999,"n":' + b"9" * 9999 + b"}").keys == {}, "other numbers do no harm"


def test_an_invalid_key_set_or_one_of_more_than_64_keys_or_256_kib_is_refused() -> None:
    assert parse_key_set(jwks(*[None] * 64)).skipped == 64
    with pytest.raises(FormatError, match="more than 64 keys"):
        parse_key_set(jwks(*[None] * 65))
    with pytest.raises(FormatError, match="larger than"):
        parse_key_set(jwks(GOOD) + b" " * jose.MAX_KEY_SET_BYTES)
    for raw in [
        b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":null}', b'{"keys":[],"keys":[]}', b'{"keys":[],"n":NaN}', b"\xff",
        b'{"keys":' + b"[" * 99_999,
    ]:  # fmt: skip
        with pytest.raises(FormatError):
            parse_key_set(raw)


def test_a_look_up_of_anything_but_a_known_kid_finds_nothing() -> None:
    keys = parse_key_set(jwks(GOOD))
    kids: list[Any] = [make.KID, None, 1, "", "unknown", ["k"], "../k", make.KID + "\n", make.KID + "\0"]
    assert [kid for kid in kids if keys.get(kid) is not None] == [make.KID]


@given(
    st.dictionaries(
        st.sampled_from(["kty", "crv", "x", "y", "n", "e", "alg", "use", "kid", "key_ops", "d"]),
        st.sampled_from(["OKP", "EC", "RSA", "Ed25519", "P-256", "AQAB", GOOD["x"], "sig", "k", "EdDSA"])
        | st.none() | st.integers(0, 9) | st.lists(st.just("verify"), max_size=1) | st.just({}),
    )
)  # fmt: skip
def test_any_jwk_is_a_key_or_passed_over(jwk: Any) -> None:
    key = parse_key(jwk)
    assert key is None or key.algorithms
    parse_key_set(jcs.canonical({"keys": [jwk]}))
