"""The pages under `/ui`, their common markup and the files that they load. Every client gets the same bytes. Pure.

Each page has its policy (CSP 3) in its markup, because a host of an exported folder does not send our headers. The path
of scripts and the style contains a digest of them all. So a cache may keep them for ever, and a page never mixes two
versions. A self-contained document contains the style, and its policy allows the style by its digest.
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
from msgspec.structs import asdict

_STYLE, TIMES = (files("issuer.page").joinpath(f"ui/{name}").read_text("utf-8") for name in ("style.css", "times.js"))
STYLED = f"<style>{_STYLE}</style>\n"


class PageLink(Struct, frozen=True):
    """A link to a page: its path below the issuer's URL ("" for `/`), and its name."""

    path: str
    name: str


def digest_source(text: str) -> str:
    """Return the expression with which a policy allows this inline style or script (CSP 3, 2.3.1)."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


OWN_STYLE = digest_source(_STYLE)


def policy_of(style: str, script: str = "", *more: str) -> str:
    """Return a policy that allows only this style, this script ("": none) and `more`."""
    scripts = [f"script-src {script}"] if script else []
    allowed = ["default-src 'none'", f"style-src {style}", *scripts, *more]
    # `frame-ancestors` is missing, because it has no effect in markup: a header has it.
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
    """The parts of a page's HTML. `title`, `about` and `policy` are text, all others are markup."""

    title: str
    policy: str
    head: str
    body: str
    about: str = ""
    above: str = ""
    below: str = ""
    attributes: str = ""

    def write(self) -> str:
        """Return the HTML."""
        about = f'<meta name="description" content="{escape(self.about)}">\n' if self.about else ""
        return _WHOLE.substitute(asdict(self), title=escape(self.title), policy=escape(self.policy), about=about)


def write_alone(title: str, body: str, above: str) -> tuple[str, str]:
    """Return the HTML of a page that has no script and loads nothing, and its policy for a header."""
    page = Page(title=title, policy=_ALONE, head=STYLED, above=above, body=body)
    return page.write(), _ALONE


def links(places: Iterable[PageLink], root: str, here: str) -> str:
    """Return the links above a page. `root` is the relative path to the issuer's URL, which may have a path itself;
    `here` is the path of the page."""
    listed = "".join(
        f'<a href="{escape(root + place.path)}"{" aria-current=page" if place.path == here else ""}>'
        f"{escape(place.name)}</a>"
        for place in places
    )
    return f'<header><nav aria-label="Pages">{listed}</nav></header>\n'


_HERE = files("issuer.page")
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
# A page names the version of the files that it loads, so browsers must always check for a new one.
FRESH = "public, max-age=0, must-revalidate"
HTML_TYPE = "text/html; charset=utf-8"
_COMMON = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
# A foreign page that opens one of our pages loses its reference to the window. Otherwise it could navigate the window
# elsewhere, or change the fragment of the URL while a person reads the page.
_APART = {"Cross-Origin-Opener-Policy": "same-origin"}
# A web worker has the policy of its script's answer: it may load modules of this origin, and fetch nothing.
_OF_STATIC = "default-src 'none'; script-src 'self'; frame-ancestors 'none'"


class File(Struct, frozen=True):
    """The answer at a path: bytes, media type, Cache-Control and further headers."""

    body: bytes
    media_type: str
    cache: str
    headers: Mapping[str, str]


class _Page(Struct, frozen=True):
    """The definition of a page: its name under `/ui/` ("" for `/ui`), title, description, script and allowed hosts."""

    name: str
    title: str
    about: str
    script: str = ""
    connect: str = ""
    workers: bool = False

    @property
    def policy(self) -> str:
        """The policy of this page, without `frame-ancestors`."""
        connect = [f"connect-src {self.connect}"] if self.connect else []
        rest = ["worker-src 'self'", "trusted-types checking"] if self.workers else ["trusted-types 'none'"]
        return policy_of("'self'", "'self'" if self.script else "", "img-src 'self'", *connect, *rest)


_VERIFY = _Page(
    "verify",
    "Verify a result",
    "You have a score, in a file with a token. This page shows who ran what, on which commit and when, and the issuer "
    "that vouches for it, by eleven checks with evidence.",
    "verifying.js",
    # The person may name any issuer, and the page then fetches its keys. Plain http is only for this machine.
    "'self' https: http://127.0.0.1:* http://localhost:*",
    workers=True,
)
_LOG = _Page(
    "log",
    "The log",
    "Every token is an entry of a public log before it is signed. This page shows its growth, its witnesses, and the "
    "place of a token.",
    "log.js",
    "'self'",
)
_PAGES = (
    _Page("", "Look at results", "Check a score, or find out why a job was refused."),
    _VERIFY,
    _Page(
        "refused",
        "Why was I refused?",
        "Your job requested a token and got an error. This page explains the answer, the rule, and the next step.",
        "refused.js",
        "'self'",
    ),
    _LOG,
)


def _pages(*, has_log: bool) -> tuple[_Page, ...]:
    return tuple(page for page in _PAGES if has_log or page is not _LOG)


def site(issuer_url: str, *, has_log: bool) -> dict[str, File]:
    """Return the files of an issuer by path: `/ui`, the pages below it, and `/ui/static/VERSION/...`."""
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


# The headers for a page that has its policy in the markup: in markup, these would have no effect.
HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", **_APART}
_OF_OTHERS = {
    f"ui/{name}.js"
    for name in ("refused", "problem", "log", "log-drawing", "log-entries", "log-reading", "log-token", "visits")
}


def export() -> dict[str, bytes]:
    """Return the verify page as a folder, by relative path. It names no issuer, and any host may serve it. `index.html`
    is last, so the files that it loads exist before it does."""
    version, static = _static()
    made = {f"static/{version}/{name}": file.body for name, file in static.items() if name not in _OF_OTHERS}
    return {**made, "index.html": _markup(_VERIFY, f"static/{version}", "", "", "")}


def _static() -> tuple[str, dict[str, File]]:
    """Return a digest of all scripts and the style, and the files by name."""
    headers = {"Content-Security-Policy": _OF_STATIC, **_COMMON}
    digest, static = hashlib.sha256(), dict[str, File]()
    for name, body in sorted([*_files(_HERE / "ui", "ui"), *_files(_HERE / "verify", "verify")]):
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(body), body))
        static[name] = File(body, _TYPES[name.rpartition(".")[2]], FOREVER, headers)
    return digest.hexdigest()[:16], static


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a browser loads. Tests, types and documentation in the same folders are left out."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{path}/{each.name}")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield f"{path}/{each.name}", each.read_bytes()


def places(*, ui: bool, has_log: bool) -> tuple[PageLink, ...]:
    """Return the links above every page of an issuer: only to pages that it has."""
    shown = [PageLink(f"ui/{page.name}", page.title) for page in _pages(has_log=has_log) if page.name] if ui else []
    return (PageLink("", "Issuer"), *shown, PageLink("errors", "Error codes"))


def cards(root: str, *, has_log: bool) -> str:
    """Return a list with the purpose of each page. `root` is the relative path to the issuer's URL."""
    listed = "".join(
        f'<li><h2><a href="{root}ui/{page.name}">{escape(page.title)}</a></h2>\n<p>{escape(page.about)}</p></li>\n'
        for page in _pages(has_log=has_log)
        if page.name
    )
    return f'<ul class="cards">\n{listed}</ul>\n'


def _markup(page: _Page, static: str, root: str, issuer: str, above: str, *, has_log: bool = False) -> bytes:
    """Return the HTML of a page. `root` is the relative path to the issuer's URL."""
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
