"""What cheating looks like in the results that one identity has signed: rules, counts, signals. Pure.

`service/admission/count.lua` makes the counts, in the step that admits a request, and compares them with the limits as
`judge` does here; a test runs both. policies/REFERENCE.md says what is counted, policies/README.md how the limits were
chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from issuer.formats.strict_json import Text
from issuer.limits.rate import Burst, Positive, Rate, RateSeconds
from issuer.token.verify_token import MAX_ATTEMPTS

# What follows from a signal, the mildest first: told to the operator; also to the caller; a lower rate; no admission.
Then = Literal["observe", "warn", "throttle", "quarantine"]
THENS: tuple[Then, ...] = get_args(Then)
Days = Annotated[int, Meta(ge=1, le=90)]
Seconds = Annotated[int, Meta(ge=60, le=2_592_000)]

# How many sets of values are counted of one run key: one more than the largest limit.
MAX_SETS = MAX_ATTEMPTS
Sets = Annotated[int, Meta(ge=1, le=MAX_SETS - 1)]
# How many model owners are counted a day, or a CI run: one more than the largest limit.
MAX_OWNERS = 1000
Owners = Annotated[int, Meta(ge=1, le=MAX_OWNERS)]
# Artifacts of one result that count as its evidence; each as the SHA-256 that it states.
MAX_FILES = 8

# Metrics that measure the machine and not the model, by the names that frameworks have for them: they differ in every
# run. Not `energy` alone, which is a score of models of molecules.
NO_SCORES = (
    "*_per_second", "*_per_sec", "*_seconds", "*_time", "*_time_*", "*_ms", "*_ns", "*duration*", "*latency*",
    "*runtime*", "*throughput*", "*wall_clock*", "*_kwh", "*co2*", "*_tokens", "*_usd", "avg_ts",
)  # fmt: skip


class Attempts(Struct, frozen=True, forbid_unknown_fields=True):
    """Score shopping: more than `distinct` different sets of metric values for one run key in `per_days` days.

    A run key is model repository and commit, benchmark repository and commit, task and framework name. Counted are the
    metrics that the benchmark defines, where its `eval.yaml` is registered; else all that no glob of `ignore` matches.
    """

    distinct: Sets = 5
    per_days: Days = 30
    ignore: tuple[Text, ...] = NO_SCORES
    then: Then = "warn"


class Artifact(Struct, frozen=True, forbid_unknown_fields=True):
    """Edited numbers: one evidence file under more than `distinct` different sets of values of the same run key, for as
    long as `attempts` are counted."""

    distinct: Sets = 3
    then: Then = "warn"


class Twins(Struct, frozen=True, forbid_unknown_fields=True):
    """Copied numbers: `values` or more metric values, all equal and none of them trivial, of the same task for another
    model repository in `per_days` days. Models that share weights look the same, so it is only observed."""

    values: Annotated[int, Meta(ge=3, le=256)] = 3
    per_days: Days = 7
    then: Literal["observe"] = "observe"


class Spread(Struct, frozen=True, forbid_unknown_fields=True):
    """A stolen or careless identity: more model owners, or more tokens, in one day (UTC) or one CI run than these."""

    owners_a_day: Owners = 19
    owners_a_run: Owners = 19
    tokens_a_day: Positive = 1000
    tokens_a_run: Positive = 1000
    then: Then = "warn"


class Throttle(Rate, frozen=True, forbid_unknown_fields=True):
    """The rate of an identity that is throttled, beside its own, and for how long: `for_s` seconds from the last
    signal on."""

    count: Positive = 10
    per_s: RateSeconds = 3600
    burst: Burst = 5
    for_s: Seconds = 86_400


class Abuse(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """The rules of one integration. What is refused or warned of is counted for one registered identity alone.

    `quarantine_s` is how long a quarantine lasts that a signal has begun.
    """

    attempts: Attempts = Attempts()
    artifact: Artifact = Artifact()
    twins: Twins = Twins()
    spread: Spread = Spread()
    throttle: Throttle = Throttle()
    quarantine_s: Seconds = 86_400


Count = Annotated[int, Meta(ge=0)]

# -- what was counted -------------------------------------------------------------------------------------------------


class ItemTally(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the admission counted for one result, this one included.

    `number` different sets of metric values of its run key were signed since `since` (Unix seconds), 64 for more;
    `exact` unless the budget of keys was used up. `is_new` where this set was not among them before. `files` is how
    many of these sets had an evidence file in common with it, 0 where nothing of that is new. `twin`: the same values
    were signed for another model repository.
    """

    number: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
    since: Annotated[int, Meta(ge=0)]
    exact: bool = True
    is_new: bool = True
    files: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)] = 0
    twin: bool = False


class Tally(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the admission counted for one request: `items` in the order of its results, and its identity's owners and
    tokens of the day, and of the CI run (0 where its provider names none).

    `throttled_until` and `released_until` are Unix seconds, 0 where the identity is neither throttled nor released.
    """

    items: tuple[ItemTally, ...]
    owners_a_day: Count = 0
    owners_a_run: Count = 0
    tokens_a_day: Count = 0
    tokens_a_run: Count = 0
    throttled_until: Count = 0
    released_until: Count = 0


NOTHING_COUNTED = Tally(())
_read_tally = msgspec.msgpack.Decoder(Tally).decode


def read_tally(raw: bytes) -> Tally:
    """Read a tally as the admission writes it. Raises ValueError for anything else."""
    try:
        return _read_tally(raw)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


# -- what it means ----------------------------------------------------------------------------------------------------

Name = Literal["attempts", "artifact", "twins", "spread"]
SPREADS = ("owners_a_day", "owners_a_run", "tokens_a_day", "tokens_a_run")


class Signal(Struct, frozen=True):
    """One rule that was crossed: `count` where `limit` is the most, `rule` its place in the policy. `then` is what
    follows: a warning in place of what is worse, while an operator has released the identity.

    `item` is the index of the result, None where it is about the whole request.
    """

    name: Name
    then: Then
    rule: str
    count: int
    limit: int
    item: int | None = None


def judge(abuse: Abuse, tally: Tally) -> tuple[Signal, ...]:
    """Return the signals of one request, in the order of the policy's rules."""
    signals = (*_of_items(abuse, tally), *_of_spread(abuse.spread, tally))
    return tuple(map(_released, signals)) if tally.released_until else signals


def _released(signal: Signal) -> Signal:
    return replace(signal, then="warn") if signal.then in {"throttle", "quarantine"} else signal


def _of_items(abuse: Abuse, tally: Tally) -> Iterator[Signal]:
    attempts, artifact, twins = abuse.attempts, abuse.artifact, abuse.twins
    for index, item in enumerate(tally.items):
        if item.is_new and item.number > attempts.distinct:
            rule = "abuse.attempts.distinct"
            yield Signal("attempts", attempts.then, rule, item.number, attempts.distinct, index)
        if item.files > artifact.distinct:
            rule = "abuse.artifact.distinct"
            yield Signal("artifact", artifact.then, rule, item.files, artifact.distinct, index)
        if item.twin:
            yield Signal("twins", twins.then, "abuse.twins.values", twins.values, twins.values, index)


def _of_spread(spread: Spread, tally: Tally) -> Iterator[Signal]:
    for name in SPREADS:
        count, limit = getattr(tally, name), getattr(spread, name)
        if count > limit:
            yield Signal("spread", spread.then, f"abuse.spread.{name}", count, limit)
