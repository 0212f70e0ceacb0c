"""A Dask cluster of processes on loopback: a scheduler, and workers that a test may kill."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.command import clean
from tests.support.waiting import log_says

UNWATCHED = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}  # as TABLE.md says


class Cluster(NamedTuple):
    """Its address, as `--engine` takes it, and its workers."""

    url: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 3, certificates: Path | None = None) -> Iterator[Cluster]:
    """Run a cluster, by TLS with the certificates of a folder; it writes into `folder`."""
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
        log_says(folder / "cluster.log", "Registered to:", workers)
        address: str = json.loads(where.read_text())["address"]
        yield Cluster(address.replace("tcp://", "dask://"), running)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
