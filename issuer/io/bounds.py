"""Times and caps for everything that the service reaches through `issuer.io`, and those that all its rooms share."""

from __future__ import annotations

# -- providers ---------------------------------------------------------------------------------------------------------

# The time for discovery and key set together, to the last byte of a slow body.
FETCH_S = 5.0
# The time for one of several addresses. If a host's IPv6 does not work, IPv4 still connects within any deadline.
ADDRESS_S = 1.5

# -- host names --------------------------------------------------------------------------------------------------------

# The time for a look-up. It is within the deadlines of those who wait for it, so that they can say what was late, and
# the end of the process waits no longer for them.
LOOKUP_S = 1.5
# How long an answer or a failure is kept. A slow name server's answer, which came too late, serves the next try: key
# sets are tried again after a minute.
LOOKUP_KEPT_S = 3.0
LATE_KEPT_S = 90.0
# The threads of one client's look-ups: with four workers, half of the tasks that the systemd unit allows. The operator
# lists the hosts, and few of them have the same name server.
MAX_LOOKUPS = 32
# With more names, the kept answers are dropped.
MAX_NAMES = 256

# -- the store ---------------------------------------------------------------------------------------------------------

# The service promises its 503 within a second. No request waits longer than this for the store.
CALL_S = 0.8
STORE_CONNECT_S = 0.3
# The service asks one Sentinel after the other. After three silent ones there must be time left for the store.
SENTINEL_S = 0.1
# The most by which the store's clock and this machine's may differ. With a larger difference the service does not start
# and is not ready. A provider's clock may differ as much from an issuer's.
MOST_SKEW_S = 30
# The longest path of a socket on macOS. Linux allows four bytes more.
MAX_SOCKET_PATH_BYTES = 103

# -- files -------------------------------------------------------------------------------------------------------------

# The time between checks of a folder. A change is loaded when two checks in a row see the same, not during a write.
LOOK_S = 1.0
# With less free space the service is not ready. Requests in progress can still write their events.
MIN_FREE_BYTES = 1024 * 1024
# With less free space the operator gets a warning. The audit file of a busy week has some gigabytes.
FEW_FREE_BYTES = 1024 * 1024 * 1024
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_SECRET_BYTES = 1024

# -- processes ---------------------------------------------------------------------------------------------------------

# Each worker has a slot in their shared page.
MAX_WORKERS = 64
# A worker without a heartbeat for so long is stopped or in an endless loop. The supervisor kills it, because the kernel
# continues to give it connections. A worker that is still loading has more time.
SILENT_S = 10
# The time between counts in the log stream, which replace a line for each event of a kind.
COUNT_S = 1.0
# The most new connections that a worker accepts in a turn of its event loop. A small number keeps first requests fast.
MAX_ACCEPTED = 4
# The bound for the trust file of `POST /verify` and for each file that it names: that of the largest kind.
MAX_TRUST_BYTES = 4 * 1024 * 1024
# The time between writes of the counts of refusals and of the heads of the audit's chains.
COUNTED_S = 60
