"""The real service under load, beside the floor of the same run. `python -m tests.bench.load`, part of `make bench`.

Each identity is unique and made beforehand. CPU is that of the server processes, the store's not counted. Compare rows
and ratios within one run, never absolutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from issuer import jose, keyfile
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.issue import Admit, Use
from issuer.limits import Limits, Rate
from issuer.service.embedded import EmbeddedValkey
from issuer.service.state import State
from tests.bench.client import Run, drive, request
from tests.running import Running, numbered, running, write_folder

COUNT = int(os.environ.get("BENCH_REQUESTS", "3000"))
GET_KEYS = b"GET /.well-known/jwks.json HTTP/1.1\r\nHost: x\r\n\r\n"
RAW = """
import sys, uvicorn
from issuer.service.edge import BoundedProtocol
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"2000")]})
    await send({"type": "http.response.body", "body": bytes(2000)})
uvicorn.run(app, port=int(sys.argv[1]), http=BoundedProtocol, loop="uvloop", lifespan="off", access_log=False, log_config=None)
"""


def family(pid: int) -> list[int]:
    """Return the service's processes: the parent, and the workers that run what it runs."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in below if Path(f"/proc/{child}/cmdline").read_bytes() == command)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that the service's processes have used."""
    spent = 0
    for member in family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        spent += int(fields[11]) + int(fields[12])
    return spent / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> int:
    """Return the largest resident memory of one of them."""
    pages = max(int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def measured(pid: int, port: int, requests: list[bytes], connections: int, expected: int) -> tuple[Run, float]:
    """Drive, and return the run with the CPU microseconds of the server per request."""
    before = cpu_s(pid)
    run = drive(port, requests, connections, processes=2 if connections > 1 else 1)
    spent = cpu_s(pid) - before
    assert run.statuses == {expected: len(requests)}, run.statuses
    return run, spent / len(requests) * 1e6


def row(name: str, run: Run, cpu_us: float, pid: int, floor_us: float = 0.0) -> None:
    ratio = f"{cpu_us / floor_us:5.2f} x floor" if floor_us else ""
    print(
        f"  {name:<38}{run.per_s:7.0f}/s  p50 {run.quantile_ms(0.5):7.2f} ms  p99 {run.quantile_ms(0.99):7.2f} ms"
        f"  {cpu_us:6.0f} us CPU  {rss_mib(pid):4d} MiB  {ratio}"
    )


# -- the floor ----------------------------------------------------------------------------------------------------------


def one(work: object, times: int = 2000) -> float:
    began = time.process_time()
    for _ in range(times):
        work()  # type: ignore[operator]
    return (time.process_time() - began) / times * 1e6


async def _admissions(url: str, count: int) -> float:
    wide = Rate(count=1_000_000, per_s=1, burst=50_000)
    state, now = State(url, leeway_s=0), int(time.time())
    await state.start()
    limits = Limits(identity=wide, integration=wide, refusals=wide)

    async def caller(number: int) -> None:
        for each in range(count // 32):
            use = Use(
                os.urandom(32).hex(), 1, f"{number}.{each}", b"x" * 700, now + 3600, "kid", ("kid",), now + 5, now + 600
            )
            await state.admit(Admit("integration", "identity", 1, limits, use))

    began = time.process_time()
    await asyncio.gather(*(caller(number) for number in range(32)))
    spent = time.process_time() - began
    await state.aclose()
    return spent / count * 1e6


@contextlib.contextmanager
def raw_server() -> Iterator[tuple[int, int]]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", RAW, str(port)])
    try:
        time.sleep(1.5)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(10)


def floors(provider: LocalProvider) -> dict[str, float]:
    """Measure the floor: bare signature, one merged admission, one Ed25519 signature, one raw request."""
    print("\nthe floor")
    keys = jose.parse_key_set(msgspec.json.encode(provider.key_set()))
    message = os.urandom(1500)
    private = keyfile.generate()
    sign_us = one(lambda: private.sign(message))
    with EmbeddedValkey() as url:
        admit_us = min(asyncio.run(_admissions(url, 6400)) for _ in range(3))
    with raw_server() as (pid, port):
        sample = request("/tokens", provider.token("http://127.0.0.1:1"), msgspec.json.encode(numbered(1)))
        run, raw_us = measured(pid, port, [sample] * 4000, 32, 201)
        row("one raw ASGI request", run, raw_us, pid)
    print(f"  one merged admission {admit_us:.0f} us, one Ed25519 signature {sign_us:.0f} us")
    found = {}
    for algorithm in ("RS256", "ES256"):
        jws = jose.parse_compact(provider.token("x", alg=algorithm))
        key = keys.get(str(jws.header["kid"]))
        assert key is not None
        check_us = one(lambda key=key, jws=jws, name=algorithm: key.verifies(name, jws.signing_input, jws.signature))
        found[algorithm] = check_us + admit_us + sign_us + raw_us
        print(f"  one {algorithm} check {check_us:.0f} us; floor of {algorithm} {found[algorithm]:.0f} us")
    return found


# -- the service ----------------------------------------------------------------------------------------------------------


def allow_es256(folder: Path) -> None:
    """Let the sample provider sign with ES256, too: signatures that the generator makes at a tenth of the cost."""
    path = folder / "policies" / "providers.yaml"
    text = path.read_text("utf-8")
    path.write_text(
        text.replace('"github-actions", ', '"github-actions", algorithms: ["RS256", "ES256"], ', 1), "utf-8"
    )


def singles(live: Running, algorithm: str, count: int) -> list[bytes]:
    return [
        request("/tokens", live.token(alg=algorithm), msgspec.json.encode(numbered(number))) for number in range(count)
    ]


def bench_singles(live: Running, workers: int, floor: dict[str, float]) -> None:
    pid, port = live.process.pid, live.settings.port
    drive(port, singles(live, "ES256", 300), 8)  # warm
    for algorithm in ("RS256", "ES256"):
        for connections in (1, 8, 32):
            requests = singles(live, algorithm, COUNT if connections > 1 else COUNT // 3)
            run, cpu_us = measured(pid, port, requests, connections, 201)
            row(f"{algorithm}, {connections} connections, {workers} worker(s)", run, cpu_us, pid, floor[algorithm])


def bench_others(live: Running) -> None:
    pid, port = live.process.pid, live.settings.port
    batch = msgspec.json.encode({"results": [numbered(number) for number in range(100)]})
    run, cpu_us = measured(
        pid, port, [request("/tokens/batch", live.token(alg="ES256"), batch) for _ in range(60)], 4, 201
    )
    row("batch of 100 (CPU per token)", run, cpu_us / 100, pid)
    run, cpu_us = measured(pid, port, [GET_KEYS] * 6000, 32, 200)
    row("GET /.well-known/jwks.json", run, cpu_us, pid)


def bench_bad_neighbours(live: Running) -> None:
    """Print what 2,000 bad tokens a second do to good callers, who come at a steady 100 a second."""
    pid, port = live.process.pid, live.settings.port
    forged = live.provider.sign({"alg": "RS256", "kid": "unknown"}, live.provider.claims(aud=live.url))
    bad = request("/tokens", forged, msgspec.json.encode(numbered(1)))
    quiet = drive(port, singles(live, "ES256", 600), 4, pause_s=0.04)
    row("good callers alone", quiet, 0.0, pid)
    program = (
        "from tests.bench.client import drive; import sys; "
        "run = drive(int(sys.argv[1]), [sys.stdin.buffer.read()] * 20000, 20, pause_s=0.01); "
        "print(f'  bad tokens: {run.per_s:.0f}/s, {dict(run.statuses)}')"
    )
    flood = subprocess.Popen([sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE)
    assert flood.stdin is not None
    flood.stdin.write(bad)
    flood.stdin.close()
    time.sleep(2)
    loud = drive(port, singles(live, "ES256", 600), 4, pause_s=0.04)
    still = flood.poll() is None
    flood.wait()
    row(f"good callers beside them{'' if still else ' (over early)'}", loud, 0.0, pid)
    print(f"  p99 {loud.quantile_ms(0.99) / quiet.quantile_ms(0.99):.2f} x quiet; statuses {dict(loud.statuses)}")


def main() -> None:
    """Run everything."""
    print(
        f"load: {os.cpu_count()} cores for generator, service and store together; load average {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as folder, LocalProvider() as provider:
        floor = floors(provider)
        for workers in (1, 2):
            print(f"\nPOST /tokens, {workers} worker(s)")
            command = ("-m", "issuer", "serve", "--workers", str(workers))
            write_folder(Path(folder) / str(workers), provider)
            allow_es256(Path(folder) / str(workers))
            with running(Path(folder) / str(workers), provider, command=command) as live:
                time.sleep(1)
                bench_singles(live, workers, floor)
                if workers == 1:
                    bench_others(live)
                    bench_bad_neighbours(live)


if __name__ == "__main__":
    main()
