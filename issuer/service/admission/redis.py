"""The store of limits and uses, over the Redis protocol: it calls `admit.lua`, and fails closed where that is silent.

Knows the wire, the merging of concurrent calls into one pipeline, and the deadlines. `admit.lua` decides; contract
section 5 says what a use means. Anything but an answer of that script to that very call becomes Undecided: nothing is
ever admitted without the store.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn, get_args

import msgspec
from msgspec import Struct
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from issuer.abuse import NOTHING_COUNTED, SPREADS, THENS, Abuse, Name, read_tally
from issuer.codes import Code
from issuer.errors import Refused, SetupError, Undecided
from issuer.formats.times import show_time
from issuer.issuance.ports import AdmissionRequest, Admitted, Counted, Item, Presented, Use
from issuer.issuance.steps import Limited, Payer, Quarantined
from issuer.limits import Limits, Rate, RateState
from issuer.service.admission.client import Command, Memory, connect, exchange, memory_of, place_of, why_of
from issuer.service.bounds import (
    AGAIN_RATE,
    CALL_S,
    HEARD_S,
    PIPELINE_CALLS,
    PIPELINE_S,
    PIPELINES,
    REPLICAS_MS,
    RESEMBLING_RATE,
    STORE_START_S,
)

SCRIPT = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("count.lua", "admit.lua"))
SCRIPT_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()  # the name that EVALSHA demands

# One hash tag: a cluster keeps all keys of a call in one slot, which a script demands.
PREFIX = b"{evi}:"
EPOCH_KEY = PREFIX + b"epoch"
READY_KEY = PREFIX + b"ready"

DAY_S = 86_400

# The errors of the store and of the way to it. redis-py's own TimeoutError is a RedisError.
Failure = (RedisError, OSError, TimeoutError)


# A rate as the script takes it: what `limits.spend` would add to the arrival time, and tolerate, in microseconds.
Charge = tuple[int, int]


class Due(Struct, frozen=True):
    """What a call costs of one rate; `code` refuses it where that is too much."""

    code: Code
    key: bytes
    rate: Rate
    cost: int = 1


class Bill(Struct, frozen=True):
    """What a kind of call costs its payer, beside a use: the rates that it must fit, and the refusals that it adds to.

    `keys` are KEYS of `admit.lua` up to those of the results, `behind` the standing, which follows them, and what is
    kept of the day where results are counted; `charges` are the rates as it takes them.
    """

    dues: tuple[Due, ...]
    keys: tuple[bytes, ...]
    behind: tuple[bytes, bytes, bytes]
    charges: tuple[Charge, ...]
    refusals: Charge | None


class PendingCall(Struct, frozen=True):
    """One call on its way: the script's keys and arguments, and a future for its raw answer or its failure.

    All in bytes: the client encodes text piece by piece, which takes it twice as long.
    """

    keys: tuple[bytes, ...]
    argument: bytes
    candidate: bytes
    replaces: bytes
    counting: bytes
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

        Raises SetupError: `state.unreachable`, or `state.unsafe` where it may evict or cannot tell who it is.
        """
        try:
            async with asyncio.timeout(STORE_START_S):
                await self._client.ping()
                await self._demand_noeviction()
                await self._begin_epoch()
                await self._client.script_load(SCRIPT)
        except Failure as failure:
            detail = f"the store at {self._place} does not work: {why_of(failure)}"
            raise SetupError(Code.STATE_UNREACHABLE, detail) from failure

    async def ready(self) -> None:
        """Return if the store takes a write in time: a full one, or a replica, answers pings too.

        Raises Undecided (`dependency.state`).
        """
        try:
            async with asyncio.timeout(CALL_S):
                await self._looker.set(READY_KEY, "1", px=1000)
        except Failure as failure:
            raise Undecided(Code.DEPENDENCY_STATE) from failure

    async def memory(self) -> Memory | None:
        """Ask the store for its memory; None where it does not tell. Raises Undecided (`dependency.state`)."""
        try:
            async with asyncio.timeout(CALL_S):
                return await memory_of(self._looker)
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
        pending = PendingCall(keys, argument, call.candidate, call.replaces, pack_counting(call), loop.create_future())
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
            pipeline = asyncio.get_running_loop().create_task(self._run_pipeline(calls))
            self._pipelines.add(pipeline)
            pipeline.add_done_callback(functools.partial(self._end_pipeline, calls))

    def _end_pipeline(self, calls: Sequence[PendingCall], pipeline: asyncio.Task[None]) -> None:
        """Settle the calls that the pipeline left open, however it ended, and let the next one start."""
        self._pipelines.discard(pipeline)
        _settle_all(calls, None if pipeline.cancelled() else pipeline.exception())
        self._send_queued()

    async def _run_pipeline(self, calls: Sequence[PendingCall]) -> None:
        """Take these calls to the store and back; load a flushed script, and resend the calls that missed it."""
        async with _deadline(PIPELINE_S):
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
            (command, script, len(call.keys), *call.keys, call.argument, call.candidate, call.replaces, call.counting)
            for call in calls
        ]
        if self._wait_replicas:
            commands.append((b"WAIT", self._wait_replicas, REPLICAS_MS))
        answers = await exchange(self._client, commands)
        if self._wait_replicas and not _at_least(self._wait_replicas, answers.pop()):
            raise ResponseError("a use that too few replicas have may be forgotten")
        if any(isinstance(answer, ReadOnlyError) for answer in answers):
            # The master was demoted under us: its address may lead to another server by now.
            await self._client.connection_pool.disconnect(inuse_connections=False)
        return answers


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds, and HEARD_S after the event loop has come on at the earliest."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as deadline:
        late = loop.call_later(seconds - HEARD_S, lambda: deadline.reschedule(loop.time() + HEARD_S))
        try:
            yield
        finally:
            late.cancel()


