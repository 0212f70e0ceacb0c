"""The files of expected texts."""

import re
from pathlib import Path

from tests.situations.steps import Situation, normal
from tests.support.in_process import Done

EXPECTED = Path(__file__).parent / "expected"
_TITLE = re.compile(r"^## (.*)\n\n", re.MULTILINE)


def describe(situation: Situation, done: Done) -> str:
    """Return the command, its output and its exit code as one text: `! ` is before a line of standard error."""
    # A service also has a log stream there.
    errors = [line for line in done.err.splitlines() if not line.startswith('{"')]
    output = [*(f"  {line}" for line in done.out.splitlines()), *(f"! {line}" for line in errors)]
    lines = [f"$ issuer {situation.command}", *output, f"exit {done.code}"]
    return "\n".join(normal(line).rstrip() for line in lines) + "\n"


def read(area: str) -> dict[str, str]:
    path = EXPECTED / f"{area}.txt"
    parts = _TITLE.split(path.read_text("utf-8"))[1:] if path.exists() else []
    return {title: text.rstrip("\n") + "\n" for title, text in zip(parts[::2], parts[1::2], strict=True)}


def write(area: str, texts: dict[str, str]) -> None:
    EXPECTED.mkdir(exist_ok=True)
    body = "\n".join(f"## {title}\n\n{text}" for title, text in texts.items())
    (EXPECTED / f"{area}.txt").write_text(body, "utf-8")
