"""Numbers 2, 3 and 5 over time: archived keys, revoked keys, and an issuer's revocations."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.errors import FormatError
from issuer.formats import jcs, jose
from issuer.formats.times import show_time
from issuer.verify.report import Report, Status
from issuer.verify.revocations import LONGEST_S, objection, parse_revocations
from issuer.verify.trust import MAX_ARCHIVED, Trust, parse_archive
from tests.support import make, reports
from tests.support.reports import SOON, numbers, outcome

ITEM = make.submission({"notes": "no tools"})
FILE = make.file_for(ITEM)
DAY = 86_400
GONE = make.key_set(make.STRANGER)


def judge(trust: Trust, *, at: int | None = SOON, now: int | None = None, witnessed: bool = True) -> Report:
    return reports.judge(FILE, trust, at=at, now=now or at, witnessed=witnessed)


def gone(**members: Any) -> Trust:
    """Return the trust of a party whose current key set no longer has the token's key."""
    return make.trust(**{"keys": GONE, **members})


# -- (2) the archive ------------------------------------------------------------------------------------------------------


def test_2_an_archived_key_is_good_if_issue_and_receipt_are_in_its_window() -> None:
    report = judge(gone(archive=make.archive()))
    assert (report.verdict, outcome(report, 2)) == ("verified", (Status.PASS, f"kid {make.KID}, from the archive"))
    start, end = "active_from", "last_token_exp"
    for good, member, time, at in (
        (True, start, 0, 5), (False, start, 1, 5), (True, start, 0, -60), (False, start, 0, -61),
        (True, end, 5, 5), (False, end, 4, 5), (False, end, -1, -30), (True, end, 0, 0),
    ):  # fmt: skip
        report = judge(gone(archive=make.archive(**{member: make.NOW + time})), at=make.NOW + at)
        if good:
            assert report.verdict == "verified"
        else:
            assert numbers(report, Status.FAIL) == [2]
            assert numbers(report, Status.SKIP) == list(range(3, 12))
            assert "the archived key was in use" in report.checks[1].evidence
    archive = parse_archive(make.jwks(make.KEY, active_from=make.NOW - DAY))  # it still signs
    assert judge(gone(archive=archive)).verdict == "verified"
    late = parse_archive(make.jwks(make.KEY, active_from=make.NOW + DAY))
    assert "to now" in judge(gone(archive=late)).checks[1].evidence


def test_2_is_unknown_where_the_missing_key_set_or_archive_could_have_the_key() -> None:
    assert judge(make.trust(keys=None, archive=make.archive())).verdict == "verified"
    for keys, archive in (
        (None, make.archive(make.STRANGER)), (GONE, None), (None, None), (None, make.archive(active_from=make.NOW + DAY)),
    ):  # fmt: skip
        report = judge(make.trust(keys=keys, archive=archive))
        assert (report.verdict, numbers(report, Status.UNKNOWN)) == ("undecided", [2, 3])
        assert numbers(report, Status.SKIP) == [4, 5, *range(6, 12)]


def test_2_fails_only_by_keys_that_were_confirmed_after_the_token_s_issue() -> None:
    by_archive = {"keys_fetched_at": make.NOW + 1, "archive": make.archive(make.STRANGER)}
    for status, confirmed in (
        (Status.UNKNOWN, {"keys_fetched_at": make.NOW - DAY}), (Status.UNKNOWN, {"keys_fetched_at": make.NOW}),
        (Status.UNKNOWN, {"keys_fetched_at": None}), (Status.FAIL, {"keys_fetched_at": make.NOW + 1}),
        (Status.UNKNOWN, {**by_archive, "archive_fetched_at": make.NOW}), (Status.UNKNOWN, {**by_archive, "archive_fetched_at": None}),
        (Status.FAIL, {**by_archive, "archive_fetched_at": make.NOW + 1}),
    ):  # fmt: skip
        report = judge(gone(**confirmed))
        assert (report.checks[1].status, report.verdict == "failed") == (status, status is Status.FAIL), confirmed
        assert report.wants_keys_of == (make.ISSUER if status is Status.UNKNOWN else "")
    out_of_window = judge(gone(archive=make.archive(active_from=make.NOW + 9), keys_fetched_at=None))
    assert (out_of_window.failed, out_of_window.wants_keys_of) == ((2,), "")
    held = judge(make.trust(keys_fetched_at=make.NOW - 100), now=make.NOW + 5)
    age = f"kid {make.KID}, of the key set fetched 1 min 45 s ago"
    assert (held.verdict, outcome(held, 2)) == ("verified", (Status.PASS, age)), "a key that it has needs no newer set"


