"""A Dask cluster of processes on loopback: a scheduler, and workers that a test may kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.command import clean

UNWATCHED = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}  # as TABLE.md says


class Cluster(NamedTuple):
    """Where it is asked, as `--engine` has it, and its workers."""

    url: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 3, certificates: Path | None = None) -> Iterator[Cluster]:
    """Run a cluster, with the certificates of a folder by TLS; it writes into `folder`."""
    where = folder / "scheduler.json"
    options = ["--host", "127.0.0.1", "--no-dashboard"]
    if certificates is not None:
        options += ["--protocol", "tls", "--tls-ca-file", str(certificates / "ca.pem")]
        options += ["--tls-cert", str(certificates / "cert.pem"), "--tls-key", str(certificates / "key.pem")]
    alone = ["--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--local-directory", str(folder)]
    with ExitStack() as started, (folder / "cluster.log").open("wb") as log:
        where.unlink(missing_ok=True)  # of a cluster before

        def start(kind: str, *more: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(where), *options]
            process = subprocess.Popen([*command, *more], stdout=log, stderr=log, env=clean() | UNWATCHED)
            started.callback(_end, process)
            return process

        start("scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        running = [start("worker", *alone) for _ in range(workers)]
        _wait_until(lambda: (folder / "cluster.log").read_text().count("Registered to:") >= workers, folder)
        address: str = json.loads(where.read_text())["address"]
        yield Cluster(address.replace("tcp://", "dask://"), running)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _wait_until(so: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline, (folder / "cluster.log").read_text()
        time.sleep(0.05)
