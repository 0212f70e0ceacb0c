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
from typing import Any

import re2

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


# -- regex -------------------------------------------------------------------------------------------------------------

# Regular expressions for policies: RE2's language, matched as a whole, in time that grows with the value alone. Pure.
#
# `re` was weighed and backtracks: it never finishes `(a|a)*b` on 256 characters, which a caller may send; a timeout, as
# the `regex` package has, would refuse honest callers on a busy machine. RE2 does not backtrack, so no expression of an
# operator and no value of a caller can stall the service. Flags are refused: case folding is wider than ASCII (it takes
# the Kelvin sign for a `k`), and an exact policy needs none.

MAX_PATTERN = 256
MAX_VALUE = 256
MAX_MEMORY = 1024 * 1024  # bytes of one compiled expression

_FLAGS = re.compile(r"\(\?(?!:)")
# What a log or a file shows as the end of a line (the star of a glob does not match it either), and lone surrogates.
_BROKEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def find_fault(pattern: str) -> str:
    """Return what is wrong with an expression, "" if it is sound."""
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    if not pattern.isascii() or not pattern.isprintable():
        return "printable ASCII only: other letters look like it"
    if _FLAGS.search(pattern):
        return "`(?` may be followed by `:` alone: no flags, no look-around, no named groups"
    try:
        _compile(pattern)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        return f"not a regular expression of RE2: {why.decode('utf-8', 'replace') if isinstance(why, bytes) else why}"
    return ""


def matches(pattern: str, value: str) -> bool:
    """Match a whole value, of at most 256 characters and without control characters, against a sound expression."""
    # fullmatch, not ^...$: "a|b" must not come to mean "starts with a, or ends with b".
    return len(value) <= MAX_VALUE and not _BROKEN.search(value) and _compile(pattern).fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # faults are returned; nothing here writes to standard error
    options.max_mem = MAX_MEMORY
    return re2.compile(pattern, options)
