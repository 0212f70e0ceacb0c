"""The store of limits and uses, over the Redis protocol: it calls `admit.lua`, and fails closed where that is silent.

Knows the wire, the merging of concurrent calls into one pipeline, and the deadlines; `script.py` knows what is asked
and answered. Where the store is silent, nobody decides: nothing is ever admitted without it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from issuer.codes import Code
from issuer.errors import Refused, SetupError, Undecided
from issuer.io.bounds import CALL_S
from issuer.io.redis_client import (
    PREFIX,
    Bearing,
    Command,
    Connections,
    Failure,
    Memory,
    bearing_of,
    connect,
    memory_of,
    place_of,
    why_of,
    wrong_time,
)
from issuer.issuance.ports import AdmissionRequest, Admitted, Counted
from issuer.issuance.steps import Payer, Registered
from issuer.service.admission.bounds import (
    HEARD_S,
    MAX_STANDINGS,
    PIPELINE_CALLS,
    PIPELINE_S,
    PIPELINES,
    REPLICAS_MS,
    STANDING_S,
    STORE_START_S,
)
from issuer.service.admission.script import (
    EPOCH_KEY,
    SCRIPT,
    SCRIPT_SHA,
    Bill,
    bill_of,
    keys_of,
    pack_call,
    pack_items,
    read_answer,
)

READY_KEY = PREFIX + b"ready"


class PendingCall(Struct, frozen=True):
    """One call on its way: the script's keys and arguments, and a future for its raw answer or its failure.

    All in bytes: the client encodes text piece by piece, which takes it twice as long.
    """

    keys: tuple[bytes, ...]
    argument: bytes
    candidate: bytes
    replaces: bytes
    items: bytes
    answer: asyncio.Future[object]

    def settle(self, answer: object) -> None:
        """Answer, unless the caller has given up."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def settle_late(self, seconds: float) -> None:
        """Give up in so many seconds."""
        self.answer.get_loop().call_later(seconds, self.settle, TimeoutError())


