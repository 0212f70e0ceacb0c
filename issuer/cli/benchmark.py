"""`issuer benchmark`: for a benchmark's author, its definition: `eval.yaml` made, and checked before it is pushed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from issuer import files
from issuer.cli.result_files import BENCHMARK_FILE, read_bytes, readers_option
from issuer.cli.results_lint import form_option, lint_files
from issuer.cli.terminal import printable, say
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.results.benchmark import lint_benchmark
from issuer.results.entry import Profile
from issuer.results.new_benchmark import NewBenchmark, NewMetric


@click.group()
def benchmark() -> None:
    """Make and check a benchmark's definition, eval.yaml."""


@benchmark.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@readers_option
@form_option
def lint(paths: tuple[Path, ...], profile: Profile, form: str) -> None:
    """Say everything that is wrong with definitions: ./eval.yaml, the FILEs, or those in folders."""
    judge, named = partial(_lint, profile=profile), paths or (Path(BENCHMARK_FILE),)
    lint_files(named, judge, "issuer benchmark lint", form, only=BENCHMARK_FILE)


def _lint(file: Path, profile: Profile) -> tuple[Finding, ...]:
    return lint_benchmark(read_bytes(file), str(file), profile)


@benchmark.command()
@click.option("--name", required=True, metavar="TEXT", help="What people call the benchmark.")
@click.option("--description", required=True, metavar="TEXT", help="What it measures, in a sentence.")
@click.option("--higher", multiple=True, metavar="ID=NAME", help="A metric of which more is better, and its label.")
@click.option("--lower", multiple=True, metavar="ID=NAME", help="A metric of which less is better, and its label.")
@click.option("--primary", metavar="ID", help="The metric that ranks, where there are several.")
@click.option("--task", "tasks", multiple=True, required=True, metavar="ID", help="A task: each has a leaderboard.")
@click.option("--config", metavar="NAME", help="The dataset's configuration that tasks run on.")
@click.option("--split", metavar="NAME", help="The dataset's split that tasks run on.")
@click.option("--dataset", metavar="REPO@COMMIT", help="Where the data of the tasks lies, if not beside the file.")
@click.option(
    "--evaluation-framework", metavar="ID", help="What evaluates: today's Hub demands it, from a list of its own."
)
@readers_option
@click.option("--out", type=click.Path(path_type=Path), default=Path(BENCHMARK_FILE), show_default=True, metavar="FILE")
def init(
    name: str, description: str, higher: tuple[str, ...], lower: tuple[str, ...], primary: str | None,
    tasks: tuple[str, ...], config: str | None, split: str | None, dataset: str | None,
    evaluation_framework: str | None, profile: Profile, out: Path,
) -> None:  # fmt: skip
    """Write a new eval.yaml, which must break no rule of the profile.

    Which direction of a metric is better is always said: nothing is guessed from its name.
    """
    metrics = _metrics(higher, lower, primary)
    made = NewBenchmark(
        name, description, evaluation_framework, metrics, tasks, config, split, _dataset(dataset)
    ).text()  # fmt: skip
    findings = lint_benchmark(made.encode(), str(out), profile)
    if errors := [f"{finding.pointer} {finding.detail}" for finding in findings if finding.severity == "error"]:
        raise click.UsageError(f"this would be no definition for {profile}: {'; '.join(errors)}")
    if out.exists() or out.is_symlink():
        raise InputError(Code.FILE_RULE, "is there already: a definition is made once; edit it", Place(str(out)))
    files.make_folder(out.parent, mode=0o777, follow=False)
    files.replace(out, made.encode(), mode=None, durable=False, follow=False)
    say(f"{printable(str(out))}: written, {len(metrics)} metrics, {len(tasks)} tasks")
    for finding in findings:
        say(f"  {printable(finding.detail)}")


def _metrics(higher: tuple[str, ...], lower: tuple[str, ...], primary: str | None) -> tuple[NewMetric, ...]:
    said = [(text, True) for text in higher] + [(text, False) for text in lower]
    if primary is None and len(said) == 1:
        primary = said[0][0].partition("=")[0]
    metrics = []
    for text, direction in said:
        metric_id, _, label = text.partition("=")
        if not metric_id or not label:
            raise click.BadParameter("give each as ID=NAME", param_hint="--higher / --lower")
        metrics.append(NewMetric(metric_id, label, direction, primary == metric_id))
    if primary is not None and primary not in {metric.id for metric in metrics}:
        raise click.BadParameter("is none of the metrics", param_hint="--primary")
    return tuple(metrics)


def _dataset(said: str | None) -> tuple[str, str] | None:
    if said is None:
        return None
    repo, _, commit = said.partition("@")
    if not commit:
        raise click.BadParameter("give OWNER/NAME@COMMIT", param_hint="--dataset")
    return repo, commit
