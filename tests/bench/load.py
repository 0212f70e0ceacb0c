"""The real service under load, beside the floor of the same run. `python -m tests.bench.load`, part of `make bench`.

Each identity is unique and made beforehand. The service and the floor server (`floor.py`) run at once and are driven in
turn, on one store, so that a busy neighbour or a slower minute meets both. One worker has its own core, and the generator
and the store share the others. CPU is the server processes', with the generator's and the store's beside it, because two
workers need their cores, too. Compare rows and ratios within one run, never absolutes.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.service.admission.embedded import EmbeddedValkey
from tests.bench.interpreter import describe
from tests.support.exchanging import form
from tests.support.http_load import Run, drive, request
from tests.support.processes import cpu_s, rss_mib
from tests.support.running import Running, listening_on, numbered, running, serve, singles, write_folder
from tests.support.waiting import eventually

COUNT = int(os.environ.get("BENCH_REQUESTS", "4200"))
TURNS = 7
CONNECTIONS = (1, 8, 32)
# The most CPU of a token through /oauth/token, in that of one through /tokens.
MOST_EXCHANGE = 1.1
GET_KEYS = b"GET /.well-known/jwks.json HTTP/1.1\r\nHost: x\r\n\r\n"


# -- limits of processes ------------------------------------------------------------------------------------------------


def pin(pids: Iterable[int], cores: set[int]) -> None:
    """Keep processes, with all their threads, on these cores."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


