"""`issuer dev`: a throw-away issuer for who writes an integration, and, in a second shell, any job that he wants.

`dev token` prints the credential of a job alone, `dev env` the variables by which the client finds it as in a CI.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click
import msgspec

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
# What the client looks at, each of which would count beside what is set.
_READ = ("GITHUB_ACTIONS", REQUEST_URL, REQUEST_TOKEN, "GITLAB_CI", ID_TOKEN, ACCESS_TOKEN)


@click.group(invoke_without_command=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The port to listen on."
)
@click.option(
    "--policies", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Your policies, followed while it runs; without it, samples.",
)  # fmt: skip
@click.pass_context
def dev(context: click.Context, port: int, policies: Path | None) -> None:
    """Run a throw-away issuer: embedded store, fresh key, and a local provider that speaks as each of your providers.

    It listens on loopback alone, limits nobody, and forgets everything when Ctrl-C ends it. In a second terminal
    `issuer dev token` prints the token of any job, good or bad, and `eval "$(issuer dev env)"` makes the shell such a
    job.
    """
    if context.invoked_subcommand is not None:
        if port or policies is not None:
            raise click.UsageError(
                f"--port and --policies are for `issuer dev`, not for `{context.invoked_subcommand}`"
            )
        return
    from issuer.dev.local_issuer import bench  # with the server, which `dev token` and `dev env` do not need
    from issuer.service.process.server import serve

    with bench(port, policies, _tell) as box, announced(_state(), _found(box)):
        say(_welcome(box, policies))
        serve(box.settings)


def _found(box: Sandbox) -> RunningIssuer:
    return RunningIssuer(box.settings.url, box.provider.issuer, box.provider.request_token)


def _state() -> Path | None:
    return user_folder("XDG_STATE_HOME", ".local/state")


def _tell(policies: PolicySet | None, findings: Sequence[Finding]) -> None:
    """Say what became of policies that have changed."""
    if text := render([each for each in findings if each.severity == "error"], [], "issuer dev", "human"):
        say(text, err=True)
    taken = "policies: not taken, those of before stay" if policies is None else "policies: taken"
    say(taken, err=True)


def _welcome(box: Sandbox, policies: Path | None) -> str:
    url = box.settings.url
    whose = "samples of this package" if policies is None else f"{policies}, followed"
    return f"""issuer   {url}
metadata {url}{METADATA_PATH}
policies {whose}
folder   {box.folder}  (removed at the end)

In a second terminal, ask as a CI job would:

  eval "$(issuer dev env)"
  issuer token request --claims claims.json

{_by_hand(box) if policies is None else ""}
`issuer dev token --help` has the jobs that should be refused: another branch, a fork, an expired token.
"""


def _by_hand(box: Sandbox) -> str:
    """Show the same without the client: the sample's job, as a runner is asked for its token, and a run of it."""
    url, provider = box.settings.url, box.provider
    return f"""
The same by hand:

TOKEN=$(curl -s -H 'Authorization: bearer {provider.request_token}' \\
  '{provider.issuer}{JOB_PATH}?audience={url}' | sed 's/.*"value": *"\\([^"]*\\)".*/\\1/')
curl -s {url}/tokens -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '
{{"claims": {{
  "model_repo": "acme/open-model", "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
  "benchmark_repo": "openai/gsm8k", "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
  "task_id": "gsm8k", "metrics": [{{"metric_id": "accuracy", "value": 0.625}}],
  "framework": {{"name": "inspect-ai", "version": "0.3.285"}}}}}}'
"""


# -- jobs --------------------------------------------------------------------------------------------------------------


