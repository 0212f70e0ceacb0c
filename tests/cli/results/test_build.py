"""`issuer results build`: it reads runs and writes result files and claims; missing values are supplied, files are kept."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from huggingface_hub import parse_eval_result_entries

from issuer.adapters import Supplied
from issuer.client.files import put_entry
from issuer.io import files
from issuer.issuance.judge import read_request
from issuer.results.entry import content_digest, read_entries, write_entry
from tests.support import make
from tests.support.in_process import Done, run
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, OTHER_COMMIT, edited
from tests.support.shared import ROOT
from tests.support.verievals import anchors_for, body, raw_of, signed

INSPECT = DATA / "inspect_two_scorers.json"
LM_EVAL = DATA / "lm_eval_dummy.json"
MODEL = ("--model-repo", "acme/open-model", "--command", "inspect eval gsm8k_mini.py")
MATCH = ("--metric", "accuracy=match/accuracy", "--allow-mock", "mockllm/model")
TWO = (*MATCH, "--metric", "stderr=match/stderr")


def build(*arguments: object, env: dict[str, str] | None = None) -> Done:
    return run(["results", "build", *map(str, arguments)], env={"COLUMNS": "200", **(env or {})})


def built(*arguments: object, env: dict[str, str] | None = None) -> str:
    done = build(*arguments, env=env)
    assert done.code == 0, done
    return done.out


def test_one_run_makes_a_result_file_and_the_claims_of_its_token(tmp_path: Path) -> None:
    out = tmp_path / "gsm8k.yaml"
    shown = built(INSPECT, "-o", out, *MODEL, *MATCH, "--show-origin")
    (entry,) = read_entries(out.read_bytes(), "gsm8k.yaml")
    assert (entry.token, entry.dataset.id, entry.dataset.revision) == (None, "openai/gsm8k", BENCHMARK_COMMIT)
    assert "artifacts" in entry.form
    assert f"  model_repo: acme/open-model (supplied)\n  model_revision: {MODEL_COMMIT} (run)" in shown
    assert "  metrics: accuracy 0.625 (run)" in shown
    # The claims are the body of a token request, for exactly this entry.
    (claims,) = (tmp_path / "gsm8k.claims").iterdir()
    assert set(json.loads(claims.read_bytes())) == {"claims", "details"}
    (submission,) = read_request("single", claims.read_bytes()).submissions
    assert submission.content_digest == content_digest(entry.form)
    assert submission.claims.model_repo == "acme/open-model"
    env = {"ISSUER_RUN_MODEL_REPO": "acme/open-model", "ISSUER_RUN_COMMAND": "inspect eval"}
    shown = built(INSPECT, "-o", tmp_path / "o.yaml", *MATCH, "--show-origin", env=env)
    assert "  framework.command: inspect eval (supplied)" in shown
    for command in (("results", "build"), ("token", "request")):
        text = " ".join(run([*command, "--help"], env={"COLUMNS": "200"}).out.split())
        assert (text.count("Values that the run lacks"), "--allow-mock MODEL" in text) == (1, True)
        names = {name for name in Supplied.__struct_fields__ if name not in {"metrics", "scale"}}
        assert {name for name in names if f"ISSUER_RUN_{name.upper()}" not in text} == set()


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
    mapping.write_text('supply: {scale: 100, metrics: {accuracy: "match/accuracy"}}\n')
    built(INSPECT, "--map", mapping, "-o", tmp_path / "three.yaml", *MODEL, "--allow-mock", "mockllm/model")
    (scaled,) = read_entries((tmp_path / "three.yaml").read_bytes(), "c")
    assert scaled.metrics is not None
    assert scaled.metrics[0].value == 62.5


def refused(*arguments: object, code: int = 3) -> str:
    done = build(*arguments)
    assert done.code == code, done
    return done.err


def test_a_partial_run_is_refused_with_its_place_unless_allowed(tmp_path: Path) -> None:
    raw, out = INSPECT.read_bytes(), tmp_path / "o.yaml"
    for pointer in ("/results/total_samples", "/results/completed_samples", "/eval/config/limit"):
        raw = edited(raw, pointer, 4)
    (tmp_path / "log.json").write_bytes(raw)
    error = refused(tmp_path / "log.json", "-o", out, *MODEL, *MATCH)
    assert ("log.json#/eval/config/limit: file.rule: the run was limited" in error, out.exists()) == (True, False)
    built(tmp_path / "log.json", "-o", out, *MODEL, *MATCH, "--allow-partial")
    assert 'notes: "Partial run: the run was limited: 4 of 8 samples were run.' in out.read_text()


def test_an_incomplete_or_contradicting_command_builds_no_file(tmp_path: Path) -> None:
    mapping, out = tmp_path / "map.yaml", tmp_path / "out"
    scores = ("--metric", "accuracy=match/accuracy")
    rows: list[tuple[tuple[str, ...], str]] = [
        ((*MODEL, *scores), "mockllm/model"),
        ((*MODEL, *scores, "--allow-mock", "other"), "is a mock model"),
        ((*MODEL, "--allow-mock", "mockllm/model"), "several scorers, none chosen"),
        (MATCH, "--model-repo"),
        ((*MODEL, *MATCH, "--model-revision", OTHER_COMMIT), "#/eval/metadata/model_revision: file.rule: the run says"),
        ((*MODEL, *MATCH, "--scale", "1e2"), "--scale"),
        (("--model-repo", "a/b", "--command", "HF_TOKEN=hf_" + "a1B2" * 8, *MATCH), "claims.secret"),
        ((str(INSPECT), *MODEL, *MATCH), "two runs give this result"),
    ]
    for arguments, rule in rows:
        assert rule in refused(INSPECT, "-o", out, *arguments), rule
    for text, rule in (
        ('supply: {model_repo: "acme/other"}\n', "supplied twice"),
        ('runs: [{task: "gsm9k", supply: {}}]\n', "map.yaml:1:8: file.rule: this rule fits none"),
    ):
        mapping.write_text(text)
        assert rule in refused(INSPECT, "--map", mapping, "-o", out, *MODEL, *MATCH)
    for wrong in (("--metric", "accuracy"), ("--task", "other"), ("--from", "csv")):
        refused(INSPECT, "-o", out, *MODEL, *wrong, code=2)
    refused("-o", out, code=2)
    assert not out.exists()


def test_the_faults_of_all_runs_are_shown_at_once_by_run(tmp_path: Path) -> None:
    """Three runs are bad: one is cut, one failed, and one lacks a value; the fourth is good."""
    (tmp_path / "cut.json").write_bytes(INSPECT.read_bytes()[:5000])
    (tmp_path / "failed.json").write_bytes(edited(INSPECT.read_bytes(), "/status", "error"))
    (tmp_path / "lacking.json").write_bytes(edited(INSPECT.read_bytes(), "/eval/metadata/model_revision", "main"))
    (tmp_path / "z.json").write_bytes(INSPECT.read_bytes())
    error = refused(tmp_path, "-o", tmp_path / "out", *MODEL, *MATCH)
    heads = [line for line in error.splitlines() if line.endswith("no result can be built")]
    names = [Path(line.partition(",")[0].partition(":")[0]).name for line in heads]
    assert names == ["cut.json", "failed.json", "lacking.json"]
    assert "failed.json#/status" in error
    assert "issuer: no file was written: 3 of 4 runs failed; --skip-failed builds the other 1" in error
    assert not (tmp_path / "out").exists()
    done = build(tmp_path, "-o", tmp_path / "out", *MODEL, *MATCH, "--skip-failed")
    assert (done.code, done.err.count("no result can be built")) == (0, 3)
    assert [path.name for path in (tmp_path / "out" / "claims").iterdir()] == ["0002-gsm8k_mini.json"]
    refused(tmp_path / "cut.json", "-o", tmp_path / "none", *MODEL, *MATCH, "--skip-failed")
    assert not (tmp_path / "none").exists()


def test_an_update_adds_new_entries_and_changes_no_existing_one(tmp_path: Path) -> None:
    """A signed entry stays signed; the claims of another run get the next number."""
    out = tmp_path / "out"
    built(INSPECT, "-o", out, *MODEL, *MATCH)
    (file,) = out.rglob("gsm8k.yaml")
    (entry,) = read_entries(file.read_bytes(), "f")
    put_entry(file, write_entry(entry.form, "a.b.c"))
    signed_file, claims = file.read_text(), (out / "claims/0001-gsm8k_mini.json").read_bytes()
    assert "exists already: --update adds" in refused(INSPECT, "-o", file, *MODEL, *MATCH)
    same = built(INSPECT, "-o", out, *MODEL, *MATCH, "--update")
    assert ("unchanged, it already has this entry" in same, file.read_text()) == (True, signed_file)
    scores = ("--metric", "accuracy=includes/accuracy", "--allow-mock", "mockllm/model")
    assert "claims in " in built(INSPECT, "-o", out, *MODEL, *scores, "--update")
    assert file.read_text().startswith(signed_file)
    assert [one.token for one in read_entries(file.read_bytes(), "f")] == ["a.b.c", None]
    assert sorted(path.name for path in (out / "claims").iterdir()) == ["0001-gsm8k_mini.json", "0002-gsm8k_mini.json"]
    assert (out / "claims/0001-gsm8k_mini.json").read_bytes() == claims
    file.write_text("- [")
    refused(INSPECT, "-o", out, *MODEL, *MATCH, "--update")
    assert file.read_text() == "- ["


def test_an_update_completes_a_build_that_was_killed(tmp_path: Path) -> None:
    at_the_second_rename = """
