"""A story: the blocks of a page, or of some of its sections, done one after the other in one folder."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.pages.blocks import Block, blocks_of
from tests.support.pages.listed import LISTED
from tests.support.pages.said import Names, matches
from tests.support.pages.shell import Command, Shell, script, transcript
from tests.support.shared import ROOT

# The result of a note's function that has done its block.
DONE = object()
COMMANDS = {"console": transcript, "sh": script}
_NOTED = re.compile(r"file (\S+)")
_HEADED = re.compile(r"# (\S+\.(?:yaml|yml|json|toml|txt))\n")


def file_of(block: Block) -> str:
    """Return which file a block is, if it is one."""
    found = _NOTED.fullmatch(block.note) or (block.language not in COMMANDS and _HEADED.match(block.text))
    return found[1] if found else ""


@dataclass
class World:
    """The surroundings of a story: a folder with the reader's files before the first block. `here` has this machine's URLs and
    folders by the page's words for them. Files of the page are written to `files`."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    prelude: str = ""
    files: Path = Path()
    closing: ExitStack = field(default_factory=ExitStack)

    def localized(self, text: str) -> str:
        """Replace the page's words by this machine's."""
        for shown, real in self.here.items():
            text = text.replace(shown, real)
        return text


@dataclass(frozen=True)
class Story:
    """The blocks to do, and the meaning of their notes.

    `notes` has functions by a regular expression for the whole note. Each is called before its block, with the world, the
    block and the groups, and returns DONE if it did the block. A block that is neither commands nor a program needs such a
    note, or is a file: its note is `file NAME`, or its first line a comment with its name. `only` and `but` are headings;
    `files_first` is for a page that shows a file after the commands that read it.
    """

    page: str
    world: Callable[[Path], AbstractContextManager[World]]
    notes: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    files_first: bool = False
    long: bool = False
    tools: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The page, and the sections that make it this story."""
        return ", ".join([self.page, *self.only, *(f"without {name}" for name in self.but)])

    @property
    def blocks(self) -> list[Block]:
        return [block for block in blocks_of(ROOT / self.page) if self.takes(block)]

    def takes(self, block: Block) -> bool:
        """Say whether a block of any page is one of the story."""
        if block.page != self.page or block.language == "text" or block.name in LISTED:
            return False
        return not set(block.sections) & set(self.but) and (not self.only or bool(set(block.sections) & set(self.only)))

    def understands(self, block: Block) -> bool:
        if file_of(block):
            return True
        if block.note:
            return any(re.fullmatch(note, block.note) for note in self.notes)
        return block.language in COMMANDS or block.language == "python"

    def tell(self, folder: Path, alter: Callable[[Block], Block] = lambda block: block) -> None:
        """Do all blocks. Raises AssertionError if the page differs."""
        place, work = folder / "told", folder / "work"
        place.mkdir()
        work.mkdir()
        with self.world(place) as world, world.closing:
            shell, names = Shell(place, work, world.env, world.prelude), Names()
            for block in sorted(self.blocks, key=lambda block: self.files_first and not file_of(block)):
                self._do(alter(block), world, shell, names)

    def _do(self, block: Block, world: World, shell: Shell, names: Names) -> None:
        if name := file_of(block):
            path = world.folder / world.files / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_text(names.put_in(world.localized(block.text)), "utf-8")
            return
        for note, happens in self.notes.items():
            if (found := re.fullmatch(note, block.note)) and happens(world, block, *found.groups()) is DONE:
                return
        if block.language in COMMANDS:
            _type(COMMANDS[block.language](block.text), block, world, shell, names)
        elif block.language == "python":
            _run_program(block, world, shell, names)


def _type(commands: list[Command], block: Block, world: World, shell: Shell, names: Names) -> None:
    """Run the commands of a block. A name that one prints may be typed in the next, so each is run by itself."""
    for command in commands:
        ended = shell.run(names.put_in(world.localized(command.line)))
        report = f"{block.place}: $ {command.line}\n{ended.out}{ended.err}exit code {ended.code}"
        assert "Traceback" not in ended.err, report
        assert ended.code == command.code, report
        shown = world.localized(command.shown)
        # On a terminal either stream may come first.
        assert any(matches(shown, both, names) for both in (ended.out + ended.err, ended.err + ended.out)), report


def _run_program(block: Block, world: World, shell: Shell, names: Names) -> None:
    """Run a program; the comment at the end of a line has its output."""
    ended = shell.python(names.put_in(world.localized(block.text)))
    report = f"{block.place}\n{ended.out}{ended.err}exit code {ended.code}"
    assert ended.code == 0, report
    shown = re.findall(r"^ *print\(.*\)  # (.*)$", block.text, re.M)
    printed = ended.out.splitlines()
    assert bool(printed) == bool(shown), report
    assert all(any(matches(f"{world.localized(one)}\n", f"{line}\n", names) for one in shown) for line in printed), (
        report
    )
