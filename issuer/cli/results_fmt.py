"""`issuer results fmt`: rewrite result files canonically."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from issuer.cli.exits import Exit
from issuer.cli.result_files import (
    benchmark_for,
    benchmark_option,
    find_result_files,
    paths_argument,
    read_bytes,
)
from issuer.cli.terminal import printable, say
from issuer.client.files import write_text
from issuer.codes import Code
from issuer.errors import InputError
from issuer.results import edit
from issuer.results.entry import PROFILES, Profile, open_results


@click.command()
@paths_argument
@click.option("--check", is_flag=True, help="Write nothing; say which files would change, and exit with 1.")
@click.option("--profile", type=click.Choice(PROFILES), help="Write entries in this profile, not their own shape.")
@benchmark_option
@click.option("--drop-comments", is_flag=True, help="Rewrite files with comments, too; they are lost.")
def fmt(
    paths: tuple[Path, ...], check: bool, profile: Profile | None, benchmark_path: Path | None, drop_comments: bool
) -> None:
    """Rewrite result files canonically: members in order, text in double quotes, numbers as every reader reads them.

    What entries say stays the same, and so do their digests, except under `--profile hub`, which has no token and no
    metrics. All files are read before one is written.
    """
    benchmark = benchmark_for(benchmark_path, profile)
    primary = benchmark.primary if benchmark else None
    changed: dict[Path, str] = {}
    for file in find_result_files(paths):
        after = _rewrite(file, profile, primary, drop_comments=drop_comments)
        if after.encode() != read_bytes(file):
            changed[file] = after
    for file, after in changed.items():
        if not check:
            write_text(file, after)
        say(f"{printable(str(file))}: {'would be' if check else 'is'} rewritten")
    sys.exit(Exit.NO if check and changed else Exit.GOOD)


def _rewrite(file: Path, profile: Profile | None, primary: str | None, *, drop_comments: bool) -> str:
    raw, name = read_bytes(file), str(file)
    document = open_results(raw, name)
    text = raw.decode()
    if not drop_comments and (place := document.first_comment(text)):
        rule = "a comment, which rewriting would lose: edit by hand, or give --drop-comments"
        raise InputError(Code.FILE_RULE, rule, place)
    return edit.rewrite(text, name, profile=profile, primary=primary)
