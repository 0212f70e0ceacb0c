"""Whether a command printed what a page shows.

A line `...` stands for any lines, `...` within one for any text; two blanks or more for two or more, because columns are as
wide as they must be. Times, ports and random names differ each time: a random name of the page is learnt where it is first
printed, and stands for that one from then on, in commands too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Two times that are equal on a page may differ here, so they are not learnt.
_TIMES = {
    "iso": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
    "unix": r"(?<![\w.])1[789]\d{8}(?![\w.])",
}
# A random name: how one is told in a page's text, and any one.
_NAMES = {
    "port": (r"(?<=127\.0\.0\.1:)\d{4,5}", r"\d{4,5}"),
    "uuid": (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"[0-9a-f-]{36}"),
    "kid": (r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{43}(?![\w-])", r"[\w-]{43}"),
    "jti": (r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])", r"[\w-]{22}"),
    "root": (r"(?<![:\w])[0-9a-f]{64}(?!\w)", r"[0-9a-f]{64}"),
    "pat": (r"(?<![\w-])(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[0-9A-Za-z]{12}(?![\w-])", r"[0-9A-Za-z]{12}"),
}
_TOLD = {**_TIMES, **{kind: told for kind, (told, _) in _NAMES.items()}}
_PART = re.compile(
    "|".join([r"(?P<any>\.\.\.)", r"(?P<blanks> {2,})", *(f"(?P<{kind}>{told})" for kind, told in _TOLD.items())])
)


class Names(dict[str, str]):
    """What the page's words for random names stand for here."""

    def put_in(self, text: str) -> str:
        """Replace the page's names in a command or a file."""
        for shown, here in self.items():
            text = text.replace(shown, here)
        return text


def matches(shown: str, printed: str, names: Names) -> bool:
    """Say whether the output is what the page shows, and learn its names."""
    pattern, groups = _pattern(shown, names)
    found = re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else f"{printed}\n")
    if found:
        names.update({name: found[group] for name, group in groups.items()})
    return bool(found)


def _pattern(shown: str, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Make the regular expression of what is shown, and the group of each name that is to be learnt."""
    groups: dict[str, str] = {}
    lines = []
    for line in shown.splitlines():
        if line == "...":
            lines.append(r"(?:.*\n)*?")
            continue
        parts, end = [], 0
        for part in _PART.finditer(line):
            parts += [re.escape(line[end : part.start()]), _part(part, names, groups)]
            end = part.end()
        lines.append("".join([*parts, re.escape(line[end:])]) + r"\n")
    return "".join(lines), groups


def _part(part: re.Match[str], names: Mapping[str, str], groups: dict[str, str]) -> str:
    kind, text = str(part.lastgroup), part[0]
    if kind == "any":
        return ".*"
    if kind == "blanks":
        return " {2,}"
    if kind in _TIMES:
        return _TIMES[kind]
    if text in names:
        return re.escape(names[text])
    if text in groups:
        return f"(?P={groups[text]})"
    groups[text] = f"{kind}_{len(groups)}"
    return f"(?P<{groups[text]}>{_NAMES[kind][1]})"
