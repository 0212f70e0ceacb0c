"""The Python side of the admission script: its text, its keys and arguments as bytes, and its answers. Pure.

`admit.lua` decides, after `count.lua` has counted. Contract section 5 defines uses and payers. This file has every name
that both sides must spell alike. Anything but the script's answer to this very call is Undecided.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from pathlib import Path
from typing import NoReturn, get_args

import msgspec
from msgspec import Raw, Struct

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.formats.times import show_time
from issuer.io.redis_client import PREFIX
from issuer.issuance.ports import AdmissionRequest, Admitted, Counted, Item, Presented, Use
from issuer.issuance.steps import Limited, Payer, Quarantined
from issuer.limits.abuse import NOTHING_COUNTED, SPREADS, THENS, Abuse, Name, read_tally
from issuer.limits.rate import Limits, Rate, RateState, used
from issuer.service.admission.bounds import AGAIN_RATE, RESEMBLING_RATE

SCRIPT = b"".join(Path(__file__).with_name(name).read_bytes() for name in ("count.lua", "admit.lua"))
SCRIPT_SHA = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()  # the name that EVALSHA demands

EPOCH_KEY = PREFIX + b"epoch"
DAY_S = 86_400

# The beginning of an identity's field `state`: the arrival time of its rate (us), the last counted day, and the tokens
# and new keys of that day. The marks of the model owners follow.
STATE = struct.Struct(">QIIH")


class Charge(Struct, frozen=True):
    """A rate for the script: the time that `limits.spend` would add to the arrival time, and its tolerance."""

    interval_us: int
    tolerance_us: int

    @classmethod
    def of(cls, rate: Rate, cost: int = 1) -> Charge:
        """Return the charge of `cost` requests."""
        return cls(rate.interval_us * cost, rate.tolerance_us)


class Due(Struct, frozen=True):
    """The cost of a call under one rate, with the `code` of its refusal. `name` is the rate's name in an answer, or ""
    for a rate that is not the caller's own."""

    code: Code
    rate: Rate
    cost: int = 1
    name: str = ""

    @property
    def charge(self) -> Charge:
        """The charge for the script."""
        return Charge.of(self.rate, self.cost)


class Bill(Struct, frozen=True):
    """The cost of a kind of call for its payer, besides a use: the rates that must permit it, and the refusals.

    `own` is the payer's own rate, which is stored in its state. `shared` is a rate that it shares with others, under a
    separate key. KEYS of `admit.lua` are `keys`, the keys of the results, `payer`, and, if results are counted,
    `filter`.
    """

    own: Due | None
    shared: Due | None
    refusals: Charge | None
    keys: tuple[bytes, ...]
    payer: bytes
    filter: bytes

    @property
    def dues(self) -> tuple[Due, ...]:
        """Return the rates in the order of the script's answers."""
        return tuple([due for due in (self.own, self.shared) if due is not None])


_AGAIN = Charge.of(AGAIN_RATE)


@functools.lru_cache(4096)
def bill_of(payer: Payer, limits: Limits, cost: int, refused: bool) -> Bill:
    """Return the bill of a kind of call (contract section 5)."""
    names = names_of(payer)
    own, shared, key = None, None, names.integration
    if payer.bucket is not None:
        shared, key = Due(Code.RATE_IDENTITY, RESEMBLING_RATE), names.resembling
    elif not refused:
        own = Due(Code.RATE_IDENTITY, limits.identity, cost, "identity")
        shared = Due(Code.RATE_INTEGRATION, limits.integration, cost, "integration")
    return Bill(
        own=own,
        shared=shared,
        refusals=Charge.of(limits.refusals) if refused else None,
        keys=(EPOCH_KEY,) if shared is None else (EPOCH_KEY, key),
        payer=names.payer,
        filter=names.filter,
    )


def keys_of(call: AdmissionRequest, bill: Bill) -> tuple[bytes, ...]:
    """Return KEYS of `admit.lua`, in its order."""
    keys = [*bill.keys]
    if call.countable is None:
        keys.append(bill.payer)
    else:
        for item in call.countable.items:
            keys.append(PREFIX + b"run:" + item.run)
            if item.twins:
                keys.append(PREFIX + b"twins:" + item.twins)
        keys += bill.payer, bill.filter
    spent = call.use or call.presented
    if spent is not None:
        keys.append(record_of(spent))
    return tuple(keys)


_ITEM = struct.Struct(">16s8s8sBB").pack
_encode = msgspec.msgpack.Encoder().encode


class UseCall(Struct, frozen=True, omit_defaults=True):
    """The use that a call claims. The store writes `signed_by` before the counts and the template."""

    allowed: int
    keep_until: int
    slot: str
    signed_by: str
    usable_kids: str
    issued_at: int | None = None

    @classmethod
    def of(cls, use: Use) -> UseCall:
        """Return the script's form of a use."""
        return cls(
            use.allowed,
            use.keep_until,
            f"d:{use.request_digest}",
            f"{use.template_exp} {use.kid} ",
            f" {' '.join(use.usable_kids)} ",
            use.issued_at,
        )


