"""What people do with the signing keys: make, move, take back. Each act is in the history, with who did it and why.

Knows the folders of keys, their history and the rules of lifecycle.py; asks no clock. What widens is undone where it
cannot be recorded. What narrows is done first, and recorded if that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

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
    Lives,
    Plan,
    Step,
    What,
    fold,
    has_signed,
    keys_left,
    latest,
    may_sign_from,
    plan,
    steps,
    untold,
)

# -- allowed -----------------------------------------------------------------------------------------------------------

# What may be done with a signing key now, and what is said where it may not: from when, or what else to do. Pure.

Target = Literal["next", "active", "retiring", "archived"]
# Where a key may be brought by hand, and from where.
_FROM: dict[Target, tuple[str, ...]] = {
    "next": ("archived",),
    "active": ("next", "retiring"),
    "retiring": ("active",),
    "archived": ("next", "retiring"),
}
_STOLEN = "if the active key may be stolen, say --compromised"


def refused(why: str) -> SetupError:
    """Make the error for a step that is not allowed."""
    return SetupError(Code.KEY_STEP, why)


def file_of(found: Sequence[KeyFile], kid: str, lives: Lives) -> KeyFile:
    """Return the one file of a key. Raises SetupError(`key.step`)."""
    mine = [file for file in found if file.kid == kid and file.state not in OTHERS]
    if len(mine) > 1:
        raise refused(f"{kid} lies in two folders, {mine[0].path} and {mine[1].path}: remove one")
    if not mine:
        raise refused(
            f"{kid}: {'its file is gone' if kid in lives else 'there is no such key; see `issuer keys list`'}"
        )
    return mine[0]


def demand_step(file: KeyFile, to: Target, lives: Lives, found: Sequence[KeyFile]) -> None:
    """Demand that a key in this state may come into that one at all. Raises SetupError(`key.step`)."""
    kid, state = file.kid, file.state
    if state == "revoked" or (kid in lives and lives[kid].revoked_from is not None):
        raise refused(f"{kid} is revoked, and never signs again; make another key with `issuer keys generate`")
    if state == to:
        raise refused(f"{kid} is {to} already: {file.path}")
    if state == "active" and (to != "retiring" or len(in_state(found, "active")) == 1):
        raise refused(
            f"{kid} signs now, and retires when another key takes over (`issuer keys rotate`). If it may be stolen, "
            f"`issuer keys revoke key-{kid}`"
        )
    if state not in _FROM[to]:
        anew = f"; `issuer keys rotate key-{kid} --to next` publishes it anew" if state == "archived" else ""
        raise refused(f"{kid} is {state}, from where no key becomes {to}{anew}")


def demand_known(kid: str, lives: Lives, now: int) -> None:
    """Demand that every relying party can know a key. Raises SetupError(`key.step`)."""
    signs_from = may_sign_from(lives, kid)
    if signs_from is None:
        why = f"{kid} signs {show_span(PUBLISHED_S)} after every host has published it, and no service has said so yet"
        raise refused(f"{why}; {_STOLEN}")
    if signs_from > now:
        why = f"{kid} may sign from {show_time(signs_from)}: until then caches hold key sets without it"
        raise refused(f"{why}; {_STOLEN}")


def demand_expired(kid: str, lives: Lives, now: int) -> None:
    """Demand that no token that a key signed is good any more. Raises SetupError(`key.step`)."""
    ends = lives[kid].last_token_exp if kid in lives else None
    if ends is not None and ends > now:
        raise refused(f"the last token of {kid} expires at {show_time(ends)}: until then it stays in the key set")


def demand_opened(found: Sequence[KeyFile]) -> None:
    """Demand that keys of the key set are known for certain, and others at all. Raises SetupError(`key.unusable`)."""
    for file in found:
        if not file.opened and (file.state in STATES or not file.x):
            raise SetupError(Code.KEY_UNUSABLE, file.why or f"{file.path} is encrypted: give --passphrase-file")


def demand_one_kind(found: Sequence[KeyFile], *, encrypted: bool) -> None:
    """Demand that a new key is opened by what opens the others: the service has one passphrase, or none. Of a file that
    cannot be read nothing is demanded. Raises SetupError(`key.unusable`)."""
    for file in found:
        if file.state not in STATES or file.encrypted is None or (file.encrypted == encrypted and file.opened):
            continue
        if not file.encrypted and encrypted:
            todo = (
                f"leave out the passphrase, or encrypt that key first: `openssl pkcs8 -topk8 -in {file.path} -out NEW`"
            )
            raise SetupError(Code.KEY_UNUSABLE, f"{file.path} is not encrypted, and one passphrase opens all; {todo}")
        if file.encrypted and not encrypted:
            raise SetupError(Code.KEY_UNUSABLE, f"{file.path} is encrypted: give --passphrase-file for this one, too")
        if file.encrypted:
            raise SetupError(Code.KEY_UNUSABLE, f"{file.why}; one passphrase opens all keys: give that of the others")


def demand_clock(history: str, latest: int, now: int) -> None:
    """Demand that the clock has not gone back since anything was recorded. Raises SetupError(`key.history`)."""
    if now + CLOCK_BACK_S < latest:
        raise SetupError(
            Code.KEY_HISTORY,
            f"the last line of {history} is of {show_time(latest)}, and this machine's clock says {show_time(now)}: "
            "correct the clock. If it was wrong then and is right now, correct the times of the lines",
        )


# -- custody -----------------------------------------------------------------------------------------------------------

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
        seen = [
            KeyObservation(file.kid, file.x, file.state, file.made) for file in found if file.state in STATES and file.x
        ]
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
        file = make_file(self.folder / state, passphrase)
        undo.callback(file.path.unlink)
        return [self._event(state, file.kid, file.x, self.why)], file.path

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
        """Take a key out of the key set for good: since `since`, in Unix seconds, a thief may have used it. Moves its
        files and records it, each where the other one is not possible."""
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
            failures.append(
                f"it is not in the history: {describe(error)[1]}. Run the command again when that is mended"
            )
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
