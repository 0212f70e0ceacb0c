"""Times and caps of `service/audit`, each with the reason for its value."""

from __future__ import annotations

from issuer.limits.rate import Rate

# The bytes that the refusals of one caller may add to the file; further refusals are only counted. A burst allows some
# sixty refusals, enough for a quarantine. Sixteen workers together stay below 10 kB a second.
REFUSED_BYTES = Rate(count=480, per_s=1, burst=72 * 1024)
MAX_COUNTED = 4096  # callers that have an account for their refusals, of some hundred bytes each
# How often the file is synced, so that events are on the disk within a second. If a sync takes longer than the second
# value, the disk has failed, and no tokens are issued.
SYNC_S = 0.5
SYNC_LATE_S = 5.0
