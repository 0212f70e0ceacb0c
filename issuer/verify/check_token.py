"""Checks 1 to 5 of contract section 6: is this a valid token of a trusted issuer, for us, in time? Pure.

Of the entry this file knows only the token and the place, which a receipt must name. The claims are returned only if
the signature is good.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Struct

from issuer.errors import FormatError, Refused
from issuer.formats import jose
from issuer.formats.times import show_span, show_time
from issuer.results.claims import RunClaims
from issuer.token.verify_token import TokenClaims, read_unverified
from issuer.verify.check_log import Inclusion, Search
from issuer.verify.receipts import Moment, ReceiptSubject, token_digest
from issuer.verify.report import Check, Status, check, rests_on
from issuer.verify.trust import ArchivedKey, Trust, TrustedIssuer

# How far the issuer's clock may run ahead of the relying party's.
NOT_BEFORE_LEEWAY_S = 60
# The words for an expired token if only the time of receipt is missing.
NOT_KNOWN_HERE = "it is not known when this file was received"
GOOD_WHEN_ISSUED = f"good when it was issued; {NOT_KNOWN_HERE}"


class Occurrence(Struct, frozen=True):
    """The place where a token was found (the file `path` in the model repository `repo`), and the evidence of the time.
    `moment` is what this party knows by itself; `receipt` and `search` may show an earlier time. `now` is the relying
    party's clock."""

    repo: str
    path: str
    moment: Moment
    now: int
    receipt: str | None
    search: Search


class Signed(Struct, frozen=True):
    """The claims that a good signature vouches for, with the issuer that made it."""

    claims: TokenClaims
    run: RunClaims
    kid: str
    issuer: TrustedIssuer
    archived: ArchivedKey | None

    @property
    def revoked(self) -> str:
        """Why the issuer has revoked this token, or "". A revoked key is not considered here."""
        listed, claims = self.issuer.revocations, self.claims
        return listed.revoked(claims.jti, claims.sub, claims.iat) if listed else ""


class JudgedToken(Struct, frozen=True):
    """Checks 1 to 5, and the inclusion in the log. `signed` is None unless the signature is good. `wants_keys_of` is
    the same member as in a report."""

    checks: tuple[Check, ...]
    moment: Moment
    signed: Signed | None
    inclusion: Inclusion | None = None
    wants_keys_of: str = ""


class _Parsed(Struct, frozen=True):
    jws: jose.UnverifiedJws
    claims: TokenClaims
    run: RunClaims
    kid: str


def judge_token(token: str, trust: Trust, found: Occurrence) -> JudgedToken:
    """Make checks 1 to 5 of a token at the place where it was found."""
    first, parsed = _well_formed(token)
    if parsed is None:
        return JudgedToken((first, *_resting((2, 3), 1), *_resting((4, 5), 3)), found.moment, None)
    issuer, now = trust.issuers.get(parsed.claims.iss), found.now
    held = _held(parsed, issuer)
    # The log comes before the key's window, because it may open the window. It is searched only for tokens with a good
    # signature.
    inclusion = None
    if issuer and held.signed:
        inclusion = found.search.find(parsed.claims, parsed.kid, parsed.jws.signing_input, issuer.log, now)
    moment = _moment(parsed, token, trust, found, inclusion)
    second = _key(parsed, issuer, held, moment, now)
    third = _signature(second, held)
    if issuer is None or third.status is not Status.PASS:
        wanted = issuer.issuer if issuer and second.status is Status.UNKNOWN and _outdated(parsed, issuer) else ""
        return JudgedToken((first, second, third, *_resting((4, 5), 3)), moment, None, wants_keys_of=wanted)
    signed = Signed(parsed.claims, parsed.run, parsed.kid, issuer, held.archived)
    last = _trusted(signed, trust), _fresh(signed, trust, moment, now)
    return JudgedToken((first, second, third, *last), moment, signed, inclusion)


