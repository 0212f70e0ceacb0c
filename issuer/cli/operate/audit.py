"""`issuer audit verify|tail|find`: what an operator asks the audit.

Exit codes: 0 good, 1 the lines are not those that were written, or nothing was found, 2 usage, 3 a file is missing or
malformed, 4 lines or heads are needed that were not given (contract section 6).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import click

from issuer.audit.chain import BROKEN, UNDECIDED, ChainFinding, Chains, Head, Kind, TooMany, read_heads
from issuer.audit.events import Event, SignalName, Verdict
from issuer.audit.reader import Wanted, describe, follow, read_in_order, read_lines
from issuer.cli.exits import Exit
from issuer.cli.options import A_FILE, all_of, json_lines_option
from issuer.cli.terminal import say, to_json
from issuer.codes import Code
from issuer.errors import InputError, Place

# Of each kind; the counts are of all.
_MAX_SHOWN = 100
_files = click.argument("files", nargs=-1, required=True, type=A_FILE, metavar="FILE...")


@click.group()
def audit() -> None:
    """Verify, follow and search the audit."""


# -- verify -----------------------------------------------------------------------------------------------------------


@audit.command()
@_files
@click.option("--heads", type=A_FILE, metavar="FILE",
              help="The log stream, or what --json printed before: heads of chains to compare with.")  # fmt: skip
@json_lines_option
def verify(files: tuple[Path, ...], heads: Path | None, as_json: bool) -> None:
    """Check that no line of the audit FILEs, rotated ones too, was changed, removed, added or moved.

    Without the heads that the service told to its log stream nobody can see that the last lines were removed, or all of
    them written anew. A chain that begins in a file that was not given is checked from there on, and exit 4.
    """
    counts: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    try:
        chains = Chains(read_heads(read_lines(heads)) if heads else {})
        for finding in _findings(chains, files):
            counts[finding.kind] += 1
            if counts[finding.kind] <= _MAX_SHOWN:
                say(to_json(finding) if as_json else _describe(finding))
    except TooMany:
        rule = "there are more chains or heads than one reading takes: give fewer files"
        raise InputError(Code.FILE_TOO_LARGE, rule, Place(str(files[0]))) from None
    if not chains.linked:
        raise InputError(Code.FILE_RULE, "no line of it is an event of a chain", Place(str(files[0])))
    for worker, chain in chains.chains.items():
        head = Head(worker, chain.seq, chain.head)
        if as_json:
            say(to_json(head))
        else:
            say(f"worker {worker}: {chain.first} to {chain.seq}, head {chain.head}")
    if not as_json:
        say(_conclude(chains, counts, bool(heads)))
    sys.exit(_exit_for(counts))


def _findings(chains: Chains, files: Iterable[Path]) -> Iterator[ChainFinding]:
    for line in read_in_order(files):
        yield from chains.read(line)
    yield from chains.end()


def _describe(finding: ChainFinding) -> str:
    where = f"line {finding.line}" if finding.line else "the end"
    whose = f" (worker {finding.worker})" if finding.worker else ""
    return f"{where}: {finding.kind}: {finding.detail}{whose}"


def _conclude(chains: Chains, counts: dict[Kind, int], has_heads: bool) -> str:
    found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    read = f"{chains.linked} events of {len(chains.chains)} workers"
    if _exit_for(counts) is Exit.NO:
        return f"not as it was written: {read}; {found}"
    if _exit_for(counts) is Exit.UNDECIDED:
        return f"undecided: {read}; {found}. Give the files before these, or the heads"
    ends = "" if has_heads else ". Without --heads nobody can see what was removed at the end"
    return f"good: {read}{'; ' + found if found else ''}{ends}"


def _exit_for(counts: dict[Kind, int]) -> Exit:
    if any(counts[kind] for kind in BROKEN):
        return Exit.NO
    return Exit.UNDECIDED if any(counts[kind] for kind in UNDECIDED) else Exit.GOOD


# -- tail and find ----------------------------------------------------------------------------------------------------


_filters = all_of(
    click.option("--integration", default="", metavar="ID", help="Of this integration."),
    click.option("--identity", default="", metavar="[INTEGRATION/]ID", help="Of this identity."),
    click.option("--code", default="", metavar="CODE", help="Refusals of this code."),
    click.option("--verdict", type=click.Choice(get_args(Verdict)), default=None),
    click.option("--signal", type=click.Choice(get_args(SignalName)), default=None, help="Signals of abuse."),
)


@audit.command()
@click.argument("file", type=A_FILE)
@_filters
@click.option("--lines", "-n", default=10, show_default=True, type=click.IntRange(0, 10_000),
              help="How many lines to begin with, before any filter.")  # fmt: skip
@json_lines_option
def tail(file: Path, lines: int, as_json: bool, **filters: str | None) -> None:
    """Follow the audit FILE, over its rotation, until interrupted."""
    wanted = _wanted(filters)
    for line in follow(file, lines):
        if (event := wanted.search(line)) is not None:
            say(_show(event, as_json=as_json))


@audit.command()
@_files
@click.option("--jti", default="", metavar="ID", help="The event of this token.")
@click.option("--content", default="", metavar="DIGEST", help="Of the token with this content_digest.")
@click.option("--claims", default="", metavar="DIGEST", help="Of tokens with this claims_digest.")
@click.option("--request", default="", metavar="ID", help="Of the request with this request_id.")
@_filters
@json_lines_option
def find(files: tuple[Path, ...], as_json: bool, **filters: str | None) -> None:
    """Print the events of the audit FILEs that all the options name; exit 1 where there is none."""
    wanted, found = _wanted(filters), False
    for line in read_in_order(files):
        if (event := wanted.search(line)) is not None:
            found = True
            say(_show(event, as_json=as_json))
    sys.exit(Exit.GOOD if found else Exit.NO)


def _wanted(filters: dict[str, str | None]) -> Wanted:
    return Wanted(**{name: value or "" for name, value in filters.items()})


def _show(event: Event, *, as_json: bool) -> str:
    return to_json(event) if as_json else describe(event)
