"""`make bench`: the cost of the primitives, of verification and of reading runs, with ratios within one run.

Compare rows, never absolutes: the machine's speed drifts from hour to hour, ratios do not. `instructions.py` has the steps
of a request, `load.py` the service.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import rfc8785

from issuer.formats import jcs
from issuer.formats.strict_json import loads
from issuer.io import keyfile
from tests.bench.bulk import bench_bulk, bench_logged
from tests.bench.interpreter import describe
from tests.bench.pat import bench_pats
from tests.support.large_logs import LIMIT_MIB, LIMIT_S, MIB, measure, write_large_log
from tests.support.running import BODY

SECONDS = 0.4


def cpu_us(work: Callable[[], object]) -> float:
    """Return the median CPU microseconds of one call, over seven batches."""
    work()
    began, count = time.process_time(), 0
    while time.process_time() - began < SECONDS / 7:
        work()
        count += 1
    batches = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(count):
            work()
        batches.append((time.process_time() - began) / count * 1e6)
    return sorted(batches)[3]


def row(name: str, us: float, floor: float | None = None) -> None:
    ratio = f"{us / floor:6.2f} x floor" if floor else ""
    print(f"  {name:<58}{us:9.1f} us  {ratio}")


def bench_primitives() -> None:
    """Print the cost of signatures and of JSON alone."""
    print("\nprimitives (CPU of one call)")
    key = keyfile.generate()
    message = os.urandom(1500)
    signature = key.sign(message)
    public = key.public_key()
    row("Ed25519 sign", cpu_us(lambda: key.sign(message)))
    row("Ed25519 verify", cpu_us(lambda: public.verify(signature, message)))
    claims = BODY["claims"]
    row("RFC 8785 by the rfc8785 package", cpu_us(lambda: rfc8785.dumps(claims)))
    row("RFC 8785 by issuer.formats.jcs", cpu_us(lambda: jcs.canonical(claims)))
    raw = msgspec.json.encode(BODY)
    row("strict_json.loads of a body", cpu_us(lambda: loads(raw, max_bytes=65536, max_depth=16)))


def bench_adapters() -> None:
    """Print what a 100 MiB Inspect log costs, and whether that is within 2 s and 200 MiB."""
    print("\nadapters: reading an Inspect log of 100 MiB (limit: 2 s, 200 MiB; best of three)")
    with tempfile.TemporaryDirectory() as folder:
        for name, source, value, text in (
            ("as inspect", "inspect", "0.5", ""),
            ("recognised (--from auto: scanned twice)", "auto", "0.5", ""),
            ("with a NaN in every sample, in a text that is not ASCII", "inspect", "NaN", "Größe: NaN, ∞"),
        ):
            path = Path(folder) / "log.json"
            write_large_log(path, 100 * MIB, value=value, text=text)
            taken = [measure(path, source) for _ in range(3)]
            seconds, resident = min(taken)[0], max(resident for _, resident in taken)
            verdict = "ok" if seconds < LIMIT_S and resident < LIMIT_MIB else "TOO MUCH"
            print(f"  {name:<58}{seconds:7.2f} s {resident:7.0f} MiB  {verdict}")


if __name__ == "__main__":
    print(describe())
    bench_primitives()
    bench_pats(cpu_us, row)
    bench_bulk()
    bench_logged()
    bench_adapters()
