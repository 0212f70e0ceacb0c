"""Emergency stops: callers that get no token for a time, whatever the policies grant. Pure.

The target of a stop is one text, the same in the file, on the command line, in the log and in the audit:

    everything                    every caller
    provider:ID                   every credential of a provider
    account:PROVIDER/ACCOUNT      the owner of a credential: the value of the claim that identities pin first (`account`
                                  of a personal access token, `client_id` of OAuth, `id` of Hugging Face,
                                  `repository_id` of GitHub)
    integration:ID                every identity of an integration
    identity:INTEGRATION/ID       one identity
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from issuer.formats import jcs
from issuer.formats.strict_json import Text
from issuer.formats.times import LEEWAY_S
from issuer.identity.table import Provider
from issuer.policy.registration import Registration

EVERYTHING = "everything"
_ID = "[a-z0-9]+(?:-[a-z0-9]+)*"
WHAT = rf"everything|(?:provider|integration):{_ID}|identity:{_ID}/{_ID}|account:{_ID}/[\x21-\x7e]{{1,512}}"
WHAT_RULE = "give everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or identity:INTEGRATION/ID"
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """One stop: `what` gets no token from `since`, and until `until` if it has an end (both UTC).

    `reason` is for operators. No caller sees it, because the caller may be the reason.
    """

    what: Text
    reason: Text
    since: Text
    until: Text | UnsetType = UNSET

    def is_in_force(self, now: int) -> bool:
        """Return whether the stop is in force at `now` (Unix seconds). It begins 30 s early: hosts' clocks differ."""
        return unix_s(self.since) - LEEWAY_S <= now and (self.until is UNSET or now < unix_s(self.until))


class StopsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """`stops.yaml`: the emergency stops. It is read separately from every other file."""

    version: Literal[1]
    stops: tuple[Stop, ...]


class Stops:
    """The stops of a file, indexed by target. `digest` does not depend on their order."""

    def __init__(self, stops: Iterable[Stop] = ()) -> None:
        self.all = tuple(dict.fromkeys(stops))
        self.digest = jcs.digest(sorted(jcs.canonical(msgspec.to_builtins(stop)).decode() for stop in self.all))
        self._by_what: dict[str, tuple[Stop, ...]] = {}
        for stop in self.all:
            self._by_what[stop.what] = (*self._by_what.get(stop.what, ()), stop)

    def find(self, names: Iterable[str], now: int) -> Stop | None:
        """Return a stop of one of these targets that is in force at `now` (Unix seconds), or None."""
        if not self._by_what:
            return None
        stops = (stop for name in names for stop in self._by_what.get(name, ()))
        return next((stop for stop in stops if stop.is_in_force(now)), None)

    def with_those_of(self, other: Stops) -> Stops:
        """Return the stops of both."""
        return Stops((*self.all, *other.all))


def names_of_provider(provider: Provider) -> tuple[str, ...]:
    """Return the targets that stop a provider; they apply before its credentials are verified."""
    return (f"provider:{provider.id}",)


def names_of_registration(registration: Registration) -> Iterator[str]:
    """Yield the targets that stop a registered identity. The service iterates it only if there are stops."""
    provider, identity = registration.provider, registration.identity
    integration = registration.policy.integration
    yield EVERYTHING
    yield from names_of_provider(provider)
    yield f"account:{provider.id}/{identity.pins[provider.rules.pins[0]]}"
    yield f"integration:{integration}"
    yield f"identity:{integration}/{identity.id}"


def is_what(text: str) -> bool:
    """Return whether a text is the target of a stop."""
    return re.fullmatch(WHAT, text) is not None


def is_time(text: str) -> bool:
    """Return whether a text is a UTC time such as 2026-11-21T09:00:00Z (RFC 3339)."""
    try:
        return re.fullmatch(TIME, text) is not None and unix_s(text) > 0
    except ValueError:
        return False


def unix_s(text: str) -> int:
    """Return the Unix seconds of a UTC time. Raises ValueError for a day or an hour that does not exist."""
    return int(datetime.fromisoformat(text).timestamp())
