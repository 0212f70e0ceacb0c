"""The diagnosis of a caller's setup from its machine: the lines of `issuer doctor` and of `issuer check`.

    for line in examine(url, lambda: credential_here(url), int(time.time())):
        print(line.verdict, line.name, line.detail, line.next)

No token is signed, and no use is spent. `examine` asks about the caller without a run; this never counts as a refusal
of a registered caller. `preflight` asks about a run before it is made, with stand-ins for unknown values. A failed
check of a stand-in is only a warning here, but the issuer counts the refusal like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec import UNSET, Struct

from issuer.client.credential import Credential
from issuer.client.tokens import explain_caller, explain_request, fetch_keys
from issuer.codes import Code
from issuer.errors import FormatError, IssuerError, Refused, SetupError, Undecided, VerificationError
from issuer.formats import jose
from issuer.formats.findings import Line, failed
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import MAX_UNIX_S, show_span, show_when
from issuer.identity import pat
from issuer.identity.profiles import TOKEN_PREFIXES
from issuer.io.http_client import HttpAnswer, HttpRequest, NoAnswer, check_url, is_decided, send
from issuer.token.wire import METADATA_PATH, Explained, ShownCheck

PATIENCE_S = 10.0
# Relying parties tolerate a difference of 60 s between clocks; an issuer tolerates 30 s for a provider's clock.
MOST_SKEW_S = 30
DOUBTFUL_SKEW_S = 5
_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 16
_ANOTHER_URL = "Give the issuer's URL exactly as its operator publishes it."
_SET_THE_CLOCK = "Set this machine's clock, for example by NTP: the validity of tokens depends on it."


def examine(url: str, identity: Callable[[], Credential], now: int) -> Iterator[Line]:
    """Yield a line for each check; checks that depend on a failed one are omitted. `now` is Unix seconds. No token is
    requested, and no use of the identity is spent; the check of the registration counts as one request. Raises
    SetupError(`url.invalid`) for an invalid URL."""
    document, credential = yield from _look_at_both(url, identity)
    if not document or credential is None:
        return
    if claims := _claims_of(credential.bearer):
        fits = list(_fit(claims, document, now))
        yield from fits
        if any(line.verdict == "FAIL" for line in fits):
            return
    try:
        explained = explain_caller(url, credential, patience_s=PATIENCE_S)
    except IssuerError as error:
        yield _with_comparison("registered", error, credential, document)
    else:
        yield from _registered(explained)


def _look_at_both(
    url: str, identity: Callable[[], Credential]
) -> Generator[Line, None, tuple[bytes, Credential | None]]:
    """Yield the lines of issuer and identity; return the issuer's metadata and the credential, if available."""
    document, lines = _look_at_issuer(check_url(url))
    yield from lines
    try:
        credential = identity()
    except IssuerError as error:
        yield failed("identity", error)
        return document, None
    yield _identity(credential, _claims_of(credential.bearer))
    return document, credential


# -- the issuer --------------------------------------------------------------------------------------------------------


def _look_at_issuer(url: str) -> tuple[bytes, tuple[Line, ...]]:
    """Return an issuer's metadata, b"" if it is unavailable, and the lines `issuer`, `clock` and `keys`."""
    request = HttpRequest("GET", f"{url}{METADATA_PATH}", {"Accept": "application/json"}, max_bytes=_MAX_BYTES)
    before = time.time()
    try:
        answer = send(request, deadline_s=PATIENCE_S)
    except NoAnswer as error:
        return b"", (failed("issuer", error),)
    except Undecided as error:  # an answer that is larger than any issuer's metadata
        return b"", (failed("issuer", error, step=_ANOTHER_URL),)
    here = (before + time.time()) / 2
    line = _issuer(url, answer)
    if line.error is not None:
        return b"", (line, _clock(answer, here))
    return answer.body, (line, _clock(answer, here), _keys(url))


