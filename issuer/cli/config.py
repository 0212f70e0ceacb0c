"""`issuer config show|check|schema`: the service's settings, where they come from, and what is wrong with them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from issuer.cli.lines import document_of, exit_for_lines, say_line
from issuer.cli.log_settings import config_option
from issuer.cli.terminal import printable, say, say_document
from issuer.diagnosis import Line
from issuer.service.doctor.places import look_at_places
from issuer.service.read_settings import find_settings, read_settings
from issuer.service.settings import MEMBERS, Settings, schema, values_of

_ORIGIN_COLUMN = 48
# Everything before the last @ is name and password, and a query may have either.
_SECRETS = re.compile(r"(?<=://).*@|(?<=\?).*", re.DOTALL)


@click.group()
def config() -> None:
    """Show, check and describe the service's settings."""


@config.command()
@config_option
@click.option("--origin", is_flag=True, help="Say of each where it comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with the origins.")
def show(config: Path | None, origin: bool, as_json: bool) -> None:
    """Print the settings in force, defaults too, as a settings file. Passwords in URLs are `***`.

    Settings that are wrong are refused as `issuer serve` refuses them: exit code 3 or 6.
    """
    settings, origins = find_settings(config)
    values = shown_values(settings)
    if as_json:
        rows = [
            {"name": name, "value": value, "origin": origins.get(name, "default")} for name, value in values.items()
        ]
        say_document({"version": 1, "settings": rows})
        return
    for line in _lines(values, origins if origin else None):
        say(printable(line))


def shown_values(settings: Settings) -> dict[str, Any]:
    """Return each setting's value by its name, without passwords."""
    return {name: _without_password(value) for name, value in values_of(settings).items()}


def _without_password(value: Any) -> Any:
    return (
        _SECRETS.sub(lambda match: "***@" if match[0].endswith("@") else "***", value)
        if isinstance(value, str)
        else value
    )


def _lines(values: Mapping[str, Any], origins: Mapping[str, str] | None) -> list[str]:
    """Write a settings file, its version first; with `origins` a comment behind each."""
    lines: list[str] = []
    rooms = [""]
    for name in sorted(values, key=lambda name: name != "version"):
        room, _, last = name.rpartition(".")
        if room != rooms[-1]:
            rooms.append(room)
            lines += [f"{room}:"] if room else []
        text = f"{'  ' if room else ''}{last}: {json.dumps(values[name], ensure_ascii=False)}"
        lines.append(text if origins is None else f"{text:<{_ORIGIN_COLUMN}}  # {origins.get(name, 'default')}")
    return lines


@config.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(config: Path | None, as_json: bool) -> None:
    """Find everything that is wrong with the settings, and with the folders and secrets that they name.

    Exit code 3 where a file is wrong, 6 where the environment or a folder is. `issuer doctor --server` looks further.
    """
    settings = read_settings(config)
    lines = [Line("settings", "pass", f"{len(MEMBERS)} settings are understood"), *look_at_places(settings)]
    if as_json:
        say_document({"version": 1, "lines": list(map(document_of, lines))})
    else:
        for line in lines:
            say_line(line)
    sys.exit(exit_for_lines(lines))


@config.command("schema")
def show_schema() -> None:
    """Print the JSON Schema of a settings file, for an editor."""
    say_document(schema())
