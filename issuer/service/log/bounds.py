"""The times and caps of `service/log`: what each bounds, and why it is as large as it is."""

from __future__ import annotations

# The key set in a database: how often the turn is asked for, and how long its holder may be silent before the server
# undoes what it has begun. Within its turn a command asks for people's keys, which are in tokens or clouds.
HOME_POLL_S = 0.05
HOME_IDLE_S = 30.0

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

# -- what anybody may read of the log ----------------------------------------------------------------------------------

# Threads that read the log, each by a connection of its own; and with those who wait for one so many questions, of some
# 3 ms each at the worst: the last of them has its answer within a tenth of a second.
LOG_READERS = 2
# A connection is opened anew at this age: a file that was replaced, or a server, is not read for ever.
LOG_READING_S = 60.0

# -- witnesses of the log ----------------------------------------------------------------------------------------------

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
