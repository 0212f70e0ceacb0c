"""What a folder of policies says now: it is looked at once a second, and read where it has changed.

It is followed once for all processes of a service (service/process/policy_process.py): what is found is a `Step` from
one good state to the next, or a `Setback`, and both are small, so that others take the same way without reading
anything.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, IssuerError
from issuer.io import files
from issuer.io.bounds import LOOK_S
from issuer.io.followed import Look, look, look_at, paths
from issuer.policy.authoring.load import Folder, Looks, Source, Step, decides, load_folder, read_each
from issuer.policy.authoring.schema import schemas
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.match import PolicySet
from issuer.policy.model import Policy
from issuer.policy.restriction import narrow

# policies/benchmarks/<owner>/<name>/eval.yaml
MAX_DEPTH = 4

_log = structlog.get_logger("issuer")


class Setback(Struct, frozen=True):
    """A folder that does not load: why, and where; never the content of a file.

    `differing` are the policies of the files that are no longer as in the last good state, each read by itself; None
    where a file cannot be. Of what is `gone` there is no file. Both are empty where the whole folder is not there.
    """

    code: str
    file: str
    line: int
    column: int
    differing: Mapping[str, Policy | None]
    gone: frozenset[str]


class State(Struct, frozen=True):
    """The last good state of a folder, and what is wrong with it since, None for nothing.

    `policies` are those that are in force: without all that has been taken away since.
    """

    folder: Folder
    policies: PolicySet
    setback: Setback | None = None

    @classmethod
    def of(cls, folder: Folder) -> State:
        """Return the state of a folder that is good."""
        return cls(folder, folder.policies)

    def after(self, change: Step | Setback) -> State:
        """Return the next state."""
        if isinstance(change, Step):
            return State.of(self.folder.after(change))
        changed = replace(self, setback=change)
        return replace(changed, policies=changed.narrow(self.policies))

    def decided(self) -> State:
        """Return the same for a process that reads no files itself."""
        folder, same = self.folder.decided(), self.policies is self.folder.policies
        return State(folder, folder.policies if same else self.policies, self.setback)

    def narrow(self, policies: PolicySet) -> PolicySet:
        """Return policies without what the folder takes away from them (policy/restriction.py)."""
        found: dict[str, Policy | None] = dict(self.folder.policies.policies)
        if self.setback is not None:
            found = {name: policy for name, policy in found.items() if name not in self.setback.gone}
            found.update(self.setback.differing)
        return narrow(policies, found)


class Follower:
    """Follows a folder of policies, which must be guarded; each policy is kept under `kept` before it decides."""

    every_s = LOOK_S

    def __init__(self, source: Source, kept: Path, note: Callable[[], object] = lambda: None) -> None:
        self.state = State.of(Folder())
        self._source = source
        self._kept = kept
        self._note = note
        self._guarded: Looks = {}
        self._folders: dict[str, str] = {}
        self._before: Look | None = None
        self._seen: Look | None = None

    def load(self) -> State:
        """Load the folder as it is now. Raises InputError, and OSError where its policies cannot be kept."""
        self._before = self._seen = seen = self._look()
        gc.disable()  # all of it stays: to be looked at again and again would take as long as half of the load
        try:
            self.state = State.of(self._load(Folder(), seen)[0])
        finally:
            gc.enable()
        return self.state

    def follow(self, asked: bool) -> State | None:
        """Take a turn, and return the state that is new, None where none is."""
        return None if self.turn(asked) is None else self.state

    def turn(self, asked: bool) -> Step | Setback | None:
        """Look at the folder, and read it where two looks in a row see the same new one, or where a signal `asked`.

        A signal has every file read again, whatever it looks like. None where nothing is new, and where the folder
        changed while it was read: what was read was never on the disk as a whole.
        """
        seen = self._look()
        before, self._before = self._before, seen
        if not asked and (seen != before or seen == self._seen):
            return None
        self._seen = None
        folder, change = self._read(seen, asked=asked)
        if not self._stood_still(seen, change, asked=asked):
            return None
        self._seen = seen
        was_good = self.state.setback is None
        self.state = State.of(folder) if folder else self.state.after(change)
        return change if asked or not was_good or isinstance(change, Setback) or change.changes else None

    def resume(self, state: State) -> None:
        """Go on from a state that another process has come to."""
        self.state, self._seen = state, None

    def _look(self) -> Look:
        """Look at what decides; the stops beside it are followed apart."""
        return look(self._source.directory, MAX_DEPTH, without=STOPS_FILE)

    def _stood_still(self, seen: Look, change: Step | Setback, *, asked: bool) -> bool:
        """Say whether what was read is what had been looked at. Of a file that was not read that look is the word."""
        if asked or isinstance(change, Setback) or change.basis:
            return self._look() == seen
        there = paths(self._source.directory, MAX_DEPTH, without=STOPS_FILE)
        return (
            there == seen.keys()
            and there.isdisjoint(change.lost)
            and all(look_at(path) == known.look for path, known in change.known.items())
        )

    def _read(self, looks: Looks, *, asked: bool) -> tuple[Folder | None, Step | Setback]:
        before = self.state.folder
        try:
            return self._load(before.doubted() if asked else before, looks)
        except Exception as error:  # noqa: BLE001 (whatever it is, the last good policies go on)
            # Without its text, which may show a policy. What has no code is our own mistake: its frames alone.
            if not isinstance(error, IssuerError | OSError):
                _log.error("policies not read", exc_info=error)
            return None, self._setback(error, looks)

    def _load(self, before: Folder, looks: Looks) -> tuple[Folder, Step]:
        self._demand_guarded(looks)
        folder, step = load_folder(self._source, before, looks, self._note)
        keep_policies(folder.policies, self._kept)
        return folder.without_values(), step.without_values()

    def _demand_guarded(self, looks: Looks) -> None:
        """Demand that nobody else may write to a file that decides, nor to the folder that it is really in.

        A file that looks as it did has the mode that it had, and lies where it lay.
        """
        directory = self._source.directory
        folders = {path: folder for path, folder in self._folders.items() if path in looks}
        changed = (path for path, seen in looks.items() if self._guarded.get(path) != seen)
        for path in (str(directory), *changed):
            if decides(directory, path) and os.path.exists(path):  # `load_folder` says what is missing
                files.demand_guarded(Path(path), group=True)
                folders[path] = str(Path(path).resolve().parent)
        for folder in set(folders.values()):
            files.demand_guarded(Path(folder), group=True)
        self._guarded, self._folders = looks, folders

    def _setback(self, error: Exception, looks: Looks) -> Setback:
        folder = self.state.folder
        known, found = folder.policies.policies, read_each(self._source.directory, folder, looks)
        place = error.place if isinstance(error, InputError) else None
        unnamed = Code.FILE_UNREADABLE if isinstance(error, OSError) else Code.INTERNAL
        return Setback(
            code=str(error.code if isinstance(error, IssuerError) else unnamed),
            file=os.fsencode(place.file).decode("utf-8", "replace") if place else "",
            line=place.line if place else 0,
            column=place.column if place else 0,
            differing={name: each for name, each in (found or {}).items() if each is not known.get(name)},
            gone=frozenset() if found is None else frozenset(known.keys() - found),
        )


def follow_folder(
    folder: Path, kept: Path, issuer_url: str, *, development: bool, note: Callable[[], object] = lambda: None
) -> Follower:
    """Load a folder of policies, and return what follows it. Raises as `Follower.load` does."""
    follower = Follower(Source(folder, issuer_url, development), kept, note)
    follower.load()
    return follower


def keep_policies(policies: PolicySet, folder: Path) -> None:
    """Keep every policy value, and every registered benchmark that it names, under its digest, before the first
    admission under it (contract section 4). What is empty has been kept before."""
    files.make_folder(folder)
    for suffix, values in (("yaml", policies.benchmarks), ("json", policies.digests)):
        for digest, value in values.items():
            if value and not (path := folder / f"{digest.removeprefix('sha256:')}.{suffix}").exists():
                files.replace(path, value, mode=0o600, durable=True)


def schema_documents() -> dict[str, bytes]:
    """Return the JSON schemas of the files that are loaded, by name.

    Here and in this file's other functions is all that the service knows of how policies are written.
    """
    return schemas()
