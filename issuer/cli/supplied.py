"""The options by which the owner of a run supplies what it does not say."""

from __future__ import annotations

from typing import Any

import click
from click import get_current_context
from click.core import ParameterSource

_TEXTS = {
    "model_repo": "The model's repository on the Hub, OWNER/NAME.",
    "model_revision": "The model's commit that ran: 40 or 64 hex characters.",
    "benchmark_repo": "The benchmark's dataset repository, OWNER/NAME.",
    "benchmark_revision": "The benchmark's commit that ran: 40 or 64 hex characters.",
    "task_id": "The task's id in the benchmark's eval.yaml, where the run has another word for it.",
    "framework_name": "The framework that made the run, as its package is called.",
    "framework_version": "The version of the framework.",
    "command": "The command line that made the run.",
}

mock_option = click.option(
    "--allow-mock", multiple=True, metavar="MODEL", help="Accept a run of this mock model, by its name."
)
partial_option = click.option(
    "--allow-partial",
    is_flag=True,
    help="Accept a run that is limited, or not known to be whole; the notes say which.",
)
metric_option = click.option(
    "--metric", "metrics", multiple=True, metavar="ID=SELECTOR", help="Claim this score of the run under ID."
)
scale_option = click.option(
    "--scale", metavar="NUMBER", help="Multiply every value, in decimal: 100 makes percent of a proportion."
)


class RunCommand(click.Command):
    """A command that is given what a run does not say: in its help these options stand together."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                records[parameter.name in _TEXTS].append(record)
        for heading, of_run in (("Options", False), ("What the run does not say", True)):
            with formatter.section(heading):
                formatter.write_dl(records[of_run])


def supplied_options(command: Any) -> Any:
    """Add a flag for every text that a run may lack, and a variable that can stand for it."""
    for name, words in reversed(_TEXTS.items()):
        option = f"--{name.replace('_', '-')}"
        variable = f"ISSUER_RUN_{name.upper()}"
        command = click.option(option, metavar="TEXT", envvar=variable, show_envvar=True, help=words)(command)
    return command


def demand_no_flags(reason: str) -> None:
    """Raise click.UsageError for what a flag supplies where there is no run; a variable may be of another one."""
    context = get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name in {*_TEXTS, "metrics", "scale", "allow_mock", "allow_partial"}:
            raise click.UsageError(f"{parameter.opts[0]} is for a run: {reason}")


def read_selectors(metrics: tuple[str, ...]) -> dict[str, str]:
    """Read the values of `--metric ID=SELECTOR`. Raises click.BadParameter."""
    pairs = dict(metric.partition("=")[::2] for metric in metrics)
    if len(pairs) != len(metrics) or not all(pairs) or not all(pairs.values()):
        raise click.BadParameter("give each as ID=SELECTOR, each ID once", param_hint="--metric")
    return pairs
