"""The line itself, driven without HTTP: what it does, in which order, and what it leaves undone when a step fails.

Real keys, a real store, a real audit file and a fixed clock; each part says when it is called. The log is ours, because
none is configured yet: it keeps what it is given.
"""

from __future__ import annotations

import asyncio
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
from issuer.service.admission.script import names_of, record_of
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.authenticator import ProviderAuthenticator, RecycledNames, SignedTokens
from issuer.service.authn.keysets import KeySets, ProviderFetcher
from issuer.service.process.fair_queue import FairQueue
from issuer.service.revocation.active_list import LiveRevocations
from issuer.service.revocation.ledger import Act, Ledger
from issuer.service.signing.bounds import PUBLISHED_S
from issuer.service.signing.keyring import FileKey, KeyringSigner, SigningKey
from issuer.token.verify_token import Template
from issuer.token.wire import Attempt, Denied, LogEntry
from issuer.verify.revocations import RevokedInterval
from tests.support import make
from tests.support.clock import Clock
from tests.support.key_hosts import KeyHost, Seconds
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


class Kept:
    """The policies that are kept, by whose they are."""

    def __init__(self) -> None:
        self.by_digest = dict[str, str]()

    def integration_of(self, digest: str) -> str | None:
        return self.by_digest.get(digest)


# Nothing is fetched here, and the system's roots take 40 ms to load.
NO_ROOTS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class House:
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
        self.clock, self.secret, self.kept = Clock(), StoreSecret(bytes(32)), Kept()
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
    use = use_of(judged, (make.KID,))
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


class SmallKey(FileKey):
    """A key that takes no more than a message that is smaller than any token's."""

    max_message_bytes = 100


def other_key(kind: type[FileKey] = FileKey) -> SigningKey:
    return SigningKey.of(kind(make.STRANGER), "active")


async def test_what_the_signing_key_does_not_take_is_refused_before_it_is_admitted(house: House) -> None:
    house.authority = msgspec.structs.replace(house.authority, signer=KeyringSigner((other_key(SmallKey),)))
    assert await house.refused_for(submission()) is Code.CLAIMS_TOO_LARGE
    assert house.steps == ["count", "audit"]


async def test_a_repeat_that_its_own_key_does_not_take_is_refused_and_costs_nothing_more(house: House) -> None:
    await issue(house.authority, house.judged())
    house.steps.clear()
    retiring = SigningKey.of(SmallKey(make.KEY), "retiring")
    house.authority = msgspec.structs.replace(house.authority, signer=KeyringSigner((other_key(), retiring)))
    assert await house.refused_for(submission()) is Code.CLAIMS_TOO_LARGE
    assert house.steps == ["admit", "audit"]
    assert house.events()[-1]["code"] == "claims.too_large"


def small_key_after(kind: type[FileKey] = FileKey) -> KeyringSigner:
    """A key that takes no token has become active, and the one before it retires."""
    return KeyringSigner((other_key(SmallKey), SigningKey.of(kind(make.KEY), "retiring")))


async def test_what_a_key_that_retires_has_begun_is_signed_again_though_the_active_key_does_not_take_it(
    house: House,
) -> None:
    first = await issue(house.authority, house.judged())
    house.authority = msgspec.structs.replace(house.authority, signer=small_key_after())
    again = await issue(house.authority, house.judged())
    assert (texts(again), again.repeat) == (texts(first), True)


async def test_what_only_a_key_that_retires_would_take_claims_no_use_and_is_refused_as_too_large(house: House) -> None:
    whole, house.authority = (
        house.authority,
        msgspec.structs.replace(house.authority, signer=small_key_after()),
    )
    assert await house.refused_for(submission()) is Code.CLAIMS_TOO_LARGE
    assert house.steps == ["admit", "count", "audit"], "counted as a refusal of its identity"
    house.authority = whole
    assert not (await issue(house.authority, house.judged())).repeat, "its one use is left"


async def test_a_body_is_judged_in_a_step_of_its_own(house: House) -> None:
    raw = json.dumps({"claims": make.claims()}).encode()
    steps = read_and_judge(house.authority, house.registered(), "single", raw, JTIS[1])
    assert sum(1 for _ in steps) == sum(1 for _ in read_in_steps("single", raw)) + 1


