"""Runs of pytest, each in a fork of one process that has loaded the libraries, and none of our modules.

A program: for each run it reads a line, pytest's arguments and a timeout in seconds, and answers with a line, the exit
code: that of SIGKILL after the timeout. The process group of a run is killed at its end.
"""

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

LIBRARIES = (
    "authlib.integrations.httpx_client", "authlib.oauth2.rfc9068", "cryptography.x509", "hypothesis.strategies",
    "httpx", "joserfc.jwt", "jwt", "litestar", "pytest_asyncio.plugin", "redis.asyncio", "re2",
    "rfc8785", "rich.console", "structlog", "uvicorn.protocols.http.httptools_impl", "yaml",
)  # fmt: skip
OUTPUT = "../output"  # of the last run
# The last failed test goes first: it may notice the next mutant too. Rewritten assertions change only the output.
ALWAYS = ("--assert=plain", "-x", "-q", "--ff")


class Warm:
    """Such a process, from outside. Its runs load what is in `root`, and keep compiled files there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], cwd=root, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def run(self, arguments: Sequence[str], timeout_s: float) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, timeout_s]) + "\n")
        return int(self._process.stdout.readline())

    def output(self) -> str:
        return (self._root / OUTPUT).read_text("utf-8", "replace")

    def close(self) -> None:
        with self._process:  # closes the pipes, and waits
            pass


def load_libraries() -> None:
    """Load the libraries once for all runs. A fork copies one thread, and a run must load our modules anew."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert not {"issuer", "tests"} & sys.modules.keys(), "a library has loaded one of our modules"
    assert len(os.listdir("/proc/self/task")) == 1, "a library has started a thread"
    gc.collect()
    gc.freeze()  # a run neither looks for garbage in what all share, nor copies it by that


def run_tests(arguments: Sequence[str], timeout_s: float) -> int:
    """Run pytest in a fork of this process, and return its exit code."""
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.exit(pytest.main([*ALWAYS, *arguments]))
    handle = os.pidfd_open(child)
    try:
        select.select([handle, sys.stdin], [], [], timeout_s)  # stdin ends with the caller
    finally:
        os.killpg(child, signal.SIGKILL)  # before the wait, so that its number is not reused
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    load_libraries()
    for line in sys.stdin:
        print(run_tests(*json.loads(line)), flush=True)
