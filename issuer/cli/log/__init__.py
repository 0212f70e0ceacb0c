"""`issuer log verify`, `monitor`, `proof` and `export`, for readers of a transparency log; and `issuer witness`.

Exit codes (contract section 6): 0 good or done; 1 the log contradicts its checkpoint, an alarm, or no such leaf; 3 the
policy, the state, the file or the log is missing or malformed; 4 the log cannot be read now, or its checkpoint has no
quorum yet; 6 the state or the folder cannot be written.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from issuer.cli.exits import Exit
from issuer.cli.log.operator import accept_log, init_log, open_files, restore_log
from issuer.cli.options import A_FILE, A_FOLDER, json_option
from issuer.cli.terminal import BLANK, is_watched, printable, say, say_document, to_json
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Refused, Undecided
from issuer.formats import strict_yaml
from issuer.formats.times import show_time
from issuer.io import files
from issuer.relying.logs.monitor import Monitor, MonitorOptions, OwnTokens
from issuer.relying.logs.proof import ProofQuery, find_proof, sought_of
from issuer.relying.logs.reader import TimedCheckpoint, Tree, read_head, read_unverified_head, read_witness_policy
from issuer.relying.logs.reader import export as export_tree
from issuer.results.entry import read_entries
from issuer.tlog.leaf import LeafCounts
from issuer.tlog.watch import MAX_UNMATCHED, Alarm
from issuer.verify.check_log import sidecar_name


@click.group()
def log() -> None:
    """Verify, follow, copy and prove a transparency log; start and repair your own."""


for command in (init_log, accept_log, restore_log):
    log.add_command(command)


source_argument = click.argument("source", metavar="SOURCE")
policy_option = click.option(
    "--policy", "policy_file", type=A_FILE, required=True, metavar="FILE",
    help="The witness policy: logs, witnesses and their quorum (c2sp.org/tlog-policy).",
)  # fmt: skip


def describe_head(head: TimedCheckpoint) -> str:
    """Describe a checkpoint for people: origin, size, root, and the time that its witnesses prove."""
    checkpoint = head.checkpoint
    witnessed = "no witness required" if head.time is None else f"witnessed {show_time(head.time)}"
    return f"{printable(checkpoint.origin)}: {checkpoint.size} leaves, root {checkpoint.root.hex()}, {witnessed}"


@log.command()
@source_argument
@policy_option
@json_option
def verify(source: str, policy_file: Path, as_json: bool) -> None:
    """Rebuild the whole tree of the log at SOURCE, a URL or a folder, from its leaves to the signed root.

    The command stops at the first file that the root does not cover, and shows its index. It parses every leaf by the
    grammar of its kind, counts the malformed leaves and shows the first. It lists unknown kinds by name, because a
    later version may have added them.
    """
    policy = read_witness_policy(policy_file)
    log = open_files(source)
    head = read_head(log, policy, int(time.time()))
    counts = LeafCounts()
    for index, raw in Tree(log, head.checkpoint).leaves():
        counts.add(index, raw)
    if as_json:
        say_document(_document(head, counts))
    else:
        _show(head, counts)
    sys.exit(Exit.NO if counts.malformed else Exit.GOOD)


def _document(head: TimedCheckpoint, counts: LeafCounts) -> dict[str, object]:
    checkpoint = head.checkpoint
    return {
        "version": 1, "origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex(),
        "witnessed": head.time, "kinds": counts.kinds, "unknown": counts.unknown, "malformed": counts.malformed,
        "first_defect": counts.first_defect,
    }  # fmt: skip


def _show(head: TimedCheckpoint, counts: LeafCounts) -> None:
    say(describe_head(head))
    for name, count in sorted(counts.kinds.items()):
        say(f"  {count:>9}  {name}")
    for name, count in sorted(counts.unknown.items()):
        say(f"  {count:>9}  {printable(name)} (not known here)")
    if counts.malformed:
        say(f"not good: {counts.malformed} malformed leaves. The first is {printable(counts.first_defect)}")
    else:
        say("good: the leaves lead to the signed root")


@log.command()
@source_argument
@policy_option
@click.option("--state", type=A_FILE, required=True, metavar="FILE",
              help="The monitor's state. Keep it: without it, the monitor misses earlier forks.")  # fmt: skip
@click.option("--integration", default="", metavar="ID", help="Report this integration's tokens and policies.")
@click.option("--tokens", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
              help="The tokens that the integration has: *.yaml and *.jwt.")  # fmt: skip
@click.option("--max-unmatched", default=0, show_default=True, type=click.IntRange(0, MAX_UNMATCHED), metavar="N",
              help="How many leaves of the integration may lack a token in DIR. Crashes cause some.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once (the default).")
@click.option("--every", type=click.IntRange(1, 86_400), metavar="S", help="Look every S seconds, until an alarm.")
def monitor(
    source: str, policy_file: Path, state: Path, integration: str, tokens: Path | None, max_unmatched: int, once: bool,
    every: int | None,
) -> None:  # fmt: skip
    """Follow the log at SOURCE, a URL or a folder, from the end of the last look, and print JSON lines.

    Each line has one of `seen` (key, token, policy, unknown; checkpoint ends a look), `alarm` and `undecided`. The
    first look with an alarm ends the command with exit code 1. The next run continues after it.
    """
    if tokens is not None and not integration:
        raise click.UsageError("--tokens needs --integration: say which integration has these tokens")
    if once and every is not None:
        raise click.UsageError("give --once or --every S, not both")
    options = MonitorOptions(integration, None if tokens is None else OwnTokens(tokens), max_unmatched)
    follower = Monitor(open_files(source), read_witness_policy(policy_file), state, options)
    while True:
        if _look(follower, patient=every is not None):
            sys.exit(Exit.NO)
        if every is None:
            return
        time.sleep(every)


def _look(follower: Monitor, *, patient: bool) -> bool:
    """Print the lines of one look and return whether there was an alarm. `patient`: continue if it is undecided."""
    alarmed = False
    try:
        for line in follower.look(int(time.time())):
            alarmed |= isinstance(line, Alarm)
            say(to_json(line))  # flushes each line before the monitor records it in its state
    except Undecided as error:
        if not patient:
            raise
        say(to_json({"undecided": error.detail}))
    return alarmed


_TOKEN = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"0|[1-9][0-9]{0,3}")


@log.command()
@source_argument
@policy_option
@click.option("--for", "entry", metavar="FILE#ENTRY", help="The token of this entry (from 0) of a result file.")
@click.option("--iat", type=click.IntRange(0, 10**11), metavar="N", help="With --token: the token's iat.")
@click.option("--token", metavar="HEX", help="The token's digest, as in its leaf: 64 hex digits.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The file for the proof. Default with --for: beside FILE.")  # fmt: skip
def proof(
    source: str, policy_file: Path, entry: str | None, iat: int | None, token: str | None, out: Path | None
) -> None:
    """Get a token's inclusion proof from the log at SOURCE, a URL or a folder, verify it, and write it.

    The proof uses the first cosigned checkpoint that covers the leaf, which shows the earliest time at which the token
    existed. A folder has one checkpoint, and the proof uses that.
    """
    query, beside = _query(entry, iat, token)
    target = out or beside
    if target is not None:
        files.demand_replaceable(target, follow=False)
    found = find_proof(open_files(source), read_witness_policy(policy_file), query, int(time.time()))
    if found is None:
        say("no: the log has no leaf of this token", err=True)
        sys.exit(Exit.NO)
    if target is None:
        say(found.text.decode(), end="")
    else:
        files.replace(target, found.text, mode=0o644, durable=True, follow=False)
        say(f"leaf {found.index} of {describe_head(found.head)}", err=True)


def _query(entry: str | None, iat: int | None, token: str | None) -> tuple[ProofQuery, Path | None]:
    """Return the query for a token, and for an entry also the path of its proof."""
    if (entry is None) == (iat is None and token is None) or (iat is None) != (token is None):
        raise click.UsageError("give --for FILE#ENTRY, or --iat N with --token HEX")
    if entry is not None:
        return _of_entry(entry)
    if not _TOKEN.fullmatch(str(token)):
        rule = "give 64 lowercase hex digits: SHA-256 of the token's signing input"
        raise click.BadParameter(rule, param_hint="--token")
    return ProofQuery(int(iat or 0), bytes.fromhex(str(token))), None


def _of_entry(text: str) -> tuple[ProofQuery, Path]:
    name, _, number = text.rpartition("#")
    if not name or not _ENTRY.fullmatch(number):
        raise click.BadParameter("give FILE#ENTRY, with the number of the entry, from 0", param_hint="--for")
    entries = read_entries(files.read(Path(name), strict_yaml.MAX_BYTES), name)
    if int(number) >= len(entries) or not (token := entries[int(number)].token):
        raise InputError(Code.RESULT_TOKEN, f"entry {number} does not exist, or has no token", Place(name))
    try:
        query = sought_of(token)
    except (FormatError, Refused) as error:
        raise InputError(Code.RESULT_TOKEN, error.detail, Place(name), f"/{number}") from None
    return query, Path(sidecar_name(name, query.token))


_TICK_FILES = 64


@log.command()
@click.argument("folder", metavar="DIR", type=A_FOLDER)
@click.option(
    "--from", "source", required=True, metavar="SOURCE", help="The log: a URL, a folder of files, or its database."
)
@click.option("--policy", "policy_file", type=A_FILE, metavar="FILE",
              help="Require a checkpoint that this witness policy accepts.")  # fmt: skip
def export(folder: Path, source: str, policy_file: Path | None) -> None:
    """Write the tree of a log to DIR, tiles first and the checkpoint last. A new run continues an interrupted one.

    The command checks every file against the root before it writes it. The new tree must extend the old one. Any static
    web server can serve DIR, and every command that reads a log accepts DIR.
    """
    log = open_files(source)
    if policy_file is None:
        say("issuer: without --policy, this export does not check the log's signatures", err=True)
        head = read_unverified_head(log)
    else:
        head = read_head(log, read_witness_policy(policy_file), int(time.time()))
    shown = is_watched()
    before = export_tree(log, head, folder, _tick if shown else lambda _: None)
    if shown:
        say(BLANK, err=True, end="")
    say(describe_head(head))
    say(f"{head.checkpoint.size - before} new leaves")


def _tick(done: int) -> None:
    if done % _TICK_FILES == 0:
        say(BLANK, f"{done:,} files", err=True, end="")


_dir = click.option("--dir", "folder", type=A_FILE, required=True, help="The witness's folder, with its key and state.")


@click.group()
def witness() -> None:
    """Make and run a witness of transparency logs (c2sp.org/tlog-witness)."""


@witness.command("init")
@_dir
@click.option("--name", required=True, metavar="HOST/NAME", help="Its name: a URL without scheme, such as w.example/1.")
def init_witness(folder: Path, name: str) -> None:
    """Make a witness with a new key, and print its vkey.

    Never lose its state, and never restore an older one: a witness that has forgotten checkpoints cosigns forks. If the
    state is lost, make another witness with another name.
    """
    from issuer.witness.server import init

    try:
        vkey = init(folder, name)
    except FormatError as error:
        raise click.BadParameter(error.detail, param_hint="--name") from None
    say(printable(vkey))
    line = f"witness {name} {vkey} https://HOST/PREFIX"
    say(f"Add this line to the policies of logs: `{printable(line)}`.", err=True)


@witness.command("serve")
@_dir
@click.option("--logs", type=A_FILE, required=True, help="A policy file (c2sp.org/tlog-policy): its `log` lines.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port.")
@click.option("--trusted-proxies", default="", help="Proxies with a trusted X-Forwarded-For, separated by commas.")
def serve_witness(folder: Path, logs: Path, host: str, port: int, trusted_proxies: str) -> None:
    """Witness logs until SIGTERM: POST /add-checkpoint, GET /<origin hash>/checkpoint."""
    from issuer.witness.server import serve

    serve(folder, logs, host, port, trusted_proxies)
