"""Public documents: bytes that everybody gets alike, with an ETag and a time for which caches may keep them."""

from __future__ import annotations

import hashlib

from litestar import Response
from msgspec import Struct


class Document(Struct, frozen=True):
    """A document that does not change while it is served; `cache` is its Cache-Control (RFC 9111 5.2.2)."""

    body: bytes
    media_type: str
    cache: str
    etag: str

    def answer(self, if_none_match: str) -> Response[bytes]:
        """Answer a GET: 304 where the client has it already (RFC 9110 13.1.2: a list, compared weakly, or `*`)."""
        headers = {"Cache-Control": self.cache, "ETag": self.etag}
        known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        if known & {self.etag, "*"}:
            return Response(b"", status_code=304, headers=headers, media_type=self.media_type)
        return Response(self.body, headers=headers, media_type=self.media_type)


def document(body: bytes, media_type: str = "application/json", *, cache: str = "public, max-age=300") -> Document:
    """Make a document; its ETag is made of its bytes."""
    return Document(body, media_type, cache, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def without_body(answer: Response[bytes]) -> Response[None]:
    """Answer the HEAD of what a GET would have been answered with."""
    headers = {**answer.headers, "Content-Length": str(len(answer.content))}
    return Response(None, status_code=answer.status_code, media_type=answer.media_type, headers=headers)
