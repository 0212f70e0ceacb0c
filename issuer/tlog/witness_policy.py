"""Reads the file that names the trusted logs and witnesses and their quorum (c2sp.org/tlog-policy). Pure.

Refuses what cannot be verified here: a key that is skipped would be a lower quorum than the author of the file asked
for. What a policy then says of a checkpoint is in `quorum.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place
from issuer.tlog.quorum import MAX_AHEAD_S, NO_QUORUM, Group, LogKey, Witnessed, WitnessKey, WitnessPolicy
from issuer.tlog.vkey import Kind, Verifier, parse_vkey, verifiable_kinds

__all__ = ["MAX_AHEAD_S", "Group", "LogKey", "WitnessKey", "WitnessPolicy", "Witnessed", "parse_policy"]

MAX_POLICY_BYTES = 256 * 1024
MAX_EACH = 32  # logs, witnesses and groups: what every reader of the format is asked to take
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPACE = re.compile(r"[ \t]+")
_THRESHOLD = re.compile(r"[1-9][0-9]?")
LOG_KINDS = frozenset({Kind.ED25519, Kind.COSIGNATURE_ML_DSA_44})
WITNESS_KINDS = frozenset({Kind.COSIGNATURE, Kind.COSIGNATURE_ML_DSA_44})


def parse_policy(raw: bytes, name: str, kinds: Collection[Kind] | None = None) -> WitnessPolicy:
    """Read a policy file; `name` is the file's for people, `kinds` the key types that can be verified here.

    Raises InputError(`log.policy`) with the line.
    """
    reader = _Reader(verifiable_kinds() if kinds is None else kinds)
    line = 0
    try:
        for line, text in enumerate(_lines(raw), 1):  # noqa: B007  (an error names the line where it was met)
            reader.read(text)
        line = 0
        return reader.policy()
    except FormatError as error:
        raise InputError(Code.LOG_POLICY, error.detail, Place(name, line, 1 if line else 0)) from None


def _lines(raw: bytes) -> list[str]:
    """Return the lines. Octets beyond ASCII are opaque: those that are no UTF-8 are kept as lone surrogates."""
    if len(raw) > MAX_POLICY_BYTES:
        raise _fault(f"the policy has over {MAX_POLICY_BYTES} bytes")
    *lines, rest = raw.decode(errors="surrogateescape").split("\n")
    if rest or not lines:  # "quorum a" may be what is left of "quorum all-of-them"
        raise _fault("the last line does not end in a newline; the file may have been cut short")
    return lines


class _Reader:
    """What the lines so far have defined. A line can refer only to lines before it, so no group contains itself."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self._kinds = kinds
        self._logs: list[LogKey] = []
        self._witnesses: list[WitnessKey] = []
        self._groups: list[Group] = []
        self._quorum = ""

    def read(self, line: str) -> None:
        """Read one line. Raises FormatError."""
        if _CONTROL.search(line):
            raise _fault("a control character other than tab and newline; line ends are LF, not CRLF")
        word, *rest = _SPACE.split(line.strip(" \t"))
        if not word or word.startswith("#"):
            return
        match word, rest:
            case "log", [vkey, *url] if len(url) <= 1:
                self._log(vkey, "".join(url))
            case "witness", [name, vkey, *url] if len(url) <= 1:
                self._witness(name, vkey, "".join(url))
            case "group", [name, threshold, *members] if members:
                self._group(name, threshold, members)
            case "quorum", [name]:
                self._decide(name)
            case _:
                raise _fault(
                    "a line is `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K NAME...`, "
                    "`quorum NAME`, or a comment with #"
                )

    def policy(self) -> WitnessPolicy:
        """Return the whole. Raises FormatError."""
        if not self._quorum:
            raise _fault("the policy has no `quorum` line; one that asks for no witness says `quorum none`")
        return WitnessPolicy(tuple(self._logs), tuple(self._witnesses), tuple(self._groups), self._quorum)

    def _log(self, vkey: str, url: str) -> None:
        verifier = self._key(vkey, LOG_KINDS, [log.verifier for log in self._logs])
        self._logs.append(LogKey(verifier, _url(url)))

    def _witness(self, name: str, vkey: str, url: str) -> None:
        self._define(name)
        verifier = self._key(vkey, WITNESS_KINDS, [witness.verifier for witness in self._witnesses])
        self._witnesses.append(WitnessKey(name, verifier, _url(url)))

    def _group(self, name: str, word: str, members: list[str]) -> None:
        self._define(name)
        if len(self._groups) == MAX_EACH:
            raise _fault(f"the policy has over {MAX_EACH} groups")
        for member in members:
            self._must_be_known(member)
        taken = [member for group in self._groups for member in group.members] + members
        if len(set(taken)) < len(taken):
            raise _fault("a witness or group is a member once, in one group: else it would count twice")
        self._groups.append(Group(name, _threshold(word, len(members)), tuple(members)))

    def _decide(self, name: str) -> None:
        if self._quorum:
            raise _fault("a policy has one `quorum` line")
        if name != NO_QUORUM:
            self._must_be_known(name)
        self._quorum = name

    def _define(self, name: str) -> None:
        if name == NO_QUORUM:
            raise _fault(f"`{NO_QUORUM}` is no name for a witness or a group: it means that none is asked for")
        if name in self._names():
            raise _fault(f"`{_shown(name)}` is defined twice")

    def _must_be_known(self, name: str) -> None:
        if name not in self._names():
            raise _fault(f"`{_shown(name)}` is no witness or group of a line before this one")

    def _names(self) -> set[str]:
        return {witness.name for witness in self._witnesses} | {group.name for group in self._groups}

    def _key(self, text: str, fit: Collection[Kind], others: list[Verifier]) -> Verifier:
        verifier = parse_vkey(text)
        if verifier.kind not in fit:
            raise _fault(f"a key of type 0x{verifier.kind:02x} does not belong on this line")
        if verifier.kind not in self._kinds:
            raise _fault("this installation cannot verify ML-DSA-44; install a later version of `cryptography`")
        if len(others) == MAX_EACH:
            raise _fault(f"the policy has over {MAX_EACH} logs, or as many witnesses")
        if any(verifier.public_key == other.public_key for other in others):
            raise _fault("this public key is on a line before: one key under two names would count twice")
        if (verifier.name, verifier.key_id) in self._key_ids():
            raise _fault(
                "a key of a line before has this name and this key id: their signatures could not be told apart"
            )
        return verifier

    def _key_ids(self) -> set[tuple[str, bytes]]:
        keys = [*(log.verifier for log in self._logs), *(witness.verifier for witness in self._witnesses)]
        return {(key.name, key.key_id) for key in keys}


def _threshold(word: str, count: int) -> int:
    if word in {"all", "any"}:
        return count if word == "all" else 1
    if not _THRESHOLD.fullmatch(word) or int(word) > count:
        raise _fault(f"the threshold of a group is `all`, `any`, or a decimal number from 1 to its members: {count}")
    return int(word)


def _url(text: str) -> str:
    if not text.isprintable():  # also octets that are no UTF-8
        raise _fault("the URL has characters that no URL has")
    return text


def _shown(name: str) -> str:
    """Show a name whose octets may be no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _fault(detail: str) -> FormatError:
    return FormatError(Code.LOG_POLICY, detail)
