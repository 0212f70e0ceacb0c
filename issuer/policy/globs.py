"""Globs: patterns in which only `*` is special, matched against whole values. Pure.

In a grant or a requirement `*` does not cross `/`, `@` or `:`, so that `org/*` does not match `org/a/b`, nor `main*`
`main@evil`. In `deny` it is any text, in any case: no character is a way around.

fnmatch and wcmatch were weighed: both give `?` and `[` a meaning, fnmatch's `*` crosses every separator, and neither
promises linear time on a caller's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

# Without control characters and Unicode's line breaks: no `*` matches what a log or a file shows as the end of a line.
_STAR = r"[^/@:\x00-\x1f\x7f-\x9f\u2028\u2029]*"
_ANYTHING = r"[\s\S]*"


class Globs:
    """A list of globs of a policy, compiled once."""

    __slots__ = ("_exact", "_patterns")

    def __init__(self, globs: Iterable[str], star: str = _STAR) -> None:
        globs = tuple(globs)
        self._exact = frozenset(glob for glob in globs if "*" not in glob)
        self._patterns = tuple(_compile(glob, star) for glob in globs if "*" in glob)

    def match(self, value: str) -> bool:
        """Say whether a whole value matches one of them."""
        if value in self._exact:
            return True
        for pattern in self._patterns:  # noqa: SIM110  (`any` costs as much again as the match)
            if pattern.fullmatch(value):
                return True
        return False


class DeniedGlobs:
    """A list of globs of `deny`, compiled once. Case is ignored: the Hub finds a repository in any case, so another
    spelling must not be a way around."""

    __slots__ = ("_globs",)

    def __init__(self, globs: Iterable[str]) -> None:
        self._globs = Globs((glob.lower() for glob in globs), _ANYTHING)

    def match(self, value: str) -> bool:
        """Say whether a whole value matches one of them."""
        return self._globs.match(value.lower())


def glob_matches(pattern: str, value: str) -> bool:
    """Match a whole value against one glob."""
    return pattern == value if "*" not in pattern else _compile(pattern, _STAR).fullmatch(value) is not None


# Patterns come from policies, never from callers, and many policies share some: `*`, `*/*`.
@lru_cache(maxsize=65_536)
def _compile(pattern: str, star: str) -> re.Pattern[str]:
    # Atomic groups: each part between two stars takes the first place that fits and keeps it. A glob needs no second
    # try, and second tries let a caller's long value stall the service (128 `_` against `*_*_*_*_*_*x`: a minute).
    first, *parts = (re.escape(part) for part in pattern.split("*"))
    between = "".join(f"(?>{star}?{part})" for part in parts[:-1])
    return re.compile(first + between + (star + parts[-1] if parts else ""))
