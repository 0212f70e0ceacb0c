"""Kinds of runs of Inspect AI with its mock model, and what its own log reader reports of each.

    python tests/harness/inspect_runs.py FOLDER

Runs each kind twice, with a JSON log and with an `.eval` log, in FOLDER, and writes FOLDER/reports.json. Needs only
inspect-ai, and no network.
"""

import contextlib
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from inspect_ai import Epochs, Task, eval, eval_retry, eval_set, score, task
from inspect_ai.dataset import FieldSpec, MemoryDataset, Sample, json_dataset
from inspect_ai.log import (
    EvalLog,
    EvalScore,
    ProvenanceData,
    edit_score,
    invalidate_samples,
    read_eval_log,
    write_eval_log,
)
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    ScoreEdit,
    Scorer,
    Target,
    accuracy,
    grouped,
    includes,
    match,
    mean,
    metric,
    model_graded_qa,
    multi_scorer,
    scorer,
    std,
    stderr,
)  # fmt: skip
from inspect_ai.solver import Generate, Solver, TaskState, chain, generate, solver, system_message
from inspect_ai.util import EarlyStop

SIZE = 6


def answer(messages: list[ChatMessage], *_: object) -> ModelOutput:
    """Be the model, who says the number in two of three answers, and the one that grades, which takes every second answer."""
    number = int(re.findall(r"([0-9])[?]", messages[-1].text)[0])
    grade, said = "IC"[number % 2], ("no", "so 2", "2 it is")[number % 3]
    output = ModelOutput.from_content("mockllm/model", f"GRADE: {grade}, {said}")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


# -- scorers, metrics and solvers -------------------------------------------------------------------------------------


def by_sample(name: str, metrics: Any, value: Callable[[int, int], Any]) -> Scorer:
    """Make a scorer whose score is a function of the sample's number and the epoch; None means that the sample has none."""

    @scorer(name=name, metrics=metrics)
    def of_sample() -> Scorer:
        async def score(state: TaskState, _target: Target) -> Score | None:
            found = value(int(state.sample_id), state.epoch)
            return None if found is None else Score(value=found)

        return score

    return of_sample()


@metric
def ends() -> Metric:
    def both(scores: list[SampleScore]) -> list[float]:
        return [scores[0].score.as_float(), scores[-1].score.as_float()]

    return both


@metric(scores="unreduced")
def every_epoch() -> Metric:
    def count(scores: list[SampleScore]) -> float:
        return float(len(scores))

    return count


# No score for the second sample in the first epoch; a score of two parts.
scored = by_sample("scored", [accuracy(), stderr()], lambda n, e: None if (n, e) == (2, 1) else "CI"[e > 1])
PARTS = lambda n, _: {"right": 1, "short": n % 2}  # noqa: E731
parts = by_sample("parts", {"right": [mean(), stderr()], "short": [mean()]}, PARTS)
by_epoch = by_sample("by_epoch", [mean(), std()], lambda n, e: float((n + e) % 2))
in_groups = [grouped(mean(), "group"), mean()]


@solver
def failing(at: int = 4, first_only: bool = False, by: int = 0) -> Solver:
    async def solve(state: TaskState, going_on: Generate) -> TaskState:
        if state.sample_id == at and not (first_only and FAILED in os.environ):
            os.environ[FAILED] = "1"
            if by:
                os.kill(os.getpid(), by)
                await anyio.sleep_forever()
            raise ValueError("it failed")
        if not first_only:
            return await going_on(state)
        state.output = answer(state.messages)  # a retry has another model, without our answers
        return state

    return solve


FAILED = "A_SAMPLE_FAILED"  # in this kind of run; a retry loads this file anew


@solver
def patient(turns: int = 2) -> Solver:
    """Ask more than once, so that a limit on messages ends the sample."""

    async def solve(state: TaskState, going_on: Generate) -> TaskState:
        for _ in range(turns):
            state.messages.append(state.user_prompt)
            state = await going_on(state)
        return state

    return solve


class StopsEarly:
    """Skip the last sample."""

    async def start_task(self, *_: object, **__: object) -> str:
        return "last"

    async def schedule_sample(self, id: int, epoch: int) -> EarlyStop | None:
        return EarlyStop(id=id, epoch=epoch) if id == SIZE else None

    async def complete_sample(self, *_: object, **__: object) -> None: ...

    async def complete_task(self) -> dict[str, Any]:
        return {}


# -- tasks ------------------------------------------------------------------------------------------------------------


def samples(count: int = SIZE) -> list[Sample]:
    return [Sample(id=n, input=f"{n}?", target="2", metadata={"group": "ab"[n > 2]}) for n in range(1, count + 1)]


