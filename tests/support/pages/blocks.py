"""The blocks of the pages: the text between fences, and the comment above, which is a note for the story."""

import textwrap
from pathlib import Path
from typing import NamedTuple

from tests.support.shared import ROOT

FOLDERS = ("deploy", "issuer", "keys", "policies", "release", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])


class Block(NamedTuple):
    """A block. `sections` are the headings above it, without the page's title; `note` is the text of the comment on the line
    above the fence."""

    page: str
    sections: tuple[str, ...]
    line: int
    language: str
    note: str
    text: str

    @property
    def name(self) -> str:
        """The page, and the block's note or else its first line."""
        return f"{self.page}: {self.note or self.text.partition(chr(10))[0]}"

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    return read_blocks(page.read_text("utf-8"), str(page.relative_to(ROOT)))


def read_blocks(text: str, page: str) -> list[Block]:
    """Read the blocks of a page's text. A fence that is not closed is an error."""
    blocks: list[Block] = []
    headings: list[tuple[int, str]] = []
    opened: tuple[int, str, str, list[str]] | None = None
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if opened:
            at, language, note, inside = opened
            if bare == "```":
                said = textwrap.dedent("".join(f"{one}\n" for one in inside))
                blocks.append(Block(page, tuple(name for _, name in headings), at, language, note, said))
                opened = None
            else:
                inside.append(line)
        elif bare.startswith("```"):
            opened = number, bare[3:], _note(before), []
        elif line.startswith("##"):
            signs, _, name = line.partition(" ")
            headings = [*(one for one in headings if one[0] < len(signs)), (len(signs), name)]
        before = bare
    assert not opened, f"{page}:{opened}"
    return blocks


def _note(line: str) -> str:
    return line[4:-3].strip() if line.startswith("<!--") and line.endswith("-->") else ""
