"""The chains of an audit: every change of the lines of a real one is found and named."""

import asyncio
import json
from collections.abc import Callable

import pytest

from issuer.audit.chain import BROKEN, MAX_CHAINS, NO_LINE, UNDECIDED, Chains, TooMany, digest_of, read_heads
from issuer.service.audit.sink import FileAudit
from tests.support.decisions import decision

Heads = dict[str, dict[int, str]]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"

    async def write() -> None:
        workers = FileAudit(path), FileAudit(path)
        for number in range(40):
            await workers[number % 2].record(decision(number))
        for worker in workers:
            worker.close()

    asyncio.run(write())
    return path.read_bytes().splitlines()


def findings(lines: list[bytes], heads: Heads | None = None) -> list[tuple[str, int]]:
    chains = Chains(heads or {})
    found = [finding for line in lines for finding in chains.read(line)] + list(chains.end())
    return [(finding.kind, finding.line) for finding in found]


def head_of(line: bytes) -> Heads:
    link = json.loads(line)
    return {link["worker"]: {link["seq"]: digest_of(line)}}


def test_what_was_written_is_good_and_only_heads_reveal_a_missing_end(lines: list[bytes]) -> None:
    heads = {**head_of(lines[-1]), **head_of(lines[-2])}
    chains = Chains(heads)
    assert not [finding for line in lines for finding in chains.read(line)] + list(chains.end())
    assert BROKEN.isdisjoint(UNDECIDED)
    assert "torn" not in BROKEN | UNDECIDED
    assert (chains.linked, [chain.seq for chain in chains.chains.values()]) == (40, [20, 20])
    assert findings(lines[:-6]) == []
    assert findings(lines[:-6], heads) == [("ends", 0), ("ends", 0)]
    assert findings([*lines[:-2], edited(lines[-2]), lines[-1]], heads) == [("changed", 39)]
    assert findings(lines, {"f" * 32: {3: "0" * 64}}) == [("absent", 0)]


def edited(line: bytes) -> bytes:
    return line.replace(b'"granted"', b'"refused"')


def test_a_change_of_the_lines_is_found_at_its_place(lines: list[bytes]) -> None:
    changes: list[tuple[Callable[[list[bytes]], list[bytes]], list[tuple[str, int]]]] = [
        (lambda lines: [*lines[:10], edited(lines[10]), *lines[11:]], [("changed", 13)]),
        (lambda lines: [*lines[:10], *lines[11:]], [("missing", 12)]),
        (lambda lines: [*lines[:10], *lines[20:]], [("missing", 11), ("missing", 12)]),
        (lambda lines: [*lines[:10], b"~", *lines[11:]], [("torn", 11), ("missing", 13)]),
        (lambda lines: [*lines[:10], lines[12], lines[11], lines[10], *lines[13:]], [("missing", 11), ("moved", 13)]),
        (lambda lines: [*lines[:10], lines[4], *lines[10:]], [("moved", 11)]),
        (lambda lines: [*lines[:10], edited(lines[10]), *lines[10:]], [("moved", 12), ("changed", 14)]),
        (lambda lines: [*lines[:10], b'{"event":"decision","time":1}', *lines[10:]], [("unlinked", 11)]),
        (lambda lines: lines[2:], [("begins", 1), ("begins", 2)]),
        (lambda lines: [lines[0].replace(NO_LINE.encode(), b"1" * 64), *lines[1:]], [("changed", 1), ("changed", 3)]),
        (lambda lines: [*lines[:10], b"", b'{"ev', *lines[10:]], [("torn", 12)]),
    ]  # fmt: skip
    for change, expected in changes:
        found = findings(change(list(lines)))
        assert found == expected


def test_a_forged_or_continued_chain_is_checked_by_published_heads(lines: list[bytes]) -> None:
    forged, prev = [], NO_LINE
    for line in lines[::2]:
        event = json.loads(line)
        forged.append(json.dumps({**event, "verdict": "refused", "prev": prev}).encode())
        prev = digest_of(forged[-1])
    assert findings(forged) == []
    assert findings(forged, head_of(lines[20])) == [("changed", 11)]
    heads = {**head_of(lines[18]), **head_of(lines[19])}
    assert findings(lines[20:], heads) == []
    other = {worker: dict.fromkeys(head, "0" * 64) for worker, head in heads.items()}
    assert findings(lines[20:], other) == [("changed", 1), ("changed", 2)]


def test_heads_are_read_from_the_log_stream_among_other_lines() -> None:
    head = b'{"event":"audit head","worker":"a","seq":7,"head":"%s","level":"info","timestamp":"x"}' % (b"0" * 64)
    others = [b"uvicorn says hello", b'{"event":"decision","ms":1}', b'{"worker":"a","seq":"7"}', b"[" * 9999]
    assert read_heads([others[0], head, *others[1:]]) == {"a": {7: "0" * 64}}


def test_a_hostile_file_takes_bounded_memory() -> None:
    chains = Chains({})
    line = '{"worker":"%d","seq":1,"prev":"' + NO_LINE + '"}'
    for number in range(MAX_CHAINS):
        list(chains.read((line % number).encode()))
    with pytest.raises(TooMany):
        list(chains.read((line % MAX_CHAINS).encode()))
    for raw in (b"[" * 100_000, b'{"worker":"\xff"}', b'{"worker":"a","seq":-1,"prev":"0"}', b"\x00" * 1000):
        assert next(finding.kind for finding in chains.read(raw)) in {"torn", "unlinked"}
