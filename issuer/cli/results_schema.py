"""`issuer results schema`: the JSON in which any harness may hand over its runs."""

from __future__ import annotations

import click

from issuer.adapters.plain_schema import schema as run_schema
from issuer.cli.terminal import say


@click.command()
def schema() -> None:
    """Print the JSON Schema of the runs that `issuer results build --from json` takes.

    It helps while writing; `issuer results build` is the judge.
    """
    say(run_schema().decode(), end="")
