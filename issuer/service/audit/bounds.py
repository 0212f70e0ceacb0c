"""The times and caps of `service/audit`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

from issuer.limits.rate import Rate

# The bytes that the refusals of one caller may add to the file; beyond that they are counted. A burst is worth some
# sixty refusals, as many as it takes to be quarantined. Sixteen workers together stay below 10 kB a second.
REFUSED_BYTES = Rate(count=480, per_s=1, burst=72 * 1024)
# Callers whose refusals are counted apart, some hundred bytes each.
MAX_COUNTED = 4096
# What was written is on the disk within a second: it is synced this often. A disk that has not done so for longer has
# failed: no audit, no token.
SYNC_S = 0.5
SYNC_LATE_S = 5.0
