"""What may keep a caller from a token: the issuer, the clock, its keys, the identity and its standing, seen from here.

    for line in examine(url, lambda: credential_here(url), int(time.time())):
        print(line.verdict, line.name, line.detail, line.next)

Of a run nothing is known here: the issuer is asked of the caller alone, which never counts as a refusal of one that is
registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from issuer.client.compare import COMPARED, compare
from issuer.client.credential import Credential
from issuer.client.looks import PATIENCE_S, Found, look_at_issuer, look_at_keys, providers_in
from issuer.client.tokens import explain_caller
from issuer.codes import Code
from issuer.diagnosis import Line, failed
from issuer.errors import FormatError, IssuerError, Refused
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import MAX_UNIX_S, show_span, show_when
from issuer.http_client import check_url
from issuer.identity import pat
from issuer.wire import Explained

_MAX_DEPTH = 16


def examine(url: str, identity: Callable[[], Credential], now: int) -> Iterator[Line]:
    """Yield a line for each thing that was looked at; what rests on a FAIL is left out. `now` is Unix seconds.

    No token is asked for and no use of the identity spent; the question of the standing costs one request of its rate.
    Raises SetupError(`url.invalid`) for a URL that cannot be asked.
    """
    url = check_url(url)
    found, lines = look_at_issuer(url)
    yield from lines
    if found.metadata:
        yield look_at_keys(url)
    try:
        credential = identity()
    except IssuerError as error:
        yield failed("identity", error)
        return
    claims = _claims_of(credential)
    yield _identity(credential, claims)
    if not found.metadata:
        return
    if claims:
        said = list(_fit(claims, found, now))
        yield from said
        if any(line.verdict == "FAIL" for line in said):
            return
    yield from _standing(url, credential, found, now)


# -- the identity -----------------------------------------------------------------------------------------------------


def _claims_of(credential: Credential) -> Mapping[str, JSON]:
    """Return the claims of a JWT, unverified; {} of anything else."""
    try:
        payload = jose.parse_compact(credential.bearer).unverified_payload
        claims = loads(payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=_MAX_DEPTH)
    except FormatError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _identity(credential: Credential, claims: Mapping[str, JSON]) -> Line:
    kind = "an access token, whose requests each have a nonce" if credential.reusable else "an identity token"
    if (public_id := pat.token_id(credential.bearer)) is not None:
        return Line("identity", "pass", f"the personal access token {public_id}")
    if isinstance(issuer := claims.get("iss"), str):
        return Line("identity", "pass", f"{kind} of {issuer[:200]}")
    return Line("identity", "pass", f"{kind}; what it says only its issuer can read")


def _fit(claims: Mapping[str, JSON], found: Found, now: int) -> Iterator[Line]:
    """Look whether a token's provider, audience and times are those that the issuer publishes."""
    providers = list(providers_in(found))
    own = [one for one in providers if one.get("issuer") == claims.get("iss")]
    if not own:
        names = " or ".join(str(one.get("issuer"))[:200] for one in providers) or "none"
        error = Refused(Code.IDENTITY_ISSUER_UNKNOWN, f"the issuer takes no tokens of this provider; it takes {names}")
        yield failed("provider", error)
        return
    yield Line("provider", "pass", f"{str(own[0].get('id'))[:100]}, which the issuer takes")
    audience, wanted = claims.get("aud"), {str(one["audience"]) for one in own if "audience" in one}
    named = (
        audience
        if isinstance(audience, str)
        else " and ".join(map(str, audience))
        if isinstance(audience, list)
        else ""
    )
    if wanted and named not in wanted:
        detail = f"the token is for {named[:200] or 'nobody'}; the issuer wants {' or '.join(sorted(wanted))[:200]}"
        yield failed("audience", Refused(Code.IDENTITY_AUDIENCE_MISMATCH, detail))
    elif wanted:
        yield Line("audience", "pass", named[:200])
    ends = claims.get("exp")
    if type(ends) is int and 0 <= ends <= MAX_UNIX_S:
        if ends <= now:
            error = Refused(Code.IDENTITY_EXPIRED, f"it ended {show_when(ends, now)}")
            yield failed("life", error)
        else:
            yield Line("life", "pass", f"it ends in {show_span(ends - now)}")


# -- the standing -----------------------------------------------------------------------------------------------------


def _standing(url: str, credential: Credential, found: Found, now: int) -> Iterator[Line]:
    try:
        explained = explain_caller(url, credential, patience_s=PATIENCE_S)
    except IssuerError as error:
        if error.code in COMPARED:
            error.compared = compare(error.code, credential.bearer, found.document, now)
        more = "; ".join(f"{label}: {text}" for label, text in error.compared)
        yield failed("registered", error, detail=f"{error.detail} ({more})" if more else "")
        return
    yield from _registered(explained)


def _registered(explained: Explained) -> Iterator[Line]:
    """Say who the issuer takes the caller for, and what it holds against the caller."""
    who = f"{explained.integration}/{explained.identity}"
    against = [check for check in explained.checks if not check.passed]
    for check in against:
        code = Code.named(check.code) or Code.INTERNAL
        wanted = f", wanted {check.expected}" if check.expected else ""
        error = Refused(code, f"as {who}, but {check.rule}: {check.actual}{wanted}")
        yield failed("registered", error, step=check.hint)
    if not against:
        yield Line("registered", "pass", f"as {who}")
    for warning in explained.warnings:
        yield Line("registered", "warning", warning)