class RedisAdmission:
    """Implements `issuance.ports.Admission` on one Redis or Valkey, 6.2 or later. Belongs to one event loop.

    `leeway_s` is how far the clocks of providers and of the store may differ: 30, and 0 only where they are one clock.
    `durable_store` states that the store forgets nothing when it restarts or fails over; `noeviction_stated` that its
    policy is `noeviction` where it does not let us ask. `wait_replicas` is how many replicas must have a use before it
    counts. `now_us` replaces the store's clock in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        leeway_s: int = 30,
        durable_store: bool = False,
        noeviction_stated: bool = False,
        wait_replicas: int = 0,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        self._place = place_of(url)
        self._client = connect(url, PIPELINES)
        self._connections = Connections(self._client)
        self._looker = connect(url, 1)  # for `ready`, which must not wait for requests, nor they for it
        self._wait_replicas = wait_replicas
        self._leeway_s = leeway_s
        self._durable_store = durable_store
        self._noeviction_stated = noeviction_stated
        self._now_us = now_us
        self._tickets = itertools.count(1)
        self._queue: list[PendingCall] = []
        self._pipelines: set[asyncio.Task[None]] = set()
        self._sending_due = False
        self._closed = False

    @property
    def place(self) -> str:
        """Where the store is, for people: without credentials."""
        return self._place

    # -- the life of a worker ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Make sure that the store is fit to remember uses, and set the epoch if it is absent.

        Raises SetupError: `state.unreachable`, or `state.unsafe` where it may evict, cannot tell who it is, is a
        replica, or has another time.
        """
        try:
            async with asyncio.timeout(STORE_START_S):
                await self._client.ping()
                await self._demand_noeviction()
                await self._demand_time()
                await self._begin_epoch()
                await self._client.script_load(SCRIPT)
        except Failure as failure:
            code = Code.STATE_UNSAFE if isinstance(failure, ReadOnlyError) else Code.STATE_UNREACHABLE
            raise SetupError(code, f"the store at {self._place} does not work: {why_of(failure)}") from failure

    async def ready(self) -> None:
        """Return if the store takes a write in time, and has the time: a full one, or a replica, answers pings too.

        Raises Undecided (`dependency.state`), which says why.
        """
        try:
            async with asyncio.timeout(CALL_S):
                await self._looker.set(READY_KEY, "1", px=1000)
                why = await wrong_time(self._looker)
        except Failure as failure:
            raise _unfit(why_of(failure)) from failure
        if why:
            raise _unfit(why)

    async def memory(self) -> Memory | None:
        """Ask the store for its memory; None where it does not tell. Raises Undecided (`dependency.state`)."""
        try:
            async with asyncio.timeout(CALL_S):
                return await memory_of(self._looker)
        except Failure as failure:
            raise Undecided(Code.DEPENDENCY_STATE) from failure

    async def bearing(self) -> Bearing:
        """Ask the store for its role and its epoch. Raises Undecided (`dependency.state`)."""
        try:
            async with asyncio.timeout(CALL_S):
                return await bearing_of(self._looker, EPOCH_KEY)
        except Failure as failure:
            raise Undecided(Code.DEPENDENCY_STATE) from failure

    async def aclose(self) -> None:
        """Disconnect from the store. Calls under way end as Undecided."""
        self._closed = True
        pipelines = list(self._pipelines)
        for pipeline in pipelines:
            pipeline.cancel()
        await asyncio.gather(*pipelines, return_exceptions=True)
        self._send_queued()
        await self._connections.disconnect()
        await self._client.aclose()
        await self._looker.aclose()

    async def _demand_noeviction(self) -> None:
        """Demand `noeviction`: an evicted use record allows a replay. The store's word counts before the operator's."""
        policy = None
        with suppress(ResponseError):  # denied, renamed or unknown: managed stores do each of them
            policy = (await self._client.config_get("maxmemory-policy")).get("maxmemory-policy")
        if policy is None and not self._noeviction_stated:
            detail = (
                f"the store at {self._place} does not tell its maxmemory-policy. "
                "Make sure that it is noeviction, then state so in the settings."
            )
            raise SetupError(Code.STATE_UNSAFE, detail)
        if policy not in {None, "noeviction", b"noeviction"}:
            raise SetupError(
                Code.STATE_UNSAFE, f"The store at {self._place} may evict uses. Set maxmemory-policy noeviction."
            )

    async def _demand_time(self) -> None:
        """Demand that its clock is this machine's: by it identity tokens are from before its epoch, or not."""
        if why := await wrong_time(self._client):
            raise SetupError(Code.STATE_UNSAFE, f"the store at {self._place} has another time: {why}")

    async def _begin_epoch(self) -> None:
        """Set the epoch if it is absent. The script replaces an epoch that is bound to another run of the store."""
        run_id = "-" if self._durable_store else await self._run_id()
        if not run_id:
            detail = (
                f"the store at {self._place} does not tell its run_id, so a restart from a snapshot cannot be seen. "
                "Use one that does, or state in the settings that it loses nothing."
            )
            raise SetupError(Code.STATE_UNSAFE, detail)
        now_s = self._now_us() // 1_000_000 if self._now_us else (await self._client.time())[0]
        await self._client.set(EPOCH_KEY, f"{now_s} {run_id}", nx=True)

    async def _run_id(self) -> str | None:
        """Ask the store for its run id; None where it does not say."""
        with suppress(ResponseError):
            return (await self._client.info("server")).get("run_id")
        return None

    # -- one call ---------------------------------------------------------------------------------------------------

    async def admit(self, call: AdmissionRequest) -> Admitted:
        """Claim `call.use`, in at most 0.8 s. See `issuance.ports.Admission` for what it raises."""
        admitted = await self._ask(call)
        if isinstance(admitted, Counted):  # there was no use to claim
            raise Undecided(Code.DEPENDENCY_STATE)
        return admitted

    async def count(self, call: AdmissionRequest) -> Counted:
        """Count a request that claims no use, in at most 0.8 s. Raises as `admit`."""
        counted = await self._ask(msgspec.structs.replace(call, use=None))
        if isinstance(counted, Admitted):  # there was no use to claim
            raise Undecided(Code.DEPENDENCY_STATE)
        return counted

    async def _ask(self, call: AdmissionRequest) -> Admitted | Counted:
        """Let the store decide on one call."""
        ticket, loop = next(self._tickets), asyncio.get_running_loop()
        bill = bill_of(call.payer, call.limits, call.cost, call.refused)
        keys = keys_of(call, bill)
        argument = self._argument(call, ticket, bill)
        pending = PendingCall(keys, argument, call.candidate, call.replaces, pack_items(call), loop.create_future())
        self._queue.append(pending)
        self._schedule_sending()
        # A third of the cost of asyncio.timeout; a call that gave up is settled, and so left behind.
        late = loop.call_later(CALL_S - HEARD_S, pending.settle_late, HEARD_S)
        try:
            return read_answer(call, bill.dues, ticket, await pending.answer)
        finally:
            late.cancel()

    def _argument(self, call: AdmissionRequest, ticket: int, bill: Bill) -> bytes:
        """Write the script's argument."""
        now_us = self._now_us() if self._now_us else 0  # 0: the store's own clock
        return pack_call(call, bill, ticket, now_us, self._leeway_s, is_durable=self._durable_store)

    # -- many calls, one pipeline -----------------------------------------------------------------------------------

    def _schedule_sending(self) -> None:
        """Send at the end of this turn of the loop: all calls of one turn go together."""
        if not self._sending_due and len(self._pipelines) < PIPELINES:
            self._sending_due = True
            asyncio.get_running_loop().call_soon(self._send_queued)

    def _send_queued(self) -> None:
        """Start pipelines. Calls that gave up stay out: they would be charged for an answer that nobody reads."""
        self._sending_due = False
        self._queue = [call for call in self._queue if not call.answer.done()]
        if self._closed:
            _settle_all(self._queue, None)
            self._queue = []
        while self._queue and len(self._pipelines) < PIPELINES:
            calls, self._queue = self._queue[:PIPELINE_CALLS], self._queue[PIPELINE_CALLS:]
            loop = asyncio.get_running_loop()
            pipeline = loop.create_task(self._run_pipeline(calls))
            self._pipelines.add(pipeline)
            # Twice, as each call: a loop that stood still hears first what was answered meanwhile.
            late = loop.call_later(PIPELINE_S - HEARD_S, functools.partial(loop.call_later, HEARD_S, pipeline.cancel))
            pipeline.add_done_callback(functools.partial(self._end_pipeline, calls, late))

    def _end_pipeline(
        self, calls: Sequence[PendingCall], late: asyncio.TimerHandle, pipeline: asyncio.Task[None]
    ) -> None:
        """Settle the calls that the pipeline left open, however it ended, and let the next one start."""
        late.cancel()
        self._pipelines.discard(pipeline)
        _settle_all(calls, TimeoutError() if pipeline.cancelled() else pipeline.exception())
        self._send_queued()

    async def _run_pipeline(self, calls: Sequence[PendingCall]) -> None:
        """Take these calls to the store and back; load a flushed script, and resend the calls that missed it."""
        answers = await self._send(calls)
        if lost := [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]:
            # EVAL carries the script: between a load and EVALSHA it could be flushed again.
            again = await self._send([calls[at] for at in lost], b"EVAL", SCRIPT)
            for at, answer in zip(lost, again, strict=True):
                answers[at] = answer
        for call, answer in zip(calls, answers, strict=True):
            call.settle(answer)

    async def _send(
        self, calls: Sequence[PendingCall], command: bytes = b"EVALSHA", script: bytes = SCRIPT_SHA
    ) -> list[object]:
        """Send calls as one pipeline; answer i, or the error in its place, belongs to call i."""
        commands: list[Command] = [
            (command, script, len(call.keys), *call.keys, call.argument, call.candidate, call.replaces, call.items)
            for call in calls
        ]
        if self._wait_replicas:
            commands.append((b"WAIT", self._wait_replicas, REPLICAS_MS))
        answers = await self._connections.exchange(commands)
        if self._wait_replicas and not _at_least(self._wait_replicas, answers.pop()):
            raise ResponseError("a use that too few replicas have may be forgotten")
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            # The master was demoted under us: its address may lead to another server by now.
            await self._connections.disconnect()
        return answers


