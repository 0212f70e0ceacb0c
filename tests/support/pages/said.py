"""The comparison of a command's output with the page.

A line `...` matches any lines, `...` within a line any text, and two blanks or more match two or more: columns have the width
of their content. Times, ports and random names differ each time: the first output of a random name is learnt, and replaces
the page's name from then on, in commands too.
"""

import re
from collections.abc import Mapping

# Two times that are equal on a page may differ here, so they are not learnt.
_TIMES = {"iso": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)", "unix": r"(?<![\w.])1[789]\d{8}(?![\w.])"}
# A random name: its form in a page's text, and in any output.
_NAMES = {
    "port": (r"(?<=127\.0\.0\.1:)\d{4,5}", r"\d{4,5}"),
    "uuid": (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", r"[0-9a-f-]{36}"),
    "kid": (r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{43}(?![\w-])", r"[\w-]{43}"),
    "jti": (r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{22}(?![\w-])", r"[\w-]{22}"),
    "root": (r"(?<![:\w])[0-9a-f]{64}(?!\w)", r"[0-9a-f]{64}"),
    "pat": (r"(?<![\w-])(?=\w*\d)(?=\w*[A-Z])(?=\w*[a-z])[0-9A-Za-z]{12}(?![\w-])", r"[0-9A-Za-z]{12}"),
}
_SHOWN = {**_TIMES, **{kind: shown for kind, (shown, _) in _NAMES.items()}}
_PART = re.compile(
    "|".join([r"(?P<any>\.\.\.)", r"(?P<blanks> {2,})", *(f"(?P<{kind}>{form})" for kind, form in _SHOWN.items())])
)


class Names(dict[str, str]):
    """This machine's random names, by the page's names."""

    def put_in(self, text: str) -> str:
        """Replace the page's names in a command or a file."""
        for shown, here in self.items():
            text = text.replace(shown, here)
        return text


def matches(shown: str, printed: str, names: Names) -> bool:
    """Say whether the output matches the page, and learn its names."""
    pattern, groups = _pattern(shown, names)
    found = re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else f"{printed}\n")
    if found:
        names.update({name: found[group] for name, group in groups.items()})
    return bool(found)


def _pattern(shown: str, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the regular expression of a page's output, and the group of each unknown name."""
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