import os, sys
renamed = []
def hook(event, _):
    if event == "os.rename":
        renamed.append(event)
        if len(renamed) > 1:
            os._exit(9)
sys.addaudithook(hook)
from issuer.cli import main
sys.argv = ["issuer", "results", "build", *sys.argv[1:]]
main()
"""
    out = tmp_path / "out"
    arguments = [str(each) for each in (INSPECT, "-o", out, *MODEL, *MATCH)]
    command = [sys.executable, "-c", at_the_second_rename, *arguments]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 9
    left = [path for path in out.rglob("*") if path.is_file() and not files.DRAFT.fullmatch(path.name)]
    assert [path.name for path in left] == ["0001-gsm8k_mini.json"]
    read_request("single", left[0].read_bytes())
    built(*arguments, "--update")
    (file,) = out.rglob("gsm8k.yaml")
    assert len(read_entries(file.read_bytes(), "f")) == 1
    assert len(list((out / "claims").glob("*.json"))) == 1


def test_a_broken_run_gets_readable_lines_and_no_file(tmp_path: Path) -> None:
    path, raw = tmp_path / "run\x1b[2J.json", INSPECT.read_bytes()
    for broken in (
        raw[:-200], raw * 2, bytes(range(256)) * 16, b"PK\x03\x04" + bytes(300), b"[" * 100_000, b"status: success",
        b'{"status": "success"}', raw.replace(b'"openai/gsm8k"', rb'"\u001b[2Jgsm8k\u202e"'),
        raw.replace(b'"openai/gsm8k"', rb'"\ud800/gsm8k"'), b"",
    ):  # fmt: skip
        path.write_bytes(broken)
        error = refused(path, "-o", tmp_path / "out", *MODEL, *MATCH)
        assert all(line.isprintable() and len(line) < 600 for line in error.splitlines()), broken[:100]
        assert "run\\x1b[2J.json" in error
    with path.open("wb") as file:
        file.truncate(2**33)
    assert "file.too_large" in refused(path, "-o", tmp_path / "out", *MODEL, *MATCH)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_huggingface_hub_reads_the_profiles_both_and_hub(tmp_path: Path) -> None:
    benchmark, out = tmp_path / "eval.yaml", tmp_path / "gsm8k.yaml"
    for profile in ("both", "hub"):
        benchmark.write_text(make.BENCHMARK_TEXT)
        out.unlink(missing_ok=True)
        shutil.rmtree(out.with_suffix(".claims"), ignore_errors=True)
        more = (*MODEL, *MATCH, "--profile", profile, "--benchmark", benchmark, "--task-id", "gsm8k")
        built(INSPECT, "-o", out, *more)
        (entry,) = parse_eval_result_entries(yaml.safe_load(out.read_text()))
        assert (entry.dataset_id, entry.value, entry.verify_token) == ("openai/gsm8k", 0.625, None)
        assert ("metrics:" in out.read_text()) == (profile == "both")
        assert "unchanged" in built(INSPECT, "-o", out, *more, "--update")
        refused(INSPECT, "-o", tmp_path / "p.yaml", *MODEL, *TWO, "--profile", profile)
        benchmark.write_text(
            make.BENCHMARK_TEXT.replace(", primary: true", "").replace("primary: false", "primary: true")
        )
        assert "the primary metric, pass_at_5" in refused(INSPECT, "-o", tmp_path / "q.yaml", *more)


def test_a_result_of_several_metrics_warns_once_unless_its_form_was_chosen(tmp_path: Path) -> None:
    """Two runs are in the target form, and one is in both."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    for path, repo in ((one, "acme/one"), (other, "acme/other")):
        path.write_bytes(edited(INSPECT.read_bytes(), "/eval/dataset/location", repo))
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    warning = "huggingface_hub cannot read this entry, and 1 more, without `value`: the primary metric is unknown. Give"
    for number, (more, profile, warned) in enumerate((
        (TWO, "target", True), (MATCH, "both", False), ((*TWO, "--primary", "stderr"), "both", False),
        ((*TWO, "--profile", "target"), "target", False),
    )):  # fmt: skip
        done = build(one, other, "-o", tmp_path / str(number), *MODEL, *more)
        assert (done.code, done.err.count("warning: "), warning in " ".join(done.err.split())) == (0, warned, warned)
        texts = [path.read_text() for path in (tmp_path / str(number)).rglob("*.yaml")]
        assert [len(yaml.safe_load(text)) for text in texts if ("\n  value: " in text) == (profile == "both")] == [1, 1]
    named = ("--benchmark", tmp_path / "eval.yaml", "--task-id", "gsm8k", "--primary", "pass_at_5")
    error = refused(INSPECT, "-o", tmp_path / "out", *MODEL, *MATCH, *named)
    assert "result.value: --primary is pass_at_5, but the benchmark's is accuracy" in error


