"""What the pages point to is there: links, files, Python names, and the tests that SECURITY.md counts on.

Docstrings and comments are held to the same for files: one that moves is named in many places.
"""

from __future__ import annotations

import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import get_args

import click
import pytest

from issuer.cli import cli
from issuer.codes import Code
from issuer.service.settings.model import MEMBERS
from issuer.tlog.watch import AlarmName
from tests.support.pages.blocks import FOLDERS, PAGES, blocks_of
from tests.support.pages.listed import LISTED
from tests.support.pages.stories import STORIES
from tests.support.pages.story import COMMANDS as BY_LANGUAGE
from tests.support.shared import ROOT

SOURCES = [*(ROOT / "issuer").rglob("*.py"), *(ROOT / "issuer").rglob("*.lua")]
FILES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
# Files of other projects that a comment cites.
FOREIGN = {"crypto/canonical.py", "warehouse/oidc/models/circleci.py"}

_LINK = re.compile(r"\[[^]\n]+\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_FILE = re.compile(r"(?<![\w./-])(?:[a-z_]+/)*[a-z_]+\.(?:py|lua)\b(?!\()")
_PLACE = re.compile(r"`((?:issuer|tests)/[a-z_/.]*[a-z/])`")
_NAME = re.compile(r"`(issuer(?:\.[a-z_]+)+)(?:\.[A-Z_][A-Za-z_]+)?(?:\([^`]*)?`")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as renderers make them: lowercase, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_is_listed_with_a_reason(page: Path) -> None:
    """CONTRIBUTING.md says how a block is written so that a story does it."""
    for block in blocks_of(page):
        assert block.language, f"{block.place}: say the language; `text` is for what nobody runs"
        if block.language == "text" or block.name in LISTED:
            continue
        told = [story for story in STORIES if story.takes(block)]
        assert told, (
            f"{block.place}: no story of tests/support/pages/stories.py takes it, and it is not in relying/leaderboard/ranking.py"
        )
        for story in told:
            assert story.understands(block), (
                f"{block.place}: {story.name} knows no {block.note!r}, and {block.language} needs one"
            )


def test_what_is_listed_is_there_once_with_its_reason() -> None:
    names = [block.name for page in PAGES for block in blocks_of(page)]
    for name, reason in LISTED.items():
        assert (names.count(name), bool(reason)) == (1, True), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file_and_its_anchor_to_a_heading(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text("utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def test_a_file_that_is_named_is_there() -> None:
    there = {file[start + 1 :] for file in FILES for start, letter in enumerate(file) if letter == "/"}
    for path in [*PAGES, *SOURCES]:
        missing = set(_FILE.findall(path.read_text("utf-8"))) - FOREIGN - there
        assert not missing, f"{name_of(path)} names {missing}"


# The changelog also names what was.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_a_place_in_the_tree_and_a_python_name_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for place in _PLACE.findall(text):
        assert (ROOT / place).exists(), place
    for name in _NAME.findall(text):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


# -- what is typed ---------------------------------------------------------------------------------------------------------


def below(command: click.Command, name: str) -> dict[str, set[str]]:
    """Return the options of a command and of those below it, by their words."""
    options = {opt for param in command.params for opt in [*param.opts, *param.secondary_opts] if opt.startswith("-")}
    found = {name: options | {"--help"}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found |= below(command.get_command(context, word) or command, f"{name} {word}")
    return found


@cache
def commands() -> dict[str, set[str]]:
    """Return the options of every command. This imports them all, so no test is collected by it."""
    return below(cli, "issuer")


# Options of Python's own configure.
FOREIGN_OPTIONS = {"--enable-optimizations", "--enable-shared"}
_CODE_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def typed(page: Path) -> list[str]:
    """Return what a page says to type: code in its prose, and the commands of its blocks."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in _CODE_SPAN.findall(prose)]
    blocks = [block for block in blocks_of(page) if block.language in BY_LANGUAGE]
    lines = [command.line for block in blocks for command in BY_LANGUAGE[block.language](block.text)]
    return [*spans, *(" ".join(line.replace("\\\n", " ").split()) for line in lines)]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_a_command_that_is_named_is_there_with_its_options(page: Path) -> None:
    for text in typed(page):
        for line in re.findall(r"(?:^|[|&;(] *|[A-Z_]=\S* )issuer ([a-z](?:\"[^\"]*\"|[^|&;<>)])*)", text):
            assert not unknown(line), text
        for option in set(re.findall(r"^--[a-z][a-z-]+", text)) - FOREIGN_OPTIONS:
            assert any(option in options for options in commands().values()), text


def unknown(line: str) -> str:
    """Return the first word of a command's line that is no command and no option of it; empty without one."""
    name, words = "issuer", shlex.split(line, comments=True)
    while words and (named := {f"{name} {word}" for word in words[0].split("|")}) <= set(commands()):
        name, words = min(named), words[1:]
    if words and re.fullmatch(r"[a-z|]+", words[0]) and any(each.startswith(f"{name} ") for each in commands()):
        return words[0]
    options = {re.split(r"[=|\]]", word)[0] for word in words if re.match("--[a-z]", word)}
    return next(iter(sorted(options - commands()[name])), "")


@pytest.mark.parametrize(
    "line", ["verfy x", "keys rotat", "verify --offlin", "audit verify|tal", "demo --keep=x --kep"]
)
def test_what_is_no_command_is_found(line: str) -> None:
    assert unknown(line)


FAMILIES = {code.partition(".")[0] for code in Code}
FILE_ENDS = {"js", "json", "jsonl", "jwt", "lock", "pem", "py"}
# Alarms of a monitor, and members of a run or of a policy.
NO_CODES = {*get_args(AlarmName), "benchmark.id", "token.audiences", "token.ttl_s"}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_a_code_that_is_named_is_there(page: Path) -> None:
    for named in _CODE_SPAN.findall(page.read_text("utf-8")):
        family, _, rest = named.partition(".")
        if re.fullmatch(r"[a-z]+\.[a-z_]+", named) and family in FAMILIES and rest not in FILE_ENDS:
            assert named in set(Code) | NO_CODES | set(MEMBERS), named


ROLES = [page for page in PAGES if page.parent != ROOT / "tests" and ROOT / "tests" not in page.parents]


@pytest.mark.parametrize(
    "page", [page for page in ROLES if name_of(page) not in {"README.md", "CHANGELOG.md"}], ids=name_of
)
def test_a_page_begins_by_who_it_is_for(page: Path) -> None:
    _, first, *_ = page.read_text("utf-8").split("\n\n")
    assert first.startswith("For "), first


def test_the_front_page_leads_to_every_page_of_a_role() -> None:
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        left += [page.parent / target for target, _ in _LINK.findall(page.read_text("utf-8")) if target]
    assert {page.resolve() for page in ROLES} <= seen


def test_every_cited_section_of_the_contract_is_there() -> None:
    sections = re.findall(r"^## (\d)\. ", (ROOT / "issuer" / "CONTRACT.md").read_text("utf-8"), re.MULTILINE)
    cited = {
        number
        for path in SOURCES
        for numbers in re.findall(r"contract\s+sections?\s+(\d(?:\s+(?:and|to)\s+\d)?)", path.read_text("utf-8"))
        for number in re.findall(r"\d", numbers)
    }
    assert cited
    assert cited <= set(sections)


def test_every_numbered_attack_of_security_has_its_test() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    section = text.partition("## Attacks on identity tokens")[2].partition("Personal access tokens")[0]
    _, *parts = re.split(r"`(tests/\S+\.py)`", section)  # a file, then its rows
    told = [
        (file, number)
        for file, rows in zip(parts[::2], parts[1::2], strict=True)
        for number in re.findall(r"^\| J(\d+) \|", rows, re.MULTILINE)
    ]
    assert len(told) >= 15
    tests = {file: (ROOT / file).read_text("utf-8") for file, _ in told}
    assert not [
        (file, number) for file, number in told if not re.search(rf"\bJ{number}\b|test_j{number}_", tests[file])
    ]
