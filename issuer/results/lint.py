"""A result file against contract sections 2 and 3: every rule that it breaks, each at its place. Pure.

Errors are what readers of the profile refuse, or an issuer; warnings are what keeps an entry from being verified, or
what is probably a mistake (`lint_profile`). Nothing here judges a token: that is `issuer.verify`.
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
from issuer.results.details import MAX_WRITTEN, is_date, is_public_url
from issuer.results.emit import fits
from issuer.results.entry import (
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

# `target` is the form of the specification, `hub` what today's Hub and huggingface_hub take, `both` a file for either
# (README.md has the rules in a table). A fault is an error where the readers of the profile refuse the file or lose a
# part of it, else a warning. What no reader may be given, a secret or YAML that readers disagree about, is always one.
# A member of entries that only today's Hub knows.
HUB_ALONE = frozenset({"evaluation_framework"})
# Which spelling of the token the readers of a profile look for.
_SPELLINGS: Mapping[Profile, tuple[str, ...]] = {
    "target": TOKEN_MEMBERS[:1], "hub": TOKEN_MEMBERS[1:], "both": TOKEN_MEMBERS,
}  # fmt: skip


class LintFault(Struct, frozen=True):
    """One thing that is wrong with an entry, by its pointer in it."""

    code: Code
    pointer: str
    detail: str
    severity: Literal["error", "warning"] = "error"


def lacking(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    """Yield what an entry lacks: for every reader, for those of the profile, and for a token."""
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
        rule = "lacks `metrics`: a lone `value` names no metric, so this entry can never be verified"
        pointer = "/value" if "value" in members else ""
        rule += " (today's Hub takes it: --profile hub)" if pointer and profile == "target" else ""
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
    """Yield where the profile's readers look for a token and find none, though there is one."""
    there = [name for name in TOKEN_MEMBERS if name in members]
    for name in _SPELLINGS[profile] if there else ():
        if name not in there:
            rule = f"stands without `{name}`, where readers of the profile {profile} look for the token"
            yield LintFault(Code.RESULT_PROFILE, f"/{there[0]}", rule, "error" if profile == "both" else "warning")


def judged(found: LintFault, profile: Profile) -> LintFault:
    """Turn an error into a warning where today's Hub does not look: beyond its members, and behind the commit's."""
    member = found.pointer.partition("/")[2].partition("/")[0]
    minded = not member or (member in HUB_MEMBERS and found.pointer != "/dataset/revision")
    if profile != "hub" or found.code is Code.CLAIMS_SECRET or (minded and found.code is not Code.RESULT_VALUE):
        return found
    return replace(found, severity="warning")


MAX_METRICS = 256
MAX_FAULTS = 1000  # of one file: an author with more corrects these first, without waiting for the rest
MAX_TOKEN = 16 * 1024
_JWS = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_KINDS: dict[str, Any] = {
    "dataset": Dataset, "model_revision": str, "framework": Framework, "metrics": list[Any], "value": float,
    "date": str, "source": EntrySource, "notes": str, "run": dict[str, Any], "artifacts": list[Any] | dict[str, Any],
    "runtime_context": dict[str, Any], "benchmark_subset": str, "normalization": dict[str, Any],
    **dict.fromkeys(TOKEN_MEMBERS, str),
}  # fmt: skip
# The place of each run claim in an entry.
_CLAIMS = {
    "/model_revision": "/model_revision", "/benchmark_repo": "/dataset/id", "/task_id": "/dataset/task_id",
    "/benchmark_revision": "/dataset/revision",
}  # fmt: skip


class _Subject(Struct, frozen=True):
    """What a file is linted as: at this place, in this repository, of this benchmark, for readers of this profile."""

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
    """Return everything that is wrong with a result file, in the file's order; never raises. `path` is the file's
    place, "" where that does not matter; `repo` is its model repository; `benchmark` is the `eval.yaml` that its
    entries are checked against; `profile` is whose readers the file is for."""
    document, refusals = strict_yaml.examine(raw, name, bare_dates=is_date_member)
    findings = [refusal.finding for refusal in refusals]
    try:
        if document is not None:
            demand_list(document)
            subject = _Subject(path, repo, benchmark, profile)
            faults = _entries(document, {refusal.pointer for refusal in refusals}, subject)
            findings += islice(faults, MAX_FAULTS)
            if (more := next(faults, None)) is not None:
                rule = f"more than {MAX_FAULTS} faults: the rest is not told"
                findings.append(Finding(Code.FILE_RULE, more.place, rule))
    except InputError as error:
        findings.append(error.finding)
    return tuple(sorted(findings, key=lambda finding: (finding.place.line, finding.place.column)))


