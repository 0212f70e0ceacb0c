"""The verify token: composed from a template, and read back only if an issuer would sign the same bytes."""

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError, IssuerError, Refused, Undecided
from issuer.formats import jcs, jose
from issuer.tlog.leaf import TokenLeaf
from issuer.token import verify_token
from issuer.token.verify_token import Attempt, batch_jtis, check_size, compose, read_template, read_unverified
from tests.support import make

SAID = make.submission({"notes": "no tools"})
# The size check uses this attempt, because the real one is not known yet.
WIDEST = Attempt(64, make.NOW)


def payload(**members: Any) -> bytes:
    return jcs.canonical(make.payload_of(SAID, **members))


def refusal(raw: bytes) -> str:
    with pytest.raises((FormatError, Refused)) as caught:
        read_unverified(raw)
    return str(caught.value.faults[0].pointer)


def attempt(**members: Any) -> dict[str, Any]:
    return {"number": 3, "since": make.NOW, **members}


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth > 1 else {}


def test_a_template_survives_the_store_byte_for_byte_or_is_not_used() -> None:
    for template in (make.template(), make.template(log="log.example/1", caller={"é": ["\u2028", 1.5, 2.0]})):
        raw = template.to_bytes()
        assert raw == jcs.canonical(json.loads(raw))
        assert read_template(raw) == template
        assert read_template(raw).to_bytes() == raw
        assert (template.kid, template.terms.exp) == (make.KID, make.NOW + 3600)
    assert b'"log"' not in make.template().to_bytes()
    # An invalid one leaves the request undecided.
    for raw in [
        *(b"", b"{}", b"[]", b'{"header":{}}', b'{"header":{},"terms":1}', b"\xff"),
        make.template().to_bytes().replace(b'"typ":', b'"b64":false,"typ":'),
        make.template().to_bytes().replace(b'"ver":1', b'"ver":2'),
        make.template().to_bytes().replace(b'"sub":', b'"scope":"x","sub":'),
        make.template().to_bytes()[:-1] + b',"tokens":1}',
    ]:
        with pytest.raises(Undecided, match=r"dependency\.state"):
            read_template(raw)


def test_an_attempt_is_in_the_token_of_its_result_if_it_was_counted() -> None:
    assert [Attempt(number, 0).shown for number in (63, 64)] == ["63", "64 or more"]
    items = (SAID, make.submission(), make.submission({"run": {"seed": 1}}))
    counted = (Attempt(1, make.NOW - 9), None, Attempt(64, make.NOW))
    for items_, attempts, batch in ((items, counted, True), (items, (), True), (items[:1], counted[:1], False)):
        composed = compose(make.template(), items_, attempts, batch=batch)
        read = [read_unverified(jose.base64url_decode(part.signing_input.decode().split(".")[1])) for part in composed]
        assert [claims.attempt or None for claims, _ in read] == list(attempts or (None,) * len(items_))
        assert [run for _, run in read] == [item.claims for item in items_]
    with pytest.raises(ValueError, match="shorter"):
        compose(make.template(), items, counted[:2], batch=True)


def test_header_and_payload_are_exactly_the_contract_s() -> None:
    (unsigned,) = compose(make.template(), (SAID,), batch=False)
    header, signed_payload = map(jose.base64url_decode, unsigned.signing_input.decode().split("."))
    assert header.decode() == f'{{"alg":"EdDSA","kid":"{make.KID}","typ":"eval-verify+jwt"}}'
    value = json.loads(signed_payload)
    assert jcs.canonical(value) == signed_payload
    assert value == {
        **make.claims(), "ver": 1, "iss": make.ISSUER, "sub": "inspect-ai", "aud": make.AUDIENCE, "iat": make.NOW, "nbf": make.NOW,
        "exp": make.NOW + 3600, "jti": make.JTI, "caller": {"provider": "github", "repository_id": "1"},
        "policy": "sha256:" + "0" * 64, "claims_digest": SAID.claims_digest, "content_digest": SAID.content_digest,
    }  # fmt: skip
    assert unsigned.jti == make.JTI


