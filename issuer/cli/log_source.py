"""What the commands that read a log have in common: where it is, and by whose keys it is judged."""

from __future__ import annotations

from pathlib import Path

import click

from issuer.cli.terminal import printable
from issuer.formats.times import show_time
from issuer.relying.log_checkpoint import Head
from issuer.relying.log_files import LogFiles, open_log

_DATABASE = "postgresql://"


def open_source(source: str) -> LogFiles:
    """Return the files of a log: at a URL, in a folder, or in the database that a sequencer writes."""
    if source.startswith(_DATABASE) or Path(source).is_file():
        from issuer.service.log.stored_files import StoredFiles  # an operator's; nobody else has what it needs

        return StoredFiles(source)
    return open_log(source)


source_argument = click.argument("source", metavar="SOURCE")
policy_option = click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), required=True, metavar="FILE",
    help="The witness policy: logs, witnesses and their quorum (c2sp.org/tlog-policy).",
)  # fmt: skip


def describe_head(head: Head) -> str:
    """Say for people what a checkpoint is of, and what its witnesses show."""
    found = head.checkpoint
    witnessed = "no witness asked for" if head.time is None else f"witnessed {show_time(head.time)}"
    return f"{printable(found.origin)}: {found.size} leaves, root {found.root.hex()}, {witnessed}"
