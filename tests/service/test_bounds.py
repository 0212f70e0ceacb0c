"""The proportions of the service's times and caps, across the `bounds.py` of all its rooms."""

import ast
import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import issuer.io.bounds
import issuer.service
from issuer.audit.events import MAX_EVENT_BYTES
from issuer.formats import jose
from issuer.limits.rate import Limits
from issuer.tlog.leaf import MAX_LEAF_BYTES, TokenLeaf
from issuer.tlog.proof import MAX_HASHES
from issuer.token.verify_token import MAX_TTL_S
from issuer.token.wire import MAX_BYTES, MAX_RESULTS
from issuer.verify.revocations import LONGEST_S
from issuer.verify.revocations import MAX_BYTES as MAX_LIST_BYTES

SERVICE = Path(issuer.service.__file__).parent
ROOMS = sorted(path.parent.name for path in SERVICE.glob("*/bounds.py"))
BOUNDS = [issuer.io.bounds, *(importlib.import_module(f"issuer.service.{room}.bounds") for room in ROOMS)]
b = SimpleNamespace(**{name: value for room in BOUNDS for name, value in vars(room).items() if name.isupper()})
MIB = 1024 * 1024
REFUSED = b.REFUSED_BYTES
SINGLE, BATCH = MAX_BYTES["single"], MAX_BYTES["batch"]
# The descriptors of every process beside connections: the store's pipelines and `ready`, the audit file, the listening
# sockets, the standard streams, the event loop's own, and files that are read while policies are loaded.
OTHER_DESCRIPTORS = b.PIPELINES + 1 + 20 + 2 * b.MAX_ACCEPTED


def test_answers_leave_before_their_deadlines() -> None:
    # A revoked credential is refused in time, however slow the request that brings it (contract section 5).
    assert b.ANSWER_KEPT_S + b.ASK_S + b.BODY_DEADLINE_S + b.CALL_S < b.REVOKED_WITHIN_S

    # A 503 of the store leaves within a second: connecting, or silent Sentinels, or replicas, then the pipeline, then
    # the call that waited for one more.
    assert max(b.STORE_CONNECT_S, 3 * b.SENTINEL_S, b.REPLICAS_MS / 1000) < b.PIPELINE_S < b.CALL_S < 1
    assert b.HEARD_S < b.CALL_S - b.PIPELINE_S

    # A look-up that hangs is reported as such, and its name's answer is still there for the next try.
    assert min(b.ASK_S, b.FETCH_S, b.WITNESS_S) > b.LOOKUP_S
    assert b.LOOKUP_KEPT_S > b.LOOKUP_S

    # The endpoint answers a late body before the connection is closed under it.
    assert b.BODY_FREE_S < b.BODY_DEADLINE_S < b.BODY_S


def test_connections_descriptors_and_places_are_enough_for_all() -> None:
    # Seldom are all connections owed an answer, and the rest of the descriptors is enough while a
    # whole table of providers hangs.
    assert b.MAX_REQUESTS + b.MAX_BATCHES < b.MAX_CONNECTIONS
    assert b.MAX_CONNECTIONS + b.MAX_WAITING_IN_ALL + OTHER_DESCRIPTORS <= b.DESCRIPTORS

    # Those who are held back leave a quarter of the connections to others.
    assert b.MAX_HELD <= b.MAX_CONNECTIONS * 3 / 4

    # Those who wait for providers leave places: one provider to the others, both tables a quarter to everybody else;
    # and one source leaves its provider to the others.
    assert b.MAX_ASKED_FOR_SOURCE < b.MAX_WAITING < b.MAX_WAITING_IN_ALL
    assert 2 * b.MAX_WAITING_IN_ALL <= b.MAX_REQUESTS * 3 / 4

    # The bodies of one identity, and of one integration, leave places to the others; all together fit in memory.
    assert b.MAX_BODIES <= b.MAX_REQUESTS / 4
    assert b.MAX_BATCH_BODIES <= b.MAX_BATCHES / 4
    assert b.MAX_BODIES < b.MAX_INTEGRATION_BODIES <= b.MAX_REQUESTS / 2
    assert b.MAX_BATCH_BODIES < b.MAX_INTEGRATION_BATCH_BODIES <= b.MAX_BATCHES / 2
    assert b.MAX_REQUESTS * SINGLE + b.MAX_BATCHES * BATCH <= 64 * MIB


