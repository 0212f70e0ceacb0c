"""One run of one situation, in a world that all share."""

import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from issuer.dev.provider import LocalProvider
from tests.situations.steps import Situation, World
from tests.support.command import issuer
from tests.support.in_process import Done, run
from tests.support.running import running
from tests.support.scripted import Scripted, reply


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    """Run a service, its provider, and a server that is not an issuer."""
    page = reply(404, b"<html>not here</html>", Content_Type="text/html")
    with LocalProvider() as provider, running(folder, provider) as service, Scripted([page]) as other:
        yield World(service, provider, other.url)


def meet(situation: Situation, shared: World, *, terminal: bool = False) -> Done:
    """Make the situation in an empty folder, and run its command there."""
    with tempfile.TemporaryDirectory() as name:
        folder, env = Path(name), dict[str, str]()
        for step in situation.given:
            env |= step(folder, shared) or {}
        argv = shlex.split(shared.fill(situation.command))
        if "serve" in argv[:2]:  # it changes the signals and streams of its process
            with contextlib.chdir(folder):
                done = issuer(*argv, env={"COLUMNS": "80", **env})
            return Done(done.returncode, done.stdout, done.stderr)
        return run(argv, folder, env=env, stdin=situation.stdin, terminal=terminal)
