"""The frame of every page: its head, the one style, the links above it, and the policy that it states. Pure.

A page loads the style by a link. A document that must stand alone (one file, or a service without `/ui`) has the same
style in it, and its policy (CSP 3) allows that by its digest.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from msgspec import Struct

_STYLE, TIMES = (files("issuer.page").joinpath(f"ui/{name}").read_text("utf-8") for name in ("style.css", "times.js"))
STYLED = f"<style>{_STYLE}</style>\n"


class Place(Struct, frozen=True):
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


def links(places: Iterable[Place], root: str, here: str) -> str:
    """Write the links above a page. `root` leads from it to the issuer's URL, for that may lie below a path of its
    host; `here` is the path of the page itself."""
    listed = "".join(
        f'<a href="{escape(root + place.path)}"{" aria-current=page" if place.path == here else ""}>'
        f"{escape(place.name)}</a>"
        for place in places
    )
    return f'<header><nav aria-label="Pages">{listed}</nav></header>\n'
