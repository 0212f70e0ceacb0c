"""Checks 1 to 5 of contract section 6: is this a good token of a trusted issuer, for us, in time? Pure.

Of the entry it knows only the token and the place, which a receipt must name. What a token says is returned only where
its signature is good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import UNSET, Struct

from issuer.errors import FormatError, Refused
from issuer.formats import jose
from issuer.formats.times import show_time
from issuer.results.claims import RunClaims
from issuer.verify.archive import ArchivedKey
from issuer.verify.receipts import Subject, objection, read_receipt, token_digest
from issuer.verify.report import AtFrom, Check, Status, check, rests_on
from issuer.verify.trust import Trust, TrustedIssuer
from issuer.verify_token import TokenClaims, read_unverified

# How far the issuer's clock may run ahead of the relying party's.
NOT_BEFORE_LEEWAY_S = 60
# Of a token that has ended, where all that is missing is the time.
GOOD_WHEN_ISSUED = "good when it was issued; when this file was received is not known here"


class Moment(Struct, frozen=True):
    """When the file counts as received. `receipt_iat` is when a good receipt says so, None without one.

    To a reader, who cannot know (`at_from` is `unknown`), `at` is now: by then it had come. `note` says why a receipt
    at hand does not serve, `unsure` that this could not be decided.
    """

    at: int
    at_from: AtFrom
    receipt_iat: int | None = None
    note: str = ""
    unsure: bool = False

    @property
    def late(self) -> Status:
        """The status for a token that is too old at this moment: no, unless it may have come earlier."""
        return Status.UNKNOWN if self.unsure or self.at_from == "unknown" else Status.FAIL


class Occurrence(Struct, frozen=True):
    """Where a token was found, the file `path` of the model repository `repo`, and the time to judge it by.

    `moment` counts unless a receipt serves. `now` is the verifier's clock.
    """

    repo: str
    path: str
    moment: Moment
    now: int
    receipt: str | None


class Signed(Struct, frozen=True):
    """What a good signature vouches for, and who made it."""

    claims: TokenClaims
    run: RunClaims
    kid: str
    issuer: TrustedIssuer
    archived: ArchivedKey | None


class JudgedToken(Struct, frozen=True):
    """Checks 1 to 5; `signed` is None unless the signature is good. `wants_keys_of` is that of a report."""

    checks: tuple[Check, ...]
    moment: Moment
    signed: Signed | None
    wants_keys_of: str = ""


class _Parsed(Struct, frozen=True):
    jws: jose.UnverifiedJws
    claims: TokenClaims
    run: RunClaims

    @property
    def kid(self) -> str:
        return str(self.jws.header["kid"])


def judge_token(token: str, trust: Trust, found: Occurrence) -> JudgedToken:
    """Make checks 1 to 5 of a token where it was found."""
    moment, now = found.moment, found.now
    first, parsed = _well_formed(token)
    if parsed is None:
        return JudgedToken((first, *_resting((2, 3), 1), *_resting((4, 5), 3)), moment, None)
    if found.receipt is not None:
        claims = parsed.claims
        subject = Subject(found.repo, found.path, token_digest(token), claims.jti, claims.content_digest, parsed.kid)
        moment = _moment(found.receipt, subject, trust, moment, now)
    issuer = trust.issuers.get(parsed.claims.iss)
    second, key, archived = _key(parsed, issuer, moment, now)
    third = _signature(parsed, key, second)
    if issuer is None or third.status is not Status.PASS:
        wanted = issuer.issuer if issuer and second.status is Status.UNKNOWN and _outdated(parsed, issuer) else ""
        return JudgedToken((first, second, third, *_resting((4, 5), 3)), moment, None, wanted)
    signed = Signed(parsed.claims, parsed.run, parsed.kid, issuer, archived)
    return JudgedToken(
        (first, second, third, _trusted(signed, trust), _fresh(signed, trust, moment, now)), moment, signed
    )


def _resting(numbers: Iterable[int], other: int) -> tuple[Check, ...]:
    return tuple(rests_on(number, other) for number in numbers)


# -- the receipt ------------------------------------------------------------------------------------------------------


def _moment(receipt: str, subject: Subject, trust: Trust, own: Moment, now: int) -> Moment:
    """Take the moment from a receipt, where it is one of ours for just this entry."""
    if not trust.receipt_keys:
        unsure = trust.receipt_keys is None
        note = "the receipt keys are not to be had" if unsure else "the trust file lists no receipt keys"
        return Moment(own.at, own.at_from, note=f"; there is a receipt, but {note}", unsure=unsure)
    try:
        read = read_receipt(receipt, trust.receipt_keys)
    except FormatError as error:
        return _unserved(own, error.detail)
    reason = objection(read, subject, now)
    return _unserved(own, reason) if reason else Moment(read.at, "receipt", read.iat)


def _unserved(own: Moment, reason: str) -> Moment:
    return Moment(own.at, own.at_from, note=f"; the receipt at hand does not serve: {reason}")


# -- (1) to (5) -------------------------------------------------------------------------------------------------------


def _well_formed(token: str) -> tuple[Check, _Parsed | None]:  # (1)
    try:
        jws = jose.parse_compact(token)
        if jws.header.keys() != {"alg", "kid", "typ"} or not all(isinstance(x, str) for x in jws.header.values()):
            return check(1, Status.FAIL, "the header must have exactly the members alg, kid and typ, all text"), None
        if jws.header["typ"] != jose.TOKEN_TYPE:
            return check(1, Status.FAIL, f"typ is not {jose.TOKEN_TYPE}: a JWT of another kind"), None
        claims, run = read_unverified(jws.unverified_payload)
    except (FormatError, Refused) as error:
        fault = error.faults[0]
        where = f" at {fault.pointer}" if fault.pointer else ""
        return check(1, Status.FAIL, f"{fault.detail}{where}"), None
    return check(1, Status.PASS, f"{len(token)} bytes, version {claims.ver}"), _Parsed(jws, claims, run)


_Found: TypeAlias = tuple[Check, jose.Key | None, ArchivedKey | None]


def _key(parsed: _Parsed, issuer: TrustedIssuer | None, moment: Moment, now: int) -> _Found:  # (2)
    """Find the key: in the current set, or in the archive where the token and the moment lie in the key's window."""
    if parsed.jws.header["alg"] not in jose.EDDSA_NAMES:
        return check(2, Status.FAIL, "the algorithm is not EdDSA (Ed25519)"), None, None
    if issuer is None:
        evidence = "no trusted issuer has this name, so there is no key to check with"
        return check(2, Status.FAIL, evidence, token=parsed.claims.iss), None, None
    current = issuer.keys.get(parsed.kid) if issuer.keys else None
    archived = issuer.archive.get(parsed.kid) if issuer.archive else None
    if current is not None and jose.EDDSA_NAMES & current.algorithms:
        return check(2, Status.PASS, f"kid {parsed.kid}{_age(issuer, now)}"), current, archived
    if archived is not None and jose.EDDSA_NAMES & archived.key.algorithms:
        return _archived_key(parsed, issuer, archived, moment)
    if issuer.keys is None or issuer.archive is None:
        missing = "key set" if issuer.keys is None else "archive of keys"
        return check(2, Status.UNKNOWN, f"the {missing} of {issuer.issuer} is not to be had"), None, None
    if _outdated(parsed, issuer):
        evidence = f"no key at hand has this kid, and {issuer.issuer} has not confirmed them since the token's issue"
        return check(2, Status.UNKNOWN, evidence, token=parsed.kid), None, None
    if issuer.archive is UNSET and _may_have_retired(parsed, moment, now):
        evidence = "the key may have retired since, and there is no archive of the issuer's keys to look into"
        return check(2, Status.UNKNOWN, evidence, token=parsed.kid), None, None
    evidence = "no good Ed25519 key of the issuer's key set has this kid"
    return check(2, Status.FAIL, evidence, token=parsed.kid), None, None


