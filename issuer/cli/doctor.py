"""`issuer doctor`: what keeps this machine from a token, and the next step."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

import click

from issuer.cli.credentials import CredentialOptions, credential_options
from issuer.cli.exits import Exit, exit_for_error
from issuer.cli.terminal import is_read, paint, printable, say, say_document, wrap
from issuer.client.doctor import examine
from issuer.client.looks import Line, Verdict
from issuer.http_client import check_url

VERSION = 1
# The worst wins (contract section 6).
_ORDER = (Exit.LOCAL, Exit.INPUT, Exit.NO, Exit.REFUSED, Exit.UNDECIDED)
_COLOURS: dict[Verdict, str] = {"pass": "green", "warning": "yellow", "FAIL": "red"}
_MARGIN = 9


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


def exit_for_lines(lines: Iterable[Line]) -> Exit:
    """Return the exit code of the worst line."""
    codes = [exit_for_error(line.error) for line in lines if line.error is not None]
    return min(codes, key=_ORDER.index, default=Exit.GOOD)


def say_line(line: Line) -> None:
    """Write a line, and the next step below it; only on a terminal they are broken."""
    margin = " " * _MARGIN
    text = f"{line.name}: {line.detail}" + (f" ({line.code})" if line.code else "")
    for head, one in ((line.verdict, text), ("", f"next: {line.next}" if line.next else "")):
        if one:
            rows = wrap(one, margin, margin + "  ") if is_read() else [margin + printable(one)]
            say(paint(head.ljust(_MARGIN), fg=_COLOURS[line.verdict]), "\n".join(rows)[_MARGIN:])


def document_of(line: Line) -> dict[str, str]:
    """Return a line as JSON has it."""
    return {"name": line.name, "verdict": line.verdict, "detail": line.detail, "code": line.code, "next": line.next}