def test_no_request_takes_much_of_the_loop_or_of_a_core() -> None:
    # Steps of work end in time for others, and what need not hold a place is small beside what must.
    assert b.REST_S <= b.TURN_S < 0.02
    assert SINGLE > 4 * b.SMALL_BODY_BYTES

    # Anybody's credential fits in a head.
    assert jose.MAX_TOKEN_BYTES < b.MAX_FRAMING_BYTES

    # Questions that are judged and that wait leave an answer within a second, at the worst price of 30 ms; one source's
    # burst leaves some of everybody's; all together leave most of a core.
    assert b.MAX_QUESTIONS * 30 <= 1000
    assert b.QUESTION_MS.burst < b.ALL_QUESTIONS_MS.burst
    assert b.ALL_QUESTIONS_MS.count <= b.ALL_QUESTIONS_MS.per_s * 1000 / 4

    # The same for readers of the log, at 3 ms; both together leave half a core.
    assert b.MAX_LOG_QUESTIONS * 3 <= 100
    assert b.LOG_READ_MS.burst < b.ALL_LOG_READS_MS.burst
    log_share, share = (rate.count / rate.per_s / 1000 for rate in (b.ALL_LOG_READS_MS, b.ALL_QUESTIONS_MS))
    assert log_share + share <= 0.5
    assert b.LOG_LOOK_S < 1 < b.LOG_READING_S

    # A message may exceed its framing by little.
    assert b.PIECE_BYTES <= b.MAX_FRAMING_BYTES / 8

    # A bucket of callers who resemble an identity is quarantined by its own refusals before all of them are.
    assert Limits().refusals.burst < b.RESEMBLING_RATE.burst


def test_key_sets_are_renewed_in_time() -> None:
    # A host's second address is tried within either deadline.
    assert 2 * b.ADDRESS_S <= b.ASK_S < b.FETCH_S

    # A key set is renewed before it is too old to verify untried, though the timer is late and a first try fails; while
    # tries fail, one lets it serve until after the next; and they leave most of a minute's fetches to those who wait.
    slow, late_s = 1 + b.JITTER, b.TIMER_S + b.FETCH_S
    assert slow * (b.RENEW_S + b.RETRY_S) + 2 * late_s < b.UNTRIED_AGE_S < b.HARD_AGE_S
    assert slow * b.RETRY_S + late_s < b.TRY_SERVES_S < b.UNTRIED_AGE_S
    assert b.FETCHES_A_MINUTE * b.FETCH_PAUSE_S < b.MINUTE_S < (1 - b.JITTER) * b.RETRY_S * 2


def test_a_key_is_known_to_everybody_before_it_signs_and_to_all_workers_soon_after() -> None:
    # Only when both times of the Cache-Control have passed has everybody a set with a new key.
    assert b.PUBLISHED_S == b.KEY_SET_AGE_S + b.KEY_SET_STALE_S == 900
    # It is in the key set while anything that it signed is good: checks 2 and 5 allow a minute for clocks.
    assert b.LAST_TOKEN_S >= MAX_TTL_S + 60
    # A host whose call failed twice is still in the table; a minute of silence is short beside what it would delay.
    assert 2 * b.HOST_AGAIN_S + b.LOOK_S + b.CALL_S < b.HOST_S < b.PUBLISHED_S
    # Two looks at the folders, or one at the history, each of which the lock of the history may hold up.
    assert 2 * (b.LOOK_S + b.HISTORY_S) < b.ROTATED_S


def test_the_audit_is_bounded_and_soon_on_the_disk() -> None:
    # The refusals of one caller add less than 10 kB a second over any ten minutes, with sixteen workers; the largest one
    # fits; and an event is on the disk within a second.
    ten_minutes = REFUSED.burst + 600 * 1_000_000 // REFUSED.interval_us
    assert 16 * ten_minutes / 600 < 10_000
    assert REFUSED.burst > MAX_EVENT_BYTES
    assert b.SYNC_S * 2 <= 1 < b.SYNC_LATE_S < b.SILENT_S


def test_processes_end_and_begin_in_time() -> None:
    # Requests in flight at SIGTERM are finished, the slowest included, and so is an answer that is held back.
    slowest_s = max(b.FETCH_S, b.ASK_S) + b.BODY_DEADLINE_S + b.CALL_S + b.SIGNED_S
    assert max(slowest_s, 2 * b.HELD_S) < b.GRACE_S < b.KILL_S

    # A worker that turns is never silent for long enough; loading may take longer than silence; pauses end in seconds.
    assert b.BEAT_S * 5 < b.SILENT_S < b.LOADING_S
    assert b.RESTART_PAUSE_S < b.MAX_RESTART_PAUSE_S < b.STEADY_S


def test_a_key_that_lies_elsewhere_holds_nobody_up() -> None:
    # A batch of 100 is signed in its time where a call takes a tenth of a second.
    assert 100 / b.SIGNER_CALLS * 0.1 < b.SIGNED_S
    assert b.SIGNER_S < b.SIGNED_S

    # A call that begins late has time for a call of a tenth of a second, and for one that is three times slower than that.
    assert b.SIGNER_TURN_S + 0.3 <= b.SIGNER_S

    # A start that waits for keys is not silent, and after a failed start the next one waits.
    assert 4 * b.SIGNER_START_S < b.LOADING_S
    assert b.SIGNER_START_S < b.SIGNER_AGAIN_S


