"""What people do with the signing keys: make, move, take back. Each act is in the history, with who did it and why.

Knows the folders of keys, their history and the rules of life.py; asks no clock. What widens is undone where it cannot
be recorded. What narrows is done first, and recorded if that is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.formats import jose
from issuer.service.signing.allowed import (
    Target,
    demand_clock,
    demand_expired,
    demand_known,
    demand_one_kind,
    demand_opened,
    demand_step,
    file_of,
    refused,
)
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.key_files import OTHERS, KeyFile, Passphrase, find_files, in_state, published, states_of
from issuer.service.signing.keyring import STATES
from issuer.service.signing.life import (
    KeyEvent,
    Lives,
    Plan,
    Step,
    What,
    fold,
    has_signed,
    keys_left,
    latest,
    plan,
    steps,
)
from issuer.service.signing.opener import Opener
from issuer.service.signing.seen import SeenKey, untold

T = TypeVar("T")
Made = Literal["next", "active"]
# What one act reads and does, within the lock of the history: events for it, and what the act returns.
_Acted = tuple[list[KeyEvent], T]
_Act = Callable[[Lives, list[KeyFile], ExitStack], _Acted[T]]


class Rotated(Struct, frozen=True):
    """What a rotation did, None where nothing was due, and the file that was made, if any; what is next; and how many
    keys may still sign for the first time."""

    done: Step | None
    made: Path | None
    next: Step
    keys_left: int


class Revoked(Struct, frozen=True):
    """Where the files of a revoked key are now; what could not be done, in words; whether an active key is left."""

    paths: tuple[Path, ...]
    failures: tuple[str, ...]
    has_active: bool


class Custody(Struct, frozen=True):
    """The folder of keys and its history in the hands of `who`, at `now` in Unix seconds, with a reason `why`.

    Methods raise SetupError (`key.step` where a step is not allowed, with the time from which it is), OSError, and what
    `passphrase` raises.
    """

    folder: Path
    history: KeyHistory
    passphrase: Passphrase
    now: int
    who: str = ""
    why: str = ""
    opener: Opener = field(default_factory=Opener)

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> tuple[list[KeyFile], Lives]:
        """Return all key files, and the life of each key: with what the folders show and nobody has recorded yet."""
        lives = self.history.read()
        found = self._find(lives)
        return found, fold(self._untold(found, lives), lives)

    def plan(self) -> list[Plan]:
        """Return the times of every key in the key set, and of the next one."""
        found, lives = self.look()
        return plan(states_of(found), lives, self.now)

    def _find(self, lives: Lives) -> list[KeyFile]:
        return find_files(self.folder, self.passphrase, self.opener, lives)

    def _find_good(self, lives: Lives) -> list[KeyFile]:
        """Find the files, once those of revoked keys are put away: another host may have revoked them."""
        found = self._find(lives)
        bad = [file for file in published(found) if file.kid in lives and lives[file.kid].revoked_from is not None]
        for file in bad:
            self._put_away(file, [])
        return self._find(lives) if bad else found

    def _untold(self, found: list[KeyFile], lives: Lives) -> list[KeyEvent]:
        """Return what the folders show and the history lacks; not that a key is gone, which may lie unopened."""
        seen = [SeenKey(file.kid, file.x, file.state, file.made) for file in found if file.state in STATES and file.x]
        events = (event for event in untold(seen, lives, None, self.now, changed=True) if event.what != "removed")
        return [self._event(event.what, event.kid, event.x, event.why, event.since) for event in events]

    # -- making -------------------------------------------------------------------------------------------------------

    def generate(self, state: Made | None = None) -> Path:
        """Make a key and return its file: the first key of an issuer is active, and any other one is next."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[Path]:
            is_first = not has_signed(lives) and not in_state(found, "active")
            if state == "active" and not is_first:
                raise refused(
                    "only the first key of an issuer signs at once: make this one without --state, and run `issuer "
                    "keys rotate` when it may sign; after a theft, `issuer keys rotate --compromised`"
                )
            return self._make(found, undo, state or ("active" if is_first else "next"))

        return self._recorded(act)

    def _make(self, found: list[KeyFile], undo: ExitStack, state: Made) -> _Acted[Path]:
        passphrase = self.passphrase()
        demand_one_kind(found, encrypted=passphrase is not None)
        private = keyfile.generate()
        jwk = jose.public_jwk(private.public_key())
        kid, x = str(jwk["kid"]), str(jwk["x"])
        path = self.folder / state / f"key-{kid}.pem"  # no name begins with `-`, as a kid may
        files.make_folder(path.parent, follow=False, shared=True)
        keyfile.write(path, private, passphrase)
        undo.callback(path.unlink)
        return [self._event(state, kid, x, self.why)], path

    # -- rotating -----------------------------------------------------------------------------------------------------

    def rotate(self, *, compromised: bool = False) -> Rotated:
        """Do the next step that is due: take out a key whose last token has expired, have the next key sign, or make
        one. With `compromised`, have a key sign now that is not known everywhere yet."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[tuple[Step | None, Path | None]]:
            demand_opened(published(found))
            left = steps(states_of(found), lives, self.now)
            step = next(each for each in left if not (compromised and each.do == "archive"))
            if not compromised and (step.due is None or step.due > self.now):
                return [], (None, None)
            if step.do == "generate":
                events, made = self._make(found, undo, "active" if compromised or not has_signed(lives) else "next")
                return [*(self._retire(found, undo) if compromised else []), *events], (step, made)
            file = next(file for file in found if file.kid == step.kid and file.state in STATES)
            return self._put(file, "active" if step.do == "activate" else "archived", found, undo), (step, None)

        done, made = self._recorded(act)
        found, lives = self.look()
        return Rotated(done, made, steps(states_of(found), lives, self.now)[0], keys_left(lives))

    def bring(self, kid: str, to: Target, *, compromised: bool = False) -> None:
        """Do one step of a key's life by hand. `compromised` has it sign before it is known everywhere."""

        def act(lives: Lives, found: list[KeyFile], undo: ExitStack) -> _Acted[None]:
            file = file_of(found, kid, lives)
            demand_step(file, to, lives, found)
            demand_opened(published(found) if to == "active" else [file])
            if to == "active" and not compromised:
                demand_known(kid, lives, self.now)
            if to == "archived":
                demand_expired(kid, lives, self.now)
            return self._put(file, to, found, undo), None

        self._recorded(act)

    # -- taking back --------------------------------------------------------------------------------------------------

    def revoke(self, kid: str, since: int) -> Revoked:
        """Take a key out of the key set for good: since `since`, in Unix seconds, a thief may have used it.

        Moves its files and records it, each where the other one is not possible.
        """
        failures: list[str] = []
        try:
            lives = self.history.read()
        except (SetupError, OSError):  # told when it is to be recorded
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
            why = error.detail if isinstance(error, IssuerError) else f"{error.filename}: {error.strerror}"
            failures.append(f"it is not in the history: {why}. Run the command again when that is mended")
        left = [file for file in self._find(lives) if file.kid != kid]
        return Revoked(paths, tuple(failures), bool(in_state(left, "active")))

    def _put_away(self, file: KeyFile, failures: list[str]) -> Path:
        """Move a file to where no service looks, under a name that is free there; return where it is."""
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
            raise SetupError(
                Code.KEY_UNUSABLE, f"{kid} was not opened, and nothing is known of it: give its passphrase"
            )
        event = self._event("revoked", kid, x, self.why, since)
        self.history.record(lambda lives: [*self._untold(found, lives), event])

    # -- acts ---------------------------------------------------------------------------------------------------------

    def _recorded(self, act: _Act[T]) -> T:
        """Act, and record it, while nobody else does; undo it where it cannot be recorded."""
        results: list[T] = []

        def decide(lives: Lives) -> list[KeyEvent]:
            demand_clock(self.history.place, latest(lives), self.now)
            found = self._find_good(lives)
            told = self._untold(found, lives)
            events, result = act(fold(told, lives), found, undo)
            results.append(result)
            return [*told, *events]

        with ExitStack() as undo:
            self.history.record(decide)
            undo.pop_all()
        return results[0]

    def _put(self, file: KeyFile, to: Target, found: list[KeyFile], undo: ExitStack) -> list[KeyEvent]:
        """Bring a key into a state; who takes over has the one before retire."""
        retired = self._retire(found, undo) if to == "active" else []
        return [*retired, self._moved(file, to, undo)]

    def _retire(self, found: list[KeyFile], undo: ExitStack) -> list[KeyEvent]:
        return [self._moved(file, "retiring", undo) for file in in_state(found, "active")]

    def _moved(self, file: KeyFile, to: Target, undo: ExitStack) -> KeyEvent:
        path = self.folder / to / (file.path.name if to in STATES else file.named)
        files.make_folder(path.parent, follow=False, shared=True)
        files.move(file.path, path)
        undo.callback(files.move, path, file.path)
        return self._event(to, file.kid, file.x, self.why)

    def _event(self, what: What, kid: str, x: str, why: str, since: int | UnsetType = UNSET) -> KeyEvent:
        return KeyEvent(self.now, what, kid, x, self.who, why, since)
