"""Request bodies: 400 for another body, 422 for a broken rule of the data contract, each with its pointer."""

import hashlib
import json
from itertools import islice
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import count_values
from issuer.issuance.judge import read_in_steps, read_request
from issuer.issuance.steps import Request
from issuer.results.claims import RunClaims
from issuer.token.wire import MAX_BYTES, MAX_RESULTS, MAX_VALUES, Kind
from tests.support import make

SAID = make.submission({"notes": "no tools"})
DIGEST = "sha256:" + "0" * 64


def item(**members: Any) -> dict[str, Any]:
    return make.without_dots({"claims": make.claims(), "details": {"notes": "no tools"}, **members})


def batch(*items: Any, **members: Any) -> dict[str, Any]:
    return {"results": list(items), **members}


def numbered(count: int) -> list[dict[str, Any]]:
    return [item(details={"notes": str(index)}) for index in range(count)]


def spellings(value: Any) -> list[bytes]:
    """Write a body in two ways: as others do, and as our client does, which is read another way."""
    if isinstance(value, bytes):
        return [value]
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return [json.dumps(value).encode(), compact.encode("utf-8", "surrogatepass")]


def read(value: Any, kind: Kind = "single") -> Request:
    first, *others = (read_request(kind, raw) for raw in spellings(value))
    assert others in ([], [first])
    return first


def faults(value: Any, kind: Kind = "single") -> tuple[Fault, ...]:
    found = []
    for raw in spellings(value):
        with pytest.raises(Refused) as caught:
            read_request(kind, raw)
        assert caught.value.faults[0].code is caught.value.code
        found.append(caught.value.faults)
    assert found[1:] in ([], found[:1])
    return found[0]


def refusal(value: Any, kind: Kind = "single") -> tuple[int, Code, str]:
    fault = faults(value, kind)[0]
    return fault.code.meaning.status, fault.code, fault.pointer


def test_a_body_becomes_submissions_with_both_digests_in_its_order() -> None:
    """Everything but the claims is optional."""
    assert read(item(integration="inspect-ai", audience=make.AUDIENCE)) == Request(
        "single", (SAID,), "inspect-ai", make.AUDIENCE
    )
    assert read({"claims": make.claims()}) == Request("single", (make.submission(),), "", "")
    assert read(item(details={})).submissions == read(item(details=...)).submissions == (make.submission(),)
    body = read(batch(*numbered(3), integration="i"), "batch")
    assert body.kind == "batch"
    assert [(one.pointer, one.details["notes"]) for one in body.submissions] == [
        (f"/results/{n}", str(n)) for n in range(3)
    ]


