"""The linter for result files: every broken rule of contract sections 2 and 3, with its place. Pure.

An error is a fault for which readers of the profile, or an issuer, refuse the entry. A warning is a fault that keeps an
entry from being verified, or that is probably a mistake. `issuer.verify` checks tokens; this file does not.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import Finding, FormatError, InputError, Refused
from issuer.formats import jcs, strict_yaml
from issuer.formats.strict_json import JSON, misfits, pointer_to
from issuer.results.benchmark import Benchmark
from issuer.results.claims import STAND_IN, Framework, Metric, read_claims
from issuer.results.details import faults_of
from issuer.results.entry import (
    HUB_ANSWER_RULE,
    HUB_ANSWERS,
    HUB_MEMBERS,
    TOKEN_MEMBERS,
    Dataset,
    EntryDetails,
    EntrySource,
    Profile,
    demand_list,
    drop_nulls,
    is_date_member,
    result_file_name,
    target_form,
)
from issuer.results.secret import find_secrets

# The profile `target` is the form of the specification, `hub` the form of today's Hub and huggingface_hub, and `both`
# is for all readers (README.md has a table of the rules). A fault is an error if readers of the profile refuse the file
# or lose a part of it, otherwise a warning. A secret, and YAML that readers disagree about, is always an error.

# Members of entries that only today's Hub knows.
HUB_ALONE = frozenset({"evaluation_framework"})
# The names under which readers of a profile look for the token.
_SPELLINGS: Mapping[Profile, tuple[str, ...]] = {
    "target": TOKEN_MEMBERS[:1], "hub": TOKEN_MEMBERS[1:], "both": TOKEN_MEMBERS,
}  # fmt: skip


class LintFault(Struct, frozen=True):
    """A fault of an entry. `pointer` is its place in the entry."""

    code: Code
    pointer: str
    detail: str
    severity: Literal["error", "warning"] = "error"


def _missing(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    """Yield a fault for each missing member that readers of the profile need or a token binds."""
    dataset = members.get("dataset")
    if "dataset" not in members:
        yield LintFault(Code.FILE_SCHEMA, "", "lacks `dataset`")
    if isinstance(dataset, Mapping) and "task_id" not in dataset:
        yield LintFault(Code.RESULT_UNBOUND, "/dataset", "lacks `dataset.task_id`")
    if profile != "target" and "value" not in members:
        yield LintFault(Code.RESULT_PROFILE, "", "lacks `value`, without which today's Hub and huggingface_hub fail")
    if "metrics" in members:
        yield from _unbound(members, profile)
    else:
        rule = "lacks `metrics`: `value` does not name a metric, so this entry can never be verified"
        pointer = "/value" if "value" in members else ""
        rule += " (today's Hub accepts this: --profile hub)" if pointer and profile == "target" else ""
        yield LintFault(Code.RESULT_UNBOUND, pointer, rule, "warning" if profile == "hub" else "error")
    yield from _spellings(members, profile)


def _unbound(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    signed = any(name in members for name in TOKEN_MEMBERS)
    severity: Literal["error", "warning"] = "error" if signed and profile != "hub" else "warning"
    dataset = members.get("dataset")
    if isinstance(dataset, Mapping) and "revision" not in dataset:
        yield LintFault(Code.RESULT_UNBOUND, "/dataset", "lacks `dataset.revision`, the benchmark's commit", severity)
    if "model_revision" not in members:
        yield LintFault(Code.RESULT_UNBOUND, "", "lacks `model_revision`, the model's commit", severity)
    if "framework" not in members:
        yield LintFault(Code.RESULT_UNBOUND, "", "lacks `framework`, with `name` and `version`", severity)


def _spellings(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    """Yield a fault for each name under which the profile's readers miss the token, if the entry has a token."""
    present = [name for name in TOKEN_MEMBERS if name in members]
    for name in _SPELLINGS[profile] if present else ():
        if name not in present:
            rule = f"has the token without `{name}`, the name that readers of the profile {profile} look for"
            yield LintFault(Code.RESULT_PROFILE, f"/{present[0]}", rule, "error" if profile == "both" else "warning")


