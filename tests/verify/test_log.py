"""Check 11, and what a witnessed inclusion serves in 2 and 5: a token's leaf, its log's key, the witnesses, the time."""

import itertools
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.formats.times import show_time
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Note, NoteSigner, SignatureLine
from issuer.verify.check_log import MAX_REMEMBERED, AtHand, CheckedNotes, Proofs
from issuer.verify.check_token import GOOD_WHEN_ISSUED, NOT_KNOWN_HERE
from issuer.verify.receipts import token_digest, write_receipt
from issuer.verify.report import Report, Status
from issuer.verify.trust import Trust
from tests.support import make, reports, witnessed
from tests.support.reports import outcome as of
from tests.support.witnessed import ORIGIN, SPARE, WITNESSES, TestLog, at_hand, leaf_of, trusted_log

ITEM = make.submission()
TOKEN = make.token_for(ITEM, log=ORIGIN)
FILE = make.file_for(ITEM, log=ORIGIN)
OTHER = make.token_for(make.submission(task_id="other"), log=ORIGIN)
LOG = TestLog(OTHER, TOKEN)
END = make.NOW + 3600
LATER = make.NOW + make.YEAR
RECEIPT_KEYS = make.key_set(make.RECEIPT_KEY)
REQUIRED = frozenset({"log"})


def trust(*, require: frozenset[str] = REQUIRED, quorum: int = 2, **members: Any) -> Trust:
    return make.trust(**{"log": trusted_log(quorum), "require": require, **members})


def proofs(*times: int, log: TestLog = LOG) -> Proofs:
    return at_hand(TOKEN, log.proof(TOKEN, *times))


def judge(by: Trust | None = None, found: Proofs | None = None, *, text: str = FILE, **known: Any) -> Report:
    """Judge the file as a reader does ten seconds after its issue, with the witnesses' proof; or as `known` says."""
    at_hand = proofs(make.NOW + 1, make.NOW + 2) if found is None else found
    return reports.judge(text, by or trust(), **{"at": None, "now": make.NOW + 10, "proofs": at_hand, **known})


def of_11(found: Proofs | None = None, by: Trust | None = None, **known: Any) -> tuple[Status, str]:
    return of(judge(by, found, **known), 11)


# -- (11) -----------------------------------------------------------------------------------------------------------------


def test_11_passes_where_log_witnesses_and_tree_all_say_so() -> None:
    report = judge()
    time = show_time(make.NOW + 2)
    assert report.verdict == "verified"
    assert of(report, 11) == (Status.PASS, f"leaf 6 of the 7 of {ORIGIN}, witnessed at {time}")


def test_11_is_no_more_than_information_where_it_is_not_required() -> None:
    free = trust(require=frozenset())
    for found in ({}, proofs(make.NOW), at_hand(TOKEN, b"?"), {leaf_of(TOKEN): AtHand(denied=True)}):
        report = judge(free, found)
        assert (report.verdict, of(report, 11)[0]) == ("verified", Status.SKIP)
    assert of(judge(free), 11)[1].startswith("not required: leaf 6")
    assert of(judge(make.trust()), 11) == (Status.SKIP, "not required: the trust file names no log of this issuer")


def test_11_is_unknown_without_a_proof_that_can_be_read() -> None:
    assert of_11({}) == (Status.UNKNOWN, "no proof was found")
    assert judge(found={}).verdict == "undecided"
    assert of_11(by=make.trust(require=REQUIRED)) == (Status.UNKNOWN, "the trust file names no log of this issuer")
    unread = {leaf_of(TOKEN): AtHand(fault="a symbolic link: not followed")}
    assert of_11(unread) == (Status.UNKNOWN, "the proof at hand is not usable: a symbolic link: not followed")
    late = judge(trust(require=frozenset()), {}, now=LATER)
    assert (late.verdict, late.reason) == ("undecided", GOOD_WHEN_ISSUED)


