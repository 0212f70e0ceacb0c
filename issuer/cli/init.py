"""`issuer init`: a folder from which `issuer serve` runs.

Exit codes (contract section 6): 0 made, 2 usage, 6 something is in its place, or it cannot be written.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import click

from issuer.cli.terminal import printable, say
from issuer.cli.who import who
from issuer.service.begin import SETTINGS, Wish, begin, demand_free
from issuer.service.read_settings import fault_of_url
from issuer.service.settings import EMBEDDED


def _url(_: click.Context, __: click.Parameter, url: str) -> str:
    if fault := fault_of_url(url, development=url.startswith("http://")):
        raise click.BadParameter(fault)
    return url


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--url", required=True, callback=_url, help="The issuer's name and public address, https. For good.")
@click.option("--store", "store_url", default=EMBEDDED, show_default=True, metavar="URL",
              help="A Redis or Valkey; the embedded one forgets when it stops.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Where it listens.")
def init(folder: Path, url: str, store_url: str, port: int) -> None:
    """Make DIR with all that a service needs, and print how it is started.

    Settings that explain themselves, the first signing key, a sample policy with its tests, a systemd unit and a
    compose file. DIR must not be there, or be empty: nothing is replaced. Run it as the service's user, or as root for
    the owner of DIR.
    """
    demand_free(folder)
    begin(folder, Wish(url, store_url, port, who()), int(time.time()))
    say(printable(f"made {folder}"))
    config = shlex.quote(str(folder / SETTINGS))
    say("\nNext: see that all is well, put your own ids into the sample policy, start.\n")
    for command in (
        f"issuer config check --config {config}",
        f"issuer policy check {shlex.quote(str(folder / 'policies'))} --url {shlex.quote(url)}",
        f"issuer serve --config {config}",
    ):
        say(printable(f"  {command}"))
