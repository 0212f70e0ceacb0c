"""The caps of `issuer/limits`."""

from __future__ import annotations

from issuer.limits.rate import Rate

# Refused requests of one address: thousands of honest jobs may share one, but honest requests are not refused.
SOURCE_RATE = Rate(count=600, per_s=60, burst=600)
# Remembered addresses, some hundred bytes each.
MAX_SOURCES = 10_000
