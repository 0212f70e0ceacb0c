"""The records of verievals, judged by its own tool and by us: the same order where it is right, and what it takes of a
forger refused.

Its tool is the real one, of the package; the issuer is a service on loopback, and two parties have their runs signed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.adapters import Anchors, verievals
from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.errors import InputError
from issuer.results.entry import content_digest, read_entries
from issuer.verify.tiers import RANKS
from tests.support import in_process, judging
from tests.support.boards import unsigned
from tests.support.frameworks import framework
from tests.support.frameworks import run as run_framework
from tests.support.running import WIDE_LIMITS, running, write_folder
from tests.support.runs import BENCHMARK_COMMIT, MODEL_COMMIT, refusal
from tests.support.tree import write_result
from tests.support.verievals import KEY, hex_of, ledger_of, raw_of, root_of, signed

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
    """Who runs benchmarks with verievals: a folder with its key, records and ledger."""

    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger" / "entries.jsonl"

    @property
    def anchors(self) -> Anchors:
        """What it trusts: its key, and the root that it published, which is that of now."""
        leaves = [json.loads(line)["leaf"] for line in self.ledger.read_text().splitlines()]
        return Anchors((self.folder / "own.pub").read_text().strip(), root_of(*leaves), self.ledger.read_bytes())

    def tool(self, *arguments: object) -> str:
        """Run verievals' own command."""
        return run_framework(self.folder, framework("verievals"), *arguments)

    def record(self, model: str) -> Path:
        """Run the benchmark with a model whose answers are known, and put the record into the ledger."""
        answers = {f"{n} + {n}?": str(2 * n if n < RIGHT[model] else -1) for n in range(QUESTIONS)}
        (self.folder / f"{model}.json").write_text(json.dumps({"name": model, "responses": answers}))
        said = self.tool(
            "run", "--benchmark", "arith", "--model", f"fixture:{model}.json", "--key", "own.key", "--out", "records"
        )
        path: Path = self.folder / re.findall(r"Saved to: +(\S+)", said)[0]
        self.publish(path)
        return path

    def publish(self, record: Path) -> None:
        self.tool("ledger", "--ledger", "ledger", "append", record)

    def believes(self, record: Path) -> bool:
        """Say whether verievals' verifier takes a record."""
        return "Overall:      VERIFIED" in self.tool("verify", record, "--ledger", "ledger")

    def board(self, *more: object) -> list[tuple[str, str, float]]:
        """Return the rows of verievals' board, by trust: tier, model and accuracy."""
        said = self.tool("leaderboard", "--records", "records", "--ledger", "ledger", "--trust", *more)
        rows = [[cell.strip() for cell in line.split("|")] for line in said.splitlines() if re.match(r"\| \d", line)]
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


# -- the same order -------------------------------------------------------------------------------------------------------


