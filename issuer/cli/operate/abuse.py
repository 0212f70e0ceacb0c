"""`issuer abuse list|show|release|quarantine|across`: what an operator sees of abuse, and what he says about it.

Exit codes (contract section 6): 0 done, 1 nothing was found, 2 usage, 3 a file is missing or malformed, 4 the audit
cannot be written, 6 the store does not answer.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import tell, who
from issuer.cli.options import A_FILE, all_of, audit_reason_option, config_option, json_lines_option
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, to_json
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats.times import show_time

if TYPE_CHECKING:
    from issuer.issuance.steps import Payer
    from issuer.service.admission.quarantine_admin import Order, Standing
    from issuer.service.settings.model import Settings

_FOR = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 90 * 86_400


@click.group()
def abuse() -> None:
    """See what looks like abuse, and release or quarantine an identity."""


def _read_for(_: click.Context, __: click.Parameter, text: str) -> int:
    found = _FOR.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_S:
        raise click.BadParameter("a number of minutes, hours or days, as 30m, 12h or 7d; at most 90d")
    return seconds


_of_identity = all_of(config_option, click.argument("integration"), click.argument("identity"))
_order = all_of(
    _of_identity,
    audit_reason_option,
    click.option("--for", "for_s", required=True, callback=_read_for, metavar="TIME", help="How long: 30m, 12h, 7d."),
)


# -- state ------------------------------------------------------------------------------------------------------


@abuse.command("list")
@config_option
@json_lines_option
def list_(config: Path | None, as_json: bool) -> None:
    """List the identities that are quarantined, throttled or released, or had a signal today (UTC)."""
    settings = _settings(config)
    told = asyncio.run(_told(settings))
    if as_json:
        for standing in told:
            say(to_json(standing))
    elif told:
        rows = [(_name(one), _stands(one), _signals(one)) for one in told]
        say(render_table([("identity", "stands", "signals today"), *rows]))
    else:
        say("nothing stands against any identity, and none had a signal today")


async def _told(settings: Settings) -> list[Standing]:
    from issuer.service.admission.quarantine_admin import standings_at

    async with standings_at(settings.store.url) as standings:
        return [each async for each in standings.read(_registered(settings)) if each.is_told]


@abuse.command()
@_of_identity
@json_lines_option
def show(integration: str, identity: str, config: Path | None, as_json: bool) -> None:
    """Show how IDENTITY of INTEGRATION stands: quarantine, throttle and release with their ends, and today's counts."""
    settings = _settings(config)
    payer = _payer(settings, integration, identity)
    standing = asyncio.run(_show(settings, payer))
    if as_json:
        say(to_json(standing))
        return
    say(f"{_name(standing)}: {_stands(standing)}")
    say(f"signals today: {_signals(standing)}")
    say(f"signed today: {standing.tokens} tokens, {standing.owners} model owners, {standing.keys} of 2000 new keys")
    if standing.buckets:
        say(f"quarantined besides: {len(standing.buckets)} of 64 buckets of callers that only resemble it")


async def _show(settings: Settings, payer: Payer) -> Standing:
    from issuer.service.admission.quarantine_admin import standings_at

    async with standings_at(settings.store.url) as standings:
        return await standings.show(payer)


def _name(standing: Standing) -> str:
    return f"{standing.integration}/{standing.identity}"


def _stands(standing: Standing) -> str:
    if standing.is_broken:
        return "its standing in the store is broken, and its requests are refused (503): release or quarantine it"
    said = [
        f"{what} until {show_time(end)}{f' by {by}' if by else ''}"
        for what, end, by in (
            ("quarantined", standing.quarantined_until, standing.quarantined_by),
            ("throttled", standing.throttled_until, ""),
            ("released", standing.released_until, ""),
        )
        if end
    ]
    return ", ".join(said) or "nothing stands against it"


def _signals(standing: Standing) -> str:
    return ", ".join(f"{times} x {name}" for name, times in standing.signals.items()) or "none"


# -- orders --------------------------------------------------------------------------------------------


