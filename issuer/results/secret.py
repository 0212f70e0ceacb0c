"""A search for secrets and local paths that somebody left in a command, or in other text of a result (contract section
2). Pure.

It has two rules, which prefer precision to completeness: text with the shape and length of a known token, and a long
value under a name that ends in token, key, secret or password. It returns the rule, never the text. Every search takes
linear time: no pattern starts at several places in one run of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from issuer.codes import Code
from issuer.errors import Fault
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, pointer_to

_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9])(?:
      hf_[A-Za-z0-9]{20,}                          # Hugging Face
    | sk-(?:(?:ant|or|proj|admin|svcacct)-[A-Za-z0-9_-]{16}|[A-Za-z0-9]{20})  # Anthropic, OpenRouter, OpenAI ...
    | gh[oprsu]_[A-Za-z0-9]{36,}                   # GitHub
    | github_pat_[A-Za-z0-9_]{22,}
    | glpat-[A-Za-z0-9_-]{20,}                     # GitLab
    | xox[abprs]-[A-Za-z0-9-]{10,}                 # Slack
    | (?:AKIA|ASIA)[A-Z0-9]{16}                    # AWS
    | AIza[A-Za-z0-9_-]{35}                        # Google
    | evi_pat_[A-Za-z0-9_-]{16,}                   # ours, also if it is cut short; the id is public
    | (?<![_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}  # a JWT
    | -----BEGIN\x20[A-Z ]*PRIVATE\x20KEY-----
    )""",
    re.VERBOSE,
)
# Text that every token shape contains, and, in case-folded text, every name of a secret. Searching these first takes a
# tenth of the time. One search after the other is faster than one expression for all of them.
_HINTS = (
    "hf_", "sk-", "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "AIza",
    "evi_pat_", "eyJ", "-----BEGIN",
)  # fmt: skip
_NAMES = ("token", "key", "secret", "password", "authorization")
_NAMED = re.compile(
    r"""(?: (?i:token|key|secret|password)["']?\s*[=:]\s*                        # HF_TOKEN=..., "apiKey": ...
          | (?<!\S)--?[A-Za-z0-9_.-]{0,64}?(?i:token|key|secret|password)\s+    # --api-key ...
        )["']?(?P<value>[^\s"',;&]{16,})""",
    re.VERBOSE,
)
# The end of a name and the sign after it, in case-folded text. In JSON, that sign may be a backslash.
_NAME_ENDS = re.compile(r"""(?:token|key|secret|password|authorization)["'\s=:\\]""")
_HARMLESS = re.compile(
    r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?|--?[A-Za-z].*|(?i:true|false)"
    r"|<[^<>]*>"  # a tokenizer's special token, such as <|end_of_text|>
)
# Long values of members with these names are secrets. `key` is not among them: it may be the key of a table or a cache.
_SECRET_NAME = re.compile(r"(?i)(?:token|secret|password|(?:api|access|private|secret|auth)[_-]?key)$")
# A run of characters that a token may have (RFC 6750 2.1).
_WORD = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
# A shorter word, or one without a digit, may be an option or a path that people need to see.
_GUESSED_CHARS = 32
HIDDEN = "[not shown: it may be a secret]"
# A path on somebody's machine, which begins a text or follows punctuation. `https://host/path` has none.
_LOCAL_PATH = re.compile(
    r"""(?: (?<![^\s"'`=,;:|(\[{<])(?:~?/|\.{1,2}[/\\]|\\\\)[\w.~]   # /data, ~/data, ./data, ../data, \\host
          | (?<![^\s"'`=,;:|(\[{<])[\w-]+/(?:~?|\.{1,2})/[\w.~]  # behind a provider's name: hf//data, hf/./data
          | (?<![A-Za-z0-9])(?:[A-Za-z]:[/\\]|(?i:file):)[^\s]   # C:\data, file:data
        )[^\s"'`,;|)\]}>]*""",
    re.VERBOSE,
)
_BEARER = re.compile(r"(?i:authorization)[\"']?\s*:\s*(?i:bearer|basic)\s+(?!\$)[^\s\"']{8,}")


def find_secrets(value: object, pointer: str = "") -> Iterator[Fault]:
    """Yield a fault (`claims.secret`) for each value or name that seems to contain a secret, with pointers below
    `pointer`. `value` is JSON, or Structs that can be written as JSON."""
    if not _may_contain(msgspec.json.encode(value).decode()):
        return iter(())
    return _find(msgspec.to_builtins(value), pointer)


def _may_contain(written: str) -> bool:
    """Say whether any text or name in this JSON can contain a secret. Hardly any JSON can, and checking each text takes
    five times as long. The hints have no characters that JSON escapes, and none spans two texts."""
    if not written.isascii():
        return True  # a Kelvin sign case-folds to k
    return _has_hint(written) or _ends_name(written.lower())


def _has_hint(text: str) -> bool:
    return any(map(text.__contains__, _HINTS))


def _ends_name(folded: str) -> bool:
    return any(map(folded.__contains__, _NAMES)) and _NAME_ENDS.search(folded) is not None


def _find(value: JSON, pointer: str) -> Iterator[Fault]:
    if isinstance(value, str):
        yield from _fault_in(value, pointer)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            if fault := next(_fault_in(name, pointer), None):
                yield fault  # at the map, and without the faults in the member: their pointers would have the name
            elif isinstance(member, str) and _SECRET_NAME.search(name):
                yield from _fault_in(f"{name}={member}", pointer_to(pointer, name))
            elif isinstance(member, str | Sequence | Mapping):
                yield from _find(member, pointer_to(pointer, name))
    elif isinstance(value, Sequence):
        for index, item in enumerate(value):
            yield from _find(item, f"{pointer}/{index}")


def _fault_in(text: str, pointer: str) -> Iterator[Fault]:
    if secret := secret_in(text):
        yield Fault(Code.CLAIMS_SECRET, pointer, f"this text seems to contain {secret}")


_SHORTEST = 15  # characters of the shortest text that a rule matches


def secret_in(command: str) -> str | None:
    """Return the kind of secret that a command or other text seems to contain, as text for people. None without one."""
    if len(command) < _SHORTEST:
        return None
    if _has_hint(command) and _SHAPES.search(command):
        return "text of the shape of an access token or private key"
    if _BEARER.search(command):
        return "an Authorization header with its credential"
    if not _ends_name(command.casefold()):
        return None
    for match in _NAMED.finditer(command):
        if not _HARMLESS.fullmatch(match["value"]):
            return "a long value under a name that ends in token, key, secret or password"
    return None


def without_secrets(text: str, *, guess: bool = False) -> str:
    """Replace each word with the shape of a known token by a note. With `guess`, also replace each word of 32 or more
    characters with a digit, because it may be an unknown kind of token."""

    def replacement(match: re.Match[str]) -> str:
        word = match[0]
        guessed = guess and len(word) >= _GUESSED_CHARS and any(map(str.isdigit, word))
        return HIDDEN if guessed or _SHAPES.search(word) else word

    return _WORD.sub(replacement, text)


def has_local_path(text: str) -> bool:
    """Say whether a text has a path on somebody's machine."""
    return _LOCAL_PATH.search(text) is not None


def without_paths(text: str) -> str:
    """Return a sentence or a command with the digest of each local path in its place."""
    return _LOCAL_PATH.sub(lambda found: jcs.digest(found[0]), text)


def without_local(value: JSON) -> JSON:
    """Return a value with the digest of each text that has a local path in its place."""
    if isinstance(value, Mapping):
        return {name: without_local(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_local(item) for item in value]
    return jcs.digest(value) if isinstance(value, str) and has_local_path(value) else value
