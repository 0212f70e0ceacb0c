"""A simulated month on the real line: the claims of a body, their counts, and the admission script.

The clock is driven, the keys' expiry is the store's own: they live longer here than in the month, and the script must be
right by the times that it has written. Of twins it writes none, so here they are counted for the whole month and not for
`per_days`: more of them than in truth, and none less. Integrations share no key, so each lives its month for itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from issuer.errors import Refused, Undecided
from issuer.formats.strict_json import JSON
from issuer.identity.token import Caller
from issuer.issuance.counting import countable, is_telling, scores_of
from issuer.issuance.ports import AdmissionRequest, Use
from issuer.issuance.steps import Arrival, Registered
from issuer.issuance.steps import Request as Asked
from issuer.limits.abuse import NOTHING_COUNTED, Abuse, Tally, read_tally
from issuer.limits.rate import Limits
from issuer.policy.registration import Registration
from issuer.results.claims import read_claims
from issuer.results.entry import Submission
from issuer.service.admission.redis import RedisAdmission
from tests.simulation.runs import Request, Result
from tests.support.policies import GITHUB, POLICY, load, registration
from tests.support.stores import Store

# A midnight (UTC), on which the month begins.
BEGINS_S = 20_788 * 86_400
# Integrations that live their month at once: their calls share pipelines.
AT_ONCE = 24
PATIENCE = 50


class Answer(NamedTuple):
    """The outcome of one request: `tally` is empty if it was refused by `code`, and `telling` is the number of telling values
    of each result. `at` is the time of the admission, which a rate may have delayed."""

    request: Request
    at: float
    tally: Tally = NOTHING_COUNTED
    telling: tuple[int, ...] = ()
    code: str = ""
    is_warned: bool = False


def replay(requests: Iterable[Request], abuse: Abuse) -> list[Answer]:
    """Let all integrations live their month by these rules, on a new store. The answers of an integration are together."""
    with tempfile.TemporaryDirectory() as made, Store(Path(made) / "store") as store:
        folder = Path(made) / "policies"
        folder.mkdir()
        sample = registration(load(folder, inspect_ai=POLICY))
        return asyncio.run(_replay(store.url, Rules(sample, abuse), requests))


async def _replay(url: str, rules: Rules, requests: Iterable[Request]) -> list[Answer]:
    months: dict[str, list[Request]] = {}
    for request in requests:
        months.setdefault(request.integration, []).append(request)
    clock, places = Clock(), asyncio.Semaphore(AT_ONCE)
    admission = RedisAdmission(url, leeway_s=0, now_us=clock)
    await admission.start()

    async def live(month: list[Request]) -> list[Answer]:
        async with places:
            return await Integration(admission, clock, rules).live(month)

    try:
        return list(itertools.chain.from_iterable(await asyncio.gather(*map(live, months.values()))))
    finally:
        await admission.aclose()


class Clock:
    """The driven clock. A call reads it before it waits for anything, so that many may set it, each for its own."""

    def __init__(self) -> None:
        self.now_us = (BEGINS_S - 3600) * 1_000_000

    def __call__(self) -> int:
        return self.now_us


class Rules:
    """The registration of each identity: the sample's, with default limits, and with the rules that are tried."""

    def __init__(self, sample: Registration, abuse: Abuse) -> None:
        self._sample = sample
        self._policy = msgspec.structs.replace(sample.policy, limits=Limits(), abuse=abuse)
        self._known: dict[tuple[str, str], Registration] = {}

    def of(self, integration: str, identity: str) -> Registration:
        if (who := (integration, identity)) not in self._known:
            policy = msgspec.structs.replace(self._policy, integration=integration)
            registered = msgspec.structs.replace(self._sample.identity, id=identity)
            self._known[who] = msgspec.structs.replace(self._sample, policy=policy, identity=registered)
        return self._known[who]


