"""Would a submission from here go through? Asked before an evaluation that takes hours, and using nothing up.

Each line is a pass, a warning or a FAIL, with what to do next. What is not known before the run stands in the question
as a stand-in, and what the issuer says of a stand-in is no more than a warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from msgspec import UNSET, Struct

from issuer.client.compare import compare
from issuer.client.credential import Credential
from issuer.client.tokens import explain_request, fetch_keys
from issuer.codes import Code
from issuer.errors import FormatError, IssuerError, Refused, SetupError, Undecided, VerificationError
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.times import show_span
from issuer.http_client import HttpAnswer, HttpRequest, check_url, send
from issuer.wire import METADATA_PATH, Explained, ShownCheck

Verdict = Literal["pass", "warning", "FAIL"]

MOST_SKEW_S = 60  # a token says when it was issued; everybody takes a minute of difference, and no more
DOUBTFUL_SKEW_S = 5
_MAX_BYTES = 256 * 1024
_MAX_DEPTH = 16
_ASK_S = 10.0
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


class Line(Struct, frozen=True):
    """One thing that was looked at. What did not pass has a `code`, the `next` step, and the error of a FAIL."""

    name: str
    verdict: Verdict
    detail: str
    code: str = ""
    next: str = ""
    error: IssuerError | None = None


class Question(Struct, frozen=True):
    """What is known before the run: members of STAND_INS by their names, and metric ids."""

    issuer: str
    identity: Callable[[], Credential]
    known: Mapping[str, str]
    metric_ids: Sequence[str] = ()
    integration: str | None = None
    audience: str | None = None


def preflight(question: Question) -> Iterator[Line]:
    """Look at the issuer, its keys, the clock, the identity, and what its policy would decide. Raises SetupError for a
    URL that cannot be asked."""
    url = check_url(question.issuer)
    try:
        before = time.time()
        answer = send(HttpRequest("GET", f"{url}{METADATA_PATH}"), deadline_s=_ASK_S)
        now = (before + time.time()) / 2
    except Undecided as error:
        yield _failed("issuer", error)
        yield from _caller(question, b"")
        return
    found = _issuer(url, answer)
    yield found
    if found.error is None:
        yield _clock(answer, now)
        yield _keys(url)
    yield from _caller(question, b"" if found.error else answer.body)


def _failed(name: str, error: IssuerError, detail: str = "") -> Line:
    return Line(name, "FAIL", detail or error.detail, str(error.code), error.code.meaning.remedy, error)


# -- the issuer -------------------------------------------------------------------------------------------------------


def _issuer(url: str, answer: HttpAnswer) -> Line:
    try:
        said = loads(answer.body, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH) if answer.status == 200 else None
    except FormatError:
        said = None
    if not isinstance(said, dict) or "issuer" not in said:
        detail = f"what answers at {url} is no issuer (HTTP status {answer.status})"
        return _failed("issuer", Undecided(Code.DEPENDENCY_SERVER, detail))
    if said["issuer"] != url:
        detail = f"it calls itself {str(said['issuer'])[:200]}: ask it under that name"
        return _failed("issuer", VerificationError(Code.ANSWER_UNVERIFIED, detail))
    return Line("issuer", "pass", url)


def _clock(answer: HttpAnswer, now: float) -> Line:
    try:
        there = parsedate_to_datetime(answer.headers.get("date", ""))
        skew_s = round(now - there.replace(tzinfo=there.tzinfo or UTC).timestamp())
    except (TypeError, ValueError):
        return Line("clock", "warning", "the issuer does not say what time it is", next="Look at this machine's clock.")
    sides = "behind" if skew_s < 0 else "ahead of"
    detail = (
        f"{show_span(abs(skew_s))} {sides} the issuer's, {datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ} here"
    )
    step = "Set this machine's clock; tokens are good by the clock."
    if abs(skew_s) > MOST_SKEW_S:
        return Line("clock", "FAIL", detail, str(Code.MACHINE_FAILED), step, SetupError(Code.MACHINE_FAILED, detail))
    if abs(skew_s) > DOUBTFUL_SKEW_S:
        return Line("clock", "warning", detail, next=step)
    return Line("clock", "pass", "as the issuer's")


def _keys(url: str) -> Line:
    try:
        keys = fetch_keys(url, patience_s=_ASK_S)
    except Undecided as error:
        return _failed("keys", error)
    count = len(keys.keys)
    if not count:
        return _failed("keys", Undecided(Code.DEPENDENCY_KEY_SET, "the issuer's key set has no key"))
    return Line("keys", "pass", f"{count} key{'' if count == 1 else 's'}")


# -- the caller -------------------------------------------------------------------------------------------------------


def _caller(question: Question, document: bytes) -> Iterator[Line]:
    """Look at the identity, and at what the issuer says of it; `document` is its metadata, b"" where it has none."""
    try:
        credential = question.identity()
    except (SetupError, Undecided) as error:
        yield _failed("identity", error)
        return
    yield _identity(credential)
    if document:
        yield from _decisions(question, credential, document)


def _identity(credential: Credential) -> Line:
    kind = "an access token, for which each request has a nonce" if credential.reusable else "an identity token"
    try:
        claims = loads(
            jose.parse_compact(credential.bearer).unverified_payload, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH
        )
    except FormatError:
        claims = None
    said = claims.get("iss") if isinstance(claims, dict) else None
    return Line("identity", "pass", f"{kind}{f' of {said[:200]}' if isinstance(said, str) else ''}")


def _decisions(question: Question, credential: Credential, document: bytes) -> Iterator[Line]:
    try:
        explained = explain_request(question.issuer, credential, _body(question), patience_s=_ASK_S)
    except Refused as refused:
        refused.compared = compare(refused.code, credential.bearer, document, int(time.time()))
        name = "registered" if refused.code.meaning.status in {401, 403, 409, 429} else "run"
        more = "; ".join(f"{label}: {text}" for label, text in refused.compared)
        yield _failed(name, refused, f"{refused.detail}{f' ({more})' if more else ''}")
        return
    except Undecided as error:
        yield _failed("registered", error)
        return
    yield from lines_of(explained, question)


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
    failed = next((check for check in of_caller if not check.passed), None)
    if failed is None:
        yield Line("registered", "pass", f"as {who}")
    else:
        yield _refused("registered", failed, f"as {who}, but {failed.actual}")
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
    failed = [check for check in checks if not check.passed]
    unknown = [member for check in checks if (member := _member(check, question))]
    if not failed:
        return Line(name, "pass", "whatever it is, as far as a stand-in shows" if unknown else checks[0].actual)
    told = next((check for check in failed if not _member(check, question)), None)
    if told is not None:
        return _refused(name, told, told.actual)
    flag = "--" + (_member(failed[0], question) or "").replace("_", "-")
    return Line(
        name, "warning", "not known yet, and not everything is granted", failed[0].code, f"Give {flag} to know."
    )


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
    code = Code.named(check.code) or Code.INTERNAL
    wanted = f"; wanted: {check.expected}" if check.expected else ""
    return Line(name, "FAIL", f"{detail}{wanted}", check.code, check.hint or code.meaning.remedy, Refused(code, detail))
