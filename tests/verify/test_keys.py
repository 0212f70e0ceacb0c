"""Numbers 2, 3 and 5 over time: archived keys, revoked keys, and what an issuer has revoked."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.errors import FormatError
from issuer.formats import jcs, jose
from issuer.formats.times import show_time
from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entries
from issuer.verify.report import Report, Status
from issuer.verify.revocations import LONGEST_S, objection, parse_revocations
from issuer.verify.trust import MAX_ARCHIVED, Trust, parse_archive
from tests.support import make

SAID = make.submission({"notes": "no tools"})
FILE = make.file_for(SAID)
DAY = 86_400
# The current key set no longer has the key.
GONE = make.key_set(make.STRANGER)


def judge(trust: Trust, *, at: int = make.NOW + 5, now: int | None = None, text: str = FILE) -> Report:
    context = Context(at if now is None else now, witnessed=True)
    (report,) = verify_entries(read_entries(text.encode(), make.PATH), make.REPO, make.PATH, trust, at, context)
    return report


def outcome(report: Report, number: int) -> tuple[Status, str]:
    return report.checks[number - 1].status, report.checks[number - 1].evidence


def numbers(report: Report, status: Status) -> list[int]:
    return [check.number for check in report.checks if check.status is status]


# -- (2) the archive ------------------------------------------------------------------------------------------------------


def test_2_an_archived_key_is_good_where_issue_and_receipt_lie_in_its_window() -> None:
    report = judge(make.trust(keys=GONE, archive=make.archive()))
    assert report.verdict == "verified"
    assert outcome(report, 2) == (Status.PASS, f"kid {make.KID}, from the archive")


@pytest.mark.parametrize(
    ("window", "at", "good"),
    [
        ({"active_from": make.NOW}, make.NOW + 5, True), ({"active_from": make.NOW + 1}, make.NOW + 5, False),
        ({"active_from": make.NOW}, make.NOW - 60, True), ({"active_from": make.NOW}, make.NOW - 61, False),
        ({"last_token_exp": make.NOW + 5}, make.NOW + 5, True), ({"last_token_exp": make.NOW + 4}, make.NOW + 5, False),
        ({"last_token_exp": make.NOW - 1}, make.NOW - 30, False), ({"last_token_exp": make.NOW}, make.NOW, True),
    ],
)  # fmt: skip
def test_2_neither_the_issue_nor_the_receipt_may_lie_outside_it(window: dict[str, int], at: int, good: bool) -> None:
    report = judge(make.trust(keys=GONE, archive=make.archive(**window)), at=at)
    if good:
        assert report.verdict == "verified"
    else:
        assert numbers(report, Status.FAIL) == [2]
        assert numbers(report, Status.SKIP) == list(range(3, 12))
        assert "the archived key was in use" in report.checks[1].evidence


def test_2_a_key_that_still_signs_has_no_end() -> None:
    archive = parse_archive(make.jwks(make.KEY, active_from=make.NOW - DAY))
    assert judge(make.trust(keys=GONE, archive=archive)).verdict == "verified"
    late = parse_archive(make.jwks(make.KEY, active_from=make.NOW + DAY))
    assert "to now" in judge(make.trust(keys=GONE, archive=late)).checks[1].evidence


def test_2_the_archive_serves_where_the_key_set_is_not_to_be_had() -> None:
    assert judge(make.trust(keys=None, archive=make.archive())).verdict == "verified"


@pytest.mark.parametrize(
    ("keys", "archive"), [(None, make.archive(make.STRANGER)), (GONE, None), (None, None), (None, make.archive(active_from=make.NOW + DAY))]
)  # fmt: skip
def test_2_and_3_are_unknown_where_the_missing_one_of_the_two_could_have_the_key(keys: Any, archive: Any) -> None:
    report = judge(make.trust(keys=keys, archive=archive))
    assert report.verdict == "undecided"
    assert numbers(report, Status.UNKNOWN) == [2, 3]
    assert numbers(report, Status.SKIP) == [4, 5, *range(6, 12)]


def test_2_a_key_that_neither_has_fails() -> None:
    assert judge(make.trust(keys=GONE, archive=make.archive(make.STRANGER))).failed == (2,)


@pytest.mark.parametrize(
    ("confirmed", "status"),
    [
        ({"keys_fetched_at": make.NOW - DAY}, Status.UNKNOWN), ({"keys_fetched_at": make.NOW}, Status.UNKNOWN), ({"keys_fetched_at": None}, Status.UNKNOWN),
        ({"keys_fetched_at": make.NOW + 1}, Status.FAIL),
        ({"keys_fetched_at": make.NOW + 1, "archive_fetched_at": make.NOW, "archive": make.archive(make.STRANGER)}, Status.UNKNOWN),
        ({"keys_fetched_at": make.NOW + 1, "archive_fetched_at": None, "archive": make.archive(make.STRANGER)}, Status.UNKNOWN),
        ({"keys_fetched_at": make.NOW + 1, "archive_fetched_at": make.NOW + 1, "archive": make.archive(make.STRANGER)}, Status.FAIL),
    ],
)  # fmt: skip
def test_2_is_a_no_only_by_keys_that_were_confirmed_after_the_issue_of_the_token(
    confirmed: dict[str, Any], status: Status
) -> None:
    report = judge(make.trust(keys=GONE, **confirmed))
    assert (report.checks[1].status, report.verdict == "failed") == (status, status is Status.FAIL)
    assert report.wants_keys_of == (make.ISSUER if status is Status.UNKNOWN else "")


def test_2_a_key_that_the_set_has_needs_no_newer_set() -> None:
    assert judge(make.trust(keys_fetched_at=make.NOW - DAY)).verdict == "verified"
    out_of_window = make.trust(keys=GONE, archive=make.archive(active_from=make.NOW + 9), keys_fetched_at=None)
    assert (judge(out_of_window).failed, judge(out_of_window).wants_keys_of) == ((2,), "")


def test_2_without_an_archive_a_key_that_is_gone_may_have_retired_since() -> None:
    """No accusation against a file of last year at the first rotation of keys: not of a reader, and not of who said or
    wrote down when it came. Who receives it past its end needs no archive."""
    (entry,) = read_entries(FILE.encode(), make.PATH)
    end = make.NOW + 3600
    for at, witnessed, status in (
        (None, False, "undecided"), (make.NOW + 5, False, "undecided"), (make.NOW + 5, True, "undecided"),
        (end, True, "undecided"), (end + 1, True, "failed"), (make.NOW + DAY, True, "failed"),
    ):  # fmt: skip
        context = Context(make.NOW + DAY, witnessed=witnessed)
        (report,) = verify_entries([entry], make.REPO, make.PATH, make.trust(keys=GONE), at, context)
        assert report.verdict == status, (at, witnessed)
    (report,) = verify_entries([entry], make.REPO, make.PATH, make.trust(keys=GONE), None, Context(end))
    assert report.failed == (2,), "no key retires before its last token has ended"
    archived = make.trust(keys=GONE, archive=make.archive(make.STRANGER))
    (report,) = verify_entries([entry], make.REPO, make.PATH, archived, None, Context(make.NOW + DAY))
    assert report.failed == (2,)


def test_2_an_archived_key_under_another_s_kid_verifies_nothing_of_it() -> None:
    jwk = {**jose.public_jwk(make.STRANGER.public_key()), "kid": make.KID, "active_from": 0}
    report = judge(make.trust(keys=GONE, archive=parse_archive(jcs.canonical({"keys": [jwk]}))))
    assert report.failed == (3,)


def test_2_says_how_old_a_fetched_key_set_is() -> None:
    report = judge(make.trust(keys_fetched_at=make.NOW - 100), now=make.NOW + 5)
    assert outcome(report, 2) == (Status.PASS, f"kid {make.KID}, of the key set fetched 1 min 45 s ago")


# -- (5) revoked keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [make.key_set(), GONE], ids=["still published", "gone"])
@pytest.mark.parametrize("revoked_from", [0, make.NOW - 1, make.NOW + 1, make.NOW + DAY])
def test_5_a_revoked_key_fails_without_evidence_from_outside_the_token(keys: Any, revoked_from: int) -> None:
    report = judge(make.trust(keys=keys, archive=make.archive(revoked_from=revoked_from)))
    assert report.failed == (5,)
    assert f"revoked from {show_time(revoked_from)} on" in report.checks[4].evidence


def test_5_is_unknown_where_the_archive_that_says_what_is_revoked_is_not_to_be_had() -> None:
    report = judge(make.trust(archive=None))
    assert (report.verdict, numbers(report, Status.UNKNOWN)) == ("undecided", [5])
    assert "which lists revoked keys" in report.checks[4].evidence


# -- (5) revocation lists -------------------------------------------------------------------------------------------------


def test_5_a_list_that_does_not_name_it_is_no_objection() -> None:
    others = make.revocations(jti=["x"], sub=[{"sub": "lm-eval", "from": 0}])
    assert judge(make.trust(revocations=others)).verdict == "verified"


def test_5_a_revoked_jti_fails() -> None:
    report = judge(make.trust(revocations=make.revocations(jti=["x", make.JTI])))
    assert (report.failed, report.checks[4].evidence) == ((5,), "the issuer has revoked this jti")


@pytest.mark.parametrize(
    ("interval", "good"),
    [
        ({"from": 0}, False), ({"from": make.NOW}, False), ({"from": make.NOW + 1}, True), ({"from": 0, "until": make.NOW}, False),
        ({"from": 0, "until": make.NOW - 1}, True), ({"from": make.NOW, "until": make.NOW}, False),
    ],
)  # fmt: skip
def test_5_what_an_integration_had_signed_in_a_revoked_interval_fails(interval: dict[str, int], good: bool) -> None:
    report = judge(make.trust(revocations=make.revocations(sub=[{"sub": "inspect-ai", **interval}])))
    assert report.failed == (() if good else (5,))
    two = make.revocations(sub=[{"sub": "inspect-ai", "from": 1, "until": 2}, {"sub": "inspect-ai", **interval}])
    assert judge(make.trust(revocations=two)).failed == (() if good else (5,))


def test_5_is_unknown_where_the_configured_list_is_absent_or_past_its_next_update() -> None:
    stale = make.revocations(next_update=make.NOW + 4)
    for trust in (make.trust(revocations=None), make.trust(revocations=stale)):
        report = judge(trust)
        assert (report.verdict, numbers(report, Status.UNKNOWN)) == ("undecided", [5])
    assert judge(make.trust(revocations=make.revocations(next_update=make.NOW + 5))).verdict == "verified"


def test_5_a_list_goes_stale_by_the_judge_s_clock_and_not_by_a_time_that_somebody_states() -> None:
    trust = make.trust(revocations=make.revocations(next_update=make.NOW + DAY))
    assert judge(trust, at=make.NOW + 5, now=make.NOW + DAY).verdict == "verified"
    assert judge(trust, at=make.NOW + 5, now=make.NOW + DAY + 1).verdict == "undecided"


def test_5_is_unknown_where_the_list_is_dated_in_the_future_or_only_held() -> None:
    for listed in (
        make.revocations(iat=make.NOW + 66, next_update=make.NOW + DAY),
        replace(make.revocations(), held=True),
    ):
        report = judge(make.trust(revocations=listed))
        assert (report.verdict, numbers(report, Status.UNKNOWN)) == ("undecided", [5])
        named = replace(listed, jtis=frozenset({make.JTI}))
        assert judge(make.trust(revocations=named)).failed == (5,)
    soon = make.revocations(iat=make.NOW + 65, next_update=make.NOW + DAY)
    assert judge(make.trust(revocations=soon)).verdict == "verified"


def test_5_says_what_is_known_of_revocations() -> None:
    listed = make.trust(revocations=make.revocations(number=7))
    assert outcome(judge(listed), 5)[1].endswith("; revocations by list 7 of 2026-11-18T11:06:40Z")
    assert outcome(judge(make.trust()), 5)[1].endswith("; revocations not asked for")
    assert outcome(judge(make.trust(unpublished=True)), 5)[1].endswith("; revocations not published by the issuer")


def test_5_a_stale_list_still_revokes_what_it_names() -> None:
    assert judge(make.trust(revocations=make.revocations(jti=[make.JTI], iat=0, next_update=1))).failed == (5,)


def test_5_an_expired_token_fails_whatever_list_is_missing() -> None:
    assert judge(make.trust(revocations=None, archive=None), at=make.NOW + DAY).failed == (5,)


# -- the documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {}, {"active_from": -1}, {"active_from": "5"}, {"active_from": True}, {"active_from": 1.5}, {"active_from": 2**33 + 1},
        {"active_from": 5, "last_token_exp": 4}, {"active_from": 5, "last_token_exp": None}, {"active_from": 5, "revoked_from": "x"},
        {"active_from": 5, "use": "enc"}, {"active_from": 5, "x": "AQ"}, {"active_from": 5, "d": "AA"},
    ],
    ids=str,
)  # fmt: skip
def test_an_archive_with_a_key_that_it_cannot_vouch_for_is_refused_whole(more: dict[str, Any]) -> None:
    with pytest.raises(FormatError) as caught:
        parse_archive(make.jwks(make.KEY, **more))
    assert caught.value.pointer.startswith("/keys/0")


def test_an_archive_that_names_a_kid_twice_or_too_many_keys_is_refused() -> None:
    with pytest.raises(FormatError, match="twice"):
        parse_archive(make.jwks(make.KEY, make.KEY, active_from=1))
    with pytest.raises(FormatError, match="at most 1024"):
        parse_archive(jcs.canonical({"keys": [{}] * (MAX_ARCHIVED + 1)}))


def test_an_archive_with_a_key_of_small_order_is_refused() -> None:
    with pytest.raises(FormatError, match="must not verify"):
        parse_archive(make.jwks(make.KEY, active_from=1, x=jose.base64url_encode(b"\x01" + bytes(31))))


@pytest.mark.parametrize(
    "payload",
    [
        {"ver": 2}, {"ver": ...}, {"iss": make.ISSUER + "/"}, {"iss": ...}, {"jti": "x"}, {"jti": [5]}, {"jti": ...}, {"sub": ...},
        {"sub": [{"sub": "a"}]}, {"sub": [{"from": 1}]}, {"sub": [{"sub": "a", "from": "1"}]}, {"sub": [{"sub": "a", "from": 2, "until": 1}]},
        {"iat": ...}, {"iat": "5"}, {"iat": make.NOW + DAY + 1}, {"iat": make.NOW - 6 * DAY - 1}, {"number": ...}, {"number": -1}, {"number": 1.5}, {"number": "1"},
        {"sub": [{"sub": "a", "from": 1, "to": 2}]}, {"next_update": ...}, {"next_update": "5"}, {"next_update": 2**40}, {"extra": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_list_that_is_not_exactly_one_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        make.revocations(**payload)


def test_a_list_clears_for_seven_days_at_most() -> None:
    assert make.revocations(iat=make.NOW - 6 * DAY).next_update == make.NOW + DAY
    assert LONGEST_S == 7 * DAY


@pytest.mark.parametrize(
    ("newer", "refused"),
    [
        ({}, ""), ({"number": 6, "iat": make.NOW}, ""), ({"jti": ["x", "y", "z"]}, ""), ({"number": 4}, "its number is 4"), ({"iat": make.NOW - 11}, "1 s before"),
        ({"jti": ["x"]}, "lacks 1"), ({"jti": []}, "lacks 2"), ({"sub": []}, "lacks 1"), ({"sub": [{"sub": "a", "from": 1, "until": 3}]}, "lacks 1"),
        ({"sub": [{"sub": "b", "from": 1, "until": 2}]}, "lacks 1"), ({"sub": [{"sub": "a", "from": 1}, {"sub": "a", "from": 1, "until": 2}]}, ""),
        ({"number": 9, "jti": []}, "lacks 2"), ({"number": 9, "iat": 5, "next_update": 5}, "before"),
    ],
)  # fmt: skip
def test_a_list_that_takes_something_back_is_objected_to(newer: dict[str, Any], refused: str) -> None:
    members = {"number": 5, "iat": make.NOW - 10, "jti": ["x", "y"], "sub": [{"sub": "a", "from": 1, "until": 2}]}
    seen = make.revocations(**members)
    found = objection(make.revocations(**{**members, **newer}), seen)
    assert refused in found
    assert bool(found) == bool(refused)


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "eval-verify+jwt"}, {"typ": "eval-receipt+jwt"}, {"typ": "JWT"}, {"alg": "none"}, {"alg": "HS256"}, {"alg": ["EdDSA"]},
        {"kid": "x"}, {"kid": 1}, {"crit": ["b64"]}, {"jwk": {}},
    ],
    ids=str,
)  # fmt: skip
def test_a_list_under_another_header_is_refused(header: dict[str, Any]) -> None:
    good = make.statement_header("eval-revocations+jwt", make.REVOCATION_KEY)
    payload = jose.parse_compact(make.revocation_list().decode()).unverified_payload
    keys = make.key_set(make.REVOCATION_KEY)
    parse_revocations(make.signed(good, payload, make.REVOCATION_KEY).encode(), make.ISSUER, keys)
    with pytest.raises(FormatError):
        parse_revocations(make.signed({**good, **header}, payload, make.REVOCATION_KEY).encode(), make.ISSUER, keys)


def test_a_list_may_be_longer_than_a_token() -> None:
    many = [jose.base64url_encode(number.to_bytes(16, "big")) for number in range(2000)]
    assert len(make.revocations(jti=many).jtis) == 2000


@given(
    st.binary(max_size=60) | st.binary(max_size=40).map(jose.base64url_encode).map(lambda s: f"{s}.{s}.{s}".encode())
)
def test_any_bytes_are_an_archive_or_a_list_or_an_input_error(raw: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_archive(raw)
    with pytest.raises(FormatError):
        parse_revocations(raw, make.ISSUER, make.key_set(make.REVOCATION_KEY))


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["kid", "x", "active_from", "last_token_exp", "revoked_from", "kty", "alg"]), JSON)
)
def test_any_members_of_an_archived_key_are_held_as_given_or_an_input_error(members: dict[str, Any]) -> None:
    try:
        raw = make.jwks(make.KEY, **{"active_from": 0, **members})
    except ValueError:  # no canonical form
        return
    try:
        archive = parse_archive(raw)
    except FormatError:
        return
    ((kid, archived),) = archive.items()
    assert (kid, archived.active_from) == (members.get("kid", make.KID), members.get("active_from", 0))
    window = archived.last_token_exp, archived.revoked_from
    assert window == (members.get("last_token_exp"), members.get("revoked_from"))
    assert all(members[name] is not None for name in ("last_token_exp", "revoked_from") if name in members)
    report = judge(make.trust(keys=GONE, archive=archive))
    assert report.verdict == "verified" or (members.keys() & {"kid", "active_from", "last_token_exp", "revoked_from"})


@given(st.dictionaries(st.sampled_from(["ver", "iss", "jti", "sub", "next_update", "x"]), JSON))
def test_any_members_of_a_list_are_held_as_given_or_an_input_error(members: dict[str, Any]) -> None:
    try:
        raw = make.revocation_list(**members)
    except ValueError:  # no canonical form, so nothing to sign
        return
    try:
        found = parse_revocations(raw, make.ISSUER, make.key_set(make.REVOCATION_KEY))
    except FormatError:
        return
    assert "x" not in members
    assert (members.get("ver", 1), members.get("iss", make.ISSUER)) == (1, make.ISSUER)
    assert found.jtis == frozenset(members.get("jti", []))
    assert not found.intervals, "no object that is drawn is one"
    assert found.next_update == members.get("next_update", found.next_update)
    judge(make.trust(revocations=found))