def _with_severity(fault: LintFault, profile: Profile) -> LintFault:
    """Turn a fault into a warning if the profile is `hub` and today's Hub ignores the member."""
    member = fault.pointer.partition("/")[2].partition("/")[0]
    known = not member or (member in (*HUB_MEMBERS, *HUB_ANSWERS) and fault.pointer != "/dataset/revision")
    if profile != "hub" or fault.code is Code.CLAIMS_SECRET or (known and fault.code is not Code.RESULT_VALUE):
        return fault
    return replace(fault, severity="warning")


MAX_METRICS = 256
MAX_FAULTS = 1000  # of one file: an author with more faults can correct these first, without waiting for the rest
MAX_TOKEN = 16 * 1024
_JWS = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_KINDS: dict[str, Any] = {
    "dataset": Dataset, "model_revision": str, "framework": Framework, "metrics": list[Any], "value": float,
    "date": str, "source": EntrySource, "notes": str, "run": dict[str, Any], "artifacts": list[Any] | dict[str, Any],
    "runtime_context": dict[str, Any], "benchmark_subset": str, "normalization": dict[str, Any],
    **dict.fromkeys(TOKEN_MEMBERS, str),
}  # fmt: skip
# The names for faults of claims that an entry has in another place.
_NAMED = {"/model_repo": "the repository", "/benchmark_repo": "`dataset.id`"}
# The place of each run claim in an entry.
_CLAIMS = {
    "/model_revision": "/model_revision", "/benchmark_repo": "/dataset/id", "/task_id": "/dataset/task_id",
    "/benchmark_revision": "/dataset/revision",
}  # fmt: skip


class _Subject(Struct, frozen=True):
    """The arguments of `lint_results` for every entry of the file."""

    path: str
    repo: str | None
    benchmark: Benchmark | None
    profile: Profile


def lint_results(
    raw: bytes,
    name: str,
    *,
    path: str = "",
    repo: str | None = None,
    benchmark: Benchmark | None = None,
    profile: Profile = "target",
) -> tuple[Finding, ...]:
    """Return all faults of a result file for readers of the profile, in the file's order. Never raises. `path` is the
    file's place, or "" to skip the rules for it. `repo` is its model repository. `benchmark` is the `eval.yaml` that
    must define the entries' tasks and metrics."""
    document, refusals = strict_yaml.examine(raw, name, bare_dates=is_date_member)
    findings = [refusal.finding for refusal in refusals]
    try:
        if document is not None:
            demand_list(document)
            subject = _Subject(path, repo, benchmark, profile)
            faults = _entries(document, {refusal.pointer for refusal in refusals}, subject)
            findings += islice(faults, MAX_FAULTS)
            if (more := next(faults, None)) is not None:
                rule = f"more than {MAX_FAULTS} faults: the rest is not shown"
                findings.append(Finding(Code.FILE_RULE, more.place, rule))
    except InputError as error:
        findings.append(error.finding)
    return tuple(sorted(findings, key=lambda finding: (finding.place.line, finding.place.column)))


def _entries(document: strict_yaml.Document, refused: set[str], subject: _Subject) -> Iterator[Finding]:
    first_index: dict[str, int] = {}
    for index, item in enumerate(document.value):  # type: ignore[arg-type]
        for fault in (_with_severity(fault, subject.profile) for fault in _entry(item, subject)):
            pointer = f"/{index}{fault.pointer}"
            if not any(_touch(pointer, other) for other in refused):
                place = document.place(pointer)
                yield Finding(fault.code, place, fault.detail, pointer, fault.severity)
        first = first_index.setdefault(_identity(item), index)
        if first != index:
            detail = f"has the same content as entry {first}"
            yield Finding(Code.RESULT_REPEATED, document.place(f"/{index}"), detail, f"/{index}", "warning")


