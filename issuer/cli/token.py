"""`issuer token request`: a run's claims and an identity in, an entry to paste out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec
import rich_click as click

from issuer.adapters import Supplied, inspect_ai
from issuer.cli import printable
from issuer.cli.checks import table
from issuer.client.files import put_entry
from issuer.client.http import Answer, Check, Denied, Endpoint, check_url, request_tokens, unreadable
from issuer.client.identity import identity_token
from issuer.errors import Code, InputError, Place, Refused, Undecided
from issuer.strict_json import JSON, loads

_MAX_CLAIMS = 64 * 1024
_SUPPLIED = tuple(name for name in Supplied.__struct_fields__ if name != "metrics")


@click.group()
def token() -> None:
    """Ask an issuer for verify tokens."""


def _supplied_options(command: Any) -> Any:
    """Add a flag for every member that a run may lack."""
    for name in reversed(_SUPPLIED):
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, metavar="TEXT", help=f"What the run does not say: {name.replace('_', ' ')}.")(
            command
        )
    return command


@token.command()
@click.option("--issuer", required=True, envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@click.option(
    "--claims",
    "claims_path",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help='JSON: the body of /tokens, or the run claims alone; "-" reads standard input.',
)
@click.option("--inspect-log", type=click.Path(path_type=Path), metavar="FILE", help="An Inspect AI log, as JSON.")
@click.option("--metric", "metrics", multiple=True, metavar="ID=SELECTOR", help="Claim this score of the run under ID.")
@click.option("--allow-mock", is_flag=True, help="Accept a run of a mock model.")
@_supplied_options
@click.option("--integration", metavar="ID", help="The integration that you mean to be.")
@click.option("--audience", metavar="AUD", help="The relying party that the token is for.")
@click.option("--id-token-file", type=click.Path(path_type=Path), help="The identity token, in a file.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Put the entry into this result file.")
@click.option("--dry-run", is_flag=True, help="Ask what would be decided, and why; get no token and use nothing up.")
@click.option("--json", "as_json", is_flag=True, help="Print the issuer's answer as JSON.")
def request(
    issuer: str, claims_path: Path | None, inspect_log: Path | None, metrics: tuple[str, ...], allow_mock: bool,
    integration: str | None, audience: str | None, id_token_file: Path | None, out: Path | None, dry_run: bool,
    as_json: bool, **supplied: str | None,
) -> None:  # fmt: skip
    """Exchange this job's identity and the claims of a run for a verify token.

    The identity comes from --id-token-file, then $ISSUER_ID_TOKEN, then the CI that this runs in. Requests are repeated
    where nothing was decided; the same request always gets the same token. With --dry-run the exit code is 5 where the
    answer would be no.
    """
    url = check_url(issuer)
    if (claims_path is None) == (inspect_log is None):
        raise click.UsageError("give exactly one of --claims and --inspect-log")
    if dry_run and out is not None:
        raise click.UsageError("--dry-run gets no entry that --out could take")
    if inspect_log is not None:
        body = _body_of_log(inspect_log, Supplied(metrics=selectors(metrics), **supplied), allow_mock=allow_mock)
    else:
        body = _body_of_file(claims_path or Path("-"))
    named = {"integration": integration, "audience": audience}
    body |= {name: value for name, value in named.items() if value}
    answer = _sent(url, identity_token(url, id_token_file), body, "/tokens/explain" if dry_run else "/tokens")
    if dry_run:
        _end_dry_run(answer, as_json=as_json)
    issued = _read_answer(answer, _Issued)
    if out is not None:
        put_entry(out, issued.entry)
    for warning in issued.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    if as_json:
        click.echo(answer.body)
    elif out is None:
        click.echo(issued.entry, nl=False)
    else:
        repeated = " (a repeat: the same token as before)" if answer.status == 200 else ""
        click.echo(f"{out}: entry written, token {issued.jti} until {issued.expires_at}{repeated}")


class _Issued(msgspec.Struct, frozen=True):
    """What is shown of the issuer's answer."""

    entry: str
    jti: str
    expires_at: int
    warnings: list[str]


class _Explained(msgspec.Struct, frozen=True):
    """What is shown of the issuer's explanation."""

    verdict: Literal["granted", "refused"]
    integration: str
    identity: str
    policy: str
    checks: tuple[Check, ...]
    warnings: list[str]
    code: str = ""
    audience: str = ""
    ttl_s: int = 0


Answered = TypeVar("Answered", _Issued, _Explained)


def _read_answer(answer: Answer, kind: type[Answered]) -> Answered:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Undecided(Code.DEPENDENCY_STATE, "what answered is not an issuer: its 2xx is no answer of one") from None


def _sent(url: str, identity: str, body: dict[str, Any], endpoint: Endpoint) -> Answer:
    """Send the request; where a policy refuses it, show which checks failed. Raises Refused and Undecided."""
    try:
        return request_tokens(url, identity, body, endpoint)
    except Denied as refusal:
        click.echo(table([check for check in refusal.checks if not check.passed]), err=True)
        raise Refused(refusal.code, refusal.code.meaning.title) from None


def _end_dry_run(answer: Answer, *, as_json: bool) -> NoReturn:
    """Show what would be decided, and end: with 5 where it is no."""
    told = _read_answer(answer, _Explained)
    if as_json:
        click.echo(answer.body)
    else:
        click.echo(table(told.checks))
        for warning in told.warnings:
            click.echo(f"warning: {printable(warning)}")
        granted = f"a token for {told.audience}, good for {told.ttl_s} s"
        outcome = granted if told.verdict == "granted" else f"refused, {told.code}"
        if told.verdict == "granted":
            click.echo("not told: whether the identity token is used up, which only the request itself finds out")
        click.echo(printable(f"{told.integration}/{told.identity}: {outcome} (policy {told.policy})"))
    sys.exit(0 if told.verdict == "granted" else 5)


def selectors(metrics: tuple[str, ...]) -> dict[str, str]:
    """Read the values of `--metric ID=SELECTOR`. Raises click.BadParameter."""
    pairs = dict(metric.partition("=")[::2] for metric in metrics)
    if len(pairs) != len(metrics) or not all(pairs) or not all(pairs.values()):
        raise click.BadParameter("give each as ID=SELECTOR, each ID once", param_hint="--metric")
    return pairs


def _body_of_log(path: Path, supplied: Supplied, *, allow_mock: bool) -> dict[str, Any]:
    built = inspect_ai.read(_read(path), str(path)).claims(supplied, allow_mock=allow_mock)
    for member, origin in built.origins.items():
        click.echo(f"{member}: {origin}", err=True)
    return {"claims": built.claims.to_json(), "details": built.details}


def _body_of_file(path: Path) -> dict[str, Any]:
    raw = sys.stdin.buffer.read(_MAX_CLAIMS + 1) if str(path) == "-" else _read(path)
    value: JSON = loads(raw, max_bytes=_MAX_CLAIMS, max_depth=16, name=str(path))
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    return value if "claims" in value else {"claims": value}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), str(error.strerror)) from None
