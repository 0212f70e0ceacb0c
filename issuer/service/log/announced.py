"""The log as the line meets it: what a token rests on is announced before the token, and everything else soon after.

What widens waits for its announcement: a key signs, and a policy admits, behind a leaf that says so. What narrows does
not: a key that retires, or is revoked, is out of use before anybody hears of it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.policy.match import PolicySet
from issuer.service.bounds import LOG_ANNOUNCED, LOG_ANNOUNCED_AT_ONCE
from issuer.service.log.client import SequencerLog
from issuer.service.log.status import LogStatus
from issuer.service.signing.life import PUBLISHED, KeyLife, Lives
from issuer.tlog.leaf import KeyLeaf, KeyState, KnownLeaf, PolicyLeaf
from issuer.verify_token import Template, token_leaf
from issuer.wire import LogEntry

_STATES: frozenset[str] = frozenset(get_args(KeyState))


class AnnouncingLog:
    """Implements `issuance.ports.Log`. `lives` returns what the history says of each key; `iss` is this issuer.

    `status` is what the last `check` has found.
    """

    def __init__(self, log: SequencerLog, iss: str, lives: Callable[[], Lives]) -> None:
        self._log = log
        self.iss = iss
        self.lives = lives
        self.status: LogStatus | None = None
        self._announced: set[KnownLeaf] = set()

    @property
    def origin(self) -> str | None:
        """The log's origin line, which tokens name."""
        return self._log.origin

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Append the leaves of tokens, behind those of the key that will sign them and of their policy.

        Raises Undecided: `dependency.log`, and `dependency.signer` where the key has gone out of use meanwhile. A leaf
        under it would have no token, and alarm every monitor.
        """
        first = [leaf for leaf in self._grounds(template) if leaf not in self._announced]
        tokens = (token_leaf(template.terms, template.kid, signing_input) for signing_input in signing_inputs)
        places = await self._log.append(tuple(leaf.to_bytes() for leaf in (*first, *tokens)))
        self._remember(first)
        return places[len(first) :]

    async def announce(self, leaves: Iterable[KnownLeaf]) -> None:
        """Announce what was not announced before, a part at a time. Raises Undecided(`dependency.log`)."""
        new = [leaf for leaf in dict.fromkeys(leaves) if leaf not in self._announced]
        for start in range(0, len(new), LOG_ANNOUNCED_AT_ONCE):
            some = new[start : start + LOG_ANNOUNCED_AT_ONCE]
            await self._log.announce(tuple(leaf.to_bytes() for leaf in some))
            self._remember(some)

    def has_announced(self, life: KeyLife) -> bool:
        """Say whether this process knows that the state of a key is in the log."""
        return self._announced.issuperset(key_leaves(self.iss, [life]))

    async def check(self) -> None:
        """Make sure that a leaf could be appended. Raises Undecided(`dependency.log`)."""
        newest = await self._log.look()
        if newest.standing.must_wait:
            raise Undecided(Code.DEPENDENCY_LOG, "No quorum of witnesses cosigns, and every token waits for one")
        self.status = LogStatus.of(self._log.origin, newest)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._log.aclose()

    def _grounds(self, template: Template) -> Iterator[KnownLeaf]:
        """Return what a token rests on."""
        life = self.lives().get(template.kid)
        if life is None or life.what not in PUBLISHED:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        yield from key_leaves(self.iss, [life])
        yield PolicyLeaf(self.iss, template.terms.sub, template.terms.policy)

    def _remember(self, leaves: Iterable[KnownLeaf]) -> None:
        if len(self._announced) >= LOG_ANNOUNCED:
            self._announced.clear()  # to announce a thing again makes no second leaf
        self._announced.update(leaves)


def key_leaves(iss: str, lives: Iterable[KeyLife]) -> Iterator[KeyLeaf]:
    """Return the state of each key. One whose file is gone is out of use, as an archived one is."""
    for life in lives:
        state = "archived" if life.what == "removed" else life.what
        if state in _STATES:
            yield KeyLeaf(iss, life.kid, life.x, state, life.since)  # type: ignore[arg-type]


def policy_leaves(iss: str, policies: PolicySet) -> Iterator[PolicyLeaf]:
    """Return the digest of each policy, with its integration."""
    for registrations in policies.registrations.values():
        for registration in registrations:
            yield PolicyLeaf(iss, registration.policy.integration, registration.digest)
