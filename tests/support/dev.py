"""`issuer dev` in its own process, as a person runs it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.command import clean
from tests.support.no_tls import NO_TLS
from tests.support.waiting import within


@contextlib.contextmanager
def running_dev(folder: Path, *options: str, **env: str) -> Iterator[str]:
    """Run it in a folder until the block ends, as by Ctrl-C. Yields its first output.

    The files `terminal` and `errors` of the folder have its whole output.
    """
    terminal, errors = folder / "terminal", folder / "errors"
    with terminal.open("wb") as out, errors.open("wb") as err:
        command = [sys.executable, "-m", "issuer", "dev", *options]
        child = subprocess.Popen(command, cwd=folder, env={**clean(), **env}, stdout=out, stderr=err)
    try:
        assert within(60, lambda: "issuer dev token --help" in terminal.read_text()), errors.read_text()
        said = terminal.read_text()
        url = re.findall(r"^issuer +(\S+)$", said, re.MULTILINE)[0]
        assert within(60, lambda: _is_ready(url)), errors.read_text()
        yield said
    finally:
        os.kill(child.pid, signal.SIGINT)
        child.wait(60)


def _is_ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health/ready", verify=NO_TLS).status_code == 200
    return False
