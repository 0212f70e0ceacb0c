"""The reader of verievals. It verifies a RunRecord (`verievals/runrecord/v1`) and returns its `Run`. Pure.

The record is signed, so it is checked, while other runs are believed. The checks are stricter than verievals' own:

* verievals accepts any public key in the record, keys of small order, and duplicate members. Here the owner configures
  the key and the ledger's root, and the record's key must be the configured key.
* verievals hashes only known members of the body. Here the hash covers the whole body, and unknown members are refused.
* the aggregate is recomputed from the results.
* the envelope (time, signer) is not signed, so no value comes from it.

A record has other names for models and benchmarks. The owner supplies repositories, revisions and the command.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from issuer.adapters.evidence import MAX_VALUES, Octets, artifact, broken, reason, said, too_large, words
from issuer.adapters.run import Run, RunText
from issuer.adapters.score import Score
from issuer.codes import Code
from issuer.errors import Fault, InputError, Place, reading
from issuer.formats import jose, strict_json
from issuer.formats.strict_json import JSON
from issuer.results import arguments
from issuer.tlog import merkle

FRAMEWORK = "verievals"
MAX_BYTES = 64 * 2**20
MAX_DEPTH = 32
VALUE_BYTES = 20  # beyond MAX_VALUES, a record has at most one value for each of these bytes
MAX_ENTRIES = 50_000
MAX_ENTRY = 4096
MOCK_PROVIDER = "mock"

_HASH = re.compile(r"[0-9a-f]{64}")
_Hex32: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Hex64: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{128}\Z")]


class Anchors(Struct, frozen=True):
    """The values that the owner of a record trusts: the runner's Ed25519 key and a published root of the ledger, in
    lowercase hex. `ledger` is the text of `entries.jsonl`, up to that root or beyond it."""

    public_key: str
    root: str
    ledger: Octets


class _Benchmark(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    version: str
    content_hash: _Hex32


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    name: str
    version: str
    params: dict[str, object]


class _Runner(Struct, frozen=True, forbid_unknown_fields=True):
    seed: int
    sample_limit: int | None


class _Result(Struct, frozen=True, forbid_unknown_fields=True):
    task_id: str
    prompt: str
    output: str
    expected: str | None
    score: float
    passed: bool


class _Metrics(Struct, frozen=True, forbid_unknown_fields=True):
    """The two metrics of verievals 0.1.0. Others could not be recomputed."""

    accuracy: float
    passed: float


class _Aggregate(Struct, frozen=True, forbid_unknown_fields=True):
    scorer: str
    num_tasks: int
    metrics: _Metrics


class _Body(Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: Literal["verievals/runrecord/v1"]
    verievals_version: str
    benchmark: _Benchmark
    model: _Model
    runner: _Runner
    results: Annotated[tuple[_Result, ...], Meta(min_length=1, max_length=1_000_000)]
    aggregate: _Aggregate


class _Signature(Struct, frozen=True, forbid_unknown_fields=True):
    algorithm: Literal["ed25519"]
    public_key: _Hex32
    signature: _Hex64


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    created_at: str
    signer: str | None


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    body: _Body
    content_hash: _Hex32
    signature: _Signature
    envelope: _Envelope


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    record_id: _Hex32
    leaf: _Hex32
    public_key: _Hex32
    appended_at: str


def read(raw: Octets, name: str = "", *, anchors: Anchors) -> Run:
    """Read one record and verify it completely: parse, hash, signature, aggregate, ledger. Raises InputError: `file.*`
    of the strict reader, `file.schema` for unknown members and wrong types, `key.unusable` for an invalid configured
    key, `file.rule` for each check that fails."""
    with reading(name):
        most = max(MAX_VALUES, len(raw) // VALUE_BYTES)
        tree = strict_json.loads(bytes(raw), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, max_values=most)
        record = strict_json.convert(tree, _Record)
    # (1) integrity
    _demand_hash(tree["body"], record.content_hash, name)  # type: ignore[call-overload,index]
    # (2) signature
    _demand_signature(record, anchors.public_key, name)
    # (3) the aggregate follows from the results
    _demand_aggregate(record.body, name)
    # (4) inclusion
    _demand_inclusion(record.content_hash, anchors)
    return _run(record, raw, name)


def _demand_hash(body: JSON, content_hash: str, name: str) -> None:
    if _content_hash(body) != content_hash:
        raise broken(name, "/content_hash", "not the hash of the body: the record was altered")
    stem = name.rpartition("/")[2].removesuffix(".json")
    if _HASH.fullmatch(stem) and stem != content_hash:
        raise broken(name, "/content_hash", "the file has the name of another record")


def _content_hash(body: JSON) -> str:
    """Return verievals' hash: SHA-256 of Python's JSON with sorted names, not of RFC 8785 (crypto/canonical.py)."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _demand_signature(record: _Record, public_key: str, name: str) -> None:
    key = _key(public_key)
    if record.signature.public_key != public_key:
        raise broken(name, "/signature/public_key", "not the configured key")
    signed, signature = record.content_hash.encode(), bytes.fromhex(record.signature.signature)
    if not key.verifies(jose.EDDSA, signed, signature):
        raise broken(name, "/signature/signature", "the configured key did not make this signature")


