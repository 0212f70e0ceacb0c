"""`issuer log export`: a log as files in a folder.

Exit codes (contract section 6): 0 done, 1 the log is not what its checkpoint says, or not the one that the folder has a
part of, 3 no log is there, 4 it cannot be had, 6 the folder cannot be written.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from issuer.cli.log_source import describe_head, open_source
from issuer.cli.terminal import Painted, is_watched, say
from issuer.relying.log_checkpoint import read_head, read_unverified_head, read_witness_policy
from issuer.relying.log_export import export as bring

_BLANK = Painted("\r\x1b[K")  # takes the line away
_EACH = 64


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--from", "source", required=True, metavar="SOURCE", help="The log: a URL, a folder of files, or its database."
)
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Take only a checkpoint that this witness policy accepts.")  # fmt: skip
def export(folder: Path, source: str, policy_file: Path | None) -> None:
    """Write the tree of a log to DIR: tiles first, the checkpoint last. Goes on from where it stopped.

    Every file is checked against the root before it is written, and the new tree has to have the old one as its
    beginning. Any static web server can show DIR, and every command that reads a log.
    """
    log = open_source(source)
    if policy_file is None:
        say("issuer: without --policy, nobody has checked whose log it is", err=True)
        head = read_unverified_head(log)
    else:
        head = read_head(log, read_witness_policy(policy_file), int(time.time()))
    shown = is_watched()
    before = bring(log, head, folder, _tick if shown else lambda _: None)
    if shown:
        say(_BLANK, err=True, end="")
    say(describe_head(head))
    say(f"{head.checkpoint.size - before} leaves more than before")


def _tick(done: int) -> None:
    if done % _EACH == 0:
        say(_BLANK, f"{done:,} files", err=True, end="")
