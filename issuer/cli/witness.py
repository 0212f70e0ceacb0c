"""`issuer witness`: a witness of other people's logs, who never cosigns what does not extend what it has seen."""

from __future__ import annotations

from pathlib import Path

import click

from issuer.cli.terminal import printable, say
from issuer.errors import FormatError

_path = click.Path(path_type=Path)
_dir = click.option("--dir", "folder", type=_path, required=True, help="The witness's own folder: its key, its state.")


@click.group()
def witness() -> None:
    """Make and run a witness of transparency logs (c2sp.org/tlog-witness)."""


@witness.command("init")
@_dir
@click.option("--name", required=True, metavar="HOST/NAME", help="Its name: a URL without scheme, as w.example/1.")
def init_witness(folder: Path, name: str) -> None:
    """Make a witness, with a key of its own, and print its vkey.

    Its state must never be lost or set back: a witness without its memory cosigns forks. If it is lost, make another
    witness under another name.
    """
    from issuer.witness.folder import init

    try:
        vkey = init(folder, name)
    except FormatError as error:
        raise click.BadParameter(error.detail, param_hint="--name") from None
    say(printable(vkey))
    line = f"witness {name} {vkey} https://HOST/PREFIX"
    say(f"Logs name it in their policies by a line `{printable(line)}`.", err=True)


@witness.command("serve")
@_dir
@click.option("--logs", type=_path, required=True, help="A policy file (c2sp.org/tlog-policy): its `log` lines.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port.")
@click.option("--trusted-proxies", default="", help="Proxies, by commas, whose X-Forwarded-For is believed.")
def serve_witness(folder: Path, logs: Path, host: str, port: int, trusted_proxies: str) -> None:
    """Witness logs until SIGTERM: POST /add-checkpoint, GET /<origin hash>/checkpoint."""
    from issuer.witness.server import serve

    serve(folder, logs, host, port, trusted_proxies)
