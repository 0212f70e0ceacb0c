"""Secrets that were left in a command (contract section 2). Pure.

A heuristic of two rules, precise rather than complete: known token shapes with their length, and long values under a
name that ends in token, key, secret or password. Says which rule, never the text that it found.
"""

from __future__ import annotations

import re

_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      hf_[A-Za-z0-9]{20,}                          # Hugging Face
    | sk-[A-Za-z0-9_-]{20,}                        # OpenAI, Anthropic, OpenRouter ...
    | gh[oprsu]_[A-Za-z0-9]{36,}                   # GitHub
    | github_pat_[A-Za-z0-9_]{22,}
    | glpat-[A-Za-z0-9_-]{20,}                     # GitLab
    | xox[abprs]-[A-Za-z0-9-]{10,}                 # Slack
    | (?:AKIA|ASIA)[A-Z0-9]{16}                    # AWS
    | AIza[A-Za-z0-9_-]{35}                        # Google
    | evi_pat_[A-Za-z0-9_-]{16,}                   # ours (pat.py), cut short as well; an id alone is public
    | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}   # a JWT
    | -----BEGIN\x20[A-Z ]*PRIVATE\x20KEY-----
    )""",
    re.VERBOSE,
)
_NAMED = re.compile(
    r"""(?: (?i:token|key|secret|password)["']?\s*[=:]\s*                        # HF_TOKEN=..., "apiKey": ...
          | (?<!\S)--?[A-Za-z0-9_.-]{0,64}?(?i:token|key|secret|password)\s+    # --api-key ...
        )["']?(?P<value>[^\s"',;&]{16,})""",
    re.VERBOSE,
)
# What both ways to name a value have in common, in case-folded text: this search takes a tenth of the time.
_NAME_ENDS = re.compile(r"""(?:token|key|secret|password)["'\s=:]""")
_HARMLESS = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?|--?[A-Za-z].*|(?i:true|false)")
# A run of a token's characters (RFC 6750 2.1).
_WORD = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
# Shorter or without a digit, it may be an option or a path that people need to see.
_GUESSED_CHARS = 32
HIDDEN = "[not shown: it may be a secret]"
_BEARER = re.compile(r"(?i:authorization)[\"']?\s*:\s*(?i:bearer|basic)\s+(?!\$)[^\s\"']{8,}")


def secret_in(command: str) -> str | None:
    """Return the kind of secret that the command seems to hold, for people, or None."""
    if _SHAPES.search(command):
        return "text of the shape of an access token or private key"
    if _BEARER.search(command):
        return "an Authorization header with its credential"
    if not _NAME_ENDS.search(command.casefold()):
        return None
    for match in _NAMED.finditer(command):
        if not _HARMLESS.fullmatch(match["value"]):
            return "a long value under a name that ends in token, key, secret or password"
    return None


def without_secrets(text: str, *, guess: bool = False) -> str:
    """Return a text for people, with each word of a known token's shape replaced.

    With `guess`, so is each word of 32 or more characters with a digit: it may be a token of an unknown shape.
    """

    def shown(match: re.Match[str]) -> str:
        word = match[0]
        guessed = guess and len(word) >= _GUESSED_CHARS and any(map(str.isdigit, word))
        return HIDDEN if guessed or _SHAPES.search(word) else word

    return _WORD.sub(shown, text)