def _moment(parsed: _Parsed, token: str, trust: Trust, found: Occurrence, inclusion: Inclusion | None) -> Moment:
    """Combine the evidence of the time: this party's own, its receipt for this entry, and the log's."""
    moment, claims = found.moment, parsed.claims
    if found.receipt is not None:
        subject = ReceiptSubject(
            found.repo, found.path, token_digest(token), claims.jti, claims.content_digest, parsed.kid
        )
        moment = moment.with_receipt(found.receipt, subject, trust, found.now)
    return moment.with_witnessed(inclusion.witnessed if inclusion else None, claims.exp)


def _resting(numbers: Iterable[int], other: int) -> tuple[Check, ...]:
    return tuple(rests_on(number, other) for number in numbers)


def _well_formed(token: str) -> tuple[Check, _Parsed | None]:  # (1)
    try:
        jws = jose.parse_compact(token)
        if jws.header.keys() != {"alg", "kid", "typ"} or set(map(type, jws.header.values())) != {str}:
            return check(1, Status.FAIL, "the header must have exactly the members alg, kid and typ, all text"), None
        if jws.header["typ"] != jose.TOKEN_TYPE:
            return check(1, Status.FAIL, f"typ is not {jose.TOKEN_TYPE}: a JWT of another kind"), None
        claims, run = read_unverified(jws.unverified_payload)
    except (FormatError, Refused) as error:
        fault = error.faults[0]
        where = f" at {fault.pointer}" if fault.pointer else ""
        return check(1, Status.FAIL, f"{fault.detail}{where}"), None
    return check(1, Status.PASS, f"{len(token)} bytes, version {claims.ver}"), _Parsed(
        jws, claims, run, str(jws.header["kid"])
    )


class _Held(Struct, frozen=True):
    """The key for the token's kid, from the current set (`current`) or the archive; the archive's member; and whether
    that key made the token's signature."""

    key: jose.Key | None = None
    current: bool = False
    archived: ArchivedKey | None = None
    signed: bool = False


def _held(parsed: _Parsed, issuer: TrustedIssuer | None) -> _Held:
    if issuer is None:
        return _Held()
    archived = issuer.archive.get(parsed.kid) if issuer.archive else None
    for key, current in ((issuer.keys and issuer.keys.get(parsed.kid), True), (archived and archived.key, False)):
        if key and jose.EDDSA_NAMES & key.algorithms:
            algorithm, signature = str(parsed.jws.header["alg"]), parsed.jws.signature
            signed = algorithm in jose.EDDSA_NAMES and key.verifies(algorithm, parsed.jws.signing_input, signature)
            return _Held(key, current, archived, signed)
    return _Held(archived=archived)


def _key(parsed: _Parsed, issuer: TrustedIssuer | None, held: _Held, moment: Moment, now: int) -> Check:  # (2)
    """Judge the key: it is in the current set, or in the archive with a window that covers the token and the moment."""
    if parsed.jws.header["alg"] not in jose.EDDSA_NAMES:
        return check(2, Status.FAIL, "the algorithm is not EdDSA (Ed25519)")
    if issuer is None:
        evidence = "no trusted issuer has this name"
        return check(2, Status.FAIL, evidence, token=parsed.claims.iss)
    if held.current:
        return check(2, Status.PASS, f"kid {parsed.kid}{_age(issuer, now)}")
    if held.key is not None and held.archived is not None:
        return _archived_key(parsed, issuer, held.archived, moment)
    if issuer.keys is None or issuer.archive is None:
        missing = "key set" if issuer.keys is None else "archive of keys"
        return check(2, Status.UNKNOWN, f"the {missing} of {issuer.issuer} is unavailable")
    if _outdated(parsed, issuer):
        evidence = f"no key at hand has this kid, but the keys of {issuer.issuer} may be older than the token"
        return check(2, Status.UNKNOWN, evidence, token=parsed.kid)
    if issuer.archive is UNSET and _may_have_retired(parsed, moment, now):
        evidence = "the key may have retired since, and the trust file names no archive of the issuer's keys"
        return check(2, Status.UNKNOWN, evidence, token=parsed.kid)
    return check(2, Status.FAIL, "no good Ed25519 key of the issuer's key set has this kid", token=parsed.kid)


