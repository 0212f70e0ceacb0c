"""Times and caps of `service/metrics`, each with the reason for its value."""

from __future__ import annotations

# A worker's row in the shared memory: the names of its counts, as many numbers, and its state. Only written pages use
# memory. The spare parts are reserved for labels without an integration: each endpoint with each code.
METRIC_KEY_BYTES = 1024 * 1024
METRIC_NUMBERS = 16_384
METRIC_SPARE_BYTES = 256 * 1024
METRIC_SPARE_NUMBERS = 2048
METRIC_STATE_BYTES = 64 * 1024
# How often a worker writes its state. A state is valid for no longer than a worker may be silent.
METRIC_STATE_S = 1.0
# How often a worker checks the log, because the log may have had no other call for long.
METRIC_LOG_S = 5.0
# The operator's view reads the standings in the store: at most this often for all viewers together, for at most this
# long, and for at most this many identities.
METRIC_HELD_S = 15.0
METRIC_HELD_LOOK_S = 3.0
METRIC_HELD_IDENTITIES = 20_000
# The last part of the audit file that is searched for unmatched entries of the policies: some 40,000 decisions, and all
# later ones.
METRIC_AUDIT_BYTES = 64 * 1024 * 1024
