"""The times and caps of what the service reaches through `issuer.io`, and of what all of its rooms share."""

from __future__ import annotations

# -- providers ---------------------------------------------------------------------------------------------------------

# For discovery and key set together, to the last byte of a dripping body.
FETCH_S = 5.0
# For one address of several: a host whose IPv6 leads nowhere is still reached by IPv4 within any deadline.
ADDRESS_S = 1.5

# -- the store ---------------------------------------------------------------------------------------------------------

# The service promises its 503 within a second: no request waits longer than this, whatever the store does.
CALL_S = 0.8
STORE_CONNECT_S = 0.3
# Sentinels are asked one after the other: three silent ones must leave time for the store.
SENTINEL_S = 0.1
# How far the clock of the store may be from this machine's: by more than that no service starts or is ready. A
# provider's may differ as much from an issuer's.
MOST_SKEW_S = 30
# The path of a socket: macOS takes this much, Linux four bytes more.
MAX_SOCKET_PATH_BYTES = 103

# -- files -------------------------------------------------------------------------------------------------------------

# How often the folder is checked. A change is loaded when two checks in a row see the same: not while it is written.
LOOK_S = 1.0
# Readiness ends while there is still room for the events of what is under way.
MIN_FREE_BYTES = 1024 * 1024
# Below this much room the operator gets a warning: an audit of a busy week is some gigabytes.
FEW_FREE_BYTES = 1024 * 1024 * 1024
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_SECRET_BYTES = 1024

# -- processes ---------------------------------------------------------------------------------------------------------

# Each has a slot in the page that they share.
MAX_WORKERS = 64
# A worker that has not beaten for so many seconds is stopped, or in an endless loop. It is killed, because the kernel
# goes on giving it connections. Before its first beat it loads.
SILENT_S = 10
# How often the log stream reports a count, in place of a line for each event of a kind.
COUNT_S = 1.0
# How many new connections a worker takes in a turn of its event loop: a caller's first request waits for few others'.
MAX_ACCEPTED = 4
# The trust file of `POST /verify`, and each file that it names, may be as large as the largest kind.
MAX_TRUST_BYTES = 4 * 1024 * 1024
# How often counts of refusals and the heads of the audit's chains are written.
COUNTED_S = 60