async def test_what_is_forged_is_no_matter_of_size(house: House) -> None:
    await issue(house.authority, house.judged())
    house.authority = msgspec.structs.replace(
        house.authority, signer=small_key_after(), secret=StoreSecret(bytes([1] * 32))
    )
    assert await house.refused_for(submission()) is Code.IDENTITY_REPLAYED
    assert house.events()[-1]["forged"]


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
    events = house.events()
    assert [event["code"] for event in events if event["event"] == "decision"] == codes
    probing = [(event["then"], event["count"], event["limit"]) for event in events if event["event"] == "abuse_signal"]
    assert probing == [("warn", 1, 2), ("quarantine", 3, 2)], "half of the rate, and what begins the quarantine"


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


async def test_who_asks_without_a_pause_is_refused_no_longer_than_the_store_has_said(house: House) -> None:
    registered = house.registered()
    house.authority.standing.learn(registered, Refused(Code.ABUSE_QUARANTINED, retry_after_s=60))
    for _ in range(int(STANDING_S)):
        refusal = check_standing(house.authority, registered)
        assert refusal is not None
        await refuse(house.authority, refusal)
        house.clock.s += 1
    assert check_standing(house.authority, registered) is None, "the store is asked again"


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
    explained = await explain(house.authority, house.registered(ref="refs/heads/evil"), refusal)
    await house.close()
    assert house.steps == ["audit"] * 2
    assert caught.value.code is Code.INTEGRATION_SUSPENDED
    failed = [check.code for check in caught.value.checks if not check.passed]
    assert failed == ["integration.suspended", "identity.claim_mismatch"]
    assert (explained.code, explained.checks) == ("integration.suspended", caught.value.checks)
    told, counted = house.events()
    assert (told["code"], counted["codes"]) == ("integration.suspended", {"integration.suspended": 1})


async def test_an_active_integration_has_nothing_against_it(house: House) -> None:
    assert check_standing(house.authority, house.registered()) is None
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
    for _ in range(3):
        assert (await refuse(house.authority, stranger)).code is Code.INTEGRATION_UNKNOWN
    assert [event["code"] for event in house.events()] == ["integration.unknown", "rate.source"], "the rest is counted"


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
            granted = await explain(house.authority, house.registered(), house.judge(jti=NO_JTI))
            assert granted.verdict == "granted"
        await house.close()


async def test_a_question_of_the_caller_alone_is_never_counted_as_a_refusal(tmp_path: Path) -> None:
    """In a strict policy, which forgives two; whatever the answer is, and then a refusal is the first one."""
    with EmbeddedValkey() as store_of_its_own:
        for mode, verdict in (("staged", "refused"), ("active", "granted")):
            (folder := tmp_path / mode).mkdir()
            house = House(folder, store_of_its_own, changed(STRICT, "mode: active", f"mode: {mode}"))
            await house.start()
            asked = finish(read_to_explain(house.authority, house.registered(), b" {}\n"))
            told = [await explain(house.authority, house.registered(), asked) for _ in range(5)]
            assert [(each.verdict, each.warnings) for each in told] == [(verdict, ())] * 5
            assert house.steps.count("count") == 5, "each costs a request"
            if mode == "active":
                evil = house.judge(submission(benchmark="evil/x"))
                first = await explain(house.authority, house.registered(), evil)
                assert first.warnings[0].partition(" ")[0] == "1"
            await house.close()


# -- who pays ---------------------------------------------------------------------------------------------------------


def test_who_has_the_pins_and_fails_a_requirement_pays_from_a_bucket_of_its_own(house: House) -> None:
    assert house.registered().payer == Payer("inspect-ai", "main")
    branches = [house.registered(ref=f"refs/heads/{number}").payer for number in range(600)]
    assert {(payer.integration, payer.identity) for payer in branches} == {("inspect-ai", "main")}
    assert {payer.bucket for payer in branches} == set(range(BUCKETS)), "spread over all of them"
    assert BUCKETS == 64
    again = [house.registered(ref=f"refs/heads/{number}", run_id="other").payer for number in range(600)]
    assert again == branches, "by what fails, and by nothing else"
    house.secret = StoreSecret(b"another".ljust(32))
    assert [house.registered(ref=f"refs/heads/{number}").payer for number in range(600)] != branches


@pytest.mark.parametrize(
    ("policy", "claims"),
    [(POLICY, {"event_name": "pull_request"}), (POLICY, {"runner_environment": None}),
     (changed(POLICY, "    names:", '    expires: "2026-11-21"\n    names:'), {})],
    ids=["event", "a claim that is not there", "expired"],
)  # fmt: skip
def test_event_absence_and_expiry_make_one_only_resemble(tmp_path: Path, policy: str, claims: dict[str, Any]) -> None:
    policies = load(tmp_path, inspect_ai=policy)
    who = caller(policies, **claims)
    registered = Registered.of(Arrival("a", "/tokens", "x", NOW), who, resolve(policies, who), StoreSecret(bytes(32)))
    assert registered.payer.bucket is not None
    assert registered.denial is not None


