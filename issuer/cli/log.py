"""`issuer log`: the transparency log, from outside, and for who operates it. One file a command."""

from __future__ import annotations

import click

from issuer.cli.log_accept import accept_log
from issuer.cli.log_export import export
from issuer.cli.log_init import init_log
from issuer.cli.log_monitor import monitor
from issuer.cli.log_proof import proof
from issuer.cli.log_restore import restore_log
from issuer.cli.log_verify import verify


@click.group()
def log() -> None:
    """Verify, follow, copy and prove what a transparency log has; begin and mend one's own."""


for command in (verify, monitor, proof, export, init_log, accept_log, restore_log):
    log.add_command(command)
