"""The operator's commands for signing keys: generate, rotate, move, revoke. The history has actor and reason of each.

They use the key folders, their history and the rules of lifecycle.py, and read no clock. A command that gives a key
more rights is undone if it cannot be recorded. A revocation takes effect first, and is recorded if possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import astuple

from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.formats.times import show_span, show_time
from issuer.io import files
from issuer.io.followed import describe
from issuer.service.signing.bounds import CLOCK_BACK_S, PUBLISHED_S
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.key_files import (
    OTHERS,
    KeyFile,
    Passphrase,
    find_files,
    in_state,
    make_file,
    published,
    states_of,
)
from issuer.service.signing.keyring import Opener
from issuer.service.signing.lifecycle import (
    STATES,
    KeyEvent,
    KeyObservation,
    KeyPlan,
    KeyStep,
    Lives,
    What,
    fold,
    has_signed,
    keys_left,
    latest,
    may_sign_from,
    missing_events,
    plan,
    steps,
)

# -- rules -------------------------------------------------------------------------------------------------------------

# Pure checks of a command against the state of the keys. A refusal says from when the step is allowed, or what to do.

Target = Literal["next", "active", "retiring", "archived"]
# The states that an operator may move a key to, each with the states that the key may come from.
_FROM: dict[Target, tuple[str, ...]] = {
    "next": ("archived",),
    "active": ("next", "retiring"),
    "retiring": ("active",),
    "archived": ("next", "retiring"),
}
_STOLEN = "if the active key may be stolen, add --compromised"


def refused(why: str) -> SetupError:
    """Return the error for a step that is not allowed."""
    return SetupError(Code.KEY_STEP, why)


def file_of(found: Sequence[KeyFile], kid: str, lives: Lives) -> KeyFile:
    """Return the one file of a key. Raises SetupError(`key.step`)."""
    mine = [file for file in found if file.kid == kid and file.state not in OTHERS]
    if len(mine) > 1:
        raise refused(f"{kid} is in two folders, as {mine[0].path} and {mine[1].path}: remove one file")
    if not mine:
        why = "its file is gone: restore it" if kid in lives else "there is no such key; see `issuer keys list`"
        raise refused(f"{kid}: {why}")
    return mine[0]


def demand_step(file: KeyFile, to: Target, lives: Lives, found: Sequence[KeyFile]) -> None:
    """Raise SetupError(`key.step`) if the key of this file may not enter the state `to`."""
    kid, state = file.kid, file.state
    if state == "revoked" or (kid in lives and lives[kid].revoked_from is not None):
        raise refused(f"{kid} is revoked, and never signs again; make another key with `issuer keys generate`")
    if state == to:
        raise refused(f"{kid} is already {to}: {file.path}")
    if state == "active" and (to != "retiring" or len(in_state(found, "active")) == 1):
        raise refused(
            f"{kid} signs now, and retires when another key takes over (`issuer keys rotate`). If it may be stolen, "
            f"run `issuer keys revoke key-{kid}`"
        )
    if state not in _FROM[to]:
        anew = f"; `issuer keys rotate key-{kid} --to next` publishes it anew" if state == "archived" else ""
        raise refused(f"{kid} is {state}, and such a key cannot become {to}{anew}")


def demand_known(kid: str, lives: Lives, now: int) -> None:
    """Raise SetupError(`key.step`) if a relying party may still have a key set without this key."""
    signs_from = may_sign_from(lives, kid)
    if signs_from is None:
        why = f"{show_span(PUBLISHED_S)} after every host has published it, and the history does not show that yet"
        raise refused(f"{kid} signs {why}; {_STOLEN}")
    if signs_from > now:
        why = f"{kid} may sign from {show_time(signs_from)}: until then caches may have key sets without it"
        raise refused(f"{why}; {_STOLEN}")


def demand_expired(kid: str, lives: Lives, now: int) -> None:
    """Raise SetupError(`key.step`) if a token of this key may still be valid."""
    ends = lives[kid].last_token_exp if kid in lives else None
    if ends is not None and ends > now:
        raise refused(f"the last token of {kid} expires at {show_time(ends)}: until then it stays in the key set")


def demand_opened(found: Sequence[KeyFile]) -> None:
    """Raise SetupError(`key.unusable`) for a file that is not opened. Outside the key set, a known `x` is enough."""
    for file in found:
        if not file.opened and (file.state in STATES or not file.x):
            raise SetupError(Code.KEY_UNUSABLE, file.why or f"{file.path} is encrypted: give --passphrase-file")


def demand_one_kind(found: Sequence[KeyFile], *, encrypted: bool) -> None:
    """Raise SetupError(`key.unusable`) if the service could not open a new key together with the others: it has one
    passphrase or none. Files that cannot be read do not count."""
    for file in found:
        fits = file.encrypted == encrypted and (file.opened or not encrypted)
        if fits or file.state not in STATES or file.encrypted is None:
            continue
        if not file.encrypted:
            why = f"{file.path} is not encrypted, and one passphrase opens all keys; leave out the passphrase, or "
            why += f"encrypt that key first: `openssl pkcs8 -topk8 -in {file.path} -out NEW`"
        elif not encrypted:
            why = f"{file.path} is encrypted: give --passphrase-file for the new key, too"
        else:
            why = f"{file.why}; one passphrase opens all keys: give that of the others"
        raise SetupError(Code.KEY_UNUSABLE, why)


def demand_clock(history: str, latest: int, now: int) -> None:
    """Raise SetupError(`key.history`) if the clock is behind the last event of the history."""
    if now + CLOCK_BACK_S < latest:
        raise SetupError(
            Code.KEY_HISTORY,
            f"the last line of {history} is from {show_time(latest)}, and this machine's clock says {show_time(now)}: "
            "correct the clock. If it was wrong then and is right now, correct the times in the history",
        )


# -- custody -----------------------------------------------------------------------------------------------------------

T = TypeVar("T")
Made = Literal["next", "active"]
# One command, which runs while it has the lock of the history. It returns events to record, and its own result.
_Acted = tuple[list[KeyEvent], T]
_Act = Callable[[Lives, list[KeyFile], ExitStack], _Acted[T]]


class Rotated(Struct, frozen=True):
    """The step that was done and the file that it made, if any; the next step; how many new keys may still sign."""

    done: KeyStep | None
    made: Path | None
    next: KeyStep
    keys_left: int


class RevokedKey(Struct, frozen=True):
    """The new paths of a revoked key's files, a sentence for each failure, and whether an active key is left."""

    paths: tuple[Path, ...]
    failures: tuple[str, ...]
    has_active: bool


