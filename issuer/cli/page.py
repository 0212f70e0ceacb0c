"""`issuer page export`: the page that verifies a result in a browser, as a folder for a relying party's own host."""

from __future__ import annotations

from pathlib import Path

import click

from issuer import files
from issuer.cli.terminal import printable, say, wrap
from issuer.page.site import HEADERS, export

_SERVE = (
    "Serve it over https: a browser checks signatures (WebCrypto) on no other page. Old versions of static/ may stay: "
    "who has the page open goes on with what it began with. Headers that a page cannot give itself:"
)


@click.group()
def page() -> None:
    """Write the pages for people as files."""


@page.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def export_page(folder: Path) -> None:
    """Write the page that verifies a result in a browser to DIR.

    Any host can serve it: it names no issuer, and loads nothing from elsewhere.
    """
    made = export()
    files.make_folder(folder, mode=0o777, follow=False)
    for name, body in made.items():
        path = folder / name
        files.make_folder(path.parent, mode=0o777, follow=False)
        files.replace(path, body, mode=None, durable=False, follow=False)
    say(f"{printable(str(folder))}: files {len(made)}, bytes {sum(map(len, made.values())):,}, to look at: index.html")
    say("\n".join(wrap(_SERVE, "")))
    for header, value in HEADERS.items():
        say(f"  {header}: {value}")
