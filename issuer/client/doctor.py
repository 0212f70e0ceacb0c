"""What may keep a caller from a token, seen from its machine: the lines of `issuer doctor` and of `issuer check`.

    for line in examine(url, lambda: credential_here(url), int(time.time())):
        print(line.verdict, line.name, line.detail, line.next)

Nothing is signed or used up. `examine` knows no run: it asks of the caller alone, which never counts as a refusal of a
registered one. `preflight` asks of a run before it is made. A stand-in takes the place of what is not known yet; what
the issuer says of a stand-in is a warning at most, and its refusal counts as any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
# A relying party lets a clock differ by a minute, an issuer that of a provider by half of one.
MOST_SKEW_S = 30
DOUBTFUL_SKEW_S = 5
_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 16
_ANOTHER_URL = "Give the issuer's own URL, as its operator publishes it."
_SET_THE_CLOCK = "Set this machine's clock, by NTP: tokens are good by the clock."


def examine(url: str, identity: Callable[[], Credential], now: int) -> Iterator[Line]:
    """Yield a line for each thing that was looked at; what rests on a FAIL is left out. `now` is Unix seconds. No token
    is asked for and no use of the identity spent; the question of the standing costs one request of its rate. Raises
    SetupError(`url.invalid`) for a URL that cannot be asked."""
    document, lines = _look_at_issuer(url := check_url(url))
    yield from lines
    try:
        credential = identity()
    except IssuerError as error:
        yield failed("identity", error)
        return
    claims = _claims_of(credential.bearer)
    yield _identity(credential, claims)
    if not document:
        return
    if claims:
        said = list(_fit(claims, document, now))
        yield from said
        if any(line.verdict == "FAIL" for line in said):
            return
    try:
        explained = explain_caller(url, credential, patience_s=PATIENCE_S)
    except IssuerError as error:
        yield _with_comparison("registered", error, credential, document)
    else:
        yield from _registered(explained)


# -- the issuer --------------------------------------------------------------------------------------------------------


def _look_at_issuer(url: str) -> tuple[bytes, tuple[Line, ...]]:
    """Ask an issuer who it is: its metadata, b"" where unavailable, and the lines `issuer`, `clock` and `keys`."""
    request = HttpRequest("GET", f"{url}{METADATA_PATH}", {"Accept": "application/json"}, max_bytes=_MAX_BYTES)
    before = time.time()
    try:
        answer = send(request, deadline_s=PATIENCE_S)
    except NoAnswer as error:
        return b"", (failed("issuer", error),)
    except Undecided as error:  # an answer, and more of it than any issuer has to say
        return b"", (failed("issuer", error, step=_ANOTHER_URL),)
    here = (before + time.time()) / 2
    line = _issuer(url, answer)
    if line.error is not None:
        return b"", (line, _clock(answer, here))
    return answer.body, (line, _clock(answer, here), _keys(url))


def _issuer(url: str, answer: HttpAnswer) -> Line:
    if answer.status >= 500 or not is_decided(answer):
        return failed("issuer", Undecided(Code.DEPENDENCY_SERVER, f"HTTP status {answer.status}"))
    said = _members(answer.body) if answer.status == 200 else {}
    if not isinstance(said.get("issuer"), str):
        error = Undecided(Code.DEPENDENCY_SERVER, f"what answers is no issuer (HTTP status {answer.status})")
        return failed("issuer", error, step=_ANOTHER_URL)
    if said["issuer"] != url:
        detail = f"it calls itself {str(said['issuer'])[:200]}, and its tokens are of that name"
        return failed("issuer", VerificationError(Code.ANSWER_UNVERIFIED, detail), step=_ANOTHER_URL)
    return Line("issuer", "pass", f"{url} answers, and publishes its metadata")


def _members(document: bytes) -> Mapping[str, JSON]:
    """Read a JSON object; {} for anything else."""
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
        unsaid = "the issuer does not say what time it is there"
        return Line("clock", "warning", unsaid, "Look at this machine's clock.")
    detail = f"{show_span(skew_s)} {'behind' if skew_s < 0 else 'ahead of'} the issuer's"
    if abs(skew_s) > MOST_SKEW_S:
        return failed("clock", SetupError(Code.MACHINE_FAILED, detail), step=_SET_THE_CLOCK)
    if abs(skew_s) > DOUBTFUL_SKEW_S:
        return Line("clock", "warning", detail, _SET_THE_CLOCK)
    return Line("clock", "pass", "as the issuer's")


def _keys(url: str) -> Line:
    """Fetch the key set with which an issuer's answers are checked."""
    try:
        count = len(fetch_keys(url, patience_s=PATIENCE_S).keys)
    except Undecided as error:
        return failed("keys", error)
    if not count:
        return failed("keys", Undecided(Code.DEPENDENCY_KEY_SET, "the issuer's key set has no key"))
    return Line("keys", "pass", f"{count} in its key set")


