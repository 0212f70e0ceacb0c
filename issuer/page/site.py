"""The pages under `/ui`, and the files that they load. Made once, from what lies in this room; the same for everybody.

Markup has no script and no style of its own, and nothing comes from elsewhere: each page says so in its policy (CSP 3),
with what it may connect to. Scripts and the style lie under a digest of all of them, so that a cache may keep them for
ever and no page loads two versions at once. A page may also be a folder on somebody else's host, where no header is
ours: so the policy stands in the markup, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from msgspec import Struct

_HERE = files("issuer.page")
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"
# A page is looked at anew each time: it names the version of what it loads.
FRESH = "public, max-age=0, must-revalidate"
HTML_TYPE = "text/html; charset=utf-8"
_COMMON = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
# A worker has the policy of its own script: it may load modules of this origin, and reach nothing.
_OF_STATIC = "default-src 'none'; script-src 'self'; frame-ancestors 'none'"


class File(Struct, frozen=True):
    """What is served at a path: its bytes, its type, how long a cache keeps it, and further headers."""

    body: bytes
    media_type: str
    cache: str
    headers: Mapping[str, str]


class _Page(Struct, frozen=True):
    """A page: its name under `/ui/` ("" for `/ui` itself), title, description, script, and where it may connect."""

    name: str
    title: str
    about: str
    script: str = ""
    connect: str = ""
    workers: bool = False

    @property
    def policy(self) -> str:
        """The policy of this page; `frame-ancestors` counts in a header alone."""
        parts = ["default-src 'none'", "style-src 'self'", "img-src 'self'"]
        parts += ["script-src 'self'"] if self.script else []
        parts += [f"connect-src {self.connect}"] if self.connect else []
        parts += ["worker-src 'self'", "trusted-types checking"] if self.workers else ["trusted-types 'none'"]
        return "; ".join([*parts, "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"])


_VERIFY = _Page(
    "verify",
    "Verify a result",
    "Check a score in this browser: who ran what, on which commit, and who vouches for it.",
    "verifying.js",
    # The keys of any issuer that the person names; plain http is for a machine of one's own.
    "'self' https: http://127.0.0.1:* http://localhost:*",
    workers=True,
)
PAGES = (
    _Page("", "Look at results", "Check a score, or find out why a job was refused."),
    _VERIFY,
    _Page(
        "refused",
        "Why was I refused?",
        "What an issuer's answer means, and what to do next.",
        "refused.js",
        "'self'",
    ),
    _Page(
        "log",
        "The log",
        "The issuer's transparency log: what it has signed, and whether history stays as it was.",
        "log.js",
        "'self'",
    ),
)


def site(issuer_url: str) -> dict[str, File]:
    """Return what an issuer serves, by its path: `/ui`, the pages below, and `/ui/static/VERSION/...`."""
    version, static = _static()
    made = {f"/ui/static/{version}/{name}": file for name, file in static.items()}
    for path, page in [("/ui", PAGES[0]), *((f"/ui/{page.name}", page) for page in PAGES)]:
        below = "ui/" if path == "/ui" else ""
        headers = {"Content-Security-Policy": f"{page.policy}; frame-ancestors 'none'", **_COMMON}
        made[path] = File(_markup(page, f"{below}static/{version}", below, issuer_url), HTML_TYPE, FRESH, headers)
    return made


# What the page says of itself in its markup counts, but for these.
HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff"}
_OF_OTHERS = {f"ui/{name}.js" for name in ("refused", "problem", "log", "log-drawing", "visits", "times")}


def export() -> dict[str, bytes]:
    """Return the verify page as a folder, by relative path: it names no issuer, and any host may serve it.

    The page is the last: what it loads is there before it.
    """
    version, static = _static()
    made = {f"static/{version}/{name}": file.body for name, file in static.items() if name not in _OF_OTHERS}
    return {**made, "index.html": _markup(_VERIFY, f"static/{version}", None, "")}


def _static() -> tuple[str, dict[str, File]]:
    """Read scripts and style, with the digest of all of them."""
    headers = {"Content-Security-Policy": _OF_STATIC, **_COMMON}
    found = dict(sorted([*_files(_HERE / "ui", "ui"), *_files(_HERE / "verify", "verify")]))
    digest = hashlib.sha256()
    for name, body in found.items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(body), body))
    files_by_name = {
        name: File(body, _TYPES[name.rpartition(".")[2]], FOREVER, headers) for name, body in found.items()
    }
    return digest.hexdigest()[:16], files_by_name


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield what a browser loads: tests, types and pages of documentation lie beside it."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{path}/{each.name}")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield f"{path}/{each.name}", each.read_bytes()


# -- markup ------------------------------------------------------------------------------------------------------------

_WHOLE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">
<meta name="description" content="$about">
<title>$title</title>
<link rel="icon" href="$static/ui/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="$static/ui/style.css">
$script</head>
<body data-issuer="$issuer">
<a class="skip" href="#main">To the content</a>
$links<main id="main">
$body</main>
</body></html>
""")


def _markup(page: _Page, static: str, below: str | None, issuer: str) -> bytes:
    """Write a page. `below` leads from it to what is below `/ui`; None: it stands alone."""
    links = "" if below is None else _links(page, below)
    script = f'<script type="module" src="{static}/ui/{page.script}"></script>\n' if page.script else ""
    body = (_HERE / "ui" / f"{page.name or 'index'}.html").read_text("utf-8").replace("{below}", below or "")
    return _WHOLE.substitute(
        policy=escape(page.policy), about=escape(page.about), title=escape(page.title), static=static, script=script,
        issuer=escape(issuer), links=links, body=body,
    ).encode()  # fmt: skip


def _links(current: _Page, below: str) -> str:
    """Write the links between the pages; paths are relative, for an issuer may lie below a path of its host."""
    above = "./" if below else "../"
    items = [(above, "Issuer", False)]
    items += [(below + page.name if page.name else f"{above}ui", page.title, page is current) for page in PAGES]
    listed = "".join(
        f'<a href="{href}"{" aria-current=page" if here else ""}>{escape(text)}</a>' for href, text, here in items
    )
    return f'<header><nav aria-label="Pages">{listed}</nav></header>\n'
