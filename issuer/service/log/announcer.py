"""What a service announces in the log beside its tokens: its keys, its policies, its revocation list, its audit.

What a token rests on is announced with it at the latest (announced.py). Here it is announced as soon as it is in force,
so that an integration's owner sees a policy before anybody has used it, and everybody a key that was taken back. That
one is announced when every worker has dropped it: a token that one of them had let through before would be an alarm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress

from issuer.errors import Undecided
from issuer.policy.match import PolicySet
from issuer.service.bounds import COUNTED_S, LOG_NARROWED_S
from issuer.service.log.announced import AnnouncingLog, key_leaves, policy_leaves
from issuer.tlog.leaf import AuditLeaf, KeyLeaf, RevocationsLeaf

# A token under a key in such a state is an alarm of every monitor.
OUT_OF_USE = frozenset({"archived", "revoked"})
# The random id of a worker's audit chain, and the chain's head.
AuditHead = tuple[str, str]


class Announcer:
    """Announces the keys that the log knows of, and what these functions return: the policies in force, the revocation
    list as it is served (None without one), and this worker's audit head. `clock` returns Unix seconds.
    """

    def __init__(
        self,
        log: AnnouncingLog,
        policies: Callable[[], PolicySet],
        revocations: Callable[[], bytes | None],
        audit_head: Callable[[], AuditHead],
        clock: Callable[[], int],
    ) -> None:
        self._log = log
        self._policies = policies
        self._revocations = revocations
        self._audit_head = audit_head
        self._clock = clock
        self._announced: PolicySet | None = None
        self._narrowed: dict[KeyLeaf, int] = {}
        self._told, self._told_at = audit_head(), clock()

    async def turn(self, _asked: bool = False) -> None:
        """Announce what is new; what the log does not take now is announced at a later turn."""
        with suppress(Undecided):
            await self._log.announce(self._keys())
            await self._tell_policies()
            if (served := self._revocations()) is not None:
                digest = f"sha256:{hashlib.sha256(served).hexdigest()}"
                await self._log.announce([RevocationsLeaf(self._log.iss, digest)])
            if self._clock() - self._told_at >= COUNTED_S:
                await self._tell_audit()

    def _keys(self) -> Iterator[KeyLeaf]:
        """Return the states of all keys, but for those that have just gone out of use."""
        now = self._clock()
        for leaf in key_leaves(self._log.iss, self._log.lives().values()):
            if leaf.state not in OUT_OF_USE or now - self._narrowed.setdefault(leaf, now) >= LOG_NARROWED_S:
                yield leaf

    async def _tell_policies(self) -> None:
        """Announce the policies, where they are others than the last time: there may be thousands."""
        policies = self._policies()
        if policies is not self._announced:
            await self._log.announce(policy_leaves(self._log.iss, policies))
            self._announced = policies

    async def _tell_audit(self) -> None:
        """Announce the head of this worker's audit chain, where it has grown: once a minute."""
        head = self._audit_head()
        if head != self._told:
            await self._log.announce([AuditLeaf(self._log.iss, *head)])
        self._told, self._told_at = head, self._clock()
