"""A page for each error code: what happened, what to do. Written once, from the registry alone.

And how such a page is served: no script, nothing from elsewhere, in no frame. It has the style in it, for it is there
where the pages under `/ui` are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from itertools import groupby

from issuer.codes import Code
from issuer.page.frame import Place, links, write_alone
from issuer.page.site import places
from issuer.service.http.documents import Document, document

_CACHE = "public, max-age=3600"


@cache
def pages(*, ui: bool, has_log: bool) -> Mapping[str, Document]:
    """Return the page of each code, by its text, and under "" the list of all; links lead to what the issuer has."""
    others = places(ui=ui, has_log=has_log)
    return {"": _index(others)} | {str(code): _of(code, others) for code in Code}


def _of(code: Code, others: tuple[Place, ...]) -> Document:
    meaning = code.meaning
    answered = (
        f"HTTP status {meaning.status}. " if meaning.status else "Reported for files and at start, never over HTTP. "
    )
    again = "Nothing was decided: the same request may be sent again." if code.retryable else "Decided no."
    body = (
        f'<h1><code>{code}</code></h1>\n<p class="lead">{escape(meaning.title)}</p>\n'
        f'<div class="note"><h2>What to do</h2><p>{escape(meaning.remedy)}</p></div>\n'
        f'<dl class="facts"><dt>How it is answered</dt><dd>{answered}{again if meaning.status else ""}</dd></dl>\n'
        '<p><a href="../errors">All codes</a></p>\n'
    )
    return page(str(code), body, links(others, "../", "errors"), cache=_CACHE)


def _index(others: tuple[Place, ...]) -> Document:
    groups = [(name, list(codes)) for name, codes in groupby(sorted(Code, key=_group), key=_group)]
    contents = "".join(f'<li><a href="#{name}">{name}</a></li>\n' for name, _ in groups)
    body = (
        "<h1>Error codes</h1>\n"
        "<p>Whatever an issuer or one of its commands refuses has one of these codes. Each has a page that says what "
        f'to do.</p>\n<nav aria-label="Groups"><ul class="row">{contents}</ul></nav>\n'
        f"{''.join(_table(name, codes) for name, codes in groups)}"
    )
    return page("Error codes", body, links(others, "./", "errors"), cache=_CACHE)


def _group(code: Code) -> str:
    return str(code).partition(".")[0]


def _table(name: str, codes: list[Code]) -> str:
    rows = "".join(
        f'<dt><a href="errors/{code}"><code>{code}</code></a></dt><dd>{escape(code.meaning.title)}</dd>\n'
        for code in codes
    )
    return f'<h2 id="{name}"><code>{name}</code></h2>\n<dl class="facts codes">{rows}</dl>\n'


def page(title: str, body: str, above: str, *, cache: str, **headers: str) -> Document:
    """Make a page of a title, which is text, a body and the links above it, which are HTML."""
    html, policy = write_alone(title, body, above)
    named = {
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return document(html.encode(), "text/html; charset=utf-8", cache=cache, **named, **headers)
