"""Times and caps of `service/revocation`, each with the reason for its value."""

from __future__ import annotations

REVOKED_LOOK_S = 0.5  # how often a worker looks at the files; revocations, too, must be in force within IN_FORCE_S
# The lifetime of a list, unless a command says otherwise. An attacker who withholds newer lists gains this much time.
# A list is renewed after half of its lifetime, so its key may be absent for a day.
LIST_GOOD_S = 48 * 3600
LIST_AGE_S = 300  # how long caches may keep the list: a relying party may learn of a revocation this much later
# How long before its end the service begins to log an error about the list, and how often.
LIST_ENDS_S = 86_400
LIST_TOLD_S = 3600
LIST_RETRY_S = 60  # the pause after a failure, if no file has changed: a large record costs half a second
LIST_ROOM_BYTES = 8 * 1024  # room in a list (of some 125,000 tokens) for the issuer's URL and all other members
MAX_REASON_CHARS = 1000
