"""`issuer` in this process, in a pipe or on a terminal, with its streams and its exit code."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from issuer.cli import main
from tests.support.command import clean, new_home


class Done(NamedTuple):
    code: int
    out: str
    err: str


class _Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool, given: str = "") -> None:
        self.raw_bytes = io.BytesIO(given.encode())
        super().__init__(self.raw_bytes, "utf-8", errors="backslashreplace", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.flush()
        return self.raw_bytes.getvalue().decode()


def run(
    argv: list[str],
    folder: Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    terminal: bool = False,
) -> Done:
    """Run the command at 80 columns; `env` are further variables. Its home is in `folder`, where it runs.

    Without a folder it runs in this one, with a new home.
    """
    out, err = _Stream(terminal), _Stream(terminal)
    home = new_home() if folder is None else folder / "home"
    own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "80"}
    code = 0
    streams = _Stream(False, stdin), out, err
    with _as_started(argv, {**clean(), **own, **(env or {})}, streams), contextlib.chdir(folder or Path.cwd()):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.text, err.text)


@contextlib.contextmanager
def _as_started(argv: list[str], env: Mapping[str, str], streams: tuple[_Stream, _Stream, _Stream]) -> Iterator[None]:
    """Give this process the arguments, the environment and the streams of another one, and take them back."""
    before = sys.argv, dict(os.environ), (sys.stdin, sys.stdout, sys.stderr)
    sys.argv = ["issuer", *argv]
    os.environ.clear()
    os.environ.update(env)
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.argv = before[0]
        os.environ.clear()
        os.environ.update(before[1])
        sys.stdin, sys.stdout, sys.stderr = before[2]
