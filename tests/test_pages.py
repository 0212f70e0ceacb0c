"""What the pages point to is there: links, files, Python names, and the tests that SECURITY.md counts on.

Docstrings and comments are held to the same for files: one that moves is named in many places.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.support.shared import ROOT

FOLDERS = ("deploy", "issuer", "keys", "policies", "tests")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
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
def test_a_link_leads_to_a_file_and_its_anchor_to_a_heading(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text("utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=name_of)
def test_a_file_that_is_named_is_there(path: Path) -> None:
    for named in set(_FILE.findall(path.read_text("utf-8"))) - FOREIGN:
        assert any(file.endswith(f"/{named}") for file in FILES), named


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