def test_2_without_an_archive_a_missing_key_may_have_retired() -> None:
    """The first rotation of keys refutes no older file, except for a party that received it past its token's end."""
    end = make.NOW + 3600
    for at, witnessed, verdict in (
        (None, False, "undecided"), (SOON, False, "undecided"), (SOON, True, "undecided"), (end, True, "undecided"),
        (end + 1, True, "failed"), (make.NOW + DAY, True, "failed"),
    ):  # fmt: skip
        assert judge(gone(), at=at, now=make.NOW + DAY, witnessed=witnessed).verdict == verdict, (at, witnessed)
    early = judge(gone(), at=None, now=end, witnessed=False)
    assert early.failed == (2,), "no key retires before its last token has ended"
    assert judge(gone(archive=make.archive(make.STRANGER)), at=None, now=make.NOW + DAY).failed == (2,)


def test_2_an_archived_key_under_another_s_kid_verifies_nothing_of_it() -> None:
    jwk = {**jose.public_jwk(make.STRANGER.public_key()), "kid": make.KID, "active_from": 0}
    report = judge(gone(archive=parse_archive(jcs.canonical({"keys": [jwk]}))))
    assert report.failed == (3,)


# -- (5) revoked keys -----------------------------------------------------------------------------------------------------


def test_5_a_revoked_key_fails_without_evidence_from_outside_the_token() -> None:
    for keys in (make.key_set(), GONE):
        for revoked_from in (0, make.NOW - 1, make.NOW + 1, make.NOW + DAY):
            report = judge(make.trust(keys=keys, archive=make.archive(revoked_from=revoked_from)))
            assert report.failed == (5,)
            assert f"revoked from {show_time(revoked_from)} on" in report.checks[4].evidence


# -- (5) revocation lists -------------------------------------------------------------------------------------------------


def test_5_a_revoked_jti_fails_and_no_other_one() -> None:
    others = make.revocations(jti=["x"], sub=[{"sub": "lm-eval", "from": 0}])
    assert judge(make.trust(revocations=others)).verdict == "verified"
    report = judge(make.trust(revocations=make.revocations(jti=["x", make.JTI])))
    assert (report.failed, report.checks[4].evidence) == ((5,), "the issuer has revoked this jti")


def test_5_a_token_that_was_issued_in_a_revoked_interval_fails() -> None:
    for good, first, last in (
        (False, 0, None), (False, make.NOW, None), (True, make.NOW + 1, None), (False, 0, make.NOW), (True, 0, make.NOW - 1),
        (False, make.NOW, make.NOW),
    ):  # fmt: skip
        interval = {"sub": "inspect-ai", "from": first} | ({} if last is None else {"until": last})
        for intervals in ([interval], [{"sub": "inspect-ai", "from": 1, "until": 2}, interval]):
            report = judge(make.trust(revocations=make.revocations(sub=intervals)))
            assert report.failed == (() if good else (5,)), interval


def test_5_is_unknown_where_the_archive_or_the_list_is_absent_or_the_list_not_of_now() -> None:
    """By the clock, and not by a stated time; a list of another time still revokes."""
    without = judge(make.trust(archive=None))
    assert (without.verdict, numbers(without, Status.UNKNOWN)) == ("undecided", [5])
    assert "which lists revoked keys" in without.checks[4].evidence
    absent = judge(make.trust(revocations=None))
    assert (absent.verdict, numbers(absent, Status.UNKNOWN)) == ("undecided", [5])
    assert judge(make.trust(revocations=None, archive=None), at=make.NOW + DAY).failed == (5,), "it has expired"
    end = make.NOW + DAY
    for good, bad, now in (
        (make.revocations(next_update=SOON), make.revocations(next_update=SOON - 1), SOON),
        (make.revocations(next_update=end), make.revocations(next_update=end - 1), end),
        (make.revocations(iat=SOON + 60), make.revocations(iat=SOON + 61), SOON),
        (make.revocations(), replace(make.revocations(), held=True), SOON),
    ):
        assert judge(make.trust(revocations=good), now=now).verdict == "verified", good
        report = judge(make.trust(revocations=bad), now=now)
        assert (report.verdict, numbers(report, Status.UNKNOWN)) == ("undecided", [5]), bad
        named = replace(bad, jtis=frozenset({make.JTI}))
        assert judge(make.trust(revocations=named), now=now).failed == (5,)


# -- the documents --------------------------------------------------------------------------------------------------------


