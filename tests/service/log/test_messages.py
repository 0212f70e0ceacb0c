"""Frames and messages: cut anywhere they are read the same, and nothing too long is ever waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.service.bounds import LOG_FRAME_BYTES
from issuer.service.log.batch import Placed
from issuer.service.log.messages import (
    Answer,
    Append,
    Failed,
    Frames,
    Look,
    Newest,
    NotAMessage,
    Places,
    Question,
    Standing,
    framed,
    read_answer,
    read_question,
)

QUESTIONS: list[Question] = [Append(1, (b"a leaf\n", b"")), Look(2), Append(3, ())]
ANSWERS: list[Answer] = [
    Places(1, (Placed(7, b"a proof", True), Placed(8, b"", False))),
    Newest(2, b"a note"),
    Newest(2, b"a note", Standing((5, 1), ("w1",), ("a failover",), must_wait=True)),
    Failed(3),
    Failed(4, latched=True),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_where_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    stream, frames, found = b"".join(map(framed, QUESTIONS)), Frames(), []
    while stream:
        for size in cuts:
            found += [read_question(raw) for raw in frames.feed(stream[:size])]
            stream = stream[size:]
    assert found == QUESTIONS


def test_answers_are_read_as_they_were_written() -> None:
    assert [read_answer(raw) for raw in Frames().feed(b"".join(map(framed, ANSWERS)))] == ANSWERS


def test_too_long_a_frame_is_refused_by_its_length_alone() -> None:
    with pytest.raises(NotAMessage):
        list(Frames().feed((LOG_FRAME_BYTES + 1).to_bytes(4, "big")))
    with pytest.raises(NotAMessage):
        framed(Append(1, (bytes(LOG_FRAME_BYTES),)))


@pytest.mark.parametrize(
    "raw", [b"", b"\xc1", b"\x90", b"\x92\xa4look\xa11", b"\x92\xa5place\x01", framed(Failed(1))[4:]]
)
def test_what_is_no_question_is_refused(raw: bytes) -> None:
    with pytest.raises(NotAMessage):
        read_question(raw)
