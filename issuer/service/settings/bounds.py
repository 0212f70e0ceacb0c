"""The times and caps that several rooms of the service share."""

from __future__ import annotations

# A worker that ends too soon is restarted after a pause, which doubles each time up to MAX_RESTART_PAUSE_S. So a worker
# starts within seconds after the store is back, or a file is corrected. "Too soon" is before STEADY_S.
RESTART_PAUSE_S = 0.1
MAX_RESTART_PAUSE_S = 2.0
STEADY_S = 10.0
# A worker sends a heartbeat every BEAT_S / 2, as long as it makes progress: its event loop turns, or it does work.
BEAT_S = 1.0
KEEP_ALIVE_S = 5
# Time to finish the requests in flight after SIGTERM. The supervisor waits a little longer, then kills the worker.
GRACE_S = 20
# A worker adds new parts of `data` to the inventory.
INVENTORY_LOOK_S = 20.0