class Integration:
    """One integration that lives its month."""

    def __init__(self, admission: RedisAdmission, clock: Clock, rules: Rules) -> None:
        self._admission, self._clock, self._rules = admission, clock, rules

    async def live(self, month: list[Request]) -> list[Answer]:
        """Send each request at its time, or after the one before it. After a refusal by a rate it waits."""
        answers, at = [], 0.0
        for number, request in enumerate(month):
            at = max(at, request.at)
            call = Call(self._rules, request, number)
            while isinstance(answer := await self._answer(call, at), int):
                at += answer
            answers.append(answer)
        return answers

    async def _answer(self, call: Call, at: float) -> Answer | int:
        """Return the outcome of a request, or the seconds that a rate makes it wait."""
        try:
            return await self._ask(call, at)
        except Refused as refused:
            if refused.retry_after_s is not None and refused.code.startswith("rate."):
                return refused.retry_after_s
            return Answer(call.request, at, code=refused.code)

    async def _ask(self, call: Call, at: float) -> Answer:
        """Ask until there is an answer: an undecided request is sent again, and the script knows it."""
        for _ in range(PATIENCE):
            self._clock.now_us = int((BEGINS_S + at) * 1_000_000)
            try:
                if call.request.is_refused:
                    counted = await self._admission.count(AdmissionRequest.of(call.registered, refused=True))
                    return Answer(call.request, at, is_warned=bool(counted.warnings))
                admitted = await self._admission.admit(call.admission(int(BEGINS_S + at)))
                return Answer(call.request, at, read_tally(admitted.tally), call.telling)
            except Undecided:
                await asyncio.sleep(0)  # the call has waited for 0.8 s
        raise AssertionError("the store does not answer")


class Call:
    """A request in the form that the line passes to the admission."""

    def __init__(self, rules: Rules, request: Request, number: int) -> None:
        self.request, self._number = request, number
        self._registration = rules.of(request.integration, request.identity)

    @cached_property
    def registered(self) -> Registered:
        provider, now = self._registration.provider, int(BEGINS_S + self.request.at)
        caller = Caller(provider, {**GITHUB, "run_id": self.request.ci_run}, ("use", "x", "x"), now, now + 300)
        return Registered(Arrival("", "tokens", "", now), caller, self._registration, ())

    @cached_property
    def asked(self) -> Asked:
        results = self.request.results
        if len(results) == 1:
            return Asked("single", (submission(results[0], ""),), "", "")
        items = tuple(submission(result, f"/results/{index}") for index, result in enumerate(results))
        return Asked("batch", items, "", "")

    @property
    def telling(self) -> tuple[int, ...]:
        scores = (scores_of(self._registration, item.claims) for item in self.asked.submissions)
        return tuple([sum(is_telling(value) for _, _, value in each) for each in scores])

    def admission(self, now: int) -> AdmissionRequest:
        record = hashlib.sha256(f"{self.request.integration} {self._number}".encode()).hexdigest()
        use = Use(record, 1, "digest", now + 3600, "kid", ("kid",), now, now + 600)
        counted = countable(self.registered, self.asked)
        cost = len(self.request.results)
        return AdmissionRequest.of(self.registered, cost=cost, use=use, candidate=b"template", countable=counted)


def submission(result: Result, pointer: str) -> Submission:
    """Make a result as the reader of a body does."""
    metrics: list[JSON] = [_metric(*metric) for metric in result.metrics]
    claims = read_claims({
        "model_repo": result.model, "model_revision": result.revision, "benchmark_repo": result.benchmark,
        "benchmark_revision": result.benchmark_revision, "task_id": result.task, "metrics": metrics,
        "framework": {"name": result.framework, "version": result.version},
    })  # fmt: skip
    return Submission.of(claims, {"artifacts": [{"sha256": digest} for digest in result.artifacts]}, pointer)


def _metric(name: str, part: str, value: float) -> dict[str, JSON]:
    return {"metric_id": name, "value": value, "slice": part} if part else {"metric_id": name, "value": value}
