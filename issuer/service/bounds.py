"""Every time and every cap of the service, in one table: what it bounds, and why it is as large as it is.

For one worker process, unless noted. Names end in their unit: `_S` seconds, `_MS`, `_NS`, `_BYTES`; the rest are
counts. These are not settings: their proportions are the design, and `tests/service/test_bounds.py` asserts them. The
largest size of a token, a key set, a policy or a record belongs to its format, and is declared there.
"""

from __future__ import annotations

from issuer.limits import Rate

# -- requests: http/in_flight.py, http/reading.py ----------------------------------------------------------------------

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

# -- whose work is next: turns.py --------------------------------------------------------------------------------------

# How long steps of callers' work are taken, one of which may take 20 ms; and how long the event loop then has to itself
# while more are left: enough for what else a few requests need.
TURN_S = 0.004
# How long a caller's first work is taken at once, before others' work that waits: one token's takes less.
SOON_S = 0.001
REST_S = 0.002

# -- connections: http/protocol.py, server.py --------------------------------------------------------------------------

# A process has 1024 descriptors by default: the rest is for providers, store, keys and audit. More connections are
# allowed than requests in flight, so that there is always an idle one to close.
MAX_CONNECTIONS = 800
DESCRIPTORS = 1024
# How many new connections a worker takes in a turn of its event loop: a caller's first request waits for few others'.
MAX_ACCEPTED = 4
# To send a request's head; to read an answer; to begin the next request (uvicorn's own timer).
HEAD_S = 10.0
READ_S = 15.0
# To stop sending, for a client that has got its last answer in the middle of a message.
LINGER_S = 2.0
KEEP_ALIVE_S = 5
# A late body is answered by the endpoint itself; a connection that is still sending one a moment later is closed.
BODY_S = BODY_DEADLINE_S + 1.0
# What a message has beside its body: request line and headers, chunk sizes and extensions, trailers. A credential has
# at most 16 KiB.
MAX_FRAMING_BYTES = 64 * 1024
# How much of what was read the parser gets at once. The requests in it may wait for those before them, some 80 at most;
# and by so much a message may exceed its framing.
PIECE_BYTES = 2 * 1024

# -- sources of refused requests: app.py, authn/sources.py, http/tarpit.py ---------------------------------------------

# Refused requests of one address: thousands of honest jobs may share one, but honest requests are not refused.
SOURCE_RATE = Rate(count=600, per_s=60, burst=600)
# Remembered addresses, some hundred bytes each.
MAX_SOURCES = 10_000
# The 429 above that rate is delayed by at least this long, and at most twice as long: clients that came together must
# not return together. At most this many at once: a quarter of the connections stays free.
HELD_S = 3.0
MAX_HELD = 600
# How often the log stream reports a count, in place of a line for each event of a kind.
COUNT_S = 1.0

# -- what anybody may ask for: http/gate.py, http/protocol.py, http/routes.py ------------------------------------------

# Readiness looks at store, audit and keys at most this often, however many ask.
READY_KEPT_S = 1.0
# Requests that are not for tokens begin so many at a time, in one turn of the event loop: some 2 ms of work. Without
# this 300 connections that ask for a document make turns so long that the store's answers to others come too late.
MAX_BEGUN = 16
# Of requests for tokens that announce a large body, which take a millisecond each before it is read.
MAX_LARGE_BEGUN = 2

# -- POST /verify: http/verify.py, http/question.py --------------------------------------------------------------------

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
MAX_TRUST_BYTES = 4 * 1024 * 1024

# -- who waits for a provider: authn/single_flight.py, authn/answer_cache.py -------------------------------------------

# Each waiting request holds a place among those in flight; one slow provider must not take them all.
MAX_WAITING = 128
# All providers of opaque tokens together. There are two such tables, introspection's and the Hub's: a quarter of the
# places is left when both are full.
MAX_WAITING_IN_ALL = 192
# Open questions for one source: with a slow provider, it is charged for the first of them only later.
MAX_ASKED_FOR_SOURCE = 16

# -- key sets: authn/keysets.py, authn/fetch.py ------------------------------------------------------------------------

