"""The watcher of the folder of policies: it looks once a second, and reads the files that have changed.

One process of a service watches (service/process/helper.py). It finds a `FolderStep` from one good state to the next,
or a `FailedLoad`. Both are small: they are sent to the other processes, which apply them without reading a file.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, IssuerError
from issuer.io import files
from issuer.io.bounds import LOOK_S
from issuer.io.followed import Followed, Look, Reading, look
from issuer.policy.authoring.load import Folder, FolderStep, Looks, PolicySource, decides, load_folder, read_each
from issuer.policy.authoring.schema import schemas
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.match import PolicySet
from issuer.policy.model import Policy
from issuer.policy.restriction import narrow
from issuer.service.policies.archive import drop_unused, keep_policies, unused_beside
from issuer.service.policies.bounds import MARK_S

# policies/benchmarks/<owner>/<name>/eval.yaml
MAX_DEPTH = 4

_log = structlog.get_logger("issuer")


class FailedLoad(Struct, frozen=True):
    """Why and where a folder does not load; never the content of a file.

    `differing` has the integrations whose files have changed since the last good state: the policy if the file is valid
    alone, else None. `gone` has the integrations whose files are missing. Both are empty if the folder is missing.
    """

    code: str
    file: str
    line: int
    column: int
    differing: Mapping[str, Policy | None]
    gone: frozenset[str]


class WatchedPolicies(Struct, frozen=True):
    """The last good state of a folder, and the failure since, if there was one.

    `policies` are in force: those of the folder, without the permissions that a failed load has withdrawn.
    """

    folder: Folder
    policies: PolicySet
    failure: FailedLoad | None = None

    @classmethod
    def of(cls, folder: Folder) -> WatchedPolicies:
        """Return the state of a good folder."""
        return cls(folder, folder.policies)

    def after(self, change: FolderStep | FailedLoad) -> WatchedPolicies:
        """Return the next state."""
        if isinstance(change, FolderStep):
            return WatchedPolicies.of(self.folder.after(change))
        changed = replace(self, failure=change)
        return replace(changed, policies=changed.narrow(self.policies))

    def decided(self) -> WatchedPolicies:
        """Return the state for a process that reads no files."""
        folder, same = self.folder.decided(), self.policies is self.folder.policies
        return WatchedPolicies(folder, folder.policies if same else self.policies, self.failure)

    def narrow(self, policies: PolicySet) -> PolicySet:
        """Return policies without the permissions that the failed load withdraws (policy/restriction.py)."""
        policy_of: dict[str, Policy | None] = dict(self.folder.policies.policies)
        if self.failure is not None:
            policy_of = {name: policy for name, policy in policy_of.items() if name not in self.failure.gone}
            policy_of.update(self.failure.differing)
        return narrow(policies, policy_of)


class Follower:
    """Follows a folder of policies that only the operator can write, and archives each policy before it decides.

    The constructor loads the folder. It raises InputError, and OSError if a policy cannot be archived. `note` is called
    for each file that is read.
    """

    every_s = LOOK_S

    def __init__(self, source: PolicySource, archive: Path, note: Callable[[], object] = lambda: None) -> None:
        self._source = source
        self._archive = archive
        self._note = note
        self._looks: Looks = {}
        self._guarded: Looks = {}
        self._folders: dict[str, str] = {}
        self._asked = False
        self._marked = 0.0
        self._change: FolderStep | FailedLoad | None = None
        gc.disable()  # all objects of a load stay; the collector's visits would take as long as half of it
        try:
            self._followed = Followed(self._look, self._read, confirm=True)
        finally:
            gc.enable()

    @property
    def state(self) -> WatchedPolicies:
        """The newest state."""
        return self._followed.value

    def follow(self, asked: bool) -> WatchedPolicies | None:
        """Look, and return the new state, or None if nothing is new."""
        return None if self.turn(asked) is None else self.state

    def turn(self, asked: bool) -> FolderStep | FailedLoad | None:
        """Look, and return the change if two looks in a row see the same new folder, or a signal `asked`.

        A signal has every file read again, even if it looks unchanged. A folder that changes while it is read was never
        on the disk as a whole, so it does not count.
        """
        self._asked, had_failed = asked, self.state.failure is not None
        if time.monotonic() - self._marked >= MARK_S:
            self._mark(self.state.folder)
        if not self._followed.turn(asked):
            return None
        change = self._change
        return change if asked or had_failed or not isinstance(change, FolderStep) or change.changes else None

    def resume(self, state: WatchedPolicies) -> None:
        """Continue from the state of another process."""
        self._followed.value = state
        self._followed.forget()

    def _look(self) -> Look:
        """Look at the files that decide, except the emergency stops: `emergency_stops.py` follows them."""
        self._looks = look(self._source.directory, MAX_DEPTH, without=STOPS_FILE)
        return self._looks

    def _read(self, last: WatchedPolicies | None) -> Reading[WatchedPolicies]:
        looks = self._looks
        if last is None:
            return Reading(WatchedPolicies.of(self._load(Folder(), looks)[0]))
        try:
            folder, self._change = self._load(last.folder.doubted() if self._asked else last.folder, looks)
        except Exception as error:  # noqa: BLE001 (after any failure, the last good policies decide)
            # An error without a code is our mistake. Only its frames are logged, because its text may show a policy.
            if not isinstance(error, IssuerError | OSError):
                _log.error("policies not read", exc_info=error)
            self._change = self._failed(last.folder, error, looks)
            return Reading(last.after(self._change))
        return Reading(WatchedPolicies.of(folder))

    def _load(self, before: Folder, looks: Looks) -> tuple[Folder, FolderStep]:
        """Load the folder. The first versions go to the archive, so that `data` has one as soon as there is an audit;
        later ones wait beside it until they decide."""
        self._demand_guarded(looks)
        folder, step = load_folder(self._source, before, looks, self._note)
        if before.basis is None:
            keep_policies(folder.policies, self._archive)
        else:
            keep_policies(folder.policies, unused_beside(self._archive), archive=self._archive)
            self._mark(before, folder)  # workers decide by the versions before until they have the change
        return folder.without_values(), step.without_values()

    def _mark(self, *folders: Folder) -> None:
        """Mark the versions in force, and remove those that were replaced and never decided."""
        kept_s = self._source.ceilings.unused_s
        drop_unused(self._archive, kept_s, lambda: {name for folder in folders for name in _names(folder)})
        self._marked = time.monotonic()

    def _demand_guarded(self, looks: Looks) -> None:
        """Demand that only the operator may write to a file that decides, and to the folder that it is really in.

        A file that looks unchanged has the same mode and place as before.
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

    def _failed(self, folder: Folder, error: Exception, looks: Looks) -> FailedLoad:
        known, found = folder.policies.policies, read_each(self._source.directory, folder, looks)
        place = error.place if isinstance(error, InputError) else None
        unnamed = Code.FILE_UNREADABLE if isinstance(error, OSError) else Code.INTERNAL
        return FailedLoad(
            code=str(error.code if isinstance(error, IssuerError) else unnamed),
            file=os.fsencode(place.file).decode("utf-8", "replace") if place else "",
            line=place.line if place else 0,
            column=place.column if place else 0,
            differing={name: each for name, each in (found or {}).items() if each is not known.get(name)},
            gone=frozenset() if found is None else frozenset(known.keys() - found),
        )


def _names(folder: Folder) -> Iterator[str]:
    """Yield the names of the files that the archive has for a folder."""
    yield from (f"{digest.removeprefix('sha256:')}.json" for digest in folder.policies.digests)
    for file in folder.basis.files.values() if folder.basis else ():
        yield f"{file.digest.removeprefix('sha256:')}.yaml"


def schema_documents() -> dict[str, bytes]:
    """Return the JSON schemas of the files of policies, by name. No other room of the service knows their format."""
    return schemas()
