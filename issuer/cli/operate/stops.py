"""`issuer stop`, `issuer resume` and `issuer stops`: emergency stops in the file `stops.yaml` of the policies.

The commands need only the folder of policies: no store, no key, no data, and no valid policy. If they cannot write the
folder, they name the signal that stops everything.
"""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
from msgspec import UNSET

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import settings_or
from issuer.cli.options import A_FILE, all_of, config_option, demand, json_option, read_time
from issuer.cli.render import render_rows
from issuer.cli.terminal import describe_error, printable, say, say_document, say_error
from issuer.errors import Finding, InputError, IssuerError
from issuer.formats.strict_yaml import MAX_BYTES, load
from issuer.formats.times import show_time
from issuer.io import files
from issuer.io.http_client import HttpRequest, check_url, send
from issuer.policy.authoring.load import PROVIDERS_FILE, read_each
from issuer.policy.authoring.stops import STOPS_FILE, add_stop, read_stops, remove_stops
from issuer.policy.model import Policy
from issuer.policy.stops import EVERYTHING, WHAT_RULE, Stop, Stops, is_what
from issuer.token.wire import STOPS_PATH, StopsStatus

_ASK_S = 2.0
_PAUSE_S = 0.2
_LOCK_S = 5.0  # an edit takes milliseconds
_INSTEAD_OF_SETTINGS = "--dir, the policies, and --url to wait"
_BY_SIGNAL = (
    "To stop everything without the file, send SIGUSR1 to the service (`kill -USR1 PID`, the supervisor if there are "
    "workers). It stops at once, in memory. `kill -USR2 PID` lifts that."
)

_folder_option = click.option("--dir", "folder", type=A_FILE, help="The policies, instead of the settings' folder.")
_options = all_of(
    click.option("--url", "urls", multiple=True, metavar="URL", help="Wait for this host; may be given again."),
    click.option(
        "--patience",
        type=click.FloatRange(0),
        default=15,
        show_default=True,
        metavar="S",
        help="Wait at most S seconds.",
    ),
    click.option("--wait", is_flag=True, help="Return when each worker applies it."),
    _folder_option,
    config_option,
)
_what = click.argument("what", callback=demand(is_what, WHAT_RULE))


@click.command()
@_what
@click.option("--reason", required=True, metavar="TEXT", help="The reason, for operators. No caller sees it.")
@click.option("--until", metavar="TIME", help="Its end, such as 2026-11-21T09:00:00Z. Default: until `issuer resume`.")
@_options
def stop(
    what: str, reason: str, until: str | None, config: Path | None, folder: Path | None, wait: bool, patience: float,
    urls: tuple[str, ...],
) -> None:  # fmt: skip
    """Stop WHAT from getting tokens: everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or
    identity:INTEGRATION/ID.

    Every worker applies it within two seconds, even while policies, keys, audit file or store are broken.
    """
    now = int(time.time())
    end = read_time(until, "--until") if until else None
    if end is not None and end <= now:
        raise click.BadParameter("the time has passed", param_hint="--until")
    hosts = _hosts(config, folder, urls, wait=wait)
    file = _stops_file(config, folder)
    members = {"what": what, "reason": reason, "since": show_time(now)} | ({"until": show_time(end)} if end else {})
    new = msgspec.convert(members, Stop)
    _edit(file, lambda raw: add_stop(raw, str(file), new))
    say(f"{what} is stopped{f' until {show_time(end)}' if end else ''}: {file}")
    _say_errors(_read_listed(_read(file) or b"", file)[1])
    if (missing := _missing_name(file.parent, what)) is not None:
        say(f"warning: {file.parent} has no {missing}, so this stops nobody. Is the name right?", err=True)
    _wait_for(file, hosts, patience, lambda stops: new in stops.all)


