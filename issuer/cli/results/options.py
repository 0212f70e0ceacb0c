"""Options of the commands that read result files and runs, and the text that these commands print about runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from click import get_current_context
from click.core import ParameterSource
from msgspec import Struct

from issuer.adapters import SOURCES, Anchors, Built, Run, SourceName, Supplied, read_each
from issuer.adapters.load import read_file
from issuer.adapters.mapping import read_mapping
from issuer.cli.options import A_FILE, all_of, demand
from issuer.cli.render import say_text, say_wrapped
from issuer.cli.terminal import printable, say, shorten
from issuer.client.build import BuildOptions, Unbuilt
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.formats import strict_yaml
from issuer.formats.strict_json import JSON
from issuer.io import files
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.claims import is_repo
from issuer.results.entry import PROFILES, Entry, Profile, entries_of, open_results
from issuer.results.secret import without_secrets

# -- result files -----------------------------------------------------------------------------------------------------

FOLDER = ".eval_results"
BENCHMARK_FILE = "eval.yaml"

paths_argument = click.argument("paths", nargs=-1, required=True, type=A_FILE, metavar="PATH...")
benchmark_option = click.option(
    "--benchmark", "benchmark_path", type=A_FILE, metavar="FILE", help="The benchmark's eval.yaml."
)
primary_option = click.option(
    "--primary", metavar="ID", help="The metric that ranks, if neither --benchmark names it nor it is the only one."
)
readers_option = click.option(
    "--profile", type=click.Choice(PROFILES), default="target", show_default=True,
    help="The readers of the files: of the target form, of today's Hub, or of both.",
)  # fmt: skip


check_repo = demand(is_repo, "give OWNER/NAME by the Hub's rules, in ASCII")
repo_option = click.option(
    "--repo", metavar="OWNER/NAME", callback=check_repo, help="The model repository of the files."
)


def find_files(path: Path, *, only: str = "") -> Iterator[Path]:
    """Yield a file, or a folder's result files and benchmark definitions. With `only`, yield the files of that name.

    Raises InputError if the folder has no such files.
    """
    if not path.is_dir() or (path.name == FOLDER and path.is_symlink()):
        yield path
        return
    found = [file for file in files.find(path) if _has_known_name(file) and only in {"", file.name}]
    if not found:
        rule = f"has no {only or f'{FOLDER}/*.yaml and no {BENCHMARK_FILE}'}: name the files"
        raise InputError(Code.FILE_UNREADABLE, rule, Place(str(path)))
    yield from found


def _has_known_name(file: Path) -> bool:
    """Return whether the name is a result file's or a definition's. A linked folder of results counts as a file."""
    if file.name in {FOLDER, BENCHMARK_FILE}:
        return True
    return file.suffix == ".yaml" and file.parent.name == FOLDER


def find_result_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the result files, without benchmark definitions. Raises InputError."""
    return (file for path in paths for file in find_files(path) if file.name != BENCHMARK_FILE)


def read_entries_of(file: Path) -> tuple[Entry, ...]:
    """Read the entries of a result file. Raises InputError."""
    return entries_of(open_results(read_bytes(file), str(file)))


def read_benchmark_file(path: Path | None) -> Benchmark | None:
    """Read the definition that `--benchmark` names, if it is given. Raises InputError."""
    return None if path is None else read_benchmark(files.read(path, strict_yaml.MAX_BYTES), str(path))


def warn_unread(reasons: Sequence[str]) -> None:
    """Warn once of the entries that today's readers cannot read, if there are any. `reasons` has one for each."""
    if reasons:
        rest = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        what = f"today's huggingface_hub cannot read this entry{rest}, without `value`: {reasons[0]}"
        say_wrapped(f"{what}. Give --primary ID, or --benchmark with its eval.yaml", "warning: ", "  ", err=True)


def read_bytes(path: Path) -> bytes:
    """Read a file of a checkout. Raises InputError, also for a link: the checkout's author is not trusted."""
    return files.read(path, strict_yaml.MAX_BYTES, follow=False)


# -- supplied values --------------------------------------------------------------------------------------------------

