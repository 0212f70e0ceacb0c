"""Two different tokens with one jti: noticed within a file and across files, and only where both had verified."""

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.formats import jcs, jose
from issuer.results.entry import write_entry
from issuer.verify import fail_shared_jti
from issuer.verify.report import ReplayIndex, Report, Status, replay_key, token_key
from issuer.verify.trust import Trust
from tests.support import make
from tests.support.reports import judge_all

ITEM = make.submission()
OTHER = make.submission({"notes": "other"})
FILE = make.file_for(ITEM)
BOTH = make.trust()
ELSEWHERE = "https://other.example"
TWO_ISSUERS = Trust(make.AUDIENCE, {**BOTH.issuers, **make.trust(issuer=ELSEWHERE).issuers})


def judge(text: str, *, trust: Trust = BOTH, repo: str = make.REPO) -> tuple[Report, ...]:
    return judge_all(text, trust, repo=repo, witnessed=True)


def verdicts(text: str, trust: Trust = BOTH) -> list[str]:
    return [report.verdict for report in judge(text, trust=trust)]


def test_all_tokens_of_an_issuer_with_one_jti_fail_under_5_and_name_each_other() -> None:
    reports = judge(FILE + make.file_for(OTHER) + make.file_for(ITEM, jti=jose.base64url_encode(b"j" * 16)))
    assert [report.verdict for report in reports] == ["failed", "failed", "verified"]
    assert reports[0].failed == reports[1].failed == (5,)
    first, second = (report.checks[4].evidence for report in reports[:2])
    assert first.startswith("entry /1 of this file has another good token")
    assert second.startswith("entry /0 of this file has another good token")
    assert "the issuer is at fault" in first
    other, third = make.file_for(OTHER), make.file_for(make.submission({"notes": "third"}))
    for text in (FILE + other + third, FILE + other + FILE, FILE + FILE + other):
        assert verdicts(text) == ["failed"] * 3
    assert verdicts(FILE + FILE) == ["verified", "verified"]
    # Another trusted issuer must not be able to burn a token of this one: jtis are public.
    assert verdicts(FILE + make.file_for(OTHER, iss=ELSEWHERE), TWO_ISSUERS) == ["verified", "verified"]


def test_a_token_that_fails_for_another_reason_burns_no_other_one() -> None:
    forged = make.signed(make.HEADER, jcs.canonical(make.payload_of(OTHER, jti=make.JTI)), make.STRANGER)
    expired = make.token_for(OTHER, exp=make.NOW + 1)
    misplaced = make.token_for(make.submission({"notes": "other"}, model_repo="acme/other"))
    for bad in (forged, expired, misplaced):
        assert verdicts(write_entry(OTHER.form, bad) + FILE) == ["failed", "verified"]
        assert verdicts(FILE + write_entry(OTHER.form, bad)) == ["verified", "failed"]


def test_a_thief_with_a_revoked_key_burns_no_token_of_the_key_that_is_good() -> None:
    stolen = make.STRANGER
    trust = make.trust(keys=make.key_set(make.KEY, stolen), archive=make.archive(stolen, revoked_from=make.NOW))
    kid = jose.public_jwk(stolen.public_key())["kid"]
    by_thief = make.signed({**make.HEADER, "kid": kid}, jcs.canonical(make.payload_of(OTHER)), stolen)
    reports = judge(write_entry(OTHER.form, by_thief) + FILE, trust=trust)
    assert [report.verdict for report in reports] == ["failed", "verified"]
    assert reports[0].checks[2].status is Status.PASS


def test_the_index_returns_where_the_first_other_token_was() -> None:
    index = ReplayIndex()
    (first,), (second,) = judge(FILE), judge(make.file_for(OTHER))
    (third,) = judge(make.file_for(ITEM, jti=jose.base64url_encode(b"j" * 16)))
    assert index.add(first, 7) is None
    assert index.add(first, 8) is None, "a copy"
    assert index.add(third, 9) is None
    assert index.add(second, 10) == 7
    assert index.add(second, 11) == 7
    assert len(index) == 2
    failed = fail_shared_jti(first, "acme/b .eval_results/gsm8k.yaml, entry /0,")
    assert (failed.verdict, failed.failed) == ("failed", (5,))
    assert failed.checks[4].evidence.startswith("acme/b .eval_results/gsm8k.yaml, entry /0,")
    index, (copied,) = ReplayIndex(), judge(FILE, repo="acme/thief")
    assert copied.jti == make.JTI
    assert (index.add(copied, 1), len(index)) == (None, 0), "in another place it fails, and so burns nothing"
    assert (index.add(first, 2), len(index)) == (None, 1)


def test_the_keys_are_of_issuer_and_jti_and_of_the_whole_token() -> None:
    (report,) = judge(FILE)
    (elsewhere,) = judge(make.file_for(ITEM, iss=ELSEWHERE), trust=TWO_ISSUERS)
    (again,) = judge(make.file_for(OTHER))
    assert replay_key(report) == replay_key(again) != replay_key(elsewhere)
    assert token_key(report) != token_key(again)
    assert len(replay_key(report)) == len(token_key(report)) == 16
    assert token_key(report) == hashlib.sha256(make.token_for(ITEM).encode()).digest()[:16]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 2**32 - 1)), max_size=300))
def test_the_first_token_under_a_key_is_the_one_that_every_other_meets(added: list[tuple[int, int, int]]) -> None:
    index, known = ReplayIndex(), dict[int, tuple[int, int]]()
    for key, token, place in added:
        first, at = known.setdefault(key, (token, place))
        assert index.add_key(bytes([key]) * 16, bytes([token]) * 16, place) == (None if first == token else at)
    assert len(index) == len(known)


@pytest.mark.long
def test_an_entry_costs_what_the_readme_says() -> None:
    """130 to 170 bytes, at the sizes where the dict has just grown, and where it is full."""
    for count in (100_000, 170_000, 175_000):
        tracemalloc.start()
        index = ReplayIndex()
        for number in range(count):
            key = hashlib.sha256(number.to_bytes(4, "big")).digest()
            index.add_key(key[:16], key[16:], number)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 128 < used / len(index) < 172
