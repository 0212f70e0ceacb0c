"""The times and caps of `service/authn`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# -- who waits for a provider ------------------------------------------------------------------------------------------

# Each waiting request holds a place among those in flight; one slow provider must not take them all.
MAX_WAITING = 128
# All providers of opaque tokens together. There are two such tables, introspection's and the Hub's: a quarter of the
# places is left when both are full.
MAX_WAITING_IN_ALL = 192
# Open questions for one source: with a slow provider, it is charged for the first of them only later.
MAX_ASKED_FOR_SOURCE = 16

# -- key sets ----------------------------------------------------------------------------------------------------------

# A set is renewed by a timer this long after it was asked for, used or not: a provider withdraws a stolen key by
# publishing another set, and has no other way to tell us. More or less by a fifth, so that workers do not ask together.
RENEW_S = 600.0
JITTER = 0.2
# An older set verifies nothing before a try to renew it: two renewals of the timer have been missed by then.
UNTRIED_AGE_S = 1200.0
# While tries fail they are repeated this often, and each lets the old set serve until after the next one: a provider
# that is down for hours would otherwise stop every job. Past the hard age it verifies nothing.
RETRY_S = 60.0
TRY_SERVES_S = 90.0
HARD_AGE_S = 86_400.0
# A set that no token has asked for in this time is not renewed any more: its provider may have been removed.
UNUSED_S = 86_400.0
# How often the timer is looked at.
TIMER_S = 1.0
# A flood of made-up kids causes no more fetches than this, for each issuer.
FETCH_PAUSE_S = 5.0
FETCHES_A_MINUTE = 6
MINUTE_S = 60.0

# -- opaque tokens -----------------------------------------------------------------------------------------------------

# For all requests on behalf of one credential, to the last byte of a dripping body.
ASK_S = 3.0
# How long a good answer serves, from the question on. With the question, the body of the request that brings the token
# and the store's call, this stays under what the contract promises (section 5).
ANSWER_KEPT_S = 45.0
REVOKED_WITHIN_S = 60.0
# Answers kept for all providers together: some hundred bytes each, as JSON at most MAX_KEPT_BYTES.
MAX_ANSWERS = 4096
MAX_KEPT_BYTES = 8 * 1024
MAX_TEXT_CHARS = 512
# The size of one answer.
MAX_ANSWER_BYTES = 64 * 1024
MAX_ANSWER_DEPTH = 16
MAX_ANSWER_MEMBERS = 64
# How long a discovered endpoint is used before the metadata are read again.
ENDPOINT_KEPT_S = 600.0

# -- personal access tokens --------------------------------------------------------------------------------------------

# How often the last use of a token is recorded.
USED_EVERY_S = 60
# A folder can change again within one tick of the clock that dates it; some file systems count in 2 s (git's "racy").
RACY_NS = 2_000_000_000
# So it is read again until the clock has ticked, but not for every guess: with 2000 records that takes 26 ms.
RACY_AGAIN_NS = 100_000_000
# A bad record may be mended in place, which its folder does not show: it is tried again this often.
BAD_AGAIN_NS = 1_000_000_000

# -- audit -------------------------------------------------------------------------------------------------------------

# A caller that has a registered name under other ids is told this often; who is remembered, some hundred bytes each.
RECYCLED_S = 3600
MAX_RECYCLED = 1024