def _settle_all(calls: Sequence[PendingCall], answer: object) -> None:
    for call in calls:
        call.settle(answer)


def _at_least(count: int, answer: object) -> bool:
    return isinstance(answer, int) and answer >= count


def _charge(rate: Rate, cost: int = 1) -> Charge:
    return rate.interval_us * cost, rate.tolerance_us


_AGAIN = _charge(AGAIN_RATE)


@functools.lru_cache(4096)
def bill_of(payer: Payer, limits: Limits, cost: int, refused: bool) -> Bill:
    """Make the bill of a kind of call (contract section 5, who pays)."""
    names = names_of(payer)
    dues: tuple[Due, ...] = ()
    if payer.bucket is not None:
        dues = (Due(Code.RATE_IDENTITY, names.resembling, RESEMBLING_RATE),)
    elif not refused:
        dues = (
            Due(Code.RATE_IDENTITY, names.identity, limits.identity, cost),
            Due(Code.RATE_INTEGRATION, names.integration, limits.integration, cost),
        )
    return Bill(
        dues=dues,
        keys=(EPOCH_KEY, *[due.key for due in dues], *([names.refusals] if refused else [])),
        behind=(names.standing, names.day, names.filter),
        charges=tuple([_charge(due.rate, due.cost) for due in dues]),
        refusals=_charge(limits.refusals) if refused else None,
    )


def keys_of(call: AdmissionRequest, bill: Bill) -> tuple[bytes, ...]:
    """Return KEYS of `admit.lua`, in its order."""
    keys = [*bill.keys]
    if call.countable is not None:
        for item in call.countable.items:
            keys.append(PREFIX + b"run:" + item.run.encode())
            if item.twins:
                keys.append(PREFIX + b"twins:" + item.twins.encode())
    keys += bill.behind if call.countable is not None else bill.behind[:1]
    spent = call.use or call.presented
    if spent is not None:
        keys.append(record_of(spent))
    return tuple(keys)


_HEAD = struct.Struct(">QQIBQQQQBBBBB").pack
_CHARGE = struct.Struct(">QQ").pack
_USE = struct.Struct(">IQQ").pack


def pack_call(
    call: AdmissionRequest, bill: Bill, ticket: int, now_us: int, leeway_s: int, *, is_durable: bool
) -> bytes:
    """Write a call as `admit.lua` reads it, but its templates and what is counted."""
    use, presented = call.use, call.presented
    quarantine_us, by_signal_us = call.limits.quarantine_s * 1_000_000, call.abuse.quarantine_s * 1_000_000
    parts = [
        _HEAD(
            ticket, now_us, leeway_s, is_durable, *_AGAIN, quarantine_us, by_signal_us,
            bill.refusals is not None, use is None and presented is not None, use is not None,
            use is not None and use.issued_at is not None, len(bill.charges),
        ),
        *[_CHARGE(*charge) for charge in bill.charges],
    ]  # fmt: skip
    if bill.refusals is not None:
        parts.append(_CHARGE(*bill.refusals))
    if use is not None:
        parts.append(_USE(use.allowed, use.issued_at or 0, use.keep_until))
        signed_by = f"{use.template_exp} {use.kid} ".encode()  # what stands before the counts and the template
        kids, digest = f" {' '.join(use.usable_kids)} ".encode(), use.request_digest.encode()
        parts += [bytes((len(signed_by),)), signed_by, len(kids).to_bytes(2, "big"), kids]
        parts += [bytes((len(digest),)), digest]
    elif presented is not None:
        parts.append(presented.allowed.to_bytes(4, "big"))
    return b"".join(parts)