def _key(public_key: str) -> jose.Key:
    if _HASH.fullmatch(public_key):
        point = jose.base64url_encode(bytes.fromhex(public_key))
        if key := jose.parse_key({"kty": "OKP", "crv": "Ed25519", "x": point, "kid": "runner"}):
            return key
    rule = "the configured public key must be a valid Ed25519 point in 64 lowercase hex characters"
    raise InputError(Code.KEY_UNUSABLE, rule, Place("--verievals-key"))


def _demand_aggregate(body: _Body, name: str) -> None:
    passed, count = sum(result.passed for result in body.results), len(body.results)
    if len({result.task_id for result in body.results}) != count:
        raise broken(name, "/body/results", "a task has several results")
    metrics = body.aggregate.metrics
    if body.aggregate.num_tasks != count or metrics.passed != passed or metrics.accuracy != passed / count:
        raise broken(name, "/body/aggregate", "not the aggregate of the results")
    if body.runner.sample_limit is not None and body.runner.sample_limit < count:
        raise broken(name, "/body/results", "more results than the sample limit")


def _demand_inclusion(content_hash: str, anchors: Anchors) -> None:
    """Raise InputError unless the record is in the ledger under the pinned root."""
    name = "--verievals-ledger"
    if not _HASH.fullmatch(anchors.root):
        raise broken("--verievals-root", "", "a root is 64 lowercase hex characters")
    lines = bytes(anchors.ledger).splitlines()
    if len(lines) > MAX_ENTRIES:
        raise too_large(name, f"a ledger of more than {MAX_ENTRIES} entries")
    ids, leaves = set(), []
    for index, line in enumerate(lines):
        place = f"{name} line {index + 1}"
        with reading(place):
            entry = strict_json.convert(strict_json.loads(line, max_bytes=MAX_ENTRY, max_depth=2), _Entry)
        if entry.index != index or entry.leaf != entry.record_id or entry.record_id in ids:
            raise broken(place, "", "entries must be in order, each record once")
        ids.add(entry.record_id)
        leaves.append(merkle.leaf_hash(bytes.fromhex(entry.leaf)))
    tree, included, record_leaf = merkle.Peaks(), False, merkle.leaf_hash(bytes.fromhex(content_hash))
    for leaf in leaves:
        tree, included = tree.extend([leaf]), included or leaf == record_leaf
        if tree.root == bytes.fromhex(anchors.root):
            if included:
                return
            raise broken(name, "", "the record is not in the ledger under the pinned root")
    raise broken(name, "", "the ledger never had the pinned root: it was altered or cut short, or is another ledger")


def _run(record: _Record, raw: Octets, name: str) -> Run:
    body = record.body
    model = f"{body.model.provider}:{body.model.name}"
    return Run(
        name=name,
        task=body.benchmark.id,
        framework_name=RunText(FRAMEWORK, ""),
        framework_version=said(body.verievals_version, "/body/verievals_version"),
        task_id=said(body.benchmark.id, "/body/benchmark/id"),
        mock=RunText(model, "/body/model/provider") if body.model.provider == MOCK_PROVIDER else None,
        unknown=_unknown(body),
        arguments=arguments.bounded(arguments.flat({"generation": body.model.params})),
        scores=tuple(_scores(body)),
        details={
            "artifacts": [artifact(raw, name)],
            "run": words({
                "task": body.benchmark.id,
                "model": model,
                "model_version": body.model.version,
                "seed": body.runner.seed,
                "benchmark_version": body.benchmark.version,
                "benchmark_hash": f"sha256:{body.benchmark.content_hash}",
                "record": f"sha256:{record.content_hash}",
            }),
        },
    )  # fmt: skip


def _unknown(body: _Body) -> tuple[Fault, ...]:
    """Return why the run is not known to be full. A run with fewer results than its limit used every task."""
    limit = body.runner.sample_limit
    if limit is None or len(body.results) < limit:
        return ()
    rule = f"the run was limited to {limit} samples, and the record does not say how many exist"
    return (reason("/body/runner/sample_limit", rule),)


def _scores(body: _Body) -> Iterator[Score]:
    metrics = body.aggregate.metrics
    for metric, value in (("accuracy", metrics.accuracy), ("passed", metrics.passed)):
        pointer = f"/body/aggregate/metrics/{metric}"
        yield Score(
            scorer=body.aggregate.scorer, metric=metric, value=value, pointer=pointer, samples=len(body.results)
        )