def _touch(one: str, other: str) -> bool:
    """Say whether two pointers are equal, or one leads into the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _identity(item: JSON) -> str:
    """Return a key that is equal for two entries with the same content."""
    try:
        content = {**target_form(item), "value": item.get("value")} if isinstance(item, Mapping) else item
        return jcs.digest(content)
    except (FormatError, ValueError):
        return str(id(item))


# -- one entry --------------------------------------------------------------------------------------------------------


def _entry(item: JSON, subject: _Subject) -> Iterator[LintFault]:
    if not isinstance(item, Mapping):
        yield LintFault(Code.FILE_SCHEMA, "", "an entry is a map")
        return
    try:
        plain = drop_nulls(item)
    except FormatError as error:
        yield LintFault(error.code, error.pointer, error.detail)
        plain = {name: value for name, value in item.items() if value is not None}
    members: dict[str, Any] = dict(plain) if isinstance(plain, Mapping) else {}
    typed = yield from _types(members)
    yield from _unknown(members, subject.profile)
    yield from (LintFault(Code.FILE_RULE, f"/{name}", HUB_ANSWER_RULE) for name in HUB_ANSWERS if name in item)
    yield from _missing(members, subject.profile)
    yield from _claims(typed, subject.repo)
    for fault in faults_of({name: typed[name] for name in EntryDetails.__struct_fields__ if name in typed}):
        yield LintFault(fault.code, fault.pointer, fault.detail)
    # The verify token looks like a secret, but is public.
    for fault in find_secrets({name: value for name, value in members.items() if name not in TOKEN_MEMBERS}):
        yield LintFault(fault.code, fault.pointer, fault.detail)
    yield from _tokens(typed)
    if subject.profile != "hub":  # today's Hub accepts any file name
        yield from _file_name(typed, subject.path)
    yield from _value(typed, subject.benchmark)
    if subject.benchmark is not None:
        yield from _defined(typed, subject.benchmark)


def _types(members: Mapping[str, Any]) -> Generator[LintFault, None, dict[str, Any]]:
    """Yield the faults of members with a wrong type, and return the other members."""
    typed: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        if name in members and not (yield from _type(f"/{name}", members[name], kind)):
            typed[name] = members[name]
    if "metrics" in typed:
        typed["metrics"] = yield from _metric_types(typed["metrics"])
    return typed


def _type(pointer: str, value: JSON, kind: Any) -> Generator[LintFault, None, bool]:
    """Yield the first fault if the value does not fit the type, and return whether there was one."""
    misfit = next(misfits(value, kind), None)
    if misfit is not None:
        yield LintFault(misfit.code, pointer + misfit.pointer, strict_yaml.describe(misfit))
    return misfit is not None


def _metric_types(metrics: list[Any]) -> Generator[LintFault, None, list[Any]]:
    """Yield the faults of metrics with a wrong type. Return the first 256 metrics, with None for the bad ones."""
    if not 1 <= len(metrics) <= MAX_METRICS:
        yield LintFault(Code.CLAIMS_INVALID, "/metrics", f"has {len(metrics)} items; 1 to {MAX_METRICS} are allowed")
    good: list[Any] = []
    for index, metric in enumerate(metrics[:MAX_METRICS]):
        broken = yield from _type(f"/metrics/{index}", metric, Metric)
        good.append(None if broken else metric)
    return good


def _unknown(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    known = _KINDS.keys() | (HUB_ALONE if profile != "target" else frozenset())
    for name in (name for name in members if name not in known and name not in HUB_ANSWERS):
        yield _unknown_member("", name)
    for outer, kind in (("dataset", Dataset), ("source", EntrySource)):
        inner = members.get(outer)
        for name in inner if isinstance(inner, Mapping) else ():
            if name not in kind.__struct_fields__:
                yield _unknown_member(f"/{outer}", name)


def _unknown_member(parent: str, name: str) -> LintFault:
    detail = "only today's Hub knows this member" if name in HUB_ALONE else "unknown member"
    return LintFault(Code.RESULT_UNKNOWN_MEMBER, pointer_to(parent, name), detail, "warning")


def _claims(typed: Mapping[str, Any], repo: str | None) -> Iterator[LintFault]:
    """Check the run claims of an entry. Missing claims are replaced by good ones."""
    dataset = typed.get("dataset", {})
    metrics = [metric for metric in typed.get("metrics", ()) if metric is not None]
    places = [index for index, metric in enumerate(typed.get("metrics", ())) if metric is not None]
    claims = {
        "model_repo": repo, "model_revision": typed.get("model_revision"), "benchmark_repo": dataset.get("id"),
        "benchmark_revision": dataset.get("revision"), "task_id": dataset.get("task_id"), "metrics": metrics or None,
        "framework": typed.get("framework"),
    }  # fmt: skip
    try:
        read_claims({name: STAND_IN[name] if value is None else value for name, value in claims.items()})
    except Refused as refusal:
        for fault in refusal.faults:
            detail = f"{_NAMED[fault.pointer]} {fault.detail}" if fault.pointer in _NAMED else fault.detail
            yield LintFault(fault.code, _in_entry(fault.pointer, places), detail)


def _in_entry(pointer: str, places: list[int]) -> str:
    if pointer == "/model_repo":
        return ""
    if match := re.fullmatch(r"/metrics/([0-9]+)(.*)", pointer):
        return f"/metrics/{places[int(match[1])]}{match[2]}"
    return _CLAIMS.get(pointer, pointer)


def _tokens(typed: Mapping[str, Any]) -> Iterator[LintFault]:
    tokens = {name: typed[name] for name in TOKEN_MEMBERS if name in typed}
    if len(set(tokens.values())) > 1:
        yield LintFault(Code.FILE_RULE, "/verifyToken", "differs from verify_token: keep one of the two")
    for name, token in tokens.items():
        if len(token) > MAX_TOKEN or not _JWS.fullmatch(token):
            detail = f"is not a compact JWS of at most {MAX_TOKEN} bytes: three base64url parts, joined by dots"
            yield LintFault(Code.RESULT_TOKEN, f"/{name}", detail)


def _file_name(typed: Mapping[str, Any], path: str) -> Iterator[LintFault]:
    """Demand the file name that the entry's benchmark determines. Outside `.eval_results` it is only a warning."""
    expected = result_file_name(typed.get("dataset", {}).get("id", ""))
    if not path or "dataset" not in typed or PurePosixPath(path).name == PurePosixPath(expected).name:
        return
    placed = PurePosixPath(path).parent.name == ".eval_results"
    detail = f"results of {typed['dataset']['id']} belong in {expected}"
    yield LintFault(Code.RESULT_FILE_NAME, "/dataset/id", detail, "error" if placed else "warning")


def _value(typed: Mapping[str, Any], benchmark: Benchmark | None) -> Iterator[LintFault]:
    """Check that a `value` beside metrics is the score of the primary metric."""
    if "value" not in typed or "metrics" not in typed:
        return
    primary = benchmark.primary if benchmark else None
    scores = [
        metric["value"]
        for metric in typed["metrics"]
        if metric and "slice" not in metric and primary in (None, metric["metric_id"])
    ]
    if typed["value"] not in scores and None not in typed["metrics"]:
        name = f"the primary metric, {primary}" if primary else "any metric of this entry without a slice"
        yield LintFault(Code.RESULT_VALUE, "/value", f"is not the score of {name}")


def _defined(typed: Mapping[str, Any], benchmark: Benchmark) -> Iterator[LintFault]:
    metric_ids = [metric and metric["metric_id"] for metric in typed.get("metrics", ())]
    for fault in benchmark.undefined(typed.get("dataset", {}).get("task_id"), metric_ids):
        yield LintFault(fault.code, _CLAIMS.get(fault.pointer, fault.pointer), fault.detail)
