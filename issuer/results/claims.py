"""Run claims: the statement of an evaluation framework about one run (contract section 2). Pure.

This file has the rules of each member, the canonical order and the claims digest. It never repairs a member that breaks
a rule (no trimming, rounding or lowercasing), but refuses it with its place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, MAX_EXACT_INTEGER, convert

REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
IDENTIFIER = re.compile(r"[\x21-\x7e]{1,128}")
FRAMEWORK_WORD = re.compile(r"[\x20-\x7e]{1,64}")
MAX_COMMAND = 4096
_REPO_RULE = "must be `owner/name` by the Hub's rules, in ASCII"
_REVISION_RULE = "must be a full commit: 40 or 64 lowercase hex characters"
_WORD_RULE = "must be 1 to 64 printable ASCII characters"
_REPO_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_MAX_REPO = 2 * 96 + 1
_REPO = re.compile(rf"(?!.*(?:--|\.\.)){_REPO_PART}/{_REPO_PART}(?<!\.git)")


# Claims that break no rule. They replace missing members so that `read_claims` can check the others.
STAND_IN: Mapping[str, JSON] = {
    "model_repo": "a/a", "model_revision": "0" * 40, "benchmark_repo": "a/a", "benchmark_revision": "0" * 40,
    "task_id": "a", "metrics": [{"metric_id": "a", "value": 0}], "framework": {"name": "a", "version": "0"},
}  # fmt: skip


class Metric(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One score. `value` is the double nearest to the written number. `slice` names the subset of the samples."""

    metric_id: str
    value: float
    slice: str | UnsetType = UNSET
    value_type: Literal["float", "int", "percentage", "rank"] | UnsetType = UNSET
    sample_size: Annotated[int, Meta(ge=1, le=MAX_EXACT_INTEGER)] | UnsetType = UNSET

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """The key of a metric, also for sorting: (metric_id, slice or "") as bytes."""
        return self.metric_id.encode(), (self.slice or "").encode()