def _issuer(url: str, answer: HttpAnswer) -> Line:
    if answer.status >= 500 or not is_decided(answer):
        return failed("issuer", Undecided(Code.DEPENDENCY_SERVER, f"HTTP status {answer.status}"))
    name = _members(answer.body).get("issuer") if answer.status == 200 else None
    if not isinstance(name, str):
        error = Undecided(Code.DEPENDENCY_SERVER, f"the server is not an issuer (HTTP status {answer.status})")
        return failed("issuer", error, step=_ANOTHER_URL)
    if name != url:
        detail = f"its metadata and its tokens have another name, {name[:200]}"
        return failed("issuer", VerificationError(Code.ANSWER_UNVERIFIED, detail), step=_ANOTHER_URL)
    return Line("issuer", "pass", f"{url} answers, and publishes its metadata")


def _members(document: bytes) -> Mapping[str, JSON]:
    """Return the members of a JSON object; {} for anything else."""
    try:
        value = loads(document, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)
    except FormatError:
        return {}
    return value if isinstance(value, dict) else {}


def _clock(answer: HttpAnswer, here: float) -> Line:
    """Compare this machine's clock with the Date of an answer (RFC 9110 6.6.1), which is in whole seconds."""
    try:
        there = parsedate_to_datetime(answer.headers.get("date", ""))
        skew_s = round(here - there.replace(tzinfo=there.tzinfo or UTC).timestamp())
    except (TypeError, ValueError, OverflowError):
        return Line("clock", "warning", "the issuer's answer has no valid Date", "Check this machine's clock.")
    detail = f"{show_span(skew_s)} {'behind' if skew_s < 0 else 'ahead of'} the issuer's"
    if abs(skew_s) > MOST_SKEW_S:
        return failed("clock", SetupError(Code.MACHINE_FAILED, detail), step=_SET_THE_CLOCK)
    if abs(skew_s) > DOUBTFUL_SKEW_S:
        return Line("clock", "warning", detail, _SET_THE_CLOCK)
    return Line("clock", "pass", "as the issuer's")


def _keys(url: str) -> Line:
    try:
        count = len(fetch_keys(url, patience_s=PATIENCE_S).keys)
    except Undecided as error:
        return failed("keys", error)
    if not count:
        return failed("keys", Undecided(Code.DEPENDENCY_KEY_SET, "the issuer's key set is empty"))
    return Line("keys", "pass", f"{count} in its key set")


def _providers_in(document: bytes) -> list[Mapping[str, JSON]]:
    """Return the identity providers in an issuer's metadata."""
    listed = _members(document).get("identity_providers")
    return [provider for provider in listed if isinstance(provider, dict)] if isinstance(listed, list) else []


# -- the identity -----------------------------------------------------------------------------------------------------


def _claims_of(bearer: str) -> Mapping[str, JSON]:
    """Return the unverified claims of a JWT; {} for anything else."""
    try:
        return _members(jose.parse_compact(bearer).unverified_payload)
    except FormatError:
        return {}


def _identity(credential: Credential, claims: Mapping[str, JSON]) -> Line:
    kind = "an access token; each request has a nonce" if credential.reusable else "an identity token"
    if (public_id := pat.token_id(credential.bearer)) is not None:
        return Line("identity", "pass", f"the personal access token {public_id}")
    if isinstance(issuer := claims.get("iss"), str):
        return Line("identity", "pass", f"{kind} of {issuer[:200]}")
    return Line("identity", "pass", f"{kind}; only its provider can read it")


