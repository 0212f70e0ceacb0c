"""Times and caps of `service/admission`, each with the reason for its value."""

from __future__ import annotations

from issuer.limits.rate import Rate

# A pipeline gives up before its calls do, so the calls that wait for the next one still have time.
PIPELINE_S = 0.6
# Both deadlines end with a second timer of this length, which starts when the event loop handles the first: after a
# stall of the process, an answer of the store may have arrived and still be unread.
HEARD_S = 0.1
# How long a process relies on the store's answer about a quarantine (contract section 5), before it asks again.
STANDING_S = 5.0
# Recorded quarantines, some hundred bytes each. A full table drops the oldest one, which costs one call to the store.
MAX_STANDINGS = 4096
# How often one identity token or nonce may come again with the same request, and, counted separately, with another one.
# An honest client retries a few times. Somebody who finds a spent token in a log uses up only the second count.
AGAIN_RATE = Rate(count=60, per_s=3600, burst=60)
# The rate of refusals for all callers together that match an identity's pins but fail its requirements, such as jobs of
# other branches.
RESEMBLING_RATE = Rate(count=600, per_s=3600, burst=600)
# The secret that seals the stored values: keys as long as its HMAC's digest. The first key seals; during a change a
# second one is accepted.
SECRET_KEY_BYTES = 32
SECRET_KEYS = 2
# Readiness warns from this used part of the store's memory on, while there is still time to give the store more.
STORE_FILLS = 0.7
# How long the store waits for its replicas, if they are required.
REPLICAS_MS = 300
# Two pipelines hide the round trip. More pipelines would each have fewer calls, and a call in a pipeline costs a third
# of a single one.
PIPELINES = 2
PIPELINE_CALLS = 128
# How long the start of a process waits for an answer of the store, and for an embedded store to run.
STORE_START_S = 3.0
EMBEDDED_START_S = 5.0
