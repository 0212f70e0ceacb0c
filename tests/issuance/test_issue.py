"""The line itself, driven without HTTP: its steps in their order, and no step after one that fails.

Real keys, a real store, a real audit file and a fixed clock; each part says when it is called. The log is ours, because
none is configured yet: it keeps what it is given.
"""

import asyncio
import contextlib
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec import UNSET
from msgspec.msgpack import encode as msgpack
from structlog.testing import capture_logs

from issuer.audit.events import MAX_EVENT_BYTES, Decision, Event
from issuer.codes import Code
from issuer.errors import Refused, Undecided
from issuer.formats import jcs, jose
from issuer.formats.times import LEEWAY_S
from issuer.io.common_documents import FolderHome
from issuer.issuance.explain import NO_JTI, explain, read_to_explain
from issuer.issuance.identify import check_standing, refuse, report_recycled
from issuer.issuance.issue import RECORD_MARGIN_S, issue, recall, use_of
from issuer.issuance.judge import judge, read_and_judge, read_in_steps
from issuer.issuance.ports import AdmissionRequest, Admitted, Authority, Counted, NoLog, Presented
from issuer.issuance.steps import (
    BUCKETS,
    Arrival,
    Forged,
    Issued,
    Judged,
    Payer,
    Refusal,
    Registered,
    Request,
    Revoked,
    StoreSecret,
    Stranger,
    finish,
)
from issuer.limits.rate import Rate
from issuer.limits.sources import Sources
from issuer.policy.match import PolicySet, resolve
from issuer.results.entry import Submission
from issuer.service.admission.bounds import MAX_STANDINGS, STANDING_S
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import KnownStanding, RedisAdmission
from issuer.service.admission.script import record_of
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.authenticator import ProviderAuthenticator, RecycledNames, SignedTokens
from issuer.service.authn.keysets import KeySets, ProviderFetcher
from issuer.service.process.fair_queue import FairQueue
from issuer.service.revocation.active_list import LiveRevocations
from issuer.service.revocation.ledger import Act, Ledger
from issuer.service.signing.bounds import PUBLISHED_S
from issuer.service.signing.keyring import FileKey, KeyringSigner, SigningKey
from issuer.token.verify_token import Template
from issuer.token.wire import Attempt, Denied, Explained, LogEntry
from issuer.verify.revocations import RevokedInterval
from tests.support import make
from tests.support.audited import SIGNER
from tests.support.clock import Clock
from tests.support.key_hosts import KeyHost, Seconds
from tests.support.policies import ISSUER_URL, NOW, POLICY, caller, changed, load, submission

ORIGIN = "log.example/evals"
JTIS = [jose.base64url_encode(bytes([number]) * 16) for number in range(9)]
STRICT = changed(POLICY, "limits:\n", "limits:\n  refusals: {count: 2, per_s: 3600, burst: 2}\n  quarantine_s: 600\n")
SLOW = changed(POLICY, "{count: 600, per_s: 3600, burst: 200}", "{count: 1, per_s: 3600, burst: 1}")


class Steps(list[str]):
    """The steps that were called, in order; one named in `fails` raises before it does anything."""

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

    async def count(self, call: AdmissionRequest) -> Counted:
        self.steps.take("count", Code.DEPENDENCY_STATE)
        return await super().count(call)


