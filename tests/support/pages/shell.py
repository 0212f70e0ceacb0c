"""Runs the commands of a block in bash: variables, folder and history of files stay from one block to the next."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.command import clean, install_issuer

LONGEST_S = 600
_CODE = re.compile(r"#.*\bexit code (\d)\b")


class Command(NamedTuple):
    """A command of a block and what the page shows of its output. A comment says `exit code N` where it is not 0."""

    line: str
    shown: str

    @property
    def code(self) -> int:
        found = _CODE.search(self.line)
        return int(found[1]) if found else 0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def transcript(text: str) -> list[Command]:
    """Read a console's block: `$ ` begins a command, which goes on behind a backslash and to the end of its here-document."""
    commands: list[Command] = []
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        if line.startswith("$ "):
            commands.append(Command("".join(_whole(line[2:], lines)).rstrip("\n"), ""))
        else:
            assert commands, f"output before a command: {line}"
            commands[-1] = commands[-1]._replace(shown=commands[-1].shown + line)
    return commands


def script(text: str) -> list[Command]:
    """Read a block of commands alone, of which nothing is shown."""
    lines = iter(text.splitlines(keepends=True))
    return [Command("".join(_whole(line, lines)).rstrip("\n"), "...\n") for line in lines if line.strip()]


def _whole(line: str, lines: Iterator[str]) -> Iterator[str]:
    yield line
    here = re.search(r"<<-?\s*['\"]?(\w+)", line)
    while line.endswith("\\\n") or (here and line.strip() != here[1]):
        line = next(lines)
        yield line


class Shell:
    """A folder and an environment in which commands are run. `prelude` are functions that it knows besides."""

    def __init__(self, folder: Path, work: Path, env: Mapping[str, str], prelude: str = "") -> None:
        self._folder, self._work, self._prelude = folder, work, prelude
        self._starter = install_issuer(work / "bin")
        path = f"{work / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
        homes = {f"XDG_{name}_HOME": str(work / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
        self._env, self._more = {**clean(), **homes, "PATH": path}, env
        (work / "kept").write_text("")

    def run(self, command: str) -> Ended:
        """Run a command. It knows the variables, the folder and the exit code (`$?`) that the one before left."""
        kept, out, err = (self._work / name for name in ("kept", "out", "err"))
        leave = f"{{ code=$?; export -p; printf 'cd %q; (exit %d)\\n' \"$PWD\" $code; }} >{kept}"
        lines = [self._prelude, "set -a", f". {kept}", f"{{ {command}\n}} >{out} 2>{err}", leave]
        done = subprocess.run(
            ["bash", "-c", "\n".join([*lines, "exit $code"])], cwd=self._folder, env={**self._env, **self._more},
            pass_fds=[self._starter], stdin=subprocess.DEVNULL, timeout=LONGEST_S, check=False,
        )  # fmt: skip
        return Ended(done.returncode, out.read_text("utf-8"), err.read_text("utf-8"))

    def python(self, program: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self._folder, env={**self._env, **self._more}, capture_output=True, text=True, check=False,
            timeout=LONGEST_S,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)
