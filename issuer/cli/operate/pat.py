"""`issuer pat`: the operator creates, lists and revokes personal access tokens on the service's machine.

`create` prints the token once, alone on standard output, so that it can be piped into a store of secrets. Remarks go to
standard error. These commands print no hash and accept no token.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import settings_or
from issuer.cli.options import A_FILE, all_of, config_option, demand, json_option
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, say_document, say_error
from issuer.formats.times import show_time
from issuer.identity import pat as form
from issuer.identity.profiles import TOKENS_ISSUE
from issuer.service.authn import pat_records as pats


@click.group()
def pat() -> None:
    """Make, list and revoke personal access tokens, for machines that have no CI identity."""


_folder_options = all_of(
    click.option("--dir", "folder", type=A_FILE, help="The folder, instead of the settings' one."), config_option
)


def _folder_of(folder: Path | None, config: Path | None) -> Path:
    return folder or settings_or("--dir, the folder of the tokens", config).pats_folder


def _networks(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    networks = [pats.canonical_network(text) for text in texts]
    if None in networks:
        raise click.BadParameter(pats.NETWORK_RULE)
    return tuple(dict.fromkeys(str(network) for network in networks))


@pat.command()
@_folder_options
@click.option("--account", required=True, callback=demand(pats.is_account, pats.ACCOUNT_RULE), metavar="NAME",
              help="The stable name that a policy pins.")  # fmt: skip
@click.option("--scope", "scopes", multiple=True, callback=demand(pats.is_scope, pats.SCOPE_RULE),
              default=(TOKENS_ISSUE,), show_default=True, help="A permission; may be given again.")  # fmt: skip
@click.option("--network", "networks", multiple=True, callback=_networks, metavar="CIDR",
              help="A network from which it works; may be given again. Default: any.")  # fmt: skip
@click.option(
    "--expires", type=click.IntRange(1, 90), default=30, show_default=True, metavar="DAYS", help="At most 90."
)
def create(
    folder: Path | None, config: Path | None, account: str, scopes: tuple[str, ...], networks: tuple[str, ...],
    expires: int,
) -> None:  # fmt: skip
    """Make a token and print it, once. The service accepts it from its next request on."""
    where = _folder_of(folder, config)
    is_new = not where.exists()
    random, now = os.urandom(form.RANDOM_BYTES), int(time.time())
    order = pats.Order(account, scopes, networks, life_s=expires * pats.DAY_S)
    token, record = pats.create(where, order, now=now, random=random)
    say(_about(record, where, is_new=is_new), err=True)
    say(token)


def _about(record: pats.PatRecord, folder: Path, *, is_new: bool) -> str:
    """Describe the new token: its file and expiry, warnings, and the lines for a policy."""
    lines = [f"made   {printable(str(pats.path_of(folder, record.id)))}, until {show_time(record.expires)}"]
    if is_new:
        lines.append("warning: this command made the folder; is it the one that the service reads?")
    if TOKENS_ISSUE not in record.scopes:
        lines.append(f"warning: without the scope {TOKENS_ISSUE} it gets no verify token")
    if not record.networks:
        lines.append("warning: a thief could use it from any network; --network limits that")
    lines.append(
        "The token is shown only now. To let it act for an integration, add this to the integration's policy:\n"
    )
    return "\n".join([*lines, _identity_block(record)])


def _identity_block(record: pats.PatRecord) -> str:
    identity = "-".join(word for word in record.account.replace(".", "-").replace("_", "-").split("-") if word)
    return f"""identities:
  - id: "{identity}"
    provider: pat              # the provider with `profile: pat` in providers.yaml
    pins: {{account: "{record.account}"}}
"""


@pat.command("list")
@_folder_options
@json_option
def list_tokens(folder: Path | None, config: Path | None, as_json: bool) -> None:
    """List the tokens, oldest first. Exit code 3 if a record is unreadable: the service refuses that token."""
    where, now = _folder_of(folder, config), int(time.time())
    good, bad = pats.read_records(where)
    rows = [_row(record, where, now) for record in good]
    if as_json:
        say_document({"version": 1, "tokens": rows})
    else:
        say(_table(rows) if rows else f"{printable(str(where))} contains no tokens", err=not rows)
    for error in bad:
        say_error(error)
    sys.exit(Exit.INPUT if bad else Exit.GOOD)


def _row(record: pats.PatRecord, folder: Path, now: int) -> dict[str, Any]:
    """Return a token's JSON members. Times are Unix seconds, null means never."""
    return {
        "id": record.id, "account": record.account, "state": record.state(now), "scopes": record.scopes,
        "networks": record.networks, "created": record.created, "expires": record.expires,
        "revoked": record.revoked or None, "last_used": pats.last_used(folder, record.id),
    }  # fmt: skip


_COLUMNS = ("id", "account", "state", "created", "expires", "last_used", "scopes", "networks")


def _table(rows: list[dict[str, Any]]) -> str:
    headings = [name.replace("_", " ").upper() for name in _COLUMNS]
    return render_table([headings, *([_format(name, row[name]) for name in _COLUMNS] for row in rows)])


def _format(name: str, value: Any) -> str:
    if name in {"created", "expires", "last_used"}:
        return show_time(value) if value is not None else "never"
    if name in {"scopes", "networks"}:
        return ",".join(value) or "any"
    return str(value)


@pat.command()
@_folder_options
@click.argument("token_id", metavar="ID")
def revoke(folder: Path | None, config: Path | None, token_id: str) -> None:
    """Revoke the token with this public id, the 12 characters after `evi_pat_`, for ever.

    Every worker refuses it from its next request on. A second revocation changes nothing.
    """
    if not pats.is_id(token_id):
        # Do not repeat the argument: it may be the token itself.
        rule = "give the public id alone, the 12 letters and digits after `evi_pat_`"
        raise click.BadParameter(rule, param_hint="ID")
    record = pats.revoke(_folder_of(folder, config), token_id, int(time.time()))
    say(f"{record.id} ({record.account}) was revoked at {show_time(record.revoked or 0)}")