_NO_RUN = " " * 8


def pack_counting(call: AdmissionRequest) -> bytes:
    """Write what is counted of a call as `count.lua` reads it; empty where nothing is."""
    if call.countable is None:
        return b""
    items, throttle = call.countable.items, call.abuse.throttle
    interval_us, tolerance_us = _charge(Rate(throttle.count, throttle.per_s, throttle.burst), call.cost)
    head = struct.pack(
        ">IIHBBBBBBHHIIQQQ8s",
        call.abuse.attempts.per_days * DAY_S,
        call.abuse.twins.per_days * DAY_S,
        len(items) + sum(bool(one.twins) for one in items),
        len(items),
        *_limits_of(call.abuse),
        interval_us,
        tolerance_us,
        throttle.for_s * 1_000_000,
        (call.countable.run or _NO_RUN).encode(),
    )
    return head + b"".join([_pack_item(one) for one in items])


def _pack_item(item: Item) -> bytes:
    files = "".join(item.files).encode()
    names = item.values.encode(), item.repo.encode(), item.owner.encode()
    return struct.pack(">16s8s8sBB", *names, bool(item.twins), len(item.files)) + files


@functools.lru_cache(4096)
def _limits_of(abuse: Abuse) -> tuple[int, ...]:
    """Return when `count.lua` raises a signal, and what that does, as the index in `abuse.THENS`."""
    attempts, artifact, spread = abuse.attempts, abuse.artifact, abuse.spread
    return (
        attempts.distinct,
        THENS.index(attempts.then),
        artifact.distinct,
        THENS.index(artifact.then),
        THENS.index(spread.then),
        *(getattr(spread, name) for name in SPREADS),
    )


def record_of(use: Use | Presented) -> bytes:
    """Name a use record."""
    return b"%buse:%b" % (PREFIX, use.record.encode())


class Names(Struct, frozen=True):
    """The keys of what the store keeps of one payer: registered ids only, and hashed, never a raw claim.

    `resembling` is of all buckets of an identity together. `day` is what was counted of an identity today, `filter`
    what of it went beyond the budget of keys.
    """

    identity: bytes
    integration: bytes
    resembling: bytes
    refusals: bytes
    standing: bytes
    day: bytes
    filter: bytes


def names_of(payer: Payer) -> Names:
    """Name what the store keeps of a payer."""
    # A registered id cannot contain NUL, so no two payers share a name.
    of_identity = f"{payer.integration}\0{payer.identity}"
    of_payer = of_identity if payer.bucket is None else f"{of_identity}\0{payer.bucket}"
    return Names(
        identity=PREFIX + b"identity:" + _hashed(of_identity),
        integration=PREFIX + b"integration:" + _hashed(payer.integration),
        resembling=PREFIX + b"resembling:" + _hashed(of_identity),
        refusals=PREFIX + b"refusals:" + _hashed(of_payer),
        standing=PREFIX + b"standing:" + _hashed(of_payer),
        day=PREFIX + b"day:" + _hashed(of_identity),
        filter=PREFIX + b"filter:" + _hashed(of_identity),
    )


def _hashed(name: str) -> bytes:
    return hashlib.sha256(name.encode()).hexdigest()[:32].encode()