def test_an_archive_with_one_unusable_key_a_kid_twice_or_too_many_keys_is_refused() -> None:
    times: list[Any] = [-1, "5", True, 1.5, 2**33 + 1]
    for more in (
        {}, *({"active_from": time} for time in times), {"active_from": 5, "last_token_exp": 4}, {"active_from": 5, "last_token_exp": None},
        {"active_from": 5, "revoked_from": "x"}, {"active_from": 5, "use": "enc"}, {"active_from": 5, "x": "AQ"}, {"active_from": 5, "d": "AA"},
    ):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            parse_archive(make.jwks(make.KEY, **more))
        assert caught.value.pointer.startswith("/keys/0"), more
    with pytest.raises(FormatError, match="twice"):
        parse_archive(make.jwks(make.KEY, make.KEY, active_from=1))
    with pytest.raises(FormatError, match="at most 1024"):
        parse_archive(jcs.canonical({"keys": [{}] * (MAX_ARCHIVED + 1)}))


def test_a_list_that_is_not_exactly_one_is_refused() -> None:
    changes: dict[str, list[Any]] = {
        "ver": [2, ...], "iss": [f"{make.ISSUER}/", ...], "jti": ["x", [5], ...],
        "sub": [
            ..., [{"sub": "a"}], [{"from": 1}], [{"sub": "a", "from": "1"}], [{"sub": "a", "from": 2, "until": 1}],
            [{"sub": "a", "from": 1, "to": 2}],
        ],
        "iat": [..., "5", make.NOW + DAY + 1, make.NOW - 6 * DAY - 1], "number": [..., -1, 1.5, "1"], "next_update": [..., "5", 2**40],
        "extra": [1],
    }  # fmt: skip
    for name, values in changes.items():
        for value in values:
            with pytest.raises(FormatError):
                make.revocations(**{name: value})
    make.revocations(iat=make.NOW - 6 * DAY)
    assert LONGEST_S == 7 * DAY, "a list clears for seven days at most"
    assert len(make.revocations(jti=[f"{number:022}" for number in range(2000)]).jtis) == 2000


def test_a_list_that_drops_a_revocation_is_objected_to() -> None:
    members = {"number": 5, "iat": make.NOW - 10, "jti": ["x", "y"], "sub": [{"sub": "a", "from": 1, "until": 2}]}
    seen = make.revocations(**members)
    wider = [{"sub": "a", "from": 1}, {"sub": "a", "from": 1, "until": 2}]
    changes: list[tuple[str, dict[str, Any]]] = [
        ("", {}), ("", {"number": 6, "iat": make.NOW}), ("", {"jti": ["x", "y", "z"]}), ("", {"sub": wider}),
        ("its number is 4", {"number": 4}), ("1 s before", {"iat": make.NOW - 11}), ("lacks 1", {"jti": ["x"]}), ("lacks 2", {"jti": []}),
        ("lacks 1", {"sub": []}), ("lacks 1", {"sub": [{"sub": "a", "from": 1, "until": 3}]}), ("lacks 1", {"sub": [{"sub": "b", "from": 1, "until": 2}]}),
        ("lacks 2", {"number": 9, "jti": []}), ("before", {"number": 9, "iat": 5, "next_update": 5}),
    ]  # fmt: skip
    for expected, changed in changes:
        found = objection(make.revocations(**{**members, **changed}), seen)
        assert (expected in found, bool(found)) == (True, bool(expected)), changed


def test_a_list_under_another_header_is_refused() -> None:
    good = make.statement_header("eval-revocations+jwt", make.REVOCATION_KEY)
    payload = jose.parse_compact(make.revocation_list().decode()).unverified_payload
    keys = make.key_set(make.REVOCATION_KEY)
    parse_revocations(make.signed(good, payload, make.REVOCATION_KEY).encode(), make.ISSUER, keys)
    headers: list[dict[str, Any]] = [
        {"typ": "eval-verify+jwt"}, {"typ": "eval-receipt+jwt"}, {"typ": "JWT"}, {"alg": "none"}, {"alg": ["EdDSA"]}, {"kid": "x"}, {"kid": 1},
        {"crit": ["b64"]}, {"jwk": {}},
    ]  # fmt: skip
    for header in headers:
        with pytest.raises(FormatError):
            parse_revocations(make.signed({**good, **header}, payload, make.REVOCATION_KEY).encode(), make.ISSUER, keys)


@given(
    st.binary(max_size=60) | st.binary(max_size=40).map(jose.base64url_encode).map(lambda s: f"{s}.{s}.{s}".encode())
)
def test_any_bytes_are_an_archive_or_a_list_or_an_input_error(raw: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_archive(raw)
    with pytest.raises(FormatError):
        parse_revocations(raw, make.ISSUER, make.key_set(make.REVOCATION_KEY))