class CountLimits(Struct, frozen=True):
    """The limits whose crossing raises a signal in `count.lua`, each with its effect as an index in `abuse.THENS`."""

    window_s: int
    twins_s: int
    attempts: int
    attempts_then: int
    artifact: int
    artifact_then: int
    spread_then: int
    owners_a_day: int
    owners_a_run: int
    tokens_a_day: int
    tokens_a_run: int


class CountCall(Struct, frozen=True, omit_defaults=True):
    """The counting of a call: the number of its results and of their keys, the encoded `CountLimits`, the throttle, and
    the field of its CI run."""

    keys: int
    results: int
    limits: Raw
    throttle: Charge
    throttle_us: int
    run: str | None = None

    @classmethod
    def of(cls, call: AdmissionRequest) -> CountCall | None:
        """Return the counting of a call, None if it counts nothing."""
        if call.countable is None:
            return None
        items, throttle, run = call.countable.items, call.abuse.throttle, call.countable.run
        return cls(
            len(items) + sum([bool(one.twins) for one in items]),
            len(items),
            _limits_of(call.abuse),
            Charge.of(throttle, call.cost),
            throttle.for_s * 1_000_000,
            f"run {run.decode()}" if run else None,
        )


class Call(Struct, frozen=True, omit_defaults=True):
    """A call for `admit.lua`: numbers and text by name. `now_us` is 0 for the store's clock. `presented` is how many
    uses the presented token has, if the call claims none of them."""

    ticket: int
    now_us: int
    leeway_s: int
    again: Charge
    quarantine_us: int
    signal_quarantine_us: int
    is_durable: bool = False
    own: Charge | None = None
    shared: Charge | None = None
    refusals: Charge | None = None
    presented: int | None = None
    use: UseCall | None = None
    counting: CountCall | None = None


def pack_call(
    call: AdmissionRequest, bill: Bill, ticket: int, now_us: int, leeway_s: int, *, is_durable: bool
) -> bytes:
    """Encode a call for `admit.lua`, without its templates and results."""
    return _encode(
        Call(
            ticket,
            now_us,
            leeway_s,
            _AGAIN,
            call.limits.quarantine_s * 1_000_000,
            call.abuse.quarantine_s * 1_000_000,
            is_durable,
            None if bill.own is None else bill.own.charge,
            None if bill.shared is None else bill.shared.charge,
            bill.refusals,
            call.presented.allowed if call.presented and not call.use else None,
            None if call.use is None else UseCall.of(call.use),
            CountCall.of(call),
        )
    )


def pack_items(call: AdmissionRequest) -> bytes:
    """Encode the counted results of a call for `count.lua`."""
    return b"" if call.countable is None else b"".join([_pack_item(one) for one in call.countable.items])


def _pack_item(item: Item) -> bytes:
    head = _ITEM(item.values, item.repo, item.owner, bool(item.twins), len(item.files))
    return b"".join((head, *item.files))


@functools.lru_cache(4096)
def _limits_of(abuse: Abuse) -> Raw:
    attempts, artifact, spread = abuse.attempts, abuse.artifact, abuse.spread
    limits = CountLimits(
        attempts.per_days * DAY_S,
        abuse.twins.per_days * DAY_S,
        attempts.distinct,
        THENS.index(attempts.then),
        artifact.distinct,
        THENS.index(artifact.then),
        THENS.index(spread.then),
        *(getattr(spread, name) for name in SPREADS),
    )
    return Raw(_encode(limits))


def record_of(use: Use | Presented) -> bytes:
    """Return the key of a use record."""
    return b"%buse:%b" % (PREFIX, use.record.encode())


class Names(Struct, frozen=True):
    """The store's keys of one payer. They are hashes of registered ids, never of a raw claim.

    `payer` has its standing and refusals, and for an identity its rate and the counts of the day. `filter` has the
    counts beyond the budget of keys. All buckets of an identity share `resembling`.
    """

    payer: bytes
    filter: bytes
    integration: bytes
    resembling: bytes


def names_of(payer: Payer) -> Names:
    """Return the store's keys of a payer."""
    # A registered id cannot contain NUL, so two payers never have the same name.
    of_identity = f"{payer.integration}\0{payer.identity}"
    of_payer = of_identity if payer.bucket is None else f"{of_identity}\0{payer.bucket}"
    return Names(
        payer=PREFIX + b"payer:" + _hashed(of_payer),
        filter=PREFIX + b"filter:" + _hashed(of_identity),
        integration=PREFIX + b"integration:" + _hashed(payer.integration),
        resembling=PREFIX + b"resembling:" + _hashed(of_identity),
    )


def _hashed(name: str) -> bytes:
    return hashlib.sha256(name.encode()).hexdigest()[:32].encode()


