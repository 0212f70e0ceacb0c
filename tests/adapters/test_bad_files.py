"""Bad files of every format: each gets one clear line, and no file is written."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import adapters
from issuer.adapters import Supplied
from issuer.errors import InputError
from tests.support.every_eval_ever import RECORD
from tests.support.in_process import run
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, edited, zipped
from tests.support.verievals import anchors_for, body, raw_of, signed

LOG = (DATA / "inspect_two_scorers.json").read_bytes()
SIGNED = signed(body())
GOOD = {
    "log.json": LOG,
    "log.eval": (DATA / "inspect_two_scorers.eval").read_bytes(),
    "record.json": RECORD,
    "lm_eval.json": (DATA / "lm_eval_dummy.json").read_bytes(),
    "lighteval.json": (DATA / "lighteval_dummy.json").read_bytes(),
    "plain.json": (DATA / "plain_run.json").read_bytes(),
    "verievals.json": raw_of(SIGNED),
    **{f"helm/{path.name}": path.read_bytes() for path in sorted((DATA / "helm_simple_mcqa").iterdir())},
}
SUPPLIED = Supplied(model_repo="acme/open-model", model_revision=MODEL_COMMIT, command="x", framework_name="f",
                    framework_version="1", benchmark_repo="a/b", benchmark_revision=BENCHMARK_COMMIT)  # fmt: skip
LONGEST_LINE = 2000
NOISE = random.Random(18).randbytes(100_000)
WEIRD = "\x1b]0;x\x07\u202e\u009b2J\r\n" + "y" * 10_000

BAD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "cut at its end": lambda raw: raw.rstrip()[:-1],
    "twice": lambda raw: raw + raw,
    "noise": lambda _: NOISE,
    "noise behind": lambda raw: raw + NOISE,
    "noise in an archive": lambda _: b"PK\x03\x04" + NOISE,
    "zeros": lambda _: bytes(100_000),
    "another encoding": lambda raw: raw.decode("utf-8", "replace").encode("utf-16"),
    "a mark of bytes": lambda raw: b"\xef\xbb\xbf" + raw,
    "deep": lambda _: b'{"status": "success", "eval": ' + b"[" * 2_000_000,
    "numbers": lambda _: b'{"status": ' + b"9" * 1_000_000 + b', "eval": 1}',
}
# Texts that errors and notes may repeat.
NAMED: dict[str, list[str]] = {
    "log.json": ["/results/scores/0/name", "/results/scores/0/metrics", "/eval/model", "/eval/task", "/eval/dataset/location",
        "/eval/metadata/model_revision", "/eval/model_args", "/eval/packages/inspect_ai", "/eval/model_roles", "/eval/revision",
        "/stats/completed_at", "/status"],
    "record.json": ["/model_info/id", "/evaluation_results/0/evaluation_name", "/evaluation_results/0/metric_config/metric_name",
        "/eval_library/name", "/evaluation_results/0/evaluation_result_id", "/eval_library/version",
        "/evaluation_results/0/source_data/hf_repo", "/schema_version"],
    "lm_eval.json": ["/results/choice_mini", "/results", "/config/model_args", "/config/model", "/git_hash", "/group_subtasks",
        "/configs/choice_mini/test_split", "/n-samples", "/date"],
    "lighteval.json": ["/results/alone|0", "/results", "/config_tasks", "/config_general/model_name", "/config_general/max_samples",
        "/config_general/model_config", "/config_tasks/alone|0/evaluation_splits"],
    "plain.json": ["/format", "/runs/0/task", "/runs/0/metrics/0/scorer", "/runs/0/metrics/0/metric_id", "/runs/0/completeness/reason",
        "/runs/0/details/notes", "/runs/0/details/run", "/runs/0/mock", "/runs/0/framework/name", "/runs/0/model_repo"],
    "verievals.json": ["/body/benchmark/id", "/body/aggregate/scorer", "/body", "/signature/public_key", "/envelope"],
    "helm/run_spec.json": ["/name", "/adapter_spec/model"],
    "helm/scenario.json": ["/name"],
    "helm/stats.json": ["/0/name/name", "/0/name/split", "/0/mean"],
    "helm/per_instance_stats.json": ["/0/instance_id", "/0/stats"],
}  # fmt: skip


def line_of(path: Path) -> str:
    """Return the one line that reading and claiming ends with, or ""."""
    try:
        for read in adapters.read_all(path, anchors=anchors_for(SIGNED)):
            built = read.claims(SUPPLIED, allow_mock=True, allow_partial=True)
            assert str(built.details.get("notes", "")).isprintable()
    except InputError as error:
        return f"{error.code}: {error.detail}"
    return ""


def written(folder: Path, file: str, raw: bytes) -> Path:
    """Write a file, and the other files of its run directory. Returns the path to read."""
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    for name, good in GOOD.items():
        if path.parent != folder and name.startswith(f"{path.parent.name}/"):
            (folder / name).write_bytes(good)
    path.write_bytes(raw)
    return path if path.parent == folder else path.parent


@pytest.mark.parametrize("file", GOOD)
def test_a_bad_file_gets_one_clear_line(file: str, tmp_path: Path) -> None:
    lines = {name: line_of(written(tmp_path, file, spoil(GOOD[file]))) for name, spoil in BAD.items()}
    unclear = [name for name, line in lines.items() if not (line.startswith("file.") and line.isprintable())]
    assert (unclear, max(map(len, lines.values())) < LONGEST_LINE) == ([], True), lines
    exact = ("cut", "cut at its end", *(("twice",) if file.endswith(".json") else ()))
    assert [name for name in exact if not lines[name].startswith("file.syntax")] == [], lines


def test_a_text_from_outside_writes_no_escape_and_no_page(tmp_path: Path) -> None:
    shapes = (WEIRD, {WEIRD: {"value": 1}}, {"lora" + WEIRD: [WEIRD], "model": WEIRD})
    for file, pointer in ((file, pointer) for file, pointers in NAMED.items() for pointer in pointers):
        for value in shapes:
            line = line_of(written(tmp_path, file, edited(GOOD[file], pointer, value)))
            assert line.isprintable(), (file, pointer)
            assert len(line) < LONGEST_LINE + 20 * 140, (file, pointer)  # the names of twenty scores


def test_an_archive_of_archives_and_of_names_that_lead_out_is_refused(tmp_path: Path) -> None:
    header = ("header.json", json.dumps({"status": "success"}).encode())
    archives = [[("../header.json", b"{}"), header], [("/etc/passwd", b"{}"), header], [header, header]]
    for members in (*archives, [("header.json", zipped([header]))]):
        (tmp_path / "log.eval").write_bytes(zipped(members))
        assert line_of(tmp_path / "log.eval").startswith("file.")


def test_a_folder_with_one_bad_file_writes_no_output(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for file, raw in GOOD.items():
        written(tmp_path / "runs", file, raw if file != "record.json" else raw[:-9])
    done = run(["results", "build", "runs", "-o", "out", "--allow-mock", "mockllm/model"], tmp_path)
    assert (done.code, done.out, "record.json" in done.err) == (3, "", True)
    assert not (tmp_path / "out").exists()
