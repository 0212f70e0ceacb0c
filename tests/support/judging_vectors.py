"""Judges a case of `tests/vectors/contract/verify.json` by its content alone, as its README asks of verifiers in other
languages."""

import json
from collections.abc import Mapping
from typing import Any

from issuer.results.benchmark import read_benchmark
from issuer.results.entry import read_entries
from issuer.token.verify_token import unverified_leaf
from issuer.verify import Context, verify_entries
from issuer.verify.check_log import AtHand
from issuer.verify.report import Report
from issuer.verify.trust import Trust, read_trust_file, resolve

MAX_JSON_BYTES = 16 * 1024
MAX_JSON_DEPTH = 8


def judge_case(case: Mapping[str, Any], trusts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_values(report) for report in reports_of(case, trusts)]


def reports_of(case: Mapping[str, Any], trusts: Mapping[str, Any]) -> tuple[Report, ...]:
    entries = read_entries(case["file"].encode(), case["path"])
    tokens = {entry.pointer: str(entry.token) for entry in entries if entry.token}
    proofs = {
        unverified_leaf(tokens[pointer]): AtHand(proof.encode()) for pointer, proof in case.get("proofs", {}).items()
    }
    benchmarks = {
        (each["repo"], each["revision"]): read_benchmark(each["yaml"].encode(), "eval.yaml")
        for each in case.get("benchmarks", [])
    }
    receipts = case.get("receipts", {})
    context = Context(case["now"], case["witnessed"], benchmarks=benchmarks, receipts=receipts, proofs=proofs)
    return verify_entries(entries, case["repo"], case["path"], read_trust(trusts[case["trust"]]), case["at"], context)


def read_trust(trust: Mapping[str, Any]) -> Trust:
    """Read a trust file with the documents of its URLs."""
    documents: dict[str, Any] = trust["documents"]
    found = {pointer: each["text"] and each["text"].encode() for pointer, each in documents.items()}
    fetched_at = {pointer: each["fetched_at"] for pointer, each in documents.items() if each["text"] is not None}
    return resolve(read_trust_file(json.dumps(trust["file"]).encode(), "trust.yaml"), found, fetched_at)


def _values(report: Report) -> dict[str, Any]:
    names = ("pointer", "verdict", "at", "at_from", "token_digest", "content_digest", "tier")
    checks = {str(check.number): str(check.status) for check in report.checks}
    return {**{name: getattr(report, name) for name in names}, "checks": checks}