def test_composing_depends_on_the_template_and_the_submissions_alone() -> None:
    items = (SAID, make.submission(), make.submission({"run": {"seed": 1}}))
    stored = read_template(make.template().to_bytes())
    assert compose(stored, items, batch=True) == compose(make.template(), items, batch=True)
    assert compose(stored, items[:1], batch=False) == compose(make.template(), items[:1], batch=False)
    (unsigned,) = compose(make.template(), (SAID,), batch=False)
    text = jose.compact(unsigned.signing_input, jose.sign(make.KEY, unsigned.signing_input))
    claims, run = read_unverified(make.payload_by_joserfc(text))
    assert run == SAID.claims
    assert (claims.claims_digest, claims.content_digest) == (SAID.claims_digest, SAID.content_digest)
    assert text == make.token_for(SAID)


def test_a_batch_derives_each_jti_from_the_templates_and_a_single_token_has_its_own() -> None:
    seed = base64.urlsafe_b64decode(make.JTI + "==")
    assert len(seed) == 16
    raw = [hashlib.sha256(seed + bytes([0, 0, 0, index])).digest()[:16] for index in range(100)]
    derived = [base64.urlsafe_b64encode(each).decode().rstrip("=") for each in raw]
    composed = compose(make.template(), (SAID,) * 100, batch=True)
    jtis = [unsigned.jti for unsigned in composed]
    payloads = [jose.base64url_decode(unsigned.signing_input.decode().split(".")[1]) for unsigned in composed]
    assert [json.loads(payload)["jti"] for payload in payloads] == jtis
    assert jtis == derived == list(batch_jtis(make.JTI, 100))
    assert len({*jtis, make.JTI}) == 101


def test_the_leaf_of_a_token_is_made_of_its_claims_its_kid_and_what_is_signed() -> None:
    text = make.token_for(SAID)
    said = make.payload_of(SAID)
    signed = b"eval-token-issuer/token-digest/v1\n" + text.rpartition(".")[0].encode()
    assert verify_token.unverified_leaf(text) == TokenLeaf(
        said["iss"], said["sub"], make.KID, said["iat"], said["exp"], said["policy"], hashlib.sha256(signed).digest()
    )


def test_a_token_over_16_kib_is_refused_at_the_exact_byte() -> None:
    def check(size: int) -> int:
        item = make.submission(framework={"name": "a", "version": "1", "command": "é" * 4000}, task_id="t" * 128)
        template = make.template(caller={"x": "y" * size})
        largest = jose.MAX_TOKEN_BYTES
        check_size(template, (make.submission(), msgspec.structs.replace(item, pointer="/results/7")), largest)
        (unsigned,) = compose(template, (item,), (WIDEST,), batch=False)
        signed = jose.compact(unsigned.signing_input, bytes(64))
        jose.parse_compact(signed)
        return len(signed)

    low, high = 1, 16_384
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(middle)
            low = middle
        except Refused:
            high = middle
    assert jose.MAX_TOKEN_BYTES - 1 <= check(low) <= jose.MAX_TOKEN_BYTES
    with pytest.raises(Refused) as caught:
        check(high)
    assert (caught.value.code, caught.value.faults[0].pointer) == (Code.CLAIMS_TOO_LARGE, "/results/7/claims")
    template = make.template()  # its key may sign less
    (unsigned,) = compose(template, (SAID,), (WIDEST,), batch=False)
    check_size(template, (SAID,), len(unsigned.signing_input))
    with pytest.raises(Refused) as caught:
        check_size(template, (SAID,), len(unsigned.signing_input) - 1)
    assert (caught.value.code, caught.value.faults[0].pointer) == (Code.CLAIMS_TOO_LARGE, "/claims")


REQUIRED = sorted(make.payload_of(SAID))


def test_members_are_required_typed_and_no_other_is_allowed() -> None:
    for member in REQUIRED:
        refusal(payload(**{member: ...}))
    others = ["scope", "email", "cnf", "value", "Iss", "model", "verify_token"]
    assert [refusal(payload(**{member: "x"})) for member in others] == [f"/{member}" for member in others]
    good = make.payload_of(SAID, log="x", attempt=attempt())
    values: list[Any] = [None, True, 1.5, "text", ["a"], {"a": 1}, 7]
    for member in [*REQUIRED, "log", "attempt"]:
        for value in values:
            if type(value) is not type(good[member]):
                assert refusal(payload(**{member: value})).startswith(f"/{member}"), (member, value)


