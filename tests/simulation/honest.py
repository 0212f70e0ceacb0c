"""The honest population: a month of 200 integrations. Pure, of one seed, in the order of time.

It was fixed before any threshold was looked at; `test_simulation.py` restates its digest. One fault was corrected after
the first replay: the second of two harness versions had other numbers every night, where these say that they are the
same to the bit. No such month was measured, so these are assumptions, each with its reason. A doubtful one was chosen to
make false alarms likelier.

| integrations | who | a month |
|---|---|---|
| 50 | nightly, of a model under work | every night, 2 to 12 tasks; a new commit on 85 % of working days and 15 % of others, so the same one comes again at week-ends: to the bit for 80 % of them, with a few flipped answers for the rest (their GPUs) |
| 20 | nightly, of a pinned commit: tests of the framework | the same numbers to the bit, until the framework changes them (8 % of nights: two or three releases of a month change a prompt or a parser) |
| 52 | releases | 2 to 4 days with 4 to 10 models of the owner, 8 to 15 tasks; half have a fix the next day: a new commit |
| 25 | matrices | once or twice a week 64 jobs of one CI run within three hours: 8 models by 8 groups of tasks, or 64 models of 3 to 18 owners with 8 to 14 tasks each |
| 18 | training | one or two runs of 3 to 10 days, a checkpoint (a commit) every hour, 4 to 8 tasks |
| 6 | leaderboards that sweep | twice, 500 models of some 200 owners in one CI run, 4 to 6 tasks. A fifth is a quantized or merged copy of one before it; a third of these copies has the very same numbers |
| 9 | leaderboards with a queue | 3 to 15 models a day, of an owner each |
| 10 | one log of sixty tasks | twice a week, one or two models |
| 10 | ablations | once a week one commit under 2 to 4 prompts: the prompt is not in the run key |

And of all of them:

- 3 % of jobs are run again, a quarter of these once more, and so on to three: 60 % to the bit, 40 % with a few answers
  flipped. A job that is run again belongs to the same CI run and writes another log.
- 0.7 % of logs are submitted again the same day with one metric more: forgotten the first time.
- 1 % of jobs are refused one to six times before, by a typing error in the policy or the claims.
- 8 % of teams evaluate everything with two versions of their harness side by side; a third of the values differ, and
  each version says the same of the same answers.
- 30 % of teams write a measurement of the machine beside the scores, other in every run, by the name that their
  framework has for it (`MACHINE`).
- 60 % state the SHA-256 of the log of the run, 20 % one of each task, 20 % none; 8 % state a file that never changes
  as well: the task's configuration.
- 40 % send every result alone, the rest in batches.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.simulation.runs import (
    DAY_S,
    HOUR_S,
    SUBJECTS,
    TASKS,
    Counts,
    Dice,
    Request,
    Result,
    Task,
    measure,
    nudge,
    send,
    write,
)

FRAMEWORKS = ("lm-evaluation-harness", "lighteval", "inspect-ai", "helm", "mteb", "our-evals")
# The measurements of the machine by frameworks (lm-eval, lighteval, HELM, MTEB, vLLM, optimum-benchmark, llama.cpp, Inspect).
MACHINE = (
    "total_evaluation_time_seconds", "total_evaluation_time_secondes", "evaluation_time", "inference_runtime",
    "tokens_per_second", "output_throughput", "mean_ttft_ms", "latency_p50", "samples_per_second", "run_duration",
    "wall_clock_s", "kg_co2_emissions", "energy_kwh", "avg_ts", "num_output_tokens", "cost_usd",
)  # fmt: skip

Measured = Mapping[Task, Counts]


class Model(NamedTuple):
    """A model at one commit, and how good it is."""

    repo: str
    revision: str
    skill: float


class Team:
    """One integration: its habits, drawn once, and its runs."""

    def __init__(self, seed: int, name: str) -> None:
        dice = Dice("honest", seed, name)
        self.dice, self.name, self.owner = dice, name, f"{name}-lab"
        self.framework = dice.pick(FRAMEWORKS)
        self.versions = ("1.4.0", "1.5.0") if dice.chance(0.08) else ("1.5.0",)
        self.machine = dice.pick(MACHINE) if dice.chance(0.3) else ""
        self.files = dice.pick(("log", "log", "log", "task", "none"))
        self.config = dice.hex(64) if dice.chance(0.08) else ""
        self.is_exact = dice.chance(0.8)
        self.alone = dice.chance(0.4)
        self.runs = 0

    def model(self, owner: str = "") -> Model:
        dice = self.dice
        return Model(f"{owner or self.owner}/model-{dice.hex(6)}", dice.hex(40), dice.between(0.25, 0.85))

    def committed(self, model: Model) -> Model:
        """The next commit of a model: a little better or worse."""
        skill = min(0.9, max(0.2, model.skill + self.dice.between(-0.01, 0.012)))
        return model._replace(revision=self.dice.hex(40), skill=skill)

    def measured(self, model: Model, tasks: Sequence[Task]) -> Measured:
        return {task: measure(self.dice, task, model.skill) for task in tasks}

    def nudged(self, measured: Measured, share: float = 1.0) -> Measured:
        dice = self.dice
        return {task: nudge(dice, task, counts) if dice.chance(share) else counts for task, counts in measured.items()}

    def by_other_version(self, measured: Measured) -> Measured:
        """The other harness version's counts of the same answers: always the same ones, and a third of them different."""
        others: dict[Task, Counts] = {}
        for task, counts in measured.items():
            dice = Dice("version", self.name, task.id, *counts)
            others[task] = nudge(dice, task, counts) if dice.chance(1 / 3) else counts
        return others

    def ci_run(self) -> str:
        self.runs += 1
        return f"{self.name}-{self.runs}"

    def results(self, model: Model, measured: Measured, version: str) -> list[Result]:
        """Write the results of one run of the harness, with its log."""
        dice, log = self.dice, self.dice.hex(64)
        written = []
        for task, counts in measured.items():
            metrics = write(task, counts)
            if self.machine:
                metrics = (*metrics, (self.machine, "", round(dice.between(10, 2000), 3)))
            file = {"log": log, "task": dice.hex(64), "none": ""}[self.files]
            artifacts = tuple(filter(None, (file, self.config)))
            where = (task.benchmark, task.benchmark_revision, task.id)
            written.append(Result(*model[:2], *where, self.framework, version, metrics, artifacts))
        return written

    def job(self, at: float, model: Model, measured: Measured, ci_run: str, identity: str = "main") -> list[Request]:
        """Evaluate a model and send it, with failures and repeats."""
        dice, who = self.dice, (self.name, identity)
        sent: list[Request] = []
        if dice.chance(0.01):
            refused = self.results(model, measured, self.versions[0])[:1]
            sent += [Request(at - 60 * (n + 1), *who, ci_run, tuple(refused), True) for n in range(dice.whole(1, 6))]
        for number, version in enumerate(self.versions):
            numbers = measured if number == 0 else self.by_other_version(measured)
            results = self.results(model, numbers, version)
            sent += send(dice, at + 300 * number, who, ci_run, results, alone=self.alone)
            if dice.chance(0.007):
                later = [_with_one_metric_more(dice, result) for result in results]
                sent += send(dice, at + dice.between(600, 6 * HOUR_S), who, self.ci_run(), later, alone=self.alone)
        share, again = 0.03, at
        for _ in range(3):
            if not dice.chance(share):
                break
            share, again = 0.25, again + dice.between(900, 2 * HOUR_S)
            measured = measured if dice.chance(0.6) else self.nudged(measured)
            results = self.results(model, measured, self.versions[0])
            sent += send(dice, again, who, ci_run, results, alone=self.alone)
        return sent


