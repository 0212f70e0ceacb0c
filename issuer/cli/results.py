"""`issuer results`: the commands that make, check and compare result files, one file a command."""

from __future__ import annotations

import click

from issuer.cli.results_build import build
from issuer.cli.results_diff import diff
from issuer.cli.results_digest import digest
from issuer.cli.results_export import export
from issuer.cli.results_fmt import fmt
from issuer.cli.results_lint import lint
from issuer.cli.results_schema import schema


@click.group()
def results() -> None:
    """Make, check, compare and export result files."""


for command in (build, lint, fmt, digest, diff, export, schema):
    results.add_command(command)
