"""Functions that the operator's commands share: user name, audit, settings, passphrase, place of common documents."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from issuer.errors import SetupError
from issuer.io import files
from issuer.io.keyfile import MAX_PASSPHRASE_FILE

if TYPE_CHECKING:
    from issuer.audit.events import AbuseOrdered, LogAccepted
    from issuer.io.common_documents import Home
    from issuer.service.settings.model import Settings


def who() -> str:
    """Return the names of the user, the machine and the user of `sudo`: `root@host (sudo by alice)`.

    It is not a proof, because root can write any name.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have only a number
        name = str(os.getuid())
    sudo_user = os.environ.get("SUDO_USER", "")
    return f"{name}@{os.uname().nodename}{f' (sudo by {sudo_user})' if sudo_user else ''}"[:512]


def record_in_audit(settings: Settings, event: AbuseOrdered | LogAccepted) -> None:
    """Append an event to the service's audit file, in a new chain for this command.

    Raises SetupError if the audit file is unusable, and Undecided if the event was not written.
    """
    import asyncio

    from issuer.service.audit.sink import FileAudit

    files.make_folder(settings.audit_file.parent, shared=True)
    with suppress(FileExistsError):
        files.create(settings.audit_file, b"", shared=True)  # the service could not write a file owned by root
    audit = FileAudit(settings.audit_file)
    try:
        asyncio.run(audit.record(event))
    finally:
        audit.close()


def settings_or(options: str, config: Path | None) -> Settings:
    """Read the settings. Raises SetupError, which also names the `options` that can replace them, and InputError."""
    from issuer.service.settings.reader import read_settings

    try:
        return read_settings(config)
    except SetupError as error:
        raise SetupError(error.code, f"{error.detail}; or give {options}") from None


def read_passphrase(file: Path) -> bytes:
    """Read the passphrase of a key from a file or a pipe. Raises InputError."""
    return files.read(file, MAX_PASSPHRASE_FILE, pipe=True).rstrip(b"\r\n")


def home_of_data(settings: Settings | None, data: Path) -> Home:
    """Return the place that has the key history and the record of revocations.

    It is the settings' place if `data` is their folder, or else the folder `data`. Raises SetupError and OSError.
    """
    from issuer.io.common_documents import FolderHome
    from issuer.service.log.database.engines import home_of

    if settings is None or data != Path(settings.data):
        return FolderHome(data)
    return home_of(data, settings.log.origin, settings.log_place)