def test_runs_of_two_benchmarks_need_a_folder_the_target_profile_and_defined_tasks(tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    (tmp_path / "log.json").write_bytes(edited(INSPECT.read_bytes(), "/eval/dataset/location", "acme/other"))
    defined = ("--benchmark", tmp_path / "eval.yaml", "--task-id", "gsm8k")
    runs = (INSPECT, tmp_path / "log.json", *MODEL, *MATCH, "-o")
    both = refused(*runs, tmp_path / "out", "--profile", "both", *defined)
    assert "for runs of one benchmark, not of acme/other, openai/gsm8k" in both
    assert "give a folder" in refused(*runs, tmp_path / "o.yaml")
    built(*runs, tmp_path / "tree")
    names = sorted(path.name for path in (tmp_path / "tree/acme/open-model/.eval_results").iterdir())
    assert names == ["gsm8k.yaml", "other.yaml"]
    text = make.BENCHMARK_TEXT.replace('"gsm8k"', '"other"').replace("id: gsm8k", "id: other")
    (tmp_path / "eval.yaml").write_text(text)
    for profile in ("target", "both", "hub"):
        error = refused(INSPECT, "-o", tmp_path / "out", *MODEL, *MATCH, "--profile", profile, *defined)
        assert "result.undefined: the benchmark defines no task 'gsm8k'" in error
    assert not (tmp_path / "out").exists()


def test_a_record_of_verievals_is_checked_against_the_pinned_root(tmp_path: Path) -> None:
    record, ledger = signed(body()), tmp_path / "entries.jsonl"
    anchors, file = anchors_for(record), tmp_path / "record.json"
    file.write_bytes(raw_of(record))
    ledger.write_bytes(bytes(anchors.ledger))
    lacking = ("--model-repo", "google/gemma", "--model-revision", MODEL_COMMIT, "--benchmark-repo", "openai/gsm8k",
               "--benchmark-revision", BENCHMARK_COMMIT, "--command", "verievals run")  # fmt: skip
    pinned = ("--verievals-key", anchors.public_key, "--verievals-ledger", ledger, "--verievals-root")
    built(file, "--from", "verievals", "-o", tmp_path / "o.yaml", *lacking, *pinned, anchors.root)
    for options, text in (
        ((*pinned, "ab" * 32), "never had the pinned root"),
        ((), "--verievals-key"),
        (("--verievals-root", anchors.root), "--verievals-key"),
    ):
        assert text in refused(file, "-o", tmp_path / "p.yaml", *lacking, *options)
    refused(file, "-o", tmp_path / "p.yaml", *lacking, "--verievals-ledger", ledger, code=2)
