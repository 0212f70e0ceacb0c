"""Untrusted archives: three methods are read, and ambiguous or oversized archives are refused."""

import json
import random
import struct
import tracemalloc
import zipfile
from io import BytesIO
from typing import Any

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from issuer.adapters import eval_zip, inspect_ai
from issuer.codes import Code
from tests.support.runs import DATA, end64, refusal, refusal_or_none, zipped

REAL = (DATA / "inspect_two_scorers.eval").read_bytes()
JSON_LOG = json.loads((DATA / "inspect_two_scorers.json").read_bytes())
HEADER = json.dumps({name: JSON_LOG[name] for name in JSON_LOG if name not in {"samples", "reductions"}}).encode()
SAMPLE = b"{%b}" % (b" " * 98)
MEMBERS = [("_journal/start.json", b"{}"), ("samples/1_epoch_1.json", SAMPLE), ("header.json", HEADER)]
MIB = 2**20


def test_the_members_of_a_real_log_are_packed_with_zstd() -> None:
    members = eval_zip.directory(REAL, "log.eval")
    assert {member.method for member in members.values()} == {93}
    assert json.loads(eval_zip.unpack(REAL, members["header.json"], max_bytes=MIB, name="log.eval"))["version"] == 2


def test_a_log_in_an_archive_gives_the_claims_of_its_json() -> None:
    plain = inspect_ai.read(HEADER, "log")
    for method in (0, 8, 93):
        packed = inspect_ai.read(zipped(MEMBERS, method), "log")
        assert (packed.scores, packed.model_revision) == (plain.scores, plain.model_revision)
    out = BytesIO()  # by the standard library, streamed and with zip64
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("header.json", "w", force_zip64=True) as file,
    ):
        file.write(HEADER)
    assert inspect_ai.read(out.getvalue()).scores == plain.scores


def test_more_members_than_16_bits_can_count_are_read() -> None:
    names = [b"samples/%05d.json" % number for number in range(65_601)]
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 33, 0, 0, 0, len(names[0]), 0)
    entry = struct.pack("<4s6H3L5HL", b"PK\x01\x02", 45, 45, 0, 0, 0, 33, 0, 0, 0, len(names[0]), 0, 0, 0, 0, 0)
    step = len(local + names[0])
    files = b"".join(local + name for name in names)
    entries = b"".join(entry + struct.pack("<L", at * step) + name for at, name in enumerate(names))
    raw = files + entries + end64(len(names), len(entries), len(files))
    assert len(eval_zip.directory(raw, "")) == 65_601


def test_samples_are_looked_at_and_the_journal_is_not() -> None:
    raw = zipped([("_journal/start.json", b"[]" * 50), *MEMBERS[1:]], 0)
    assert inspect_ai.read(raw.replace(b"[]" * 50, b"xx" * 50)).scores
    broken = raw.replace(SAMPLE, b"xx" * 50)
    assert refusal(inspect_ai.read, broken).code is Code.FILE_SYNTAX


def test_a_run_that_never_finished_has_no_header() -> None:
    error = refusal(inspect_ai.read, zipped(MEMBERS[:2]), "log.eval")
    assert error.code is Code.FILE_RULE
    assert "never finished" in error.detail


def test_a_header_that_unpacks_to_much_more_than_it_says_is_stopped_there() -> None:
    for method in (8, 93):
        bomb = zipped([("header.json", b" " * (32 * MIB))], method, unpacked=1000)
        tracemalloc.start()
        try:
            assert refusal(inspect_ai.read, bomb).code is Code.FILE_SYNTAX
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()
        large = zipped([("header.json", random.Random(37).randbytes(9 * MIB))], method)
        assert refusal(inspect_ai.read, large).code is Code.FILE_TOO_LARGE


def test_a_member_with_the_packing_of_a_bomb_is_refused() -> None:
    for name in ("header.json", "samples/1_epoch_1.json"):
        others = [member for member in MEMBERS if member[0] != name]
        error = refusal(inspect_ai.read, zipped([*others, (name, b" " * (4 * MIB))]))
        assert (error.code, "times its size" in error.detail) == (Code.FILE_TOO_LARGE, True)


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = packer.compress(HEADER) + packer.flush()
    assert refusal(inspect_ai.read, zipped([("header.json", HEADER)], 93, packed=frame)).code is Code.FILE_SYNTAX


def test_a_million_members_are_refused_before_one_of_them_is_read() -> None:
    entries = bytes(47) * 1_000_000
    raw = b"PK\x03\x04" + entries + end64(1_000_000, len(entries), 4)
    assert refusal(inspect_ai.read, raw).code is Code.FILE_TOO_LARGE, "with file.syntax the first entry was read"


def test_an_archive_that_two_readers_could_read_differently_is_refused() -> None:
    names = ("/header.json", "../header.json", "samples/../header.json", "samples\\1.json", "a\x1b[2J", "", "a" * 513)
    lies: list[dict[str, Any]] = [
        {"local_name": "other.json"},
        *({"unpacked": len(HEADER) + number} for number in (-1, 1)),
        *({"count": number} for number in (2, 4)),
        *({"method": method, "packed": b"\xff" * 20} for method in (8, 93)),
        *({name: number} for name, number in (("offset", 3), ("checksum", 0), ("packed_size", 10**6))),
    ]
    good = zipped(MEMBERS)
    archives = {
        Code.FILE_DUPLICATE_KEY: [zipped([*MEMBERS, ("header.json", b"{}")])],
        Code.FILE_RULE: [zipped([(name, HEADER)]) for name in names],
        Code.FILE_FEATURE: [zipped(MEMBERS, flags=1), zipped(MEMBERS, 12)],
        Code.FILE_SYNTAX: [*(zipped(MEMBERS, **lie) for lie in lies), good + b"behind", b"PK\x03\x04", good[:-30]],
        Code.FILE_ENCODING: [good[4:]],
    }
    for code, raw in ((code, raw) for code, all_raw in archives.items() for raw in all_raw):
        assert refusal(inspect_ai.read, raw).code is code, raw[:99]


@given(st.integers(4, len(REAL) - 1))
def test_a_truncated_archive_is_refused(end: int) -> None:
    assert refusal(inspect_ai.read, REAL[:end]).code is Code.FILE_SYNTAX


@given(st.integers(0, 30_000), st.integers(0, 40), st.binary(max_size=8))
def test_any_bytes_are_an_archive_or_an_input_error(from_end: int, length: int, instead: bytes) -> None:
    at = max(0, len(REAL) - from_end)
    raw = REAL[:at] + instead + REAL[at + length :]
    error = refusal_or_none(lambda: inspect_ai.read(raw))
    assert error is None or error.code.value.startswith("file.")
