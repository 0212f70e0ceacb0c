"""Input that the libraries below would accept (SECURITY.md): the verifier refuses it, well signed or not."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from issuer.errors import FormatError, InputError
from issuer.formats import jcs, jose
from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, verify_entry
from issuer.verify.receipts import RECEIPT_TYPE, read_receipt
from issuer.verify.report import Report
from issuer.verify.revocations import parse_revocations
from issuer.verify.trust import Trust, parse_archive, read_trust_file
from tests.support import make, reports

ITEM = make.submission()
PAYLOAD = jcs.canonical(make.payload_of(ITEM))
FILE = make.file_for(ITEM)


def judge_token(token: str, trust: Trust | None = None) -> Report:
    return reports.judge(write_entry(ITEM.form, token), trust)


def test_a_well_signed_token_that_parsers_disagree_about_fails_under_1() -> None:
    assert judge_token(make.signed(make.HEADER, PAYLOAD)).verdict == "verified"
    header = jcs.canonical(make.HEADER)
    payloads = (
        PAYLOAD.replace(b'"exp":', b'"exp":1,"exp":'), PAYLOAD.replace(b'"exp":', b'"\\u0065xp":1,"exp":'), PAYLOAD.replace(b'"accuracy"', b'"x","metric_id":"accuracy"'),
        PAYLOAD.replace(b'"exp":', b'"exp":' + b"9" * 400 + b',"x":'), PAYLOAD.replace(str(make.NOW + 3600).encode(), b"9" * 400), PAYLOAD.replace(b"20.9", b"NaN"),
        PAYLOAD.replace(b"20.9", b"1e400"), PAYLOAD.replace(b"20.9", b"9007199254740993"), PAYLOAD.replace(b"20.9", b"-Infinity"), PAYLOAD.replace(b"20.9", b"0.12345678901234567890"),
        b"\xef\xbb\xbf" + PAYLOAD, PAYLOAD.decode().encode("utf-16"), PAYLOAD.replace(b"inspect eval", b"inspect \xff"), PAYLOAD.replace(b"inspect eval", b"\\ud800"),
        PAYLOAD.replace(b"inspect eval", b"\\u0000"), b"[" + PAYLOAD + b"]", b"[" * 3000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b"", b"null",
    )  # fmt: skip
    named = b'"kid":"%s","typ":"eval-verify+jwt"' % make.KID.encode()
    headers = (
        b'{"alg":"none","alg":"EdDSA",' + named + b"}", b'{"alg":"EdDSA","kid":"x",' + named + b"}", b'{"alg":"EdDSA",' + named + b',"\\u0074yp":"eval-verify+jwt"}',
        b"\xef\xbb\xbf" + header, b"[" + header + b"]",
    )  # fmt: skip
    for head, payload in (*((header, payload) for payload in payloads), *((head, PAYLOAD) for head in headers)):
        signing = f"{jose.base64url_encode(head)}.{jose.base64url_encode(payload)}".encode()
        assert judge_token(jose.compact(signing, jose.sign(make.KEY, signing))).failed == (1,), (head, payload[:99])


def test_a_well_signed_payload_that_is_not_its_canonical_bytes_fails_under_1() -> None:
    for payload in (
        PAYLOAD.replace(b'":', b'": '), PAYLOAD.replace(b",", b",\n"), PAYLOAD + b"\n", b" " + PAYLOAD, json.dumps(json.loads(PAYLOAD), indent=1).encode(),
        json.dumps(dict(reversed(json.loads(PAYLOAD).items())), separators=(",", ":")).encode(), PAYLOAD.replace(b'"provider":"github","repository_id":"1"', b'"repository_id":"1","provider":"github"'),
        PAYLOAD.replace(b"20.9", b"20.90"), PAYLOAD.replace(b"20.9", b"2.09e1"), PAYLOAD.replace(b"20.9", b"209E-1"), PAYLOAD.replace(b"inspect eval", b"inspect\\u0020eval"),
        PAYLOAD.replace(b"hub.example", b"hub.ex\\u0061mple"), PAYLOAD.replace(b"https://hub", b"https:\\/\\/hub"),
    ):  # fmt: skip
        assert payload != PAYLOAD
        assert json.loads(payload) == json.loads(PAYLOAD), "the same claims"
        report = judge_token(make.signed(make.HEADER, payload))
        assert (report.failed, "not canonical" in report.checks[0].evidence) == ((1,), True), payload


def test_ten_megabytes_of_token_are_not_decoded() -> None:
    (entry,) = read_entries(FILE.encode(), make.PATH)
    huge = msgspec.structs.replace(entry, token=str(entry.token) + "A" * 10_000_000)
    tracemalloc.start()
    try:
        report = verify_entry(huge, make.REPO, make.PATH, make.trust(), make.NOW, Context(make.NOW))
        assert report.failed == (1,)
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


def test_padding_another_spelling_of_the_signature_or_a_line_break_fails_under_1() -> None:
    token = make.signed(make.HEADER, PAYLOAD)
    assert token[-1] in "AQgw"  # 64 bytes leave four bits of the last character unused
    others = [token[:-1] + char for char in "BRhx"]
    for bad in (token + "==", token.replace("-", "+").replace("_", "/") + "=", token + "\n", *others):
        assert judge_token(bad).failed == (1,)
    # A line break after a value is not its end.
    for name in ("model_revision", "benchmark_revision", "task_id", "policy", "jti", "content_digest", "model_repo"):
        changed: dict[str, Any] = {name: f"{make.payload_of(ITEM)[name]}\n"}
        assert judge_token(make.token_for(ITEM, **changed)).failed == (1,), name


def test_a_key_that_must_not_verify_is_no_key_of_the_set_and_2_fails() -> None:
    identity = b"\x01" + bytes(31)
    points = (identity, bytes(32), b"\xec" + b"\xff" * 30 + b"\x7f")
    moduli = ((64, "AQAB"), (256, "Aw"))
    changes: list[dict[str, Any]] = [
        *({"x": jose.base64url_encode(point)} for point in points), {"d": "AA"}, {"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "none"},
        {"alg": "HS256"}, {"crv": "X25519"}, {"crv": "Ed448"}, {"kty": "oct", "k": "AA"},
        *({"kty": "RSA", "n": jose.base64url_encode(b"\xff" * size), "e": e} for size, e in moduli),
    ]  # fmt: skip
    good, other = json.loads(make.jwks(make.KEY, make.STRANGER))["keys"]
    # One signature that fits every token under a key of small order.
    forged = jose.compact(jose.signing_input(make.HEADER, PAYLOAD), identity + bytes(32))
    for members in changes:
        keys = make.trust(keys=jose.parse_key_set(json.dumps({"keys": [{**good, **members}, other]}).encode()))
        for token in (make.signed(make.HEADER, PAYLOAD), forged):
            assert judge_token(token, keys).failed == (2,), members
        with pytest.raises(FormatError):
            parse_archive(json.dumps({"keys": [{**good, **members, "active_from": 0}]}).encode())


def test_a_key_set_that_parsers_disagree_about_or_of_sixty_thousand_keys_is_refused() -> None:
    good = make.jwks()
    for parse in (jose.parse_key_set, parse_archive):
        for raw in (
            good.replace(b'"kid":', b'"kid":"x","kid":'), b"\xef\xbb\xbf" + good, good.decode().encode("utf-16"), b'{"keys":[],' + good[1:],
        ):  # fmt: skip
            with pytest.raises(FormatError):
                parse(raw)
        with pytest.raises(FormatError, match=r"more than \d+ keys|at most"):  # before they are looked at
            parse(b'{"keys":[' + b"{}," * 60_000 + b"{}]}")


def test_a_statement_that_parsers_disagree_about_is_refused() -> None:
    keys = make.key_set(make.REVOCATION_KEY)
    checks = {str(n): "pass" for n in range(1, 12)}
    texts = dict.fromkeys(("repo", "path", "token", "jti", "content_digest", "kid", "trust"), "")
    receipt = jcs.canonical({**texts, "ver": 1, "at": 1, "checks": checks, "iat": 1})
    listed = jose.parse_compact(make.revocation_list().decode()).unverified_payload

    def read_list(payload: bytes) -> object:
        header = make.statement_header("eval-revocations+jwt", make.REVOCATION_KEY)
        return parse_revocations(make.signed(header, payload, make.REVOCATION_KEY).encode(), make.ISSUER, keys)

    def read_signed_receipt(payload: bytes) -> object:
        header = make.statement_header(RECEIPT_TYPE, make.REVOCATION_KEY)
        return read_receipt(make.signed(header, payload, make.REVOCATION_KEY), keys)

    for read, good in ((read_list, listed), (read_signed_receipt, receipt)):
        read(good)
        for old, new in ((b'"ver":1', b'"ver":1,"ver":1'), (b'"ver":1', b'"ver":1.5'), (b'"ver":1', b'"ver":NaN'), (b"{", b"\xef\xbb\xbf{")):  # fmt: skip
            with pytest.raises(FormatError):
                read(good.replace(old, new, 1))


TRUST_FILE = f"version: 1\naudience: a\nissuers:\n- issuer: {make.ISSUER}\n  keys: {{url: u}}\n"
BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9 if n else ['x'] * 9)}]\n" for n in range(9))
MERGES = "".join(
    f"- &b{n}\n" + "".join(f"  k{n}{i}: 1\n" for i in range(3)) + (f"  <<: [*b{n - 1}, *b{n - 1}]\n" if n else "")
    for n in range(20)
)


def test_a_file_that_readers_disagree_about_or_choke_on_is_the_one_declared_error() -> None:
    for text in (
        FILE + "  notes: a\n  notes: b\n", FILE + "  run: {a: 1, a: 2}\n", FILE.replace("value: 20.9", "value: .nan"), FILE.replace("value: 20.9", "value: 9007199254740993"),
        FILE.replace('"gsm8k"', "no", 1), FILE.replace('"gsm8k"', "0123456", 1), FILE.replace('"gsm8k"', "12:30", 1), FILE + "  run: {a: &x 1, b: *x}\n", BOMB, MERGES,
        FILE + "---\n" + FILE, "\ufeff" + FILE, FILE + "  run: !!python/name:os.system x\n", FILE + "  run: " + "[" * 5000 + "\n", FILE + "  run: {" * 5000 + "\n",
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            read_entries(text.encode(), make.PATH)
        assert caught.value.place.line >= 1, text[-99:]
    read_trust_file(TRUST_FILE.encode(), "t")
    for text in (
        TRUST_FILE + "audience: b\n", TRUST_FILE.replace("audience: a", "audience: no"), BOMB, TRUST_FILE + "<<: {}\n", "\ufeff" + TRUST_FILE,
    ):  # fmt: skip
        with pytest.raises(InputError):
            read_trust_file(text.encode(), "t")
