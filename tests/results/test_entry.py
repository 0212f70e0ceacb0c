"""Entries: the target form and its digest, written text that every reader reads alike, details and files."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Refused
from issuer.formats import jcs
from issuer.results import emit
from issuer.results.details import read_details
from issuer.results.entry import (
    content_digest,
    drop_nulls,
    read_entries,
    result_file_name,
    target_entry,
    target_form,
    write_entry,
)
from tests.support import make
from tests.support.result_texts import DETAILS, FREE, NUMBER, read_one
from tests.support.shared import examples, hub_files

SAID = make.submission({"date": "2026-11-21T09:00:00Z", "notes": "no tools", "source": {"url": "https://a.example/x"}})


def refusal(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_entries(text.encode(), "f.yaml")
    return caught.value


def test_nulls_are_dropped_from_maps_bottom_up_and_nothing_else_is() -> None:
    forms: list[tuple[Any, Any]] = [
        ({"a": None, "b": 1}, {"b": 1}), ({"a": {"b": None}}, None), ({"a": {"b": None}, "c": 1}, {"c": 1}),
        ({"a": {"b": {"c": None}, "d": None}, "e": 0}, {"e": 0}), ({"a": {}}, {"a": {}}), ({"a": []}, {"a": []}),
        ({"a": {"b": {}, "c": None}}, {"a": {"b": {}}}), ({"a": [{}]}, {"a": [{}]}), ({"a": [{"b": None, "c": 1}]}, {"a": [{"c": 1}]}),
        ({"a": [[], [{"b": [0, False, ""]}]]}, {"a": [[], [{"b": [0, False, ""]}]]}), ({}, {}), (None, None),
    ]  # fmt: skip
    assert [drop_nulls(value) for value, _ in forms] == [form for _, form in forms]
    in_lists: list[tuple[Any, str]] = [
        ({"a": [None]}, "/a/0"), ({"a": [1, {"b": None}]}, "/a/1"), ({"a": [1, {"b": {"c": None}}]}, "/a/1"),
        ({"a/b": {"~": [[], [0, None]]}}, "/a~1b/~0/1/1"),
    ]  # fmt: skip
    for value, pointer in in_lists:  # without a canonical form
        with pytest.raises(FormatError) as caught:
            drop_nulls(value)
        assert (caught.value.code, caught.value.pointer) == (Code.FILE_RULE, pointer)


def test_the_target_form_leaves_out_token_members_and_value_and_sorts_metrics() -> None:
    first = {"metric_id": "a", "value": 1}
    metrics = [first, {**first, "slice": "B"}, {"metric_id": "b", "value": 3}]
    inside = {"value": 1, "verify_token": "x", "verifyToken": "y"}
    plain: dict[str, Any] = {"dataset": {"id": "a/b"}, "metrics": metrics, "run": inside, "unknown": {"x": 1}}
    dressed = {**plain, "metrics": metrics[::-1], "value": 1, "verify_token": "t", "verifyToken": "t", "date": None}
    assert target_form(dressed) == plain


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [path]
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for name, item in parts for leaf in leaves(item, (*path, name))]


RICH = make.submission(
    {"date": "2026-11-21", "source": {"url": "https://a.example", "name": "n", "user": "u", "org": "o"}, "notes": "no tools",
     "run": {"seed": 1, "deep": {"a": [1, {"b": True}]}}, "artifacts": [{"url": "x"}], "runtime_context": {"gpu": "H100"},
     "benchmark_subset": "s", "normalization": {"scale": 0.5}},
    metrics=[{"metric_id": "a", "value": 1, "slice": "s", "value_type": "int", "sample_size": 10}, {"metric_id": "b", "value": 2.5}],
)  # fmt: skip


def test_the_content_digest_changes_with_every_member() -> None:
    for path in leaves(json.loads(jcs.canonical(RICH.form))):
        for change in ("set", "drop", "add"):
            form = json.loads(jcs.canonical(RICH.form))
            part = form
            for name in path[:-1]:
                part = part[name]
            if change == "set":
                part[path[-1]] = "changed"
            elif change == "drop":
                del part[path[-1]]
            elif isinstance(part, dict):
                part["added"] = 0
            else:
                part.append(0)
            assert content_digest(form) != RICH.content_digest, (path, change)


@examples(120)
@given(DETAILS, NUMBER)
@example({"run": {"\U0001f600": 1, "\ufb33": 2, "yes": True, "y": 0, "1": 1, "a b": -0.0}}, 1e-7)
@example({"artifacts": [[[]], [{}], {}, [[{"a": [1]}]]]}, 5e-324)
@example({"run": {"K" * 900: 1}}, 2**53 - 1)
def test_a_written_entry_has_its_digest_and_is_read_alike_by_real_readers(details: Any, value: float) -> None:
    said = make.submission(details, metrics=[{"metric_id": "m", "value": value}])
    text = make.file_for(said)
    entry = read_one(text)
    assert content_digest(entry.form) == said.content_digest
    assert entry.token == make.token_for(said)
    assert entry.metrics[0].value == value
    assert jcs.canonical(entry.form) == jcs.canonical(said.form)
    for (item,) in (yaml.safe_load(text), YAML(typ="safe", pure=True).load(text)):
        assert jcs.canonical(target_form(item)) == jcs.canonical(said.form)


PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=9)
METRIC = st.fixed_dictionaries(
    {"metric_id": PRINTABLE, "value": NUMBER},
    optional={"slice": PRINTABLE, "sample_size": st.integers(1, 2**53 - 1), "value_type": st.sampled_from(["float", "percentage"])},
)  # fmt: skip
FRAMEWORK = st.fixed_dictionaries(
    {"name": PRINTABLE, "version": PRINTABLE},
    optional={"command": PRINTABLE | st.sampled_from(["é \u2028", "😀", '"\\', " "])},
)


METRICS = st.lists(METRIC, min_size=1, max_size=4, unique_by=lambda m: (m["metric_id"], m.get("slice")))
TWO = [{"metric_id": "m", "value": 1e-7}, {"metric_id": "m", "value": 20.0, "slice": "s"}]


@given(DETAILS, METRICS, FRAMEWORK, PRINTABLE)
@example({}, TWO, {"name": '"', "version": "\\"}, '"')
def test_a_submission_is_bound_and_written_as_its_form_is(
    details: Any, metrics: Any, framework: Any, task: str
) -> None:
    said = make.submission(details, metrics=metrics, framework=framework, task_id=task)
    assert said.form == target_entry(said.claims, said.details)
    assert said.content_digest == content_digest(said.form)
    assert said.claims_digest == jcs.digest(said.claims.to_json())
    assert said.entry("T.o-k_en") == write_entry(said.form, "T.o-k_en")


NESTED = st.recursive(st.just(""), lambda inner: st.lists(inner, min_size=1, max_size=2), max_leaves=9)


@given(FREE | NESTED.map(lambda it: {"a": it}))
@example({"a": "\x7f" * 2000})
@example({"a": [[[[[[[[1, 1], 1], 1], 1], 1], 1], 1], 1]})
def test_whether_members_fit_is_judged_by_the_byte(members: Any) -> None:
    size = len(emit.below(members).encode()) - 1 if members else 4
    assert emit.fits(members, size) == ""
    assert "longer" in emit.fits(members, size - 1)


def test_an_entry_is_written_as_the_contract_shows() -> None:
    assert (
        write_entry(SAID.form, "T")
        == """- dataset:
    id: "openai/gsm8k"
    task_id: "gsm8k"
    revision: "5503434ddd753f426f4b38109466949a1217c2bb"
  model_revision: "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"
  framework:
    name: "inspect-ai"
    version: "0.3.285"
    command: "inspect eval gsm8k"
  metrics:
    - metric_id: "accuracy"
      value: 20.9
  date: "2026-11-21T09:00:00Z"
  source:
    url: "https://a.example/x"
  notes: "no tools"
  verify_token: "T"
