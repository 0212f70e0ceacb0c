"""A monitor's check of a log's leaves in their order: announcements, and tokens that contradict them. Pure.

An issuer announces a key or a policy before the first token that needs it, and announces the end of a key afterwards.
A leaf that breaks this order is an alarm. The caller has checked the hashes of the leaves against a signed root. Tokens
are not kept, so memory grows only with the number of announcements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator
from functools import cache
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from issuer.errors import FormatError
from issuer.tlog.leaf import KeyLeaf, KeyState, Leaf, PolicyLeaf, TokenLeaf, UnknownLeaf, read_leaf

AHEAD_S = 60  # the largest difference between the issuer's clock and a witness's
BEHIND_S = 86_400  # a repeat is at most a day old (contract section 5)
MAX_ANNOUNCED = 262_144  # keys and policies, some 30 MB; a log that announces more raises an alarm
MAX_UNMATCHED = 10_000

AlarmName = Literal[
    "leaf.malformed", "announcements.too_many", "token.kid_unannounced", "token.kid_archived", "token.kid_revoked",
    "token.policy_unannounced", "token.iat_ahead", "token.iat_behind", "tokens.unmatched", "checkpoint.shrinks",
    "checkpoint.inconsistent", "log.unverified",
]  # fmt: skip
_BARRED: dict[KeyState, AlarmName] = {"archived": "token.kid_archived", "revoked": "token.kid_revoked"}
_KIND_OF: dict[type[Leaf], str] = {TokenLeaf: "token", KeyLeaf: "key", PolicyLeaf: "policy"}


class LeafNotice(Struct, frozen=True):
    """A leaf that concerns the watched integration: its kind (`seen`), index, and lines by name (`lines_of`)."""

    seen: str
    index: int
    leaf: dict[str, Any]


class Alarm(Struct, frozen=True, omit_defaults=True):
    """An event that a correct log never causes. `index` is the index of the leaf, if the alarm is about one. `notes`
    are signed checkpoints that contradict each other: with them anyone can verify the alarm."""

    alarm: AlarmName
    detail: str
    index: int | UnsetType = UNSET
    leaf: dict[str, Any] | UnsetType = UNSET
    notes: tuple[str, ...] = ()


class Times(Struct, frozen=True):
    """The times (Unix seconds) between which leaves were first witnessed. At `earliest` a quorum cosigned a checkpoint
    without them, at `latest` one with them. None if the time is unknown."""

    earliest: int | None = None
    latest: int | None = None


class Announced(Struct):
    """The announcements of all leaves so far: the last state of each key, and the policies, by digest (`_digest`).
    `unmatched` has the digests of the watched integration's tokens that it did not receive itself."""

    keys: dict[bytes, KeyState] = {}
    policies: set[bytes] = set()
    unmatched: set[bytes] = set()