# For discovery and key set together, to the last byte of a dripping body.
FETCH_S = 5.0
# For one address of several: a host whose IPv6 leads nowhere is still reached by IPv4 within any deadline.
ADDRESS_S = 1.5
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

# -- opaque tokens: authn/transport.py, authn/answer_cache.py, authn/introspection.py ----------------------------------

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
MAX_SECRET_BYTES = 1024

# -- personal access tokens: authn/pats.py -----------------------------------------------------------------------------

# How often the last use of a token is recorded.
USED_EVERY_S = 60
# A folder can change again within one tick of the clock that dates it; some file systems count in 2 s (git's "racy").
RACY_NS = 2_000_000_000
# So it is read again until the clock has ticked, but not for every guess: with 2000 records that takes 26 ms.
RACY_AGAIN_NS = 100_000_000
# A bad record may be mended in place, which its folder does not show: it is tried again this often.
BAD_AGAIN_NS = 1_000_000_000

# -- the store: admission/redis.py, admission/client.py, admission/embedded.py, admission/standing.py ------------------

# The service promises its 503 within a second: no request waits longer than this, whatever the store does.
CALL_S = 0.8
# A pipeline gives up earlier, so that the calls that wait for the next one still have time.
PIPELINE_S = 0.6
# The last part of both counts from when the event loop comes to it: where the process itself stood still, the store's
# answer may lie there unread.
HEARD_S = 0.1
STORE_CONNECT_S = 0.3
# Sentinels are asked one after the other: three silent ones must leave time for the store.
SENTINEL_S = 0.1
# How long a process believes what the store said of a quarantine (contract section 5). Past this it asks again.
STANDING_S = 5.0
# Remembered identities, some hundred bytes each. Above it the oldest is forgotten, which costs one call to the store.
MAX_STANDINGS = 4096
# How often one identity token or nonce may bring its own request again, and, counted apart, another one: an honest
# client tries again a few times. Who found a spent token in a log uses up the second alone.
AGAIN_RATE = Rate(count=60, per_s=3600, burst=60)
# Refusals of all callers together who have an identity's pins and fail its requirements: jobs of other branches.
RESEMBLING_RATE = Rate(count=600, per_s=3600, burst=600)
# The secret that seals what the store keeps: keys as long as its HMAC's digest, one that seals and one that is accepted
# while it changes.
SECRET_KEY_BYTES = 32
SECRET_KEYS = 2
# A kept policy is a file of at most 1 MiB with its provider, in canonical form. Few decide within the life of a token.
MAX_POLICY_BYTES = 4 * 1024 * 1024
MAX_POLICIES = 256
# From which part of its memory on readiness says that the store fills: there is time to give it more.
STORE_FILLS = 0.7
# How far the clock of the store may be from this machine's: by more than that no service starts or is ready. A
# provider's may differ as much from an issuer's.
MOST_SKEW_S = 30
# From how much on an operator is told.
DOUBTFUL_SKEW_S = 5
# How long the store waits for its replicas, where these are required.
REPLICAS_MS = 300
# Two pipelines hide the round trip; more would only make each smaller, and a merged call costs a third.
PIPELINES = 2
PIPELINE_CALLS = 128
# At the start of a process: until the store answers, and until an embedded one runs.
STORE_START_S = 3.0
EMBEDDED_START_S = 5.0
# The path of a socket: macOS takes this much, Linux four bytes more.
MAX_SOCKET_PATH_BYTES = 103

# -- the hosts that share a store: hosts.py ----------------------------------------------------------------------------

# A host that has not been heard of for this long is not waited for. Each says what it publishes at every change, and
# this often: three times in a row's life, so that one that lives is there although two of its calls fail.
HOST_S = 60
HOST_AGAIN_S = 20

# -- audit: audit.py, append_file.py, refusals.py, recycled.py ---------------------------------------------------------