def _entries(document: strict_yaml.Document, refused: set[str], subject: _Subject) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for index, item in enumerate(document.value):  # type: ignore[arg-type]
        for found in (judged(found, subject.profile) for found in _entry(item, subject)):
            pointer = f"/{index}{found.pointer}"
            if not any(_touch(pointer, other) for other in refused):
                place = document.place(pointer)
                yield Finding(found.code, place, found.detail, pointer, found.severity)
        first = seen.setdefault(_identity(item), index)
        if first != index:
            detail = f"says the same as entry {first}"
            yield Finding(Code.RESULT_REPEATED, document.place(f"/{index}"), detail, f"/{index}", "warning")


def _touch(one: str, other: str) -> bool:
    """Say whether one of two pointers leads to the other, or through it."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _identity(item: JSON) -> str:
    """Return the key that is equal for two entries that say the same."""
    try:
        said = {**target_form(item), "value": item.get("value")} if isinstance(item, Mapping) else item
        return jcs.digest(said)
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
    yield from lacking(members, subject.profile)
    yield from _claims(typed, subject.repo)
    yield from _details(typed)
    yield from _secrets(members)
    yield from _tokens(typed)
    if subject.profile != "hub":  # which takes a file of any name
        yield from _file_name(typed, subject.path)
    yield from _value(typed, subject.benchmark)
    if subject.benchmark is not None:
        yield from _defined(typed, subject.benchmark)


def _types(members: Mapping[str, Any]) -> Generator[LintFault, None, dict[str, Any]]:
    """Yield what is wrong with members of the wrong type; return the others."""
    typed: dict[str, Any] = {}
    for name, kind in _KINDS.items():
        if name in members and not (yield from _type(f"/{name}", members[name], kind)):
            typed[name] = members[name]
    if "metrics" in typed:
        typed["metrics"] = yield from _metric_types(typed["metrics"])
    return typed


def _type(pointer: str, value: JSON, kind: Any) -> Generator[LintFault, None, bool]:
    """Yield why the value is not of this kind; return whether it is not."""
    misfit = next(misfits(value, kind), None)
    if misfit is not None:
        yield LintFault(misfit.code, pointer + misfit.pointer, strict_yaml.describe(misfit))
    return misfit is not None


def _metric_types(metrics: list[Any]) -> Generator[LintFault, None, list[Any]]:
    """Yield what is wrong with metrics of the wrong type; return the first 256, with None for those."""
    if not 1 <= len(metrics) <= MAX_METRICS:
        yield LintFault(Code.CLAIMS_INVALID, "/metrics", f"has {len(metrics)} items; 1 to {MAX_METRICS} are allowed")
    good: list[Any] = []
    for index, metric in enumerate(metrics[:MAX_METRICS]):
        broken = yield from _type(f"/metrics/{index}", metric, Metric)
        good.append(None if broken else metric)
    return good


def _unknown(members: Mapping[str, Any], profile: Profile) -> Iterator[LintFault]:
    known = _KINDS.keys() | (HUB_ALONE if profile != "target" else frozenset())
    for name in (name for name in members if name not in known):
        yield _unknown_member("", name)
    for outer, kind in (("dataset", Dataset), ("source", EntrySource)):
        inner = members.get(outer)
        for name in inner if isinstance(inner, Mapping) else ():
            if name not in kind.__struct_fields__:
                yield _unknown_member(f"/{outer}", name)


def _unknown_member(parent: str, name: str) -> LintFault:
    detail = "only today's Hub knows this member" if name in HUB_ALONE else "no reader knows this member"
    return LintFault(Code.RESULT_UNKNOWN_MEMBER, pointer_to(parent, name), detail, "warning")


def _claims(typed: Mapping[str, Any], repo: str | None) -> Iterator[LintFault]:
    """Check the entry's run claims against their rules."""
    dataset = typed.get("dataset", {})
    metrics = [metric for metric in typed.get("metrics", ()) if metric is not None]
    places = [index for index, metric in enumerate(typed.get("metrics", ())) if metric is not None]
    said = {
        "model_repo": repo, "model_revision": typed.get("model_revision"), "benchmark_repo": dataset.get("id"),
        "benchmark_revision": dataset.get("revision"), "task_id": dataset.get("task_id"), "metrics": metrics or None,
        "framework": typed.get("framework"),
    }  # fmt: skip
    try:
        read_claims({name: STAND_IN[name] if value is None else value for name, value in said.items()})
    except Refused as refusal:
        for fault in refusal.faults:
            yield LintFault(
                fault.code, _in_entry(fault.pointer, places), _in_words_of_entry(fault.pointer, fault.detail)
            )