def _unfit(why: str) -> Undecided:
    """Return the error of a store that cannot be used, for readiness and the log stream."""
    return Undecided(Code.DEPENDENCY_STATE, f"The store of limits and uses cannot be used: {why}.")


def _settle_all(calls: Sequence[PendingCall], answer: object) -> None:
    for call in calls:
        call.settle(answer)


def _at_least(count: int, answer: object) -> bool:
    return isinstance(answer, int) and answer >= count


# -- known quarantines ------------------------------------------------------------------------------------------------

# A quarantined caller asks again and again. For a moment after the store has said so, its requests are refused with
# their bodies unread and without another call; then the store is asked again, because only it knows the end.


class _Known(Refused):
    """What was known already: it is no news, or who asks without a pause would be held for ever."""


class _Told(Struct, frozen=True):
    """What the store said, and until when it is believed."""

    error: Refused
    until_s: float


class KnownStanding:
    """Implements `issuance.ports.Standing` for one process. `now_s` replaces the monotonic clock in tests."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._told: dict[Payer, _Told] = {}

    def refusal(self, registered: Registered) -> Refused | None:
        """Return what is known against a caller now, if anything."""
        payer = registered.payer
        told = self._told.get(payer)
        if told is None:
            return None
        if told.until_s <= self._now_s():
            del self._told[payer]
            return None
        return _Known(told.error.code, told.error.detail, retry_after_s=told.error.retry_after_s)

    def learn(self, registered: Registered, error: Refused) -> None:
        """Remember a quarantine that the store told of, for `STANDING_S`, and never past its end."""
        if error.code is not Code.ABUSE_QUARANTINED or isinstance(error, _Known):
            return
        payer = registered.payer
        self._told.pop(payer, None)
        if len(self._told) >= MAX_STANDINGS:
            del self._told[next(iter(self._told))]  # the oldest: the store is asked about it again
        self._told[payer] = _Told(error, self._now_s() + min(STANDING_S, error.retry_after_s or 0))