def _providers_in(document: bytes) -> list[Mapping[str, JSON]]:
    """Return the identity providers that an issuer says it takes, each as it describes it."""
    listed = _members(document).get("identity_providers")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


# -- the identity -----------------------------------------------------------------------------------------------------


def _claims_of(bearer: str) -> Mapping[str, JSON]:
    """Return the claims of a JWT, unverified; {} of anything else."""
    try:
        return _members(jose.parse_compact(bearer).unverified_payload)
    except FormatError:
        return {}


def _identity(credential: Credential, claims: Mapping[str, JSON]) -> Line:
    kind = "an access token, whose requests each have a nonce" if credential.reusable else "an identity token"
    if (public_id := pat.token_id(credential.bearer)) is not None:
        return Line("identity", "pass", f"the personal access token {public_id}")
    if isinstance(issuer := claims.get("iss"), str):
        return Line("identity", "pass", f"{kind} of {issuer[:200]}")
    return Line("identity", "pass", f"{kind}; what it says only its issuer can read")


def _fit(claims: Mapping[str, JSON], document: bytes, now: int) -> Iterator[Line]:
    """Look whether a token's provider, audience and times are those that the issuer publishes."""
    providers = _providers_in(document)
    own = [one for one in providers if one.get("issuer") == claims.get("iss")]
    if not own:
        names = " or ".join(str(one.get("issuer"))[:200] for one in providers) or "none"
        error = Refused(Code.IDENTITY_ISSUER_UNKNOWN, f"the issuer takes no tokens of this provider; it takes {names}")
        yield failed("provider", error)
        return
    yield Line("provider", "pass", f"{str(own[0].get('id'))[:100]}, which the issuer takes")
    audience, wanted = claims.get("aud"), {str(one["audience"]) for one in own if "audience" in one}
    listed = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    named = " and ".join(map(str, listed))
    if wanted and named not in wanted:
        detail = f"the token is for {named[:200] or 'nobody'}; the issuer wants {' or '.join(sorted(wanted))[:200]}"
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
    """Say who the issuer takes the caller for, and what it holds against the caller."""
    who = f"{explained.integration}/{explained.identity}"
    against = [check for check in explained.checks if not check.passed]
    for check in against:
        wanted = f", wanted {check.expected}" if check.expected else ""
        error = Refused(Code.named(check.code) or Code.INTERNAL, f"as {who}, but {check.rule}: {check.actual}{wanted}")
        yield failed("registered", error, step=check.hint)
    if not against:
        yield Line("registered", "pass", f"as {who}")
    for warning in explained.warnings:
        yield Line("registered", "warning", warning)


