"""The client of the store of limits and uses: it calls `admit.lua` over the Redis protocol, and fails closed.

This file has the connections, the merging of concurrent calls into one pipeline, and the deadlines. `script.py` has the
calls and their answers. Without an answer of the store no request is admitted.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

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
    bill_of,
    keys_of,
    pack_call,
    pack_items,
    read_answer,
)

READY_KEY = PREFIX + b"ready"
T = TypeVar("T")


class PendingCall(Struct, frozen=True):
    """One call under way: keys and arguments as bytes, because the client takes twice as long for text, and a future
    for the raw answer or the failure."""

    keys: tuple[bytes, ...]
    argument: bytes
    candidate: bytes
    replaces: bytes
    items: bytes
    answer: asyncio.Future[object]

    def settle(self, answer: object) -> None:
        """Set the answer, unless the caller has given up."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def settle_late(self, seconds: float) -> None:
        """Give up in this many seconds."""
        self.answer.get_loop().call_later(seconds, self.settle, TimeoutError())


class RedisAdmission:
    """Implements `issuance.ports.Admission` on one Redis or Valkey, 6.2 or later, for one event loop.

    `leeway_s` is how far the clocks of providers and of the store may differ: 30, or 0 if they are the same clock. The
    operator states with `durable_store` that the store loses nothing in a restart or failover, and with
    `noeviction_stated` that its policy is `noeviction`, for a store that does not report it. `wait_replicas` is the
    number of replicas that must have a use before it counts. `now_us` replaces the store's clock in tests.
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
        self.place = place_of(url)  # without credentials
        self._client = connect(url, PIPELINES)
        self._connections = Connections(self._client)
        self._looker = connect(url, 1)  # for `ready`, which must not wait for requests, nor delay them
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

    # -- the life of a worker ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Check that the store is safe for uses, and set the epoch if it is absent.

        Raises SetupError: `state.unreachable`, or `state.unsafe` for a store that may evict, does not report its run
        id, is a replica, or has another time.
        """
        try:
            async with asyncio.timeout(STORE_START_S):
                while not await self._begin():
                    continue
        except Failure as failure:
            code = Code.STATE_UNSAFE if isinstance(failure, ReadOnlyError) else Code.STATE_UNREACHABLE
            raise SetupError(code, f"the store at {self.place} does not work: {why_of(failure)}") from failure

    async def _begin(self) -> bool:
        """Do all steps of the start. Return False if the store was too slow: a busy machine can delay a connection."""
        try:
            await self._client.ping()
            await self._demand_noeviction()
            await self._demand_time()
            await self._begin_epoch()
            await self._client.script_load(SCRIPT)
        except RedisTimeoutError:
            return False
        return True

    async def ready(self) -> None:
        """Raise Undecided (`dependency.state`) with the reason, unless the store accepts a write in time and has the
        right time. A ping is not enough: a full store or a replica answers it, too."""
        try:
            async with asyncio.timeout(CALL_S):
                await self._looker.set(READY_KEY, "1", px=1000)
                why = await wrong_time(self._looker)
        except Failure as failure:
            raise _unfit(why_of(failure)) from failure
        if why:
            raise _unfit(why)

    async def memory(self) -> Memory | None:
        """Return the store's memory, None if it does not report it. Raises Undecided (`dependency.state`)."""
        return await _in_time(memory_of(self._looker))

    async def bearing(self) -> Bearing:
        """Return the store's role and its epoch. Raises Undecided (`dependency.state`)."""
        return await _in_time(bearing_of(self._looker, EPOCH_KEY))

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
        """Demand `noeviction`: an evicted use record allows a replay. The store's report outranks the settings."""
        policy = None
        with suppress(ResponseError):  # managed stores deny, rename or remove the command
            policy = (await self._client.config_get("maxmemory-policy")).get("maxmemory-policy")
        if policy is None and not self._noeviction_stated:
            detail = (
                f"the store at {self.place} does not report its maxmemory-policy. "
                "Make sure that it is noeviction, then state this in the settings."
            )
            raise SetupError(Code.STATE_UNSAFE, detail)
        if policy not in {None, "noeviction", b"noeviction"}:
            detail = f"The store at {self.place} may evict uses. Set maxmemory-policy noeviction."
            raise SetupError(Code.STATE_UNSAFE, detail)

    async def _demand_time(self) -> None:
        """Demand that the store has this machine's time, which decides whether a token is older than the epoch."""
        if why := await wrong_time(self._client):
            raise SetupError(Code.STATE_UNSAFE, f"the store at {self.place} has another time: {why}")

    async def _begin_epoch(self) -> None:
        """Set the epoch if it is absent. The script replaces an epoch that is bound to another run of the store."""
        run_id = "-" if self._durable_store else await self._run_id()
        if not run_id:
            detail = (
                f"the store at {self.place} does not report its run_id, which would show a restored snapshot. "
                "Use a store that reports it, or state in the settings that this one loses nothing."
            )
            raise SetupError(Code.STATE_UNSAFE, detail)
        now_s = self._now_us() // 1_000_000 if self._now_us else (await self._client.time())[0]
        await self._client.set(EPOCH_KEY, f"{now_s} {run_id}", nx=True)

    async def _run_id(self) -> str | None:
        with suppress(ResponseError):
            return (await self._client.info("server")).get("run_id")
        return None

    # -- one call ---------------------------------------------------------------------------------------------------

    async def admit(self, call: AdmissionRequest) -> Admitted:
        """Claim `call.use` in at most 0.8 s. Raises as `issuance.ports.Admission` says."""
        admitted = await self._ask(call)
        if isinstance(admitted, Counted):  # the call had no use to claim
            raise Undecided(Code.DEPENDENCY_STATE)
        return admitted

    async def count(self, call: AdmissionRequest) -> Counted:
        """Count a request that claims no use, in at most 0.8 s. Raises as `admit`."""
        counted = await self._ask(msgspec.structs.replace(call, use=None))
        if isinstance(counted, Admitted):  # the call had no use to claim
            raise Undecided(Code.DEPENDENCY_STATE)
        return counted

    async def _ask(self, call: AdmissionRequest) -> Admitted | Counted:
        ticket, loop = next(self._tickets), asyncio.get_running_loop()
        bill = bill_of(call.payer, call.limits, call.cost, call.refused)
        keys = keys_of(call, bill)
        now_us = self._now_us() if self._now_us else 0  # 0: the store's own clock
        argument = pack_call(call, bill, ticket, now_us, self._leeway_s, is_durable=self._durable_store)
        pending = PendingCall(keys, argument, call.candidate, call.replaces, pack_items(call), loop.create_future())
        self._queue.append(pending)
        self._schedule_sending()
        # This costs a third of asyncio.timeout. A call that gives up is settled, so `_send_queued` leaves it out.
        late = loop.call_later(CALL_S - HEARD_S, pending.settle_late, HEARD_S)
        try:
            return read_answer(call, bill.dues, ticket, await pending.answer)
        finally:
            late.cancel()

    # -- many calls, one pipeline -----------------------------------------------------------------------------------

    def _schedule_sending(self) -> None:
        """Send at the end of this turn of the loop, so all calls of the turn share a pipeline."""
        if not self._sending_due and len(self._pipelines) < PIPELINES:
            self._sending_due = True
            asyncio.get_running_loop().call_soon(self._send_queued)

    def _send_queued(self) -> None:
        """Start pipelines. Leave out calls that gave up: the store would charge them for an unread answer."""
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
            # Two timers, like each call: after a stall, the loop reads the answers that have arrived before it cancels.
            late = loop.call_later(PIPELINE_S - HEARD_S, functools.partial(loop.call_later, HEARD_S, pipeline.cancel))
            pipeline.add_done_callback(functools.partial(self._end_pipeline, calls, late))

    def _end_pipeline(
        self, calls: Sequence[PendingCall], late: asyncio.TimerHandle, pipeline: asyncio.Task[None]
    ) -> None:
        """Settle the calls that the pipeline left open, however it ended, and start the next one."""
        late.cancel()
        self._pipelines.discard(pipeline)
        _settle_all(calls, TimeoutError() if pipeline.cancelled() else pipeline.exception())
        self._send_queued()

    async def _run_pipeline(self, calls: Sequence[PendingCall]) -> None:
        """Send these calls and settle them. If the store has lost the script, send the affected calls again with it."""
        answers = await self._send(calls)
        if lost := [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]:
            # EVAL sends the script itself: between SCRIPT LOAD and EVALSHA the store could lose it again.
            again = await self._send([calls[at] for at in lost], b"EVAL", SCRIPT)
            for at, answer in zip(lost, again, strict=True):
                answers[at] = answer
        for call, answer in zip(calls, answers, strict=True):
            call.settle(answer)

    async def _send(
        self, calls: Sequence[PendingCall], command: bytes = b"EVALSHA", script: bytes = SCRIPT_SHA
    ) -> list[object]:
        """Send calls as one pipeline. Answer i, or the error in its place, belongs to call i."""
        commands: list[Command] = [
            (command, script, len(call.keys), *call.keys, call.argument, call.candidate, call.replaces, call.items)
            for call in calls
        ]
        if self._wait_replicas:
            commands.append((b"WAIT", self._wait_replicas, REPLICAS_MS))
        answers = await self._connections.exchange(commands)
        if self._wait_replicas:
            replicas = answers.pop()
            if not isinstance(replicas, int) or replicas < self._wait_replicas:
                raise ResponseError("too few replicas have the use, so a failover could lose it")
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            # The master was demoted while we were connected: its address may lead to another server by now.
            await self._connections.disconnect()
        return answers


