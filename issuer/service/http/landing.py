"""`/`: what this service is, for whoever opens its address. A page for people, the metadata for machines.

Made of what the metadata says, and nothing of a policy. No script, no picture, nothing from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from msgspec import Struct

from issuer.identity.provider import Provider
from issuer.page.frame import links
from issuer.page.site import cards, places
from issuer.service.http.documents import Document, document
from issuer.service.http.pages import page
from issuer.wire import ARCHIVE_PATH, JWKS_PATH, METADATA_PATH, REVOCATIONS_PATH

_CACHE = "public, max-age=300"
# RFC 9110 12.4.2
_WEIGHT = re.compile(r"[qQ]=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


class Landing(Struct, frozen=True):
    """The two documents at `/`."""

    page: Document
    metadata: Document

    @classmethod
    def of(
        cls, url: str, providers: Iterable[Provider], metadata: bytes, *, verifies: bool, log_url: str, ui: bool
    ) -> Landing:
        """Write both. `metadata` is the body of /.well-known/eval-token-issuer."""
        has_log = bool(log_url)
        shown = cards("./", has_log=has_log) if ui else ""
        verifying, asking = _verifying(url, verifies=verifies), _asking(url, providers)
        body = "\n".join((_introduction(url), shown, verifying, asking, _published(log_url)))
        above = links(places(ui=ui, has_log=has_log), "./", "")
        return cls(
            page(url, body, above, cache=_CACHE, Vary="Accept"),
            document(metadata, cache=_CACHE, Vary="Accept"),
        )

    def choose(self, accept: str) -> Document:
        """Return the document for an Accept header (RFC 9110 12.5.1): the page only where it ranks HTML above JSON."""
        ranges = dict(map(_range, accept.lower().split(",")))

        def rank(kind: str, any_of_kind: str) -> float:
            return next((ranges[each] for each in (kind, any_of_kind, "*/*") if each in ranges), 0)

        return self.page if rank("text/html", "text/*") > rank("application/json", "application/*") else self.metadata


def _range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip() for part in text.split(";"))
    weights = (found[1] for each in parameters if (found := _WEIGHT.fullmatch(each)))
    return kind, float(next(weights, 1))


def _introduction(url: str) -> str:
    return (
        "<h1>An issuer of verify tokens</h1>\n"
        f'<p class="lead"><code>{escape(url)}</code> signs results of AI evaluations, so that everybody can check who '
        "reported a score.</p>\n"
        "<p>A verify token stands beside the score in the model&#x27;s repository. It says which registered evaluation "
        "framework reported it, for which commit of the model and of the benchmark, and that nobody has changed it "
        "since. It does not show that the benchmark is sound, or that the run was honest.</p>"
    )


def _verifying(url: str, *, verifies: bool) -> str:
    over_http = (
        "<p>Without the program: send the entry to <code>POST /verify</code>; a web page may do so, too.</p>"
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
        f"<p>The job proves who it is by an identity token for <code>{escape(url)}</code>, or by another credential. "
        f"Taken here: {names}. To register a framework, write to whoever runs this service.</p>"
    )


def _published(log_url: str) -> str:
    rows = [
        (JWKS_PATH, "the keys that sign now"),
        (ARCHIVE_PATH, "every key that ever signed"),
        (REVOCATIONS_PATH, "what was taken back, where there is something"),
        (METADATA_PATH, "endpoints, identity providers and limits, for programs"),
        ("/openapi.json", "the interface, as OpenAPI"),
    ]
    if log_url:
        rows.append((f"{log_url}/log.json", "the transparency log, in which every token stands"))
    listed = "".join(
        f'<dt><a href="{escape(path)}"><code>{escape(path)}</code></a></dt><dd>{what}</dd>\n' for path, what in rows
    )
    return f'<h2>What is published</h2>\n<dl class="facts">{listed}</dl>\n'