class Signing(NamedTuple):
    """A running issuer, and where the results go."""

    url: str
    provider: LocalProvider
    folder: Path

    def submit(self, who: Party, record: Path, model: str, integration: int, *more: object) -> Path:
        """Have a record signed as an entry of the model's repository; return its file."""
        identity = self.folder / "identity"
        owner = f"90000000{integration}"
        identity.write_text(self.provider.token(self.url, repository_id=f"{owner}1", repository_owner_id=owner))
        anchors = who.anchors
        done = in_process.run(
            [str(part) for part in (
                "submit", record, "--issuer", self.url, "--id-token-file", identity, "--from", "verievals",
                "--verievals-key", anchors.public_key, "--verievals-root", anchors.root, "--verievals-ledger", who.ledger,
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
        """Return the rows of our leaderboard's only table."""
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


def test_the_order_is_that_of_its_own_tool_where_that_is_right(signing: Signing, tmp_path: Path) -> None:
    first, second = party(tmp_path / "first"), party(tmp_path / "second")
    files = {model: signing.submit(first, first.record(model), model, 1) for model in RIGHT}
    (entry,) = read_entries(files["poor"].read_bytes(), "arith.yaml")
    time.sleep(1.1)  # a reproduction is signed later, in whole seconds
    signing.submit(second, second.record("poor"), "poor", 2, "--reproduces", content_digest(entry.form))
    # One that nobody signed: its tool lists it, the adapter does not read it, and its model may say it all the same.
    boast = json.loads(next((first.folder / "records").glob("*.json")).read_bytes())
    boast["body"]["model"]["name"] = "boast"
    boast["body"]["aggregate"]["metrics"]["accuracy"] = 1.0
    (first.folder / "records" / "boast.json").write_text(json.dumps(boast))
    assert refused(boast, first.anchors).pointer == "/content_hash"
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
    }, "by the number alone, of what is verified; nobody vouches for the last"  # fmt: skip


# -- forgeries ------------------------------------------------------------------------------------------------------------

SMALL_ORDER = "01" + "00" * 31  # a point for which one signature fits every message
Content = dict[str, Any]


def refused(record: Content | bytes, anchors: Anchors, name: str = "record.json") -> InputError:
    raw = record if isinstance(record, bytes) else raw_of(record)
    return refusal(lambda: verievals.read(raw, name, anchors=anchors))


def boasting(content: Content) -> Content:
    """Return a body that says that every answer was right, and is what its results add up to."""
    results = [{**result, "output": result["expected"], "score": 1.0, "passed": True} for result in content["results"]]
    sums = {**content["aggregate"], "metrics": {"accuracy": 1.0, "passed": float(len(results))}}
    return {**content, "results": results, "aggregate": sums}


def by_a_key_of_its_own(content: Content) -> bytes:
    return raw_of(signed(boasting(content), Ed25519PrivateKey.generate()))


def by_a_key_of_small_order(content: Content) -> bytes:
    made = signed(boasting(content))
    return raw_of(
        {**made, "signature": {**made["signature"], "public_key": SMALL_ORDER, "signature": "01" + "00" * 63}}
    )


def with_an_average_that_is_none(content: Content) -> bytes:
    return raw_of(signed({**content, "aggregate": boasting(content)["aggregate"]}))


def with_its_best_answer_again_and_again(content: Content) -> bytes:
    best = max(content["results"], key=lambda result: float(result["score"]))
    return raw_of(signed(boasting({**content, "results": [best] * len(content["results"])})))


def with_a_number_for_each_reader(content: Content) -> bytes:
    return raw_of(signed(content)).replace(b'"accuracy":', b'"accuracy": 1.0, "accuracy":')


def with_a_member_that_nobody_signed(content: Content) -> bytes:
    made = signed(content)
    return raw_of({**made, "body": {**made["body"], "official_accuracy": 1.0}})


@pytest.mark.parametrize(
    ("forge", "code", "pointer"),
    [
        (by_a_key_of_its_own, Code.FILE_RULE, "/signature/public_key"),
        (by_a_key_of_small_order, Code.FILE_RULE, "/signature/public_key"),
        (with_an_average_that_is_none, Code.FILE_RULE, "/body/aggregate"),
        (with_its_best_answer_again_and_again, Code.FILE_RULE, "/body/results"),
        (with_a_number_for_each_reader, Code.FILE_DUPLICATE_KEY, "/body/aggregate/metrics/accuracy"),
        (with_a_member_that_nobody_signed, Code.FILE_UNKNOWN_MEMBER, "/body/official_accuracy"),
    ],
)
def test_a_forgery_that_its_own_tool_takes_is_refused(
    forge: Callable[[Content], bytes], code: Code, pointer: str, tmp_path: Path
) -> None:
    """The forger's record is in the ledger under the root that is published: its tool put it there."""
    runner = party(tmp_path)
    (tmp_path / "own.key").write_text(KEY.private_bytes_raw().hex() + "\n")
    (tmp_path / "own.pub").write_text(hex_of(KEY) + "\n")
    honest = runner.record("poor")
    raw = forge(json.loads(honest.read_bytes())["body"])
    honest.unlink()
    forged = tmp_path / "records" / "forged.json"
    forged.write_bytes(raw)
    if json.loads(raw)["content_hash"] not in runner.ledger.read_text():
        runner.publish(forged)
    assert runner.believes(forged)
    assert [tier for tier, _, _ in runner.board()] == ["verified"]
    error = refused(raw, runner.anchors)
    assert (error.code, error.pointer) == (code, pointer), error


def test_a_ledger_that_was_written_anew_and_the_name_of_another_record_are_refused(tmp_path: Path) -> None:
    runner = party(tmp_path)
    honest, published = runner.record("poor"), runner.anchors
    other = runner.record("fair")
    digest = json.loads(other.read_bytes())["content_hash"]
    runner.ledger.write_bytes(ledger_of(digest))
    assert runner.believes(other), "by whatever root the ledger has now"
    again = refused(other.read_bytes(), Anchors(published.public_key, published.root, runner.ledger.read_bytes()))
    assert "never had the pinned root" in again.detail
    honest.write_bytes(other.read_bytes())
    assert runner.believes(honest)
    assert "the name of another record" in refused(other.read_bytes(), runner.anchors, honest.name).detail


def test_who_the_envelope_names_comes_into_no_claim(tmp_path: Path) -> None:
    runner = party(tmp_path)
    path = runner.record("poor")
    record = json.loads(path.read_bytes())
    record["envelope"]["signer"] = "a famous laboratory"
    path.write_text(json.dumps(record))
    assert "a famous laboratory" in runner.tool("leaderboard", "--records", "records", "--ledger", "ledger", "--trust")
    read = verievals.read(path.read_bytes(), path.name, anchors=runner.anchors)
    assert "famous" not in str(read.details | {"artifacts": []})
