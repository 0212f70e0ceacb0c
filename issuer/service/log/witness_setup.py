"""The witnesses of a log put together from its policy, and the sequencer as they see it.

In the order of a start: what they show (`calls_of`, `shown_at_start`) is a record by which the sequencer starts. When
that runs (`PublishedLog`), they have its head to cosign (`vouched_at_start`), and then every later one (`Witnesses`,
woken by `committed`):

    witnessing = witnessing_of(settings, key)
    witnesses = [LogWitness(call, PublishedLog(thread), witnessing.own) for call in witnessing.calls]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import structlog
from msgspec import Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, SetupError, Undecided
from issuer.service.authn.fetch import Fetcher, FetchRefused, split_fetched
from issuer.service.log.sequencer import Published, Sequencer
from issuer.service.log.setup import WitnessSettings
from issuer.service.log.witness_call import WitnessCall
from issuer.tlog.note import Note, Verifier, parse_note
from issuer.tlog.quorum import NO_QUORUM, LogKey, WitnessPolicy
from issuer.tlog.witness_policy import MAX_POLICY_BYTES, parse_policy

T = TypeVar("T")
_log = structlog.get_logger("issuer")


class SequencerThread(Protocol):
    """Where the sequencer is."""

    async def do(self, what: Callable[[Sequencer], T]) -> T:
        """Do something in the sequencer's thread, between two batches. Raises what it raises."""
        ...


class PublishedLog:
    """Implements `witness.WitnessedLog` by the sequencer. Raises Undecided(`dependency.log`)."""

    def __init__(self, thread: SequencerThread) -> None:
        self._thread = thread

    async def checkpoint(self) -> Note:
        """Read the head again, which another host may have moved, and return its checkpoint."""
        return parse_note((await self._thread.do(_newest)).note)

    async def consistency_proof(self, old: int, new: int) -> tuple[bytes, ...]:
        """Prove it from the hashes that are committed."""
        return await self._thread.do(lambda sequencer: sequencer.consistency(old, new))

    async def keep_cosigned(self, size: int, note: bytes) -> None:
        """Keep it."""
        await self._thread.do(lambda sequencer: sequencer.keep_cosigned(size, note))


def _newest(sequencer: Sequencer) -> Published:
    sequencer.append(())
    if sequencer.published is None:
        raise Undecided(Code.DEPENDENCY_LOG)
    return sequencer.published


def own_keys(policy: WitnessPolicy, own: Verifier) -> tuple[Verifier, ...]:
    """Return the keys of the log that has `own`: several while one replaces the other.

    Raises SetupError(`settings.invalid`) for a policy that does not name this log: nobody could check a proof by it.
    """
    keys = tuple(log.verifier for log in policy.logs if log.verifier.name == own.name)
    if own not in keys:
        detail = f"log.witness_policy: no line names this log and its key; add `log {own.to_text()}`"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return keys


class Witnessing(Struct, frozen=True):
    """Who cosigns a log: the policy, the log's own keys in it, and how its witnesses are asked."""

    policy: WitnessPolicy
    own: tuple[Verifier, ...]
    calls: tuple[WitnessCall, ...] = ()


def witnessing_of(settings: WitnessSettings | None, own: Verifier) -> Witnessing:
    """Read who cosigns the log that has the key `own`. Without settings nobody does, and nobody needs to.

    Raises SetupError: `settings.invalid`, and the codes of a file that cannot be read or is no policy.
    """
    if settings is None:
        return Witnessing(WitnessPolicy((LogKey(own),), (), (), NO_QUORUM), (own,))
    path, policy = Path(settings.policy), _read_policy(Path(settings.policy))
    if settings.must_cosign and policy.quorum == NO_QUORUM:
        detail = f"log.witnesses: sync waits for a quorum, and {path} asks for none"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    asking = Asking(lambda: int(time.time()), settings.development, settings.excluded, settings.monitors)
    return Witnessing(policy, own_keys(policy, own), calls_of(policy, asking))


def _read_policy(path: Path) -> WitnessPolicy:
    try:
        return parse_policy(files.read(path, MAX_POLICY_BYTES), str(path))
    except InputError as error:  # its place would be lost on the way to the parent
        raise SetupError(error.code, f"log.witness_policy, {error.place}: {error.detail}") from None


class Asking(Struct, frozen=True):
    """How witnesses are asked: by which clock (Unix seconds), and which of them not at all, by their policy names.

    `development` allows witnesses on plain http at loopback addresses. `monitoring` has the prefixes where witnesses
    show checkpoints, where these are not their submission prefixes.
    """

    clock: Callable[[], int]
    development: bool = False
    excluded: frozenset[str] = frozenset()
    monitoring: Mapping[str, str] = {}


def calls_of(policy: WitnessPolicy, asking: Asking) -> tuple[WitnessCall, ...]:
    """Return how to ask the witnesses of a policy that have a URL and are not excluded.

    Raises SetupError(`settings.invalid`) for names that the policy does not have, for a URL that may not be asked, and
    where those that have one can never be a quorum. Where that comes of the exclusion, it is only told.
    """
    if strangers := {*asking.excluded, *asking.monitoring} - {witness.name for witness in policy.witnesses}:
        detail = f"log.witness_policy names no witness {min(strangers)!r}: a wrong name would exclude nobody"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    reachable = [key for key in policy.witnesses if key.url]
    if not policy.met_by(key.verifier for key in reachable):
        raise SetupError(Code.SETTINGS_INVALID, "log.witness_policy: the witnesses that have a URL are no quorum")
    keys = [key for key in reachable if key.name not in asking.excluded]
    if not policy.met_by(key.verifier for key in keys):
        _log.warning("no quorum of witnesses", excluded=sorted(asking.excluded))
    for url in [*(key.url for key in keys), *asking.monitoring.values()]:
        _check(url, development=asking.development)
    fetcher = Fetcher(development=asking.development)
    return tuple(WitnessCall(key, fetcher, asking.clock, asking.monitoring.get(key.name, "")) for key in keys)


def _check(url: str, *, development: bool) -> None:
    try:
        split_fetched(url, development=development)
    except FetchRefused as error:
        raise SetupError(Code.SETTINGS_INVALID, f"the URL of a witness: {error}") from None
