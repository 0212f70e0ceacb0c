"""The counts of a run over many files: their keys, their sums and their bounds."""

from collections import Counter

from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entry
from issuer.verify.summary import MAX_NAMES, NOT_SIGNED, OTHERS, Summary, SummaryKey, tally
from issuer.verify.trust import Trust
from tests.support.make import ISSUER, NOW, PATH, REPO, file_for, submission, trust, two_metrics

GOOD = file_for(submission())
BARE = "\n".join(line for line in GOOD.splitlines() if "verify_token" not in line) + "\n"


def of(text: str, by: Trust | None = None, at: int = NOW) -> SummaryKey:
    (entry,) = read_entries(text.encode(), "r.yaml")
    return tally(verify_entry(entry, REPO, PATH, by or trust(), at, Context(NOW)))


def test_a_report_counts_by_issuer_framework_verdict_and_first_reason() -> None:
    unsigned, signed = (NOT_SIGNED, NOT_SIGNED), (ISSUER, "inspect-ai")
    for text, expected in (
        (GOOD, SummaryKey(*signed, "verified", "", "verified")),
        (GOOD.replace("20.9", "21.9"), SummaryKey(*signed, "failed", "check 8, metrics", "refuted")),
        (two_metrics(), SummaryKey(*signed, "undecided", "check 8, metrics", "undecided")),
        (BARE, SummaryKey(*unsigned, "unverified", "no token", "self-reported")),
        (GOOD.replace('verify_token: "e', 'verify_token: "f'), SummaryKey(*unsigned, "failed", "check 1, well-formed token", "undecided")),
    ):  # fmt: skip
        assert of(text) == expected
    assert of(GOOD.replace("20.9", "21.9")) == of(GOOD.replace("20.9", "3.5")), "reasons do not vary with the values"
    assert of(GOOD, at=NOW + 10**6).reason == of(GOOD, at=NOW + 10**7).reason
    # An unsigned name counts for no issuer and no framework.
    assert of(GOOD.replace('"inspect-ai"', '"other"')).framework == "inspect-ai", "the token's, not the file's"
    assert of(GOOD, trust(issuer="https://other.example")).issuer == NOT_SIGNED


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


def test_the_number_of_names_is_bounded() -> None:
    summary = Summary()
    names = [SummaryKey(f"i{number}", f"f{number}", "failed", "x", "undecided") for number in range(3 * MAX_NAMES)]
    summary.add(1, [(name, 1) for name in names], [])
    assert len(summary.by_issuer) == len(summary.by_framework) == MAX_NAMES + 1
    assert summary.by_issuer[OTHERS] == summary.by_framework[OTHERS] == {"failed": 2 * MAX_NAMES}
