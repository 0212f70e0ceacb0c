"""deploy/LOG.md: the failures of one log, and their repair by an operator.

The functions here do the events between the transcripts, which the page has in comments.
"""

import shutil
from collections.abc import Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path

from issuer.service.log.sequencer.setup import log_settings, sequencer_of, turn
from issuer.service.settings.reader import read_settings
from tests.support.command import issuer
from tests.support.pages.blocks import Block
from tests.support.pages.keys_page import SETTINGS
from tests.support.pages.story import Story, World
from tests.support.sequencing import tokens

DATABASE = Path("data/log/log.sqlite")


@contextmanager
def desk(folder: Path) -> Iterator[World]:
    """Give an operator's folder before its log is begun."""
    (folder / "policies").mkdir()
    (folder / "settings.yaml").write_text(SETTINGS)
    yield World(folder, here={"/backup/log": str(folder / "backup")})


def append(folder: Path, first: int, end: int) -> None:
    """Write leaves of tokens, as the service does, and have their checkpoint cosigned."""
    with chdir(folder):
        log = log_settings(read_settings(Path("settings.yaml"), {}), "")
        with turn(log), closing(sequencer_of(log)) as sequencer:
            sequencer.start()
            sequencer.append(tokens(*range(first, end)))
            published = sequencer.published
            assert published is not None
            sequencer.keep_cosigned(end, published.note)


def put_back(world: World, block: Block) -> None:
    """Go on for 100 tokens, and put the database of before back."""
    database = world.folder / DATABASE
    old = shutil.copy(database, world.folder / "old.sqlite")
    append(world.folder, 600, 700)
    database.rename(world.folder / "newest.sqlite")
    shutil.move(old, database)


def lose_all(world: World, block: Block) -> None:
    """Export the log once more; then lose database and records."""
    with chdir(world.folder):
        done = issuer("log", "export", "backup", "--from", DATABASE, "--policy", "witness-policy.txt")
    assert done.returncode == 0, done
    shutil.rmtree(world.folder / "data")
    shutil.rmtree(world.folder / "elsewhere")


NOTES = {
    "600 tokens later": lambda world, _: append(world.folder, 0, 600),
    "the database is lost": lambda world, _: shutil.rmtree(world.folder / DATABASE.parent),
    "an old copy is put back": put_back,
    "the records are lost": lambda world, _: shutil.rmtree(world.folder / "elsewhere"),
    "exported once more; then database and records are lost": lose_all,
}
STORIES = (Story("deploy/LOG.md", desk, NOTES, long=True),)
