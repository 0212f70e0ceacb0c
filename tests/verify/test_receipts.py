"""Receipts: a year-old file stays verified by ours, and by nothing that merely looks like ours."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.formats import jcs, jose
from issuer.io import keyfile
from issuer.results.entry import read_entries
from issuer.verify import Context, fail_shared_jti, verify_entries
from issuer.verify.receipts import RECEIPT_TYPE, file_name, read_receipt, token_digest, write_receipt
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make

SAID = make.submission({"notes": "no tools"})
TOKEN = make.token_for(SAID)
FILE = make.file_for(SAID)
LATER = make.NOW + make.YEAR
RECEIPT_KEYS = make.key_set(make.RECEIPT_KEY)
# A year later the key has retired: only the archive knows it.
TRUST = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive())
RETIRED = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(), keys=make.key_set(make.STRANGER))


def judge(
    receipt: str | bytes | None = None,
    *,
    text: str = FILE,
    trust: Trust = RETIRED,
    at: int = LATER,
    repo: str = make.REPO,
    **known: Any,
) -> Report:
    held = receipt.decode() if isinstance(receipt, bytes) else receipt
    (entry,) = read_entries(text.encode(), make.PATH)
    receipts = {} if held is None else {token_digest(str(entry.token)): held}
    context = Context(**{"now": LATER, "witnessed": True, "receipts": receipts, **known})
    (report,) = verify_entries([entry], repo, make.PATH, trust, at, context)
    return report


def receipt_of(report: Report, trust: Trust = TRUST, iat: int = make.NOW + 5) -> bytes:
    written = write_receipt(report, trust, make.RECEIPT_KEY, iat)
    assert written is not None
    return written


RECEIPT = receipt_of(judge(trust=TRUST, at=make.NOW + 5, now=make.NOW + 5))
SAYS: dict[str, Any] = dict(msgspec.json.decode(make.payload_by_joserfc(RECEIPT.decode(), make.RECEIPT_KEY)))


def altered(*, header: Mapping[str, Any] | None = None, key: Any = make.RECEIPT_KEY, **payload: Any) -> str:
    """Sign the receipt anew with other members, as only the holder of the key could."""
    members = make.without_dots({**SAYS, **payload})
    return make.signed(header or make.statement_header(RECEIPT_TYPE, key), jcs.canonical(members), key)


def evidence(report: Report, number: int = 5) -> str:
    return report.checks[number - 1].evidence


# -- what is written ----------------------------------------------------------------------------------------------------


def test_a_receipt_says_what_was_seen_and_is_signed_by_the_receipt_key() -> None:
    assert jose.parse_compact(RECEIPT.decode()).header == make.statement_header("eval-receipt+jwt", make.RECEIPT_KEY)
    assert {
        "ver": 1, "repo": make.REPO, "path": make.PATH, "token": token_digest(TOKEN), "jti": make.JTI,
        "content_digest": SAID.content_digest, "at": make.NOW + 5, "kid": make.KID, "trust": TRUST.digest,
        "checks": {str(n): "pass" if n < 10 else "skip" for n in range(1, 12)}, "iat": make.NOW + 5,
    } == SAYS  # fmt: skip
    assert read_receipt(RECEIPT.decode(), RECEIPT_KEYS).at == make.NOW + 5


def test_there_is_no_receipt_for_what_is_not_verified() -> None:
    good = judge(trust=TRUST, at=make.NOW + 5, now=make.NOW + 5)
    assert good.verdict == "verified"
    unverified = judge(text=FILE[: FILE.index("  verify_token")], trust=TRUST)
    for report in (judge(trust=TRUST), judge(trust=make.trust(keys=None)), unverified, fail_shared_jti(good, "x")):
        assert report.verdict != "verified"
        assert write_receipt(report, TRUST, make.RECEIPT_KEY, make.NOW) is None


def test_there_is_no_receipt_for_a_time_that_somebody_stated_nor_for_one_that_a_receipt_served() -> None:
    stated = judge(trust=TRUST, at=make.NOW + 5, now=LATER, witnessed=False)
    assert (stated.verdict, stated.at_from) == ("verified", "stated")
    assert write_receipt(stated, TRUST, make.RECEIPT_KEY, LATER) is None
    served = judge(RECEIPT)
    assert (served.verdict, served.at_from) == ("verified", "receipt")
    assert write_receipt(served, TRUST, make.RECEIPT_KEY, LATER) is None


def test_a_key_that_is_not_listed_or_signs_tokens_writes_no_receipt() -> None:
    report = judge(trust=TRUST, at=make.NOW + 5, now=make.NOW + 5)
    both = make.trust(receipt_keys=make.key_set(make.KEY, make.RECEIPT_KEY))
    archived = make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(make.RECEIPT_KEY))
    cases = [(TRUST, make.STRANGER, "not listed"), (both, make.KEY, "signs tokens"), (archived, make.RECEIPT_KEY, "signs tokens"),
             (make.trust(), make.RECEIPT_KEY, "not listed"), (make.trust(receipt_keys=None), make.RECEIPT_KEY, "not listed")]  # fmt: skip
    for trust, key, words in cases:
        with pytest.raises(SetupError, match=words) as caught:
            write_receipt(report, trust, key, make.NOW)
        assert caught.value.code is Code.KEY_UNUSABLE


def test_a_key_that_is_listed_under_another_kid_writes_no_receipt_that_nobody_could_look_up() -> None:
    listed = {"keys": [{**jose.public_jwk(make.RECEIPT_KEY.public_key()), "kid": "receipts-2026"}]}
    trust = make.trust(receipt_keys=jose.parse_key_set(msgspec.json.encode(listed)))
    with pytest.raises(SetupError, match="under its RFC 7638 thumbprint"):
        write_receipt(judge(trust=TRUST, at=make.NOW + 5, now=make.NOW + 5), trust, make.RECEIPT_KEY, make.NOW)


def test_a_key_from_a_key_file_writes_receipts(tmp_path: Any) -> None:
    keyfile.write(tmp_path / "receipts.pem", make.RECEIPT_KEY)
    key = keyfile.read(tmp_path / "receipts.pem")
    report = judge(trust=TRUST, at=make.NOW + 5, now=make.NOW + 5)
    assert write_receipt(report, TRUST, key, make.NOW + 5) == RECEIPT


def test_the_file_of_a_receipt_is_named_by_the_token() -> None:
    name = file_name(token_digest(TOKEN))
    assert name == f"{token_digest(TOKEN)[7:]}.jwt"
    assert len(name) == 68


# -- a year later ---------------------------------------------------------------------------------------------------------


def test_a_year_old_file_is_verified_by_its_receipt_and_by_nothing_less() -> None:
    report = judge(RECEIPT)
    assert (report.verdict, report.at, report.at_from) == ("verified", make.NOW + 5, "receipt")
    assert [check.status for check in report.checks[:9]] == [Status.PASS] * 9
    assert "from the archive" in evidence(report, 2)
    assert "by a receipt" in evidence(report)
    assert judge(RECEIPT.decode() + "\n").verdict == "verified"
    without = judge()
    assert (without.verdict, without.failed, without.at) == ("failed", (2,), LATER)
    published = judge(trust=TRUST)
    assert (published.failed, published.at_from) == ((5,), "clock")
    assert evidence(published) == "expired 399 d 23 h before the time it is judged at"


def test_a_receipt_outranks_a_stated_time() -> None:
    assert judge(RECEIPT, at=0, witnessed=False).verdict == "verified"


def test_every_other_check_runs_again() -> None:
    assert judge(RECEIPT, text=FILE.replace("no tools", "tools")).failed == (9,)
    assert judge(RECEIPT, text=FILE.replace("value: 20.9", "value: 21")).failed == (8, 9)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, audience="other")).failed == (4,)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, max_token_life_s=3599)).failed == (5,)
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, require=frozenset({"attempt"}))).failed == (4,)
    revoked = make.trust(
        receipt_keys=RECEIPT_KEYS, revocations=make.revocations(jti=[make.JTI], iat=LATER, next_update=LATER)
    )
    report = judge(RECEIPT, trust=revoked)
    assert report.failed == (5,)
    assert evidence(report) == "the issuer has revoked this jti"


def test_the_trust_file_s_digest_in_a_receipt_is_information() -> None:
    assert judge(RECEIPT, trust=msgspec.structs.replace(RETIRED, digest="sha256:" + "8" * 64)).verdict == "verified"


# -- not ours, not this one -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("repo", "acme/other", "another repository"), ("path", ".eval_results/hle.yaml", "another file"),
        ("token", "sha256:" + "0" * 64, "another token"), ("jti", jose.base64url_encode(b"j" * 16), "another jti"),
        ("content_digest", "sha256:" + "0" * 64, "another entry"), ("kid", "x", "another key"),
        ("at", make.NOW + 100, "later than its time of writing"), ("iat", LATER + 61, "in the future"),
        ("checks", {**SAYS["checks"], "9": "fail"}, "not verified"), ("checks", {**SAYS["checks"], "5": "unknown"}, "not verified"),
        ("checks", {**SAYS["checks"], "1": "skip"}, "not verified"), ("checks", {"1": "pass"}, "every check"),
        ("checks", {**SAYS["checks"], "12": "pass"}, "every check"), ("checks", {**SAYS["checks"], "1": "good"}, "invalid enum"),
        ("ver", 2, "invalid enum"), ("extra", 1, "not known"), ("iat", ..., "missing required"), ("iat", "5", "expected a whole number"),
        ("at", True, "expected a whole number"), ("at", 2**40, "<= "), ("trust", ..., "missing required"),
    ],
)  # fmt: skip
def test_a_receipt_for_something_else_does_not_serve_and_the_report_says_why(
    member: str, value: Any, words: str
) -> None:
    report = judge(altered(**{member: value}), trust=TRUST)
    assert report.failed == (5,)
    assert "is not usable" in evidence(report)
    assert words in evidence(report)
    assert judge(altered(), trust=TRUST).verdict == "verified"


def test_another_entry_s_genuine_receipt_does_not_serve() -> None:
    other = make.file_for(make.submission({"notes": "other"}), jti=jose.base64url_encode(b"j" * 16))
    theirs = receipt_of(judge(text=other, trust=TRUST, at=make.NOW + 5, now=make.NOW + 5))
    report = judge(theirs, trust=TRUST)
    assert report.failed == (5,)
    assert "it is for another token" in evidence(report)
    moved = judge(RECEIPT, trust=TRUST, repo="acme/other")
    assert moved.failed == (5, 6, 9)
    assert "it is for another repository" in evidence(moved)


@pytest.mark.parametrize(
    "bad",
    [
        altered(key=make.STRANGER), altered(key=make.KEY), altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "typ": "eval-verify+jwt"}),
        altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "typ": "JWT"}), altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "alg": "none"}),
        altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "crit": ["b64"], "b64": False}), altered(header={"alg": "EdDSA", "typ": RECEIPT_TYPE}),
        altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "alg": ["EdDSA"]}), altered(header={**make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), "kid": 5}),
        RECEIPT.decode()[:-2] + "AA", RECEIPT.decode() + "=", "", "x", "é", "..", RECEIPT.decode() * 20, TOKEN,
        make.signed(make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), b'"x"', make.RECEIPT_KEY), make.signed(make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY), b"\xff", make.RECEIPT_KEY),
    ],
    ids=range(19),
)  # fmt: skip
def test_what_no_receipt_key_signed_as_a_receipt_does_not_serve(bad: str) -> None:
    report = judge(bad, trust=TRUST)
    assert report.failed == (5,)
    assert "the receipt at hand is not usable" in evidence(report)


def test_no_single_bit_of_a_receipt_can_change() -> None:
    segments = [jose.base64url_decode(segment) for segment in RECEIPT.decode().split(".")]
    for index, raw in enumerate(segments):
        for bit in range(0, len(raw) * 8, 13):
            changed = bytearray(raw)
            changed[bit // 8] ^= 1 << bit % 8
            parts = [*segments[:index], bytes(changed), *segments[index + 1 :]]
            assert judge(".".join(map(jose.base64url_encode, parts)), trust=TRUST).failed == (5,)


def test_a_token_key_is_no_receipt_key_even_where_it_is_listed() -> None:
    """`resolve` leaves such keys out of the listed ones (test_trust)."""
    report = judge(altered(key=make.KEY, kid=make.KID), trust=make.trust(receipt_keys=make.key_set(make.RECEIPT_KEY)))
    assert report.failed == (5,)


def test_a_bad_receipt_takes_nothing_from_a_token_that_is_still_fresh() -> None:
    assert judge("junk", trust=TRUST, at=make.NOW + 5, now=make.NOW + 5).verdict == "verified"


def test_a_receipt_without_receipt_keys_is_no_evidence() -> None:
    report = judge(RECEIPT, trust=make.trust())
    assert report.failed == (5,)
    assert "lists no receipt keys" in evidence(report)


def test_where_the_receipt_keys_are_not_to_be_had_nobody_can_decide() -> None:
    report = judge(RECEIPT, trust=make.trust(receipt_keys=None))
    assert (report.verdict, report.checks[4].status) == ("undecided", Status.UNKNOWN)
    retired = judge(
        RECEIPT, trust=make.trust(receipt_keys=None, keys=make.key_set(make.STRANGER), archive=make.archive())
    )
    assert (retired.verdict, retired.checks[1].status, retired.checks[2].status) == (
        "undecided",
        Status.UNKNOWN,
        Status.UNKNOWN,
    )


# -- a revoked key --------------------------------------------------------------------------------------------------------


def revoked_from(moment: int, **members: Any) -> Trust:
    return make.trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(revoked_from=moment), **members)


def test_a_receipt_from_before_the_revocation_keeps_the_result_good() -> None:
    assert judge(RECEIPT, trust=revoked_from(make.NOW + 6)).verdict == "verified"


def test_a_receipt_from_the_revocation_on_does_not_even_for_an_earlier_time() -> None:
    for moment in (make.NOW + 5, make.NOW + 4, 0):
        report = judge(RECEIPT, trust=revoked_from(moment))
        assert report.failed == (5,)
        assert "neither a receipt nor a witness" in evidence(report)
    late = altered(iat=make.NOW + 1000)
    assert judge(late, trust=TRUST).verdict == "verified"
    assert judge(late, trust=revoked_from(make.NOW + 500)).failed == (5,)


def test_a_revoked_key_is_believed_by_no_time_of_issue_and_no_stated_one() -> None:
    for witnessed in (False, True):
        report = judge(trust=revoked_from(make.NOW + 1_000), at=make.NOW + 5, now=make.NOW + 5, witnessed=witnessed)
        assert report.failed == (5,)
        assert "revoked from" in evidence(report)


# -- anything -------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=50) | st.binary(max_size=40).map(jose.base64url_encode).map(lambda s: f"{s}.{s}.{s}"))
def test_any_text_is_a_receipt_or_an_input_error(text: str) -> None:
    with pytest.raises(FormatError):
        read_receipt(text, RECEIPT_KEYS)
    assert judge(text, trust=TRUST).failed == (5,)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*SAYS, "x"]), JSON, min_size=1))
def test_any_signed_payload_is_a_report(payload: dict[str, Any]) -> None:
    try:
        text = altered(**payload)
    except ValueError:  # no canonical form, so nothing to sign
        return
    assert judge(text, trust=TRUST).verdict in {"failed", "verified"}