# -- a refused identity, beside what the issuer wants ------------------------------------------------------------------

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
    """Return `yours` and `wanted` for a refusal with one of the COMPARED codes; () where the token says nothing of it.
    An issuer tells an unknown caller only which rule failed (contract section 5). The token is its owner's, and the
    issuer's providers are public: of the token, only these claims are shown. `document` is the issuer's
    /.well-known/eval-token-issuer, b"" where unavailable; `now` is Unix seconds."""
    claims, providers = _claims_of(bearer), _providers_in(document)
    if code is Code.IDENTITY_ISSUER_UNKNOWN and bearer.startswith(TOKEN_PREFIXES):
        prefix = next(prefix for prefix in TOKEN_PREFIXES if bearer.startswith(prefix))
        listed = " or ".join(_text(one.get("issuer")) for one in providers)
        return (("yours", f"a token that begins with {prefix}"), *((("wanted", f"one of {listed}"),) if listed else ()))
    if code not in COMPARED or not claims:
        return ()
    provider = next((one for one in providers if one.get("issuer") == claims.get("iss")), {})
    wanted = _wanted(code, providers, provider)
    return (("yours", _yours(code, claims, now)), *((("wanted", wanted),) if wanted else ()))


def _yours(code: Code, claims: Mapping[str, JSON], now: int) -> str:
    match code:
        case Code.IDENTITY_AUDIENCE_MISMATCH:
            return f"aud {_text(claims.get('aud'))}"
        case Code.IDENTITY_ISSUER_UNKNOWN:
            return f"iss {_text(claims.get('iss'))}"
        case Code.IDENTITY_EXPIRED:
            return f"expired {_time(claims.get('exp'), now)}"
        case Code.IDENTITY_LIFETIME_TOO_LONG:
            return f"issued {_time(claims.get('iat'), now)}, expires {_time(claims.get('exp'), now)}"
        case _:
            return f"issued {_time(claims.get('iat'), now)}, not valid before {_time(claims.get('nbf'), now)}"


def _wanted(code: Code, providers: Sequence[Mapping[str, JSON]], provider: Mapping[str, JSON]) -> str:
    match code:
        case Code.IDENTITY_AUDIENCE_MISMATCH:
            return f"aud {_text(provider.get('audience'))}" if "audience" in provider else ""
        case Code.IDENTITY_ISSUER_UNKNOWN:
            return f"iss {' or '.join(_text(one.get('issuer')) for one in providers)}" if providers else ""
        case Code.IDENTITY_EXPIRED | Code.IDENTITY_NOT_YET_VALID:
            return "a token that is valid now"
        case Code.IDENTITY_TOO_OLD:
            return f"issued at most {provider['max_age_s']} s ago" if "max_age_s" in provider else ""
        case _:
            return f"a life of at most {provider['max_lifetime_s']} s" if "max_lifetime_s" in provider else ""


def _text(value: object) -> str:
    """Show a claim: text as it is, several as a list."""
    if isinstance(value, list):
        return " and ".join(map(_text, value[:4]))
    return value[:300] if isinstance(value, str) and value else "(none)"


def _time(value: JSON, now: int) -> str:
    return show_when(value, now) if type(value) is int and 0 <= value < MAX_UNIX_S else "(none)"


# -- a run that is not made yet ----------------------------------------------------------------------------------------

# The member of the claims at which a check of a policy points, as its owner names it, and what stands in for it.
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
_SAY = "Give what is known already: --framework-name, --benchmark-repo, --task-id, --model-repo, --metric-id."


class PreflightQuestion(Struct, frozen=True):
    """What is known before the run: members of STAND_INS by their names, and metric ids."""

    issuer: str
    identity: Callable[[], Credential]
    known: Mapping[str, str]
    metric_ids: Sequence[str] = ()
    integration: str | None = None
    audience: str | None = None

    @property
    def of_caller(self) -> bool:
        """Whether nothing is known but the caller."""
        return not (self.known or self.metric_ids or self.integration or self.audience)

    def ask(self, credential: Credential) -> Explained:
        """Ask the issuer. Raises as `tokens.explain_request` does."""
        if self.of_caller:
            return explain_caller(self.issuer, credential, patience_s=PATIENCE_S)
        return explain_request(self.issuer, credential, _body(self), patience_s=PATIENCE_S)


