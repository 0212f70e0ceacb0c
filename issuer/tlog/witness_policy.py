"""The trusted logs and witnesses, their quorum, and the file that names them (c2sp.org/tlog-policy). Pure.

Refuses what cannot be verified here: a key that is skipped would be a lower quorum than the author of the file asked
for. The clock is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place
from issuer.tlog.checkpoint import Checkpoint, parse_checkpoint
from issuer.tlog.note import Kind, Note, Verified, Verifier, parse_vkey, verifiable_kinds, verify_note

NO_QUORUM = "none"
MAX_AHEAD_S = 60  # how far a witness's clock may be ahead of ours


class LogKey(Struct, frozen=True):
    """A key of a log whose origin is the key's name. `url` is "" where the file has none."""

    verifier: Verifier
    url: str = ""


class WitnessKey(Struct, frozen=True):
    """A witness. `name` is the policy file's own word for it; its key has another name, that of its signature lines."""

    name: str
    verifier: Verifier
    url: str = ""


class Group(Struct, frozen=True):
    """A group has cosigned if at least `threshold` of its members have: witnesses, or groups before it in the file."""

    name: str
    threshold: int
    members: tuple[str, ...]


class Witnessed(Struct, frozen=True):
    """A checkpoint that a trusted log signed and the quorum cosigned, and its witnessed time in Unix seconds. None: the
    policy asks for no witness, so nothing here proves a time."""

    checkpoint: Checkpoint
    log: LogKey
    time: int | None


class WitnessPolicy(Struct, frozen=True):
    """Trusted logs and witnesses; `quorum` is the name of a witness or a group, or `none`."""

    logs: tuple[LogKey, ...]
    witnesses: tuple[WitnessKey, ...]
    groups: tuple[Group, ...]
    quorum: str

    @property
    def verifiers(self) -> tuple[Verifier, ...]:
        """Every key of the policy: the logs', then the witnesses'."""
        return (*(log.verifier for log in self.logs), *(witness.verifier for witness in self.witnesses))

    @property
    def asks_for_witnesses(self) -> bool:
        """Whether a checkpoint needs cosignatures, and so has a witnessed time."""
        return self.quorum != NO_QUORUM

    def met_by(self, cosigners: Iterable[Verifier]) -> bool:
        """Say whether these keys, whose cosignatures the caller has verified, are a quorum. Each counts once."""
        keys = set(cosigners)
        cosigned = {NO_QUORUM} | {witness.name for witness in self.witnesses if witness.verifier in keys}
        for group in self.groups:  # members come before their group, so one pass is enough
            if len(cosigned.intersection(group.members)) >= group.threshold:
                cosigned.add(group.name)
        return self.quorum in cosigned

    def check(self, note: Note, now: int) -> Witnessed:
        """Check a signed checkpoint at `now` (Unix seconds). Raises FormatError: `log.malformed` if the text is no
        checkpoint, `log.signature` if no log of the policy whose origin it names has signed it or any signature of a
        known key is bad, `log.quorum` if too few witnesses have cosigned it. A time of zero, or over a minute ahead of
        `now`, is no witness's."""
        checkpoint = parse_checkpoint(note.text)
        verified = verify_note(note, self.verifiers)
        signers = {found.verifier for found in verified}
        log = next(
            (log for log in self.logs if log.verifier in signers and log.verifier.name == checkpoint.origin), None
        )
        if not log:
            raise FormatError(Code.LOG_SIGNATURE, "the checkpoint is not signed by a log of the policy with its origin")
        times = self._cosigned_at(verified, now)
        if not self.met_by(times):
            names = ", ".join(sorted(key.name for key in times)) or "nobody"
            raise FormatError(Code.LOG_QUORUM, f"too few witnesses of the policy have cosigned: {names}")
        return Witnessed(checkpoint, log, self._smallest(times))

    def _cosigned_at(self, verified: Iterable[Verified], now: int) -> dict[Verifier, int]:
        """Return the earliest time that counts of each witness that cosigned."""
        witnesses = {witness.verifier for witness in self.witnesses}
        times: dict[Verifier, int] = {}
        for key, time in ((found.verifier, found.timestamp or 0) for found in verified):
            if key in witnesses and 0 < time <= now + MAX_AHEAD_S:
                times[key] = min(time, times.get(key, time))
        return times

    def _smallest(self, times: Mapping[Verifier, int]) -> int | None:
        """Return the smallest time up to which those that cosigned are a quorum. All of them are one."""
        if not self.asks_for_witnesses:
            return None
        return next(
            time
            for time in sorted({*times.values()})
            if self.met_by(key for key, cosigned in times.items() if cosigned <= time)
        )


# -- the file ----------------------------------------------------------------------------------------------------------

MAX_POLICY_BYTES = 256 * 1024
MAX_EACH = 32  # logs, witnesses and groups: what every reader of the format is asked to take
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPACE = re.compile(r"[ \t]+")
_THRESHOLD = re.compile(r"[1-9][0-9]?")
LOG_KINDS = frozenset({Kind.ED25519, Kind.COSIGNATURE_ML_DSA_44})
WITNESS_KINDS = frozenset({Kind.COSIGNATURE, Kind.COSIGNATURE_ML_DSA_44})


def parse_policy(raw: bytes, name: str, kinds: Collection[Kind] | None = None) -> WitnessPolicy:
    """Read a policy file; `name` is the file's for people, `kinds` the key types that can be verified here. Raises
    InputError(`log.policy`) with the line."""
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
