"""lm-eval results: the commit that the Hub answered, one run a task or group, without `main`, `N/A` or standard errors."""

import json
import math
from itertools import pairwise, product
from typing import Any

from msgspec.structs import replace

from issuer.adapters import Run, Supplied, lm_eval
from issuer.adapters.evidence import MAX_BYTES, MAX_SCORES
from issuer.codes import Code
from issuer.formats import jcs
from issuer.results.claims import Metric
from tests.support import runs
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, OTHER_COMMIT, edited, refusal, refusal_or_none
from tests.support.shared import needs_shared

DUMMY = (DATA / "lm_eval_dummy.json").read_bytes()
SHARED_FILE = "lm_eval/results_2026-01-21T03-44-18.458309.json"
SUPPLIED = Supplied(benchmark_repo="openai/gsm8k", benchmark_revision=BENCHMARK_COMMIT, command="lm_eval run")
PROMPT = {
    "num_fewshot": 0, "repeats": 1, "prompt.description": "", "prompt.doc_to_text": "{{question}}", "prompt.target_delimiter": " ",
    "prompt.fewshot_delimiter": "\n\n",
}  # fmt: skip
STRICT = {"exact_match": "strict-match/exact_match"}


def hub(**config: Any) -> bytes:
    """Make the real file one of a transformers model of the Hub."""
    members = {"model": "hf", "model_args": "pretrained=acme/open-model,dtype=auto", "model_sha": MODEL_COMMIT}
    raw = DUMMY
    for name, value in {**members, "model_revision": "main", **config}.items():
        raw = edited(raw, f"/config/{name}", value)
    return raw


def task(raw: bytes, name: str = "gsm8k_mini") -> Run:
    return {run.task: run for run in lm_eval.read(raw, "results.json")}[name]


def text(given: Any) -> str | None:
    return given.text if given else None


def words(built: Any) -> Any:
    return built.details["run"]


def test_each_task_and_group_is_a_run_with_the_claims_of_the_file() -> None:
    assert [run.task for run in lm_eval.read(DUMMY)] == ["gsm8k_mini", "choice_mini", "mini"]
    run = task(hub())
    assert (text(run.model_repo), text(run.model_revision)) == ("acme/open-model", MODEL_COMMIT)
    assert (run.benchmark_repo, run.benchmark_revision, run.command) == (None, None, None)
    assert text(run.framework_version) == "0.4.13"
    built = run.claims(replace(SUPPLIED, metrics=STRICT))
    assert built.claims.metrics == (Metric("exact_match", 0, sample_size=4),)
    assert built.origins["model_revision"] == "run"
    assert built.details["date"] == "2026-11-21T05:09:31Z"
    assert words(built) == {
        "num_samples": 4, "task": "gsm8k_mini", "model": "acme/open-model", "seed": "0,1234,1234,1234", "batch_size": 1, "split": "test",
        "selection": {"exact_match": "strict-match/exact_match"}, "completeness": "full",
        "arguments": {**PROMPT, "generation.until.0": "\n", "prompt.doc_to_target": "{{answer}}"},
    }  # fmt: skip


def test_settings_are_arguments_and_tasks_that_differ_have_one_digest() -> None:
    raw = DUMMY
    for pointer, value in {
        "/n-shot/gsm8k_mini": 5, "/config/gen_kwargs": {"temperature": 0.5}, "/system_instruction": "Think.", "/chat_template": "x" * 300,
        "/fewshot_as_multiturn": True, "/configs/gsm8k_mini/doc_to_text": "<function f at 0x7f00aa>",
    }.items():  # fmt: skip
        raw = edited(raw, pointer, value)
    shared = {
        "gen_kwargs.temperature": 0.5, "system_instruction": "Think.", "chat_template": jcs.digest("x" * 300), "fewshot_as_multiturn": True,
    }  # fmt: skip
    one = {
        "num_fewshot": 5,
        "prompt.doc_to_text": "<function f>",
        "generation.until.0": "\n",
        "prompt.doc_to_target": "{{answer}}",
    }
    assert task(raw).arguments == {**PROMPT, **shared, **one}
    group = dict(task(raw, "mini").arguments)
    digest = group.pop("tasks")
    assert group == {name: value for name, value in {**PROMPT, **shared}.items() if name not in one}
    assert digest != task(edited(raw, "/n-shot/gsm8k_mini", 4), "mini").arguments["tasks"]
    alike = edited(DUMMY, "/configs/choice_mini", json.loads(DUMMY)["configs"]["gsm8k_mini"])
    assert task(alike, "mini").arguments == task(DUMMY).arguments


