"""The requests of a simulated caller, and the origin of its numbers. Pure: every draw is of one seeded `Dice`.

A score is a count of right answers among a test set's items, as a harness writes it: k/n to the last digit, and its
standard error. So small test sets have few possible values, and a run that is repeated to the bit has the same ones.
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
DAY_S = 86_400
HOUR_S = 3600
MAX_BATCH = 100

# id, slice ("" for none), value
Metric = tuple[str, str, float]
Counts = tuple[int, ...]


class Result(NamedTuple):
    """One result: the members of run claims, and the SHA-256 of its artifacts. `is_bad`: an attacker's lie."""

    model: str
    revision: str
    benchmark: str
    benchmark_revision: str
    task: str
    framework: str
    version: str
    metrics: tuple[Metric, ...]
    artifacts: tuple[str, ...]
    is_bad: bool = False


class Request(NamedTuple):
    """One request at `at` seconds of the month. `results` are a batch, or one alone; `ci_run` names the CI run.

    `is_refused`: the policy refuses it, so it is counted as a refusal.
    """

    at: float
    integration: str
    identity: str
    ci_run: str
    results: tuple[Result, ...]
    is_refused: bool = False


class Dice:
    """Draws of one seed. Only of `random()` and `getrandbits`, which are the same in every release of Python."""

    def __init__(self, *seed: str | int) -> None:
        self._random = random.Random("/".join(map(str, seed)))
        self.draw = self._random.random

    def chance(self, share: float) -> bool:
        return self.draw() < share

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.draw()

    def whole(self, low: int, high: int) -> int:
        """Draw a whole number, both ends included."""
        return low + int(self.draw() * (high - low + 1))

    def pick(self, among: Sequence[T]) -> T:
        return among[int(self.draw() * len(among))]

    def some(self, among: Sequence[T], count: int) -> tuple[T, ...]:
        """Draw `count` different ones, in their order."""
        left = list(range(len(among)))
        drawn = [left.pop(int(self.draw() * len(left))) for _ in range(min(count, len(left)))]
        return tuple(among[index] for index in sorted(drawn))

    def normal(self) -> float:
        """Draw of nearly the normal distribution: six uniform ones added are the same on every machine."""
        return (sum(self.draw() for _ in range(6)) - 3) * 1.41421356

    def hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(digits * 4):0{digits}x}"


class Task(NamedTuple):
    """A task of a benchmark: its test set has `items`, and `scores` are the counted (metric id, slice)."""

    benchmark: str
    benchmark_revision: str
    id: str
    items: int
    scores: tuple[tuple[str, str], ...]
    has_errors: bool = True


_CHOICE = (("acc", ""), ("acc_norm", ""))
_MATCH = (("exact_match", "strict-match"), ("exact_match", "flexible-extract"))
_TEXT = (("rouge1", ""), ("rouge2", ""), ("rougeL", ""), ("bleu", ""))
_ONE = (("accuracy", ""),)
_GRADED = (("helpful", ""), ("correct", ""), ("safe", ""), ("concise", ""))
_ROWS = (
    ("cais/mmlu", "mmlu", 14042, _CHOICE), ("Rowan/hellaswag", "hellaswag", 10042, _CHOICE),
    ("allenai/ai2_arc", "arc_easy", 2376, _CHOICE), ("allenai/ai2_arc", "arc_challenge", 1172, _CHOICE),
    ("openai/gsm8k", "gsm8k", 1319, _MATCH), ("ybisk/piqa", "piqa", 1838, _CHOICE),
    ("allenai/winogrande", "winogrande", 1267, _ONE), ("google/boolq", "boolq", 3270, _ONE),
    ("TIGER-Lab/MMLU-Pro", "mmlu_pro", 12032, _MATCH), ("EleutherAI/hendrycks_math", "math", 5000, _MATCH),
    ("google/IFEval", "ifeval", 541, (("prompt_level", "strict"), ("prompt_level", "loose"), ("inst_level", "strict"))),
    ("abisee/cnn_dailymail", "summaries", 10000, _TEXT), ("wmt/wmt14", "de-en", 10000, _TEXT),
    ("lukaemon/bbh", "bbh", 6511, _MATCH), ("truthfulqa/truthful_qa", "mc", 817, (("mc1", ""), ("mc2", ""))),
    # small test sets: twins by chance
    ("openai/openai_humaneval", "humaneval", 164, (("pass@1", ""), ("pass@10", ""))),
    ("HuggingFaceH4/aime_2024", "aime24", 30, (("accuracy", ""), ("maj@8", ""))),
    ("Idavidrein/gpqa", "diamond", 198, _CHOICE), ("lmsys/mt_bench", "turns", 80, _GRADED),
)  # fmt: skip


def _revision(name: str) -> str:
    return Dice("benchmark", name).hex(40)


TASKS = tuple(
    Task(benchmark, _revision(benchmark), name, items, scores, has_errors=scores not in (_TEXT, _GRADED))
    for benchmark, name, items, scores in _ROWS
)
# One harness log with sixty tasks: the subjects of a large benchmark.
SUBJECTS = tuple(
    Task("cais/mmlu", _revision("cais/mmlu"), f"mmlu_subject_{number:02d}", 100 + 23 * number, _CHOICE)
    for number in range(60)
)


def measure(dice: Dice, task: Task, skill: float) -> Counts:
    """Evaluate a model of some skill (0 to 1): the right answers for each score of the task."""
    counts = []
    for place in range(len(task.scores)):
        right = min(0.99, max(0.01, skill - 0.03 * place))
        deviation = math.sqrt(task.items * right * (1 - right))
        counts.append(_within(task, round(task.items * right + deviation * dice.normal())))
    return tuple(counts)


def nudge(dice: Dice, task: Task, counts: Counts) -> Counts:
    """Evaluate again on hardware that rounds another way: a few answers in a thousand flip, now and then none."""
    flips = max(1, task.items // 500)
    return tuple(_within(task, count + dice.whole(-flips, flips)) for count in counts)


def sample_again(dice: Dice, task: Task, counts: Counts) -> Counts:
    """Evaluate again with another random seed of the model: every count moves by sampling noise."""
    return measure(dice, task, counts[0] / task.items)


def write(task: Task, counts: Counts) -> tuple[Metric, ...]:
    """Write counts as a harness does: values, and their standard errors where it has them."""
    metrics: list[Metric] = []
    for (name, part), count in zip(task.scores, counts, strict=True):
        value = count / task.items
        metrics.append((name, part, value))
        if task.has_errors:
            metrics.append((f"{name}_stderr", part, math.sqrt(value * (1 - value) / (task.items - 1))))
    return tuple(metrics)


def _within(task: Task, count: int) -> int:
    return max(0, min(task.items, count))


def send(
    dice: Dice, at: float, who: tuple[str, str], ci_run: str, results: Sequence[Result], *, alone: bool
) -> Iterator[Request]:
    """Send results: each alone with seconds between them, or in batches of at most a hundred."""
    size = 1 if alone else MAX_BATCH
    for start in range(0, len(results), size):
        yield Request(at, *who, ci_run, tuple(results[start : start + size]))
        at += dice.between(2, 20)