def _outdated(parsed: _Parsed, issuer: TrustedIssuer) -> bool:
    """Say whether the keys at hand lack the token's, and may be older than it: a newer set could have it."""
    has = any(keys and parsed.kid in keys for keys in (issuer.keys and issuer.keys.keys, issuer.archive))
    return not has and not issuer.confirmed_after(parsed.claims.iat)


def _may_have_retired(parsed: _Parsed, moment: Moment, now: int) -> bool:
    """Say whether the key may be gone by plan: it stays in the key set until its last token has ended."""
    if moment.at_from == "receipt" or moment.unsure:
        return True
    received_late = moment.at_from == "clock" and moment.at > parsed.claims.exp
    return now > parsed.claims.exp and not received_late


def _archived_key(parsed: _Parsed, issuer: TrustedIssuer, archived: ArchivedKey, moment: Moment) -> _Found:
    iat, at = parsed.claims.iat, moment.at
    issued = archived.covers(iat)
    # Of a revoked key only a receipt counts, so that without one 5 is a no whenever the file came.
    by_receipt_alone = archived.revoked_from is not None and moment.receipt_iat is None
    if issued and (by_receipt_alone or archived.covers(at, NOT_BEFORE_LEEWAY_S)):
        return check(2, Status.PASS, f"kid {parsed.kid}, from the archive"), archived.key, archived
    status = Status.UNKNOWN if issuer.keys is None else moment.late if issued else Status.FAIL
    end = "now" if archived.last_token_exp is None else archived.last_token_exp
    evidence = f"the archived key was in use from {archived.active_from} to {end}; issued at {iat}, judged at {at}"
    return check(2, status, evidence + moment.note), None, None


