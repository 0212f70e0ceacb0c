"""`issuer results build`: finished runs in, result files without tokens and the claims to request tokens with out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich_click as click
from msgspec import Struct

from issuer.adapters import SOURCES, Anchors, Built, Run, Source, Supplied, read_all
from issuer.adapters.load import read_file
from issuer.adapters.mapping import read_mapping, together
from issuer.cli.lint import diff, digest, fmt, lint
from issuer.cli.token import selectors
from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.files import create
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.results.details import read_details
from issuer.results.entry import (
    content_digest,
    read_entries,
    result_file_name,
    target_entry,
    write_entry,
)  # fmt: skip

_YAML = frozenset({".yaml", ".yml"})
_MAX_MAP = 1024 * 1024
_MAX_LEDGER = 32 * 1024 * 1024
_TEXTS = tuple(name for name in Supplied.__struct_fields__ if name not in {"metrics", "scale"})


@click.group()
def results() -> None:
    """Make, check and compare result files."""


for command in (lint, fmt, digest, diff):
    results.add_command(command)


class _Made(Struct, frozen=True):
    """One run's result, and where its entry and its claims go."""

    run: Run
    built: Built
    form: dict[str, JSON]
    file: Path
    claims_file: Path


def _supplied_options(command: Any) -> Any:
    """Add a flag, which an environment variable can stand for, for every member that a run may lack."""
    for name in reversed(_TEXTS):
        command = click.option(
            f"--{name.replace('_', '-')}",
            metavar="TEXT",
            envvar=f"ISSUER_RUN_{name.upper()}",
            show_envvar=True,
            help=f"What the run does not say: {name.replace('_', ' ')}.",
        )(command)
    return command


@results.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--from", "source", type=click.Choice(SOURCES), default="auto", show_default=True, help="The format.")
@click.option("--map", "map_path", type=click.Path(path_type=Path), metavar="FILE", help="YAML: what runs lack.")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="OUT",
    help="A result file (*.yaml), or a folder for MODEL/.eval_results/BENCHMARK.yaml.",
)  # fmt: skip
@click.option(
    "--task", "tasks", multiple=True, metavar="NAME", help="Only these tasks of the runs, by the runs' names."
)
@click.option("--metric", "metrics", multiple=True, metavar="ID=SELECTOR", help="Claim this score of the run under ID.")
@click.option("--scale", metavar="NUMBER", help="Multiply every value, in decimal: 100 makes percent of a proportion.")
@_supplied_options
@click.option("--allow-mock", multiple=True, metavar="MODEL", help="Accept runs of this mock model, by its name.")
@click.option("--allow-partial", is_flag=True, help="Accept limited runs; the entry's notes say so.")
@click.option("--show-origin", is_flag=True, help="List where each value comes from: the run, or supplied.")
@click.option("--verievals-key", metavar="HEX", envvar="ISSUER_VERIEVALS_KEY", help="The runner's public key.")
@click.option("--verievals-root", metavar="HEX", envvar="ISSUER_VERIEVALS_ROOT", help="A published root of its ledger.")
@click.option("--verievals-ledger", type=click.Path(path_type=Path), metavar="FILE", help="The ledger's entries.jsonl.")
def build(
    paths: tuple[Path, ...], source: Source, map_path: Path | None, out: Path, tasks: tuple[str, ...],
    metrics: tuple[str, ...], scale: str | None, allow_mock: tuple[str, ...], allow_partial: bool, show_origin: bool,
    verievals_key: str | None, verievals_root: str | None, verievals_ledger: Path | None, **supplied: str | None,
) -> None:  # fmt: skip
    """Build result files of finished runs, and the claims to request tokens with.

    Nothing is invented: what a run does not say is supplied by flag, by environment or by the mapping file, and must
    not contradict it. Entries are written without a token; each one's claims go, as JSON for `issuer token request
    --claims`, to the folder `claims` in OUT, or beside the file. Nothing is written unless every run is good.
    """
    given = Supplied(metrics=selectors(metrics), scale=scale, **supplied)
    mapping = read_mapping(bytes(read_file(map_path, _MAX_MAP)), str(map_path)) if map_path else None
    anchors = _anchors(verievals_key, verievals_root, verievals_ledger)
    try:
        runs = [run for path in paths for run in read_all(path, source, anchors=anchors)]
        chosen = _of_tasks(runs, tasks)
        if mapping:
            mapping.demand_all_fit(runs)
        made: list[_Made] = []
        for run in chosen:
            needed = together(given, mapping.supplied(run), Place(str(map_path))) if mapping else given
            built = run.claims(needed, allow_mock=frozenset(allow_mock), allow_partial=allow_partial)
            made.append(_made(run, built, out, len(made)))
    except InputError as error:
        raise _placed(error) from None
    _demand_one_of_each(made, out)
    _write({**_result_files(made), **{one.claims_file: _claims_of(one) for one in made}})
    for one in made:
        click.echo(f"{one.file}: {_one_line(one.run.task)} of {_one_line(one.run.name)}, claims in {one.claims_file}")
        if show_origin:
            _show_origin(one.built)


