"""The globs and regular expressions of policies, matched against whole values. Pure.

In a glob only `*` is special. In a grant or a requirement it does not match `/`, `@` or `:`, so `org/*` does not match
`org/a/b`, and `main*` does not match `main@evil`. In `deny` it matches any text in any case, so no character evades it.

We considered fnmatch and wcmatch. Both give `?` and `[` a meaning, fnmatch's `*` crosses every separator, and neither
promises linear time on a caller's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2

# Characters that no `*` matches: separators, and control characters and Unicode's line breaks, which a log or a file
# shows as the end of a line.
_BARRIER = re.compile(r"[/@:\x00-\x1f\x7f-\x9f\u2028\u2029]").search
# Longer lists are split once and cached.
_LONG = 16


class Globs:
    """A policy's list of globs, split once."""

    __slots__ = ("_exact", "_patterns")

    def __init__(self, globs: Iterable[str]) -> None:
        globs = tuple(globs)
        self._exact = frozenset([glob for glob in globs if "*" not in glob])
        self._patterns = [glob.split("*") for glob in globs if "*" in glob]

    def match(self, value: str) -> bool:
        """Return whether a whole value matches one of the globs."""
        if value in self._exact:
            return True
        for parts in self._patterns:  # noqa: SIM110  (`any` doubles the cost)
            if value.startswith(parts[0]) and _fits(parts, value, crosses=False):
                return True
        return False


def matches_one(globs: tuple[str, ...], value: str) -> bool:
    """Return whether a whole value matches one of a policy's globs.

    Short lists are not cached: the lists of ten thousand policies would fill the memory.
    """
    if len(globs) > _LONG:
        return _cached_globs(globs).match(value)
    if value in globs:
        return True
    for glob in globs:
        parts = _parts(glob)
        if value.startswith(parts[0]) and _fits(parts, value, crosses=False):
            return True
    return False


def denies(globs: tuple[str, ...], value: str) -> bool:
    """Return whether a whole value matches one of the globs of `deny`.

    Case is ignored: the Hub finds a repository in any case, so another spelling must not evade the list.
    """
    value = value.lower()
    return any([_fits(_parts(glob.lower()), value, crosses=True) for glob in globs])  # noqa: C419 (a list is faster here)


def glob_matches(pattern: str, value: str) -> bool:
    """Return whether a whole value matches one glob."""
    return _fits(_parts(pattern), value, crosses=False)


# Globs come from policies, never from callers. Frequent ones are split once.
@lru_cache(maxsize=1024)
def _parts(glob: str) -> list[str]:
    return glob.split("*")


_cached_globs = lru_cache(maxsize=256)(Globs)


def _fits(parts: list[str], value: str, *, crosses: bool) -> bool:
    """Match a whole value against the parts of a glob between its stars; `crosses` lets stars match separators.

    Each part takes the first place where it occurs and keeps it. A glob needs no backtracking, and backtracking would
    let a caller's long value stall the service (128 `_` against `*_*_*_*_*_*x`: a minute).
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


# -- regular expressions -----------------------------------------------------------------------------------------------

# We use RE2, which matches in time linear in the value. We considered `re`: it backtracks, and never finishes `(a|a)*b`
# on 256 characters, which a caller may send. A timeout, as the `regex` package has, would refuse honest callers on a
# busy machine. RE2 does not backtrack, so no operator's expression and no caller's value can stall the service. Flags
# are refused: case folding goes beyond ASCII (it takes the Kelvin sign for a `k`), and an exact policy needs none.

MAX_PATTERN = 256
MAX_VALUE = 256
MAX_MEMORY = 1024 * 1024  # bytes of one compiled expression

_FLAGS = re.compile(r"\(\?(?!:)")
# Control characters and line breaks, which the star of a glob does not match either, and lone surrogates.
_BROKEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def find_fault(pattern: str) -> str:
    """Return what is wrong with an expression, "" if it is sound."""
    if len(pattern) > MAX_PATTERN:
        return f"longer than {MAX_PATTERN} characters"
    if not pattern.isascii() or not pattern.isprintable():
        return "use printable ASCII only: other letters can look the same"
    if _FLAGS.search(pattern):
        return "only `:` may follow `(?`: no flags, no look-around, no named groups"
    try:
        _compile(pattern)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        return f"not a regular expression of RE2: {why.decode('utf-8', 'replace') if isinstance(why, bytes) else why}"
    return ""


def matches(pattern: str, value: str) -> bool:
    """Return whether a sound expression matches a whole value: at most 256 characters, no control characters."""
    # fullmatch, not ^...$: "a|b" must not mean "starts with a, or ends with b".
    return len(value) <= MAX_VALUE and not _BROKEN.search(value) and _compile(pattern).fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # `find_fault` returns them; RE2 would print them
    options.max_mem = MAX_MEMORY
    return re2.compile(pattern, options)
