"""`issuer results build`: runs in, result files and claims out; what runs lack is supplied, and nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from issuer.adapters import Supplied
from issuer.client.files import put_entry
from issuer.io import files
from issuer.issuance.judge import read_request
from issuer.results.entry import content_digest, read_entries, write_entry
from tests.support import make
from tests.support.command import issuer
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, OTHER_COMMIT, edited
from tests.support.shared import ROOT
from tests.support.verievals import anchors_for, body, raw_of, signed

INSPECT = DATA / "inspect_two_scorers.json"
LM_EVAL = DATA / "lm_eval_dummy.json"
MODEL = ("--model-repo", "acme/open-model", "--command", "inspect eval gsm8k_mini.py")
MATCH = ("--metric", "accuracy=match/accuracy", "--allow-mock", "mockllm/model")


def build(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    bare = {"HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "200"}
    return issuer("results", "build", *arguments, env={**bare, **(env or {})})


def built(*arguments: object, env: dict[str, str] | None = None) -> str:
    done = build(*arguments, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_run_makes_a_result_file_and_the_claims_of_its_token(tmp_path: Path) -> None:
    out = tmp_path / "gsm8k.yaml"
    said = built(INSPECT, "-o", out, *MODEL, *MATCH, "--show-origin")
    (entry,) = read_entries(out.read_bytes(), "gsm8k.yaml")
    assert (entry.token, entry.dataset.id, entry.dataset.revision) == (None, "openai/gsm8k", BENCHMARK_COMMIT)
    assert "artifacts" in entry.form
    assert f"  model_repo: acme/open-model (supplied)\n  model_revision: {MODEL_COMMIT} (run)" in said
    assert "  metrics: accuracy 0.625 (run)" in said
    # The claims are the body of a token request, for exactly this entry.
    (claims,) = (tmp_path / "gsm8k.claims").iterdir()
    (submission,) = read_request("single", claims.read_bytes()).submissions
    assert submission.content_digest == content_digest(entry.form)
    assert submission.claims.model_repo == "acme/open-model"


def test_many_runs_make_a_tree_by_model_and_benchmark(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(
        f"""
supply: {{model_repo: "acme/open-model", command: "run"}}
runs:
  - file: "inspect_*"
    supply: {{metrics: {{accuracy: "includes/accuracy"}}, scale: 100}}
  - file: "lm_eval_*"
    supply: {{model_revision: "{MODEL_COMMIT}", benchmark_repo: "acme/choice", benchmark_revision: "{OTHER_COMMIT}"}}