def preflight(question: PreflightQuestion) -> Iterator[Line]:
    """Look at the issuer, its keys, the clock, the identity, and what its policy would decide. Raises SetupError for a
    URL that cannot be asked."""
    document, lines = _look_at_issuer(check_url(question.issuer))
    yield from lines
    try:
        credential = question.identity()
    except IssuerError as error:
        yield failed("identity", error)
        return
    yield _identity(credential, _claims_of(credential.bearer))
    if document:
        yield from _decisions(question, credential, document)


def _decisions(question: PreflightQuestion, credential: Credential, document: bytes) -> Iterator[Line]:
    try:
        explained = question.ask(credential)
    except (Refused, Undecided) as error:
        of_caller = isinstance(error, Undecided) or error.code.meaning.status in {401, 403, 409, 429}
        yield _with_comparison("registered" if of_caller else "run", error, credential, document)
        return
    yield from _explained(explained, question)
    if question.of_caller:
        yield Line("run", "warning", "nothing of it is said, so nothing was asked about it", _SAY)


def _body(question: PreflightQuestion) -> dict[str, JSON]:
    said = {**STAND_INS, **question.known}
    framework: dict[str, JSON] = {
        "name": said.pop("framework_name"), "version": said.pop("framework_version"), "command": said.pop("command"),
    }  # fmt: skip
    metrics: list[JSON] = [{"metric_id": name, "value": 0} for name in question.metric_ids or ("stand-in",)]
    named = {"integration": question.integration, "audience": question.audience}
    return {
        "claims": {**said, "framework": framework, "metrics": metrics},
        **{name: text for name, text in named.items() if text},
    }


def _explained(explained: Explained, question: PreflightQuestion) -> Iterator[Line]:
    """Turn what an issuer explained into lines: who it takes the caller for, and each subject of its policy."""
    of_caller = [check for check in explained.checks if Code.named(check.code) not in _SUBJECTS]
    who = f"{explained.integration}/{explained.identity}"
    against = next((check for check in of_caller if not check.passed), None)
    if against is None:
        yield Line("registered", "pass", f"as {who}")
    else:
        yield _refused("registered", against, f"as {who}, but {against.actual}")
    framework = all(check.passed for check in explained.checks if check.code == Code.POLICY_FRAMEWORK)
    for code, name in _SUBJECTS.items():
        checks = [check for check in explained.checks if check.code == code]
        if (code is Code.POLICY_AUDIENCE and not question.audience) or (code is Code.POLICY_VERSION and not framework):
            continue  # of a framework that is not granted no version is
        if checks:
            yield _line(name, checks, question)
    if explained.ttl_s is not UNSET:
        yield Line("tokens", "pass", f"for {explained.audience}, good for {show_span(explained.ttl_s)}")
    for warning in explained.warnings:
        yield Line("registered", "warning", warning)


def _line(name: str, checks: Sequence[ShownCheck], question: PreflightQuestion) -> Line:
    """Judge one subject: a refusal counts where what was refused is known."""
    refused = [check for check in checks if not check.passed]
    unknown = [member for check in checks if (member := _member(check, question))]
    if not refused:
        return Line(name, "pass", "whatever it is, as far as a stand-in shows" if unknown else checks[0].actual)
    told = next((check for check in refused if not _member(check, question)), None)
    if told is not None:
        return _refused(name, told, told.actual)
    flag = "--" + (_member(refused[0], question) or "").replace("_", "-")
    return Line(name, "warning", "not known yet, and not everything is granted", f"Give {flag} to know.")


def _member(check: ShownCheck, question: PreflightQuestion) -> str | None:
    """Return what of the question a check is about, where that is a stand-in; None where it is known."""
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
