"""Every situation of the table has its expected output, in a pipe and on a terminal; and rules for all of these texts."""

import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from tests.situations.steps import Situation, World
from tests.situations.table import AREAS
from tests.situations.texts import describe, read
from tests.situations.world import meet, world

TEXTS = {area: read(area) for area in AREAS}
_ERROR = re.compile(r"! issuer: (?:\S+: )?[a-z_]+\.[a-z_]+: ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("service")) as live:
        yield live


@pytest.mark.parametrize("area", AREAS)
def test_every_situation_has_its_expected_output(area: str, shared: World) -> None:
    """After an intended change run `python -m tests.situations`."""
    texts = {each.title: describe(each, meet(each, shared)) for each in AREAS[area]}
    assert len(texts) == len(AREAS[area]), "a title is there twice"
    assert list(texts) == list(TEXTS[area])
    assert {title: text for title, text in texts.items() if text != TEXTS[area][title]} == {}


def test_an_error_has_its_code_and_a_next_step_and_no_traceback() -> None:
    assert sum(map(len, AREAS.values())) >= 100
    for text in (text for texts in TEXTS.values() for text in texts.values()):
        assert "Traceback" not in text, text
        assert text.replace("\n", "").isprintable(), text
        errors = [line for line in text.splitlines() if line.startswith("! ")]
        if text.endswith("exit 2\n"):
            assert any(line.startswith("! Error: ") for line in errors) or not errors, text
        elif any(_ERROR.match(line) for line in errors):
            assert any(line.startswith("!   next: ") for line in errors), text


def test_on_a_terminal_of_80_columns_only_a_value_is_wider(shared: World) -> None:
    wide = []
    # Every fourth; a service has its own streams.
    sample = [(area, each) for area, rows in AREAS.items() if area != "serve" for each in rows][::4]
    for area, situation in sample:
        done = meet(situation, shared, terminal=True)
        for line in _COLOUR.sub("", done.out + done.err).splitlines():
            # One word behind its indentation and its label cannot be broken.
            is_value = "://" in line or _is_machine(area, situation) or len(line.split()) <= 3
            if cell_len(line) > 80 and not is_value:
                wide.append((situation.title, line))
    assert wide == []


def _is_machine(area: str, situation: Situation) -> bool:
    """Say whether the lines are for editors and pipes, or have their own layout (the report of `verify`, a diff)."""
    return (
        (area == "submit" and "--dry-run" in situation.command)
        or area in {"policy", "results", "verify"}
        or "--format" in situation.command
    )


def test_colours_are_for_terminals_only(shared: World) -> None:
    missing = Situation("", "policy plan a b --audit c")
    assert meet(missing, shared, terminal=True).err.startswith("\x1b[31m\x1b[1missuer: \x1b[0m")
    assert "\x1b" not in meet(missing, shared).err
    quiet = Situation("", missing.command, (lambda _folder, _world: {"NO_COLOR": "1"},))
    assert "\x1b" not in meet(quiet, shared, terminal=True).err
