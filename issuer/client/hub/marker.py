"""The line in a pull request's description that says which results it is of. Pure.

It is a comment of Markdown, so that people do not see it. A result is named by 128 bits of its content digest: enough
among the pull requests of one account, and a thousand of them still fit into a description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CHARS = 32
_MARKER = re.compile(r"^<!-- eval-results((?: [0-9a-f]{32})+) -->$", re.MULTILINE)


def short(content_digest: str) -> str:
    """Return what stands in a marker for a digest, `sha256:` and 64 hex digits."""
    return content_digest.removeprefix("sha256:")[:_CHARS]


def marked(description: str, content_digests: Iterable[str]) -> str:
    """Return a description with the marker of these results, which it must not have yet, as its last line."""
    return f"{description.rstrip()}\n\n<!-- eval-results {' '.join(sorted(set(map(short, content_digests))))} -->\n"


def marker_in(text: str) -> frozenset[str]:
    """Return the results, each as `short` names it, that a description says that it is of; the last marker counts."""
    found = _MARKER.findall(text.replace("\r\n", "\n"))
    return frozenset(found[-1].split()) if found else frozenset()
