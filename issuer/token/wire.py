"""Types of the HTTP API's requests and answers, for the service, the client and the OpenAPI document. Pure.

Requests with unknown members are refused. Answers may get new members later, and clients ignore unknown ones (contract
section 5). `results` declares the content of claims and details, `verify` that of a report.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.formats.display import visible
from issuer.formats.strict_json import Text
from issuer.formats.times import UnixTime

EXCHANGE_PATH: Final = "/oauth/token"
Endpoint = Literal["/tokens", "/tokens/batch", "/tokens/explain", "/oauth/token"]
METADATA_PATH = "/.well-known/eval-token-issuer"
JWKS_PATH = "/.well-known/jwks.json"
ARCHIVE_PATH = "/.well-known/jwks-archive.json"
REVOCATIONS_PATH = "/.well-known/revocations.json"
# The keys that sign the list of revocations. They never sign tokens.
REVOCATION_KEYS_PATH = "/.well-known/revocation-keys.json"
LOG_PATH = "/log"
STOPS_PATH = "/health/stops"
PROBLEM_TYPE = "application/problem+json"
# A request has one result (to issue or to explain), or a batch of results.
Kind = Literal["single", "batch"]
# The largest bodies, in bytes. The bound for a single result also holds for each result of a batch.
MAX_BYTES: dict[Kind, int] = {"single": 64 * 1024, "batch": 1024 * 1024}
# The largest form: percent-encoding makes a body longer, and the credential is in the form, too.
MAX_FORM_BYTES = 96 * 1024
# The most results in a batch, and the most JSON values in the claims and details of one result, containers included.
# Claims with 256 metrics have 1550 values.
MAX_RESULTS = 100
MAX_VALUES = 2000
# Token exchange (RFC 8693): what the parameters of its form may be.
FORM_TYPE = "application/x-www-form-urlencoded"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
DETAILS, DETAIL_TYPE = "authorization_details", "eval_result"
_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"  # noqa: S105 (the beginning of a name)
ISSUED_TOKEN_TYPE = f"{_TOKEN_TYPE}jwt"
SUBJECT_TOKEN_TYPES = tuple(_TOKEN_TYPE + name for name in ("id_token", "jwt", "access_token"))
# 22 characters are 128 bits. If an attacker could guess a nonce, they could use it up.
NONCE_PATTERN = "[A-Za-z0-9_-]{22,128}"
_NONCE = re.compile(NONCE_PATTERN)
# An empty name is refused. It must not count as absent, which selects the default.
Named = Annotated[str, Meta(min_length=1)]


def is_nonce(text: str) -> bool:
    """Say whether a text has the form of a nonce: 22 to 128 base64url characters."""
    return _NONCE.fullmatch(text) is not None


# -- requests ---------------------------------------------------------------------------------------------------------


# The type of claims and details. It is `msgspec.Raw` before they are read; `issuer.results` declares their content.
Part = TypeVar("Part")


class BatchItem(Struct, Generic[Part], frozen=True, forbid_unknown_fields=True):
    """One result of a batch."""

    claims: Part
    details: Part | UnsetType = UNSET
    claims_digest: str | UnsetType = UNSET
    content_digest: str | UnsetType = UNSET


class TokenRequest(BatchItem[Part], Generic[Part], frozen=True, forbid_unknown_fields=True):
    """The body of `POST /tokens` and `POST /tokens/explain`. With its `type` it is the authorization detail (RFC 9396)
    that OAuth clients send to `/oauth/token`."""

    type: Literal["eval_result"] | UnsetType = UNSET
    nonce: str | UnsetType = UNSET
    integration: Named | UnsetType = UNSET
    audience: Named | UnsetType = UNSET


class BatchRequest(Struct, Generic[Part], frozen=True, forbid_unknown_fields=True):
    """The body of `POST /tokens/batch`."""

    results: Annotated[list[BatchItem[Part]], Meta(min_length=1, max_length=MAX_RESULTS)]
    nonce: str | UnsetType = UNSET
    integration: Named | UnsetType = UNSET
    audience: Named | UnsetType = UNSET


class CallerRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body `{}` of `POST /tokens/explain`, which asks only about the caller."""


class VerifyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /verify`: exactly one of `entry` (one entry as JSON) and `yaml` (the text of a result file).

    `repo` and `path` are the place of the file. `benchmark` is the text of the benchmark's `eval.yaml` as of the
    entry's `dataset.revision`. `at` (Unix seconds) is the time of receipt; a reader does not give it.
    """

    repo: Text
    path: Text
    entry: dict[str, Any] | UnsetType = UNSET
    yaml: str | UnsetType = UNSET
    benchmark: str | UnsetType = UNSET
    at: UnixTime | UnsetType = UNSET


# -- answers ----------------------------------------------------------------------------------------------------------


class LogEntry(Struct, frozen=True):
    """The place of a token in the transparency log: the log's origin line, the leaf's index from 0, and its proof."""

    origin: str
    index: int
    proof: str


class IssuedToken(Struct, frozen=True):
    """The answer of `/tokens`. Times are Unix seconds. `entry` is the YAML list item for the result file, with the
    token in it. `log` is set if a transparency log is configured."""

    verify_token: str
    token_type: str
    jti: str
    kid: str
    issued_at: int
    expires_at: int
    claims_digest: str
    content_digest: str
    integration: str
    identity: str
    policy: str
    entry: str
    warnings: tuple[str, ...]
    log: LogEntry | UnsetType = UNSET


class IssuedTokens(Struct, frozen=True):
    """The answer of `/tokens/batch`, in the order of the request's results."""

    tokens: tuple[IssuedToken, ...]


class ExchangedToken(IssuedToken, frozen=True, kw_only=True):
    """The answer of `/oauth/token` (RFC 8693 2.2.1). `access_token` is the verify token, too. `token_type` is `N_A`:
    the token is never a credential. `expires_in` is in seconds."""

    access_token: str
    issued_token_type: str = ISSUED_TOKEN_TYPE
    expires_in: int

    @classmethod
    def of(cls, token: IssuedToken, now: int) -> ExchangedToken:
        """Return the answer at a time."""
        left = max(0, token.expires_at - now)
        members = {**asdict(token), "token_type": "N_A"}
        return cls(**members, access_token=token.verify_token, expires_in=left)


class ShownCheck(Struct, frozen=True):
    """The part of a check that its caller may see. `pointer` is the place in the request ("": the identity), `rule` the
    place in the policy. `expected` is "" if the check has none, or if the policy does not disclose it. `hint`
    is the next step after a failure."""

    code: str
    pointer: str
    rule: str
    passed: bool
    actual: str
    expected: str
    hint: str


class Attempt(Struct, frozen=True):
    """The `attempt` that a token would have: how many different sets of metric values since then (Unix s)."""

    number: int
    since: int


class Standing(Struct, frozen=True):
    """The counts of the caller's identity, this request included: model owners and tokens of today (UTC) and of its CI
    run (0 if its provider names no run). `attempt` is absent if it would not be exact. `throttled_until` and
    `released_until` (Unix seconds) are set if the identity is throttled, or if an operator released it from that."""

    owners_a_day: int
    tokens_a_day: int
    owners_a_run: int
    tokens_a_run: int
    attempt: Attempt | UnsetType = UNSET
    throttled_until: int | UnsetType = UNSET
    released_until: int | UnsetType = UNSET


class Explained(Struct, frozen=True):
    """The answer of `/tokens/explain`. `code` is set if the verdict is `refused`. `audience`, `ttl_s` (the token's
    lifetime in seconds) and `standing` are set if it is `granted`."""

    verdict: Literal["granted", "refused"]
    integration: str
    identity: str
    policy: str
    checks: tuple[ShownCheck, ...]
    warnings: tuple[str, ...]
    request_id: str
    code: str | UnsetType = UNSET
    audience: str | UnsetType = UNSET
    ttl_s: int | UnsetType = UNSET
    standing: Standing | UnsetType = UNSET


# -- errors -----------------------------------------------------------------------------------------------------------


class ProblemFault(Struct, frozen=True):
    """One fault in a request, with a JSON pointer into the body."""

    pointer: str
    code: str
    detail: str


class Problem(Struct, frozen=True):
    """The body of every error (RFC 9457). `type` is the URL of a page of the service. `retryable` says whether the
    client should send the request again.

    After a refusal by a policy, `checks` has the checks that the policy made, also those that passed, as the caller may
    see them. `warnings` is set if more such refusals would lead to a quarantine.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    retryable: bool
    request_id: str
    errors: list[ProblemFault]
    checks: tuple[ShownCheck, ...] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


class ExchangeProblem(Struct, frozen=True):
    """The body of every error of `/oauth/token` (RFC 6749 5.2): `error` is one of OAuth's codes, and the other members
    are those of a problem document. A pointer begins with the name of a parameter."""

    error: str
    error_description: str
    error_uri: str
    code: str
    retryable: bool
    request_id: str
    errors: list[ProblemFault]
    checks: tuple[ShownCheck, ...] | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET

    @classmethod
    def of(cls, problem: Problem, error: str) -> ExchangeProblem:
        """Return a problem document in OAuth's form. OAuth allows only some characters in a description."""
        checks = problem.checks
        return cls(
            error=error,
            error_description=_NOT_DESCRIBED.sub("'", problem.detail),
            error_uri=problem.type,
            code=problem.code,
            retryable=problem.retryable,
            request_id=problem.request_id,
            errors=[replace(fault, pointer=_in_form(fault.code, fault.pointer)) for fault in problem.errors],
            checks=checks and tuple(replace(check, pointer=_in_form(check.code, check.pointer)) for check in checks),
            warnings=problem.warnings,
        )


_NOT_DESCRIBED = re.compile(r"[^ !#-\[\]-~]")


def _in_form(code: str, pointer: str) -> str:
    """Return the place in a form of a place in a token request. Faults of the form itself already name parameters."""
    is_of_body = pointer or code.startswith("request.")
    is_of_form = code.startswith("exchange.") or pointer == "/audience"
    return f"/{DETAILS}/0{pointer}" if is_of_body and not is_of_form else pointer


class Denied(Refused):
    """A refusal by a policy, which the service and the client raise. `checks` are those that the policy made, as the
    caller may see them. The text has each failed check, with actual and disclosed expected values."""

    def __init__(
        self, code: Code, detail: str = "", faults: tuple[Fault, ...] = (), *, checks: tuple[ShownCheck, ...] = ()
    ) -> None:
        super().__init__(code, detail, faults)
        self.checks = checks

    def __str__(self) -> str:
        failed = [_describe(check) for check in self.checks if not check.passed]
        return visible(f"{self.code}: {'; '.join(failed)}" if failed else super().__str__())


def _describe(check: ShownCheck) -> str:
    wanted = f", wanted {check.expected}" if check.expected else ""
    return f"{check.pointer or check.rule}: {check.actual}{wanted}. {check.hint}".rstrip(" .")


# -- health -----------------------------------------------------------------------------------------------------------


class StopsStatus(Struct, frozen=True):
    """The emergency stops that one process enforces, without their reasons. `agreeing` of the `workers` on its host
    enforce the same ones. `stale`: the file is unreadable, earlier stops apply. `everything`: a signal stopped all."""

    digest: str
    count: int
    stale: bool
    everything: bool
    workers: int
    agreeing: int