def _age(issuer: TrustedIssuer, now: int) -> str:
    return "" if issuer.keys_fetched_at is None else f", of the key set fetched {now - issuer.keys_fetched_at} s ago"


def _signature(parsed: _Parsed, key: jose.Key | None, second: Check) -> Check:  # (3)
    if second.status is Status.UNKNOWN:
        return check(3, Status.UNKNOWN, "there is no key to check with")
    if key is None:
        return rests_on(3, 2)
    if key.verifies(str(parsed.jws.header["alg"]), parsed.jws.signing_input, parsed.jws.signature):
        return check(3, Status.PASS, "Ed25519, by that key")
    return check(3, Status.FAIL, "the signature does not fit token and key")


def _trusted(signed: Signed, trust: Trust) -> Check:  # (4)
    framework, frameworks = signed.run.framework.name, signed.issuer.frameworks
    if frameworks is not None and framework not in frameworks:
        return check(4, Status.FAIL, "the issuer is not trusted to speak for this framework", token=framework)
    if signed.claims.aud != trust.audience:
        evidence = "the token is for another relying party"
        return check(4, Status.FAIL, evidence, token=signed.claims.aud, file=trust.audience)
    return check(4, Status.PASS, f"{signed.claims.iss}, for {signed.claims.aud}")


def _fresh(signed: Signed, trust: Trust, moment: Moment, now: int) -> Check:  # (5)
    claims, at = signed.claims, moment.at
    if refused := _revoked(signed, moment):
        return refused
    if (life := claims.exp - claims.iat) > trust.max_token_life_s:
        return check(5, Status.FAIL, f"lives {life} s; at most {trust.max_token_life_s} s are trusted")
    if at < claims.nbf - NOT_BEFORE_LEEWAY_S:
        return check(5, Status.FAIL, f"not valid for another {claims.nbf - at} s{moment.note}")
    if at > claims.exp and moment.late is Status.FAIL:
        return check(5, Status.FAIL, f"expired {at - claims.exp} s before the time it is judged at{moment.note}")
    if missing := _unknown_revocations(signed.issuer, now):
        return check(5, Status.UNKNOWN, missing)
    if at > claims.exp:
        return check(5, Status.UNKNOWN, f"{GOOD_WHEN_ISSUED}: it expired {at - claims.exp} s ago{moment.note}")
    by = ", by a receipt" if moment.at_from == "receipt" else ""
    when = "judged" if moment.at_from == "unknown" else "received"
    times = f"{when} {at - claims.iat} s after issue, {claims.exp - at} s before expiry{by}"
    return check(5, Status.PASS, f"{times}; revocations {_said(signed.issuer)}")


def _revoked(signed: Signed, moment: Moment) -> Check | None:
    claims, revocations = signed.claims, signed.issuer.revocations
    if revocations and (reason := revocations.revoked(claims.jti, claims.sub, claims.iat)):
        return check(5, Status.FAIL, reason)
    revoked_from = signed.archived.revoked_from if signed.archived else None
    if revoked_from is None or (moment.receipt_iat is not None and moment.receipt_iat < revoked_from):
        return None
    # Not by iat or a stated time: the thief of the key writes both.
    evidence = f"its key is revoked from {revoked_from} on, and no receipt is from before that"
    return check(5, Status.UNKNOWN if moment.unsure else Status.FAIL, evidence + moment.note)


def _unknown_revocations(issuer: TrustedIssuer, now: int) -> str:
    """Return why it is unknown whether the token is revoked, or ""."""
    listed = issuer.revocations
    if listed is None or (listed and listed.held):
        return f"the revocation list of {issuer.issuer} is not to be had"
    if listed and listed.iat > now + NOT_BEFORE_LEEWAY_S:
        return f"the revocation list of {issuer.issuer} is dated {listed.iat - now} s in the future"
    if listed and now > listed.next_update:
        return f"the revocation list of {issuer.issuer} is {now - listed.next_update} s past its next update"
    if issuer.archive is None:
        return f"the archive of {issuer.issuer}, which says what keys are revoked, is not to be had"
    return ""


def _said(issuer: TrustedIssuer) -> str:
    """Say what is known of the issuer's revocations."""
    if issuer.revocations:
        return f"by list {issuer.revocations.number} of {show_time(issuer.revocations.iat)}"
    return "not published by the issuer" if issuer.unpublished else "not asked for"
