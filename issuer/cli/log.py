"""`issuer log`: the transparency log, from outside. One file a command."""

from __future__ import annotations

import rich_click as click

from issuer.cli.log_export import export
from issuer.cli.log_monitor import monitor
from issuer.cli.log_proof import proof
from issuer.cli.log_verify import verify


@click.group()
def log() -> None:
    """Verify, follow, copy and prove what a transparency log has."""


for command in (verify, monitor, proof, export):
    log.add_command(command)
