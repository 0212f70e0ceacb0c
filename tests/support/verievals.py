"""Records of verievals: made, signed and anchored as verievals does it."""

import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from issuer.adapters import Anchors
from issuer.tlog import merkle
from tests.support.runs import DATA

REAL = DATA / "verievals"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def body() -> dict[str, Any]:
    texts = {"prompt": "é?", "output": "1", "expected": "1"}
    results = [{"task_id": f"t{n}", **texts, "score": float(n > 0), "passed": n > 0} for n in range(4)]
    return {
        "schema_version": "verievals/runrecord/v1",
        "verievals_version": "0.1.0",
        "benchmark": {"id": "gsm8k", "version": "1.0.0", "content_hash": "ab" * 32},
        "model": {"provider": "ollama", "name": "gemma3:1b", "version": "1", "params": {"temperature": 0.0}},
        "runner": {"seed": 0, "sample_limit": None},
        "results": results,
        "aggregate": {"scorer": "exact", "num_tasks": 4, "metrics": {"accuracy": 0.75, "passed": 3.0}},
    }


def hex_of(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def hashed(content: object) -> str:
    """Hash as verievals' crypto/canonical.py does."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def signed(content: dict[str, Any], key: Ed25519PrivateKey = KEY) -> dict[str, Any]:
    digest = hashed(content)
    signature = {"algorithm": "ed25519", "public_key": hex_of(key), "signature": key.sign(digest.encode()).hex()}
    envelope = {"created_at": "2026-11-21T01:41:27+00:00", "signer": "ci"}
    return {"body": content, "content_hash": digest, "signature": signature, "envelope": envelope}


def ledger_of(*digests: str) -> bytes:
    entries = [
        {"appended_at": "2026-11-21", "index": index, "leaf": digest, "public_key": hex_of(KEY), "record_id": digest}
        for index, digest in enumerate(digests)
    ]
    return b"".join(json.dumps(entry, sort_keys=True).encode() + b"\n" for entry in entries)


def root_of(*digests: str) -> str:
    return merkle.root(merkle.leaf_hash(bytes.fromhex(digest)) for digest in digests).hex()


def anchors_for(record: dict[str, Any], **other: Any) -> Anchors:
    digests = ("11" * 32, record["content_hash"], "22" * 32)
    return replace(Anchors(hex_of(KEY), root_of(*digests), ledger_of(*digests)), **other)


def raw_of(record: dict[str, Any]) -> bytes:
    return json.dumps(record, indent=2).encode()


def real_anchors() -> Anchors:
    """Return the ledger, its root and the key that the record in `tests/data/verievals` was made with."""
    ledger = (REAL / "ledger.jsonl").read_bytes()
    leaves = [json.loads(line)["leaf"] for line in ledger.splitlines()]
    return Anchors((REAL / "runner.pub").read_text().strip(), root_of(*leaves), ledger)
