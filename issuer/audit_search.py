"""Which events of an audit are asked for, and what people see of them. Pure: lines in, events out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from issuer.audit_events import AbuseOrdered, AbuseSignal, Decision, Event, RefusalsCounted
from issuer.formats.times import show_time

# Of the event, or of its line in the file.
_NOT_SHOWN = {"version", "time", "worker", "seq", "prev"}
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def read_event(line: bytes) -> Event | None:
    """Read a line of an audit file; None for half a line and for an event of a kind that is not known here."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Wanted(Struct, frozen=True):
    """Which events are asked for: those of which every member that is not "" is true.

    `content` and `claims` are digests, with or without `sha256:`; `identity` may be `INTEGRATION/IDENTITY`.
    """

    jti: str = ""
    content: str = ""
    claims: str = ""
    request: str = ""
    integration: str = ""
    identity: str = ""
    code: str = ""
    verdict: str = ""
    signal: str = ""

    def search(self, line: bytes) -> Event | None:
        """Return the event of a line if it is asked for."""
        rare = (self.jti, _hex(self.content), _hex(self.claims), self.request)
        if any(text.encode() not in line for text in rare):  # far cheaper than reading it
            return None
        event = read_event(line)
        return event if event is not None and self._is_met(event) else None

    def _is_met(self, event: Event) -> bool:
        if isinstance(event, RefusalsCounted):
            said = (self.code in {"", *event.codes}, self.verdict in {"", "refused"}, not self.signal)
            return all(said) and self._is_whose(event) and not (self.jti or self.content or self.claims or self.request)
        if isinstance(event, AbuseSignal):
            is_it = self.request in {"", event.request_id} and self.signal in {"", event.signal}
            return is_it and self._is_whose(event) and self._names_no_decision()
        if isinstance(event, AbuseOrdered):
            return self._is_whose(event) and self._names_no_decision() and not (self.signal or self.request)
        if not isinstance(event, Decision):
            return self == Wanted()
        return self._is_whose(event) and all((
            not self.signal,
            not self.jti or self.jti in (event.jti or ()),
            not self.content or _named(self.content) in (event.content_digest or ()),
            not self.claims or _named(self.claims) in (event.claims_digest or ()),
            self.request in {"", event.request_id},
            self.code in {"", event.code},
            self.verdict in {"", event.verdict},
        ))  # fmt: skip

    def _names_no_decision(self) -> bool:
        return not (self.jti or self.content or self.claims or self.code or self.verdict)

    def _is_whose(self, event: Decision | RefusalsCounted | AbuseSignal | AbuseOrdered) -> bool:
        integration, _, name = self.identity.rpartition("/")
        return {self.integration, integration} <= {"", event.integration} and name in {"", event.identity}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _named(digest: str) -> str:
    return f"sha256:{_hex(digest)}"


def describe(event: Event) -> str:
    """Say an event in one line, for people; what callers chose is in it as it is."""
    return f"{show_time(event.time)}  {'  '.join(_parts(event))}"


def _parts(event: Event) -> Iterator[str]:
    if isinstance(event, RefusalsCounted):
        counts = ", ".join(f"{count} x {code}" for code, count in event.codes.items())
        yield f"refused   {_whose(event)}  {counts}: not told one by one since {show_time(event.since)}"
    elif isinstance(event, Decision):
        yield f"{event.verdict:<8}  {_whose(event)}  {event.endpoint}"
        yield event.code or ", ".join((event.jti or ())[:3]) or "-"
        yield event.request_id
    elif isinstance(event, AbuseSignal):
        yield f"signal    {event.integration}/{event.identity}  {event.signal}"
        yield _evidence(event)
        yield event.then
        yield event.request_id
    else:  # of policies and keys: few, and short
        said = msgspec.to_builtins(event)
        yield str(said.pop("event")).replace("_", " ")
        yield from (f"{name} {said[name]}" for name in said if name not in _NOT_SHOWN and said[name])


def _evidence(event: AbuseSignal) -> str:
    """Say what was counted, or who has the name of an identity now."""
    if isinstance(event.caller, msgspec.UnsetType):
        return f"{event.count} > {event.limit} ({event.rule})"
    claims = ", ".join(f"{name} {value}" for name, value in event.caller.claims.items())
    return f"{event.count} x by {event.caller.provider}: {claims}"


def _whose(event: Decision | RefusalsCounted) -> str:
    if not event.integration:
        provider = event.caller.provider if isinstance(event, Decision) else event.provider
        return f"(unregistered, {provider})" if provider else "(others)"
    bucket = "" if isinstance(event.bucket, msgspec.UnsetType) else f" (resembles it, bucket {event.bucket})"
    return f"{event.integration}/{event.identity}{bucket}"
