"""`issuer policy plan` on the audit file of a service that ran."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.in_process import Done, run
from tests.support.policies import changed
from tests.support.running import Running, body, numbered, running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        assert live.post(live.token(), numbered(1)).status_code == 201
        assert live.post(live.token(), body(benchmark_repo="a/b")).status_code == 403
        assert live.post(live.token(ref="refs/heads/dev"), numbered(2)).status_code == 403
        assert live.post(live.token(repository_id="1"), numbered(3)).status_code == 403
        assert live.post(live.token(), b"{").status_code == 400
        yield live


@pytest.fixture
def new(service: Running, tmp_path: Path) -> Path:
    """Return a copy of the service's policies, to change."""
    folder = tmp_path / "new"
    folder.mkdir()
    for path in (service.folder / "policies").glob("*.yaml"):
        # Their tests are of the sample's rules.
        (folder / path.name).write_text(path.read_text("utf-8").partition("\ntests:")[0] + "\n", "utf-8")
    return folder


def plan(service: Running, new: Path, *more: object, audit: Path | None = None) -> Done:
    given = ("--audit", audit or service.settings.audit_file, "--url", service.url, "--development", *more)
    return run(["policy", "plan", *map(str, (service.folder / "policies", new, *given))], new)


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "inspect-ai.yaml"
    path.write_text(changed(path.read_text("utf-8"), old, new), "utf-8")


def test_the_same_rules_change_no_decision(service: Running, new: Path) -> None:
    done = plan(service, new)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "5 decisions: 4 unchanged, 0 would be refused, 0 would be granted, 0 cannot tell\n"
        "1 more were refused before a policy decided (limits, replays, bodies): left out\n"
    )


def test_changed_decisions_are_grouped_by_integration_and_code_with_examples(service: Running, new: Path) -> None:
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    out = plan(service, new).out
    for text in (
        "2 unchanged, 1 would be refused, 1 would be granted, 0 cannot tell",
        "would be refused: 1 of inspect-ai: policy.benchmark\n",
        "would be granted: 1 of inspect-ai: policy.benchmark\n",
        "the run names openai/gsm8k; rule: grants.benchmarks",
    ):
        assert text in out
    document = json.loads(plan(service, new, "--json").out)
    assert (document["version"], document["decisions"], document["refused"], document["granted"]) == (1, 5, 1, 1)
    ids = {event["request_id"] for event in service.audit() if event.get("event") == "decision"}
    assert {example["request_id"] for group in document["groups"] for example in group["examples"]} <= ids
    edit(new, 'ref: "refs/heads/main"', 'ref: "refs/heads/main"\n      environment: "production"')
    lacking = "of inspect-ai: the audit file lacks the claim environment"
    assert lacking in plan(service, new).out


def test_torn_and_endless_lines_are_skipped_with_a_warning(service: Running, new: Path, tmp_path: Path) -> None:
    raw, audit = service.settings.audit_file.read_bytes(), tmp_path / "audit"
    audit.write_bytes(raw[: len(raw) // 3] + b"\n" + raw + b'{"x": "' + b"y" * 40_000_000 + b'"}\n' + raw[:-20])
    done = plan(service, new, audit=audit)
    assert (done.code, "warning: skipped 3 lines" in done.err) == (0, True)
    missing = plan(service, new, audit=new / "none")
    assert (missing.code, "file.unreadable" in missing.err) == (3, True)
    edit(new, "mode: active", "mode: activ")
    assert plan(service, new).code == 3


def test_values_of_the_audit_cannot_write_on_the_terminal(service: Running, new: Path, tmp_path: Path) -> None:
    event = next(event for event in service.audit() if event.get("verdict") == "issued")
    event["request_id"] = "\x1b[2J\x07\n::error::"
    (tmp_path / "audit").write_text(json.dumps(event))
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    for more in ((), ("--json",)):
        out = plan(service, new, *more, audit=tmp_path / "audit").out
        assert ("::error::" in out, "\n::error" in out, {"\x1b", "\x07"} & set(out)) == (True, False, set())


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(service: Running, new: Path, tmp_path: Path) -> None:
    line = json.dumps(next(event for event in service.audit() if event.get("verdict") == "issued")).encode() + b"\n"
    edit(new, '["openai/gsm8k", ', '["a/*", ')
    peaks = []
    for count in (1_000, 60_000):
        with (tmp_path / "audit").open("wb") as file:
            file.writelines(line for _ in range(count))
        command = [sys.executable, "-m", "issuer", "policy", "plan", service.folder / "policies", new, "--audit",
                   tmp_path / "audit", "--url", service.url, "--development"]  # fmt: skip
        program = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        measured = [sys.executable, "-c", program, *map(str, command)]
        done = subprocess.run(measured, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) * (1 if sys.platform == "darwin" else 1024))
    assert peaks[1] - peaks[0] < 8 * 1024 * 1024, peaks
