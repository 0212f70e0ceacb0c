"""`issuer abuse list|show|release|quarantine|across`: signs of abuse, and the operator's orders against identities.

Exit codes (contract section 6): 0 done, 1 no findings, 2 usage, 3 a file is missing or malformed, 4 the audit file
cannot be written, 6 the store does not answer.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import record_in_audit, who
from issuer.cli.options import A_FILE, all_of, audit_reason_option, config_option, json_lines_option
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, to_json
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats.times import show_time

if TYPE_CHECKING:
    from issuer.issuance.steps import Payer
    from issuer.service.admission.quarantine_admin import Order, QuarantineStatus, Standings
    from issuer.service.settings.model import Settings

T = TypeVar("T")
_FOR = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_LONGEST_S = 90 * 86_400


@click.group()
def abuse() -> None:
    """Show signs of abuse, and quarantine or release an identity."""


def _read_for(_: click.Context, __: click.Parameter, text: str) -> int:
    match = _FOR.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_S:
        raise click.BadParameter("give minutes, hours or days, such as 30m, 12h or 7d; at most 90d")
    return seconds


_of_identity = all_of(config_option, click.argument("integration"), click.argument("identity"))
_order_options = all_of(
    _of_identity,
    audit_reason_option,
    click.option("--for", "for_s", required=True, callback=_read_for, metavar="TIME", help="How long: 30m, 12h, 7d."),
)


@abuse.command("list")
@config_option
@json_lines_option
def list_(config: Path | None, as_json: bool) -> None:
    """List the identities that are quarantined, throttled or released, or had a signal today (UTC)."""
    settings = _settings(config)

    async def read(standings: Standings) -> list[QuarantineStatus]:
        return [each async for each in standings.read(_registered(settings)) if each.is_notable]

    listed = _ask_store(settings, read)
    if as_json:
        for standing in listed:
            say(to_json(standing))
    elif listed:
        rows = [(_name(one), _describe(one), _signals(one)) for one in listed]
        say(render_table([("identity", "standing", "signals today"), *rows]))
    else:
        say("no identity is quarantined, throttled or released, and no identity had a signal today")


def _ask_store(settings: Settings, ask: Callable[[Standings], Awaitable[T]]) -> T:
    from issuer.service.admission.quarantine_admin import standings_at

    async def run() -> T:
        async with standings_at(settings.store.url) as standings:
            return await ask(standings)

    return asyncio.run(run())


@abuse.command()
@_of_identity
@json_lines_option
def show(integration: str, identity: str, config: Path | None, as_json: bool) -> None:
    """Show the standing of IDENTITY of INTEGRATION: quarantine, throttle and release with their ends, and counts."""
    settings = _settings(config)
    payer = _payer(settings, integration, identity)
    standing = _ask_store(settings, lambda standings: standings.show(payer))
    if as_json:
        say(to_json(standing))
        return
    say(f"{_name(standing)}: {_describe(standing)}")
    say(f"signals today: {_signals(standing)}")
    say(f"signed today: {standing.tokens} tokens, {standing.owners} model owners, {standing.keys} of 2000 new keys")
    if standing.buckets:
        say(f"also quarantined: {len(standing.buckets)} of 64 buckets of callers that only resemble it")


def _name(standing: QuarantineStatus) -> str:
    return f"{standing.integration}/{standing.identity}"


def _describe(standing: QuarantineStatus) -> str:
    if standing.is_broken:
        return "its record in the store is malformed, so its requests fail with 503: release or quarantine it"
    parts = [
        f"{what} until {show_time(end)}{f' by {by}' if by else ''}"
        for what, end, by in (
            ("quarantined", standing.quarantined_until, standing.quarantined_by),
            ("throttled", standing.throttled_until, ""),
            ("released", standing.released_until, ""),
        )
        if end
    ]
    return ", ".join(parts) or "not quarantined, throttled or released"


def _signals(standing: QuarantineStatus) -> str:
    return ", ".join(f"{times} x {name}" for name, times in standing.signals.items()) or "none"


@abuse.command()
@_order_options
def release(integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Release IDENTITY of INTEGRATION: end its quarantine and throttle. For a time, signals only cause warnings.

    The count of its refusals begins again, and new refusals may quarantine it again. Every worker applies the release
    within 5 seconds.
    """
    _order("release", integration, identity, reason, for_s, config)


