"""`issuer check` and `issuer doctor`: diagnoses of what keeps a run, a machine or a service from its work."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click

from issuer.cli.exits import exit_for_lines, extra_of
from issuer.cli.options import config_option, integration_option, issuer_option, json_option
from issuer.cli.render import say_lines
from issuer.cli.results.options import RunCommand, supplied_options
from issuer.cli.token.credentials import CredentialOptions, credential_options
from issuer.client.doctor import PreflightQuestion, examine, preflight
from issuer.client.hub import Hub
from issuer.errors import IssuerError
from issuer.formats.findings import Line
from issuer.io.http_client import check_url


@click.command(cls=RunCommand)
@issuer_option
@supplied_options
@click.option("--metric-id", "metric_ids", multiple=True, metavar="ID", help="A metric that will be claimed.")
@integration_option
@click.option("--audience", metavar="AUD", help="The relying party that the tokens are for.")
@credential_options
@json_option
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
    question = PreflightQuestion(url, lambda: given.credential(url), known, metric_ids, integration, audience)
    found = chain(preflight(question), _hub(known.get("model_repo")))
    sys.exit(exit_for_lines(say_lines(found, {"issuer": url} if as_json else None)))


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


# -- doctor -----------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--issuer", envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@click.option("--server", is_flag=True, help="Look at the service that the settings describe, from its own machine.")
@config_option
@credential_options
@json_option
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
        sys.exit(exit_for_lines(say_lines(_of_server(config), {"server": True} if as_json else None)))
    if issuer is None:
        raise click.UsageError("Missing option '--issuer' (or --server, for the service itself)")
    url = check_url(issuer)
    found = examine(url, lambda: given.credential(url), int(time.time()))
    sys.exit(exit_for_lines(say_lines(found, {"issuer": url} if as_json else None)))


def _of_server(config: Path | None) -> Iterable[Line]:
    with extra_of("server,embedded", "`issuer doctor --server`"):
        from issuer.service.doctor.examination import examine_server
    from issuer.service.settings.reader import read_settings

    return examine_server(read_settings(config), int(time.time()))