def _in_entry(pointer: str, places: list[int]) -> str:
    if pointer == "/model_repo":
        return ""
    if match := re.fullmatch(r"/metrics/([0-9]+)(.*)", pointer):
        return f"/metrics/{places[int(match[1])]}{match[2]}"
    return _CLAIMS.get(pointer, pointer)


def _in_words_of_entry(pointer: str, rule: str) -> str:
    names = {"/model_repo": "the repository", "/benchmark_repo": "`dataset.id`"}
    return f"{names[pointer]} {rule}" if pointer in names else rule


def _details(typed: Mapping[str, Any]) -> Iterator[LintFault]:
    """Check the details against the rules by which the issuer takes them."""
    if "date" in typed and not is_date(typed["date"]):
        yield LintFault(Code.DETAILS_INVALID, "/date", "must be an ISO 8601 date or date and time")
    source = typed.get("source")
    if source is not None and "url" not in source:
        yield LintFault(Code.DETAILS_INVALID, "/source", "lacks `source.url`")
    elif source is not None and not is_public_url(source["url"]):
        yield LintFault(
            Code.DETAILS_INVALID, "/source/url", "must be an absolute http or https URL without credentials"
        )
    details = {name: typed[name] for name in EntryDetails.__struct_fields__ if name in typed}
    if rule := fits(details, MAX_WRITTEN):
        yield LintFault(Code.DETAILS_INVALID, "", rule)


def _secrets(members: Mapping[str, Any]) -> Iterator[LintFault]:
    """Look into every text but the verify token, which is none."""
    for fault in find_secrets({name: value for name, value in members.items() if name not in TOKEN_MEMBERS}):
        yield LintFault(fault.code, fault.pointer, fault.detail)


def _tokens(typed: Mapping[str, Any]) -> Iterator[LintFault]:
    tokens = {name: typed[name] for name in TOKEN_MEMBERS if name in typed}
    if len(set(tokens.values())) > 1:
        yield LintFault(Code.FILE_RULE, "/verifyToken", "differs from verify_token: keep one of the two")
    for name, token in tokens.items():
        if len(token) > MAX_TOKEN or not _JWS.fullmatch(token):
            detail = f"is no compact JWS of at most {MAX_TOKEN} bytes: three base64url parts, joined by dots"
            yield LintFault(Code.RESULT_TOKEN, f"/{name}", detail)


def _file_name(typed: Mapping[str, Any], path: str) -> Iterator[LintFault]:
    """Demand the file name that follows from the entry's benchmark; outside the folder only advise it."""
    expected = result_file_name(typed.get("dataset", {}).get("id", ""))
    if not path or "dataset" not in typed or PurePosixPath(path).name == PurePosixPath(expected).name:
        return
    placed = PurePosixPath(path).parent.name == ".eval_results"
    detail = f"results of {typed['dataset']['id']} belong into {expected}"
    yield LintFault(Code.RESULT_FILE_NAME, "/dataset/id", detail, "error" if placed else "warning")


def _value(typed: Mapping[str, Any], benchmark: Benchmark | None) -> Iterator[LintFault]:
    """Check a `value` beside metrics against them: it must be that of the primary metric."""
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