class Watch:
    """A check of a log's leaves in their order, from the leaf after those in `announced`, which it updates. It yields
    notices of keys and unknown leaves, of the tokens and policies of `integration`, and of all policies if that is "".
    `owned` returns the token digests that the integration knows; if it is None, tokens are not compared."""

    def __init__(
        self, announced: Announced, integration: str = "", owned: Callable[[], Container[bytes]] | None = None
    ) -> None:
        self.announced = announced
        self._integration = integration
        self._owned = None if owned is None else cache(owned)  # called at most once, when it is needed

    def take(self, index: int, raw: bytes, times: Times) -> Iterator[LeafNotice | Alarm]:
        """Check the leaf at an index (from 0), then learn from it."""
        try:
            leaf = read_leaf(raw)
        except FormatError as error:
            yield Alarm("leaf.malformed", error.detail, index)
            return
        if self._concerns(leaf):
            yield LeafNotice(_KIND_OF.get(type(leaf), "unknown"), index, lines_of(leaf))
        if isinstance(leaf, TokenLeaf):
            for name, detail in self._faults(leaf, times):
                yield Alarm(name, detail, index, lines_of(leaf))
            self._compare(leaf)
        elif isinstance(leaf, KeyLeaf | PolicyLeaf):
            yield from self._learn(index, leaf)

    def _concerns(self, leaf: Leaf) -> bool:
        if isinstance(leaf, TokenLeaf):
            return leaf.sub == self._integration
        if isinstance(leaf, PolicyLeaf):
            return self._integration in {"", leaf.sub}
        return isinstance(leaf, KeyLeaf | UnknownLeaf)

    def _faults(self, leaf: TokenLeaf, times: Times) -> Iterator[tuple[AlarmName, str]]:
        state = self.announced.keys.get(_digest(leaf.iss, leaf.kid))
        if state is None:
            yield "token.kid_unannounced", "its key was not announced at a smaller index"
        elif state in _BARRED:
            yield _BARRED[state], f"the last state of its key that was announced before it is {state}"
        if _digest(leaf.iss, leaf.sub, leaf.policy) not in self.announced.policies:
            yield "token.policy_unannounced", "its policy was not announced for its integration at a smaller index"
        if times.latest is not None and leaf.iat > times.latest + AHEAD_S:
            yield "token.iat_ahead", f"it was in the log at {times.latest}, more than {AHEAD_S} s before its iat"
        if times.earliest is not None and leaf.iat < times.earliest - BEHIND_S:
            yield "token.iat_behind", f"it was not in the log at {times.earliest}, more than {BEHIND_S} s after its iat"

    def _compare(self, leaf: TokenLeaf) -> None:
        """Keep the digest of a token that its integration does not know. One more than the limit is enough."""
        if self._owned is None or leaf.sub != self._integration or len(self.announced.unmatched) > MAX_UNMATCHED:
            return
        if leaf.token not in self._owned():
            self.announced.unmatched.add(leaf.token)

    def count_unmatched(self, most: int) -> Iterator[Alarm]:
        """Compare the unmatched tokens again, and yield an alarm if more than `most` are still unmatched."""
        if self._owned is None:
            return
        if unmatched := self.announced.unmatched:
            owned = self._owned()
            unmatched.difference_update([token for token in unmatched if token in owned])
        if len(unmatched) > most:
            count = f"more than {MAX_UNMATCHED}" if len(unmatched) > MAX_UNMATCHED else f"{len(unmatched)}"
            yield Alarm("tokens.unmatched", f"{count} tokens of {self._integration} are unknown to it")

    def _learn(self, index: int, leaf: KeyLeaf | PolicyLeaf) -> Iterator[Alarm]:
        keys, policies = self.announced.keys, self.announced.policies
        values = (leaf.iss, leaf.sub, leaf.policy) if isinstance(leaf, PolicyLeaf) else (leaf.iss, leaf.kid)
        digest = _digest(*values)
        if digest not in keys and digest not in policies and len(keys) + len(policies) >= MAX_ANNOUNCED:
            yield Alarm("announcements.too_many", f"more than {MAX_ANNOUNCED}: this one is ignored", index)
        elif isinstance(leaf, PolicyLeaf):
            policies.add(digest)
        elif keys.get(digest) != "revoked":  # otherwise the thief of a revoked key could announce it again
            keys[digest] = leaf.state


def lines_of(leaf: Leaf) -> dict[str, Any]:
    """Return the lines of a leaf by name. A token's digest is in lower hex, as `/log/proof` expects it."""
    if isinstance(leaf, UnknownLeaf):
        return {"first_line": leaf.first_line}
    lines = {"from" if name == "since" else name: getattr(leaf, name) for name in leaf.__struct_fields__}
    return lines | {"token": leaf.token.hex()} if isinstance(leaf, TokenLeaf) else lines


def _digest(*values: str) -> bytes:
    """Return 32 bytes that name these values, which have no spaces."""
    return hashlib.sha256(" ".join(values).encode()).digest()