class Custody(Struct, frozen=True):
    """The folder of keys and its history, for commands of `who` at `now` (Unix seconds) with the reason `why`.

    Methods raise SetupError, OSError and the errors of `passphrase`. SetupError(`key.step`) is for a step that is not
    allowed, and says from when it is.
    """

    folder: Path
    history: KeyHistory
    passphrase: Passphrase
    now: int
    who: str = ""
    why: str = ""
    opener: Opener = field(default_factory=Opener)

    def look(self) -> tuple[list[KeyFile], Lives]:
        """Return all key files, and the life of each key with the events that only the folders show so far."""
        lives = self.history.read()
        found = self._find(lives)
        return found, fold(self._missing_events(found, lives), lives)

    def plan(self) -> list[KeyPlan]:
        """Return the times of every key in the key set, and of the next one."""
        found, lives = self.look()
        return plan(states_of(found), lives, self.now)

    def _find(self, lives: Lives) -> list[KeyFile]:
        return find_files(self.folder, self.passphrase, self.opener, lives)

    def _find_good(self, lives: Lives) -> list[KeyFile]:
        """Move away the files of keys that another host may have revoked, and return all files."""
        found = self._find(lives)
        bad = [file for file in published(found) if file.kid in lives and lives[file.kid].revoked_from is not None]
        for file in bad:
            self._put_away(file, [])
        return self._find(lives) if bad else found

    def _missing_events(self, found: list[KeyFile], lives: Lives) -> list[KeyEvent]:
        """Return the events that only the folders show, without `removed`: the key may be in an unopened file."""
        keys = [
            KeyObservation(file.kid, file.x, file.state, file.made) for file in found if file.state in STATES and file.x
        ]
        events = missing_events(keys, lives, None, self.now, changed=True)
        return [self._event(*astuple(event)) for event in events if event.what != "removed"]

    def generate(self, state: Made | None = None) -> Path:
        """Make a key and return its file. The first key of an issuer is active, and every later one is next."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[Path]:
            is_first = not has_signed(lives) and not in_state(found, "active")
            if state == "active" and not is_first:
                raise refused(
                    "only the first key of an issuer signs at once: make this one without --state, and run `issuer "
                    "keys rotate` when it may sign; after a theft, run `issuer keys rotate --compromised`"
                )
            return self._make(found, undo, state or ("active" if is_first else "next"))

        return self._record(act)

    def _make(self, found: list[KeyFile], undo: ExitStack, state: Made) -> _Acted[Path]:
        passphrase = self.passphrase()
        demand_one_kind(found, encrypted=passphrase is not None)
        file = make_file(self.folder / state, passphrase)
        undo.callback(file.path.unlink)
        return [self._event(file.kid, file.x, state, self.why)], file.path

    def rotate(self, *, compromised: bool = False) -> Rotated:
        """Do the next step that is due: archive a key whose last token has expired, activate the next key, or make one.
        With `compromised`, activate a key now, although caches may not have it."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[tuple[KeyStep | None, Path | None]]:
            demand_opened(published(found))
            left = steps(states_of(found), lives, self.now)
            step = next(step for step in left if not (compromised and step.do == "archive"))
            if not compromised and (step.due is None or step.due > self.now):
                return [], (None, None)
            if step.do == "generate":
                events, made = self._make(found, undo, "active" if compromised or not has_signed(lives) else "next")
                return [*(self._retire(found, undo) if compromised else []), *events], (step, made)
            file = next(file for file in found if file.kid == step.kid and file.state in STATES)
            return self._put(file, "active" if step.do == "activate" else "archived", found, undo), (step, None)

        done, made = self._record(act)
        found, lives = self.look()
        return Rotated(done, made, steps(states_of(found), lives, self.now)[0], keys_left(lives))

    def bring(self, kid: str, to: Target, *, compromised: bool = False) -> None:
        """Move a key to another state. With `compromised` it may sign although caches may not have it."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[None]:
            file = file_of(found, kid, lives)
            demand_step(file, to, lives, found)
            demand_opened(published(found) if to == "active" else [file])
            if to == "active" and not compromised:
                demand_known(kid, lives, self.now)
            if to == "archived":
                demand_expired(kid, lives, self.now)
            return self._put(file, to, found, undo), None

        self._record(act)

    def revoke(self, kid: str, since: int) -> RevokedKey:
        """Remove a key from the key set for good. A thief may have used it from `since` (Unix seconds). Move its files
        and record it: each is done even if the other fails."""
        failures: list[str] = []
        try:
            lives = self.history.read()
        except (SetupError, OSError):  # `_record_revoked` will fail for the same reason, and report it
            lives = {}
        found = self._find(lives)
        mine = [file for file in found if file.kid == kid and file.state not in OTHERS]
        if not mine and kid not in lives:
            raise SetupError(Code.KEY_UNKNOWN, f"there is no key {kid} in {self.folder} or its history")
        paths = tuple(self._put_away(file, failures) for file in mine)
        x = next((file.x for file in mine if file.x), lives[kid].x if kid in lives else "")
        try:
            self._record_revoked(found, kid, x, since)
        except (IssuerError, OSError) as error:
            failures.append(f"it is not in the history: {describe(error)[1]}. Repair that and run the command again")
        left = [file for file in self._find(lives) if file.kid != kid]
        return RevokedKey(paths, tuple(failures), bool(in_state(left, "active")))

    def _put_away(self, file: KeyFile, failures: list[str]) -> Path:
        """Move a file to `revoked`, where no service reads it, under an unused name. Return its path."""
        if file.state == "revoked":
            return file.path
        to = self.folder / "revoked" / file.named
        free = (to if number == 1 else to.with_stem(f"{to.stem}-{number}") for number in count(1))
        try:
            files.make_folder(to.parent, follow=False, shared=True)
            to = next(path for path in free if not path.exists())
            files.move(file.path, to)
        except OSError as error:
            failures.append(f"{file.path} could not be moved: {error.strerror}. Remove it by hand: `rm {file.path}`")
            return file.path
        return to

    def _record_revoked(self, found: list[KeyFile], kid: str, x: str, since: int) -> None:
        if not x:
            raise SetupError(Code.KEY_UNUSABLE, f"the public half of {kid} is unknown: give the passphrase of its file")
        event = self._event(kid, x, "revoked", self.why, since)
        self.history.record(lambda lives: [*self._missing_events(found, lives), event])

    def _record(self, act: _Act[T]) -> T:
        """Do one command and record it, with the lock of the history. Undo it if it cannot be recorded."""
        results: list[T] = []

        def decide(lives: Lives) -> list[KeyEvent]:
            demand_clock(self.history.place, latest(lives), self.now)
            found = self._find_good(lives)
            missing = self._missing_events(found, lives)
            events, result = act(fold(missing, lives), found, undo)
            results.append(result)
            return [*missing, *events]

        with ExitStack() as undo:
            self.history.record(decide)
            undo.pop_all()
        return results[0]

    def _put(self, file: KeyFile, to: Target, found: list[KeyFile], undo: ExitStack) -> list[KeyEvent]:
        """Move a key to a state. If it becomes active, retire the active key before it."""
        retired = self._retire(found, undo) if to == "active" else []
        return [*retired, self._move(file, to, undo)]

    def _retire(self, found: list[KeyFile], undo: ExitStack) -> list[KeyEvent]:
        return [self._move(file, "retiring", undo) for file in in_state(found, "active")]

    def _move(self, file: KeyFile, to: Target, undo: ExitStack) -> KeyEvent:
        path = self.folder / to / (file.path.name if to in STATES else file.named)
        files.make_folder(path.parent, follow=False, shared=True)
        files.move(file.path, path)
        undo.callback(files.move, path, file.path)
        return self._event(file.kid, file.x, to, self.why)

    def _event(self, kid: str, x: str, what: What, why: str, since: int | UnsetType = UNSET) -> KeyEvent:
        return KeyEvent(self.now, what, kid, x, self.who, why, since)
