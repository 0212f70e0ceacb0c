"""`issuer doctor`: what keeps this machine from a token; with `--server` what keeps a service from running well."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click

from issuer.cli.credentials import CredentialOptions, credential_options
from issuer.cli.lines import document_of, exit_for_lines, say_line
from issuer.cli.log_settings import config_option
from issuer.cli.terminal import say_document
from issuer.client.doctor import examine
from issuer.diagnosis import Line
from issuer.http_client import check_url

VERSION = 1


@click.command()
@click.option("--issuer", envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@click.option("--server", is_flag=True, help="Look at the service that the settings describe, from its own machine.")
@config_option
@credential_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(issuer: str | None, server: bool, config: Path | None, given: CredentialOptions, as_json: bool) -> None:
    """Find out what keeps this machine, or this CI job, from a token.

    The issuer, its keys, the clock, the identity and what the issuer holds of it: a line each, with the next step. No
    token is asked for and nothing is used up; the question costs one request of the identity's rate. The exit code is
    that of the worst line: 6 this machine, 1 what answers is another one, 5 the issuer would refuse, 4 no answer.

    With --server, for who runs an issuer: settings, keys, policies and their tests, revocations, log, audit, disk,
    store, providers, clock, address and proxy. Nothing is changed. Run it as the service's user: 6 this machine, 3 a
    file, 4 a provider does not answer.
    """
    if config is not None and not server:
        raise click.UsageError("--config goes with --server")
    if server:
        _tell(_of_server(config), as_json, {"server": True})
    if issuer is None:
        raise click.UsageError("Missing option '--issuer' (or --server, for the service itself)")
    url = check_url(issuer)
    _tell(examine(url, lambda: given.credential(url), int(time.time())), as_json, {"issuer": url})


def _of_server(config: Path | None) -> Iterable[Line]:
    from issuer.service.doctor.examine import examine_server
    from issuer.service.read_settings import read_settings

    return examine_server(read_settings(config), int(time.time()))


def _tell(found: Iterable[Line], as_json: bool, about: dict[str, object]) -> None:
    """Print each line as it is found, and end with the exit code of the worst."""
    lines = []
    for line in found:
        lines.append(line)
        if not as_json:
            say_line(line)
    if as_json:
        say_document({"version": VERSION, **about, "lines": list(map(document_of, lines))})
    sys.exit(exit_for_lines(lines))
