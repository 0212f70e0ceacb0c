"""What the endpoints reach of the service."""

from __future__ import annotations

from msgspec import Struct

from issuer.service.admission.redis import RedisAdmission
from issuer.service.audit import FileAudit
from issuer.service.authn.sources import Sources
from issuer.service.http.published import Published, PublishedKeys
from issuer.service.http.revocations import PublishedRevocations
from issuer.service.http.tarpit import Tarpit
from issuer.service.log.announced import AnnouncingLog
from issuer.service.metrics.counts import Counts
from issuer.service.reload import Live
from issuer.service.signing.live import LiveSigner
from issuer.service.stops import LiveStops
from issuer.service.store_watch import StoreWatch


class Service(Struct, frozen=True):
    """What the endpoints reach: the authority with the active policies, and the parts of it that health shows.

    `keys` publishes those of `signer`.
    """

    issuer_url: str
    counts: Counts
    live: Live[Published]
    signer: LiveSigner
    keys: PublishedKeys
    revocations: PublishedRevocations
    stops: LiveStops
    sources: Sources
    admission: RedisAdmission
    store: StoreWatch
    audit: FileAudit
    tarpit: Tarpit
    log: AnnouncingLog | None = None
