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

# What no `*` matches: separators; control characters and Unicode's line breaks, which a log or a file shows as the end
# of a line.
_BARRIER = re.compile(r"[/@:\x00-\x1f\x7f-\x9f\u2028\u2029]").search
# Longer lists are worth being taken apart, and kept so.
_LONG = 16


class Globs:
    """A list of globs of a policy, taken apart once."""

    __slots__ = ("_exact", "_patterns")

    def __init__(self, globs: Iterable[str]) -> None:
        globs = tuple(globs)
        self._exact = frozenset([glob for glob in globs if "*" not in glob])
        self._patterns = [_split(glob) for glob in globs if "*" in glob]

    def match(self, value: str) -> bool:
        """Say whether a whole value matches one of them."""
        if value in self._exact:
            return True
        for parts in self._patterns:  # noqa: SIM110  (`any` costs as much again as the match)
            if value.startswith(parts[0]) and _fits(parts, value, crosses=False):
                return True
        return False


def matches_one(globs: tuple[str, ...], value: str) -> bool:
    """Say whether a whole value matches one of a list of globs, as it stands in a policy.

    Nothing is kept of a short list as such: of ten thousand policies that would fill the memory.
    """
    if len(globs) > _LONG:
        return _taken_apart(globs).match(value)
    if value in globs:
        return True
    for glob in globs:
        parts = _parts(glob)
        if value.startswith(parts[0]) and _fits(parts, value, crosses=False):
            return True
    return False


def denies(globs: tuple[str, ...], value: str) -> bool:
    """Say whether a whole value matches one of a list of `deny`. Case is ignored: the Hub finds a repository in any
    case, so another spelling must not be a way around."""
    value = value.lower()
    return any([_fits(_parts(glob.lower()), value, crosses=True) for glob in globs])  # noqa: C419 (a list is faster here)


def glob_matches(pattern: str, value: str) -> bool:
    """Match a whole value against one glob."""
    return _fits(_parts(pattern), value, crosses=False)


def _split(glob: str) -> list[str]:
    return glob.split("*")


# Globs come from policies, never from callers; those that come often are taken apart once.
_parts = lru_cache(maxsize=1024)(_split)
_taken_apart = lru_cache(maxsize=256)(Globs)


def _fits(parts: list[str], value: str, *, crosses: bool) -> bool:
    """Match a whole value against what stands around the stars; `crosses` says whether these match separators, too.

    Each part takes the first place where it stands and keeps it. A glob needs no second try, and second tries let a
    caller's long value stall the service (128 `_` against `*_*_*_*_*_*x`: a minute).
    """
    first, last = parts[0], parts[-1]
    at, end = len(first), len(value) - len(last)
    if len(parts) == 1:
        return value == first
    if end < at or not value.startswith(first) or not value.endswith(last):
        return False
    for part in parts[1:-1]:
        found = value.find(part, at, end)
        if found < 0 or not (crosses or _BARRIER(value, at, found) is None):
            return False
        at = found + len(part)
    return crosses or _BARRIER(value, at, end) is None