def read_answer(call: AdmissionRequest, dues: tuple[Due, ...], ticket: int, answer: object) -> Admitted | Counted:
    """Read the script's answer to a call. Raises Refused, and Undecided for anything but such an answer."""
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
                detail = f"The same credential was sent again more than {AGAIN_RATE.burst} times in an hour."
                raise Refused(Code.RATE_IDENTITY, detail, retry_after_s=seconds(wait_us))
            case _, [b"RATE", int(number), int(wait_us), [*ahead_us]] if 1 <= number <= len(dues) and _are_of(
                dues, ahead_us
            ):
                refuse_rate(dues[number - 1], wait_us, _rates(dues, ahead_us))
            case _, [b"THROTTLED", int(wait_us), int(end_us)] if call.countable is not None:
                throttle = call.abuse.throttle
                detail = (
                    f"This identity is throttled to {throttle.count} tokens per {throttle.per_s} s until "
                    f"{show_time(seconds(end_us))}, because its signed results have raised a signal."
                )
                if call.cost > throttle.burst:
                    detail += f" Until then, send batches of at most {throttle.burst} results."
                raise Refused(Code.RATE_IDENTITY, detail, retry_after_s=seconds(wait_us))
            case _, [b"QUARANTINED", int(end_us), int(left_us), bytes(by)] if by in _CAUSES and left_us > 0:
                raise _quarantined(call.payer, _CAUSES[by], end_us, left_us)
            case _, [b"QUARANTINED", int(end_us), int(left_us), bytes(by), bytes(tally)] if by in _CAUSES:
                raise _quarantined(call.payer, _CAUSES[by], end_us, left_us, tally)
            case _, [b"RESET", int(remembered_from), int(wait_s)]:
                detail = (
                    f"The store has the uses of identity tokens issued from Unix time {remembered_from} on, "
                    "and this one is older. Fetch a fresh identity token."
                )
                # After this wait, a fresh token is new enough.
                raise Undecided(Code.DEPENDENCY_STATE_RESET, detail, retry_after_s=max(1, wait_s))
    raise Undecided(Code.DEPENDENCY_STATE) from answer if isinstance(answer, BaseException) else None


# The causes of a quarantine that `admit.lua` writes. An answer with another cause is not the script's.
_CAUSES = {
    b"refusals": "Too many refused requests",
    b"operator": "By an operator of this service",
    **{name.encode(): f"Its signed results have raised the signal `{name}`" for name in get_args(Name)},
}


def _quarantined(payer: Payer, cause: str, end_us: int, left_us: int, tally: bytes = b"") -> Quarantined:
    detail = f"{cause}: {_who(payer)} quarantined until {show_time(seconds(end_us))}."
    try:
        begun = read_tally(tally) if tally else NOTHING_COUNTED
    except ValueError:
        raise Undecided(Code.DEPENDENCY_STATE) from None
    return Quarantined(detail, retry_after_s=seconds(left_us), tally=begun)


def _are_of(dues: tuple[Due, ...], ahead_us: list[object]) -> bool:
    """Return whether there is one number for each rate."""
    return [int] * len(dues) == list(map(type, ahead_us))


def _rates(dues: tuple[Due, ...], ahead_us: list[int]) -> tuple[RateState, ...]:
    """Return the states of an identity's own rates. A caller that only resembles it has none."""
    both = zip(dues, ahead_us, strict=True)
    return tuple([RateState(due.name, due.rate, ahead) for due, ahead in both if due.name])


def refuse_rate(due: Due, wait_us: int, rates: tuple[RateState, ...]) -> NoReturn:
    """Raise Limited. A batch that never fits gets another message and no Retry-After."""
    if due.cost > due.rate.burst:
        most = due.rate.burst
        detail = f"The batch of {due.cost} is larger than the burst of this rate, {most}: send smaller batches."
        raise Limited(due.code, detail, rates=rates)
    raise Limited(due.code, retry_after_s=seconds(wait_us), rates=rates)


def refusals_counted(call: AdmissionRequest, ahead_us: int) -> Counted:
    """Return a warning from half of the refusals rate on, or about the quarantine that this refusal has begun."""
    rate, who, quarantine_s = call.limits.refusals, _who(call.payer), call.limits.quarantine_s
    if ahead_us > rate.tolerance_us:
        warning = f"this refusal was over the limit: {who} quarantined for {quarantine_s} s"
        return Counted((warning,), probing="quarantine")
    spent = used(rate, ahead_us)
    if spent * 2 < rate.burst:
        return Counted()
    warning = f"{spent} of {rate.burst} refusals are used up: after them {who} quarantined for {quarantine_s} s"
    return Counted((warning,), probing="warn" if (spent - 1) * 2 < rate.burst else None)


def _who(payer: Payer) -> str:
    return "this identity is" if payer.bucket is None else "callers that fail the requirements in the same way are"


def seconds(us: int) -> int:
    """Return microseconds as whole seconds, rounded up."""
    return -(-us // 1_000_000)
