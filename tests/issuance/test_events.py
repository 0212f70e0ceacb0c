"""What the audit records of a decision: everything that decided, in a bounded number of bytes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from issuer.audit.events import COUNTED, MAX_EVENT_BYTES, AbuseSignal, Decision, Named, RequestCounts
from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jcs
from issuer.formats.times import show_time
from issuer.issuance.events import issued_event, probing_event, recycled_event, refused_event, signal_events
from issuer.issuance.explain import NO_JTI
from issuer.issuance.judge import judge
from issuer.issuance.ports import Authority, NoLog
from issuer.issuance.steps import Arrival, Issued, Judged, Refusal, Registered, Request, Signals, StoreSecret, Stranger
from issuer.limits.abuse import NOTHING_COUNTED, ItemTally, Signal, Tally
from issuer.policy.match import PolicySet, resolve
from issuer.results.entry import Submission
from issuer.token.wire import IssuedToken
from tests.support.audited import SIGNER
from tests.support.policies import ISSUER_URL, NOW, POLICY, caller, load, submission

LINK = {"version": 1, "worker": "0" * 32, "seq": 2**53, "prev": "0" * 64}


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    return load(tmp_path, inspect_ai=POLICY)


def size(event: Decision) -> int:
    """Return how long the event's line is at the most."""
    return len(msgspec.json.encode(msgspec.structs.replace(event, **LINK))) + 1


def registered(policies: PolicySet, **claims: Any) -> Registered:
    who = caller(policies, **claims)
    arrival = Arrival("0" * 36, "/tokens/batch", "192.0.2.1", NOW)
    return Registered.of(arrival, who, resolve(policies, who), StoreSecret(bytes(32)))


def refused(policies: PolicySet, *runs: Submission, code: Code = Code.POLICY_MODEL, **claims: Any) -> Decision:
    request = Request("batch", runs, "", "")
    return refused_event(Refusal(registered(policies, **claims), Refused(code), request))


def issued(policies: PolicySet, *runs: Submission, **claims: Any) -> Decision:
    authority = Authority(ISSUER_URL, policies, None, None, None, None, NoLog(), SIGNER, None, None, None, None, None)  # type: ignore[arg-type]
    judged = judge(authority, registered(policies, **claims), Request("batch", runs, "", ""), NO_JTI)
    assert isinstance(judged, Judged)
    tokens = tuple(
        IssuedToken("", "", f"{number:022}", "k" * 43, NOW, NOW, run.claims_digest, run.content_digest, "", "",
                    judged.registered.registration.digest, "", ())
        for number, run in enumerate(runs)
    )  # fmt: skip
    return issued_event(judged, Issued(tokens, repeat=False))


def numbered(count: int, metrics: int = 1) -> tuple[Submission, ...]:
    values = {f"accuracy-of-the-part-{number}": 0.5 for number in range(metrics)}
    return tuple(submission(task=f"task-{number // 2}", metrics=values) for number in range(count))


def test_results_that_have_no_room_are_counted_and_digested(policies: PolicySet) -> None:
    runs = numbered(60, metrics=4)
    event = refused(policies, *runs)
    assert size(event) <= MAX_EVENT_BYTES
    assert event.results is UNSET
    assert event.counts == RequestCounts(results=60, metrics=240, subjects=30)
    assert event.results_digest == jcs.digest([[run.claims_digest, run.content_digest] for run in runs])
    assert refused(policies, *runs[:5]).counts is UNSET


def test_every_token_of_the_largest_batch_is_named_whatever_has_no_room(policies: PolicySet) -> None:
    for count, metrics in ((3, 1), (40, 64), (100, 1)):
        runs = numbered(count, metrics)
        event = issued(policies, *runs)
        assert size(event) <= MAX_EVENT_BYTES
        assert event.content_digest == tuple(run.content_digest for run in runs)
        assert event.jti == tuple(f"{number:022}" for number in range(count))
        assert event.claims_digest == (UNSET if count == 100 else tuple(run.claims_digest for run in runs))
        assert (event.results is UNSET) is (count > 3)
        assert event.results is UNSET or len(event.results) == count


# Claims of which a caller chooses the text.
LONG = (
    "repository", "repository_owner", "sha", "run_id", "run_attempt", "workflow_ref", "job_workflow_ref",
    "job_workflow_sha", "repository_visibility", "environment", "ref_type", "head_ref", "base_ref", "actor_id",
)  # fmt: skip


def test_no_caller_makes_an_event_larger_by_what_it_claims(policies: PolicySet) -> None:
    for sign in ("\x01", "\U0001f600", '"'):
        claims: dict[str, Any] = dict.fromkeys(LONG, sign * 512)
        for event in (refused(policies, *numbered(2), **claims), refused(policies, *numbered(100, 3), **claims)):
            assert size(event) <= MAX_EVENT_BYTES
            assert event.caller.claims.get("repository_id") == "7", "the short ones stay"
        request = Request("batch", numbered(100), sign * 512, sign * 512)
        event = refused_event(Refusal(registered(policies, **claims), Refused(Code.POLICY_MODEL), request))
        assert size(event) <= MAX_EVENT_BYTES


def test_results_are_recorded_up_to_the_last_byte_that_has_room(policies: PolicySet) -> None:
    """The place in the chain has 256 bytes beside what is recorded."""
    runs, who = numbered(49), registered(policies)

    def named(chars: int) -> Decision:
        request = Request("batch", runs, ("i " * 256)[:chars], "a")
        return refused_event(Refusal(who, Refused(Code.POLICY_MODEL), request))

    most = 1 + MAX_EVENT_BYTES - 256 - len(msgspec.json.encode(named(1)))
    assert len(msgspec.json.encode(named(most))) == MAX_EVENT_BYTES - 256
    assert [named(chars).results is UNSET for chars in (most, most + 1)] == [False, True]


