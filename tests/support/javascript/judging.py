"""Cases of the form of `tests/vectors/contract/verify.json`, judged by the verifier in JavaScript."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from issuer.token.verify_token import unverified_leaf
from tests.support.javascript import NODE, Calls, Engine, Line, mapping

Case = Mapping[str, Any]


def judge_in_javascript(cases: Iterable[Case], trusts: Mapping[str, Case], engine: Engine = NODE) -> list[Any]:
    """Return for each case its reports as JSON, or why the file is not read, all by one process."""
    calls = Calls()
    lines = add_cases(calls, cases, trusts)
    answers = calls.run(engine)
    return [answers[line.number] for line in lines]


def add_cases(calls: Calls, cases: Iterable[Case], trusts: Mapping[str, Case]) -> list[Line]:
    """Add the calls that judge each case, and return the places of its reports."""
    known = {name: _trust(calls, trust) for name, trust in trusts.items()}
    return [_judged(calls, case, known[case["trust"]]) for case in cases]


def _trust(calls: Calls, trust: Case) -> Line:
    documents: dict[str, Any] = trust["documents"]
    found = {pointer: each["text"] and each["text"].encode() for pointer, each in documents.items()}
    fetched_at = {pointer: each["fetched_at"] for pointer, each in documents.items() if each["text"] is not None}
    file = calls.add("trust.js", "readTrustFile", json.dumps(trust["file"]).encode())
    return calls.add("trust.js", "resolve", file, mapping(found), mapping(fetched_at))


def _judged(calls: Calls, case: Case, trust: Line) -> Line:
    entries = calls.add("entry.js", "readEntries", case["file"].encode())
    benchmarks = {
        f"{each['repo']}@{each['revision']}": calls.add("benchmark.js", "readBenchmark", each["yaml"].encode())
        for each in case.get("benchmarks", ())
    }
    context = {
        "now": case["now"],
        "witnessed": case["witnessed"],
        "benchmarks": mapping(benchmarks),
        "receipts": mapping(case.get("receipts", {})),
        "proofs": mapping({leaf: {"proof": proof.encode()} for leaf, proof in _proofs(case)}),
    }
    return calls.add("verify.js", "verifyEntries", entries, case["repo"], case["path"], trust, case["at"], context)


def _proofs(case: Case) -> Iterable[tuple[str, str]]:
    """Yield each proof by the text of its leaf: the entries of such files differ in their tokens alone."""
    tokens = [line.partition('"')[2].rstrip('"\n') for line in case["file"].split("\n") if "verify_token" in line]
    for pointer, proof in case.get("proofs", {}).items():
        yield unverified_leaf(tokens[int(pointer[1:])]).to_bytes().decode(), proof