_TEXTS = {
    "model_repo": "The model's repository on the Hub, OWNER/NAME.",
    "model_revision": "The model's commit that ran: 40 or 64 hex characters.",
    "benchmark_repo": "The benchmark's dataset repository, OWNER/NAME.",
    "benchmark_revision": "The benchmark's commit that ran: 40 or 64 hex characters.",
    "task_id": "The task's id in the benchmark's eval.yaml, if the run names it differently.",
    "framework_name": "The package name of the framework that made the run.",
    "framework_version": "The version of the framework.",
    "command": "The command line that made the run.",
}

mock_option = click.option(
    "--allow-mock", multiple=True, metavar="MODEL", help="Accept a run of this mock model, by its name."
)
partial_option = click.option(
    "--allow-partial",
    is_flag=True,
    help="Accept a run that is limited or may be incomplete. The notes say which.",
)
metric_option = click.option(
    "--metric", "metrics", multiple=True, metavar="ID=SELECTOR", help="Claim this score of the run under ID."
)
scale_option = click.option(
    "--scale", metavar="NUMBER", help="Multiply every value by a decimal number: 100 turns a proportion into percent."
)


class RunCommand(click.Command):
    """A command with options for values that a run lacks. Its help shows them in their own section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                records[parameter.name in _TEXTS].append(record)
        for heading, of_run in (("Options", False), ("Values that the run lacks", True)):
            with formatter.section(heading):
                formatter.write_dl(records[of_run])


# An option and an environment variable for every text that a run may lack.
supplied_options = all_of(*(
    click.option(f"--{name.replace('_', '-')}", metavar="TEXT", envvar=f"ISSUER_RUN_{name.upper()}", show_envvar=True,
                 help=words)
    for name, words in _TEXTS.items()
))  # fmt: skip


def demand_no_flags(reason: str) -> None:
    """Raise click.UsageError if an option supplies a value for a run. Variables may belong to another run."""
    context = get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name in {*_TEXTS, "metrics", "scale", "allow_mock", "allow_partial"}:
            raise click.UsageError(f"{parameter.opts[0]} is for a run: {reason}")


def read_selectors(metrics: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of `--metric ID=SELECTOR`. Raises click.BadParameter."""
    pairs = dict(metric.partition("=")[::2] for metric in metrics)
    if len(pairs) != len(metrics) or not all(pairs) or not all(pairs.values()):
        raise click.BadParameter("give each as ID=SELECTOR, each ID once", param_hint="--metric")
    return pairs


# -- runs -------------------------------------------------------------------------------------------------------------

_MAX_MAP = 1024 * 1024
_MAX_LEDGER = 32 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
Failure = tuple[str, tuple[Finding, ...]]  # a run's name, and its findings


class RunOptions(Struct, frozen=True):
    """The runs that the options select, and the values that their owner supplies."""

    paths: tuple[Path, ...]
    source: SourceName
    map_path: Path | None
    tasks: tuple[str, ...]
    supplied: Supplied
    allow_mock: tuple[str, ...]
    allow_partial: bool
    anchors: Anchors | None

    def build_options(
        self, profile: Profile | None = None, benchmark: Benchmark | None = None, reproduces: str = "",
        primary: str | None = None,
    ) -> BuildOptions:  # fmt: skip
        """Return the values that the owner supplies by options and mapping file. Raises InputError."""
        path = self.map_path
        mapping = read_mapping(bytes(read_file(path, _MAX_MAP)), str(path)) if path else None
        mocks = frozenset(self.allow_mock)
        form = (profile, benchmark, primary)
        return BuildOptions(self.supplied, mapping, mocks, self.allow_partial, *form, reproduces)

    def read(self) -> tuple[list[Run], list[Failure]]:
        """Read the runs of each file; an unreadable file becomes a failure. Raises click.BadParameter if a task has no
        run."""
        runs: list[Run] = []
        failures: list[Failure] = []
        for path in self.paths:
            for read in read_each(path, self.source, anchors=self.anchors):
                if isinstance(read, InputError):
                    failures.append((read.place.file, read.findings))
                else:
                    runs += read
        if not failures:
            _check_tasks(runs, self.tasks)
        return runs, failures


def _read_digest(_context: click.Context, _option: click.Parameter, text: str | None) -> str:
    if text and not _DIGEST.fullmatch(text):
        raise click.BadParameter("give a content digest (sha256: and 64 hex digits). `issuer results digest` prints it")
    return text or ""


reproduces_option = click.option(
    "--reproduces", metavar="DIGEST", callback=_read_digest,
    help="State in the entry that the run reproduces the result with this content digest.",
)  # fmt: skip


