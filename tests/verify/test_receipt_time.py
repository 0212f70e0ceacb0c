"""When a file was received: now, at a stated time, by a receipt, or at an unknown time. Checks 2 and 5, and the verdict."""

from itertools import product
from typing import Any

from msgspec import UNSET

from issuer.verify.check_token import GOOD_WHEN_ISSUED
from issuer.verify.receipts import token_digest, write_receipt
from issuer.verify.report import Report, Status
from issuer.verify.summary import reason_of
from issuer.verify.trust import Trust
from tests.support import make, reports
from tests.support.reports import SOON, outcome

ITEM = make.submission()
TOKEN = make.token_for(ITEM)
FILE = make.file_for(ITEM)
END = make.NOW + 3600
LATER = make.NOW + make.YEAR
RECEIPT_KEYS = make.key_set(make.RECEIPT_KEY)


def judge(trust: Trust | None = None, *, text: str = FILE, **known: Any) -> Report:
    """Judge the file as a reader does a year later, or as `known` says."""
    return reports.judge(text, trust, **{"at": None, "now": LATER, **known})


def test_a_reader_of_an_old_file_learns_that_it_was_good_when_issued() -> None:
    report = judge()
    assert (report.verdict, report.reason) == ("good_when_issued", GOOD_WHEN_ISSUED)
    assert (report.at_from, report.at) == ("unknown", LATER)
    assert outcome(report, 5) == (Status.UNKNOWN, f"{GOOD_WHEN_ISSUED}: it expired 399 d 23 h ago")
    assert [check.status for check in report.checks[:9] if check.number != 5] == [Status.PASS] * 8
    assert reason_of(report) == GOOD_WHEN_ISSUED


def test_a_file_that_is_received_past_the_token_s_end_fails() -> None:
    for at, witnessed in ((LATER, True), (LATER, False), (END + 1, True), (END + 1, False)):
        report = judge(at=at, witnessed=witnessed)
        assert (report.failed, report.reason) == ((5,), "")
    assert judge(at=END, witnessed=True).verdict == judge(at=END).verdict == "verified"


def test_a_reader_s_report_is_verified_before_the_end_or_fails_for_other_reasons() -> None:
    report = judge(now=END)
    assert (report.verdict, report.at_from, report.reason) == ("verified", "unknown", "")
    assert "judged 1 h after issue" in report.checks[4].evidence
    assert judge(now=END + 1).verdict == "good_when_issued"
    assert judge(now=make.NOW - 60).verdict == "verified"
    assert judge(now=make.NOW - 61).failed == (5,)
    for trust in (
        make.trust(life_s=3599),
        make.trust(revocations=make.revocations(jti=[make.JTI], iat=LATER, next_update=LATER)),
        make.trust(revocations=make.revocations(sub=[{"sub": "inspect-ai", "from": 0}])),
        make.trust(archive=make.archive(revoked_from=LATER)),
    ):
        assert judge(trust).failed == (5,)
    forged = judge(text=FILE.replace("20.9", "21.9"))
    assert (forged.verdict, forged.failed, forged.reason) == ("failed", (8, 9), "")


def test_a_report_is_undecided_where_something_else_is_missing_too() -> None:
    for trust in (make.trust(revocations=None), make.trust(revocations=make.revocations()), make.trust(archive=None)):
        report = judge(trust)
        assert (report.verdict, report.reason) == ("undecided", "")
        assert GOOD_WHEN_ISSUED not in report.checks[4].evidence
    both = judge(text=make.two_metrics())
    assert (both.verdict, both.reason) == ("undecided", "")


def test_for_a_reader_a_retired_key_s_window_is_checked_at_issue() -> None:
    gone = make.key_set(make.STRANGER)
    late = judge(make.trust(keys=gone, archive=make.archive()))
    assert (late.verdict, late.checks[1].status) == ("undecided", Status.UNKNOWN)
    assert judge(make.trust(keys=gone, archive=make.archive(active_from=make.NOW + 1))).failed == (2,)
    assert judge(make.trust(keys=gone, archive=make.archive(last_token_exp=make.NOW - 1))).failed == (2,)


def test_a_revoked_key_that_is_gone_fails_whenever_the_file_came() -> None:
    """The time of receipt is unknown, and only a receipt would count."""
    for last_token_exp in (LATER, LATER - make.YEAR):
        archive = make.archive(revoked_from=make.NOW + 9, last_token_exp=last_token_exp)
        known: dict[str, Any] = {"keys": make.key_set(make.STRANGER), "archive": archive}
        for at, witnessed in ((None, False), (SOON, True), (LATER, False), (LATER, True)):
            report = judge(make.trust(**known), at=at, witnessed=witnessed)
            assert (report.failed, "is revoked from" in report.checks[4].evidence) == ((5,), True)
        forged = judge(make.trust(**known), text=FILE[:-8] + 'AAAAAA"\n')
        assert forged.failed == (3,)
        unsure = judge(make.trust(receipt_keys=None, **known), receipts={token_digest(TOKEN): "x.y.z"})
        assert unsure.verdict == "undecided"


def test_a_receipt_without_an_archive_is_undecided() -> None:
    then = make.trust(receipt_keys=RECEIPT_KEYS)
    receipt = write_receipt(judge(then, at=SOON, now=SOON, witnessed=True), then, make.RECEIPT_KEY, SOON)
    assert receipt is not None
    held = {token_digest(TOKEN): receipt.decode()}
    gone = make.key_set(make.STRANGER)
    for archive, receipt_keys in product((None, UNSET), (RECEIPT_KEYS, None)):
        rotated = make.trust(receipt_keys=receipt_keys, keys=gone, archive=archive)
        for at, witnessed in ((None, False), (LATER, False), (LATER, True)):
            report = judge(rotated, at=at, witnessed=witnessed, receipts=held)
            assert (report.verdict, report.checks[1].status) == ("undecided", Status.UNKNOWN)
            assert "archive" in report.checks[1].evidence
    archived = make.trust(receipt_keys=RECEIPT_KEYS, keys=gone, archive=make.archive())
    assert judge(archived, receipts=held).verdict == "verified"
    for now in (SOON, LATER):  # a reader's verified report becomes a receipt, and an undecided one does not
        assert (write_receipt(judge(then, now=now), then, make.RECEIPT_KEY, now) is not None) == (now < END)
