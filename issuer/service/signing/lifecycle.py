"""The life of the signing keys: what happened to each, what a host sees of them, and what follows from both. Pure.

    next ─► active ─► retiring ─► archived        and revoked from any of them

A history is a list of events, oldest first, which only grows (history.py keeps it). Everything else is folded from it:
which key may sign, what the archive says (contract section 5), which step of a rotation is due. A folder says where a
key is to be; the history says how far it has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, get_args

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.formats.times import MAX_UNIX_S, UnixTime
from issuer.service.signing.bounds import CLOCK_BACK_S, LAST_TOKEN_S, MAX_SIGNED_KEYS, PUBLISHED_S

# What can happen to a key: it comes into a state, every host has published it, or it is in no folder any more.
What = Literal["next", "published", "active", "retiring", "archived", "revoked", "removed"]
# The states whose keys are in the key set, and the folders where these keys lie.
KeyState = Literal["next", "active", "retiring"]
STATES: tuple[KeyState, ...] = get_args(KeyState)
# Far enough from the last second that there is that every time made of one can be written, too.
EventTime = Annotated[int, Meta(ge=0, le=MAX_UNIX_S - LAST_TOKEN_S)]
Words = Annotated[str, Meta(max_length=512)]


class KeyEvent(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of the history, which begins with its `version`: what happened to the key `kid`, whose public half is `x`
    (RFC 8037), who did it, and why.

    `time` is when it was recorded. `since` is set where it is true since an earlier time: of `revoked`, since when a
    thief may have used the key; of `active`, when a key that signed before there was a history was made. Unix seconds.
    `active` is the leave to sign: who records it has asked `may_sign_from`, or was told not to wait.
    """

    time: EventTime
    what: What
    kid: str
    x: str
    who: Words
    why: Words = ""
    since: UnixTime | UnsetType = UNSET

    @property
    def true_since(self) -> int:
        """Since when it is true, in Unix seconds."""
        return self.time if self.since is UNSET else min(self.since, self.time)


class KeyLife(Struct, frozen=True):
    """What the history says of one key. All times are Unix seconds; None where it has not happened.

    It was first heard of at `seen`. `what` happened last, at `since`; that a key was published is not counted.
    `trusted`: it has signed, and was not taken out of the key set by plan since. It began its first token after
    `active_from`, its last one before `began_until`.
    """

    kid: str
    x: str
    seen: int
    what: What
    since: int
    published: int | None = None
    trusted: bool = False
    active_from: int | None = None
    began_until: int | None = None
    revoked_from: int | None = None

    @property
    def last_token_exp(self) -> int | None:
        """When the last token that it signed has expired; None while it may begin one, and where it never could."""
        return None if self.began_until is None else self.began_until + LAST_TOKEN_S


Lives = Mapping[str, KeyLife]


class KeyObservation(Struct, frozen=True):
    """A key in a folder of a host: `x` is its public half (RFC 8037), `state` its folder, `made` the time of its file
    in Unix seconds, 0 where that is not known."""

    kid: str
    x: str
    state: KeyState
    made: int


Observations = Sequence[KeyObservation]


class Untold(Struct, frozen=True):
    """An event that the history lacks: without its time, and without who tells it."""

    kid: str
    x: str
    what: What
    why: str
    since: int | UnsetType = UNSET


def fold(history: Iterable[KeyEvent], before: Lives = MappingProxyType({})) -> Lives:
    """Return the life of each key, in the order in which they were first seen; `before` is what an earlier part of the
    history said."""
    lives = dict(before)
    for event in history:
        new = KeyLife(event.kid, event.x, event.true_since, "removed", event.time)
        lives[event.kid] = _after(lives.get(event.kid, new), event)
    return lives


def latest(lives: Lives) -> int:
    """Return when anything was last recorded, in Unix seconds; 0 where nothing was."""
    return max((max(life.since, life.published or 0) for life in lives.values()), default=0)


