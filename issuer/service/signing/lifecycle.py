"""The life of the signing keys: pure rules over their history and the key folders of a host.

    next ─► active ─► retiring ─► archived        and revoked from any of them

A history is a list of events, oldest first, which only grows (history.py stores it). `fold` derives the rest from it:
which key may sign, the archive (contract section 6), and which step of a rotation is due. The folder of a key is the
state that the operator wants; the history has the state that the key has reached.
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

# The events of a key: it enters a state, every host has published it, or its file is gone from the folders.
What = Literal["next", "published", "active", "retiring", "archived", "revoked", "removed"]
# The states whose keys are in the key set. Each state is also the name of a folder.
KeyState = Literal["next", "active", "retiring"]
STATES: tuple[KeyState, ...] = get_args(KeyState)
# The bound leaves room for times that are computed from an event's time.
EventTime = Annotated[int, Meta(ge=0, le=MAX_UNIX_S - LAST_TOKEN_S)]
Words = Annotated[str, Meta(max_length=512)]


class KeyEvent(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="version", tag=1):
    """A line of the history, which begins with its `version`: an event of the key `kid` with the public half `x`
    (RFC 8037), with the actor `who` and the reason `why`.

    `time` is when it was recorded, in Unix seconds. `since` is set if the event is true from an earlier time: for
    `revoked`, when a thief may first have used the key; for `active`, when a key was made that signed before the
    history began. Before `active`, which lets a key sign, the writer checks `may_sign_from`. An operator may override
    this.
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
        """From when the event is true, in Unix seconds."""
        return self.time if self.since is UNSET else min(self.since, self.time)


class KeyLife(Struct, frozen=True):
    """One key according to the history. All times are Unix seconds, or None if the event has not happened.

    `seen` is when the history first named the key. `what` is its last event except `published`, at `since`. A `trusted`
    key has signed, and has not been archived or revoked since. It began its first token after `active_from` and its
    last one before `began_until`.
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
        """When the key's last token has expired; None if the key may still begin one, or never could."""
        return None if self.began_until is None else self.began_until + LAST_TOKEN_S


Lives = Mapping[str, KeyLife]


class KeyObservation(Struct, frozen=True):
    """A key in a folder of a host. `x` is its public half (RFC 8037), `state` its folder, and `made` the mtime of its
    file in Unix seconds, 0 if unknown."""

    kid: str
    x: str
    state: KeyState
    made: int


Observations = Sequence[KeyObservation]


class MissingEvent(Struct, frozen=True):
    """An event that the history lacks, before its writer adds `time` and `who`."""

    kid: str
    x: str
    what: What
    why: str
    since: int | UnsetType = UNSET


def fold(history: Iterable[KeyEvent], before: Lives = MappingProxyType({})) -> Lives:
    """Return the life of each key, in the order of first events. `before` is the result for an earlier history."""
    lives = dict(before)
    for event in history:
        new = KeyLife(event.kid, event.x, event.true_since, "removed", event.time)
        lives[event.kid] = _after(lives.get(event.kid, new), event)
    return lives


def latest(lives: Lives) -> int:
    """Return the time of the last event, in Unix seconds; 0 without events."""
    return max((max(life.since, life.published or 0) for life in lives.values()), default=0)


def _after(life: KeyLife, event: KeyEvent) -> KeyLife:
    now, since = event.time, event.true_since
    if event.what == "published":  # does not count for a key that has just left the key set
        return replace(life, published=now) if life.what in STATES else life
    moved = replace(life, what=event.what, since=now)
    if event.what == "active":
        # A second `active` corrects a first one from a clock that was ahead: the key's tokens have earlier times.
        began = since if life.active_from is None else min(since, life.active_from)
        return replace(moved, trusted=True, active_from=began, began_until=None)
    if life.active_from is not None and life.began_until is None:
        moved = replace(moved, began_until=now)
    match event.what:
        case "next":  # a removed key must be published anew before it signs again
            return replace(moved, trusted=life.trusted and life.what != "removed")
        case "revoked":
            earliest = since if life.revoked_from is None else min(since, life.revoked_from)
            return replace(moved, published=None, trusted=False, revoked_from=earliest)
        case "archived":
            return replace(moved, published=None, trusted=False)
        case "removed":  # a disk may be gone for a moment only, so the key stays trusted
            return replace(moved, published=None)
    return moved


