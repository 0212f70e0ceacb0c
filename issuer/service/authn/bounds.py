"""Times and caps of `service/authn`, each with the reason for its value."""

from __future__ import annotations

# -- requests that wait for a provider ---------------------------------------------------------------------------------

# A waiting request uses one of the service's places for requests in flight. One slow provider must not use them all.
MAX_WAITING = 128
# For all providers of opaque tokens together. Introspection and the Hub each have this limit: when both have reached
# it, a quarter of the places is left.
MAX_WAITING_IN_ALL = 192
# The most open questions for one source. A source is charged only after an answer, so with a slow provider the charge
# alone does not limit them.
MAX_ASKED_FOR_SOURCE = 16

# -- key sets ----------------------------------------------------------------------------------------------------------

# A timer fetches a set again this long after the last fetch, even if no tokens come: a provider revokes a stolen key by
# publishing another set, and has no other way to tell us. The jitter of a fifth keeps workers from asking together.
RENEW_S = 600.0
JITTER = 0.2
# Past this age, a set verifies nothing until the service has tried to renew it: by then the timer has missed two
# renewals.
UNTRIED_AGE_S = 1200.0
# After a failed try the next one follows in RETRY_S, and meanwhile the old set serves for TRY_SERVES_S: otherwise a
# provider that is down for hours would stop every job. Past the hard age a set verifies nothing.
RETRY_S = 60.0
TRY_SERVES_S = 90.0
HARD_AGE_S = 86_400.0
# The timer stops renewing a set that no token has used for this long: its provider may have been removed.
UNUSED_S = 86_400.0
# The period of the timer.
TIMER_S = 1.0
# The most fetches from one issuer, even if a flood of tokens has invented kids.
FETCH_PAUSE_S = 5.0
FETCHES_A_MINUTE = 6
MINUTE_S = 60.0

# -- opaque tokens -----------------------------------------------------------------------------------------------------

# The time limit for all requests about one credential, up to the last byte of a slow body.
ASK_S = 3.0
# How long a good answer serves, counted from the question. Added to the time limits of the question, the body of the
# request with the token and the store's call, it stays below REVOKED_WITHIN_S, the promise of the contract (section 5).
ANSWER_KEPT_S = 45.0
REVOKED_WITHIN_S = 60.0
# Kept answers of all providers together: some hundred bytes each, and at most MAX_KEPT_BYTES as JSON.
MAX_ANSWERS = 4096
MAX_KEPT_BYTES = 8 * 1024
MAX_TEXT_CHARS = 512
# The size of one answer.
MAX_ANSWER_BYTES = 64 * 1024
MAX_ANSWER_DEPTH = 16
MAX_ANSWER_MEMBERS = 64
# How long a discovered endpoint is used before the metadata is read again.
ENDPOINT_KEPT_S = 600.0

# -- personal access tokens --------------------------------------------------------------------------------------------

# How often the last use of a token is recorded.
USED_EVERY_S = 60
# A folder can change twice within one tick of the clock that dates it, and some file systems tick in 2 s (git calls
# this "racy"). So a young folder is read again, but not for every guess: 2000 records take 26 ms.
RACY_NS = 2_000_000_000
RACY_AGAIN_NS = 100_000_000
# An operator may repair a bad record in place, which does not change its folder. So the folder is read again this
# often.
BAD_AGAIN_NS = 1_000_000_000

# -- audit -------------------------------------------------------------------------------------------------------------

# How often the audit reports a caller that uses a registered name under other ids, and how many such callers a process
# records, at some hundred bytes each.
RECYCLED_S = 3600
MAX_RECYCLED = 1024
