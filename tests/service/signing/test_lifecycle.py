"""Conclusions from any history of keys: the keys that may sign, the archive, and the next step."""

from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.formats import jose
from issuer.formats.times import MAX_UNIX_S
from issuer.io import keyfile
from issuer.service.signing.bounds import LAST_TOKEN_S, MAX_SIGNED_KEYS, PUBLISHED_S
from issuer.service.signing.lifecycle import (
    STATES,
    KeyEvent,
    KeyLife,
    KeyPlan,
    KeyStep,
    What,
    archive,
    fold,
    keys_left,
    latest,
    may_sign_from,
    moves_from,
    plan,
    steps,
)
from issuer.verify.trust import MAX_ARCHIVED, parse_archive

NOW = 1_795_251_600
DAY = 86_400
JWKS = [jose.public_jwk(keyfile.generate().public_key()) for _ in range(3)]
KIDS = [str(jwk["kid"]) for jwk in JWKS]
XS = {str(jwk["kid"]): str(jwk["x"]) for jwk in JWKS}
A, B, C = KIDS


def event(time: int, what: What, kid: str = A, since: int | None = None) -> KeyEvent:
    logged = KeyEvent(time, what, kid, XS[kid], "somebody")
    return logged if since is None else KeyEvent(time, what, kid, XS[kid], "somebody", since=since)


def life(*events: tuple[int, What]) -> KeyLife:
    return fold([event(time, what) for time, what in events])[A]


@st.composite
def histories(draw: st.DrawFn) -> list[KeyEvent]:
    """Any order of events, in time that does not go backwards."""
    now, logged = draw(st.integers(0, MAX_UNIX_S - 200 * DAY)), []
    for _ in range(draw(st.integers(0, 15))):
        now += draw(st.sampled_from([0, 1, PUBLISHED_S, DAY, 10 * DAY]))
        since = draw(st.sampled_from([None, 0, now, now + DAY, MAX_UNIX_S]))
        logged.append(event(now, draw(st.sampled_from(get_args(What))), draw(st.sampled_from(KIDS)), since))
    return logged


def of(history: Sequence[KeyEvent], kid: str) -> list[KeyEvent]:
    return [one for one in history if one.kid == kid]


# -- the archive ---------------------------------------------------------------------------------------------------------


@given(histories())
def test_verifiers_take_the_archive_of_any_history(history: list[KeyEvent]) -> None:
    found = parse_archive(archive(fold(history)))
    assert set(found) == {one.kid for one in history if one.what == "active"}
    for kid, key in found.items():
        revoked = [one.true_since for one in of(history, kid) if one.what == "revoked"]
        assert key.revoked_from == (min(revoked) if revoked else None)
        logged = [one for one in of(history, kid) if one.what != "published"]
        assert (key.last_token_exp is None) == (logged[-1].what == "active")
        began = [one.true_since for one in logged if one.what == "active"]
        assert key.active_from == min(began)


def test_a_window_reaches_from_the_first_token_to_the_last_ones_expiry() -> None:
    old = life((1, "next"), (2, "published"), (1000, "active"), (5000, "retiring"), (6000, "archived"))
    assert (old.active_from, old.last_token_exp) == (1000, 5000 + LAST_TOKEN_S), "the time of its retirement counts"
    again = life((1000, "active"), (5000, "retiring"), (6000, "active"), (7000, "removed"))
    assert (again.active_from, again.last_token_exp) == (1000, 7000 + LAST_TOKEN_S)
    assert life((1000, "next"), (2000, "retiring"), (3000, "archived")).last_token_exp is None


def test_a_key_began_when_it_was_told_to_have_begun_at_the_earliest() -> None:
    ahead = fold([event(5000, "active"), event(5000, "active", since=900), event(6000, "active")])[A]
    assert (ahead.active_from, ahead.what, ahead.began_until) == (900, "active", None)


