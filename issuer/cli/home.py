"""Where the commands find what all hosts of an issuer go by: where the service does, or in a folder that is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from issuer.service.home import Home
    from issuer.service.settings import Settings


def home_by(settings: Settings | None, data: Path) -> Home:
    """Return where the history of the keys and what is revoked lie: as the settings say, where these are known and
    `data` is theirs. Raises SetupError and OSError."""
    from issuer.service.home import FolderHome
    from issuer.service.log.engines import home_of

    if settings is None or data != Path(settings.data):
        return FolderHome(data)
    return home_of(data, settings.log.origin, settings.log_place)