def _fit(claims: Mapping[str, JSON], document: bytes, now: int) -> Iterator[Line]:
    """Compare a token's provider, audience and expiry with the issuer's metadata."""
    providers = _providers_in(document)
    own = [provider for provider in providers if provider.get("issuer") == claims.get("iss")]
    if not own:
        names = " or ".join(str(provider.get("issuer"))[:200] for provider in providers) or "no provider"
        detail = f"the issuer does not accept this provider's tokens; it accepts {names}"
        yield failed("provider", Refused(Code.IDENTITY_ISSUER_UNKNOWN, detail))
        return
    yield Line("provider", "pass", f"{str(own[0].get('id'))[:100]}, which the issuer accepts")
    audience, wanted = claims.get("aud"), {str(provider["audience"]) for provider in own if "audience" in provider}
    listed = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    named = " and ".join(map(str, listed))
    if wanted and named not in wanted:
        requested = " or ".join(sorted(wanted))[:200]
        detail = f"the token's audience is {named[:200] or '(none)'}; the issuer requires {requested}"
        yield failed("audience", Refused(Code.IDENTITY_AUDIENCE_MISMATCH, detail))
    elif wanted:
        yield Line("audience", "pass", named[:200])
    ends = claims.get("exp")
    if type(ends) is int and 0 <= ends <= MAX_UNIX_S:
        if ends <= now:
            yield failed("life", Refused(Code.IDENTITY_EXPIRED, f"it ended {show_when(ends, now)}"))
        else:
            yield Line("life", "pass", f"it ends in {show_span(ends - now)}")


def _registered(explained: Explained) -> Iterator[Line]:
    """Yield the caller's registration, and each check of its standing that failed."""
    registration = f"{explained.integration}/{explained.identity}"
    failures = [check for check in explained.checks if not check.passed]
    for check in failures:
        yield _refused("registered", check, f"as {registration}, but {check.rule}: {check.actual}")
    if not failures:
        yield Line("registered", "pass", f"as {registration}")
    for warning in explained.warnings:
        yield Line("registered", "warning", warning)


# -- a refused identity, compared with the issuer's metadata -----------------------------------------------------------

COMPARED = frozenset({
    Code.IDENTITY_AUDIENCE_MISMATCH,
    Code.IDENTITY_ISSUER_UNKNOWN,
    Code.IDENTITY_EXPIRED,
    Code.IDENTITY_TOO_OLD,
    Code.IDENTITY_NOT_YET_VALID,
    Code.IDENTITY_LIFETIME_TOO_LONG,
})  # fmt: skip


def _with_comparison(name: str, error: IssuerError, credential: Credential, document: bytes) -> Line:
    error.compared = compare(error.code, credential.bearer, document, int(time.time()))
    more = "; ".join(f"{label}: {text}" for label, text in error.compared)
    return failed(name, error, detail=f"{error.detail} ({more})" if more else "")


def compare(code: Code, bearer: str, document: bytes, now: int) -> tuple[tuple[str, str], ...]:
    """Return `yours` and `wanted` for a refusal with one of the COMPARED codes; () if the token lacks the claims.

    To an unknown caller, an issuer reports only the failed rule (contract section 5). The comparison adds the values:
    it runs on the owner's machine, the issuer's providers are public, and only these claims of the token are shown.
    `document` is the issuer's /.well-known/eval-token-issuer, b"" if unavailable; `now` is Unix seconds.
    """
    claims, providers = _claims_of(bearer), _providers_in(document)
    issuers = " or ".join(_text(provider.get("issuer")) for provider in providers)
    if code is Code.IDENTITY_ISSUER_UNKNOWN and bearer.startswith(TOKEN_PREFIXES):
        prefix = next(prefix for prefix in TOKEN_PREFIXES if bearer.startswith(prefix))
        yours = ("yours", f"a token that begins with {prefix}")
        return (yours, ("wanted", f"one of {issuers}")) if issuers else (yours,)
    if code not in COMPARED or not claims:
        return ()
    provider = next((provider for provider in providers if provider.get("issuer") == claims.get("iss")), {})
    wanted = _wanted(code, issuers, provider)
    return (("yours", _yours(code, claims, now)), *((("wanted", wanted),) if wanted else ()))


