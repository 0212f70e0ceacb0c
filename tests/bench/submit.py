"""The cost of a submission. `python -m tests.bench.submit`, part of `make bench`.

The start of the command, beside that of Python and of `issuer token request`; and 200 results in one pull request: the
time of the command, beside that of the issuer's signatures.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from issuer.dev.provider import LocalProvider
from tests.bench.interpreter import describe
from tests.support.hub_server import HubServer
from tests.support.processes import cpu_s
from tests.support.running import Running, running
from tests.support.submitting import MODEL, plain_runs

STARTS, RESULTS = 11, 200


def child_s(*argv: str, **env: str) -> tuple[float, float]:
    """Run Python; return its seconds by the clock and of CPU."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *argv], env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_start() -> None:
    print("\nstart (median of CPU, in turns)")
    rows = {
        "python -c pass": ("-c", "pass"),
        "issuer token request --help": ("-m", "issuer", "token", "request", "--help"),
        "issuer submit --help": ("-m", "issuer", "submit", "--help"),
    }
    taken: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(STARTS):
        for name, argv in rows.items():
            taken[name].append(child_s(*argv)[1])
    floor = statistics.median(taken["python -c pass"])
    for name, found in taken.items():
        median = statistics.median(found)
        print(f"  {name:<58}{median * 1e3:9.1f} ms  {median / floor:6.2f} x python")


def bench_many(live: Running, hub: HubServer, folder: Path) -> None:
    print(f"\n{RESULTS} results in one pull request")
    runs = plain_runs(folder, *(f"task-{number}" for number in range(RESULTS)), benchmark="openai/gsm8k")
    env = {**live.provider.environment, "HF_TOKEN": hub.token(), "HF_ENDPOINT": hub.url}
    before = cpu_s(live.process.pid)
    whole, own = child_s("-m", "issuer", "submit", str(runs), "--issuer", live.url, **env)
    issuer = cpu_s(live.process.pid) - before
    (talk,) = hub.repos["model", MODEL].open
    assert hub.repos["model", MODEL].file(".eval_results/gsm8k.yaml", talk.ref)
    rows = {"the whole, by the clock": whole, "CPU of the command": own, "CPU of the issuer": issuer}
    for name, seconds in rows.items():
        print(f"  {name:<58}{seconds * 1e3:9.1f} ms  {seconds / issuer:6.2f} x the issuer's")


def main() -> None:
    print(describe())
    bench_start()
    with (
        tempfile.TemporaryDirectory() as name,
        LocalProvider() as provider,
        running(Path(name), provider) as live,
        HubServer() as hub,
    ):
        hub.repo(MODEL)
        bench_many(live, hub, Path(name))


if __name__ == "__main__":
    main()
