"""Run claims: every rule of contract section 2, each with its code and pointer."""

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jcs
from issuer.formats.strict_json import loads
from issuer.results.claims import RunClaims, is_repo, read_claims
from tests.support import make
from tests.support.shared import vectors

HEX = "5503434ddd753f426f4b38109466949a1217c2bb"


def faults(value: Any) -> list[tuple[Code, str]]:
    with pytest.raises(Refused) as caught:
        read_claims(value)
    return [(fault.code, fault.pointer) for fault in caught.value.faults]


def read(**members: Any) -> RunClaims:
    return read_claims(make.claims(**members))


def metrics(*items: Any) -> dict[str, Any]:
    return make.claims(metrics=list(items))


def test_every_member_is_required_and_no_other_allowed() -> None:
    values: list[Any] = [None, "", [], {}, 1, True]
    for member in make.claims():
        assert faults(make.claims(**{member: ...})) == [(Code.CLAIMS_INVALID, "")]
        assert {faults(make.claims(**{member: value}))[0][1].startswith(f"/{member}") for value in values} == {True}
    for change, pointer in (
        ({"extra": 1}, "/extra"), ({"verify_token": "x"}, "/verify_token"), ({"Model_repo": "a/b"}, "/Model_repo"),
        ({"metrics": [{"metric_id": "a", "value": 1, "unit": "%"}]}, "/metrics/0/unit"),
        ({"framework": {"name": "a", "version": "1", "url": "x"}}, "/framework/url"),
    ):  # fmt: skip
        assert faults(make.claims(**change)) == [(Code.CLAIMS_INVALID, pointer)]


REPOS = ["a/b", "A1/B-2.c_d", "_a/b_", "o" * 96 + "/" + "n" * 96, "openai/gsm8k", "0/1"]
NO_REPOS = [
    "", "a", "/", "a/", "/b", "a/b/c", "a//b", "a/b ", " a/b", "a/b\n", "a/..", "../b", "a/b..c", "a--b/c", "a/b--c", "a/-b",
    "a/b-", "a/.b", "a/b.", "a/b.git", "ä/b", "a/ｂ", "a/\u0431", "a/b\u200b", "a\x00/b", "a\\b", "o" * 97 + "/b",
    "datasets/a/b", "a/b?", "a/b#", "a/b@c", "https://a/b",
]  # fmt: skip


def test_a_repository_is_owner_and_name_in_ascii_by_the_hubs_rules() -> None:
    for member in ["model_repo", "benchmark_repo"]:
        for name in REPOS:
            assert is_repo(name)
            assert getattr(read(**{member: name}), member) == name
        for name in NO_REPOS:
            assert not is_repo(name)
            assert faults(make.claims(**{member: name})) == [(Code.CLAIMS_INVALID, f"/{member}")]


def test_a_revision_is_a_full_lowercase_commit() -> None:
    for member in ("model_revision", "benchmark_revision"):
        for good in (HEX, HEX + HEX[:24], "0" * 40):
            read(**{member: good})
        digits = (HEX[:39], HEX + "0", HEX[:7], HEX.upper(), HEX + "\n", HEX[:39] + "g", HEX[:39] + "\uff10", "0" * 63)
        for bad in ("main", *digits):
            assert faults(make.claims(**{member: bad})) == [(Code.CLAIMS_REVISION, f"/{member}")]


def test_an_identifier_is_1_to_128_printable_ascii_without_space() -> None:
    def value(place: str, text: Any) -> dict[str, Any]:
        return make.claims(task_id=text) if place == "task_id" else metrics({"metric_id": "m", "value": 1, place: text})

    for place in ("task_id", "metric_id", "slice"):
        for good in ("a", "!" * 128, "~", "gsm8k@v2:0|x", '"'):
            read_claims(value(place, good))
        for bad in ("", "a b", "a" * 129, "é", "a\n", "\x7f", "a\t", "\u00a0", None, 1):
            pointer = "/task_id" if place == "task_id" else f"/metrics/0/{place}"
            assert faults(value(place, bad)) == [(Code.CLAIMS_INVALID, pointer)]


def test_framework_name_and_version_are_1_to_64_printable_ascii() -> None:
    framework = make.claims()["framework"]
    for member in ("name", "version"):
        for good in ("a", " inspect ai ", "~" * 64):
            read(framework={**framework, member: good})
        for bad in ("", "a" * 65, "é", "a\n", "\x7f", None, 1.0):
            found = faults(make.claims(framework={**framework, member: bad}))
            assert found == [(Code.CLAIMS_INVALID, f"/framework/{member}")]
        found = faults(make.claims(framework=make.without_dots({**framework, member: ...})))
        assert found == [(Code.CLAIMS_INVALID, "/framework")]


def test_a_command_is_optional_and_nfc_with_assigned_characters_to_the_issuer() -> None:
    framework = make.claims()["framework"]
    for good in (..., "x", "é 😀 'a b' \\ \"", "c" * 4096, "😀" * 4096):
        read(framework=make.without_dots({**framework, "command": good}))
    only_of_the_issuer = ("e\u0301", "\u212b", "a\u0378", "\U000e0080", "\ufffe")
    for bad in (*only_of_the_issuer, "", "c" * 4097, "a\nb", "a\tb", "\x00", "\x7f", "\x85", None, 1, ["a"]):
        claims = make.claims(framework={**framework, "command": bad})
        assert faults(claims) == [(Code.CLAIMS_INVALID, "/framework/command")]
        if bad in only_of_the_issuer:
            assert read_claims(claims, signed=True).framework.command == bad
    assert read(framework={"name": "a", "version": "1"}).to_json()["framework"] == {"name": "a", "version": "1"}
    assert jcs.canonical(read().to_json()) == jcs.canonical(make.claims())