# Readiness ends while there is still room for the events of what is under way.
MIN_FREE_BYTES = 1024 * 1024
# From how little on an operator is told: an audit of a busy week is some gigabytes.
FEW_FREE_BYTES = 1024 * 1024 * 1024
# The bytes that the refusals of one caller may add to the file; beyond that they are counted. A burst is worth some
# sixty refusals, as many as it takes to be quarantined. Sixteen workers together stay below 10 kB a second.
REFUSED_BYTES = Rate(count=480, per_s=1, burst=72 * 1024)
# How often counts are written, and heads of chains told.
COUNTED_S = 60
# Callers whose refusals are counted apart, some hundred bytes each.
MAX_COUNTED = 4096
# A caller that has a registered name under other ids is told this often; who is remembered, some hundred bytes each.
RECYCLED_S = 3600
MAX_RECYCLED = 1024
# What was written is on the disk within a second: it is synced this often. A disk that has not done so for longer has
# failed: no audit, no token.
SYNC_S = 0.5
SYNC_LATE_S = 5.0

# -- the key set: http/published.py, signing/life.py -------------------------------------------------------------------

# For how long a cache may use the key set, and for how much longer where it cannot be fetched. Only when both have
# passed has everybody a set with a new key: it does not sign before.
KEY_SET_AGE_S = 300
KEY_SET_STALE_S = 600
PUBLISHED_S = KEY_SET_AGE_S + KEY_SET_STALE_S
# How long after a key began its last token one that it signed may be good: the longest life of a token, and a minute
# for the clocks of those who judge it.
LAST_TOKEN_S = 86_400 + 60
# How many keys may ever sign: verifiers read an archive of so many (verify/archive.py). From when on the commands say
# how few are left.
MAX_SIGNED_KEYS = 1024
FEW_KEYS_LEFT = 64
# How far behind the last line of the history of the keys a clock may be: hosts differ a little. Beyond it, it is wrong.
CLOCK_BACK_S = 60
# How long anybody waits for its turn to write there: whoever writes is done within a second, unless it is stopped.
HISTORY_TURN_S = 10.0
# In a database: how often the turn is asked for, and how long who has it may be silent before the server undoes what it
# has begun. Within its turn a command asks for people's keys, which lie in tokens or clouds.
HOME_POLL_S = 0.05
HOME_IDLE_S = 30.0

# -- keys that lie elsewhere: signing/remote_key.py, signing/opener.py, signing/aws_kms_key.py -------------------------

# From when a signature is asked for, its turn in the threads included, to when it has been verified; and for all of a
# batch, which takes its turn with everybody else.
SIGNER_S = 1.0
SIGNED_S = 4.0
# What has waited for its turn for so long is not asked for any more. Where more is wanted than a key signs, everybody
# would be begun just before the end of their time, and be late.
SIGNER_TURN_S = 0.7
# How many signatures of one key are asked for at once: a call costs a millisecond of CPU or two, so that with 10 ms for
# each more would only wait for this process. The driver of a PKCS #11 module takes one.
SIGNER_CALLS = 3
# A message that AWS KMS signs as it is (MessageType RAW).
KMS_MESSAGE_BYTES = 4096
# Readiness signs where nobody has for so long.
SIGNER_CHECK_S = 60.0
# At the start of a process: until a key has been opened and has proved itself. One that could not is tried again so
# often: a wrong PIN, too, is a try that a token counts.
SIGNER_START_S = 5.0
SIGNER_AGAIN_S = 10.0
# The YAML file of a key, and the file of a PIN.
MAX_KEY_FILE_BYTES = 16 * 1024
MAX_PIN_FILE_BYTES = 1024

# -- policies and keys: follow.py, policy_keeper.py, signing/live.py ---------------------------------------------------

# How often the folder is checked. A change is loaded when two checks in a row see the same: not while it is written.
LOOK_S = 1.0
# How often a worker asks whether its parent has told it of such a change: a question to the kernel.
TOLD_S = 0.2
# How long a look at the keys waits for their history, whose lock a stopped process may hold: the next look, which may
# find a stolen key gone, must not. A change of the signing key is in every worker this long after its first token.
HISTORY_S = 0.5
ROTATED_S = 4.0

