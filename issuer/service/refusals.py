"""Which refusals are told one by one, and which are counted: nobody can fill the audit's disk with refusals.

One process's memory, in a table of bounded size. The bytes that one caller's refusals add are bounded by a rate,
whatever they are refused for. Decides only; `audit.py` writes.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from issuer.audit_events import COUNTED, Decision, RefusalsCounted
from issuer.limits import Rate, Spent, spend
from issuer.service.bounds import COUNTED_S, MAX_COUNTED

# Who is charged for the bytes: an identity, all who only resemble it, or everybody unregistered of one provider.
_Who = tuple[str, str, bool]
# What is counted apart: the bucket (of those who resemble an identity), and the code.
_What = tuple[int | UnsetType, str]

_OTHERS: _Who = ("", "", False)


class Account:
    """The refusals of one caller: what it may still add, and what was not told one by one."""

    def __init__(self, who: _Who, rate: Rate, now_us: int) -> None:
        self.who = who
        self.since_us = now_us
        self._rate = rate
        self._arrival_us = 0
        self._told: set[_What] = set()
        self._counts: dict[_What, int] = {}
        self._written: set[_What] = set()

    def pays(self, size: int, now_us: int) -> bool:
        """Charge `size` bytes, if they are within the rate."""
        outcome = spend(self._rate, self._arrival_us, now_us, size)
        if isinstance(outcome, Spent):
            self._arrival_us = outcome.arrival_us
        return isinstance(outcome, Spent)

    def is_told(self, refused: Decision) -> bool:
        """Say whether one of this kind has been told within this minute, so that this one is only counted."""
        return _what(refused) in self._told

    def note(self, refused: Decision) -> None:
        """Note that a refusal was told."""
        if refused.code in COUNTED:
            self._told.add(_what(refused))

    def count(self, refused: Decision) -> None:
        """Count a refusal that is not told."""
        what = _what(refused)
        self._counts[what] = self._counts.get(what, 0) + 1

    def events(self, now_us: int) -> list[RefusalsCounted]:
        """Return what was counted, for each bucket."""
        integration, name, _ = self.who
        return [
            RefusalsCounted(
                time=now_us // 1_000_000,
                since=self.since_us // 1_000_000,
                codes={code: count for (of, code), count in self._counts.items() if of == bucket},
                provider=UNSET if integration else name or UNSET,
                integration=integration or UNSET,
                identity=name if integration else UNSET,
                bucket=bucket,
            )
            for bucket in dict.fromkeys(bucket for bucket, _ in self._counts)
        ]

    def settle(self, counted: RefusalsCounted) -> None:
        """Forget what has been written."""
        for code in counted.codes:
            del self._counts[counted.bucket, code]
            if code in COUNTED:
                self._written.add((counted.bucket, code))

    def renew(self, now_us: int) -> bool:
        """Begin the next minute: what nothing was counted of is told singly again. False where nothing is left."""
        self.since_us = now_us
        self._told, self._written = self._written, set()
        return bool(self._told) or self._arrival_us > now_us


class Refusals:
    """The accounts of all callers. `rate` is that of bytes, for each."""

    def __init__(self, rate: Rate, capacity: int = MAX_COUNTED) -> None:
        self._rate = rate
        self._capacity = capacity
        self._accounts: dict[_Who, Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def account_of(self, refused: Decision, now_us: int) -> Account:
        """Return the account of a refused caller; where there are too many, that of all others."""
        who = _who(refused)
        if (account := self._accounts.get(who)) is None:
            if len(self._accounts) >= self._capacity:
                who = _OTHERS
            account = self._accounts.setdefault(who, Account(who, self._rate, now_us))
        return account

    def due(self, now_us: int) -> list[Account]:
        """Return the accounts whose minute is over."""
        return [it for it in self._accounts.values() if now_us - it.since_us >= COUNTED_S * 1_000_000]

    def every(self) -> list[Account]:
        """Return all accounts."""
        return [*self._accounts.values()]

    def forget(self, account: Account) -> None:
        """Forget an account of which nothing is left to know."""
        del self._accounts[account.who]


def _who(refused: Decision) -> _Who:
    if refused.integration is UNSET:
        return "", refused.caller.provider, False
    return refused.integration, refused.identity or "", refused.bucket is not UNSET


def _what(refused: Decision) -> _What:
    return refused.bucket, refused.code or ""
