"""The submission of finished runs as pull requests (README.md): a plan, its tokens, and the proposals.

    plan = plan_of(results, place)
    signed = sign(plan, place, access, state)
    for outcome in propose(signed, place, access):
        print(outcome.repo, outcome.pull_request)

Until the first proposal it is all or nothing: `plan_of` raises for results that cannot be written, and `sign` stops at
a refused result. After a kill, the next start continues: it reads the received tokens, and finds open pull requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from issuer.client import proposal
from issuer.client.batches import IssuerAccess, ResultRefusal, ResumeState, obtain_each
from issuer.client.build import Result
from issuer.client.files import PATIENCE_S, LogProof, wait_for_proof
from issuer.client.hub import Moved, PullRequest
from issuer.client.proposal import Destination, Issuer, ProposedResult, RepoChange, ResultKey
from issuer.client.tokens import fetch_keys
from issuer.io.http_client import check_url
from issuer.results.benchmark import Benchmark
from issuer.results.entry import Entry
from issuer.token.wire import IssuedToken
from issuer.verify.report import Report

_LEAST_PROOF_S = 0.5  # for each further token, if the log's witnesses do not answer


class SubmissionPlan(Struct, frozen=True):
    """The proposals before signing: each result in its form, and each repository's files with stand-ins for tokens."""

    items: tuple[ProposedResult, ...]
    changes: tuple[RepoChange, ...]


class SignedResults(Struct, frozen=True):
    """The results after signing. `items` are ready to propose and have `tokens`; for `again` an earlier start received
    the token. Results `there` on main or `open` in a pull request need no token. With `refusals`, `items` may be
    empty."""

    items: tuple[ProposedResult, ...]
    tokens: dict[ResultKey, IssuedToken]
    again: frozenset[ResultKey]
    there: frozenset[ResultKey]
    open: dict[ResultKey, PullRequest]
    refusals: dict[ResultKey, ResultRefusal]


class Outcome(Struct, frozen=True):
    """The proposal for one repository: its pull request, or None if main already has every result; the number of
    missing proofs; the report of each result's verification before the proposal; and the results of main that the
    proposal replaces, all signed before for the same integration."""

    repo: str
    items: tuple[ProposedResult, ...]
    pull_request: PullRequest | None
    without_proof: int
    reports: Mapping[ResultKey, Report] = {}
    replaced: tuple[Entry, ...] = ()


def plan_of(
    results: Sequence[Result], place: Destination, benchmark: Benchmark | None = None, primary: str | None = None
) -> SubmissionPlan:
    """Return the plan for these results without asking the issuer. Raises InputError for results that cannot be
    written, and as `place` does."""
    items = proposal.items_of(results, place, benchmark, primary)
    return SubmissionPlan(items, proposal.rehearse(items, place))


def sign(
    plan: SubmissionPlan, place: Destination, access: IssuerAccess, state: ResumeState, *, keep_going: bool = False
) -> SignedResults:
    """Get a token for each result that is not yet on main or in an open pull request. If a result is refused, no result
    is ready; with `keep_going` the others are. Raises as `batches.obtain_each` and `place` do."""
    there = proposal.standing(plan.changes, _issuer(access))
    proposed: dict[ResultKey, PullRequest] = {}
    for change in plan.changes:
        digests = [item.said.content_digest for item in change.items if item.key not in there]
        requests = place.proposed(change.repo, digests) if digests else {}
        proposed |= {(change.repo, digest): request for digest, request in requests.items()}
    wanted = tuple(item for item in plan.items if item.key not in there and item.key not in proposed)
    with state.locked():
        state.prune(int(time.time()))
        answered = obtain_each(access, [item.said for item in wanted], state, keep_going=keep_going)
    tokens = {wanted[index].key: token for index, token in answered.tokens.items()}
    refusals = {wanted[refusal.index].key: refusal for refusal in answered.refusals}
    ready = tuple(item for item in wanted if item.key in tokens) if keep_going or not refusals else ()
    again = frozenset(wanted[index].key for index in answered.again)
    return SignedResults(ready, tokens, again, there, proposed, refusals)


def _issuer(access: IssuerAccess) -> Issuer:
    url = check_url(access.issuer)
    return Issuer(url, fetch_keys(url, patience_s=access.patience_s), int(time.time()))


def propose(signed: SignedResults, place: Destination, access: IssuerAccess) -> Iterator[Outcome]:
    """Propose the ready results, repository by repository. Each file is verified before its proposal. Raises
    VerificationError if the issuer's keys do not verify an entry, and as `place` does. Yielded outcomes are already
    proposed, and the next start finds them."""
    url = check_url(access.issuer)
    for repo, items in proposal.by_repo(signed.items):
        tokens = [signed.tokens[item.key] for item in items]
        proofs = _proofs(url, tokens)
        missing = sum(bool(token.log) and token.verify_token not in proofs for token in tokens)
        for attempt in range(1, place.tries + 1):
            change = proposal.change_of(repo, items, place, [token.verify_token for token in tokens])
            reports = proposal.demand_verified(change, _issuer(access), proofs)
            try:
                pull_request = place.put(proposal.with_proofs(change, tokens, proofs))
            except Moved:
                if attempt == place.tries:
                    raise
                continue
            yield Outcome(repo, tuple(items), pull_request, missing, reports, change.replaced)
            break


def _proofs(url: str, tokens: Sequence[IssuedToken]) -> dict[str, LogProof]:
    """Return the tokens' proofs that the log has within PATIENCE_S for all of them together."""
    until, proofs = time.monotonic() + PATIENCE_S, {}
    for token in tokens:
        left_s = max(_LEAST_PROOF_S, until - time.monotonic())
        if proof := wait_for_proof(url, token, patience_s=left_s):
            proofs[token.verify_token] = proof
    return proofs