# -- which key may sign -----------------------------------------------------------------------------------------------


def may_sign_from(lives: Lives, kid: str) -> int | None:
    """Return from when a key may sign new tokens and repeats; None if that is unknown, or never.

    A relying party may use a key set for as long as caches may keep it, so a key signs only when every cached set has
    it. Before an issuer's first token no cached set matters, so its first key does not wait.
    """
    life = lives.get(kid)
    if life is not None and (life.revoked_from is not None or life.what == "archived"):
        return None
    if (life is not None and life.trusted) or not has_signed(lives):
        return 0
    return None if life is None or life.published is None else life.published + PUBLISHED_S


def keys_left(lives: Lives) -> int:
    """Return how many new keys may still sign: relying parties refuse a larger archive."""
    return MAX_SIGNED_KEYS - sum(life.active_from is not None for life in lives.values())


def has_signed(lives: Lives) -> bool:
    """Return whether any key was ever active."""
    return any(life.active_from is not None for life in lives.values())


# -- which key signs on a host -----------------------------------------------------------------------------------------

# `keys` are the keys in the folders of the host, and `before` is the key that has signed on it until now.


def states_of(keys: Observations, lives: Lives, before: str | None) -> dict[str, KeyState]:
    """Return the effective state of each key that is not revoked, by kid. A key in active/ that does not sign yet is
    `next`, and the key that signs instead of it is `active`."""
    states: dict[str, KeyState] = {key.kid: key.state for key in _usable(keys, lives)}
    states |= {kid: "next" for kid, state in states.items() if state == "active"}
    signer = signer_of(keys, lives, before)
    return states if signer is None else states | {signer: "active"}


def signer_of(keys: Observations, lives: Lives, before: str | None) -> str | None:
    """Return the key that begins tokens, None if active/ is empty.

    That is the key in active/ once the history says `active`. Until then it is the key `before`, or else the last one
    that became active by the history. Its file must be in a folder.
    """
    usable = {key.kid: key for key in _usable(keys, lives)}
    placed = next((key.kid for key in usable.values() if key.state == "active"), None)
    if placed is None or _what(lives, placed) == "active":
        return placed
    if before in usable and before in lives and lives[before].trusted:
        return before
    return max((kid for kid in usable if _what(lives, kid) == "active"), key=lambda kid: lives[kid].since, default=None)


def may_sign(keys: Observations, lives: Lives, now: int) -> tuple[str, ...]:
    """Return the keys that may sign new tokens or repeats, because every cached key set has them."""
    return tuple(key.kid for key in _usable(keys, lives) if key.kid in lives and _is_due(key.kid, lives, now))


def waiting(keys: Observations, lives: Lives, before: str | None) -> dict[str, int | None]:
    """Return the key in active/ that does not sign yet, with the time from which it may; None if that is unknown."""
    signer = signer_of(keys, lives, before)
    placed = (key.kid for key in _usable(keys, lives) if key.state == "active" and key.kid != signer)
    return {kid: may_sign_from(lives, kid) for kid in placed}


def revoked(lives: Lives) -> set[str]:
    """Return the kids of the revoked keys, in whatever folder their files are."""
    return {life.kid for life in lives.values() if life.revoked_from is not None}


def _usable(keys: Observations, lives: Lives) -> list[KeyObservation]:
    gone = revoked(lives)
    return [key for key in keys if key.kid not in gone]


def _what(lives: Lives, kid: str) -> What | None:
    return lives[kid].what if kid in lives else None


def _is_due(kid: str, lives: Lives, now: int) -> bool:
    at = may_sign_from(lives, kid)
    return at is not None and at <= now


# -- what a host adds to the history ----------------------------------------------------------------------------------

# Hosts with different folders must not contradict each other for ever. So a host reports the states of all its keys
# only when its folders change. Otherwise it reports only those events without which the history would be untrue.


