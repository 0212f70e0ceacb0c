"""Times and caps of `service/log`, each with the reason for its value."""

from __future__ import annotations

# Documents in PostgreSQL (key history, revocations): how often a process tries to lock one, and how long the holder of
# the lock may be silent before the server rolls its transaction back. A holder may wait for an operator's key in a
# token or a KMS.
HOME_POLL_S = 0.05
HOME_IDLE_S = 30.0

LOG_LOCK_S = 0.5  # SQLite: how long to wait for the holder of a lock, or for readers of pages to be overwritten
# PostgreSQL: how long a sequencer waits while another host locks the head's row; after how long a silence of a
# sequencer the server rolls its transaction back, so that the other hosts can go on; how long a sequencer waits for an
# answer before it closes the connection (a COMMIT may wait for a replica); how long it waits for a new connection.
LOG_ROW_LOCK_S = 1.0
LOG_IDLE_S = 2.0
LOG_DATABASE_S = 3.0
LOG_CONNECT_S = 2
LOG_STANDBYS_S = 10.0  # how often the sequencer asks PostgreSQL whether a COMMIT waits for a replica, for readiness
LOG_LOOKED_UP = 100  # the tokens that one statement looks up
# The pages (4 KiB) in SQLite's write-ahead log after which the sequencer checkpoints it between two batches: some
# hundred batches, and 20 ms of work. A batch writes a few pages, and one more for each few rows.
LOG_WAL_PAGES = 1024
LOG_BATCH_PAGES = 8
LOG_PAGE_ROWS = 4
# How many batches pass between two checks of the write-ahead log: the switch to the database's thread and back costs
# half as much as a batch.
LOG_TEND_BATCHES = 16
# A sequencer process: how long it waits for the end of the previous one, how long it may take until it listens, and how
# long it may take to finish its work when it ends.
LOG_TURN_S = 5.0
LOG_START_S = 20.0
LOG_END_S = 3.0
# How long a worker waits for an answer, not counting the wait for witnesses. The sequencer drops older leaves: their
# workers have given up. While the process restarts (a fraction of a second), workers retry this often.
LOG_CALL_S = 0.8
LOG_AGAIN_S = 0.02
# The most leaves in one batch, some 50 ms of work; and the most leaves that may wait: they still get an answer in time.
LOG_BATCH_LEAVES = 512
LOG_QUEUE_LEAVES = 4096
# The largest message: it has the leaves of a batch of tokens, at most 4 KiB each, or their proofs. The most unread
# answers of one client in bytes, and the most open questions, which are enough for all its requests.
LOG_FRAME_BYTES = 1024 * 1024
LOG_UNREAD_BYTES = 8 * 1024 * 1024
LOG_ASKED = 2048
LOG_SLOT_BYTES = 4096  # each of the two slots of a record's file: a block of a disk, and much more than a checkpoint
# How long a record in the store may take, and how often a write is tried while other hosts change the record.
LOG_RECORD_S = 0.3
LOG_RECORD_TRIES = 3
MAX_LOGGED_URL_CHARS = 2048  # each leaf has the issuer's URL, and at most 4 KiB
# How many announced leaves a worker keeps: a repeated announcement costs a look-up and adds no leaf. And how many
# leaves it announces in one call: a reload may have thousands, while requests go on.
LOG_ANNOUNCED = 100_000
LOG_ANNOUNCED_AT_ONCE = 128
# How long a worker waits, after it drops a key, before it announces the key's new state: by then all workers have
# dropped the key, and the last tokens under the key are in the log.
LOG_NARROWED_S = 10

# -- public reading of the log -----------------------------------------------------------------------------------------

# Threads that read the log, each with its connection. A question costs at most some 3 ms, so even the last waiting
# question gets its answer within a tenth of a second.
LOG_READERS = 2
LOG_READING_S = 60.0  # the age at which a connection is replaced: its file or server may have been exchanged
# "No such leaf" needs a look through a new connection, because the open file or server may not be the log's any more.
# All answers of this time share one look, and after a failed look there is no other for this time: anybody may ask, and
# PostgreSQL starts a process for each connection.
LOG_FRESH_S = 0.25
# PostgreSQL: the connections of a host's sequencer, and of each worker: its LOG_READERS, and one that reads documents,
# one that writes the keys' history and one that writes the revocations.
LOG_HOST_CONNECTIONS = 1
LOG_WORKER_CONNECTIONS = LOG_READERS + 3

# -- witnesses of the log ----------------------------------------------------------------------------------------------

# The time of one request to a witness, up to the last byte of its answer; and the size of an answer.
WITNESS_S = 2.0
MAX_WITNESS_BYTES = 64 * 1024
# The least time between two checkpoints that are sent to witnesses; the second value is for `sync`. Each checkpoint
# costs every witness a write to its disk.
WITNESS_PACE_S = 1.0
WITNESS_SYNC_PACE_S = 0.1
# With `sync`, how long issuance waits for a cosigned checkpoint; workers then wait this much longer for the log. After
# WITNESS_MISSES rounds in a row without a quorum, leaves that need one are refused at once.
WITNESS_SYNC_S = 1.0
WITNESS_MISSES = 3
WITNESS_START_S = 6.0  # at the start of the service, the time limit for a witness's final answer about the log
# Without a quorum, the pause between two rounds doubles up to the first value. A faulty witness is logged again after
# the second.
MAX_WITNESS_PAUSE_S = 5.0
WITNESS_TOLD_S = 60.0
