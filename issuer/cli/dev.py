"""`issuer dev`: a throw-away issuer for authors of integrations, with credentials of any CI job.

`dev token` prints only the credential of a job. `dev env` prints the variables of such a job, for the client.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click
import msgspec

from issuer.cli.options import all_of
from issuer.cli.render import render
from issuer.cli.terminal import say
from issuer.client.credential import ACCESS_TOKEN, ID_TOKEN, gitlab_variable
from issuer.codes import Code
from issuer.dev.discovery import RunningIssuer, announced, find
from issuer.dev.jobs import JOB_PATH, Job
from issuer.dev.provider import REQUEST_TOKEN, REQUEST_URL
from issuer.errors import Finding, SetupError
from issuer.io.http_client import HttpRequest, send
from issuer.policy.match import PolicySet
from issuer.relying.documents import user_folder
from issuer.token.wire import METADATA_PATH

if TYPE_CHECKING:
    from issuer.dev.sandbox import Sandbox

_ISSUER_URL = "ISSUER_URL"
# The variables that the client reads. `dev env` unsets the others, because the client could prefer one of them.
_READ = ("GITHUB_ACTIONS", REQUEST_URL, REQUEST_TOKEN, "GITLAB_CI", ID_TOKEN, ACCESS_TOKEN)


@click.group(invoke_without_command=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The port to listen on."
)
@click.option(
    "--policies", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Your policies, loaded again when they change. Default: samples.",
)  # fmt: skip
@click.pass_context
def dev(context: click.Context, port: int, policies: Path | None) -> None:
    """Run a throw-away issuer with an embedded store, a new key, and a local provider that imitates each of yours.

    It listens only on loopback, has no rate limits, and deletes everything when Ctrl-C ends it. In a second terminal,
    `issuer dev token` prints the token of any job, good or bad. `eval "$(issuer dev env)"` gives the shell the
    environment of such a job.
    """
    if context.invoked_subcommand is not None:
        if port or policies is not None:
            raise click.UsageError(
                f"--port and --policies are for `issuer dev`, not for `{context.invoked_subcommand}`"
            )
        return
    from issuer.dev.local_issuer import bench  # imports the server, which `dev token` and `dev env` do not need
    from issuer.service.process.server import serve

    with bench(port, policies, _report_reload) as box:
        running = RunningIssuer(box.settings.url, box.provider.issuer, box.provider.request_token)
        with announced(_state(), running):
            say(_welcome(box, policies))
            serve(box.settings)


def _state() -> Path | None:
    return user_folder("XDG_STATE_HOME", ".local/state")


def _report_reload(policies: PolicySet | None, findings: Sequence[Finding]) -> None:
    """Report whether changed policies were loaded."""
    if text := render([each for each in findings if each.severity == "error"], [], "issuer dev", "human"):
        say(text, err=True)
    say(f"policies: {'not loaded, the old ones stay in force' if policies is None else 'loaded'}", err=True)


def _welcome(box: Sandbox, policies: Path | None) -> str:
    url = box.settings.url
    source = "samples of this package" if policies is None else f"{policies}, loaded again when they change"
    return f"""issuer   {url}
metadata {url}{METADATA_PATH}
policies {source}
folder   {box.folder}  (removed at the end)

In a second terminal, send a request as a CI job does:

  eval "$(issuer dev env)"
  issuer token request --claims claims.json

{_by_hand(box) if policies is None else ""}
`issuer dev token --help` lists jobs that your policies should refuse: another branch, a fork, an expired token.
"""


def _by_hand(box: Sandbox) -> str:
    """Return the same request as curl commands: get the sample job's token as on a runner, and send a run."""
    url, provider = box.settings.url, box.provider
    return f"""
The same with curl:

TOKEN=$(curl -s -H 'Authorization: bearer {provider.request_token}' \\
  '{provider.issuer}{JOB_PATH}?audience={url}' | sed 's/.*"value": *"\\([^"]*\\)".*/\\1/')
curl -s {url}/tokens -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '
{{"claims": {{
  "model_repo": "acme/open-model", "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
  "benchmark_repo": "openai/gsm8k", "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
  "task_id": "gsm8k", "metrics": [{{"metric_id": "accuracy", "value": 0.625}}],
  "framework": {{"name": "inspect-ai", "version": "0.3.285"}}}}}}'
"""


