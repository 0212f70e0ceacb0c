"""`issuer check`: at the start of an evaluation, whether its results could be signed from here."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from itertools import chain

import click

from issuer.cli.credentials import CredentialOptions, credential_options
from issuer.cli.lines import document_of, exit_for_lines, say_line
from issuer.cli.supplied import RunCommand, supplied_options
from issuer.cli.terminal import say_document
from issuer.client.hub import Hub
from issuer.client.preflight import Question, preflight
from issuer.diagnosis import Line
from issuer.errors import IssuerError
from issuer.http_client import check_url

VERSION = 1


@click.command(cls=RunCommand)
@click.option("--issuer", required=True, envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@supplied_options
@click.option("--metric-id", "metric_ids", multiple=True, metavar="ID", help="A metric that will be claimed.")
@click.option("--integration", metavar="ID", help="The integration that you mean to be.")
@click.option("--audience", metavar="AUD", help="The relying party that the tokens are for.")
@credential_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(
    issuer: str, metric_ids: tuple[str, ...], integration: str | None, audience: str | None, given: CredentialOptions,
    as_json: bool, **supplied: str | None,
) -> None:  # fmt: skip
    """Look, before an evaluation begins, whether its results could be signed from here.

    An identity is fetched, the issuer is asked what it would decide, and the clock and its keys are looked at; nothing
    is signed or used up. Say what is known already: of what is not, the issuer is asked with a stand-in. The version
    of a framework that is installed here is known. Where nothing is said, it is asked of the identity alone.

    The question costs one request of the identity's rate. Where a part of the run is said, it counts as a refused
    request if the issuer would refuse that part or a stand-in: in a matrix of jobs, check in one of them.

    Exits with 0 where nothing fails, with 5 where the issuer would refuse, and with 6 where this machine lacks
    something.
    """
    url = check_url(issuer)
    known = {name: text for name, text in supplied.items() if text}
    if "framework_name" in known and "framework_version" not in known:
        known |= _installed(known["framework_name"])
    question = Question(url, lambda: given.credential(url), known, metric_ids, integration, audience)
    lines = list[Line]()
    for line in chain(preflight(question), _hub(known.get("model_repo"))):
        lines.append(line)
        if not as_json:
            say_line(line)
    if as_json:
        say_document({"version": VERSION, "issuer": url, "lines": list(map(document_of, lines))})
    sys.exit(exit_for_lines(lines))


def _installed(framework: str) -> dict[str, str]:
    try:
        return {"framework_version": importlib.metadata.version(framework)}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return {}


def _hub(model_repo: str | None) -> Iterator[Line]:
    """Look whether a pull request could be opened. What lacks here can be given later: no FAIL."""
    try:
        hub = Hub.here()
        if model_repo is None:
            return
        hub.proposed(model_repo, [])
        yield Line("Hub", "pass", f"{hub.endpoint} knows $HF_TOKEN and {model_repo}")
    except IssuerError as error:
        detail = f"no pull request could be opened: {error.detail}"
        yield Line("Hub", "warning", f"{detail} ({error.code})", error.code.meaning.remedy)
