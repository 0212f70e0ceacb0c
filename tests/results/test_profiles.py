"""Entries of each profile, read back by our reader and by today's huggingface_hub, with the same digest."""

import contextlib
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError, InputError
from issuer.formats import jcs
from issuer.results.entry import Profile, claims_of, content_digest, default_profile, write_entry
from tests.support import make
from tests.support.result_texts import FREE, NUMBER, TEXT, read_one
from tests.support.shared import examples

EASY = {"metric_id": "accuracy", "slice": "easy", "value": 99}
METRICS = [{"metric_id": "accuracy", "value": 20.9}, EASY, {"metric_id": "pass_at_5", "value": 3e-7, "sample_size": 5}]
BOTH: tuple[Profile, Profile] = ("both", "hub")  # the profiles with `value`
SAID = make.submission(
    {"date": "2026-11-21T09:00:00Z", "notes": "no-tools", "run": {"seed": 1},
     "source": {"url": "https://a.example/x", "name": "Logs", "user": "u", "org": "o"}},
    metrics=METRICS,
)  # fmt: skip
TOKEN = make.token_for(SAID)


def same(one: Any, other: Any) -> bool:
    return jcs.canonical(one) == jcs.canonical(other)


def test_each_profile_has_the_value_and_the_token_as_its_readers_know_them() -> None:
    entry = read_one(write_entry(SAID.form, TOKEN))
    assert (entry.token, entry.token_members, bool(entry.value)) == (TOKEN, ("verify_token",), False)
    entry = read_one(write_entry(SAID.form, TOKEN, profile="both", primary="accuracy"))
    assert (entry.token, entry.token_members) == (TOKEN, ("verify_token", "verifyToken"))
    assert (entry.value, content_digest(entry.form)) == (20.9, SAID.content_digest)
    (item,) = yaml.safe_load(write_entry(SAID.form, TOKEN, profile="hub", primary="accuracy"))
    assert item.keys() == {"dataset", "value", "date", "source", "notes"}
    assert item["value"] == 20.9
    assert TOKEN not in str(item)


def test_a_profile_with_value_needs_the_primary_score() -> None:
    """A slice of the primary metric is not its score."""
    sliced = make.submission(metrics=METRICS[1:]).form
    for profile in BOTH:
        for form, primary in ((SAID.form, None), (SAID.form, "f1"), (sliced, "accuracy")):
            with pytest.raises(FormatError) as caught:
                write_entry(form, TOKEN, profile=profile, primary=primary)
            assert (caught.value.code, caught.value.pointer) == (Code.FILE_RULE, "/metrics")


SCORE, SLICED, OTHER = ("accuracy", ""), ("accuracy", "easy"), ("f1", "")
DEFAULTS: list[tuple[list[tuple[str, str]], str | None, str, str]] = [
    ([SCORE], None, "both", "the only metric is accuracy"),
    ([SCORE, SLICED], None, "both", "the only metric is accuracy"),
    ([SCORE, OTHER], "f1", "both", "the primary metric is f1"),
    ([SCORE, OTHER], None, "target", "the primary metric is unknown"),
    ([SLICED], None, "target", "the primary metric is unknown"),
    ([SLICED, OTHER], None, "target", "the primary metric is unknown"),
    ([SCORE], "f1", "target", "it has no score of the primary metric, f1"),
    ([SLICED], "accuracy", "target", "it has no score of the primary metric, accuracy"),
]


def test_both_is_the_default_if_the_score_of_the_primary_metric_is_known() -> None:
    for pairs, named, profile, why in DEFAULTS:
        metrics = [{"metric_id": name, "value": 1, **({"slice": part} if part else {})} for name, part in pairs]
        assert default_profile(make.submission(metrics=metrics).form, named) == (profile, why), (pairs, named)