def _outdated(parsed: _Parsed, issuer: TrustedIssuer) -> bool:
    """Say whether the keys at hand lack the token's key and may be older than the token, so that a newer set could have
    it."""
    has = any(keys and parsed.kid in keys for keys in (issuer.keys and issuer.keys.keys, issuer.archive))
    return not has and not issuer.confirmed_after(parsed.claims.iat)


def _may_have_retired(parsed: _Parsed, moment: Moment, now: int) -> bool:
    """Say whether the issuer may have removed the key as planned: it keeps a key until its last token has expired."""
    if moment.at_from == "receipt" or moment.unsure:
        return True
    received_late = moment.at_from == "clock" and moment.at > parsed.claims.exp
    return now > parsed.claims.exp and not received_late


def _archived_key(parsed: _Parsed, issuer: TrustedIssuer, archived: ArchivedKey, moment: Moment) -> Check:
    iat, at = parsed.claims.iat, moment.at
    issued = archived.covers(iat)
    # A token of a revoked key needs a time shown by a receipt or witnesses. Without one, check 5 fails for any time of
    # receipt.
    only_shown = archived.revoked_from is not None and moment.existed_at is None
    if issued and (only_shown or any(archived.covers(time, NOT_BEFORE_LEEWAY_S) for time in moment.times)):
        return check(2, Status.PASS, f"kid {parsed.kid}, from the archive")
    status = Status.UNKNOWN if issuer.keys is None else moment.late if issued else Status.FAIL
    end = "now" if archived.last_token_exp is None else show_time(archived.last_token_exp)
    used = f"the archived key was in use from {show_time(archived.active_from)} to {end}"
    evidence = f"{used}; issued at {show_time(iat)}, judged at {show_time(at)}"
    return check(2, status, evidence + moment.note)


def _age(issuer: TrustedIssuer, now: int) -> str:
    fetched = issuer.keys_fetched_at
    return "" if fetched is None else f", of the key set fetched {show_span(now - fetched)} ago"


def _signature(second: Check, held: _Held) -> Check:  # (3)
    if second.status is Status.UNKNOWN:
        return check(3, Status.UNKNOWN, "no key is available")
    if second.status is not Status.PASS:
        return rests_on(3, 2)
    if held.signed:
        return check(3, Status.PASS, "Ed25519, by that key")
    return check(3, Status.FAIL, "the signature does not match the token and the key")


def _trusted(signed: Signed, trust: Trust) -> Check:  # (4)
    framework, frameworks = signed.run.framework.name, signed.issuer.frameworks
    if frameworks is not None and framework not in frameworks:
        return check(4, Status.FAIL, "the issuer is not trusted to speak for this framework", token=framework)
    if signed.claims.aud != trust.audience:
        evidence = "the token is for another relying party"
        return check(4, Status.FAIL, evidence, token=signed.claims.aud, file=trust.audience)
    return _attempted(signed.claims, trust)


def _attempted(claims: TokenClaims, trust: Trust) -> Check:
    """Judge the attempt by the trust file. It does not depend on the time, so no receipt or log changes the result."""
    attempt, most = claims.attempt, trust.max_attempt
    for_us = f"{claims.iss}, for {claims.aud}"
    if most is None and "attempt" not in trust.require:
        return check(4, Status.PASS, for_us)
    if attempt is UNSET:
        if "attempt" in trust.require:
            return check(4, Status.FAIL, "the trust file requires an attempt, but the token states none")
        return check(4, Status.PASS, f"{for_us}; attempts were not counted")
    if most is not None and attempt.number > most:
        evidence = "more different results were signed for this run than the trust file allows"
        return check(4, Status.FAIL, evidence, token=f"attempt {attempt.shown}", file=f"at most {most}")
    return check(4, Status.PASS, f"{for_us}; attempt {attempt.shown}{f', of at most {most}' if most else ''}")


