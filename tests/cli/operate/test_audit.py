"""`issuer audit verify|tail|find` on files that a real sink wrote."""

from __future__ import annotations

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
from tests.support.command import issuer
from tests.support.decisions import decision, refusal
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


def test_rotated_and_gzipped_files_are_verified_in_their_order(path: Path) -> None:
    rotated = path.with_name("audit.jsonl.1.gz")
    rotated.write_bytes(gzip.compress(path.with_name("audit.1").read_bytes()))
    done = issuer("audit", "verify", path, rotated)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "good: 8 events of 1 workers. Without --heads" in done.stdout
    assert ": 1 to 8, head " in done.stdout


def test_what_was_changed_is_told_and_exits_1(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"other"', b'"owner"', 1))
    done = issuer("audit", "verify", path, path.with_name("audit.1"))
    assert done.returncode == 1
    assert "line 5: changed: the digest in number 5 does not match number 4" in done.stdout
    assert "not as it was written: 8 events of 1 workers; 1 changed" in done.stdout


def test_a_chain_without_its_beginning_is_undecided_and_what_was_printed_of_it_anchors_it(path: Path) -> None:
    alone = issuer("audit", "verify", path)
    assert alone.returncode == 4
    assert "begins: numbers 1 to 3 were not given" in alone.stdout
    printed = path.with_name("verified.jsonl")
    printed.write_text(issuer("audit", "verify", path.with_name("audit.1"), "--json").stdout)
    assert issuer("audit", "verify", path, "--heads", printed).returncode == 0
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:2]) + b"\n")
    everything = path.with_name("log")
    everything.write_text(issuer("audit", "verify", path, "--json").stdout)
    heads = json.loads(everything.read_text().splitlines()[-1])
    everything.write_text(json.dumps({**heads, "seq": heads["seq"] + 3}))
    cut = issuer("audit", "verify", path, path.with_name("audit.1"), "--heads", everything)
    assert (cut.returncode, "ends: numbers" in cut.stdout) == (1, True)


def test_what_is_no_audit_exits_3(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"nothing\n")
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"x" * 10_000)[:-20])
    for name, code in (("empty", "file.rule"), ("none", "file.unreadable"), ("broken.gz", "file.unreadable")):
        done = issuer("audit", "verify", tmp_path / name)
        assert (done.returncode, code in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--jti", "j" * 22), ["first"]),
        (("--content", DIGEST), ["first"]),
        (("--content", DIGEST.removeprefix("sha256:")), ["first"]),
        (("--claims", DIGEST), ["0", "1", "2", "3"]),
        (("--request", "2"), ["2"]),
        (("--identity", "main", "--verdict", "issued"), ["first"]),
        (("--identity", "other/main", "--code", "policy.task"), ["0", "1", "2", "3"]),
        (("--integration", "inspect-ai", "--verdict", "refused"), ["rated", None]),
        (("--code", "rate.identity"), ["rated", None]),
    ],
)
def test_an_event_is_found_by_what_is_known_of_it(
    path: Path, options: tuple[str, ...], found: list[str | None]
) -> None:
    names = dict(zip((name.removeprefix("--") for name in options[::2]), options[1::2], strict=True))
    wanted = Wanted(**names)
    lines = [*read_lines(path.with_name("audit.1")), *read_lines(path)]
    events = [event for line in lines if (event := wanted.search(line)) is not None]
    assert sorted(str(getattr(event, "request_id", None)) for event in events) == sorted(map(str, found))


SIGNALS = (
    AbuseSignal(7, "r1", "attempts", "warn", "inspect-ai", "ci", "abuse.attempts.distinct", 6, 5, (0, 2)),
    AbuseSignal(7, "r2", "recycled", "observe", "inspect-ai", "ci", "identities[0].names.repository", 3, 0,
                caller=CallerRead("github", "https://ci.example", {"repository_id": "8"}, ())),
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"signal": "attempts"}, ["r1"]),
        ({"identity": "inspect-ai/ci"}, ["r1", "r2"]),
        ({"integration": "inspect-ai", "request": "r2"}, ["r2"]),
        ({"signal": "recycled", "integration": "other"}, []),
        ({"signal": "recycled", "request": "r1"}, []),
        ({"signal": "attempts", "code": "rate.identity"}, []),
        ({"identity": "ci", "verdict": "issued"}, []),
    ],
)
def test_a_signal_is_found_by_its_kind_its_identity_and_its_request(options: dict[str, str], found: list[str]) -> None:
    lines = [msgspec.json.encode(event) for event in (*SIGNALS, decision("r1", identity="another"))]
    events = [event for line in lines if (event := Wanted(**options).search(line)) is not None]
    assert [getattr(event, "request_id", None) for event in events] == found


def test_a_signal_is_shown_with_its_evidence() -> None:
    counted, recycled = map(describe, SIGNALS)
    assert counted.endswith("signal    inspect-ai/ci  attempts  6 > 5 (abuse.attempts.distinct)  warn  r1")
    assert recycled.endswith("signal    inspect-ai/ci  recycled  3 x by github: repository_id 8  observe  r2")


def test_find_prints_events_that_no_terminal_obeys_and_exits_1_where_there_is_none(path: Path) -> None:
    command = ("audit", "find", path.with_name("audit.1"), "--integration", "inspect-ai")
    text, lines = issuer(*command), issuer(*command, "--json")
    for done in (text, lines):
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) >= 3
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout)
    assert json.loads(lines.stdout.splitlines()[1])["request_id"] == "hostile\x1b[2J\x9b\u202e"
    assert issuer("audit", "find", path, "--jti", "none").returncode == 1


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b'{"event": "' + b"x" * (3 * MAX_LINE_BYTES) + b'"}\n{}\n')
    assert [len(line) for line in read_lines(tmp_path / "a")] == [MAX_LINE_BYTES, 2]


def test_a_line_without_an_end_is_no_audit_and_is_given_up(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="this is not an audit"):
        list(read_lines(tmp_path / "a"))


def test_tail_follows_the_file_over_its_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path)
    out = tmp_path / "out"
    with out.open("wb") as file:
        command = [sys.executable, "-m", "issuer", "audit", "tail", str(path), "-n", "2", "--verdict", "refused"]
        child = subprocess.Popen(command, stdout=file)
    try:
        eventually(lambda: len(out.read_text().splitlines()) == 2)
        asyncio.run(_refuse(path, "before"))
        path.rename(tmp_path / "audit.1")
        asyncio.run(_refuse(path, "after"))
        eventually(lambda: "after" in out.read_text())
    finally:
        child.terminate()
        child.wait(60)
    shown = out.read_text().splitlines()
    assert [line.split()[-1] for line in shown[2:]] == ["before", "after"]
    assert "inspect-ai/main" in shown[2]


async def _refuse(path: Path, name: str) -> None:
    audit = FileAudit(path)
    await audit.record(decision(name, verdict="issued"))
    await audit.refuse(refusal(Code.POLICY_TASK, name))
    audit.close()
