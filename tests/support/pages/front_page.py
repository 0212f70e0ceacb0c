"""README.md and what `make demo` shows: a checkout, an issuer, and a job beside it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.pages.blocks import Block
from tests.support.pages.framework_pages import job
from tests.support.pages.story import Story, World
from tests.support.runs import MODEL_COMMIT
from tests.support.shared import ROOT

# The Makefile itself, with the environment that this test has.
MAKE = f'make() {{ command make -s -C {ROOT} -o .venv/run.done BIN={Path(sys.executable).parent} "$@"; }}'
INSTALL = "Install"


@contextmanager
def at_work(folder: Path) -> Iterator[World]:
    """Give a job that has a run, and knows the commit of its model."""
    with job(folder) as world:
        world.env["COMMIT"] = MODEL_COMMIT
        yield world


@contextmanager
def checkout(folder: Path) -> Iterator[World]:
    """Give a checkout with its virtual environment."""
    yield World(folder, prelude=MAKE)


def install(world: World, block: Block) -> None:
    """Make an environment, and be in the checkout."""
    subprocess.run([sys.executable, "-m", "venv", world.folder / "venv"], check=True)
    world.here["pip install"] = f"cd {ROOT} && {world.folder}/venv/bin/pip install -q"


STORIES = (
    Story("README.md", at_work, but=(INSTALL,), long=True),
    Story("README.md", checkout, {"with pip": install}, only=(INSTALL,), long=True),
    Story("issuer/dev/DEMO.md", checkout, long=True),
)
