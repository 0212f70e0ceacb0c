"""Finding and recognising runs; the golden claims; and every real file beside the repository, by name."""

import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer import adapters
from issuer.adapters import Supplied, every_eval_ever, inspect_ai, lighteval, lm_eval, plain_json
from issuer.adapters.load import read_file
from issuer.client.build import BuildOptions, build_each
from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from tests.support.every_eval_ever import RECORD
from tests.support.large_logs import LIMIT_MIB, measure, write_large_log
from tests.support.runs import ALL, DATA, edited, refusal, refusal_or_none
from tests.support.shared import ROOT, SHARED, examples, needs_shared, vectors
from tests.support.verievals import anchors_for, body, raw_of, real_anchors, signed

INSPECT = (DATA / "inspect_two_scorers.json").read_bytes()
HELLASWAG = "helm/commonsense-dataset=hellaswag,method=multiple_choice_joint,model=eleutherai_pythia-1b-v0"
MIB = 2**20


# -- golden claims ------------------------------------------------------------------------------------------------------


def golden(case: dict[str, Any], first: dict[str, Any]) -> tuple[Supplied, str]:
    """Return the supplied values and the task of a golden case."""
    given = case["supplied"]
    given = {**first["supplied"], **given} if set(given) == {"scale"} else given
    split = f"{given['split']}/" if "split" in given else ""
    metrics = given.get("metric_map") or {metric: split + metric for metric in given.get("metrics", [])}
    members = {name: given[name] for name in Supplied.__struct_fields__ if name in given and name != "metrics"}
    if "version" in given:
        members["framework_version"] = given["version"]
    return Supplied(**members, metrics=metrics), given.get("task", "")


@needs_shared
def test_golden_claims_come_out_byte_for_byte() -> None:
    cases = vectors("golden_core_claims.json")
    for case in cases:
        supplied, task = golden(case, cases[0])
        run = adapters.read(SHARED / case["input"], task=task, anchors=real_anchors())
        claims = run.claims(supplied, allow_mock={"mock:gemma3:1b-capture"}, allow_partial=True).claims
        assert jcs.canonical(claims.to_json()).decode() == case["jcs"], case["name"]
        assert claims.digest == f"sha256:{case['sha256']}"


# -- every real file ----------------------------------------------------------------------------------------------------

TAKEN = "taken"
EVERY_FILE = {
    "inspect/data_arc_qwen.json": "/eval/config/limit",
    "inspect/data_cvebench_empty_choices.json": "/eval/revision/dirty",
    "inspect/data_pubmedqa_gpt4o_mini.json": "/eval/config/limit",
    "inspect/data_with_llm_scoring.json": TAKEN,
    "inspect/generated_gsm8k_mini_two_scorers_0.3.285.json": "/eval/model",  # a mock
    "inspect/generated_gsm8k_mini_zstd_0.3.285.eval": "/eval/model",
    "lm_eval/results_2026-01-21T03-44-18.458309.json": TAKEN,
    "lm_eval/samples_math_perturbed_full_2026-01-21T03-44-18.458309.jsonl": "",  # samples, no results
    "records/demo__documentation__schema-0.3.0.json": "/source_metadata/source_type",
    "records/hfopenllm_v2__documentation__schema-0.2.0.json": "/source_metadata/source_type",
    "records/math_perturbed__from_lm_eval__schema-0.3.0.json": "/evaluation_results/0/source_data/samples_number",
    "records/mmlu_pro_yi__documentation__schema-0.2.2.json": "/source_metadata/source_type",
    "records/pubmedqa__from_inspect__schema-0.3.0.json": "/evaluation_results/0/score_details/uncertainty/num_samples",
    "records/simpleqa__from_inspect__schema-0.3.0.json": "/evaluation_results/0/score_details/uncertainty/num_samples",
    "verievals/records/4a8aa15dce3432a3159e0f9b4a4ff155a50ab9f947cd160c13a0decd3bcbb13b.json": "/body/model/provider",
    "verievals/records/56c7984e5b5ad853a183983100aab5ca3255740809bb7367f3d95eecc4d37dc8.json": "/body/model/provider",
    HELLASWAG: "/run_spec.json/adapter_spec/max_eval_instances",
}


def outcome(path: str) -> str:
    """Supply the members that each run lacks. Returns the place where it is refused by default, or TAKEN."""
    selectors = {"em": "valid/exact_match"} if path == HELLASWAG else {}
    if "simpleqa" in path or "llm_scoring" in path:
        selectors = {"accuracy": "accuracy"}
    try:
        for run in adapters.read_all(SHARED / path, anchors=real_anchors()):
            own = {name: None for name in Supplied.__struct_fields__ if getattr(run, name, None) is not None}
            run.claims(replace(ALL, **own, metrics=selectors))
    except InputError as error:
        return error.pointer
    return TAKEN


