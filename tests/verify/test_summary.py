"""The counts of a run over many files: what counts as what, and that they stay bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entry
from issuer.verify.summary import MAX_NAMES, NOT_SIGNED, OTHERS, Summary, SummaryKey, tally
from issuer.verify.trust import Trust
from tests.support.make import ISSUER, NOW, PATH, REPO, file_for, submission, trust

GOOD = file_for(submission())
BARE = "\n".join(line for line in GOOD.splitlines() if "verify_token" not in line) + "\n"


def of(text: str, by: Trust | None = None, at: int = NOW) -> SummaryKey:
    (entry,) = read_entries(text.encode(), "r.yaml")
    return tally(verify_entry(entry, REPO, PATH, by or trust(), at, Context(NOW)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, SummaryKey(ISSUER, "inspect-ai", "verified", "", "verified")),
        (GOOD.replace("20.9", "21.9"), SummaryKey(ISSUER, "inspect-ai", "failed", "check 8, metrics", "refuted")),
        (GOOD + "  value: 20.9\n", SummaryKey(ISSUER, "inspect-ai", "undecided", "check 8, metrics", "undecided")),
        (BARE, SummaryKey(NOT_SIGNED, NOT_SIGNED, "unverified", "no token", "self-reported")),
        (GOOD.replace('verify_token: "e', 'verify_token: "f'), SummaryKey(NOT_SIGNED, NOT_SIGNED, "failed", "check 1, well-formed token", "undecided")),
    ],
)  # fmt: skip
def test_a_report_counts_by_issuer_framework_verdict_and_first_reason(text: str, expected: SummaryKey) -> None:
    assert of(text) == expected


def test_what_is_not_signed_counts_for_no_issuer_and_no_framework() -> None:
    assert of(GOOD.replace('"inspect-ai"', '"other"')).framework == "inspect-ai", "the token's, not the file's"
    assert of(GOOD, trust(issuer="https://other.example")).issuer == NOT_SIGNED


def test_reasons_do_not_vary_from_entry_to_entry() -> None:
    assert of(GOOD.replace("20.9", "21.9")) == of(GOOD.replace("20.9", "3.5"))
    assert of(GOOD, at=NOW + 10**6).reason == of(GOOD, at=NOW + 10**7).reason


def test_counts_add_up_and_can_be_corrected() -> None:
    summary = Summary()
    good, bad = of(GOOD), of(GOOD.replace("20.9", "21.9"))
    summary.add(3, [(good, 5), (bad, 2)], ["file.syntax"])
    summary.add(1, [(good, 1)], [])
    assert (summary.files, summary.entries, summary.findings) == (4, 8, 1)
    assert summary.verdicts == {"verified": 6, "failed": 2}
    assert summary.by_reason == {"check 8, metrics": 2, "file.syntax": 1}
    for _ in range(6):
        summary.recount(good, bad)
    assert (summary.entries, summary.verdicts) == (8, {"failed": 8})
    assert summary.by_issuer == {ISSUER: Counter({"failed": 8})}


def test_names_that_anybody_may_choose_do_not_make_it_grow() -> None:
    summary = Summary()
    summary.add(
        1,
        [(SummaryKey(f"i{number}", f"f{number}", "failed", "x", "undecided"), 1) for number in range(3 * MAX_NAMES)],
        [],
    )
    assert len(summary.by_issuer) == len(summary.by_framework) == MAX_NAMES + 1
    assert summary.by_issuer[OTHERS] == summary.by_framework[OTHERS] == {"failed": 2 * MAX_NAMES}