@abuse.command()
@_order_options
def quarantine(integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Quarantine IDENTITY of INTEGRATION for a time. Every worker applies it at once, while the store answers.

    `issuer stop` needs no store, and also refuses repeats of earlier requests.
    """
    _order("quarantine", integration, identity, reason, for_s, config)


def _order(order: Order, integration: str, identity: str, reason: str, for_s: int, config: Path | None) -> None:
    """Write the audit event, then the order, so that every order in force has its reason in the audit file."""
    from issuer.audit.events import AbuseOrdered

    settings = _settings(config)
    payer, now = _payer(settings, integration, identity), int(time.time())
    _ask_store(settings, lambda standings: standings.show(payer))  # raises before the audit if the store is unreachable
    record_in_audit(settings, AbuseOrdered(now, order, integration, identity, now + for_s, who(), reason))
    end = _ask_store(settings, lambda standings: standings.order(payer, order, for_s))
    done = {"release": "released", "quarantine": "quarantined"}[order]
    say(f"{integration}/{identity} is {done} until {show_time(end)}; each worker applies it within 5 s")


def _settings(config: Path | None) -> Settings:
    """Return the settings. Raises SetupError if the service has an embedded store, which no other process can reach."""
    from issuer.service.settings.model import EMBEDDED
    from issuer.service.settings.reader import read_settings

    settings = read_settings(config)
    if settings.store.url == EMBEDDED:
        detail = "store.url is embedded, and only the service can reach an embedded store. Set store.url to a store"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return settings


def _registered(settings: Settings) -> Iterator[Payer]:
    """Yield every identity in the folder of policies; warn of unreadable files. Raises InputError without a folder."""
    from issuer.issuance.steps import Payer
    from issuer.policy.authoring.load import read_each

    policies = read_each(settings.policies_folder)
    if policies is None:
        rule = "the folder of policies, which names the identities, does not exist"
        raise InputError(Code.FILE_UNREADABLE, rule, Place(str(settings.policies_folder)))
    for name, policy in sorted(policies.items()):
        if policy is None:
            say(f"warning: {printable(name)}.yaml is unreadable: its identities are left out", err=True)
            continue
        for identity in policy.identities:
            yield Payer(name, identity.id)


def _payer(settings: Settings, integration: str, identity: str) -> Payer:
    """Return an identity. Raises click.BadParameter if its policy file is readable and lacks it: a misspelling."""
    from issuer.issuance.steps import Payer
    from issuer.policy.authoring.load import read_each

    policies = read_each(settings.policies_folder) or {}
    policy = policies.get(integration)
    identities = [one.id for one in policy.identities] if policy is not None else None
    if integration not in policies or (identities is not None and identity not in identities):
        known = sorted(policies) if integration not in policies else identities or []
        raise click.BadParameter(f"not in {settings.policies_folder}, which has: {', '.join(known[:20])}")
    return Payer(integration, identity)


@abuse.command()
@click.argument("files", nargs=-1, required=True, type=A_FILE, metavar="AUDIT...")
@click.option("--identities", type=click.IntRange(2), default=2, show_default=True, metavar="N",
              help="Report run keys with results of at least N identities.")  # fmt: skip
@click.option("--commits", type=click.IntRange(2), default=20, show_default=True, metavar="N",
              help="Report models with at least N signed commits for one task.")  # fmt: skip
@json_lines_option
def across(files: tuple[Path, ...], identities: int, commits: int, as_json: bool) -> None:
    """Find, over all identities in the AUDIT files, run keys that several identities had signed, and models with many
    signed commits. Each new commit begins a new count of attempts.

    The report has no consequence, and no caller sees it. Exit code 1 without findings.
    """
    from issuer.audit.comparison import Across, describe
    from issuer.audit.reader import read_in_order

    counts = Across()
    for line in read_in_order(files):
        counts.read(line)
    findings = [*counts.shared(identities), *counts.committed(commits)]
    for each in findings:
        say(to_json(each) if as_json else describe(each))
    if counts.unread:
        say(f"note: the audit files lack the results of {counts.unread} large batches", err=True)
    if counts.left_out:
        say(f"note: {counts.left_out} results exceeded the limit and were not counted: give fewer files", err=True)
    sys.exit(Exit.GOOD if findings else Exit.NO)