def test_today_s_huggingface_hub_reads_what_both_and_hub_write_and_not_the_target() -> None:
    for profile in BOTH:
        text = write_entry(SAID.form, TOKEN, profile=profile, primary="accuracy")
        (entry,) = parse_eval_result_entries(yaml.safe_load(text))
        assert (entry.dataset_id, entry.task_id, entry.value) == (make.BENCHMARK, "gsm8k", 20.9)
        assert entry.dataset_revision == SAID.claims.benchmark_revision
        assert entry.verify_token == (TOKEN if profile == "both" else None)
        assert (entry.date, entry.notes) == ("2026-11-21T09:00:00Z", "no-tools")
        source = (entry.source_url, entry.source_name, entry.source_user, entry.source_org)
        assert source == ("https://a.example/x", "Logs", "u", "o")
    with pytest.raises(KeyError, match="value"):
        parse_eval_result_entries(yaml.safe_load(write_entry(SAID.form, TOKEN)))


def test_an_entry_that_huggingface_hub_skips_or_cannot_read_is_refused() -> None:
    form = {name: value for name, value in SAID.form.items() if name != "source"}
    good = write_entry(form, TOKEN, profile="both", primary="accuracy")
    assert len(parse_eval_result_entries(yaml.safe_load(good))) == len([read_one(good)])
    for member in ("error: null", "data: null", "data: {a: null}", "data: {dataset: {id: a/b, task_id: t}, value: 1}",
                   "source: {user: u}", "source: {url: null, org: o}"):  # fmt: skip
        text, theirs = f"{good}  {member}\n", []
        with contextlib.suppress(AttributeError, KeyError, ValueError):
            theirs = [entry.dataset_id for entry in parse_eval_result_entries(yaml.safe_load(text))]
        assert theirs in ([], ["a/b"]), "not this entry"
        with pytest.raises(InputError) as caught:
            read_one(text)
        assert (caught.value.code, caught.value.place.line) == (Code.FILE_RULE, len(text.splitlines())), member


@examples(60)
@given(
    FREE, st.dictionaries(TEXT.filter(lambda name: name not in {"value", "verify_token", "verifyToken", "data", "error"}), NUMBER, max_size=2),
    st.sampled_from([None, "a.b.c"]), st.sampled_from(["target", "both"]),
)  # fmt: skip
def test_what_is_read_is_written_again_as_it_was(run: Any, unknown: Any, token: str | None, profile: Any) -> None:
    """Unknown members are kept and bound, like all others: parse(write(x)) == x."""
    form = {**unknown, **SAID.form, "run": run, "x-unknown": {"run": run}}
    entry = read_one(write_entry(form, token, profile=profile, primary="accuracy"))
    assert same(entry.form, form)
    assert content_digest(entry.form) == content_digest(form)
    assert claims_of(entry, make.REPO).digest == SAID.claims_digest
    assert entry.token == token
    assert read_one(entry.rewritten()) == entry
    assert entry.rewritten() == write_entry(entry.form, token, profile=profile, primary="accuracy")


def test_the_three_shapes_in_the_wild_are_read_and_written_again() -> None:
    metrics = "metrics: [{metric_id: m, value: 1.5}]"
    for score, token in (("value: 1.5", "verifyToken"), ("value: 1.5", "verify_token"), (metrics, "verify_token")):
        entry = read_one(f"- dataset: {{id: a/b, task_id: t}}\n  {score}\n  {token}: x.y.z\n")
        assert (entry.token, entry.metrics is None) == ("x.y.z", score != metrics)
        assert read_one(entry.rewritten()) == entry


def test_details_are_typed_and_their_unknown_parts_bound() -> None:
    text = write_entry(SAID.form)
    entry = read_one(text)
    assert entry.details.source
    assert (entry.details.source.org, entry.details.run, entry.details.notes) == ("o", {"seed": 1}, "no-tools")
    assert content_digest(read_one(text.replace('org: "o"', 'orgs: "o"')).form) != content_digest(entry.form)
    for member in ("source: x", "source: {url: 1}", "run: []", "artifacts: x", "notes: 1", "date: 5"):
        with pytest.raises(InputError) as caught:
            read_one(f"- dataset: {{id: a/b}}\n  {member}\n")
        assert (caught.value.code, caught.value.place.line) == (Code.FILE_SCHEMA, 2)
