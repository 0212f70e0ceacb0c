"""The times and caps of `service/policies`, with the reason for each value."""

from __future__ import annotations

# -- the store ---------------------------------------------------------------------------------------------------------

# An archived policy is a file of at most 1 MiB with its provider, in canonical form. Few policies decide within the
# life of a token.
MAX_POLICY_BYTES = 4 * 1024 * 1024
MAX_POLICIES = 256

# -- emergency stops ---------------------------------------------------------------------------------------------------

# How often a worker looks at stops.yaml. We promise that every worker enforces a stop within IN_FORCE_S.
STOPS_LOOK_S = 0.5
IN_FORCE_S = 2.0