@click.command()
@_what
@_options
def resume(
    what: str, config: Path | None, folder: Path | None, wait: bool, urls: tuple[str, ...], patience: float
) -> None:
    """Lift every stop of WHAT. Exit code 1 if WHAT is not stopped."""
    hosts = _hosts(config, folder, urls, wait=wait)
    file = _stops_file(config, folder)
    if not _edit(file, lambda raw: None if raw is None else remove_stops(raw, str(file), what)):
        say(f"{what} is not stopped in {file}")
        if what == EVERYTHING:
            say("If a signal stopped everything, `kill -USR2 PID` lifts that.")
        sys.exit(Exit.NO)
    say(f"{what} is resumed: {file}")
    _wait_for(file, hosts, patience, lambda stops: all(one.what != what for one in stops.all))


def _read(file: Path) -> bytes | None:
    return files.read(file, MAX_BYTES) if file.exists() else None


def _edit(file: Path, edit: Callable[[bytes | None], bytes | None]) -> bool:
    """Edit the file and return whether it changed. If that fails, print the reason and the way by signal, and exit."""
    try:
        with ExitStack() as locked:
            _take_turn(file.parent, locked)
            raw = edit(_read(file))
            if raw is not None:
                files.replace(file, raw, mode=_mode(file), durable=True, shared=True)
    except (OSError, IssuerError) as error:
        why = describe_error(error) if isinstance(error, IssuerError) else f"{file}: {error.strerror}"
        say(f"issuer: {why}\nThe stops are unchanged. {_BY_SIGNAL}", err=True)
        sys.exit(Exit.LOCAL if isinstance(error, OSError) else Exit.INPUT)
    return raw is not None


def _take_turn(folder: Path, locked: ExitStack) -> None:
    """Lock the folder, so that no edit at the same time is lost. If that fails, print a warning: a stop must not depend
    on a lock that any reader of the folder can keep, and that some network shares lack."""
    try:
        locked.enter_context(files.folder_locked(folder, wait_s=_LOCK_S, follow=True))
    except FileNotFoundError:
        raise
    except OSError as error:
        lost = "if somebody else edits the stops now, one edit is lost: see `issuer stops`"
        say(f"warning: {folder} is not locked ({error.strerror}): {lost}", err=True)


def _mode(file: Path) -> int | None:
    """Return the mode of a new file: readable for the folder's readers, because the service may be another user."""
    return None if file.exists() else 0o600 | stat.S_IMODE(file.parent.stat().st_mode) & 0o644


def _stops_file(config: Path | None, folder: Path | None) -> Path:
    return (folder or settings_or(_INSTEAD_OF_SETTINGS, config).policies_folder) / STOPS_FILE


def _missing_name(folder: Path, what: str) -> str | None:
    """Return the name in `what` that the policies lack, or None. An unreadable file may have any name in it.

    An operator who misspells a name in an emergency must not believe that the caller is stopped.
    """
    kind, _, name = what.partition(":")
    first, _, last = name.partition("/")
    try:
        policies = read_each(folder) or {}
        providers = _providers(folder)
    except InputError:
        return None
    if kind in {"integration", "identity"} and not (folder / f"{first}.yaml").exists():
        return f"{first}.yaml"
    if kind in {"provider", "account"} and providers is not None and first not in providers:
        return f"provider {printable(first)}"
    policy = policies.get(first)
    if kind == "identity" and policy is not None and last not in {one.id for one in policy.identities}:
        return f"identity {last} of {first}"
    if kind == "account" and policies and None not in policies.values() and not _is_pinned(policies, first, last):
        return f"identity of {first} that pins {printable(last)}"
    return None


def _is_pinned(policies: Mapping[str, Policy | None], provider: str, account: str) -> bool:
    identities = (one for policy in policies.values() if policy for one in policy.identities)
    return any(one.provider == provider and account in one.pins.values() for one in identities)


def _providers(folder: Path) -> Collection[str] | None:
    """Return the ids of the providers, or None if their file is unreadable."""
    file = folder / PROVIDERS_FILE
    try:
        document = load(files.read(file, MAX_BYTES), str(file)).value
    except InputError:
        return None
    listed = document.get("providers") if isinstance(document, dict) else None
    return listed if isinstance(listed, dict) else None