def _after(life: KeyLife, event: KeyEvent) -> KeyLife:
    now, since = event.time, event.true_since
    if (
        event.what == "published"
    ):  # which counts for a key that is in the key set, and not for one that has just left it
        return replace(life, published=now) if life.what in STATES else life
    moved = replace(life, what=event.what, since=now)
    if event.what == "active":
        # Told once more where the clock was ahead the first time: its tokens are dated before that.
        began = since if life.active_from is None else min(since, life.active_from)
        return replace(moved, trusted=True, active_from=began, began_until=None)
    if life.active_from is not None and life.began_until is None:
        moved = replace(moved, began_until=now)
    match event.what:
        case "next":  # who comes back from nowhere is published anew
            return replace(moved, trusted=life.trusted and life.what != "removed")
        case "revoked":
            earliest = since if life.revoked_from is None else min(since, life.revoked_from)
            return replace(moved, published=None, trusted=False, revoked_from=earliest)
        case "archived":
            return replace(moved, published=None, trusted=False)
        case "removed":  # perhaps only a disk that is away for a moment: it stays trusted
            return replace(moved, published=None)
    return moved


# -- which key may sign -----------------------------------------------------------------------------------------------


def may_sign_from(lives: Lives, kid: str) -> int | None:
    """Return from when a key may sign, new tokens and retries alike; None where that is not known, or never.

    A relying party may use a key set for as long as caches may keep it, so a key signs only when every set that anybody
    may hold has it. The first key of an issuer that has signed nothing waits for nobody.
    """
    life = lives.get(kid)
    if life is not None and (life.revoked_from is not None or life.what == "archived"):
        return None
    if (life is not None and life.trusted) or not has_signed(lives):
        return 0
    return None if life is None or life.published is None else life.published + PUBLISHED_S


def keys_left(lives: Lives) -> int:
    """Return how many keys may still sign for the first time: verifiers refuse an archive of more."""
    return MAX_SIGNED_KEYS - sum(life.active_from is not None for life in lives.values())


def has_signed(lives: Lives) -> bool:
    """Say whether any key ever was active."""
    return any(life.active_from is not None for life in lives.values())


# -- who signs on a host -----------------------------------------------------------------------------------------------


def states_of(seen: Observations, lives: Lives, before: str | None) -> dict[str, KeyState]:
    """Return the state in which each key is, by kid: without those that are revoked, wherever their files lie.

    `before` is the key that signed until now. What lies in active/ and does not sign is `next`, and the key that signs
    in its place is active.
    """
    states: dict[str, KeyState] = {key.kid: key.state for key in _usable(seen, lives)}
    states |= {kid: "next" for kid, state in states.items() if state == "active"}
    signs = signer_of(seen, lives, before)
    return states if signs is None else states | {signs: "active"}


def signer_of(seen: Observations, lives: Lives, before: str | None) -> str | None:
    """Return the key that begins tokens: the one in active/, once the history has it as active; until then the one
    `before`, or what the history has as active, if it is still in a folder. Without a key in active/ there is none."""
    usable = {key.kid: key for key in _usable(seen, lives)}
    placed = next((key.kid for key in usable.values() if key.state == "active"), None)
    if placed is None or _what(lives, placed) == "active":
        return placed
    if before in usable and before in lives and lives[before].trusted:
        return before
    return max((kid for kid in usable if _what(lives, kid) == "active"), key=lambda kid: lives[kid].since, default=None)


def may_sign(seen: Observations, lives: Lives, now: int) -> tuple[str, ...]:
    """Return the keys that may sign, new tokens or retries: those that everybody can know."""
    return tuple(key.kid for key in _usable(seen, lives) if key.kid in lives and _is_due(key.kid, lives, now))


def waiting(seen: Observations, lives: Lives, before: str | None) -> dict[str, int | None]:
    """Return the key that lies in active/ and does not sign, with the time from when it may; None: it is not known."""
    signs = signer_of(seen, lives, before)
    placed = (key.kid for key in _usable(seen, lives) if key.state == "active" and key.kid != signs)
    return {kid: may_sign_from(lives, kid) for kid in placed}


def revoked(lives: Lives) -> set[str]:
    """Return the keys that are revoked, wherever their files lie."""
    return {life.kid for life in lives.values() if life.revoked_from is not None}


def _usable(seen: Observations, lives: Lives) -> list[KeyObservation]:
    gone = revoked(lives)
    return [key for key in seen if key.kid not in gone]