async def test_refusals_of_who_only_resembles_an_identity_cost_that_identity_nothing(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:
        house = House(tmp_path, store_of_its_own, STRICT)
        await house.start()
        codes = []
        for _ in range(62):
            house.clock.s += 60  # so that no process remembers the quarantine for the store
            branch = house.registered(ref="refs/heads/feature")
            refusal = check_standing(house.authority, branch)
            assert refusal is not None
            codes.append(str((await refuse(house.authority, refusal)).code))
        assert codes == ["identity.claim_mismatch"] * 3 + ["abuse.quarantined"] * 59
        assert not (await issue(house.authority, house.judged())).repeat
        await house.close()


async def test_what_claims_no_use_pays_from_the_record_of_its_token_once_all_uses_are_spent(house: House) -> None:
    registered = house.registered()
    presented = Presented(registered.caller.use_record(""), registered.caller.provider.uses)
    assert AdmissionRequest.of(registered, refused=True).presented == presented
    claimed = AdmissionRequest.of(registered, use=use_of(house.judged(), (make.KID,)))
    assert claimed.presented is None
    reusable = msgspec.structs.replace(registered.caller.provider, profile="pat")
    who = msgspec.structs.replace(registered.caller, provider=reusable)
    for other in (msgspec.structs.replace(registered, caller=who), house.registered(ref="refs/heads/feature")):
        assert AdmissionRequest.of(other, refused=True).presented is None, "no use of it is counted"


async def test_a_refusal_warns_from_half_of_the_rate_on(tmp_path: Path) -> None:
    with EmbeddedValkey() as store_of_its_own:
        house = House(tmp_path, store_of_its_own, STRICT)
        await house.start()
        refused = house.judge(submission(benchmark="evil/x"))
        told = [await explain(house.authority, house.registered(), refused) for _ in range(3)]
        await house.close()
    assert [len(each.warnings) for each in told] == [1, 1, 1]
    assert [each.warnings[0].partition(" ")[0] for each in told] == ["1", "2", "this"]


# -- what the store gives back ----------------------------------------------------------------------------------------

DAY_S = 86_400
Change = Callable[[dict[str, Any]], object]


def terms(**members: Any) -> Change:
    return lambda template: template["terms"].update(members)


def header(**members: Any) -> Change:
    return lambda template: template["header"].update(members)


class Written:
    """What the store keeps for the request that a house judges, and the hand that changes it."""

    def __init__(self, house: House, store: str, *runs: Submission) -> None:
        self.use = use_of(house.judged(*runs), (make.KID,))
        self.record, self.slot, self.store = record_of(self.use), f"d:{self.use.request_digest}".encode(), store

    def read(self) -> bytes:
        with redis.Redis.from_url(self.store) as client:
            kept = client.hget(self.record, self.slot)
        assert isinstance(kept, bytes)
        _, _, rest = kept.split(b" ", 2)
        end = 2 + int.from_bytes(rest[:2], "big")
        self.tally = rest[2:end]
        return rest[end:]

    def write(self, kept: bytes, kid: str = make.KID, tally: bytes | None = None) -> None:
        self.read()
        tally = self.tally if tally is None else tally
        head = b"%d %b " % (NOW + 90 * DAY_S, kid.encode()) + len(tally).to_bytes(2, "big")
        with redis.Redis.from_url(self.store) as client:
            client.hset(self.record, self.slot, head + tally + kept)

    def change(self, change: Change) -> bytes:
        template = json.loads(self.read()[32:])
        change(template)
        return jcs.canonical(template)


async def replayed(house: House) -> str:
    """Send the request again; return what the audit says is wrong with what the store has kept for it."""
    house.steps.clear()
    with pytest.raises(Refused) as caught:
        await issue(house.authority, house.judged(jti=JTIS[2]))
    assert caught.value.code is Code.IDENTITY_REPLAYED
    assert house.steps == ["admit", "audit"], "nothing is logged or signed"
    event = house.events()[-1]
    assert (event["verdict"], event["code"]) == ("refused", "identity.replayed")
    forged: str = event["forged"]
    return forged


MEMBERS: dict[str, Change] = {
    "alg": header(alg="Ed25519"), "typ": header(typ="JWT"), "kid": header(kid="other"), "crit": header(crit=["x"]),
    "ver": terms(ver=2), "iss": terms(iss="https://evil.example"), "sub": terms(sub="lm-eval"),
    "aud": terms(aud="https://evil.example"), "iat": terms(iat=NOW + 30 * DAY_S), "exp": terms(exp=NOW + 7 * DAY_S),
    "nbf": terms(nbf=NOW - 9), "jti": terms(jti=JTIS[3]), "caller": terms(caller={"provider": "github-actions"}),
    "policy": terms(policy="sha256:" + "0" * 64), "log": terms(log="evil.example/log"), "attempt": terms(attempt=1),
    "claims_digest": terms(claims_digest="sha256:" + "0" * 64), "model_repo": terms(model_repo="evil/model"),
    "another member": lambda template: template.update(more={}),
}  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
async def test_a_template_that_was_changed_in_the_store_is_not_signed(house: House, store: str, member: str) -> None:
    await issue(house.authority, house.judged())
    written = Written(house, store)
    written.write(written.read()[:32] + written.change(MEMBERS[member]))
    assert await replayed(house) == "hmac"


async def test_what_was_sealed_for_another_place_or_by_another_service_is_not_signed(house: House, store: str) -> None:
    first, second = submission(), submission(task="other")
    await issue(house.authority, house.judged(first))
    house.jti = f"{house.path}/another"
    await issue(house.authority, house.judged(second, jti=JTIS[2]))
    elsewhere = Written(house, store, second).read()
    house.jti = str(house.path)
    written = Written(house, store)
    use, template = written.use, written.read()[32:]
    for forged in (
        elsewhere,
        house.secret.seal(use.record, "0" * 64, template),
        house.secret.seal("0" * 64, use.request_digest, template),
        StoreSecret(b"another service".ljust(32)).seal(use.record, use.request_digest, template),
        template,
        bytes(32) + template,
        bytes(32),
        b"x",
    ):
        written.write(forged)
        assert await replayed(house) == "hmac"


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


@pytest.mark.parametrize("name", BEYOND)
async def test_even_under_our_own_hmac_nothing_is_signed_that_this_request_had_not_asked_for(
    house: House, store: str, name: str
) -> None:
    await issue(house.authority, house.judged())
    house.kept.by_digest["sha256:" + "1" * 64] = "another-integration"
    written, (what, change) = Written(house, store), BEYOND[name]
    written.write(house.secret.seal(written.use.record, written.use.request_digest, written.change(change)))
    assert await replayed(house) == what


def test_the_template_of_a_nonce_may_be_a_day_old(house: House) -> None:
    judged = house.judged()
    use = msgspec.structs.replace(use_of(judged, (make.KID,)), issued_at=None)

    def recalled(**members: int) -> Template | None:
        template = Template.of(make.KID, msgspec.structs.replace(judged.draft.terms, **members))
        sealed = house.secret.seal(use.record, use.request_digest, template.to_bytes())
        return recall(house.authority, judged, use, sealed)

    oldest = NOW - DAY_S
    assert recalled(iat=oldest + 1, nbf=oldest + 1, exp=NOW + 1) is not None
    assert recalled(iat=oldest, nbf=oldest, exp=NOW) is None, "past"
    with pytest.raises(Forged) as caught:
        recalled(iat=oldest - 1, nbf=oldest - 1, exp=NOW + 1)
    assert (caught.value.what, caught.value.code) == ("iat", Code.NONCE_REUSED)


async def test_bytes_that_are_not_canonical_are_none_of_ours(house: House, store: str) -> None:
    await issue(house.authority, house.judged())
    written = Written(house, store)
    spaced = written.read()[32:].replace(b',"terms"', b', "terms"')
    written.write(house.secret.seal(written.use.record, written.use.request_digest, spaced))
    assert await replayed(house) == "form"


GOOD: dict[str, Change] = {
    "the latest iat": terms(iat=NOW + 60, nbf=NOW + 60), "the earliest iat": terms(iat=NOW - 70, nbf=NOW - 70),
    "the latest exp": terms(exp=NOW + DAY_S), "an earlier policy": terms(policy="sha256:" + "2" * 64),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
async def test_what_another_host_may_have_drafted_is_given_again(house: House, store: str, name: str) -> None:
    await issue(house.authority, house.judged())
    house.kept.by_digest["sha256:" + "2" * 64] = "inspect-ai"
    written = Written(house, store)
    changed_template = written.change(GOOD[name])
    written.write(house.secret.seal(written.use.record, written.use.request_digest, changed_template))
    again = await issue(house.authority, house.judged(jti=JTIS[2]))
    assert again.repeat
    payload = json.loads(make.payload_by_joserfc(again.tokens[0].verify_token))
    assert payload.items() >= json.loads(changed_template)["terms"].items()


PAST: dict[str, Change] = {
    "another caller": terms(caller={"provider": "github-actions"}), "another log": terms(log="old.example/log"),
    "no log": lambda template: template["terms"].pop("log"), "past its exp": terms(exp=NOW), "a key that is gone": header(kid="x"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAST)
async def test_a_template_that_is_past_is_replaced_at_the_cost_of_one_use(house: House, store: str, name: str) -> None:
    house.uses = 2
    await issue(house.authority, house.judged())
    written = Written(house, store)
    written.write(house.secret.seal(written.use.record, written.use.request_digest, written.change(PAST[name])))
    house.steps.clear()
    second = await issue(house.authority, house.judged(jti=JTIS[2]))
    assert (second.repeat, second.tokens[0].jti) == (False, JTIS[2])
    assert house.steps == ["admit", "admit", "log", "sign", "audit"]
    third = await issue(house.authority, house.judged(jti=JTIS[3]))
    assert (third.repeat, texts(third)) == (True, texts(second))
    with pytest.raises(Refused) as caught:
        await issue(house.authority, house.judged(submission(task="other")))
    assert caught.value.code is Code.IDENTITY_REPLAYED
    assert "forged" not in house.events()[-1], "it is only spent"


@pytest.mark.parametrize("name", PAST)
async def test_a_template_that_is_past_is_spent_where_no_use_is_left(house: House, store: str, name: str) -> None:
    await issue(house.authority, house.judged())
    written = Written(house, store)
    written.write(house.secret.seal(written.use.record, written.use.request_digest, written.change(PAST[name])))
    with pytest.raises(Refused) as caught:
        await issue(house.authority, house.judged(jti=JTIS[2]))
    assert caught.value.code is Code.IDENTITY_REPLAYED
    assert "forged" not in house.events()[-1]


async def test_a_template_that_names_a_key_to_come_is_signed_only_when_everybody_can_know_that_key(
    house: House, store: str, tmp_path: Path
) -> None:
    """Whoever writes to the store, and has our secret, cannot have a key sign that a relying party may not have yet."""
    host = KeyHost(tmp_path / "host", Seconds()).has("active", "next").start()
    active, coming = (path.stem for path in host.paths)
    house.authority = msgspec.structs.replace(house.authority, signer=host.signer)
    house.uses = 3

    async def forge(slot: str) -> Issued:
        written = Written(house, store)
        forged = house.secret.seal(written.use.record, written.use.request_digest, written.change(header(kid=coming)))
        written.write(forged, slot)
        return await issue(house.authority, house.judged(jti=JTIS[2]))

    await issue(house.authority, house.judged())
    for slot in (coming, active):
        replaced = await forge(slot)
        assert (replaced.repeat, replaced.tokens[0].kid) == (False, active)
    host.write("published", host.paths[1])
    host.clock.now += PUBLISHED_S
    await host.turn()
    given_again = await forge(coming)
    assert (given_again.repeat, given_again.tokens[0].kid) == (True, coming)
    await host.stop()


async def test_of_many_who_find_a_template_past_one_replaces_it_and_all_get_its_bytes(house: House, store: str) -> None:
    house.uses = 9
    await issue(house.authority, house.judged())
    house.authority = msgspec.structs.replace(house.authority, log=NoLog())  # the log was switched off
    issued = await asyncio.gather(*(issue(house.authority, house.judged(jti=jti)) for jti in JTIS[2:]))
    assert len({tuple(texts(each)) for each in issued}) == 1
    assert sum(not each.repeat for each in issued) == 1


class OtherHost(Steps):
    """Has the store keep one more template before each step of this host."""

    def __init__(self, keep: Callable[[], None]) -> None:
        super().__init__()
        self._keep = keep

    def take(self, step: str, code: Code) -> None:
        self._keep()
        super().take(step, code)


async def test_between_hosts_that_replace_each_other_s_template_nobody_decides(house: House, store: str) -> None:
    house.uses = 9
    await issue(house.authority, house.judged())
    written, changes = Written(house, store), iter(PAST.values())
    past = (written.change(change) for change in changes)
    house.admission.steps = OtherHost(
        lambda: written.write(house.secret.seal(written.use.record, written.use.request_digest, next(past)))
    )
    house.steps.clear()
    with pytest.raises(Undecided) as caught:
        await issue(house.authority, house.judged(jti=JTIS[2]))
    assert caught.value.code is Code.DEPENDENCY_STATE
    assert (house.admission.steps, house.steps) == (["admit", "admit"], []), "nothing is logged, signed or audited"


async def test_while_the_secret_changes_both_are_accepted_and_the_new_one_seals(house: House, store: str) -> None:
    first = await issue(house.authority, house.judged())
    new, old = b"new".ljust(32), bytes(32)
    house.authority = msgspec.structs.replace(house.authority, secret=StoreSecret(new, old))
    again = await issue(house.authority, house.judged(jti=JTIS[2]))
    assert (again.repeat, texts(again)) == (True, texts(first))
    house.jti = "a later identity token"
    later = await issue(house.authority, house.judged())
    house.authority = msgspec.structs.replace(house.authority, secret=StoreSecret(new))
    assert texts(await issue(house.authority, house.judged())) == texts(later)
    house.jti = str(house.path)
    assert await replayed(house) == "hmac"


# -- what was revoked -------------------------------------------------------------------------------------------------


async def revoked(house: House, *jtis: str, **interval: int) -> None:
    """Revoke tokens, or an interval of the one integration, and have it in force."""
    intervals = (RevokedInterval("inspect-ai", **interval),) if interval else ()
    house.ledger.add(Act(house.now, "an operator", "a secret reason", jtis, intervals))
    await house.revocations.turn(False)
    house.steps.clear()


async def test_a_retry_of_a_revoked_token_is_refused_before_the_log_and_the_signature(house: House) -> None:
    first = await issue(house.authority, house.judged())
    await revoked(house, first.tokens[0].jti)
    with pytest.raises(Revoked) as refused:
        await issue(house.authority, house.judged(jti=JTIS[2]))
    assert (refused.value.code, refused.value.code.meaning.status) == (Code.TOKEN_REVOKED, 409)
    assert "secret" not in str(refused.value)
    assert house.steps == ["admit", "audit"], "neither signed nor counted"
    event = house.events()[-1]
    assert (event["verdict"], event["code"], event["jti"]) == ("refused", "token.revoked", [JTIS[1]])
    house.jti = f"{house.path}/another"
    assert not (await issue(house.authority, house.judged(jti=JTIS[2]))).repeat


async def test_one_revoked_token_of_a_batch_refuses_its_retry_and_is_named(house: House) -> None:
    runs = [submission(f"/results/{number}", task=f"task-{number}") for number in range(3)]
    issued = await issue(house.authority, house.judged(*runs))
    await revoked(house, JTIS[1])
    assert texts(await issue(house.authority, house.judged(*runs))) == texts(issued), "no token has the batch's own jti"
    await revoked(house, issued.tokens[2].jti)
    with pytest.raises(Revoked) as refused:
        await issue(house.authority, house.judged(*runs))
    assert [fault.pointer for fault in refused.value.faults] == ["/results/2"]
    assert house.events()[-1]["jti"] == [issued.tokens[2].jti]


async def test_a_retry_of_what_was_signed_in_a_revoked_interval_is_refused_and_a_new_request_is_not(
    house: House,
) -> None:
    await issue(house.authority, house.judged())
    house.now = NOW + 60
    await revoked(house, from_=NOW - 5, until=NOW)
    assert await house.refused_for() is Code.TOKEN_REVOKED
    house.jti = f"{house.path}/another"
    assert not (await issue(house.authority, house.judged(jti=JTIS[2]))).repeat


async def test_an_integration_that_is_revoked_for_now_is_refused_unread_and_at_no_cost(house: House) -> None:
    judged = house.judged()
    await revoked(house, from_=NOW + 1)
    assert check_standing(house.authority, house.registered()) is None
    house.now = NOW + 1
    standing = check_standing(house.authority, house.registered())
    assert standing is not None
    assert (standing.error.code, standing.settled, standing.request) == (Code.TOKEN_REVOKED, True, None)
    for _ in range(100):  # more than its rate of refusals
        with pytest.raises(Revoked):
            await issue(house.authority, house.judged())
    assert set(house.steps) == {"audit"}, "never counted"
    house.now = NOW
    await issue(house.authority, judged)


async def test_a_revocation_that_came_while_the_body_did_refuses_before_a_use_is_claimed(house: House) -> None:
    judged = house.judged()
    await revoked(house, from_=0)
    with pytest.raises(Revoked):
        await issue(house.authority, judged)
    assert house.steps == ["audit"]


async def test_a_stranger_with_a_registered_name_is_told_to_the_operator(house: House) -> None:
    who = caller(house.policies, repository_id="8", repository="Org/Evals")
    with capture_logs() as lines:
        for name in ("r1", "r2"):
            await report_recycled(house.authority, Stranger(Arrival(name, "/tokens", "192.0.2.1", NOW), who))
    (event,) = house.events()
    assert {name: event[name] for name in ("event", "signal", "then", "request_id", "integration", "identity")} == {
        "event": "abuse_signal", "signal": "recycled", "then": "observe", "request_id": "r1",
        "integration": "inspect-ai", "identity": "main",
    }  # fmt: skip
    assert (event["rule"], event["count"]) == ("identities.main.names.repository", 1)
    assert event["caller"]["provider"] == "github-actions"
    assert event["caller"]["claims"].items() >= {"repository_id": "8", "repository": "Org/Evals"}.items()
    assert not {"actor", "sub"} & event["caller"]["claims"].keys()
    (line,) = lines
    assert (line["event"], line["signal"], line["provider"]) == ("abuse signal", "recycled", "github-actions")
    assert line["caller"] == event["caller"]["claims"]


async def test_a_stranger_with_names_of_its_own_is_nobody_s_signal(house: House) -> None:
    for claims in ({"repository": "other/evals"}, {}):
        ids = {"repository_id": "8"} if claims else {}
        who = caller(house.policies, **ids, **claims)
        await report_recycled(house.authority, Stranger(Arrival("r", "/tokens", "192.0.2.1", NOW), who))
    assert house.events() == []


async def test_no_caller_makes_a_signal_larger_than_an_event(house: House) -> None:
    long = dict.fromkeys(("ref", "sha", "run_id", "job_workflow_ref", "workflow_sha", "workflow_ref"), "\x01" * 512)
    who = caller(house.policies, repository_id="8", repository_owner_id="\x01" * 512, **long)
    await report_recycled(house.authority, Stranger(Arrival("r", "/tokens", "192.0.2.1", NOW), who))
    (line,) = (house.path / "audit.jsonl").read_bytes().splitlines()
    assert len(line) < MAX_EVENT_BYTES
    assert json.loads(line)["caller"]["claims"]["repository_id"] == "8"


# -- judging ----------------------------------------------------------------------------------------------------------


def test_judging_is_a_function_of_its_arguments(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    signer = KeyringSigner((SigningKey.of(FileKey(make.KEY), "active"),))
    nothing: Any = None  # judging that reached for the store, an identity or the audit would fail here
    authority = Authority(
        ISSUER_URL, policies, nothing, nothing, nothing, nothing, NoLog(), signer, nothing, nothing, nothing, nothing,
        nothing,
    )  # fmt: skip
    who = caller(policies)
    registered = Registered.of(Arrival("a", "/tokens", "x", NOW), who, resolve(policies, who), StoreSecret(bytes(32)))
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
    house.authority, house.jti = msgspec.structs.replace(house.authority, log=NoLog()), "another"
    without = msgspec.json.encode((await issue(house.authority, house.judged())).tokens[0])
    assert "log" not in json.loads(without)


async def test_that_the_store_was_written_to_is_told_however_often_it_is_met(house: House) -> None:
    for _ in range(100):
        refusal = Refusal(house.registered(), Forged(Code.IDENTITY_REPLAYED, "seal"), settled=True)
        await refuse(house.authority, refusal)
    assert [event.get("forged") for event in house.events()] == ["seal"] * 100


# -- what was counted ---------------------------------------------------------------------------------------------------


def attempts(issued: Issued) -> list[Any]:
    return [json.loads(jose.parse_compact(text).unverified_payload).get("attempt") for text in texts(issued)]


async def sign(house: House, *runs: Submission) -> Issued:
    """Have runs signed for a fresh identity token of the same identity."""
    house.jti = f"{house.path}/{next(_SIGNED)}"
    return await issue(house.authority, house.judged(*runs))


_SIGNED = itertools.count()


def scored(value: float, commit: str = "5" * 40) -> Submission:
    return submission(metrics={"accuracy": value}, revision=commit)


async def test_a_token_says_its_attempt_and_a_retry_the_same_one(house: House) -> None:
    since = NOW - 3600
    first = await sign(house, scored(0.1234), scored(0.2345))
    assert attempts(first) == [{"number": 1, "since": since}, {"number": 2, "since": since}]
    again = await issue(house.authority, house.judged(scored(0.1234), scored(0.2345)))
    assert (again.repeat, texts(again)) == (True, texts(first))
    assert attempts(await sign(house, scored(0.1234))) == [{"number": 2, "since": since}], "an equal result"
    assert attempts(await sign(house, scored(0.3456))) == [{"number": 3, "since": since}]


async def test_who_shops_for_a_score_is_warned_and_told_of_before_the_decision(house: House) -> None:
    told = [await sign(house, scored(number / 64, "6" * 40)) for number in range(1, 7)]
    assert [len(each.tokens[0].warnings) for each in told] == [0, 0, 0, 0, 0, 1]
    (warning,) = told[-1].tokens[0].warnings
    assert warning.startswith("abuse.attempts: 6 different sets of metric values were signed for this model commit")
    signal, decision = house.events()[-2:]
    assert (signal["event"], signal["signal"], signal["then"]) == ("abuse_signal", "attempts", "warn")
    assert (signal["count"], signal["limit"], signal["results"], signal["repeat"]) == (6, 5, [0], False)
    assert (decision["verdict"], decision["counted"][0][0][0]) == ("issued", 6)
    again = await issue(house.authority, house.judged(scored(6 / 64, "6" * 40)))
    assert again.tokens[0].warnings == (warning,), "a retry is told the same"
    assert house.events()[-2]["repeat"]


async def test_what_begins_a_quarantine_is_told_and_not_signed(tmp_path: Path, store: str) -> None:
    strict = changed(POLICY, "limits:\n", "abuse:\n  attempts: {distinct: 1, then: quarantine}\nlimits:\n")
    house = House(tmp_path, store, strict)
    await house.start()
    await sign(house, scored(0.5, "8" * 40))
    explained = await explain(house.authority, house.registered(), house.judged(scored(0.25, "8" * 40)))
    assert (explained.verdict, explained.code) == ("refused", "abuse.quarantined")
    with pytest.raises(Refused) as refused:
        await sign(house, scored(0.25, "8" * 40))
    assert refused.value.code is Code.ABUSE_QUARANTINED
    signal, decision = house.events()[-2:]
    assert (signal["signal"], signal["then"], signal["count"]) == ("attempts", "quarantine", 2)
    assert (decision["verdict"], decision["code"], decision["counted"][0][0][0]) == ("refused", "abuse.quarantined", 2)
    with redis.Redis.from_url(store) as client:  # other tests share it
        client.delete(names_of(house.registered().payer).payer)
    await house.close()


@pytest.mark.parametrize(
    "tally",
    [
        b"", b"x", msgpack([]), msgpack([[]]), msgpack([[[0, 1]]]), msgpack([[[65, 1]]]), msgpack([[[1, NOW + 61]]]),
        msgpack([[[1, 1], [1, 1]]]), msgpack([[[1, 1, True, True, 0, False, 7]]]), msgpack([[["1", 1]]]),
    ],
)  # fmt: skip
async def test_counts_that_this_service_never_made_are_a_forgery(house: House, store: str, tally: bytes) -> None:
    await issue(house.authority, house.judged())
    written = Written(house, store)
    written.write(written.read(), tally=tally)
    assert await replayed(house) == "counts"


async def test_who_writes_to_the_store_can_forge_an_attempt_and_nothing_else(house: House, store: str) -> None:
    """As SECURITY.md says: the script writes it, so it lies outside of the seal."""
    first = await issue(house.authority, house.judged())
    written = Written(house, store)
    written.write(written.read(), tally=msgpack([[[7, NOW]]]))
    again = await issue(house.authority, house.judged())
    before, after = (json.loads(jose.parse_compact(texts(each)[0]).unverified_payload) for each in (first, again))
    assert after.pop("attempt") == {"number": 7, "since": NOW}
    before.pop("attempt")
    assert after == before


async def test_an_explanation_tells_the_standing_and_counts_nothing(house: House) -> None:
    await sign(house, scored(0.5, "7" * 40))
    asked = house.registered(), house.judged(scored(0.25, "7" * 40))
    for _ in range(2):
        explained = await explain(house.authority, *asked)
        assert explained.standing
        assert explained.standing.attempt == Attempt(2, NOW - 3600)
        assert (explained.standing.owners_a_day, explained.standing.throttled_until) == (1, UNSET), "spent or not"
        house.jti = "another, not spent"
        asked = house.registered(), asked[1]
    assert attempts(await sign(house, scored(0.25, "7" * 40))) == [{"number": 2, "since": NOW - 3600}]
