"""A page for each error code: what happened, what to do. Written once, from the registry alone.

And how a page for people is made: no script, nothing from elsewhere, in no frame.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape

from issuer.codes import Code
from issuer.service.http.documents import Document, document

_CACHE = "public, max-age=3600"
_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.6 system-ui,sans-serif;max-width:44rem;margin:3rem auto;"
    "padding:0 1rem}code{font:.95em ui-monospace,monospace}dt{font-weight:600;margin-top:1rem}dd{margin:0}"
    "td{padding:.2rem 1rem .2rem 0;vertical-align:top}pre{overflow-x:auto}code{overflow-wrap:anywhere}"
)
_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}


@cache
def pages() -> Mapping[str, Document]:
    """Return the page of each code, by its text, and under "" the list of all."""
    return {"": _index()} | {str(code): _of(code) for code in Code}


def _of(code: Code) -> Document:
    meaning = code.meaning
    answered = (
        f"HTTP status {meaning.status}. " if meaning.status else "Reported for files and at start, never over HTTP. "
    )
    again = "Nothing was decided: the same request may be sent again." if code.retryable else "Decided no."
    body = (
        f"<h1><code>{code}</code></h1><dl><dt>What happened</dt><dd>{escape(meaning.title)}</dd>"
        f"<dt>What to do</dt><dd>{escape(meaning.remedy)}</dd>"
        f"<dt>How it is answered</dt><dd>{answered}{again if meaning.status else ''}</dd></dl>"
        '<p><a href="/errors">All codes</a></p>'
    )
    return page(str(code), body, cache=_CACHE)


def _index() -> Document:
    rows = "".join(
        f'<tr><td><a href="/errors/{code}"><code>{code}</code></a></td><td>{escape(code.meaning.title)}</td></tr>'
        for code in Code
    )
    return page("Error codes", f"<h1>Error codes</h1><table>{rows}</table>", cache=_CACHE)


def page(title: str, body: str, *, cache: str, **headers: str) -> Document:
    """Make a page of a title, which is text, and a body, which is HTML."""
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}</body></html>'
    )
    return document(html.encode(), "text/html; charset=utf-8", cache=cache, **_HEADERS, **headers)