def test_the_asked_revision_is_the_model_s_only_if_it_is_the_commit_that_was_loaded() -> None:
    run = task(hub(model_sha=...))
    assert (run.model_repo, run.model_revision) == (None, None)
    assert task(hub(model_sha="")).model_repo is None  # the Hub does not know it: a folder called acme/open-model
    assert task(hub(model_args="pretrained=./open-model")).model_repo is None
    assert "--model-revision" in refusal(run.claims, replace(SUPPLIED, metrics=STRICT)).detail
    raw = hub(model_args=f"pretrained=acme/open-model,revision={OTHER_COMMIT}")
    assert refusal(lm_eval.read, raw).pointer == "/config/model_sha", "another commit than the one asked for"


def test_model_args_are_a_text_or_a_map_that_names_one_model() -> None:
    for good in ("pretrained=acme/open-model,trust_remote_code=True", {"pretrained": "acme/open-model", "n": 1}):
        assert text(task(hub(model_args=good)).model_repo) == "acme/open-model"
    for bad in ("pretrained=a/b,pretrained=c/d", "", None, 7, {"pretrained": ["a/b"]}, "steer_path=x,pretrained=a/b"):
        assert task(hub(model_args=bad)).model_repo is None


def test_the_commit_of_an_adapter_is_taken_and_not_that_of_its_base() -> None:
    for member in ("peft", "delta"):
        raw = hub(model_args=f"pretrained=acme/base,{member}=acme/adapter", **{f"{member}_sha": OTHER_COMMIT})
        run = task(raw)
        assert (text(run.model_repo), text(run.model_revision)) == ("acme/adapter", OTHER_COMMIT)
        base: Any = run.details["run"]
        assert (base["base_model"], base["base_model_revision"]) == ("acme/base", MODEL_COMMIT)
        without = task(edited(raw, f"/config/{member}_sha", ""))
        assert (without.model_repo, without.model_revision) == (None, None)


def test_a_backend_that_asks_no_hub_has_a_commit_only_from_its_arguments() -> None:
    run = task(hub(model="vllm", model_sha=...))
    assert (text(run.model_repo), run.model_revision) == ("acme/open-model", None)
    pinned = task(hub(model="vllm", model_sha=..., model_args=f"pretrained=acme/open-model,revision={MODEL_COMMIT}"))
    assert text(pinned.model_revision) == MODEL_COMMIT
    assert task(hub(model="openai-completions", model_args="model=acme/open-model")).model_repo is None


def test_weights_that_may_not_be_those_of_the_name_are_noted_in_the_entry() -> None:
    supplied = replace(SUPPLIED, model_repo="acme/open-model", model_revision=MODEL_COMMIT, metrics=STRICT)
    named = "pretrained=acme/open-model"
    changes: list[tuple[dict[str, Any], str]] = [
        ({"model_sha": ""}, "name may be the name of a folder"),
        ({"model": "vllm", "model_args": f"{named},lora_local_path=/x"}, "lora_local_path"),
        ({"model_args": f"{named},steer_path=/x"}, "steer_path changed them"),
        ({"model": "local-completions", "model_args": "model=acme/open-model,base_url=http://x"}, "a server's address"),
        ({"model_args": f"{named},pretrained=evil/x"}, "names its model 'hf'"),
    ]
    for config, remark in changes:
        notes = str(task(hub(**config)).claims(supplied).details["notes"])
        assert (remark in notes, "/x," in notes) == (True, False), notes
    assert task(hub()).remarks == ()


def test_a_local_path_is_nowhere_in_what_is_signed() -> None:
    supplied = replace(SUPPLIED, model_repo="acme/open-model", model_revision=MODEL_COMMIT, metrics=STRICT)
    for folder in ("/home/me/ckpt", "./ckpt", "~/ckpt", "C:\\me\\ckpt", "file:ckpt", "runs/1/ckpt", "a b/ckpt"):
        run = replace(task(hub(model_args={"pretrained": folder})), remarks=("The weights are in /data/ckpt.",))
        built = run.claims(replace(supplied, command="lm_eval -o=/tmp/ckpt -t x"))
        assert "ckpt" not in str((built.details, built.claims)), folder
        assert words(built)["model"] == jcs.digest(folder)
        assert built.claims.framework.command == f"lm_eval -o={jcs.digest('/tmp/ckpt')} -t x"


