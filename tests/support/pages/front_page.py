"""README.md: what `make demo` shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.pages.story import Story, World
from tests.support.shared import ROOT

# The Makefile itself, with the environment that this test has.
MAKE = f'make() {{ command make -s -C {ROOT} -o .venv/run.done BIN={Path(sys.executable).parent} "$@"; }}'


@contextmanager
def checkout(folder: Path) -> Iterator[World]:
    """Give a checkout that is set up."""
    yield World(folder, prelude=MAKE)


STORIES = (Story("README.md", checkout, only=("What `make demo` shows",), long=True),)
