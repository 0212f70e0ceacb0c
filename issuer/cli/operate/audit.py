"""`issuer audit verify|tail|find`: check, follow and search the service's audit files.

Exit codes (contract section 6): 0 good; 1 the lines differ from those that the service wrote, or no event matches; 2
usage; 3 a file is missing or malformed; 4 more files or heads are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import click

from issuer.audit.chain import BROKEN, UNDECIDED, ChainFinding, ChainHead, Chains, Kind, TooMany, read_heads
from issuer.audit.events import Event, SignalName, Verdict
from issuer.audit.reader import Wanted, describe, follow, read_in_order, read_lines
from issuer.cli.exits import Exit
from issuer.cli.options import A_FILE, all_of, json_lines_option
from issuer.cli.terminal import say, to_json
from issuer.codes import Code
from issuer.errors import InputError, Place

_MAX_SHOWN = 100  # findings of each kind; the counts include all
_files = click.argument("files", nargs=-1, required=True, type=A_FILE, metavar="FILE...")


@click.group()
def audit() -> None:
    """Verify, follow and search audit files."""


@audit.command()
@_files
@click.option("--heads", type=A_FILE, metavar="FILE",
              help="The log stream, or earlier output of --json: heads of chains to compare with.")  # fmt: skip
@json_lines_option
def verify(files: tuple[Path, ...], heads: Path | None, as_json: bool) -> None:
    """Check that no line of the audit FILEs, with the rotated ones, was changed, removed, added or moved.

    Without the heads in the service's log stream, the command cannot detect that the last lines were removed, or that
    all lines were replaced. If a chain begins in a file that you did not give, the command checks the rest of the chain
    and ends with exit code 4.
    """
    counts: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    try:
        chains = Chains(read_heads(read_lines(heads)) if heads else {})
        for finding in _findings(chains, files):
            counts[finding.kind] += 1
            if counts[finding.kind] <= _MAX_SHOWN:
                say(to_json(finding) if as_json else _describe(finding))
    except TooMany:
        rule = "the files have more chains or heads than one run can check: give fewer files"
        raise InputError(Code.FILE_TOO_LARGE, rule, Place(str(files[0]))) from None
    if not chains.linked:
        raise InputError(Code.FILE_RULE, "no line is an event of a chain", Place(str(files[0])))
    for worker, chain in chains.chains.items():
        head = ChainHead(worker, chain.seq, chain.head)
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
    worker = f" (worker {finding.worker})" if finding.worker else ""
    return f"{where}: {finding.kind}: {finding.detail}{worker}"


def _conclude(chains: Chains, counts: dict[Kind, int], has_heads: bool) -> str:
    findings = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    events = f"{chains.linked} events of {len(chains.chains)} workers"
    if _exit_for(counts) is Exit.NO:
        return f"not as it was written: {events}; {findings}"
    if _exit_for(counts) is Exit.UNDECIDED:
        return f"undecided: {events}; {findings}. Give the earlier files, or the heads"
    limit = "" if has_heads else ". Without --heads, removed lines at the end cannot be detected"
    return f"good: {events}{'; ' + findings if findings else ''}{limit}"


def _exit_for(counts: dict[Kind, int]) -> Exit:
    if any(counts[kind] for kind in BROKEN):
        return Exit.NO
    return Exit.UNDECIDED if any(counts[kind] for kind in UNDECIDED) else Exit.GOOD


_filters = all_of(
    click.option("--integration", default="", metavar="ID", help="Events of this integration."),
    click.option("--identity", default="", metavar="[INTEGRATION/]ID", help="Events of this identity."),
    click.option("--code", default="", metavar="CODE", help="Refusals with this code."),
    click.option("--verdict", type=click.Choice(get_args(Verdict)), default=None),
    click.option("--signal", type=click.Choice(get_args(SignalName)), default=None, help="Signals of abuse."),
)


@audit.command()
@click.argument("file", type=A_FILE)
@_filters
@click.option("--lines", "-n", default=10, show_default=True, type=click.IntRange(0, 10_000),
              help="How many old lines to read first; the filters apply to them.")  # fmt: skip
@json_lines_option
def tail(file: Path, lines: int, as_json: bool, **filters: str | None) -> None:
    """Follow the audit FILE, also across rotations, until interrupted."""
    wanted = _wanted(filters)
    for line in follow(file, lines):
        if (event := wanted.search(line)) is not None:
            say(_show(event, as_json=as_json))


@audit.command()
@_files
@click.option("--jti", default="", metavar="ID", help="The event of this token.")
@click.option("--content", default="", metavar="DIGEST", help="Events of tokens with this content_digest.")
@click.option("--claims", default="", metavar="DIGEST", help="Events of tokens with this claims_digest.")
@click.option("--request", default="", metavar="ID", help="Events of the request with this request_id.")
@_filters
@json_lines_option
def find(files: tuple[Path, ...], as_json: bool, **filters: str | None) -> None:
    """Print the events in the audit FILEs that match all options. Exit code 1 if no event matches."""
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
