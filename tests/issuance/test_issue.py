"""The line itself, driven without HTTP: what it does, in which order, and what it leaves undone when a step fails.

Real keys, a real store, a real audit file and a fixed clock; each part says when it is called. The log is ours, because
none is configured yet: it keeps what it is given.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.formats import jose
from issuer.identity.token import LEEWAY_S
from issuer.issuance.body import Request
from issuer.issuance.explain import NO_JTI, explain
from issuer.issuance.identify import check_standing
from issuer.issuance.issue import RECORD_MARGIN_S, issue, use_request
from issuer.issuance.judge import judge
from issuer.issuance.ports import AdmissionRequest, Admitted, Authority, NoLog
from issuer.issuance.refuse import refuse
from issuer.issuance.steps import Arrival, Issued, Judged, Refusal, Registered, Stranger
from issuer.limits import Rate
from issuer.policy.match import PolicySet, resolve
from issuer.results.entry import Submission
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.standing import KnownStanding
from issuer.service.audit import FileAudit
from issuer.service.authn.authenticator import ProviderAuthenticator
from issuer.service.authn.fetch import Fetcher
from issuer.service.authn.keysets import KeySets
from issuer.service.authn.oidc import SignedTokens
from issuer.service.authn.sources import Sources
from issuer.service.bounds import MAX_STANDINGS, STANDING_S
from issuer.service.signing.keyring import KeyringSigner, SigningKey
from issuer.wire import Denied, LogEntry
from tests.support import make
from tests.support.clock import Clock
from tests.support.policies import ISSUER_URL, NOW, POLICY, caller, changed, load, submission

ORIGIN = "log.example/evals"
JTIS = [jose.base64url_encode(bytes([number]) * 16) for number in range(9)]
STRICT = changed(POLICY, "limits:\n", "limits:\n  refusals: {count: 2, per_s: 3600, burst: 2}\n  quarantine_s: 600\n")
SLOW = changed(POLICY, "{count: 600, per_s: 3600, burst: 200}", "{count: 1, per_s: 3600, burst: 1}")


class Steps(list[str]):
    """What was called, in order; a step named in `fails` raises before it does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = ""

    def take(self, step: str, code: Code) -> None:
        if self.fails == step:
            raise Undecided(code)
        self.append(step)


class RecordingAdmission(RedisAdmission):
    steps: Steps

    async def admit(self, call: AdmissionRequest) -> Admitted:
        self.steps.take("admit", Code.DEPENDENCY_STATE)
        return await super().admit(call)

    async def count(self, call: AdmissionRequest) -> None:
        self.steps.take("count", Code.DEPENDENCY_STATE)
        await super().count(call)


