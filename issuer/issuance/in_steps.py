"""Work that is done in steps, so that others have their turn in between. Pure: who drives the steps decides when."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeAlias, TypeVar

T = TypeVar("T")
# Yields between two steps, none of which takes long, and returns what the work was for.
Steps: TypeAlias = Generator[None, None, T]


def one_by_one(items: Iterable[T]) -> Steps[tuple[T, ...]]:
    """Make each item, which is not made before it is asked for, in a step of its own."""
    made = []
    for item in items:
        made.append(item)
        yield
    return tuple(made)


def finish(steps: Steps[T]) -> T:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            done: T = end.value
            return done