def test_a_name_of_512_characters_is_recorded_unless_it_may_be_a_credential(policies: PolicySet) -> None:
    for name, recorded in (("a " * 256, True), ("a " * 256 + "a", False), ("hf_" + "a" * 34, False)):
        request = Request("single", numbered(1), name, name)
        event = refused_event(Refusal(registered(policies), Refused(Code.POLICY_MODEL), request))
        assert event.named == (Named(name, name) if recorded else Named("(withheld)", "(withheld)"))


def test_of_too_many_claims_those_stay_that_have_64_characters_or_fewer(policies: PolicySet) -> None:
    claims: dict[str, Any] = {**dict.fromkeys(LONG, "\x01" * 512), "run_id": "1" * 64, "run_attempt": "1" * 65}
    event = refused(policies, *numbered(2), **claims)
    assert event.caller.claims["run_id"] == "1" * 64
    assert not event.caller.claims.keys() & set(LONG) - {"run_id"}


def test_probing_has_the_number_of_refusals_and_a_signal_the_worst_count_of_its_rule(policies: PolicySet) -> None:
    of = registered(policies)
    burst = of.registration.policy.limits.refusals.burst
    assert [probing_event(of, then).count for then in ("warn", "quarantine")] == [-(-burst // 2), burst + 1]
    raised = tuple(Signal("attempts", "warn", "abuse.attempts", count, 5, item) for item, count in enumerate((6, 8, 7)))
    (event,) = signal_events(of, Signals(NOTHING_COUNTED, raised), repeat=False)
    assert (event.count, event.results, event.repeat) == (8, (0, 1, 2), False)


def test_a_warning_says_the_count_the_limit_since_when_and_the_next_step() -> None:
    signals = Signals(
        Tally((ItemTally(6, NOW), ItemTally(9, NOW + 3 * 86_400)), throttled_until=NOW),
        (
            Signal("attempts", "throttle", "abuse.attempts", 9, 5, 1),
            Signal("attempts", "observe", "abuse.attempts", 6, 5, 0),
            Signal("spread", "warn", "abuse.spread.tokens_a_day", 1001, 1000),
        ),
    )
    (spread,), (attempts, again) = signals.warnings(0), signals.warnings(1)
    assert spread == again
    assert spread.startswith("abuse.spread: 1001 tokens were signed today, more than 1000: if this is intended, ask")
    assert attempts.startswith("abuse.attempts: ")
    day, until = show_time(NOW + 3 * 86_400)[:10], show_time(NOW)
    assert (f" {day}" in attempts, f"{day}T" in attempts, "9" in attempts) == (True, False, True), attempts
    assert attempts.endswith(f"; throttled until {until}")


RECORDED = ("ref", "run_id", "job_workflow_ref", "workflow_sha", "repository_owner")


def test_a_stranger_s_claims_are_recorded_up_to_the_last_byte_that_has_room(policies: PolicySet) -> None:
    arrival, owner = Arrival("r", "/tokens", "192.0.2.1", NOW), registered(policies).registration

    def recorded(chars: int) -> AbuseSignal:
        claims = {**dict.fromkeys(RECORDED, "\x01" * 505), "sha": "a" * chars}
        return recycled_event(Stranger(arrival, caller(policies, **claims)), owner, 1)

    sizes = {chars: len(msgspec.json.encode(recorded(chars))) for chars in range(513)}
    whole = [chars for chars in sizes if b'"sha"' in msgspec.json.encode(recorded(chars))]
    assert max(whole) < 512, "then the others go"
    assert sizes[max(whole)] == MAX_EVENT_BYTES - 256


def test_what_is_counted_by_the_minute_is_recorded_without_results(policies: PolicySet) -> None:
    for code in COUNTED:
        event = refused(policies, *numbered(2), code=code)
        assert (event.results, event.counts, event.code) == (UNSET, UNSET, code)
        assert event.integration == "inspect-ai"


def test_where_even_the_short_claims_are_too_many_all_go_and_so_do_names(tmp_path: Path) -> None:
    required = [f"claim_{number:02}" for number in range(60)]
    head, _, rest = POLICY.partition("  - id: main\n")
    identity = '  - {id: main, provider: acme, pins: {sub: "robot"}, require: {%s}}\n'
    rules = ", ".join(f'{name}: {{glob: "*"}}' for name in required)
    claims: dict[str, Any] = {"iss": "https://id.acme.example", "sub": "robot", **dict.fromkeys(required, "\x01" * 64)}
    policies = load(tmp_path, inspect_ai=head + identity % rules + rest[rest.index("grants:") :])
    who = caller(policies, claims)
    arrival = Arrival("0" * 36, "/tokens/batch", "192.0.2.1", NOW)
    of = Registered.of(arrival, who, resolve(policies, who), StoreSecret(bytes(32)))
    for request, named in ((Request("batch", numbered(2), "a", "b"), Named("(withheld)", "(withheld)")), (None, UNSET)):
        event = refused_event(Refusal(of, Refused(Code.POLICY_MODEL), request))
        assert size(event) <= MAX_EVENT_BYTES
        assert (event.caller.claims, event.caller.absent) == ({}, ())
        assert event.named == named
