"""A host's conclusions from its folders and the shared history: the key that signs, and the events that it records."""

from msgspec import UNSET

from issuer.formats import jose
from issuer.io import keyfile
from issuer.service.signing.bounds import CLOCK_BACK_S, PUBLISHED_S
from issuer.service.signing.lifecycle import (
    KeyEvent,
    KeyObservation,
    KeyState,
    Lives,
    MissingEvent,
    What,
    fold,
    may_sign,
    missing_events,
    missing_publications,
    revoked,
    signer_of,
    states_of,
    waiting,
)

NOW = 1_795_251_600
JWKS = [jose.public_jwk(keyfile.generate().public_key()) for _ in range(3)]
XS = {str(jwk["kid"]): str(jwk["x"]) for jwk in JWKS}
A, B, C = XS


def lives_of(*events: tuple[What, str]) -> Lives:
    """Return what a history says, in which a second passes with each event, and the last one is at NOW."""
    begin = NOW - len(events) + 1
    return fold(KeyEvent(begin + at, what, kid, XS[kid], "somebody") for at, (what, kid) in enumerate(events))


def seen_in(folders: dict[str, KeyState], made: int = 0) -> list[KeyObservation]:
    return [KeyObservation(kid, XS[kid], state, made) for kid, state in folders.items()]


def recorded(
    folders: dict[str, KeyState], lives: Lives, before: str | None, *, now: int = NOW, changed: bool = False
) -> list[tuple[What, str]]:
    return [(event.what, event.kid) for event in missing_events(seen_in(folders), lives, before, now, changed=changed)]


# -- who signs --------------------------------------------------------------------------------------------------------


def test_what_lies_in_active_signs_once_the_history_has_it_as_active() -> None:
    both = seen_in({A: "retiring", B: "active"})
    assert signer_of(both, lives_of(("active", A), ("next", B)), A) == A
    assert signer_of(both, lives_of(("active", A), ("next", B), ("active", B)), A) == B


def test_without_a_key_in_active_none_signs() -> None:
    assert signer_of(seen_in({A: "retiring"}), lives_of(("active", A)), A) is None


def test_until_its_successor_may_sign_the_last_signer_goes_on() -> None:
    elsewhere = lives_of(("active", A), ("active", C), ("retiring", A))
    assert signer_of(seen_in({A: "active", C: "next"}), elsewhere, A) == A
    assert signer_of(seen_in({A: "active", C: "next"}), elsewhere, None) == C
    assert signer_of(seen_in({B: "active", C: "next"}), elsewhere, A) == C, "its file is gone"
    assert signer_of(seen_in({B: "active"}), elsewhere, None) is None
    two = lives_of(("active", A), ("active", C), ("next", B))
    assert signer_of(seen_in({C: "retiring", A: "retiring", B: "active"}), two, None) == C, "the latest"


def test_an_archived_or_unknown_key_does_not_go_on() -> None:
    folders = seen_in({A: "retiring", B: "active"})
    assert signer_of(folders, lives_of(("active", A), ("next", B), ("archived", A)), A) is None
    assert signer_of(folders, lives_of(("next", B)), A) is None


def test_a_key_that_waits_in_active_is_next_and_the_one_that_signs_is_active() -> None:
    folders, lives = seen_in({A: "retiring", B: "active", C: "next"}), lives_of(("active", A), ("next", B), ("next", C))
    assert states_of(folders, lives, A) == {A: "active", B: "next", C: "next"}
    assert waiting(folders, lives, A) == {B: None}
    published = lives_of(("active", A), ("next", B), ("next", C), ("published", B))
    assert waiting(folders, published, A) == {B: NOW + PUBLISHED_S}
    signs = lives_of(("active", A), ("retiring", A), ("next", C), ("active", B))
    assert states_of(folders, signs, A) == {A: "retiring", B: "active", C: "next"}
    assert waiting(folders, signs, A) == {}


def test_a_revoked_key_has_no_state_wherever_it_lies() -> None:
    folders, lives = seen_in({A: "active", B: "next"}), lives_of(("active", A), ("next", B), ("revoked", A))
    assert states_of(folders, lives, A) == {B: "next"}
    assert waiting(folders, lives, A) == {}
    assert revoked(lives) == {A}


def test_a_key_may_sign_from_the_second_on_in_which_everybody_can_know_it() -> None:
    folders, lives = (
        seen_in({A: "active", B: "next", C: "next"}),
        lives_of(("active", A), ("next", B), ("published", B)),
    )
    assert may_sign(folders, lives, NOW + PUBLISHED_S - 1) == (A,)
    assert may_sign(folders, lives, NOW + PUBLISHED_S) == (A, B)
    assert may_sign(folders, {}, NOW) == (), "a key that the history does not name never signs"


# -- what is recorded -----------------------------------------------------------------------------------------------------


def test_a_history_begins_with_who_retired_then_who_signs_then_who_is_to_come() -> None:
    events = missing_events(seen_in({C: "next", B: "active", A: "retiring"}, made=7), {}, None, NOW, changed=True)
    assert [(event.what, event.kid, event.since) for event in events] == [
        ("active", A, 7), ("retiring", A, UNSET), ("active", B, 7), ("next", C, UNSET),
    ]  # fmt: skip
    (event,) = missing_events(seen_in({A: "active"}), {}, None, NOW, changed=True)
    assert event == MissingEvent(A, XS[A], "active", "found in keys/active"), "when its file was made is not known"


