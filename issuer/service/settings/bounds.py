"""The times and caps that several rooms of the service share."""

from __future__ import annotations

# A worker that ends too soon is started again after a pause, twice as long each time, so that the store's return, or a
# corrected file, is noticed within seconds. One that lived for STEADY_S did not end too soon.
RESTART_PAUSE_S = 0.1
MAX_RESTART_PAUSE_S = 2.0
STEADY_S = 10.0
# A worker beats twice a second while its event loop turns, takes steps of work or answers requests.
BEAT_S = 1.0
KEEP_ALIVE_S = 5
# After SIGTERM requests in flight are finished within this; then the parent waits a moment longer, and kills.
GRACE_S = 20
