"""`issuer log restore`: bring back the leaves that a log's database has lost.

Exit codes (contract section 6): 0 restored, and the service can start; 1 the source is not what it says; 3 there is no
such source, or it is not a log; 4 it cannot be read now, or no record confirms that this was all; 6 anything is
refused, or cannot be written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.cli.exits import Exit
from issuer.cli.log_settings import config_option, log_of
from issuer.cli.terminal import printable, say

if TYPE_CHECKING:
    from issuer.service.log.restore import Restored


@click.command("restore")
@click.argument("source", metavar="SOURCE")
@config_option
def restore_log(source: str, config: Path | None) -> None:
    """Append the leaves that the log's database lacks, from SOURCE: a URL, a folder of files, or a database.

    A mirror, an export, the database of before: nobody has to believe it. What is appended is exactly what was
    published, by the largest checkpoint that this log signed and that a record or SOURCE shows, and each part is
    compared with that before it is written. Run it again after an interruption: it goes on. Stop the service first.
    """
    from issuer.cli.log_restoring import open_source
    from issuer.service.log.restore import restore
    from issuer.service.log_stream import configure_logging
    from issuer.service.read_settings import read_settings

    configure_logging()
    log = log_of(read_settings(config))
    done = restore(log, open_source(source))
    say(_describe(done))
    if not done.is_recorded:
        say(_UNRECORDED.format(size=done.head.size, root=done.head.root.hex()), err=True)
        sys.exit(Exit.UNDECIDED)


def _describe(done: Restored) -> str:
    head = done.head
    added = f"{head.size - done.before} leaves were missing" if head.size > done.before else "nothing was missing"
    by = f"as {done.by} shows"
    return printable(f"{head.origin}: {added}, {by}. Now it has {head.size}, root {head.root.hex()}")


_UNRECORDED = (
    "No record says that this was all. Make sure that nobody has seen a later checkpoint (ask witnesses and monitors), "
    "and run `issuer log accept --size {size} --root {root} --reason WHY`"
)