def test_what_was_told_is_not_told_again() -> None:
    assert recorded({A: "next"}, lives_of(("next", A)), None, changed=True) == []
    lives = lives_of(("active", A), ("active", B), ("retiring", A), ("next", C))
    assert recorded({A: "retiring", B: "active", C: "next"}, lives, B, changed=True) == []


def test_a_host_whose_folders_changed_tells_where_each_key_is() -> None:
    lives = lives_of(("active", A))
    assert recorded({A: "active", B: "next", C: "retiring"}, lives, A, changed=True) == [("next", B), ("next", C)]
    assert recorded({A: "active", B: "next"}, lives, A) == []
    lives = lives_of(("active", A), ("active", B), ("retiring", A))
    assert recorded({A: "next", B: "active"}, lives, B, changed=True) == [("next", A)], (
        "it has signed, and its file is in next"
    )
    assert recorded({A: "retiring", B: "active"}, lives_of(("active", A), ("active", B)), B, changed=True) == [
        ("retiring", A)
    ]


def test_a_key_in_active_is_recorded_as_next_until_it_is_due() -> None:
    folders: dict[str, KeyState] = {A: "retiring", B: "active"}
    assert recorded(folders, lives_of(("active", A)), A, changed=True) == [("next", B)]
    lives, due = lives_of(("active", A), ("next", B), ("published", B)), NOW + PUBLISHED_S
    assert recorded(folders, lives, A, now=due - 1, changed=True) == []
    assert recorded(folders, lives, A, now=due) == [("retiring", A), ("active", B)]


def test_a_host_that_did_not_change_records_only_its_signer() -> None:
    put_away = lives_of(("active", A), ("active", B), ("retiring", A))
    assert recorded({A: "active", C: "next"}, put_away, A) == [("active", A)], (
        "neither what is new here, nor what lacks"
    )
    assert recorded({A: "retiring", B: "active", C: "next"}, put_away, A) == [], (
        "another host has recorded that B signs"
    )


def test_a_key_that_signs_before_its_history_says_so_is_recorded_once() -> None:
    lives = lives_of(("active", A))
    (event,) = missing_events(seen_in({A: "active", B: "next"}), lives, A, NOW - 1, changed=False)
    assert (event.what, event.kid, event.since) == ("active", A, NOW - 1 - CLOCK_BACK_S)
    assert recorded({A: "active", B: "next"}, lives, A) == []
    corrected = fold([KeyEvent(NOW, "active", A, XS[A], "somebody", since=NOW - 1 - CLOCK_BACK_S)], lives)
    assert recorded({A: "active", B: "next"}, corrected, A, now=NOW - 1) == []
    assert [one.since for one in missing_events(seen_in({A: "active"}), lives, A, 5, changed=False)] == [0]
    assert recorded({A: "retiring"}, lives_of(("active", A), ("retiring", A)), None, now=5) == [], (
        "a key that has stopped signing gets no new event"
    )


def test_without_a_key_in_active_a_host_that_did_not_change_tells_nothing() -> None:
    assert recorded({A: "retiring", C: "next"}, lives_of(("active", A)), A) == []


def test_a_missing_key_is_recorded_when_the_folders_change() -> None:
    lives = lives_of(("active", B), ("retiring", B), ("active", A), ("next", C))
    assert recorded({A: "active"}, lives, A) == [("removed", C)]
    assert recorded({A: "active"}, lives, A, changed=True) == [("removed", B), ("removed", C)]
    for last in ("archived", "revoked", "removed"):
        ended = lives_of(("active", B), ("active", A), (last, B))
        assert recorded({A: "active"}, ended, A, changed=True) == [], last


def test_a_revoked_key_that_lies_in_a_folder_is_neither_told_nor_lost() -> None:
    lives = lives_of(("active", A), ("next", B), ("revoked", B))
    assert recorded({A: "active", B: "next"}, lives, A, changed=True) == []


def test_a_signer_whose_history_begins_later_is_recorded_as_signing_now() -> None:
    lives = lives_of(("active", A), ("active", B))
    folders = seen_in({A: "active", B: "retiring"})
    for now, since in ((NOW - 100, NOW - 100 - CLOCK_BACK_S), (CLOCK_BACK_S, 0), (5, 0)):
        (event,) = missing_events(folders, lives, A, now, changed=False)
        assert event == MissingEvent(A, XS[A], "active", "a clock was ahead", since)
    assert missing_events(folders, lives, A, NOW - 1, changed=False) == [], "it has begun in this very second"


def test_a_key_to_come_is_told_as_published_once() -> None:
    folders = seen_in({A: "active", B: "next", C: "next"})
    assert [event.kid for event in missing_publications(folders, lives_of(("active", A), ("next", B)))] == [B]
    assert missing_publications(folders, lives_of(("active", A), ("next", B), ("published", B))) == []
