"""The export of an entry as a record of Every Eval Ever (schema 0.3.0). Pure.

The exporter states the source and the evaluator. The benchmark's `eval.yaml` has the direction of each metric. Unknown
members are left out, or are "unknown" if the schema requires them. The format has no member for commits, the command
line, a slice or a verification: they are in `additional_details`, under the names of run claims.
`issuer.adapters.every_eval_ever` reads commits and command again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.results.benchmark import Benchmark, BenchmarkMetric
from issuer.results.claims import Metric, RunClaims
from issuer.results.entry import Entry, content_digest

SCHEMA_VERSION = "0.3.0"
_RECORD_DIGEST = "record_digest"
SourceType = Literal["evaluation_run", "documentation"]
Relationship = Literal["first_party", "third_party", "collaborative", "other"]


class Statement(Struct, frozen=True, kw_only=True):
    """The exporter's statement about the source, for the schema's `source_metadata`."""

    source_type: SourceType
    organization: str
    relationship: Relationship
    organization_url: str | None = None


class Verification(Struct, frozen=True):
    """The result of `issuer.verify` for the entry at the time `at` (Unix seconds). `issuer` is the token's, "" unless
    its signature is good. `token_digest` is the digest of the token's text, "" without a token."""

    verdict: str
    issuer: str
    token_digest: str
    at: int


def record_of(
    entry: Entry,
    claims: RunClaims,
    benchmark: Benchmark,
    stated: Statement,
    verification: Verification | None,
    now: int,
) -> dict[str, JSON]:
    """Return the record of an entry with these claims, made at `now` (Unix seconds). Raises
    FormatError(`result.undefined`) if the benchmark does not give the direction of a metric."""
    framework, details = claims.framework, entry.details
    library = {"command": framework.command} if framework.command is not UNSET else {}
    record: dict[str, JSON] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(entry, claims, now),
        "evaluation_timestamp": _timestamp(details.date) if details.date is not UNSET else None,
        "retrieved_timestamp": str(now),
        "source_metadata": _source(entry, stated, verification),
        "eval_library": {"name": framework.name, "version": framework.version, "additional_details": library},
        "model_info": {
            "name": claims.model_repo.partition("/")[2],
            "id": claims.model_repo,
            "additional_details": {
                "deployment_type": "unknown", "model_availability": "unknown",
                "model_repo": claims.model_repo, "model_revision": claims.model_revision,
            },
        },
        "evaluation_results": [
            _result(metric, f"/metrics/{index}", entry, claims, benchmark)
            for index, metric in enumerate(claims.metrics)
        ],
    }  # fmt: skip
    return _sealed(_known_members(record))


def _sealed(record: dict[str, JSON]) -> dict[str, JSON]:
    """Return the record with its own digest, by which `is_export` knows it."""
    source: Any = record["source_metadata"]
    stated = {**source["additional_details"], _RECORD_DIGEST: jcs.digest(record)}
    return {**record, "source_metadata": {**source, "additional_details": stated}}


def is_export(record: Mapping[str, Any]) -> bool:
    """Say whether `record_of` wrote this record, unchanged. The digest is not a signature: like every run's file, a
    record is believed. A converter writes no such digest, and a program that edits a record makes it wrong."""
    source = record.get("source_metadata")
    stated = source.get("additional_details") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or not isinstance(stated, Mapping) or _RECORD_DIGEST not in stated:
        return False
    others = {name: item for name, item in stated.items() if name != _RECORD_DIGEST}
    try:
        digest = jcs.digest({**record, "source_metadata": {**source, "additional_details": others}})
    except (TypeError, ValueError):  # it has numbers that no export has
        return False
    return str(stated[_RECORD_DIGEST]) == digest


def record_path(entry: Entry, claims: RunClaims) -> str:
    """Return the record's path in the format's repository: `BENCHMARK/OWNER/MODEL/UUID.json`. The UUID depends only on
    the entry's content, so the same entry always has the same path."""
    digest = sha256(f"{claims.model_repo}\n{content_digest(entry.form)}".encode()).digest()
    return f"{_name(claims.benchmark_repo)}/{claims.model_repo}/{_uuid(digest)}.json"


def _uuid(digest: bytes) -> str:
    """Return a UUID of version 4 (RFC 9562 5.4) with bits of the digest as its random bits."""
    text = bytes((*digest[:6], digest[6] & 0x0F | 0x40, digest[7], digest[8] & 0x3F | 0x80, *digest[9:16])).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def unheld(claims: RunClaims) -> Iterator[str]:
    """Yield the pointers of the run claims' members that the format has no member for."""
    for index, metric in enumerate(claims.metrics):
        for member in ("slice", "value_type"):
            if getattr(metric, member) is not UNSET:
                yield f"/metrics/{index}/{member}"


