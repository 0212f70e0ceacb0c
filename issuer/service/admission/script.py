"""The admission script from outside: its text, keys, arguments as bytes, and what its answers mean. Pure.

`admit.lua` decides, and `count.lua` in front of it counts; contract section 5 says what a use means and who pays.
Here is each thing that both sides must spell alike. What is no answer of the script to that very call is Undecided.
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

# What is kept of an identity in its field `state`, before its owners: the arrival time of its rate (us), the day that
# was counted last, its tokens and new keys.
STATE = struct.Struct(">QIIH")


class Charge(Struct, frozen=True):
    """A rate as the script takes it: what `limits.spend` would add to the arrival time, and tolerate."""

    interval_us: int
    tolerance_us: int

    @classmethod
    def of(cls, rate: Rate, cost: int = 1) -> Charge:
        """Make that of so many requests."""
        return cls(rate.interval_us * cost, rate.tolerance_us)


class Due(Struct, frozen=True):
    """What a call costs of one rate; `code` refuses it where that is too much. `name` is the rate's in an answer, ""
    where it is not the caller's own."""

    code: Code
    rate: Rate
    cost: int = 1
    name: str = ""

    @property
    def charge(self) -> Charge:
        """What the script charges."""
        return Charge.of(self.rate, self.cost)


class Bill(Struct, frozen=True):
    """What a kind of call costs its payer, beside a use: the rates that it must fit, and the refusals that it adds to.

    `own` is the payer's own rate, kept with it, and `shared` one that it shares with others, behind a key of its own.
    `keys` are KEYS of `admit.lua` up to those of the results; `payer` follows them and, where results are counted,
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
    """Make the bill of a kind of call (contract section 5, who pays)."""
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
    """The use that a call claims. `signed_by` stands before the counts and the template that the store keeps."""

    allowed: int
    keep_until: int
    slot: str
    signed_by: str
    usable_kids: str
    issued_at: int | None = None

    @classmethod
    def of(cls, use: Use) -> UseCall:
        """Make it of a use."""
        return cls(
            use.allowed,
            use.keep_until,
            f"d:{use.request_digest}",
            f"{use.template_exp} {use.kid} ",
            f" {' '.join(use.usable_kids)} ",
            use.issued_at,
        )


class CountLimits(Struct, frozen=True):
    """When `count.lua` raises a signal, and what that does, as the index in `abuse.THENS`."""

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
    """What is counted of a call, beside its results: of these the number, and that of their keys. `run` is the field of
    the CI run; `limits` are `CountLimits`."""

    keys: int
    results: int
    limits: Raw
    throttle: Charge
    throttle_us: int
    run: str | None = None

    @classmethod
    def of(cls, call: AdmissionRequest) -> CountCall | None:
        """Make it of a call; None where nothing is counted."""
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
    """A call as `admit.lua` reads it: numbers and text by their names. `now_us` is 0 for the clock of the store;
    `presented` is the number of uses of a token where the call claims none of them."""

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
    """Write a call as `admit.lua` reads it, but its templates and its results."""
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
    """Write the results that a call counts as `count.lua` reads them; empty where it counts none."""
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
    """Name a use record."""
    return b"%buse:%b" % (PREFIX, use.record.encode())


class Names(Struct, frozen=True):
    """The keys of what the store keeps of one payer: registered ids only, and hashed, never a raw claim.

    `payer` is what stands against it, its refusals, and of an identity its rate and what was counted of it today;
    `filter` is what of that went beyond the budget of keys. `resembling` is of all buckets of an identity together.
    """

    payer: bytes
    filter: bytes
    integration: bytes
    resembling: bytes


def names_of(payer: Payer) -> Names:
    """Name what the store keeps of a payer."""
    # A registered id cannot contain NUL, so no two payers share a name.
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
            case _, [b"RESET", int(remembered_from), int(wait_s)]:
                detail = (
                    f"The store remembers the uses of identity tokens issued from Unix time {remembered_from} on; "
                    "this one is older. Fetch a fresh identity token."
                )
                # From then on a fresh one is new enough.
                raise Undecided(Code.DEPENDENCY_STATE_RESET, detail, retry_after_s=max(1, wait_s))
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
    return [int] * len(dues) == list(map(type, ahead_us))


def _rates(dues: tuple[Due, ...], ahead_us: list[int]) -> tuple[RateState, ...]:
    """Name the rates of an identity; who only resembles one has none of its own."""
    both = zip(dues, ahead_us, strict=True)
    return tuple([RateState(due.name, due.rate, ahead) for due, ahead in both if due.name])


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
    spent = used(rate, ahead_us)
    if spent * 2 < rate.burst:
        return Counted()
    warning = f"{spent} of {rate.burst} refusals are used up: beyond them {who} quarantined for {quarantine_s} s"
    return Counted((warning,), probing="warn" if (spent - 1) * 2 < rate.burst else None)


def _who(payer: Payer) -> str:
    return "this identity is" if payer.bucket is None else "whoever fails the requirements in the same way is"


def seconds(us: int) -> int:
    """Whole seconds that cover these microseconds."""
    return -(-us // 1_000_000)
