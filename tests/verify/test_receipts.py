"""Receipts: a year-old file stays verified by a genuine receipt, and by no other one."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.formats import jcs, jose
from issuer.verify import fail_shared_jti
from issuer.verify.receipts import RECEIPT_TYPE, file_name, read_receipt, token_digest, write_receipt
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make, reports
from tests.support.reports import SOON

ITEM = make.submission({"notes": "no tools"})
TOKEN = make.token_for(ITEM)
FILE = make.file_for(ITEM)
LATER = make.NOW + make.YEAR
RECEIPT_KEYS = make.key_set(make.RECEIPT_KEY)
# A year later the key has retired: only the archive knows it.
TRUST = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive())
RETIRED = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(), keys=make.key_set(make.STRANGER))


def judge(
    receipt: str | bytes | None = None, *, text: str = FILE, trust: Trust = RETIRED, at: int = LATER, **known: Any
) -> Report:
    """Judge the file as a party that received it a year later and may have a receipt; or as `known` says."""
    held = receipt.decode() if isinstance(receipt, bytes) else receipt
    token = text.partition('verify_token: "')[2].partition('"')[0]
    receipts = {} if held is None else {token_digest(token): held}
    return reports.judge(text, trust, at=at, **{"now": LATER, "witnessed": True, "receipts": receipts, **known})


def in_time(text: str = FILE) -> Report:
    """Judge the file as a party that received it in time."""
    return judge(text=text, trust=TRUST, at=SOON, now=SOON)


def receipt_of(report: Report) -> bytes:
    written = write_receipt(report, TRUST, make.RECEIPT_KEY, SOON)
    assert written is not None
    return written


RECEIPT = receipt_of(in_time())
SAYS: dict[str, Any] = dict(msgspec.json.decode(make.payload_by_joserfc(RECEIPT.decode(), make.RECEIPT_KEY)))


def altered(*, header: Mapping[str, Any] | None = None, key: Any = make.RECEIPT_KEY, **payload: Any) -> str:
    """Sign the receipt anew with other members, as only the holder of the key could."""
    members = make.without_dots({**SAYS, **payload})
    return make.signed(header or make.statement_header(RECEIPT_TYPE, key), jcs.canonical(members), key)


def evidence(report: Report, number: int = 5) -> str:
    return report.checks[number - 1].evidence


# -- what is written ----------------------------------------------------------------------------------------------------


def test_a_receipt_says_what_was_seen_and_is_signed_by_the_receipt_key() -> None:
    assert file_name(token_digest(TOKEN)) == f"{token_digest(TOKEN)[7:]}.jwt"
    assert len(file_name(token_digest(TOKEN))) == 68
    assert jose.parse_compact(RECEIPT.decode()).header == make.statement_header("eval-receipt+jwt", make.RECEIPT_KEY)
    assert {
        "ver": 1, "repo": make.REPO, "path": make.PATH, "token": token_digest(TOKEN), "jti": make.JTI,
        "content_digest": ITEM.content_digest, "at": make.NOW + 5, "kid": make.KID, "trust": TRUST.digest,
        "checks": {str(n): "pass" if n < 10 else "skip" for n in range(1, 12)}, "iat": make.NOW + 5,
    } == SAYS  # fmt: skip
    assert read_receipt(RECEIPT.decode(), RECEIPT_KEYS).at == make.NOW + 5


def test_an_unverified_entry_a_stated_time_or_a_receipt_makes_no_receipt() -> None:
    good = in_time()
    assert good.verdict == "verified"
    unverified = judge(text=FILE[: FILE.index("  verify_token")], trust=TRUST)
    for report in (judge(trust=TRUST), judge(trust=make.trust(keys=None)), unverified, fail_shared_jti(good, "x")):
        assert report.verdict != "verified"
        assert write_receipt(report, TRUST, make.RECEIPT_KEY, make.NOW) is None
    stated = judge(trust=TRUST, at=make.NOW + 5, now=LATER, witnessed=False)
    assert (stated.verdict, stated.at_from) == ("verified", "stated")
    assert write_receipt(stated, TRUST, make.RECEIPT_KEY, LATER) is None
    served = judge(RECEIPT)
    assert (served.verdict, served.at_from) == ("verified", "receipt")
    assert write_receipt(served, TRUST, make.RECEIPT_KEY, LATER) is None


def test_a_key_that_is_not_listed_or_signs_tokens_writes_no_receipt() -> None:
    report = in_time()
    both = make.trust(receipt_keys=make.key_set(make.KEY, make.RECEIPT_KEY))
    archived = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(make.RECEIPT_KEY))
    cases = [(TRUST, make.STRANGER, "not listed"), (both, make.KEY, "signs tokens"), (archived, make.RECEIPT_KEY, "signs tokens"),
             (make.trust(), make.RECEIPT_KEY, "not listed"), (make.trust(receipt_keys=None), make.RECEIPT_KEY, "not listed")]  # fmt: skip
    for trust, key, words in cases:
        with pytest.raises(SetupError, match=words) as caught:
            write_receipt(report, trust, key, make.NOW)
        assert caught.value.code is Code.KEY_UNUSABLE
    listed = {"keys": [{**jose.public_jwk(make.RECEIPT_KEY.public_key()), "kid": "receipts-2026"}]}
    trust = make.trust(receipt_keys=jose.parse_key_set(msgspec.json.encode(listed)))
    with pytest.raises(SetupError, match="under its RFC 7638 thumbprint"):
        write_receipt(report, trust, make.RECEIPT_KEY, make.NOW)


# -- a year later ---------------------------------------------------------------------------------------------------------


def test_a_year_old_file_is_verified_by_its_receipt_and_by_nothing_less() -> None:
    report = judge(RECEIPT)
    assert (report.verdict, report.at, report.at_from) == ("verified", make.NOW + 5, "receipt")
    assert [check.status for check in report.checks[:9]] == [Status.PASS] * 9
    assert "from the archive" in evidence(report, 2)
    assert "by a receipt" in evidence(report)
    assert judge(RECEIPT.decode() + "\n").verdict == "verified"
    assert judge(RECEIPT, at=0, witnessed=False).verdict == "verified", "a receipt outranks a stated time"
    without = judge()
    assert (without.verdict, without.failed, without.at) == ("failed", (2,), LATER)
    published = judge(trust=TRUST)
    assert (published.failed, published.at_from) == ((5,), "clock")
    assert evidence(published) == "expired 399 d 23 h before the time it is judged at"


def test_every_other_check_runs_again() -> None:
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, digest="sha256:" + "8" * 64)).verdict == "verified"
    assert judge(RECEIPT, text=FILE.replace("no tools", "tools")).failed == (9,)
    assert judge(RECEIPT, text=FILE.replace("value: 20.9", "value: 21")).failed == (8, 9)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, audience="other")).failed == (4,)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, max_token_life_s=3599)).failed == (5,)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, require=frozenset({"attempt"}))).failed == (4,)
    listed = make.revocations(jti=[make.JTI], iat=LATER, next_update=LATER)
    report = judge(RECEIPT, trust=make.trust(receipt_keys=RECEIPT_KEYS, revocations=listed))
    assert (report.failed, evidence(report)) == ((5,), "the issuer has revoked this jti")


# -- not ours, not this one -----------------------------------------------------------------------------------------------


def test_a_receipt_for_another_entry_is_not_usable_and_the_report_says_why() -> None:
    checks, digest = SAYS["checks"], "sha256:" + "0" * 64
    assert judge(altered(), trust=TRUST).verdict == "verified"
    for member, value, words in (
        ("repo", "acme/other", "another repository"), ("path", ".eval_results/hle.yaml", "another file"), ("token", digest, "another token"),
        ("jti", jose.base64url_encode(b"j" * 16), "another jti"), ("content_digest", digest, "another entry"), ("kid", "x", "another key"),
        ("at", make.NOW + 100, "later than its time of writing"), ("iat", LATER + 61, "in the future"),
        ("checks", {**checks, "9": "fail"}, "not verified"), ("checks", {**checks, "5": "unknown"}, "not verified"),
        ("checks", {**checks, "1": "skip"}, "not verified"), ("checks", {"1": "pass"}, "every check"),
        ("checks", {**checks, "12": "pass"}, "every check"), ("checks", {**checks, "1": "good"}, "invalid enum"), ("ver", 2, "invalid enum"),
        ("extra", 1, "not known"), ("iat", ..., "missing required"), ("iat", "5", "expected a whole number"),
        ("at", True, "expected a whole number"), ("at", 2**40, "<= "), ("trust", ..., "missing required"),
    ):  # fmt: skip
        payload: dict[str, Any] = {member: value}
        report = judge(altered(**payload), trust=TRUST)
        assert report.failed == (5,), (member, value)
        assert "is not usable" in evidence(report)
        assert words in evidence(report)


def test_a_receipt_may_be_a_minute_ahead_of_both_clocks_and_has_at_most_16_kib() -> None:
    for altered_ in (altered(iat=LATER + 60), altered(iat=SAYS["at"] - 60)):
        assert judge(altered_, trust=TRUST).verdict == "verified"
    assert judge(altered(iat=SAYS["at"] - 61), trust=TRUST).failed == (5,)
    for size, words in ((16 * 1024, "1 segments"), (16 * 1024 + 1, "longer than 16384")):
        with pytest.raises(FormatError, match=words):
            read_receipt("x" * size, jose.KeySet({}, 0))


def test_another_entry_s_genuine_receipt_does_not_serve() -> None:
    other = make.file_for(make.submission({"notes": "other"}), jti=jose.base64url_encode(b"j" * 16))
    theirs = receipt_of(in_time(other))
    report = judge(theirs, trust=TRUST)
    assert report.failed == (5,)
    assert "it is for another token" in evidence(report)
    moved = judge(RECEIPT, trust=TRUST, repo="acme/other")
    assert moved.failed == (5, 6)
    assert "it is for another repository" in evidence(moved)


def test_a_text_that_no_receipt_key_signed_as_a_receipt_is_not_usable() -> None:
    good = make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY)
    headers: list[dict[str, Any]] = [
        {"typ": "eval-verify+jwt"}, {"typ": "JWT"}, {"alg": "none"}, {"crit": ["b64"], "b64": False}, {"kid": ...}, {"alg": ["EdDSA"]}, {"kid": 5},
    ]  # fmt: skip
    text, (head, payload, signature) = RECEIPT.decode(), RECEIPT.decode().split(".")
    texts = [altered(header=make.without_dots({**good, **header})) for header in headers]
    texts += [make.signed(good, raw, make.RECEIPT_KEY) for raw in (b'"x"', b"\xff")]
    texts += [altered(key=make.STRANGER), altered(key=make.KEY), TOKEN, f"{head}.{payload}.{'A' * len(signature)}"]
    for bad in (*texts, text[:-2] + "AA", text + "=", "", "x", "é", "..", text * 20):
        report = judge(bad, trust=TRUST)
        assert report.failed == (5,), bad
        assert "the receipt at hand is not usable" in evidence(report)
    assert judge("junk", trust=TRUST, at=SOON, now=SOON).verdict == "verified", "it hurts no token that is still fresh"


def test_a_receipt_without_listed_keys_is_no_evidence_or_undecided() -> None:
    none = judge(RECEIPT, trust=make.trust())
    assert (none.failed, "lists no receipt keys" in evidence(none)) == ((5,), True)
    report = judge(RECEIPT, trust=make.trust(receipt_keys=None))
    assert (report.verdict, report.checks[4].status) == ("undecided", Status.UNKNOWN)
    retired = judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, receipt_keys=None))
    assert (retired.verdict, reports.numbers(retired, Status.UNKNOWN)) == ("undecided", [2, 3])


# -- a revoked key --------------------------------------------------------------------------------------------------------


def revoked_from(moment: int) -> Trust:
    return make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(revoked_from=moment))


def test_only_a_receipt_from_before_the_revocation_keeps_the_result_good() -> None:
    assert judge(RECEIPT, trust=revoked_from(make.NOW + 6)).verdict == "verified"
    for moment in (make.NOW + 5, make.NOW + 4, 0):
        report = judge(RECEIPT, trust=revoked_from(moment))
        assert report.failed == (5,)
        assert "neither a receipt nor a witness" in evidence(report)
    late = altered(iat=make.NOW + 1000)
    assert judge(late, trust=TRUST).verdict == "verified"
    assert judge(late, trust=revoked_from(make.NOW + 500)).failed == (5,), "written later, about an earlier time"
    for witnessed in (False, True):  # neither a time of issue nor a stated one
        report = judge(trust=revoked_from(make.NOW + 1_000), at=SOON, now=SOON, witnessed=witnessed)
        assert report.failed == (5,)
        assert "revoked from" in evidence(report)


# -- anything -------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=50) | st.binary(max_size=40).map(jose.base64url_encode).map(lambda s: f"{s}.{s}.{s}"))
def test_any_text_is_a_receipt_or_an_input_error(text: str) -> None:
    with pytest.raises(FormatError):
        read_receipt(text, RECEIPT_KEYS)
    assert judge(text, trust=TRUST).failed == (5,)
