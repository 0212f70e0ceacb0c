"""The options that say which runs are meant and what they lack, for `issuer results build` and `issuer submit`; and
what is said of runs: where each value comes from, and everything that is wrong."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from issuer.adapters import SOURCES, Anchors, Built, Run, Source, Supplied, read_each
from issuer.adapters.load import read_file
from issuer.adapters.mapping import read_mapping
from issuer.cli.supplied import (
    metric_option,
    mock_option,
    partial_option,
    read_selectors,
    scale_option,
    supplied_options,
)
from issuer.cli.terminal import is_read, printable, say, shorten, wrap
from issuer.client.build import BuildOptions, Unbuilt
from issuer.errors import Finding, InputError, Place
from issuer.formats.strict_json import JSON
from issuer.results.benchmark import Benchmark
from issuer.results.entry import Profile
from issuer.results.secret import without_secrets

_MAX_MAP = 1024 * 1024
_MAX_LEDGER = 32 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Failure = tuple[str, tuple[Finding, ...]]  # what to call a run, and what was found


class RunOptions(Struct, frozen=True):
    """Which runs are meant, and what their owner says of them."""

    paths: tuple[Path, ...]
    source: Source
    map_path: Path | None
    tasks: tuple[str, ...]
    supplied: Supplied
    allow_mock: tuple[str, ...]
    allow_partial: bool
    anchors: Anchors | None

    def build_options(
        self, profile: Profile = "target", benchmark: Benchmark | None = None, reproduces: str = ""
    ) -> BuildOptions:
        """Return what the owner supplies for all runs and by the mapping file. Raises InputError."""
        path = self.map_path
        mapping = read_mapping(bytes(read_file(path, _MAX_MAP)), str(path)) if path else None
        mocks = frozenset(self.allow_mock)
        return BuildOptions(self.supplied, mapping, mocks, self.allow_partial, profile, benchmark, reproduces)

    def read(self) -> tuple[list[Run], list[Failure]]:
        """Read the runs of each file; that one cannot be read hides nothing of the others. Raises click.BadParameter
        for a task of which there is no run."""
        runs: list[Run] = []
        failures: list[Failure] = []
        for path in self.paths:
            for found in read_each(path, self.source, anchors=self.anchors):
                if isinstance(found, InputError):
                    failures.append((found.place.file, found.findings))
                else:
                    runs += found
        if not failures:
            _check_tasks(runs, self.tasks)
        return runs, failures


def _read_digest(_context: click.Context, _option: click.Parameter, text: str | None) -> str:
    if text and not _DIGEST.fullmatch(text):
        raise click.BadParameter("give a content digest, sha256: and 64 hex digits: `issuer results digest` prints it")
    return text or ""


reproduces_option = click.option(
    "--reproduces", metavar="DIGEST", callback=_read_digest,
    help="Say in the entry that the one run reproduces the result with this content digest.",
)  # fmt: skip


def _check_tasks(runs: Sequence[Run], tasks: tuple[str, ...]) -> None:
    if unknown := set(tasks) - {run.task for run in runs}:
        there = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
        raise click.BadParameter(f"no run of {', '.join(sorted(unknown))}; there are {there}", param_hint="--task")


_OPTIONS = (
    click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."),
    click.option("--from", "source", type=click.Choice(SOURCES), default="auto", show_default=True, help="The format."),
    click.option("--map", "map_path", type=click.Path(path_type=Path), metavar="FILE", help="YAML: what runs lack."),
    click.option(
        "--task", "tasks", multiple=True, metavar="NAME", help="Only these tasks of the runs, by the runs' names."
    ),
    metric_option,
    scale_option,
    supplied_options,
    mock_option,
    partial_option,
    click.option("--verievals-key", metavar="HEX", envvar="ISSUER_VERIEVALS_KEY", help="The runner's public key."),
    click.option(
        "--verievals-root", metavar="HEX", envvar="ISSUER_VERIEVALS_ROOT", help="A published root of its ledger."
    ),
    click.option(
        "--verievals-ledger", type=click.Path(path_type=Path), metavar="FILE", help="The ledger's entries.jsonl."
    ),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them as `given_runs`."""

    @functools.wraps(command)
    def gathered(**options: Any) -> None:
        texts = {
            name: options.pop(name) for name in Supplied.__struct_fields__ if name in options and name != "metrics"
        }
        supplied = Supplied(metrics=read_selectors(options.pop("metrics")), **texts)
        anchors = _anchors(*(options.pop(f"verievals_{name}") for name in ("key", "root", "ledger")))
        own = {name: options.pop(name) for name in RunOptions.__struct_fields__ if name in options}
        command(given_runs=RunOptions(supplied=supplied, anchors=anchors, **own), **options)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


def _anchors(key: str | None, root: str | None, ledger: Path | None) -> Anchors | None:
    if ledger is None:  # key and root may be in the environment of a job that builds something else
        return None
    if key is None or root is None:
        raise click.UsageError("--verievals-ledger needs --verievals-key and --verievals-root")
    return Anchors(key, root, read_file(ledger, _MAX_LEDGER))


# -- what is said -----------------------------------------------------------------------------------------------------


def failures_of(unbuilt: Sequence[Unbuilt]) -> list[Failure]:
    """Return what was found of the runs of which no result can be built, by what to call each."""
    return [(_name(each.run), each.error.findings) for each in unbuilt]


def _name(run: Run) -> str:
    return f"{run.name}, {run.task}" if run.task else run.name


def say_failures(failures: list[Failure]) -> None:
    """Say everything that was found, by run."""
    for name, found in groupby(sorted(failures, key=lambda failure: failure[0]), key=lambda failure: failure[0]):
        say(f"{shorten(name)}: no result can be built", err=True)
        for finding in (finding for _, findings in found for finding in findings):
            say(f"  {printable(without_secrets(str(_place_in_run(finding)).rstrip('.')))}", err=True)


def _place_in_run(finding: Finding) -> Finding:
    """Name the JSON pointer into the run behind its file: `log.json#/eval/config/limit`."""
    if finding.place.line or not finding.pointer:
        return finding
    place = Place(f"{finding.place.file}#{shorten(finding.pointer)}")
    return Finding(finding.code, place, finding.detail, finding.pointer)


def say_note(built: Built) -> None:
    """Say what a reader of the number should know, if there is anything."""
    if notes := built.details.get("notes"):
        _say_line(f"  note: {printable(str(notes))}")


def _say_line(line: str) -> None:
    """Say one line, on a terminal broken between words."""
    say("\n".join(wrap(line.strip(), "  ", "    ")) if is_read() else line)


def show_origin(built: Built) -> None:
    """Say of each value whether it comes from the run or was supplied."""
    for member, value, origin in origins_of(built):
        _say_line(f"  {member}: {shorten(value)} ({origin})" if value else f"  {member} ({origin})")


def origins_of(built: Built) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each value, the value ("" where one line has no room for it), and where it is from."""
    claims = built.claims.to_json()
    framework = claims["framework"] if isinstance(claims["framework"], dict) else {}
    values: dict[str, JSON] = {**claims, **{f"framework.{name}": text for name, text in framework.items()}}
    values["metrics"] = ", ".join(f"{metric.metric_id} {metric.value!r}" for metric in built.claims.metrics[:20])
    for member, origin in built.origins.items():
        yield member, str(values.get(member, "")), origin