class RecordingLog(NoLog):
    origin: str | None = ORIGIN

    def __init__(self, steps: Steps) -> None:
        self.steps, self.kept = steps, list[bytes]()

    async def append(self, _template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        self.steps.take("log", Code.DEPENDENCY_LOG)
        self.kept += [each for each in signing_inputs if each not in self.kept]
        return tuple(LogEntry(ORIGIN, self.kept.index(each), "proof") for each in signing_inputs)


class RecordingSigner(KeyringSigner):
    steps: Steps

    async def demand_live(self, kid: str) -> None:
        if self.steps.fails == f"live, after {self.steps}":
            raise Undecided(Code.DEPENDENCY_SIGNER)
        await super().demand_live(kid)

    async def sign(self, kid: str, signing_inputs: tuple[bytes, ...]) -> tuple[bytes, ...]:
        self.steps.take("sign", Code.DEPENDENCY_SIGNER)
        return await super().sign(kid, signing_inputs)


class RecordingAudit(FileAudit):
    steps: Steps

    async def record(self, event: Event) -> None:
        self.steps.take("audit", Code.DEPENDENCY_AUDIT)
        await super().record(event)

    async def refuse(self, refused: Decision) -> None:
        self.steps.take("audit", Code.DEPENDENCY_AUDIT)
        await super().refuse(refused)


class KeptPolicies:
    """The integrations of kept policies, by their digests."""

    def __init__(self) -> None:
        self.by_digest = dict[str, str]()

    async def keep(self, digest: str) -> None:
        self.by_digest.setdefault(digest, "")

    def integration_of(self, digest: str) -> str | None:
        return self.by_digest.get(digest)


# This test fetches no keys, and the system's roots take 40 ms to load.
NO_ROOTS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Rig:
    """An authority whose parts are real, and what a test needs to send it requests."""

    def __init__(self, folder: Path, store: str, policy: str = POLICY) -> None:
        self.steps, self.jti, self.uses = Steps(), str(folder), 1  # of the identity token
        self.now = NOW - 3600  # when the store's memory begins
        policies = load(folder, inspect_ai=policy)
        admission = RecordingAdmission(store, durable_store=True, now_us=lambda: self.now * 10**6)
        signer = RecordingSigner((SigningKey.of(FileKey(make.KEY), "active"),))
        audit = RecordingAudit(folder / "audit.jsonl")
        admission.steps = signer.steps = audit.steps = self.steps
        self.sources = Sources(Rate(count=1, per_s=60, burst=1))
        self.log, self.admission, self.audit, self.path = RecordingLog(self.steps), admission, audit, folder
        authenticator = ProviderAuthenticator(
            policies.providers,
            SignedTokens(KeySets(ProviderFetcher(development=True, ssl_context=NO_ROOTS))),
            {},
            self.sources,
            lambda: self.now * 10**9,
        )
        self.clock, self.secret, self.kept = Clock(), StoreSecret(bytes(32)), KeptPolicies()
        self.ledger = Ledger(FolderHome(folder), ISSUER_URL)
        self.revocations = LiveRevocations(self.ledger, audit, lambda: self.now)
        self.authority = Authority(
            issuer_url=ISSUER_URL,
            policies=policies,
            authenticator=authenticator,
            standing=KnownStanding(self.clock),
            turns=FairQueue(),
            admission=admission,
            log=self.log,
            signer=signer,
            audit=audit,
            secret=self.secret,
            kept=self.kept,
            revocations=self.revocations,
            recycled=RecycledNames(),
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
        provider = msgspec.structs.replace(who.provider, uses=self.uses)
        who = msgspec.structs.replace(who, use_parts=("use", "x", self.jti), provider=provider)
        arrival = Arrival("a-request", "/tokens", "192.0.2.1", self.now)
        return Registered.of(arrival, who, resolve(self.policies, who), self.secret)

    def registered_as(self, identity: str) -> Registered:
        who = self.registered()
        registration = who.registration
        other = msgspec.structs.replace(registration.identity, id=identity)
        return msgspec.structs.replace(who, registration=msgspec.structs.replace(registration, identity=other))

    async def refused_for(self, *runs: Submission) -> Code:
        with pytest.raises(Refused) as caught:
            await issue(self.authority, self.judge(*runs))
        return caught.value.code

    async def explain(self, *runs: Submission) -> Explained:
        return await explain(self.authority, self.registered(), self.judge(*runs, jti=NO_JTI))

    def use_signer(self, *keys: SigningKey) -> None:
        self.authority = msgspec.structs.replace(self.authority, signer=KeyringSigner(keys))

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
def valkey() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
def store(valkey: str) -> str:
    with redis.Redis.from_url(valkey) as client:
        client.flushall()
    return valkey


@contextlib.asynccontextmanager
async def started(folder: Path, store: str, policy: str = POLICY) -> AsyncIterator[Rig]:
    rig = Rig(folder, store, policy)
    await rig.start()
    yield rig
    await rig.close()


@pytest.fixture
async def rig(tmp_path: Path, store: str) -> AsyncIterator[Rig]:
    async with started(tmp_path, store) as rig:
        yield rig


@pytest.fixture
async def strict(tmp_path: Path, store: str) -> AsyncIterator[Rig]:
    """Quarantine an identity at its third refusal."""
    async with started(tmp_path, store, STRICT) as rig:
        yield rig


def texts(issued: Issued) -> list[str]:
    return [token.verify_token for token in issued.tokens]


# -- the order --------------------------------------------------------------------------------------------------------


async def test_the_line_admits_then_logs_then_signs_then_audits(rig: Rig) -> None:
    issued = await issue(rig.authority, rig.judged())
    assert rig.steps == ["admit", "log", "sign", "audit"]
    (token,) = texts(issued)
    assert [jose.parse_compact(token).signing_input] == rig.log.kept
    payload = json.loads(make.payload_by_joserfc(token))
    assert (payload["jti"], payload["log"]) == (JTIS[1], ORIGIN)
    (event,) = rig.events()
    assert (event["verdict"], event["jti"]) == ("issued", [JTIS[1]])
    assert "template_policy" not in event, "it is today's"


async def test_no_step_follows_one_that_fails_and_a_retry_gets_the_first_bytes(rig: Rig) -> None:
    codes = {
        "admit": Code.DEPENDENCY_STATE, "log": Code.DEPENDENCY_LOG, "sign": Code.DEPENDENCY_SIGNER,
        "audit": Code.DEPENDENCY_AUDIT,
    }  # fmt: skip
    for number, (fails, code) in enumerate(codes.items()):
        first, second = JTIS[2 * number : 2 * number + 2]
        rig.jti, rig.steps.fails, rig.now = f"{rig.path}/{fails}", fails, NOW
        rig.steps.clear()
        with pytest.raises(Undecided) as caught:
            await issue(rig.authority, rig.judged(jti=first))
        assert caught.value.code is code
        leaves = [event["leaves"] for event in rig.events() if event["event"] == "logged_not_signed"]
        assert leaves == [[2]] * (number > 2 or fails == "sign")
        assert rig.steps == [*list(codes)[:number], *["audit"] * (fails == "sign")]
        assert len(rig.events()) == number + len(leaves), "of the retries before"

        rig.steps.fails, rig.now = "", NOW + 60
        issued = await issue(rig.authority, rig.judged(jti=second))
        assert issued.repeat is (fails != "admit")
        assert issued.tokens[0].jti == (first if issued.repeat else second)
        assert len(rig.log.kept) == number + 1, "a retry has the same log entry"


@pytest.mark.parametrize("done", [[], ["admit"]])
async def test_a_key_that_does_not_answer_gets_no_leaf(rig: Rig, done: list[str]) -> None:
    """It is asked before a use is spent, and again before the leaf, which may be of another key's template."""
    rig.steps.fails = f"live, after {done}"
    with pytest.raises(Undecided, match=r"dependency\.signer"):
        await issue(rig.authority, rig.judged())
    assert (rig.steps, rig.log.kept, rig.events()) == (done, [], [])


async def test_a_repeat_has_the_first_template_and_its_record_outlives_the_token(rig: Rig) -> None:
    first = await issue(rig.authority, rig.judged())
    rig.now += 100
    second = await issue(rig.authority, rig.judged(jti=JTIS[2]))
    assert (first.repeat, second.repeat) == (False, True)
    assert texts(first) == texts(second)
    assert (second.tokens[0].jti, second.tokens[0].issued_at) == (JTIS[1], NOW)
    assert [event["verdict"] for event in rig.events()] == ["issued", "repeated"]
    judged = rig.judged()
    use = use_of(judged, (make.KID,))
    assert use.keep_until == judged.registered.caller.expires_at + LEEWAY_S + RECORD_MARGIN_S
    assert min(LEEWAY_S, RECORD_MARGIN_S) > 0


# -- refusals ---------------------------------------------------------------------------------------------------------


async def test_only_the_count_and_the_audit_follow_a_refusal_and_both_must_succeed(rig: Rig) -> None:
    for fails, code in (("count", Code.DEPENDENCY_STATE), ("audit", Code.DEPENDENCY_AUDIT)):
        rig.steps.fails = fails
        with pytest.raises(Undecided) as caught:
            await issue(rig.authority, rig.judge(submission(benchmark="evil/x")))
        assert caught.value.code is code
    assert rig.events() == []
    rig.steps.fails = ""
    rig.steps.clear()
    with pytest.raises(Denied) as denied:
        await issue(rig.authority, rig.judge(submission(benchmark="evil/x")))
    assert denied.value.code is Code.POLICY_BENCHMARK
    assert rig.steps == ["count", "audit"]
    assert rig.log.kept == []
    (event,) = rig.events()
    assert (event["verdict"], event["code"], event["failed"]) == ("refused", "policy.benchmark", ["policy.benchmark"])


async def test_a_refusal_by_the_admission_is_audited_and_not_counted_again(rig: Rig) -> None:
    await issue(rig.authority, rig.judged())
    rig.steps.clear()
    with pytest.raises(Refused) as caught:
        await issue(rig.authority, rig.judged(submission(task="other"), jti=JTIS[2]))
    assert caught.value.code is Code.IDENTITY_REPLAYED
    assert rig.steps == ["admit", "audit"]
    assert [event.get("code") for event in rig.events()] == [None, "identity.replayed"]


class SmallKey(FileKey):
    """A key that takes no more than a message that is smaller than any token's."""

    max_message_bytes = 100


def other_key(kind: type[FileKey] = FileKey) -> SigningKey:
    return SigningKey.of(kind(make.STRANGER), "active")


def small_key_after() -> tuple[SigningKey, SigningKey]:
    """A key that takes no token has become active, and the one before it retires."""
    return other_key(SmallKey), SigningKey.of(FileKey(make.KEY), "retiring")


async def test_a_repeat_is_signed_by_its_own_key_alone(rig: Rig) -> None:
    """The active key need not take it, and a forgery is reported before the size."""
    first = await issue(rig.authority, rig.judged())
    rig.use_signer(*small_key_after())
    again = await issue(rig.authority, rig.judged())
    assert (texts(again), again.repeat) == (texts(first), True)
    rig.steps.clear()
    rig.use_signer(other_key(), SigningKey.of(SmallKey(make.KEY), "retiring"))
    assert await rig.refused_for() is Code.CLAIMS_TOO_LARGE
    assert rig.steps == ["admit", "audit"], "refused, and it costs nothing more"
    assert rig.events()[-1]["code"] == "claims.too_large"
    rig.use_signer(*small_key_after())
    rig.authority = msgspec.structs.replace(rig.authority, secret=StoreSecret(bytes([1] * 32)))
    assert await rig.refused_for() is Code.IDENTITY_REPLAYED
    assert rig.events()[-1]["forged"]


async def test_a_new_request_that_the_active_key_does_not_take_claims_no_use(rig: Rig) -> None:
    whole = rig.authority
    rig.use_signer(other_key(SmallKey))
    assert await rig.refused_for() is Code.CLAIMS_TOO_LARGE
    assert rig.steps == ["count", "audit"], "before it is admitted"
    rig.steps.clear()
    rig.use_signer(*small_key_after())
    assert await rig.refused_for() is Code.CLAIMS_TOO_LARGE
    assert rig.steps == ["admit", "count", "audit"], "counted as a refusal of its identity"
    rig.authority = whole
    assert not (await issue(rig.authority, rig.judged())).repeat, "its one use is left"


async def test_a_body_is_judged_in_a_step_of_its_own(rig: Rig) -> None:
    raw = json.dumps({"claims": make.claims()}).encode()
    steps = read_and_judge(rig.authority, rig.registered(), "single", raw, JTIS[1])
    assert sum(1 for _ in steps) == sum(1 for _ in read_in_steps("single", raw)) + 1


async def test_the_limit_that_a_refusal_crosses_is_answered_audited_and_cached(strict: Rig) -> None:
    for _ in range(3):
        assert await strict.refused_for(submission(benchmark="evil/x")) is Code.POLICY_BENCHMARK
        assert check_standing(strict.authority, strict.registered()) is None, "the store has not said so yet"
    assert await strict.refused_for(submission(benchmark="evil/x")) is Code.ABUSE_QUARANTINED
    events = strict.events()
    codes = [event["code"] for event in events if event["event"] == "decision"]
    assert codes == ["policy.benchmark"] * 3 + ["abuse.quarantined"]
    probing = [(event["then"], event["count"], event["limit"]) for event in events if event["event"] == "abuse_signal"]
    assert probing == [("warn", 1, 2), ("quarantine", 3, 2)], "half of the rate, and what begins the quarantine"
    strict.steps.clear()
    for _ in range(3):
        known = check_standing(strict.authority, strict.registered())
        assert known is not None
        with pytest.raises(Refused) as caught:
            await issue(strict.authority, known)
        assert (caught.value.code, caught.value.retry_after_s) == (Code.ABUSE_QUARANTINED, 600)
        assert "until" in caught.value.detail
    assert strict.steps == ["audit"] * 3, "each is audited, and none is counted"
    assert "results" not in strict.events()[-1], "its body was not read"
    strict.clock.s += STANDING_S
    assert check_standing(strict.authority, strict.registered()) is None, "then the store is asked again"
    assert await strict.refused_for() is Code.ABUSE_QUARANTINED
    strict.clock.s += STANDING_S - 0.1
    assert check_standing(strict.authority, strict.registered()) is not None


async def test_the_cache_has_quarantines_until_their_end_and_no_other_refusals(rig: Rig) -> None:
    standing, registered = rig.authority.standing, rig.registered()
    for code in (Code.RATE_IDENTITY, Code.IDENTITY_REPLAYED, Code.POLICY_MODEL):
        standing.learn(registered, Refused(code, retry_after_s=60))
        assert standing.refusal(registered) is None, code
    standing.learn(registered, Refused(Code.ABUSE_QUARANTINED, retry_after_s=1))
    assert standing.refusal(registered) is not None
    rig.clock.s += 1
    assert standing.refusal(registered) is None
    standing.learn(registered, Refused(Code.ABUSE_QUARANTINED, retry_after_s=60))
    for _ in range(int(STANDING_S)):
        refusal = check_standing(rig.authority, registered)
        assert refusal is not None
        await refuse(rig.authority, refusal)
        rig.clock.s += 1
    assert check_standing(rig.authority, registered) is None, "repeated requests do not extend it"


async def test_quarantines_are_cached_by_identity_and_the_oldest_is_dropped_first(rig: Rig) -> None:
    standing = rig.authority.standing
    many = [rig.registered_as(f"other-{number}") for number in range(MAX_STANDINGS + 1)]
    for each in (many[0], *many):  # the first one twice: it takes one place
        standing.learn(each, Refused(Code.ABUSE_QUARANTINED, retry_after_s=60))
    assert [standing.refusal(each) is None for each in many[:2]] == [True, False]
    assert standing.refusal(many[-1]) is not None
    assert standing.refusal(rig.registered()) is None


async def test_a_suspended_integration_costs_nothing_beyond_the_look_up(tmp_path: Path, store: str) -> None:
    async with started(tmp_path, store, changed(POLICY, "mode: active", "mode: suspended")) as rig:
        refusal = check_standing(rig.authority, rig.registered(ref="refs/heads/evil"))
        assert refusal is not None
        with pytest.raises(Denied) as caught:
            await issue(rig.authority, refusal)
        explained = await explain(rig.authority, rig.registered(ref="refs/heads/evil"), refusal)
    assert rig.steps == ["audit"] * 2
    assert caught.value.code is Code.INTEGRATION_SUSPENDED
    failed = [check.code for check in caught.value.checks if not check.passed]
    assert failed == ["integration.suspended", "identity.claim_mismatch"]
    assert (explained.code, explained.checks) == ("integration.suspended", caught.value.checks)
    decision, counted = rig.events()
    assert (decision["code"], counted["codes"]) == ("integration.suspended", {"integration.suspended": 1})


async def test_strangers_are_audited_until_their_source_was_refused_too_often(rig: Rig) -> None:
    registered = rig.registered()
    stranger = Refusal(Stranger(registered.arrival, registered.caller), Refused(Code.INTEGRATION_UNKNOWN))
    assert (await refuse(rig.authority, stranger)).code is Code.INTEGRATION_UNKNOWN
    assert rig.steps == ["audit"], "no admission call: a stranger has no limits"
    (event,) = rig.events()
    assert (event["verdict"], event["code"]) == ("refused", "integration.unknown")
    assert not event.keys() & {"integration", "identity", "policy", "results"}
    while rig.sources.refuse("192.0.2.1", NOW * 10**6):
        pass
    for _ in range(3):
        assert (await refuse(rig.authority, stranger)).code is Code.INTEGRATION_UNKNOWN
    assert [event["code"] for event in rig.events()] == ["integration.unknown", "rate.source"], "the rest is counted"


async def test_an_explanation_stops_before_the_use_the_log_and_the_signature(rig: Rig) -> None:
    granted, refused = await rig.explain(), await rig.explain(submission(benchmark="evil/x"))
    assert (granted.verdict, refused.verdict, refused.code) == ("granted", "refused", "policy.benchmark")
    assert rig.steps == ["count", "audit", "count", "audit"]
    assert not (await issue(rig.authority, rig.judged())).repeat, "no use was claimed"


async def test_an_explanation_over_its_rate_is_refused_once(tmp_path: Path, store: str) -> None:
    async with started(tmp_path, store, SLOW) as rig:
        await rig.explain()
        rig.steps.clear()
        with pytest.raises(Refused) as caught:
            await rig.explain()
    assert caught.value.code is Code.RATE_IDENTITY
    assert rig.steps == ["count", "audit"], "the rate has counted it"
    assert len(NO_JTI) == len(JTIS[0])


@pytest.mark.parametrize(("mode", "verdict"), [("staged", "refused"), ("active", "granted")])
async def test_only_an_explanation_that_refuses_a_run_is_counted_as_a_refusal(
    tmp_path: Path, store: str, mode: str, verdict: str
) -> None:
    """A question about the caller alone never is. From half of the rate on, a refusal warns."""
    async with started(tmp_path, store, changed(STRICT, "mode: active", f"mode: {mode}")) as rig:
        question = finish(read_to_explain(rig.authority, rig.registered(), b" {}\n"))
        for _ in range(5):
            answer = await explain(rig.authority, rig.registered(), question)
            assert (answer.verdict, answer.warnings) == (verdict, ())
        assert rig.steps.count("count") == 5, "each costs a request"
        if mode == "active":
            assert {(await rig.explain()).verdict for _ in range(5)} == {"granted"}
            evil = rig.judge(submission(benchmark="evil/x"))
            refused = [await explain(rig.authority, rig.registered(), evil) for _ in range(3)]
            warnings = [warning.partition(" ")[0] for each in refused for warning in each.warnings]
            assert warnings == ["1", "2", "this"]


# -- who pays ---------------------------------------------------------------------------------------------------------


def test_a_caller_that_fails_a_requirement_pays_from_another_bucket(rig: Rig) -> None:
    assert rig.registered().payer == Payer("inspect-ai", "main")
    branches = [rig.registered(ref=f"refs/heads/{number}").payer for number in range(600)]
    assert {(payer.integration, payer.identity) for payer in branches} == {("inspect-ai", "main")}
    assert {payer.bucket for payer in branches} == set(range(BUCKETS)), "spread over all of them"
    assert BUCKETS == 64
    again = [rig.registered(ref=f"refs/heads/{number}", run_id="other").payer for number in range(600)]
    assert again == branches, "by what fails, and by nothing else"
    rig.secret = StoreSecret(b"another".ljust(32))
    assert [rig.registered(ref=f"refs/heads/{number}").payer for number in range(600)] != branches


async def test_a_caller_of_a_wrong_event_without_a_claim_or_too_late_pays_from_a_bucket(
    rig: Rig, tmp_path: Path
) -> None:
    expired = load(tmp_path, inspect_ai=changed(POLICY, "    names:", '    expires: "2026-11-21"\n    names:'))
    denied = [rig.registered(event_name="pull_request"), rig.registered(runner_environment=None)]
    rig.authority = msgspec.structs.replace(rig.authority, policies=expired)
    for each in (*denied, rig.registered()):
        assert each.payer.bucket is not None
        assert each.denial is not None


async def test_refusals_of_a_caller_that_resembles_an_identity_cost_that_identity_nothing(strict: Rig) -> None:
    codes = []
    for _ in range(62):
        strict.clock.s += 60  # so that no process caches the quarantine
        branch = strict.registered(ref="refs/heads/feature")
        refusal = check_standing(strict.authority, branch)
        assert refusal is not None
        codes.append(str((await refuse(strict.authority, refusal)).code))
    assert codes == ["identity.claim_mismatch"] * 3 + ["abuse.quarantined"] * 59
    assert not (await issue(strict.authority, strict.judged())).repeat


async def test_a_refused_request_pays_from_the_record_of_its_token(rig: Rig) -> None:
    registered = rig.registered()
    presented = Presented(registered.caller.use_record(""), registered.caller.provider.uses)
    assert AdmissionRequest.of(registered, refused=True).presented == presented
    claimed = AdmissionRequest.of(registered, use=use_of(rig.judged(), (make.KID,)))
    assert claimed.presented is None
    reusable = msgspec.structs.replace(registered.caller.provider, profile="pat")
    who = msgspec.structs.replace(registered.caller, provider=reusable)
    for other in (msgspec.structs.replace(registered, caller=who), rig.registered(ref="refs/heads/feature")):
        assert AdmissionRequest.of(other, refused=True).presented is None, "no use of it is counted"


# -- what the store gives back ----------------------------------------------------------------------------------------

DAY_S = 86_400
Change = Callable[[dict[str, Any]], object]


def terms(**members: Any) -> Change:
    return lambda template: template["terms"].update(members)


def header(**members: Any) -> Change:
    return lambda template: template["header"].update(members)


class Written:
    """What the store keeps for the request that a rig judges, and changes of it."""

    def __init__(self, rig: Rig, store: str, *runs: Submission) -> None:
        self.rig, self.store, self.use = rig, store, use_of(rig.judged(*runs), (make.KID,))
        self.record, self.slot = record_of(self.use), f"d:{self.use.request_digest}".encode()
        with redis.Redis.from_url(store) as client:
            kept = client.hget(self.record, self.slot)
        assert isinstance(kept, bytes)
        _, _, rest = kept.split(b" ", 2)
        end = 2 + int.from_bytes(rest[:2], "big")
        self.tally, self.kept = rest[2:end], rest[end:]

    def write(self, kept: bytes, kid: str = make.KID, tally: bytes | None = None) -> None:
        tally = self.tally if tally is None else tally
        head = b"%d %b " % (NOW + 90 * DAY_S, kid.encode()) + len(tally).to_bytes(2, "big")
        with redis.Redis.from_url(self.store) as client:
            client.hset(self.record, self.slot, head + tally + kept)

    def change(self, change: Change) -> bytes:
        template = json.loads(self.kept[32:])
        change(template)
        return jcs.canonical(template)

    def forge(self, change: Change, kid: str = make.KID) -> None:
        """Write a changed template under our own HMAC."""
        self.write(self.rig.secret.seal(self.use.record, self.use.request_digest, self.change(change)), kid)


async def replayed(rig: Rig) -> str:
    """Send the request again; return the fault that the audit event names in the stored template."""
    rig.steps.clear()
    assert await rig.refused_for() is Code.IDENTITY_REPLAYED
    assert rig.steps == ["admit", "audit"], "neither logged nor signed"
    event = rig.events()[-1]
    assert (event["verdict"], event["code"]) == ("refused", "identity.replayed")
    return str(event["forged"])


async def test_what_was_sealed_for_another_place_or_by_another_service_is_not_signed(rig: Rig, store: str) -> None:
    first, second = submission(), submission(task="other")
    await issue(rig.authority, rig.judged(first))
    rig.jti = f"{rig.path}/another"
    await issue(rig.authority, rig.judged(second, jti=JTIS[2]))
    elsewhere = Written(rig, store, second).kept
    rig.jti = str(rig.path)
    written = Written(rig, store)
    use, template = written.use, written.kept[32:]
    other = StoreSecret(b"another service".ljust(32)).seal(use.record, use.request_digest, template)
    moved = rig.secret.seal(use.record, "0" * 64, template), rig.secret.seal("0" * 64, use.request_digest, template)
    for forged in (elsewhere, other, *moved, template, bytes(32) + template, bytes(32), b"x"):
        written.write(forged)
        assert await replayed(rig) == "hmac"


PAST: dict[str, Change] = {
    "another caller": terms(caller={"provider": "github-actions"}), "another log": terms(log="old.example/log"),
    "no log": lambda template: template["terms"].pop("log"), "past its exp": terms(exp=NOW), "a key that is gone": header(kid="x"),
}  # fmt: skip
BEYOND: dict[str, tuple[str, Change]] = {
    "alg": ("alg", header(alg="Ed25519")), "typ": ("typ", header(typ="JWT")), "crit": ("form", header(crit=["x"])),
    "ver": ("form", terms(ver=2)), "iss": ("iss", terms(iss="https://evil.example")),
    "sub": ("sub", terms(sub="lm-eval")), "aud": ("aud", terms(aud="https://evil.example")),
    "late iat": ("iat", terms(iat=NOW + 61, nbf=NOW + 61)), "early iat": ("iat", terms(iat=NOW - 71, nbf=NOW - 71)),
    "no life": ("exp", terms(iat=NOW + 30, nbf=NOW + 30, exp=NOW + 30)), "nbf": ("nbf", terms(nbf=NOW + 1)), "exp": ("exp", terms(exp=NOW + DAY_S + 1)), "jti": ("jti", terms(jti="x")),
    "no policy": ("policy", terms(policy="sha256:" + "0" * 64)),
    "a policy of another": ("policy", terms(policy="sha256:" + "1" * 64)),
    "attempt": ("form", terms(attempt=1)), "a run claim": ("form", terms(model_repo="evil/model")),
    "another member": ("form", lambda template: template.update(more={})),
    "a missing member": ("form", lambda template: template["terms"].pop("jti")),
}  # fmt: skip


async def test_no_changed_template_is_signed_even_under_our_own_hmac(rig: Rig, store: str) -> None:
    await issue(rig.authority, rig.judged())
    rig.kept.by_digest["sha256:" + "1" * 64] = "another-integration"
    written = Written(rig, store)
    for name, change in {**PAST, **{name: change for name, (_, change) in BEYOND.items()}}.items():
        written.write(written.kept[:32] + written.change(change))
        assert await replayed(rig) == "hmac", name
    for name, (what, change) in BEYOND.items():
        written.forge(change)
        assert await replayed(rig) == what, name
    spaced = written.kept[32:].replace(b',"terms"', b', "terms"')
    written.write(rig.secret.seal(written.use.record, written.use.request_digest, spaced))
    assert await replayed(rig) == "form", "not canonical"


def test_the_template_of_a_nonce_may_be_a_day_old(rig: Rig) -> None:
    judged = rig.judged()
    use = msgspec.structs.replace(use_of(judged, (make.KID,)), issued_at=None)

    def recalled(**members: int) -> Template | None:
        template = Template.of(make.KID, msgspec.structs.replace(judged.draft.terms, **members))
        sealed = rig.secret.seal(use.record, use.request_digest, template.to_bytes())
        return recall(rig.authority, judged, use, sealed)

    oldest = NOW - DAY_S
    assert recalled(iat=oldest + 1, nbf=oldest + 1, exp=NOW + 1) is not None
    assert recalled(iat=oldest, nbf=oldest, exp=NOW) is None, "past"
    with pytest.raises(Forged) as caught:
        recalled(iat=oldest - 1, nbf=oldest - 1, exp=NOW + 1)
    assert (caught.value.what, caught.value.code) == ("iat", Code.NONCE_REUSED)


GOOD: dict[str, Change] = {
    "the latest iat": terms(iat=NOW + 60, nbf=NOW + 60), "the earliest iat": terms(iat=NOW - 70, nbf=NOW - 70),
    "the latest exp": terms(exp=NOW + DAY_S), "an earlier policy": terms(policy="sha256:" + "2" * 64),
}  # fmt: skip


async def test_what_another_host_may_have_drafted_is_given_again(rig: Rig, store: str) -> None:
    await issue(rig.authority, rig.judged())
    rig.kept.by_digest["sha256:" + "2" * 64] = "inspect-ai"
    written = Written(rig, store)
    for name, change in GOOD.items():
        written.forge(change)
        again = await issue(rig.authority, rig.judged(jti=JTIS[2]))
        assert again.repeat, name
        payload = json.loads(make.payload_by_joserfc(again.tokens[0].verify_token))
        assert payload.items() >= json.loads(written.change(change))["terms"].items(), name


async def test_a_template_that_is_past_is_replaced_at_the_cost_of_one_use(rig: Rig, store: str) -> None:
    rig.uses = 2
    for name, past in PAST.items():
        rig.jti = f"{rig.path}/{name}"
        await issue(rig.authority, rig.judged())
        Written(rig, store).forge(past)
        rig.steps.clear()
        second = await issue(rig.authority, rig.judged(jti=JTIS[2]))
        assert (second.repeat, second.tokens[0].jti) == (False, JTIS[2]), name
        assert rig.steps == ["admit", "admit", "log", "sign", "audit"], name
        third = await issue(rig.authority, rig.judged(jti=JTIS[3]))
        assert (third.repeat, texts(third)) == (True, texts(second)), name
        Written(rig, store).forge(past)
        for run in (submission(task="other"), submission()):
            assert await rig.refused_for(run) is Code.IDENTITY_REPLAYED
            assert "forged" not in rig.events()[-1], "no use is left"


async def test_a_template_that_names_a_future_key_is_signed_once_that_key_is_published(
    rig: Rig, store: str, tmp_path: Path
) -> None:
    """An attacker with our secret cannot have a key sign that a relying party may not have yet."""
    host = KeyHost(tmp_path / "host", Seconds()).has("active", "next").start()
    active, coming = (path.stem for path in host.paths)
    rig.authority = msgspec.structs.replace(rig.authority, signer=host.signer)
    rig.uses = 3

    async def forge(slot: str) -> Issued:
        Written(rig, store).forge(header(kid=coming), slot)
        return await issue(rig.authority, rig.judged(jti=JTIS[2]))

    await issue(rig.authority, rig.judged())
    for slot in (coming, active):
        replaced = await forge(slot)
        assert (replaced.repeat, replaced.tokens[0].kid) == (False, active)
    host.write("published", host.paths[1])
    host.clock.now += PUBLISHED_S
    await host.turn()
    given_again = await forge(coming)
    assert (given_again.repeat, given_again.tokens[0].kid) == (True, coming)
    await host.stop()


async def test_of_concurrent_retries_one_replaces_a_past_template_and_all_get_its_bytes(rig: Rig, store: str) -> None:
    rig.uses = 9
    await issue(rig.authority, rig.judged())
    rig.authority = msgspec.structs.replace(rig.authority, log=NoLog())  # the log was switched off
    issued = await asyncio.gather(*(issue(rig.authority, rig.judged(jti=jti)) for jti in JTIS[2:]))
    assert len({tuple(texts(each)) for each in issued}) == 1
    assert sum(not each.repeat for each in issued) == 1


async def test_two_hosts_that_replace_each_other_s_template_decide_nothing(rig: Rig, store: str) -> None:
    rig.uses = 9
    await issue(rig.authority, rig.judged())
    written, past = Written(rig, store), iter(PAST.values())

    class OtherHost(Steps):
        """Has the store keep one more template before each step of this host."""

        def take(self, step: str, code: Code) -> None:
            written.forge(next(past))
            super().take(step, code)

    rig.admission.steps = OtherHost()
    rig.steps.clear()
    with pytest.raises(Undecided) as caught:
        await issue(rig.authority, rig.judged(jti=JTIS[2]))
    assert caught.value.code is Code.DEPENDENCY_STATE
    assert (rig.admission.steps, rig.steps) == (["admit", "admit"], []), "neither logged, signed nor audited"


async def test_while_the_secret_changes_both_are_accepted_and_the_new_one_seals(rig: Rig, store: str) -> None:
    first = await issue(rig.authority, rig.judged())
    new, old = b"new".ljust(32), bytes(32)
    rig.authority = msgspec.structs.replace(rig.authority, secret=StoreSecret(new, old))
    again = await issue(rig.authority, rig.judged(jti=JTIS[2]))
    assert (again.repeat, texts(again)) == (True, texts(first))
    rig.jti = "a later identity token"
    later = await issue(rig.authority, rig.judged())
    rig.authority = msgspec.structs.replace(rig.authority, secret=StoreSecret(new))
    assert texts(await issue(rig.authority, rig.judged())) == texts(later)
    rig.jti = str(rig.path)
    assert await replayed(rig) == "hmac"


# -- what was revoked -------------------------------------------------------------------------------------------------


async def revoked(rig: Rig, *jtis: str, **interval: int) -> None:
    """Revoke tokens, or an interval of the one integration, and have it in force."""
    intervals = (RevokedInterval("inspect-ai", **interval),) if interval else ()
    rig.ledger.add(Act(rig.now, "an operator", "a secret reason", jtis, intervals))
    await rig.revocations.turn(False)
    rig.steps.clear()


async def test_a_retry_of_a_revoked_token_is_refused_before_the_log_and_the_signature(rig: Rig) -> None:
    first = await issue(rig.authority, rig.judged())
    await revoked(rig, first.tokens[0].jti)
    with pytest.raises(Revoked) as refused:
        await issue(rig.authority, rig.judged(jti=JTIS[2]))
    assert (refused.value.code, refused.value.code.meaning.status) == (Code.TOKEN_REVOKED, 409)
    assert "secret" not in str(refused.value)
    assert rig.steps == ["admit", "audit"], "neither signed nor counted"
    event = rig.events()[-1]
    assert (event["verdict"], event["code"], event["jti"]) == ("refused", "token.revoked", [JTIS[1]])
    rig.jti = f"{rig.path}/another"
    assert not (await issue(rig.authority, rig.judged(jti=JTIS[2]))).repeat, "a new request"
    rig.now = NOW + 60
    await revoked(rig, from_=NOW - 5, until=NOW)
    assert await rig.refused_for() is Code.TOKEN_REVOKED, "of the interval"
    rig.jti = f"{rig.path}/a third"
    assert not (await issue(rig.authority, rig.judged(jti=JTIS[3]))).repeat


async def test_one_revoked_token_of_a_batch_refuses_its_retry_and_is_named(rig: Rig) -> None:
    runs = [submission(f"/results/{number}", task=f"task-{number}") for number in range(3)]
    issued = await issue(rig.authority, rig.judged(*runs))
    await revoked(rig, JTIS[1])
    assert texts(await issue(rig.authority, rig.judged(*runs))) == texts(issued), "no token has the batch's own jti"
    await revoked(rig, issued.tokens[2].jti)
    with pytest.raises(Revoked) as refused:
        await issue(rig.authority, rig.judged(*runs))
    assert [fault.pointer for fault in refused.value.faults] == ["/results/2"]
    assert rig.events()[-1]["jti"] == [issued.tokens[2].jti]


async def test_requests_of_an_integration_revoked_for_now_are_refused_at_no_cost(rig: Rig) -> None:
    judged = rig.judged()
    await revoked(rig, from_=NOW + 1)
    assert check_standing(rig.authority, rig.registered()) is None
    rig.now = NOW + 1
    standing = check_standing(rig.authority, rig.registered())
    assert standing is not None
    assert (standing.error.code, standing.settled, standing.request) == (Code.TOKEN_REVOKED, True, None)
    for _ in range(100):  # more than its rate of refusals
        with pytest.raises(Revoked):
            await issue(rig.authority, rig.judged())
    assert set(rig.steps) == {"audit"}, "never counted"
    rig.now = NOW
    await issue(rig.authority, judged)
    rig.jti = "another"
    judged = rig.judged(jti=JTIS[2])
    await revoked(rig, from_=0)
    with pytest.raises(Revoked):
        await issue(rig.authority, judged)
    assert rig.steps == ["audit"], "a revocation that came with the body: no use is claimed"


async def report(rig: Rig, request: str, **claims: Any) -> None:
    stranger = Stranger(Arrival(request, "/tokens", "192.0.2.1", NOW), caller(rig.policies, **claims))
    await report_recycled(rig.authority, stranger)


async def test_an_unknown_caller_with_a_registered_name_is_reported_once(rig: Rig) -> None:
    await report(rig, "r", repository_id="8", repository="other/evals")
    await report(rig, "r")
    with capture_logs() as lines:
        for name in ("r1", "r2"):
            await report(rig, name, repository_id="8", repository="Org/Evals")
    (event,) = rig.events()
    assert {name: event[name] for name in ("event", "signal", "then", "request_id", "integration", "identity")} == {
        "event": "abuse_signal", "signal": "recycled", "then": "observe", "request_id": "r1",
        "integration": "inspect-ai", "identity": "main",
    }  # fmt: skip
    assert (event["rule"], event["count"], event["limit"]) == ("identities.main.names.repository", 1, 0)
    assert event["caller"]["provider"] == "github-actions"
    assert event["caller"]["claims"].items() >= {"repository_id": "8", "repository": "Org/Evals"}.items()
    assert not {"actor", "sub"} & event["caller"]["claims"].keys()
    (line,) = lines
    assert (line["event"], line["signal"], line["provider"]) == ("abuse signal", "recycled", "github-actions")
    assert line["caller"] == event["caller"]["claims"]


async def test_no_caller_makes_a_signal_larger_than_an_event(rig: Rig) -> None:
    long = dict.fromkeys(("ref", "sha", "run_id", "job_workflow_ref", "workflow_sha", "workflow_ref"), "\x01" * 512)
    await report(rig, "r", repository_id="8", repository_owner_id="\x01" * 512, **long)
    (line,) = (rig.path / "audit.jsonl").read_bytes().splitlines()
    assert len(line) < MAX_EVENT_BYTES
    assert json.loads(line)["caller"]["claims"]["repository_id"] == "8"


# -- judging ----------------------------------------------------------------------------------------------------------


def test_judging_is_a_function_of_its_arguments(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    # Judging that reached for the store, an identity or the audit would fail here.
    authority = Authority(ISSUER_URL, policies, None, None, None, None, NoLog(), SIGNER, None, None, None, None, None)  # type: ignore[arg-type]
    who = caller(policies)
    registered = Registered.of(Arrival("a", "/tokens", "x", NOW), who, resolve(policies, who), StoreSecret(bytes(32)))
    one, other = (judge(authority, registered, Request("single", (submission(),), "", ""), JTIS[0]) for _ in range(2))
    assert isinstance(one, Judged)
    assert one == other
    assert (one.draft.terms.iat, one.draft.terms.exp, one.draft.kid) == (NOW, NOW + 3600, make.KID)


async def test_what_is_refused_is_refused_before_anything_is_spent(rig: Rig) -> None:
    large = submission("/results/1", metrics={f"m{n:060}": 1.5 for n in range(256)})
    for request, code, pointer in (
        (Request("single", (submission(),), "", "", "n" * 22), Code.NONCE_INVALID, "/nonce"),
        (Request("single", (submission(),), "other", ""), Code.INTEGRATION_UNKNOWN, "/integration"),
        (Request("single", (submission(),), "", "https://other.example"), Code.POLICY_AUDIENCE, "/audience"),
        (Request("batch", (submission(), large), "", ""), Code.CLAIMS_TOO_LARGE, "/results/1/claims"),
    ):
        refusal = judge(rig.authority, rig.registered(), request, JTIS[0])
        assert isinstance(refusal, Refusal)
        assert (refusal.error.code, refusal.error.faults[0].pointer) == (code, pointer)
    assert rig.steps == []


# -- what is answered -------------------------------------------------------------------------------------------------


async def test_a_batch_is_one_admission_and_has_places_in_the_log_if_there_is_one(rig: Rig) -> None:
    runs = [submission(f"/results/{number}", task=f"task-{number}") for number in range(3)]
    issued = await issue(rig.authority, rig.judged(*runs))
    assert rig.steps == ["admit", "log", "sign", "audit"]
    assert len(rig.log.kept) == len({token.jti for token in issued.tokens}) == 3
    tasks = [json.loads(make.payload_by_joserfc(text))["task_id"] for text in texts(issued)]
    assert tasks == ["task-0", "task-1", "task-2"]
    assert [token.log for token in issued.tokens] == [LogEntry(ORIGIN, number, "proof") for number in range(3)]
    rig.jti = "another with a log"
    with_log = await issue(rig.authority, rig.judged())
    assert msgspec.to_builtins(with_log.tokens[0])["log"] == {"origin": ORIGIN, "index": 3, "proof": "proof"}
    rig.authority, rig.jti = msgspec.structs.replace(rig.authority, log=NoLog()), "another without"
    assert "log" not in msgspec.to_builtins((await issue(rig.authority, rig.judged())).tokens[0])


async def test_every_forgery_is_audited_however_many_there_are(rig: Rig) -> None:
    refusal = Refusal(rig.registered(), Forged(Code.IDENTITY_REPLAYED, "seal"), settled=True)
    for _ in range(100):
        await refuse(rig.authority, refusal)
    assert [event.get("forged") for event in rig.events()] == ["seal"] * 100


# -- what was counted ---------------------------------------------------------------------------------------------------


def attempts(issued: Issued) -> list[Any]:
    return [json.loads(jose.parse_compact(text).unverified_payload).get("attempt") for text in texts(issued)]


async def sign(rig: Rig, *runs: Submission) -> Issued:
    """Have runs signed for a fresh identity token of the same identity."""
    rig.jti = f"{rig.path}/{next(_SIGNED)}"
    return await issue(rig.authority, rig.judged(*runs))


_SIGNED = itertools.count()


def scored(value: float) -> Submission:
    return submission(metrics={"accuracy": value})


async def test_a_token_says_its_attempt_and_a_retry_the_same_one(rig: Rig) -> None:
    since = NOW - 3600
    first = await sign(rig, scored(0.1234), scored(0.2345))
    assert attempts(first) == [{"number": 1, "since": since}, {"number": 2, "since": since}]
    again = await issue(rig.authority, rig.judged(scored(0.1234), scored(0.2345)))
    assert (again.repeat, texts(again)) == (True, texts(first))
    assert attempts(await sign(rig, scored(0.1234))) == [{"number": 2, "since": since}], "an equal result"
    assert attempts(await sign(rig, scored(0.3456))) == [{"number": 3, "since": since}]


async def test_many_attempts_are_warned_of_and_audited_before_the_decision(rig: Rig) -> None:
    signed = [await sign(rig, scored(number / 64)) for number in range(1, 7)]
    assert [len(each.tokens[0].warnings) for each in signed] == [0, 0, 0, 0, 0, 1]
    (warning,) = signed[-1].tokens[0].warnings
    assert warning.startswith("abuse.attempts: 6 different sets of metric values were signed for this model commit")
    signal, decision = rig.events()[-2:]
    assert (signal["event"], signal["signal"], signal["then"]) == ("abuse_signal", "attempts", "warn")
    assert (signal["count"], signal["limit"], signal["results"], signal["repeat"]) == (6, 5, [0], False)
    assert (decision["verdict"], decision["counted"][0][0][0]) == ("issued", 6)
    again = await issue(rig.authority, rig.judged(scored(6 / 64)))
    assert again.tokens[0].warnings == (warning,), "a retry has the same warning"
    assert rig.events()[-2]["repeat"]
    assert len((await rig.explain(scored(7 / 64))).warnings) == 1


async def test_what_begins_a_quarantine_is_audited_and_not_signed(tmp_path: Path, store: str) -> None:
    strict = changed(POLICY, "limits:\n", "abuse:\n  attempts: {distinct: 1, then: quarantine}\nlimits:\n")
    async with started(tmp_path, store, strict) as rig:
        await sign(rig, scored(0.5))
        explained = await rig.explain(scored(0.25))
        assert (explained.verdict, explained.code) == ("refused", "abuse.quarantined")
        with pytest.raises(Refused) as refused:
            await sign(rig, scored(0.25))
    assert refused.value.code is Code.ABUSE_QUARANTINED
    signal, decision = rig.events()[-2:]
    assert (signal["signal"], signal["then"], signal["count"]) == ("attempts", "quarantine", 2)
    assert not signal["repeat"]
    assert (decision["verdict"], decision["code"], decision["counted"][0][0][0]) == ("refused", "abuse.quarantined", 2)


async def test_counts_that_this_service_never_made_are_a_forgery(rig: Rig, store: str) -> None:
    await issue(rig.authority, rig.judged())
    written = Written(rig, store)
    for tally in (
        b"", b"x", msgpack([]), msgpack([[]]), msgpack([[[0, 1]]]), msgpack([[[65, 1]]]), msgpack([[[1, NOW + 61]]]),
        msgpack([[[1, 1], [1, 1]]]), msgpack([[[1, 1, True, True, 0, False, 7]]]), msgpack([[["1", 1]]]),
    ):  # fmt: skip
        written.write(written.kept, tally=tally)
        assert await replayed(rig) == "counts", tally
    rig.jti, runs = JTIS[5], (scored(0.25), scored(0.5))
    await issue(rig.authority, rig.judged(*runs))
    written = Written(rig, store, *runs)
    written.write(written.kept, tally=msgpack([[[1, NOW], [1, NOW + 61]]]))
    assert await rig.refused_for(*runs) is Code.IDENTITY_REPLAYED, "one of them is from the future"


async def test_an_attacker_in_the_store_can_forge_an_attempt_and_nothing_else(rig: Rig, store: str) -> None:
    """The admission script writes the counts, so the seal does not cover them (SECURITY.md)."""
    first = await issue(rig.authority, rig.judged())
    written = Written(rig, store)
    written.write(written.kept, tally=msgpack([[[7, NOW + 60]]]))
    again = await issue(rig.authority, rig.judged())
    before, after = (json.loads(jose.parse_compact(texts(each)[0]).unverified_payload) for each in (first, again))
    assert after.pop("attempt") == {"number": 7, "since": NOW + 60}
    before.pop("attempt")
    assert after == before


async def test_an_explanation_has_the_standing_and_counts_nothing(rig: Rig) -> None:
    await sign(rig, scored(0.5))
    for jti in (rig.jti, "another, not spent"):
        rig.jti = jti
        explained = await rig.explain(scored(0.25))
        assert explained.standing
        assert explained.standing.attempt == Attempt(2, NOW - 3600)
        assert (explained.standing.owners_a_day, explained.standing.throttled_until) == (1, UNSET), "spent or not"
    assert attempts(await sign(rig, scored(0.25))) == [{"number": 2, "since": NOW - 3600}]
