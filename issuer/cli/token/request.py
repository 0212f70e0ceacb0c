"""`issuer token request`: exchange a credential and a run's claims for a signed entry; and the group `issuer token`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.adapters import Supplied, inspect_ai
from issuer.adapters.load import read_file
from issuer.cli.exits import Exit
from issuer.cli.options import (
    A_FILE,
    FILE_OR_INPUT,
    audience_option,
    integration_option,
    issuer_option,
    verbose_option,
)
from issuer.cli.render import render_checks, say_wrapped
from issuer.cli.results.options import (
    RunCommand,
    benchmark_option,
    demand_no_flags,
    metric_option,
    mock_option,
    partial_option,
    primary_option,
    read_benchmark_file,
    read_selectors,
    scale_option,
    supplied_options,
    warn_unread,
)
from issuer.cli.terminal import printable, say, to_json
from issuer.cli.token.credentials import CredentialOptions, credential_options, explaining, say_warnings
from issuer.cli.token.inspect import inspect
from issuer.client.answer import read_asked
from issuer.client.files import demand_place, put_entry, put_proof, rehearse_entry, shaped, wait_for_proof
from issuer.client.tokens import Obtained, explain_request, obtain, read_request, request_of, with_nonce
from issuer.errors import Place, Refused, Undecided
from issuer.formats.times import show_span, show_when
from issuer.io.files import read_argument
from issuer.io.http_client import check_url
from issuer.results.benchmark import Benchmark, demand_defined, named_primary
from issuer.results.entry import SIGNED_PROFILES, Profile, default_profile
from issuer.token.wire import MAX_BYTES, Explained, IssuedToken, is_nonce


@click.group()
def token() -> None:
    """Request verify tokens from an issuer, and show what a token says."""


token.add_command(inspect)


@token.command(cls=RunCommand)
@issuer_option
@click.option("--claims", "claims_path", type=FILE_OR_INPUT, metavar="FILE",
              help='JSON: the body of /tokens, or only the run claims; "-" reads standard input.')  # fmt: skip
@click.option("--inspect-log", type=A_FILE, metavar="FILE", help="An Inspect AI log, as JSON.")
@metric_option
@scale_option
@mock_option
@partial_option
@supplied_options
@integration_option
@audience_option
@credential_options
@click.option(
    "--nonce", metavar="TEXT", help="22 to 128 base64url characters that identify the request in a repeated job."
)
@click.option("--out", type=A_FILE, metavar="FILE", help="Put the entry into this result file.")
@click.option(
    "--profile", type=click.Choice(SIGNED_PROFILES),
    help="The form of the entry. Default: both if the primary metric is known, else target; an entry that exists keeps "
    "its form, unless --primary or --benchmark names the metric.",
)  # fmt: skip
@benchmark_option
@primary_option
@click.option("--append", is_flag=True, help="Add the entry to --out even if an entry there says the same.")
@click.option("--dry-run", is_flag=True, help="Show what the issuer would decide, and why. Spends no use.")
@verbose_option
@click.option("--json", "as_json", is_flag=True, help="Print the issuer's answer as JSON.")
def request(
    issuer: str, claims_path: Path | None, inspect_log: Path | None, metrics: tuple[str, ...],
    allow_mock: tuple[str, ...], allow_partial: bool, integration: str | None, audience: str | None,
    given: CredentialOptions, nonce: str | None, out: Path | None, profile: Profile | None,
    benchmark_path: Path | None, primary: str | None, append: bool, dry_run: bool, verbose: bool, as_json: bool,
    **supplied: str | None,
) -> None:  # fmt: skip
    """Exchange a credential and the claims of a run for a verify token.

    The credential is an identity token (--id-token-file) or an access token (--access-token-file, --oauth). Without
    these options it comes from $ISSUER_ID_TOKEN, $ISSUER_ACCESS_TOKEN, or the current CI job. An access token works for
    many requests, so each request with it needs a nonce. The command makes one unless you give --nonce.

    The command repeats undecided requests. The same request gets the same token until that expires. With --dry-run, the
    exit code is 5 if the issuer would refuse.
    """
    url = check_url(issuer)
    _check_sources(claims_path, inspect_log, given)
    if nonce and not is_nonce(nonce):
        raise click.UsageError("--nonce must be 22 to 128 base64url characters (A-Z a-z 0-9 - _)")
    if dry_run and out is not None:
        raise click.UsageError("--dry-run gets no entry: remove --out")
    if append and out is None:
        raise click.UsageError("--append needs --out")
    if inspect_log is not None:
        texts = Supplied(metrics=read_selectors(metrics), **supplied)
        body = _read_log(inspect_log, texts, allow_mock, allow_partial=allow_partial)
    else:
        demand_no_flags("--claims has every value already")
        path = claims_path or Path("-")
        body = read_request(read_argument(path, MAX_BYTES["single"]), str(path))
    benchmark = read_benchmark_file(benchmark_path)
    form = _Form(out, append, profile, benchmark, named_primary(benchmark, primary, Place(str(benchmark_path))))
    named = {"integration": integration, "audience": audience, "nonce": nonce}
    body |= {name: value for name, value in named.items() if value}
    unread = form.rehearse(body)  # before the request uses up the identity for an entry that cannot be written
    credential = given.credential(url)
    if nonce and not credential.reusable:
        raise click.UsageError("--nonce needs an access token; an identity token identifies its request itself")
    body = with_nonce(body, credential)
    with _showing_nonce(body), explaining(url, lambda: credential):
        if dry_run:
            explained = explain_request(url, credential, body)
            use = "nonce" if credential.reusable else "identity token"
            _end_dry_run(explained, use, verbose=verbose, as_json=as_json)
        obtained = obtain(url, credential, body)
    _end_request(obtained, form, as_json=as_json)
    warn_unread(unread)
    if out is not None:
        _put_proof(url, obtained.tokens[0], out)


class _Form(Struct, frozen=True):
    """The file and the form of the entry."""

    out: Path | None
    append: bool
    profile: Profile | None
    benchmark: Benchmark | None
    primary: str | None

    def rehearse(self, body: dict[str, Any]) -> list[str]:
        """Raise the errors that writing the entry would raise. Ignores faulty claims, which the issuer will report.
        Return the reason why today's readers cannot read the entry, if nobody chose its profile."""
        if self.out is not None:
            claims = body.get("claims")
            demand_place(self.out, claims.get("benchmark_repo") if isinstance(claims, dict) else None)
        with contextlib.suppress(Refused):
            (submission,) = read_asked("", body).submissions
            demand_defined(self.benchmark, submission.claims, Place("the claims"))
            is_read = rehearse_entry(
                self.out, submission, append=self.append, profile=self.profile, primary=self.primary
            )
            default, why = default_profile(submission.form, self.primary)
            why = why if default == "target" else "it exists, and keeps its form"
            return [] if is_read or self.profile else [why]
        return []