def mini(**given: Any) -> Task:
    given.setdefault("dataset", MemoryDataset(samples(), name="mini", location="acme/mini"))
    return Task(name="mini", **{"scorer": includes(), "solver": generate(), **given})


@task
def chosen(n: int = SIZE, subset: str = "") -> Task:
    rows = [row for row in samples(n) if subset in {"", row.metadata["group"]}]
    return mini(dataset=MemoryDataset(rows, name="mini", location="acme/mini"))


@task
def flaky() -> Task:
    return mini(solver=failing(first_only=True))


def from_file(limit: int | None) -> Task:
    Path("mini.jsonl").write_text("".join(json.dumps(row.model_dump()) + "\n" for row in samples()))
    return mini(dataset=json_dataset("mini.jsonl", FieldSpec(id="id", metadata=["group"]), limit=limit))


def graded_by(role: bool) -> dict[str, Any]:
    """Grade by another mock model: by a role, or by the scorer's argument."""
    grader = get_model("mockllm/grader", custom_outputs=answer)
    return {"model_roles": {"grader": grader}} if role else {"scorer": model_graded_qa(model=grader)}


# -- kinds ------------------------------------------------------------------------------------------------------------

OPTIONS = {"display": "none", "log_dir": "logs"}
OF_TASK = {"scorer", "solver", "epochs", "early_stopping", "metrics", "dataset", "config"}


def run(suffix: str, tasks: Any = None, **given: Any) -> EvalLog:
    """Evaluate a task, or `mini` with the members of a task that are given, with all the other options."""
    tasks = tasks or mini(**{name: given.pop(name) for name in OF_TASK & given.keys()})
    model = get_model("mockllm/model", custom_outputs=answer)
    return eval(tasks, model=model, log_format=suffix, **OPTIONS, **given)[0]


def changed(suffix: str, change: Callable[[EvalLog], EvalLog | None], **given: Any) -> EvalLog:
    """Change a log after the run with Inspect AI's own functions, and write it."""
    log = read_eval_log(run(suffix, **given).location)
    new = change(log) or log
    write_eval_log(new, log.location)
    return new


def died(suffix: str, by: int) -> EvalLog:
    """Run in another process, which receives a signal at the fourth sample."""
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        with contextlib.suppress(BaseException):
            run(suffix, mini(solver=failing(by=by)), max_samples=1)
        os._exit(0)
    os.waitpid(child, 0)
    (path,) = Path("logs").glob(f"*.{suffix}")
    return read_eval_log(str(path))


def recovered(suffix: str) -> EvalLog:
    from inspect_ai.log import recover_eval_log  # older releases lack it

    return recover_eval_log(died("eval", signal.SIGKILL).location)


def retried(suffix: str) -> EvalLog:
    return eval_retry(run(suffix, flaky(), fail_on_error=True), log_format=suffix, **OPTIONS)[0]


def in_set(suffix: str, **given: Any) -> EvalLog:
    model = get_model("mockllm/model", custom_outputs=answer)
    options = {"display": "none", "log_dir": "logs", "log_format": suffix, "retry_wait": 0.01, **given}
    _, logs = eval_set(options.pop("tasks"), model=model, **options)
    return logs[0]


EDIT = ScoreEdit(value="I", provenance=ProvenanceData(author="a", reason="r"))
PROVENANCE = ProvenanceData(author="a", reason="r")

