"""The prose of the project is plain English: none of the constructions that a native reader reads twice.

CONTRIBUTING has the rules and the words. This test knows some constructions by pattern, so it is a floor: a sentence that
passes may still be odd. `EXCEPTIONS` has the places that we read and kept, each with its reason.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.shared import ROOT

PAGES = ("CONTRIBUTING.md", "SECURITY.md", "VERIFIED.md")
FOLDERS = ("issuer", "deploy", "policies", "keys", "release", "tests")
# Of tests/, the stored data, and this file, whose patterns are examples.
LEFT_OUT = ("tests/vectors", "tests/data", "tests/situations/expected", "tests/test_plain_english.py")
COMMENT = {".py": "#", ".yaml": "#", ".yml": "#", ".sh": "#", ".conf": "#", ".lua": "--", ".js": "//", ".md": ""}

# Each construction, and the words to use instead.
CONSTRUCTIONS = {
    "a clause as the subject": (
        r"(?:^|(?<=[.;:(] )|(?<=\b(?:by|if|of|to) )|(?<=\b(?:and|for) )|(?<=\b(?:than|that|from|with) ))"
        r"[Ww]h(?:o|oever|om|ose|at) (?:[a-z]+ ){0,3}?"
        r"(?:is|was|are|were|has|had|may|must|can|cannot|comes|goes|lies|stands|asks|reads|runs|does|decides|signs|writes)\b",
        "a noun: the caller, the operator, the file",
    ),
    "is none, is nothing": (r"\b(?:is|are|was|were|be) (?:none|nothing|nobody)\b", "is not a ..., does not exist"),
    "is no ...": (r"(?<!\b[Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|one\b|such\b|need\b|\w+er\b)[a-z]+", "is not a ..."),
    "to be had": (r"\b(?:not )?to be had\b", "unavailable"),
    "stands, lies": (
        r"\b(?:stands?|stood|lies?|lay) (?:in|on|at|beside|under|there|here|with|for|by|behind|before|outside)\b",
        "is in, is stored in",
    ),
    "of its own": (r"\bof (?:its|ours|his|their|one's|an?other's|the \w+'s) own\b", "its own ..., separate"),
    "is told": (r"\b(?:is|are|was|were|be|been|being) told\b|\btold by\b|\btells of\b", "learns, gets, is logged"),
    "was weighed": (r"\b(?:was|were) weighed\b", "We considered ...: it would ..."),
    "takes back": (r"\btak(?:e|es|en|ing) back\b", "revokes, withdraws"),
    "nobody, nothing as the subject": (
        r"(?:^|(?<=[.;:,] )|(?<=\band )|(?<=\bthat )|(?<=\bso ))(?:[Nn]obody|[Nn]othing) (?!but\b)[a-z]+",
        "a positive sentence with a subject",
    ),
    "but for": (r"\b(?:all|every\w*|nothing|none|pure,?) but (?:for )?\b|, but for\b", "except"),
}  # fmt: skip

# Of a file below the root, a part of the sentence, and why it stays.
EXCEPTIONS = {
    **dict.fromkeys(
        [
            ("issuer/client/README.md", "what it does"),
            ("issuer/client/README.md", "who must act"),
            ("deploy/HOST.md", "what it does"),
            ("deploy/README.md", "what it is"),
            ("policies/REFERENCE.md", "who is informed"),
        ],
        "the head of a column",
    ),
    ("policies/REFERENCE.md", "What a folder that does not load removes"): "a heading that other pages link to",
    ("tests/page/test_log_page.py", "Nothing was added"): "a text of the log's page",
    ("tests/policy/authoring/test_load.py", "what is tested is something else"): "a value in a policy file",
    ("tests/service/authn/test_secrets.py", "what the store was sent"): "the name of a place in a dictionary",
    **dict.fromkeys(
        [("tests/situations/table.py", title) for title in ("Nothing changes", "Nothing to verify", "Nothing is set")],
        "the title of a situation, stored in tests/situations/expected",
    ),
    **dict.fromkeys(
        [
            (f"tests/{name}.py", "what it had left to run did not run")
            for name in ("support/side_by_side", "test_side_by_side")
        ],
        "the report of a process that died",
    ),
}


def files() -> Iterator[Path]:
    """Yield every file with prose in the scope of this test."""
    yield from (ROOT / name for name in PAGES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            suffixes = {".py", ".md"} if folder == "tests" else COMMENT
            left_out = {"runs", "vectors"} & {*path.parts} or any(path.is_relative_to(ROOT / left) for left in LEFT_OUT)
            if path.suffix in suffixes and path.is_file() and not left_out:
                yield path


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the prose of a file: of a page its paragraphs outside of code, of code its comments and texts."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix == ".md":
        yield from _of_page(lines)
        return
    yield from _comments(lines, COMMENT[path.suffix])
    if path.suffix == ".py":
        for match in TEXT.finditer("\n".join(lines)):
            yield from (match[1] or match[2]).split("\n\n")


def _of_page(lines: list[str]) -> Iterator[str]:
    fenced, paragraph = False, list[str]()
    for line in [*lines, ""]:
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and line.strip() and not line.startswith(("|", "#")) and not re.match(r"\s*[-*0-9]", line):
            paragraph.append(line.strip())
        else:
            yield " ".join(paragraph)
            paragraph = []
            if not fenced:
                yield from line.split("|") if line.startswith("|") else [line.lstrip("#-*0123456789. ")]


def _comments(lines: list[str], mark: str) -> Iterator[str]:
    found, pattern = list[str](), re.compile(rf"(^|.*\s){re.escape(mark)}+\s(.*)")
    for line in [*lines, ""]:
        match = pattern.fullmatch(line.rstrip()) if mark in line else None
        if found and (match is None or match[1].strip()):
            yield " ".join(found)
            found = []
        if match is not None:
            found.append(match[2])
    yield " ".join(found)


def plain(paragraph: str) -> str:
    """Return a paragraph without code, links, and questions, in which `what is` is right."""
    text = re.sub(r"`[^`]*`", "x", paragraph)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "", text)
    return re.sub(r"[^.?!;]*\?", "", " ".join(text.split()))


def odd_places(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each odd place of a file: the words around it, and the construction."""
    in_tests = path.is_relative_to(ROOT / "tests")
    for paragraph in filter(HINTS.search, paragraphs(path)):
        text = plain(paragraph)
        for name, pattern in COMPILED.items():
            if in_tests and name == "nobody, nothing as the subject" and is_label(text):
                continue
            for match in pattern.finditer(text):
                yield text[max(0, match.start() - 60) : match.end() + 60], name