def test_a_thief_may_have_been_at_work_earlier_than_was_told_and_never_later() -> None:
    revoked = fold([event(5, "active"), event(90, "revoked", since=70), event(95, "revoked", since=40)])[A]
    assert revoked.revoked_from == 40
    assert not revoked.trusted
    assert fold([event(5, "active"), event(90, "revoked", since=700)])[A].revoked_from == 90


# -- an event ------------------------------------------------------------------------------------------------------------

LINE = {"version": 1, "time": NOW, "what": "next", "kid": A, "x": XS[A], "who": "somebody"}


def test_a_key_takes_a_place_in_the_archive_when_it_first_signs() -> None:
    waiting = [event(NOW, "next"), event(NOW, "published"), event(NOW, "next", B)]
    assert [keys_left({}), keys_left(fold(waiting))] == [MAX_SIGNED_KEYS] * 2 == [MAX_ARCHIVED] * 2
    signed = [*waiting, event(NOW, "active"), event(NOW, "active", B), event(NOW, "revoked", B)]
    assert keys_left(fold(signed)) == MAX_SIGNED_KEYS - 2


def test_an_event_is_written_with_what_it_says_and_nothing_else() -> None:
    assert msgspec.json.decode(msgspec.json.encode(event(NOW, "next"))) == LINE
    assert msgspec.convert(LINE, KeyEvent) == event(NOW, "next")
    with pytest.raises(msgspec.ValidationError, match="unknown field `reason`"):
        msgspec.convert(LINE | {"reason": ""}, KeyEvent)


def test_what_an_event_says_is_bounded() -> None:
    bounds: list[tuple[str, object, object]] = [
        ("time", 0, -1), ("time", MAX_UNIX_S - LAST_TOKEN_S, MAX_UNIX_S - LAST_TOKEN_S + 1),
        ("who", "x" * 512, "x" * 513), ("why", "x" * 512, "x" * 513),
    ]  # fmt: skip
    for name, good, bad in bounds:
        assert getattr(msgspec.convert(LINE | {name: good}, KeyEvent), name) == good
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert(LINE | {name: bad}, KeyEvent)


def test_the_latest_time_is_that_of_any_event_of_any_key() -> None:
    assert latest({}) == 0
    assert latest(fold([event(0, "next")])) == 0
    assert latest(fold([event(3, "next"), event(5, "active", B)])) == 5
    assert latest(fold([event(3, "next"), event(5, "active", B), event(9, "published")])) == 9


# -- which key may sign --------------------------------------------------------------------------------------------------


@given(histories())
def test_no_key_signs_before_everybody_may_know_it(history: list[KeyEvent]) -> None:
    """But the first one, which waits for nobody, and one that did sign and has been in the key set since."""
    lives = fold(history)
    for kid in KIDS:
        logged = of(history, kid)
        states = [one for one in logged if one.what != "published"]
        signs_from = may_sign_from(lives, kid)
        if any(one.what == "revoked" for one in logged) or (states and states[-1].what == "archived"):
            assert signs_from is None
        elif signs_from == 0:
            assert not any(one.what == "active" for one in history) or _kept(states)
        elif signs_from is not None:
            left = max((at for at, one in enumerate(logged) if one.what in {"archived", "removed"}), default=-1)
            assert signs_from - PUBLISHED_S in {one.time for one in logged[left + 1 :] if one.what == "published"}


def _kept(states: Sequence[KeyEvent]) -> bool:
    """Say whether a key signed, and was neither archived since nor lost and then begun anew."""
    trusted = False
    for before, one in zip([None, *states], states, strict=False):
        if one.what == "active":
            trusted = True
        elif one.what == "archived" or (one.what == "next" and before is not None and before.what == "removed"):
            trusted = False
    return trusted


def test_what_was_taken_out_never_signs_even_where_nothing_has_signed_yet() -> None:
    ends: tuple[What, ...] = ("archived", "revoked")
    for last in ends:
        assert may_sign_from(fold([event(1, "next"), event(2, "published"), event(3, last)]), A) is None
        lives = fold([event(1, "active"), event(3, last), event(4, "active", B), event(5, "published")])
        assert may_sign_from(lives, A) is None