def _what(lives: Lives, kid: str) -> What | None:
    return lives[kid].what if kid in lives else None


def _is_due(kid: str, lives: Lives, now: int) -> bool:
    at = may_sign_from(lives, kid)
    return at is not None and at <= now


# -- what a host adds to the history ----------------------------------------------------------------------------------

# Hosts whose folders differ do not answer each other for ever: a host tells what it sees when its own folders change,
# and otherwise only what would make the history untrue.


def untold(seen: Observations, lives: Lives, before: str | None, now: int, *, changed: bool) -> list[Untold]:
    """Return what the history lacks of this host. `changed`: its folders have, or an operator asks, or it starts.

    Without that it tells four things alone, none of which another host answers: that the key in active/ signs from now
    on, because it is due; that a key signs here on, which another host has put away; that one signs by now which the
    history has as signing later; that this host lacks a key that is to come, which therefore is not published.
    """
    usable = _usable(seen, lives)
    if all(life.active_from is None for life in lives.values()):
        return [event for event in _first(usable) if event.what != _what(lives, event.kid)]
    placed = next((key.kid for key in usable if key.state == "active"), None)
    signs = placed if placed and _is_due(placed, lives, now) else signer_of(seen, lives, before)
    takes_over = signs is not None and signs != before and _what(lives, signs) != "active"
    told = changed or takes_over
    found = [_of(key, lives, signs) for key in usable if told or key.kid == signs]
    new = [event for event in found if event.what != _what(lives, event.kid)]
    return [*new, *_earlier(usable, lives, signs, now), *_gone(seen, lives, told=told)]


def unpublished(seen: Observations, lives: Lives) -> list[Untold]:
    """Return that the keys to come are published: it is to be told once every host says so."""
    coming = {life.kid for life in lives.values() if life.what == "next" and life.published is None}
    here = (key for key in _usable(seen, lives) if key.kid in coming)
    return [Untold(key.kid, key.x, "published", "in the key set of every host") for key in here]


def _of(key: KeyObservation, lives: Lives, signs: str | None) -> Untold:
    """Say where a key is. One that has never signed, or comes back from where it was put away, begins as next."""
    why = f"found in keys/{key.state}"
    if key.kid == signs:
        return Untold(key.kid, key.x, "active", why)
    may_retire = key.state == "retiring" and key.kid in lives and lives[key.kid].trusted
    return Untold(key.kid, key.x, "retiring" if may_retire else "next", why)


def _earlier(seen: Observations, lives: Lives, signs: str | None, now: int) -> list[Untold]:
    """Say of the key that signs that it does by now, where the history says since a time to come: a clock was ahead of
    this one, perhaps this one itself. Its tokens would be dated before its window."""
    late = (key for key in seen if key.kid == signs and _what(lives, key.kid) == "active")
    late = (key for key in late if (lives[key.kid].active_from or 0) > now)
    return [Untold(key.kid, key.x, "active", "a clock was ahead", max(0, now - CLOCK_BACK_S)) for key in late]


def _gone(seen: Observations, lives: Lives, *, told: bool) -> list[Untold]:
    here = {key.kid for key in seen}
    lost = (life for life in lives.values() if life.kid not in here and (told or life.what == "next"))
    return [Untold(life.kid, life.x, "removed", "in no folder") for life in lost if life.what in STATES]


def _first(seen: Observations) -> Iterator[Untold]:
    """Begin the history of an issuer: what lies in retiring/ and active/ has signed since it was made."""
    order: Sequence[KeyState] = ("retiring", "active", "next")
    for key in sorted(seen, key=lambda key: order.index(key.state)):
        why = f"found in keys/{key.state}"
        if key.state != "next":
            yield Untold(key.kid, key.x, "active", why, key.made or UNSET)
        if key.state != "active":
            yield Untold(key.kid, key.x, key.state, why)


# -- the archive ------------------------------------------------------------------------------------------------------


def archive(lives: Lives) -> bytes:
    """Write the key set of every key that ever signed, with its window (contract section 5; verify/trust.py)."""
    return msgspec.json.encode({"keys": [_archived(life) for life in lives.values() if life.active_from is not None]})