# -- emergency stops: stops.py, shared_page.py -------------------------------------------------------------------------

# How often stops.yaml is looked at. A stop is promised in every worker within IN_FORCE_S, whatever else they do.
STOPS_LOOK_S = 0.5
IN_FORCE_S = 2.0
# Each has a slot in the page that they share.
MAX_WORKERS = 64

# -- metrics: metrics/*.py ---------------------------------------------------------------------------------------------

# A worker's row in the memory that all share, of which only what is written to is taken: the names of what it counts,
# as many numbers, and how it is. Of both a part is kept for what has no integration in its labels: every endpoint with
# every code.
METRIC_KEY_BYTES = 1024 * 1024
METRIC_NUMBERS = 16_384
METRIC_SPARE_BYTES = 256 * 1024
METRIC_SPARE_NUMBERS = 2048
METRIC_STATE_BYTES = 64 * 1024
# How often a worker says how it is; what it said counts no longer than it may be silent.
METRIC_STATE_S = 1.0
# How often it asks the log, of which nothing else may have been asked for long.
METRIC_LOG_S = 5.0
# The operator's view asks the store what stands against whom: at most this often, however many look, for so long, and
# of so many identities.
METRIC_HELD_S = 15.0
METRIC_HELD_LOOK_S = 3.0
METRIC_HELD_IDENTITIES = 20_000
# Which entries of the policies nothing has matched is told by the last part of the audit, some 40,000 decisions, and by
# what comes after it.
METRIC_AUDIT_BYTES = 64 * 1024 * 1024
# Who scrapes: so many at once, and the rest is turned away; each has so long to ask and to read.
MAX_SCRAPES = 8
SCRAPE_S = 10.0

# -- the transparency log: log/*.py ------------------------------------------------------------------------------------

# How long the sequencer waits for who else holds the database's lock, or reads from what it wants to write over.
LOG_LOCK_S = 0.5
# PostgreSQL: how long another host may hold the head's row; how long a sequencer may be silent before the server undoes
# what it has begun, so that it holds up the others no longer; and how long an answer is waited for, that to a COMMIT
# too, which may wait for a replica. Then the connection is closed.
LOG_ROW_LOCK_S = 1.0
LOG_IDLE_S = 2.0
LOG_DATABASE_S = 3.0
LOG_CONNECT_S = 2
# How often PostgreSQL is asked whether a COMMIT waits for a replica, for readiness to tell.
LOG_STANDBYS_S = 10.0
# How many tokens one statement looks up.
LOG_LOOKED_UP = 100
# After about so many pages of 4 KiB what SQLite has written ahead is put into the database, between two batches: some
# hundred of them, and 20 ms of work. A batch has some pages for itself, and one for each few rows.
LOG_WAL_PAGES = 1024
LOG_BATCH_PAGES = 8
LOG_PAGE_ROWS = 4
# It is looked at after so many batches: to change to the database's thread and back costs half as much as a batch.
LOG_TEND_BATCHES = 16

# How long a sequencer process that begins waits for the one before it to end; how long it may take until it listens;
# and how long it may take to finish what is under way, at its end.
LOG_TURN_S = 5.0
LOG_START_S = 20.0
LOG_END_S = 3.0
# From a worker's question to its answer, where that does not wait for witnesses. The sequencer leaves out what has
# waited for so long: it would have a leaf and no token. While nobody listens, a worker tries again so often: the
# process is back in a fraction of a second.
LOG_CALL_S = 0.8
LOG_AGAIN_S = 0.02
# The leaves of one batch: some 50 ms of work. Those that wait for one: what that takes, and what is under way, is
# answered in time.
LOG_BATCH_LEAVES = 512
LOG_QUEUE_LEAVES = 4096
# A message: the leaves of a batch of tokens, 4 KiB each at most, or their proofs. What one client may leave unread, and
# how many questions it may have open: all its requests.
LOG_FRAME_BYTES = 1024 * 1024
LOG_UNREAD_BYTES = 8 * 1024 * 1024
LOG_ASKED = 2048
# Each of the two slots of a record's file: a block of a disk, and far more than a checkpoint.
LOG_SLOT_BYTES = 4096
# How long a record that is not a file may take, and how often it is swapped again where other hosts swap it too.
LOG_RECORD_S = 0.3
LOG_RECORD_TRIES = 3
# An issuer's name is in each leaf, which is 4 KiB at most.
MAX_LOGGED_URL_CHARS = 2048
# How many announcements a worker knows to have been made: to make one again costs a look-up, and adds nothing. And how
# many of them it makes at once: a reload may have thousands, and requests go on beside them.
LOG_ANNOUNCED = 100_000
LOG_ANNOUNCED_AT_ONCE = 128
# How long a worker has known that a key is out of use when it announces that: by then every worker has dropped it, and
# what it had let through is in the log.
LOG_NARROWED_S = 10

