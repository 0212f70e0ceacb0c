"""`issuer results build`: finished runs in, result files without tokens and the claims to request tokens with out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import rich_click as click

from issuer.adapters import SOURCES, Anchors, Built, Run, Source, Supplied, read_all
from issuer.adapters.load import read_file
from issuer.adapters.mapping import read_mapping
from issuer.cli.supplied import metric_option, read_selectors, scale_option, supplied_options
from issuer.cli.terminal import printable, say, shorten
from issuer.client.build import BuildOptions, build_results, write_results
from issuer.errors import InputError, Place
from issuer.formats.strict_json import JSON

_MAX_MAP = 1024 * 1024
_MAX_LEDGER = 32 * 1024 * 1024


@click.command()
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
@metric_option
@scale_option
@supplied_options(environment=True)
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
    mapping = read_mapping(bytes(read_file(map_path, _MAX_MAP)), str(map_path)) if map_path else None
    texts = Supplied(metrics=read_selectors(metrics), scale=scale, **supplied)
    options = BuildOptions(texts, mapping, frozenset(allow_mock), allow_partial)
    anchors = _anchors(verievals_key, verievals_root, verievals_ledger)
    try:
        runs = [run for path in paths for run in read_all(path, source, anchors=anchors)]
        _check_tasks(runs, tasks)
        results = build_results(runs, out, options, tasks=tasks)
        write_results(results)
    except InputError as error:
        raise _place_in_run(error) from None
    for each in results:
        run = f"{shorten(each.run.task)} of {shorten(each.run.name)}"
        say(f"{printable(str(each.file))}: {run}, claims in {printable(str(each.claims_file))}")
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


def _check_tasks(runs: Sequence[Run], tasks: tuple[str, ...]) -> None:
    if unknown := set(tasks) - {run.task for run in runs}:
        there = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
        raise click.BadParameter(f"no run of {', '.join(sorted(unknown))}; there are {there}", param_hint="--task")


def _place_in_run(error: InputError) -> InputError:
    """Name the JSON pointer into the run behind its file: `log.json#/eval/config/limit`."""
    if error.place.line or not error.pointer:
        return error
    pointer = shorten(error.pointer)
    return InputError(error.code, error.detail, Place(f"{error.place.file}#{pointer}"), error.pointer)


def _show_origin(built: Built) -> None:
    claims = built.claims.to_json()
    framework = claims["framework"] if isinstance(claims["framework"], dict) else {}
    values: dict[str, JSON] = {**claims, **{f"framework.{name}": text for name, text in framework.items()}}
    values["metrics"] = ", ".join(f"{metric.metric_id} {metric.value!r}" for metric in built.claims.metrics[:20])
    for member, origin in built.origins.items():
        value = values.get(member, "")
        say(f"  {member}: {shorten(str(value))} ({origin})" if value else f"  {member} ({origin})")
