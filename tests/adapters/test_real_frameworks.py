"""The frameworks themselves, run here where they are installed, and their output read: formats change with releases.

tests/support/frameworks.py looks for them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import Anchors, Supplied
from issuer.codes import Code
from issuer.results.claims import Metric
from tests.support.frameworks import framework, run
from tests.support.runs import ALL, BENCHMARK_COMMIT, DATA, MODEL_COMMIT, refusal
from tests.support.verievals import REAL

pytestmark = pytest.mark.long


@pytest.mark.parametrize("suffix", ["json", "eval"])
def test_inspect_ai(suffix: str, tmp_path: Path) -> None:
    python = Path(framework("inspect")).with_name("python")
    program = """
import sys; from pathlib import Path
sys.path.insert(0, sys.argv[1]); import make_inspect_log as made
revisions = {"model_revision": made.MODEL_REVISION, "benchmark_revision": made.BENCHMARK_REVISION}
out, limit = Path(sys.argv[2]), int(sys.argv[3]) or None
made.run([made.match(), made.includes()], revisions, out, limit)
"""
    for limit in (0, 3):
        run(tmp_path, python, "-c", program, DATA, tmp_path / f"{limit}.{suffix}", limit)
    supplied = Supplied(model_repo="acme/open-model", command="inspect eval", metrics={"accuracy": "match/accuracy"})
    whole = adapters.read(tmp_path / f"0.{suffix}")
    built = whole.claims(supplied, allow_mock={"mockllm/model"})
    assert built.claims.metrics == (Metric("accuracy", 0.625, sample_size=8),)
    assert (built.claims.model_revision, built.claims.benchmark_revision) == (MODEL_COMMIT, BENCHMARK_COMMIT)
    limited = adapters.read(tmp_path / f"3.{suffix}")
    assert refusal(limited.claims, supplied, allow_mock=True).pointer == "/eval/config/limit"


def test_verievals(tmp_path: Path) -> None:
    command = framework("verievals")
    benchmark = tmp_path / "sums"
    benchmark.mkdir()
    (benchmark / "benchmark.yaml").write_text('id: sums\nversion: "1.0.0"\nscorer: numeric\ndescription: Sums.\n')
    tasks = ({"id": f"t{n}", "prompt": f"{n} + {n}?", "expected": str(2 * n)} for n in range(4))
    (benchmark / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    run(tmp_path, command, "keygen", "--out", "runner")
    signing = ("--key", "runner.key", "--signer", "ci")
    called = (command, "run", "--benchmark", benchmark, "--model", "echo", *signing, "--seed", 7, "--out")
    run(tmp_path, *called, "records")
    (record,) = (tmp_path / "records").iterdir()
    printed = run(tmp_path, command, "ledger", "--ledger", "ledger", "append", record)
    ledger = (tmp_path / "ledger" / "entries.jsonl").read_bytes()
    anchors = Anchors((tmp_path / "runner.pub").read_text().strip(), printed.split()[-1], ledger)
    supplied = replace(ALL, framework_version=None)
    built: Any = adapters.read(record, anchors=anchors).claims(supplied, allow_mock={"mock:echo"})
    assert built.claims.framework.name == "verievals"
    body = json.loads(record.read_text())["body"]
    assert {metric.metric_id: metric.value for metric in built.claims.metrics} == body["aggregate"]["metrics"]
    assert {metric.sample_size for metric in built.claims.metrics} == {len(body["results"])} == {4}
    words = built.details["run"]
    assert (words["num_samples"], words["seed"], words["completeness"]) == (4, 7, "full")
    for limit, answer in ((2, "not known"), (9, "full")):
        run(tmp_path, *called, f"limited-{limit}", "--limit", limit)
        (limited,) = (tmp_path / f"limited-{limit}").iterdir()
        printed = run(tmp_path, command, "ledger", "--ledger", f"ledger-{limit}", "append", limited)
        ledger = (tmp_path / f"ledger-{limit}" / "entries.jsonl").read_bytes()
        bound = adapters.read(limited, anchors=Anchors(anchors.public_key, printed.split()[-1], ledger))
        built = bound.claims(supplied, allow_mock=True, allow_partial=True)
        assert (built.details["run"]["num_samples"], built.details["run"]["completeness"]) == (min(limit, 4), answer)
    # The same run by another key: verievals takes it, as the key is in the record.
    stranger = replace(anchors, public_key=(REAL / "runner.pub").read_text().strip())
    error = refusal(adapters.read, record, anchors=stranger)
    assert (error.code, error.pointer) == (Code.FILE_RULE, "/signature/public_key")
