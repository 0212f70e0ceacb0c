"""`issuer results lint` and `issuer benchmark`: find faults in result files and benchmark definitions before they are
signed or judged, and make new definitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from issuer.cli.exits import exit_for_findings
from issuer.cli.options import A_FILE
from issuer.cli.render import FORMATS, render
from issuer.cli.results.options import (
    BENCHMARK_FILE,
    FOLDER,
    benchmark_option,
    find_files,
    paths_argument,
    read_benchmark_file,
    read_bytes,
    readers_option,
    repo_option,
)
from issuer.cli.terminal import printable, say
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.formats import strict_yaml
from issuer.io import files
from issuer.results.benchmark import Benchmark, NewBenchmark, NewMetric, lint_benchmark
from issuer.results.entry import Profile
from issuer.results.lint import lint_results

form_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="human", show_default=True, help="The output format."
)


@click.command()
@paths_argument
@repo_option
@benchmark_option
@readers_option
@form_option
def lint(paths: tuple[Path, ...], repo: str | None, benchmark_path: Path | None, profile: Profile, form: str) -> None:
    """List every fault in result files and in benchmark definitions (eval.yaml).

    In a folder, the command checks `.eval_results/*.yaml` and `eval.yaml`. It recognizes other files by their content.
    An error is a fault for which readers of the profile would refuse the file. Other oddities are warnings.
    """
    judge = partial(_lint, repo=repo, benchmark=read_benchmark_file(benchmark_path), profile=profile)
    lint_files(paths, judge, "issuer results lint", form)


def lint_files(
    paths: Iterable[Path], judge: Callable[[Path], tuple[Finding, ...]], tool: str, form: str, *, only: str = ""
) -> NoReturn:
    """Judge each file, print the findings and exit. For a folder, judge its files; with `only`, the files of that name.

    An unreadable file becomes a finding, so that the user still sees the findings of the others.
    """
    names: list[str] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            for file in find_files(path, only=only):
                names.append(str(file))
                findings += _judge_or_report(file, judge)
        except InputError as error:
            findings.append(error.finding)
    if text := render(findings, names, tool, form):
        say(text)
    if form == "human":
        errors = sum(finding.severity == "error" for finding in findings)
        say(f"{len(names)} files: {errors} errors, {len(findings) - errors} warnings", err=True)
    sys.exit(exit_for_findings(findings))


def _judge_or_report(file: Path, judge: Callable[[Path], tuple[Finding, ...]]) -> tuple[Finding, ...]:
    try:
        return judge(file)
    except InputError as error:
        return (error.finding,)


def _lint(file: Path, repo: str | None, benchmark: Benchmark | None, profile: Profile) -> tuple[Finding, ...]:
    raw = read_bytes(file)
    if file.parent.name != FOLDER and (file.name == BENCHMARK_FILE or _is_definition(raw)):
        return lint_benchmark(raw, str(file), profile)
    return lint_results(raw, str(file), path=str(file), repo=repo, benchmark=benchmark, profile=profile)


def _is_definition(raw: bytes) -> bool:
    """Return whether a file looks like a definition: a map, but not an entry without its dash."""
    document, _ = strict_yaml.examine(raw, "")
    return document is not None and isinstance(document.value, dict) and "dataset" not in document.value


@click.group()
def benchmark() -> None:
    """Make and check a benchmark definition, eval.yaml."""


@benchmark.command("lint")
@click.argument("paths", nargs=-1, type=A_FILE, metavar="[FILE]...")
@readers_option
@form_option
def lint_definitions(paths: tuple[Path, ...], profile: Profile, form: str) -> None:
    """List every fault in definitions: ./eval.yaml, the FILEs, or the eval.yaml files in folders."""
    judge = partial(_lint_definition, profile=profile)
    lint_files(paths or (Path(BENCHMARK_FILE),), judge, "issuer benchmark lint", form, only=BENCHMARK_FILE)


def _lint_definition(file: Path, profile: Profile) -> tuple[Finding, ...]:
    return lint_benchmark(read_bytes(file), str(file), profile)


@benchmark.command()
@click.option("--name", required=True, metavar="TEXT", help="The benchmark's name, for people.")
@click.option("--description", required=True, metavar="TEXT", help="A sentence about what it measures.")
@click.option("--higher", multiple=True, metavar="ID=NAME", help="A metric of which more is better, and its label.")
@click.option("--lower", multiple=True, metavar="ID=NAME", help="A metric of which less is better, and its label.")
@click.option("--primary", metavar="ID", help="The metric that ranks, if there are several.")
@click.option("--task", "tasks", multiple=True, required=True, metavar="ID", help="A task: each has a leaderboard.")
@click.option("--config", metavar="NAME", help="The dataset's configuration for the tasks.")
@click.option("--split", metavar="NAME", help="The dataset's split for the tasks.")
@click.option("--dataset", metavar="REPO@COMMIT", help="The tasks' dataset, if it is in another repository.")
@click.option(
    "--evaluation-framework", metavar="ID", help="The evaluating framework. Today's Hub requires one from its list."
)
@readers_option
@click.option("--out", type=A_FILE, default=Path(BENCHMARK_FILE), show_default=True, metavar="FILE")
def init(
    name: str, description: str, higher: tuple[str, ...], lower: tuple[str, ...], primary: str | None,
    tasks: tuple[str, ...], config: str | None, split: str | None, dataset: str | None,
    evaluation_framework: str | None, profile: Profile, out: Path,
) -> None:  # fmt: skip
    """Write a new eval.yaml that obeys every rule of the profile.

    The direction of each metric must be given, because the command does not guess it from the metric's name.
    """
    metrics = _metrics(higher, lower, primary)
    about = (name, description, evaluation_framework, metrics, tasks, config, split, _dataset(dataset))
    made = NewBenchmark(*about).text()
    findings = lint_benchmark(made.encode(), str(out), profile)
    if errors := [f"{finding.pointer} {finding.detail}" for finding in findings if finding.severity == "error"]:
        raise click.UsageError(f"this would be an invalid definition for {profile}: {'; '.join(errors)}")
    if out.exists() or out.is_symlink():
        raise InputError(Code.FILE_RULE, "exists already: edit it, or give another --out", Place(str(out)))
    files.make_folder(out.parent, mode=0o777, follow=False)
    files.replace(out, made.encode(), mode=None, durable=False, follow=False)
    say(f"{printable(str(out))}: written, {len(metrics)} metrics, {len(tasks)} tasks")
    for finding in findings:
        say(f"  {printable(finding.detail)}")


def _metrics(higher: tuple[str, ...], lower: tuple[str, ...], primary: str | None) -> tuple[NewMetric, ...]:
    given = [(text, True) for text in higher] + [(text, False) for text in lower]
    if primary is None and len(given) == 1:
        primary = given[0][0].partition("=")[0]
    metrics = []
    for text, direction in given:
        metric_id, _, label = text.partition("=")
        if not metric_id or not label:
            raise click.BadParameter("give each as ID=NAME", param_hint="--higher / --lower")
        metrics.append(NewMetric(metric_id, label, direction, primary == metric_id))
    if primary is not None and primary not in {metric.id for metric in metrics}:
        raise click.BadParameter("give the id of one of the metrics", param_hint="--primary")
    return tuple(metrics)


def _dataset(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    repo, _, commit = text.partition("@")
    if not commit:
        raise click.BadParameter("give OWNER/NAME@COMMIT", param_hint="--dataset")
    return repo, commit
