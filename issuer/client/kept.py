"""What a submission keeps beside the work, so that one that was killed goes on: tokens, which are public, and nonces.

A file for each request, put in its place in one step: its nonce before it is sent, its tokens once they are there.
Never an identity or another secret. What is read here is believed in nothing: who takes a token checks it as an
issuer's answer, and what cannot be read counts as not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from issuer import files
from issuer.errors import InputError
from issuer.wire import IssuedToken, is_nonce

FOLDER = ".issuer-submit"
_MAX_BYTES = 8 * 1024 * 1024  # of a batch: a hundred tokens and their entries
_LOCK_S = 60.0


class _Request(Struct, frozen=True):
    """One file: the request's nonce, "" where it needs none, and the tokens that were received for it."""

    version: Literal[1]
    nonce: str = ""
    tokens: tuple[IssuedToken, ...] = ()


class Kept:
    """The folder; made when something is kept. Raises OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep another submission with this folder waiting. Raises OSError where it waits too long."""
        files.make_folder(self.folder, mode=0o777, follow=False)
        if not (ignored := self.folder / ".gitignore").exists():
            files.replace(ignored, b"*\n", mode=None, durable=False, follow=False)
        with files.folder_locked(self.folder, wait_s=_LOCK_S):
            yield

    def nonce(self, key: str) -> str:
        """Return the nonce of a request that was begun and has no answer yet; "" where there is none.

        `key` is the digest of the request.
        """
        found = self._read(self._path(key))
        return found.nonce if is_nonce(found.nonce) and not found.tokens else ""

    def begin(self, key: str, nonce: str) -> None:
        """Keep the nonce of a request that is about to be sent: sent again with it, it gets the same tokens."""
        self._write(key, _Request(1, nonce))

    def finish(self, key: str, tokens: tuple[IssuedToken, ...]) -> None:
        """Keep the tokens of a request."""
        self._write(key, _Request(1, "", tokens))

    def tokens(self) -> Iterator[IssuedToken]:
        """Yield every token that is here, those that live longest last."""
        found = [token for path in sorted(self.folder.glob("*.kept")) for token in self._read(path).tokens]
        yield from sorted(found, key=lambda token: token.expires_at)

    def prune(self, now: int) -> None:
        """Remove the requests whose tokens have all ended."""
        for path in self.folder.glob("*.kept"):
            tokens = self._read(path).tokens
            if tokens and all(token.expires_at < now for token in tokens):
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key.removeprefix('sha256:')[:32]}.kept"

    def _write(self, key: str, request: _Request) -> None:
        files.replace(self._path(key), msgspec.json.encode(request), mode=None, durable=True, follow=False)

    def _read(self, path: Path) -> _Request:
        try:
            return msgspec.json.decode(files.read(path, _MAX_BYTES, follow=False), type=_Request)
        except (InputError, msgspec.MsgspecError, UnicodeDecodeError):
            return _Request(1)
