"""`issuer reproduce compare`: whether two runs agree, before anybody has the second signed as a reproduction."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from issuer.adapters import read
from issuer.cli.exits import Exit
from issuer.cli.result_files import REPORT_VERSION
from issuer.cli.runs import RunOptions, run_options
from issuer.cli.supplied import RunCommand
from issuer.cli.terminal import say, say_document, shorten
from issuer.client.build import Result, build_results
from issuer.results.entry import content_digest, read_entries
from issuer.verify.report import Said
from issuer.verify.reproduction import Difference, Tolerance, describe, differences, setting_differences

# What an agreement shows, and what not.
_MEANING = "Agreeing numbers are no proof that there were two runs: a number can be copied."


@click.group()
def reproduce() -> None:
    """Compare two runs of one evaluation."""


@reproduce.command(cls=RunCommand)
@run_options
@click.option(
    "--tolerance", "stated", multiple=True, metavar="ID=NUMBER",
    help="By how much, in its unit, values of this metric may differ. Without it they must be the same.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare(given_runs: RunOptions, stated: tuple[str, ...], as_json: bool) -> None:
    """Say whether two runs, of the same or of two frameworks, measured the same thing and found the same numbers.

    PATH are the first run and the second. What neither says is supplied, for both. Exits with 1 where they part.
    """
    if len(given_runs.paths) != 2:
        raise click.UsageError("give two runs: the first, and the one that is to reproduce it")
    if len(given_runs.tasks) > 1:
        raise click.UsageError("give one --task: one run is compared with one")
    tolerance = Tolerance(_read_tolerance(stated))
    first, second = (_result(path, given_runs) for path in given_runs.paths)
    found = (
        *differences(first.built.claims, second.built.claims, tolerance),
        *setting_differences(_said(first), _said(second)),
    )
    digest = content_digest(first.entry)
    if as_json:
        members = {"first": first.run.name, "second": second.run.name, "reproduces": digest}
        say_document({"version": REPORT_VERSION, **members, "agree": not found, "differences": found})
    else:
        _show(first, second, found, digest)
    sys.exit(Exit.NO if found else Exit.GOOD)


def _result(path: Path, given: RunOptions) -> Result:
    """Build the one result of a file or folder, or that of the task that is named. Raises InputError."""
    task = given.tasks[0] if given.tasks else ""
    run = read(path, given.source, task=task, anchors=given.anchors)
    (result,) = build_results([run], Path(), given.build_options())
    return result


def _said(result: Result) -> Said:
    (entry,) = read_entries(result.written.encode(), result.run.name)
    return Said.of(entry)


def _show(first: Result, second: Result, found: Sequence[Difference], digest: str) -> None:
    for which, result in (("first", first), ("second", second)):
        framework = result.built.claims.framework
        say(f"{which + ':':<8}{shorten(result.run.name)}, {framework.name} {framework.version}")
    if not found:
        say("they agree: the same model, benchmark and task, the same setting, and these numbers")
        for metric in first.built.claims.metrics:
            say(f"  {describe(metric)}")
        say("To have the second one signed as a reproduction, where the first is signed as it is built here:")
        say(f"  issuer submit --reproduces {digest} ...")
        say(_MEANING)
        return
    say(f"they part at {len(found)} {'place' if len(found) == 1 else 'places'}:")
    for difference in found:
        say(f"  {difference.where}")
        say(f"    first:  {shorten(difference.first) or '(absent)'}")
        say(f"    second: {shorten(difference.second) or '(absent)'}")


def _read_tolerance(stated: tuple[str, ...]) -> Mapping[str, float]:
    return dict(_read_bound(each) for each in stated)


def _read_bound(text: str) -> tuple[str, float]:
    metric_id, _, number = text.partition("=")
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not metric_id or not 0 <= bound < math.inf:
        raise click.BadParameter("give ID=NUMBER, as in accuracy=0.5", param_hint="--tolerance")
    return metric_id, bound
