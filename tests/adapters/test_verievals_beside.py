"""The records of verievals: its own tool and our leaderboard put the same honest results in the same order.

Its tool is the real one, of the package; the issuer is a service on loopback, and two parties have their runs signed.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from issuer.adapters import Anchors, verievals
from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.results.entry import content_digest, read_entries
from issuer.verify.tiers import RANKS
from tests.support import in_process, judging
from tests.support.boards import unsigned
from tests.support.frameworks import framework
from tests.support.frameworks import run as run_framework
from tests.support.running import WIDE_LIMITS, running, write_folder
from tests.support.runs import BENCHMARK_COMMIT, MODEL_COMMIT, refusal
from tests.support.tree import write_result
from tests.support.verievals import raw_of, root_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

QUESTIONS = 8
RIGHT = {"perfect": 8, "fair": 6, "poor": 2}  # of the answers of each model
POLICY = """version: 1
integration: {name}
mode: active
contacts: ["evals@example.org"]
identities:
  - id: main
    provider: github-actions
    pins: {{repository_id: "{owner}1", repository_owner_id: "{owner}"}}
    require: {{ref: "refs/heads/main"}}
grants:
  frameworks: [{{name: "verievals"}}]
  benchmarks: ["acme/*"]
  models: ["*/*"]
  tasks: ["*"]
  metrics: ["*"]
token: {{audiences: ["https://huggingface.co"], ttl_s: 3600}}
{limits}"""
DEFINITION = """name: Arithmetic
description: Sums.
metrics: [{id: accuracy, display_name: Accuracy, higher_is_better: true, primary: true}]
tasks: [{id: arith}]
"""


class Party(NamedTuple):
    """A party that runs benchmarks with verievals: a folder with its key, records and ledger."""

    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger" / "entries.jsonl"

    @property
    def anchors(self) -> Anchors:
        """The trust in this party: its key, and the current root, which it has published."""
        leaves = [json.loads(line)["leaf"] for line in self.ledger.read_text().splitlines()]
        return Anchors((self.folder / "own.pub").read_text().strip(), root_of(*leaves), self.ledger.read_bytes())

    def tool(self, *arguments: object) -> str:
        return run_framework(self.folder, framework("verievals"), *arguments)

    def record(self, model: str) -> Path:
        """Run the benchmark with a model whose answers are known, and put the record into the ledger."""
        answers = {f"{n} + {n}?": str(2 * n if n < RIGHT[model] else -1) for n in range(QUESTIONS)}
        (self.folder / f"{model}.json").write_text(json.dumps({"name": model, "responses": answers}))
        asked = ("--benchmark", "arith", "--model", f"fixture:{model}.json", "--key", "own.key", "--out", "records")
        path: Path = self.folder / re.findall(r"Saved to: +(\S+)", self.tool("run", *asked))[0]
        self.tool("ledger", "--ledger", "ledger", "append", path)
        return path

    def board(self, *more: object) -> list[tuple[str, str, float]]:
        """Return the rows of verievals' board, by trust: tier, model and accuracy."""
        printed = self.tool("leaderboard", "--records", "records", "--ledger", "ledger", "--trust", *more)
        rows = [[cell.strip() for cell in line.split("|")] for line in printed.splitlines() if re.match(r"\| \d", line)]
        return [(row[2].split()[-1], row[5].partition(":")[2], float(row[6])) for row in rows]


