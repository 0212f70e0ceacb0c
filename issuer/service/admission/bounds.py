"""The times and caps of `service/admission`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

from issuer.limits.rate import Rate

# A pipeline gives up earlier, so that the calls that wait for the next one still have time.
PIPELINE_S = 0.6
# The last part of both counts from when the event loop comes to it: where the process itself stood still, the store's
# answer may lie there unread.
HEARD_S = 0.1
# How long a process believes what the store said of a quarantine (contract section 5). Past this it asks again.
STANDING_S = 5.0
# Remembered identities, some hundred bytes each. Above it the oldest is forgotten, which costs one call to the store.
MAX_STANDINGS = 4096
# How often one identity token or nonce may bring its own request again, and, counted apart, another one: an honest
# client tries again a few times. Who found a spent token in a log uses up the second alone.
AGAIN_RATE = Rate(count=60, per_s=3600, burst=60)
# Refusals of all callers together who have an identity's pins and fail its requirements: jobs of other branches.
RESEMBLING_RATE = Rate(count=600, per_s=3600, burst=600)
# The secret that seals what the store keeps: keys as long as its HMAC's digest, one that seals and one that is accepted
# while it changes.
SECRET_KEY_BYTES = 32
SECRET_KEYS = 2
# From which part of its memory on readiness says that the store fills: there is time to give it more.
STORE_FILLS = 0.7
# How long the store waits for its replicas, where these are required.
REPLICAS_MS = 300
# Two pipelines hide the round trip; more would only make each smaller, and a merged call costs a third.
PIPELINES = 2
PIPELINE_CALLS = 128
# At the start of a process: until the store answers, and until an embedded one runs.
STORE_START_S = 3.0
EMBEDDED_START_S = 5.0