def test_an_archived_key_is_published_anew_before_it_signs() -> None:
    old = [event(1, "active"), event(2, "retiring"), event(3, "archived"), event(4, "active", B)]
    back = [*old, event(NOW, "next")]
    assert may_sign_from(fold(back), A) is None
    assert may_sign_from(fold([*back, event(NOW + 5, "published")]), A) == NOW + 5 + PUBLISHED_S
    revoked = [*old, event(5, "revoked"), event(NOW, "next"), event(NOW + 5, "published"), event(NOW + 9, "active")]
    assert may_sign_from(fold(revoked), A) is None


def test_who_was_published_before_it_left_the_key_set_waits_again() -> None:
    logged = [
        event(1, "active", B),
        event(2, "next"),
        event(3, "published"),
        event(4, "removed"),
        event(5, "published"),
    ]
    assert may_sign_from(fold(logged), A) is None
    assert may_sign_from(fold([*logged, event(NOW, "next")]), A) is None


def test_a_key_that_signs_waits_for_nothing_when_its_disk_was_away() -> None:
    away = [event(1, "active"), event(2, "removed")]
    assert may_sign_from(fold(away), A) == 0
    assert may_sign_from(fold([*away, event(3, "active")]), A) == 0
    assert may_sign_from(fold([*away, event(3, "next")]), A) is None, "begun anew, it is published anew"


def test_the_first_key_of_an_issuer_signs_at_once_and_its_second_does_not() -> None:
    assert may_sign_from({}, A) == 0
    assert may_sign_from(fold([event(1, "next"), event(1, "next", B)]), B) == 0
    assert may_sign_from(fold([event(1, "active"), event(1, "next", B)]), B) is None
    assert may_sign_from(fold([event(1, "active")]), C) is None, "it is unknown"


# -- a rotation ----------------------------------------------------------------------------------------------------------


def test_a_rotation_publishes_waits_activates_waits_and_archives() -> None:
    lives = fold([event(NOW - DAY, "active")])
    assert steps({A: "active"}, lives, NOW) == [KeyStep("generate", "", NOW)]
    lives = fold([event(NOW - DAY, "active"), event(NOW, "next", B)])
    both = {A: "active", B: "next"}
    assert steps(both, lives, NOW) == [KeyStep("activate", B, None)], "no host has published it yet"
    history = [event(NOW - DAY, "active"), event(NOW, "next", B), event(NOW + 2, "published", B)]
    assert steps(both, fold(history), NOW) == [KeyStep("activate", B, NOW + 2 + PUBLISHED_S)]
    at = NOW + 2 + PUBLISHED_S
    history += [event(at, "retiring"), event(at, "active", B)]
    assert steps({A: "retiring", B: "active"}, fold(history), at) == [
        KeyStep("archive", A, at + LAST_TOKEN_S),
        KeyStep("generate", "", at + LAST_TOKEN_S),
    ]
    assert steps({B: "active"}, fold([*history, event(at + LAST_TOKEN_S, "archived")]), at + DAY * 3) == [
        KeyStep("generate", "", at + DAY * 3)
    ]


def test_without_an_active_key_the_end_of_a_rotation_is_not_waited_for() -> None:
    logged = [event(1, "active"), event(NOW, "retiring"), event(NOW, "active", B), event(NOW + 5, "revoked", B)]
    lives = fold(logged)
    assert steps({A: "retiring", B: "revoked"}, lives, NOW + 9)[0] == KeyStep("generate", "", NOW + 9)


def test_a_revoked_key_that_lies_in_next_is_no_successor() -> None:
    lives = fold([event(1, "active"), event(2, "revoked", B), event(3, "next", B)])
    assert [step.do for step in steps({A: "active", B: "next"}, lives, NOW)] == ["generate"]


