"""The admission as a worker of 73e2149 has it: the script of `tests/vectors/admission`, and the bytes that it reads.

A host that is not yet upgraded shares the store with one that is.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from issuer.issuance.ports import AdmissionRequest, Admitted, Counted
from issuer.limits.abuse import SPREADS, THENS
from issuer.limits.rate import Rate
from issuer.service.admission.bounds import AGAIN_RATE
from issuer.service.admission.script import DAY_S, Bill, Due, bill_of, keys_of, pack_items, read_answer
from tests.support.shared import ROOT

_SCRIPTS = ROOT / "tests" / "vectors" / "admission"
SCRIPT = b"".join((_SCRIPTS / name).read_bytes() for name in ("count.lua", "admit.lua"))

_HEAD = struct.Struct(">QQIBQQQQBQQBQQBQQH12sQQQBBB").pack
_USE = struct.Struct(">IQQ").pack
_COUNTING = struct.Struct(">IIBBBBBBHHII").pack
_NO_RUN = b"run         "


class OldAdmission:
    """Implements `issuance.ports.Admission` by the old script, with the leeway and the durability of the tests."""

    def __init__(self, url: str, now_us: Callable[[], int]) -> None:
        self._client: Any = Redis.from_url(url)
        self._now_us = now_us
        self._tickets = itertools.count(1)

    async def admit(self, call: AdmissionRequest) -> Admitted | Counted:
        """Call the script, and read its answer as today: answers have not changed."""
        ticket, bill = next(self._tickets), bill_of(call.payer, call.limits, call.cost, call.refused)
        keys = keys_of(call, bill)
        argument = _pack_call(call, bill, ticket, self._now_us())
        counting = _pack_counting(call)
        try:
            async with asyncio.timeout(60):
                answer = await self._client.eval(
                    SCRIPT, len(keys), *keys, argument, call.candidate, call.replaces, counting
                )
        except ResponseError as error:
            answer = error
        return read_answer(call, bill.dues, ticket, answer)

    count = admit

    async def aclose(self) -> None:
        """Disconnect."""
        await self._client.aclose()


def _charge(rate: Rate, cost: int = 1) -> tuple[int, int]:
    return rate.interval_us * cost, rate.tolerance_us


def _charge_of(due: Due | None) -> tuple[int, int]:
    return (0, 0) if due is None else _charge(due.rate, due.cost)


def _pack_call(call: AdmissionRequest, bill: Bill, ticket: int, now_us: int) -> bytes:
    use, presented = call.use, call.presented
    quarantine_us, by_signal_us = call.limits.quarantine_s * 1_000_000, call.abuse.quarantine_s * 1_000_000
    refusals = _charge(call.limits.refusals) if bill.refusals else (0, 0)
    parts = [
        _HEAD(
            ticket, now_us, 30, True, *_charge(AGAIN_RATE), quarantine_us, by_signal_us,
            bill.own is not None, *_charge_of(bill.own), bill.shared is not None, *_charge_of(bill.shared),
            bill.refusals is not None, *refusals, *_counting_of(call),
            use is None and presented is not None, use is not None, use is not None and use.issued_at is not None,
        )
    ]  # fmt: skip
    if use is not None:
        parts.append(_USE(use.allowed, use.issued_at or 0, use.keep_until))
        signed_by = f"{use.template_exp} {use.kid} ".encode()
        kids, slot = f" {' '.join(use.usable_kids)} ".encode(), b"d:" + use.request_digest.encode()
        parts += [bytes((len(signed_by),)), signed_by, len(kids).to_bytes(2, "big"), kids]
        parts += [bytes((len(slot),)), slot]
    elif presented is not None:
        parts.append(presented.allowed.to_bytes(4, "big"))
    return b"".join(parts)


def _counting_of(call: AdmissionRequest) -> tuple[int, bytes, int, int, int]:
    if call.countable is None:
        return 0, _NO_RUN, 0, 0, 0
    items, throttle = call.countable.items, call.abuse.throttle
    keys = len(items) + sum([bool(one.twins) for one in items])
    run = b"run " + call.countable.run if call.countable.run else _NO_RUN
    return keys, run, *_charge(throttle, call.cost), throttle.for_s * 1_000_000


def _pack_counting(call: AdmissionRequest) -> bytes:
    if call.countable is None:
        return b""
    abuse, items = call.abuse, call.countable.items
    attempts, artifact, spread = abuse.attempts, abuse.artifact, abuse.spread
    head = _COUNTING(
        attempts.per_days * DAY_S, abuse.twins.per_days * DAY_S, len(items),
        attempts.distinct, THENS.index(attempts.then), artifact.distinct, THENS.index(artifact.then),
        THENS.index(spread.then), *(getattr(spread, name) for name in SPREADS),
    )  # fmt: skip
    return head + pack_items(call)
