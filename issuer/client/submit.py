"""From finished runs to open pull requests (README.md): what there is to do, the tokens for it, and the proposals.

    plan = plan_of(results, place)
    signed = sign(plan, place, asking, kept)
    for outcome in propose(signed, place, asking):
        print(outcome.where)

All or nothing until the first proposal: `plan_of` finds what cannot be written, `sign` stops at a result that is
refused. Started again after a kill it goes on: tokens that were received are kept, open pull requests are found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from issuer.client.batches import IssuerAccess, ResultRefusal, ResumeState, obtain_each
from issuer.client.build import Result
from issuer.client.files import PATIENCE_S, LogProof, wait_for_proof
from issuer.client.hub import Moved, PullRequest
from issuer.client.proposal import (
    Destination,
    Issuer,
    ProposedResult,
    RepoChange,
    ResultKey,
    by_repo,
    change_of,
    demand_verified,
    items_of,
    rehearse,
    standing,
    with_proofs,
)
from issuer.client.tokens import fetch_keys
from issuer.io.http_client import check_url
from issuer.results.benchmark import Benchmark
from issuer.token.wire import IssuedToken
from issuer.verify.report import Report

_LEAST_PROOF_S = 0.5  # for the last of many tokens of a log without its witnesses


class SubmissionPlan(Struct, frozen=True):
    """What would be proposed: each result in its form, and each repository's files with stand-ins for tokens."""

    items: tuple[ProposedResult, ...]
    changes: tuple[RepoChange, ...]


class SignedResults(Struct, frozen=True):
    """What is ready: results with their tokens; those `there` on main, and those `open` in a pull request, which need
    none; `again` are those whose token an earlier start had received. With `refusals` nothing may be ready."""

    items: tuple[ProposedResult, ...]
    tokens: dict[ResultKey, IssuedToken]
    again: frozenset[ResultKey]
    there: frozenset[ResultKey]
    open: dict[ResultKey, PullRequest]
    refusals: dict[ResultKey, ResultRefusal]


class Outcome(Struct, frozen=True):
    """What became of one repository: its pull request, or None where main has it all; how many proofs lack; and how
    each result was verified before it left."""

    repo: str
    items: tuple[ProposedResult, ...]
    pull_request: PullRequest | None
    without_proof: int
    reports: Mapping[ResultKey, Report] = {}


def plan_of(results: Sequence[Result], place: Destination, benchmark: Benchmark | None = None) -> SubmissionPlan:
    """Find what there is to do, and that it can be written. Nothing is asked of an issuer. Raises InputError, and as
    `place` does."""
    items = items_of(results, place, benchmark)
    return SubmissionPlan(items, rehearse(items, place))


def sign(
    plan: SubmissionPlan, place: Destination, asking: IssuerAccess, kept: ResumeState, *, keep_going: bool = False
) -> SignedResults:
    """Get a token for each result that is not on main or in an open pull request yet. Where one is refused, nothing is
    ready; with `keep_going` the others are. Raises as `batches.obtain_each` and `place` do."""
    there = standing(plan.changes, _issuer(asking))
    found: dict[ResultKey, PullRequest] = {}
    for change in plan.changes:
        found |= {(change.repo, digest): one for digest, one in _proposed(change, place, there).items()}
    wanted = tuple(item for item in plan.items if item.key not in there and item.key not in found)
    with kept.locked():
        kept.prune(int(time.time()))
        answered = obtain_each(asking, [item.said for item in wanted], kept, keep_going=keep_going)
    tokens = {wanted[index].key: token for index, token in answered.tokens.items()}
    refusals = {wanted[each.index].key: each for each in answered.refusals}
    ready = tuple(item for item in wanted if item.key in tokens) if keep_going or not refusals else ()
    again = frozenset(wanted[index].key for index in answered.again)
    return SignedResults(ready, tokens, again, there, found, refusals)


def _issuer(asking: IssuerAccess) -> Issuer:
    url = check_url(asking.issuer)
    return Issuer(url, fetch_keys(url, patience_s=asking.patience_s), int(time.time()))


def _proposed(change: RepoChange, place: Destination, there: frozenset[ResultKey]) -> Mapping[str, PullRequest]:
    digests = [item.said.content_digest for item in change.items if item.key not in there]
    return place.proposed(change.repo, digests) if digests else {}


def propose(signed: SignedResults, place: Destination, asking: IssuerAccess) -> Iterator[Outcome]:
    """Propose what is ready, a repository after the other; each file is verified before it leaves. Raises
    VerificationError for what the issuer's own keys do not verify, and as `place` does: what was yielded is proposed,
    and a further start finds it."""
    url = check_url(asking.issuer)
    for repo, items in by_repo(signed.items):
        tokens = [signed.tokens[item.key] for item in items]
        proofs = _proofs(url, tokens)
        lacking = sum(bool(token.log) and token.verify_token not in proofs for token in tokens)
        for attempt in range(1, place.tries + 1):
            change = change_of(repo, items, place, [token.verify_token for token in tokens])
            reports = demand_verified(change, _issuer(asking), proofs)
            try:
                made = place.put(with_proofs(change, tokens, proofs))
            except Moved:
                if attempt == place.tries:
                    raise
                continue
            yield Outcome(repo, tuple(items), made, lacking, reports)
            break


def _proofs(url: str, tokens: Sequence[IssuedToken]) -> dict[str, LogProof]:
    """Fetch the proofs that the log's witnesses have cosigned by now: it waits for all of them together."""
    until, found = time.monotonic() + PATIENCE_S, {}
    for token in tokens:
        left_s = max(_LEAST_PROOF_S, until - time.monotonic())
        if proof := wait_for_proof(url, token, patience_s=left_s):
            found[token.verify_token] = proof
    return found
