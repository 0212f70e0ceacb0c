"""What the admission counts of a request, taken out of its results: hashes, never a name or a value. Pure.

Every hash begins with the identity whose results they are: nothing here can be compared with what others had signed.
The Hub finds a repository in any case, so another spelling is not another repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice

import msgspec

from issuer.formats import jose
from issuer.formats.strict_json import JSON
from issuer.issuance.ports import Countable, Item
from issuer.issuance.steps import Registered, Request
from issuer.limits.abuse import MAX_FILES, Abuse
from issuer.policy.patterns import Globs
from issuer.policy.registration import Registration
from issuer.results.claims import Metric, RunClaims
from issuer.results.entry import Submission

# Of a run key and of a set of values, and of what is only compared with a few others: in bytes.
_DIGEST, _MARK = 12, 6
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
# A value with at most so many significant digits is equal by chance: 0.5, 62.5, 100.
_TRIVIAL_DIGITS = 3
_Scores = tuple[tuple[str, str, float], ...]
_write = msgspec.msgpack.Encoder().encode


def countable(registered: Registered, request: Request) -> Countable:
    """Return what is counted of a granted request."""
    registration = registered.registration
    whose = f"{registration.policy.integration}\0{registration.identity.id}"
    run = registered.caller.short_claims((registered.caller.provider.rules.run,)).values()
    items = tuple([_item(registration, whose, submission) for submission in request.submissions])
    return Countable(items, _hash(_MARK, whose, *run) if run else b"")


def _item(registration: Registration, whose: str, submission: Submission) -> Item:
    claims, abuse = submission.claims, registration.policy.abuse
    model, benchmark = claims.model_repo.lower(), claims.benchmark_repo.lower()
    task, scores = claims.task_id, scores_of(registration, claims)
    run = (model, claims.model_revision, benchmark, claims.benchmark_revision, task, claims.framework.name)
    telling = tuple([score for score in scores if is_telling(score[2])])
    return Item(
        run=_hash(_DIGEST, whose, *run),
        twins=_hash(_DIGEST, whose, benchmark, task, telling) if len(telling) >= abuse.twins.values else b"",
        values=_hash(_DIGEST, whose, scores),
        repo=_mark_of(whose, model),
        owner=_mark_of(whose, model.partition("/")[0]),
        files=tuple([_hash(_MARK, whose, file) for file in evidence_of(submission.details.get("artifacts"))]),
    )


def scores_of(registration: Registration, claims: RunClaims) -> _Scores:
    """Return the metric values that are counted, as (id, slice, value) in canonical order: those that the benchmark
    defines, where its `eval.yaml` is registered, else those that the policy does not ignore; all where none is left."""
    benchmark = registration.benchmarks.find(claims.benchmark_repo, claims.benchmark_revision)
    if benchmark is not None and benchmark.metrics:
        counted = [metric for metric in claims.metrics if metric.metric_id in benchmark.metric_ids]
    else:
        abuse = registration.policy.abuse
        counted = [metric for metric in claims.metrics if not _is_ignored(abuse, metric.metric_id)]
    return tuple([_score(metric) for metric in counted or claims.metrics])


def _score(metric: Metric) -> tuple[str, str, float]:
    return metric.metric_id, metric.slice or "", float(metric.value)


# The metrics of an integration are the same few in every request, and to match each takes as long as all else here.
@lru_cache(4096)
def _is_ignored(abuse: Abuse, metric_id: str) -> bool:
    return Globs(abuse.attempts.ignore).match(metric_id)


def is_telling(value: float) -> bool:
    """Say whether two results hardly have this value by chance: it has four or more significant digits, so that it is
    another number when it is rounded to three."""
    return float(f"{value:.{_TRIVIAL_DIGITS}g}") != value


def evidence_of(artifacts: JSON) -> tuple[str, ...]:
    """Return the SHA-256 (hex) that the first 8 artifacts with one state; the details are as free as that."""
    return tuple(islice(_digests_in(artifacts), MAX_FILES))


def _digests_in(artifacts: JSON) -> Iterator[str]:
    if isinstance(artifacts, dict):
        artifacts = [artifacts, *artifacts.values()]
    for artifact in artifacts if isinstance(artifacts, list) else []:
        stated = artifact.get("sha256") if isinstance(artifact, dict) else None
        if isinstance(stated, str) and (found := _SHA256.fullmatch(stated)):
            yield found[1].lower()


def _hash(size: int, *of: object) -> bytes:
    """Return so many bytes of BLAKE2b in base64url: for short texts it takes half the time of OpenSSL's SHA-256."""
    return jose.segment(blake2b(_write(of), digest_size=size).digest())


@lru_cache(4096)  # a batch is of few models
def _mark_of(whose: str, name: str) -> bytes:
    return _hash(_MARK, whose, name)
