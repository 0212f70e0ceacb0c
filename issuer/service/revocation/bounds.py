"""The times and caps of `service/revocation`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# How often the files are looked at. A revocation, too, is in force in every worker within IN_FORCE_S.
REVOKED_LOOK_S = 0.5
# How long a list may clear what it does not name, unless a command says otherwise: who holds back newer ones gains as
# much. It is signed anew when half of this has passed, so that a key that is away for a day is missed by nobody.
LIST_GOOD_S = 48 * 3600
# For how long caches may keep it: a relying party hears of a revocation that much later.
LIST_AGE_S = 300
# From how long before its end on the log says so, and how often.
LIST_ENDS_S = 86_400
LIST_TOLD_S = 3600
# How long after a try that failed it is tried again, where no file has changed: a large record takes half a second.
LIST_RETRY_S = 60
# A list has room for some 125,000 tokens; each of them may be in a line of its own, with a reason.
# Room is left in it for the issuer's URL, and for what is written beside the items.
LIST_ROOM_BYTES = 8 * 1024
MAX_REASON_CHARS = 1000
