"""The times and caps of `service/policies`, with the reason for each value."""

from __future__ import annotations

# -- the store ---------------------------------------------------------------------------------------------------------

# An archived policy is a file of at most 1 MiB, which its defaults make less than four times as long, and its provider.
# Few policies decide within the life of a token.
MAX_POLICY_BYTES = 8 * 1024 * 1024
MAX_POLICIES = 256

# -- versions that never decided ---------------------------------------------------------------------------------------

# How often a watcher marks the versions in force on its host: hosts may share `data`, and their clocks may differ by
# MOST_SKEW_S.
MARK_S = 60.0
# Digests that a worker knows to be in the archive. Beyond it the table is emptied, which costs a look at the disk.
MAX_KNOWN = 65_536

# -- emergency stops ---------------------------------------------------------------------------------------------------

# How often a worker looks at stops.yaml. We promise that every worker enforces a stop within IN_FORCE_S.
STOPS_LOOK_S = 0.5
IN_FORCE_S = 2.0
