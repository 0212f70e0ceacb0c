"""A service whose keys come and go by a clock that a test moves: `python -m tests.support.clocked WORKERS AHEAD`.

By how many seconds that clock is ahead stands in the file AHEAD, which is read whenever somebody asks for the time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from issuer.service.process.server import serve
from issuer.service.settings.reader import read_settings


class Ahead:
    """Unix seconds, ahead of the machine's by what a file says. Processes share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> int:
        return int(self.exact())

    def exact(self) -> float:
        """Return the same, with its fraction."""
        return time.time() + int(self._path.read_text())

    def move(self, seconds: int) -> None:
        """Let so many seconds pass at once."""
        ahead = int(self._path.read_text()) if self._path.exists() else 0
        draft = self._path.with_suffix(".draft")
        draft.write_text(str(ahead + seconds))
        draft.rename(self._path)


if __name__ == "__main__":
    serve(read_settings(), workers=int(sys.argv[1]), clock=Ahead(Path(sys.argv[2])))