def missing_events(
    keys: Observations, lives: Lives, before: str | None, now: int, *, changed: bool
) -> list[MissingEvent]:
    """Return the events of this host that the history lacks. `changed`: its folders changed, an operator asked, or the
    process starts.

    Without `changed` it reports only these four, which no other host contradicts: the key in active/ is due and signs
    from now on; another host has moved the key that still signs here; by the history, the key that signs here becomes
    active only later; this host lacks a `next` key, so not every host publishes it.
    """
    usable = _usable(keys, lives)
    if not has_signed(lives):
        return [event for event in _first(usable) if event.what != _what(lives, event.kid)]
    placed = next((key.kid for key in usable if key.state == "active"), None)
    signer = placed if placed and _is_due(placed, lives, now) else signer_of(keys, lives, before)
    takes_over = signer is not None and signer != before and _what(lives, signer) != "active"
    everything = changed or takes_over
    events = [_of(key, lives, signer) for key in usable if everything or key.kid == signer]
    new = [event for event in events if event.what != _what(lives, event.kid)]
    return [*new, *_earlier(usable, lives, signer, now), *_gone(keys, lives, everything=everything)]


def missing_publications(keys: Observations, lives: Lives) -> list[MissingEvent]:
    """Return a `published` event for each unpublished `next` key, to record once every host has these keys."""
    upcoming = {life.kid for life in lives.values() if life.what == "next" and life.published is None}
    here = (key for key in _usable(keys, lives) if key.kid in upcoming)
    return [MissingEvent(key.kid, key.x, "published", "in the key set of every host") for key in here]


def _of(key: KeyObservation, lives: Lives, signer: str | None) -> MissingEvent:
    """Return the event for a key's folder. A key that never signed, or returns to the key set, begins as next."""
    why = f"found in keys/{key.state}"
    if key.kid == signer:
        return MissingEvent(key.kid, key.x, "active", why)
    may_retire = key.state == "retiring" and key.kid in lives and lives[key.kid].trusted
    return MissingEvent(key.kid, key.x, "retiring" if may_retire else "next", why)


def _earlier(keys: Observations, lives: Lives, signer: str | None, now: int) -> list[MissingEvent]:
    """Return an earlier `active` event if the signer's event in the history is later than `now`: a clock was ahead.
    Without it, tokens would be dated before the key's window."""
    late = (key for key in keys if key.kid == signer and _what(lives, key.kid) == "active")
    late = (key for key in late if (lives[key.kid].active_from or 0) > now)
    return [MissingEvent(key.kid, key.x, "active", "a clock was ahead", max(0, now - CLOCK_BACK_S)) for key in late]


def _gone(keys: Observations, lives: Lives, *, everything: bool) -> list[MissingEvent]:
    here = {key.kid for key in keys}
    lost = (life for life in lives.values() if life.kid not in here and (everything or life.what == "next"))
    return [MissingEvent(life.kid, life.x, "removed", "in no folder") for life in lost if life.what in STATES]


def _first(keys: Observations) -> Iterator[MissingEvent]:
    """Begin the history of an issuer: keys in retiring/ and active/ have signed since their files were made."""
    order: Sequence[KeyState] = ("retiring", "active", "next")
    for key in sorted(keys, key=lambda key: order.index(key.state)):
        why = f"found in keys/{key.state}"
        if key.state != "next":
            yield MissingEvent(key.kid, key.x, "active", why, key.made or UNSET)
        if key.state != "active":
            yield MissingEvent(key.kid, key.x, key.state, why)


# -- the archive ------------------------------------------------------------------------------------------------------


def archive(lives: Lives) -> bytes:
    """Return the JSON key set of all keys that ever signed, each with its window (contract section 6)."""
    return msgspec.json.encode({"keys": [_archived(life) for life in lives.values() if life.active_from is not None]})


def jwk_of(x: str) -> dict[str, JSON]:
    """Return the public JWK of a key with the public half `x` (RFC 8037)."""
    return jose.public_jwk(Ed25519PublicKey.from_public_bytes(jose.base64url_decode(x)))


