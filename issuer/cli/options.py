"""Options that commands in several folders share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

A_FILE = click.Path(path_type=Path)
A_FOLDER = click.Path(path_type=Path, file_okay=False)
FILE_OR_INPUT = click.Path(path_type=Path, allow_dash=True)


def all_of(*options: Decorator) -> Decorator:
    """Return one decorator that adds these options. The help shows them in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def demand(is_good: Callable[[str], object], rule: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that raises click.BadParameter(rule) unless every value is good, and drops repeated values."""

    def check(_: click.Context, __: click.Parameter, given: Any) -> Any:
        values = given if isinstance(given, tuple) else () if given is None else (given,)
        if not all(map(is_good, values)):
            raise click.BadParameter(rule)
        return tuple(dict.fromkeys(given)) if isinstance(given, tuple) else given

    return check


def read_time(text: str, option: str) -> int:
    """Parse Unix seconds, or ISO 8601 with an offset, and return Unix seconds. Raises click.BadParameter."""
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        rule = "give Unix seconds, or ISO 8601 with an offset, such as 2026-11-21T09:00:00Z"
        raise click.BadParameter(rule, param_hint=option)
    return int(moment.timestamp())


def _reason(_: click.Context, __: click.Parameter, text: str) -> str:
    from issuer.service.revocation.bounds import MAX_REASON_CHARS

    if not text.strip() or len(text) > MAX_REASON_CHARS:
        raise click.BadParameter(f"give a reason of 1 to {MAX_REASON_CHARS} characters")
    return text


def reason_option(words: str) -> Decorator:
    """Return the required --reason option, with this help text."""
    return click.option("--reason", required=True, callback=_reason, metavar="TEXT", help=words)


audit_reason_option = reason_option("The reason, for the audit file.")
config_option = click.option("--config", type=A_FILE, help="The service's settings file, as for `issuer serve`.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
verbose_option = click.option("--verbose", is_flag=True, help="Also show each check that passed.")
development_option = click.option(
    "--development", is_flag=True, help="Allow providers with plain http at loopback addresses."
)
issuer_option = click.option(
    "--issuer", required=True, envvar="ISSUER_URL", metavar="URL", help="The issuer. Also $ISSUER_URL."
)
integration_option = click.option("--integration", metavar="ID", help="The integration that you expect to match.")
audience_option = click.option("--audience", metavar="AUD", help="The relying party that the token is for.")
