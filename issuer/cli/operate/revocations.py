"""`issuer revoke` and `issuer revocations`: take back what was signed, and keep the list that says so.

They need the folder of data and the key of the list: no store, and no service that runs. Without the key `revoke` still
writes the record, which the service goes by; the list then waits for `renew`, where the key is.
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
from issuer.cli.operate.operator import home_by, who
from issuer.cli.options import A_FILE, config_option, demand, json_option, read_time, reason_option
from issuer.cli.render import counted, render_rows
from issuer.cli.terminal import describe_error, printable, say, say_document, say_error
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.formats.times import MAX_UNIX_S, show_span, show_time
from issuer.io import files
from issuer.io.common_documents import RECORD, Home
from issuer.io.http_client import check_url
from issuer.io.keyfile import MAX_PASSPHRASE_FILE
from issuer.policy.stops import is_what
from issuer.service.policies.archive import KeptPolicies
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
from issuer.service.settings.model import Settings
from issuer.service.settings.reader import read_settings
from issuer.token.verify_token import is_jti
from issuer.verify.revocations import LEEWAY_S, LONGEST_S, Items, RevokedInterval, items_of

_HOUR_S = 3600


class _Place(Struct, frozen=True):
    """Where everything is; `url` is None where neither settings nor an option say it, and the list has to."""

    data: Path
    home: Home
    keys: Path
    url: str | None
    passphrase: Callable[[], bytes | None]

    @property
    def ledger(self) -> Ledger:
        """What is revoked. Raises SetupError where `data` is not there: what is written elsewhere revokes nothing."""
        if not self.data.is_dir():
            raise SetupError(Code.SETTINGS_INVALID, f"{self.data} is no folder: give the data of the service")
        return Ledger(self.home, self.url)

    def signing(self, **how: Any) -> Signing | None:
        """Return how to sign, None where the key is not here. Raises SetupError."""
        key = find_key(self.keys, self.home, self.passphrase)
        return None if key is None else Signing(key, **how)


def _placed(command: Callable[..., None]) -> Callable[..., None]:
    """Add how a command finds the files, and give it the place."""

    @click.option("--passphrase-file", type=click.Path(path_type=Path, exists=True), help="Opens the key.")
    @click.option("--url", metavar="URL", help="The issuer, if neither the settings nor a list say it.")
    @click.option("--data", type=A_FILE, help="The data, if not by the settings.")
    @click.option("--dir", "keys", type=A_FILE, help="The keys, if not by the settings.")
    @config_option
    @functools.wraps(command)
    def run(
        config: Path | None, keys: Path | None, data: Path | None, url: str | None, passphrase_file: Path | None,
        **rest: Any,
    ) -> None:  # fmt: skip
        settings = None if data and keys else _settings(config)
        if settings is not None:
            data, keys, url = data or Path(settings.data), keys or settings.keys_folder, url or settings.url
        opens = functools.partial(_passphrase, settings, passphrase_file)
        assert data is not None  # noqa: S101 (for the type checker)
        assert keys is not None  # noqa: S101
        home = home_by(settings, data)
        command(place=_Place(data, home, keys, check_url(url) if url else None, opens), **rest)

    return run


def _settings(config: Path | None) -> Settings:
    try:
        return read_settings(config)
    except SetupError as error:
        raise SetupError(error.code, f"{error.detail}; or give --dir, the keys, and --data") from None


def _passphrase(settings: Settings | None, file: Path | None) -> bytes | None:
    if file is not None:
        return files.read(file, MAX_PASSPHRASE_FILE, pipe=True).rstrip(b"\r\n")
    return None if settings is None else settings.passphrase()


# -- revoke -----------------------------------------------------------------------------------------------------------


# What was typed for a jti may be a credential: the rule does not repeat it.
_jtis, _integration = demand(is_jti, JTI_RULE), demand(lambda text: is_what(f"integration:{text}"), SUB_RULE)


@click.command()
@click.option("--jti", "jtis", multiple=True, callback=_jtis, metavar="ID", help="A token; may be given again.")
@click.option(
    "--sub", callback=_integration, metavar="INTEGRATION", help="What this integration had signed, all of it,"
)
@click.option("--from", "from_", metavar="TIME", help="since then: Unix seconds, or as 2026-11-21T09:00:00Z,")
@click.option("--until", metavar="TIME", help="until then. Default: from now on, too: it gets no token any more.")
@reason_option("Why; for the operators alone.")
@_placed
def revoke(
    jtis: tuple[str, ...], sub: str | None, from_: str | None, until: str | None, reason: str, place: _Place
) -> None:
    """Revoke tokens for ever: by their ids, or all that an integration had signed in a time.

    Every worker refuses to give them again within two seconds. Relying parties read the signed list, some minutes
    later. Exit code 4 where its key is not here: then it waits for `issuer revocations renew`.
    """
    now = int(time.time())
    act = Act(now, who(), reason, jtis, _intervals(jtis, sub, from_, until))
    is_new = place.ledger.add(act)
    where = printable(place.home.place(RECORD))
    say(f"{_in_words(act.items)} {'is revoked' if is_new else 'was revoked before'}: {where}")
    if sub is not None and not _is_known(place.data, sub):
        say(f"warning: no policy of {sub} ever decided here: nothing was signed for it. Is it right?", err=True)
    _list(place, now)


def _list(place: _Place, now: int) -> None:
    """Sign the list. Where that is not possible, say what is left to do: the record has it."""
    try:
        signing = place.signing()
        if signing is not None:
            _tell(place.ledger.renew(signing, now), now)
            return
        why, code = f"its key is not in {place.keys}", Exit.UNDECIDED
    except IssuerError as error:
        why, code = describe_error(error), exit_for_error(error)
    except OSError as error:
        why, code = f"{error.filename}: {error.strerror}", Exit.LOCAL
    say(f"The list does not have it yet: {why}\n{_LEFT}", err=True)
    sys.exit(code)


_LEFT = (
    "The service goes by the record, and has it. Relying parties learn of it when a service that has the key signs the "
    "list, or `issuer revocations renew` is run where it is."
)


def _intervals(
    jtis: tuple[str, ...], sub: str | None, from_: str | None, until: str | None
) -> tuple[RevokedInterval, ...]:
    """Read the options of an interval. Raises click.UsageError for what does not go together."""
    if sub is None:
        if not jtis or from_ or until:
            raise click.UsageError("give --jti, or --sub with --from")
        return ()
    if jtis or not from_:
        raise click.UsageError("--sub needs --from, and no --jti")
    begin, end = read_time(from_, "--from"), read_time(until, "--until") if until else UNSET
    if max(begin, begin if end is UNSET else end) > MAX_UNIX_S:
        raise click.BadParameter(f"no token is later than {show_time(MAX_UNIX_S)}", param_hint="--from, --until")
    if end is not UNSET and end < begin:
        raise click.BadParameter("it is before --from", param_hint="--until")
    return (RevokedInterval(sub, begin, end),)


def _is_known(data: Path, sub: str) -> bool:
    """Say whether a policy of this integration is kept: each that ever decided is."""
    kept, folder = KeptPolicies(data / "policies"), data / "policies"
    return any(kept.integration_of(f"sha256:{path.stem}") == sub for path in folder.glob("*.json"))


def _in_words(items: Items) -> str:
    """Say what is revoked, briefly."""
    intervals = [one for of_one in items.intervals.values() for one in of_one]
    if intervals:
        return ", ".join(map(_interval_in_words, intervals))
    jtis = sorted(items.jtis)
    return jtis[0] if len(jtis) == 1 else f"each of {len(jtis)} tokens"


def _interval_in_words(interval: RevokedInterval) -> str:
    end = "" if interval.until is UNSET else f" until {show_time(interval.until)}"
    return f"{interval.sub} since {show_time(interval.from_)}{end}"


def _tell(published: SignedList, now: int) -> None:
    """Say which list is served, and for how long it is good; warn where nobody will take it."""
    listed = published.listed
    left = listed.next_update - now
    good = f"good for {left // _HOUR_S} h more" if left >= 0 else "ENDED"
    end = show_time(listed.next_update)
    say(f"list {listed.number} of {show_time(listed.iat)}: {counted(listed.count, 'item')}, until {end}, {good}")
    if listed.iat > now + LEEWAY_S:
        say(
            f"warning: it is dated {show_span(listed.iat - now)} ahead of this machine's clock, as the one before was. "
            "Where this clock is right, relying parties refuse it until then; set the clock, or see keys/README.md.",
            err=True,
        )


# -- the list ---------------------------------------------------------------------------------------------------------


@click.group()
def revocations() -> None:
    """Show and renew the signed list of what is revoked, and make its key."""


@revocations.command()
@_placed
def init(place: _Place) -> None:
    """Make the key of the list, readable by its owner alone. The service then writes the first list by itself."""
    path = make_key(place.keys, place.passphrase())
    say(printable(str(path)))
    say("A service that has it signs the list by itself; on any other host run `issuer revocations renew`.", err=True)


@revocations.command()
@click.option(
    "--days", type=click.IntRange(1, LONGEST_S // 86_400), metavar="N", help="Good for so long, at most 7. Default: 2."
)
@click.option("--above", type=click.IntRange(0), default=0, metavar="NUMBER", help="Number it above this one.")
@click.option("--new-key", is_flag=True, help="The key of the list before it is lost, or stolen.")
@_placed
def renew(days: int | None, above: int, new_key: bool, place: _Place) -> None:
    """Sign the list anew, with everything that is revoked; from a timer, where no service has its key."""
    now = int(time.time())
    signing = place.signing(good_s=days * 86_400 if days else LIST_GOOD_S, above=above, replaces=new_key)
    if signing is None:
        where = printable(str(place.keys))
        say(f"issuer: {where}/revocation holds no key: `issuer revocations init` makes one", err=True)
        sys.exit(Exit.LOCAL)
    _tell(place.ledger.renew(signing, now), now)


@revocations.command()
@json_option
@_placed
def show(as_json: bool, place: _Place) -> None:
    """Show what is revoked, and the list. Exit code 3 where a file is damaged, 1 where the list has ended or lacks an
    item, or where there is none."""
    now, found = int(time.time()), place.ledger.read()
    rows = [*_rows(found)]
    listed = None if found.published is None else found.published.listed
    missing = found.items.count if listed is None else listed.missing(found.items)
    if as_json:
        names = ("number", "iat", "next_update", "kid")
        about = None if listed is None else {name: getattr(listed, name) for name in names}
        say_document({"version": 1, "revoked": rows, "list": about, "unlisted": missing})
    else:
        _show(found, rows, now)
    if found.error is not None:
        say_error(found.error)
        say("Until it is mended nothing is signed; the service goes on with what it had.", err=True)
        sys.exit(Exit.INPUT)
    if listed is None or missing or listed.next_update < now:
        say("run `issuer revocations renew` where the key of the list is", err=True)
        sys.exit(Exit.NO)


def _show(found: LedgerState, rows: list[dict[str, Any]], now: int) -> None:
    if rows:
        say(render_rows(rows))
    if found.published is None:
        say("there is no list", err=True)
    else:
        _tell(found.published, now)


def _rows(found: LedgerState) -> list[dict[str, Any]]:
    """Describe each item: as the record does, or where it has lost it, as the list does."""
    told = [(act, act.items) for act in found.acts]
    lost = [] if found.published is None else [(None, _without(found.published.listed, items_in(found.acts)))]
    return [_row(act, items) for act, whole in [*told, *lost] for items in _each(whole)]


def _without(items: Items, others: Items) -> Items:
    intervals = (
        one for sub, found in items.intervals.items() for one in found if one not in others.intervals.get(sub, ())
    )
    return items_of(items.jtis - others.jtis, intervals)


def _each(items: Items) -> list[Items]:
    single = [items_of((jti,), ()) for jti in sorted(items.jtis)]
    return single + [items_of((), (one,)) for found in items.intervals.values() for one in found]


def _row(act: Act | None, item: Items) -> dict[str, Any]:
    told = (None, None, None) if act is None else (show_time(act.time), act.who, act.why)
    return {"what": _in_words(item), **dict(zip(("when", "who", "why"), told, strict=True))}
