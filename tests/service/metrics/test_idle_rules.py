"""Entries of the policies without a match, found in the audit as it grows and is rotated."""

from pathlib import Path

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from issuer.policy.model import Policy
from issuer.service.metrics.idle_rules import AuditWatch, places
from tests.support.running import Running
from tests.support.waiting import eventually, within

GRANTS: dict[str, object] = {
    "frameworks": [{"name": "a", "versions": ">=2"}, {"name": "b"}], "benchmarks": ["open/*", "other/one"],
    "models": ["acme/*", "acme/one"], "tasks": ["t*"], "metrics": ["accuracy", {"id": "loss", "max": 1.0}],
    "deny": {"models": ["acme/secret*"]},
}  # fmt: skip
POLICY = msgspec.convert(
    {
        "version": 1, "integration": "i", "mode": "active", "contacts": ["a@example.org"], "grants": GRANTS,
        "identities": [{"id": each, "provider": "p", "pins": {"x": "1"}} for each in ("ci", "old")],
        "token": {"audiences": ["https://a.example"]},
    },
    Policy,
)  # fmt: skip
RESULT: dict[str, object] = {
    "model_repo": "acme/two", "model_revision": "1" * 40, "benchmark_repo": "open/x", "benchmark_revision": "2" * 40,
    "task_id": "t1", "metrics": [{"metric_id": "accuracy"}], "framework": {"name": "a", "version": "2.1"},
}  # fmt: skip


def line(*results: dict[str, object], **members: object) -> bytes:
    """Return a decision as the audit has it."""
    decided = {"event": "decision", "time": 1000, "integration": "i", "identity": "ci", "results": results, **members}
    return msgspec.json.encode(decided)


def never(watch: AuditWatch) -> list[str]:
    (row,) = watch.found().policies
    return list(row.never)


def watch_of(policy: Policy = POLICY) -> AuditWatch:
    return AuditWatch(Path("/nowhere"), lambda: {"i": policy})


def test_an_entry_that_matched_once_is_needed_and_all_others_are_named() -> None:
    watch = watch_of()
    watch.read(line(RESULT))
    assert never(watch) == [
        "identities.old", "grants.frameworks[1]", "grants.benchmarks[1]", "grants.models[1]", "grants.metrics[1]",
        "grants.deny.models[0]",
    ]  # fmt: skip
    watch.read(line({**RESULT, "model_repo": "acme/Secret-7", "framework": {"name": "b", "version": "x"}}, identity="old",
                    verdict="refused"))  # fmt: skip
    assert never(watch) == ["grants.benchmarks[1]", "grants.models[1]", "grants.metrics[1]"]
    high, low = ({**RESULT, "metrics": [{"metric_id": "loss", "value": value}]} for value in (1.5, 0.5))
    watch.read(line({**high, "model_repo": "acme/one", "benchmark_repo": "other/one"}))
    assert never(watch) == ["grants.metrics[1]"], "a value out of its range does not match"
    watch.read(line(low))
    assert watch.found().policies == []
    assert len(places(POLICY)) == 12


def test_before_a_decision_about_an_identity_a_policy_is_silent_and_has_no_blame() -> None:
    """An identity that a caller only resembles was not decided about, and other lines of the audit are not decisions."""
    watch = watch_of()
    for other in (
        line(RESULT, bucket=3), line(RESULT, event="refusals"), line(RESULT, integration="gone"), b"~", b"{",
        line(RESULT)[:-9], line(RESULT).replace(b"t1", b"t\xff"), b'"event":"decision""integration":"' + b"[" * 9000,
    ):  # fmt: skip
        watch.read(other)
        assert (watch.found().silent, watch.found().policies) == (["i"], [])


def test_a_large_batch_has_no_results_in_the_audit_and_is_counted() -> None:
    watch = watch_of()
    watch.read(msgspec.json.encode({**msgspec.json.decode(line()), "results": [], "counts": {"results": 9}}))
    raw = msgspec.json.decode(line())
    del raw["results"]
    watch.read(msgspec.json.encode({**raw, "counts": {"results": 100, "metrics": 1, "subjects": 1}}))
    watch.read(msgspec.json.encode(raw))
    assert watch.found().unread == 1


def test_a_policy_that_changes_begins_anew_and_one_that_was_only_read_again_does_not() -> None:
    policies = {"i": POLICY}
    watch = AuditWatch(Path("/nowhere"), lambda: policies)
    watch.read(line(RESULT))
    policies["i"] = replace(POLICY)
    assert len(never(watch)) == 6
    policies["i"] = replace(POLICY, mode="staged")
    assert watch.found().silent == ["i"]
    watch.read(line(RESULT))
    assert len(never(watch)) == 6


@pytest.mark.long
def test_an_audit_is_read_from_its_last_part_on_and_on_after_it_was_rotated(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    audit.write_bytes(line(RESULT, time=7) + b"\n" + line({**RESULT, "framework": {"name": "b", "version": "1"}})[:-5])
    watch = AuditWatch(audit, lambda: {"i": POLICY})
    watch.start()
    assert within(20, lambda: bool(watch.found().policies))
    assert "grants.frameworks[1]" in never(watch), "half a line is not a decision yet"
    audit.rename(tmp_path / "audit.1")
    audit.write_bytes(line({**RESULT, "framework": {"name": "b", "version": "1"}}) + b"\n")
    assert within(20, lambda: "grants.frameworks[1]" not in never(watch))
    assert watch.found().since == 7


@pytest.mark.long
def test_a_running_service_names_what_its_jobs_never_asked_for(live: Running) -> None:
    assert live.post(live.token()).status_code == 201
    url = f"http://127.0.0.1:{live.settings.metrics.port}/"
    eventually(lambda: "grants.benchmarks[" in httpx.get(url).text)
    text = httpx.get(url).text
    assert "<bdi>grants.frameworks[0]</bdi>" not in text.partition("By 1 policies")[0]