def busy(processes: int) -> int:
    """Return the rounds of this number of independent processes in a second."""
    program = (
        "import time; end, rounds = time.perf_counter() + 1, 0\n"
        "while time.perf_counter() < end:\n  rounds += 1; sum(range(1000))\nprint(rounds)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return sum(int(process.communicate()[0]) for process in running)


@dataclass
class Server:
    """A measured server: its processes, its port, its store, and its costs so far."""

    pids: list[int]
    port: int
    store: redis.Redis
    run: Run = field(default_factory=Run)
    own_s: float = 0.0
    store_s: float = 0.0

    def measure(self, requests: list[bytes], connections: int, expected: int) -> float:
        """Drive it, and add its costs; return the ratio of p99 and median in this turn."""
        before = self._spent()
        run = drive(self.port, requests, connections)
        own_s, store_s = (after - earlier for after, earlier in zip(self._spent(), before, strict=True))
        # A shared machine can starve a call to the store for 0.6 s: undecided, and the row says how often.
        assert run.statuses.keys() <= {expected, 503}, run.statuses
        assert run.statuses[503] <= len(requests) / 50, run.statuses
        self.run += run
        self.own_s += own_s
        self.store_s += store_s
        return run.quantile_ms(0.99) / run.quantile_ms(0.5)

    def _spent(self) -> tuple[float, float]:
        used = self.store.info("cpu")
        return sum(map(cpu_s, self.pids)), used["used_cpu_user"] + used["used_cpu_sys"]

    def us(self, seconds: float) -> float:
        return seconds / len(self.run.taken_s) * 1e6

    def fresh(self) -> Server:
        """Return it without costs."""
        return Server(self.pids, self.port, self.store)

    def all_us(self) -> float:
        """Return the cost of a request to the whole machine: server, store and generator."""
        return self.us(self.own_s + self.store_s + self.run.cpu_s)


def row(name: str, server: Server, per: int = 1, ratios: str = "") -> None:
    """Print one run; CPU per request, or per one of the `per` tokens of it."""
    run, undecided = server.run, server.run.statuses[503]
    print(
        f"  {name:<34}{run.per_s:7.0f}/s  p50 {run.quantile_ms(0.5):6.2f} ms  p99 {run.quantile_ms(0.99):6.2f} ms"
        f"  {server.us(server.own_s) / per:5.0f} us CPU (store {server.us(server.store_s) / per:.0f},"
        f" generator {server.us(run.cpu_s) / per:.0f})  {max(map(rss_mib, server.pids)):3d} MiB{ratios}"
        + (f"  (503: {undecided})" if undecided else "")
    )


# -- the floor ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def floor_server(folder: Path, provider: LocalProvider, url: str, workers: int) -> Iterator[Server]:
    keys, port = folder / "keys.json", free_port()
    keys.write_bytes(msgspec.json.encode(provider.key_set()))
    command = [sys.executable, "-m", "tests.bench.floor", str(port), url, str(keys)]
    processes = [subprocess.Popen(command) for _ in range(workers)]
    try:
        eventually(lambda: listening_on(port) == workers)
        yield Server([process.pid for process in processes], port, redis.Redis.from_url(url))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(10)


# -- the service --------------------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """The costs of workers with RS256 at the most connections, beside the floor."""

    service: Server
    floor: Server


def bench_singles(live: Running, service: Server, floor: Server) -> Measured:
    """Print a row for each algorithm and number of connections; return RS256 at the most connections, and its floor."""
    drive(service.port, singles(live, "ES256", 300), 8)  # warm
    kept = Measured(service, floor)
    for algorithm in ("RS256", "ES256"):
        for connections in CONNECTIONS:
            service, floor = service.fresh(), floor.fresh()
            tails = []
            for _ in range(TURNS):
                count = (COUNT if connections > 1 else COUNT // 3) // TURNS
                made = singles(live, algorithm, count)
                floor.measure(
                    [each.replace(b"/tokens", b"/%b" % algorithm.encode(), 1) for each in made], connections, 201
                )
                tails.append(service.measure(made, connections, 201))
            row(f"floor server, {algorithm}, {connections} conn.", floor)
            ratio = service.us(service.own_s) / floor.us(floor.own_s)
            ratios = f"  {ratio:.2f} x floor, p99 {statistics.median(tails):.2f} x p50"
            row(f"{algorithm}, {connections} conn.", service, ratios=ratios)
            if (algorithm, connections) == ("RS256", CONNECTIONS[-1]):
                kept = Measured(service, floor)
    return kept


def form_of(single: bytes) -> bytes:
    """Return a request to /oauth/token for what a request to /tokens asks."""
    head, _, body = single.partition(b"\r\n\r\n")
    details = f'[{{"type":"eval_result",{body.decode()[1:]}]'
    sent = urlencode(form(head.decode().rpartition("Bearer ")[2], authorization_details=details)).encode()
    first = b"POST /oauth/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded"
    return b"%b\r\nContent-Length: %d\r\n\r\n%b" % (first, len(sent), sent)


def bench_exchange(live: Running, service: Server) -> None:
    """Print /oauth/token beside /tokens, in turn."""
    plain, exchange = service.fresh(), service.fresh()
    for _ in range(TURNS):
        for server, write, expected in ((plain, bytes, 201), (exchange, form_of, 200)):
            server.measure([write(each) for each in singles(live, "ES256", COUNT // TURNS)], 8, expected)
    row("/tokens, ES256, 8 conn.", plain)
    ratio = exchange.own_s / plain.own_s
    verdict = "met" if ratio <= MOST_EXCHANGE else "MISSED"
    row("/oauth/token, ES256, 8 conn.", exchange, ratios=f"  {ratio:.2f} x /tokens ({MOST_EXCHANGE} wanted: {verdict})")


def bench_others(live: Running, service: Server) -> None:
    """Print a batch and the key set."""
    body = msgspec.json.encode({"results": [numbered(number) for number in range(100)]})
    batch, keys = service.fresh(), service.fresh()
    batch.measure([request("/tokens/batch", live.token(alg="ES256"), body) for _ in range(60)], 4, 201)
    row("batch of 100, CPU per token", batch, per=100)
    keys.measure([GET_KEYS] * 6000, 32, 200)
    row("GET /.well-known/jwks.json", keys)


@contextlib.contextmanager
def cores_apart(service: Iterable[int], rest: Iterable[int]) -> Iterator[None]:
    """Give the first core to the servers, of which one works at a time, and the others to generator and store."""
    cores, rest = sorted(os.sched_getaffinity(0)), list(rest)
    if len(cores) > 1:
        pin(service, {cores[0]})
        pin(rest, set(cores[1:]))
    try:
        yield
    finally:
        pin(rest, set(cores))


def bench_workers(folder: Path, provider: LocalProvider, url: str, workers: int) -> Measured:
    """Print everything for this number of workers."""
    write_folder(folder, provider, es256=True)
    command = serve(workers)
    with (
        floor_server(folder, provider, url, workers) as floor,
        running(folder, provider, command=command, store_url=url) as live,
        contextlib.ExitStack() as stack,
    ):
        service = Server([live.process.pid], live.settings.listen.port, floor.store)
        if workers == 1:
            store = int(floor.store.info("server")["process_id"])
            stack.enter_context(cores_apart([*service.pids, *floor.pids], [os.getpid(), store]))
        print(f"\nPOST /tokens, {workers} worker(s)")
        kept = bench_singles(live, service, floor)
        if workers == 1:
            bench_exchange(live, service)
            bench_others(live, service)
        return kept


def report_scaling(one: Measured, two: Measured) -> None:
    """Print the gain of the second worker, and the most that this machine allows."""
    cores = len(os.sched_getaffinity(0))
    print("\ntwo workers against one (RS256, 32 connections)")
    print(f"  two busy processes that share nothing      {busy(2) / busy(1):.2f} x")
    for name, first, second in ("service", one.service, two.service), ("floor server", one.floor, two.floor):
        # One worker waits for itself only: it has its own core.
        gained, most = second.run.per_s / first.run.per_s, cores * first.us(first.own_s) / second.all_us()
        print(f"  {name:<12} {gained:.2f} x; {cores} cores for server, store and generator allow {most:.2f} x")


def main() -> None:
    print(describe())
    print(f"load: {os.cpu_count()} cores for generator, service and store; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider, EmbeddedValkey() as url:
        report_scaling(*(bench_workers(Path(made) / str(count), provider, url, count) for count in (1, 2)))


if __name__ == "__main__":
    main()
