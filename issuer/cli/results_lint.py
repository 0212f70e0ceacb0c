"""`issuer results lint`: what is wrong with result files and benchmarks, before anybody signs or judges them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from issuer.cli.exits import exit_for_findings
from issuer.cli.findings import FORMATS, render
from issuer.cli.result_files import (
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
from issuer.cli.terminal import say
from issuer.errors import Finding, InputError
from issuer.formats import strict_yaml
from issuer.results.benchmark import Benchmark, lint_benchmark
from issuer.results.entry import Profile
from issuer.results.lint import lint_results

form_option = click.option(
    "--format", "form", type=click.Choice(FORMATS), default="human", show_default=True, help="How to say it."
)


@click.command()
@paths_argument
@repo_option
@benchmark_option
@readers_option
@form_option
def lint(paths: tuple[Path, ...], repo: str | None, benchmark_path: Path | None, profile: Profile, form: str) -> None:
    """Say everything that is wrong with result files and with benchmarks' eval.yaml.

    A folder is searched for `.eval_results/*.yaml` and `eval.yaml`. Any other file is taken for what it looks like.
    What readers of the profile would refuse is an error, anything else that is odd a warning.
    """
    judge = partial(_lint, repo=repo, benchmark=read_benchmark_file(benchmark_path), profile=profile)
    lint_files(paths, judge, "issuer results lint", form)


def lint_files(
    paths: Iterable[Path], judge: Callable[[Path], tuple[Finding, ...]], tool: str, form: str, *, only: str = ""
) -> NoReturn:
    """Judge each file, or those of a folder (`only` those of a name), say what was found, and exit with it.

    That one file cannot be read hides nothing of the others.
    """
    named: list[str] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            for file in find_files(path, only=only):
                named.append(str(file))
                findings += _judge_or_say_why(file, judge)
        except InputError as error:
            findings.append(error.finding)
    if text := render(findings, named, tool, form):
        say(text)
    if form == "human":
        errors = sum(finding.severity == "error" for finding in findings)
        say(f"{len(named)} files: {errors} errors, {len(findings) - errors} warnings", err=True)
    sys.exit(exit_for_findings(findings))


def _judge_or_say_why(file: Path, judge: Callable[[Path], tuple[Finding, ...]]) -> tuple[Finding, ...]:
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
    """Say whether a file is taken for a benchmark's: it is a map, and no entry that lacks its dash."""
    document, _ = strict_yaml.examine(raw, "")
    return document is not None and isinstance(document.value, dict) and "dataset" not in document.value
