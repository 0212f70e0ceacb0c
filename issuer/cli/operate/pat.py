"""`issuer pat`: personal access tokens, made, listed and revoked by the operator on the service's own machine.

A token is printed once, to standard output and alone, so that it can be piped into a store of secrets; what is said
about it goes to standard error. Nothing here prints a hash, or takes a token.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from issuer.cli.exits import Exit
from issuer.cli.options import A_FILE, all_of, config_option, demand, json_option
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, say_document, say_error
from issuer.errors import SetupError
from issuer.formats.times import show_time
from issuer.identity import pat as form
from issuer.identity.profiles import TOKENS_ISSUE
from issuer.service.authn import pat_records as pats
from issuer.service.settings.reader import read_settings


@click.group()
def pat() -> None:
    """Make, list and revoke personal access tokens, for machines that have no identity of their own."""


_folder_options = all_of(
    click.option("--dir", "folder", type=A_FILE, help="The folder, if not by the settings."), config_option
)


def _folder_of(folder: Path | None, config: Path | None) -> Path:
    """Return the folder that the service reads. Raises SetupError and InputError."""
    try:
        return folder or read_settings(config).pats_folder
    except SetupError as error:
        raise SetupError(error.code, f"{error.detail}; or give --dir, the folder of the tokens") from None


# -- create -----------------------------------------------------------------------------------------------------------


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
              default=(TOKENS_ISSUE,), show_default=True, help="What it is for; may be given again.")  # fmt: skip
@click.option("--network", "networks", multiple=True, callback=_networks, metavar="CIDR",
              help="Where it may be used from; may be given again. Default: anywhere.")  # fmt: skip
@click.option(
    "--expires", type=click.IntRange(1, 90), default=30, show_default=True, metavar="DAYS", help="At most 90."
)
def create(
    folder: Path | None, config: Path | None, account: str, scopes: tuple[str, ...], networks: tuple[str, ...],
    expires: int,
) -> None:  # fmt: skip
    """Make a token and print it, once. The service takes it from its next request on."""
    where = _folder_of(folder, config)
    is_new = not where.exists()
    random, now = os.urandom(form.RANDOM_BYTES), int(time.time())
    order = pats.Order(account, scopes, networks, life_s=expires * pats.DAY_S)
    token, record = pats.create(where, order, now=now, random=random)
    say(_about(record, where, is_new=is_new), err=True)
    say(token)


def _about(record: pats.Record, folder: Path, *, is_new: bool) -> str:
    """Say what was made, what is doubtful about it, and what a policy has to say of it."""
    lines = [f"made   {printable(str(pats.path_of(folder, record.id)))}, until {show_time(record.expires)}"]
    if is_new:
        lines.append("warning: that folder was not there; is it the one that the service reads?")
    if TOKENS_ISSUE not in record.scopes:
        lines.append(f"warning: without the scope {TOKENS_ISSUE} it gets no verify token")
    if not record.networks:
        lines.append("warning: whoever has it can use it from anywhere; --network says from where")
    lines.append("It is shown this once. What lets it speak for an integration, in that integration's policy:\n")
    return "\n".join([*lines, _identity_block(record)])


def _identity_block(record: pats.Record) -> str:
    identity = "-".join(word for word in record.account.replace(".", "-").replace("_", "-").split("-") if word)
    return f"""identities:
  - id: "{identity}"
    provider: pat              # the one with `profile: pat` in providers.yaml
    pins: {{account: "{record.account}"}}
"""


# -- list -------------------------------------------------------------------------------------------------------------


@pat.command("list")
@_folder_options
@json_option
def list_tokens(folder: Path | None, config: Path | None, as_json: bool) -> None:
    """List the tokens, oldest first. Exit code 3 where a record cannot be read: no such token is taken."""
    where, now = _folder_of(folder, config), int(time.time())
    good, bad = pats.read_records(where)
    rows = [_row(record, where, now) for record in good]
    if as_json:
        say_document({"version": 1, "tokens": rows})
    else:
        say(_table(rows) if rows else f"{printable(str(where))} holds no token", err=not rows)
    for error in bad:
        say_error(error)
    sys.exit(Exit.INPUT if bad else Exit.GOOD)


def _row(record: pats.Record, folder: Path, now: int) -> dict[str, Any]:
    """Describe a token as JSON does: times in Unix seconds, null for never."""
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
    """Write one value for people."""
    if name in {"created", "expires", "last_used"}:
        return show_time(value) if value is not None else "never"
    if name in {"scopes", "networks"}:
        return ",".join(value) or "any"
    return str(value)


# -- revoke -----------------------------------------------------------------------------------------------------------


@pat.command()
@_folder_options
@click.argument("token_id", metavar="ID")
def revoke(folder: Path | None, config: Path | None, token_id: str) -> None:
    """Revoke the token with this public id, for ever: the 12 characters after `evi_pat_`.

    Every worker refuses it from its next request on. To revoke it again changes nothing.
    """
    if not pats.is_id(token_id):
        # Never repeated here: it may be the token itself, which is then in the shell's history.
        rule = "give the public id alone, the 12 letters and digits after `evi_pat_`"
        raise click.BadParameter(rule, param_hint="ID")
    record = pats.revoke(_folder_of(folder, config), token_id, int(time.time()))
    say(f"{record.id} ({record.account}) is revoked since {show_time(record.revoked or 0)}")
