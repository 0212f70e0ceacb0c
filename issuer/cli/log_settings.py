"""What the commands for a log's operator have in common: which log it is, as `issuer serve` finds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.codes import Code
from issuer.errors import SetupError

if TYPE_CHECKING:
    from issuer.service.log.setup import LogSettings
    from issuer.service.settings import Settings

config_option = click.option(
    "--config", type=click.Path(path_type=Path), help="The service's file of settings; as `serve`."
)


def log_of(settings: Settings) -> LogSettings:
    """Return the log that the settings name. Raises SetupError where they name none.

    A child Valkey forgets when the service stops: only a store that is named is asked what it knows of the log.
    """
    from issuer.service.server import log_settings
    from issuer.service.settings import EMBEDDED

    if not settings.log.origin:
        detail = "log.origin is not set: there is no log. `issuer log init` begins one, and prints what to set"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)
