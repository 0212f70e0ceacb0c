"""The values in `tests/vectors/stored/`, as today's types."""

from msgspec import UNSET
from msgspec.structs import replace

from issuer.audit.events import (
    AbuseOrdered,
    AbuseSignal,
    CallerRead,
    Event,
    KeysLoaded,
    KeysRefused,
    LogAccepted,
    PoliciesLoaded,
    PoliciesRefused,
    ProviderKeysStale,
    RefusalsCounted,
    RevocationsLoaded,
    StopsLoaded,
)
from issuer.formats import jose
from issuer.limits.abuse import ItemTally, Tally
from issuer.service.signing.lifecycle import KeyEvent
from issuer.token.wire import IssuedToken, LogEntry
from tests.support import make
from tests.support.decisions import decision, refusal
from tests.support.revoking import JTIS, act

NOW = make.NOW
_X = str(jose.public_jwk(make.KEY.public_key())["x"])
_DIGEST = "sha256:" + "d" * 64

KEY_EVENTS = (
    KeyEvent(NOW, "next", make.KID, _X, "an operator", "the first key"),
    KeyEvent(NOW + 60, "published", make.KID, _X, "service on a"),
    KeyEvent(NOW + 120, "active", make.KID, _X, "service on a"),
    KeyEvent(NOW + 180, "retiring", make.KID, _X, "an operator"),
    KeyEvent(NOW + 240, "revoked", make.KID, _X, "an operator", "it was in a log", since=NOW + 150),
)

ACTS = (act(JTIS[0], JTIS[1]), act(from_=NOW - 60, until=NOW), act(JTIS[2], from_=NOW))

_COUNTED = Tally((ItemTally(2, NOW - 60, files=1),), 1, 1, 2, 2, throttled_until=NOW + 60)
_CALLER = CallerRead("github", "https://ci.example", {"repository_id": "7", "ref_protected": True}, ("environment",))
EVENTS: tuple[Event, ...] = (
    decision("1", verdict="issued", policy=_DIGEST, jti=(make.JTI,), kid=make.KID, counted=_COUNTED),
    refusal(name="2"),
    RefusalsCounted(time=NOW, since=NOW - 60, codes={"rate.identity": 3}, integration="inspect-ai", identity="main"),
    AbuseSignal(NOW, "3", "attempts", "warn", "inspect-ai", "main", "abuse.attempts.distinct", 9, 8, (0,)),
    AbuseSignal(NOW, "4", "recycled", "warn", "inspect-ai", "main", "", 1, 0, caller=_CALLER),
    AbuseOrdered(NOW, "release", "inspect-ai", "main", NOW + 60, "an operator", "a mistake"),
    PoliciesLoaded(NOW, _DIGEST, {"inspect-ai": [_DIGEST]}, ["lm-eval"]),
    PoliciesRefused(NOW, _DIGEST, "file.syntax", "a.yaml", 1, 2, ["inspect-ai"]),
    ProviderKeysStale(NOW, "github", "https://ci.example", NOW - 60, over=True),
    KeysLoaded(NOW, {make.KID: "active"}, {make.KID: None}),
    KeysRefused(NOW, {make.KID: "active"}, "key.unsafe"),
    StopsLoaded(NOW, _DIGEST, ["integration:inspect-ai"], everything=False),
    RevocationsLoaded(NOW, 1, 2),
    LogAccepted(NOW, "log.example/1", 3, "00" * 32, "an operator", "the disk burnt"),
)


def unlinked(event: Event | None) -> Event | None:
    """Return an event as it was before it was written."""
    return None if event is None else replace(event, version=UNSET, worker=UNSET, seq=UNSET, prev=UNSET)


BEGUN, FINISHED = "sha256:" + "1" * 64, "sha256:" + "2" * 64
ISSUED = IssuedToken(
    "eyJ.eyJ.sig", "eval-verify+jwt", make.JTI, make.KID, NOW, NOW + 3600, _DIGEST, _DIGEST, "inspect-ai", "main",
    _DIGEST, '- dataset: {id: "openai/gsm8k"}\n', ("a warning",), LogEntry("log.example/1", 3, "a proof"),
)  # fmt: skip

SETTINGS = """\
version: 1
url: "https://issuer.example"
policies: "/srv/issuer/policies"
data: "/srv/issuer/data"
pats: "/srv/issuer/pats"
trust: "/srv/issuer/trust.yaml"
development: false
keys:
  folder: "/srv/issuer/keys"
  passphrase_file: "/srv/issuer/passphrase"
store:
  url: "redis://127.0.0.1:6379/0"
  noeviction_stated: true
  durable: true
  wait_replicas: 1
  epoch_leeway_s: 30
  secret_file: "/srv/issuer/store-secret"
listen:
  host: "127.0.0.1"
  port: 8443
  trusted_proxies: "127.0.0.1"
log:
  origin: "issuer.example/log"
  database: "/srv/issuer/log/log.sqlite"
  key_file: "/srv/issuer/keys/log/log.pem"
  records: "/mnt/records"
  witness_policy: "/srv/issuer/witnesses"
  witnesses: "sync"
  witnesses_excluded: "w.example"
  witness_monitors: "w.example=https://w.example/log"
metrics:
  host: "127.0.0.1"
  port: 9464
"""
