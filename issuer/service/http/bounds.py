"""The times and caps of `service/http`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

from issuer.limits.rate import Rate

# -- requests ----------------------------------------------------------------------------------------------------------

# In flight at once, so that each is answered in good time: work for a fraction of a second, and bodies for 64 MiB in
# all. A batch is a hundred times the work, and 1 MiB.
MAX_REQUESTS = 512
MAX_BATCHES = 32
# Of these, how many one registered identity may hold while its bodies are read: it could take ten seconds for each.
MAX_BODIES = 64
MAX_BATCH_BODIES = 8
# From the end of the head to the end of the body; then 408.
BODY_DEADLINE_S = 10.0
# A larger body holds its caller's place until it is judged, not only while it comes: it may take a tenth of a second, a
# batch two. Smaller ones, which an honest caller may send hundreds of at once, wait for their turn without a place.
SMALL_BODY_BYTES = 8 * 1024

# -- connections -------------------------------------------------------------------------------------------------------

# A process has 1024 descriptors by default: the rest is for providers, store, keys and audit. More connections are
# allowed than requests in flight, so that there is always an idle one to close.
MAX_CONNECTIONS = 800
# To send a request's head; to read an answer; to begin the next request (uvicorn's own timer).
HEAD_S = 10.0
READ_S = 15.0
# To stop sending, for a client that has got its last answer in the middle of a message.
LINGER_S = 2.0
# A late body is answered by the endpoint itself; a connection that is still sending one a moment later is closed.
BODY_S = BODY_DEADLINE_S + 1.0
# What a message has beside its body: request line and headers, chunk sizes and extensions, trailers. A credential has
# at most 16 KiB.
MAX_FRAMING_BYTES = 64 * 1024
# How much of what was read the parser gets at once. The requests in it may wait for those before them, some 80 at most;
# and by so much a message may exceed its framing.
PIECE_BYTES = 2 * 1024

# -- sources of refused requests ---------------------------------------------------------------------------------------

# The 429 above that rate is delayed by at least this long, and at most twice as long: clients that came together must
# not return together. At most this many at once: a quarter of the connections stays free.
HELD_S = 3.0
MAX_HELD = 600

# -- what anybody may ask for ------------------------------------------------------------------------------------------

# Readiness looks at store, audit and keys at most this often, however many ask.
READY_KEPT_S = 1.0
# Requests that are not for tokens begin so many at a time, in one turn of the event loop: some 2 ms of work. Without
# this 300 connections that ask for a document make turns so long that the store's answers to others come too late.
MAX_BEGUN = 16
# Of requests for tokens that announce a large body, which take a millisecond each before it is read.
MAX_LARGE_BEGUN = 2

# -- POST /verify ------------------------------------------------------------------------------------------------------

# Milliseconds of CPU: of one address, where a question costs 1 at least, and of all together a fifth of a core.
QUESTION_MS = Rate(count=600, per_s=60, burst=300)
ALL_QUESTIONS_MS = Rate(count=12_000, per_s=60, burst=500)
# One is judged at a time; with those that wait for it so many: the last of them has its answer within half a second.
MAX_QUESTIONS = 16
MAX_QUESTION_BYTES = 64 * 1024
MAX_QUESTION_DEPTH = 16
# Of the body, and of each text in it: the worst that was found takes 20 ms of CPU, 240 ms without this bound.
MAX_QUESTION_VALUES = 2000
# The trust file is read again at this age. It, and each file that it names, may be as large as the largest kind.
REREAD_S = 60

# -- what anybody may read of the log ----------------------------------------------------------------------------------

MAX_LOG_QUESTIONS = 32
# Milliseconds of CPU, where a question costs 1 at least: of one address, which so reads 100 tiles a second, and of all
# together a quarter of a core.
LOG_READ_MS = Rate(count=6000, per_s=60, burst=1000)
ALL_LOG_READS_MS = Rate(count=15_000, per_s=60, burst=2000)
# The newest checkpoint is looked up this often, however many ask; and so is whether the log could be written.
LOG_LOOK_S = 0.25