async def _in_time(answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(CALL_S):
            return await answer
    except Failure as failure:
        raise Undecided(Code.DEPENDENCY_STATE) from failure


def _unfit(why: str) -> Undecided:
    """Return the error of an unusable store, for readiness and the log stream."""
    return Undecided(Code.DEPENDENCY_STATE, f"The store of limits and uses cannot be used: {why}.")


def _settle_all(calls: Sequence[PendingCall], answer: object) -> None:
    for call in calls:
        call.settle(answer)


# -- known quarantines ------------------------------------------------------------------------------------------------


class _Known(Refused):
    """A refusal from memory. It must not extend itself, or a caller that never pauses would be refused for ever."""


class _Standing(Struct, frozen=True):
    """The store's refusal, and the time until which this process relies on it."""

    error: Refused
    until_s: float


class KnownStanding:
    """Implements `issuance.ports.KnownRefusals` for one process. `now_s` replaces the monotonic clock in tests.

    A quarantined caller may send requests without a pause. For a moment after the store's answer, the process refuses
    them without reading their bodies and without a call. Then it asks again, because only the store knows the end.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._standings: dict[Payer, _Standing] = {}

    def refusal(self, registered: Registered) -> Refused | None:
        """Return a known refusal of this caller, if there is one."""
        standing = self._standings.get(registered.payer)
        if standing is None:
            return None
        if standing.until_s <= self._now_s():
            del self._standings[registered.payer]
            return None
        return _Known(standing.error.code, standing.error.detail, retry_after_s=standing.error.retry_after_s)

    def learn(self, registered: Registered, error: Refused) -> None:
        """Keep a quarantine that the store has answered, for `STANDING_S` and never past its end."""
        if error.code is not Code.ABUSE_QUARANTINED or isinstance(error, _Known):
            return
        self._standings.pop(registered.payer, None)
        if len(self._standings) >= MAX_STANDINGS:
            del self._standings[next(iter(self._standings))]  # the oldest
        end = self._now_s() + min(STANDING_S, error.retry_after_s or 0)
        self._standings[registered.payer] = _Standing(error, end)
