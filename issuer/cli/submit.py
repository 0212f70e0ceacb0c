"""`issuer submit`: from finished runs to open pull requests in their models' repositories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from issuer import files
from issuer.cli.asking import explaining
from issuer.cli.checks import verbose_option
from issuer.cli.credentials import CredentialOptions, credential_options
from issuer.cli.exits import Exit
from issuer.cli.result_files import benchmark_option, read_benchmark_file
from issuer.cli.runs import RunOptions, failures_of, reproduces_option, run_options, say_failures
from issuer.cli.submitted import Telling
from issuer.cli.supplied import RunCommand
from issuer.cli.terminal import say
from issuer.client.batches import Asking, explain_each
from issuer.client.build import Result, build_each
from issuer.client.credential import Credential
from issuer.client.hub import Hub
from issuer.client.kept import FOLDER, Kept
from issuer.client.places import InFolder, OnHub
from issuer.client.proposal import Place
from issuer.client.submit import Plan, plan_of, propose, sign
from issuer.codes import Code
from issuer.errors import InputError
from issuer.errors import Place as InFile
from issuer.http_client import check_url
from issuer.results.benchmark import Benchmark


@click.command(cls=RunCommand)
@click.option("--issuer", required=True, envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL.")
@run_options
@reproduces_option
@benchmark_option
@click.option("--integration", metavar="ID", help="The integration that you mean to be.")
@click.option("--audience", metavar="AUD", help="The relying party that the tokens are for.")
@credential_options
@click.option(
    "--state", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help=f"Keep received tokens here.  [default: {FOLDER} beside the first PATH]",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write into DIR/OWNER/NAME/.eval_results, and open no pull request.",
)  # fmt: skip
@click.option("--keep-going", is_flag=True, help="Leave out runs that cannot be used or are refused.")
@click.option("--dry-run", is_flag=True, help="Show what would change and what the issuer would say; change nothing.")
@verbose_option
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the document of --json into FILE, too.",
)  # fmt: skip
@click.option(
    "--summary", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write a summary in Markdown into FILE, for a CI to show.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def submit(
    issuer: str, given_runs: RunOptions, benchmark_path: Path | None, reproduces: str, integration: str | None,
    audience: str | None, given: CredentialOptions, state: Path | None, out: Path | None, keep_going: bool,
    dry_run: bool, verbose: bool, report: Path | None, summary: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Have finished runs signed, and propose them to their models' repositories on the Hub.

    For each model one pull request: its `.eval_results/*.yaml` with the signed entries, verified here by the issuer's
    own keys. $HF_TOKEN opens it, at $HF_ENDPOINT; the credential is found as by `issuer token request`.

    Until the first pull request it is all or nothing. A job that was killed is started again with the same command:
    tokens that were received are used again, and no result is proposed twice.
    """
    url = check_url(issuer)
    for path in filter(None, (report, summary)):
        files.demand_replaceable(path, follow=False)
    identities = _Identities(given, url)
    asking = Asking(url, identities, integration, audience)
    kept = Kept(state or given_runs.paths[0].parent / FOLDER)
    place: Place = InFolder(out) if out else OnHub(Hub.here())
    results, failed = _read(given_runs, reproduces, keep_going=keep_going)
    plan = plan_of(results, place, _benchmark(benchmark_path, results))
    telling = Telling(url, as_json=as_json, verbose=verbose)
    try:
        telling.plan(plan)
        with explaining(url, identities.last):
            if dry_run:
                refused = _rehearse(plan, asking, telling)
            else:
                refused = _submit(_Job(plan, place, asking, kept, keep_going), telling)
    finally:
        telling.end(report, summary)
    sys.exit(Exit.INPUT if failed else Exit.REFUSED if refused else Exit.GOOD)


# -- what goes in -----------------------------------------------------------------------------------------------------


class _Identities:
    """The credential for each request: fetched anew, so that it lives and was not used; standard input is read once."""

    def __init__(self, given: CredentialOptions, issuer: str) -> None:
        self._given, self._issuer = given, issuer
        self._last: Credential | None = None

    def __call__(self) -> Credential:
        if self._last is None or not self._given.reads_standard_input:
            self._last = self._given.credential(self._issuer)
        return self._last

    def last(self) -> Credential:
        """Return the one that was used last."""
        return self._last or self()


def _read(given: RunOptions, reproduces: str, *, keep_going: bool) -> tuple[tuple[Result, ...], int]:
    """Read the runs and build their results; return beside them how many runs have none. Ends the command where that
    is any of them, unless the others are wanted."""
    options = given.build_options(reproduces=reproduces)
    runs, failures = given.read()
    results, unbuilt = build_each(runs, Path(), options, tasks=given.tasks)
    failures += failures_of(unbuilt)
    say_failures(failures)
    if failures and not (keep_going and results):
        rest = f"; --keep-going takes the other {len(results)}" if results else ""
        say(f"issuer: nothing is sent: {len(failures)} of {len(failures) + len(results)} runs failed{rest}", err=True)
        sys.exit(Exit.INPUT)
    return results, len(failures)


def _benchmark(path: Path | None, results: Sequence[Result]) -> Benchmark | None:
    """Return what --benchmark names. Raises InputError where the runs are of several."""
    named = {each.built.claims.benchmark_repo for each in results}
    if path is not None and len(named) > 1:
        rule = f"--benchmark is for runs of one benchmark, not of {', '.join(sorted(named)[:5])}"
        raise InputError(Code.FILE_RULE, rule, InFile(str(path)))
    return read_benchmark_file(path)


# -- what is done -----------------------------------------------------------------------------------------------------


class _Job(Struct, frozen=True):
    plan: Plan
    place: Place
    asking: Asking
    kept: Kept
    keep_going: bool


def _rehearse(plan: Plan, asking: Asking, telling: Telling) -> bool:
    """Show what would change, and what the issuer would decide; say whether it would refuse any of it."""
    for change in plan.changes:
        telling.change(change)
    asked, refused = 0, 0
    for index, explained in explain_each(asking, [item.said for item in plan.items]):
        telling.explained(plan.items[index], explained)
        asked, refused = asked + 1, refused + (explained.verdict == "refused")
    telling.rehearsed(asked, refused, len(plan.items) - asked)
    return refused > 0


def _submit(job: _Job, telling: Telling) -> bool:
    """Have the results signed and propose them; say whether any was refused."""
    signed = sign(job.plan, job.place, job.asking, job.kept, keep_going=job.keep_going)
    telling.signed(signed, job.plan.items)
    if signed.refusals and not signed.items:
        others = not job.keep_going and len(signed.refusals) < len(job.plan.items)
        rest = "; --keep-going leaves out what is refused" if others else ""
        say(f"issuer: nothing is proposed: {len(signed.refusals)} of {len(job.plan.items)} refused{rest}", err=True)
    for outcome in propose(signed, job.place, job.asking):
        telling.outcome(outcome)
    return bool(signed.refusals)
