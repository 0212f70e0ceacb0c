"""A witness over real HTTP: its cosignatures, and every answer of c2sp.org/tlog-witness."""

import itertools
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from issuer.errors import InputError
from issuer.tlog.checkpoint import MAX_SUBMISSION_BYTES, SIZE_TYPE, Checkpoint, WitnessSubmission
from issuer.tlog.note import Note, parse_note
from issuer.witness.server import KEY_FILE, SOURCE_MS, STATE_FILE, open_witness
from issuer.witness.state import WitnessState
from tests.support.command import issuer
from tests.support.in_process import Done, run
from tests.support.witnessing import RunningWitness, TestLog, Tree, both_verify, witnessing

ORIGINS = [TestLog(f"log.example/{number}") for number in range(30)]
_unused = iter(ORIGINS)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWitness]:
    with witnessing(tmp_path_factory.mktemp("witness"), [log.vkey for log in ORIGINS]) as running:
        yield running


@pytest.fixture
def log() -> TestLog:
    """A log whose key the witness knows, and of which it has seen no checkpoint."""
    return next(_unused)


# -- cosigning -----------------------------------------------------------------------------------------------------------


def submission(old: int, note: bytes, *proof: bytes) -> bytes:
    return WitnessSubmission(old, proof, note).to_bytes()


def test_a_first_checkpoint_and_its_extensions_are_cosigned_with_the_time(
    witness: RunningWitness, log: TestLog
) -> None:
    assert witness.shown(log.origin).status_code == 404
    before = int(time.time())
    for old, new in ((0, 0), (0, 3), (3, 8), (8, 300), (300, 300)):  # the last log got no answer and asks again
        answer = witness.submit(log.submission(old, new))
        verified = witness.cosigned(log, new, answer)
        assert verified.timestamp is not None
        assert before <= verified.timestamp <= time.time()
        assert answer.headers["cache-control"] == "no-store"
    assert both_verify(witness.shown(log.origin), log, witness).text == log.text(300)
    assert witness.shown("log.example/unknown").status_code == 404


def test_other_signatures_are_ignored_and_extension_lines_are_cosigned(witness: RunningWitness, log: TestLog) -> None:
    text = Checkpoint(log.origin, 2, log.tree.root(2), ("an extension",)).to_text()
    other = TestLog(log.origin).signer
    note = Note(text, (other.sign(text), log.signer.sign(text)))
    assert witness.submit(submission(0, note.to_bytes())).status_code == 200
    shown = parse_note(witness.shown(log.origin).content)
    assert shown.text == text
    assert [line.key_id for line in shown.signatures] == [log.signer.verifier.key_id, witness.verifier.key_id]


# -- refusals ------------------------------------------------------------------------------------------------------------


def test_a_wrong_old_size_gets_the_right_one(witness: RunningWitness, log: TestLog) -> None:
    witness.submit(log.submission(0, 5))
    for old in (0, 4, 6):
        answer = witness.submit(log.submission(old, 9))
        assert (answer.status_code, answer.content) == (409, b"5\n")
        assert answer.headers["content-type"] == SIZE_TYPE
    first = witness.submit(next(_unused).submission(1, 2))
    assert (first.status_code, first.content) == (409, b"0\n")
    assert witness.submit(submission(5, log.checkpoint(3))).status_code == 400, "an older checkpoint"


def test_a_checkpoint_that_its_log_has_not_signed_is_refused(witness: RunningWitness, log: TestLog) -> None:
    good = parse_note(log.checkpoint(3))
    (line,) = parse_note(log.checkpoint(4)).signatures
    for note in (
        TestLog(log.origin).checkpoint(3),
        Note(good.text, (line,)).to_bytes(),
        Note(good.text, (*good.signatures, line)).to_bytes(),  # a bad line of a known key
    ):
        assert witness.submit(submission(0, note)).status_code == 403
    assert witness.submit(log.submission(0, 3)).status_code == 200
    assert witness.submit(TestLog("log.example/stranger").submission(0, 1)).status_code == 404


