"""The options by which the owner of a run supplies what it does not say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from issuer.adapters import Supplied

_TEXTS = tuple(name for name in Supplied.__struct_fields__ if name not in {"metrics", "scale"})

metric_option = click.option(
    "--metric", "metrics", multiple=True, metavar="ID=SELECTOR", help="Claim this score of the run under ID."
)
scale_option = click.option(
    "--scale", metavar="NUMBER", help="Multiply every value, in decimal: 100 makes percent of a proportion."
)


def supplied_options(*, environment: bool) -> Callable[[Any], Any]:
    """Add a flag for every text that a run may lack; with `environment`, a variable can stand for each."""

    def add(command: Any) -> Any:
        for name in reversed(_TEXTS):
            command = click.option(
                f"--{name.replace('_', '-')}",
                metavar="TEXT",
                envvar=f"ISSUER_RUN_{name.upper()}" if environment else None,
                show_envvar=environment,
                help=f"What the run does not say: {name.replace('_', ' ')}.",
            )(command)
        return command

    return add


def read_selectors(metrics: tuple[str, ...]) -> dict[str, str]:
    """Read the values of `--metric ID=SELECTOR`. Raises click.BadParameter."""
    pairs = dict(metric.partition("=")[::2] for metric in metrics)
    if len(pairs) != len(metrics) or not all(pairs) or not all(pairs.values()):
        raise click.BadParameter("give each as ID=SELECTOR, each ID once", param_hint="--metric")
    return pairs
