"""The pages under `/ui`, their frame and the files that they load. Made once; the same for everybody. Pure.

Each page states its policy (CSP 3) in its markup, because a folder on another host sends no header of ours. Scripts and
the style are under a digest of all of them: a cache may keep them for ever, and no page loads two versions at once. A
document that must stand alone has the style in it, which its policy allows by its digest.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template

from msgspec import Struct

_STYLE, TIMES = (files("issuer.page").joinpath(f"ui/{name}").read_text("utf-8") for name in ("style.css", "times.js"))
STYLED = f"<style>{_STYLE}</style>\n"


class PageLink(Struct, frozen=True):
    """A page that others lead to: its path below the issuer's URL ("" for `/`), and its name."""

    path: str
    name: str


def digest_source(text: str) -> str:
    """Return by what a policy allows this style or script, as it stands in a document (CSP 3, 2.3.1)."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


OWN_STYLE = digest_source(_STYLE)


def policy_of(style: str, script: str = "", *more: str) -> str:
    """Return a policy that allows this style, this script ("": none) and `more`, and nothing else."""
    scripts = [f"script-src {script}"] if script else []
    allowed = ["default-src 'none'", f"style-src {style}", *scripts, *more]
    # Whoever puts a page in a frame is forbidden by a header: in markup that counts for nothing.
    return "; ".join([*allowed, "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"])


_ALONE = policy_of(OWN_STYLE, "", "trusted-types 'none'")

_WHOLE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">
$about<title>$title</title>
$head</head>
<body$attributes>
<a class="skip" href="#main">To the content</a>
$above<main id="main">
$body</main>
$below</body></html>
""")


class Page(Struct, frozen=True, kw_only=True):
    """A page: `title`, `about` and `policy` are text, everything else is markup."""

    title: str
    policy: str
    head: str
    body: str
    about: str = ""
    above: str = ""
    below: str = ""
    attributes: str = ""

    def write(self) -> str:
        """Return its HTML."""
        texts = {name: escape(getattr(self, name)) for name in ("title", "policy")}
        about = f'<meta name="description" content="{escape(self.about)}">\n' if self.about else ""
        markup = {name: getattr(self, name) for name in ("head", "body", "above", "below", "attributes")}
        return _WHOLE.substitute(texts, about=about, **markup)


def write_alone(title: str, body: str, above: str) -> tuple[str, str]:
    """Write a page without a script that loads nothing; return its policy, too, for a header."""
    page = Page(title=title, policy=_ALONE, head=STYLED, above=above, body=body)
    return page.write(), _ALONE


def links(places: Iterable[PageLink], root: str, here: str) -> str:
    """Write the links above a page. `root` leads from it to the issuer's URL, for that may lie below a path of its
    host; `here` is the path of the page itself."""
    listed = "".join(
        f'<a href="{escape(root + place.path)}"{" aria-current=page" if place.path == here else ""}>'
        f"{escape(place.name)}</a>"
        for place in places
    )
    return f'<header><nav aria-label="Pages">{listed}</nav></header>\n'


_HERE = files("issuer.page")
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
# A page is looked at anew each time: it names the version of what it loads.
FRESH = "public, max-age=0, must-revalidate"
HTML_TYPE = "text/html; charset=utf-8"
_COMMON = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
# Who opened a page keeps no hold on it, by which to change its link under a person's hands, or to lead it elsewhere.
_APART = {"Cross-Origin-Opener-Policy": "same-origin"}
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
        connect = [f"connect-src {self.connect}"] if self.connect else []
        rest = ["worker-src 'self'", "trusted-types checking"] if self.workers else ["trusted-types 'none'"]
        return policy_of("'self'", "'self'" if self.script else "", "img-src 'self'", *connect, *rest)


