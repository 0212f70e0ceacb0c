"""The times and caps of `service/doctor`, each with the reason for its size."""

from __future__ import annotations

# The operator is warned if the clocks of store and host differ by more than this.
DOUBTFUL_SKEW_S = 5
# How long an HTTP request of the doctor may take.
DOCTOR_ANSWER_S = 5.0
# The operator is warned if a round trip to the store takes longer: each admission waits for at least one.
DOCTOR_SLOW_MS = 10
# A backup is due every ten minutes (deploy/systemd). After this time three have failed.
BACKUP_OLD_S = 1800