def _with_one_metric_more(dice: Dice, result: Result) -> Result:
    return result._replace(metrics=(*result.metrics, ("f1", "", round(dice.between(0.2, 0.9), 4))))


def nightly(team: Team, days: int) -> Iterator[Request]:
    dice, model, hour = team.dice, team.model(), team.dice.between(0, 5)
    tasks = dice.some(TASKS, dice.whole(2, 12))
    measured = team.measured(model, tasks)
    for day in range(days):
        if dice.chance(0.85 if day % 7 < 5 else 0.15):
            model = team.committed(model)
            measured = team.measured(model, tasks)
        elif not team.is_exact:
            measured = team.nudged(measured)
        yield from team.job(day * DAY_S + hour * HOUR_S, model, measured, team.ci_run(), "nightly")


def pinned(team: Team, days: int) -> Iterator[Request]:
    dice, model, hour = team.dice, team.model(), team.dice.between(0, 5)
    measured = team.measured(model, dice.some(TASKS, dice.whole(3, 10)))
    for day in range(days):
        if dice.chance(0.08):
            measured = team.nudged(measured, 0.5)
        yield from team.job(day * DAY_S + hour * HOUR_S, model, measured, team.ci_run(), "nightly")


def releases(team: Team, days: int) -> Iterator[Request]:
    dice = team.dice
    for _ in range(dice.whole(2, 4)):
        at, ci_run = dice.between(0, days - 1.5) * DAY_S, team.ci_run()
        tasks = dice.some(TASKS, dice.whole(8, 15))
        models = [team.model() for _ in range(dice.whole(4, 10))]
        for model in models:
            at += dice.between(300, 2400)
            yield from team.job(at, model, team.measured(model, tasks), ci_run, "release")
        if dice.chance(0.5):
            fixed = team.committed(dice.pick(models))
            yield from team.job(at + 0.8 * DAY_S, fixed, team.measured(fixed, tasks), team.ci_run(), "release")


