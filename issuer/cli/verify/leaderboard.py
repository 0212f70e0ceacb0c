"""`issuer leaderboard build` and `issuer page export`: write a relying party's pages as files.

Exit codes of `build` (contract section 6); the first that applies counts: 2 usage, 6 local state, 3 an unreadable file,
1 a result does not verify (also: no token at all; an entry without a token under --require-token), 4 undecided, 0 all
good. After codes 3, 1 and 4 the files are written, too. An interrupted run writes no files.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from issuer.cli.exits import Exit, exit_for_summary, extra_of
from issuer.cli.options import A_FILE, A_FOLDER
from issuer.cli.render import say_wrapped
from issuer.cli.terminal import printable, say
from issuer.cli.verify.command import interruptible
from issuer.cli.verify.options import Judging, judging_options, received_at, trusted_by
from issuer.client.hub.pull_request import ENDPOINT
from issuer.io import files
from issuer.page.site import HEADERS, export
from issuer.relying.folders import BenchmarkFolder, ReceiptFolder
from issuer.relying.leaderboard.page import as_html
from issuer.relying.leaderboard.ranking import Direction, Leaderboard, RankOptions
from issuer.relying.leaderboard.sources import build_board
from issuer.relying.leaderboard.text_formats import as_csv, as_json, as_markdown, counts_of, left_out_of
from issuer.relying.trusted import read_trust
from issuer.relying.verifier import FileVerifier
from issuer.results.details import is_public_url
from issuer.verify import Context
from issuer.verify.report import TIERS
from issuer.verify.tiers import RANKS

if TYPE_CHECKING:
    from issuer.verify.summary import Summary

_RANKED = [tier for tier in TIERS if RANKS[tier] >= RANKS["self-reported"] and tier != "undecided"]


@click.group()
def leaderboard() -> None:
    """Rank results by their values, and show the evidence for each."""


@leaderboard.command()
@click.argument("path", type=A_FILE)
@click.option(
    "-o", "--out", required=True, type=A_FOLDER, metavar="OUT", help="The folder for the leaderboard's files."
)
@judging_options
@click.option(
    "--metric", "stated", multiple=True, metavar="ID=higher|lower",
    help="The direction of a metric without a definition. The metric of a single `value` is called 'not named'.",
)  # fmt: skip
@click.option("--every-metric", is_flag=True, help="Also make tables of metrics that are not primary.")
@click.option(
    "--best", is_flag=True, help="Use the best result of a model, not the newest. Rows show the number of results."
)
@click.option(
    "--rank-from", type=click.Choice(_RANKED), default="verified", show_default=True,
    help="The lowest tier that gets a rank.",
)  # fmt: skip
@click.option("--hub", envvar="HF_ENDPOINT", default=ENDPOINT, show_default=True, metavar="URL",
              help="The Hub, for links to the commits of models.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="The number of processes.")
@click.option("--require-token/--allow-unsigned", default=False, show_default=True,
              help="Whether an entry without a token is a no.")  # fmt: skip
def build(path: Path, out: Path, **given: Any) -> None:
    """Rank the results in DIR/OWNER/NAME/.eval_results/*.yaml by benchmark, task and metric.

    PATH is DIR or a FILE.parquet from `issuer verify DIR --to`. The command judges entries in DIR like `issuer verify`.
    OUT gets index.html, leaderboard.json, leaderboard.csv and LEADERBOARD.md.
    """
    sys.exit(_build(path, out, given, int(time.time())))


def _build(path: Path, out: Path, given: Mapping[str, Any], now: int) -> Exit:
    ranking = RankOptions(
        given["best"], given["every_metric"], given["rank_from"], dict(map(_read_direction, given["stated"]))
    )
    hub = given["hub"].rstrip("/")
    if not is_public_url(hub):
        raise click.BadParameter("give an http or https URL", param_hint="--hub")
    if not os.path.lexists(path):
        raise files.unreadable(path, "no such file or folder")
    judged = _of_table if path.suffix == ".parquet" and not path.is_dir() else _of_folder
    board, summary = judged(path, out, ranking, given, now)
    if summary.interrupted:
        say(f"issuer: interrupted: {printable(str(out))} is unchanged", err=True)
    else:
        for name, render in _FILES.items():
            files.replace(out / name, render(board, hub), mode=None, durable=False, follow=False)
        _show_counts(out, board, summary)
    return exit_for_summary(summary, require_token=given["require_token"])


def _of_folder(
    path: Path, out: Path, rank: RankOptions, given: Mapping[str, Any], now: int
) -> tuple[Leaderboard, Summary]:
    if not path.is_dir():
        raise click.UsageError("give a DIR of repositories, or a FILE.parquet from `issuer verify DIR --to`")
    names = Judging.__struct_fields__
    verifier = _verifier(msgspec.convert({name: given[name] for name in names}, Judging), now)
    files.make_folder(out, mode=0o777, follow=False)  # early, to fail before hours of work; it may be in a checkout
    with interruptible() as stopped:
        return build_board(path, verifier, rank, jobs=given["jobs"] or 0, stopped=stopped)


_ONLY_FOR_FOLDERS = ("issuer", "audience", "at", "received_now", "receipts", "cache", "state", "offline", "jobs")


def _of_table(
    path: Path, out: Path, rank: RankOptions, given: Mapping[str, Any], _now: int
) -> tuple[Leaderboard, Summary]:
    if useless := [name for name in _ONLY_FOR_FOLDERS if given[name]]:
        rule = "is for a DIR: the results in a table were judged when the table was made"
        raise click.UsageError(f"--{useless[0].replace('_', '-')} {rule}")
    with extra_of("table", "a table"):
        from issuer.relying.leaderboard.sources import build_board_of_table
    trust = None if given["trust"] is None else read_trust(given["trust"])
    benchmarks = {} if given["benchmarks"] is None else BenchmarkFolder(given["benchmarks"])
    board, summary = build_board_of_table(path, benchmarks, rank, trust)
    if trust is None:
        rule = "give --trust FILE to compare it with yours"
        say(f"issuer: the table was judged by the trust file {printable(board.basis.trust)}: {rule}", err=True)
    files.make_folder(out, mode=0o777, follow=False)
    return board, summary


def _verifier(options: Judging, now: int) -> FileVerifier:
    at = received_at(options, now)
    trusted = trusted_by(options, now, options.receipts)
    receipts = None if options.receipts is None else ReceiptFolder(options.receipts)
    benchmarks = {} if options.benchmarks is None else BenchmarkFolder(options.benchmarks)
    context = Context(now, witnessed=options.received_now, benchmarks=benchmarks, receipts=receipts or {})
    return FileVerifier(trusted.trust, at, context, receipts, renew=trusted.renew)


def _read_direction(text: str) -> tuple[str, Direction]:
    metric, _, way = text.rpartition("=")
    try:
        return metric, msgspec.convert(way if metric and way != "unknown" else "", Direction)
    except msgspec.ValidationError:
        raise click.BadParameter("give ID=higher or ID=lower, such as accuracy=higher", param_hint="--metric") from None


_FILES: dict[str, Callable[[Leaderboard, str], bytes]] = {
    "leaderboard.json": lambda board, _hub: as_json(board),
    "leaderboard.csv": lambda board, hub: as_csv(board, hub).encode(),
    "LEADERBOARD.md": lambda board, hub: as_markdown(board, hub).encode(),
    "index.html": lambda board, hub: as_html(board, hub).encode(),
}


def _show_counts(out: Path, board: Leaderboard, summary: Summary) -> None:
    rows = sum(len(table.rows) for table in board.tables)
    say(f"{printable(str(out))}: tables {len(board.tables):,}, rows {rows:,}, files judged {summary.files:,}")
    say(f"entries: {counts_of(board)}")
    ranked = sum(row.rank is not None for table in board.tables for row in table.rows)
    say(f"rows with a rank (tier {board.rank_from} or better): {ranked:,}")
    unordered = sum(table.subject.direction == "unknown" for table in board.tables)
    if unordered:
        rule = "give the direction of their metrics with --benchmarks DIR or --metric ID=higher"
        say(f"tables without ranks: {unordered:,}; {rule}")
    if left_out := left_out_of(board):
        say(f"not listed: {left_out}; `issuer verify DIR --to FILE.parquet` has all of it")
    if board.unread:
        say(f"unreadable: {len(board.unread):,} files or definitions, which the leaderboard lists with the reason")


_SERVE = (
    "Serve it over https: browsers check signatures (WebCrypto) only there. Old files in static/ may stay, because old "
    "pages that are still open need them. Send these headers, which a page cannot set itself:"
)


@click.group()
def page() -> None:
    """Write the pages for people as files."""


@page.command("export")
@click.argument("folder", metavar="DIR", type=A_FOLDER)
def export_page(folder: Path) -> None:
    """Write the page that verifies a result in a browser to DIR.

    Any host can serve it. It names no issuer, and loads no file from another host.
    """
    made = export()
    files.make_folder(folder, mode=0o777, follow=False)
    for name, body in made.items():
        path = folder / name
        files.make_folder(path.parent, mode=0o777, follow=False)
        files.replace(path, body, mode=None, durable=False, follow=False)
    say(f"{printable(str(folder))}: files {len(made)}, bytes {sum(map(len, made.values())):,}; open index.html")
    say_wrapped(_SERVE)
    for header, value in HEADERS.items():
        say(f"  {header}: {value}")
