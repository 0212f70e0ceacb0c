"""The cost of reading a large run: time and peak resident memory. `python -m tests.bench.adapters`."""

import tempfile
from pathlib import Path

from tests.support.large_logs import LIMIT_MIB, LIMIT_S, MIB, measure, write_large_log


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
    bench_adapters()
