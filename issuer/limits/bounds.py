"""The caps of `issuer/limits`."""

from __future__ import annotations

from issuer.limits.rate import Rate

# Refused requests of one address. Thousands of honest jobs may share an address, but honest requests are not refused.
SOURCE_RATE = Rate(count=600, per_s=60, burst=600)
# Addresses in the table, about a hundred bytes each.
MAX_SOURCES = 10_000
