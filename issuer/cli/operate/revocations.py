"""`issuer revoke` and `issuer revocations`: revoke tokens, and maintain the signed revocation list.

The commands need the data folder and the list's key, but no store and no running service. Without the key, `revoke`
still writes the record, which the service obeys. `renew` on the host with the key then updates the list.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET, Struct

from issuer.cli.exits import Exit, exit_for_error
from issuer.cli.operate.operator import home_of_data, read_passphrase, settings_or, who
from issuer.cli.options import A_FILE, config_option, demand, json_option, read_time, reason_option
from issuer.cli.render import counted, render_rows
from issuer.cli.terminal import describe_error, printable, say, say_document, say_error
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.formats.times import MAX_UNIX_S, show_span, show_time
from issuer.io.common_documents import RECORD, Home
from issuer.io.http_client import check_url
from issuer.policy.stops import is_what
from issuer.service.policies.archive import PolicyArchive
from issuer.service.revocation.bounds import LIST_GOOD_S
from issuer.service.revocation.ledger import (
    JTI_RULE,
    SUB_RULE,
    Act,
    Ledger,
    LedgerState,
    SignedList,
    Signing,
    find_key,
    items_in,
    make_key,
)
from issuer.service.signing.inventory import Inventory
from issuer.token.verify_token import is_jti
from issuer.verify.revocations import LEEWAY_S, LONGEST_S, Items, RevokedInterval, items_of

_HOUR_S = 3600


class _Place(Struct, frozen=True):
    """The folders, key and URL for one command. If `url` is None, the existing list supplies it."""

    data: Path
    home: Home
    keys: Path
    url: str | None
    passphrase: Callable[[], bytes | None]

    @property
    def ledger(self) -> Ledger:
        """The record of revocations. Raises SetupError if `data` is not a folder; a record elsewhere has no effect."""
        if not self.data.is_dir():
            raise SetupError(Code.SETTINGS_INVALID, f"{self.data} is not a folder: give the service's data folder")
        return Ledger(self.home, self.url)

    def signing(self, **options: Any) -> Signing | None:
        """Return the list's key with signing options, or None if this host lacks the key. Raises SetupError."""
        key = find_key(self.keys, self.home, self.passphrase)
        return None if key is None else Signing(key, **options)


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that locate files. The command gets them as `place`."""

    @click.option("--passphrase-file", type=click.Path(path_type=Path, exists=True), help="The key's passphrase.")
    @click.option("--url", metavar="URL", help="The issuer's URL, if the settings and the list lack it.")
    @click.option("--data", type=A_FILE, help="The data folder, instead of the settings' one.")
    @click.option("--dir", "keys", type=A_FILE, help="The folder of keys, instead of the settings' one.")
    @config_option
    @functools.wraps(command)
    def run(
        config: Path | None, keys: Path | None, data: Path | None, url: str | None, passphrase_file: Path | None,
        **rest: Any,
    ) -> None:  # fmt: skip
        settings = None if data and keys else settings_or("--dir, the keys, and --data", config)
        is_service = settings is not None and not data and not keys
        if settings is not None:
            data, keys, url = data or Path(settings.data), keys or settings.keys_folder, url or settings.url
        assert data is not None  # noqa: S101 (for the type checker)
        assert keys is not None  # noqa: S101

        def passphrase() -> bytes | None:
            if passphrase_file is not None:
                return read_passphrase(passphrase_file)
            return None if settings is None else settings.passphrase()

        home = home_of_data(settings, data)
        if settings is not None and is_service:
            Inventory(settings, home).demand_documents()
        command(place=_Place(data, home, keys, check_url(url) if url else None, passphrase), **rest)

    return run


# The rule for a jti does not repeat the argument, because that may be a credential.
_jtis, _integration = demand(is_jti, JTI_RULE), demand(lambda text: is_what(f"integration:{text}"), SUB_RULE)


@click.command()
@click.option("--jti", "jtis", multiple=True, callback=_jtis, metavar="ID", help="A token; may be given again.")
@click.option(
    "--sub", callback=_integration, metavar="INTEGRATION", help="Revoke this integration's tokens, issued --from TIME."
)
@click.option("--from", "from_", metavar="TIME", help="Unix seconds, or for example 2026-11-21T09:00:00Z.")
@click.option("--until", metavar="TIME", help="End of the interval. Default: no end, and it gets no new tokens.")
@reason_option("The reason, for operators only.")
@_place_options
def revoke(
    jtis: tuple[str, ...], sub: str | None, from_: str | None, until: str | None, reason: str, place: _Place
) -> None:
    """Revoke tokens for ever: by their ids, or all tokens of an integration in an interval.

    Within two seconds, every worker refuses to repeat the tokens. Relying parties read the signed list some minutes
    later. Exit code 4 if this host lacks the list's key: then run `issuer revocations renew` on the host that has it.
    """
    now = int(time.time())
    act = Act(now, who(), reason, jtis, _intervals(jtis, sub, from_, until))
    is_new = place.ledger.add(act)
    where = printable(place.home.place(RECORD))
    say(f"{_describe(act.items)} {'is revoked' if is_new else 'was revoked before'}: {where}")
    if sub is not None and not _is_known(place.data, sub):
        say(f"warning: no policy of {sub} ever decided here, so it has no tokens. Is the name right?", err=True)
    _sign_list(place, now)


def _sign_list(place: _Place, now: int) -> None:
    """Sign the list with the new revocation. If that fails, print the reason and the next step, and exit."""
    try:
        signing = place.signing()
        if signing is not None:
            _show_list(place.ledger.renew(signing, now), now)
            return
        why, code = f"its key is not in {place.keys}", Exit.UNDECIDED
    except IssuerError as error:
        why, code = describe_error(error), exit_for_error(error)
    except OSError as error:
        why, code = f"{error.filename}: {error.strerror}", Exit.LOCAL
    say(f"The list lacks this revocation: {why}\n{_UNLISTED}", err=True)
    sys.exit(code)


_UNLISTED = (
    "The service reads the record and already obeys it. Relying parties learn of it when a service with the key signs "
    "the list. Or run `issuer revocations renew` on a host with the key."
)


def _intervals(
    jtis: tuple[str, ...], sub: str | None, from_: str | None, until: str | None
) -> tuple[RevokedInterval, ...]:
    """Parse the options of an interval. Raises click.UsageError for options that contradict each other."""
    if sub is None:
        if not jtis or from_ or until:
            raise click.UsageError("give --jti, or --sub with --from")
        return ()
    if jtis or not from_:
        raise click.UsageError("--sub needs --from, and no --jti")
    begin, end = read_time(from_, "--from"), read_time(until, "--until") if until else UNSET
    if max(begin, begin if end is UNSET else end) > MAX_UNIX_S:
        raise click.BadParameter(f"the latest time is {show_time(MAX_UNIX_S)}", param_hint="--from, --until")
    if end is not UNSET and end < begin:
        raise click.BadParameter("the time is before --from", param_hint="--until")
    return (RevokedInterval(sub, begin, end),)


def _is_known(data: Path, sub: str) -> bool:
    """Return whether the archive, which keeps every policy that ever decided, has a policy of this integration."""
    kept, folder = PolicyArchive(data / "policies"), data / "policies"
    return any(kept.integration_of(f"sha256:{path.stem}") == sub for path in folder.glob("*.json"))


def _describe(items: Items) -> str:
    intervals = [one for of_one in items.intervals.values() for one in of_one]
    if intervals:
        return ", ".join(map(_describe_interval, intervals))
    jtis = sorted(items.jtis)
    return jtis[0] if len(jtis) == 1 else f"each of {len(jtis)} tokens"


def _describe_interval(interval: RevokedInterval) -> str:
    end = "" if interval.until is UNSET else f" until {show_time(interval.until)}"
    return f"{interval.sub} since {show_time(interval.from_)}{end}"


def _show_list(published: SignedList, now: int) -> None:
    """Print the list's number and validity. Warn if relying parties will refuse it."""
    listed = published.listed
    left = listed.next_update - now
    good = f"good for {left // _HOUR_S} h more" if left >= 0 else "ENDED"
    end = show_time(listed.next_update)
    say(f"list {listed.number} of {show_time(listed.iat)}: {counted(listed.count, 'item')}, until {end}, {good}")
    if listed.iat > now + LEEWAY_S:
        say(
            f"warning: its date, like the last one's, is {show_span(listed.iat - now)} ahead of this machine's clock. "
            "If this clock is right, relying parties refuse the list until then. Set the clock, or see keys/README.md.",
            err=True,
        )


