"""What a host sees in its folders of keys, beside the history that all hosts share: who signs, and what to add. Pure.

A folder says where a key is to be; the history says how far it has come. A key in active/ that not everybody can know
yet waits there, and the one before it signs on. Hosts whose folders differ do not answer each other for ever: a host
tells what it sees when its own folders change, and otherwise only what would make the history untrue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, Struct, UnsetType

from issuer.service.bounds import CLOCK_BACK_S
from issuer.service.signing.keyring import KeyState
from issuer.service.signing.life import Lives, What, may_sign_from

_IN_A_FOLDER = frozenset({"next", "active", "retiring"})


class SeenKey(Struct, frozen=True):
    """A key in a folder of this host: `x` is its public half (RFC 8037), `state` its folder, `made` the time of its
    file in Unix seconds, 0 where that is not known."""

    kid: str
    x: str
    state: KeyState
    made: int


Seen = Sequence[SeenKey]


class Untold(Struct, frozen=True):
    """An event that the history lacks: without its time, and without who tells it."""

    kid: str
    x: str
    what: What
    why: str
    since: int | UnsetType = UNSET


# -- who signs --------------------------------------------------------------------------------------------------------


def states_of(seen: Seen, lives: Lives, before: str | None) -> dict[str, KeyState]:
    """Return the state in which each key is, by kid: without those that are revoked, wherever their files lie.

    `before` is the key that signed until now. What lies in active/ and does not sign is `next`, and the key that signs
    in its place is active.
    """
    signs = signer_of(seen, lives, before)
    return {key.kid: _state_of(key, signs) for key in _usable(seen, lives)}


def _state_of(key: SeenKey, signs: str | None) -> KeyState:
    if key.kid == signs:
        return "active"
    return "next" if key.state == "active" else key.state


def signer_of(seen: Seen, lives: Lives, before: str | None) -> str | None:
    """Return the key that begins tokens: the one in active/, once the history has it as active; until then the one
    `before`, or what the history has as active, if it is still in a folder. Without a key in active/ there is none."""
    usable = {key.kid: key for key in _usable(seen, lives)}
    placed = next((key.kid for key in usable.values() if key.state == "active"), None)
    if placed is None or _what(lives, placed) == "active":
        return placed
    if before in usable and before in lives and lives[before].trusted:
        return before
    return max((kid for kid in usable if _what(lives, kid) == "active"), key=lambda kid: lives[kid].since, default=None)


def may_sign(seen: Seen, lives: Lives, now: int) -> tuple[str, ...]:
    """Return the keys that may sign, new tokens or retries: those that everybody can know."""
    return tuple(key.kid for key in _usable(seen, lives) if key.kid in lives and _is_due(key.kid, lives, now))


def waiting(seen: Seen, lives: Lives, before: str | None) -> dict[str, int | None]:
    """Return the key that lies in active/ and does not sign, with the time from when it may; None: it is not known."""
    signs = signer_of(seen, lives, before)
    placed = (key.kid for key in _usable(seen, lives) if key.state == "active" and key.kid != signs)
    return {kid: may_sign_from(lives, kid) for kid in placed}


def revoked(seen: Seen, lives: Lives) -> list[str]:
    """Return the keys that lie in a folder although they are revoked."""
    return [key.kid for key in seen if _is_revoked(lives, key.kid)]


def _usable(seen: Seen, lives: Lives) -> list[SeenKey]:
    return [key for key in seen if not _is_revoked(lives, key.kid)]


def _is_revoked(lives: Lives, kid: str) -> bool:
    return kid in lives and lives[kid].revoked_from is not None


def _what(lives: Lives, kid: str) -> What | None:
    return lives[kid].what if kid in lives else None


def _is_due(kid: str, lives: Lives, now: int) -> bool:
    at = may_sign_from(lives, kid)
    return at is not None and at <= now


# -- what to add to the history ---------------------------------------------------------------------------------------


def untold(seen: Seen, lives: Lives, before: str | None, now: int, *, changed: bool) -> list[Untold]:
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


def unpublished(seen: Seen, lives: Lives) -> list[Untold]:
    """Return that the keys to come are published: it is to be told once every host says so."""
    coming = (key for key in _usable(seen, lives) if _what(lives, key.kid) == "next")
    return [
        Untold(key.kid, key.x, "published", "in the key set of every host")
        for key in coming
        if lives[key.kid].published is None
    ]


def _of(key: SeenKey, lives: Lives, signs: str | None) -> Untold:
    """Say where a key is. One that has never signed, or comes back from where it was put away, begins as next."""
    why = f"found in keys/{key.state}"
    if key.kid == signs:
        return Untold(key.kid, key.x, "active", why)
    may_retire = key.state == "retiring" and key.kid in lives and lives[key.kid].trusted
    return Untold(key.kid, key.x, "retiring" if may_retire else "next", why)


def _earlier(seen: Seen, lives: Lives, signs: str | None, now: int) -> list[Untold]:
    """Say of the key that signs that it does by now, where the history says since a time to come: a clock was ahead of
    this one, perhaps this one itself. Its tokens would be dated before its window."""
    late = (key for key in seen if key.kid == signs and _what(lives, key.kid) == "active")
    return [
        Untold(key.kid, key.x, "active", "a clock was ahead", max(0, now - CLOCK_BACK_S))
        for key in late
        if (lives[key.kid].active_from or 0) > now
    ]


def _gone(seen: Seen, lives: Lives, *, told: bool) -> list[Untold]:
    here = {key.kid for key in seen}
    lost = (life for life in lives.values() if life.kid not in here and (told or life.what == "next"))
    return [Untold(life.kid, life.x, "removed", "in no folder") for life in lost if life.what in _IN_A_FOLDER]


def _first(seen: Seen) -> list[Untold]:
    """Begin the history of an issuer: what lies in retiring/ and active/ has signed since it was made."""
    order: Sequence[KeyState] = ("retiring", "active", "next")
    return [event for key in sorted(seen, key=lambda key: order.index(key.state)) for event in _beginning(key)]


def _beginning(key: SeenKey) -> Iterator[Untold]:
    why = f"found in keys/{key.state}"
    if key.state != "next":
        yield Untold(key.kid, key.x, "active", why, key.made or UNSET)
    if key.state != "active":
        yield Untold(key.kid, key.x, key.state, why)
