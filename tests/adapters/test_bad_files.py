"""Bad files of every format: each gets one clear line, and no file is written."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import adapters
from issuer.adapters import Supplied
from issuer.errors import InputError
from tests.support.command import issuer
from tests.support.every_eval_ever import RECORD
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
NAMED = (
    ("log.json", "/results/scores/0/name"), ("log.json", "/results/scores/0/metrics"), ("log.json", "/eval/model"),
    ("log.json", "/eval/task"), ("log.json", "/eval/dataset/location"), ("log.json", "/eval/metadata/model_revision"),
    ("log.json", "/eval/model_args"), ("log.json", "/eval/packages/inspect_ai"), ("log.json", "/eval/model_roles"),
    ("log.json", "/eval/revision"), ("log.json", "/stats/completed_at"), ("log.json", "/status"),
    ("record.json", "/model_info/id"), ("record.json", "/evaluation_results/0/evaluation_name"),
    ("record.json", "/evaluation_results/0/metric_config/metric_name"), ("record.json", "/eval_library/name"),
    ("record.json", "/evaluation_results/0/evaluation_result_id"), ("record.json", "/eval_library/version"),
    ("record.json", "/evaluation_results/0/source_data/hf_repo"), ("record.json", "/schema_version"),
    ("lm_eval.json", "/results/choice_mini"), ("lm_eval.json", "/results"), ("lm_eval.json", "/config/model_args"),
    ("lm_eval.json", "/config/model"), ("lm_eval.json", "/git_hash"), ("lm_eval.json", "/group_subtasks"),
    ("lm_eval.json", "/configs/choice_mini/test_split"), ("lm_eval.json", "/n-samples"), ("lm_eval.json", "/date"),
    ("lighteval.json", "/results/alone|0"), ("lighteval.json", "/results"), ("lighteval.json", "/config_tasks"),
    ("lighteval.json", "/config_general/model_name"), ("lighteval.json", "/config_general/max_samples"),
    ("lighteval.json", "/config_general/model_config"), ("lighteval.json", "/config_tasks/alone|0/evaluation_splits"),
    ("plain.json", "/format"), ("plain.json", "/runs/0/task"), ("plain.json", "/runs/0/metrics/0/scorer"),
    ("plain.json", "/runs/0/metrics/0/metric_id"), ("plain.json", "/runs/0/completeness/reason"),
    ("plain.json", "/runs/0/details/notes"), ("plain.json", "/runs/0/details/run"), ("plain.json", "/runs/0/mock"),
    ("plain.json", "/runs/0/framework/name"), ("plain.json", "/runs/0/model_repo"),
    ("verievals.json", "/body/benchmark/id"), ("verievals.json", "/body/aggregate/scorer"),
    ("verievals.json", "/body"), ("verievals.json", "/signature/public_key"), ("verievals.json", "/envelope"),
    ("helm/run_spec.json", "/name"), ("helm/run_spec.json", "/adapter_spec/model"), ("helm/scenario.json", "/name"),
    ("helm/stats.json", "/0/name/name"), ("helm/stats.json", "/0/name/split"), ("helm/stats.json", "/0/mean"),
    ("helm/per_instance_stats.json", "/0/instance_id"), ("helm/per_instance_stats.json", "/0/stats"),
)  # fmt: skip


def line_of(path: Path) -> str:
    """Return the one line that reading and claiming ends with, or ""."""
    try:
        for run in adapters.read_all(path, anchors=anchors_for(SIGNED)):
            built = run.claims(SUPPLIED, allow_mock=True, allow_partial=True)
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


def test_a_text_from_outside_writes_no_escape_and_no_page(tmp_path: Path) -> None:
    shapes = (WEIRD, {WEIRD: {"value": 1}}, {"lora" + WEIRD: [WEIRD], "model": WEIRD})
    for file, pointer in NAMED:
        for value in shapes:
            line = line_of(written(tmp_path, file, edited(GOOD[file], pointer, value)))
            assert line.isprintable(), (file, pointer)
            assert len(line) < LONGEST_LINE + 20 * 140, (file, pointer)  # the names of twenty scores


def test_an_archive_of_archives_and_of_names_that_lead_out_is_refused(tmp_path: Path) -> None:
    header = ("header.json", json.dumps({"status": "success"}).encode())
    for members in ([("../header.json", b"{}"), header], [("/etc/passwd", b"{}"), header], [header, header]):
        (tmp_path / "log.eval").write_bytes(zipped(members))
        assert line_of(tmp_path / "log.eval").startswith("file.")
    (tmp_path / "log.eval").write_bytes(zipped([("header.json", zipped([header]))]))
    assert line_of(tmp_path / "log.eval").startswith("file.")


def test_a_folder_with_one_bad_file_writes_no_output(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for file, raw in GOOD.items():
        written(tmp_path / "runs", file, raw if file != "record.json" else raw[:-9])
    done = issuer("results", "build", tmp_path / "runs", "-o", tmp_path / "out", "--allow-mock", "mockllm/model")
    assert (done.returncode, done.stdout) == (3, "")
    assert "record.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
