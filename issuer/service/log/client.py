"""The workers' client of the log: messages, the connection to the sequencer process, and announcements.

A frame on the unix socket is a length in four bytes, big-endian, and that many bytes of MessagePack. Every question has
a number that is unique on its connection, and gets one answer with that number; answers come in any order. If a
connection is lost, the outcome of its open questions is unknown, and callers may ask again.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast, get_args

import msgspec
import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.io.bounds import COUNTED_S
from issuer.service.log.bounds import (
    LOG_AGAIN_S,
    LOG_ANNOUNCED,
    LOG_ANNOUNCED_AT_ONCE,
    LOG_CALL_S,
    LOG_FRAME_BYTES,
    LOG_NARROWED_S,
)
from issuer.service.log.sequencer.sequencer import Placed
from issuer.service.signing.lifecycle import STATES, KeyLife, Lives
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import AuditLeaf, KeyLeaf, KeyState, KnownLeaf, PolicyLeaf, RevocationsLeaf
from issuer.tlog.note import parse_note
from issuer.token.verify_token import Template, token_leaf
from issuer.token.wire import LogEntry

if TYPE_CHECKING:  # the sequencer process imports this file, and needs no policies
    from issuer.policy.match import PolicySet

# The details are in the log stream.
LATCHED = "The transparency log is not the one that was published. It appends no leaves until its operator acts"
OUT_OF_USE = frozenset({"archived", "revoked"})  # monitors raise an alarm for a token under such a key
AuditHead = tuple[str, str]  # the random id of a worker's audit chain, and the chain's head
_LENGTH = struct.Struct(">I")
_STATES: frozenset[str] = frozenset(get_args(KeyState))
_log = structlog.get_logger("issuer")


# -- messages ----------------------------------------------------------------------------------------------------------


class Append(Struct, frozen=True, tag="append", array_like=True):
    """Append these leaves."""

    number: int
    leaves: tuple[bytes, ...]


class Look(Struct, frozen=True, tag="look", array_like=True):
    """Return the newest checkpoint if a leaf could be appended now."""

    number: int


class LeafPlaces(Struct, frozen=True, tag="places", array_like=True):
    """The place of each leaf, in the order of the question. The leaves are durable and published."""

    number: int
    places: tuple[Placed, ...]


class LogCondition(Struct, frozen=True, array_like=True):
    """The state of the witnesses and the database. `cosigned` has the size and the age in seconds of the newest tree
    that a quorum has cosigned since the process started; None before the first. `failing` names the witnesses that
    fail; `warnings` are for the operator. `must_wait`: appends need a quorum, and several rounds did not reach one."""

    cosigned: tuple[int, int] | None = None
    failing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    must_wait: bool = False


class Newest(Struct, frozen=True, tag="newest", array_like=True):
    """The newest published checkpoint, signed by the log, and the log's state."""

    number: int
    checkpoint: bytes
    standing: LogCondition = LogCondition()


class Failed(Struct, frozen=True, tag="failed", array_like=True):
    """The leaves may be in the log or not, and the worker may ask again. The reason is in the log stream. If `latched`
    is set, all further answers fail, too, until the operator acts."""

    number: int
    latched: bool = False


Question: TypeAlias = Append | Look
Answer: TypeAlias = LeafPlaces | Newest | Failed

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class NotAMessage(Exception):
    """Not a frame, or not a message. The rest of the connection is unreadable."""


def framed(message: Question | Answer) -> bytes:
    """Return a message as a frame. Raises NotAMessage if it is too long for readers."""
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
    """The received bytes of one connection that do not make a frame yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes, and yield the complete frames. Raises NotAMessage for too long a frame, before it is received."""
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


# -- the connection ----------------------------------------------------------------------------------------------------


