"""`issuer log monitor`: follow a log from outside, and raise the alarm.

Exit codes (contract section 6): 0 nothing wrong, 1 an alarm, 3 the policy or the state is missing or malformed, or no
log is there, 4 the log cannot be had, or its checkpoint has no quorum yet, 6 the state cannot be written.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from issuer.cli.exits import Exit
from issuer.cli.log_source import open_source, policy_option, source_argument
from issuer.cli.terminal import say, to_json
from issuer.errors import Undecided
from issuer.relying.log_checkpoint import read_witness_policy
from issuer.relying.log_monitor import Monitor, Wanted
from issuer.relying.log_tokens import OwnTokens
from issuer.tlog.watch import MAX_UNMATCHED, Alarm


@click.command()
@source_argument
@policy_option
@click.option("--state", type=click.Path(path_type=Path), required=True, metavar="FILE",
              help="What has been verified so far. Keep it: without it a fork before now stays unseen.")  # fmt: skip
@click.option("--integration", default="", metavar="ID", help="Tell this integration's tokens and policies.")
@click.option("--tokens", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="The tokens that the integration has: *.yaml and *.jwt.")  # fmt: skip
@click.option("--max-unmatched", default=0, show_default=True, type=click.IntRange(0, MAX_UNMATCHED), metavar="N",
              help="How many of its leaves may have no token there: a crash leaves some.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once. This is the default.")
@click.option("--every", type=click.IntRange(1, 86_400), metavar="S", help="Look every S seconds, until an alarm.")
def monitor(
    source: str,
    policy_file: Path,
    state: Path,
    integration: str,
    tokens: Path | None,
    max_unmatched: int,
    once: bool,
    every: int | None,
) -> None:
    """Follow the log at SOURCE, a URL or a folder, from where the last look ended, and print JSON lines.

    Each line has one of `seen` (key, token, policy, unknown; checkpoint ends a look), `alarm` and `undecided`. The
    first look with an alarm ends the command, with exit code 1; the next run goes on behind it.
    """
    if tokens is not None and not integration:
        raise click.UsageError("--tokens are those of an --integration: say of which")
    if once and every is not None:
        raise click.UsageError("give --once or --every S, not both")
    wanted = Wanted(integration, None if tokens is None else OwnTokens(tokens), max_unmatched)
    watching = Monitor(open_source(source), read_witness_policy(policy_file), state, wanted)
    while True:
        if _look(watching, patient=every is not None):
            sys.exit(Exit.NO)
        if every is None:
            return
        time.sleep(every)


def _look(watching: Monitor, *, patient: bool) -> bool:
    """Print the lines of one look; say whether there was an alarm. `patient` goes on where nothing is to be had."""
    alarmed = False
    try:
        for line in watching.look(int(time.time())):
            alarmed |= isinstance(line, Alarm)
            say(to_json(line))  # flushed, line by line, before the state says that it has been seen
    except Undecided as error:
        if not patient:
            raise
        say(to_json({"undecided": error.detail}))
    return alarmed
