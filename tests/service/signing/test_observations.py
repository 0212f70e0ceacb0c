"""A host's conclusions from its folders and the shared history: the key that signs, and the events that it records.

Folders and histories are written as `active A, next B`.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from issuer.formats import jose
from issuer.io import keyfile
from issuer.service.signing.bounds import CLOCK_BACK_S, PUBLISHED_S
from issuer.service.signing.lifecycle import (
    KeyEvent,
    KeyObservation,
    Lives,
    MissingEvent,
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
KIDS = {"A": A, "B": B, "C": C}
LETTERS = {kid: letter for letter, kid in KIDS.items()}


def read(text: str) -> Iterator[tuple[Any, str]]:
    for entry in filter(None, text.split(", ")):
        word, letter = entry.split()
        yield word, KIDS[letter]


def lives_of(text: str) -> Lives:
    """Return what a history says, in which a second passes with each event, and the last one is at NOW."""
    events = [*read(text)]
    begin = NOW - len(events) + 1
    return fold(KeyEvent(begin + at, what, kid, XS[kid], "somebody") for at, (what, kid) in enumerate(events))


def seen_in(folders: str, made: int = 0) -> list[KeyObservation]:
    return [KeyObservation(kid, XS[kid], state, made) for state, kid in read(folders)]


def recorded(folders: str, lives: str | Lives, before: str | None, *, now: int = NOW, changed: bool = False) -> str:
    """Return the events that lack, written in the same way."""
    known = lives_of(lives) if isinstance(lives, str) else lives
    missing = missing_events(seen_in(folders), known, before, now, changed=changed)
    return ", ".join(f"{event.what} {LETTERS[event.kid]}" for event in missing)


def test_what_lies_in_active_signs_once_the_history_has_it_as_active() -> None:
    both = seen_in("retiring A, active B")
    assert signer_of(both, lives_of("active A, next B"), A) == A
    assert signer_of(both, lives_of("active A, next B, active B"), A) == B
    assert signer_of(seen_in("retiring A"), lives_of("active A"), A) is None, "without a key in active none signs"
    assert signer_of(both, lives_of("active A, next B, archived A"), A) is None, "an archived key does not go on"
    assert signer_of(both, lives_of("next B"), A) is None, "nor does an unknown one"


def test_until_its_successor_may_sign_the_last_signer_goes_on() -> None:
    elsewhere = lives_of("active A, active C, retiring A")
    assert signer_of(seen_in("active A, next C"), elsewhere, A) == A
    assert signer_of(seen_in("active A, next C"), elsewhere, None) == C
    assert signer_of(seen_in("active B, next C"), elsewhere, A) == C, "its file is gone"
    assert signer_of(seen_in("active B"), elsewhere, None) is None
    two = lives_of("active A, active C, next B")
    assert signer_of(seen_in("retiring C, retiring A, active B"), two, None) == C, "the latest"


def test_a_key_that_waits_in_active_is_next_and_a_revoked_one_has_no_state() -> None:
    folders, lives = seen_in("retiring A, active B, next C"), lives_of("active A, next B, next C")
    assert states_of(folders, lives, A) == {A: "active", B: "next", C: "next"}
    assert waiting(folders, lives, A) == {B: None}
    assert waiting(folders, lives_of("active A, next B, next C, published B"), A) == {B: NOW + PUBLISHED_S}
    signs = lives_of("active A, retiring A, next C, active B")
    assert states_of(folders, signs, A) == {A: "retiring", B: "active", C: "next"}
    assert waiting(folders, signs, A) == {}
    folders, lives = seen_in("active A, next B"), lives_of("active A, next B, revoked A")
    assert (states_of(folders, lives, A), waiting(folders, lives, A), revoked(lives)) == ({B: "next"}, {}, {A})


def test_a_key_may_sign_from_the_second_on_in_which_everybody_can_know_it() -> None:
    folders, lives = seen_in("active A, next B, next C"), lives_of("active A, next B, published B")
    assert may_sign(folders, lives, NOW + PUBLISHED_S - 1) == (A,)
    assert may_sign(folders, lives, NOW + PUBLISHED_S) == (A, B)
    assert may_sign(folders, {}, NOW) == (), "a key that the history does not name never signs"


def test_a_history_begins_with_who_retired_then_who_signs_then_who_is_to_come() -> None:
    events = missing_events(seen_in("next C, active B, retiring A", made=7), {}, None, NOW, changed=True)
    assert [(event.what, event.kid, event.since) for event in events] == [
        ("active", A, 7), ("retiring", A, UNSET), ("active", B, 7), ("next", C, UNSET),
    ]  # fmt: skip
    (event,) = missing_events(seen_in("active A"), {}, None, NOW, changed=True)
    assert event == MissingEvent(A, XS[A], "active", "found in keys/active"), "when its file was made is not known"


def test_a_host_whose_folders_changed_tells_where_each_key_is_unless_it_was_told() -> None:
    for folders, lives, before, told in (
        ("next A", "next A", None, ""),
        ("retiring A, active B, next C", "active A, active B, retiring A, next C", B, ""),
        ("active A, next B, retiring C", "active A", A, "next B, next C"),
        ("next A, active B", "active A, active B, retiring A", B, "next A"),  # it has signed, and its file is in next
        ("retiring A, active B", "active A, active B", B, "retiring A"),
        ("active A", "active B, retiring B, active A, next C", A, "removed B, removed C"),
        ("active A", "active B, active A, archived B", A, ""),
        ("active A", "active B, active A, revoked B", A, ""),
        ("active A", "active B, active A, removed B", A, ""),
        ("active A, next B", "active A, next B, revoked B", A, ""),  # a revoked key is neither told nor lost
    ):
        assert recorded(folders, lives, before, changed=True) == told, (folders, lives)


def test_a_host_that_did_not_change_records_its_signer_and_a_lost_next_key_alone() -> None:
    for folders, lives, told in (
        ("active A, next B", "active A", ""),
        ("active A, next C", "active A, active B, retiring A", "active A"),  # neither what is new here, nor what lacks
        (
            "retiring A, active B, next C",
            "active A, active B, retiring A",
            "",
        ),  # another host has recorded that B signs
        ("retiring A, next C", "active A", ""),
        ("active A", "active B, retiring B, active A, next C", "removed C"),
    ):
        assert recorded(folders, lives, A) == told, (folders, lives)


def test_a_key_in_active_is_recorded_as_next_until_it_is_due() -> None:
    assert recorded("retiring A, active B", "active A", A, changed=True) == "next B"
    lives, due = "active A, next B, published B", NOW + PUBLISHED_S
    assert recorded("retiring A, active B", lives, A, now=due - 1, changed=True) == ""
    assert recorded("retiring A, active B", lives, A, now=due) == "retiring A, active B"


def test_a_key_that_signs_before_its_history_says_so_is_recorded_once() -> None:
    lives = lives_of("active A")
    (event,) = missing_events(seen_in("active A, next B"), lives, A, NOW - 1, changed=False)
    assert (event.what, event.kid, event.since) == ("active", A, NOW - 1 - CLOCK_BACK_S)
    assert recorded("active A, next B", lives, A) == ""
    corrected = fold([KeyEvent(NOW, "active", A, XS[A], "somebody", since=NOW - 1 - CLOCK_BACK_S)], lives)
    assert recorded("active A, next B", corrected, A, now=NOW - 1) == ""
    assert [one.since for one in missing_events(seen_in("active A"), lives, A, 5, changed=False)] == [0]
    stopped = recorded("retiring A", "active A, retiring A", None, now=5)
    assert stopped == "", "a key that has stopped signing gets no new event"


def test_a_signer_whose_history_begins_later_is_recorded_as_signing_now() -> None:
    lives, folders = lives_of("active A, active B"), seen_in("active A, retiring B")
    for now, since in ((NOW - 100, NOW - 100 - CLOCK_BACK_S), (CLOCK_BACK_S, 0), (5, 0)):
        (event,) = missing_events(folders, lives, A, now, changed=False)
        assert event == MissingEvent(A, XS[A], "active", "a clock was ahead", since)
    assert missing_events(folders, lives, A, NOW - 1, changed=False) == [], "it has begun in this very second"


def test_a_key_to_come_is_told_as_published_once() -> None:
    folders = seen_in("active A, next B, next C")
    assert [event.kid for event in missing_publications(folders, lives_of("active A, next B"))] == [B]
    assert missing_publications(folders, lives_of("active A, next B, published B")) == []
