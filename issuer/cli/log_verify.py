"""`issuer log verify`: rebuild a log's whole tree from its entries.

Exit codes (contract section 6): 0 good, 1 the log is not what its checkpoint says, or a leaf is malformed, 3 the policy
is missing or malformed, or no log is there, 4 the log cannot be read now, or its checkpoint has no quorum yet.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from issuer.cli.exits import Exit
from issuer.cli.log_source import describe_head, open_source, policy_option, source_argument
from issuer.cli.terminal import printable, say, say_document
from issuer.relying.log_checkpoint import Head, read_head, read_witness_policy
from issuer.relying.log_tree import Tree
from issuer.tlog.counts import Counts

REPORT_VERSION = 1


@click.command()
@source_argument
@policy_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(source: str, policy_file: Path, as_json: bool) -> None:
    """Rebuild the whole tree of the log at SOURCE, a URL or a folder, from its entries to the signed root.

    A file that is not under that root ends it, with its index. Every leaf is read by the grammar of its kind; those
    that break it are counted, and the first is shown. Kinds that are not known here are listed by name: a later version
    may have added them.
    """
    policy = read_witness_policy(policy_file)
    log = open_source(source)
    head = read_head(log, policy, int(time.time()))
    counts = Counts()
    for index, raw in Tree(log, head.checkpoint).leaves():
        counts.add(index, raw)
    if as_json:
        say_document(_document(head, counts))
    else:
        _show(head, counts)
    sys.exit(Exit.NO if counts.malformed else Exit.GOOD)


def _document(head: Head, counts: Counts) -> dict[str, object]:
    found = head.checkpoint
    return {
        "version": REPORT_VERSION, "origin": found.origin, "size": found.size, "root": found.root.hex(),
        "witnessed": head.time, "kinds": counts.kinds, "unknown": counts.unknown, "malformed": counts.malformed,
        "first_defect": counts.first_defect,
    }  # fmt: skip


def _show(head: Head, counts: Counts) -> None:
    say(describe_head(head))
    for name, count in sorted(counts.kinds.items()):
        say(f"  {count:>9}  {name}")
    for name, count in sorted(counts.unknown.items()):
        say(f"  {count:>9}  {printable(name)} (not known here)")
    if counts.malformed:
        say(f"not good: {counts.malformed} malformed leaves. The first is {printable(counts.first_defect)}")
    else:
        say("good: the entries make the root that is signed")