def is_label(text: str) -> bool:
    """Return whether a text is the name of a case or a value, such as `nothing revoked`, and not a sentence."""
    return text[:1].islower() and len(text.split()) < 4


# A docstring, or a text of one line that has a space. Neither a parser nor a tokenizer: either takes several seconds.
TEXT = re.compile(r'"""(.+?)"""|"([^"\n]* [^"\n]*)"', re.DOTALL)
# Every construction has one of these words; most paragraphs have none.
HINTS = re.compile(
    r"[Ww]h(?:o|at)|[Nn]o(?:ne|thing|body)?\b|\bto be had|\bst(?:an|oo)d|\bl(?:ies?|ay)\b|\bown\b|\bours|\btheirs|\btold\b"
    r"|\btells of|\bweighed|\bback\b|\bbut\b"
)
COMPILED = {name: re.compile(pattern) for name, (pattern, _) in CONSTRUCTIONS.items()}


def test_prose_has_no_construction_that_is_read_twice() -> None:
    odd, used = list[str](), set[tuple[str, str]]()
    for path in files():
        name = str(path.relative_to(ROOT))
        for text, construction in odd_places(path):
            kept = {(file, part) for file, part in EXCEPTIONS if file == name and part in text}
            used |= kept
            if not kept:
                odd.append(f"{name}: {construction} (write {CONSTRUCTIONS[construction][1]}): ...{text}...")
    assert not odd, "\n".join(odd)
    assert not EXCEPTIONS.keys() - used, "these exceptions match no place any more"
    assert len(EXCEPTIONS) <= 60


def test_the_patterns_find_their_constructions() -> None:
    examples = {
        "Who asks is a stranger.": "a clause as the subject", "A file for who runs it.": "a clause as the subject",
        "Nothing is kept.": "nobody, nothing as the subject", "A name that is none.": "is none, is nothing",
        "A key that is no key.": "is no ...", "The file lies beside it.": "stands, lies",
        "It has a thread of its own.": "of its own",
    }  # fmt: skip
    assert [text for text, name in examples.items() if not COMPILED[name].search(plain(text))] == []