def _claim(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name.rstrip(":"):
            raise click.BadParameter("write NAME=TEXT, or NAME:=JSON")
        try:
            claims[name.removesuffix(":")] = msgspec.json.decode(text) if name.endswith(":") else text
        except (msgspec.DecodeError, RecursionError):
            raise click.BadParameter("the text after := must be JSON without excessive nesting") from None
    return claims


def _not_empty(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text == "":  # for example from "$UNSET": without the value, the job would be a good one
        raise click.BadParameter("the value is empty: give one, or leave the option out")
    return text


def _job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a job. The command gets `running`, the issuer, and `job`."""

    def run(port: int | None, without: tuple[str, ...], provider: str | None, **more: Any) -> None:
        given = {name: value for name, value in more.items() if value is not None}
        command(find(_state(), port), Job(provider=provider or "", without=without, **given))

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return all_of(
        click.option("--provider", callback=_not_empty, metavar="ID",
                     help="The job's provider, by its id in providers.yaml. Default: the first."),
        click.option("--integration", callback=_not_empty, metavar="ID",
                     help="The job's integration. Default: the first of the provider."),
        click.option("--claim", "claims", multiple=True, callback=_claim, metavar="NAME=TEXT",
                     help="Replace a claim of the token; NAME:=JSON for other types. May be given again."),
        click.option("--without", multiple=True, metavar="NAME", help="Leave a claim out. May be given again."),
        click.option("--branch", callback=_not_empty, metavar="NAME", help="A job of another branch."),
        click.option("--pull-request", is_flag=True, help="A job of a pull or merge request."),
        click.option("--fork", is_flag=True, help="A job of a fork of the repository."),
        click.option("--expired", is_flag=True, help="A token that expired five minutes ago."),
        click.option("--audience", callback=_not_empty, metavar="AUD", help="A token for another service."),
        click.option("--port", type=click.IntRange(1, 65535), help="The port of the issuer, if several run."),
    )(run)  # fmt: skip


@dev.command()
@_job_options
def token(running: RunningIssuer, job: Job) -> None:
    """Print the identity token, or the access token, of a job.

    The job comes from a granted test in the policy of the provider. The options change it. Only this throw-away issuer
    accepts the token.
    """
    say(_ask(running, job)[0])


@dev.command()
@_job_options
def env(running: RunningIssuer, job: Job) -> None:
    """Print the variables that a CI job has, so that `issuer token request` finds this issuer and an identity.

    For a shell to read: eval "$(issuer dev env)".
    """
    credential, profile = _ask(running, job)
    say(_shell_text(_variables(running, job, credential, profile)))


def _ask(running: RunningIssuer, job: Job) -> tuple[str, str]:
    """Return the credential of a job and the profile of its provider. Raises SetupError and Undecided."""
    try:
        query = urlencode({"audience": running.issuer, "job": msgspec.json.encode(job)})
    except UnicodeEncodeError:
        raise SetupError(Code.DEV_JOB, "an option's value is not UTF-8") from None
    headers = {"Authorization": f"bearer {running.request_token}"}
    answer = send(HttpRequest("GET", f"{running.provider}{JOB_PATH}?{query}", headers))
    try:
        members = msgspec.json.decode(answer.body, type=dict[str, str])
    except msgspec.MsgspecError:
        raise SetupError(Code.DEV_JOB, "the job is too large for the local provider") from None
    if answer.status != 200:
        raise SetupError(Code.DEV_JOB, members["message"])
    return members["value"], members["profile"]


def _variables(running: RunningIssuer, job: Job, credential: str, profile: str) -> dict[str, str]:
    """Return the environment of such a job, as far as the client reads it."""
    if profile == "github-actions":  # the client fetches a new token for each request, as on a runner
        query = urlencode({"api-version": "2.0", "job": msgspec.json.encode(job)})
        own = {"GITHUB_ACTIONS": "true", REQUEST_URL: f"{running.provider}{JOB_PATH}?{query}",
               REQUEST_TOKEN: running.request_token}  # fmt: skip
    elif profile == "gitlab-ci":
        own = {"GITLAB_CI": "true", gitlab_variable(running.issuer): credential}
    else:
        own = {ACCESS_TOKEN if profile in ("oauth", "pat") else ID_TOKEN: credential}
    return {_ISSUER_URL: running.issuer, **own}


def _shell_text(variables: Mapping[str, str]) -> str:
    """Return shell commands that set the variables, and unset the others that the client reads."""
    unset = [f"unset {name}" for name in _READ if name not in variables]
    return "\n".join([*unset, *(f"export {name}={shlex.quote(value)}" for name, value in variables.items())])
