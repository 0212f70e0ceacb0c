"""`issuer serve`: the service."""

from __future__ import annotations

from pathlib import Path

import click

from issuer.service.bounds import MAX_WORKERS
from issuer.service.read_settings import read_settings
from issuer.service.server import serve as run


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file of settings; ISSUER_* variables win.")
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=1,
    show_default=True,
    help="Processes on one port and one store.",
)
def serve(config: Path | None, workers: int) -> None:
    """Run the service until SIGTERM. Settings: deploy/README.md."""
    run(read_settings(config), workers=workers)