def _yours(code: Code, claims: Mapping[str, JSON], now: int) -> str:
    issued, expires = f"issued {_time(claims.get('iat'), now)}", _time(claims.get("exp"), now)
    return {
        Code.IDENTITY_AUDIENCE_MISMATCH: f"aud {_text(claims.get('aud'))}",
        Code.IDENTITY_ISSUER_UNKNOWN: f"iss {_text(claims.get('iss'))}",
        Code.IDENTITY_EXPIRED: f"expired {expires}",
        Code.IDENTITY_LIFETIME_TOO_LONG: f"{issued}, expires {expires}",
    }.get(code, f"{issued}, not valid before {_time(claims.get('nbf'), now)}")


def _wanted(code: Code, issuers: str, provider: Mapping[str, JSON]) -> str:
    match code:
        case Code.IDENTITY_AUDIENCE_MISMATCH if "audience" in provider:
            return f"aud {_text(provider['audience'])}"
        case Code.IDENTITY_ISSUER_UNKNOWN if issuers:
            return f"iss {issuers}"
        case Code.IDENTITY_EXPIRED | Code.IDENTITY_NOT_YET_VALID:
            return "a token that is valid now"
        case Code.IDENTITY_TOO_OLD if "max_age_s" in provider:
            return f"issued at most {provider['max_age_s']} s ago"
        case Code.IDENTITY_LIFETIME_TOO_LONG if "max_lifetime_s" in provider:
            return f"a life of at most {provider['max_lifetime_s']} s"
    return ""


def _text(value: object) -> str:
    """Return a claim's text for display, or its first four texts if it is a list."""
    if isinstance(value, list):
        return " and ".join(map(_text, value[:4]))
    return value[:300] if isinstance(value, str) and value else "(none)"


def _time(value: JSON, now: int) -> str:
    return show_when(value, now) if type(value) is int and 0 <= value < MAX_UNIX_S else "(none)"


# -- a run before it is made -------------------------------------------------------------------------------------------

# The members of the claims, by the name of their option, and their stand-ins.
STAND_INS: dict[str, JSON] = {
    "model_repo": "stand-in/model", "model_revision": "0" * 40, "benchmark_repo": "stand-in/benchmark",
    "benchmark_revision": "0" * 40, "task_id": "stand-in", "framework_name": "stand-in", "framework_version": "0",
    "command": "stand-in",
}  # fmt: skip
_SUBJECTS = {
    Code.POLICY_FRAMEWORK: "framework", Code.POLICY_VERSION: "version", Code.POLICY_BENCHMARK: "benchmark",
    Code.POLICY_MODEL: "model", Code.POLICY_TASK: "task", Code.POLICY_METRIC: "metrics", Code.POLICY_COMMAND: "command",
    Code.POLICY_AUDIENCE: "audience",
}  # fmt: skip
_SAY = "Give the known values: --framework-name, --benchmark-repo, --task-id, --model-repo, --metric-id."


class PreflightQuestion(Struct, frozen=True):
    """A question about a run before it is made. `known` has the known members of STAND_INS by name."""

    issuer: str
    identity: Callable[[], Credential]
    known: Mapping[str, str]
    metric_ids: Sequence[str] = ()
    integration: str | None = None
    audience: str | None = None

    @property
    def of_caller(self) -> bool:
        """Whether only the caller is known."""
        return not (self.known or self.metric_ids or self.integration or self.audience)

    def ask(self, credential: Credential) -> Explained:
        """Ask the issuer. Raises as `tokens.explain_request` does."""
        if self.of_caller:
            return explain_caller(self.issuer, credential, patience_s=PATIENCE_S)
        return explain_request(self.issuer, credential, _body(self), patience_s=PATIENCE_S)


