"""The rules against abuse: signs of cheating in the results that one identity has had signed. Pure.

`service/admission/count.lua` counts in the same step that admits a request, and compares the counts with the limits as
`judge` does here; a test runs both. policies/REFERENCE.md defines the counts, policies/README.md explains the limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from issuer.limits.rate import Burst, Positive, Rate, RateSeconds
from issuer.token.verify_token import MAX_ATTEMPTS

# The consequence of a signal, mildest first: the operator is informed; the caller is warned, too; its rate is lowered;
# it is quarantined.
Then = Literal["observe", "warn", "throttle", "quarantine"]
THENS: tuple[Then, ...] = get_args(Then)
Pattern = Annotated[str, Meta(min_length=1, max_length=512)]
Days = Annotated[int, Meta(ge=1, le=90)]
Seconds = Annotated[int, Meta(ge=60, le=2_592_000)]

# The most sets of values that are counted for one run key: one more than the largest limit.
MAX_SETS = MAX_ATTEMPTS
Sets = Annotated[int, Meta(ge=1, le=MAX_SETS - 1)]
# The most model owners that are counted for a day or a CI run: one more than the largest limit.
MAX_OWNERS = 1000
Owners = Annotated[int, Meta(ge=1, le=MAX_OWNERS)]
# The most artifacts of one result that count as its evidence, each by the SHA-256 that it states.
MAX_FILES = 8

# Names that frameworks use for metrics of the machine. These differ in every run, so they are not scores of the model.
# `energy` is absent, because it is a score of models of molecules.
NO_SCORES = (
    "*_per_second", "*_per_sec", "*_seconds", "*_time", "*_time_*", "*_ms", "*_ns", "*duration*", "*latency*",
    "*runtime*", "*throughput*", "*wall_clock*", "*_kwh", "*co2*", "*_tokens", "*_usd", "avg_ts",
)  # fmt: skip


class Attempts(Struct, frozen=True, forbid_unknown_fields=True):
    """Score shopping: more than `distinct` different sets of metric values for one run key in `per_days` days.

    A run key is model repository and commit, benchmark repository and commit, task and framework name. If the benchmark
    has a registered `eval.yaml`, its metrics are counted; else all metrics that no glob of `ignore` matches.
    """

    distinct: Sets = 5
    per_days: Days = 30
    ignore: tuple[Pattern, ...] = NO_SCORES
    then: Then = "warn"


class Artifact(Struct, frozen=True, forbid_unknown_fields=True):
    """Edited numbers: one evidence file for more than `distinct` different sets of values of the same run key, within
    the days of `attempts`."""

    distinct: Sets = 3
    then: Then = "warn"


class Twins(Struct, frozen=True, forbid_unknown_fields=True):
    """Copied numbers: at least `values` metric values, all nontrivial, that equal those of another model repository for
    the same task in `per_days` days. It is only observed, because models that share weights have equal values."""

    values: Annotated[int, Meta(ge=3, le=256)] = 3
    per_days: Days = 7
    then: Literal["observe"] = "observe"


class Spread(Struct, frozen=True, forbid_unknown_fields=True):
    """A stolen or careless identity: more model owners or tokens than these in one day (UTC) or one CI run."""

    owners_a_day: Owners = 19
    owners_a_run: Owners = 19
    tokens_a_day: Positive = 1000
    tokens_a_run: Positive = 1000
    then: Then = "warn"


class Throttle(Rate, frozen=True, forbid_unknown_fields=True):
    """A second rate for a throttled identity, in force for `for_s` seconds after its last signal."""

    count: Positive = 10
    per_s: RateSeconds = 3600
    burst: Burst = 5
    for_s: Seconds = 86_400


class Abuse(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """The abuse rules of one integration. Each registered identity has its own counts.

    `quarantine_s` is the length of a quarantine that a signal begins.
    """

    attempts: Attempts = Attempts()
    artifact: Artifact = Artifact()
    twins: Twins = Twins()
    spread: Spread = Spread()
    throttle: Throttle = Throttle()
    quarantine_s: Seconds = 86_400


Count = Annotated[int, Meta(ge=0)]

# -- counts -----------------------------------------------------------------------------------------------------------


class ItemTally(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The counts of the admission for one result, including this result.

    `number` is how many different sets of metric values were signed for its run key since `since` (Unix seconds), at
    most 64. It is `exact` unless the budget of keys was used up. `is_new` says that this set of values is new. `files`
    is how many of these sets share an evidence file that this set had not named before, or 0 if no other set does.
    `twin` says that the same values were signed for another model repository.
    """

    number: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
    since: Annotated[int, Meta(ge=0)]
    exact: bool = True
    is_new: bool = True
    files: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)] = 0
    twin: bool = False


class Tally(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The counts of the admission for one request: `items` in the order of its results, and the identity's owners and
    tokens of the day and of the CI run. The counts of the run are 0 if the provider names no runs.

    `throttled_until` and `released_until` are Unix seconds, 0 if the identity is not throttled or not released.
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


# -- signals ----------------------------------------------------------------------------------------------------------

Name = Literal["attempts", "artifact", "twins", "spread"]
SPREADS = ("owners_a_day", "owners_a_run", "tokens_a_day", "tokens_a_run")


class Signal(Struct, frozen=True):
    """One crossed rule: the `count`, the `limit`, and the place of the `rule` in the policy.

    `then` is the consequence, at most a warning while an operator has released the identity. `item` is the index of the
    result, or None for the whole request.
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
