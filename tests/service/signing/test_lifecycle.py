"""Conclusions from any history of keys: the keys that may sign, the archive, and the next step."""

from collections.abc import Sequence
from typing import cast, get_args

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
    KeyPlan,
    KeyStep,
    Lives,
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


def lives_of(text: str) -> Lives:
    """Return what a history says, which is written as `1 next A, 5 active A`."""
    events = (entry.split() for entry in filter(None, text.split(", ")))
    return fold(event(int(time), cast("What", what), KIDS["ABC".index(letter)]) for time, what, letter in events)


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
    old = lives_of("1 next A, 2 published A, 1000 active A, 5000 retiring A, 6000 archived A")[A]
    assert (old.active_from, old.last_token_exp) == (1000, 5000 + LAST_TOKEN_S), "the time of its retirement counts"
    again = lives_of("1000 active A, 5000 retiring A, 6000 active A, 7000 removed A")[A]
    assert (again.active_from, again.last_token_exp) == (1000, 7000 + LAST_TOKEN_S)
    assert lives_of("1000 next A, 2000 retiring A, 3000 archived A")[A].last_token_exp is None
    ahead = fold([event(5000, "active"), event(5000, "active", since=900), event(6000, "active")])[A]
    assert (ahead.active_from, ahead.what, ahead.began_until) == (900, "active", None), "at the earliest"


def test_a_thief_may_have_been_at_work_earlier_than_was_told_and_never_later() -> None:
    revoked = fold([event(5, "active"), event(90, "revoked", since=70), event(95, "revoked", since=40)])[A]
    assert (revoked.revoked_from, revoked.trusted) == (40, False)
    assert fold([event(5, "active"), event(90, "revoked", since=700)])[A].revoked_from == 90


# -- an event ------------------------------------------------------------------------------------------------------------

LINE = {"version": 1, "time": NOW, "what": "next", "kid": A, "x": XS[A], "who": "somebody"}


def test_a_key_takes_a_place_in_the_archive_when_it_first_signs() -> None:
    waiting = [event(NOW, "next"), event(NOW, "published"), event(NOW, "next", B)]
    assert [keys_left({}), keys_left(fold(waiting))] == [MAX_SIGNED_KEYS] * 2 == [MAX_ARCHIVED] * 2
    signed = [*waiting, event(NOW, "active"), event(NOW, "active", B), event(NOW, "revoked", B)]
    assert keys_left(fold(signed)) == MAX_SIGNED_KEYS - 2


def test_an_event_is_written_with_what_it_says_within_its_bounds_and_nothing_else() -> None:
    assert msgspec.json.decode(msgspec.json.encode(event(NOW, "next"))) == LINE
    assert msgspec.convert(LINE, KeyEvent) == event(NOW, "next")
    with pytest.raises(msgspec.ValidationError, match="unknown field `reason`"):
        msgspec.convert(LINE | {"reason": ""}, KeyEvent)
    bounds: list[tuple[str, object, object]] = [
        ("time", 0, -1), ("time", MAX_UNIX_S - LAST_TOKEN_S, MAX_UNIX_S - LAST_TOKEN_S + 1),
        ("who", "x" * 512, "x" * 513), ("why", "x" * 512, "x" * 513),
    ]  # fmt: skip
    for name, good, bad in bounds:
        assert getattr(msgspec.convert(LINE | {name: good}, KeyEvent), name) == good
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert(LINE | {name: bad}, KeyEvent)


def test_the_latest_time_is_that_of_any_event_of_any_key() -> None:
    histories = ("", "0 next A", "3 next A, 5 active B", "3 next A, 5 active B, 9 published A")
    assert [latest(lives_of(history)) for history in histories] == [0, 0, 5, 9]


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


OLD = "1 active A, 2 retiring A, 3 archived A, 4 active B"
SIGNS_FROM: list[tuple[str, str, int | None]] = [
    # A key that was taken out never signs, even if none has signed yet.
    ("1 next A, 2 published A, 3 archived A", A, None),
    ("1 next A, 2 published A, 3 revoked A", A, None),
    ("1 active A, 3 archived A, 4 active B, 5 published A", A, None),
    ("1 active A, 3 revoked A, 4 active B, 5 published A", A, None),
    # An archived key is published anew before it signs.
    (f"{OLD}, 90 next A", A, None),
    (f"{OLD}, 90 next A, 95 published A", A, 95 + PUBLISHED_S),
    (f"{OLD}, 5 revoked A, 90 next A, 95 published A, 99 active A", A, None),
    # So is one that was published before it left the key set.
    ("1 active B, 2 next A, 3 published A, 4 removed A, 5 published A", A, None),
    ("1 active B, 2 next A, 3 published A, 4 removed A, 5 published A, 90 next A", A, None),
    # A key that signs waits for nothing when its disk was away, unless it is begun anew.
    ("1 active A, 2 removed A", A, 0),
    ("1 active A, 2 removed A, 3 active A", A, 0),
    ("1 active A, 2 removed A, 3 next A", A, None),
    # The first key of an issuer signs at once, and its second, or an unknown one, does not.
    ("", A, 0),
    ("1 next A, 1 next B", B, 0),
    ("1 active A, 1 next B", B, None),
    ("1 active A", C, None),
]


def test_a_key_signs_when_its_history_allows_it() -> None:
    found = [(history, kid, may_sign_from(lives_of(history), kid)) for history, kid, _ in SIGNS_FROM]
    assert found == SIGNS_FROM


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


def test_the_next_step_waits_for_nothing_that_will_not_come() -> None:
    lives = fold([event(1, "active"), event(NOW, "retiring"), event(NOW, "active", B), event(NOW + 5, "revoked", B)])
    assert steps({A: "retiring", B: "revoked"}, lives, NOW + 9)[0] == KeyStep("generate", "", NOW + 9), "none is active"
    lives = lives_of("1 active A, 2 revoked B, 3 next B")
    assert [step.do for step in steps({A: "active", B: "next"}, lives, NOW)] == ["generate"], (
        "a revoked key does not follow"
    )
    lives = lives_of("1 active A, 2 retiring B")
    assert steps({A: "active", B: "retiring"}, lives, NOW)[0] == KeyStep("archive", B, NOW), "it has never signed"


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
    rotated = fold([event(NOW - DAY, "active"), event(NOW, "active", B), event(NOW, "retiring")])
    old, _, unknown, _ = plan({A: "retiring", B: "active", C: "retiring"}, rotated, NOW + 10)
    assert old == KeyPlan(A, "retiring", None, NOW - DAY, NOW, NOW + LAST_TOKEN_S)
    assert unknown == KeyPlan(C, "retiring", None, None, None, None)


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
