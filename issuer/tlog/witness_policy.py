"""Trusted logs and witnesses, their quorum, and the policy file that names them (c2sp.org/tlog-policy). Pure.

A file with a key that this installation cannot verify is refused: if the key were skipped, the quorum would be lower
than the author of the file demanded.
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
    """A log's key. Its name is the log's origin. `url` is "" if the file does not have one."""

    verifier: Verifier
    url: str = ""


class WitnessKey(Struct, frozen=True):
    """A witness. `name` is its name in the policy file; its signature lines have the name of its key."""

    name: str
    verifier: Verifier
    url: str = ""


class Group(Struct, frozen=True):
    """A group of witnesses, or of groups before it in the file. It has cosigned if `threshold` of its members have."""

    name: str
    threshold: int
    members: tuple[str, ...]


class Witnessed(Struct, frozen=True):
    """A checkpoint that a trusted log signed and the quorum cosigned, and its witnessed time in Unix seconds. The time
    is None if the policy requires no witness."""

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
        """Whether checkpoints need cosignatures, and therefore have a witnessed time."""
        return self.quorum != NO_QUORUM

    def met_by(self, cosigners: Iterable[Verifier]) -> bool:
        """Return whether these keys are a quorum. The caller has verified their cosignatures. Each key counts once."""
        keys = set(cosigners)
        cosigned = {NO_QUORUM} | {witness.name for witness in self.witnesses if witness.verifier in keys}
        for group in self.groups:  # members come before their group, so one pass is enough
            if len(cosigned.intersection(group.members)) >= group.threshold:
                cosigned.add(group.name)
        return self.quorum in cosigned

    def check(self, note: Note, now: int) -> Witnessed:
        """Check a signed checkpoint at `now` (Unix seconds). Raises FormatError: `log.malformed` if the text is not a
        checkpoint; `log.signature` if a signature of a known key is bad, or if no log of the policy with the
        checkpoint's origin has signed; `log.quorum` if too few witnesses have cosigned. A cosignature does not count if
        its time is zero or over a minute ahead of `now`."""
        checkpoint = parse_checkpoint(note.text)
        verified = verify_note(note, self.verifiers)
        signers = {signature.verifier for signature in verified}
        logs = (log for log in self.logs if log.verifier in signers and log.verifier.name == checkpoint.origin)
        if not (log := next(logs, None)):
            raise FormatError(Code.LOG_SIGNATURE, "the checkpoint is not signed by a log of the policy with its origin")
        times = self._cosigned_at(verified, now)
        if not self.met_by(times):
            names = ", ".join(sorted(key.name for key in times)) or "none"
            raise FormatError(Code.LOG_QUORUM, f"too few witnesses of the policy have cosigned: {names}")
        return Witnessed(checkpoint, log, self._quorum_time(times))

    def _cosigned_at(self, verified: Iterable[Verified], now: int) -> dict[Verifier, int]:
        """Return each witness that cosigned, with its earliest time that counts."""
        witnesses = {witness.verifier for witness in self.witnesses}
        times: dict[Verifier, int] = {}
        for signature in verified:
            key, time = signature.verifier, signature.timestamp or 0
            if key in witnesses and 0 < time <= now + MAX_AHEAD_S:
                times[key] = min(time, times.get(key, time))
        return times

    def _quorum_time(self, times: Mapping[Verifier, int]) -> int | None:
        """Return the earliest time at which the cosigners were a quorum. `times` as a whole must be a quorum."""
        if not self.asks_for_witnesses:
            return None
        cosigned = sorted(times.values())
        return next(time for time in cosigned if self.met_by(key for key in times if times[key] <= time))


# -- the file ----------------------------------------------------------------------------------------------------------

MAX_POLICY_BYTES = 256 * 1024
MAX_EACH = 32  # logs, witnesses or groups: the specification asks every reader to accept so many
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPACE = re.compile(r"[ \t]+")
_THRESHOLD = re.compile(r"[1-9][0-9]?")
LOG_KINDS = frozenset({Kind.ED25519, Kind.COSIGNATURE_ML_DSA_44})
WITNESS_KINDS = frozenset({Kind.COSIGNATURE, Kind.COSIGNATURE_ML_DSA_44})


def parse_policy(raw: bytes, name: str, kinds: Collection[Kind] | None = None) -> WitnessPolicy:
    """Read a policy file. `name` is the name of the file for messages. `kinds` are the key types that can be verified
    (default: those of this installation). Raises InputError(`log.policy`) with the line."""
    reader = _Reader(verifiable_kinds() if kinds is None else kinds)
    line = 0
    try:
        for line, text in enumerate(_lines(raw), 1):  # noqa: B007  (an error names its line)
            reader.read(text)
        line = 0
        return reader.policy()
    except FormatError as error:
        raise InputError(Code.LOG_POLICY, error.detail, Place(name, line, 1 if line else 0)) from None


def _lines(raw: bytes) -> list[str]:
    """Return the lines. Octets that are not UTF-8 become lone surrogates, because names are opaque octets."""
    if len(raw) > MAX_POLICY_BYTES:
        raise _fault(f"the policy has over {MAX_POLICY_BYTES} bytes")
    *lines, rest = raw.decode(errors="surrogateescape").split("\n")
    if rest or not lines:  # "quorum a" may be the beginning of "quorum all-of-them"
        raise _fault("the last line does not end in a newline; the file may have been cut short")
    return lines


class _Reader:
    """The definitions of the lines so far. A line refers only to earlier lines, so no group contains itself."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self._kinds = kinds
        self._logs: list[LogKey] = []
        self._witnesses: list[WitnessKey] = []
        self._groups: list[Group] = []
        self._quorum = ""

    def read(self, line: str) -> None:
        """Read one line. Raises FormatError."""
        if _CONTROL.search(line):
            raise _fault("a control character other than tab and newline; line ends must be LF, not CRLF")
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
                self._set_quorum(name)
            case _:
                raise _fault(
                    "a line must be `log VKEY [URL]`, `witness NAME VKEY [URL]`, `group NAME all|any|K NAME...`, "
                    "`quorum NAME`, or a comment with #"
                )

    def policy(self) -> WitnessPolicy:
        """Return the policy after the last line. Raises FormatError."""
        if not self._quorum:
            raise _fault("the policy has no `quorum` line; write `quorum none` to require no witness")
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
            raise _fault("a witness or group may be a member only once, of one group: otherwise it would count twice")
        self._groups.append(Group(name, _threshold(word, len(members)), tuple(members)))

    def _set_quorum(self, name: str) -> None:
        if self._quorum:
            raise _fault("a policy may have only one `quorum` line")
        if name != NO_QUORUM:
            self._must_be_known(name)
        self._quorum = name

    def _define(self, name: str) -> None:
        if name == NO_QUORUM:
            raise _fault(f"`{NO_QUORUM}` cannot name a witness or a group: it means that no witness is required")
        if name in self._names():
            raise _fault(f"`{_shown(name)}` is defined twice")

    def _must_be_known(self, name: str) -> None:
        if name not in self._names():
            raise _fault(f"`{_shown(name)}` is not a witness or group of an earlier line")

    def _names(self) -> set[str]:
        return {witness.name for witness in self._witnesses} | {group.name for group in self._groups}

    def _key(self, text: str, fit: Collection[Kind], others: list[Verifier]) -> Verifier:
        verifier = parse_vkey(text)
        if verifier.kind not in fit:
            raise _fault(f"a key of type 0x{verifier.kind:02x} does not belong on this line")
        if verifier.kind not in self._kinds:
            raise _fault("this installation cannot verify ML-DSA-44; install a later version of `cryptography`")
        if len(others) == MAX_EACH:
            raise _fault(f"the policy has over {MAX_EACH} logs, or over {MAX_EACH} witnesses")
        if any(verifier.public_key == other.public_key for other in others):
            raise _fault("an earlier line has this public key: one key under two names would count twice")
        keys = [*(log.verifier for log in self._logs), *(witness.verifier for witness in self._witnesses)]
        if (verifier.name, verifier.key_id) in {(key.name, key.key_id) for key in keys}:
            raise _fault("a key of an earlier line has this name and key id: their signatures would look alike")
        return verifier


def _threshold(word: str, count: int) -> int:
    if word in {"all", "any"}:
        return count if word == "all" else 1
    if not _THRESHOLD.fullmatch(word) or int(word) > count:
        raise _fault(f"the threshold of a group must be `all`, `any`, or a decimal number from 1 to {count}")
    return int(word)


def _url(text: str) -> str:
    if not text.isprintable():  # this also refuses octets that are not UTF-8
        raise _fault("the URL has characters that a URL cannot have")
    return text


def _shown(name: str) -> str:
    """Return a printable form of a name whose octets may not be UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _fault(detail: str) -> FormatError:
    return FormatError(Code.LOG_POLICY, detail)
