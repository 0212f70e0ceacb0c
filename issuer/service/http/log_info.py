"""Where a log is served, and what it says of itself. Pure.

A log has two prefixes (tlog-tiles): `/log`, which is that of whichever log this issuer has now, and the one that its
origin line names, `/log/<name>`. That one is always its own: when another log follows it, what caches hold of the old
one is at another URL, and its operator can go on serving it there, as files.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from issuer.tlog.witness_policy import parse_policy
from issuer.wire import LOG_PATH

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAKEN = frozenset({"checkpoint", "tile", "proof", "log.json"})


class LogInfo(Struct, frozen=True):
    """What the log says of itself: the issuer's URL, the log's origin line, its public keys as vkeys (signed-note), and
    the text of the witness policy (tlog-policy), where they are known."""

    issuer_url: str
    origin: str
    vkeys: tuple[str, ...] = ()
    witness_policy: str = ""

    @classmethod
    def of(cls, issuer_url: str, origin: str, policy: bytes, name: str) -> LogInfo:
        """Take the log's keys from its witness policy, a file of this name: several while one replaces the other.

        Raises InputError(`log.policy`).
        """
        logs = parse_policy(policy, name).logs
        keys = tuple(log.verifier.to_text() for log in logs if log.verifier.name == origin)
        return cls(issuer_url, origin, keys, policy.decode(errors="replace"))

    def to_json(self) -> bytes:
        """Write `log.json`. It is no trust anchor: who trusts the log has its keys from elsewhere."""
        policy = {"witness_policy": self.witness_policy} if self.witness_policy else {}
        urls = log_urls(self.issuer_url, self.origin)
        return msgspec.json.encode({"origin": self.origin, "vkeys": self.vkeys, "urls": urls, **policy})


def prefixes(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the paths under which a log is served, the one that is always its own first, if it has one.

    A log whose origin is not under the issuer's URL has none.
    """
    own = origin.removeprefix(f"{issuer_url.partition('://')[2]}{LOG_PATH}/")
    named = own != origin and _NAME.fullmatch(own) and own not in _TAKEN
    return (f"{LOG_PATH}/{own}", LOG_PATH) if named else (LOG_PATH,)


def log_urls(issuer_url: str, origin: str) -> tuple[str, ...]:
    """Return the URLs of these prefixes, in the same order, without a trailing slash."""
    return tuple(issuer_url + prefix for prefix in prefixes(issuer_url, origin))