def test_a_file_with_too_many_samples_or_no_counts_is_not_known_to_be_whole() -> None:
    for pointer, count in (
        ("/results/gsm8k_mini/sample_len", 10**9), *(("/n-samples/gsm8k_mini/original", count) for count in (3, 0, -1)),
    ):  # fmt: skip
        run, supplied = task(edited(hub(), pointer, count)), replace(SUPPLIED, metrics=STRICT)
        error = refusal(run.claims, supplied)
        assert error.detail.startswith("not known whether the whole benchmark was run")
        counts = words(run.claims(supplied, allow_partial=True))
        assert counts.get("num_samples", 4) == 4, "an impossible count is left out"
    unknown = task(counted(hub(), "choice_mini", None, None), "choice_mini")
    assert refusal(unknown.claims, SUPPLIED).pointer == "/n-samples"
    built = unknown.claims(SUPPLIED, allow_partial=True)
    assert (words(built)["completeness"], "num_samples" in words(built)) == ("not known", False)
    assert str(built.details["notes"]).startswith("Not known whether")


def test_a_dataset_repository_that_all_tasks_share_is_the_benchmark() -> None:
    one = edited(hub(), "/configs/gsm8k_mini/dataset_path", "openai/gsm8k")
    assert text(task(one).benchmark_repo) == "openai/gsm8k"
    assert task(one, "mini").benchmark_repo is None
    both = edited(one, "/configs/choice_mini/dataset_path", "openai/gsm8k")
    assert text(task(both, "mini").benchmark_repo) == "openai/gsm8k"
    pinned = edited(both, "/configs/gsm8k_mini/dataset_kwargs", {"revision": BENCHMARK_COMMIT})
    assert text(task(pinned).benchmark_revision) == BENCHMARK_COMMIT
    assert task(pinned, "mini").benchmark_revision is None
    assert task(edited(pinned, "/configs/gsm8k_mini/dataset_kwargs/revision", "main")).benchmark_revision is None


def test_two_filters_need_a_selector_and_one_gives_all_but_standard_errors() -> None:
    error = refusal(lambda: task(hub()).claims(SUPPLIED))
    assert "'flexible-extract/exact_match'" in error.detail
    assert "stderr" not in error.detail
    native = replace(SUPPLIED, metrics={"exact_match": "exact_match,strict-match"})
    assert task(hub()).claims(native).claims.metrics == (Metric("exact_match", 0, sample_size=4),)
    assert task(hub(), "choice_mini").claims(SUPPLIED).claims.metrics == (Metric("acc", 0.5, sample_size=4),)


def test_a_metric_that_is_no_number_is_refused_only_where_it_is_chosen() -> None:
    values: list[tuple[object, Code]] = [
        ("N/A", Code.FILE_SCHEMA), (None, Code.FILE_SCHEMA), (True, Code.FILE_SCHEMA), (math.nan, Code.FILE_NUMBER),
    ]  # fmt: skip
    chosen = replace(SUPPLIED, metrics={"e": "none/acc_stderr"})
    for value, code in values:
        run = task(edited(hub(), "/results/choice_mini/acc_stderr,none", value), "choice_mini")
        run.claims(SUPPLIED)
        error = refusal(run.claims, chosen)
        assert (error.code, error.pointer) == (code, "/results/choice_mini/acc_stderr,none")


def counted(raw: bytes, leaf: str, there: object, used: object) -> bytes:
    """Write how many samples a task has and how many were used, as releases before `sample_len` do."""
    for name in ("gsm8k_mini", "choice_mini"):
        raw = edited(raw, f"/results/{name}/sample_len", ...)
    counts = {"original": there, "effective": used}
    return edited(raw, f"/n-samples/{leaf}", ... if there is None else counts)


def test_a_part_of_the_samples_is_partial_in_the_task_and_in_its_group() -> None:
    raw = edited(hub(), "/results/choice_mini/sample_len", 3)
    for name in ("choice_mini", "mini"):
        error = refusal(task(raw, name).claims, SUPPLIED)
        assert (error.code, error.pointer) == (Code.FILE_RULE, "/n-samples/choice_mini")
    notes = task(raw, "choice_mini").claims(SUPPLIED, allow_partial=True).details["notes"]
    assert notes == "Partial run: 3 of 4 samples of 'choice_mini' were used."
    older = counted(hub(), "choice_mini", 4, 3)
    assert "3 of 4" in refusal(lambda: task(older, "choice_mini").claims(SUPPLIED)).detail
    # A limit that cut no sample leaves the run full.
    for limit in (4, 10, 1.0):
        built = task(edited(hub(), "/config/limit", limit), "choice_mini").claims(SUPPLIED)
        assert (words(built)["completeness"], "notes" in built.details) == ("full", False)