_VERIFY = _Page(
    "verify",
    "Verify a result",
    "You have a score, in a file with a token. Who ran what, on which commit, when, and who vouches for it? "
    "All eleven checks, each with its evidence.",
    "verifying.js",
    # The keys of any issuer that the person names; plain http is for a machine of one's own.
    "'self' https: http://127.0.0.1:* http://localhost:*",
    workers=True,
)
_LOG = _Page(
    "log",
    "The log",
    "Every token is an entry of a public log before it is signed. How it grows, who watches it, and where a token is "
    "in it.",
    "log.js",
    "'self'",
)
_PAGES = (
    _Page("", "Look at results", "Check a score, or find out why a job was refused."),
    _VERIFY,
    _Page(
        "refused",
        "Why was I refused?",
        "Your job asked for a token and got an error. What the answer means, which rule it was, and what to do next.",
        "refused.js",
        "'self'",
    ),
    _LOG,
)


def _pages(*, has_log: bool) -> tuple[_Page, ...]:
    return tuple(page for page in _PAGES if has_log or page is not _LOG)


def site(issuer_url: str, *, has_log: bool) -> dict[str, File]:
    """Return what an issuer serves, by its path: `/ui`, the pages below, and `/ui/static/VERSION/...`."""
    version, static = _static()
    made = {f"/ui/static/{version}/{name}": file for name, file in static.items()}
    shown, others = _pages(has_log=has_log), places(ui=True, has_log=has_log)
    for path, page in [("/ui", shown[0]), *((f"/ui/{page.name}", page) for page in shown)]:
        root = "./" if path == "/ui" else "../"
        above = links(others, root, path.removeprefix("/"))
        body = _markup(page, f"{root}ui/static/{version}", root, issuer_url, above, has_log=has_log)
        headers = {"Content-Security-Policy": f"{page.policy}; frame-ancestors 'none'", **_COMMON, **_APART}
        made[path] = File(body, HTML_TYPE, FRESH, headers)
    return made


# What the page says of itself in its markup counts, but for these.
HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", **_APART}
_OF_OTHERS = {
    f"ui/{name}.js"
    for name in ("refused", "problem", "log", "log-drawing", "log-entries", "log-reading", "log-token", "visits")
}


def export() -> dict[str, bytes]:
    """Return the verify page as a folder, by relative path: it names no issuer, and any host may serve it. The page is
    the last: what it loads is there before it."""
    version, static = _static()
    made = {f"static/{version}/{name}": file.body for name, file in static.items() if name not in _OF_OTHERS}
    return {**made, "index.html": _markup(_VERIFY, f"static/{version}", "", "", "")}


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


def places(*, ui: bool, has_log: bool) -> tuple[PageLink, ...]:
    """Return what the links above every page of an issuer lead to: only what it has."""
    shown = [PageLink(f"ui/{page.name}", page.title) for page in _pages(has_log=has_log) if page.name] if ui else []
    return (PageLink("", "Issuer"), *shown, PageLink("errors", "Error codes"))


def cards(root: str, *, has_log: bool) -> str:
    """Write for each page what it is for. `root` leads to the issuer's URL."""
    listed = "".join(
        f'<li><h2><a href="{root}ui/{page.name}">{escape(page.title)}</a></h2>\n<p>{escape(page.about)}</p></li>\n'
        for page in _pages(has_log=has_log)
        if page.name
    )
    return f'<ul class="cards">\n{listed}</ul>\n'


def _markup(page: _Page, static: str, root: str, issuer: str, above: str, *, has_log: bool = False) -> bytes:
    """Write a page. `root` leads from it to the issuer's URL."""
    script = f'<script type="module" src="{static}/ui/{page.script}"></script>\n' if page.script else ""
    body = (_HERE / "ui" / f"{page.name or 'index'}.html").read_text("utf-8")
    return (
        Page(
            title=page.title,
            policy=page.policy,
            body=body.replace("{cards}", cards(root, has_log=has_log)),
            head=f'<link rel="icon" href="{static}/ui/icon.svg" type="image/svg+xml">\n'
            f'<link rel="stylesheet" href="{static}/ui/style.css">\n{script}',
            about=page.about,
            above=above,
            attributes=f' data-issuer="{escape(issuer)}"',
        )
        .write()
        .encode()
    )
