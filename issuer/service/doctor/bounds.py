"""The times and caps of `service/doctor`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# The difference of the clocks of store and host from which on an operator is warned.
DOUBTFUL_SKEW_S = 5
# How long a provider may take to answer who looks at the host; and from which round trip on a store is slow: each
# admission waits for it, at least once.
DOCTOR_ANSWER_S = 5.0
DOCTOR_SLOW_MS = 10
# A backup is due every ten minutes (deploy/systemd): from when on three have failed.
BACKUP_OLD_S = 1800
