"""The event of a running service's audit file that is about one request."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.support.running import Running
from tests.support.waiting import ask_until


def request_id(answer: httpx.Response) -> str:
    """Return the id of a request, which is in a header or in a problem."""
    return str(answer.headers.get("x-request-id") or answer.json()["request_id"])


def event_of(live: Running, answer: httpx.Response) -> dict[str, Any] | None:
    """Return the event of a request, or None if it has no event."""
    events = [event for event in live.audit() if event.get("request_id") == request_id(answer)]
    return events[0] if events else None


def refusal_event(live: Running, ask: Callable[[], httpx.Response]) -> dict[str, Any]:
    """Return the event of a refusal. Of many in a second some are only counted: then ask again."""
    return ask_until(lambda: event_of(live, ask()), lambda event: event is not None) or {}
