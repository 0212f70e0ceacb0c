"""The newest revocation list that a relying party has seen of each issuer, so that no older one takes its place.

A mirror, a cache or whoever can replay bytes could else take a revocation back (contract section 5). What is kept is
the list itself, as its issuer signed it: it counts only under the keys that this party lists.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import jose
from issuer.relying.documents import demand_own, user_folder
from issuer.verify.revocations import MAX_BYTES, Revocations, newest, parse_revocations


def default_state() -> Path | None:
    """Return the default folder: in $XDG_STATE_HOME, or in ~/.local/state; None for a user without a home."""
    return user_folder("XDG_STATE_HOME", ".local/state")


class SeenLists:
    """`DIR/<16 hex of the issuer>-<48 hex of the key>.jwt`, 0600: the newest list by issuer and key that signed it.

    By key, so that a list under keys of somebody else's choice cannot keep out those of the issuer. Raises SetupError
    where the folder can be written by others, or not by this user.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        demand_own(path, "--state")

    def has(self, issuer: str) -> bool:
        """Say whether a list of this issuer has been seen, under any key."""
        return any(True for _ in self._path.glob(f"{_hashed(issuer, 16)}-*.jwt"))

    def settle(
        self, issuer: str, keys: jose.KeySet, at_hand: tuple[Revocations, bytes] | None, now: int
    ) -> tuple[Revocations | None, str]:
        """Return the list that counts, and why the one at hand was refused, or "".

        `at_hand` is a list with its bytes, None where it is not to be had. What counts is on the disk, with its name,
        before this returns.
        """
        if at_hand is None and not self.has(issuer):
            return None, ""
        with self._locked():
            seen = [listed for key in keys.keys.values() if (listed := self._read(issuer, keys, key)) is not None]
            counts, refused = newest(None if at_hand is None else at_hand[0], seen, now)
            if at_hand is not None and counts is at_hand[0] and counts not in seen:
                files.replace(self._file(issuer, keys.keys[counts.kid]), at_hand[1], mode=0o600, durable=True)
        return counts, refused

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            files.make_folder(self._path)
            with files.locked(self._path / ".lock"):
                yield
        except OSError as error:
            detail = f"the folder that remembers revocation lists: {error.filename} {error.strerror}; give --state DIR"
            raise SetupError(Code.SETTINGS_INVALID, detail) from None

    def _read(self, issuer: str, keys: jose.KeySet, key: jose.Key) -> Revocations | None:
        if not jose.EDDSA_NAMES & key.algorithms or not (file := self._file(issuer, key)).exists():
            return None
        try:
            return parse_revocations(files.read(file, MAX_BYTES, private=True), issuer, keys)
        except FormatError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"a revocation list seen before, {file}: {error.detail}") from None
        except InputError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"a revocation list seen before, {error}") from None

    def _file(self, issuer: str, key: jose.Key) -> Path:
        # By the key itself: a kid can be given to another one.
        point = key.public.public_bytes_raw()  # type: ignore[union-attr]
        return self._path / f"{_hashed(issuer, 16)}-{hashlib.sha256(point).hexdigest()[:48]}.jwt"


def _hashed(issuer: str, length: int) -> str:
    return hashlib.sha256(issuer.encode()).hexdigest()[:length]
