"""Regular expressions for policies: RE2's language, matched as a whole, in time that grows with the value alone. Pure.

`re` was weighed and backtracks: it never finishes `(a|a)*b` on 256 characters, which a caller may send; a timeout, as
the `regex` package has, would refuse honest callers on a busy machine. RE2 does not backtrack, so no expression of an
operator and no value of a caller can stall the service. Flags are refused: case folding is wider than ASCII (it takes
the Kelvin sign for a `k`), and an exact policy needs none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

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
