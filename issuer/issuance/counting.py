"""What the admission counts of a request, taken out of its results: hashes, never a name or a value. Pure.

Every hash begins with the identity whose results they are: nothing here can be compared with what others had signed.
The Hub finds a repository in any case, so another spelling is not another repository.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from issuer.abuse import MAX_FILES, Abuse
from issuer.formats.jose import base64url_encode
from issuer.formats.strict_json import JSON
from issuer.issuance.body import Request
from issuer.issuance.ports import Countable, Item
from issuer.issuance.steps import Registered
from issuer.policy.globs import Globs
from issuer.policy.registration import Registration
from issuer.results.claims import Metric, RunClaims
from issuer.results.entry import Submission

# Of a run key and of a set of values, and of what is only compared with a few others: 96 and 48 bits.
_DIGEST, _MARK = 16, 8
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
# A value with fewer significant digits is equal by chance: 0.5, 62.5, 100.
_TELLING_DIGITS = 4
_Scores = tuple[tuple[str, str, float], ...]
_write = msgspec.msgpack.Encoder().encode


def countable(registered: Registered, request: Request) -> Countable:
    """Return what is counted of a granted request."""
    registration = registered.registration
    whose = f"{registration.policy.integration}\0{registration.identity.id}"
    run = registered.caller.short_claims((registered.caller.provider.rules.run,)).values()
    items = tuple([_item(registration, whose, submission) for submission in request.submissions])
    return Countable(items, _hash(_MARK, whose, *run) if run else "")


def _item(registration: Registration, whose: str, submission: Submission) -> Item:
    claims, abuse = submission.claims, registration.policy.abuse
    model, benchmark = claims.model_repo.lower(), claims.benchmark_repo.lower()
    task, scores = claims.task_id, scores_of(registration, claims)
    run = (model, claims.model_revision, benchmark, claims.benchmark_revision, task, claims.framework.name)
    telling = tuple([score for score in scores if is_telling(score[2])])
    return Item(
        run=_hash(_DIGEST, whose, *run),
        twins=_hash(_DIGEST, whose, benchmark, task, telling) if len(telling) >= abuse.twins.values else "",
        values=_hash(_DIGEST, whose, scores),
        repo=_hash(_MARK, whose, model),
        owner=_hash(_MARK, whose, model.partition("/")[0]),
        files=tuple([_hash(_MARK, whose, file) for file in evidence_of(submission.details.get("artifacts"))]),
    )


def scores_of(registration: Registration, claims: RunClaims) -> _Scores:
    """Return the metric values that are counted, as (id, slice, value) in canonical order: those that the benchmark
    defines, where its `eval.yaml` is registered, else those that the policy does not ignore; all where none is left."""
    benchmark = registration.benchmarks.find(claims.benchmark_repo, claims.benchmark_revision)
    if benchmark is not None and benchmark.metrics:
        counted = [metric for metric in claims.metrics if metric.metric_id in benchmark.metric_ids]
    else:
        ignored = _ignored(registration.policy.abuse)
        counted = [metric for metric in claims.metrics if not ignored.match(metric.metric_id)]
    return tuple([_score(metric) for metric in counted or claims.metrics])


def _score(metric: Metric) -> tuple[str, str, float]:
    return metric.metric_id, metric.slice or "", float(metric.value)


@lru_cache(1024)
def _ignored(abuse: Abuse) -> Globs:
    return Globs(abuse.attempts.ignore)


def is_telling(value: float) -> bool:
    """Say whether two results hardly have this value by chance: it has four or more significant digits."""
    digits = repr(value).partition("e")[0].replace("-", "").replace(".", "").strip("0")
    return len(digits) >= _TELLING_DIGITS


def evidence_of(artifacts: JSON) -> tuple[str, ...]:
    """Return the SHA-256 (hex) that the first 8 artifacts with one state; the details are as free as that."""
    return tuple(digest for _, digest in zip(range(MAX_FILES), _digests_in(artifacts), strict=False))


def _digests_in(artifacts: JSON) -> Iterator[str]:
    if isinstance(artifacts, dict):
        artifacts = [artifacts, *artifacts.values()]
    for artifact in artifacts if isinstance(artifacts, list) else []:
        stated = artifact.get("sha256") if isinstance(artifact, dict) else None
        if isinstance(stated, str) and (found := _SHA256.fullmatch(stated)):
            yield found[1].lower()


def _hash(size: int, *of: object) -> str:
    return base64url_encode(hashlib.sha256(_write(of)).digest())[:size]
