"""What a monitor makes of a log's leaves, taken in their order: what they announce, and what contradicts it. Pure.

What widens (a key that may sign, a policy that admits) is announced before the first token that needs it, and what
narrows is announced afterwards: a leaf that breaks this order is an alarm. Knows no files and no clock; leaves are only
here once their hashes have been checked against a signed root. No token is kept: memory is that of the announcements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator
from functools import cache
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from issuer.errors import FormatError
from issuer.tlog.leaf import KeyLeaf, KeyState, Leaf, PolicyLeaf, TokenLeaf, UnknownLeaf, read_leaf

# A leaf's iat is at most a clock's error ahead of its witnesses, and no repeat is over a day old (contract section 5).
AHEAD_S = 60
BEHIND_S = 86_400
# Of keys and policies together, some 30 MB: a log that announces more keeps nobody from seeing that it does.
MAX_ANNOUNCED = 262_144
MAX_UNMATCHED = 10_000

AlarmName = Literal[
    "leaf.malformed", "announcements.too_many", "token.kid_unannounced", "token.kid_archived", "token.kid_revoked",
    "token.policy_unannounced", "token.iat_ahead", "token.iat_behind", "tokens.unmatched", "checkpoint.shrinks",
    "checkpoint.inconsistent", "log.unverified",
]  # fmt: skip
_BARRED: dict[KeyState, AlarmName] = {"archived": "token.kid_archived", "revoked": "token.kid_revoked"}
_KIND_OF: dict[type[Leaf], str] = {TokenLeaf: "token", KeyLeaf: "key", PolicyLeaf: "policy"}


class LeafNotice(Struct, frozen=True):
    """What a leaf says, for those whom it concerns. `leaf` has the leaf's lines by name, a token as its lower hex."""

    seen: str
    index: int
    leaf: dict[str, Any]


class Alarm(Struct, frozen=True, omit_defaults=True):
    """What should never be seen in a log. `index` is the leaf's, where it is about one; `notes` are the signed
    checkpoints that contradict each other: with them anyone can be shown it."""

    alarm: AlarmName
    detail: str
    index: int | UnsetType = UNSET
    leaf: dict[str, Any] | UnsetType = UNSET
    notes: tuple[str, ...] = ()


class Times(Struct, frozen=True):
    """Between which times (Unix seconds) the leaves at hand were first witnessed; None where nothing is known. Not
    before `earliest`, when a quorum had cosigned a checkpoint without them; by `latest`, when one had with them."""

    earliest: int | None = None
    latest: int | None = None


class Announced(Struct):
    """What the leaves so far have announced: the last state of each key, and policies; by the digest of whose they are.
    `unmatched` are the tokens (their digests) of the watched integration that it does not have itself."""

    keys: dict[bytes, KeyState] = {}
    policies: set[bytes] = set()
    unmatched: set[bytes] = set()


class Watch:
    """Takes a log's leaves in their order, from that on behind which `announced` was learnt, and changes that. What is
    seen of keys, and of the tokens and policies of `integration`, is returned; without one, of keys and all policies.
    `owned` has the token digests that the integration itself knows of; with None nothing is compared."""

    def __init__(
        self, announced: Announced, integration: str = "", owned: Callable[[], Container[bytes]] | None = None
    ) -> None:
        self.announced = announced
        self._integration = integration
        self._owned = None if owned is None else cache(owned)  # asked at most once, when it is needed

    def take(self, index: int, raw: bytes, times: Times) -> Iterator[LeafNotice | Alarm]:
        """Judge the leaf at an index (from 0), then let it count."""
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
        """Remember a token that its integration does not have; a few more than are ever allowed."""
        if self._owned is None or leaf.sub != self._integration or len(self.announced.unmatched) > MAX_UNMATCHED:
            return
        if leaf.token not in self._owned():
            self.announced.unmatched.add(leaf.token)

    def count_unmatched(self, most: int) -> Iterator[Alarm]:
        """Compare once more what had no token before, and raise the alarm where it is more than `most`."""
        if self._owned is None:
            return
        if unmatched := self.announced.unmatched:
            owned = self._owned()
            unmatched.difference_update([token for token in unmatched if token in owned])
        if len(unmatched) > most:
            count = f"more than {MAX_UNMATCHED}" if len(unmatched) > MAX_UNMATCHED else f"{len(unmatched)}"
            yield Alarm("tokens.unmatched", f"{count} tokens of {self._integration} are not known to it")

    def _learn(self, index: int, leaf: KeyLeaf | PolicyLeaf) -> Iterator[Alarm]:
        whose = (leaf.iss, leaf.sub, leaf.policy) if isinstance(leaf, PolicyLeaf) else (leaf.iss, leaf.kid)
        digest = _digest(*whose)
        keys, policies = self.announced.keys, self.announced.policies
        if digest not in keys and digest not in policies and len(keys) + len(policies) >= MAX_ANNOUNCED:
            yield Alarm("announcements.too_many", f"more than {MAX_ANNOUNCED}: this one is not counted", index)
        elif isinstance(leaf, PolicyLeaf):
            policies.add(digest)
        elif keys.get(digest) != "revoked":  # whoever has taken a key could else announce it anew
            keys[digest] = leaf.state


def lines_of(leaf: Leaf) -> dict[str, Any]:
    """Return the lines of a leaf by name; a token's digest in lower hex, as `/log/proof` takes it."""
    if isinstance(leaf, UnknownLeaf):
        return {"first_line": leaf.first_line}
    lines = {"from" if name == "since" else name: getattr(leaf, name) for name in leaf.__struct_fields__}
    return lines | {"token": leaf.token.hex()} if isinstance(leaf, TokenLeaf) else lines


def _digest(*values: str) -> bytes:
    """Name whose something is by 32 bytes, however long the values are; no value has a space."""
    return hashlib.sha256(" ".join(values).encode()).digest()