class RecordingLog:
    origin: str | None = ORIGIN

    def __init__(self, steps: Steps) -> None:
        self.steps, self.kept = steps, list[bytes]()

    async def append(self, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        self.steps.take("log", Code.DEPENDENCY_LOG)
        self.kept += [each for each in signing_inputs if each not in self.kept]
        return tuple(LogEntry(ORIGIN, self.kept.index(each), "proof") for each in signing_inputs)


class RecordingSigner(KeyringSigner):
    steps: Steps

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        self.steps.take("sign", Code.DEPENDENCY_SIGNER)
        return await super().sign(kid, signing_inputs)


class RecordingAudit(FileAudit):
    steps: Steps

    async def record(self, event: Struct | dict[str, Any]) -> None:
        self.steps.take("audit", Code.DEPENDENCY_AUDIT)
        await super().record(event)


class House:
    """An authority whose parts are real, and what a test needs to send it requests."""

    def __init__(self, folder: Path, store: str, policy: str = POLICY) -> None:
        self.steps = Steps()
        self.now = NOW - 3600  # when the store's memory begins
        policies = load(folder, inspect_ai=policy)
        admission = RecordingAdmission(store, durable_store=True, now_us=lambda: self.now * 10**6)
        signer = RecordingSigner((SigningKey(make.KID, "active", make.KEY),))
        audit = RecordingAudit(folder / "audit.jsonl")
        admission.steps = signer.steps = audit.steps = self.steps
        self.sources = Sources(Rate(count=1, per_s=60, burst=1))
        self.log, self.admission, self.audit, self.path = RecordingLog(self.steps), admission, audit, folder
        authenticator = ProviderAuthenticator(
            policies.providers,
            SignedTokens(KeySets(Fetcher(development=True))),
            {},
            self.sources,
            lambda: self.now * 10**6,
        )
        self.clock = Clock()
        self.authority = Authority(
            ISSUER_URL, policies, authenticator, KnownStanding(self.clock), admission, self.log, signer, audit
        )

    async def start(self) -> None:
        await self.admission.start()
        self.now = NOW

    async def close(self) -> None:
        await self.admission.aclose()
        self.audit.close()

    @property
    def policies(self) -> PolicySet:
        return self.authority.policies

    def registered(self, **claims: Any) -> Registered:
        who = caller(self.policies, **claims)
        who = msgspec.structs.replace(who, use_parts=("use", "x", str(self.path)))
        return Registered(Arrival("a-request", "/tokens", "192.0.2.1", self.now), who, resolve(self.policies, who))

    def registered_as(self, identity: str) -> Registered:
        who = self.registered()
        registration = who.registration
        other = msgspec.structs.replace(registration.identity, id=identity)
        return msgspec.structs.replace(who, registration=msgspec.structs.replace(registration, identity=other))

    async def refused_for(self, *runs: Submission) -> Code:
        with pytest.raises(Refused) as caught:
            await issue(self.authority, self.judge(*runs))
        return caught.value.code

    def judge(self, *runs: Submission, jti: str = JTIS[1], **claims: Any) -> Judged | Refusal:
        kind: Any = "batch" if len(runs) > 1 else "single"
        return judge(self.authority, self.registered(**claims), Request(kind, runs or (submission(),), "", ""), jti)

    def judged(self, *runs: Submission, jti: str = JTIS[1]) -> Judged:
        judged = self.judge(*runs, jti=jti)
        assert isinstance(judged, Judged)
        return judged

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "audit.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
async def house(tmp_path: Path, store: str) -> AsyncIterator[House]:
    made = House(tmp_path, store)
    await made.start()
    yield made
    await made.close()


def texts(issued: Issued) -> list[str]:
    return [token.verify_token for token in issued.tokens]


# -- the order --------------------------------------------------------------------------------------------------------


async def test_admission_comes_before_the_log_the_log_before_the_signature_and_the_audit_before_the_answer(
    house: House,
) -> None:
    issued = await issue(house.authority, house.judged())
    assert house.steps == ["admit", "log", "sign", "audit"]
    (token,) = texts(issued)
    assert [jose.parse_compact(token).signing_input] == house.log.kept
    payload = json.loads(make.payload_by_joserfc(token))
    assert (payload["jti"], payload["log"]) == (JTIS[1], ORIGIN)
    (event,) = house.events()
    assert (event["verdict"], event["jti"]) == ("issued", [JTIS[1]])
    assert "template_policy" not in event, "it is today's"


@pytest.mark.parametrize(
    ("fails", "code", "done"),
    [
        ("admit", Code.DEPENDENCY_STATE, []),
        ("log", Code.DEPENDENCY_LOG, ["admit"]),
        ("sign", Code.DEPENDENCY_SIGNER, ["admit", "log"]),
        ("audit", Code.DEPENDENCY_AUDIT, ["admit", "log", "sign"]),
    ],
)
async def test_a_step_that_fails_is_the_last_one_and_the_retry_gets_the_bytes_of_the_first_time(
    house: House, fails: str, code: Code, done: list[str]
) -> None:
    house.steps.fails = fails
    with pytest.raises(Undecided) as caught:
        await issue(house.authority, house.judged())
    assert caught.value.code is code
    assert house.steps == done
    assert house.events() == []

    house.steps.fails = ""
    logged, house.now = list(house.log.kept), NOW + 60
    issued = await issue(house.authority, house.judged(jti=JTIS[2]))
    assert issued.repeat is (fails != "admit")
    assert issued.tokens[0].jti == (JTIS[1] if issued.repeat else JTIS[2])
    assert logged in ([], house.log.kept), "a retry of what was logged is the same entry"


async def test_a_repeat_is_composed_from_the_template_of_the_first_time(house: House) -> None:
    first = await issue(house.authority, house.judged())
    house.now += 100
    second = await issue(house.authority, house.judged(jti=JTIS[2]))
    assert (first.repeat, second.repeat) == (False, True)
    assert texts(first) == texts(second)
    assert (second.tokens[0].jti, second.tokens[0].issued_at) == (JTIS[1], NOW)
    assert [event["verdict"] for event in house.events()] == ["issued", "repeated"]


async def test_the_record_of_a_use_outlives_the_identity_token_that_it_spends(house: House) -> None:
    judged = house.judged()
    use = use_request(judged, (make.KID,)).use
    assert use is not None
    assert use.keep_until == judged.registered.caller.expires_at + LEEWAY_S + RECORD_MARGIN_S
    assert min(LEEWAY_S, RECORD_MARGIN_S) > 0


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_nothing_but_its_count_and_its_audit_follows_a_refusal(house: House) -> None:
    refusal = house.judge(submission(benchmark="evil/x"))
    assert isinstance(refusal, Refusal)
    with pytest.raises(Denied) as caught:
        await issue(house.authority, refusal)
    assert caught.value.code is Code.POLICY_BENCHMARK
    assert house.steps == ["count", "audit"]
    assert house.log.kept == []
    (event,) = house.events()
    assert (event["verdict"], event["code"], event["failed"]) == ("refused", "policy.benchmark", ["policy.benchmark"])


async def test_a_refusal_that_cannot_be_audited_or_counted_is_not_decided(house: House) -> None:
    for fails, code in (("count", Code.DEPENDENCY_STATE), ("audit", Code.DEPENDENCY_AUDIT)):
        house.steps.fails = fails
        with pytest.raises(Undecided) as caught:
            await issue(house.authority, house.judge(submission(benchmark="evil/x")))
        assert caught.value.code is code
    assert house.events() == []


async def test_a_refusal_by_the_admission_is_audited_and_not_counted_again(house: House) -> None:
    await issue(house.authority, house.judged())
    house.steps.clear()
    with pytest.raises(Refused) as caught:
        await issue(house.authority, house.judged(submission(task="other"), jti=JTIS[2]))
    assert caught.value.code is Code.IDENTITY_REPLAYED
    assert house.steps == ["admit", "audit"]
    assert [event.get("code") for event in house.events()] == [None, "identity.replayed"]


async def test_the_limit_that_a_count_runs_into_is_what_is_answered_and_audited(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:  # the quarantine is of an identity that other tests have, too
        house = House(tmp_path, store_of_its_own, STRICT)
        await house.start()
        codes = []
        for _ in range(4):
            with pytest.raises(Refused) as caught:
                await issue(house.authority, house.judge(submission(benchmark="evil/x")))
            codes.append(str(caught.value.code))
        await house.close()
    assert codes == ["policy.benchmark"] * 3 + ["abuse.quarantined"]
    assert [event["code"] for event in house.events()] == codes


async def test_a_quarantine_that_the_store_told_of_is_known_for_a_moment_without_another_call(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:
        house = House(tmp_path, store_of_its_own, STRICT)
        await house.start()
        for _ in range(3):
            assert await house.refused_for(submission(benchmark="evil/x")) is Code.POLICY_BENCHMARK
            assert check_standing(house.authority, house.registered()) is None, "the store has not said so yet"
        assert await house.refused_for() is Code.ABUSE_QUARANTINED
        house.steps.clear()
        for _ in range(3):
            known = check_standing(house.authority, house.registered())
            assert known is not None
            with pytest.raises(Refused) as caught:
                await issue(house.authority, known)
            assert (caught.value.code, caught.value.retry_after_s) == (Code.ABUSE_QUARANTINED, 600)
            assert "until" in caught.value.detail
        assert house.steps == ["audit"] * 3, "each is audited, and nothing is counted"
        assert "results" not in house.events()[-1], "its body was not read"
        house.clock.s += STANDING_S
        assert check_standing(house.authority, house.registered()) is None, "then the store is asked again"
        assert await house.refused_for() is Code.ABUSE_QUARANTINED
        house.clock.s += STANDING_S - 0.1
        assert check_standing(house.authority, house.registered()) is not None
        await house.close()


async def test_a_quarantine_is_not_known_past_its_end_nor_are_other_refusals(house: House) -> None:
    standing, registered = house.authority.standing, house.registered()
    for code in (Code.RATE_IDENTITY, Code.IDENTITY_REPLAYED, Code.POLICY_MODEL):
        standing.learn(registered, Refused(code, retry_after_s=60))
        assert standing.refusal(registered) is None, code
    standing.learn(registered, Refused(Code.ABUSE_QUARANTINED, retry_after_s=1))
    assert standing.refusal(registered) is not None
    house.clock.s += 1
    assert standing.refusal(registered) is None


async def test_quarantines_are_known_by_identity_and_the_oldest_is_forgotten_first(house: House) -> None:
    standing = house.authority.standing
    many = [house.registered_as(f"other-{number}") for number in range(MAX_STANDINGS + 1)]
    for each in (many[0], *many):  # the first one twice: it takes one place
        standing.learn(each, Refused(Code.ABUSE_QUARANTINED, retry_after_s=60))
    assert [standing.refusal(each) is None for each in many[:2]] == [True, False]
    assert standing.refusal(many[-1]) is not None
    assert standing.refusal(house.registered()) is None


async def test_a_suspended_integration_costs_nothing_beyond_the_look_up(tmp_path: Path, store: str) -> None:
    house = House(tmp_path, store, changed(POLICY, "mode: active", "mode: suspended"))
    await house.start()
    refusal = check_standing(house.authority, house.registered(ref="refs/heads/evil"))
    assert refusal is not None
    with pytest.raises(Denied) as caught:
        await issue(house.authority, refusal)
    told = await explain(house.authority, house.registered(ref="refs/heads/evil"), refusal)
    await house.close()
    assert house.steps == ["audit"] * 2
    assert caught.value.code is Code.INTEGRATION_SUSPENDED
    failed = [check.code for check in caught.value.checks if not check.passed]
    assert failed == ["integration.suspended", "identity.claim_mismatch"]
    assert (told.code, told.checks) == ("integration.suspended", caught.value.checks)
    assert [event["code"] for event in house.events()] == ["integration.suspended"] * 2


async def test_an_active_integration_has_nothing_against_it(house: House) -> None:
    assert check_standing(house.authority, house.registered(ref="refs/heads/evil")) is None
    assert house.steps == []


async def test_strangers_are_audited_until_their_source_was_refused_too_often(house: House) -> None:
    registered = house.registered()
    stranger = Refusal(Stranger(registered.arrival, registered.caller), Refused(Code.INTEGRATION_UNKNOWN))
    assert (await refuse(house.authority, stranger)).code is Code.INTEGRATION_UNKNOWN
    assert house.steps == ["audit"], "no admission call: a stranger has no limits of its own"
    (event,) = house.events()
    assert (event["verdict"], event["code"]) == ("refused", "integration.unknown")
    assert not event.keys() & {"integration", "identity", "policy", "results"}
    while house.sources.refuse("192.0.2.1", NOW * 10**6):
        pass
    assert (await refuse(house.authority, stranger)).code is Code.INTEGRATION_UNKNOWN
    assert len(house.events()) == 1


async def test_an_explanation_stops_before_the_use_the_log_and_the_signature(house: House) -> None:
    granted = await explain(house.authority, house.registered(), house.judge(jti=NO_JTI))
    refused = await explain(house.authority, house.registered(), house.judge(submission(benchmark="evil/x")))
    assert (granted.verdict, refused.verdict, refused.code) == ("granted", "refused", "policy.benchmark")
    assert house.steps == ["count", "audit", "count", "audit"]
    assert not (await issue(house.authority, house.judged())).repeat, "no use was claimed"


async def test_an_explanation_over_its_rate_is_refused_once(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:
        house = House(tmp_path, store_of_its_own, SLOW)
        await house.start()
        await explain(house.authority, house.registered(), house.judge(jti=NO_JTI))
        house.steps.clear()
        with pytest.raises(Refused) as caught:
            await explain(house.authority, house.registered(), house.judge(jti=NO_JTI))
        await house.close()
    assert caught.value.code is Code.RATE_IDENTITY
    assert house.steps == ["count", "audit"], "the rate has counted it"
    assert len(NO_JTI) == len(JTIS[0])


async def test_an_explanation_that_grants_is_not_counted_as_a_refusal(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:
        house = House(tmp_path, store_of_its_own, STRICT)
        await house.start()
        for _ in range(5):
            assert (await explain(house.authority, house.registered(), house.judge(jti=NO_JTI))).verdict == "granted"
        await house.close()


# -- judging ----------------------------------------------------------------------------------------------------------


def test_judging_is_a_function_of_its_arguments(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    signer = KeyringSigner((SigningKey(make.KID, "active", make.KEY),))
    nothing: Any = None  # judging that reached for the store, an identity or the audit would fail here
    authority = Authority(ISSUER_URL, policies, nothing, nothing, nothing, NoLog(), signer, nothing)
    who = caller(policies)
    registered = Registered(Arrival("a", "/tokens", "x", NOW), who, resolve(policies, who))
    one, other = (judge(authority, registered, Request("single", (submission(),), "", ""), JTIS[0]) for _ in range(2))
    assert isinstance(one, Judged)
    assert one == other
    assert (one.draft.terms.iat, one.draft.terms.exp, one.draft.kid) == (NOW, NOW + 3600, make.KID)


@pytest.mark.parametrize(
    ("request_", "code", "pointer"),
    [
        (Request("single", (submission(),), "", "", "n" * 22), Code.NONCE_INVALID, "/nonce"),
        (Request("single", (submission(),), "other", ""), Code.INTEGRATION_UNKNOWN, "/integration"),
        (Request("single", (submission(),), "", "https://other.example"), Code.POLICY_AUDIENCE, "/audience"),
        (
            Request("batch", (submission(), submission("/results/1", metrics={f"m{n:060}": 1.5 for n in range(256)})), "", ""),
            Code.CLAIMS_TOO_LARGE,
            "/results/1/claims",
        ),
    ],
    ids=str,
)  # fmt: skip
async def test_what_is_refused_is_refused_before_anything_is_spent(
    house: House, request_: Request, code: Code, pointer: str
) -> None:
    refusal = judge(house.authority, house.registered(), request_, JTIS[0])
    assert isinstance(refusal, Refusal)
    assert (refusal.error.code, refusal.error.faults[0].pointer) == (code, pointer)
    assert house.steps == []


# -- what is answered -------------------------------------------------------------------------------------------------


async def test_a_batch_is_one_admission_one_append_and_one_event(house: House) -> None:
    runs = [submission(f"/results/{number}", task=f"task-{number}") for number in range(3)]
    issued = await issue(house.authority, house.judged(*runs))
    assert house.steps == ["admit", "log", "sign", "audit"]
    assert len(house.log.kept) == len({token.jti for token in issued.tokens}) == 3
    assert [json.loads(make.payload_by_joserfc(text))["task_id"] for text in texts(issued)] == [
        "task-0",
        "task-1",
        "task-2",
    ]
    assert [token.log for token in issued.tokens] == [LogEntry(ORIGIN, number, "proof") for number in range(3)]


async def test_an_answer_has_a_place_in_the_log_only_where_there_is_a_log(house: House) -> None:
    with_log = msgspec.json.encode((await issue(house.authority, house.judged())).tokens[0])
    assert json.loads(with_log)["log"] == {"origin": ORIGIN, "index": 0, "proof": "proof"}
    house.authority = msgspec.structs.replace(house.authority, log=NoLog())
    without = msgspec.json.encode((await issue(house.authority, house.judged())).tokens[0])
    assert "log" not in json.loads(without)
