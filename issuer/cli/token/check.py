"""`issuer check` and `issuer doctor`: diagnoses of a run before it starts, of a machine, or of a service."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click

from issuer.cli.exits import exit_for_lines, extra_of
from issuer.cli.options import audience_option, config_option, integration_option, issuer_option, json_option
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
@click.option("--metric-id", "metric_ids", multiple=True, metavar="ID", help="A metric of the planned claims.")
@integration_option
@audience_option
@credential_options
@json_option
def check(
    issuer: str, metric_ids: tuple[str, ...], integration: str | None, audience: str | None, given: CredentialOptions,
    as_json: bool, **supplied: str | None,
) -> None:  # fmt: skip
    """Check, before an evaluation begins, whether the issuer would sign its results from this machine.

    The command fetches an identity, asks the issuer what it would decide, and checks the clock and the issuer's keys.
    It gets no token and spends no use. Give the values of the run that you know already. The command fills the others
    with stand-ins, and finds the version of an installed framework. Without values, it asks only about the identity.

    The check costs one request of the identity's rate. If you give values and the issuer would refuse them or a
    stand-in, it also counts as a refused request. In a matrix of jobs, run the check in only one job.

    Exit code 0 if no check fails, 5 if the issuer would refuse, 6 if this machine lacks something.
    """
    url = check_url(issuer)
    known = {name: text for name, text in supplied.items() if text}
    if "framework_name" in known and "framework_version" not in known:
        known |= _installed(known["framework_name"])
    question = PreflightQuestion(url, lambda: given.credential(url), known, metric_ids, integration, audience)
    lines = chain(preflight(question), _hub(known.get("model_repo")))
    sys.exit(exit_for_lines(say_lines(lines, {"issuer": url} if as_json else None)))


def _installed(framework: str) -> dict[str, str]:
    try:
        return {"framework_version": importlib.metadata.version(framework)}
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return {}


def _hub(model_repo: str | None) -> Iterator[Line]:
    """Check whether a pull request could be opened. A failure is only a warning, because $HF_TOKEN may come later."""
    try:
        hub = Hub.here()
        if model_repo is None:
            return
        hub.proposed(model_repo, [])
        yield Line("Hub", "pass", f"{hub.endpoint} accepts $HF_TOKEN and has {model_repo}")
    except IssuerError as error:
        detail = f"pull requests would fail: {error.detail}"
        yield Line("Hub", "warning", f"{detail} ({error.code})", error.code.meaning.remedy)


@click.command()
@click.option("--issuer", envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@click.option("--server", is_flag=True, help="Check the service itself. Run this on its machine.")
@config_option
@credential_options
@json_option
def doctor(issuer: str | None, server: bool, config: Path | None, given: CredentialOptions, as_json: bool) -> None:
    """Find out why this machine, or this CI job, gets no token.

    The command checks the issuer, its keys, the clock, the identity, and the issuer's decision about that identity. It
    prints a line for each, with the next step. It requests no token and spends no use, but costs one request of the
    identity's rate. The worst line decides the exit code: 6 this machine, 1 the URL belongs to another issuer, 5 the
    issuer would refuse, 4 no answer.

    With --server, for operators: the command checks settings, keys, policies and their tests, revocations, log, audit,
    disk, store, providers, clock, address and proxy. It changes nothing. Run it as the service's user. Exit code 6 for
    this machine, 3 for a file, 4 if a provider does not answer.
    """
    if config is not None and not server:
        raise click.UsageError("--config goes with --server")
    if server:
        sys.exit(exit_for_lines(say_lines(_of_server(config), {"server": True} if as_json else None)))
    if issuer is None:
        raise click.UsageError("Missing option '--issuer' (or --server, to check a service on its machine)")
    url = check_url(issuer)
    lines = examine(url, lambda: given.credential(url), int(time.time()))
    sys.exit(exit_for_lines(say_lines(lines, {"issuer": url} if as_json else None)))


def _of_server(config: Path | None) -> Iterable[Line]:
    with extra_of("server,embedded", "`issuer doctor --server`"):
        from issuer.service.doctor.examination import examine_server
    from issuer.service.settings.reader import read_settings

    return examine_server(read_settings(config), int(time.time()))
