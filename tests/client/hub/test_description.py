"""What the owner of a model reads: what was run, how to check it, what that proves; and nothing that a run can forge."""

from __future__ import annotations

import re
import shlex

import pytest

from issuer.client.files import shaped
from issuer.client.hub import pull_request_text
from issuer.client.hub.pull_request import MAX_SHOWN, marked, marker_in, short
from issuer.errors import FormatError
from issuer.formats.display import code_span
from tests.support.make import AUDIENCE, BENCHMARK, ISSUER, JTI, PATH, REPO, file_for, submission

HOSTILE = "x` | <!-- eval-results " + "f" * 32 + " --> @everyone [a](http://evil.example) ``` ![](x)"


def described(*entries: str) -> str:
    return pull_request_text(REPO, {PATH: entries}).description


def test_it_says_what_was_run_with_the_digests_and_who_asked() -> None:
    item = submission()
    said = pull_request_text(REPO, {PATH: [file_for(item)]})
    assert said.title == f"Add a signed evaluation result: {BENCHMARK}"
    claims = item.claims
    for text in (
        PATH, ISSUER, claims.model_revision, claims.benchmark_revision, item.claims_digest, item.content_digest, JTI,
        "inspect-ai 0.3.285", "gsm8k", "accuracy", "20.9", "github, repository_id 1",
    ):  # fmt: skip
        assert f"`{text}`" in said.description
    assert "\ninspect eval gsm8k\n" in said.description
    assert "It does not prove that the run was honest" in said.description


def test_it_has_the_command_that_checks_it() -> None:
    (command,) = re.findall(r"```sh\n(.*?)\n```", described(file_for(submission())), re.DOTALL)
    assert shlex.split(command) == [
        "issuer", "verify", PATH, "--repo", REPO, "--issuer", ISSUER, "--audience", AUDIENCE,
    ]  # fmt: skip


def test_an_entry_whose_value_is_the_primary_metric_s_is_checked_with_its_benchmark() -> None:
    """Without the definition that value can be explained by nobody, and the answer is that it could not be decided."""
    both = shaped(file_for(submission()), "both", "accuracy")
    said = pull_request_text(REPO, {PATH: [both, both]}, "https://hub.example").description
    (commands,) = re.findall(r"```sh\n(.*?)\n```", said, re.DOTALL)
    fetch, verify = commands.split(" && \\\n")
    commit = submission().claims.benchmark_revision
    assert shlex.split(fetch)[-2:] == [
        f"benchmarks/{BENCHMARK}/{commit}/eval.yaml", f"https://hub.example/datasets/{BENCHMARK}/resolve/{commit}/eval.yaml",
    ]  # fmt: skip
    assert shlex.split(verify)[-2:] == ["--benchmarks", "benchmarks"]


def test_an_issuer_s_url_cannot_add_to_the_command() -> None:
    entry = file_for(submission(), iss="https://issuer.example/$(id)'; rm -rf ~")
    (command,) = re.findall(r"```sh\n(.*?)\n```", described(entry), re.DOTALL)
    assert shlex.split(command)[6] == "https://issuer.example/$(id)'; rm -rf ~"


def test_a_run_that_was_signed_with_other_values_before_is_said() -> None:
    said = [described(file_for(submission(), attempt={"number": number, "since": 1})) for number in (1, 3)]
    assert ["attempt 3" in text for text in said] == [False, True]
    assert "attempt 1" not in said[0]


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


@pytest.mark.long
def test_two_hundred_results_fit_into_a_description() -> None:
    entries = [file_for(submission(task_id=f"task-{number}")) for number in range(200)]
    said = pull_request_text(REPO, {PATH: entries})
    whole = marked(said.description, [f"sha256:{number:064x}" for number in range(1000)])
    assert len(whole) < 60_000
    assert said.title == f"Add 200 signed evaluation results: {BENCHMARK}"
    assert f"And {200 - MAX_SHOWN} more" in said.description


def test_a_title_names_few_benchmarks_and_counts_many() -> None:
    entries = [file_for(submission(benchmark_repo=f"acme/b{number}")) for number in range(3)]
    assert pull_request_text(REPO, {PATH: entries[:2]}).title.endswith(": acme/b0, acme/b1")
    assert pull_request_text(REPO, {PATH: entries}).title == "Add 3 signed evaluation results: 3 benchmarks"


def test_what_has_no_token_is_not_described() -> None:
    with pytest.raises(FormatError):
        described("- dataset: {id: acme/bench, task_id: t}\n  value: 1\n")


@pytest.mark.parametrize(
    ("text", "span"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a``b`c", "```a``b`c```"), ("a\n\nb", "`a b`")],
)
def test_code_spans_hold_every_text(text: str, span: str) -> None:
    assert code_span(text) == span


def test_a_marker_is_a_line_of_its_own_and_the_last_one_counts() -> None:
    digests = [f"sha256:{letter * 64}" for letter in "ab"]
    text = marked("What it is.\n\n\n", digests)
    assert text == f"What it is.\n\n<!-- eval-results {'a' * 32} {'b' * 32} -->\n"
    assert marker_in(text.replace("\n", "\r\n")) == set(map(short, digests))
    assert marker_in(marked(text, digests[:1])) == {short(digests[0])}
    for broken in ("", "eval-results " + "a" * 32, f"x <!-- eval-results {'a' * 32} -->", "<!-- eval-results aa -->"):
        assert marker_in(broken) == frozenset()
