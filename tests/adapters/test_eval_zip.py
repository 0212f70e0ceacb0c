"""Untrusted archives: three methods are read, and everything that could surprise is refused."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zipfile
from io import BytesIO

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from issuer.adapters import eval_zip, inspect_ai
from issuer.codes import Code
from tests.support.runs import DATA, refusal, refusal_or_none, zipped

REAL = (DATA / "inspect_two_scorers.eval").read_bytes()
JSON_LOG = json.loads((DATA / "inspect_two_scorers.json").read_bytes())
HEADER = json.dumps({name: JSON_LOG[name] for name in JSON_LOG if name not in {"samples", "reductions"}}).encode()
MEMBERS = [("_journal/start.json", b"{}"), ("samples/1_epoch_1.json", b"{}" * 50), ("header.json", HEADER)]
MIB = 2**20


def test_the_members_of_a_real_log_are_packed_with_zstd() -> None:
    members = eval_zip.directory(REAL, "log.eval")
    assert {member.method for member in members.values()} == {93}
    assert json.loads(eval_zip.unpack(REAL, members["header.json"], max_bytes=MIB, name="log.eval"))["version"] == 2


@pytest.mark.parametrize("method", [0, 8, 93])
def test_a_log_in_an_archive_gives_what_it_gives_as_json(method: int) -> None:
    plain, packed = inspect_ai.read(HEADER, "log"), inspect_ai.read(zipped(MEMBERS, method), "log")
    assert packed.scores == plain.scores
    assert packed.model_revision == plain.model_revision


def test_archives_of_the_standard_library_are_read_also_streamed_and_with_zip64() -> None:
    out = BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("header.json", "w", force_zip64=True) as file,
    ):
        file.write(HEADER)
    assert inspect_ai.read(out.getvalue()).scores == inspect_ai.read(HEADER).scores


def test_more_members_than_16_bits_can_count_are_read() -> None:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(65_600):
            archive.writestr(f"samples/{number}_epoch_1.json", b"")
        archive.writestr("header.json", HEADER)
    assert len(eval_zip.directory(out.getvalue(), "")) == 65_601


def test_samples_are_looked_at_and_the_journal_is_not() -> None:
    raw = zipped([("_journal/start.json", b"[]" * 50), *MEMBERS[1:]], 0)
    assert inspect_ai.read(raw.replace(b"[]" * 50, b"xx" * 50)).scores
    broken = raw.replace(b"{}" * 50, b"xx" * 50)
    assert refusal(lambda: inspect_ai.read(broken)).code is Code.FILE_SYNTAX


def test_a_run_that_never_finished_has_no_header() -> None:
    error = refusal(lambda: inspect_ai.read(zipped(MEMBERS[:2]), "log.eval"))
    assert error.code is Code.FILE_RULE
    assert "never finished" in error.detail


# -- bombs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [8, 93])
def test_a_header_that_unpacks_to_much_more_than_it_says_is_stopped_there(method: int) -> None:
    bomb = zipped([("header.json", b" " * (64 * MIB))], method, unpacked=1000)
    tracemalloc.start()
    try:
        assert refusal(lambda: inspect_ai.read(bomb)).code is Code.FILE_SYNTAX
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [8, 93])
def test_a_header_larger_than_a_header_is_refused_unseen(method: int) -> None:
    bomb = zipped([("header.json", bytes(range(256)) * (9 * MIB // 256))], method, packed_size=2 * MIB)
    assert refusal(lambda: inspect_ai.read(bomb)).code is Code.FILE_TOO_LARGE


@pytest.mark.parametrize("name", ["header.json", "samples/1_epoch_1.json"])
def test_a_member_packed_as_only_a_bomb_is_is_refused(name: str) -> None:
    others = [member for member in MEMBERS if member[0] != name]
    bomb = zipped([*others, (name, b" " * (4 * MIB))])
    error = refusal(lambda: inspect_ai.read(bomb))
    assert (error.code, "times its size" in error.detail) == (Code.FILE_TOO_LARGE, True)


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = packer.compress(HEADER) + packer.flush()
    assert (
        refusal(lambda: inspect_ai.read(zipped([("header.json", HEADER)], 93, packed=frame))).code is Code.FILE_SYNTAX
    )


def test_a_million_members_are_refused_before_one_of_them_is_read() -> None:
    entries = bytes(47) * 1_000_000
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1_000_000, 1_000_000, len(entries), 4)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(entries), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    raw = b"PK\x03\x04" + entries + end64 + locator + end
    assert refusal(lambda: inspect_ai.read(raw)).code is Code.FILE_TOO_LARGE, "the first is no entry: file.syntax"


# -- what readers disagree about ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (zipped([*MEMBERS, ("header.json", b"{}")]), Code.FILE_DUPLICATE_KEY),
        (zipped([("/header.json", HEADER)]), Code.FILE_RULE),
        (zipped([("../header.json", HEADER)]), Code.FILE_RULE),
        (zipped([("samples/../header.json", HEADER)]), Code.FILE_RULE),
        (zipped([("samples\\1.json", HEADER)]), Code.FILE_RULE),
        (zipped([("a\x1b[2J", HEADER)]), Code.FILE_RULE),
        (zipped([("", HEADER)]), Code.FILE_RULE),
        (zipped([("a" * 513, HEADER)]), Code.FILE_RULE),
        (zipped(MEMBERS, flags=1), Code.FILE_FEATURE),
        (zipped(MEMBERS, 12), Code.FILE_FEATURE),
        (zipped(MEMBERS, local_name="other.json"), Code.FILE_SYNTAX),
        (zipped(MEMBERS, offset=3), Code.FILE_SYNTAX),
        (zipped(MEMBERS, checksum=0), Code.FILE_SYNTAX),
        (zipped(MEMBERS, unpacked=len(HEADER) - 1), Code.FILE_SYNTAX),
        (zipped(MEMBERS, unpacked=len(HEADER) + 1), Code.FILE_SYNTAX),
        (zipped(MEMBERS, packed=b"\xff" * 20), Code.FILE_SYNTAX),
        (zipped(MEMBERS, 93, packed=b"\xff" * 20), Code.FILE_SYNTAX),
        (zipped(MEMBERS, packed_size=10**6), Code.FILE_SYNTAX),
        (zipped(MEMBERS, count=2), Code.FILE_SYNTAX),
        (zipped(MEMBERS, count=4), Code.FILE_SYNTAX),
        (zipped(MEMBERS) + b"behind", Code.FILE_SYNTAX),
        (b"PK\x03\x04", Code.FILE_SYNTAX),
        (zipped(MEMBERS)[:-30], Code.FILE_SYNTAX),
        (zipped(MEMBERS)[4:], Code.FILE_ENCODING),  # begins as no archive does: read as JSON
    ],
)
def test_an_archive_that_two_readers_could_read_differently_is_refused(raw: bytes, code: Code) -> None:
    assert refusal(lambda: inspect_ai.read(raw)).code is code


@given(st.integers(4, len(REAL) - 1))
def test_a_truncated_archive_is_refused(end: int) -> None:
    assert refusal(lambda: inspect_ai.read(REAL[:end])).code is Code.FILE_SYNTAX


@given(st.integers(0, 30_000), st.integers(0, 40), st.binary(max_size=8))
def test_no_other_exception_escapes_for_any_archive(from_end: int, length: int, instead: bytes) -> None:
    at = max(0, len(REAL) - from_end)
    raw = REAL[:at] + instead + REAL[at + length :]
    error = refusal_or_none(lambda: inspect_ai.read(raw))
    assert error is None or error.code.value.startswith("file.")
