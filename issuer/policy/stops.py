"""Emergency stops: who gets no token for the time being, whatever the policies grant. Pure.

A stop names what it stops in one text, the same in the file, on the command line, in the log and in the audit:

    everything                    every caller
    provider:ID                   every credential of a provider
    account:PROVIDER/ACCOUNT      what a credential belongs to: the value that identities pin first (`account` of a
                                  personal access token, `client_id` of OAuth, `id` of Hugging Face, `repository_id`)
    integration:ID                every identity of an integration
    identity:INTEGRATION/ID       one identity
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from issuer.formats import jcs
from issuer.formats.strict_json import JSON, Text
from issuer.formats.times import LEEWAY_S
from issuer.identity.table import Provider
from issuer.policy.registration import Registration

EVERYTHING = "everything"
_ID = "[a-z0-9]+(?:-[a-z0-9]+)*"
WHAT = rf"everything|(?:provider|integration):{_ID}|identity:{_ID}/{_ID}|account:{_ID}/[\x21-\x7e]{{1,512}}"
WHAT_RULE = "give everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or identity:INTEGRATION/ID"
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """One stop: `what` gets no token from `since` on, until `until` where it has an end (both UTC).

    `reason` is for the operators: a caller never sees it, for the caller may be the reason.
    """

    what: Text
    reason: Text
    since: Text
    until: Text | UnsetType = UNSET

    def is_in_force(self, now: int) -> bool:
        """Say whether it holds at `now`, Unix seconds. It begins a little early: clocks differ from host to host."""
        return unix_s(self.since) - LEEWAY_S <= now and (self.until is UNSET or now < unix_s(self.until))


class StopsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """`stops.yaml`: the emergency stops. It is read apart from every other file."""

    version: Literal[1]
    stops: tuple[Stop, ...]


class Stops:
    """The stops of a file, by what they stop; `digest` is over all that they say, in whatever order they stand."""

    def __init__(self, stops: Iterable[Stop] = ()) -> None:
        self.all = tuple(dict.fromkeys(stops))
        self.digest = jcs.digest(sorted(map(_canonical, self.all)))
        self._by_what: dict[str, tuple[Stop, ...]] = {}
        for stop in self.all:
            self._by_what[stop.what] = (*self._by_what.get(stop.what, ()), stop)

    def find(self, names: Iterable[str], now: int) -> Stop | None:
        """Return a stop that is in force at `now` (Unix seconds) for something with one of these names, or None."""
        if not self._by_what:
            return None
        stops = (stop for name in names for stop in self._by_what.get(name, ()))
        return next((stop for stop in stops if stop.is_in_force(now)), None)

    def with_those_of(self, other: Stops) -> Stops:
        """Return both together: nothing that either stops goes on."""
        return Stops((*self.all, *other.all))


def names_of_provider(provider: Provider) -> tuple[str, ...]:
    """Return the names by which a provider can be stopped, before any of its credentials is verified."""
    return (f"provider:{provider.id}",)


def names_of_registration(registration: Registration) -> Iterator[str]:
    """Yield the names by which a registered identity can be stopped; nobody asks for them where nothing is stopped."""
    provider, identity = registration.provider, registration.identity
    integration = registration.policy.integration
    yield EVERYTHING
    yield from names_of_provider(provider)
    yield f"account:{provider.id}/{identity.pins[provider.rules.pins[0]]}"
    yield f"integration:{integration}"
    yield f"identity:{integration}/{identity.id}"


def is_what(text: str) -> bool:
    """Say whether a text names what can be stopped."""
    return re.fullmatch(WHAT, text) is not None


def is_time(text: str) -> bool:
    """Say whether a text is a moment of UTC, as 2026-11-21T09:00:00Z (RFC 3339)."""
    try:
        return re.fullmatch(TIME, text) is not None and unix_s(text) > 0
    except ValueError:
        return False


def unix_s(text: str) -> int:
    """Return the Unix seconds of a moment of UTC. Raises ValueError for a day or an hour that does not exist."""
    return int(datetime.fromisoformat(text).timestamp())


def _canonical(stop: Stop) -> str:
    said: Mapping[str, JSON] = {
        name: value for name in Stop.__struct_fields__ if (value := getattr(stop, name)) is not UNSET
    }
    return jcs.canonical(dict(said)).decode()