def test_11_fails_where_the_token_or_the_log_itself_is_the_reason() -> None:
    denied = {leaf_of(TOKEN): AtHand(denied=True)}
    for text, found, evidence, origin in (
        (make.file_for(ITEM), {}, "names no log", ""),
        (make.file_for(ITEM, log="elsewhere.example/log"), {}, "names another log", "elsewhere.example/log"),
        (FILE, denied, "answered that it has no such leaf", ""),
        (make.file_for(ITEM, log=ORIGIN, sub="two words"), {}, "does not fit into a leaf", ""),
    ):
        report = judge(found=found, text=text)
        assert (report.failed, report.checks[10].token) == ((11,), origin)
        assert evidence in of(report, 11)[1]
    elsewhere = judge(trust(log=trusted_log(origins=[SPARE])))  # the proof at hand is of a log of another issuer
    assert (elsewhere.failed, elsewhere.checks[10].token) == ((11,), ORIGIN)


NOTE = LOG.note({0: make.NOW, 1: make.NOW})
PROOF = LOG.proof(TOKEN, note=NOTE)
BAD_LINE = SignatureLine(ORIGIN, LOG.signer.verifier.key_id, bytes(64))
UNSERVED = {
    "another leaf": (LOG.proof(OTHER, note=NOTE), "do not lead from this token's leaf"),
    "another index": (PROOF.replace(b"index 6", b"index 5"), "do not lead"),
    "outside the tree": (PROOF.replace(b"index 6", b"index 7"), "do not lead"),
    "nobody known signed": (LOG.proof(TOKEN, note=LOG.note({0: make.NOW, 1: make.NOW}, signer=NoteSigner(ORIGIN, make.STRANGER))), "not signed by a log"),
    "only witnesses signed": (LOG.proof(TOKEN, note=Note(NOTE.text, NOTE.signatures[1:])), "not signed by a log"),
    "a bad line": (LOG.proof(TOKEN, note=NOTE.with_lines([BAD_LINE])), "does not fit"),
    "no witness": (LOG.proof(TOKEN), "too few witnesses"),
    "one witness of two": (LOG.proof(TOKEN, note=LOG.note({1: make.NOW})), "too few witnesses"),
    "one witness twice": (LOG.proof(TOKEN, note=LOG.note({0: make.NOW}).with_lines([WITNESSES[0].cosign(NOTE.text, make.NOW + 1)])), "too few witnesses"),
    "the times of the future": (LOG.proof(TOKEN, make.NOW + 71, make.NOW), "too few witnesses"),
    "no bytes of a proof": (b"\xff\x00", "proof"),
    "cut short": (PROOF[:-9], ""),
    "too long": (PROOF + b"x" * 2**20, "bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSERVED)
def test_11_an_unusable_proof_counts_like_a_missing_one_and_shows_no_time(case: str) -> None:
    raw, evidence = UNSERVED[case]
    free = trust(require=frozenset())
    for by, status, verdict in ((trust(), Status.UNKNOWN, "undecided"), (free, Status.SKIP, "verified")):
        report = judge(by, at_hand(TOKEN, raw))
        assert (report.verdict, of(report, 11)[0]) == (verdict, status)
        assert "the proof at hand is not usable: " in of(report, 11)[1]
        assert evidence in of(report, 11)[1]
    if case != "the times of the future":
        late = judge(free, at_hand(TOKEN, raw), now=LATER)
        assert (late.verdict, of(late, 5)[0]) == ("undecided", Status.UNKNOWN)


def test_11_a_checkpoint_of_the_issuer_s_other_log_does_not_serve() -> None:
    spare = TestLog(OTHER, TOKEN, origin=SPARE)
    status, evidence = of_11(proofs(make.NOW, make.NOW, log=spare))
    assert (status, f"of the log {SPARE}" in evidence) == (Status.UNKNOWN, True)
    moved = make.file_for(ITEM, log=SPARE)
    token = make.token_for(ITEM, log=SPARE)
    spare.add(token)
    report = judge(found=at_hand(token, spare.proof(token, make.NOW, make.NOW)), text=moved)
    assert report.verdict == "verified"


def test_11_serves_during_the_rotation_of_the_log_s_key_under_either_key() -> None:
    new = NoteSigner(ORIGIN, Ed25519PrivateKey.from_private_bytes(b"n" * 32))
    text = witnessed.policy_text() + f"log {new.verifier.to_text()}\n"
    both = NOTE.with_lines([new.sign(NOTE.text)])
    only_new = LOG.note({0: make.NOW, 1: make.NOW}, signer=new)
    old, later = trust(), trust(log=witnessed.log_by(text))
    assert judge(old, at_hand(TOKEN, LOG.proof(TOKEN, note=both))).verdict == "verified"
    assert judge(old, at_hand(TOKEN, LOG.proof(TOKEN, note=only_new))).verdict == "undecided"
    for note in (both, only_new):
        assert judge(later, at_hand(TOKEN, LOG.proof(TOKEN, note=note))).verdict == "verified"


def test_11_without_a_quorum_an_inclusion_passes_and_proves_no_time() -> None:
    by = trust(quorum=0)
    assert of(judge(by, proofs()), 11)[1].endswith("the policy requires no witness, so this proves no time")
    late = judge(by, proofs(make.NOW, make.NOW), now=LATER)
    assert (of(late, 11)[0], of(late, 5)[0], late.verdict) == (Status.PASS, Status.UNKNOWN, "good_when_issued")


def test_11_rests_on_the_signature() -> None:
    forged = judge(text=FILE[:-8] + 'AAAAAA"\n')
    assert (forged.failed, of(forged, 11)) == ((3,), (Status.SKIP, "rests on check 3, which did not pass"))
    assert of(judge(trust(require=frozenset()), text=FILE[:-8] + 'AAAAAA"\n'), 11) == (Status.SKIP, "not required")
    malformed = judge(text=FILE.replace("eyJ", "eyK"))
    assert (malformed.failed, of(malformed, 11)[0]) == ((1,), Status.SKIP)


# -- the witnessed time ---------------------------------------------------------------------------------------------------


def test_the_witnessed_time_is_when_the_quorum_was_reached() -> None:
    for times, shown in (((5, 9), 9), ((9, 5), 9), ((1, 9, 5), 5), ((9, 9, 9), 9), ((0, 3600), 3600), ((-60, -60), -60), ((-61, 3), 3)):  # fmt: skip
        report = judge(found=proofs(*(make.NOW + time for time in times)), now=LATER)
        assert (report.verdict, report.at, report.at_from) == ("verified", make.NOW + shown, "log"), times
        assert of(report, 5)[1].startswith(f"existed at {show_time(make.NOW + shown)}; {NOT_KNOWN_HERE}; ")


def test_a_witnessed_time_outside_of_the_token_s_life_decides_nothing() -> None:
    for times, evidence in (
        ((-61, -61), "alarm: witnessed 1 min 1 s before"),
        ((0, 3601), "logged late: witnessed 1 s after"),
        ((9000, 9000, 3600), "logged late: witnessed 1 h 30 min after"),
    ):
        report = judge(found=proofs(*(make.NOW + time for time in times)), now=LATER)
        assert (report.verdict, of(report, 5)[0]) == ("good_when_issued", Status.UNKNOWN)
        assert (of(report, 11)[0], evidence in of(report, 11)[1]) == (Status.PASS, True)
    # A second witness could still show a time.
    one = judge(found=proofs(make.NOW + 7), now=LATER)
    assert (one.verdict, of(one, 5)[0], of(one, 11)[0]) == ("undecided", Status.UNKNOWN, Status.UNKNOWN)


def test_a_time_ahead_of_the_verifier_s_clock_by_over_a_minute_does_not_count() -> None:
    for ahead, good in ((60, True), (61, False)):
        report = judge(found=proofs(make.NOW, make.NOW + 10 + ahead))
        assert (report.verdict == "verified") is good


# Judges: a reader, a receiver with a clock, a stated time, and a party that wrote a receipt in time.
JUDGES = {"reader": None, "receiver": LATER, "stated late": LATER, "stated in time": make.NOW + 5, "receipt": None}
TIMES = {"in time": (5, 9), "late": (3601, 3601), "early": (-61, -61), "none": None}
KEYS = ("published", "archived", "archived, window over", "revoked before", "revoked after", "revoked after, gone")


def archive_of(key: str) -> dict[str, Any]:
    """Return the keys and the archive of the issuer a year later."""
    if key == "published":
        return {}
    window: dict[str, int] = {"last_token_exp": END if key.endswith("over") else LATER + 1}
    if key.startswith("revoked"):
        window["revoked_from"] = make.NOW + (8 if "before" in key else 10)
    gone = {} if key in {"revoked before", "revoked after"} else {"keys": make.key_set(make.STRANGER)}
    return {**gone, "archive": make.archive(**window)}


def expected(judge: str, time: str, key: str, listed: str) -> str:
    """Return the verdict by the contract's words, not by the code's."""
    existed_then = time == "in time"
    in_time = judge in {"stated in time", "receipt"}
    if key.startswith("revoked"):
        # Evidence from outside: a witnessed inclusion at NOW + 9, or a receipt at NOW + 6; both revocations are later
        # than the receipt, and the first one is earlier than the witnesses.
        if not (judge == "receipt" or (existed_then and "after" in key)):
            return "failed"
    elif key == "archived, window over" and not in_time and not existed_then:
        return "undecided" if judge == "reader" else "failed"
    if listed:
        return "failed"
    late = "undecided" if judge == "reader" else "failed"
    return "verified" if in_time or (judge == "reader" and existed_then) else late


def test_a_year_later_the_verdict_follows_the_evidence_for_the_time() -> None:
    """Every time that the witnesses may have seen, every state of the key, and each way to revoke the token."""
    revoked: dict[str, Any] = {"": {}, "jti": {"jti": [make.JTI]}, "sub": {"sub": [{"sub": "inspect-ai", "from": 0}]}}
    trusts = {}
    for key, (listed, members) in itertools.product(KEYS, revoked.items()):
        lists = make.revocations(iat=LATER, next_update=LATER + 9, **members)
        known = {"receipt_keys": RECEIPT_KEYS, "revocations": lists, **archive_of(key)}
        trusts[key, listed] = trust(require=frozenset(), **known)
    wrong = {}
    for (time, times), (judged_by, at), (key, listed) in itertools.product(TIMES.items(), JUDGES.items(), trusts):
        found = {} if times is None else proofs(*(make.NOW + each for each in times))
        receipts = {token_digest(TOKEN): RECEIPT} if judged_by == "receipt" else {}
        known = {"at": at, "now": LATER, "witnessed": judged_by == "receiver", "receipts": receipts}
        verdict = judge(trusts[key, listed], found, **known).verdict
        if verdict != expected(judged_by, time, key, listed):
            wrong[judged_by, time, key, listed] = verdict
    assert wrong == {}


THEN = trust(require=frozenset(), receipt_keys=RECEIPT_KEYS)
RECEIVED = judge(THEN, {}, at=make.NOW + 6, now=make.NOW + 6, witnessed=True)
RECEIPT = (write_receipt(RECEIVED, THEN, make.RECEIPT_KEY, make.NOW + 6) or b"").decode()


def test_a_late_receiver_learns_that_the_token_existed_in_time() -> None:
    report = judge(at=LATER, now=LATER, witnessed=True)
    assert (report.failed, report.at_from) == ((5,), "clock")
    assert f"; the token existed at {show_time(make.NOW + 2)}, but this file may have come later" in of(report, 5)[1]


def test_the_witnessed_time_opens_the_key_s_window_for_everyone() -> None:
    """A late receiver learns that the file is late, not that the key is unknown."""
    gone: dict[str, Any] = {"keys": make.key_set(make.STRANGER), "archive": make.archive(last_token_exp=END)}
    for at, now_here, failed in ((None, False, ()), (LATER, True, (5,)), (LATER, False, (5,))):
        report = judge(trust(**gone), at=at, now=LATER, witnessed=now_here)
        assert (report.failed, of(report, 2)[0]) == (failed, Status.PASS)
    assert judge(trust(**gone), {}, at=LATER, now=LATER, witnessed=True).failed == (2,)


def test_a_witnessed_time_outside_of_the_key_s_window_does_not_open_it() -> None:
    for revoked in ({}, {"revoked_from": END}):
        archive = make.archive(last_token_exp=make.NOW + 1, **revoked)
        report = judge(trust(keys=make.key_set(make.STRANGER), archive=archive), now=LATER)
        assert (report.verdict, of(report, 2)[0]) == ("undecided", Status.UNKNOWN)


def test_what_passes_by_the_log_alone_becomes_no_receipt() -> None:
    """Such a receipt would say that the file came after its token had ended, and so refute the file."""
    by = trust(receipt_keys=RECEIPT_KEYS)
    late, fresh = judge(by, now=LATER), judge(by, now=END)
    assert late.verdict == fresh.verdict == "verified"
    assert (fresh.at, fresh.at_from) == (END, "unknown"), "a reader in time is judged by now"
    assert write_receipt(late, by, make.RECEIPT_KEY, LATER) is None
    assert write_receipt(fresh, by, make.RECEIPT_KEY, END) is not None


def test_a_receipt_comes_before_the_log_and_both_answer_for_a_revoked_key() -> None:
    for revoked_from, good in ((make.NOW + 7, True), (make.NOW + 6, True), (make.NOW + 5, False)):
        by = trust(receipt_keys=RECEIPT_KEYS, archive=make.archive(revoked_from=revoked_from))
        held = {token_digest(TOKEN): RECEIPT}
        report = judge(by, proofs(make.NOW + 5, make.NOW + 5), now=LATER, receipts=held)
        assert (report.at_from, report.verdict == "verified") == ("receipt", good)


def test_what_the_witnesses_saw_does_not_replace_what_else_is_missing() -> None:
    for members in ({"revocations": None}, {"archive": None}, {"revocations": make.revocations()}):
        report = judge(trust(**members), now=LATER)
        assert (report.verdict, of(report, 5)[0]) == ("undecided", Status.UNKNOWN)
    assert judge(trust(life_s=3599), now=LATER).failed == (5,)
    assert judge(now=LATER, text=FILE.replace("20.9", "21.9")).failed == (8, 9)


# -- the cache of notes ---------------------------------------------------------------------------------------------------


def test_only_a_good_note_is_remembered_and_under_its_policy_alone() -> None:
    notes, log, raw = CheckedNotes(), trusted_log(), NOTE.to_bytes()
    assert notes.check(raw, log, make.NOW) is notes.check(raw, log, make.NOW)
    assert notes.check(raw, trusted_log(1), make.NOW) is not notes.check(raw, log, make.NOW)
    assert len(notes) == 2
    for other in (raw[:-1], raw.replace(b"7\n", b"8\n", 1)):
        with pytest.raises(Exception, match=r"malformed|signature"):
            notes.check(other, log, make.NOW)
    early = LOG.note({0: make.NOW, 1: make.NOW + 100}).to_bytes()
    with pytest.raises(Exception, match="quorum"):
        notes.check(early, log, make.NOW)
    assert len(notes) == 2
    assert notes.check(early, log, make.NOW + 40).time == make.NOW + 100


def test_at_most_a_thousand_notes_are_remembered() -> None:
    notes, log = CheckedNotes(), trusted_log(0)
    signer = LOG.signer
    for size in range(MAX_REMEMBERED + 5):
        text = Checkpoint(ORIGIN, size, bytes(32)).to_text()
        notes.check(Note(text, (signer.sign(text),)).to_bytes(), log, make.NOW)
    assert len(notes) == MAX_REMEMBERED == 1000
