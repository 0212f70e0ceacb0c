"""`issuer audit verify|tail|find` on files that a real sink wrote."""

import asyncio
import gzip
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from issuer.audit.events import AbuseSignal, CallerRead
from issuer.audit.reader import MAX_LINE_BYTES, Wanted, describe, read_lines
from issuer.codes import Code
from issuer.errors import InputError
from issuer.service.audit.sink import FileAudit
from tests.support.decisions import decision, refusal
from tests.support.in_process import Done, run
from tests.support.waiting import eventually

DIGEST = f"sha256:{'ab' * 32}"


def write(path: Path, *, rotate: bool = False) -> FileAudit:
    """Write eight events of one worker; with `rotate` the first four into `audit.1`."""
    audit = FileAudit(path)

    async def events() -> None:
        await audit.record(decision("first", verdict="issued", jti=("j" * 22,), content_digest=(DIGEST,)))
        await audit.record(decision("hostile\x1b[2J\x9b\u202e", code="\x07"))
        for _ in range(2):
            await audit.refuse(refusal(Code.RATE_IDENTITY, "rated"))

    async def more_events() -> None:
        for number in range(4):
            await audit.refuse(refusal(Code.POLICY_TASK, number, integration="other", claims_digest=(DIGEST,)))

    asyncio.run(events())
    if rotate:
        path.rename(path.with_name("audit.1"))
    asyncio.run(more_events())
    audit.close()
    return audit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "audit.jsonl", rotate=True)
    return tmp_path / "audit.jsonl"


def issuer(*arguments: object) -> Done:
    return run(["audit", *map(str, arguments)])


def test_rotated_and_gzipped_files_are_verified_in_their_order(path: Path) -> None:
    rotated = path.with_name("audit.jsonl.1.gz")
    rotated.write_bytes(gzip.compress(path.with_name("audit.1").read_bytes()))
    done = issuer("verify", path, rotated)
    assert (done.code, done.err) == (0, ""), done.out
    assert ("good: 8 events of 1 workers. Without --heads" in done.out, ": 1 to 8, head " in done.out) == (True, True)
    path.write_bytes(path.read_bytes().replace(b'"other"', b'"owner"', 1))
    done = issuer("verify", path, path.with_name("audit.1"))
    assert done.code == 1
    assert "line 5: changed: the digest in number 5 does not match number 4" in done.out
    assert "not as it was written: 8 events of 1 workers; 1 changed" in done.out


def test_a_chain_without_its_beginning_is_undecided_without_a_printed_head(path: Path) -> None:
    alone = issuer("verify", path)
    assert (alone.code, "begins: numbers 1 to 3 were not given" in alone.out) == (4, True)
    printed, cut_off = path.with_name("verified.jsonl"), path.with_name("log")
    printed.write_text(issuer("verify", path.with_name("audit.1"), "--json").out)
    assert issuer("verify", path, "--heads", printed).code == 0
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:2]) + b"\n")
    (head,) = (line for line in map(json.loads, issuer("verify", path, "--json").out.splitlines()) if "seq" in line)
    cut_off.write_text(json.dumps({**head, "seq": head["seq"] + 3}))
    cut = issuer("verify", path, path.with_name("audit.1"), "--heads", cut_off)
    assert (cut.code, "ends: numbers" in cut.out) == (1, True)


def test_a_file_that_is_not_an_audit_file_exits_3(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"malformed\n")
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    for name, code in (("empty", "file.rule"), ("none", "file.unreadable"), ("broken.gz", "file.unreadable")):
        done = issuer("verify", tmp_path / name)
        assert (done.code, code in done.err) == (3, True), done.err
    with (tmp_path / "a").open("wb") as file:
        file.write(b'{"event": "' + b"x" * (3 * MAX_LINE_BYTES) + b'"}\n{}\n')
    assert [len(line) for line in read_lines(tmp_path / "a")] == [MAX_LINE_BYTES, 2], "a long line is cut"
    with (tmp_path / "b").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="this is not an audit"):
        list(read_lines(tmp_path / "b"))


def request_ids(lines: list[bytes], **wanted: str) -> list[str]:
    events = [event for line in lines if (event := Wanted(**wanted).search(line)) is not None]
    return sorted(str(getattr(event, "request_id", None)) for event in events)


