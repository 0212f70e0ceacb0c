"""The verification of an issuer's answer: it must match the request, and the issuer's keys must have signed it. Pure.

The server at an issuer's URL is not trusted. The entry must have the digests of the request, the token must pass checks
1 to 9 of contract section 6, and every member of the answer must match the token. Only `identity` and `warnings` are
not checked, because no token contains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Fault, FormatError, InputError, IssuerError, Refused, Undecided, VerificationError
from issuer.formats import jose
from issuer.results.claims import read_claims
from issuer.results.details import read_details
from issuer.results.entry import Entry, Submission, claims_of, content_digest, read_entries, result_file_name
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import TokenLeaf
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.token.verify_token import TokenClaims, read_unverified, unverified_leaf
from issuer.token.wire import IssuedToken
from issuer.verify import Context, Status, verify_entry
from issuer.verify.check_log import objection
from issuer.verify.trust import Trust, TrustedIssuer


class SentRequest(Struct, frozen=True):
    """A request as it was sent to the issuer with this URL; None for a member that the issuer chooses."""

    issuer: str
    submissions: tuple[Submission, ...]
    integration: str | None
    audience: str | None


def read_asked(issuer: str, body: Mapping[str, Any]) -> SentRequest:
    """Parse a request body of `/tokens` or `/tokens/batch` as the issuer does. Raises Refused."""
    if isinstance(results := body.get("results"), list):
        submissions = tuple(_submission(item, f"/results/{index}") for index, item in enumerate(results))
    else:
        submissions = (_submission(body, ""),)
    terms = (value if isinstance(value := body.get(name), str) else None for name in ("integration", "audience"))
    return SentRequest(issuer, submissions, *terms)


def _submission(item: Any, pointer: str) -> Submission:
    members = item if isinstance(item, Mapping) else {}
    claims = read_claims(members.get("claims"), f"{pointer}/claims", signed=True)  # Unicode: the issuer decides
    return Submission.of(claims, read_details(members.get("details", {}), f"{pointer}/details"), pointer)


def check_answer(
    asked: SentRequest, issued: tuple[IssuedToken, ...], keys: jose.KeySet, now: int
) -> tuple[IssuedToken, ...]:
    """Return the issued tokens if all of them match the request; each `entry` is written anew by this client. `keys` is
    the issuer's key set; it must be fetched again if it lacks a key of the answer (`has_key_for`). `now` is Unix
    seconds. Raises VerificationError with all faults, and Undecided(`dependency.key_set`) if a check is impossible."""
    if len(issued) != len(asked.submissions):
        raise _unverified([f"{len(issued)} tokens for {len(asked.submissions)} results"])
    if len({token.jti for token in issued}) < len(issued):
        raise _unverified(["two of the tokens have the same jti"])
    pairs = tuple(zip(asked.submissions, issued, strict=True))
    for submission, token in pairs:
        _check(asked, submission, token, keys, now)
    return tuple(replace(token, entry=submission.entry(token.verify_token)) for submission, token in pairs)


def has_key_for(issued: Iterable[IssuedToken], keys: jose.KeySet) -> bool:
    """Return whether the key set has the key that each token names, valid or not."""
    return all(kid is None or kid in keys.keys for kid in (_kid(token.verify_token) for token in issued))


def _kid(token: str) -> str | None:
    try:
        kid = jose.parse_compact(token).header.get("kid")
    except IssuerError:
        return None
    return kid if isinstance(kid, str) else None


def _unverified(faults: list[str], pointer: str = "") -> VerificationError:
    more = tuple(Fault(Code.ANSWER_UNVERIFIED, pointer, fault) for fault in faults)
    where = f" (of {pointer})" if pointer else ""
    return VerificationError(Code.ANSWER_UNVERIFIED, f"{faults[0]}{where}", more)


def _check(asked: SentRequest, sent: Submission, issued: IssuedToken, keys: jose.KeySet, now: int) -> None:
    entry, claims = _read_entry(sent, issued), _read_token(sent, issued)
    trust = Trust(claims.aud, {asked.issuer: TrustedIssuer(asked.issuer, keys, keys_fetched_at=now)})
    path = result_file_name(sent.claims.benchmark_repo)
    report = verify_entry(entry, sent.claims.model_repo, path, trust, now, Context(now))
    failed = [check for check in report.checks if check.status is Status.FAIL]
    checks = [f"check {check.number}, {check.name}: {check.evidence}" for check in failed]
    if not has_key_for((issued,), keys):
        checks.append("the issuer's key set has no key with the kid of its token")
    faults = [*_content_faults(sent, entry, issued), *_term_faults(asked, issued, claims), *_log_faults(issued)]
    if faults := [*faults, *checks]:
        raise _unverified(faults, sent.pointer)
    if report.verdict != "verified":
        reasons = "; ".join(check.evidence for check in report.checks if check.status is Status.UNKNOWN)
        raise Undecided(Code.DEPENDENCY_KEY_SET, f"the issuer's answer cannot be checked: {reasons}")


def _read_entry(sent: Submission, issued: IssuedToken) -> Entry:
    try:
        entries = read_entries(issued.entry.encode(), "the entry")
    except InputError as error:
        raise _unverified([f"its entry cannot be read: {error}"], sent.pointer) from None
    if len(entries) != 1:
        raise _unverified([f"{len(entries)} entries for one result"], sent.pointer)
    return entries[0]


def _log_faults(issued: IssuedToken) -> Iterator[str]:
    """Yield why the answer does not prove that its log contains the token."""
    if issued.log is UNSET:
        return
    try:
        leaf = unverified_leaf(issued.verify_token)
    except IssuerError as error:
        yield f"its token has no leaf: {error.detail}"
        return
    if reason := proof_objection(issued.log.proof.encode(), issued.log.origin, leaf, issued.log.index):
        yield f"its proof does not show the token in the log: {reason}"


def proof_objection(raw: bytes, origin: str, leaf: TokenLeaf, index: int | None = None) -> str:
    """Return why a tlog-proof does not show a token's leaf in the log `origin`, or "". The checkpoint's signatures are
    not checked here: relying parties decide which logs and witnesses they trust."""
    try:
        proof = parse_proof(raw)
        checkpoint = parse_checkpoint(parse_note(proof.checkpoint).text)
        reason = objection(proof, checkpoint, origin, leaf.to_bytes())
    except FormatError as error:
        return error.detail
    if not reason and index is not None and proof.index != index:
        return f"it is of leaf {proof.index}, not of {index}"
    return reason


def _read_token(sent: Submission, issued: IssuedToken) -> TokenClaims:
    try:
        return read_unverified(jose.parse_compact(issued.verify_token).unverified_payload)[0]
    except IssuerError as error:
        raise _unverified([f"its token cannot be read: {error.detail}"], sent.pointer) from None


def _content_faults(sent: Submission, entry: Entry, issued: IssuedToken) -> Iterator[str]:
    """Yield how the entry differs from the submission, by its digests."""
    try:
        digest = claims_of(entry, sent.claims.model_repo).digest
    except Refused as refusal:
        digest = f"none ({refusal.detail})"
    for name, ours, theirs in (
        ("claims_digest", sent.claims_digest, digest),
        ("content_digest", sent.content_digest, content_digest(entry.form)),
    ):
        if ours != theirs:
            yield f"its entry is not the submitted result: {name} {theirs}, not {ours}"
    if entry.value is not UNSET:
        yield "its entry has a `value`, which was not sent"
    if entry.token != issued.verify_token:
        yield "its entry has another token than `verify_token`" if entry.token else "its entry has no token"


def _term_faults(asked: SentRequest, issued: IssuedToken, claims: TokenClaims) -> Iterator[str]:
    """Yield how the token differs from the request's terms, and from the other members of the answer."""
    for name, requested, signed in (
        ("integration", asked.integration, claims.sub),
        ("audience", asked.audience, claims.aud),
    ):
        if requested is not None and requested != signed:
            yield f"its token is for another {name}: {signed}, not {requested}"
    log = None if issued.log is UNSET else issued.log.origin
    for name, answered, stated in (
        ("token_type", issued.token_type, jose.TOKEN_TYPE),
        ("kid", issued.kid, _kid(issued.verify_token)),
        ("jti", issued.jti, claims.jti),
        ("issued_at", issued.issued_at, claims.iat),
        ("expires_at", issued.expires_at, claims.exp),
        ("claims_digest", issued.claims_digest, claims.claims_digest),
        ("content_digest", issued.content_digest, claims.content_digest),
        ("integration", issued.integration, claims.sub),
        ("policy", issued.policy, claims.policy),
        ("log", log, None if claims.log is UNSET else claims.log),
    ):
        if answered != stated:
            yield f"`{name}` of the answer is not the token's: {answered}, not {stated}"