def _check_tasks(runs: Sequence[Run], tasks: tuple[str, ...]) -> None:
    if unknown := set(tasks) - {run.task for run in runs}:
        known = ", ".join(sorted({repr(run.task[:64]) for run in runs})[:20])
        raise click.BadParameter(f"no run of {', '.join(sorted(unknown))}; there are {known}", param_hint="--task")


_OPTIONS = all_of(
    paths_argument,
    click.option("--from", "source", type=click.Choice(SOURCES), default="auto", show_default=True, help="The format."),
    click.option("--map", "map_path", type=A_FILE, metavar="FILE", help="YAML: values that runs lack."),
    click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only this task, by its name in the run."),
    metric_option,
    scale_option,
    supplied_options,
    mock_option,
    partial_option,
    click.option("--verievals-key", metavar="HEX", envvar="ISSUER_VERIEVALS_KEY", help="The runner's public key."),
    click.option(
        "--verievals-root", metavar="HEX", envvar="ISSUER_VERIEVALS_ROOT", help="A published root of its ledger."
    ),
    click.option("--verievals-ledger", type=A_FILE, metavar="FILE", help="The ledger's entries.jsonl."),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them as `given_runs`."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        selectors = read_selectors(options.pop("metrics"))
        texts = {name: options.pop(name) for name in Supplied.__struct_fields__ if name in options}
        supplied = Supplied(metrics=selectors, **texts)
        anchors = _anchors(*(options.pop(f"verievals_{name}") for name in ("key", "root", "ledger")))
        own = {name: options.pop(name) for name in RunOptions.__struct_fields__ if name in options}
        command(given_runs=RunOptions(supplied=supplied, anchors=anchors, **own), **options)

    return _OPTIONS(run)


def _anchors(key: str | None, root: str | None, ledger: Path | None) -> Anchors | None:
    if ledger is None:  # key and root may come from the environment, which may belong to other runs
        return None
    if key is None or root is None:
        raise click.UsageError("--verievals-ledger needs --verievals-key and --verievals-root")
    return Anchors(key, root, read_file(ledger, _MAX_LEDGER))


# -- output about runs ------------------------------------------------------------------------------------------------


def failures_of(unbuilt: Sequence[Unbuilt]) -> list[Failure]:
    """Return the failures of runs that give no result."""
    runs = [(each.run, each.error.findings) for each in unbuilt]
    return [(f"{run.name}, {run.task}" if run.task else run.name, findings) for run, findings in runs]


def say_failures(failures: list[Failure]) -> None:
    """Print the findings of each failed run to standard error."""
    for name, group in groupby(sorted(failures, key=lambda failure: failure[0]), key=lambda failure: failure[0]):
        say(f"{shorten(name)}: no result can be built", err=True)
        for finding in (finding for _, findings in group for finding in findings):
            say(f"  {printable(without_secrets(str(_place_in_run(finding)).rstrip('.')))}", err=True)


def _place_in_run(finding: Finding) -> Finding:
    """Return the finding with its JSON pointer in the place, after the file: `log.json#/eval/config/limit`."""
    if finding.place.line or not finding.pointer:
        return finding
    place = Place(f"{finding.place.file}#{shorten(finding.pointer)}")
    return Finding(finding.code, place, finding.detail, finding.pointer)


def say_note(built: Built) -> None:
    """Print the notes of a result, if there are any. They qualify the number."""
    if notes := built.details.get("notes"):
        say_text(f"note: {printable(str(notes))}", "  ", rest=4)


def show_origin(built: Built) -> None:
    """Print the origin of each value: the run, or its owner."""
    for member, value, origin in origins_of(built):
        say_text(f"{member}: {shorten(value)} ({origin})" if value else f"{member} ({origin})", "  ", rest=4)


def origins_of(built: Built) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each value, the value ("" if it has no short form), and its origin."""
    claims = built.claims.to_json()
    framework = claims["framework"] if isinstance(claims["framework"], dict) else {}
    values: dict[str, JSON] = {**claims, **{f"framework.{name}": text for name, text in framework.items()}}
    values["metrics"] = ", ".join(f"{metric.metric_id} {metric.value!r}" for metric in built.claims.metrics[:20])
    for member, origin in built.origins.items():
        yield member, str(values.get(member, "")), origin
