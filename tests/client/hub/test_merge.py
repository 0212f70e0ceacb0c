"""Entries merged into a result file of main: one's own is replaced by its scores, and all else stays."""

import random
from typing import Any

import pytest

from issuer.client.hub import FileAt, merge_entries
from issuer.codes import Code
from issuer.errors import InputError
from issuer.results.entry import Profile, write_entry
from tests.support.make import BENCHMARK, NOW, PATH, file_for, submission, token_for

NEW = file_for(submission({"date": "2026-11-23"}))
OTHER = file_for(submission(task_id="other", metrics=[{"metric_id": "accuracy", "value": 0.5}]))
HARD = file_for(submission(metrics=[{"metric_id": "accuracy", "value": 0.5, "slice": "hard"}]))


def on_main(text: str) -> FileAt:
    return FileAt("acme/open-model", PATH, "0123456789" * 4, text)


def merged(before: str, *entries: str) -> str:
    return merge_entries(on_main(before), PATH, entries).decode()


def test_an_entry_of_another_task_or_other_slices_is_appended() -> None:
    assert merge_entries(None, PATH, [NEW, OTHER]).decode() == NEW + OTHER
    assert merged("", NEW) == merged("[]\n", NEW) == NEW
    for there in (OTHER, HARD):
        assert merged(there, NEW) == there + NEW
    windows = OTHER.replace("\n", "\r\n")
    assert merged(windows, NEW) == windows + NEW.replace("\n", "\r\n")


LOWER: dict[str, Any] = {"metrics": [{"metric_id": "accuracy", "value": 0.25}]}


def test_an_entry_replaces_its_integration_s_one_of_the_same_scores_alone() -> None:
    first, *rest = file_for(submission(**LOWER)).splitlines(keepends=True)
    old = f"""# The scores of acme/open-model.
- dataset: {{id: cais/hle, task_id: default}}   # not ours
  value: 20.9
-   {first[2:]}{"".join(f"  {line}" for line in rest)}# Below: harder ones.
{HARD}# The end.
"""
    after = merged(old, NEW)
    indented = "".join(f"{line}\n" for line in NEW.splitlines())
    start, end = old.index("-   dataset"), old.index("# Below")
    assert after == old[:start] + indented + old[end:]


def test_an_existing_entry_changes_nothing_and_a_newer_token_replaces_the_old() -> None:
    item = submission()
    profiles: tuple[Profile, ...] = ("target", "both")
    for profile in profiles:
        mine, newer = (
            write_entry(item.form, token, profile=profile, primary="accuracy")
            for token in (token_for(item), token_for(item, iat=NOW + 1, nbf=NOW + 1))
        )
        before = f"# One.\n{mine}# Two.\n{OTHER}"
        assert merged(before, mine) == before
        assert merged(before, newer) == before.replace(mine, newer)
        assert merged(write_entry(item.form), mine) == mine, "an unsigned entry gets the token"


def test_every_entry_that_may_be_another_party_s_stays() -> None:
    lm_eval, ours = {"framework": {"name": "lm-eval", "version": "0.4.13"}}, file_for(submission(**LOWER))
    for theirs in (
        file_for(submission(**LOWER), sub="theirs"), file_for(submission(**LOWER), iss="https://other.example"),
        file_for(submission(**LOWER, **lm_eval)), write_entry(submission(**LOWER).form),
        write_entry(submission(**LOWER).form, "a.b"), f"- dataset: {{id: {BENCHMARK}, task_id: gsm8k}}\n  value: 0.25\n",
        file_for(submission({"date": "2026-11-23"}), sub="theirs"),
    ):  # fmt: skip
        assert merged(theirs, NEW) == theirs + NEW, theirs
        assert merged(theirs + ours, NEW) == theirs + NEW, theirs
    unsigned = write_entry(submission(**LOWER).form)
    assert merged(unsigned, write_entry(submission().form)) == unsigned + write_entry(submission().form)
    assert merged(NEW + ours, NEW) == NEW + ours, "the same content goes first"
    with pytest.raises(InputError) as refused:
        merged(ours + ours.replace("0.25", "0.26"), NEW)
    assert refused.value.code is Code.RESULT_REPEATED
    assert str(refused.value.place) == f"acme/open-model/{PATH}@0123456:{len(ours.splitlines()) + 1}:3"


def reproduction(sub: str, value: float = 20.9, **terms: Any) -> str:
    item = submission(
        {"run": {"reproduces": "sha256:" + "5" * 64}},
        framework={"name": "lm-eval", "version": "0.4.13"},
        metrics=[{"metric_id": "accuracy", "value": value}],
    )
    return file_for(item, sub=sub, **terms)


def test_another_party_s_reproduction_stays_and_one_s_own_is_replaced() -> None:
    """Also if both are of one framework and have the same scores: each signature is evidence."""
    theirs, mine = reproduction("theirs"), reproduction("mine")
    assert merged(NEW + theirs, mine) == NEW + theirs + mine
    assert merged(NEW + theirs + mine, reproduction("mine", 21)) == NEW + theirs + reproduction("mine", 21)
    newer = reproduction("mine", iat=NOW + 1, nbf=NOW + 1)
    assert merged(theirs + mine, newer) == theirs + newer
    assert merged(theirs + mine, mine) == theirs + mine
    elsewhere = reproduction("mine", iss="https://other.example")
    assert merged(elsewhere, mine) == elsewhere + mine, "an integration's name is its issuer's"
    assert merged(theirs + mine, NEW) == theirs + mine + NEW
    bare = "".join(line for line in mine.splitlines(keepends=True) if "verify_token" not in line)
    for token in ("", '  verify_token: "a.b"\n', '  verify_token: "e30.W10.e30"\n'):
        assert merged(NEW + bare + token, mine) == NEW + mine, "the same content gets the token"
        there = NEW + bare.replace("20.9", "21.0") + token
        assert merged(there, mine) == there + mine, "one without a known signer stays"


def test_two_results_for_one_place_and_other_files_are_refused() -> None:
    with pytest.raises(InputError, match=f"two results are for {BENCHMARK}, task gsm8k") as refused:
        merge_entries(None, PATH, [NEW, OTHER, file_for(submission())])
    assert refused.value.code is Code.RESULT_REPEATED
    for text in ("name: no list\n", "- just: text\n", "- [\n", "<!doctype html>\n"):
        with pytest.raises(InputError) as refused:
            merged(text, NEW)
        assert refused.value.place.file == f"acme/open-model/{PATH}@0123456"


def test_hundreds_of_entries_are_merged_in_linear_time() -> None:
    """One reading of the file for each entry would take longer than the test may."""
    olds, news, added = (
        [file_for(submission(task_id=f"{name}{task}", **terms)) for task in range(150)]
        for name, terms in (("t", LOWER), ("t", {}), ("a", {}))
    )
    order = random.Random(1).sample(news, len(news))
    assert merged("".join(olds), *order, *added) == "".join([*news, *added])
