"""Request bodies: 400 for what is not the body, 422 for what breaks the data contract, each with its pointer."""

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


# -- what a good body becomes -----------------------------------------------------------------------------------------


def test_a_body_becomes_one_submission_with_both_digests() -> None:
    body = read(item(integration="inspect-ai", audience=make.AUDIENCE))
    assert body == Request("single", (SAID,), "inspect-ai", make.AUDIENCE)
    assert body.kind == "single"


def test_everything_but_the_claims_is_optional() -> None:
    assert read({"claims": make.claims()}) == Request("single", (make.submission(),), "", "")
    assert read(item(details={})).submissions == read(item(details=...)).submissions == (make.submission(),)


def test_a_batch_keeps_its_order_and_points_at_its_items() -> None:
    body = read(batch(*numbered(3), integration="i"), "batch")
    assert body.kind == "batch"
    assert [submission.pointer for submission in body.submissions] == ["/results/0", "/results/1", "/results/2"]
    assert [submission.details["notes"] for submission in body.submissions] == ["0", "1", "2"]


def test_digests_that_are_sent_and_right_change_nothing() -> None:
    sent = item(claims_digest=SAID.claims_digest, content_digest=SAID.content_digest)
    assert read(sent) == read(item())
    assert read(batch(sent), "batch") == read(batch(item()), "batch")


def test_of_two_wrong_digests_that_of_the_claims_is_named() -> None:
    wrong = {"claims_digest": "sha256:" + "0" * 64, "content_digest": "sha256:" + "0" * 64}
    assert refusal(item(**wrong)) == (422, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_number_that_no_double_carries_is_refused_in_each_item_of_a_batch(place: int) -> None:
    items = numbered(3)
    items[place]["details"] = {"run": {"seed": 10**17}}
    assert refusal(batch(*items), "batch") == (422, Code.CLAIMS_NUMBER, f"/results/{place}/details/run/seed")


def test_a_body_that_is_no_json_is_refused_with_its_place() -> None:
    with pytest.raises(Refused) as caught:
        read(b'{"claims":\n  nonsense}')
    assert caught.value.faults[0].detail.startswith("line 2, column 3: ")


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


# -- 400: not this body -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        (b"", Code.REQUEST_MALFORMED, ""),
        (b"{", Code.REQUEST_MALFORMED, ""),
        (b"[]", Code.REQUEST_MALFORMED, ""),
        (b"null", Code.REQUEST_MALFORMED, ""),
        (b"{}", Code.REQUEST_MALFORMED, ""),
        (b"\xef\xbb\xbf{}", Code.REQUEST_MALFORMED, ""),
        (b'{"claims": "\xff"}', Code.REQUEST_MALFORMED, "/claims"),
        (b'{"\xff": {}}', Code.REQUEST_MALFORMED, ""),
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
    ],
)
def test_what_is_not_the_body_is_400_with_its_code_and_pointer(raw: bytes, code: Code, pointer: str) -> None:
    assert refusal(raw) == (400, code, pointer)


@pytest.mark.parametrize("text", ["", "}", "{", "}{", '\\"}', '\\\\","c":"}', "]", "["])
def test_a_body_nests_16_deep_and_no_bracket_in_a_text_hides_more(text: str) -> None:
    for depth in (16, 17, 600):
        within = depth - 2  # the body and its details
        deep = f'{{"a":"{text}","b":' * within + "1" + "}" * within
        raw = f'{{"claims":{json.dumps(make.claims())},"details":{{"run":{deep}}}}}'.encode()
        if depth == 16:
            assert read(raw).submissions[0].details
        else:
            assert refusal(raw)[:2] == (400, Code.REQUEST_MALFORMED)
            assert "nested deeper" in faults(raw)[0].detail


@pytest.mark.parametrize("member", ["integration", "audience", "nonce", "claims_digest", "content_digest"])
def test_what_is_empty_is_not_absent(member: str) -> None:
    empty = {member: ""}
    code = {"nonce": Code.NONCE_INVALID}.get(member, Code.REQUEST_MALFORMED)
    code = Code.CLAIMS_DIGEST_MISMATCH if "digest" in member else code
    assert refusal(item(**empty))[1:] == (code, f"/{member}")
    if "digest" in member:
        assert refusal(batch(item(**empty)), "batch")[1:] == (code, f"/results/0/{member}")
    else:
        assert refusal(batch(item(), **empty), "batch")[1:] == (code, f"/{member}")


