"""The memory that workers count in: counts stay, are read whole, and are bounded."""

import os
import signal

import pytest

from issuer.codes import Code
from issuer.service.metrics.bounds import METRIC_SPARE_BYTES, METRIC_SPARE_NUMBERS
from issuer.service.metrics.counts import (
    ELSEWHERE,
    NOBODY,
    OTHER,
    REQUESTS,
    TOKEN_ENDPOINTS,
    Board,
    Counter,
    Counters,
    Row,
)


def test_what_several_workers_count_is_added_up() -> None:
    board = Board(3)
    for number, row in enumerate(board.rows):
        Counter(row, "a", "x").add(number + 1)
        Counter(row, "b").add(10)
    assert board.counted() == {("a", "x"): [6], ("b",): [30]}


def test_a_worker_that_dies_loses_nothing_and_the_next_one_in_its_place_goes_on() -> None:
    board = Board(2)
    for count in (3, 4):
        pid = os.fork()
        if pid == 0:
            row = Row(board.rows[1].memory)
            Counter(row, "issuer_x", str(count)).add(count)
            Counter(row, "issuer_x", "both").add(count)
            row.write_state(b"well")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        assert board.states() == []  # it had said so, and is gone
    assert board.counted() == {("issuer_x", "3"): [3], ("issuer_x", "4"): [4], ("issuer_x", "both"): [7]}


def test_a_half_written_state_of_a_worker_is_not_told() -> None:
    board = Board(1)
    (row,) = board.rows
    row.write_state(b"one")
    row.write_state(b"two and more")
    assert board.states() == [b"two and more"]
    row.head[1] += 1  # as SIGKILL leaves it in the middle
    assert board.states() == []
    row.write_state(b"three")
    assert board.states() == [b"three"]


def test_what_is_too_long_for_its_place_is_not_told() -> None:
    board = Board(1)
    board.rows[0].write_state(b"short")
    board.rows[0].write_state(bytes(1_000_000))
    assert board.states() == [b"short"]


@pytest.mark.parametrize("length", [8, pytest.param(64, marks=pytest.mark.long)])
def test_a_row_is_bounded_and_no_request_of_many_integrations_is_lost(length: int) -> None:
    board = Board(1)
    counts = Counters(board.rows[0])
    for number in range(20_000):
        counts.answered("/tokens", "issued", integration=f"{number:0{length}}")
    found = {key: numbers for key, (*numbers,) in board.counted().items() if key[0] == REQUESTS}
    assert sum(number for (number,) in found.values()) == 20_000
    assert 5_000 < len(found) < 16_384
    assert found[REQUESTS, "/tokens", "issued", "ok", OTHER][0] > 4_000
    # There is still room for everything that has no integration.
    for code in Code:
        for endpoint in (*TOKEN_ENDPOINTS, "/verify", ELSEWHERE):
            counts.answered(endpoint, "no", code)
    assert board.counted()[REQUESTS, ELSEWHERE, "no", str(list(Code)[-1]), NOBODY] == [1]


def test_the_spare_room_is_enough_for_every_code_of_every_endpoint() -> None:
    keys = (len(TOKEN_ENDPOINTS) + 2) * len(Code) * 2
    assert keys <= METRIC_SPARE_NUMBERS
    assert keys * (sum(map(len, (REQUESTS, "/tokens/explain", "undecided", max(Code, key=len), OTHER))) + 16) < (
        METRIC_SPARE_BYTES
    )
