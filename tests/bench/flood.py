"""Good callers beside a flood of bad tokens from their own address. `python -m tests.bench.flood`, part of `make bench`.

The flood is paced and does not depend on the answers: one request on the next free connection, at the given rate. Its
generator is a loop over epoll that costs 50 us a request, since it shares two cores with the service and the store.
Over few connections the service takes less than is offered: refused requests are answered late.
"""

import multiprocessing
import os
import select
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from issuer.dev.provider import LocalProvider
from tests.support.http_load import Run, drive, request
from tests.support.processes import cpu_s
from tests.support.running import Running, numbered, running, singles, write_folder

PER_S = 2000
# Fewer than the service holds back, and more.
FEW, MANY = 64, 600
# How many of them come at once.
TOGETHER = 4


@dataclass
class Flooded:
    """What a flood achieved: answers a second, by status, and the share of one core that its generator took."""

    per_s: float
    statuses: Counter[str]
    cpu: float


def flood(port: int, payloads: Sequence[bytes], seconds: float, connections: int) -> Flooded:
    """Send at a steady rate over keep-alive connections, each with at most one request under way."""
    opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    poll, statuses = select.epoll(), Counter[str]()
    for connection in opened:
        poll.register(connection, select.EPOLLIN)
    by_number = {connection.fileno(): connection for connection in opened}
    free, sent = deque(opened), 0
    cpu, began = time.process_time(), time.perf_counter()
    due = began
    while (now := time.perf_counter()) < began + seconds:
        for _ in range(TOGETHER if due <= now else 0):
            if free:  # without one, the service takes no more: it answers later than it is asked
                free.popleft().send(payloads[sent % len(payloads)])
                sent += 1
        due += TOGETHER / PER_S if due <= now else 0
        for number, _ in poll.poll(max(0.0, due - now)):
            answer = by_number[number].recv(65536)
            if answer.startswith(b"HTTP/1.1 "):  # the second piece of an answer is not counted
                statuses[answer[9:12].decode()] += 1
                free.append(by_number[number])
    spent, took_s = time.process_time() - cpu, time.perf_counter() - began
    for connection in opened:
        connection.close()
    return Flooded(statuses.total() / took_s, statuses, spent / took_s)


def bad(live: Running) -> dict[str, list[bytes]]:
    """Return requests with useless tokens, by their fault."""
    body, provider = msgspec.json.encode(numbered(1)), live.provider
    token, other = provider.token(live.url).split("."), provider.token(live.url).split(".")
    unknown = (provider.sign({"alg": "RS256", "kid": f"unknown-{n}"}, provider.claims(aud=live.url)) for n in range(64))
    return {
        "unknown keys": [request("/tokens", each, body) for each in unknown],
        "wrong signatures": [request("/tokens", ".".join([*token[:2], other[2]]), body)],
        "not tokens": [request("/tokens", "a.b.c", body)],
    }


def good(live: Running, count: int) -> Run:
    """Send good requests at a steady hundred a second."""
    return drive(live.settings.listen.port, singles(live, "ES256", count), 4, pause_s=0.04)


def beside(live: Running, payloads: Sequence[bytes], count: int, connections: int) -> tuple[Run, Flooded]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(abs, (1,))  # it has started
        flooding = pool.apply_async(flood, (live.settings.listen.port, payloads, count / 100 + 2.0, connections))
        time.sleep(1.0)  # a slow peer: the flood has its full rate
        run = good(live, count)
        return run, flooding.get()


def bench(live: Running, count: int = 1000) -> None:
    """Print good callers alone and beside each kind of flood, one after the other: compare neighbours."""
    for kind, payloads in bad(live).items():
        for connections in (0, FEW, MANY):
            name = f"beside {kind}, {connections}" if connections else "good callers alone"
            before, began = cpu_s(live.process.pid), time.perf_counter()
            run, flooded = beside(live, payloads, count, connections) if connections else (good(live, count), None)
            share = (cpu_s(live.process.pid) - before) / (time.perf_counter() - began)
            print(
                f"  {name:<42} p50 {run.quantile_ms(0.5):6.2f} ms  p99 {run.quantile_ms(0.99):6.2f} ms"
                f"  service {share:4.0%} of a core  {dict(run.statuses)}"
                + (f"  {flooded.per_s:.0f}/s, {flooded.cpu:.0%}, {dict(flooded.statuses)}" if flooded else "")
            )


def main() -> None:
    print(f"flood: {PER_S} a second on {os.cpu_count()} cores for all; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider:
        folder = Path(made) / "flood"
        write_folder(folder, provider, es256=True)
        with running(folder, provider) as live:
            drive(live.settings.listen.port, singles(live, "ES256", 300), 4)
            bench(live, int(sys.argv[1]) if len(sys.argv) > 1 else 1000)


if __name__ == "__main__":
    main()
