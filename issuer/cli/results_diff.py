"""`issuer results diff`: how the entries of two files differ, and what a token would notice of it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec import Struct

from issuer.cli.exits import Exit
from issuer.cli.result_files import REPORT_VERSION, read_entries_of
from issuer.cli.terminal import printable, say, say_document, shorten
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.results.diff import Difference, differences, matched
from issuer.results.entry import Entry


class Comparison(Struct, frozen=True):
    """Two entries that belong together, by their pointers; None where only one file has it."""

    left: str | None
    right: str | None
    material: bool
    differences: tuple[Difference, ...]


@click.command()
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
@click.option("--entry", "index", type=click.IntRange(0), help="Compare only these entries, counted from 0.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def diff(left: Path, right: Path, index: int | None, as_json: bool) -> None:
    """Say how the entries of two files differ, and which differences a token would notice.

    Entries are matched by benchmark, task and model commit. Spelling, order and comments are no differences. Exits
    with 1 where a difference is material: the content digest is another.
    """
    ours, theirs = read_entries_of(left), read_entries_of(right)
    chosen = None if index is None else (_at(ours, index, left), _at(theirs, index, right))
    compared = [_compare(one, other) for one, other in ([chosen] if chosen else matched(ours, theirs))]
    if as_json:
        document = {"version": REPORT_VERSION, "left": str(left), "right": str(right), "entries": compared}
        say_document(document)
    else:
        for each in compared:
            _show(each)
    sys.exit(Exit.NO if any(each.material for each in compared) else Exit.GOOD)


def _at(entries: tuple[Entry, ...], index: int, path: Path) -> Entry:
    if index >= len(entries):
        raise InputError(Code.FILE_RULE, f"has no entry {index}: there are {len(entries)}, from 0", Place(str(path)))
    return entries[index]


def _compare(one: Entry | None, other: Entry | None) -> Comparison:
    if one is None or other is None:
        return Comparison(one.pointer if one else None, other.pointer if other else None, True, ())
    found = differences(one, other)
    return Comparison(one.pointer, other.pointer, any(difference.material for difference in found), found)


def _show(compared: Comparison) -> None:
    sides = {"left": compared.left, "right": compared.right}
    places = [f"{side} {pointer[1:] if pointer else 'has none'}" for side, pointer in sides.items()]
    say(f"entry {', '.join(places)}: {_verdict(compared)}")
    for difference in compared.differences:
        say(f"  {printable(difference.pointer)} ({'material' if difference.material else 'not material'})")
        left, right = (shorten(side) or "(absent)" for side in (difference.left, difference.right))
        say(f"    left:  {left}\n    right: {right}")


def _verdict(compared: Comparison) -> str:
    if None in (compared.left, compared.right):
        return "only one file has it"
    if not compared.differences:
        return "the same"
    return "differ" if compared.material else "the same but for what no digest binds"