def party(folder: Path) -> Party:
    arith = folder / "arith"
    arith.mkdir(parents=True)
    (arith / "benchmark.yaml").write_text('id: arith\nversion: "1.0.0"\nscorer: numeric\n')
    tasks = [{"id": f"t{n}", "prompt": f"{n} + {n}?", "expected": str(2 * n)} for n in range(QUESTIONS)]
    (arith / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    made = Party(folder)
    made.tool("keygen", "--out", "own")
    return made


class Signing(NamedTuple):
    """A running issuer, and where the results go."""

    url: str
    provider: LocalProvider
    folder: Path

    def submit(self, party: Party, record: Path, model: str, integration: int, *more: object) -> Path:
        """Have a record signed as an entry of the model's repository; return its file."""
        identity = self.folder / "identity"
        owner = f"90000000{integration}"
        identity.write_text(self.provider.token(self.url, repository_id=f"{owner}1", repository_owner_id=owner))
        anchors = party.anchors
        done = in_process.run(
            [str(part) for part in (
                "submit", record, "--issuer", self.url, "--id-token-file", identity, "--from", "verievals",
                "--verievals-key", anchors.public_key, "--verievals-root", anchors.root, "--verievals-ledger", party.ledger,
                "--model-repo", f"acme/{model}", "--model-revision", MODEL_COMMIT, "--benchmark-repo", "acme/arith",
                "--benchmark-revision", BENCHMARK_COMMIT, "--command", "verievals run", "--metric",
                "accuracy=numeric/accuracy", "--allow-mock", f"mock:{model}", "--out", self.folder / "hub",
                "--state", self.folder / f"state{integration}", *more,
            )],
            self.folder,
        )  # fmt: skip
        assert done.code == 0, done.out + done.err
        return self.folder / "hub" / "acme" / model / ".eval_results" / "arith.yaml"

    def board(self) -> list[dict[str, Any]]:
        trust = judging.write_trust(self.folder, self.url)
        definition = self.folder / "benchmarks" / "acme" / "arith" / BENCHMARK_COMMIT / "eval.yaml"
        definition.parent.mkdir(parents=True)
        definition.write_text(DEFINITION)
        asked = ["leaderboard", "build", "hub", "-o", "out", "--trust", str(trust), "--benchmarks", "benchmarks"]
        done = in_process.run([*asked, "--received-now", "--jobs", "1"], self.folder)
        assert done.code == 0, done.out + done.err
        (table,) = json.loads((self.folder / "out" / "leaderboard.json").read_bytes())["tables"]
        rows: list[dict[str, Any]] = table["rows"]
        return rows


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[Signing]:
    with LocalProvider() as provider:
        folder = tmp_path / "service"
        folder.mkdir()
        write_folder(folder, provider)
        for number in (1, 2):
            text = POLICY.format(name=f"verievals-{number}", owner=f"90000000{number}", limits=WIDE_LIMITS)
            (folder / "policies" / f"verievals-{number}.yaml").write_text(text)
        with running(folder, provider) as service:
            yield Signing(service.url, provider, tmp_path)


def test_honest_results_have_the_order_of_verievals_own_tool(signing: Signing, tmp_path: Path) -> None:
    first, second = party(tmp_path / "first"), party(tmp_path / "second")
    files = {model: signing.submit(first, first.record(model), model, 1) for model in RIGHT}
    (entry,) = read_entries(files["poor"].read_bytes(), "arith.yaml")
    signed_at = json.loads(jose.parse_compact(str(entry.token)).unverified_payload)["iat"]
    eventually(lambda: time.time() >= signed_at + 1)  # a reproduction is signed later, in whole seconds
    signing.submit(second, second.record("poor"), "poor", 2, "--reproduces", content_digest(entry.form))
    # An unsigned boast: verievals lists it, our adapter refuses it, and its model's repository may claim it.
    boast = json.loads(next((first.folder / "records").glob("*.json")).read_bytes())
    boast["body"]["model"]["name"] = "boast"
    boast["body"]["aggregate"]["metrics"]["accuracy"] = 1.0
    (first.folder / "records" / "boast.json").write_text(json.dumps(boast))
    assert refusal(verievals.read, raw_of(boast), anchors=first.anchors).pointer == "/content_hash"
    claimed = unsigned(
        model_repo="acme/boast", benchmark_repo="acme/arith", benchmark_revision=BENCHMARK_COMMIT, task_id="arith",
        framework={"name": "verievals", "version": "0.1.0"}, metrics=[{"metric_id": "accuracy", "value": 1.0}],
    )  # fmt: skip
    write_result(tmp_path / "hub", "acme/boast", "arith.yaml", claimed)

    theirs = first.board("--reproduce-benchmark", "arith", "--reproduce-model", "fixture:poor.json")
    assert theirs == [
        ("reproduced", "poor", 0.25), ("verified", "perfect", 1.0), ("verified", "fair", 0.75),
        ("self-reported", "boast", 1.0),
    ]  # fmt: skip
    rows = sorted(signing.board(), key=lambda row: (-RANKS[row["entry"]["tier"]], -row["value"]))
    ours = {row["entry"]["repo"]: row for row in rows}
    assert len(ours) == len(rows)
    assert [(row["entry"]["tier"], repo.removeprefix("acme/"), row["value"]) for repo, row in ours.items()] == theirs
    assert {repo: row["rank"] for repo, row in ours.items()} == {
        "acme/perfect": 1, "acme/fair": 2, "acme/poor": 3, "acme/boast": None,
    }, "by the number alone among verified results; the last one is unsigned"  # fmt: skip
