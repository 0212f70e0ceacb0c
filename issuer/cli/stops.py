"""`issuer stop`, `issuer resume` and `issuer stops`: emergency stops, written into the policies' `stops.yaml`.

They need the folder of policies and nothing else: no store, no key, no data, and no policy that loads. Where that
folder cannot be written, they say which way is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import rich_click as click
from msgspec import UNSET

from issuer import files
from issuer.cli.exits import Exit
from issuer.cli.terminal import describe_error, printable, render_table, say, say_document
from issuer.cli.times import read_time
from issuer.errors import InputError, IssuerError, SetupError
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.formats.times import show_time
from issuer.http_client import HttpRequest, check_url, send
from issuer.policy.authoring.stops import STOPS_FILE, add_stop, read_stops, remove_stops
from issuer.policy.stops import WHAT_RULE, Stop, is_what
from issuer.service.settings import Settings, read_settings
from issuer.wire import STOPS_PATH, StopsStatus

_ASK_S = 2.0
_PAUSE_S = 0.2
_OTHERWISE = (
    "Without the file: `kill -USR1 PID` of the service (the parent, where there are workers) stops everything at once, "
    "in memory; `kill -USR2 PID` lifts that."
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add how a command finds the file, and the processes that must have it."""
    for add in (
        click.option("--config", type=click.Path(path_type=Path), help="The service's file of settings; as `serve`."),
        click.option("--dir", "folder", type=click.Path(path_type=Path), help="The policies, if not by the settings."),
        click.option("--wait", is_flag=True, help="Return when each worker has it."),
        click.option(
            "--patience", type=click.FloatRange(0), default=15, show_default=True, metavar="S", help="Wait no longer."
        ),
        click.option("--url", "urls", multiple=True, metavar="URL", help="Ask this host; may be given again."),
    ):
        command = add(command)
    return command


def _what(_: click.Context, __: click.Parameter, text: str) -> str:
    if not is_what(text):
        raise click.BadParameter(WHAT_RULE)
    return text


# -- writing ----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("what", callback=_what)
@click.option("--reason", required=True, metavar="TEXT", help="Why; for the operators. No caller sees it.")
@click.option("--until", metavar="TIME", help="Its end, as 2026-11-21T09:00:00Z. Default: until it is lifted.")
@_options
def stop(
    what: str,
    reason: str,
    until: str | None,
    config: Path | None,
    folder: Path | None,
    wait: bool,
    patience: float,
    urls: tuple[str, ...],
) -> None:
    """Stop WHAT from getting tokens: everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or
    identity:INTEGRATION/ID.

    Every worker takes it within two seconds, also while policies, keys, audit or store are broken.
    """
    now = int(time.time())
    end = read_time(until, "--until") if until else None
    if end is not None and end <= now:
        raise click.BadParameter("it has passed", param_hint="--until")
    asked = _places(config, folder, urls, wait=wait)
    file = _folder(config, folder) / STOPS_FILE
    one = msgspec.convert(
        {"what": what, "reason": reason, "since": show_time(now)} | ({"until": show_time(end)} if end else {}), Stop
    )
    _edit(file, lambda raw: add_stop(raw, str(file), one))
    say(f"{what} is stopped{f' until {show_time(end)}' if end else ''}: {file}")
    _warn_of_strangers(file.parent, what)
    _settle(file, asked, patience)


@click.command()
@click.argument("what", callback=_what)
@_options
def resume(
    what: str, config: Path | None, folder: Path | None, wait: bool, urls: tuple[str, ...], patience: float
) -> None:
    """Lift every stop of WHAT. Exit code 1 where there is none."""
    asked = _places(config, folder, urls, wait=wait)
    file = _folder(config, folder) / STOPS_FILE
    if not _edit(file, lambda raw: None if raw is None else remove_stops(raw, str(file), what)):
        say(f"{what} is not stopped in {file}")
        sys.exit(Exit.NO)
    say(f"{what} is resumed: {file}")
    _settle(file, asked, patience)


def _read(file: Path) -> bytes | None:
    return files.read(file, MAX_BYTES) if file.exists() else None