def matrices(team: Team, days: int) -> Iterator[Request]:
    dice = team.dice
    owners = [f"{team.name}-owner-{number}" for number in range(dice.whole(3, 18))]
    by_model = dice.chance(0.5)
    for day in range(days):
        if not dice.chance(1.5 / 7):
            continue
        start, ci_run = day * DAY_S + dice.between(0, 20) * HOUR_S, team.ci_run()
        models = [team.model(dice.pick(owners)) for _ in range(64 if by_model else 8)]
        groups = [dice.some(TASKS, dice.whole(8, 14))] if by_model else [TASKS[n::8] for n in range(8)]
        for model in models:
            for tasks in groups:
                at = start + dice.between(0, 3) * HOUR_S
                yield from team.job(at, model, team.measured(model, tasks), ci_run)


def training(team: Team, days: int) -> Iterator[Request]:
    dice = team.dice
    for _ in range(dice.whole(1, 2)):
        lasts = min(float(days), dice.between(3, 10))
        start, model = dice.between(0, days - lasts) * DAY_S, team.model()
        tasks = dice.some(TASKS, dice.whole(4, 8))
        for hour in range(int(lasts * 24)):
            model = team.committed(model)
            yield from team.job(start + hour * HOUR_S, model, team.measured(model, tasks), team.ci_run(), "training")


def sweeps(team: Team, days: int) -> Iterator[Request]:
    dice = team.dice
    for number in range(2):
        at, ci_run = (number + dice.between(0.1, 0.8)) * days / 2 * DAY_S, team.ci_run()
        tasks = dice.some(TASKS, dice.whole(4, 6))
        before: list[tuple[Model, Measured]] = []
        for _ in range(500):
            model = team.model(f"owner-{int(200 * dice.draw() ** 2)}")
            measured = team.measured(model, tasks)
            if before and dice.chance(0.2):
                original = dice.pick(before)
                measured = original[1] if dice.chance(1 / 3) else team.nudged(original[1])
            before.append((model, measured))
            at += dice.between(25, 60)
            yield from team.job(at, model, measured, ci_run)


def queues(team: Team, days: int) -> Iterator[Request]:
    dice, tasks = team.dice, team.dice.some(TASKS, 6)
    for day in range(days):
        for _ in range(dice.whole(3, 15)):
            model = team.model(f"submitter-{dice.whole(0, 2000)}")
            at = day * DAY_S + dice.between(0, 24) * HOUR_S
            yield from team.job(at, model, team.measured(model, tasks), team.ci_run())


def sixty_tasks(team: Team, days: int) -> Iterator[Request]:
    dice = team.dice
    team.files = "log"
    for day in range(days):
        if dice.chance(2 / 7):
            for _ in range(dice.whole(1, 2)):
                model, at = team.model(), day * DAY_S + dice.between(0, 22) * HOUR_S
                yield from team.job(at, model, team.measured(model, SUBJECTS), team.ci_run())


def ablations(team: Team, days: int) -> Iterator[Request]:
    dice, tasks = team.dice, team.dice.some(TASKS, 4)
    for week in range(-(-days // 7)):
        model, at = team.model(), (week * 7 + dice.between(0, min(6, days - week * 7 - 1))) * DAY_S
        for _ in range(dice.whole(2, 4)):
            at += dice.between(600, 3600)
            yield from team.job(at, model, team.measured(model, tasks), team.ci_run(), "research")


Kind = Callable[[Team, int], Iterator[Request]]
KINDS: tuple[tuple[Kind, int], ...] = (
    (nightly, 50), (pinned, 20), (releases, 52), (matrices, 25), (training, 18), (sweeps, 6), (queues, 9),
    (sixty_tasks, 10), (ablations, 10),
)  # fmt: skip


def honest(seed: int, *, days: int = 30, share: float = 1.0) -> Iterator[Request]:
    """Yield the requests of honest integrations in `days` days, in the order of time. `share` is the part of each kind's
    number, at least one."""
    months = [
        sorted(_within(kind(Team(seed, f"{kind.__name__}-{number}"), days), days), key=lambda request: request.at)
        for kind, count in KINDS
        for number in range(max(1, round(count * share)))
    ]
    return heapq.merge(*months, key=lambda request: request.at)


def _within(requests: Iterator[Request], days: int) -> Iterator[Request]:
    return (request for request in requests if 0 <= request.at < days * DAY_S)