def preflight(question: PreflightQuestion) -> Iterator[Line]:
    """Yield lines for issuer, keys, clock, identity, and each decision of the policy. Raises SetupError for a bad
    URL."""
    document, credential = yield from _look_at_both(question.issuer, question.identity)
    if not document or credential is None:
        return
    try:
        explained = question.ask(credential)
    except (Refused, Undecided) as error:
        of_caller = isinstance(error, Undecided) or error.code.meaning.status in {401, 403, 409, 429}
        yield _with_comparison("registered" if of_caller else "run", error, credential, document)
        return
    yield from _explained(explained, question)
    if question.of_caller:
        yield Line("run", "warning", "not checked, because no value of the run was given", _SAY)


def _body(question: PreflightQuestion) -> dict[str, JSON]:
    members = {**STAND_INS, **question.known}
    framework: dict[str, JSON] = {
        "name": members.pop("framework_name"), "version": members.pop("framework_version"),
        "command": members.pop("command"),
    }  # fmt: skip
    metrics: list[JSON] = [{"metric_id": name, "value": 0} for name in question.metric_ids or ("stand-in",)]
    terms = {"integration": question.integration, "audience": question.audience}
    return {
        "claims": {**members, "framework": framework, "metrics": metrics},
        **{name: text for name, text in terms.items() if text},
    }


def _explained(explained: Explained, question: PreflightQuestion) -> Iterator[Line]:
    """Yield lines for the caller's registration and for each subject of its policy."""
    registration = f"{explained.integration}/{explained.identity}"
    of_caller = [check for check in explained.checks if Code.named(check.code) not in _SUBJECTS]
    failure = next((check for check in of_caller if not check.passed), None)
    if failure is None:
        yield Line("registered", "pass", f"as {registration}")
    else:
        yield _refused("registered", failure, f"as {registration}, but {failure.actual}")
    framework = all(check.passed for check in explained.checks if check.code == Code.POLICY_FRAMEWORK)
    for code, name in _SUBJECTS.items():
        checks = [check for check in explained.checks if check.code == code]
        if (code is Code.POLICY_AUDIENCE and not question.audience) or (code is Code.POLICY_VERSION and not framework):
            continue  # a refused framework has no granted version
        if checks:
            yield _line(name, checks, question)
    if explained.ttl_s is not UNSET:
        yield Line("tokens", "pass", f"for {explained.audience}, valid for {show_span(explained.ttl_s)}")
    for warning in explained.warnings:
        yield Line("registered", "warning", warning)


def _line(name: str, checks: Sequence[ShownCheck], question: PreflightQuestion) -> Line:
    """Return the line of one subject. A refusal fails only if the refused value is known, not a stand-in."""
    refused = [check for check in checks if not check.passed]
    if not refused:
        any_unknown = any(_stand_in(check, question) for check in checks)
        return Line(name, "pass", "any value, as far as a stand-in shows" if any_unknown else checks[0].actual)
    known = next((check for check in refused if not _stand_in(check, question)), None)
    if known is not None:
        return _refused(name, known, known.actual)
    flag = "--" + (_stand_in(refused[0], question) or "").replace("_", "-")
    return Line(
        name, "warning", "not known yet, and the policy does not grant every value", f"Give {flag} to check it."
    )


def _stand_in(check: ShownCheck, question: PreflightQuestion) -> str | None:
    """Return the member of the question that a check is about, if its value is a stand-in; None if it is known."""
    place = check.pointer.removeprefix("/claims/").replace("framework/command", "command").replace("/", "_")
    if place.startswith("metrics"):
        return None if question.metric_ids else "metric_id"
    place = "framework_name" if place == "framework" else place
    if place == "framework_version" and "framework_name" not in question.known:
        place = "framework_name"
    return place if place in STAND_INS and place not in question.known else None


def _refused(name: str, check: ShownCheck, detail: str) -> Line:
    wanted = f"; wanted: {check.expected}" if check.expected else ""
    error = Refused(Code.named(check.code) or Code.INTERNAL, detail)
    return failed(name, error, detail=f"{detail}{wanted}", step=check.hint)
