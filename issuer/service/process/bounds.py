"""The times and caps of `service/process`, with the reason for each value."""

from __future__ import annotations

from issuer.service.settings.bounds import GRACE_S

# -- fair queue --------------------------------------------------------------------------------------------------------

# How long the queue runs callers' steps before it pauses; one step may take 20 ms. If steps are left, the pause lets
# the event loop do the other work of a few requests.
TURN_S = 0.004
REST_S = 0.002
# How long a caller's first steps run before the waiting work of others. The work for one token takes less.
SOON_S = 0.001

# -- connections -------------------------------------------------------------------------------------------------------

DESCRIPTORS = 1024

# -- policies ----------------------------------------------------------------------------------------------------------

# How often a worker looks for changes that its supervisor has sent: one call of the kernel.
RECEIVE_S = 0.2

# -- metrics -----------------------------------------------------------------------------------------------------------

# Scrapes at the same time. Each has this long to send its request and to read the answer. One more ends the first, and
# waits this long for its place.
MAX_SCRAPES = 8
SCRAPE_S = 10.0
SCRAPE_ENDS_S = 0.5

# -- processes ---------------------------------------------------------------------------------------------------------

KILL_S = GRACE_S + 2
LOADING_S = 60