"""
    )
    done = built(
        INSPECT, DATA / "inspect_two_scorers.eval", LM_EVAL, "--map", mapping, "-o", tmp_path / "out",
        "--task", "choice_mini", "--allow-mock", "mockllm/model", "--allow-mock", "dummy",
    )  # fmt: skip
    assert done.count("\n") == 2
    assert done.endswith("\n  note: 'dummy' is a mock model: its scores do not describe any real model.\n")
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == ["acme/open-model/.eval_results/choice.yaml", "claims/0001-choice_mini.json"]
    built(INSPECT, DATA / "inspect_two_scorers.eval", LM_EVAL, "--map", mapping, "-o", tmp_path / "two", "--task",
          "choice_mini", "--task", "mini", "--allow-mock", "dummy")  # fmt: skip
    entries = read_entries((tmp_path / "two" / "acme/open-model/.eval_results/choice.yaml").read_bytes(), "c")
    assert [entry.dataset.task_id for entry in entries] == ["choice_mini", "mini"]


def test_a_scale_in_the_mapping_file_is_applied(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text('supply: {scale: 100, metrics: {accuracy: "match/accuracy"}}\n')
    built(INSPECT, "--map", mapping, "-o", tmp_path / "o.yaml", *MODEL, "--allow-mock", "mockllm/model")
    (entry,) = read_entries((tmp_path / "o.yaml").read_bytes(), "o")
    assert entry.metrics is not None
    assert entry.metrics[0].value == 62.5


def test_what_a_run_lacks_may_stand_in_the_environment(tmp_path: Path) -> None:
    env = {"ISSUER_RUN_MODEL_REPO": "acme/open-model", "ISSUER_RUN_COMMAND": "inspect eval"}
    said = built(INSPECT, "-o", tmp_path / "o.yaml", *MATCH, "--show-origin", env=env)
    assert "  framework.command: inspect eval (supplied)" in said


def refused(*arguments: object, code: int = 3) -> str:
    done = build(*arguments)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_errors_name_the_place_in_the_run(tmp_path: Path) -> None:
    raw = INSPECT.read_bytes()
    for pointer in ("/results/total_samples", "/results/completed_samples", "/eval/config/limit"):
        raw = edited(raw, pointer, 4)
    (tmp_path / "log.json").write_bytes(raw)
    out = tmp_path / "o.yaml"
    said = refused(tmp_path / "log.json", "-o", out, *MODEL, *MATCH)
    assert "log.json#/eval/config/limit: file.rule: the run was limited" in said
    assert not out.exists()
    built(tmp_path / "log.json", "-o", out, *MODEL, *MATCH, "--allow-partial")
    assert 'notes: "Partial run: the run was limited: 4 of 8 samples were run.' in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((*MODEL, "--metric", "accuracy=match/accuracy"), "mockllm/model"),
        ((*MODEL, "--metric", "accuracy=match/accuracy", "--allow-mock", "other"), "is a mock model"),
        ((*MODEL, "--allow-mock", "mockllm/model"), "several scorers, none chosen"),
        (MATCH, "--model-repo"),
        ((*MODEL, *MATCH, "--model-revision", OTHER_COMMIT), "#/eval/metadata/model_revision: file.rule: the run says"),
        ((*MODEL, *MATCH, "--scale", "1e2"), "--scale"),
        (("--model-repo", "a/b", "--command", "HF_TOKEN=hf_" + "a1B2" * 8, *MATCH), "claims.secret"),
    ],
)
def test_what_is_refused_by_default(arguments: tuple[str, ...], rule: str, tmp_path: Path) -> None:
    assert rule in refused(INSPECT, "-o", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_flag_and_the_mapping_file_do_not_overrule_each_other(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text('supply: {model_repo: "acme/other"}\n')
    assert "supplied twice" in refused(INSPECT, "--map", mapping, "-o", tmp_path / "o.yaml", *MODEL, *MATCH)
    mapping.write_text('runs: [{task: "gsm9k", supply: {}}]\n')
    assert "map.yaml:1:8: file.rule: this rule fits none" in refused(
        INSPECT, "--map", mapping, "-o", tmp_path / "o.yaml", *MODEL, *MATCH
    )


def test_nothing_that_is_there_is_changed_and_one_bad_run_stops_all(tmp_path: Path) -> None:
    out = tmp_path / "o.yaml"
    built(INSPECT, "-o", out, *MODEL, *MATCH)
    before = out.read_bytes()
    assert "exists already: --update adds" in refused(INSPECT, "-o", out, *MODEL, *MATCH)
    assert out.read_bytes() == before
    (tmp_path / "bad.json").write_bytes(edited(INSPECT.read_bytes(), "/status", "error"))
    assert "bad.json#/status" in refused(INSPECT, tmp_path / "bad.json", "-o", tmp_path / "two", *MODEL, *MATCH)
    assert not (tmp_path / "two").exists()


def test_everything_that_is_wrong_with_every_run_is_told_at_once_by_run(tmp_path: Path) -> None:
    """One that cannot be read, one that failed, one that lacks what nobody supplied; and one that is good."""
    (tmp_path / "cut.json").write_bytes(INSPECT.read_bytes()[:5000])
    (tmp_path / "failed.json").write_bytes(edited(INSPECT.read_bytes(), "/status", "error"))
    (tmp_path / "lacking.json").write_bytes(edited(INSPECT.read_bytes(), "/eval/metadata/model_revision", "main"))
    (tmp_path / "z.json").write_bytes(INSPECT.read_bytes())
    said = refused(tmp_path, "-o", tmp_path / "out", *MODEL, *MATCH)
    heads = [line for line in said.splitlines() if line.endswith("no result can be built")]
    assert [Path(line.partition(",")[0].partition(":")[0]).name for line in heads] == [
        "cut.json",
        "failed.json",
        "lacking.json",
    ]
    assert "issuer: no file was written: 3 of 4 runs failed; --skip-failed builds the other 1" in said
    assert not (tmp_path / "out").exists()
    done = build(tmp_path, "-o", tmp_path / "out", *MODEL, *MATCH, "--skip-failed")
    assert (done.returncode, done.stderr.count("no result can be built")) == (0, 3)
    assert [path.name for path in (tmp_path / "out" / "claims").iterdir()] == ["0002-gsm8k_mini.json"]
    refused(tmp_path / "cut.json", "-o", tmp_path / "none", *MODEL, *MATCH, "--skip-failed")
    assert not (tmp_path / "none").exists()


def test_an_update_adds_what_is_new_and_changes_nothing_that_is_there(tmp_path: Path) -> None:
    """A signed entry stays signed; the claims of another run get the next number."""
    out = tmp_path / "out"
    built(INSPECT, "-o", out, *MODEL, *MATCH)
    (file,) = out.rglob("gsm8k.yaml")
    (entry,) = read_entries(file.read_bytes(), "f")
    put_entry(file, write_entry(entry.form, "a.b.c"))
    signed_file, claims = file.read_text(), (out / "claims/0001-gsm8k_mini.json").read_bytes()
    same = built(INSPECT, "-o", out, *MODEL, *MATCH, "--update")
    assert ("unchanged, it already has this entry" in same, file.read_text()) == (True, signed_file)
    other = built(
        INSPECT,
        "-o",
        out,
        *MODEL,
        "--metric",
        "accuracy=includes/accuracy",
        "--allow-mock",
        "mockllm/model",
        "--update",
    )
    assert "claims in " in other
    assert file.read_text().startswith(signed_file)
    assert [one.token for one in read_entries(file.read_bytes(), "f")] == ["a.b.c", None]
    assert sorted(path.name for path in (out / "claims").iterdir()) == ["0001-gsm8k_mini.json", "0002-gsm8k_mini.json"]
    assert (out / "claims/0001-gsm8k_mini.json").read_bytes() == claims


def test_an_update_goes_on_where_a_build_was_killed(tmp_path: Path) -> None:
    """Claims are written first: those of an entry that is not there yet are used again."""
    out = tmp_path / "out"
    built(INSPECT, "-o", out, *MODEL, *MATCH)
    (file,) = out.rglob("gsm8k.yaml")
    before = file.read_bytes()
    file.unlink()
    built(INSPECT, "-o", out, *MODEL, *MATCH, "--update")
    assert (file.read_bytes(), [path.name for path in (out / "claims").iterdir()]) == (before, ["0001-gsm8k_mini.json"])


KILLED = """
import os, pathlib, sys
renamed = []
sys.addaudithook(lambda event, args: os._exit(9) if event == "os.rename" and renamed else renamed.append(1) if event == "os.rename" else None)
from issuer.cli import main
sys.argv = ["issuer", "results", "build", *sys.argv[1:]]
main()
"""


def test_a_build_that_is_killed_leaves_whole_files_and_drafts_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [str(each) for each in (INSPECT, "-o", out, *MODEL, *MATCH)]
    assert subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, cwd=ROOT).returncode == 9
    left = [path for path in out.rglob("*") if path.is_file() and not files.DRAFT.fullmatch(path.name)]
    assert [path.name for path in left] == ["0001-gsm8k_mini.json"]
    read_request("single", left[0].read_bytes())
    built(*arguments, "--update")
    (file,) = out.rglob("gsm8k.yaml")
    assert len(read_entries(file.read_bytes(), "f")) == 1
    assert len(list((out / "claims").glob("*.json"))) == 1


BAD = {
    "cut": INSPECT.read_bytes()[:-200],
    "doubled": INSPECT.read_bytes() * 2,
    "a program": bytes(range(256)) * 16,
    "an archive that is none": b"PK\x03\x04" + bytes(300),
    "deep": b"[" * 100_000,
    "no JSON": b"status: success",
    "another JSON": b'{"status": "success"}',
    "escapes": INSPECT.read_bytes().replace(b'"openai/gsm8k"', rb'"\u001b[2Jgsm8k\u202e"'),
    "half a sign": INSPECT.read_bytes().replace(b'"openai/gsm8k"', rb'"\ud800/gsm8k"'),
    "nothing": b"",
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_run_has_clear_lines_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run\x1b[2J.json"
    run.write_bytes(BAD[name])
    said = refused(run, "-o", tmp_path / "out", *MODEL, *MATCH)
    assert all(line.isprintable() and len(line) < 600 for line in said.splitlines())
    assert "run\\x1b[2J.json" in said
    assert [path.name for path in tmp_path.iterdir()] == [run.name]


def test_a_run_that_is_larger_than_any_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2**33)
    assert "file.too_large" in refused(tmp_path / "huge.json", "-o", tmp_path / "out", *MODEL, *MATCH)


def test_a_broken_file_is_not_updated(tmp_path: Path) -> None:
    out = tmp_path / "o.yaml"
    out.write_text("- [")
    refused(INSPECT, "-o", out, *MODEL, *MATCH, "--update")
    assert (out.read_text(), out.with_suffix(".claims").exists()) == ("- [", False)


@pytest.mark.parametrize("profile", ["both", "hub"])
def test_today_s_huggingface_hub_reads_what_is_built_for_it(tmp_path: Path, profile: str) -> None:
    benchmark = tmp_path / "eval.yaml"
    benchmark.write_text(make.BENCHMARK_TEXT)
    out = tmp_path / "gsm8k.yaml"
    arguments = (
        INSPECT,
        "-o",
        out,
        *MODEL,
        *MATCH,
        "--profile",
        profile,
        "--benchmark",
        benchmark,
        "--task-id",
        "gsm8k",
    )
    built(*arguments)
    (entry,) = parse_eval_result_entries(yaml.safe_load(out.read_text()))
    assert (entry.dataset_id, entry.value, entry.verify_token) == ("openai/gsm8k", 0.625, None)
    assert ("metrics:" in out.read_text()) == (profile == "both")
    assert "unchanged" in built(*arguments, "--update")
    refused(INSPECT, "-o", tmp_path / "p.yaml", *MODEL, *MATCH, "--profile", profile, code=2)
    other = make.BENCHMARK_TEXT.replace(", primary: true", "").replace("primary: false", "primary: true")
    benchmark.write_text(other)
    assert "the primary metric, pass_at_5" in refused(*arguments[:2], tmp_path / "q.yaml", *arguments[3:])


def test_a_profile_with_value_is_for_runs_of_one_benchmark(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    (tmp_path / "log.json").write_bytes(edited(INSPECT.read_bytes(), "/eval/dataset/location", "acme/other"))
    both = ("--profile", "both", "--benchmark", tmp_path / "eval.yaml", "--task-id", "gsm8k")
    said = refused(INSPECT, tmp_path / "log.json", "-o", tmp_path / "out", *MODEL, *MATCH, *both)
    assert "for runs of one benchmark, not of acme/other, openai/gsm8k" in said


@pytest.mark.parametrize("profile", ["target", "both", "hub"])
def test_what_the_benchmark_does_not_define_is_not_built(tmp_path: Path, profile: str) -> None:
    text = make.BENCHMARK_TEXT.replace('"gsm8k"', '"other"').replace("id: gsm8k", "id: other")
    assert text != make.BENCHMARK_TEXT
    (tmp_path / "eval.yaml").write_text(text)
    more = ("--profile", profile, "--benchmark", tmp_path / "eval.yaml", "--task-id", "gsm8k")
    said = refused(INSPECT, "-o", tmp_path / "out", *MODEL, *MATCH, *more)
    assert "result.undefined: the benchmark defines no task 'gsm8k'" in said
    assert not (tmp_path / "out").exists()


def test_help_says_what_each_flag_is_and_names_its_variable_once() -> None:
    for command in (("results", "build"), ("token", "request")):
        said = " ".join(issuer(*command, "--help", env={"COLUMNS": "200"}).stdout.split())
        assert said.count("Values that the run lacks") == 1
        for name in Supplied.__struct_fields__:
            if name not in {"metrics", "scale"}:
                assert f"ISSUER_RUN_{name.upper()}" in said
        assert "--allow-mock MODEL" in said


def test_one_result_twice_and_two_benchmarks_in_one_file_are_refused(tmp_path: Path) -> None:
    assert "two runs give this result" in refused(INSPECT, INSPECT, "-o", tmp_path / "o.yaml", *MODEL, *MATCH)
    (tmp_path / "log.json").write_bytes(edited(INSPECT.read_bytes(), "/eval/dataset/location", "acme/other"))
    assert "give a folder" in refused(INSPECT, tmp_path / "log.json", "-o", tmp_path / "o.yaml", *MODEL, *MATCH)
    built(INSPECT, tmp_path / "log.json", "-o", tmp_path / "tree", *MODEL, *MATCH)
    assert sorted(path.name for path in (tmp_path / "tree/acme/open-model/.eval_results").iterdir()) == [
        "gsm8k.yaml",
        "other.yaml",
    ]


def test_a_record_of_verievals_is_checked_under_what_is_configured(tmp_path: Path) -> None:
    record = signed(body())
    anchors = anchors_for(record)
    (tmp_path / "record.json").write_bytes(raw_of(record))
    (tmp_path / "entries.jsonl").write_bytes(bytes(anchors.ledger))
    lacking = ("--model-repo", "google/gemma", "--model-revision", MODEL_COMMIT, "--benchmark-repo", "openai/gsm8k",
               "--benchmark-revision", BENCHMARK_COMMIT, "--command", "verievals run")  # fmt: skip
    pinned = (
        "--verievals-key",
        anchors.public_key,
        "--verievals-ledger",
        tmp_path / "entries.jsonl",
        "--verievals-root",
    )
    record_file = tmp_path / "record.json"
    built(record_file, "--from", "verievals", "-o", tmp_path / "o.yaml", *lacking, *pinned, anchors.root)
    assert "never had the pinned root" in refused(record_file, "-o", tmp_path / "p.yaml", *lacking, *pinned, "ab" * 32)
    assert "--verievals-key" in refused(record_file, "-o", tmp_path / "p.yaml", *lacking)
    assert "--verievals-key" in refused(
        record_file, "-o", tmp_path / "p.yaml", *lacking, "--verievals-root", anchors.root
    )
    refused(record_file, "-o", tmp_path / "p.yaml", *lacking, "--verievals-ledger", tmp_path / "entries.jsonl", code=2)


def test_usage(tmp_path: Path) -> None:
    for wrong in (("--metric", "accuracy"), ("--task", "other"), ("--from", "csv")):
        refused(INSPECT, "-o", tmp_path / "o.yaml", *MODEL, *wrong, code=2)
    refused("-o", tmp_path / "o.yaml", code=2)


def test_claims_are_readable_json(tmp_path: Path) -> None:
    built(INSPECT, "-o", tmp_path / "out", *MODEL, *MATCH)
    value = json.loads((tmp_path / "out/claims/0001-gsm8k_mini.json").read_bytes())
    assert set(value) == {"claims", "details"}