def jwk_of(x: str) -> dict[str, JSON]:
    """Return the JWK to publish of a key whose public half is `x` (RFC 8037)."""
    return jose.public_jwk(Ed25519PublicKey.from_public_bytes(jose.base64url_decode(x)))


def _archived(life: KeyLife) -> dict[str, JSON]:
    window = {
        "active_from": life.active_from,
        "last_token_exp": life.last_token_exp,
        "revoked_from": life.revoked_from,
    }
    return jwk_of(life.x) | {name: time for name, time in window.items() if time is not None}


# -- a rotation -------------------------------------------------------------------------------------------------------


# The state of each key, as its folder says, by kid.
Folders = Mapping[str, str]


class Step(Struct, frozen=True):
    """A step of a rotation: make the next key, have it sign, or take one that has retired out of the key set. `due` is
    Unix seconds, and None where not every host has published the key yet. `kid` is empty for a key to come."""

    do: Literal["generate", "activate", "archive"]
    kid: str
    due: int | None


def steps(folders: Folders, lives: Lives, now: int) -> list[Step]:
    """Return what is left to do, in the order in which it is due: of the rotation that has begun, or of the next one.
    The next one begins when the last one has ended, and at once where no key is active."""
    archive = [Step("archive", kid, _leaves(lives, kid, now)) for kid in _in(folders, "retiring")]
    upcoming = [kid for kid in _in(folders, "next") if kid not in lives or lives[kid].revoked_from is None]
    activate = [Step("activate", kid, may_sign_from(lives, kid)) for kid in upcoming]
    ends = [step.due for step in archive if step.due is not None] if _in(folders, "active") else []
    left = [*archive, *(activate or [Step("generate", "", max([now, *ends]))])]
    return sorted(left, key=lambda step: MAX_UNIX_S if step.due is None else step.due)


def _in(folders: Folders, state: str) -> list[str]:
    return [kid for kid, its in folders.items() if its == state]


def _leaves(lives: Lives, kid: str, now: int) -> int | None:
    """Return when a key that retires may leave the key set; one that never signed may at once."""
    life = lives.get(kid)
    if life is None:
        return None
    return now if life.active_from is None else life.last_token_exp


def moves_from(folders: Folders, lives: Lives, kid: str) -> int | None:
    """Return from when a key in the key set may come into its next state, in Unix seconds, 0 for at once. None where
    that is not known: not every host has published a key to come, or there is none for an active key to give way to."""
    match folders.get(kid):
        case "next":
            return may_sign_from(lives, kid)
        case "active":
            coming = [may_sign_from(lives, other) for other in _in(folders, "next")]
            return min((time for time in coming if time is not None), default=None)
        case _:
            return None if kid not in lives else lives[kid].last_token_exp or 0


class Plan(Struct, frozen=True):
    """The times of one key, done and to come, if each step is done when it is due. None: it is not known, or never. Its
    last token expires when it `leaves` the key set, if it is archived then. `kid` is empty for a key to come."""

    kid: str
    state: str
    published: int | None
    may_sign_from: int | None
    retires: int | None
    leaves: int | None


def plan(folders: Folders, lives: Lives, now: int) -> list[Plan]:
    """Return the times of every key in the key set, and of the next one, as a rotation would have them."""
    coming = next(step for step in steps(folders, lives, now) if step.do != "archive")
    published = now if coming.due is None else max(now, coming.due)
    is_new = coming.do == "generate"
    begins = published + PUBLISHED_S if has_signed(lives) and (is_new or coming.due is None) else published
    plans = [_plan(kid, state, lives, begins) for kid, state in folders.items() if state in STATES]
    return [*plans, Plan("", "to come", published, begins, None, None)] if is_new else plans


def _plan(kid: str, state: str, lives: Lives, begins: int) -> Plan:
    life = lives.get(kid)
    published = None if life is None else life.published
    if state == "next":
        signs_from = may_sign_from(lives, kid)
        return Plan(kid, state, published, begins if signs_from is None else signs_from, None, None)
    retires = begins if state == "active" else None if life is None else life.began_until
    signed_from = None if life is None else life.active_from
    return Plan(kid, state, published, signed_from, retires, None if retires is None else retires + LAST_TOKEN_S)
