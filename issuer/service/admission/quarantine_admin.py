"""The operator's view of the standings in the store: read them, quarantine and release identities.

`admit.lua` writes them, too. Each change is one script, so a request comes either before or after it. This file does
not know policies; it names an identity by its ids.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace
from redis.exceptions import RedisError

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.redis_client import Command, Connections, connect, place_of, why_of
from issuer.issuance.steps import BUCKETS, Payer
from issuer.limits.abuse import Name
from issuer.service.admission.bounds import STORE_START_S
from issuer.service.admission.script import DAY_S, STATE, names_of, seconds

Order = Literal["quarantine", "release"]

_SCRIPT = Path(__file__).with_name("order.lua").read_bytes()
_STANDING = re.compile(rb"(\d{1,16}) ([a-z]+|-) (\d{1,16}) \d{1,16} (\d{1,16})")
_COUNT = re.compile(rb"\d{1,16}")
_SIGNALS: tuple[Name, ...] = get_args(Name)
_MARK = 8  # characters of an owner's mark in `count.lua`
_AT_ONCE = 500
_Failure = (RedisError, OSError, TimeoutError)


class QuarantineStatus(Struct, frozen=True, omit_defaults=True):
    """The standing of an identity, and its counts of today (UTC).

    Ends are Unix seconds, 0 for none. `quarantined_by` is a signal, `refusals` or `operator`. `buckets` are the
    quarantined buckets of callers that only resemble the identity. `signals` has the number of times that each was
    raised, `owners` the number of model owners, and `keys` the used part of the budget of keys. `is_broken`: the stored
    standing is malformed, and the identity's requests are answered 503 until an operator quarantines or releases it.
    """

    integration: str
    identity: str
    quarantined_until: int = 0
    quarantined_by: str = ""
    throttled_until: int = 0
    released_until: int = 0
    buckets: tuple[int, ...] = ()
    tokens: int = 0
    owners: int = 0
    keys: int = 0
    signals: dict[str, int] = {}
    is_broken: bool = False

    @property
    def is_notable(self) -> bool:
        """Whether an operator should see this standing."""
        ends = self.quarantined_until or self.throttled_until or self.released_until
        return bool(ends or self.signals or self.is_broken)


class StandingAndRates(Struct, frozen=True):
    """A standing, and how far the arrival times of the rate and of the refusals are ahead of now (limits/rate.py)."""

    standing: QuarantineStatus
    ahead_us: int
    refusals_us: int


class Standings:
    """The standings in one store. Raises SetupError (`state.unreachable`) if it does not answer."""

    def __init__(self, connections: Connections, place: str) -> None:
        self._connections = connections
        self._place = place

    async def read(self, payers: Iterable[Payer]) -> AsyncIterator[QuarantineStatus]:
        """Yield the standing of each identity, in the order of `payers`."""
        async for both in self.look(payers):
            yield both.standing

    async def look(self, payers: Iterable[Payer]) -> AsyncIterator[StandingAndRates]:
        """Yield the standing of each identity and the used part of its rates, in the order of `payers`."""
        now_us = await self._now_us()
        rest = iter(payers)
        while some := list(islice(rest, _AT_ONCE)):
            answers = await self._ask([_question(payer) for payer in some])
            for payer, answer in zip(some, answers, strict=True):
                yield _read_answer(payer, answer, now_us)

    async def ahead(self, integrations: Sequence[str]) -> list[int]:
        """Return how many microseconds the arrival time of each integration's rate is ahead of now."""
        now_us = await self._now_us()
        commands = [(b"GET", names_of(Payer(name, "")).integration) for name in integrations]
        parts = [commands[at : at + _AT_ONCE] for at in range(0, len(commands), _AT_ONCE)]
        return [_ahead(arrival, now_us) for part in parts for arrival in await self._ask(part)]

    async def show(self, payer: Payer) -> QuarantineStatus:
        """Return the standing of an identity, with the quarantined buckets of callers that resemble it."""
        (standing,) = [standing async for standing in self.read((payer,))]
        now_s = await self._now_us() // 1_000_000
        values = await self._ask([(b"HGET", names_of(bucket).payer, b"standing") for bucket in _buckets_of(payer)])
        is_quarantined = [_ends(value)[0] > now_s for value in values]
        return replace(standing, buckets=tuple(number for number in range(BUCKETS) if is_quarantined[number]))

    async def order(self, payer: Payer, order: Order, for_s: int) -> int:
        """Quarantine or release an identity. Return the end in Unix seconds. A release also frees the callers that
        resemble the identity, and clears its refusals."""
        keys = [names_of(one).payer for one in (payer, *_buckets_of(payer))]
        (ends,) = await self._ask([(b"EVAL", _SCRIPT, len(keys), *keys, order.encode(), for_s * 1_000_000)])
        if not isinstance(ends, int):
            raise self._unreachable(TypeError())
        return seconds(ends)

    async def _now_us(self) -> int:
        (answer,) = await self._ask([(b"TIME",)])
        whole, micros = map(int, answer if isinstance(answer, list) else [])
        return whole * 1_000_000 + micros

    async def _ask(self, commands: Sequence[Command]) -> list[object]:
        try:
            async with asyncio.timeout(STORE_START_S):
                answers = await self._connections.exchange(commands)
        except _Failure as failure:
            raise self._unreachable(failure) from failure
        for answer in answers:
            # WRONGTYPE is about one key of another type: only its identity is broken.
            if isinstance(answer, RedisError) and not str(answer).startswith("WRONGTYPE"):
                raise self._unreachable(answer) from answer
        return answers

    def _unreachable(self, failure: BaseException) -> SetupError:
        return SetupError(Code.STATE_UNREACHABLE, f"the store at {self._place} does not work: {why_of(failure)}")


