"""What the commands of a relying party judge by: the options for it, and the trust, time and definitions they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from issuer.cli.receipts import public_keys
from issuer.cli.terminal import printable, say
from issuer.cli.times import read_time
from issuer.relying.documents import Documents, default_folder
from issuer.relying.seen import SeenLists, default_state
from issuer.relying.trusted import Trusted

A_FILE = click.Path(path_type=Path)
A_FOLDER = click.Path(path_type=Path, file_okay=False)


class Judging(Struct, frozen=True):
    """By what is judged, by the names of the options."""

    trust: Path | None
    issuer: str | None
    audience: str | None
    at: str | None
    received_now: bool
    receipts: Path | None
    benchmarks: Path | None
    cache: Path | None
    state: Path | None
    offline: bool

    @property
    def receipts_folder(self) -> Path | None:
        """Where receipts lie, to use or to keep."""
        return self.receipts


_OPTIONS = (
    click.option("--trust", type=A_FILE, metavar="FILE", help="The trust file to judge by."),
    click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust."),
    click.option("--audience", metavar="AUD", help="Without a trust file: who is asking, as tokens must name it."),
    click.option("--at", metavar="TIME", help="When it was received: ISO 8601 with an offset, or Unix seconds."),
    click.option("--received-now", is_flag=True, help="It is being received now: a token that has ended is a no."),
    click.option("--receipts", type=A_FOLDER, metavar="DIR", help="Use the receipts that are there, and write none."),
    click.option("--benchmarks", type=A_FOLDER, metavar="DIR", help="Definitions: DIR/OWNER/NAME/REVISION/eval.yaml."),
    click.option(
        "--offline", is_flag=True, help="Fetch nothing: use what was fetched before, however old; its age is said."
    ),
    click.option("--cache", type=A_FOLDER, metavar="DIR", help="Where fetched key sets are kept."),
    click.option(
        "--state", type=A_FOLDER, metavar="DIR", help="Where the newest revocation lists seen are remembered."
    ),
)


def judging_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `Judging` has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def received_at(options: Judging, now: int) -> int | None:
    """Return when the file was received; None for a reader, who cannot know. Raises click.UsageError."""
    if options.at is not None and options.received_now:
        raise click.UsageError("give --at TIME or --received-now, not both")
    if options.at is not None:
        return read_time(options.at, "--at")
    return now if options.received_now else None


def trusted_by(options: Judging, now: int) -> Trusted:
    """Read and fetch what is trusted, and warn of what is missing. Raises click.UsageError, InputError, SetupError."""
    state = options.state or default_state()
    seen = None if state is None else SeenLists(state)
    documents = Documents(options.cache or default_folder(), now, offline=options.offline)
    if options.trust is not None:
        if options.issuer or options.audience:
            raise click.UsageError("give --trust, or --issuer with --audience, not both")
        trusted = Trusted.by_file(options.trust, documents, seen)
    elif options.issuer and options.audience:
        keys = public_keys(options.receipts_folder)
        trusted = Trusted.in_issuer(options.issuer, options.audience, documents, seen, keys)
    else:
        raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")
    for issuer in trusted.trust.unlimited:
        rule = "may speak for every framework, as other issuers here may: name its `frameworks`"
        say(f"issuer: warning: {printable(issuer)} {rule}", err=True)
    for absence in trusted.trust.absent:
        say(f"issuer: warning: {absence.pointer} of the trust file: {printable(absence.reason)}", err=True)
    return trusted
