"""`issuer doctor`: what keeps this machine from a token, and the next step."""

from __future__ import annotations

import sys
import time

import click

from issuer.cli.credentials import CredentialOptions, credential_options
from issuer.cli.lines import document_of, exit_for_lines, say_line
from issuer.cli.terminal import say_document
from issuer.client.doctor import examine
from issuer.http_client import check_url

VERSION = 1


@click.command()
@click.option("--issuer", required=True, envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@credential_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(issuer: str, given: CredentialOptions, as_json: bool) -> None:
    """Find out what keeps this machine, or this CI job, from a token.

    The issuer, its keys, the clock, the identity and what the issuer holds of it: a line each, with the next step. No
    token is asked for and nothing is used up; the issuer counts the question as one refused request. The exit code is
    that of the worst line: 6 this machine, 1 what answers is another one, 5 the issuer would refuse, 4 no answer.
    """
    url = check_url(issuer)
    lines = []
    for line in examine(url, lambda: given.credential(url), int(time.time())):
        lines.append(line)
        if not as_json:
            say_line(line)
    if as_json:
        say_document({"version": VERSION, "issuer": url, "lines": list(map(document_of, lines))})
    sys.exit(exit_for_lines(lines))
