"""What workers and the sequencer process say to each other: messages in frames, over a unix socket.

A frame is its length in four bytes, big-endian, and so much MessagePack. Every question has a number of its own on its
connection, and one answer with that number; answers come in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from issuer.service.bounds import LOG_FRAME_BYTES
from issuer.service.log.batch import Placed

_LENGTH = struct.Struct(">I")


class Append(Struct, frozen=True, tag="append", array_like=True):
    """Append these leaves."""

    number: int
    leaves: tuple[bytes, ...]


class Look(Struct, frozen=True, tag="look", array_like=True):
    """Say whether a leaf could be appended now, and what the newest checkpoint is."""

    number: int


class Places(Struct, frozen=True, tag="places", array_like=True):
    """The place of each leaf, in the order of the question. They are durable, and published."""

    number: int
    places: tuple[Placed, ...]


class Standing(Struct, frozen=True, array_like=True):
    """How a log is beside its newest head.

    `cosigned` is the size of the newest tree that this process has had cosigned, and so many seconds ago; None for none
    yet. `failing` names the witnesses that do not do their part, `warnings` says what the operator should know.
    `must_wait`: what is appended now would wait for a quorum that does not come.
    """

    cosigned: tuple[int, int] | None = None
    failing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    must_wait: bool = False


class Newest(Struct, frozen=True, tag="newest", array_like=True):
    """The newest published checkpoint, signed by the log, and how the log is."""

    number: int
    checkpoint: bytes
    standing: Standing = Standing()


class Failed(Struct, frozen=True, tag="failed", array_like=True):
    """Nobody knows whether the leaves are there: the question may be asked again. The reason is in the log stream.

    `latched`: it will be answered like this until the operator has looked.
    """

    number: int
    latched: bool = False


Question: TypeAlias = Append | Look
Answer: TypeAlias = Places | Newest | Failed

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class NotAMessage(Exception):
    """What came is no frame, or no message: nothing that follows it on this connection can be read."""


def framed(message: Question | Answer) -> bytes:
    """Write a message as a frame. Raises NotAMessage for one that is longer than any is read."""
    raw = _encoder.encode(message)
    if len(raw) > LOG_FRAME_BYTES:
        raise NotAMessage(f"a message of {len(raw)} bytes")
    return _LENGTH.pack(len(raw)) + raw


def read_question(raw: bytes) -> Question:
    """Read a question. Raises NotAMessage."""
    try:
        return _questions.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotAMessage(str(error)) from error


def read_answer(raw: bytes) -> Answer:
    """Read an answer. Raises NotAMessage."""
    try:
        return _answers.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotAMessage(str(error)) from error


class Frames:
    """What has come on one connection, and was not read yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what has come, and return what is complete. Raises NotAMessage for too long a frame, before it comes."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > LOG_FRAME_BYTES:
                raise NotAMessage(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            raw = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield raw