def test_a_body_of_the_other_endpoint_is_refused() -> None:
    assert refusal(batch(item()))[:2] == (400, Code.REQUEST_UNKNOWN_MEMBER)
    assert refusal(item(), "batch")[0] == 400


@pytest.mark.parametrize(
    "nonce", ["", "A" * 21, "A" * 129, "A" * 22 + "=", "A" * 21 + "+", "A" * 22 + "\n", "A" * 21 + "\u0410", " " * 22]
)
def test_a_nonce_that_is_short_long_or_no_base64url_is_refused(nonce: str) -> None:
    assert refusal(item(nonce=nonce)) == (400, Code.NONCE_INVALID, "/nonce")
    assert refusal(batch(item(), nonce=nonce), "batch") == (400, Code.NONCE_INVALID, "/nonce")


@pytest.mark.parametrize("nonce", ["A" * 22, "-_09azAZ" * 16])
def test_a_nonce_names_the_request_and_is_no_part_of_it(nonce: str) -> None:
    assert read(batch(item(), nonce=nonce), "batch").nonce == nonce
    with_one, without = read(item(nonce=nonce)), read(item())
    assert with_one.nonce == nonce
    assert without.nonce == ""
    assert with_one.digest("a", "b") == without.digest("a", "b")


def test_a_body_is_read_up_to_its_size_and_not_beyond() -> None:
    for kind, value in (("single", item()), ("batch", batch(item()))):
        raw = json.dumps(value).encode()
        limit = MAX_BYTES[kind]  # type: ignore[index]
        read_request(kind, raw.ljust(limit))  # type: ignore[arg-type]
        with pytest.raises(Refused):
            read_request(kind, raw.ljust(limit + 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 101])
def test_a_batch_has_1_to_100_results(count: int) -> None:
    assert refusal(batch(*numbered(count)), "batch") == (400, Code.REQUEST_MALFORMED, "/results")


def test_a_batch_of_100_is_read() -> None:
    assert len(read(batch(*numbered(100)), "batch").submissions) == 100


