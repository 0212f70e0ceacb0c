"""The times and caps of `service/metrics`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# A worker's row in the memory that all share, of which only what is written to is taken: the names of what it counts,
# as many numbers, and how it is. Of both a part is kept for what has no integration in its labels: every endpoint with
# every code.
METRIC_KEY_BYTES = 1024 * 1024
METRIC_NUMBERS = 16_384
METRIC_SPARE_BYTES = 256 * 1024
METRIC_SPARE_NUMBERS = 2048
METRIC_STATE_BYTES = 64 * 1024
# How often a worker says how it is; what it said counts no longer than it may be silent.
METRIC_STATE_S = 1.0
# How often it asks the log, of which nothing else may have been asked for long.
METRIC_LOG_S = 5.0
# The operator's view asks the store what stands against whom: at most this often, however many look, for so long, and
# of so many identities.
METRIC_HELD_S = 15.0
METRIC_HELD_LOOK_S = 3.0
METRIC_HELD_IDENTITIES = 20_000
# Which entries of the policies nothing has matched is told by the last part of the audit, some 40,000 decisions, and by
# what comes after it.
METRIC_AUDIT_BYTES = 64 * 1024 * 1024