def _fresh(signed: Signed, trust: Trust, moment: Moment, now: int) -> Check:  # (5)
    claims, at = signed.claims, moment.at
    if refused := _revoked(signed, moment):
        return refused
    if (life := claims.exp - claims.iat) > trust.max_token_life_s:
        evidence = f"valid for {show_span(life)}; the trust file allows at most {show_span(trust.max_token_life_s)}"
        return check(5, Status.FAIL, evidence)
    # A time from the log is used only if the token has expired by now.
    if at < claims.nbf - NOT_BEFORE_LEEWAY_S and moment.at_from != "log":
        return check(5, Status.FAIL, f"becomes valid only in {show_span(claims.nbf - at)}{moment.note}")
    if at > claims.exp and moment.late is Status.FAIL:
        evidence = f"expired {show_span(at - claims.exp)} before the time it is judged at{_beside(moment)}"
        return check(5, Status.FAIL, evidence)
    if missing := _unknown_revocations(signed.issuer, now):
        return check(5, Status.UNKNOWN, missing)
    if at > claims.exp:
        return check(5, Status.UNKNOWN, f"{GOOD_WHEN_ISSUED}: it expired {show_span(at - claims.exp)} ago{moment.note}")
    return check(5, Status.PASS, f"{_when(claims, moment)}; revocations {_said(signed.issuer)}")


def _beside(moment: Moment) -> str:
    """Name the witnessed time, and say why it does not help a party that receives the file late."""
    if moment.witnessed is None:
        return moment.note
    return f"; the token existed at {show_time(moment.witnessed)}, but this file may have come later{moment.note}"


def _when(claims: TokenClaims, moment: Moment) -> str:
    if moment.at_from == "log":
        return f"existed at {show_time(moment.at)}; {NOT_KNOWN_HERE}"
    by = ", by a receipt" if moment.at_from == "receipt" else ""
    when = "judged" if moment.at_from == "unknown" else "received"
    side = "after" if moment.at >= claims.iat else "before"
    since, left = show_span(moment.at - claims.iat), show_span(claims.exp - moment.at)
    return f"{when} {since} {side} issue, {left} before expiry{by}"


def _revoked(signed: Signed, moment: Moment) -> Check | None:
    if reason := signed.revoked:
        return check(5, Status.FAIL, reason)
    revoked_from = signed.archived.revoked_from if signed.archived else None
    if revoked_from is None or (moment.existed_at is not None and moment.existed_at < revoked_from):
        return None
    # The thief of a key writes iat and the stated time, so they do not count here.
    evidence = (
        f"its key is revoked from {show_time(revoked_from)} on, and neither a receipt nor a witness "
        "of the log shows an earlier time"
    )
    return check(5, Status.UNKNOWN if moment.unsure else Status.FAIL, evidence + moment.note)


def _unknown_revocations(issuer: TrustedIssuer, now: int) -> str:
    """Return why it is unknown whether the token is revoked, or "" if it is known."""
    listed = issuer.revocations
    if listed is None or (listed and listed.held):
        return f"the revocation list of {issuer.issuer} is unavailable"
    if listed and listed.iat > now + NOT_BEFORE_LEEWAY_S:
        return f"the revocation list of {issuer.issuer} is dated {show_span(listed.iat - now)} in the future"
    if listed and now > listed.next_update:
        return f"the revocation list of {issuer.issuer} is {show_span(now - listed.next_update)} past its next update"
    if issuer.archive is None:
        return f"the archive of {issuer.issuer}, which lists revoked keys, is unavailable"
    return ""


def _said(issuer: TrustedIssuer) -> str:
    if issuer.revocations:
        return f"by list {issuer.revocations.number} of {show_time(issuer.revocations.iat)}"
    return "not published by the issuer" if issuer.unpublished else "not asked for"
