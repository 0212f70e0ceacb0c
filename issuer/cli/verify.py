"""`issuer verify`: judge a result file, show every check, exit with the answer."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path

import msgspec
import rich_click as click

from issuer import jose
from issuer.cli import printable
from issuer.client.http import check_url, fetch_key_set, unreadable
from issuer.errors import Code, InputError, Place
from issuer.results.entry import read_entries
from issuer.trust import KeySetSource, Trust, TrustedEntry, TrustFile, inline_keys, read_trust_file, with_keys
from issuer.verify import Report, Status, verify_entries

REPORT_VERSION = 1
_MAX_FILE = 4 * 1024 * 1024  # more than any reader takes
_EXIT = {"verified": 0, "unverified": 0, "failed": 1, "undecided": 4}
_COLOURS = {Status.PASS: "green", Status.FAIL: "red", Status.UNKNOWN: "yellow", Status.SKIP: "bright_black"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--repo", required=True, metavar="OWNER/NAME", help="The model repository that the file sits in.")
@click.option("--trust", "trust_path", type=click.Path(path_type=Path), help="The trust file to judge by.")
@click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust.")
@click.option("--audience", metavar="AUD", help="Without a trust file: who is asking, as tokens must name it.")
@click.option("--at", metavar="TIME", help="When the file was received: ISO 8601 with an offset, or Unix seconds.")
@click.option("--require-token", is_flag=True, help="Say no where an entry has no token.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(
    file: Path,
    repo: str,
    trust_path: Path | None,
    issuer: str | None,
    audience: str | None,
    at: str | None,
    require_token: bool,
    as_json: bool,
) -> None:
    """Check every entry of a result FILE: signature, issuer, freshness, every field.

    The audience is yours to say; it is never taken from the issuer or from the token.
    """
    trust = _trust(trust_path, issuer, audience)
    moment = int(time.time()) if at is None else _moment(at)
    reports = verify_entries(read_entries(_read(file), str(file)), repo, str(file), trust, moment)
    if as_json:
        document = {"version": REPORT_VERSION, "file": str(file), "repo": repo, "entries": reports}
        click.echo(msgspec.json.format(msgspec.json.encode(document)))
    else:
        show(reports, str(file))
    sys.exit(exit_code(reports, require_token=require_token))


def exit_code(reports: tuple[Report, ...], *, require_token: bool) -> int:
    """Return the worst entry's code: no (1) before could not decide (4) before good (0)."""
    codes = {_EXIT[report.verdict] for report in reports}
    checked = any(report.verdict == "verified" for report in reports)
    lacking = any(report.verdict == "unverified" for report in reports)
    if 1 in codes or (require_token and lacking) or (not checked and codes <= {0}):
        return 1
    return 4 if 4 in codes else 0


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE + 1)  # its reader refuses what is larger; nothing need hold it
    except OSError as error:
        raise unreadable(str(path), str(error.strerror)) from None


def _moment(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise click.BadParameter(
            "give Unix seconds, or ISO 8601 with an offset, as 2026-11-21T09:00:00Z", param_hint="--at"
        )
    return int(moment.timestamp())


# -- whom to trust ----------------------------------------------------------------------------------------------------


def _trust(path: Path | None, issuer: str | None, audience: str | None) -> Trust:
    if path is not None:
        if issuer or audience:
            raise click.UsageError("give --trust, or --issuer with --audience, not both")
        trust = read_trust_file(_read(path), str(path))
        return with_keys(trust, {entry.issuer: _keys(entry.keys, path) for entry in trust.issuers})
    if not issuer or not audience:
        raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")
    url = check_url(issuer)
    source = KeySetSource(url=f"{url}/.well-known/jwks.json")
    trust = TrustFile(version=1, audience=audience, issuers=[TrustedEntry(issuer=url, keys=source)])
    return with_keys(trust, {url: _keys(source, Path())})


def _keys(source: KeySetSource, trust_path: Path) -> jose.KeySet | None:
    if isinstance(source.url, str):
        return fetch_key_set(source.url)
    try:
        if isinstance(source.file, str):
            return jose.parse_key_set(_read(trust_path.parent / source.file))
        return inline_keys(source)
    except InputError as error:
        if error.code is Code.FILE_UNREADABLE:
            raise
        raise InputError(error.code, f"a key set: {error.detail}", Place(str(trust_path))) from None


# -- for people -------------------------------------------------------------------------------------------------------


def show(reports: tuple[Report, ...], name: str) -> None:
    """Print every check of every entry, and what the answer means."""
    if not reports:
        click.echo(f"{printable(name)}: no entries")
    for report in reports:
        click.echo(f"{printable(name)}, entry {report.pointer.removeprefix('/')}:")
        if report.verdict == "unverified":
            click.secho(f"  unverified: {printable(report.reason)}", fg="yellow")
            continue
        for check in report.checks:
            word = "FAIL" if check.status is Status.FAIL else str(check.status)
            marked = click.style(f"{word:<8}", fg=_COLOURS[check.status])
            click.echo(f"  {check.number:>2}  {marked}{check.name:<26}{printable(check.evidence)}")
            if check.token or check.file:
                click.echo(
                    f"{'':>14}token: {printable(check.token or '-')}\n{'':>14}here:  {printable(check.file or '-')}"
                )
        _show_meaning(report)


def _show_meaning(report: Report) -> None:
    if report.verdict == "verified":
        click.secho("  verified", fg="green", bold=True)
        click.echo(
            "  This proves: the issuer's registered integration had exactly this run signed, for this repository."
        )
        click.echo("  It does not: that the benchmark is sound, or that the run was honest.")
    elif report.verdict == "failed":
        failed = ", ".join(str(check.number) for check in report.checks if check.status is Status.FAIL)
        click.secho(f"  not verified: check {failed} failed", fg="red", bold=True)
        click.echo("  The result may still be true; nothing signed says so.")
    else:
        click.secho("  undecided: something that a check needs was not to be had; try again", fg="yellow", bold=True)
