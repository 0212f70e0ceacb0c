"""The summary in Markdown of `issuer submit`, as a renderer of GitHub's Markdown reads it."""

import contextlib
import html
import io
import os
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from issuer.adapters import Supplied, read_each
from issuer.cli.token.submit import MAX_BYTES, Output, Summed, render_summary
from issuer.client.build import BuildOptions, build_each
from issuer.client.proposal import InFolder, items_of
from issuer.client.submit import SubmissionPlan
from issuer.token.wire import ShownCheck
from tests.support.submitting import plain_runs

ISSUER = "https://issuer.example"
HOSTILE = r"""a|b\|c`d``e<script>x</script>![i](https://evil.example/p)</details>@acme&amp;"""
MARKDOWN = MarkdownIt("commonmark").enable("table")


def summed(folder: Path, *tasks: str, name: str = "") -> Summed:
    path = plain_runs(folder, *tasks)
    if name:
        path = path.rename(folder / name)
    (runs,) = read_each(path)
    assert isinstance(runs, list | tuple)
    results, failed = build_each(runs, Path(), BuildOptions(Supplied()))
    assert not failed
    items = items_of(results, InFolder(folder / "hub"))
    return Summed(
        ISSUER, items, {item.key: {"fate": "proposed", "pull_request": f"{ISSUER}/discussions/1"} for item in items}
    )


def text_of(cell: str) -> str:
    return html.unescape(re.sub(r"</?code>", "", cell))


def test_no_text_of_a_run_a_policy_or_an_answer_is_markdown(tmp_path: Path) -> None:
    one = summed(tmp_path, HOSTILE, name="x\n| y |\n\n# z <b>.json")
    (item,) = one.items
    check = ShownCheck("policy.task", "/claims/task_id", "rule\n|", False, HOSTILE, "\n\n# w", f"Do {HOSTILE}\n")
    one.checks[item.key] = (check, ShownCheck(HOSTILE, "", "", True, HOSTILE, "", ""))
    written = render_summary(one)
    for row in (line for line in written.splitlines() if line.startswith("|")):
        ends = re.findall(r"(?<!\\)\|", row)
        assert re.findall(r"(?<!\\)((?:\\\\)*)\|", row) == [""] * len(ends), "also where two backslashes are one"
    shown = MARKDOWN.render(written)
    assert set(re.findall(r"<(\w+)", shown)) == {
        "h3", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "a"
    }  # fmt: skip
    assert set(re.findall(r'href="([^"]*)"', shown)) == {f"{ISSUER}/discussions/1"}
    tables = [
        re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL) for body in re.findall(r"<table>(.*?)</table>", shown, re.DOTALL)
    ]
    widths = [{len(re.findall(r"<t[hd]", row)) for row in rows} for rows in tables]
    assert widths == [{6}, {3}, {5}, {2}], "no cell ends early"
    cells = [text_of(cell) for cell in re.findall(r"<td>(.*?)</td>", shown, re.DOTALL)]
    assert cells.count(HOSTILE.replace("\\", "\\\\")) == 5, "and each shows the whole text"
    assert r"x\n| y |\n\n# z <b>.json" in text_of("".join(re.findall(r"<h4>(.*?)</h4>", shown)))
    one.fates = {item.key: {"fate": "proposed", "pull_request": "javascript:alert(1)"}}
    assert "<a" not in MARKDOWN.render(render_summary(one)), "this address is not a link"


def test_the_summary_has_the_claims_their_origins_and_both_digests_and_fits(tmp_path: Path) -> None:
    one = summed(tmp_path, "task-1", "task-2")
    item, other = one.items
    written = render_summary(one)
    assert written.startswith("### Submitted\n")
    for row in (
        "`acme/open-model` | `acme/math` | `task-1` | `acc 0.75` | [proposed](https://issuer.example/discussions/1)",
        "model_repo | `acme/open-model` | run",
        f"claims digest | `{item.said.claims_digest}`",
        f"content digest | `{item.said.content_digest}`",
    ):
        assert f"| {row} |" in written
    one.fates[other.key]["fate"] = "refused"
    for summary in (one, Summed(ISSUER)):
        assert render_summary(summary).startswith("### Not everything was submitted\n")
    written = render_summary(summed(tmp_path, *(f"task-{number}-{'|' * 100}" for number in range(1000))))
    assert len(written.encode()) < MAX_BYTES + 1024, "into a step's summary"
    assert "see the job's log" in written


def test_a_closed_standard_output_prevents_no_report(tmp_path: Path) -> None:
    output, (reader, writer) = Output(ISSUER, as_json=False, verbose=True), os.pipe()
    os.close(reader)
    raw = os.fdopen(writer, "wb", buffering=0)
    stream = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with stream, contextlib.redirect_stdout(stream), pytest.raises(BrokenPipeError):
        output.plan(SubmissionPlan(summed(tmp_path, "task-1", "task-2").items, ()))  # type: ignore[arg-type]
    output.end(tmp_path / "report.json", tmp_path / "summary.md")
    assert (tmp_path / "report.json").read_text().count('"not sent"') == 2
    assert (tmp_path / "summary.md").read_text().count("not sent") == 2
