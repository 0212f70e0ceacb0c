"""Make the Inspect AI logs of the demo and the tests, by really running inspect-ai with its mock model.

Run it with a Python that has inspect-ai 0.3.285 installed (this project does not depend on it), from anywhere::

    python tests/data/make_inspect_log.py

It writes, relative to the repository:

* `issuer/dev/runs/gsm8k_mini_inspect_ai.json`: one scorer; `eval.metadata` names the benchmark's revision and not the
  model's, so that claims from it need something supplied.
* `tests/data/inspect_two_scorers.json`: two scorers that disagree; both revisions in `eval.metadata`.
* `tests/data/inspect_two_scorers.eval`: the same evaluation as a zip archive, with its samples.

Every run is new: the logs' ids and times differ, their scores do not. The evaluation runs in an empty folder outside
any repository, with a task that has no file, because Inspect AI writes the task's path and the checkout's origin into
the log. Nothing of the log is edited afterwards.
"""

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, __version__, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Scorer, includes, match

REPOSITORY = Path(__file__).resolve().parents[2]
INSPECT_AI = "0.3.285"
MODEL_REVISION = "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"
BENCHMARK_REVISION = "5503434ddd753f426f4b38109466949a1217c2bb"

# question, target, what the mock model answers: `match` wants the target at the end, `includes` anywhere.
ROWS = (
    ("Ada has 3 boxes of 12 pens. How many pens?", "36", "3 * 12 = 36"),
    ("A train runs 60 km an hour for 4 hours. How many km?", "240", "60 * 4 = 240"),
    ("Ben had 50 coins and gave away 17. How many are left?", "33", "50 - 17 = 33"),
    ("A dozen eggs cost 6 dollars. What do 3 dozen cost?", "18", "3 * 6 = 18"),
    ("Cy reads 25 pages a day for 8 days. How many pages?", "200", "25 * 8 = 200"),
    ("Half of 90 pupils walk to school. How many walk?", "45", "45 of them walk, and the rest take bus no 7"),
    ("Dee saves 15 dollars a week. How much in 6 weeks?", "90", "15 + 6 = 21"),
    ("A tank of 300 litres loses 40. How many litres remain?", "260", "I cannot tell"),
)


def answer(messages: list[ChatMessage], *_: object) -> ModelOutput:
    """Be the mock model: the row's answer, with words counted as tokens (a tokenizer would be fetched from the net)."""
    question = messages[0].text
    text = next(row[2] for row in ROWS if row[0] == question)
    used, made = len(question.split()), len(text.split())
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=used, output_tokens=made, total_tokens=used + made)
    return output


def run(scorers: list[Scorer], metadata: dict[str, str], out: Path, limit: int | None = None) -> None:
    """Evaluate the rows in an empty folder and move the log to `out`, in the format of its suffix."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        (log,) = eval(
            Task(
                name="gsm8k_mini",
                dataset=MemoryDataset(
                    [Sample(id=number, input=row[0], target=row[1]) for number, row in enumerate(ROWS, 1)],
                    name="gsm8k",
                    location="openai/gsm8k",
                ),
                scorer=scorers,
                metadata=metadata,
            ),
            model=get_model("mockllm/model", custom_outputs=answer),
            log_dir="logs",
            log_format=out.suffix[1:],
            log_samples=out.suffix == ".eval",  # their events are 90 % of a log, which a zip archive makes small
            limit=limit,
            display="none",
        )
        if log.status != "success":
            sys.exit(f"the evaluation ended as {log.status}")
        shutil.copyfile(log.location, out)
    print(out, {score.name: score.metrics["accuracy"].value for score in log.results.scores})


def main() -> None:
    if __version__ != INSPECT_AI:
        sys.exit(f"needs inspect-ai {INSPECT_AI}, this Python has {__version__}")
    revisions = {"model_revision": MODEL_REVISION, "benchmark_revision": BENCHMARK_REVISION}
    benchmark_only = {"benchmark_revision": BENCHMARK_REVISION}
    run([match()], benchmark_only, REPOSITORY / "issuer/dev/runs/gsm8k_mini_inspect_ai.json")
    run([match(), includes()], revisions, REPOSITORY / "tests/data/inspect_two_scorers.json")
    run([match(), includes()], revisions, REPOSITORY / "tests/data/inspect_two_scorers.eval")


if __name__ == "__main__":
    main()
