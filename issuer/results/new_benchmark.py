"""Writes a new `eval.yaml` (contract section 3): what its author says, and nothing that nobody said. Pure.

Strings are double-quoted, so that every YAML reader reads them alike. Whether it breaks a rule is for `lint_benchmark`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from issuer.formats.strict_yaml import quoted


class NewMetric(Struct, frozen=True):
    """A metric as its author says it; one of several is `primary`."""

    id: str
    display_name: str
    higher_is_better: bool
    primary: bool


class NewBenchmark(Struct, frozen=True):
    """What goes into the file. None is left out; `evaluation_framework` is what today's Hub asks for.

    Every task has the same `members`: `config` and `split`, and `dataset`, a repository and its commit.
    """

    name: str
    description: str
    evaluation_framework: str | None
    metrics: tuple[NewMetric, ...]
    tasks: tuple[str, ...]
    config: str | None = None
    split: str | None = None
    dataset: tuple[str, str] | None = None

    def text(self) -> str:
        """Write the file."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _members({"name": self.name, "description": self.description})
        yield from _members({"evaluation_framework": self.evaluation_framework})
        if self.metrics:
            yield from ("", "metrics:")
        for metric in self.metrics:
            yield from _item(_members({"id": metric.id, "display_name": metric.display_name}))
            yield f"    higher_is_better: {'true' if metric.higher_is_better else 'false'}"
            if metric.primary:
                yield "    primary: true"
        yield from ("", "tasks:")
        for task in self.tasks:
            yield from _item(_members({"id": task, "config": self.config, "split": self.split}))
            if self.dataset:
                yield "    dataset:"
                repo, commit = self.dataset
                yield from (f"      {line}" for line in _members({"id": repo, "revision": commit}))


def _members(said: Mapping[str, str | None]) -> Iterator[str]:
    return (f"{name}: {quoted(text)}" for name, text in said.items() if text is not None)


def _item(lines: Iterable[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"  {'  ' if index else '- '}{line}"