# -- 422: breaks the data contract ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"claims": make.claims(task_id="")}, Code.CLAIMS_INVALID, "/claims/task_id"),
        ({"claims": make.claims(extra=1)}, Code.CLAIMS_INVALID, "/claims/extra"),
        ({"claims": {}}, Code.CLAIMS_INVALID, "/claims"),
        ({"claims": make.claims(model_revision="main")}, Code.CLAIMS_REVISION, "/claims/model_revision"),
        (
            {"claims": make.claims(metrics=[{"metric_id": "a", "value": 1}] * 2)},
            Code.CLAIMS_DUPLICATE_METRIC,
            "/claims/metrics/1",
        ),
        (
            {"claims": make.claims(metrics=[{"metric_id": "a", "value": 1, "value_type": "x - at `$[7]"}])},
            Code.CLAIMS_INVALID,
            "/claims/metrics/0/value_type",
        ),
        ({"details": {"date": "x"}}, Code.DETAILS_INVALID, "/details/date"),
        ({"details": {"other": 1}}, Code.DETAILS_INVALID, "/details/other"),
        ({"details": {"run": {"a": [None]}}}, Code.DETAILS_INVALID, "/details/run/a/0"),
        ({"claims_digest": DIGEST}, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest"),
        ({"content_digest": DIGEST}, Code.CLAIMS_DIGEST_MISMATCH, "/content_digest"),
        ({"claims_digest": SAID.content_digest}, Code.CLAIMS_DIGEST_MISMATCH, "/claims_digest"),
        ({"content_digest": ""}, Code.CLAIMS_DIGEST_MISMATCH, "/content_digest"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_breaks_the_contract_is_422_also_inside_a_batch(change: dict[str, Any], code: Code, pointer: str) -> None:
    bad = item(**change)
    assert refusal(bad) == (422, code, pointer)
    assert refusal(batch(item(), bad), "batch") == (422, code, f"/results/1{pointer}")


@pytest.mark.parametrize(
    "text", ["1e400", "NaN", "9007199254740993", "1e16", "0.123456789012345678", "1e-400", "-Infinity"]
)
def test_a_number_that_cannot_be_carried_is_422_wherever_it_stands(text: str) -> None:
    for value, pointer in (
        (item(claims=make.claims(metrics=[{"metric_id": "a", "value": 777}])), "/claims/metrics/0/value"),
        (item(details={"run": {"x": [777]}}), "/details/run/x/0"),
    ):
        raw = json.dumps(value).replace("777", text).encode()
        assert refusal(raw) == (422, Code.CLAIMS_NUMBER, pointer)
    raw = json.dumps(batch(item(details={"run": {"x": 777}}))).replace("777", text).encode()
    assert refusal(raw, "batch") == (422, Code.CLAIMS_NUMBER, "/results/0/details/run/x")


def test_a_secret_in_the_command_is_refused_and_not_repeated() -> None:
    framework = {"name": "a", "version": "1", "command": "HF_TOKEN=hf_" + "a" * 30}
    bad = item(claims=make.claims(framework=framework))
    assert refusal(bad) == (422, Code.CLAIMS_SECRET, "/claims/framework/command")
    with pytest.raises(Refused) as caught:
        read(batch(bad), "batch")
    assert caught.value.faults[0].pointer == "/results/0/claims/framework/command"
    assert "aaaa" not in str(caught.value)


def test_a_secret_in_any_text_of_a_result_is_refused_and_all_of_them_are_told() -> None:
    token = "hf_" + "a" * 30
    bad = item(details={"notes": f"with {token}", "run": {"env": {"HF_TOKEN": token}}})
    assert refusal(bad) == (422, Code.CLAIMS_SECRET, "/details/notes")
    with pytest.raises(Refused) as caught:
        read(batch(item(), bad), "batch")
    assert [fault.pointer for fault in caught.value.faults] == [
        "/results/1/details/notes",
        "/results/1/details/run/env/HF_TOKEN",
    ]
    assert "aaaa" not in str(caught.value.faults)
    assert refusal(item(claims=make.claims(task_id=token))) == (422, Code.CLAIMS_SECRET, "/claims/task_id")


def test_of_very_many_secrets_as_many_are_told_as_a_person_takes_out_one_by_one() -> None:
    token = "hf_" + "a" * 30
    many = item(details={"run": {f"v{number}": token for number in range(20)}})
    assert [fault.pointer for fault in faults(many)] == [f"/details/run/v{number}" for number in range(16)]


def test_the_same_result_twice_in_a_batch_is_refused_also_in_another_spelling() -> None:
    two = {"metrics": [{"metric_id": "a", "value": 1}, {"metric_id": "b", "value": 2.0}]}
    swapped = {"metrics": [{"metric_id": "b", "value": 2}, {"metric_id": "a", "value": 1.0}]}
    twice = batch(
        item(claims=make.claims(**two)),
        item(),
        item(claims=make.claims(**swapped), details={"notes": "no tools", "date": None}),
    )
    assert refusal(twice, "batch") == (422, Code.CLAIMS_DUPLICATE_METRIC, "/results/2")


def test_results_that_differ_only_in_model_or_details_are_two() -> None:
    other = item(claims=make.claims(model_repo="acme/other"))
    assert len(read(batch(item(), other, item(details={})), "batch").submissions) == 3


# -- how much -----------------------------------------------------------------------------------------------------------

# What a claim of one metric has: the claims, seven members, a metric with two of its own, a framework's two.
VALUES_OF_CLAIMS = len(RunClaims.__struct_fields__) + 1 + 3 + 2


def artifacts(count: int, each: str = "0") -> str:
    """Return details of this many values."""
    return f'{{"artifacts":[{",".join([each] * (count - 2))}]}}'


@pytest.mark.parametrize("each", ["0", "0.5", '"a,b[{"', "[ ]", "{\n}", "null", '"\\""'])
def test_a_result_has_2000_values_and_not_one_more(each: str) -> None:
    said = json.dumps(make.claims(framework={"name": "a", "version": "1"}))
    left = MAX_VALUES - VALUES_OF_CLAIMS
    for values in (left, left + 1):
        one = f'{{"claims":{said},"details":{artifacts(values, each)}}}'
        many = f'{{"results":[{json.dumps(item())},{one}]}}'
        if values > left:
            assert refusal(one.encode()) == (422, Code.DETAILS_INVALID, "/details")
            assert refusal(many.encode(), "batch") == (422, Code.DETAILS_INVALID, "/results/1/details")
        elif each != "null":  # which has no canonical form in a list
            assert len(read(many.encode(), "batch").submissions) == 2
            assert read(one.encode()).submissions[0].details
    (fault,) = faults(f'{{"claims":{said},"details":{artifacts(MAX_VALUES, each)}}}'.encode())
    assert "2000 JSON values" in fault.detail
    assert "URL" in fault.detail, "and says what to do"


def test_a_result_of_a_batch_is_as_large_as_a_body_of_its_own_at_most() -> None:
    rest = len('{"notes":""}') + len(json.dumps(make.claims()))
    for size in (MAX_BYTES["single"] - rest, MAX_BYTES["single"] - rest + 1):
        large = f'{{"claims":{json.dumps(make.claims())},"details":{{"notes":"{"a" * size}"}}}}'
        raw = f'{{"results":[{json.dumps(item(claims=make.claims(task_id="another")))},{large}]}}'.encode()
        if size + rest > MAX_BYTES["single"]:
            assert refusal(raw, "batch") == (413, Code.REQUEST_TOO_LARGE, "/results/1")
        else:
            assert len(read(raw, "batch").submissions) == 2


def test_a_result_of_a_batch_without_details_is_as_large_as_well() -> None:
    said = json.dumps(make.claims())
    for size in (MAX_BYTES["single"], MAX_BYTES["single"] + 1):
        raw = f'{{"results":[{{"claims":{said[:-1].ljust(size - 1)}}}}}]}}'.encode()
        if size > MAX_BYTES["single"]:
            assert refusal(raw, "batch") == (413, Code.REQUEST_TOO_LARGE, "/results/0")
        else:
            assert len(read(raw, "batch").submissions) == 1


def test_a_comma_in_a_text_is_no_value_beside_the_last_one() -> None:
    """What is counted quickly counts too many; then claims and details are counted exactly, together."""
    said = json.dumps(make.claims(framework={"name": "a", "version": "1"}))
    details = artifacts(MAX_VALUES - VALUES_OF_CLAIMS).replace("0", '"a,b"', 1)
    assert read(f'{{"claims":{said},"details":{details}}}'.encode()).submissions[0].details
    long = json.dumps(make.claims(framework={"name": "a", "version": "1", "command": "a" + ",b" * 1900}))
    assert read(f'{{"claims":{long},"details":{artifacts(200)}}}'.encode()).submissions[0].details


def test_what_is_too_short_for_2000_values_is_not_counted_and_has_no_more() -> None:
    """Each has a byte, and a comma or brackets: nothing is shorter than a list of digits."""
    claims = f"[{','.join('0' * (MAX_VALUES - 1))}]"
    assert len(claims) + len("0") == 2 * MAX_VALUES
    assert refusal(f'{{"claims":{claims},"details":0}}'.encode()) == (422, Code.DETAILS_INVALID, "/details")
    (fault,) = faults(f'{{"claims":{claims}}}'.encode())
    assert "JSON values" not in fault.detail


def test_claims_with_too_many_values_are_refused_as_such() -> None:
    for values in (MAX_VALUES, MAX_VALUES + 1):
        claims = f'{{"metrics":[{",".join(["{}"] * (values - 2))}]}}'
        (fault, *_) = faults(f'{{"claims":{claims}}}'.encode())
        assert (fault.code, "JSON values" in fault.detail) == (Code.CLAIMS_INVALID, values > MAX_VALUES)
    full = make.claims(metrics=[
        {"metric_id": f"m{number}", "slice": "s", "value": 1, "value_type": "int", "sample_size": 1}
        for number in range(256)
    ])  # fmt: skip
    assert len(read(item(claims=full)).submissions[0].claims.metrics) == 256


@pytest.mark.parametrize("late", ['"a":0,"a":0', '"a":1e400', '"a":"\\u0000"', '"a":' + "[" * 20 + "]" * 20])
def test_what_has_too_many_values_is_not_read(late: str) -> None:
    """The bound comes before the reader, which would find another fault."""
    many = f'{{"run":{{{late}}},"artifacts":[{"0," * MAX_VALUES}0]}}'
    one = f'{{"claims":{json.dumps(make.claims())},"details":{many}}}'
    assert refusal(one.encode()) == (422, Code.DETAILS_INVALID, "/details")


@pytest.mark.parametrize(
    ("old", "new", "code", "pointer", "words"),
    [
        ("]}}]}", "]}}]", Code.REQUEST_MALFORMED, "", "truncated"),
        ('"results":\n', '"results":\n !', Code.REQUEST_MALFORMED, "", "line 2, column 2: "),
        ('"results"', '"other":1,"results"', Code.REQUEST_UNKNOWN_MEMBER, "", "other"),
        ('{"claims"', '{"other":1,"claims"', Code.REQUEST_UNKNOWN_MEMBER, "/results/0", "other"),
        ('"nonce":"', '"nonce":1,"x":"', Code.REQUEST_MALFORMED, "/nonce", "str"),
        ('"nonce"', '"nonce":"n","nonce"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('{"claims"', '{"claims":{},"claims"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('"nonce"', '"nonce":"\\u0022\\u0022\\u0022","nonce"', Code.REQUEST_DUPLICATE_MEMBER, "", "named twice"),
        ('"artifacts":[', '"artifacts":[' + "[" * 60_000, Code.REQUEST_MALFORMED, "", "depth"),
    ],
)
def test_a_large_body_that_is_none_is_refused_with_its_place_and_not_read(
    old: str, new: str, code: Code, pointer: str, words: str
) -> None:
    one = f'{{"claims":{json.dumps(make.claims())},"details":{artifacts(1900)}}}'
    large = f'{{"nonce":"{"n" * 22}","results":\n[{one.replace("gsm8k", "other")},{one}]}}'
    assert len(read(large.encode(), "batch").submissions) == 2
    broken = large.replace(old, new, 1) if old[0] != "]" else large.removesuffix(old) + new
    assert refusal(broken.encode(), "batch") == (400, code, pointer)
    with pytest.raises(Refused) as caught:
        read(broken.encode(), "batch")
    assert words in caught.value.faults[0].detail


@pytest.mark.parametrize(
    ("more", "told", "briefly"),
    [
        (',"Details":{}', (Code.REQUEST_UNKNOWN_MEMBER, "/Details"), (Code.REQUEST_UNKNOWN_MEMBER, "")),
        (',"nonce":"n","nonce":"n"', (Code.REQUEST_DUPLICATE_MEMBER, "/nonce"), (Code.REQUEST_DUPLICATE_MEMBER, "")),
    ],
)
def test_what_is_wrong_with_a_body_is_told_in_full_up_to_2000_values(
    more: str, told: tuple[Code, str], briefly: tuple[Code, str]
) -> None:
    for values, expected in ((MAX_VALUES, told), (MAX_VALUES + 1, briefly)):
        members = 3 + more.count(":")
        raw = f'{{"claims":{{"a":[{",".join("0" * (values - members))}]}}{more}}}'.encode()
        assert count_values(raw, MAX_VALUES) == values
        assert refusal(raw)[1:] == expected


def test_what_is_wrong_with_a_body_is_told_in_full_up_to_the_size_of_a_single_result() -> None:
    for size, pointer in ((MAX_BYTES["single"], "/Results"), (MAX_BYTES["single"] + 1, "")):
        raw = b'{"Results":[]}'.ljust(size)
        assert refusal(raw, "batch") == (400, Code.REQUEST_UNKNOWN_MEMBER, pointer)


def test_a_batch_is_read_in_steps_and_not_beyond_what_is_refused() -> None:
    """So that others have their turn: a step is a part of what one result needs."""
    good = json.dumps(batch(*numbered(MAX_RESULTS))).encode()
    a_result = sum(1 for _ in read_in_steps("batch", good)) // MAX_RESULTS
    assert a_result >= 4
    steps = read_in_steps("batch", json.dumps(batch(*numbered(5), item(details={"date": "x"}), item())).encode())
    with pytest.raises(Refused) as caught:
        list(islice(steps, 6 * a_result))
    assert caught.value.faults[0].pointer == "/results/5/details/date"


# -- two readers ------------------------------------------------------------------------------------------------------

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


@given(
    st.lists(MEMBER, max_size=3),
    NUMBERS,
    st.sampled_from(sorted(MAX_BYTES)),
    st.sampled_from(["", ',"model_repo":"a/b"', ',"x":1']),
)
@example(['"notes":"a"', '"notes":"a"'], "1", "single", "")
@example([f'"run":{{"a":{"[" * 12}1{"]" * 12}}}'], "1", "batch", "")
@example(['"run":{"a":9007199254740993}'], "1", "batch", "")
def test_a_body_is_read_alike_by_both_readers(members: list[str], number: str, kind: Kind, more: str) -> None:
    def text(word: str) -> bytes:
        """Return the body; the quick reader leaves any escape of that kind to the strict one."""
        said = json.dumps(make.claims())[:-1].replace("20.9", number) + more + "}"
        one = f'"claims":{said},"details":{{{",".join(members)}}}'
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


@pytest.mark.parametrize(
    ("once", "twice", "pointer"),
    [
        ('"notes": "no tools"', '"notes": "x", "notes": "no tools"', "/details/notes"),
        ('"notes": "no tools"', '"notes": "no tools", "n\\u006ftes": "no tools"', "/details/notes"),
        ('"notes": "no tools"', '"run": {"a": 1, "a": 1}', "/details/run/a"),
        ('"task_id": "gsm8k"', '"task_id": "gsm8k", "task_id": "gsm8k"', "/claims/task_id"),
        ('"value": 20.9', '"value": 1, "value": 20.9', "/claims/metrics/0/value"),
        ('"details":', '"details": {}, "details":', "/details"),
    ],
)
def test_a_member_that_is_named_twice_in_an_else_good_body_is_refused(once: str, twice: str, pointer: str) -> None:
    one = json.dumps(item())
    read(one.encode())
    assert refusal(one.replace(once, twice).encode()) == (400, Code.REQUEST_DUPLICATE_MEMBER, pointer)
    many = json.dumps(batch(*numbered(2), item()))
    assert refusal(many.replace(once, twice).encode(), "batch")[:2] == (400, Code.REQUEST_DUPLICATE_MEMBER)


def test_a_body_that_is_one_byte_too_large_is_refused_by_both_readers() -> None:
    for kind, limit in MAX_BYTES.items():
        plain = json.dumps(batch(item()) if kind == "batch" else item()).encode()
        read_request(kind, plain + b" " * (limit - len(plain)))
        assert refusal(plain + b" " * (limit - len(plain) + 1), kind)[0] == 400


# -- anything ---------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=50) | st.text('{}[]":,claimsdetails01e \\u', max_size=50).map(str.encode))
def test_any_bytes_are_refused_in_a_declared_way(raw: bytes) -> None:
    for kind in MAX_BYTES:
        with pytest.raises(Refused) as caught:
            read_request(kind, raw)
        assert caught.value.code.meaning.status == 400


@given(st.dictionaries(
    st.sampled_from(["claims", "details", "results", "nonce", "integration", "audience", "claims_digest"]) | st.text(max_size=9),
    st.none() | st.integers(0, 3) | st.text(max_size=3) | st.just(make.claims()) | st.just([item()]) | st.just({"run": {"a": 1}}),
))  # fmt: skip
def test_any_members_are_a_body_or_a_refusal(value: dict[str, Any]) -> None:
    for kind in MAX_BYTES:
        try:
            read(value, kind)
        except Refused as refusal:
            assert refusal.code.meaning.status in {400, 422}  # noqa: PT017


def test_what_is_wrong_with_a_large_batch_as_a_whole_is_told_briefly() -> None:
    """Its names and texts are not read once more for the error's place: that would be one step of 50 ms."""
    raw = b'{"results":[{"claims":{}}],"' + b"\\u0041" * 12_000 + b'":1}'
    with pytest.raises(Refused) as caught:
        read_request("batch", raw)
    assert caught.value.code is Code.REQUEST_UNKNOWN_MEMBER
    assert caught.value.faults[0].detail.startswith("Object contains unknown field")
