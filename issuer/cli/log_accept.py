"""`issuer log accept`: go on with a log whose records are lost.

Exit codes (contract section 6): 0 accepted, 3 the settings file is malformed, 4 the audit cannot be written, 6 the log
is not what was named, a record knows better, or a record cannot be written.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from issuer.cli.log_settings import config_option, log_of
from issuer.cli.terminal import printable, say
from issuer.cli.who import who

_ROOT = re.compile(r"[0-9a-f]{64}")


def _root(_: click.Context, __: click.Parameter, text: str) -> bytes:
    if not _ROOT.fullmatch(text):
        raise click.BadParameter("64 lowercase hex digits, as the refused start says them")
    return bytes.fromhex(text)


def _reason(_: click.Context, __: click.Parameter, text: str) -> str:
    from issuer.service.bounds import MAX_REASON_CHARS

    if not text.strip() or len(text) > MAX_REASON_CHARS:
        raise click.BadParameter(f"say why, in 1 to {MAX_REASON_CHARS} characters")
    return text


@click.command("accept")
@click.option("--size", required=True, type=click.IntRange(0, 2**63 - 1), metavar="N", help="How many leaves it has.")
@click.option("--root", required=True, callback=_root, metavar="HEX", help="Its root, as the refused start says it.")
@click.option("--reason", required=True, callback=_reason, metavar="TEXT", help="Why; it is in the audit.")
@config_option
def accept_log(size: int, root: bytes, reason: str, config: Path | None) -> None:
    """Say that nobody has seen a later checkpoint of the log than this one, where no record is left to say it.

    If somebody has, the next leaf is a fork, which witnesses and monitors will show, for ever: ask them first. A record
    that knows more cannot be overruled. The audit has who did it and why, before any record says so.
    """
    from issuer.audit_events import LogAccepted
    from issuer.cli.operator_audit import tell
    from issuer.service.log.accept import accept
    from issuer.service.log_stream import configure_logging
    from issuer.service.read_settings import read_settings

    configure_logging()
    settings = read_settings(config)
    log = log_of(settings)
    event = LogAccepted(int(time.time()), log.origin, size, root.hex(), who(), reason)
    accept(log, size, root, lambda: tell(settings, event))
    say(f"accepted {printable(log.origin)}: {size} leaves, root {root.hex()}. The service can start.")
