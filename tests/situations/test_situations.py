"""Every situation of the table says what is expected, on a terminal and in a pipe; and what all of them have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from tests.situations.steps import Situation, World
from tests.situations.table import AREAS
from tests.situations.texts import describe, read
from tests.situations.world import meet, world

ROWS = [(area, each) for area, rows in AREAS.items() for each in rows]
TEXTS = {area: read(area) for area in AREAS}
IDS = [f"{area}: {each.title}" for area, each in ROWS]
_ERROR = re.compile(r"! issuer: (?:\S+: )?[a-z_]+\.[a-z_]+: ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("service")) as live:
        yield live


@pytest.mark.parametrize(("area", "situation"), ROWS, ids=IDS)
def test_it_says_what_is_expected(area: str, situation: Situation, shared: World) -> None:
    assert describe(situation, meet(situation, shared)) == TEXTS[area][situation.title]


def test_the_table_is_large_and_each_text_has_its_situation() -> None:
    assert len(ROWS) >= 100
    for area, rows in AREAS.items():
        titles = [each.title for each in rows]
        assert len(set(titles)) == len(titles)
        assert list(TEXTS[area]) == titles, "run `python -m tests.situations`"


def test_a_text_is_for_people() -> None:
    """No traceback, nothing that a terminal obeys; an error says its code and what to do next."""
    for area, situation in ROWS:
        text = TEXTS[area][situation.title]
        assert "Traceback" not in text, situation.title
        assert text.replace("\n", "").isprintable(), situation.title
        code = int(text.rpartition("exit ")[2])
        errors = [line for line in text.splitlines() if line.startswith("! ")]
        if code == 2:
            assert any(line.startswith("! Error: ") for line in errors) or not errors, situation.title
        elif any(_ERROR.match(line) for line in errors):
            assert any(line.startswith("!   next: ") for line in errors), text


# Every fourth; a service has streams of its own.
SAMPLE = [(area, each) for area, each in ROWS if area != "serve"][::4]


@pytest.mark.parametrize(("area", "situation"), SAMPLE, ids=[f"{area}: {each.title}" for area, each in SAMPLE])
def test_on_a_terminal_of_80_columns_only_a_value_is_wider(area: str, situation: Situation, shared: World) -> None:
    done = meet(situation, shared, terminal=True)
    for line in _COLOUR.sub("", done.out + done.err).splitlines():
        if cell_len(line) > 80 and "://" not in line and not _is_machine(area, situation):
            # One word, behind its indentation and its label, which nothing may break.
            assert len(line.split()) <= 3, line


def _is_machine(area: str, situation: Situation) -> bool:
    """Findings are lines for editors and pipes, the report of `verify` has a layout of its own, and the lines of a diff are
    the file's: none is broken."""
    return (
        (area == "submit" and "--dry-run" in situation.command)
        or area in {"policy", "results", "verify"}
        or "--format" in situation.command
    )


def test_colours_are_there_on_a_terminal_alone(shared: World) -> None:
    missing = Situation("", "policy plan a b --audit c")
    assert meet(missing, shared, terminal=True).err.startswith("\x1b[31m\x1b[1missuer: \x1b[0m")
    assert "\x1b" not in meet(missing, shared).err
    quiet = Situation("", missing.command, (lambda _folder, _world: {"NO_COLOR": "1"},))
    assert "\x1b" not in meet(quiet, shared, terminal=True).err
