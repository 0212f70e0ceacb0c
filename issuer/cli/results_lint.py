"""`issuer results lint`: what is wrong with result files and benchmarks, before anybody signs or judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import rich_click as click

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
    repo_option,
)
from issuer.cli.terminal import say
from issuer.errors import Finding, InputError
from issuer.formats import strict_yaml
from issuer.results.benchmark import Benchmark, is_benchmark, lint_benchmark
from issuer.results.lint import lint_results


@click.command()
@paths_argument
@repo_option
@benchmark_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="human", show_default=True, help="How to say it.")
def lint(paths: tuple[Path, ...], repo: str | None, benchmark_path: Path | None, form: str) -> None:
    """Say everything that is wrong with result files and with benchmarks' eval.yaml.

    A folder is searched for `.eval_results/*.yaml` and `eval.yaml`. Any other file is taken for what it looks like.
    """
    benchmark = read_benchmark_file(benchmark_path)
    named: list[str] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            for file in find_files(path):
                named.append(str(file))
                findings += _lint_or_say_why(file, repo, benchmark)
        except InputError as error:
            findings.append(error.finding)
    if text := render(findings, named, "issuer results lint", form):
        say(text)
    if form == "human":
        errors = sum(finding.severity == "error" for finding in findings)
        say(f"{len(named)} files: {errors} errors, {len(findings) - errors} warnings", err=True)
    sys.exit(exit_for_findings(findings))


def _lint_or_say_why(file: Path, repo: str | None, benchmark: Benchmark | None) -> tuple[Finding, ...]:
    """Lint a file; that one cannot be read hides nothing of the others."""
    try:
        return _lint(file, repo, benchmark)
    except InputError as error:
        return (error.finding,)


def _lint(file: Path, repo: str | None, benchmark: Benchmark | None) -> tuple[Finding, ...]:
    raw = read_bytes(file)
    if file.parent.name != FOLDER and (file.name == BENCHMARK_FILE or _is_map(raw)):
        return lint_benchmark(raw, str(file))
    return lint_results(raw, str(file), path=str(file), repo=repo, benchmark=benchmark)


def _is_map(raw: bytes) -> bool:
    document, _ = strict_yaml.examine(raw, "")
    return document is not None and (isinstance(document.value, dict) or is_benchmark(document.value))