def test_a_wrong_proof_is_refused_and_changes_no_state(witness: RunningWitness, log: TestLog) -> None:
    empty = Checkpoint(log.origin, 0, bytes(32)).to_text()
    for body in (
        submission(0, log.checkpoint(5), bytes(32)),
        submission(0, Note(empty, (log.signer.sign(empty),)).to_bytes()),
    ):
        assert witness.submit(body).status_code == 422, "an empty tree has one root and no proof"
    witness.submit(log.submission(0, 5))
    wrong = [
        log.forked().submission(5, 9), submission(5, log.checkpoint(9), *log.tree.proof(4, 9)),
        submission(5, log.checkpoint(9)), submission(5, log.checkpoint(5), bytes(32)),
    ]  # fmt: skip
    assert [witness.submit(body).status_code for body in wrong] == [422] * 4
    assert both_verify(witness.shown(log.origin), log, witness).text == log.text(5)
    witness.cosigned(log, 9, witness.submit(log.submission(5, 9)))


def test_a_second_tree_of_one_size_is_refused_and_kept_as_evidence(witness: RunningWitness, log: TestLog) -> None:
    witness.submit(log.submission(0, 5))
    other = submission(5, log.forked().checkpoint(5))
    for _ in range(2):
        answer = witness.submit(other)
        assert (answer.status_code, answer.headers["content-type"]) == (409, "text/plain; charset=utf-8")
    assert both_verify(witness.shown(log.origin), log, witness).text == log.text(5)
    state = WitnessState(witness.folder / STATE_FILE)
    (fork,) = state.forks(log.origin)
    state.close()
    assert (fork.size, fork.root, fork.note) == (5, log.forked().tree.root(5), log.forked().checkpoint(5))
    assert '"level":"critical"' in (witness.folder / "log").read_text().replace(" ", "")


def test_a_malformed_or_too_large_request_is_refused(witness: RunningWitness) -> None:
    heads = [
        b"", b"old 00", b"old +0", b"old  0", b"old 0\r", b"old 10000000000000000000", b"old 0\nAAAA", b"old 0\n\xff",
        b"old 0\n" + b"A" * 42 + b"B=", b"old 0" + (b"\n" + b"A" * 43 + b"=") * 64,
    ]  # fmt: skip
    notes = [b"", b"log.example/0\n1\n" + b"A" * 43 + b"=\n", b"hello\n\n\xe2\x80\x94 a AAAAAAA=\n"]
    whole = [*(head + b"\n\n" + ORIGINS[-1].checkpoint(1) for head in heads), *(b"old 0\n\n" + note for note in notes)]
    for body in (b"", b"old 0\r\n\r\n" + ORIGINS[-1].checkpoint(1), *whole):
        answer = witness.submit(body)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8"), body
    assert witness.submit(b"x" * (MAX_SUBMISSION_BYTES + 1)).status_code == 413
    got = httpx.get(f"{witness.url}/add-checkpoint")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert httpx.get(witness.url).status_code == 404
    path = f"{witness.url}/{'0' * 64}/checkpoint"
    assert httpx.post(path).headers["allow"] == "GET, HEAD"
    got, alone = httpx.get(path), httpx.head(path)
    assert (alone.status_code, alone.headers["content-length"], alone.content) == (
        404,
        got.headers["content-length"],
        b"",
    )


# -- its state -----------------------------------------------------------------------------------------------------------


def test_one_of_many_racing_submissions_is_cosigned(witness: RunningWitness, log: TestLog) -> None:
    histories = [TestLog(log.origin, log.key, Tree(f"{number} ")) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda own: witness.submit(own.submission(0, 4)), histories))
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 7}
        (won,) = (own for own, answer in zip(histories, answers, strict=True) if answer.status_code == 200)
        sizes = range(5, 21)
        answers = list(pool.map(lambda size: witness.submit(won.submission(4, size)), sizes))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 15}
    (size,) = (size for size, answer in zip(sizes, answers, strict=True) if answer.status_code == 200)
    assert both_verify(witness.shown(log.origin), won, witness).text == won.text(size)
    assert {int(answer.text) for answer in answers if answer.status_code == 409} == {size}


@pytest.mark.long
def test_a_cosigned_checkpoint_survives_a_kill(tmp_path: Path) -> None:
    log = TestLog("log.example/killed")
    with witnessing(tmp_path / "w", [log.vkey]) as witness:
        for old, new in itertools.pairwise((0, 3, 70)):
            witness.cosigned(log, new, witness.submit(log.submission(old, new)))
            witness.kill()
            witness.start()
            assert both_verify(witness.shown(log.origin), log, witness).text == log.text(new)
            assert witness.submit(log.forked().submission(0, new)).content == b"%d\n" % new
        assert witness.end() == 0