KINDS: dict[str, dict[str, Any] | Callable[[str], EvalLog]] = {
    # scorers and metrics
    "whole": {"scorer": [match(), includes()]},
    "one scorer twice": {"scorer": [includes(), includes()]},
    "a sample without a score": {"scorer": [includes(), scored]},
    "a score of NaN": {"scorer": by_sample("nan", [mean()], lambda n, _: math.nan if n == 2 else 1.0)},
    "only scores of NaN": {"scorer": by_sample("nan", [mean()], lambda *_: math.nan)},
    "multi-value scorer": {"scorer": parts},
    "multi-value scorer, all names": {"scorer": by_sample("globbed", {"*": [mean()]}, PARTS)},
    "multi-value scorer, a part of NaN": {
        "scorer": by_sample("gap", {"a": [mean()], "b": [mean()]}, lambda n, _: {"a": 1, "b": math.nan if n == 2 else 0})
    },
    "metric of two values": {"scorer": by_sample("ended", [ends(), mean()], lambda n, _: n)},
    "several scorers as one": {"scorer": multi_scorer([match(), includes()], "mode")},
    "metrics of the task": {"metrics": [mean(), std()]},
    "grouped": {"scorer": by_sample("by_group", in_groups, lambda n, _: n % 2)},
    "grouped, mean of groups": {
        "scorer": by_sample("by_group", [grouped(mean(), "group", all="groups", all_label="macro")], lambda n, _: n % 2)
    },
    "grouped, no total": {
        "scorer": by_sample("by_group", [grouped(mean(), "group", all=False, name_template="g-{group_name}")], lambda n, _: n % 2)
    },
    "grouped twice": {
        "scorer": by_sample("by_group", [grouped(mean(), "group"), grouped(std(), "group")], lambda n, _: n % 2)
    },
    "grouped, multi-value": {"scorer": by_sample("by_group", {"right": in_groups}, PARTS)},
    "grouped, a sample without a score": {
        "scorer": by_sample("by_group", in_groups, lambda n, _: None if n == 2 else n % 2)
    },
    "grader by role": {"scorer": model_graded_qa(), **graded_by(True)},
    "grader by argument": graded_by(False),
    # epochs and their reducers
    "epochs": {"epochs": 2},
    **{
        f"epochs, {reducer}": {"scorer": by_epoch, "epochs": Epochs(3, reducer)}
        for reducer in ("mean", "median", "mode", "majority", "max", "at_least_2", "pass_at_2", "pass_k_2")
    },
    "epochs, two reducers": {"scorer": by_epoch, "epochs": Epochs(2, ["mean", "max"])},
    "epochs, not reduced": {"scorer": by_epoch, "epochs": Epochs(2, [])},
    "epochs, metric of all epochs": {"scorer": by_sample("both", [mean(), every_epoch()], lambda *_: 1), "epochs": 2},
    "epochs, multi-value": {"scorer": parts, "epochs": 2},
    "epochs, grouped": {"scorer": by_sample("by_group", in_groups, lambda n, e: (n + e) % 2), "epochs": 2},
    "epochs, a score missing": {"scorer": scored, "epochs": 2},
    "epochs, limited": {"epochs": 2, "limit": 3},
    "epochs, no samples in the log": {"epochs": 2, "log_samples": False},
    "no samples in the log": {"log_samples": False},
    # a choice of samples
    "limit": {"limit": 3},
    "limit above the size": {"limit": 100},
    "range": {"limit": (2, 5)},
    "range of all": {"limit": (0, SIZE)},
    "chosen ids": {"sample_id": [1, 2]},
    "chosen ids, all": {"sample_id": [1, 2, 3, 4, 5, 6]},
    "shuffled": {"sample_shuffle": 7},
    "shuffled, limited": {"sample_shuffle": 7, "limit": 3},
    "limit in the task's code": lambda suffix: run(suffix, from_file(3)),
    "whole file": lambda suffix: run(suffix, from_file(None)),
    # arguments
    "task argument, a number": lambda suffix: run(suffix, chosen(n=3)),
    "task argument, a subset": lambda suffix: run(suffix, chosen(subset="a")),
    "task argument by name": lambda suffix: run(suffix, "chosen", task_args={"n": 3, "subset": "a"}),
    "no task argument": lambda suffix: run(suffix, chosen()),
    "solver": {"solver": [system_message("Be brief."), generate()]},
    "solver of the run": lambda suffix: run(suffix, mini(), solver=chain(system_message("Be brief."), patient(3))),
    "generation": {"temperature": 0.5, "max_tokens": 9, "top_p": 0.9, "stop_seqs": ["x"], "system_message": "Be brief."},
    "seed": {"seed": 7},
    # errors and limits of samples
    "a sample fails": {"solver": failing(), "fail_on_error": False},
    "a share may fail": {"solver": failing(), "fail_on_error": 0.5},
    "the run fails": {"solver": failing(), "fail_on_error": True},
    "the run fails at its end": {"solver": failing(), "continue_on_fail": True},
    "score_on_error": {"solver": failing(), "score_on_error": True, "fail_on_error": False},
    "retry_on_error": {"solver": failing(first_only=True), "retry_on_error": 1},
    "early stopping": {"early_stopping": StopsEarly()},
    "limit on messages": {"solver": patient(), "message_limit": 3},
    # runs again
    "eval_retry": retried,
    "eval_set": lambda suffix: in_set(suffix, tasks=[chosen()]),
    "eval_set, retried": lambda suffix: in_set(suffix, tasks=[flaky()], retry_attempts=2),
    "eval_set, limited": lambda suffix: in_set(suffix, tasks=[chosen()], limit=3),
    "cancelled": lambda suffix: died(suffix, signal.SIGINT),
    "killed": lambda suffix: died(suffix, signal.SIGKILL),
    "killed, recovered": recovered,
    # changes after the run
    "scored later": lambda suffix: changed(suffix, lambda log: score(log, includes(), display="none"), score=False),
    "a score added": lambda suffix: changed(suffix, lambda log: score(log, match(), action="append", display="none")),
    "scored again": lambda suffix: changed(suffix, lambda log: score(log, match(), action="overwrite", display="none")),
    "edited": lambda suffix: changed(
        suffix, lambda log: edit_score(log, 1, "includes", EDIT), scorer=[includes(), match()]
    ),
    "invalidated": lambda suffix: changed(suffix, lambda log: invalidate_samples(log, "all", PROVENANCE)),
}  # fmt: skip