def test_who_retires_without_having_signed_may_leave_at_once() -> None:
    lives = fold([event(1, "active"), event(2, "retiring", B)])
    assert steps({A: "active", B: "retiring"}, lives, NOW)[0] == KeyStep("archive", B, NOW)


def test_a_plan_has_every_time_of_a_rotation() -> None:
    folders = {A: "active", B: "next"}
    lives = fold([event(NOW - DAY, "active"), event(NOW, "next", B), event(NOW + 2, "published", B)])
    change = NOW + 2 + PUBLISHED_S
    assert plan(folders, lives, NOW + 10) == [
        KeyPlan(A, "active", None, NOW - DAY, change, change + LAST_TOKEN_S),
        KeyPlan(B, "next", NOW + 2, change, None, None),
    ]
    unpublished = fold([event(NOW - DAY, "active"), event(NOW, "next", B)])
    begins = NOW + 10 + PUBLISHED_S
    assert plan(folders, unpublished, NOW + 10)[1] == KeyPlan(B, "next", None, begins, None, None)
    begun = plan({A: "active"}, lives, NOW)
    assert begun == [
        KeyPlan(A, "active", None, NOW - DAY, NOW + PUBLISHED_S, NOW + PUBLISHED_S + LAST_TOKEN_S),
        KeyPlan("", "to come", NOW, NOW + PUBLISHED_S, None, None),
    ]


def test_a_key_comes_into_its_next_state_when_a_rotation_may_move_it() -> None:
    folders = {A: "active"}
    logged = [event(1, "active")]
    assert moves_from(folders, fold(logged), A) is None, "no other key can follow it"
    folders[B], logged = "next", [*logged, event(NOW, "next", B)]
    assert [moves_from(folders, fold(logged), kid) for kid in (A, B)] == [None, None], "not every host has published it"
    logged.append(event(NOW + 5, "published", B))
    assert [moves_from(folders, fold(logged), kid) for kid in (A, B)] == [NOW + 5 + PUBLISHED_S] * 2
    two = fold([*logged, event(NOW + 6, "next", C), event(NOW + 7, "published", C)])
    assert moves_from({**folders, C: "next"}, two, A) == NOW + 5 + PUBLISHED_S, "the first of two successors"
    folders, logged = (
        {A: "retiring", B: "active"},
        [*logged, event(NOW + 999, "active", B), event(NOW + 999, "retiring")],
    )
    assert moves_from(folders, fold(logged), A) == NOW + 999 + LAST_TOKEN_S
    assert moves_from({C: "retiring"}, fold([event(1, "next", C), event(2, "retiring", C)]), C) == 0


def test_a_plan_says_when_a_key_retired_and_nothing_of_an_unknown_key() -> None:
    lives = fold([event(NOW - DAY, "active"), event(NOW, "active", B), event(NOW, "retiring")])
    folders = {A: "retiring", B: "active", C: "retiring"}
    old, _, unknown, _ = plan(folders, lives, NOW + 10)
    assert old == KeyPlan(A, "retiring", None, NOW - DAY, NOW, NOW + LAST_TOKEN_S)
    assert unknown == KeyPlan(C, "retiring", None, None, None, None)


@given(histories(), st.dictionaries(st.sampled_from(KIDS), st.sampled_from(sorted(STATES))))
def test_no_key_leaves_before_its_last_token_expires(history: list[KeyEvent], states: dict[str, str]) -> None:
    lives = fold(history)
    now = max([NOW, *(one.time for one in history)])
    left = steps(states, lives, now)
    assert any(step.do != "archive" for step in left)
    for step in left:
        ends = lives[step.kid].last_token_exp if step.kid in lives else None
        assert step.do != "archive" or step.due is None or ends is None or step.due >= ends
        assert step.do != "activate" or step.due == may_sign_from(lives, step.kid)
    assert [one.kid for one in plan(states, lives, now) if one.kid] == list(states)