def test_with_a_full_disk_nothing_is_cosigned_and_either_key_of_a_log_afterwards(tmp_path: Path) -> None:
    """The log has two keys, and may sign with either."""
    log = TestLog("log.example/full")
    new = TestLog(log.origin, tree=log.tree)
    with witnessing(tmp_path / "w", [log.vkey, new.vkey]) as witness:
        assert witness.process is not None
        witness.cosigned(log, 3, witness.submit(log.submission(0, 3)))
        soft, hard = resource.prlimit(witness.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(witness.process.pid, resource.RLIMIT_FSIZE, (512, hard))  # like a full disk, for this process
        answer = witness.submit(log.submission(3, 5))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        resource.prlimit(witness.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert both_verify(witness.shown(log.origin), log, witness).text == log.text(3)
        witness.cosigned(new, 5, witness.submit(new.submission(3, 5)))


# -- limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_only_a_source_over_its_rate_has_to_wait(tmp_path: Path) -> None:
    log = TestLog("log.example/flooded")
    with witnessing(tmp_path / "w", [log.vkey]) as witness:
        with httpx.Client(base_url=witness.url) as http:
            answers = [http.post("/add-checkpoint", content=b"x") for _ in range(SOURCE_MS.burst * 2)]
            assert {answer.status_code for answer in answers} == {400, 429}
            assert {answer.headers.get("retry-after", "1") for answer in answers} == {"1"}
        other = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=other, base_url=witness.url) as http:
            assert http.post("/add-checkpoint", content=log.submission(0, 3)).status_code == 200


@pytest.mark.long
def test_an_incomplete_body_is_refused_after_a_time(tmp_path: Path) -> None:
    log = TestLog("log.example/slow")
    half = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 10\r\n\r\nold"
    with (
        witnessing(tmp_path / "w", [log.vkey]) as witness,
        socket.create_connection(("127.0.0.1", witness.port), 30) as connection,
    ):
        connection.sendall(half)
        assert connection.recv(12) == b"HTTP/1.1 408"


# -- the commands --------------------------------------------------------------------------------------------------------


def begin(folder: Path, name: str = "witness.example/w1") -> Done:
    return run(["witness", "init", "--dir", str(folder), "--name", name], folder.parent)


def test_a_witness_is_made_once_with_a_key_for_its_owner_alone(tmp_path: Path) -> None:
    made = begin(tmp_path / "w")
    assert (made.code, made.out[:19]) == (0, "witness.example/w1+"), made.err
    assert f"witness witness.example/w1 {made.out.strip()} https://" in made.err.replace("\n", " ")
    assert [(tmp_path / "w" / name).stat().st_mode & 0o777 for name in (KEY_FILE, STATE_FILE)] == [0o600] * 2
    again = begin(tmp_path / "w", "witness.example/w2")
    assert (again.code, "witness.state" in again.err) == (6, True)
    assert (begin(tmp_path / "x", "a b").code, (tmp_path / "x").exists()) == (2, False)


def test_a_witness_whose_state_another_user_may_replace_does_not_start(tmp_path: Path) -> None:
    folder, logs = tmp_path / "w", tmp_path / "logs"
    begin(folder)
    logs.write_text(f"log {ORIGINS[0].vkey}\nquorum none\n")
    for path in (folder, folder / STATE_FILE, logs):
        before = path.stat().st_mode
        path.chmod(before | 0o002)
        with pytest.raises(InputError, match=f"others may write to it. Run `chmod .*{path}`"):
            open_witness(folder, logs, lambda: 0)
        path.chmod(before)


def test_a_witness_without_its_state_or_a_log_does_not_start(tmp_path: Path) -> None:
    folder, logs = tmp_path / "w", tmp_path / "logs"
    begin(folder)
    for text in ("", "quorum none\n", "log x\nquorum none\n"):
        logs.write_text(text)
        done = issuer("witness", "serve", "--dir", folder, "--logs", logs, "--port", "0")
        assert (done.returncode, f"{logs}" in done.stderr, "log.policy" in done.stderr) == (3, True, True)
    logs.write_text(f"log {ORIGINS[0].vkey}\nquorum none\n")
    for state in (None, b"", b"SQLite format 3\0" + bytes(4080)):
        (folder / STATE_FILE).unlink() if state is None else (folder / STATE_FILE).write_bytes(state)
        done = issuer("witness", "serve", "--dir", folder, "--logs", logs, "--port", "0")
        assert (done.returncode, "witness.state" in done.stderr) == (6, True)
        assert state is not None or not (folder / STATE_FILE).exists()
