"""The table that `make bench-instructions` makes of callgrind's counts; its steps are still the request's."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.counted import STEP, STEPS, Counts, Marks, place_of
from tests.bench.instructions import (
    COLUMNS,
    TABLE,
    compare,
    count,
    library_of,
    place,
    read_parts,
    read_table,
    rows_of,
    write_table,
)

PROFILE = """\
# callgrind format
version: 1
cmd:  python -m x
part: 1

desc: Trigger: --dump-before=ctermid
positions: line
events: Ir
summary: 1107

ob=(1) /usr/lib/libpython3.11.so.1.0
fl=(7) ceval.c
fn=(12) run
16 7
cob=(2) /x/cryptography/hazmat/bindings/_rust.abi3.so
cfn=(13) sign
calls=3 0
16 1000

ob=(2)
fn=(13)
* 900
+3 200

totals: 1107
part: 2

ob=(1)
fn=(12)
-2 5

totals: 5
"""


def test_a_part_of_a_profile_counts_each_library_s_instructions() -> None:
    assert read_parts(PROFILE.splitlines()) == [
        {"/usr/lib/libpython3.11.so.1.0": 7, "/x/cryptography/hazmat/bindings/_rust.abi3.so": 1100},
        {"/usr/lib/libpython3.11.so.1.0": 5},
    ]


def test_a_library_has_its_column() -> None:
    columns = {
        "/opt/lib/libpython3.11.so.1.0": "interpreter",
        "/usr/bin/python3.13": "interpreter",
        "/opt/lib/python3.11/lib-dynload/binascii.cpython-311-x86_64-linux-gnu.so": "interpreter",
        "/opt/lib/python3.11/lib-dynload/_hashlib.cpython-311-x86_64-linux-gnu.so": "hashing",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3": "hashing",
        "/v/site-packages/cryptography/hazmat/bindings/_rust.abi3.so": "cryptography",
        "/v/site-packages/msgspec/_core.cpython-311-x86_64-linux-gnu.so": "msgspec",
        "/v/site-packages/uvloop/loop.cpython-311-x86_64-linux-gnu.so": "uvloop, HTTP",
        "/usr/lib/x86_64-linux-gnu/libc.so.6": "libc",
        "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": "libc",
        "/v/site-packages/hiredis/hiredis.cpython-311-x86_64-linux-gnu.so": "other",
        "???": "other",
    }
    assert {path: library_of(path) for path in columns} == columns
    assert set(columns.values()) == set(COLUMNS)


def test_a_step_that_another_one_calls_is_counted_for_itself() -> None:
    marks = Marks()
    marks._counts_now = True

    def inner() -> Iterator[int]:
        yield 1

    steps = marks.step("inner", inner)

    async def outer() -> list[int]:
        await asyncio.sleep(0)
        return list(steps())

    with marks.section("whole", 2):
        assert asyncio.run(marks.step("outer", outer)()) == [1]
    assert [step for _, step in marks.counts.parts] == ["", "whole", "outer", "inner", "outer", "whole"]
    assert {section for section, _ in marks.counts.parts[1:]} == {"whole"}


def test_a_row_is_a_section_or_a_step_of_the_section_that_has_steps() -> None:
    counts = Counts(
        [("", ""), ("whole", "whole"), (STEP, STEP), (STEP, "a"), ("warm", "a"), (STEP, STEP)], {"whole": 2, STEP: 4}
    )
    parts = [Counter({"/libc.so": number}) for number in (1, 20, 40, 80, 160, 320, 640)]
    assert rows_of(parts, counts) == {"whole": {"libc": 10}, STEP: {"libc": 90}, "a": {"libc": 20}}


WHERE = {"interpreter": "3.11.7: (main)", "lock": "abc"}


def test_a_table_is_printed_beside_the_committed_one_of_the_same_machine_alone() -> None:
    then, now = ({"a request": {"libc": count, "other": 1}, "a step": {"libc": 9}} for count in (1_999_999, 1_500_000))
    before, table = write_table(WHERE, then), write_table(WHERE, now)
    assert read_table(before) == (WHERE, {"a request": 2_000_000, "a step": 9})
    assert compare(before, before).count(" x") == 0
    lines = compare(table, before).splitlines()
    assert [line.partition("before")[2].split() for line in lines[-2:]] == [["2,000,000", "0.750", "x"], ["9"]]
    elsewhere = compare(write_table({**WHERE, "lock": "b"}, now), before)
    assert "made with another: lock\n" in elsewhere
    assert "before" not in elsewhere.partition("not beside")[0]


def test_every_step_is_a_function_and_has_a_row_in_the_committed_table() -> None:
    for path in (path for paths in STEPS.values() for path in paths):
        owner, name = place_of(path)
        assert callable(getattr(owner, name)), path
    where, rows = read_table(TABLE.read_text("utf-8"))
    assert set(where) == set(place())
    assert set(STEPS) <= set(rows)


@pytest.mark.long
@pytest.mark.timeout(1800)  # each run takes minutes under valgrind
@pytest.mark.needs_tool("valgrind")
def test_two_runs_count_the_same(tmp_path: Path) -> None:
    runs = []
    for name in "ab":
        (tmp_path / name).mkdir()
        runs.append({row: sum(counts.values()) for row, counts in count(tmp_path / name).items()})
    first, second = runs
    assert set(STEPS) < set(first) == set(second)
    whole = "POST /tokens"
    assert second[whole] == pytest.approx(first[whole], rel=0.002)
    assert sum(first[name] for name in (*STEPS, STEP)) == pytest.approx(first[whole], rel=0.12)
