"""When a file was received: now, at a stated time, by a receipt, or nobody here knows. Checks 2 and 5, and the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entries
from issuer.verify.check_token import GOOD_WHEN_ISSUED
from issuer.verify.receipts import token_digest, write_receipt
from issuer.verify.report import Report, Status
from issuer.verify.summary import reason_of
from issuer.verify.trust import Trust
from tests.support import make

SAID = make.submission()
TOKEN = make.token_for(SAID)
FILE = make.file_for(SAID)
END = make.NOW + 3600
LATER = make.NOW + make.YEAR
RECEIPT_KEYS = make.key_set(make.RECEIPT_KEY)


def judge(
    trust: Trust | None = None,
    *,
    at: int | None = None,
    now: int = LATER,
    witnessed: bool = False,
    text: str = FILE,
    **known: Any,
) -> Report:
    context = Context(now, witnessed=witnessed, **known)
    entries = read_entries(text.encode(), make.PATH)
    (report,) = verify_entries(entries, make.REPO, make.PATH, trust or make.trust(), at, context)
    return report


def of_5(report: Report) -> tuple[Status, str]:
    return report.checks[4].status, report.checks[4].evidence


def test_a_reader_of_an_old_file_is_told_that_it_was_good_when_issued() -> None:
    report = judge()
    assert (report.verdict, report.reason, report.at_from, report.at) == (
        "good_when_issued",
        GOOD_WHEN_ISSUED,
        "unknown",
        LATER,
    )
    assert of_5(report) == (Status.UNKNOWN, f"{GOOD_WHEN_ISSUED}: it expired 399 d 23 h ago")
    assert [check.status for check in report.checks[:9] if check.number != 5] == [Status.PASS] * 8
    assert reason_of(report) == GOOD_WHEN_ISSUED


def test_who_receives_the_file_now_or_says_when_gets_a_no_past_the_end() -> None:
    for at, witnessed in ((LATER, True), (LATER, False), (END + 1, True), (END + 1, False)):
        report = judge(at=at, witnessed=witnessed)
        assert (report.failed, report.reason) == ((5,), "")
    assert judge(at=END, witnessed=True).verdict == judge(at=END).verdict == "verified"


def test_before_the_end_a_reader_needs_to_know_nothing() -> None:
    report = judge(now=END)
    assert (report.verdict, report.at_from, report.reason) == ("verified", "unknown", "")
    assert "judged 1 h after issue" in report.checks[4].evidence
    assert judge(now=END + 1).verdict == "good_when_issued"
    assert judge(now=make.NOW - 60).verdict == "verified"
    assert judge(now=make.NOW - 61).failed == (5,)


def test_a_reader_s_answer_is_a_no_for_every_other_reason() -> None:
    for trust in (
        make.trust(life_s=3599),
        make.trust(revocations=make.revocations(jti=[make.JTI], iat=LATER, next_update=LATER)),
        make.trust(revocations=make.revocations(sub=[{"sub": "inspect-ai", "from": 0}])),
        make.trust(archive=make.archive(revoked_from=LATER)),
    ):
        assert judge(trust).failed == (5,)
    forged = judge(text=FILE.replace("20.9", "21.9"))
    assert (forged.verdict, forged.failed, forged.reason) == ("failed", (8, 9), "")


def test_the_sentence_is_not_said_where_something_else_is_missing_too() -> None:
    for trust in (make.trust(revocations=None), make.trust(revocations=make.revocations()), make.trust(archive=None)):
        report = judge(trust)
        assert (report.verdict, report.reason) == ("undecided", "")
        assert GOOD_WHEN_ISSUED not in report.checks[4].evidence
    both = judge(text=FILE + "  value: 20.9\n")
    assert (both.verdict, both.reason) == ("undecided", "")


def test_a_reader_of_a_file_under_a_retired_key_is_told_the_window() -> None:
    gone = make.key_set(make.STRANGER)
    late = judge(make.trust(keys=gone, archive=make.archive()))
    assert (late.verdict, late.checks[1].status) == ("undecided", Status.UNKNOWN)
    assert judge(make.trust(keys=gone, archive=make.archive(active_from=make.NOW + 1))).failed == (2,)
    assert judge(make.trust(keys=gone, archive=make.archive(last_token_exp=make.NOW - 1))).failed == (2,)


@pytest.mark.parametrize("ended", [0, make.YEAR], ids=["in its window", "past it"])
def test_a_revoked_key_that_is_gone_is_a_no_whenever_the_file_came(ended: int) -> None:
    """Nobody can know when it came, and only a receipt would count."""
    archive = make.archive(revoked_from=make.NOW + 9, last_token_exp=LATER - ended)
    known: dict[str, Any] = {"keys": make.key_set(make.STRANGER), "archive": archive}
    for at, witnessed in ((None, False), (make.NOW + 5, True), (LATER, False), (LATER, True)):
        report = judge(make.trust(**known), at=at, witnessed=witnessed)
        assert (report.failed, "is revoked from" in report.checks[4].evidence) == ((5,), True)
    forged = judge(make.trust(**known), text=make.file_for(SAID)[:-8] + 'AAAAAA"\n')
    assert forged.failed == (3,)
    unsure = judge(make.trust(receipt_keys=None, **known), receipts={token_digest(TOKEN): "x.y.z"})
    assert unsure.verdict == "undecided"


@pytest.mark.parametrize("archive", [None, UNSET], ids=["unavailable", "not asked for"])
@pytest.mark.parametrize("receipt_keys", [RECEIPT_KEYS, None], ids=["", "nor are the receipt keys"])
def test_a_receipt_without_an_archive_is_undecided_and_no_accusation(archive: Any, receipt_keys: Any) -> None:
    then = make.trust(receipt_keys=RECEIPT_KEYS)
    receipt = write_receipt(
        judge(then, at=make.NOW + 5, now=make.NOW + 5, witnessed=True), then, make.RECEIPT_KEY, make.NOW + 5
    )
    assert receipt is not None
    (entry,) = read_entries(FILE.encode(), make.PATH)
    held = {token_digest(str(entry.token)): receipt.decode()}
    gone = make.key_set(make.STRANGER)
    rotated = make.trust(receipt_keys=receipt_keys, keys=gone, archive=archive)
    for at, witnessed in ((None, False), (LATER, False), (LATER, True)):
        report = judge(rotated, at=at, witnessed=witnessed, receipts=held)
        assert (report.verdict, report.checks[1].status) == ("undecided", Status.UNKNOWN)
        assert "archive" in report.checks[1].evidence
    archived = make.trust(receipt_keys=RECEIPT_KEYS, keys=gone, archive=make.archive())
    assert judge(archived, receipts=held).verdict == "verified"


@pytest.mark.parametrize("now", [make.NOW + 5, LATER])
def test_a_reader_s_verified_report_becomes_a_receipt_and_an_undecided_one_does_not(now: int) -> None:
    trust = make.trust(receipt_keys=RECEIPT_KEYS)
    assert (write_receipt(judge(trust, now=now), trust, make.RECEIPT_KEY, now) is not None) == (now < END)