def _hosts(config: Path | None, folder: Path | None, urls: tuple[str, ...], *, wait: bool) -> tuple[str, ...]:
    """Return the URLs of the hosts to wait for. Without --url, the settings give this host's."""
    if urls or not wait:
        return tuple(check_url(url) for url in urls)
    if folder is not None and config is None:
        raise click.UsageError("--wait with --dir needs --url, or --config in place of --dir")
    listen = settings_or(_INSTEAD_OF_SETTINGS, config).listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 (connects, does not listen)
    return (check_url(f"http://{f'[{host}]' if ':' in host else host}:{listen.port}"),)


def _wait_for(file: Path, urls: tuple[str, ...], patience_s: float, holds: Callable[[Stops], bool]) -> None:
    """Wait until each worker of each host applies the file. Exit code 4 if one does not.

    The file is read again each time, because others may edit it meanwhile. It counts only while this edit `holds`.
    """
    until, late = time.monotonic() + patience_s, dict.fromkeys(urls, "not asked")
    errors: Collection[Finding] = ()
    while late and time.monotonic() < until:
        stops, errors = read_stops(_read(file) or b"", str(file))
        if errors:  # a host keeps its earlier stops beside these, so its digest differs
            why = "has an error, so no answer can confirm this: see `stops in force` in the log stream, and mend it"
            late = dict.fromkeys(urls, f"{file} {why}")
            break
        if not holds(stops):
            late = dict.fromkeys(urls, f"somebody else has undone this in {file}: see `issuer stops`")
            break
        late = {url: why for url in late if (why := _late(url, stops.digest))}
        time.sleep(_PAUSE_S if late else 0)
    for url in urls:
        say(f"{url}: {late.get(url) or 'each worker has it'}", err=url in late)
    if late:
        if not errors:
            say(_BY_SIGNAL, err=True)
        sys.exit(Exit.UNDECIDED)


def _late(url: str, digest: str) -> str:
    """Return why a host does not apply these stops yet; "" if each of its workers does."""
    try:
        answer = send(HttpRequest("GET", f"{url}{STOPS_PATH}"), deadline_s=_ASK_S)
        status = msgspec.json.decode(answer.body, type=StopsStatus)
    except (IssuerError, msgspec.MsgspecError) as error:
        return f"no answer: {error}"
    if status.digest != digest:
        refused = ": it refuses its current stops.yaml, see `stops refused` in its log stream, and `issuer stops`"
        return f"a worker applies other stops{refused if status.stale else ''}"
    if status.agreeing < status.workers:
        return f"{status.agreeing} of {status.workers} workers have it"
    return ""


@click.command()
@config_option
@_folder_option
@json_option
def stops(config: Path | None, folder: Path | None, as_json: bool) -> None:
    """List the stops. Exit code 3 if a stop is malformed: the service then keeps the last valid stops."""
    file, now = _stops_file(config, folder), int(time.time())
    raw = _read(file)
    listed, errors = ((), ()) if raw is None else _read_listed(raw, file)
    rows = [_row(one, now) for one in listed]
    if as_json:
        say_document({"version": 1, "stops": rows})
    elif rows:
        say(render_rows(rows))
    elif not errors:
        say(f"{file} stops nothing", err=True)
    _say_errors(errors)
    sys.exit(Exit.INPUT if errors else Exit.GOOD)


def _read_listed(raw: bytes, file: Path) -> tuple[tuple[Stop, ...], tuple[Finding, ...]]:
    """Return the stops of the file, and the faults for which a service would refuse it."""
    listed, errors = read_stops(raw, str(file))
    try:
        files.demand_guarded(file, group=True)
    except InputError as error:
        errors = (*errors, error.finding)
    return listed.all, errors


def _say_errors(errors: Collection[Finding]) -> None:
    for one in errors:
        say_error(InputError(one.code, one.detail, one.place, one.pointer))
    if errors:
        say("Repair the file. Until then, the service lifts no stop that it has in force.", err=True)


def _row(one: Stop, now: int) -> dict[str, str | None]:
    """Return a stop's JSON members. `until` is null for a stop without an end."""
    until = None if one.until is UNSET else one.until
    state = "in force" if one.is_in_force(now) else "to come" if one.since > show_time(now) else "over"
    return {"what": one.what, "state": state, "since": one.since, "until": until, "reason": printable(one.reason)}
