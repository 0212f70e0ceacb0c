"""The targets of the pages exist: links, files, Python names, commands, codes, and the tests that SECURITY.md names.

The same holds for files that docstrings and comments of the package name.
"""

import pkgutil
import re
import shlex
from functools import cache
from pathlib import Path
from typing import get_args

import click

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


# The changelog also names what no longer exists.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as renderers make them: lowercase, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_block_is_run_or_is_listed_with_a_reason() -> None:
    """CONTRIBUTING.md says how to write a block so that a story can run it."""
    faults, blocks = [], [block for page in PAGES for block in blocks_of(page)]
    for block in blocks:
        if block.language == "text" or block.name in LISTED:
            continue
        stories = [story for story in STORIES if story.takes(block)]
        if not block.language:
            faults.append(f"{block.place}: name the language; `text` is for a block that is not run")
        elif not stories:
            faults.append(f"{block.place}: no story of tests/support/pages/stories.py takes it, and listed.py lacks it")
        faults += [
            f"{block.place}: {one.name} lacks the note {block.note!r}" for one in stories if not one.understands(block)
        ]
    assert faults == []
    names = [block.name for block in blocks]
    assert [name for name, reason in LISTED.items() if names.count(name) != 1 or not reason] == []


def test_a_link_leads_to_a_file_and_its_anchor_to_a_heading() -> None:
    faults = []
    for page in PAGES:
        for target, anchor in _LINK.findall(page.read_text("utf-8")):
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                faults.append(f"{name_of(page)}: {target}#{anchor}")
    assert faults == []


def test_every_file_that_a_page_or_a_comment_names_exists() -> None:
    ends = {file[start + 1 :] for file in FILES for start, letter in enumerate(file) if letter == "/"}
    missing = {
        name_of(path): set(_FILE.findall(path.read_text("utf-8"))) - FOREIGN - ends for path in [*PAGES, *SOURCES]
    }
    assert {path: names for path, names in missing.items() if names} == {}


def test_every_folder_and_python_name_on_a_page_exists() -> None:
    faults = []
    for page in CURRENT:
        text = page.read_text("utf-8")
        faults += [f"{name_of(page)}: {place}" for place in _PLACE.findall(text) if not (ROOT / place).exists()]
        faults += [f"{name_of(page)}: {name}" for name in _NAME.findall(text) if not is_importable(name)]
    assert faults == []


def is_importable(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return name.endswith(".example")  # the name of a host
    return True


def below(command: click.Command, name: str) -> dict[str, set[str]]:
    """Return the options of a command and its subcommands, by their words."""
    options = {opt for param in command.params for opt in [*param.opts, *param.secondary_opts] if opt.startswith("-")}
    found = {name: options | {"--help"}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found |= below(command.get_command(context, word) or command, f"{name} {word}")
    return found


@cache
def commands() -> dict[str, set[str]]:
    """Return the options of every command. It imports them all, so the collection of tests does not call it."""
    return below(cli, "issuer")


# Options of Python's own configure.
FOREIGN_OPTIONS = {"--enable-optimizations", "--enable-shared"}
_CODE_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def typed(page: Path) -> list[str]:
    """Return the commands of a page: code in its prose, and the commands of its blocks."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in _CODE_SPAN.findall(prose)]
    blocks = [block for block in blocks_of(page) if block.language in BY_LANGUAGE]
    lines = [command.line for block in blocks for command in BY_LANGUAGE[block.language](block.text)]
    return [*spans, *(" ".join(line.replace("\\\n", " ").split()) for line in lines)]


def test_every_command_on_a_page_exists_with_its_options() -> None:
    faults, every_option = [], set[str]().union(*commands().values(), FOREIGN_OPTIONS)
    for page in CURRENT:
        for text in typed(page):
            lines = re.findall(r"(?:^|[|&;(] *|[A-Z_]=\S* )issuer ([a-z](?:\"[^\"]*\"|[^|&;<>)])*)", text)
            if any(map(unknown, lines)) or set(re.findall(r"^--[a-z][a-z-]+", text)) - every_option:
                faults.append(f"{name_of(page)}: {text}")
    assert faults == []
    misspelt = ("verfy x", "keys rotat", "verify --offlin", "audit verify|tal", "demo --keep=x --kep")
    assert [line for line in misspelt if not unknown(line)] == []


def unknown(line: str) -> str:
    """Return the first word of a command line that is neither a command nor one of its options; "" without one."""
    name, words = "issuer", shlex.split(line, comments=True)
    while words and (named := {f"{name} {word}" for word in words[0].split("|")}) <= set(commands()):
        name, words = min(named), words[1:]
    if words and re.fullmatch(r"[a-z|]+", words[0]) and any(each.startswith(f"{name} ") for each in commands()):
        return words[0]
    options = {re.split(r"[=|\]]", word)[0] for word in words if re.match("--[a-z]", word)}
    return next(iter(sorted(options - commands()[name])), "")


FAMILIES = {code.partition(".")[0] for code in Code}
FILE_ENDS = {"js", "json", "jsonl", "jwt", "lock", "pem", "py"}
# Alarms of a monitor, and members of a run or of a policy.
OTHER_NAMES = {*get_args(AlarmName), "benchmark.id", "token.audiences", "token.ttl_s"}


def test_every_code_on_a_page_exists() -> None:
    code, known = (
        re.compile(rf"(?:{'|'.join(FAMILIES)})\.(?!(?:{'|'.join(FILE_ENDS)})$)[a-z_]+"),
        {*Code, *OTHER_NAMES, *MEMBERS},
    )
    named = {
        name_of(page): set(filter(code.fullmatch, _CODE_SPAN.findall(page.read_text("utf-8")))) for page in CURRENT
    }
    assert {page: names - known for page, names in named.items() if names - known} == {}


ROLES = [page for page in PAGES if page.parent != ROOT / "tests" and ROOT / "tests" not in page.parents]


def test_a_page_begins_with_its_readers_and_the_front_page_leads_to_it() -> None:
    pages = [page for page in ROLES if name_of(page) not in {"README.md", "CHANGELOG.md"}]
    assert [name_of(page) for page in pages if not page.read_text("utf-8").split("\n\n")[1].startswith("For ")] == []
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        left += [page.parent / target for target, _ in _LINK.findall(page.read_text("utf-8")) if target]
    assert {page.resolve() for page in ROLES} <= seen


def test_every_cited_section_of_the_contract_exists() -> None:
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
    attacks = [
        (file, number)
        for file, rows in zip(parts[::2], parts[1::2], strict=True)
        for number in re.findall(r"^\| J(\d+) \|", rows, re.MULTILINE)
    ]
    assert len(attacks) >= 15
    tests = {file: (ROOT / file).read_text("utf-8") for file, _ in attacks}
    assert [each for each in attacks if not re.search(rf"\bJ{each[1]}\b|test_j{each[1]}_", tests[each[0]])] == []
