"""What the endpoints reach of the service."""

from __future__ import annotations

from msgspec import Struct

from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit import FileAudit
from issuer.service.authn.sources import Sources
from issuer.service.http.published import Published
from issuer.service.http.tarpit import Tarpit
from issuer.service.reload import Live


class Service(Struct, frozen=True):
    """What the endpoints reach: the authority with the active policies, and the parts of it that health shows."""

    issuer_url: str
    live: Live[Published]
    sources: Sources
    admission: RedisAdmission
    audit: FileAudit
    tarpit: Tarpit