"""
    )


def details_faults(value: Any) -> list[tuple[Code, str]]:
    with pytest.raises(Refused) as caught:
        read_details(value, "/details")
    return [(fault.code, fault.pointer.removeprefix("/details")) for fault in caught.value.faults]


def test_details_that_break_a_rule_are_refused_with_their_pointer() -> None:
    cases: list[tuple[Any, str]] = [
        ({"unknown": 1}, "/unknown"), ({"verify_token": "x"}, "/verify_token"), ({"metrics": []}, "/metrics"),
        ({"date": 20261121}, "/date"), ({"date": ["2026-11-21"]}, "/date"), ({"notes": 1}, "/notes"), ({"run": []}, "/run"),
        ({"run": "x"}, "/run"), ({"artifacts": "x"}, "/artifacts"), ({"benchmark_subset": {}}, "/benchmark_subset"),
        ({"source": "https://a"}, "/source"), ({"source": {"name": "x"}}, "/source"), ({"source": {}}, "/source"),
        ({"source": {"url": "https://a.b", "mail": "x"}}, "/source/mail"), ({"run": {"a": [None]}}, "/run/a/0"),
        ({"run": {"a": [{"b": None}]}}, "/run/a/0"), ([], ""), (None, ""), ("x", ""),
        ({"run": {"K" * 999: 1}}, ""), ({"run": {"a": [{"\x07" * 300: 1}]}}, ""),
        ({"run": {"a": [[[1]] * 20_000] * 3}}, ""), ({"notes": "é" * 300_000}, ""),
    ]  # fmt: skip
    wrong = [details for details, pointer in cases if details_faults(details) != [(Code.DETAILS_INVALID, pointer)]]
    assert wrong == []
    two = [(Code.DETAILS_INVALID, "/date"), (Code.DETAILS_INVALID, "/source/url")]
    assert details_faults({"date": "x", "source": {"url": "x"}}) == two, "all at once"
    assert read_details({"date": None, "source": {"url": None}}) == read_details({}) == {}


def test_a_date_is_an_iso_date() -> None:
    times = ("", "T09:00Z", "T09:00:00Z", "T09:00:00.123456789+01:00")
    dates = ["2024-02-29", *(f"2026-11-21{time}" for time in times)]
    assert [read_details({"date": date}) for date in dates] == [{"date": date} for date in dates]
    for date in (
        "", "today", "2026-02-30", "2026-13-01", "2023-02-29", "26-01-01", "2026-1-1", "20261121", "2026-W01-1", "2026-11-21 09:00",
        "2026-11-21T25:00Z", "2026-11-21T09:00:00Z\n", "2026-11-21T09:00:00 Z", "２０２６-11-21", "2026-11-21T09", "0000-01-01",
    ):  # fmt: skip
        assert details_faults({"date": date}) == [(Code.DETAILS_INVALID, "/date")]


def test_a_source_has_an_absolute_web_address() -> None:
    urls = ["https://a", "http://a.example:8080/x?y=z#w", "HTTPS://A.example", "https://[::1]/", "https://a/%20b(c)'*"]
    assert [read_details({"source": {"url": url}}) for url in urls] == [{"source": {"url": url}} for url in urls]
    for url in (
        "", "a.example", "/x", "//a.example/x", "ftp://a", "javascript:alert(1)", "file:///etc/passwd", "https://", "https:///x",
        "https://u:p@a/", "https://@a/", "https://a:99999/", "https://[a/", "https://é.example", "https://a/\nx", "https://a\\.b/", "https://a/<x>",
    ):  # fmt: skip
        assert details_faults({"source": {"url": url}}) == [(Code.DETAILS_INVALID, "/source/url")]


def test_a_file_that_breaks_a_rule_is_refused_at_its_line() -> None:
    for text in ("dataset: {id: a/b}", '"text"', "- text", "- {}"):
        assert (refusal(text).code, refusal(text).place.line) == (Code.FILE_SCHEMA, 1)
    for text, code, line in [
        ("- dataset: {}", Code.FILE_SCHEMA, 2),
        ("  model_revision: 36190055", Code.FILE_SCHEMA, 2),
        ("  metrics: {metric_id: a, value: 1}", Code.FILE_SCHEMA, 2),
        *(
            (f"  metrics:\n  - {{metric_id: a{value}}}", Code.FILE_SCHEMA, 3)
            for value in ("", ', value: "1"', ", value: true")
        ),
        ("  value: text", Code.FILE_SCHEMA, 2),
        ("  verify_token: 5", Code.FILE_SCHEMA, 2),
        ("  run:\n    x:\n    - null", Code.FILE_RULE, 4),
        ("  verify_token: x\n  verifyToken: y", Code.FILE_RULE, 3),
        *(
            (f"  {dated}", Code.FILE_SCALAR, 2)
            for dated in ("date: 2026-11-21 10:00", "date: {2026-11-21: x}", "run: {date: 2026-11-21}")
        ),
    ]:
        error = refusal(f"- dataset: {{id: a}}\n{text}")
        assert (error.code, error.place.line) == (code, line), text


def test_two_equal_spellings_of_the_token_are_one_and_a_bare_date_is_its_text() -> None:
    assert refusal("- dataset: {id: a}\n  model_revision: 36190055").detail.endswith("put it in double quotes")
    assert read_one("- dataset: {id: a}\n  verify_token: x\n  verifyToken: x").token == "x"
    assert read_one("- dataset: {id: a}\n  verifyToken: x").token == "x"
    assert read_one("- dataset: {id: a}\n  verify_token: null").token is None
    bare, quoted = (read_one(f"- dataset: {{id: a}}\n  date: {date}") for date in ("2026-11-21", '"2026-11-21"'))
    assert content_digest(bare.form) == content_digest(quoted.form)


def test_a_file_is_named_after_its_benchmark_and_has_at_most_1000_entries() -> None:
    for repo, name in {"cais/hle": "hle", "TIGER-Lab/MMLU-Pro": "mmlu_pro", "a/b.c-D_e": "b.c_d_e"}.items():
        assert result_file_name(repo) == f".eval_results/{name}.yaml"
    assert len(read_entries(b"- dataset: {id: a}\n" * 1000, "f")) == 1000
    assert refusal("- dataset: {id: a}\n" * 1001).place.line == 1001
    metrics = "".join(f"\n  - {{metric_id: m{index}, value: 1}}" for index in range(257))
    assert refusal(f"- dataset: {{id: a}}\n  metrics:{metrics}").code is Code.FILE_SCHEMA
    assert read_entries(b"[]", "f") == ()
    entries = read_entries((make.file_for(SAID) + make.file_for(RICH)).encode(), "f.yaml")
    assert [content_digest(entry.form) for entry in entries] == [SAID.content_digest, RICH.content_digest]
    assert [entry.pointer for entry in entries] == ["/0", "/1"]


def test_real_files_are_read_as_other_readers_do_or_refused_at_a_place() -> None:
    for path in hub_files("result", "eval_results_yaml"):
        try:
            entries = read_entries(path.read_bytes(), path.name)
        except InputError as error:
            assert error.place.line > 0  # noqa: PT017
            continue
        theirs = yaml.load(path.read_text(), yaml.BaseLoader)
        assert [entry.dataset.id for entry in entries] == [item["dataset"]["id"] for item in theirs], path
