"""The hashes that the admission counts for a request's results: never a name or a value. Pure.

Every hash includes the identity, so it cannot be compared with the hashes of other identities. Names of repositories
are in lowercase, because the Hub ignores their case.
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
from issuer.results.claims import RunClaims
from issuer.results.entry import Submission

# Sizes of hashes in bytes: first for run keys and sets of values, then for the rest, which is compared with few others.
_DIGEST, _MARK = 12, 6
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
# Two results may share a value by chance if it has at most this many significant digits: 0.5, 62.5, 100.
_TRIVIAL_DIGITS = 3
_Scores = tuple[tuple[str, str, float], ...]
_write = msgspec.msgpack.Encoder().encode


def countable(registered: Registered, request: Request) -> Countable:
    """Return the hashes to count for a granted request."""
    registration = registered.registration
    owner = f"{registration.policy.integration}\0{registration.identity.id}"
    run = registered.caller.short_claims((registered.caller.provider.rules.run,)).values()
    items = tuple([_item(registration, owner, submission) for submission in request.submissions])
    return Countable(items, _hash(_MARK, owner, *run) if run else b"")


def _item(registration: Registration, owner: str, submission: Submission) -> Item:
    claims, abuse = submission.claims, registration.policy.abuse
    model, benchmark = claims.model_repo.lower(), claims.benchmark_repo.lower()
    task, scores = claims.task_id, scores_of(registration, claims)
    run = (model, claims.model_revision, benchmark, claims.benchmark_revision, task, claims.framework.name)
    telling = tuple([score for score in scores if is_telling(score[2])])
    return Item(
        run=_hash(_DIGEST, owner, *run),
        twins=_hash(_DIGEST, owner, benchmark, task, telling) if len(telling) >= abuse.twins.values else b"",
        values=_hash(_DIGEST, owner, scores),
        repo=_mark_of(owner, model),
        owner=_mark_of(owner, model.partition("/")[0]),
        files=tuple([_hash(_MARK, owner, file) for file in evidence_of(submission.details.get("artifacts"))]),
    )


def scores_of(registration: Registration, claims: RunClaims) -> _Scores:
    """Return the metric values to count, as (id, slice, value) in canonical order. If the benchmark's `eval.yaml` is
    registered, its metrics count; else all that the policy does not ignore. If no metric remains, all count."""
    benchmark = registration.benchmarks.find(claims.benchmark_repo, claims.benchmark_revision)
    if benchmark is not None and benchmark.metrics:
        counted = [metric for metric in claims.metrics if metric.metric_id in benchmark.metric_ids]
    else:
        abuse = registration.policy.abuse
        counted = [metric for metric in claims.metrics if not _is_ignored(abuse, metric.metric_id)]
    return tuple([(metric.metric_id, metric.slice or "", float(metric.value)) for metric in counted or claims.metrics])


# An integration has the same few metrics in every request, and matching one takes as long as everything else here.
@lru_cache(4096)
def _is_ignored(abuse: Abuse, metric_id: str) -> bool:
    return Globs(abuse.attempts.ignore).match(metric_id)


def is_telling(value: float) -> bool:
    """Return whether two results are unlikely to share this value by chance: it has four or more significant digits."""
    return float(f"{value:.{_TRIVIAL_DIGITS}g}") != value


def evidence_of(artifacts: JSON) -> tuple[str, ...]:
    """Return the SHA-256 (hex) of the first 8 artifacts that state a SHA-256. `artifacts` may have any form."""
    return tuple(islice(_digests_in(artifacts), MAX_FILES))


def _digests_in(artifacts: JSON) -> Iterator[str]:
    if isinstance(artifacts, dict):
        artifacts = [artifacts, *artifacts.values()]
    for artifact in artifacts if isinstance(artifacts, list) else []:
        stated = artifact.get("sha256") if isinstance(artifact, dict) else None
        if isinstance(stated, str) and (found := _SHA256.fullmatch(stated)):
            yield found[1].lower()


def _hash(size: int, *of: object) -> bytes:
    """Return `size` bytes of BLAKE2b in base64url. For short texts it takes half the time of OpenSSL's SHA-256."""
    return jose.segment(blake2b(_write(of), digest_size=size).digest())


@lru_cache(4096)  # the results of a batch have few models
def _mark_of(owner: str, name: str) -> bytes:
    return _hash(_MARK, owner, name)