def read_answer(call: AdmissionRequest, dues: tuple[Due, ...], ticket: int, answer: object) -> Admitted | Counted:
    """Turn the script's answer into the caller's. Anything that is not exactly such an answer: Undecided."""
    if isinstance(answer, list) and answer[:1] == [ticket]:
        match call.use, answer[1:]:
            case None, [b"COUNTED", int(ahead_us)]:
                return refusals_counted(call, ahead_us) if call.refused else Counted()
            case None, [b"COUNTED", 0, bytes(tally)]:
                return Counted((), tally)
            case use, [b"NEW", bytes(tally), [*ahead_us]] if use is not None and _are_of(dues, ahead_us):
                return Admitted(call.candidate, repeat=False, tally=tally, rates=_rates(dues, ahead_us))
            case use, [b"SAME", bytes(template), bytes(tally)] if use is not None and template:
                return Admitted(template, repeat=True, tally=tally)
            case use, [b"EXHAUSTED"] if use is not None:
                raise Refused(use.spent)
            case _, [b"RATE_USE", int(wait_us)] if call.use or call.presented:
                detail = f"The same credential was sent again more than {AGAIN_RATE.burst} times an hour."
                raise Refused(Code.RATE_IDENTITY, detail, retry_after_s=seconds(wait_us))
            case _, [b"RATE", int(number), int(wait_us), [*ahead_us]] if 1 <= number <= len(dues) and _are_of(
                dues, ahead_us
            ):
                refuse_rate(dues[number - 1], wait_us, _rates(dues, ahead_us))
            case _, [b"THROTTLED", int(wait_us), int(end_us)] if call.countable is not None:
                throttle = call.abuse.throttle
                detail = (
                    f"This identity is throttled to {throttle.count} tokens per {throttle.per_s} s until "
                    f"{show_time(seconds(end_us))}, because of what it had signed."
                )
                if call.cost > throttle.burst:
                    detail += f" Until then no batch has more than {throttle.burst} results."
                raise Refused(Code.RATE_IDENTITY, detail, retry_after_s=seconds(wait_us))
            case _, [b"QUARANTINED", int(end_us), int(left_us), bytes(by)] if by in _CAUSES and left_us > 0:
                raise _quarantined(call.payer, _CAUSES[by], end_us, left_us)
            case _, [b"QUARANTINED", int(end_us), int(left_us), bytes(by), bytes(tally)] if by in _CAUSES:
                raise _quarantined(call.payer, _CAUSES[by], end_us, left_us, tally)
            case _, [b"RESET", int(remembered_from)]:
                detail = (
                    f"The store remembers the uses of identity tokens issued from Unix time {remembered_from} on; "
                    "this one is older. Fetch a fresh identity token."
                )
                raise Undecided(Code.DEPENDENCY_STATE_RESET, detail)
    raise Undecided(Code.DEPENDENCY_STATE) from answer if isinstance(answer, BaseException) else None


# By what an identity is quarantined, in the words of `admit.lua`. Of anything else nothing is shown: it is not ours.
_CAUSES = {
    b"refusals": "Too many refused requests",
    b"operator": "By an operator of this service",
    **{name.encode(): f"What it had signed has raised the signal `{name}`" for name in get_args(Name)},
}


def _quarantined(payer: Payer, cause: str, end_us: int, left_us: int, tally: bytes = b"") -> Quarantined:
    detail = f"{cause}: {_who(payer)} quarantined until {show_time(seconds(end_us))}."
    try:
        begun = read_tally(tally) if tally else NOTHING_COUNTED
    except ValueError:
        raise Undecided(Code.DEPENDENCY_STATE) from None
    return Quarantined(detail, retry_after_s=seconds(left_us), tally=begun)


def _are_of(dues: tuple[Due, ...], ahead_us: list[object]) -> bool:
    """Say whether there is one number for each rate."""
    return len(ahead_us) == len(dues) and all(type(ahead) is int for ahead in ahead_us)


def _rates(dues: tuple[Due, ...], ahead_us: list[int]) -> tuple[RateState, ...]:
    """Name the rates of an identity; who only resembles one has none of its own."""
    if any(due.code is Code.RATE_IDENTITY and due.rate is RESEMBLING_RATE for due in dues):
        return ()
    names = (str(due.code).partition(".")[2] for due in dues)
    return tuple(RateState(name, due.rate, ahead) for name, due, ahead in zip(names, dues, ahead_us, strict=True))


def refuse_rate(due: Due, wait_us: int, rates: tuple[RateState, ...]) -> NoReturn:
    """Refuse by a rate; a batch that never fits gets another message, and no Retry-After."""
    if due.cost > due.rate.burst:
        detail = (
            f"The batch of {due.cost} is larger than the burst of {due.rate.burst} that this rate allows: "
            "send smaller ones."
        )
        raise Limited(due.code, detail, rates=rates)
    raise Limited(due.code, retry_after_s=seconds(wait_us), rates=rates)


def refusals_counted(call: AdmissionRequest, ahead_us: int) -> Counted:
    """Warn from half of the refusals rate on, and of the quarantine that the last one has begun."""
    rate, who, quarantine_s = call.limits.refusals, _who(call.payer), call.limits.quarantine_s
    if ahead_us > rate.tolerance_us:
        return Counted(
            (f"this was one refusal too many: {who} quarantined for {quarantine_s} s",), probing="quarantine"
        )
    used = -(-ahead_us // rate.interval_us)
    if used * 2 < rate.burst:
        return Counted()
    warning = f"{used} of {rate.burst} refusals are used up: beyond them {who} quarantined for {quarantine_s} s"
    return Counted((warning,), probing="warn" if (used - 1) * 2 < rate.burst else None)


def _who(payer: Payer) -> str:
    return "this identity is" if payer.bucket is None else "whoever fails the requirements in the same way is"


def seconds(us: int) -> int:
    """Whole seconds that cover these microseconds."""
    return -(-us // 1_000_000)