@abuse.command()
@_order
def release(integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Release IDENTITY of INTEGRATION: end its quarantine and throttle, and let signals only warn it for a time.

    Its refusals are forgotten, and may quarantine it again. Every worker has it within 5 seconds.
    """
    _say_so("release", integration, identity, reason, for_s, config)


@abuse.command()
@_order
def quarantine(integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Quarantine IDENTITY of INTEGRATION for a time. Every worker has it at once, while the store answers.

    `issuer stop` needs no store, and takes away what is kept for retries, too.
    """
    _say_so("quarantine", integration, identity, reason, for_s, config)


def _say_so(order: Order, integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Write the audit, then do it: what is in force is never without its reason."""
    from issuer.audit.events import AbuseOrdered

    settings = _settings(config)
    payer, now = _payer(settings, integration, identity), int(time.time())
    asyncio.run(_show(settings, payer))  # a store that does not answer is found before the audit says anything
    tell(settings, AbuseOrdered(now, order, integration, identity, now + for_s, who(), reason))
    end = asyncio.run(_do(settings, payer, order, for_s))
    done = {"release": "released", "quarantine": "quarantined"}[order]
    say(f"{integration}/{identity} is {done} until {show_time(end)}; each worker has it within 5 s")


async def _do(settings: Settings, payer: Payer, order: Order, for_s: int) -> int:
    from issuer.service.admission.quarantine_admin import standings_at

    async with standings_at(settings.store.url) as standings:
        return await standings.order(payer, order, for_s)


def _settings(config: Path | None) -> Settings:
    """Return the settings of a service whose store others can reach. Raises SetupError."""
    from issuer.service.settings.model import EMBEDDED
    from issuer.service.settings.reader import read_settings

    settings = read_settings(config)
    if settings.store.url == EMBEDDED:
        detail = "store.url is embedded: that store is the service's own, and nobody else reaches it. Name a store"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return settings


def _registered(settings: Settings) -> Iterator[Payer]:
    """Yield every identity that the folder of policies names; a file that does not read names none. Raises InputError
    where there is no folder."""
    from issuer.issuance.steps import Payer
    from issuer.policy.authoring.load import read_each

    found = read_each(settings.policies_folder)
    if found is None:
        rule = "there is no folder of policies: identities are named there"
        raise InputError(Code.FILE_UNREADABLE, rule, Place(str(settings.policies_folder)))
    for name, policy in sorted(found.items()):
        if policy is None:
            say(f"warning: {printable(name)}.yaml does not read: its identities are left out", err=True)
            continue
        for identity in policy.identities:
            yield Payer(name, identity.id)


def _payer(settings: Settings, integration: str, identity: str) -> Payer:
    """Name an identity. One that its file does not have is refused, where that reads: it is most likely misspelled."""
    from issuer.issuance.steps import Payer
    from issuer.policy.authoring.load import read_each

    found = read_each(settings.policies_folder) or {}
    policy = found.get(integration)
    named = [one.id for one in policy.identities] if policy is not None else None
    if integration not in found or (named is not None and identity not in named):
        known = sorted(found) if integration not in found else named or []
        raise click.BadParameter(f"{settings.policies_folder} has none of this name, but: {', '.join(known[:20])}")
    return Payer(integration, identity)


# -- all identities together ---------------------------------------------------------------------------------------


@abuse.command()
@click.argument("files", nargs=-1, required=True, type=A_FILE, metavar="AUDIT...")
@click.option("--identities", type=click.IntRange(2), default=2, show_default=True, metavar="N",
              help="Run keys that so many identities had signed.")  # fmt: skip
@click.option("--commits", type=click.IntRange(2), default=20, show_default=True, metavar="N",
              help="Models of which so many commits were signed for one task.")  # fmt: skip
@json_lines_option
def across(files: tuple[Path, ...], identities: int, commits: int, as_json: bool) -> None:
    """Count, over all identities, what the AUDIT files say was signed: run keys of several identities, and models with
    many commits, each of which begins the count of attempts anew.

    Nothing follows from it; no caller is told. Exit code 1 where there is nothing to see.
    """
    from issuer.audit.comparison import Across, describe
    from issuer.audit.reader import read_in_order

    counts = Across()
    for line in read_in_order(files):
        counts.read(line)
    seen = [*counts.shared(identities), *counts.committed(commits)]
    for each in seen:
        say(to_json(each) if as_json else describe(each))
    if counts.unread:
        say(f"note: the results of {counts.unread} large batches are not in the audit", err=True)
    if counts.left_out:
        say(f"note: {counts.left_out} results had no room here: give fewer files", err=True)
    sys.exit(Exit.GOOD if seen else Exit.NO)
