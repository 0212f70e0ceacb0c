"""The user who runs a command, the audit of what he does by it, and the home of an issuer's common documents."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from issuer.io import files

if TYPE_CHECKING:
    from issuer.audit.events import AbuseOrdered, LogAccepted
    from issuer.io.common_documents import Home
    from issuer.service.settings.model import Settings


def who() -> str:
    """Return the user's name with the machine's, and whose it was before `sudo`: `root@host (sudo by alice)`.

    It is not a proof: root writes what it likes.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user has a number alone
        name = str(os.getuid())
    before = os.environ.get("SUDO_USER", "")
    return f"{name}@{os.uname().nodename}{f' (sudo by {before})' if before else ''}"[:512]


def tell(settings: Settings, event: AbuseOrdered | LogAccepted) -> None:
    """Write an event into the service's own audit file, in a chain for this command alone.

    Raises SetupError where the audit is not fit, and Undecided where it was not written.
    """
    import asyncio

    from issuer.service.audit.sink import FileAudit

    files.make_folder(settings.audit_file.parent, shared=True)
    with suppress(FileExistsError):
        files.create(settings.audit_file, b"", shared=True)  # root's, it would keep the service from its own audit
    audit = FileAudit(settings.audit_file)
    try:
        asyncio.run(audit.record(event))
    finally:
        audit.close()


def home_by(settings: Settings | None, data: Path) -> Home:
    """Return where the history of the keys and the record of revocations are: by the settings, if these are known and
    `data` is theirs. Raises SetupError and OSError."""
    from issuer.io.common_documents import FolderHome
    from issuer.service.log.database.engines import home_of

    if settings is None or data != Path(settings.data):
        return FolderHome(data)
    return home_of(data, settings.log.origin, settings.log_place)
