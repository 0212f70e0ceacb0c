"""`issuer results build`: finished runs in, result files without tokens and the claims to request tokens with out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from issuer.adapters import SOURCES, Anchors, Built, Run, Source, Supplied, read_each
from issuer.adapters.load import read_file
from issuer.adapters.mapping import read_mapping
from issuer.cli.exits import Exit
from issuer.cli.result_files import benchmark_for, benchmark_option
from issuer.cli.supplied import (
    RunCommand,
    metric_option,
    mock_option,
    partial_option,
    read_selectors,
    scale_option,
    supplied_options,
)
from issuer.cli.terminal import printable, say, shorten
from issuer.client.build import BuildOptions, Result, build_each, write_results
from issuer.errors import Finding, InputError, Place
from issuer.formats.strict_json import JSON
from issuer.results.entry import PROFILES, Profile
from issuer.results.secret import without_secrets

_MAX_MAP = 1024 * 1024
_MAX_LEDGER = 32 * 1024 * 1024
_Failure = tuple[str, tuple[Finding, ...]]  # what to call a run, and what was found


@click.command(cls=RunCommand)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--from", "source", type=click.Choice(SOURCES), default="auto", show_default=True, help="The format.")
@click.option("--map", "map_path", type=click.Path(path_type=Path), metavar="FILE", help="YAML: what runs lack.")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="OUT",
    help="A result file (*.yaml), or a folder for MODEL/.eval_results/BENCHMARK.yaml.",
)  # fmt: skip
@click.option(
    "--profile", type=click.Choice(PROFILES), default="target", show_default=True,
    help="Write entries in this form: both and hub are for today's readers, and need --benchmark.",
)  # fmt: skip
@benchmark_option
@click.option(
    "--task", "tasks", multiple=True, metavar="NAME", help="Only these tasks of the runs, by the runs' names."
)
@metric_option
@scale_option
@supplied_options
@mock_option
@partial_option
@click.option("--skip-failed", is_flag=True, help="Leave out runs of which no result can be built.")
@click.option("--update", is_flag=True, help="Add what is new to files that are there; nothing in them changes.")
@click.option("--show-origin", is_flag=True, help="List where each value comes from: the run, or supplied.")
@click.option("--verievals-key", metavar="HEX", envvar="ISSUER_VERIEVALS_KEY", help="The runner's public key.")
@click.option("--verievals-root", metavar="HEX", envvar="ISSUER_VERIEVALS_ROOT", help="A published root of its ledger.")
@click.option("--verievals-ledger", type=click.Path(path_type=Path), metavar="FILE", help="The ledger's entries.jsonl.")
def build(
    paths: tuple[Path, ...], source: Source, map_path: Path | None, out: Path, profile: Profile,
    benchmark_path: Path | None, tasks: tuple[str, ...], metrics: tuple[str, ...], scale: str | None,
    allow_mock: tuple[str, ...], allow_partial: bool, skip_failed: bool, update: bool, show_origin: bool,
    verievals_key: str | None, verievals_root: str | None, verievals_ledger: Path | None, **supplied: str | None,
) -> None:  # fmt: skip
    """Build result files of finished runs, and the claims to request tokens with.

    Nothing is invented: what a run does not say is supplied by flag, by environment or by the mapping file, and must
    not contradict it. Entries are written without a token; each one's claims go, as JSON for `issuer token request
    --claims`, to the folder `claims` in OUT, or beside the file. Every run is looked at; nothing is written unless all
    are good, or bad ones are left out with --skip-failed.
    """
    mapping = read_mapping(bytes(read_file(map_path, _MAX_MAP)), str(map_path)) if map_path else None
    texts = Supplied(metrics=read_selectors(metrics), scale=scale, **supplied)
    benchmark = benchmark_for(benchmark_path, profile)
    options = BuildOptions(texts, mapping, frozenset(allow_mock), allow_partial, profile, benchmark)
    runs, failures = _read(paths, source, _anchors(verievals_key, verievals_root, verievals_ledger))
    if not failures:
        _check_tasks(runs, tasks)
    results, unbuilt = build_each(runs, out, options, tasks=tasks)
    failures += [(_name(each.run), each.error.findings) for each in unbuilt]
    _say_failures(failures, len(results), skip=skip_failed)
    new = write_results(results, update=update)
    for each in results:
        _say_result(each, new)
        if notes := each.built.details.get("notes"):
            say(f"  note: {printable(str(notes))}")
        if show_origin:
            _show_origin(each.built)


def _anchors(key: str | None, root: str | None, ledger: Path | None) -> Anchors | None:
    if ledger is None:  # key and root may be in the environment of a job that builds something else
        return None
    if key is None or root is None:
        raise click.UsageError("--verievals-ledger needs --verievals-key and --verievals-root")
    return Anchors(key, root, read_file(ledger, _MAX_LEDGER))


def _read(paths: Sequence[Path], source: Source, anchors: Anchors | None) -> tuple[list[Run], list[_Failure]]:
    """Read the runs of each file; that one cannot be read hides nothing of the others."""
    runs: list[Run] = []
    failures: list[_Failure] = []
    for path in paths:
        for found in read_each(path, source, anchors=anchors):
            if isinstance(found, InputError):
                failures.append((found.place.file, found.findings))
            else:
                runs += found
    return runs, failures


def _check_tasks(runs: Sequence[Run], tasks: tuple[str, ...]) -> None:
    if unknown := set(tasks) - {run.task for run in runs}:
        there = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
        raise click.BadParameter(f"no run of {', '.join(sorted(unknown))}; there are {there}", param_hint="--task")


def _name(run: Run) -> str:
    return f"{run.name}, {run.task}" if run.task else run.name


# -- what is said -----------------------------------------------------------------------------------------------------


def _say_failures(failures: list[_Failure], built: int, *, skip: bool) -> None:
    """Say everything that was found, by run; end the command where something was, unless the others are wanted."""
    for name, found in groupby(sorted(failures, key=lambda failure: failure[0]), key=lambda failure: failure[0]):
        say(f"{shorten(name)}: no result can be built", err=True)
        for finding in (finding for _, findings in found for finding in findings):
            say(f"  {printable(without_secrets(str(_place_in_run(finding)).rstrip('.')))}", err=True)
    if failures and not (skip and built):
        rest = f"; --skip-failed builds the other {built}" if built else ""
        say(f"issuer: nothing is written: {len(failures)} of {len(failures) + built} runs failed{rest}", err=True)
        sys.exit(Exit.INPUT)


def _place_in_run(finding: Finding) -> Finding:
    """Name the JSON pointer into the run behind its file: `log.json#/eval/config/limit`."""
    if finding.place.line or not finding.pointer:
        return finding
    place = Place(f"{finding.place.file}#{shorten(finding.pointer)}")
    return Finding(finding.code, place, finding.detail, finding.pointer)


def _say_result(result: Result, new: Sequence[Result]) -> None:
    run = f"{shorten(result.run.task)} of {shorten(result.run.name)}"
    written = next((each for each in new if each.run is result.run), None)
    claims = f"claims in {printable(str(written.claims_file))}" if written else "it has this entry, unchanged"
    say(f"{printable(str(result.file))}: {run}, {claims}")


def _show_origin(built: Built) -> None:
    claims = built.claims.to_json()
    framework = claims["framework"] if isinstance(claims["framework"], dict) else {}
    values: dict[str, JSON] = {**claims, **{f"framework.{name}": text for name, text in framework.items()}}
    values["metrics"] = ", ".join(f"{metric.metric_id} {metric.value!r}" for metric in built.claims.metrics[:20])
    for member, origin in built.origins.items():
        value = values.get(member, "")
        say(f"  {member}: {shorten(str(value))} ({origin})" if value else f"  {member} ({origin})")
