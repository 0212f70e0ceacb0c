"""The times and caps of `service/http`, each with the reason for its size."""

from __future__ import annotations

from issuer.limits.rate import Rate

# -- requests ----------------------------------------------------------------------------------------------------------

# Requests in flight at once. This many take a fraction of a second of work, and their bodies have 64 MiB in all. A
# batch takes up to a hundred times the work of a single request, and has up to 1 MiB.
MAX_REQUESTS = 512
MAX_BATCHES = 32
# How many of these one registered identity may have while the service reads their bodies. It may send each body slowly,
# in up to ten seconds.
MAX_BODIES = 64
MAX_BATCH_BODIES = 8
# All identities of one integration together leave half of the places to other integrations.
MAX_INTEGRATION_BODIES = 256
MAX_INTEGRATION_BATCH_BODIES = 16
# From the end of the head to the end of the body. After that the answer is 408. After the first BODY_FREE_S the body
# must come at BODY_BYTES_PER_S or more: a connection that sends nothing has its place half as long.
BODY_DEADLINE_S = 10.0
BODY_FREE_S = 5.0
BODY_BYTES_PER_S = 1024
# A larger body keeps its caller's place until it is judged: judging takes up to 0.1 s, for a batch up to 2 s. A smaller
# body gives its place up as soon as it is read, because an honest caller may send hundreds of them at once.
SMALL_BODY_BYTES = 8 * 1024

# -- connections -------------------------------------------------------------------------------------------------------

# A process has 1024 descriptors by default. The rest is for providers, the store, keys and the audit. There may be more
# connections than requests in flight, so usually one of them waits for its client and can be closed.
MAX_CONNECTIONS = 800
# A client that just waits for its head to arrive is not slow: another connection makes room, if one can.
FRESH_S = 0.25
# How long a client may take to send a request's head, and to read an answer. uvicorn's own timer bounds the time until
# the next request.
HEAD_S = 10.0
READ_S = 15.0
# How long a client may take to stop sending, after its last answer came in the middle of its message.
LINGER_S = 2.0
# The endpoint itself answers a late body. One second later the connection is closed if it is still sending.
BODY_S = BODY_DEADLINE_S + 1.0
# Everything in a message except its body: request line and headers, chunk sizes and extensions, trailers. A credential
# has at most 16 KiB.
MAX_FRAMING_BYTES = 64 * 1024
# Lines of headers and trailers. A browser behind two proxies sends 40.
MAX_HEADER_LINES = 100
# The request target: the longest that the service reads has 200 bytes.
MAX_TARGET_BYTES = 2 * 1024
# The headers that a reader splits or searches, all together. 60,000 commas in Accept stopped the event loop for 66 ms.
MAX_LIST_BYTES = 1024
# Media ranges in Accept: a browser sends at most 9.
MAX_MEDIA_RANGES = 32
# How many bytes the parser gets at once: at most some 80 requests, which may have to wait for earlier ones. A message
# may exceed MAX_FRAMING_BYTES by this much.
PIECE_BYTES = 2 * 1024

# -- sources of refused requests ---------------------------------------------------------------------------------------

# A 429 for a source over its rate is delayed by this time to twice this time, so clients that came together do not
# return together. At most MAX_HELD answers are delayed at once, so a quarter of the connections stays free.
HELD_S = 3.0
MAX_HELD = 600

# -- requests without a credential -------------------------------------------------------------------------------------

# Readiness checks store, audit and keys at most this often, however many requests come.
READY_KEPT_S = 1.0
# How many requests other than those for tokens begin in one turn of the event loop: some 2 ms of work, or 10 ms with
# the most expensive heads. Without this bound, 300 connections that fetch a document make turns so long that other
# requests get the store's answers too late.
MAX_BEGUN = 16
# The same for token requests that announce a large body: each takes a millisecond before its body is read.
MAX_LARGE_BEGUN = 2
# Bodies of strangers that one endpoint reads at once, each of at most 96 KiB. Beyond it the first one of the source
# with most of them ends with 408.
MAX_OPEN_BODIES = 64

# -- POST /oauth/token -------------------------------------------------------------------------------------------------

# The service decodes these before it knows the caller. RFC 8693 has 10 parameters, and clients add a few.
MAX_PARAMETERS = 32
MAX_NAME_BYTES = 64
MAX_PARAMETER_BYTES = 2048
MAX_SUBJECT_TOKEN_BYTES = 16 * 1024

# -- POST /verify ------------------------------------------------------------------------------------------------------

# Milliseconds of CPU for one address, and for all addresses together (a fifth of a core). A question costs at least 1.
QUESTION_MS = Rate(count=600, per_s=60, burst=300)
ALL_QUESTIONS_MS = Rate(count=12_000, per_s=60, burst=500)
# Questions in progress and waiting. The service judges one at a time, so the last gets its answer within 0.5 s.
MAX_QUESTIONS = 16
MAX_QUESTION_BYTES = 64 * 1024
MAX_QUESTION_DEPTH = 16
# JSON or YAML values in the body, and in each text in it. The worst body found takes 20 ms of CPU, and 240 ms without
# this bound.
MAX_QUESTION_VALUES = 2000
# The trust file is read again at this age. It and each file that it names may have MAX_TRUST_BYTES.
REREAD_S = 60

# -- the public log ----------------------------------------------------------------------------------------------------

MAX_LOG_QUESTIONS = 32
# Milliseconds of CPU for one address, which can read 100 tiles a second, and for all addresses together (a quarter of a
# core). A request costs at least 1.
LOG_READ_MS = Rate(count=6000, per_s=60, burst=1000)
ALL_LOG_READS_MS = Rate(count=15_000, per_s=60, burst=2000)
# The service looks up the newest checkpoint, and whether the log can append, at most this often.
LOG_LOOK_S = 0.25
