"""What the store holds against identities, for an operator: read, and changed by hand. `admit.lua` writes it, too.

Each change is one script, so that it meets a request either before or after. Knows nothing of policies: who is asked
for is named by its ids.
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
from issuer.service.admission.script import DAY_S, STATE, names_of

Order = Literal["quarantine", "release"]

_SCRIPT = Path(__file__).with_name("order.lua").read_bytes()
_STANDING = re.compile(rb"(\d{1,16}) ([a-z]+|-) (\d{1,16}) \d{1,16} (\d{1,16})")
_COUNT = re.compile(rb"\d{1,16}")
_SIGNALS: tuple[Name, ...] = get_args(Name)
_MARK = 8  # of an owner in `count.lua`
_AT_ONCE = 500
_Failure = (RedisError, OSError, TimeoutError)


class Standing(Struct, frozen=True, omit_defaults=True):
    """What stands against an identity, and what was counted of it today (UTC).

    Ends are Unix seconds, 0 where it is neither; `quarantined_by` is a signal, `refusals` or `operator`. `buckets` are
    those of who only resembles it that are quarantined. `signals` are how often each was raised, `owners` the model
    owners, `keys` how much of the budget of keys is used. `is_broken` where the store holds a standing that is none of
    ours: then its requests are answered 503, until an order writes it anew.
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
    def is_told(self) -> bool:
        """Whether there is anything that an operator would look for."""
        ends = self.quarantined_until or self.throttled_until or self.released_until
        return bool(ends or self.signals or self.is_broken)


class Looked(Struct, frozen=True):
    """The standing of an identity, and how far the arrival times of its own rate and of its refusals are ahead of now
    (limits/rate.py), in microseconds."""

    standing: Standing
    ahead_us: int
    refusals_us: int


class Standings:
    """The standings in one store. Raises SetupError (`state.unreachable`) where it does not answer."""

    def __init__(self, connections: Connections, place: str) -> None:
        self._connections = connections
        self._place = place

    async def read(self, payers: Iterable[Payer]) -> AsyncIterator[Standing]:
        """Yield the standing of each identity, in their order."""
        async for looked in self.look(payers):
            yield looked.standing

    async def look(self, payers: Iterable[Payer]) -> AsyncIterator[Looked]:
        """Yield the standing of each identity and what it has used of its rates, in their order."""
        now_us = await self._now_us()
        rest = iter(payers)
        while some := list(islice(rest, _AT_ONCE)):
            answers = await self._ask([_question(payer) for payer in some])
            for payer, answer in zip(some, answers, strict=True):
                yield _looked(payer, answer, now_us)

    async def ahead(self, integrations: Sequence[str]) -> list[int]:
        """Return how far the arrival time of each integration's rate is ahead of now, in microseconds."""
        now_us = await self._now_us()
        asked = [(b"GET", names_of(Payer(name, "")).integration) for name in integrations]
        parts = [asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE)]
        return [_ahead(each, now_us) for part in parts for each in await self._ask(part)]

    async def show(self, payer: Payer) -> Standing:
        """Return the standing of an identity, with that of who resembles it."""
        (standing,) = [each async for each in self.read((payer,))]
        now_s = await self._now_us() // 1_000_000
        buckets = [Payer(payer.integration, payer.identity, each) for each in range(BUCKETS)]
        held = await self._ask([(b"HGET", names_of(bucket).payer, b"standing") for bucket in buckets])
        found = [_ends(raw) for raw in held]
        return replace(standing, buckets=tuple(number for number, ends in enumerate(found) if ends[0] > now_s))

    async def order(self, payer: Payer, order: Order, for_s: int) -> int:
        """Quarantine or release an identity; return until when, Unix seconds. A release frees who resembles it, too,
        and forgets its refusals."""
        buckets = [Payer(payer.integration, payer.identity, number) for number in range(BUCKETS)]
        keys = [names_of(each).payer for each in (payer, *buckets)]
        (ends,) = await self._ask([(b"EVAL", _SCRIPT, len(keys), *keys, order.encode(), for_s * 1_000_000)])
        if not isinstance(ends, int):
            raise self._unreachable(TypeError())
        return -(-ends // 1_000_000)

    async def _now_us(self) -> int:
        (answer,) = await self._ask([(b"TIME",)])
        seconds, micros = map(int, _list(answer))
        return seconds * 1_000_000 + micros

    async def _ask(self, commands: Sequence[Command]) -> list[object]:
        try:
            async with asyncio.timeout(STORE_START_S):
                answers = await self._connections.exchange(commands)
        except _Failure as failure:
            raise self._unreachable(failure) from failure
        for answer in answers:
            if isinstance(answer, RedisError) and not str(answer).startswith(
                "WRONGTYPE"
            ):  # a foreign key is one broken one
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


def _looked(payer: Payer, answer: object, now_us: int) -> Looked:
    found: list[bytes | None] = answer if isinstance(answer, list) else [b"of a foreign kind", *[None] * 6]
    held, state, refusals, *raised = found
    standing = _standing(payer, held, state, raised, now_us // 1_000_000)
    arrival = 0 if state is None or standing.is_broken else STATE.unpack_from(state)[0]
    return Looked(standing, max(0, arrival - now_us), _ahead(refusals, now_us))


def _ahead(arrival: object, now_us: int) -> int:
    return max(0, _count(arrival) - now_us)


def _standing(
    payer: Payer, held: bytes | None, state: bytes | None, raised: Sequence[bytes | None], now_s: int
) -> Standing:
    quarantined, by, throttled, released = _ends(held)
    is_broken = (held is not None and _read_ends(held) is None) or (state is not None and len(state) < STATE.size)
    _, day, tokens, keys = (0, 0, 0, 0) if state is None or is_broken else STATE.unpack_from(state)
    is_today = day == now_s // DAY_S
    return Standing(
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


def _ends(held: object) -> tuple[int, str, int, int]:
    return _read_ends(held) or (0, "", 0, 0)


def _read_ends(held: object) -> tuple[int, str, int, int] | None:
    """Read a standing as `admit.lua` writes it: until when, in whole seconds, and by what. None for anything else."""
    found = _STANDING.fullmatch(held) if isinstance(held, bytes) else None
    if found is None:
        return None
    quarantined, by, throttled, released = found.groups()
    return _seconds(quarantined), by.decode("ascii"), _seconds(throttled), _seconds(released)


def _count(held: object) -> int:
    return int(held) if isinstance(held, bytes) and _COUNT.fullmatch(held) else 0


def _seconds(microseconds: bytes) -> int:
    return -(-int(microseconds) // 1_000_000)


def _list(answer: object) -> list[bytes]:
    return answer if isinstance(answer, list) else []
