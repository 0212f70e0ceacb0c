"""The audit of what an operator does by a command: in the service's own file, as a chain of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from issuer import files

if TYPE_CHECKING:
    from issuer.audit_events import AbuseOrdered, LogAccepted
    from issuer.service.settings import Settings


def tell(settings: Settings, event: AbuseOrdered | LogAccepted) -> None:
    """Write an event. Raises SetupError where the audit is not fit, and Undecided where it was not written."""
    import asyncio

    from issuer.service.audit import FileAudit

    files.make_folder(settings.audit_file.parent, shared=True)
    with suppress(FileExistsError):
        files.create(settings.audit_file, b"", shared=True)  # root's, it would keep the service from its own audit
    audit = FileAudit(settings.audit_file)
    try:
        asyncio.run(audit.record(event))
    finally:
        audit.close()
