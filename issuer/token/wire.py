"""What goes over the wire, declared once: the service, the client and the OpenAPI document read the same types. Pure.

Requests refuse unknown members; answers may grow members, and a client ignores unknown ones (contract section 5). The
content of a request's claims and details is declared in `results`, that of a report in `verify`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, Refused
from issuer.formats.strict_json import Text
from issuer.formats.times import UnixTime

Endpoint = Literal["/tokens", "/tokens/batch", "/tokens/explain"]
METADATA_PATH = "/.well-known/eval-token-issuer"
JWKS_PATH = "/.well-known/jwks.json"
ARCHIVE_PATH = "/.well-known/jwks-archive.json"
REVOCATIONS_PATH = "/.well-known/revocations.json"
# The keys that sign the list of revocations; never those that sign tokens.
REVOCATION_KEYS_PATH = "/.well-known/revocation-keys.json"
LOG_PATH = "/log"
STOPS_PATH = "/health/stops"
PROBLEM_TYPE = "application/problem+json"
# One result, issued or only explained, or several.
Kind = Literal["single", "batch"]
# The largest bodies, in bytes. A result of a batch, too, has at most as many as a single one.
MAX_BYTES: dict[Kind, int] = {"single": 64 * 1024, "batch": 1024 * 1024}
# How many results a batch has, and how many JSON values the claims and details of one result: containers, and what is
# in them. Claims of 256 metrics have 1550.
MAX_RESULTS = 100
MAX_VALUES = 2000
# 22 characters are 128 bits: a nonce that can be guessed can be used up.
NONCE_PATTERN = "[A-Za-z0-9_-]{22,128}"
_NONCE = re.compile(NONCE_PATTERN)
# What is sent and empty is not absent: it would get the default.
Named = Annotated[str, Meta(min_length=1)]


def is_nonce(text: str) -> bool:
    """Say whether a text has a nonce's form: 22 to 128 base64url characters."""
    return _NONCE.fullmatch(text) is not None


# -- requests ---------------------------------------------------------------------------------------------------------


# Claims and details: `msgspec.Raw` where they are still unread. `issuer.results` declares their content.
Part = TypeVar("Part")


class BatchItem(Struct, Generic[Part], frozen=True, forbid_unknown_fields=True):
    """One result of a batch."""

    claims: Part
    details: Part | UnsetType = UNSET
    claims_digest: str | UnsetType = UNSET
    content_digest: str | UnsetType = UNSET


class TokenRequest(BatchItem[Part], Generic[Part], frozen=True, forbid_unknown_fields=True):
    """The body of `POST /tokens` and `POST /tokens/explain`."""

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
    """The body of `POST /tokens/explain` that asks of the caller alone: `{}`."""


class VerifyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /verify`: exactly one of `entry` (one entry as JSON) and `yaml` (the text of a result file).

    `repo` and `path` say where it is. `benchmark` is the text of the benchmark's `eval.yaml` as of the entry's
    `dataset.revision`. `at` (Unix seconds) is when the file was received; without it the answer is a reader's, who
    cannot know.
    """

    repo: Text
    path: Text
    entry: dict[str, Any] | UnsetType = UNSET
    yaml: str | UnsetType = UNSET
    benchmark: str | UnsetType = UNSET
    at: UnixTime | UnsetType = UNSET


# -- answers ----------------------------------------------------------------------------------------------------------


class LogEntry(Struct, frozen=True):
    """Where a token is in the transparency log: the log's origin line, the entry's index from 0, and its proof."""

    origin: str
    index: int
    proof: str


class IssuedToken(Struct, frozen=True):
    """The answer of `/tokens`. Times are Unix seconds; `entry` is the YAML list item to paste, token included; `log` is
    set where a transparency log is configured."""

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


class ShownCheck(Struct, frozen=True):
    """A check as its caller may see it. `pointer` leads into the request ("": it is about the identity), `rule` into
    the policy. `expected` is "" where nothing is, or where the policy does not disclose it; `hint` is the next step
    where it failed."""

    code: str
    pointer: str
    rule: str
    passed: bool
    actual: str
    expected: str
    hint: str


class Attempt(Struct, frozen=True):
    """What a token's `attempt` would say: so many different sets of metric values since then (Unix seconds)."""

    number: int
    since: int


class Standing(Struct, frozen=True):
    """What was counted of the caller's identity, this request included: model owners and tokens of today (UTC) and of
    its CI run (0 where its provider names none). `attempt` is absent where it would not be exact; until when the
    identity is throttled, or released from that by an operator, in Unix seconds, where it is."""

    owners_a_day: int
    tokens_a_day: int
    owners_a_run: int
    tokens_a_run: int
    attempt: Attempt | UnsetType = UNSET
    throttled_until: int | UnsetType = UNSET
    released_until: int | UnsetType = UNSET


class Explained(Struct, frozen=True):
    """The answer of `/tokens/explain`.

    `code` is set where the verdict is `refused`; `audience`, in `ttl_s` the token's life in seconds, and `standing`
    where it is `granted`.
    """

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
    """One thing that is wrong, and where: a JSON pointer into the request body."""

    pointer: str
    code: str
    detail: str


class Problem(Struct, frozen=True):
    """The body of every error (RFC 9457). `type` is a page that the service serves; `retryable` says whether to send
    the request again.

    `checks` is set where a policy refused: all that were made, passed ones too, as the caller may see them. `warnings`
    is set where more such refusals would lead to a quarantine.
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


class Denied(Refused):
    """A refusal by a policy: `checks` are all that were made, as the caller may see them. Both ends raise it.

    Its text says of each check that failed what was there, and what is wanted as far as the policy tells.
    """

    def __init__(
        self, code: Code, detail: str = "", faults: tuple[Fault, ...] = (), *, checks: tuple[ShownCheck, ...] = ()
    ) -> None:
        super().__init__(code, detail, faults)
        self.checks = checks

    def __str__(self) -> str:
        failed = [_describe(check) for check in self.checks if not check.passed]
        text = f"{self.code}: {'; '.join(failed)}" if failed else super().__str__()
        return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _describe(check: ShownCheck) -> str:
    """Say of a check that failed where, what was there, what is wanted, and the next step."""
    wanted = f", wanted {check.expected}" if check.expected else ""
    return f"{check.pointer or check.rule}: {check.actual}{wanted}. {check.hint}".rstrip(" .")


# -- health -----------------------------------------------------------------------------------------------------------


class StopsStatus(Struct, frozen=True):
    """Which emergency stops one process has in force, without their reasons; and, of the workers on its host, how many
    have the same.

    `stale`: the file cannot be read as it is now. `everything`: a signal has stopped everything.
    """

    digest: str
    count: int
    stale: bool
    everything: bool
    workers: int
    agreeing: int
