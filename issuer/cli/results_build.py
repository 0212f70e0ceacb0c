"""`issuer results build`: finished runs in, result files without tokens and the claims to request tokens with out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from issuer.cli.exits import Exit
from issuer.cli.result_files import benchmark_for, benchmark_option
from issuer.cli.runs import Failure, RunOptions, failures_of, reproduces_option, run_options, say_failures, say_note
from issuer.cli.runs import show_origin as show_origins
from issuer.cli.supplied import RunCommand
from issuer.cli.terminal import printable, say, shorten
from issuer.client.build import Result, build_each, write_results
from issuer.results.entry import PROFILES, Profile


@click.command(cls=RunCommand)
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="OUT",
    help="A result file (*.yaml), or a folder for MODEL/.eval_results/BENCHMARK.yaml.",
)  # fmt: skip
@click.option(
    "--profile", type=click.Choice(PROFILES), default="target", show_default=True,
    help="Write entries in this form: both and hub are for today's readers, and need --benchmark.",
)  # fmt: skip
@benchmark_option
@run_options
@reproduces_option
@click.option("--skip-failed", is_flag=True, help="Leave out runs of which no result can be built.")
@click.option("--update", is_flag=True, help="Add what is new to files that are there; nothing in them changes.")
@click.option("--show-origin", is_flag=True, help="List where each value comes from: the run, or supplied.")
def build(
    given_runs: RunOptions, out: Path, profile: Profile, benchmark_path: Path | None, reproduces: str,
    skip_failed: bool, update: bool, show_origin: bool,
) -> None:  # fmt: skip
    """Build result files of finished runs, and the claims to request tokens with.

    Nothing is invented: what a run does not say is supplied by flag, by environment or by the mapping file, and must
    not contradict it. Entries are written without a token; each one's claims go, as JSON for `issuer token request
    --claims`, to the folder `claims` in OUT, or beside the file. Every run is looked at; nothing is written unless all
    are good, or bad ones are left out with --skip-failed.
    """
    options = given_runs.build_options(profile, benchmark_for(benchmark_path, profile), reproduces)
    runs, failures = given_runs.read()
    results, unbuilt = build_each(runs, out, options, tasks=given_runs.tasks)
    _end_failed([*failures, *failures_of(unbuilt)], len(results), skip=skip_failed)
    new = write_results(results, update=update)
    for each in results:
        _say_result(each, new)
        say_note(each.built)
        if show_origin:
            show_origins(each.built)


def _end_failed(failures: list[Failure], built: int, *, skip: bool) -> None:
    """Say what was found; end the command where something was, unless the others are wanted."""
    say_failures(failures)
    if failures and not (skip and built):
        rest = f"; --skip-failed builds the other {built}" if built else ""
        say(f"issuer: nothing is written: {len(failures)} of {len(failures) + built} runs failed{rest}", err=True)
        sys.exit(Exit.INPUT)


def _say_result(result: Result, new: Sequence[Result]) -> None:
    run = f"{shorten(result.run.task)} of {shorten(result.run.name)}"
    written = next((each for each in new if each.run is result.run), None)
    claims = f"claims in {printable(str(written.claims_file))}" if written else "it has this entry, unchanged"
    say(f"{printable(str(result.file))}: {run}, {claims}")
