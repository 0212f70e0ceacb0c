"""`/ui`: the pages for people (`issuer.page`), as documents that were written beforehand."""

from __future__ import annotations

import uuid
from typing import Any

from litestar import route

from issuer.codes import Code
from issuer.errors import Refused
from issuer.page.site import site
from issuer.service.http.answer import Answer
from issuer.service.http.documents import document
from issuer.service.http.problems import problem_response
from issuer.service.http.reading import Http, header_values
from issuer.service.metrics.counts import Counts


def ui_routes(issuer_url: str, counts: Counts, *, has_log: bool) -> list[Any]:
    """Return the handlers of the pages. A path counts in its one spelling: what a page loads is relative to it."""
    documents = {
        path: document(file.body, file.media_type, cache=file.cache, **file.headers)
        for path, file in site(issuer_url, has_log=has_log).items()
    }

    async def look(request: Http) -> Answer:
        found = documents.get(request.scope["raw_path"].decode("latin-1"))
        if found is None:
            error = Refused(Code.REQUEST_NOT_FOUND)
            counts.problem(error)
            return problem_response(error, issuer_url, str(uuid.uuid4()))
        return found.answer(",".join(header_values(request, b"if-none-match")))

    return [
        route("/ui", http_method=["GET", "HEAD"], include_in_schema=False)(look),
        route("/ui/{path:path}", http_method=["GET", "HEAD"], include_in_schema=False)(look),
    ]