def _archived(life: KeyLife) -> dict[str, JSON]:
    window = {
        "active_from": life.active_from,
        "last_token_exp": life.last_token_exp,
        "revoked_from": life.revoked_from,
    }
    return jwk_of(life.x) | {name: time for name, time in window.items() if time is not None}


# -- a rotation -------------------------------------------------------------------------------------------------------

# The folder of each key, by kid.
Folders = Mapping[str, str]


class KeyStep(Struct, frozen=True):
    """A step of a rotation: make the next key, activate it, or archive a retired one. `due` is in Unix seconds, None
    until every host has published the key. `kid` is empty for a key that is not made yet."""

    do: Literal["generate", "activate", "archive"]
    kid: str
    due: int | None


def steps(folders: Folders, lives: Lives, now: int) -> list[KeyStep]:
    """Return the remaining steps of the rotation, in the order in which they are due. After a complete rotation, return
    the steps of the next one, which begins at its end, or at once if no key is active."""
    archive = [KeyStep("archive", kid, _leaves(lives, kid, now)) for kid in _in(folders, "retiring")]
    upcoming = [kid for kid in _in(folders, "next") if kid not in lives or lives[kid].revoked_from is None]
    activate = [KeyStep("activate", kid, may_sign_from(lives, kid)) for kid in upcoming]
    ends = [step.due for step in archive if step.due is not None] if _in(folders, "active") else []
    left = [*archive, *(activate or [KeyStep("generate", "", max([now, *ends]))])]
    return sorted(left, key=lambda step: MAX_UNIX_S if step.due is None else step.due)


def _in(folders: Folders, state: str) -> list[str]:
    return [kid for kid, folder in folders.items() if folder == state]


def _leaves(lives: Lives, kid: str, now: int) -> int | None:
    """Return when a retiring key may leave the key set: at once if it never signed."""
    life = lives.get(kid)
    if life is None:
        return None
    return now if life.active_from is None else life.last_token_exp


def moves_from(folders: Folders, lives: Lives, kid: str) -> int | None:
    """Return from when a key in the key set may enter its next state, in Unix seconds, 0 for at once. None if that is
    unknown: not every host has published the next key, or the active key has no successor."""
    match folders.get(kid):
        case "next":
            return may_sign_from(lives, kid)
        case "active":
            upcoming = [may_sign_from(lives, other) for other in _in(folders, "next")]
            return min((time for time in upcoming if time is not None), default=None)
        case _:
            return None if kid not in lives else lives[kid].last_token_exp or 0


class KeyPlan(Struct, frozen=True):
    """The past and future times of one key, if each step is done when it is due; None if unknown or never. The key
    `leaves` the key set when its last token expires. `kid` is empty for a key that is not made yet."""

    kid: str
    state: str
    published: int | None
    may_sign_from: int | None
    retires: int | None
    leaves: int | None


def plan(folders: Folders, lives: Lives, now: int) -> list[KeyPlan]:
    """Return the times of every key in the key set, and of the next one, for a rotation on time."""
    step = next(step for step in steps(folders, lives, now) if step.do != "archive")
    published = now if step.due is None else max(now, step.due)
    is_new = step.do == "generate"
    begins = published + PUBLISHED_S if has_signed(lives) and (is_new or step.due is None) else published
    plans = [_plan(kid, state, lives, begins) for kid, state in folders.items() if state in STATES]
    return [*plans, KeyPlan("", "to come", published, begins, None, None)] if is_new else plans


def _plan(kid: str, state: str, lives: Lives, begins: int) -> KeyPlan:
    life = lives.get(kid)
    published = None if life is None else life.published
    if state == "next":
        signs_from = may_sign_from(lives, kid)
        return KeyPlan(kid, state, published, begins if signs_from is None else signs_from, None, None)
    retires = begins if state == "active" else None if life is None else life.began_until
    signed_from = None if life is None else life.active_from
    return KeyPlan(kid, state, published, signed_from, retires, None if retires is None else retires + LAST_TOKEN_S)