@needs_shared
def test_every_real_run_is_taken_or_refused_at_its_place() -> None:
    assert {path: outcome(path) for path in EVERY_FILE} == EVERY_FILE
    folders = (SHARED / folder for folder in ("inspect", "lm_eval", "records"))
    there = {str(path.relative_to(SHARED)) for folder in folders for path in folder.iterdir()}
    assert there == {path for path in EVERY_FILE if not path.startswith(("helm", "verievals"))}


def is_read(text: str) -> bool:
    """Say whether today's huggingface_hub reads a result file."""
    try:
        return bool(parse_eval_result_entries(yaml.safe_load(text)))
    except KeyError:
        return False


@needs_shared
def test_today_s_huggingface_hub_reads_the_default_file_of_each_real_score() -> None:
    """Each score of a real run in its own file. In the target form, no file is read."""
    found: dict[str, list[bool]] = {"default": [], "target": []}
    paths = (SHARED / path for path in EVERY_FILE)
    each = (read for path in paths for read in adapters.read_each(path, anchors=real_anchors()))
    for run in (run for runs in each if not isinstance(runs, InputError) for run in runs):
        own = {name: None for name in Supplied.__struct_fields__ if getattr(run, name, None) is not None}
        for score in run.scores:
            supplied = replace(ALL, **own, metrics={"m": score.selector})
            mocks = frozenset({run.mock.text} if run.mock else ())
            options = BuildOptions(supplied, allow_mock=mocks, allow_partial=True)
            found["default"] += (is_read(one.written) for one in build_each([run], Path("out"), options)[0])
            target = build_each([run], Path("out"), replace(options, profile="target"))[0]
            found["target"] += (is_read(one.written) for one in target)
    assert len(found["default"]) == len(found["target"]) > 20
    assert (all(found["default"]), any(found["target"])) == (True, False)


LM_EVAL = (DATA / "lm_eval_dummy.json").read_bytes()
LIGHTEVAL = (DATA / "lighteval_dummy.json").read_bytes()
PLAIN = (DATA / "plain_run.json").read_bytes()
READERS: dict[str, tuple[Any, bytes]] = {
    "inspect": (inspect_ai, INSPECT), "lm-eval": (lm_eval, LM_EVAL), "eee": (every_eval_ever, RECORD),
    "lighteval": (lighteval, LIGHTEVAL), "json": (plain_json, PLAIN),
}  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
def test_members_in_another_order_are_the_same_run_and_a_document_has_a_size(kind: str) -> None:
    reader, raw = READERS[kind]
    larger = raw[:-2].rstrip().removesuffix(b"}") + b" " * (9 * MIB) + b"}"
    assert refusal(reader.read, larger).code is Code.FILE_TOO_LARGE

    def turned(value: Any) -> Any:
        return {name: turned(value[name]) for name in reversed(value)} if isinstance(value, dict) else value

    before, after = reader.read(raw), reader.read(json.dumps(turned(json.loads(raw))).encode())
    members = ("model_repo", "model_revision", "mock", "partial")
    both = (sorted(found, key=str) if isinstance(found, tuple) else [found] for found in (before, after))
    for one, other in zip(*both, strict=True):
        assert sorted(map(str, one.scores)) == sorted(map(str, other.scores))
        assert [getattr(one, name) for name in members] == [getattr(other, name) for name in members]


@examples(500)
@given(st.sampled_from([*READERS]), st.floats(0, 1), st.integers(0, 40), st.binary(max_size=8))
def test_any_bytes_are_runs_or_an_input_error(kind: str, part: float, length: int, instead: bytes) -> None:
    reader, good = READERS[kind]
    at = int(part * len(good))
    raw = good[:at] + instead + good[at + length :]

    def claims() -> None:
        found = reader.read(raw)
        for run in found if isinstance(found, tuple) else [found]:
            run.claims(ALL, allow_mock=True, allow_partial=True)

    error = refusal_or_none(claims)
    assert error is None or error.code.value.startswith(("file.", "claims.", "details."))


def test_the_evidence_of_every_format_is_in_its_artifacts(tmp_path: Path) -> None:
    record = signed(body())
    (tmp_path / "record.json").write_bytes(raw_of(record))
    (tmp_path / "eee.json").write_bytes(RECORD)
    for path in (DATA / "inspect_two_scorers.json", DATA / "inspect_two_scorers.eval", DATA / "lm_eval_dummy.json",
                 DATA / "lighteval_dummy.json", tmp_path / "record.json", tmp_path / "eee.json"):  # fmt: skip
        for run in adapters.read_all(path, anchors=anchors_for(record)):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert run.details["artifacts"] == [{"name": path.name, "sha256": f"sha256:{digest}"}]


# -- recognising and finding ----------------------------------------------------------------------------------------------