class SequencerLog:
    """A client of the sequencer process at a socket, with a timeout of `answer_s` for each answer. Belongs to one event
    loop."""

    def __init__(self, socket: Path, origin: str, answer_s: float = LOG_CALL_S) -> None:
        self.origin = origin
        self._socket = socket
        self._answer_s = answer_s
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def append(self, leaves: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Make leaves durable, and return the place and proof of each. A leaf that the log has already keeps its place.
        Raises Undecided(`dependency.log`)."""
        answer = await self._ask(Append(next(self._numbers), leaves))
        if not isinstance(answer, LeafPlaces) or len(answer.places) != len(leaves):
            raise Undecided(Code.DEPENDENCY_LOG)
        return tuple(LogEntry(self.origin, place.index, place.proof.decode()) for place in answer.places)

    async def look(self) -> Newest:
        """Return the newest checkpoint, signed by the log, and the log's state, for readiness. Raises
        Undecided(`dependency.log`), also if a leaf could not be appended now."""
        answer = await self._ask(Look(next(self._numbers)))
        if not isinstance(answer, Newest):
            raise Undecided(Code.DEPENDENCY_LOG, LATCHED if isinstance(answer, Failed) and answer.latched else "")
        return answer

    async def aclose(self) -> None:
        """Disconnect. Open questions fail."""
        if self._connection is not None:
            self._connection.close()

    async def _ask(self, question: Question) -> Answer:
        until = asyncio.get_running_loop().time() + self._answer_s
        try:
            if (connection := self._connection) is None or connection.is_closed:
                connection = await self._connect(until)
            return await connection.ask(question, until)
        except (OSError, TimeoutError, NotAMessage) as error:
            raise Undecided(Code.DEPENDENCY_LOG) from error

    async def _connect(self, until: float) -> _Connection:
        """Return the open connection. Otherwise connect as soon as the process listens: it may be restarting."""
        async with asyncio.timeout_at(until), self._connecting:
            while self._connection is None or self._connection.is_closed:
                with suppress(OSError):
                    loop = asyncio.get_running_loop()
                    _, self._connection = await loop.create_unix_connection(_Connection, str(self._socket))
                    break
                await asyncio.sleep(LOG_AGAIN_S)
            return self._connection


class _Connection(asyncio.Protocol):
    """One connection, and its open questions."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._transport: asyncio.Transport | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        return self._transport is None or self._transport.is_closing()

    async def ask(self, question: Question, until: float) -> Answer:
        """Ask a question, and wait for the answer until a time of the event loop. Raises TimeoutError and OSError."""
        if self._transport is None:
            raise ConnectionError("the connection has ended")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._transport.write(framed(question))
        self._asked[question.number] = answer
        late = loop.call_at(until, _give_up, answer)  # a third of the cost of asyncio.timeout
        try:
            return await answer
        finally:
            late.cancel()
            self._asked.pop(question.number, None)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not a subclass

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Fail all open questions."""
        self._transport = None
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the sequencer has ended"))
                answer.exception()  # mark it as retrieved: the caller may have given up

    def data_received(self, data: bytes) -> None:
        """Give each answer to its caller, unless the caller has given up."""
        try:
            for raw in self._frames.feed(data):
                answer = read_answer(raw)
                asked = self._asked.get(answer.number)
                if asked is not None and not asked.done():
                    asked.set_result(answer)
        except NotAMessage as error:
            _log.error("log answer not read", reason=str(error))
            self.close()


def _give_up(answer: asyncio.Future[Answer]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


# -- the log for the issuance line -------------------------------------------------------------------------------------


class CosignedTree(Struct, frozen=True):
    """The size of the newest tree that a quorum has cosigned since the sequencer's start, and how long ago that was."""

    size: int
    age_s: int


class LogStatus(Struct, frozen=True):
    """The state of the log for readiness: origin and size, the newest cosigned tree (None before the first), the
    failing witnesses by their names in the policy, and warnings about the database."""

    origin: str
    size: int
    cosigned: CosignedTree | None
    failing_witnesses: tuple[str, ...]
    warnings: tuple[str, ...]


class AnnouncingLog:
    """Implements `issuance.ports.Log`. A new key or policy must not be used before its leaf is in the log, so both
    leaves come before those of tokens. A key that is archived or revoked goes out of use at once, and its leaf follows.
    `lives` returns the history of each key; `iss` is this issuer. `status` is the result of the last `check`."""

    def __init__(self, log: SequencerLog, iss: str, lives: Callable[[], Lives]) -> None:
        self._log = log
        self.iss = iss
        self.lives = lives
        self.status: LogStatus | None = None
        self._announced: set[KnownLeaf] = set()

    @property
    def origin(self) -> str | None:
        """The log's origin line, which tokens name."""
        return self._log.origin

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        """Append the leaves of tokens, after the leaves of their key and their policy. Raises Undecided:
        `dependency.log`, and `dependency.signer` if the key has gone out of use meanwhile, because monitors would raise
        an alarm."""
        life = self.lives().get(template.kid)
        if life is None or life.what not in STATES:
            raise Undecided(Code.DEPENDENCY_SIGNER)
        policy = PolicyLeaf(self.iss, template.terms.sub, template.terms.policy)
        needed: tuple[KnownLeaf, ...] = (*key_leaves(self.iss, [life]), policy)
        first = [leaf for leaf in needed if leaf not in self._announced]
        tokens = (token_leaf(template.terms, template.kid, signing_input) for signing_input in signing_inputs)
        places = await self._log.append(tuple(leaf.to_bytes() for leaf in (*first, *tokens)))
        self._remember(first)
        return places[len(first) :]

    async def announce(self, leaves: Iterable[KnownLeaf]) -> None:
        """Announce leaves that were not announced before, a part at a time. Raises Undecided(`dependency.log`)."""
        new = [leaf for leaf in dict.fromkeys(leaves) if leaf not in self._announced]
        for start in range(0, len(new), LOG_ANNOUNCED_AT_ONCE):
            part = new[start : start + LOG_ANNOUNCED_AT_ONCE]
            await self._log.append(tuple(leaf.to_bytes() for leaf in part))
            self._remember(part)

    def has_announced(self, life: KeyLife) -> bool:
        """Return whether this process knows that the state of a key is in the log."""
        return self._announced.issuperset(key_leaves(self.iss, [life]))

    async def check(self) -> None:
        """Check that a leaf could be appended now, and set `status`. Raises Undecided(`dependency.log`)."""
        newest = await self._log.look()
        state = newest.standing
        if state.must_wait:
            raise Undecided(Code.DEPENDENCY_LOG, "Tokens need a quorum of witnesses: recent rounds did not reach it")
        size = parse_checkpoint(parse_note(newest.checkpoint).text).size
        cosigned = None if state.cosigned is None else CosignedTree(*state.cosigned)
        self.status = LogStatus(self._log.origin, size, cosigned, state.failing, state.warnings)

    async def aclose(self) -> None:
        """Disconnect."""
        await self._log.aclose()

    def _remember(self, leaves: Iterable[KnownLeaf]) -> None:
        if len(self._announced) >= LOG_ANNOUNCED:
            self._announced.clear()  # a repeated announcement does not add a leaf
        self._announced.update(leaves)


def key_leaves(iss: str, lives: Iterable[KeyLife]) -> Iterator[KeyLeaf]:
    """Yield the state of each key. A key whose file was removed counts as archived."""
    for life in lives:
        state = "archived" if life.what == "removed" else life.what
        if state in _STATES:
            yield KeyLeaf(iss, life.kid, life.x, state, life.since)  # type: ignore[arg-type]


def policy_leaves(iss: str, policies: PolicySet) -> Iterator[PolicyLeaf]:
    """Yield the digest of each policy, with its integration."""
    for registrations in policies.registrations.values():
        for registration in registrations:
            yield PolicyLeaf(iss, registration.policy.integration, registration.digest)


# -- announcements without a token -------------------------------------------------------------------------------------


class Announcer(Struct):
    """Announces keys, policies, the revocation list (None: not served) and this worker's audit head, as soon as each is
    in force: the owner of an integration sees a policy before its first use. The revocation of a key waits until every
    worker has dropped the key: monitors raise an alarm for a later token under it. `clock` returns Unix seconds."""

    log: AnnouncingLog
    policies: Callable[[], PolicySet]
    revocations: Callable[[], bytes | None]
    audit_head: Callable[[], AuditHead]
    clock: Callable[[], int]
    _announced: PolicySet | None = None
    _out_of_use: dict[KeyLeaf, int] = {}  # with the time when this worker learned of it
    _audited: AuditHead = ("", "")
    _audited_at: int = 0

    def __post_init__(self) -> None:
        self._audited, self._audited_at = self.audit_head(), self.clock()

    async def turn(self, _asked: bool = False) -> None:
        """Announce everything new. If the log fails, a later turn tries again."""
        with suppress(Undecided):
            await self.log.announce(self._keys())
            policies = self.policies()
            if policies is not self._announced:  # there may be thousands
                await self.log.announce(policy_leaves(self.log.iss, policies))
                self._announced = policies
            if (served := self.revocations()) is not None:
                digest = f"sha256:{hashlib.sha256(served).hexdigest()}"
                await self.log.announce([RevocationsLeaf(self.log.iss, digest)])
            if self.clock() - self._audited_at >= COUNTED_S:
                head = self.audit_head()
                if head != self._audited:
                    await self.log.announce([AuditLeaf(self.log.iss, *head)])
                self._audited, self._audited_at = head, self.clock()

    def _keys(self) -> Iterator[KeyLeaf]:
        """Yield the states of all keys, except those that have just gone out of use."""
        now = self.clock()
        for leaf in key_leaves(self.log.iss, self.log.lives().values()):
            if leaf.state not in OUT_OF_USE or now - self._out_of_use.setdefault(leaf, now) >= LOG_NARROWED_S:
                yield leaf
