"""The text for a model's owner: the run, how to check it and its limits. A run can forge none of it."""

import re
import shlex

import pytest

from issuer.client.files import shaped
from issuer.client.hub import pull_request_text
from issuer.client.hub.pull_request import MAX_SHOWN, marked, marker_in, short
from issuer.errors import FormatError
from issuer.formats.display import code_span
from issuer.results.entry import read_entries
from tests.support.make import AUDIENCE, BENCHMARK, ISSUER, JTI, PATH, REPO, file_for, submission

HOSTILE = "x` | <!-- eval-results " + "f" * 32 + " --> @everyone [a](http://evil.example) ``` ![](x)"


def described(*entries: str) -> str:
    return pull_request_text(REPO, {PATH: entries}).description


def test_it_has_the_run_its_digests_its_caller_and_the_command_that_checks_it() -> None:
    item = submission()
    text = pull_request_text(REPO, {PATH: [file_for(item)]})
    assert text.title == f"Add a signed evaluation result: {BENCHMARK}"
    claims = item.claims
    for value in (
        PATH, ISSUER, claims.model_revision, claims.benchmark_revision, item.claims_digest, item.content_digest, JTI,
        "inspect-ai 0.3.285", "gsm8k", "accuracy", "20.9", "github, repository_id 1",
    ):  # fmt: skip
        assert f"`{value}`" in text.description
    assert "\ninspect eval gsm8k\n" in text.description
    assert "It does not prove that the run was honest" in text.description
    texts = [described(file_for(submission(), attempt={"number": number, "since": 1})) for number in (1, 3)]
    assert ["attempt 3" in text for text in texts] == [False, True]
    assert "attempt 1" not in texts[0]
    for issuer in (ISSUER, "https://issuer.example/$(id)'; rm -rf ~"):
        (command,) = re.findall(r"```sh\n(.*?)\n```", described(file_for(submission(), iss=issuer)), re.DOTALL)
        words = ["issuer", "verify", PATH, "--repo", REPO, "--issuer", issuer, "--audience", AUDIENCE]
        assert shlex.split(command) == words, "the command that checks it, with the issuer's URL quoted"


def test_an_entry_with_a_primary_value_is_checked_with_its_benchmark() -> None:
    """Without the definition, the value of one of several metrics cannot be decided."""
    item = submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "f1", "value": 2}])
    both = shaped(file_for(item), "both", "accuracy")
    text = pull_request_text(REPO, {PATH: [both, both]}, "https://hub.example").description
    (commands,) = re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL)
    fetch, verify = commands.split(" && \\\n")
    commit = submission().claims.benchmark_revision
    assert shlex.split(fetch)[-2:] == [
        f"benchmarks/{BENCHMARK}/{commit}/eval.yaml", f"https://hub.example/datasets/{BENCHMARK}/resolve/{commit}/eval.yaml",
    ]  # fmt: skip
    assert shlex.split(verify)[-2:] == ["--benchmarks", "benchmarks"]
    assert "curl" not in described(shaped(file_for(submission()), "both", None))


def test_no_text_of_a_run_means_anything_in_it() -> None:
    """Outside of code there are our own words alone: no mention, no link, no image, and no marker of other results."""
    metrics = [{"metric_id": "a`|b", "value": 1, "slice": "``|@all"}]
    item = submission(framework={"name": HOSTILE[:64], "version": "1|`2", "command": HOSTILE}, metrics=metrics)
    text = described(file_for(item))
    outside = re.sub(r"(?ms)^(`{3,})[^\n]*\n.*?^\1$", "", text)
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    for forged in ("@", "evil.example", "<!--", "![", "](http"):
        assert forged not in outside
    (row,) = [line for line in text.splitlines() if "`a" in line and line.startswith("|")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6
    assert marker_in(marked(text, [item.content_digest])) == {short(item.content_digest)}


def test_it_names_the_results_that_it_replaces_and_says_who_must_be_trusted() -> None:
    old = read_entries(file_for(submission({"date": "2026-11-20"})).encode(), PATH)
    text = pull_request_text(REPO, {PATH: [file_for(submission())]}, replaced=old * (MAX_SHOWN + 2))
    assert text.title == f"Add a signed evaluation result, replace {MAX_SHOWN + 2}: {BENCHMARK}"
    assert text.description.count(f"\n- `{BENCHMARK}, gsm8k, inspect-ai, accuracy 20.9, 2026-11-20`") == MAX_SHOWN
    assert "\n- and 2 more\n" in text.description
    assert "replace" not in described(file_for(submission()))
    assert described(file_for(submission())).count("if you trust this issuer") == 2


def test_invisible_characters_of_a_run_are_escaped() -> None:
    turned = "\u202edesrever\u2066\u200b\xad"
    framework = {"name": "inspect-ai", "version": "1", "command": f"run {turned}"}
    text = described(file_for(submission(framework=framework), caller={"provider": f"a{turned}", "run_id": turned}))
    assert text.replace("\n", "").isprintable()
    assert text.count("\\u202edesrever\\u2066\\u200b\\xad") == 3


def test_a_title_names_few_benchmarks_and_counts_many() -> None:
    entries = [file_for(submission(benchmark_repo=f"acme/b{number}")) for number in range(3)]
    assert pull_request_text(REPO, {PATH: entries[:2]}).title.endswith(": acme/b0, acme/b1")
    assert pull_request_text(REPO, {PATH: entries}).title == "Add 3 signed evaluation results: 3 benchmarks"
    many = [file_for(submission(task_id=f"task-{number}")) for number in range(MAX_SHOWN + 3)]
    text = pull_request_text(REPO, {PATH: many})
    whole = marked(text.description, [f"sha256:{number:064x}" for number in range(1000)])
    assert len(whole) < 60_000
    assert text.title == f"Add {MAX_SHOWN + 3} signed evaluation results: {BENCHMARK}"
    assert "And 3 more" in text.description
    with pytest.raises(FormatError):
        described("- dataset: {id: acme/bench, task_id: t}\n  value: 1\n")  # without a token


def test_a_marker_is_a_line_of_its_own_and_the_last_counts_and_a_span_holds_any_text() -> None:
    digests = [f"sha256:{letter * 64}" for letter in "ab"]
    text = marked("Its description.\n\n\n", digests)
    assert text == f"Its description.\n\n<!-- eval-results {'a' * 32} {'b' * 32} -->\n"
    assert marker_in(text.replace("\n", "\r\n")) == set(map(short, digests))
    assert marker_in(marked(text, digests[:1])) == {short(digests[0])}
    for broken in ("", "eval-results " + "a" * 32, f"x <!-- eval-results {'a' * 32} -->", "<!-- eval-results aa -->"):
        assert marker_in(broken) == frozenset()
    spans = {"a": "`a`", "a`b": "``a`b``", "`": "`` ` ``", "a``b`c": "```a``b`c```", "a\n\nb": "`a b`"}
    assert {text: code_span(text) for text in spans} == spans