def test_digests_that_are_sent_and_right_change_nothing() -> None:
    sent = item(claims_digest=SAID.claims_digest, content_digest=SAID.content_digest)
    assert read(sent) == read(item())
    assert read(batch(sent), "batch") == read(batch(item()), "batch")
    both_wrong = item(claims_digest=DIGEST, content_digest=DIGEST)
    assert refusal(both_wrong) == (422, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest")


def test_the_request_digest_is_the_contracts_and_tells_requests_apart() -> None:
    body = read(item())
    results = [{"claims": make.claims(), "details": {"notes": "no tools"}}]
    value = {"kind": "single", "results": results, "integration": "i", "audience": "a"}
    assert body.digest("i", "a") == hashlib.sha256(jcs.canonical(value)).hexdigest()  # type: ignore[arg-type]
    shuffled = dict(reversed(make.claims(framework=dict(reversed(make.claims()["framework"].items()))).items()))
    assert read(item(claims=shuffled)).digest("i", "a") == body.digest("i", "a")
    others = {
        body.digest("i", "b"), body.digest("j", "a"), read(item(details=...)).digest("i", "a"),
        read(batch(item()), "batch").digest("i", "a"),
        read(item(claims=make.claims(task_id="other"))).digest("i", "a"), body.digest("i", "a"),
    }  # fmt: skip
    assert len(others) == 6


BAD_BODIES: list[tuple[bytes, Code, str]] = [
    *[
        (raw, Code.REQUEST_MALFORMED, "")
        for raw in (b"", b"{", b"[]", b"null", b"{}", b"\xef\xbb\xbf{}", b'{"\xff": {}}')
    ],
    (b'{"claims": "\xff"}', Code.REQUEST_MALFORMED, "/claims"),
    (b'{"claims": {"a": "\\ud800"}}', Code.REQUEST_MALFORMED, "/claims/a"),
    (b'{"claims": {"a": "\\u0000"}}', Code.REQUEST_MALFORMED, "/claims/a"),
    (b'{"claims": ' + b"[" * 20 + b"]" * 20 + b"}", Code.REQUEST_MALFORMED, "/claims" + "/0" * 15),
    (b'{"claims": []}', Code.REQUEST_MALFORMED, "/claims"),
    (b'{"claims": null}', Code.REQUEST_MALFORMED, "/claims"),
    (b'{"claims": {}, "details": null}', Code.REQUEST_MALFORMED, "/details"),
    (b'{"claims": {}, "integration": 1}', Code.REQUEST_MALFORMED, "/integration"),
    (b'{"claims": {}, "audience": ["a"]}', Code.REQUEST_MALFORMED, "/audience"),
    (b'{"claims": {}, "audience": 1e999}', Code.REQUEST_MALFORMED, "/audience"),
    (b'{"claims":{},"integration":"a\\u0000"}', Code.REQUEST_MALFORMED, "/integration"),
    (b'{"claims": {}, "claims": {}}', Code.REQUEST_DUPLICATE_MEMBER, "/claims"),
    (b'{"claims": {"task_id": 1, "t\\u0061sk_id": 2}}', Code.REQUEST_DUPLICATE_MEMBER, "/claims/task_id"),
    (b'{"claims": {}, "Details": {}}', Code.REQUEST_UNKNOWN_MEMBER, "/Details"),
    (b'{"claims": {}, "results": []}', Code.REQUEST_UNKNOWN_MEMBER, "/results"),
    (b'{"claims": {}, "x - at `$[5]": 1}', Code.REQUEST_UNKNOWN_MEMBER, "/x - at `$[5]"),
    (b'{"claims": {}, "x - at `$.claims[7][...]`": 1}', Code.REQUEST_UNKNOWN_MEMBER, "/x - at `$.claims[7][...]`"),
]


def test_what_is_not_the_body_is_400_with_its_code_and_pointer() -> None:
    assert [(raw, *refusal(raw)) for raw, *_ in BAD_BODIES] == [(raw, 400, *rest) for raw, *rest in BAD_BODIES]
    assert faults(b'{"claims":\n  nonsense}')[0].detail.startswith("line 2, column 3: ")


def test_a_body_nests_16_deep_and_no_bracket_in_a_text_hides_more() -> None:
    for text in ("", "}", "{", "}{", '\\"}', '\\\\","c":"}', "]", "["):
        for depth in (16, 17, 600):
            within = depth - 2  # the body and its details
            deep = f'{{"a":"{text}","b":' * within + "1" + "}" * within
            raw = f'{{"claims":{json.dumps(make.claims())},"details":{{"run":{deep}}}}}'.encode()
            if depth == 16:
                assert read(raw).submissions[0].details
            else:
                assert refusal(raw)[:2] == (400, Code.REQUEST_MALFORMED)
                assert "nested deeper" in faults(raw)[0].detail


def test_what_is_empty_is_not_absent() -> None:
    for member in ("integration", "audience"):
        assert refusal(item(**{member: ""})) == (400, Code.REQUEST_MALFORMED, f"/{member}")
        assert refusal(batch(item(), **{member: ""}), "batch") == (400, Code.REQUEST_MALFORMED, f"/{member}")
    for member in ("claims_digest", "content_digest"):
        empty = item(**{member: ""})
        assert refusal(empty)[1:] == (Code.CLAIMS_DIGEST_MISMATCH, f"/{member}")
        assert refusal(batch(empty), "batch")[1:] == (Code.CLAIMS_DIGEST_MISMATCH, f"/results/0/{member}")


def test_a_body_of_the_other_endpoint_or_one_byte_too_large_is_refused() -> None:
    assert refusal(batch(item()))[:2] == (400, Code.REQUEST_UNKNOWN_MEMBER)
    assert refusal(item(), "batch")[0] == 400
    for kind, limit in MAX_BYTES.items():
        plain = json.dumps(batch(item()) if kind == "batch" else item()).encode()
        read_request(kind, plain + b" " * (limit - len(plain)))
        assert refusal(plain + b" " * (limit - len(plain) + 1), kind)[0] == 400


def test_a_nonce_has_22_to_128_characters_and_is_beside_the_request() -> None:
    bad = ["", "A" * 21, "A" * 129, "A" * 22 + "=", "A" * 21 + "+", "A" * 22 + "\n", "A" * 21 + "\u0410", " " * 22]
    for nonce in bad:
        assert refusal(item(nonce=nonce)) == (400, Code.NONCE_INVALID, "/nonce")
        assert refusal(batch(item(), nonce=nonce), "batch") == (400, Code.NONCE_INVALID, "/nonce")
    for nonce in ("A" * 22, "-_09azAZ" * 16):
        assert read(batch(item(), nonce=nonce), "batch").nonce == nonce
        with_one, without = read(item(nonce=nonce)), read(item())
        assert (with_one.nonce, without.nonce) == (nonce, "")
        assert with_one.digest("a", "b") == without.digest("a", "b")


def test_a_batch_has_1_to_100_different_results() -> None:
    for count in (0, 101):
        assert refusal(batch(*numbered(count)), "batch") == (400, Code.REQUEST_MALFORMED, "/results")
    assert len(read(batch(*numbered(100)), "batch").submissions) == 100
    two = {"metrics": [{"metric_id": "a", "value": 1}, {"metric_id": "b", "value": 2.0}]}
    swapped = {"metrics": [{"metric_id": "b", "value": 2}, {"metric_id": "a", "value": 1.0}]}
    again = item(claims=make.claims(**swapped), details={"notes": "no tools", "date": None})
    twice = batch(item(claims=make.claims(**two)), item(), again)
    assert refusal(twice, "batch") == (422, Code.CLAIMS_DUPLICATE_METRIC, "/results/2")
    other = item(claims=make.claims(model_repo="acme/other"))
    assert len(read(batch(item(), other, item(details={})), "batch").submissions) == 3


def test_what_breaks_the_contract_is_422_also_inside_a_batch() -> None:
    metric = {"metric_id": "a", "value": 1}
    posing = {**metric, "value_type": "x - at `$[7]"}
    changes: list[tuple[dict[str, Any], Code, str]] = [
        ({"claims": make.claims(task_id="")}, Code.CLAIMS_INVALID, "/claims/task_id"),
        ({"claims": make.claims(extra=1)}, Code.CLAIMS_INVALID, "/claims/extra"),
        ({"claims": {}}, Code.CLAIMS_INVALID, "/claims"),
        ({"claims": make.claims(model_revision="main")}, Code.CLAIMS_REVISION, "/claims/model_revision"),
        ({"claims": make.claims(metrics=[metric] * 2)}, Code.CLAIMS_DUPLICATE_METRIC, "/claims/metrics/1"),
        ({"claims": make.claims(metrics=[posing])}, Code.CLAIMS_INVALID, "/claims/metrics/0/value_type"),
        ({"details": {"date": "x"}}, Code.DETAILS_INVALID, "/details/date"),
        ({"details": {"other": 1}}, Code.DETAILS_INVALID, "/details/other"),
        ({"details": {"run": {"a": [None]}}}, Code.DETAILS_INVALID, "/details/run/a/0"),
        ({"claims_digest": DIGEST}, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest"),
        ({"content_digest": DIGEST}, Code.CLAIMS_DIGEST_MISMATCH, "/content_digest"),
        ({"claims_digest": SAID.content_digest}, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest"),
    ]
    for change, code, pointer in changes:
        bad = item(**change)
        assert refusal(bad) == (422, code, pointer)
        assert refusal(batch(item(), bad), "batch") == (422, code, f"/results/1{pointer}")


def test_a_number_that_cannot_be_carried_is_422_wherever_it_is() -> None:
    metrics, run = make.claims(metrics=[{"metric_id": "a", "value": 777}]), {"run": {"x": [777]}}
    places: list[tuple[dict[str, Any], Kind, str]] = [
        (item(claims=metrics), "single", "/claims/metrics/0/value"),
        (item(details=run), "single", "/details/run/x/0"),
        (batch(item(), item(details=run)), "batch", "/results/1/details/run/x/0"),
    ]
    for text in ("1e400", "NaN", "9007199254740993", "1e16", "0.123456789012345678", "1e-400", "-Infinity"):
        for value, kind, pointer in places:
            raw = json.dumps(value).replace("777", text).encode()
            assert refusal(raw, kind) == (422, Code.CLAIMS_NUMBER, pointer)


def test_a_secret_in_any_text_of_a_result_is_refused_and_not_repeated() -> None:
    """Of very many as many are listed as a person takes out one by one."""
    token = "hf_" + "a" * 30
    assert refusal(item(claims=make.claims(task_id=token))) == (422, Code.CLAIMS_SECRET, "/claims/task_id")
    framework = {"name": "a", "version": "1", "command": f"HF_TOKEN={token}"}
    bad = item(
        claims=make.claims(framework=framework), details={"notes": f"with {token}", "run": {"env": {"HF_TOKEN": token}}}
    )
    for value, kind, above in ((bad, "single", ""), (batch(item(), bad), "batch", "/results/1")):
        found = faults(value, kind)  # type: ignore[arg-type]
        assert [fault.code for fault in found] == [Code.CLAIMS_SECRET] * 3
        assert [fault.pointer for fault in found] == [
            f"{above}{pointer}"
            for pointer in ("/claims/framework/command", "/details/notes", "/details/run/env/HF_TOKEN")
        ]
        assert "aaaa" not in str(found)
    many = item(details={"run": {f"v{number}": token for number in range(20)}})
    assert [fault.pointer for fault in faults(many)] == [f"/details/run/v{number}" for number in range(16)]


# The values of claims with one metric: the claims, seven members, a metric and its two, a framework's two.
VALUES_OF_CLAIMS = len(RunClaims.__struct_fields__) + 1 + 3 + 2


def artifacts(count: int, each: str = "0") -> str:
    """Return details of this many values."""
    return f'{{"artifacts":[{",".join([each] * (count - 2))}]}}'


def test_a_result_has_2000_values_and_not_one_more() -> None:
    claims = json.dumps(make.claims(framework={"name": "a", "version": "1"}))
    left = MAX_VALUES - VALUES_OF_CLAIMS
    for each in ("0", "0.5", '"a,b[{"', "[ ]", "{\n}", "null", '"\\""'):
        for values in (left, left + 1):
            one = f'{{"claims":{claims},"details":{artifacts(values, each)}}}'
            many = f'{{"results":[{json.dumps(item())},{one}]}}'
            if values > left:
                assert refusal(one.encode()) == (422, Code.DETAILS_INVALID, "/details")
                assert refusal(many.encode(), "batch") == (422, Code.DETAILS_INVALID, "/results/1/details")
            elif each != "null":  # which has no canonical form in a list
                assert len(read(many.encode(), "batch").submissions) == 2
                assert read(one.encode()).submissions[0].details
        (fault,) = faults(f'{{"claims":{claims},"details":{artifacts(MAX_VALUES, each)}}}'.encode())
        assert "2000 JSON values" in fault.detail
        assert "URL" in fault.detail, "and says what to do"


def test_a_result_of_a_batch_is_as_large_as_a_single_body_at_most() -> None:
    claims, other = json.dumps(make.claims()), json.dumps(item(claims=make.claims(task_id="another")))
    rest = len('{"notes":""}') + len(claims)
    for size in (MAX_BYTES["single"], MAX_BYTES["single"] + 1):
        for large in (
            f'{{"claims":{claims},"details":{{"notes":"{"a" * (size - rest)}"}}}}',
            f'{{"claims":{claims[:-1].ljust(size - 1)}}}}}',
        ):
            raw = f'{{"results":[{other},{large}]}}'.encode()
            if size > MAX_BYTES["single"]:
                assert refusal(raw, "batch") == (413, Code.REQUEST_TOO_LARGE, "/results/1")
            else:
                assert len(read(raw, "batch").submissions) == 2


def test_values_are_counted_exactly_where_the_quick_count_may_be_too_high_or_too_low() -> None:
    """A comma in a text is not a value. Claims and details are counted together; a list of digits is the shortest body."""
    said = json.dumps(make.claims(framework={"name": "a", "version": "1"}))
    details = artifacts(MAX_VALUES - VALUES_OF_CLAIMS).replace("0", '"a,b"', 1)
    assert read(f'{{"claims":{said},"details":{details}}}'.encode()).submissions[0].details
    long = json.dumps(make.claims(framework={"name": "a", "version": "1", "command": "a" + ",b" * 1900}))
    assert read(f'{{"claims":{long},"details":{artifacts(200)}}}'.encode()).submissions[0].details
    claims = f"[{','.join('0' * (MAX_VALUES - 1))}]"
    assert len(claims) + len("0") == 2 * MAX_VALUES
    assert refusal(f'{{"claims":{claims},"details":0}}'.encode()) == (422, Code.DETAILS_INVALID, "/details")
    (fault,) = faults(f'{{"claims":{claims}}}'.encode())
    assert "JSON values" not in fault.detail


def test_claims_with_too_many_values_are_refused_as_such_and_are_not_read() -> None:
    """The bound comes before the reader, which would find another fault."""
    for values in (MAX_VALUES, MAX_VALUES + 1):
        claims = f'{{"metrics":[{",".join(["{}"] * (values - 2))}]}}'
        (fault, *_) = faults(f'{{"claims":{claims}}}'.encode())
        assert (fault.code, "JSON values" in fault.detail) == (Code.CLAIMS_INVALID, values > MAX_VALUES)
    full = make.claims(metrics=[
        {"metric_id": f"m{number}", "slice": "s", "value": 1, "value_type": "int", "sample_size": 1}
        for number in range(256)
    ])  # fmt: skip
    assert len(read(item(claims=full)).submissions[0].claims.metrics) == 256
    for late in ('"a":0,"a":0', '"a":1e400', '"a":"\\u0000"', '"a":' + "[" * 20 + "]" * 20):
        many = f'{{"run":{{{late}}},"artifacts":[{"0," * MAX_VALUES}0]}}'
        one = f'{{"claims":{json.dumps(make.claims())},"details":{many}}}'
        assert refusal(one.encode()) == (422, Code.DETAILS_INVALID, "/details")


def test_a_large_invalid_body_is_refused_with_its_place_and_not_read() -> None:
    for old, new, code, pointer, words in [
        ("]}}]}", "]}}]", Code.REQUEST_MALFORMED, "", "truncated"),
        ('"results":\n', '"results":\n !', Code.REQUEST_MALFORMED, "", "line 2, column 2: "),
        ('"results"', '"other":1,"results"', Code.REQUEST_UNKNOWN_MEMBER, "", "other"),
        ('{"claims"', '{"other":1,"claims"', Code.REQUEST_UNKNOWN_MEMBER, "/results/0", "other"),
        ('{"claims"', '{"details"', Code.REQUEST_MALFORMED, "/results/0", "missing required"),
        ('"nonce":"', '"nonce":1,"x":"', Code.REQUEST_MALFORMED, "/nonce", "str"),
        ('"nonce"', '"nonce":"n","nonce"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('{"claims"', '{"claims":{},"claims"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('"nonce"', '"nonce":"\\u0022\\u0022\\u0022","nonce"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('"artifacts":[', '"artifacts":[' + "[" * 60_000, Code.REQUEST_MALFORMED, "", "depth"),
    ]:
        one = f'{{"claims":{json.dumps(make.claims())},"details":{artifacts(1900)}}}'
        large = f'{{"nonce":"{"n" * 22}","results":\n[{one.replace("gsm8k", "other")},{one}]}}'
        assert len(read(large.encode(), "batch").submissions) == 2
        broken = large.replace(old, new, 1) if old[0] != "]" else large.removesuffix(old) + new
        assert refusal(broken.encode(), "batch") == (400, code, pointer)
        with pytest.raises(Refused) as caught:
            read(broken.encode(), "batch")
        assert words in caught.value.faults[0].detail


def test_the_place_of_a_fault_is_given_up_to_2000_values_and_64_kib() -> None:
    for more, code, pointer in (
        (',"Details":{}', Code.REQUEST_UNKNOWN_MEMBER, "/Details"),
        (',"nonce":"n","nonce":"n"', Code.REQUEST_DUPLICATE_MEMBER, "/nonce"),
    ):
        for values, found in ((MAX_VALUES, pointer), (MAX_VALUES + 1, "")):
            members = 3 + more.count(":")
            raw = f'{{"claims":{{"a":[{",".join("0" * (values - members))}]}}{more}}}'.encode()
            assert count_values(raw, MAX_VALUES) == values
            assert refusal(raw)[1:] == (code, found)
    for size, pointer in ((MAX_BYTES["single"], "/Results"), (MAX_BYTES["single"] + 1, "")):
        raw = b'{"Results":[]}'.ljust(size)
        assert refusal(raw, "batch") == (400, Code.REQUEST_UNKNOWN_MEMBER, pointer)


def test_a_batch_is_read_in_steps_and_not_beyond_what_is_refused() -> None:
    """Other requests have their turn between steps. Each result needs several."""
    good = json.dumps(batch(*numbered(MAX_RESULTS))).encode()
    a_result = sum(1 for _ in read_in_steps("batch", good)) // MAX_RESULTS
    assert a_result >= 4
    steps = read_in_steps("batch", json.dumps(batch(*numbered(5), item(details={"date": "x"}), item())).encode())
    with pytest.raises(Refused) as caught:
        list(islice(steps, 6 * a_result))
    assert caught.value.faults[0].pointer == "/results/5/details/date"


MEMBER = st.sampled_from([
    '"notes":"a"', '"notes":"b"', '"notes":null', '"date":"2026-11-21"', '"date":"today"', '"run":{"a":1,"a":2}',
    '"run":{"a":9007199254740991}', '"run":{"a":9007199254740993}', '"run":{"a":[1,-99999999999999999]}', '"run":{"a":1e400}',
    '"run":{"a":0.12345678901234567890}', '"run":{"a":1.0,"b":-0.0}', '"run":{"a":"\\ud800"}', '"run":{"a":"é\\n\\""}',
    f'"run":{{"a":{"[" * 13}1{"]" * 13}}}', f'"run":{{"a":{"[" * 14}1{"]" * 14}}}', f'"run":{{"a":{"[" * 12}1{"]" * 12}}}',
    '"run":{"a":NaN}', '"run":{"a":"[[[[[[[[[[[[[[["}', '"artifacts":[null]', '"unknown":1', '"run":[]', '"run":{"\x7f":"\x01"}',
])  # fmt: skip
NUMBERS = st.sampled_from(
    ["1", "0.5", "1.0", "-0", "1e-7", "9007199254740993", "0.1234567890123456789", "1e400", '"1"', "true", "1e16"]
)


MORE = st.sampled_from(["", ',"model_repo":"a/b"', ',"x":1'])


@given(st.lists(MEMBER, max_size=3), NUMBERS, st.sampled_from(sorted(MAX_BYTES)), MORE)
@example(['"notes":"a"', '"notes":"a"'], "1", "single", "")
@example([f'"run":{{"a":{"[" * 12}1{"]" * 12}}}'], "1", "batch", "")
@example(['"run":{"a":9007199254740993}'], "1", "batch", "")
def test_a_body_is_read_alike_by_both_readers(members: list[str], number: str, kind: Kind, more: str) -> None:
    def text(word: str) -> bytes:
        """Return the body; the quick reader leaves any escape of that kind to the strict one."""
        claims = json.dumps(make.claims())[:-1].replace("20.9", number) + more + "}"
        one = f'"claims":{claims},"details":{{{",".join(members)}}}'
        body = f'"results":[{{{one}}}]' if kind == "batch" else one
        return f'{{"integration":"{word}",{body}}}'.encode()

    try:
        quick = read_request(kind, text("i"))
    except Refused as caught:
        with pytest.raises(Refused) as strict:
            read_request(kind, text("\\u0069"))
        assert [(f.code, f.pointer) for f in caught.faults] == [(f.code, f.pointer) for f in strict.value.faults]  # noqa: PT017
    else:
        strictly = read_request(kind, text("\\u0069"))
        assert quick == strictly
        assert quick.digest("i", "a") == strictly.digest("i", "a")


def test_a_member_that_is_named_twice_in_a_good_body_is_refused() -> None:
    for once, twice, pointer in [
        ('"notes": "no tools"', '"notes": "x", "notes": "no tools"', "/details/notes"),
        ('"notes": "no tools"', '"notes": "no tools", "n\\u006ftes": "no tools"', "/details/notes"),
        ('"notes": "no tools"', '"run": {"a": 1, "a": 1}', "/details/run/a"),
        ('"task_id": "gsm8k"', '"task_id": "gsm8k", "task_id": "gsm8k"', "/claims/task_id"),
        ('"value": 20.9', '"value": 1, "value": 20.9', "/claims/metrics/0/value"),
        ('"details":', '"details": {}, "details":', "/details"),
    ]:
        one = json.dumps(item())
        read(one.encode())
        assert refusal(one.replace(once, twice).encode()) == (400, Code.REQUEST_DUPLICATE_MEMBER, pointer)
        many = json.dumps(batch(*numbered(2), item()))
        assert refusal(many.replace(once, twice).encode(), "batch")[:2] == (400, Code.REQUEST_DUPLICATE_MEMBER)


@given(st.binary(max_size=50) | st.text('{}[]":,claimsdetails01e \\u', max_size=50).map(str.encode))
def test_any_bytes_are_refused_in_a_declared_way(raw: bytes) -> None:
    for kind in MAX_BYTES:
        with pytest.raises(Refused) as caught:
            read_request(kind, raw)
        assert caught.value.code.meaning.status == 400
