"""The times and caps of `service/policies`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# -- the store ---------------------------------------------------------------------------------------------------------

# A kept policy is a file of at most 1 MiB with its provider, in canonical form. Few decide within the life of a token.
MAX_POLICY_BYTES = 4 * 1024 * 1024
MAX_POLICIES = 256

# -- emergency stops ---------------------------------------------------------------------------------------------------

# How often stops.yaml is looked at. A stop is promised in every worker within IN_FORCE_S, whatever else they do.
STOPS_LOOK_S = 0.5
IN_FORCE_S = 2.0
