"""`issuer results diff` and `issuer reproduce compare`: the differences of two result files, or of two runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from issuer.adapters import read
from issuer.cli.exits import Exit
from issuer.cli.options import A_FILE, json_option
from issuer.cli.render import counted
from issuer.cli.results.options import RunCommand, RunOptions, read_entries_of, run_options
from issuer.cli.terminal import printable, say, say_document, shorten
from issuer.client.build import Result, build_results
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.results.entry import Entry, EntryDifference, content_digest, differences, matched, read_entries
from issuer.verify import reproduction
from issuer.verify.report import Said


class Comparison(Struct, frozen=True):
    """The pointers of two matching entries and their differences. A pointer is None if the file lacks the entry."""

    left: str | None
    right: str | None
    material: bool
    differences: tuple[EntryDifference, ...]


@click.command()
@click.argument("left", type=A_FILE)
@click.argument("right", type=A_FILE)
@click.option("--entry", "index", type=click.IntRange(0), help="Compare only these entries, counted from 0.")
@json_option
def diff(left: Path, right: Path, index: int | None, as_json: bool) -> None:
    """Show how the entries of two files differ, and which differences change what a token binds.

    The command matches entries by benchmark, task and model commit. It ignores spelling, order and comments. Exit code
    1 if a difference is material, so that the content digests differ.
    """
    ours, theirs = read_entries_of(left), read_entries_of(right)
    chosen = None if index is None else (_at(ours, index, left), _at(theirs, index, right))
    compared = [_compare(one, other) for one, other in ([chosen] if chosen else matched(ours, theirs))]
    if as_json:
        say_document({"version": 1, "left": str(left), "right": str(right), "entries": compared})
    else:
        for each in compared:
            _show(each)
    sys.exit(Exit.NO if any(each.material for each in compared) else Exit.GOOD)


def _at(entries: tuple[Entry, ...], index: int, path: Path) -> Entry:
    if index >= len(entries):
        raise InputError(Code.FILE_RULE, f"has {len(entries)} entries from 0, not entry {index}", Place(str(path)))
    return entries[index]


def _compare(one: Entry | None, other: Entry | None) -> Comparison:
    if one is None or other is None:
        return Comparison(one.pointer if one else None, other.pointer if other else None, True, ())
    changes = differences(one, other)
    return Comparison(one.pointer, other.pointer, any(change.material for change in changes), changes)


def _show(compared: Comparison) -> None:
    sides = {"left": compared.left, "right": compared.right}
    places = [f"{side} {pointer[1:] if pointer else 'missing'}" for side, pointer in sides.items()]
    say(f"entry {', '.join(places)}: {_verdict(compared)}")
    for difference in compared.differences:
        say(f"  {printable(difference.pointer)} ({'material' if difference.material else 'not material'})")
        _say_both(left=difference.left, right=difference.right)


def _say_both(**values: str) -> None:
    width = max(map(len, values)) + 2
    for which, value in values.items():
        say(f"    {which + ':':<{width}}{shorten(value) or '(absent)'}")


def _verdict(compared: Comparison) -> str:
    if None in (compared.left, compared.right):
        return "only one file has it"
    if not compared.differences:
        return "the same"
    return "differ" if compared.material else "the same, except for members that no digest binds"


_AGREEMENT = "Equal numbers do not prove that there were two runs: anyone can copy a number."


@click.group()
def reproduce() -> None:
    """Compare two runs of one evaluation."""


@reproduce.command(cls=RunCommand)
@run_options
@click.option(
    "--tolerance", "stated", multiple=True, metavar="ID=NUMBER",
    help="The allowed difference of this metric's values, in its unit. Default: 0.",
)  # fmt: skip
@json_option
def compare(given_runs: RunOptions, stated: tuple[str, ...], as_json: bool) -> None:
    """Check whether two runs, of one framework or of two, measured the same thing and got the same numbers.

    Give two PATHs: the first run and the second. The options supply values that both runs lack. Exit code 1 if the runs
    differ.
    """
    if len(given_runs.paths) != 2:
        raise click.UsageError("give two runs: the first, and the run that should reproduce it")
    if len(given_runs.tasks) > 1:
        raise click.UsageError("give one --task: the command compares one run with one other")
    tolerance = reproduction.Tolerance(dict(map(_read_bound, stated)))
    first, second = (_result(path, given_runs) for path in given_runs.paths)
    found = (
        *reproduction.differences(first.built.claims, second.built.claims, tolerance),
        *reproduction.setting_differences(_entry_of(first), _entry_of(second)),
    )
    digest = content_digest(first.entry)
    if as_json:
        members = {"first": first.run.name, "second": second.run.name, "reproduces": digest}
        say_document({"version": 1, **members, "agree": not found, "differences": found})
    else:
        _show_runs(first, second, found, digest)
    sys.exit(Exit.NO if found else Exit.GOOD)


def _result(path: Path, given: RunOptions) -> Result:
    """Build the one result of a file or folder, or of its --task. Raises InputError."""
    task = given.tasks[0] if given.tasks else ""
    run = read(path, given.source, task=task, anchors=given.anchors)
    (result,) = build_results([run], Path(), given.build_options())
    return result


def _entry_of(result: Result) -> Said:
    (entry,) = read_entries(result.written.encode(), result.run.name)
    return Said.of(entry)


def _show_runs(first: Result, second: Result, found: Sequence[reproduction.RunDifference], digest: str) -> None:
    for which, result in (("first", first), ("second", second)):
        framework = result.built.claims.framework
        say(f"{which + ':':<8}{shorten(result.run.name)}, {framework.name} {framework.version}")
    if not found:
        say("they agree: the same model, benchmark and task, the same setting, and these numbers")
        for metric in first.built.claims.metrics:
            say(f"  {reproduction.describe(metric)}")
        say("If the first result is signed as built here, get the second signed as its reproduction:")
        say(f"  issuer submit --reproduces {digest} ...")
        say(_AGREEMENT)
        return
    say(f"they differ at {counted(len(found), 'place')}:")
    for difference in found:
        say(f"  {difference.where}")
        _say_both(first=difference.first, second=difference.second)


def _read_bound(text: str) -> tuple[str, float]:
    metric_id, _, number = text.partition("=")
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not metric_id or not 0 <= bound < math.inf:
        raise click.BadParameter("give ID=NUMBER, such as accuracy=0.5", param_hint="--tolerance")
    return metric_id, bound
