"""The times and caps of `service/process`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

from issuer.service.settings.bounds import GRACE_S

# -- whose work is next ------------------------------------------------------------------------------------------------

# How long steps of callers' work are taken, one of which may take 20 ms; and how long the event loop then has to itself
# while more are left: enough for what else a few requests need.
TURN_S = 0.004
# How long a caller's first work is taken at once, before others' work that waits: one token's takes less.
SOON_S = 0.001
REST_S = 0.002

# -- connections -------------------------------------------------------------------------------------------------------

DESCRIPTORS = 1024

# -- policies and keys -------------------------------------------------------------------------------------------------

# How often a worker asks whether its parent has told it of such a change: a question to the kernel.
TOLD_S = 0.2

# -- metrics -----------------------------------------------------------------------------------------------------------

# Who scrapes: so many at once, and the rest is turned away; each has so long to ask and to read.
MAX_SCRAPES = 8
SCRAPE_S = 10.0

# -- processes ---------------------------------------------------------------------------------------------------------

KILL_S = GRACE_S + 2
LOADING_S = 60