def test_what_this_issuer_never_signs_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ver": 2}, "/ver"), ({"ver": 0}, "/ver"), ({"ver": "1"}, "/ver"),
        ({"jti": ""}, "/jti"), ({"jti": make.JTI[:-1]}, "/jti"), ({"jti": make.JTI + "A"}, "/jti"), ({"jti": make.JTI + "\n"}, "/jti"),
        ({"jti": make.JTI[:-1] + "x"}, "/jti"), ({"jti": make.JTI[:-1] + "="}, "/jti"), ({"jti": "+" + make.JTI[1:]}, "/jti"),
        ({"claims_digest": "0" * 64}, "/claims_digest"), ({"claims_digest": "sha256:" + "0" * 63}, "/claims_digest"),
        ({"content_digest": "sha256:" + "A" * 64}, "/content_digest"), ({"policy": "sha512:" + "0" * 64}, "/policy"),
        ({"policy": "sha256:" + "0" * 64 + "\n"}, "/policy"), ({"policy": ""}, "/policy"),
        ({"iat": -1}, "/iat"), ({"exp": 2**33 + 1}, "/exp"), ({"nbf": 2**40}, "/nbf"), ({"iat": make.NOW * 1000}, "/iat"),
        ({"nbf": make.NOW - 1}, "/exp"), ({"exp": make.NOW - 1}, "/exp"), ({"nbf": make.NOW + 3601}, "/exp"),
        ({"iat": make.NOW + 1}, "/exp"), ({"exp": make.NOW + 86_401}, "/exp"),
        ({"model_repo": "x"}, "/model_repo"), ({"model_revision": "main"}, "/model_revision"), ({"metrics": []}, "/metrics"),
        ({"metrics": [{"metric_id": "a", "value": None}]}, "/metrics/0/value"), ({"framework": {}}, "/framework"),
        ({"metrics": [{"metric_id": "a", "value": 1}] * 2}, "/metrics/1"),
        ({"metrics": [{"metric_id": "b", "value": 1}, {"metric_id": "a", "value": 1}]}, "/metrics"),
        ({"metrics": [{"metric_id": "a", "value": 1, "slice": "s"}, {"metric_id": "a", "value": 1}]}, "/metrics"),
        ({"attempt": {}}, "/attempt"), ({"attempt": {"number": 3}}, "/attempt"), ({"attempt": {"since": 0}}, "/attempt"),
        ({"attempt": attempt(number=0)}, "/attempt/number"), ({"attempt": attempt(number=65)}, "/attempt/number"),
        ({"attempt": attempt(number=True)}, "/attempt/number"), ({"attempt": attempt(number=2.5)}, "/attempt/number"),
        ({"attempt": attempt(number="3")}, "/attempt/number"), ({"attempt": attempt(number=None)}, "/attempt/number"),
        ({"attempt": attempt(since=-1)}, "/attempt/since"), ({"attempt": attempt(since=make.NOW + 61)}, "/attempt/since"),
        ({"attempt": attempt(since=make.NOW * 1000)}, "/attempt/since"), ({"attempt": attempt(since=True)}, "/attempt/since"),
        ({"attempt": attempt(of=5)}, "/attempt/of"),
    ]  # fmt: skip
    assert [(members, pointer) for members, pointer in cases if refusal(payload(**members)) != pointer] == []


def test_a_payload_that_this_issuer_may_sign_is_read_and_is_at_most_8_deep() -> None:
    cases: list[dict[str, Any]] = [
        {"nbf": make.NOW + 5}, {"exp": make.NOW + 86_400}, {"log": "x"}, {"caller": {}}, {"nbf": make.NOW + 3600},
        {"caller": {"\U0001f600": 1, "\ufb33": 2}},  # in the order of UTF-16 (RFC 8785), which is not that of UTF-8
        {"iat": 0, "nbf": 0, "exp": 0}, {"iat": 2**33, "nbf": 2**33, "exp": 2**33}, {"caller": {"run_id": 7, "protected": True}},
        {"attempt": attempt(number=1, since=0)}, {"attempt": attempt(number=64, since=make.NOW + 60)},
    ]  # fmt: skip
    for members in cases:
        read_unverified(payload(**members))
    with pytest.raises(FormatError, match="deep"):
        read_unverified(payload(caller=nested(8)))
    with pytest.raises(FormatError, match="expected true or false or a whole number or text"):
        read_unverified(payload(caller=nested(7)))