def test_metrics_are_1_to_256_sorted_bytewise_and_no_pair_is_twice() -> None:
    many = [{"metric_id": f"m{index}", "value": index} for index in range(257)]
    assert len(read(metrics=many[:256]).metrics) == 256
    assert faults(make.claims(metrics=many))[0][1] == "/metrics"
    assert faults(make.claims(metrics=[]))[0][1] == "/metrics"
    pairs = [("B", None), ("a", None), ("a", "!"), ("a", "Z"), ("a", "a"), ("a!", None), ("aa", None), ("b", None)]
    items = [make.without_dots({"metric_id": name, "value": 1, "slice": part or ...}) for name, part in pairs]
    in_order = [(name.encode(), (part or "").encode()) for name, part in pairs]
    assert [metric.pair for metric in read(metrics=items[::-1]).metrics] == in_order
    assert read(metrics=items[::-1]).digest == read(metrics=items[3:] + items[:3]).digest == read(metrics=items).digest
    twice = {"metric_id": "a", "value": 1}, {"metric_id": "b", "value": 1}, {"metric_id": "a", "value": 2}
    assert faults(metrics(*twice)) == [(Code.CLAIMS_DUPLICATE_METRIC, "/metrics/2")]
    read(metrics=[{"metric_id": "a", "value": 1}, {"metric_id": "a", "value": 1, "slice": "x"}])
    sliced = {"metric_id": "a", "slice": "x", "value": 1}
    assert faults(metrics(sliced, {**sliced, "sample_size": 5})) == [(Code.CLAIMS_DUPLICATE_METRIC, "/metrics/1")]


def test_a_metric_value_is_a_number_that_can_be_carried() -> None:
    """Also where no strict reader read it."""
    others: list[Any] = [True, False, "1", None, [1], {}, ...]
    found = [faults(metrics(make.without_dots({"metric_id": "a", "value": value})))[0][0] for value in others]
    assert set(found) == {Code.CLAIMS_INVALID}
    for value in (math.nan, math.inf, -math.inf, 2.0**53, -(2.0**53), 1e16, 1e300, 2**53):
        assert faults(metrics({"metric_id": "a", "value": value})) == [(Code.CLAIMS_NUMBER, "/metrics/0/value")]


def test_every_spelling_of_a_number_has_the_same_digest() -> None:
    def digest(text: str) -> str:
        raw = json.dumps(metrics({"metric_id": "a", "value": 777})).replace("777", text)
        return read_claims(loads(raw.encode(), max_bytes=9999, max_depth=8)).digest

    assert len({digest(text) for text in ("20.90", "20.9", "2.09e1", "209e-1", "20.900000000000000")}) == 1
    assert len({digest(text) for text in ("0", "-0", "-0.0", "0e0", "0.0")}) == 1
    assert len({digest(text) for text in ("20", "20.0", "2e1")}) == 1
    assert digest("20.9") != digest("20.900000000000002")
    assert digest("9007199254740991") != digest("9007199254740990")


def test_value_types_and_sample_sizes_are_checked() -> None:
    for value_type in ("int", "rank"):
        for good in (3, 3.0, 0, -1):
            read(metrics=[{"metric_id": "a", "value": good, "value_type": value_type}])
        found = faults(metrics({"metric_id": "a", "value": 3.5, "value_type": value_type}))
        assert found == [(Code.CLAIMS_INVALID, "/metrics/0/value")]
    for value_type in ("float", "percentage"):
        read(metrics=[{"metric_id": "a", "value": 3.5, "value_type": value_type}])
    for bad in ("", "Int", "bool", None, 1):
        assert faults(metrics({"metric_id": "a", "value": 1, "value_type": bad}))[0][1] == "/metrics/0/value_type"
    read(metrics=[{"metric_id": "a", "value": 1, "sample_size": 1}])
    for size in (0, -1, 1.5, "1", True, None, 2**53):
        assert faults(metrics({"metric_id": "a", "value": 1, "sample_size": size}))[0][1] == "/metrics/0/sample_size"


def test_every_fault_is_reported_with_its_pointer_below_the_given_one() -> None:
    bad = make.claims(model_repo="x", task_id="", model_revision="main", metrics=[{"metric_id": "", "value": 1}])
    with pytest.raises(Refused) as caught:
        read_claims(bad, "/results/3/claims")
    assert caught.value.code is Code.CLAIMS_INVALID
    assert [fault.pointer.removeprefix("/results/3/claims") for fault in caught.value.faults] == [
        "/model_repo", "/model_revision", "/task_id", "/metrics/0/metric_id",
    ]  # fmt: skip


def test_golden_claims_have_the_published_bytes_and_digest() -> None:
    for vector in vectors("golden_core_claims.json"):
        claims = read_claims(vector["claims"])
        raw = jcs.canonical(claims.to_json())
        assert raw.decode() == vector["jcs"]
        assert claims.digest == f"sha256:{vector['sha256']}" == f"sha256:{hashlib.sha256(raw).hexdigest()}"


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**54), 2**54) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*make.claims(), "metric_id", "value", "slice", "name", "version"]), inner),
    max_leaves=10,
))  # fmt: skip
def test_any_json_in_place_of_a_member_is_refused_or_read_back_unchanged(value: Any) -> None:
    for member in make.claims():
        try:
            claims = read_claims(make.claims(**{member: value}))
        except Refused as refusal:
            assert refusal.faults  # noqa: PT017
        else:
            assert read_claims(claims.to_json()) == claims