# -- Inspect AI's own report ------------------------------------------------------------------------------------------


CONNECTION = {"max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout", "batch", "cache"}
LIMITS = ("message_limit", "token_limit", "turn_limit", "time_limit", "working_limit", "cost_limit", "score_on_error")


def named(score: EvalScore, key: str) -> tuple[str, str]:
    """Return a number's metric, and for a group of `grouped()` the metric that was applied to it, and the group."""
    number = score.metrics[key]
    params = number.params or {}
    if number.group == "grouped" and number.name != params.get("all_label", "all"):
        return str(params["metric"]["name"]).rpartition("/")[2], number.name
    return key, ""


def of_group(log: EvalLog, score: EvalScore, key: str) -> int | None:
    """Return how many samples of the dataset are in a number's group and have a score."""
    params, name = score.metrics[key].params or {}, score.metrics[key].name
    template, group_key = params.get("name_template", "{group_name}"), params["group_key"]
    scored = {row.id: row.metadata or {} for row in log.samples or [] if score.scorer in (row.scores or {})}
    return sum(template.format(group_name=row[group_key]) == name for row in scored.values()) or None


def arguments(log: EvalLog) -> dict[str, Any]:
    """Return the arguments that can change a score: of the task, its solvers, the generation, epochs and limits."""
    config, several = log.eval.config, (log.eval.config.epochs or 1) > 1
    generation = {
        **log.eval.model_generate_config.model_dump(exclude_none=True), **log.plan.config.model_dump(exclude_none=True)
    }  # fmt: skip
    return {
        "task": log.eval.task_args,
        "solver": [{"name": step.solver, "params": step.params} for step in log.plan.steps],
        "generation": {name: value for name, value in generation.items() if name not in {"seed", *CONNECTION}},
        "epochs": config.epochs,
        "epochs_reducer": config.epochs_reducer if several else None,
        **{name: getattr(config, name) or None for name in LIMITS},
    }


def whole(log: EvalLog, score: EvalScore) -> bool | None:
    """Return whether the log proves that each sample of the dataset has this score in each epoch; None if it cannot."""
    epochs = log.eval.config.epochs or 1
    if log.eval.task_args_passed or (not log.samples and epochs > 1):
        return None
    if (score.scored_samples or 0) > log.results.total_samples // epochs:
        return None  # a number of all epochs, which counts a sample in each
    if not log.samples:
        return bool(score.scored_samples == log.eval.dataset.samples)
    ran = sum(score.scorer in (row.scores or {}) and row.error is None for row in log.samples)
    return bool(ran == epochs * (log.eval.dataset.samples or 0) and not score.unscored_samples)


def report(log: EvalLog) -> dict[str, Any]:
    """Return what Inspect AI's reader says of a log."""
    if log.status != "success" or log.invalidated:
        return {"refused": log.status, "error": log.error and log.error.message}
    scores, epochs = [], log.eval.config.epochs or 1
    for found in log.results.scores if log.results else []:
        for key, number in found.metrics.items():
            metric, group = named(found, key)
            counted = found.scored_samples if found.scored_samples <= log.results.total_samples // epochs else None
            given = [row.scores[found.scorer] for row in log.samples or [] if found.scorer in (row.scores or {})]
            scores.append(
                {
                    "scorer": found.name,
                    "reducer": found.reducer or "",
                    "metric": metric,
                    "slice": group,
                    "value": number.value,
                    "samples": of_group(log, found, key) if group else counted,
                    "whole": whole(log, found),
                    "changed": any(one.history for one in given),
                }
            )
    return {"epochs": epochs, "arguments": arguments(log), "scores": scores}


def main(folder: Path) -> None:
    reports: list[dict[str, Any]] = []
    for kind, given in KINDS.items():
        for suffix in ("json", "eval"):
            os.environ.pop(FAILED, None)
            with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
                log = given(suffix) if callable(given) else run(suffix, **given)
                out = folder / f"{len(reports)}{Path(log.location).suffix}"
                shutil.copyfile(log.location, out)
            reports.append({"kind": kind, "path": out.name, **report(read_eval_log(str(out)))})
    (folder / "reports.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