def test_a_payload_or_a_number_in_it_that_parsers_read_differently_is_refused() -> None:
    for text in ("1795000000.0", "1.795e9", '"1795000000"', "true", "null", "1e400", "NaN", "9" * 5000):
        assert refusal(payload(iat=777).replace(b'"iat":777', b'"iat":' + text.encode())) == "/iat"
    for text in ("3.0", "3e0", "0.3e1", "-3"):
        raw = payload(attempt=attempt()).replace(b'"number":3', b'"number":' + text.encode())
        assert refusal(raw) == "/attempt/number"
    changes: list[Callable[[bytes], bytes]] = [
        lambda raw: raw[:-1] + b',"sub":"other"}', lambda raw: raw[:-1] + b',"\\u0073ub":"other"}', lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.decode().encode("utf-16"), lambda raw: b"[" + raw + b"]", lambda _: b"null", lambda _: b"",
        lambda raw: raw.replace(b"no", b"\xff") + b"\xff", lambda raw: raw.replace(b'"github"', b'"\\ud800"'),
        lambda raw: raw.replace(b'"github"', b'"\\u0000"'), lambda raw: raw.replace(b'"github"', b"[[[[[[[[1]]]]]]]]"),
        lambda raw: raw + b" " * 20_000,
    ]  # fmt: skip
    for change in changes:
        refusal(change(payload()))


SPELLED = st.sampled_from([
    "1", "1.0", "-0", "0.5", "5e-1", "1e-7", "1e-07", "9007199254740993", "-9007199254740993", "18446744073709551617", "1e400",
    "0.12345678901234567890", "true", "null", '"a"', '"\\u0061"', '"\\u001f"', '"\\u0000"', '"\\ud800"', '"\\/"', '"\x7f"', " 1", "1 ", "",
    f"{'[' * 9}1{']' * 9}", "[" * 6000 + "]" * 6000,
])  # fmt: skip


@given(
    st.sampled_from(['"iat":1795000000', '"value":20.9', '"github"', '"repository_id":"1"', '"task_id":"gsm8k"', '"name":"inspect-ai"']),
    st.sampled_from(["{}", '"a":{},"a":{}', '"b":1,"a":{}', '"iat":{}', '"value":{}', '"a":{{"b":{},"b":1}}', '"a":[{}]', '"\\u0061":{}']),
    SPELLED,
)  # fmt: skip
@example('"value":20.9', '"value":{}', "1e-7")
@example('"value":20.9', '"value":{}', "9007199254740993")
@example('"repository_id":"1"', '"repository_id":{}', "9007199254740993")
@example('"repository_id":"1"', '"repository_id":{}', "1")
@example('"repository_id":"1"', '"repository_id":{}', '"\\u0000"')
@example('"iat":1795000000', '"iat":{},"iat":1795000000', "1795000000")
def test_a_payload_is_read_quickly_as_it_is_at_length(old: str, new: str, text: str) -> None:
    raw = payload().replace(old.encode(), new.format(text, text).encode())
    at_length = raw.replace(b'"sub":"inspect-ai"', '"sub":"inspéct-ai"'.encode())  # the quick reader reads only ASCII
    try:
        value = read_unverified(raw)
    except IssuerError:
        with pytest.raises(IssuerError):
            read_unverified(at_length)
    else:
        assert repr(read_unverified(at_length)) == repr(value).replace("sub='inspect-ai'", "sub='inspéct-ai'")


def test_what_is_signed_is_read_quickly() -> None:
    metrics = [{"metric_id": "a", "value": value, "slice": str(value)} for value in (0, 1, 20.9, 1e-7, -1 / 3)]
    item = make.submission(metrics=sorted(metrics, key=lambda metric: str(metric["slice"])))
    for token in make.issued((SAID, item)):
        assert verify_token._read_quickly(jose.parse_compact(token).unverified_payload) is not None
    assert verify_token._read_quickly(payload() + b" ") is None
    assert verify_token._read_quickly(payload(caller={"a": "x" * jose.MAX_TOKEN_BYTES})) is None
