"""Everything that is looked at, in the order in which one thing rests on another."""

from __future__ import annotations

from collections.abc import Iterator

from issuer.diagnosis import Line, surviving
from issuer.service.doctor.around import look_around
from issuer.service.doctor.held import look_at_audit, look_at_what_is_held
from issuer.service.doctor.places import look_at_backup, look_at_disk, look_at_places
from issuer.service.doctor.store import look_at_store
from issuer.service.settings import MEMBERS, Settings


def examine_server(settings: Settings, now: int) -> Iterator[Line]:
    """Yield a line for each thing that may keep a service from running well, at `now` in Unix seconds. Nothing is
    written, and no secret is in a line."""
    yield Line("settings", "pass", f"{len(MEMBERS)} settings are understood")
    yield from look_at_places(settings)
    yield from surviving("disk", look_at_disk(settings))
    yield from surviving("backup", look_at_backup(settings, now))
    yield from look_at_what_is_held(settings, now)
    yield from surviving("store", look_at_store(settings))
    yield from look_around(settings)
    yield from surviving("audit", look_at_audit(settings.audit_file))  # last: it may have millions of lines
