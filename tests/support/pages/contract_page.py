"""issuer/CONTRACT.md: its examples are read as the formats that they show."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from issuer.results.entry import read_entries
from issuer.verify.trust import read_trust_file, sources
from tests.support.pages.blocks import Block
from tests.support.pages.story import Story, World


@contextmanager
def nothing(folder: Path) -> Iterator[World]:
    """Give an empty folder."""
    yield World(folder)


def an_entry(world: World, block: Block) -> None:
    """Read a result file of one entry, in its target form."""
    (entry,) = read_entries(
        block.text.replace("<commit>", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321").encode(), "x.yaml"
    )
    assert entry.token == "eyJ..."


def a_trust_file(world: World, block: Block) -> None:
    """Read a trust file, with every source that there can be."""
    file = read_trust_file(block.text.encode(), "trust.yaml")
    assert {pointer.rpartition("/")[2] for pointer in sources(file)} == {
        "keys", "archive", "revocations", "receipt_keys", "revocation_keys",
    }  # fmt: skip


STORIES = (Story("issuer/CONTRACT.md", nothing, {"an entry": an_entry, "a trust file": a_trust_file}),)