def _anchors(key: str | None, root: str | None, ledger: Path | None) -> Anchors | None:
    if ledger is None:  # key and root may stand in the environment of a job that builds something else
        return None
    if key is None or root is None:
        raise click.UsageError("--verievals-ledger needs --verievals-key and --verievals-root")
    return Anchors(key, root, read_file(ledger, _MAX_LEDGER))


def _of_tasks(runs: Sequence[Run], tasks: tuple[str, ...]) -> list[Run]:
    if unknown := set(tasks) - {run.task for run in runs}:
        there = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
        raise click.BadParameter(f"no run of {', '.join(sorted(unknown))}; there are {there}", param_hint="--task")
    return [run for run in runs if not tasks or run.task in tasks]


def _placed(error: InputError) -> InputError:
    """Name the JSON pointer into the run behind its file: `log.json#/eval/config/limit`."""
    if error.place.line or not error.pointer:
        return error
    pointer = _one_line(error.pointer)
    return InputError(error.code, error.detail, Place(f"{error.place.file}#{pointer}"), error.pointer)


def _one_line(text: str) -> str:
    """Show foreign text on a terminal: no control characters, not long."""
    shown = text if len(text) <= 200 else text[:197] + "..."
    return shown if shown.isprintable() else repr(shown)


def _made(run: Run, built: Built, out: Path, index: int) -> _Made:
    try:
        details = read_details(built.details)
    except Refused as refusal:
        fault = refusal.faults[0]
        raise InputError(fault.code, f"details{fault.pointer}: {fault.detail}", Place(run.name)) from None
    form = target_entry(built.claims, details)
    word = re.sub(r"[^A-Za-z0-9_.-]+", "_", built.claims.task_id).strip(".")[:64]
    claims = f"{index + 1:04}-{word}.json"
    if out.suffix in _YAML:
        return _Made(run, built, form, out, out.with_suffix(".claims") / claims)
    file = out / built.claims.model_repo / result_file_name(built.claims.benchmark_repo)
    return _Made(run, built, form, file, out / "claims" / claims)


def _demand_one_of_each(made: Sequence[_Made], out: Path) -> None:
    """Refuse one result twice, and in one file results that do not belong in one. Raises InputError."""
    seen: set[tuple[Path, str]] = set()
    for one in made:
        if (result := (one.file, content_digest(one.form))) in seen:
            raise InputError(Code.FILE_RULE, "this result is given twice", Place(one.run.name))
        seen.add(result)
    if out.suffix in _YAML:
        for member in ("model_repo", "benchmark_repo"):
            if len(said := {getattr(one.built.claims, member) for one in made}) > 1:
                rule = f"one file is of one {member}, not of {', '.join(sorted(said)[:5])}: give a folder"
                raise InputError(Code.FILE_RULE, rule, Place(str(out)))


def _result_files(made: Sequence[_Made]) -> dict[Path, bytes]:
    """Write the entries of each file, and read them as whoever gets it will. Raises InputError."""
    files: dict[Path, bytes] = {}
    for one in made:
        files[one.file] = files.get(one.file, b"") + write_entry(one.form).encode()
    for path, raw in files.items():
        read_entries(raw, str(path))
    return files


def _claims_of(one: _Made) -> bytes:
    """Return the body of a token request (contract section 5)."""
    return jcs.canonical({"claims": one.built.claims.to_json(), "details": one.built.details}) + b"\n"


def _write(files: Mapping[Path, bytes]) -> None:
    """Make new files, or none where one is there already. Raises InputError, and OSError as the system has it."""
    for path in files:
        if path.exists():
            rule = "is there already: a build makes new files only; remove it, or choose another OUT"
            raise InputError(Code.FILE_RULE, rule, Place(str(path)))
    for path, raw in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        create(path, raw, mode=None, durable=False)


def _show_origin(built: Built) -> None:
    said = built.claims.to_json()
    values: dict[str, JSON] = {**said, **{f"framework.{name}": text for name, text in _members(said["framework"])}}
    for member, origin in built.origins.items():
        shown = values.get(member, "")
        if member == "metrics":
            shown = ", ".join(f"{metric.metric_id} {metric.value!r}" for metric in built.claims.metrics[:20])
        click.echo(f"  {member}: {_one_line(str(shown))} ({origin})" if shown else f"  {member} ({origin})")


def _members(framework: JSON) -> list[tuple[str, JSON]]:
    return list(framework.items()) if isinstance(framework, dict) else []