# -- what anybody may read of the log: log/public.py, http/log.py ------------------------------------------------------

# Threads that read the log, each by a connection of its own; and with those who wait for one so many questions, of some
# 3 ms each at the worst: the last of them has its answer within a tenth of a second.
LOG_READERS = 2
MAX_LOG_QUESTIONS = 32
# Milliseconds of CPU, where a question costs 1 at least: of one address, which so reads 100 tiles a second, and of all
# together a quarter of a core.
LOG_READ_MS = Rate(count=6000, per_s=60, burst=1000)
ALL_LOG_READS_MS = Rate(count=15_000, per_s=60, burst=2000)
# The newest checkpoint is looked up this often, however many ask; and so is whether the log could be written.
LOG_LOOK_S = 0.25
# A connection is opened anew at this age: a file that was replaced, or a server, is not read for ever.
LOG_READING_S = 60.0

# -- witnesses of the log: log/witness*.py -----------------------------------------------------------------------------

# For one request to a witness, to the last byte of a dripping answer; and the size of one.
WITNESS_S = 2.0
MAX_WITNESS_BYTES = 64 * 1024
# The least time between two checkpoints that are shown to witnesses, and where issuance waits for them. Each one costs
# every witness a write to its disk.
WITNESS_PACE_S = 1.0
WITNESS_SYNC_PACE_S = 0.1
# How long issuance waits for a cosigned checkpoint, where it does: a worker waits so much longer for the log's answer.
# After so many rounds in a row without a quorum nothing is appended that would have to wait for one.
WITNESS_SYNC_S = 1.0
WITNESS_MISSES = 3
# At the start of the service: for a witness's last word on the log, of several answers.
WITNESS_START_S = 6.0
# While there is no quorum, the time between two tries is doubled up to this. A faulty witness is named this often.
MAX_WITNESS_PAUSE_S = 5.0
WITNESS_TOLD_S = 60.0

# -- revocations: revocation/*.py, http/revocations.py -----------------------------------------------------------------

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
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_REASON_CHARS = 1000

# -- processes: server.py, workers.py ----------------------------------------------------------------------------------

# After SIGTERM requests in flight are finished within this; then the parent waits a moment longer, and kills.
GRACE_S = 20
KILL_S = GRACE_S + 2
# A worker that ends too soon is started again after a pause, twice as long each time, so that the store's return, or a
# corrected file, is noticed within seconds. One that lived for STEADY_S did not end too soon.
RESTART_PAUSE_S = 0.1
MAX_RESTART_PAUSE_S = 2.0
STEADY_S = 10.0
# A worker beats twice a second while it comes on: its event loop turns, takes steps of work or answers requests. One
# that has been silent for this many seconds is stopped, or in an endless loop: it is killed, because the kernel goes on
# giving it connections. Before its first beat it loads.
BEAT_S = 1.0
SILENT_S = 10
LOADING_S = 60

# -- doctor/ -----------------------------------------------------------------------------------------------------------

# How long a provider may take to answer who looks at the host; and from which round trip on a store is slow: each
# admission waits for it, at least once.
DOCTOR_ANSWER_S = 5.0
DOCTOR_SLOW_MS = 10
# A backup is due every ten minutes (deploy/systemd): from when on three have failed.
BACKUP_OLD_S = 1800