@click.group()
def revocations() -> None:
    """Show and renew the signed revocation list, and make its key."""


@revocations.command()
@_place_options
def init(place: _Place) -> None:
    """Make the list's key, which only its owner can read. The service then writes the first list."""
    path = make_key(place.keys, place.passphrase())
    say(printable(str(path)))
    say("A service with this key signs the list. On any other host, run `issuer revocations renew`.", err=True)


@revocations.command()
@click.option(
    "--days",
    type=click.IntRange(1, LONGEST_S // 86_400),
    metavar="N",
    help="Days until the list ends, at most 7. Default: 2.",
)
@click.option("--above", type=click.IntRange(0), default=0, metavar="NUMBER", help="Number the list above NUMBER.")
@click.option("--new-key", is_flag=True, help="Allow a new key, if the key of the last list is lost or stolen.")
@_place_options
def renew(days: int | None, above: int, new_key: bool, place: _Place) -> None:
    """Sign a new list with every revocation. Run this from a timer if no service has the list's key."""
    now = int(time.time())
    signing = place.signing(good_s=days * 86_400 if days else LIST_GOOD_S, above=above, replaces=new_key)
    if signing is None:
        where = printable(str(place.keys))
        say(f"issuer: {where}/revocation contains no key: `issuer revocations init` makes one", err=True)
        sys.exit(Exit.LOCAL)
    _show_list(place.ledger.renew(signing, now), now)


@revocations.command()
@json_option
@_place_options
def show(as_json: bool, place: _Place) -> None:
    """Show the revocations and the list. Exit code 3 if a file is damaged, 1 if the list has ended, lacks a revocation,
    or does not exist."""
    now, state = int(time.time()), place.ledger.read()
    rows = _rows(state)
    listed = None if state.published is None else state.published.listed
    missing = state.items.count if listed is None else listed.missing(state.items)
    if as_json:
        names = ("number", "iat", "next_update", "kid")
        about = None if listed is None else {name: getattr(listed, name) for name in names}
        say_document({"version": 1, "revoked": rows, "list": about, "unlisted": missing})
    else:
        _show(state, rows, now)
    if state.error is not None:
        say_error(state.error)
        say("Repair the file. Until then, lists cannot be signed, and the service keeps the last good state.", err=True)
        sys.exit(Exit.INPUT)
    if listed is None or missing or listed.next_update < now:
        say("run `issuer revocations renew` on the host with the list's key", err=True)
        sys.exit(Exit.NO)


def _show(state: LedgerState, rows: list[dict[str, Any]], now: int) -> None:
    if rows:
        say(render_rows(rows))
    if state.published is None:
        say("the revocation list does not exist", err=True)
    else:
        _show_list(state.published, now)


def _rows(state: LedgerState) -> list[dict[str, Any]]:
    """Return a row for each item of the record, and for each item of the list that the record has lost."""
    recorded = [(act, act.items) for act in state.acts]
    lost = [] if state.published is None else [(None, _without(state.published.listed, items_in(state.acts)))]
    return [_row(act, item) for act, items in [*recorded, *lost] for item in _split(items)]


def _without(items: Items, others: Items) -> Items:
    intervals = (
        one for sub, listed in items.intervals.items() for one in listed if one not in others.intervals.get(sub, ())
    )
    return items_of(items.jtis - others.jtis, intervals)


def _split(items: Items) -> list[Items]:
    single = [items_of((jti,), ()) for jti in sorted(items.jtis)]
    return single + [items_of((), (one,)) for intervals in items.intervals.values() for one in intervals]


def _row(act: Act | None, item: Items) -> dict[str, Any]:
    when, who, why = (None, None, None) if act is None else (show_time(act.time), act.who, act.why)
    return {"what": _describe(item), "when": when, "who": who, "why": why}