def test_formats_are_recognised_by_their_content(tmp_path: Path) -> None:
    record = signed(body())
    archive = (DATA / "inspect_two_scorers.eval").read_bytes()
    for number, raw in enumerate((INSPECT, archive, RECORD, LM_EVAL, raw_of(record), LIGHTEVAL, PLAIN)):
        (tmp_path / f"{number}.json").write_bytes(raw)
    runs = [adapters.read_all(tmp_path / f"{number}.json", anchors=anchors_for(record)) for number in range(7)]
    names = [found[0].framework_name.text for found in runs if found[0].framework_name]
    assert names == ["inspect-ai", "inspect-ai", "lm-eval", "lm-eval", "verievals", "lighteval", "acme-harness"]
    assert [len(found) for found in runs] == [1, 1, 1, 3, 1, 4, 1]
    assert adapters.read(DATA / "helm_simple_mcqa").task == "simple_mcqa"


def test_a_folder_gives_all_its_runs_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "log.json").write_bytes(INSPECT)
    (tmp_path / "a.eval").write_bytes((DATA / "inspect_two_scorers.eval").read_bytes())
    (tmp_path / "helm").mkdir()
    for path in (DATA / "helm_simple_mcqa").iterdir():
        (tmp_path / "helm" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "link.json").symlink_to(tmp_path / "b" / "log.json")
    (tmp_path / "samples.jsonl").write_bytes(b"{}")
    assert [run.task for run in adapters.read_all(tmp_path)] == ["simple_mcqa", "gsm8k_mini", "gsm8k_mini"]
    assert len(adapters.read_all(tmp_path, "inspect")) == 2
    # `read` wants exactly one.
    error = refusal(adapters.read, DATA / "lm_eval_dummy.json")
    assert "'choice_mini'" in error.detail
    assert adapters.read(DATA / "lm_eval_dummy.json", task="mini").task == "mini"


def test_a_document_of_no_format_or_of_two_or_a_record_without_a_key_is_refused(tmp_path: Path) -> None:
    two = json.dumps({**json.loads(INSPECT), **json.loads(RECORD)}).encode()
    for raw in (b"{}", b'{"results": {}}', two):
        (tmp_path / "x.json").write_bytes(raw)
        error = refusal(adapters.read, tmp_path / "x.json")
        assert (error.code, "--from" in error.detail) == (Code.FILE_RULE, True)
    (tmp_path / "x.json").write_bytes(raw_of(signed(body())))
    assert "--verievals-key" in refusal(adapters.read, tmp_path / "x.json").detail


def test_a_pipe_or_a_device_is_refused_without_waiting_and_a_too_large_file_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "missing"):
        assert refusal(adapters.read, path).code is Code.FILE_UNREADABLE
    assert refusal(adapters.read, tmp_path).code is Code.FILE_RULE
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(inspect_ai.MAX_BYTES + 1)  # sparse
    tracemalloc.start()
    try:
        assert refusal(adapters.read, tmp_path / "x.json").code is Code.FILE_TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert refusal(read_file, tmp_path / "x.json", 10).code is Code.FILE_TOO_LARGE


# -- large and absurd -----------------------------------------------------------------------------------------------------


def test_a_million_metrics_or_absurd_nesting_anywhere_but_in_samples_is_refused() -> None:
    metrics = b",".join([b'"m":{"value":0}'] * 1_000_000)
    raw = INSPECT.replace(b'"metrics": {', b'"metrics": {' + metrics + b",", 1)
    assert raw != INSPECT
    assert refusal(inspect_ai.read, raw).code is Code.FILE_TOO_LARGE
    for pointer in ("/samples", "/eval/metadata/x", "/results/scores"):
        raw = edited(INSPECT, pointer, "HERE").replace(b'"HERE"', b"[" * 100_000 + b"]" * 100_000)
        assert refusal(inspect_ai.read, raw).code is Code.FILE_TOO_LARGE
    deep = b"[" * 300 + b"]" * 300
    assert inspect_ai.read(edited(INSPECT, "/samples", "HERE").replace(b'"HERE"', deep)).scores
    raw = edited(INSPECT, "/other", "HERE").replace(b'"HERE"', deep)
    assert refusal(inspect_ai.read, raw).code is Code.FILE_TOO_LARGE
    buffer = bytearray(edited(INSPECT, "/samples", [float("nan")] * 3))
    before = bytes(buffer)
    assert inspect_ai.read(buffer).scores
    assert buffer == before


@pytest.mark.long
def test_100_mib_are_read_within_200_mib(tmp_path: Path) -> None:
    """`make bench` measures the time."""
    write_large_log(tmp_path / "log.json", 100 * MIB, value="NaN")
    _, resident = measure(tmp_path / "log.json", "inspect")
    assert resident < LIMIT_MIB


def test_no_reader_imports_its_framework() -> None:
    seen = "import sys, issuer.adapters; print({'inspect_ai', 'lm_eval', 'helm', 'lighteval', 'every_eval_ever', 'verievals'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", seen], capture_output=True, check=True, cwd=ROOT).stdout == b"set()\n"
