"""Public documents: the same bytes for everybody, pages of every origin included, with an ETag and a time for which
caches may keep them."""

from __future__ import annotations

import hashlib

from msgspec import Struct

from issuer.service.http.answer import Answer, answer
from issuer.service.http.cors import readable


class Document(Struct, frozen=True):
    """A document that does not change while it is served: both of its answers are written beforehand."""

    etag: str
    whole: Answer
    unchanged: Answer

    def answer(self, if_none_match: str) -> Answer:
        """Answer a GET: 304 where the client has it already (RFC 9110 13.1.2: a list, compared weakly, or `*`)."""
        if not if_none_match:
            return self.whole
        known = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
        return self.unchanged if known & {self.etag, "*"} else self.whole


def document(
    body: bytes, media_type: str = "application/json", *, cache: str = "public, max-age=300", **headers: str
) -> Document:
    """Make a document; its ETag is derived from its bytes. `cache` is its Cache-Control (RFC 9111 5.2.2)."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kept = {"Cache-Control": cache, "ETag": etag, **{name: headers[name] for name in headers.keys() & {"Vary"}}}
    whole = answer(body, media_type, headers={"Cache-Control": cache, "ETag": etag, **headers})
    head = tuple((name.lower().encode(), value.encode()) for name, value in kept.items())
    # A 304 has no length of its own (RFC 9110 8.6).
    return Document(etag, readable(whole), readable(Answer(304, head, b"")))
