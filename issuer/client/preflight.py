"""Would a submission from here go through? Asked before an evaluation that takes hours, and using nothing up.

Each line is a pass, a warning or a FAIL, with what to do next. What is not known before the run stands in the question
as a stand-in, and what the issuer says of a stand-in is no more than a warning. Where nothing is known it is asked of
the caller alone: a stand-in that is refused counts against the identity, as any refused request does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import UNSET, Struct

from issuer.client.compare import compare
from issuer.client.credential import Credential
from issuer.client.looks import PATIENCE_S, look_at_issuer, look_at_keys
from issuer.client.tokens import explain_caller, explain_request
from issuer.codes import Code
from issuer.diagnosis import Line, failed
from issuer.errors import FormatError, Refused, SetupError, Undecided
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import show_span
from issuer.http_client import check_url
from issuer.wire import Explained, ShownCheck

_MAX_DEPTH = 16
# The member of the claims at which a check of a policy points, as its owner names it, and what stands in for it.
STAND_INS: dict[str, JSON] = {
    "model_repo": "stand-in/model",
    "model_revision": "0" * 40,
    "benchmark_repo": "stand-in/benchmark",
    "benchmark_revision": "0" * 40,
    "task_id": "stand-in",
    "framework_name": "stand-in",
    "framework_version": "0",
    "command": "stand-in",
}
_SUBJECTS = {
    Code.POLICY_FRAMEWORK: "framework",
    Code.POLICY_VERSION: "version",
    Code.POLICY_BENCHMARK: "benchmark",
    Code.POLICY_MODEL: "model",
    Code.POLICY_TASK: "task",
    Code.POLICY_METRIC: "metrics",
    Code.POLICY_COMMAND: "command",
    Code.POLICY_AUDIENCE: "audience",
}


_SAY = "Give what is known already: --framework-name, --benchmark-repo, --task-id, --model-repo, --metric-id."


class Question(Struct, frozen=True):
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


def preflight(question: Question) -> Iterator[Line]:
    """Look at the issuer, its keys, the clock, the identity, and what its policy would decide. Raises SetupError for a
    URL that cannot be asked."""
    url = check_url(question.issuer)
    found, lines = look_at_issuer(url)
    yield from lines
    if found.metadata:
        yield look_at_keys(url)
    yield from _caller(question, found.document)


def _caller(question: Question, document: bytes) -> Iterator[Line]:
    """Look at the identity, and at what the issuer says of it; `document` is its metadata, b"" where it has none."""
    try:
        credential = question.identity()
    except (SetupError, Undecided) as error:
        yield failed("identity", error)
        return
    yield _identity(credential)
    if document:
        yield from _decisions(question, credential, document)


def _identity(credential: Credential) -> Line:
    kind = "an access token, for which each request has a nonce" if credential.reusable else "an identity token"
    try:
        claims = loads(
            jose.parse_compact(credential.bearer).unverified_payload,
            max_bytes=jose.MAX_TOKEN_BYTES,
            max_depth=_MAX_DEPTH,
        )
    except FormatError:
        claims = None
    said = claims.get("iss") if isinstance(claims, dict) else None
    return Line("identity", "pass", f"{kind}{f' of {said[:200]}' if isinstance(said, str) else ''}")


def _decisions(question: Question, credential: Credential, document: bytes) -> Iterator[Line]:
    try:
        explained = question.ask(credential)
    except Refused as refused:
        refused.compared = compare(refused.code, credential.bearer, document, int(time.time()))
        name = "registered" if refused.code.meaning.status in {401, 403, 409, 429} else "run"
        more = "; ".join(f"{label}: {text}" for label, text in refused.compared)
        yield failed(name, refused, detail=f"{refused.detail}{f' ({more})' if more else ''}")
        return
    except Undecided as error:
        yield failed("registered", error)
        return
    yield from lines_of(explained, question)
    if question.of_caller:
        yield Line("run", "warning", "nothing of it is said, so nothing was asked about it", _SAY)


def _body(question: Question) -> dict[str, JSON]:
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


def lines_of(explained: Explained, question: Question) -> Iterator[Line]:
    """Turn what an issuer explained into lines: who it takes the caller for, and each subject of its policy. Pure."""
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


def _line(name: str, checks: Sequence[ShownCheck], question: Question) -> Line:
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


def _member(check: ShownCheck, question: Question) -> str | None:
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