class Framework(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The evaluation framework of the run, and its command line."""

    name: str
    version: str
    command: str | UnsetType = UNSET


class RunClaims(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """The claims of one run, in canonical order. Only `read_claims` makes them, because it enforces every rule."""

    model_repo: str
    model_revision: str
    benchmark_repo: str
    benchmark_revision: str
    task_id: str
    metrics: Annotated[tuple[Metric, ...], Meta(min_length=1, max_length=256)]
    framework: Framework

    def to_json(self) -> dict[str, Any]:
        """Return the claims as the JSON object for the digest and the token."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @cached_property
    def plain(self) -> Mapping[str, jcs.Encodable]:
        """The claims for `jcs.encode`. Cached, because digest, entry and token need them."""
        metrics = [{**msgspec.to_builtins(metric), "value": jcs.plain(metric.value)} for metric in self.metrics]
        framework = jcs.Plain(self.framework)  # plain: its values are text and its names ASCII
        return {**asdict(self), "metrics": jcs.written(metrics), "framework": jcs.written(framework)}

    @property
    def canonical(self) -> bytes:
        """The RFC 8785 bytes."""
        return jcs.encode(self.plain)

    @property
    def digest(self) -> str:
        """The claims digest: SHA-256 over the RFC 8785 bytes."""
        return jcs.digest_of_bytes(self.canonical)


def read_claims(value: JSON, pointer: str = "", *, signed: bool = False) -> RunClaims:
    """Read run claims from the result of a strict JSON reader, and sort the metrics. Claims that are `signed` need no
    normal form: only the issuer's version of Unicode decided about it. Raises Refused with every fault, with pointers
    below `pointer`: `claims.invalid`, `claims.revision`, `claims.number`, `claims.duplicate_metric`."""
    try:
        claims = convert(value, RunClaims)
    except FormatError as error:
        raise Refused.of([Fault(Code.CLAIMS_INVALID, pointer + error.pointer, error.detail)]) from None
    if faults := list(_faults(claims, signed=signed)):
        raise Refused.of([Fault(fault.code, pointer + fault.pointer, fault.detail) for fault in faults])
    if len(claims.metrics) == 1:
        return claims
    return msgspec.structs.replace(claims, metrics=tuple(sorted(claims.metrics, key=lambda metric: metric.pair)))


def is_repo(name: str) -> bool:
    """Say whether a name is `owner/name` by the Hub's rules for repository ids, in ASCII."""
    return len(name) <= _MAX_REPO and _is_repo(name)


# A batch has few models and benchmarks. Without the cache, matching their names takes a tenth of the time of reading.
@lru_cache(1024)
def _is_repo(name: str) -> bool:
    return _REPO.fullmatch(name) is not None


def _is_revision(text: str) -> bool:
    return len(text) in {40, 64} and _is_hex(text)


@lru_cache(1024)
def _is_hex(text: str) -> bool:
    return REVISION.fullmatch(text) is not None


def _faults(claims: RunClaims, *, signed: bool) -> Iterator[Fault]:
    yield from _text_faults(claims)
    yield from _framework_faults(claims.framework, signed=signed)
    pairs: set[tuple[bytes, bytes]] = set()
    for index, metric in enumerate(claims.metrics):
        place, pair = f"/metrics/{index}", metric.pair
        yield from _metric_faults(metric, place)
        if pair in pairs:
            yield Fault(Code.CLAIMS_DUPLICATE_METRIC, place, "the same metric_id and slice are here a second time")
        pairs.add(pair)


def _text_faults(claims: RunClaims) -> Iterator[Fault]:
    for name in ("model_repo", "benchmark_repo"):
        if not is_repo(getattr(claims, name)):
            yield Fault(Code.CLAIMS_INVALID, f"/{name}", _REPO_RULE)
    for name in ("model_revision", "benchmark_revision"):
        if not _is_revision(getattr(claims, name)):
            yield Fault(Code.CLAIMS_REVISION, f"/{name}", _REVISION_RULE)
    if not IDENTIFIER.fullmatch(claims.task_id):
        yield Fault(Code.CLAIMS_INVALID, "/task_id", "must be 1 to 128 printable ASCII characters without space")


def _metric_faults(metric: Metric, place: str) -> Iterator[Fault]:
    if not IDENTIFIER.fullmatch(metric.metric_id):
        yield Fault(Code.CLAIMS_INVALID, f"{place}/metric_id", "must be 1 to 128 printable ASCII without space")
    if metric.slice is not UNSET and not IDENTIFIER.fullmatch(metric.slice):
        yield Fault(Code.CLAIMS_INVALID, f"{place}/slice", "must be 1 to 128 printable ASCII without space, or absent")
    if not -MAX_EXACT_INTEGER <= metric.value <= MAX_EXACT_INTEGER:  # all larger doubles are whole numbers
        yield Fault(Code.CLAIMS_NUMBER, f"{place}/value", "must be finite, and at most 2^53 - 1 if it is whole")
    if metric.value_type in {"int", "rank"} and not metric.value.is_integer():
        rule = f"must be a whole number: its value_type is {metric.value_type}"
        yield Fault(Code.CLAIMS_INVALID, f"{place}/value", rule)


def _framework_faults(framework: Framework, *, signed: bool) -> Iterator[Fault]:
    for name in ("name", "version"):
        if not FRAMEWORK_WORD.fullmatch(getattr(framework, name)):
            yield Fault(Code.CLAIMS_INVALID, f"/framework/{name}", _WORD_RULE)
    if framework.command is not UNSET and (rule := _command_rule(framework.command, signed=signed)):
        yield Fault(Code.CLAIMS_INVALID, "/framework/command", rule)


def _command_rule(command: str, *, signed: bool) -> str:
    """Return the rule that the command breaks, or ""."""
    if not 1 <= len(command) <= MAX_COMMAND:
        return f"must be 1 to {MAX_COMMAND} characters, or absent"
    if command.isascii() and command.isprintable():
        return ""  # nearly every command; the rules below check each character
    categories = {char: unicodedata.category(char) for char in set(command)}
    if "Cc" in categories.values():
        return "must not contain control characters, line breaks included"
    if signed:
        return ""
    # A later version of Unicode may assign a character and give it another normal form.
    if unassigned := next((char for char, category in categories.items() if category == "Cn"), ""):
        return f"must not contain U+{ord(unassigned):04X}, which Unicode {unicodedata.unidata_version} does not assign"
    return "" if unicodedata.is_normalized("NFC", command) else "must be in Unicode normal form NFC"