def _edit(file: Path, edit: Callable[[bytes | None], bytes | None]) -> bool:
    """Edit the file and return whether there was anything to do. Where that is not possible, say what else is."""
    try:
        raw = edit(_read(file))
        if raw is not None:
            files.replace(file, raw, mode=None, durable=True)
    except (OSError, IssuerError) as error:
        why = describe_error(error) if isinstance(error, IssuerError) else f"{file}: {error.strerror}"
        say(f"issuer: {why}\nNothing has changed. {_OTHERWISE}", err=True)
        sys.exit(Exit.LOCAL if isinstance(error, OSError) else Exit.INPUT)
    return raw is not None


def _folder(config: Path | None, folder: Path | None) -> Path:
    """Return the folder that the service reads. Raises SetupError and InputError."""
    return folder or _settings(config).policies_folder


def _settings(config: Path | None) -> Settings:
    try:
        return read_settings(config)
    except SetupError as error:
        raise SetupError(error.code, f"{error.detail}; or give --dir, the policies, and --url to wait") from None


def _warn_of_strangers(folder: Path, what: str) -> None:
    """Warn of an integration without a file: a stop of nobody is easily taken for one of somebody."""
    kind, _, name = what.partition(":")
    integration = name.partition("/")[0]
    if kind in {"integration", "identity"} and not (folder / f"{integration}.yaml").exists():
        say(f"warning: there is no {integration}.yaml in {folder}; is the name right?", err=True)


# -- waiting ----------------------------------------------------------------------------------------------------------


def _places(config: Path | None, folder: Path | None, urls: tuple[str, ...], *, wait: bool) -> tuple[str, ...]:
    """Return the URLs to ask: this host's by its settings, unless others are given."""
    if urls or not wait:
        return tuple(check_url(url) for url in urls)
    if folder is not None and config is None:
        raise click.UsageError("--wait with --dir needs --url, or --config in place of --dir")
    settings = _settings(config)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 (to ask, not to listen)
    return (check_url(f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"),)


def _settle(file: Path, urls: tuple[str, ...], patience_s: float) -> None:
    """Wait until each worker of each host has what the file says. Exit code 4 where one has not."""
    if not urls:
        return
    stops, _ = read_stops(files.read(file, MAX_BYTES), str(file))
    until, late = time.monotonic() + patience_s, dict.fromkeys(urls, "")
    while late and time.monotonic() < until:
        late = {url: why for url in late if (why := _late(url, stops.digest))}
        time.sleep(_PAUSE_S if late else 0)
    for url in urls:
        say(f"{url}: {late.get(url) or 'each worker has it'}", err=url in late)
    if late:
        say(_OTHERWISE, err=True)
        sys.exit(Exit.UNDECIDED)


def _late(url: str, digest: str) -> str:
    """Say why a host does not have these stops yet, "" where each of its workers has."""
    try:
        answer = send(HttpRequest("GET", f"{url}{STOPS_PATH}"), deadline_s=_ASK_S)
        status = msgspec.json.decode(answer.body, type=StopsStatus)
    except (IssuerError, msgspec.MsgspecError) as error:
        return f"no answer: {error}"
    if status.digest != digest:
        return "a worker has other stops in force"
    if status.agreeing < status.workers:
        return f"{status.agreeing} of {status.workers} workers have it"
    return ""


# -- showing ----------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="The service's file of settings; as `serve`.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The policies, if not by the settings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stops(config: Path | None, folder: Path | None, as_json: bool) -> None:
    """List the stops. Exit code 3 where one of them is malformed: the service goes on with what it had."""
    file, now = _folder(config, folder) / STOPS_FILE, int(time.time())
    raw = _read(file)
    found, errors = ((), ()) if raw is None else ((read := read_stops(raw, str(file)))[0].all, read[1])
    rows = [_row(one, now) for one in found]
    if as_json:
        say_document({"version": 1, "stops": rows})
    elif rows:
        table = [[name.upper() for name in rows[0]], *([str(cell or "") for cell in row.values()] for row in rows)]
        say(render_table(table))
    else:
        say(f"{file} stops nothing", err=True)
    for one in errors:
        say(f"issuer: {describe_error(InputError(one.code, one.detail, one.place, one.pointer))}", err=True)
    sys.exit(Exit.INPUT if errors else Exit.GOOD)


def _row(one: Stop, now: int) -> dict[str, str | None]:
    """Describe a stop as JSON does: null where it has no end."""
    until = None if one.until is UNSET else one.until
    state = "in force" if one.is_in_force(now) else "to come" if one.since > show_time(now) else "over"
    return {"what": one.what, "state": state, "since": one.since, "until": until, "reason": printable(one.reason)}
