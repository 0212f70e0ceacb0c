"""`issuer init`, `issuer config` and `issuer serve`: make the folder of a service, show its settings, and run it.

Exit codes of `init` (contract section 6): 0 made, 2 usage, 6 the folder is not empty or cannot be written.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from issuer.cli.exits import exit_for_lines, extra_of
from issuer.cli.operate.operator import who
from issuer.cli.options import A_FILE, config_option, json_option
from issuer.cli.render import say_lines
from issuer.cli.terminal import printable, say, say_document
from issuer.formats.findings import Line
from issuer.io.bounds import MAX_WORKERS
from issuer.service.settings.model import EMBEDDED, MEMBERS, Settings, schema, values_of
from issuer.service.settings.reader import fault_of_url, find_settings, read_settings

_ORIGIN_COLUMN = 48
# A URL's user name and password are before the last @. Its query may contain them, too.
_SECRETS = re.compile(r"(?<=://).*@|(?<=\?).*", re.DOTALL)


@click.command()
@click.option("--config", type=A_FILE, help="A YAML file of settings; ISSUER_* variables win.")
@click.option("--workers", type=click.IntRange(1, MAX_WORKERS), default=1, show_default=True,
              help="Processes on one port and one store.")  # fmt: skip
@click.option("--begin-anew", multiple=True, metavar="PART",
              help="Start without this part of `data`, which the issuer had. May be given again.")  # fmt: skip
def serve(config: Path | None, workers: int, begin_anew: tuple[str, ...]) -> None:
    """Run the service until SIGTERM. Settings: deploy/README.md."""
    with extra_of("server,embedded", "`issuer serve`"):
        from issuer.service.process.server import serve as run
    run(read_settings(config), workers=workers, begin_anew=begin_anew)


def _url(_: click.Context, __: click.Parameter, url: str) -> str:
    if fault := fault_of_url(url, development=url.startswith("http://")):
        raise click.BadParameter(fault)
    return url


@click.command()
@click.argument("folder", type=A_FILE, metavar="DIR")
@click.option("--url", required=True, callback=_url, help="The issuer's permanent public URL, https.")
@click.option("--store", "store_url", default=EMBEDDED, show_default=True, metavar="URL",
              help="A Redis or Valkey; the embedded store loses its data when it stops.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="The port to listen on.")
def init(folder: Path, url: str, store_url: str, port: int) -> None:
    """Make DIR with everything that a service needs, and print the commands that start it.

    DIR gets commented settings, the first signing key, a sample policy with its tests, a systemd unit and a compose
    file. It must not exist, or be empty. Run the command as the service's user, or as root for the owner of DIR.
    """
    with extra_of("server,embedded", "`issuer init`"):
        from issuer.service.process.new_folder import SETTINGS, Wish, begin, demand_free
    demand_free(folder)
    begin(folder, Wish(url, store_url, port, who()), int(time.time()))
    say(printable(f"made {folder}"))
    config = shlex.quote(str(folder / SETTINGS))
    say("\nNext: check the settings, put your ids into the sample policy, and start the service.\n")
    for command in (
        f"issuer config check --config {config}",
        f"issuer policy check {shlex.quote(str(folder / 'policies'))} --url {shlex.quote(url)}",
        f"issuer serve --config {config}",
    ):
        say(printable(f"  {command}"))


@click.group()
def config() -> None:
    """Show, check and describe the service's settings."""


@config.command()
@config_option
@click.option("--origin", is_flag=True, help="Show the origin of each setting.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with the origins.")
def show(config: Path | None, origin: bool, as_json: bool) -> None:
    """Print the settings in force, with the defaults, as a settings file. Passwords in URLs become `***`.

    For invalid settings the command ends with exit code 3 or 6, like `issuer serve`.
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
    if not isinstance(value, str):
        return value
    return _SECRETS.sub(lambda match: "***@" if match[0].endswith("@") else "***", value)


def _lines(values: Mapping[str, Any], origins: Mapping[str, str] | None) -> list[str]:
    """Return the lines of a settings file, the version first. `origins` become comments."""
    lines, section = list[str](), ""
    for name in sorted(values, key=lambda name: name != "version"):
        before, (section, _, last) = section, name.rpartition(".")
        if section and section != before:
            lines.append(f"{section}:")
        text = f"{'  ' if section else ''}{last}: {json.dumps(values[name], ensure_ascii=False)}"
        lines.append(text if origins is None else f"{text:<{_ORIGIN_COLUMN}}  # {origins.get(name, 'default')}")
    return lines


@config.command()
@config_option
@json_option
def check(config: Path | None, as_json: bool) -> None:
    """List every fault of the settings, and of the folders and secrets that they name.

    Exit code 3 if a file is at fault, 6 if the environment or a folder is. `issuer doctor --server` checks more.
    """
    from issuer.service.doctor.paths import look_at_places

    settings = read_settings(config)
    lines = [Line("settings", "pass", f"{len(MEMBERS)} settings are valid"), *look_at_places(settings)]
    sys.exit(exit_for_lines(say_lines(lines, {} if as_json else None)))


@config.command("schema")
def show_schema() -> None:
    """Print the JSON Schema of a settings file, for an editor."""
    say_document(schema())
