"""`issuer policy plan` on an audit file that the service's own sink wrote."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from issuer.audit.events import Decision
from issuer.codes import Code
from issuer.service.audit.sink import FileAudit
from tests.support.audited import recorded
from tests.support.decisions import refusal
from tests.support.in_process import Done, run
from tests.support.policies import ISSUER_URL, POLICY, changed, load, submission, write
from tests.support.processes import peak_mib

NOT_JUDGED = refusal(Code.CLAIMS_INVALID)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with policies, and with the audit file of their decisions."""
    home = tmp_path_factory.mktemp("home")
    (home / "old").mkdir()
    policies = load(home / "old", inspect_ai=POLICY)
    lines = [recorded(policies), recorded(policies, submission(benchmark="a/b")),
             recorded(policies, ref="refs/heads/dev"), recorded(policies, repository_id="1")]  # fmt: skip
    audit = FileAudit(home / "audit.jsonl")
    for number, event in enumerate([*(msgspec.json.decode(line, type=Decision) for line in lines), NOT_JUDGED]):
        asyncio.run(audit.record(replace(event, request_id=f"r{number}")))
    audit.close()
    return home


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Return the same policies, to change."""
    folder = tmp_path / "new"
    folder.mkdir()
    return write(folder, inspect_ai=POLICY)


def plan(home: Path, new: Path, *more: str, audit: Path | None = None) -> Done:
    given = ("--audit", str(audit or home / "audit.jsonl"), "--url", ISSUER_URL, *more)
    return run(["policy", "plan", str(home / "old"), str(new), *given], new)


def issued(home: Path) -> dict[str, Any]:
    """Return the audit's event of a token."""
    lines = (home / "audit.jsonl").read_bytes().splitlines()
    return next(event for event in map(json.loads, lines) if event.get("verdict") == "issued")


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "inspect-ai.yaml"
    path.write_text(changed(path.read_text("utf-8"), old, new), "utf-8")


def test_changed_decisions_are_grouped_by_integration_and_code_with_examples(home: Path, new: Path) -> None:
    done = plan(home, new)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "5 decisions: 4 unchanged, 0 would be refused, 0 would be granted, 0 cannot tell\n"
        "1 more were refused before a policy decided (limits, replays, bodies): left out\n"
    )
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    out = plan(home, new).out
    for text in (
        "2 unchanged, 1 would be refused, 1 would be granted, 0 cannot tell",
        "would be refused: 1 of inspect-ai: policy.benchmark\n",
        "would be granted: 1 of inspect-ai: policy.benchmark\n",
        "the run names openai/gsm8k; rule: grants.benchmarks",
    ):
        assert text in out
    document = json.loads(plan(home, new, "--json").out)
    assert (document["version"], document["decisions"], document["refused"], document["granted"]) == (1, 5, 1, 1)
    examples = [example["request_id"] for group in document["groups"] for example in group["examples"]]
    assert sorted(examples) == ["r0", "r1"]
    edit(new, 'ref: "refs/heads/main"', 'ref: "refs/heads/main"\n      environment: "production"')
    lacking = "of inspect-ai: the audit file lacks the claim environment"
    assert lacking in plan(home, new).out


def test_torn_and_endless_lines_are_skipped_and_none_writes_on_the_terminal(
    home: Path, new: Path, tmp_path: Path
) -> None:
    raw, audit = (home / "audit.jsonl").read_bytes(), tmp_path / "audit"
    audit.write_bytes(raw[: len(raw) // 3] + b"\n" + raw + b'{"x": "' + b"y" * 40_000_000 + b'"}\n' + raw[:-20])
    done = plan(home, new, audit=audit)
    assert (done.code, "warning: skipped 3 lines" in done.err) == (0, True)
    audit.write_text(json.dumps({**issued(home), "request_id": "\x1b[2J\x07\n::error::"}))
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    for more in ((), ("--json",)):
        out = plan(home, new, *more, audit=audit).out
        assert ("::error::" in out, "\n::error" in out, {"\x1b", "\x07"} & set(out)) == (True, False, set())
    missing = plan(home, new, audit=new / "none")
    assert (missing.code, "file.unreadable" in missing.err) == (3, True)
    edit(new, "mode: active", "mode: activ")
    assert plan(home, new).code == 3


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(home: Path, new: Path, tmp_path: Path) -> None:
    line = json.dumps(issued(home)).encode() + b"\n"
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    given = (home / "old", new, "--audit", tmp_path / "audit", "--url", ISSUER_URL)
    peaks = []
    for count in (1_000, 60_000):
        with (tmp_path / "audit").open("wb") as file:
            file.writelines(line for _ in range(count))
        code, peak = peak_mib("-m", "issuer", "policy", "plan", *given)
        assert code == 0
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 8, peaks
