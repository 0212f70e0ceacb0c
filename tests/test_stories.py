"""Each block of the pages is run, in order, and prints the text that the page shows.

`tests/support/pages/` has the stories, and a reason for each block that is not run.
"""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from issuer.errors import IssuerError
from tests.support.pages.blocks import Block, read_blocks
from tests.support.pages.said import Names, matches
from tests.support.pages.stories import STORIES
from tests.support.pages.story import Story, file_of
from tests.support.tools import missing


def marked(story: Story) -> ParameterSet:
    tools = [pytest.mark.needs_tool(*story.tools)] if story.tools else []
    return pytest.param(story, id=story.name, marks=[pytest.mark.long, *tools] if story.long else tools)


def is_part(story: Story) -> bool:
    """Say whether another story, as quick as this one, does its blocks, too, and this machine has all commands for it."""
    blocks = set(story.blocks)
    return bool(blocks) and any(
        blocks < set(other.blocks) and other.long <= story.long and not missing(*other.tools) for other in STORIES
    )


MARKED = [marked(story) for story in STORIES if not is_part(story)]


@pytest.mark.parametrize("story", MARKED)
def test_the_blocks_of_a_page_run_as_shown(story: Story, tmp_path: Path) -> None:
    story.tell(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("story", MARKED)
def test_an_altered_page_is_found(story: Story, tmp_path: Path) -> None:
    """Its last block is altered: one more line of output, a failing command or program, or an invalid file."""
    *_, last = (block for block in story.blocks if not file_of(block))
    more = {"console": "and a line that is not printed\n", "sh": "false\n", "python": "raise SystemExit(3)\n"}

    def alter(block: Block) -> Block:
        return block._replace(text=block.text + more.get(block.language, "]\n")) if block == last else block

    with pytest.raises((AssertionError, IssuerError)) as found:
        story.tell(tmp_path, alter)
    assert isinstance(found.value, IssuerError) or str(found.value).startswith(last.place)


SAME = [
    ("", ""),
    ("a...c\n", "a and c\n"),
    ("...\nlast\n", "last\n"),
    ("first\n...\n", "first\nand\nmore\n"),
    ("ID            STATE\n", "ID  STATE\n"),
    ("until 2026-11-21T10:05:36Z\n", "until 2031-01-02T00:00:00Z\n"),
    ("http://127.0.0.1:42667/x http://127.0.0.1:42667/y\n", "http://127.0.0.1:1234/x http://127.0.0.1:1234/y\n"),
]
DIFFERENT = [
    ("", "a\n"),
    ("a\n", ""),
    *(
        (f"{one}\n", f"{other}\n")
        for one, other in (("a", "b"), ("a.c", "abc"), ("a b", "a  b"), ("a  b", "a b"), (0.6, 0.9))
    ),
    ("until 2026-11-21T10:05:36Z\n", "until tomorrow\n"),
    (f"sha256:{'a' * 64}\n", f"sha256:{'b' * 64}\n"),
    ("http://127.0.0.1:42667/x http://127.0.0.1:42667/y\n", "http://127.0.0.1:1234/x http://127.0.0.1:1235/y\n"),
]


def test_times_ports_and_omissions_may_differ_and_the_rest_is_compared() -> None:
    assert [pair for pair in SAME if not matches(*pair, Names())] == []
    assert [pair for pair in DIFFERENT if matches(*pair, Names())] == []


def test_a_random_name_keeps_its_first_value() -> None:
    names = Names()
    assert matches("made yGPAhzdgaLF7\n", "made aaaaaaaaaaaa\n", names)
    assert names.put_in("issuer pat revoke yGPAhzdgaLF7") == "issuer pat revoke aaaaaaaaaaaa"
    assert matches("gone yGPAhzdgaLF7\n", "gone aaaaaaaaaaaa\n", names)
    assert not matches("gone yGPAhzdgaLF7\n", "gone aaaaaaaaaaab\n", names)


def test_a_block_has_its_headings_and_the_note_above_it() -> None:
    text = "# T\n\n## A\n\n### B\n\n<!-- file x -->\n```yaml\na: 1\n```\n\n## C\n\n- in a list:\n\n  ```sh\n  true\n  ```\n"
    first, second = read_blocks(text, "p.md")
    assert (first.sections, first.note, first.language, first.text) == (("A", "B"), "file x", "yaml", "a: 1\n")
    assert (second.sections, second.note, second.text) == (("C",), "", "true\n")