def test_what_is_looked_at_is_seen_in_time() -> None:
    # A stop is in force in time, also where a look is late by as much again; and a lifted one is lifted then.
    assert 4 * b.STOPS_LOOK_S <= b.IN_FORCE_S

    # So is a revocation. A list is renewed long before a warning of its end, the warning comes long before the end, and each within
    # what a relying party takes; caches keep it for a small part of that.
    assert 4 * b.REVOKED_LOOK_S <= b.IN_FORCE_S
    assert LONGEST_S >= b.LIST_GOOD_S >= 2 * b.LIST_ENDS_S >= 24 * b.LIST_TOLD_S > 24 * b.LIST_RETRY_S
    assert b.LIST_AGE_S * 100 < b.LIST_GOOD_S
    assert b.LIST_ROOM_BYTES * 100 < MAX_LIST_BYTES < b.MAX_RECORD_BYTES

    # A folder is read again sooner than its clock's tick ends, and a bad record no sooner than the folder.
    assert b.RACY_AGAIN_NS < b.BAD_AGAIN_NS <= b.RACY_NS


def test_the_log_answers_in_time_and_takes_what_all_requests_ask_of_it() -> None:
    # A 503 of the log leaves within a second, also where a lock or a record was waited for. The process is back while
    # who asks still waits.
    assert max(b.LOG_LOCK_S, b.LOG_RECORD_S) < b.LOG_CALL_S < 1
    assert b.LOG_AGAIN_S < b.RESTART_PAUSE_S < b.LOG_CALL_S / 2

    # All requests of a worker may be under way, and the largest one, with its proofs of a tree of any size, is a message.
    assert b.MAX_REQUESTS + b.MAX_BATCHES < b.LOG_ASKED
    assert MAX_RESULTS * (MAX_LEAF_BYTES + 16) < b.LOG_FRAME_BYTES < b.LOG_UNREAD_BYTES
    assert MAX_RESULTS * (MAX_HASHES * 45 + 1024) < b.LOG_FRAME_BYTES
    assert MAX_RESULTS < b.LOG_BATCH_LEAVES < b.LOG_QUEUE_LEAVES

    # The names of an issuer and of an integration (a file's name) have room in a leaf.
    leaf = TokenLeaf("u" * b.MAX_LOGGED_URL_CHARS, "i" * 255, "A" * 43, 10**9, 10**9, f"sha256:{'0' * 64}", bytes(32))
    assert len(leaf.to_bytes()) < MAX_LEAF_BYTES

    # A key that goes out of use is announced so when every worker has seen that twice over, and answered what it had.
    assert 4 * (b.LOOK_S + b.LOG_CALL_S) < b.LOG_NARROWED_S

    # A sequencer that waits for the head's row gives up, and tries again, before the server undoes what a silent one of
    # another host has begun; and only a server that is silent itself is given up by our own clock.
    assert b.LOG_ROW_LOCK_S < b.LOG_IDLE_S < b.LOG_DATABASE_S

    # A process that begins waits until the one before it has ended.
    assert b.LOG_END_S < b.LOG_TURN_S < b.LOG_START_S


def test_witnesses_are_asked_in_time_and_not_too_often() -> None:
    # A request that waits for a cosigned checkpoint sees several rounds; a witness that hangs has failed long before it is named
    # again, and without a quorum tries do not stop for long.
    assert b.WITNESS_SYNC_PACE_S * 4 < b.WITNESS_SYNC_S <= b.WITNESS_S
    assert b.WITNESS_SYNC_PACE_S * 2**b.WITNESS_MISSES < b.WITNESS_SYNC_S
    # Where they cosign each token, the log's answer still comes within two seconds, and the end waits for it.
    assert b.LOG_CALL_S + b.WITNESS_SYNC_S < 2
    assert b.WITNESS_SYNC_S < b.LOG_END_S
    # All that they may take at a start leaves time to start.
    assert b.LOG_TURN_S + b.WITNESS_S + b.WITNESS_START_S < b.LOG_START_S
    assert b.WITNESS_SYNC_PACE_S < b.WITNESS_PACE_S < b.MAX_WITNESS_PAUSE_S < b.WITNESS_TOLD_S


# Sizes of formats, which say themselves why: a jti, the record of a personal access token, the layout of a folder.
FORMATS = {"MAX_JTI_CHARS", "MAX_LIFE_S", "MAX_BYTES", "DAY_S", "MAX_DEPTH", "MAX_DOCUMENT_BYTES"}


def test_no_other_file_of_the_service_has_a_bound_of_its_own() -> None:
    own = {
        f"{path.relative_to(SERVICE)}: {name.id}"
        for path in SERVICE.rglob("*.py")
        if path.name != "bounds.py"
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant | ast.BinOp | ast.Call)
        for name in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(name, ast.Name) and re.search(r"_(S|MS|NS|US|BYTES|CHARS|RATE|DEPTH)$|^_?MAX_", name.id)
        if name.id not in FORMATS
    }
    assert own == set()
