"""An answer to a request: status, headers and bytes, written when it is made and sent as they are.

Litestar's own Response may still be changed after the handler, and is written anew for each request: 25 us, against 3.
A handler may return any ASGI application instead, and this is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar.types import Receive, Scope, Send

Headers = tuple[tuple[bytes, bytes], ...]


class Answer:
    """An answer that is ready. Names of headers are in lowercase."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's own names)
        """Send it. The server omits the body in answer to a HEAD (RFC 9110 9.3.2)."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})

    def to_asgi_response(self, **_: Any) -> Answer:
        """Return what Litestar sends after an exception: itself."""
        return self


def answer(body: bytes, media_type: str, status: int = 200, *, headers: Mapping[str, str]) -> Answer:
    """Write an answer with a body."""
    own = ((b"content-type", media_type.encode("latin-1")), (b"content-length", b"%d" % len(body)))
    rest = tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    return Answer(status, own + rest, body)


def json_answer(value: object, request_id: str, status: int = 200, **headers: str) -> Answer:
    """Write the JSON of one caller's answer, which no cache may store."""
    own = {"Cache-Control": "no-store", "X-Request-Id": request_id}
    return answer(msgspec.json.encode(value), "application/json", status, headers={**own, **headers})