def _check_sources(claims_path: Path | None, inspect_log: Path | None, given: CredentialOptions) -> None:
    if (claims_path is None) == (inspect_log is None):
        raise click.UsageError("give exactly one of --claims and --inspect-log")
    if str(claims_path) == "-" and given.reads_standard_input:
        raise click.UsageError("standard input can be the claims or the credential, not both")


def _read_log(path: Path, supplied: Supplied, allow_mock: tuple[str, ...], *, allow_partial: bool) -> dict[str, Any]:
    run = inspect_ai.read(read_file(path, inspect_ai.MAX_BYTES), str(path))
    built = run.claims(supplied, allow_mock=allow_mock, allow_partial=allow_partial)
    for member, origin in built.origins.items():
        say(f"{member}: {origin}", err=True)
    if notes := built.details.get("notes"):
        say(f"note: {printable(str(notes))}", err=True)
    return request_of(built)


@contextlib.contextmanager
def _showing_nonce(body: dict[str, Any]) -> Iterator[None]:
    """After an undecided request, print the nonce with which the user can repeat it."""
    try:
        yield
    except Undecided as error:
        if "nonce" in body:
            again = f"to repeat this request, wait {show_span(error.retry_after_s)} and add --nonce {body['nonce']}"
            say(printable(again), err=True)
        raise


def _end_request(obtained: Obtained, form: _Form, *, as_json: bool) -> None:
    """Write the entry into its file, or print it."""
    (issued,), out = obtained.tokens, form.out
    entry, changed = shaped(issued.entry, form.profile, form.primary), False
    if out is not None:
        changed = put_entry(out, issued.entry, append=form.append, profile=form.profile, primary=form.primary)
    say_warnings(issued.warnings)
    if as_json:
        say(to_json(replace(issued, entry=entry)))
    elif out is None:
        say(entry, end="")
    else:
        repeated = " (a repeat: the same token as before)" if obtained.repeated else ""
        what = "entry written" if changed else "unchanged, it already has this entry"
        until = show_when(issued.expires_at, int(time.time()))
        say(printable(f"{out}: {what}, token {issued.jti} until {until}{repeated}"))


def _put_proof(url: str, issued: IssuedToken, out: Path) -> None:
    """Write the proof of a logged token beside its file. If the log has no proof in time, warn: the entry is good."""
    if issued.log is UNSET:
        return
    if (proof := wait_for_proof(url, issued)) is None:
        say("warning: the log has no proof yet. Get it later with `issuer log proof`: old files need it", err=True)
    else:
        say(printable(f"{put_proof(out, proof)}: the proof that the log has this token"), err=True)


def _end_dry_run(explained: Explained, use: str, *, verbose: bool, as_json: bool) -> NoReturn:
    """Show what the issuer would decide, and exit, with 5 for a refusal. A request would use up `use`."""
    granted = explained.verdict == "granted"
    if as_json:
        say(to_json(explained))
    else:
        say(render_checks(explained.checks, verbose=verbose))
        for warning in explained.warnings:
            say_wrapped(warning, "warning: ", "  ")
        if granted:
            say_wrapped(f"unknown: whether the {use} is used up. Only a real request finds that out")
        say_wrapped(_describe(explained), rest="  ")
        say(printable(f"policy {explained.policy}"))
    sys.exit(Exit.GOOD if granted else Exit.REFUSED)


def _describe(explained: Explained) -> str:
    outcome = f"refused, {explained.code}"
    if explained.ttl_s is not UNSET:
        outcome = f"a token for {explained.audience}, good for {show_span(explained.ttl_s)}"
    return f"{explained.integration}/{explained.identity}: {outcome}"