SIGNALS = (
    AbuseSignal(7, "r1", "attempts", "warn", "inspect-ai", "ci", "abuse.attempts.distinct", 6, 5, (0, 2)),
    AbuseSignal(7, "r2", "recycled", "observe", "inspect-ai", "ci", "identities[0].names.repository", 3, 0,
                caller=CallerRead("github", "https://ci.example", {"repository_id": "8"}, ())),
)  # fmt: skip


def test_an_event_is_found_by_any_of_its_members_and_a_signal_shown_with_evidence(path: Path) -> None:
    decisions = [*read_lines(path.with_name("audit.1")), *read_lines(path)]
    signals = [msgspec.json.encode(event) for event in (*SIGNALS, decision("r1", identity="another"))]
    rows: list[tuple[list[bytes], dict[str, str], list[str]]] = [
        (decisions, {"jti": "j" * 22}, ["first"]),
        (decisions, {"content": DIGEST}, ["first"]),
        (decisions, {"content": DIGEST.removeprefix("sha256:")}, ["first"]),
        (decisions, {"claims": DIGEST}, ["0", "1", "2", "3"]),
        (decisions, {"request": "2"}, ["2"]),
        (decisions, {"identity": "main", "verdict": "issued"}, ["first"]),
        (decisions, {"identity": "other/main", "code": "policy.task"}, ["0", "1", "2", "3"]),
        (decisions, {"integration": "inspect-ai", "verdict": "refused"}, ["None", "rated"]),
        (decisions, {"code": "rate.identity"}, ["None", "rated"]),
        (signals, {"signal": "attempts"}, ["r1"]),
        (signals, {"identity": "inspect-ai/ci"}, ["r1", "r2"]),
        (signals, {"integration": "inspect-ai", "request": "r2"}, ["r2"]),
        (signals, {"signal": "recycled", "integration": "other"}, []),
        (signals, {"signal": "recycled", "request": "r1"}, []),
        (signals, {"signal": "attempts", "code": "rate.identity"}, []),
        (signals, {"identity": "ci", "verdict": "issued"}, []),
    ]
    assert [(wanted, found) for lines, wanted, found in rows if request_ids(lines, **wanted) != found] == []
    counted, recycled = map(describe, SIGNALS)
    assert counted.endswith("signal    inspect-ai/ci  attempts  6 > 5 (abuse.attempts.distinct)  warn  r1")
    assert recycled.endswith("signal    inspect-ai/ci  recycled  3 x by github: repository_id 8  observe  r2")


def test_find_prints_events_without_control_sequences_and_exits_1_without_any(path: Path) -> None:
    command = ("find", path.with_name("audit.1"), "--integration", "inspect-ai")
    text, lines = issuer(*command), issuer(*command, "--json")
    for done in (text, lines):
        assert (done.code, {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.out)) == (0, set())
        assert len(done.out.splitlines()) >= 3
    assert "hostile\x1b[2J\x9b\u202e" in [json.loads(line).get("request_id") for line in lines.out.splitlines()]
    assert issuer("find", path, "--jti", "none").code == 1


def test_tail_follows_the_file_over_its_rotation(tmp_path: Path) -> None:
    path, out = tmp_path / "audit.jsonl", tmp_path / "out"
    write(path)

    async def refuse(name: str) -> None:
        audit = FileAudit(path)
        await audit.record(decision(name, verdict="issued"))
        await audit.refuse(refusal(Code.POLICY_TASK, name))
        audit.close()

    with out.open("wb") as file:
        command = [sys.executable, "-m", "issuer", "audit", "tail", str(path), "-n", "2", "--verdict", "refused"]
        child = subprocess.Popen(command, stdout=file)
    try:
        eventually(lambda: len(out.read_text().splitlines()) == 2)
        asyncio.run(refuse("before"))
        path.rename(tmp_path / "audit.1")
        asyncio.run(refuse("after"))
        eventually(lambda: "after" in out.read_text())
    finally:
        child.terminate()
        child.wait(60)
    shown = out.read_text().splitlines()[2:]
    assert [(line.split()[-1], "inspect-ai/main" in line) for line in shown] == [("before", True), ("after", True)]