def _claim(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name.rstrip(":"):
            raise click.BadParameter("write NAME=TEXT, or NAME:=JSON")
        try:
            claims[name.removesuffix(":")] = msgspec.json.decode(text) if name.endswith(":") else text
        except (msgspec.DecodeError, RecursionError):
            raise click.BadParameter("what follows := must be JSON, not nested without end") from None
    return claims


def _named(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text == "":  # as "$UNSET" is: the job would be the good one
        raise click.BadParameter("it is empty: write what it is, or leave the option out")
    return text


def _job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what a job can be; the command gets it as `job`, and the issuer as `found`."""

    def gathered(port: int | None, without: tuple[str, ...], provider: str | None, **more: Any) -> None:
        given = {name: value for name, value in more.items() if value is not None}
        command(find(_state(), port), Job(provider=provider or "", without=without, **given))

    gathered.__doc__, gathered.__name__ = command.__doc__, command.__name__
    for add in reversed((
        click.option("--provider", callback=_named, metavar="ID",
                     help="Whose job, by the id in providers.yaml; the first."),
        click.option("--integration", callback=_named, metavar="ID",
                     help="The integration whose job it is; the first of the provider."),
        click.option("--claim", "claims", multiple=True, callback=_claim, metavar="NAME=TEXT",
                     help="What the token says instead; NAME:=JSON for what is no text. May be given again."),
        click.option("--without", multiple=True, metavar="NAME", help="A claim that it lacks. May be given again."),
        click.option("--branch", callback=_named, metavar="NAME", help="A job of another branch."),
        click.option("--pull-request", is_flag=True, help="A job of a pull or merge request."),
        click.option("--fork", is_flag=True, help="A job of somebody's copy of the repository."),
        click.option("--expired", is_flag=True, help="A token that has ended five minutes ago."),
        click.option("--audience", callback=_named, metavar="AUD", help="A token for another service."),
        click.option("--port", type=click.IntRange(1, 65535), help="The issuer, where several run."),
    )):  # fmt: skip
        gathered = add(gathered)
    return gathered


@dev.command()
@_job_options
def token(found: RunningIssuer, job: Job) -> None:
    """Print the identity token, or the access token, of a job.

    It is the job of the identity that the policy of the provider has, by the policy's own granted test; the options
    make it another one. It counts at this throw-away issuer alone.
    """
    say(_ask(found, job)[0])


@dev.command()
@_job_options
def env(found: RunningIssuer, job: Job) -> None:
    """Print the variables by which `issuer token request` finds the issuer, and the identity of a job, as in a CI.

    For a shell to read: eval "$(issuer dev env)".
    """
    credential, profile = _ask(found, job)
    say(_shell_text(_variables(found, job, credential, profile)))


def _ask(found: RunningIssuer, job: Job) -> tuple[str, str]:
    """Return the credential of a job, and the profile of its provider. Raises SetupError and Undecided."""
    try:
        query = urlencode({"audience": found.issuer, "job": msgspec.json.encode(job)})
    except UnicodeEncodeError:
        raise SetupError(Code.DEV_JOB, "what an option says is not UTF-8") from None
    answer = send(
        HttpRequest("GET", f"{found.provider}{JOB_PATH}?{query}", {"Authorization": f"bearer {found.request_token}"})
    )
    try:
        said = msgspec.json.decode(answer.body, type=dict[str, str])
    except msgspec.MsgspecError:
        raise SetupError(Code.DEV_JOB, "its provider could not read it: it is too large") from None
    if answer.status != 200:
        raise SetupError(Code.DEV_JOB, said["message"])
    return said["value"], said["profile"]


def _variables(found: RunningIssuer, job: Job, credential: str, profile: str) -> dict[str, str]:
    """Return what a job of this kind finds in its environment, and the client reads there."""
    if profile == "github-actions":  # each request gets a token of its own, as a runner's does
        query = urlencode({"api-version": "2.0", "job": msgspec.json.encode(job)})
        own = {"GITHUB_ACTIONS": "true", REQUEST_URL: f"{found.provider}{JOB_PATH}?{query}",
               REQUEST_TOKEN: found.request_token}  # fmt: skip
    elif profile == "gitlab-ci":
        own = {"GITLAB_CI": "true", gitlab_variable(found.issuer): credential}
    else:
        own = {ACCESS_TOKEN if profile in ("oauth", "pat") else ID_TOKEN: credential}
    return {_ISSUER_URL: found.issuer, **own}


def _shell_text(variables: Mapping[str, str]) -> str:
    """Write variables for a POSIX shell to `eval`: no value is read as anything but text."""
    gone = [f"unset {name}" for name in _READ if name not in variables]
    return "\n".join([*gone, *(f"export {name}={shlex.quote(value)}" for name, value in variables.items())])