@asynccontextmanager
async def standings_at(url: str) -> AsyncIterator[Standings]:
    """Connect to a store, by the URL of the settings. Raises SetupError."""
    connections = Connections(connect(url, 1))
    try:
        yield Standings(connections, place_of(url))
    finally:
        await connections.disconnect()


def _question(payer: Payer) -> Command:
    signals = (f"signal {name}".encode() for name in _SIGNALS)
    return b"HMGET", names_of(payer).payer, b"standing", b"state", b"refusals", *signals


def _buckets_of(payer: Payer) -> list[Payer]:
    return [Payer(payer.integration, payer.identity, number) for number in range(BUCKETS)]


def _read_answer(payer: Payer, answer: object, now_us: int) -> StandingAndRates:
    values: list[bytes | None] = answer if isinstance(answer, list) else [b"a key of another type", *[None] * 6]
    raw, state, refusals, *raised = values
    now_s = now_us // 1_000_000
    quarantined, by, throttled, released = _ends(raw)
    is_broken = (raw is not None and _read_ends(raw) is None) or (state is not None and len(state) < STATE.size)
    arrival, day, tokens, keys = (0, 0, 0, 0) if state is None or is_broken else STATE.unpack_from(state)
    is_today = day == now_s // DAY_S
    standing = QuarantineStatus(
        integration=payer.integration,
        identity=payer.identity,
        quarantined_until=quarantined if quarantined > now_s else 0,
        quarantined_by=by if quarantined > now_s else "",
        throttled_until=throttled if throttled > now_s else 0,
        released_until=released if released > now_s else 0,
        tokens=tokens if is_today else 0,
        owners=(len(state or b"") - STATE.size) // _MARK if is_today else 0,
        keys=keys if is_today else 0,
        signals={
            name: _count(times) for name, times in zip(_SIGNALS, raised, strict=True) if times is not None and is_today
        },
        is_broken=is_broken,
    )
    return StandingAndRates(standing, max(0, arrival - now_us), _ahead(refusals, now_us))


def _ahead(arrival: object, now_us: int) -> int:
    return max(0, _count(arrival) - now_us)


def _ends(raw: object) -> tuple[int, str, int, int]:
    return _read_ends(raw) or (0, "", 0, 0)


def _read_ends(raw: object) -> tuple[int, str, int, int] | None:
    """Read a standing that `admit.lua` wrote: its ends in whole seconds, and its cause. None for anything else."""
    match = _STANDING.fullmatch(raw) if isinstance(raw, bytes) else None
    if match is None:
        return None
    quarantined, by, throttled, released = match.groups()
    return seconds(int(quarantined)), by.decode("ascii"), seconds(int(throttled)), seconds(int(released))


def _count(raw: object) -> int:
    return int(raw) if isinstance(raw, bytes) and _COUNT.fullmatch(raw) else 0