def _evaluation_id(entry: Entry, claims: RunClaims, now: int) -> str:
    """Return `eval_name/model_id/retrieved_timestamp`. A part of the digest distinguishes entries of one task."""
    part = content_digest(entry.form).partition(":")[2][:12]
    task = claims.task_id.replace("/", "_")
    return f"{_name(claims.benchmark_repo)}.{task}.{part}/{claims.model_repo.replace('/', '_')}/{now}"


def _source(entry: Entry, stated: Statement, verification: Verification | None) -> dict[str, JSON]:
    details: dict[str, JSON] = {"content_digest": content_digest(entry.form)}
    if entry.details.source is not UNSET and entry.details.source.url is not UNSET:
        details["source_url"] = entry.details.source.url
    if verification is not None:
        details |= {
            "verification_verdict": verification.verdict,
            "verification_issuer": verification.issuer or None,
            "verification_token_digest": verification.token_digest or None,
            "verification_at": str(verification.at),
        }
    name = None if entry.details.source is UNSET else entry.details.source.name
    return {
        "source_name": None if name is UNSET else name,
        "source_type": stated.source_type,
        "source_organization_name": stated.organization,
        "source_organization_url": stated.organization_url,
        "evaluator_relationship": stated.relationship,
        "additional_details": details,
    }


def _result(metric: Metric, pointer: str, entry: Entry, claims: RunClaims, benchmark: Benchmark) -> dict[str, JSON]:
    defined = next((other for other in benchmark.metrics if other.id == metric.metric_id), None)
    if defined is None or defined.higher_is_better is UNSET:
        rule = f"the benchmark's eval.yaml does not say whether a higher {metric.metric_id} is better"
        raise FormatError(Code.RESULT_UNDEFINED, rule, pointer)
    run = entry.details.run if entry.details.run is not UNSET else {}
    split = run.get("split")
    return {
        "evaluation_name": claims.task_id,
        "source_data": {
            "dataset_name": _name(claims.benchmark_repo),
            "source_type": "hf_dataset",
            "hf_repo": claims.benchmark_repo,
            "hf_split": split if isinstance(split, str) else None,
            "additional_details": {"benchmark_revision": claims.benchmark_revision, "task_id": claims.task_id},
        },
        "metric_config": _metric_config(metric, defined),
        "score_details": {
            "score": metric.value,
            "details": _score_words(metric, entry, run),
            "uncertainty": {"num_samples": None if metric.sample_size is UNSET else metric.sample_size},
        },
    }


def _metric_config(metric: Metric, defined: BenchmarkMetric) -> dict[str, JSON]:
    words = {"display_name": defined.display_name, "slice": metric.slice, "value_type": metric.value_type}
    return {
        "metric_id": metric.metric_id,
        "metric_name": metric.metric_id,
        "metric_unit": None if defined.unit is UNSET else defined.unit,
        "lower_is_better": not defined.higher_is_better,
        "additional_details": {name: None if word is UNSET else word for name, word in words.items()},
    }


def _score_words(metric: Metric, entry: Entry, run: Mapping[str, Any]) -> dict[str, JSON]:
    selection = run.get("selection")
    name = metric.metric_id if metric.slice is UNSET else f"{metric.metric_id} ({metric.slice})"
    chosen = selection.get(name) if isinstance(selection, Mapping) else None
    counted, epochs, completeness = run.get("num_samples"), run.get("epochs"), run.get("completeness")
    arguments = run.get("arguments")
    return {
        "notes": None if entry.details.notes is UNSET else entry.details.notes,
        "selection": chosen if isinstance(chosen, str) else None,
        "num_samples": str(counted) if type(counted) is int else None,
        "epochs": str(epochs) if type(epochs) is int else None,
        "completeness": completeness if isinstance(completeness, str) else None,
        "arguments": jcs.canonical(arguments).decode() if isinstance(arguments, Mapping) else None,
    }


def _timestamp(date: str) -> str:
    """Return Unix seconds for a date and time with an offset. Return other text unchanged."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return date
    return date if moment.tzinfo is None else str(int(moment.timestamp()))


def _name(repo: str) -> str:
    return repo.partition("/")[2]


def _known_members(members: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the members without nulls and empty maps, at all depths."""
    known = {name: _known(item) for name, item in members.items()}
    return {name: item for name, item in known.items() if item is not None and item != {}}


def _known(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_known(item) for item in value]
    return _known_members(value) if isinstance(value, dict) else value
