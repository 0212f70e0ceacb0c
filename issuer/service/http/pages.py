"""The HTML pages of the service: one for each error code, the landing page at `/`, and the routes of `/ui`.

Pages of codes are written once, from the registry of codes. They and the landing page contain their style, because a
service may run without `/ui`. They have no script, load nothing from other hosts, and cannot be framed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from itertools import groupby
from typing import Any

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.table import Provider
from issuer.page.site import PageLink, cards, links, places, site, write_alone
from issuer.service.http.bounds import MAX_MEDIA_RANGES
from issuer.service.http.messages import (
    Answer,
    Http,
    HttpDocument,
    document,
    get_and_head,
    header_values,
    problem_response,
)
from issuer.service.metrics.counts import Counters
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, METADATA_PATH, REVOCATIONS_PATH

_CACHE = "public, max-age=3600"


@cache
def pages(*, ui: bool, has_log: bool) -> Mapping[str, HttpDocument]:
    """Return each code's page by the text of the code, and the page that lists all codes under "".

    `ui` and `has_log` say which other pages exist, for the links.
    """
    others = places(ui=ui, has_log=has_log)
    return {"": _index(others)} | {str(code): _of(code, others) for code in Code}


def _of(code: Code, others: tuple[PageLink, ...]) -> HttpDocument:
    meaning = code.meaning
    answered = (
        f"HTTP status {meaning.status}. " if meaning.status else "Reported for files and at start, never over HTTP. "
    )
    again = (
        "The service has not decided: you may send the same request again."
        if code.retryable
        else "The service has decided: it would refuse the same request again."
    )
    body = (
        f'<h1><code>{code}</code></h1>\n<p class="lead">{escape(meaning.title)}</p>\n'
        f'<div class="note"><h2>What to do</h2><p>{escape(meaning.remedy)}</p></div>\n'
        f'<dl class="facts"><dt>Answer</dt><dd>{answered}{again if meaning.status else ""}</dd></dl>\n'
        '<p><a href="../errors">All codes</a></p>\n'
    )
    return page(str(code), body, links(others, "../", "errors"), cache=_CACHE)


def _index(others: tuple[PageLink, ...]) -> HttpDocument:
    groups = [(name, list(codes)) for name, codes in groupby(sorted(Code, key=_group), key=_group)]
    contents = "".join(f'<li><a href="#{name}">{name}</a></li>\n' for name, _ in groups)
    body = (
        "<h1>Error codes</h1>\n"
        "<p>Each refusal of an issuer or of one of its commands has one of these codes. The page of a code says what "
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


def page(title: str, body: str, above: str, *, cache: str, **headers: str) -> HttpDocument:
    """Return a page. `title` is text; `body` and `above`, the links above it, are HTML."""
    html, policy = write_alone(title, body, above)
    named = {
        "Content-Security-Policy": f"{policy}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return document(html.encode(), "text/html; charset=utf-8", cache=cache, **named, **headers)


# -- landing -----------------------------------------------------------------------------------------------------------

# `/` introduces the service: a page for people, the metadata for machines. Both show public metadata and no part of a
# policy.

_LANDING_CACHE = "public, max-age=300"
# RFC 9110 12.4.2
_WEIGHT = re.compile(r"[qQ]=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


class Landing(Struct, frozen=True):
    """The two documents at `/`."""

    page: HttpDocument
    metadata: HttpDocument

    @classmethod
    def of(
        cls, url: str, providers: Iterable[Provider], metadata: bytes, *, verifies: bool, log_url: str, ui: bool
    ) -> Landing:
        """Return both documents. `metadata` is the body of /.well-known/eval-token-issuer."""
        has_log = bool(log_url)
        shown = cards("./", has_log=has_log) if ui else ""
        verifying, asking = _verifying(url, verifies=verifies), _asking(url, providers)
        body = "\n".join((_introduction(url), shown, verifying, asking, _published(log_url)))
        above = links(places(ui=ui, has_log=has_log), "./", "")
        return cls(
            page(url, body, above, cache=_LANDING_CACHE, Vary="Accept"),
            document(metadata, cache=_LANDING_CACHE, Vary="Accept"),
        )

    def choose(self, accept: str) -> HttpDocument:
        """Return the document for an Accept header (RFC 9110 12.5.1): the page only if it ranks HTML above JSON, in at
        most MAX_MEDIA_RANGES ranges."""
        ranges = accept.lower().split(",", MAX_MEDIA_RANGES)
        if len(ranges) > MAX_MEDIA_RANGES:
            return self.metadata
        weights = dict(map(_range, ranges))

        def rank(kind: str, any_of_kind: str) -> float:
            return next((weights[each] for each in (kind, any_of_kind, "*/*") if each in weights), 0)

        return self.page if rank("text/html", "text/*") > rank("application/json", "application/*") else self.metadata


def _range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    weights = (found[1] for each in parameters if (found := _WEIGHT.fullmatch(each)))
    return kind, float(next(weights, 1))


def _introduction(url: str) -> str:
    return (
        "<h1>An issuer of verify tokens</h1>\n"
        f'<p class="lead"><code>{escape(url)}</code> signs results of AI evaluations. Anyone can check who reported '
        "a score.</p>\n"
        "<p>A verify token is stored with the score in the model&#x27;s repository. It proves which registered "
        "evaluation framework reported the score, for which commit of the model and of the benchmark, and that the "
        "score is unchanged. It does not prove that the benchmark is sound, or that the run was honest.</p>"
    )


def _verifying(url: str, *, verifies: bool) -> str:
    over_http = (
        "<p>Without the program, send the entry to <code>POST /verify</code>. A web page may do so, too.</p>"
        if verifies
        else ""
    )
    return (
        "<h2>Check a result on your machine</h2>\n"
        f"<pre>issuer verify .eval_results/BENCHMARK.yaml --repo OWNER/MODEL \\\n"
        f"    --issuer {escape(url)} --audience AUDIENCE</pre>\n"
        "<p><code>AUDIENCE</code> is the site that the token was made for, for example "
        f"<code>https://huggingface.co</code>.</p>{over_http}"
    )


def _asking(url: str, providers: Iterable[Provider]) -> str:
    names = ", ".join(f"<code>{escape(provider.id)}</code>" for provider in providers)
    return (
        "<h2>Get a token</h2>\n"
        "<p>In a job of a framework that is registered here:</p>\n"
        f"<pre>issuer token request --issuer {escape(url)} \\\n"
        "    --claims claims.json --out .eval_results/BENCHMARK.yaml</pre>\n"
        f"<p>The job authenticates with an identity token for <code>{escape(url)}</code>, or with another credential. "
        f"This service accepts credentials of: {names}. To register a framework, write to its operator.</p>"
    )


def _published(log_url: str) -> str:
    rows = [
        (JWKS_PATH, "the keys that sign now"),
        (ARCHIVE_PATH, "every key that ever signed"),
        (REVOCATIONS_PATH, "the signed list of revocations, if there is one"),
        (METADATA_PATH, "endpoints, identity providers and limits, for programs"),
        ("/openapi.json", "the interface, as OpenAPI"),
    ]
    if log_url:
        rows.append((f"{log_url}/log.json", "the transparency log, which contains every token"))
    listed = "".join(
        f'<dt><a href="{escape(path)}"><code>{escape(path)}</code></a></dt><dd>{what}</dd>\n' for path, what in rows
    )
    return f'<h2>What is published</h2>\n<dl class="facts">{listed}</dl>\n'


# -- ui ----------------------------------------------------------------------------------------------------------------


def ui_routes(issuer_url: str, counts: Counters, *, has_log: bool) -> list[Any]:
    """Return the handlers of the pages of `issuer.page`. Each path has exactly one spelling, because the URLs in a page
    are relative to it."""
    documents = {
        path: document(file.body, file.media_type, cache=file.cache, **file.headers)
        for path, file in site(issuer_url, has_log=has_log).items()
    }

    async def look(request: Http) -> Answer:
        if found := documents.get(request.scope["raw_path"].decode("latin-1")):
            return found.answer(",".join(header_values(request, b"if-none-match")))
        error = Refused(Code.REQUEST_NOT_FOUND)
        counts.problem(error)
        return problem_response(error, issuer_url, str(uuid.uuid4()))

    return [*get_and_head("/ui", look), *get_and_head("/ui/{path:path}", look)]
