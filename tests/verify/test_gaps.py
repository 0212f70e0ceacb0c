"""What the libraries below would let through (SECURITY.md), each fed to the verifier, with a good signature where it can be."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import msgspec
import pytest

from issuer.errors import FormatError, InputError
from issuer.formats import jcs, jose
from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import RECEIPT_TYPE, read_receipt
from issuer.verify.report import Report
from issuer.verify.revocations import parse_revocations
from issuer.verify.trust import Trust, parse_archive, read_trust_file
from tests.support import make

SAID = make.submission()
PAYLOAD = jcs.canonical(make.payload_of(SAID))
FILE = make.file_for(SAID)


def judge(text: str, trust: Trust | None = None) -> Report:
    entries = read_entries(text.encode(), make.PATH)
    (report,) = verify_entries(entries, make.REPO, make.PATH, trust or make.trust(), make.NOW, Context(make.NOW))
    return report


def judge_token(token: str, trust: Trust | None = None) -> Report:
    return judge(write_entry(SAID.form, token), trust)


# -- PyJWT ----------------------------------------------------------------------------------------------------------------


def test_the_bytes_below_are_good_before_they_are_broken() -> None:
    assert judge_token(make.signed(make.HEADER, PAYLOAD)).verdict == "verified"


@pytest.mark.parametrize(
    "payload",
    [
        PAYLOAD.replace(b'"exp":', b'"exp":1,"exp":'), PAYLOAD.replace(b'"exp":', b'"\\u0065xp":1,"exp":'), PAYLOAD.replace(b'"accuracy"', b'"x","metric_id":"accuracy"'),
        PAYLOAD.replace(b'"exp":', b'"exp":' + b"9" * 400 + b',"x":'), PAYLOAD.replace(str(make.NOW + 3600).encode(), b"9" * 400), PAYLOAD.replace(b"20.9", b"NaN"),
        PAYLOAD.replace(b"20.9", b"1e400"), PAYLOAD.replace(b"20.9", b"9007199254740993"), PAYLOAD.replace(b"20.9", b"-Infinity"), PAYLOAD.replace(b"20.9", b"0.12345678901234567890"),
        b"\xef\xbb\xbf" + PAYLOAD, PAYLOAD.decode().encode("utf-16"), PAYLOAD.replace(b"inspect eval", b"inspect \xff"), PAYLOAD.replace(b"inspect eval", b"\\ud800"),
        PAYLOAD.replace(b"inspect eval", b"\\u0000"), b"[" + PAYLOAD + b"]", b"[" * 3000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b"", b"null",
    ],
    ids=range(20),
)  # fmt: skip
def test_a_well_signed_payload_that_parsers_disagree_about_fails_under_1(payload: bytes) -> None:
    token = jose.compact(signing := jose.signing_input(make.HEADER, payload), jose.sign(make.KEY, signing))
    assert judge_token(token).failed == (1,)


@pytest.mark.parametrize(
    "payload",
    [
        PAYLOAD.replace(b'":', b'": '), PAYLOAD.replace(b",", b",\n"), PAYLOAD + b"\n", b" " + PAYLOAD, json.dumps(json.loads(PAYLOAD), indent=1).encode(),
        json.dumps(dict(reversed(json.loads(PAYLOAD).items())), separators=(",", ":")).encode(), PAYLOAD.replace(b'"provider":"github","repository_id":"1"', b'"repository_id":"1","provider":"github"'),
        PAYLOAD.replace(b"20.9", b"20.90"), PAYLOAD.replace(b"20.9", b"2.09e1"), PAYLOAD.replace(b"20.9", b"209E-1"), PAYLOAD.replace(b"inspect eval", b"inspect\\u0020eval"),
        PAYLOAD.replace(b"hub.example", b"hub.ex\\u0061mple"), PAYLOAD.replace(b"https://hub", b"https:\\/\\/hub"),
    ],
    ids=range(13),
)  # fmt: skip
def test_a_well_signed_payload_that_is_not_its_canonical_bytes_fails_under_1(payload: bytes) -> None:
    assert payload != PAYLOAD
    assert json.loads(payload) == json.loads(PAYLOAD), "the same claims"
    report = judge_token(make.signed(make.HEADER, payload))
    assert report.failed == (1,)
    assert "not canonical" in report.checks[0].evidence


@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":"none","alg":"EdDSA","kid":"%s","typ":"eval-verify+jwt"}', b'{"alg":"EdDSA","kid":"x","kid":"%s","typ":"eval-verify+jwt"}',
        b'{"alg":"EdDSA","kid":"%s","typ":"JWT","typ":"eval-verify+jwt"}', b'{"alg":"EdDSA","kid":"%s","typ":"eval-verify+jwt","\\u0074yp":"eval-verify+jwt"}',
        b'\xef\xbb\xbf{"alg":"EdDSA","kid":"%s","typ":"eval-verify+jwt"}', b'[{"alg":"EdDSA","kid":"%s","typ":"eval-verify+jwt"}]',
    ],
    ids=range(6),
)  # fmt: skip
def test_a_well_signed_header_that_parsers_disagree_about_fails_under_1(header: bytes) -> None:
    signing = f"{jose.base64url_encode(header % make.KID.encode())}.{jose.base64url_encode(PAYLOAD)}".encode()
    assert judge_token(jose.compact(signing, jose.sign(make.KEY, signing))).failed == (1,)


def test_ten_megabytes_of_token_cost_nothing() -> None:
    (entry,) = read_entries(FILE.encode(), make.PATH)
    huge = msgspec.structs.replace(entry, token=str(entry.token) + "A" * 10_000_000)
    tracemalloc.start()
    try:
        (report,) = verify_entries([huge], make.REPO, make.PATH, make.trust(), make.NOW, Context(make.NOW))
        assert report.failed == (1,)
        assert tracemalloc.get_traced_memory()[1] < 15_000_000, "nothing of it was decoded"
    finally:
        tracemalloc.stop()


def test_padding_and_another_spelling_of_the_signature_fail_under_1() -> None:
    token = make.signed(make.HEADER, PAYLOAD)
    assert token[-1] in "AQgw"  # 64 bytes leave four bits of the last character unused
    others = [token[:-1] + char for char in "BRhx"]
    for bad in (token + "==", token.replace("-", "+").replace("_", "/") + "=", token + "\n", *others):
        assert judge_token(bad).failed == (1,)


@pytest.mark.parametrize(
    "members",
    [
        {"x": jose.base64url_encode(b"\x01" + bytes(31))}, {"x": jose.base64url_encode(bytes(32))}, {"x": jose.base64url_encode(b"\xec" + b"\xff" * 30 + b"\x7f")},
        {"d": "AA"}, {"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "none"}, {"alg": "HS256"}, {"crv": "X25519"}, {"crv": "Ed448"},
        {"kty": "oct", "k": "AA"}, {"kty": "RSA", "n": jose.base64url_encode(b"\xff" * 64), "e": "AQAB"}, {"kty": "RSA", "n": jose.base64url_encode(b"\xff" * 256), "e": "Aw"},
    ],
    ids=str,
)  # fmt: skip
def test_a_key_that_must_not_verify_is_no_key_of_the_set_and_2_fails(members: dict[str, Any]) -> None:
    jwks = json.loads(make.jwks(make.KEY, make.STRANGER))
    jwks["keys"][0] |= members
    report = judge_token(
        make.signed(make.HEADER, PAYLOAD), make.trust(keys=jose.parse_key_set(json.dumps(jwks).encode()))
    )
    assert report.failed == (2,)


def test_one_signature_that_fits_every_token_under_a_key_of_small_order_is_not_believed() -> None:
    identity = b"\x01" + bytes(31)
    jwk = {**jose.public_jwk(make.KEY.public_key()), "x": jose.base64url_encode(identity)}
    forged = jose.compact(jose.signing_input(make.HEADER, PAYLOAD), identity + bytes(32))
    keys = jose.parse_key_set(json.dumps({"keys": [jwk, jose.public_jwk(make.STRANGER.public_key())]}).encode())
    assert judge_token(forged, make.trust(keys=keys)).failed == (2,)
    with pytest.raises(FormatError):
        parse_archive(json.dumps({"keys": [{**jwk, "active_from": 0}]}).encode())


def test_sixty_thousand_keys_are_refused_before_they_are_looked_at() -> None:
    for parse in (jose.parse_key_set, parse_archive):
        with pytest.raises(FormatError, match=r"more than \d+ keys|at most"):
            parse(b'{"keys":[' + b"{}," * 60_000 + b"{}]}")


# -- the other signed documents -------------------------------------------------------------------------------------------

SETS: list[bytes] = [
    make.jwks().replace(b'"kid":', b'"kid":"x","kid":'), b"\xef\xbb\xbf" + make.jwks(), make.jwks().decode().encode("utf-16"), b'{"keys":[],' + make.jwks()[1:],
]  # fmt: skip


@pytest.mark.parametrize("raw", SETS, ids=range(4))
def test_a_key_set_that_parsers_disagree_about_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        jose.parse_key_set(raw)
    with pytest.raises(FormatError):
        parse_archive(raw)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"ver":1', b'"ver":1,"ver":1'),
        (b'"ver":1', b'"ver":1.5'),
        (b'"ver":1', b'"ver":NaN'),
        (b"{", b"\xef\xbb\xbf{"),
    ],
)
def test_a_statement_that_parsers_disagree_about_is_refused(old: bytes, new: bytes) -> None:
    keys = make.key_set(make.REVOCATION_KEY)
    listed = jose.parse_compact(make.revocation_list().decode()).unverified_payload
    header = make.statement_header("eval-revocations+jwt", make.REVOCATION_KEY)
    parse_revocations(make.signed(header, listed, make.REVOCATION_KEY).encode(), make.ISSUER, keys)
    with pytest.raises(FormatError):
        parse_revocations(
            make.signed(header, listed.replace(old, new, 1), make.REVOCATION_KEY).encode(), make.ISSUER, keys
        )
    receipt: dict[str, Any] = {"ver": 1, "repo": "", "path": "", "token": "", "jti": "", "content_digest": "", "at": 1, "kid": "", "trust": "",
               "checks": {str(n): "pass" for n in range(1, 12)}, "iat": 1}  # fmt: skip
    header = make.statement_header(RECEIPT_TYPE, make.REVOCATION_KEY)
    read_receipt(make.signed(header, jcs.canonical(receipt), make.REVOCATION_KEY), keys)
    with pytest.raises(FormatError):
        read_receipt(make.signed(header, jcs.canonical(receipt).replace(old, new, 1), make.REVOCATION_KEY), keys)


# -- msgspec and PyYAML ---------------------------------------------------------------------------------------------------

TRUST_FILE = f"version: 1\naudience: a\nissuers:\n- issuer: {make.ISSUER}\n  keys: {{url: u}}\n"
BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9 if n else ['x'] * 9)}]\n" for n in range(9))
MERGES = "".join(
    f"- &b{n}\n" + "".join(f"  k{n}{i}: 1\n" for i in range(3)) + (f"  <<: [*b{n - 1}, *b{n - 1}]\n" if n else "")
    for n in range(20)
)


@pytest.mark.parametrize(
    "text",
    [
        FILE + "  notes: a\n  notes: b\n", FILE + "  run: {a: 1, a: 2}\n", FILE.replace("value: 20.9", "value: .nan"), FILE.replace("value: 20.9", "value: 9007199254740993"),
        FILE.replace('"gsm8k"', "no", 1), FILE.replace('"gsm8k"', "0123456", 1), FILE.replace('"gsm8k"', "12:30", 1), FILE + "  run: {a: &x 1, b: *x}\n", BOMB, MERGES,
        FILE + "---\n" + FILE, "\ufeff" + FILE, FILE + "  run: !!python/name:os.system x\n", FILE + "  run: " + "[" * 5000 + "\n", FILE + "  run: {" * 5000 + "\n",
    ],
    ids=range(15),
)  # fmt: skip
def test_a_file_that_readers_disagree_about_or_choke_on_is_the_one_declared_error(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        judge(text)
    assert caught.value.place.line >= 1
    assert time.process_time() - began < 10, "a thousand times what it takes; a bomb never ends"


@pytest.mark.parametrize(
    "text",
    [
        TRUST_FILE + "audience: b\n",
        TRUST_FILE.replace("audience: a", "audience: no"),
        BOMB,
        TRUST_FILE + "<<: {}\n",
        "\ufeff" + TRUST_FILE,
    ],
)
def test_so_it_is_of_a_trust_file(text: str) -> None:
    read_trust_file(TRUST_FILE.encode(), "t")
    with pytest.raises(InputError):
        read_trust_file(text.encode(), "t")


@pytest.mark.parametrize(
    "name", ["model_revision", "benchmark_revision", "task_id", "policy", "jti", "content_digest", "model_repo"]
)
def test_a_line_break_after_a_value_is_never_taken_for_its_end(name: str) -> None:
    changed: dict[str, Any] = {name: f"{make.payload_of(SAID)[name]}\n"}
    assert judge_token(make.token_for(SAID, **changed)).failed == (1,)
