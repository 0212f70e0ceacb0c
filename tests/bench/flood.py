"""Good callers beside a flood of bad tokens from their own address. `python -m tests.bench.flood`, part of `make bench`."""

import os
import sys
import tempfile
import time
from pathlib import Path

from issuer.dev.provider import LocalProvider
from tests.support.flood import FEW, MANY, PER_S, bad, beside, good
from tests.support.http_load import drive
from tests.support.processes import cpu_s
from tests.support.running import Running, allow_es256, running, singles, write_folder


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
    """Run everything."""
    print(f"flood: {PER_S} a second on {os.cpu_count()} cores for all; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider:
        folder = Path(made) / "flood"
        write_folder(folder, provider)
        allow_es256(folder)
        with running(folder, provider) as live:
            drive(live.settings.listen.port, singles(live, "ES256", 300), 4)
            bench(live, int(sys.argv[1]) if len(sys.argv) > 1 else 1000)


if __name__ == "__main__":
    main()