def test_a_group_s_score_is_of_the_tasks_that_have_its_metric() -> None:
    """lm-eval says so itself since `sample_count`; of older files it follows from the tasks' results."""
    group = task(hub(), "mini").claims(SUPPLIED)
    assert (words(group)["num_samples"], group.claims.metrics) == (4, (Metric("acc", 0.5, sample_size=4),))
    older = task(edited(hub(), "/results/mini/sample_count", ...), "mini").claims(SUPPLIED)
    assert words(older)["num_samples"] == 4
    both = edited(edited(hub(), "/results/mini/sample_count", ...), "/results/gsm8k_mini/acc,none", 0.25)
    assert words(task(both, "mini").claims(SUPPLIED))["num_samples"] == 8


def test_the_entry_has_seed_batch_code_epochs_and_split() -> None:
    raw = edited(hub(batch_size="16", model_dtype="torch.bfloat16"), "/git_hash", "1f84a09f")
    raw = edited(edited(raw, "/configs/choice_mini/repeats", 3), "/configs/choice_mini/dataset_name", "main")
    built = task(raw, "choice_mini").claims(SUPPLIED)
    known = {name: words(built)[name] for name in ("seed", "batch_size", "code_revision", "epochs", "split")}
    assert known == {
        "seed": "0,1234,1234,1234", "batch_size": 16, "code_revision": "1f84a09f", "epochs": 3, "split": "test",
    }  # fmt: skip
    assert built.details["runtime_context"] == {"dtype": "torch.bfloat16"}
    assert built.details["benchmark_subset"] == "main"
    unknown = task(hub(random_seed=..., batch_size=...), "choice_mini").claims(SUPPLIED)
    assert not {"seed", "batch_size", "code_revision", "epochs"} & words(unknown).keys()
    assert "runtime_context" not in unknown.details


def test_a_group_of_itself_and_nested_groups_end_in_time() -> None:
    """Each of n groups within the next has n tasks below it: 0.7 MB took four minutes."""
    assert task(edited(DUMMY, "/group_subtasks/mini", ["mini", "mini"]), "mini").benchmark_repo is None
    names = [f"g{number}" for number in range(1999)]
    for too_large, below in (
        (True, {name: [after, f"t{name}"] for name, after in pairwise(names)}), (True, dict.fromkeys(names[:150], names)),
        (False, {"g0": [f"t{number}" for number in range(20_000)]}),
    ):  # fmt: skip
        results = {name: {"acc,none": 0.5} for name in names}
        raw = json.dumps({"results": results, "config": {"model": "hf"}, "group_subtasks": below}).encode()
        error = refusal_or_none(lm_eval.read, raw)
        found = (error.code, error.pointer) if error else None
        assert found == ((Code.FILE_TOO_LARGE, "/group_subtasks") if too_large else None)


def test_the_dummy_model_is_a_mock() -> None:
    run = task(DUMMY, "choice_mini")
    supplied = replace(SUPPLIED, model_repo="acme/open-model", model_revision=MODEL_COMMIT)
    assert refusal(run.claims, supplied).pointer == "/config/model"
    run.claims(supplied, allow_mock={"dummy"})


@needs_shared
def test_the_real_file_gives_two_runs_of_two_benchmarks() -> None:
    repos = [text(run.benchmark_repo) for run in lm_eval.read(runs.shared(SHARED_FILE))]
    assert repos == ["stellaathena/math_perturbed_5000", "stellaathena/math_rephrased_full"]


def test_more_metrics_than_any_run_has_are_refused() -> None:
    task = {f"m{number},none": 0.5 for number in range(1000)}
    tasks = {f"t{number}": task for number in range(MAX_SCORES // 1000 + 1)}
    error = refusal(lm_eval.read, json.dumps({"results": tasks, "config": {"model": "hf"}}).encode())
    assert (error.code, f"more than {MAX_SCORES} scores" in error.detail) == (Code.FILE_RULE, True)
    assert refusal(lm_eval.read, b"{" * (MAX_BYTES + 1)).code is Code.FILE_TOO_LARGE


def test_a_member_that_is_missing_or_of_a_wrong_type_is_refused() -> None:
    values: tuple[object, ...] = (..., [], "\x1b[2J", 1)
    for pointer, value in product(("/results", "/config", "/config/model", "/results/mini"), values):
        if (pointer, value) not in [("/results/mini", ...), ("/config/model", "\x1b[2J")]:
            error = refusal(lm_eval.read, edited(DUMMY, pointer, value), "r.json")
            assert (error.code, "\x1b" in str(error)) == (Code.FILE_SCHEMA, False), (pointer, value)
