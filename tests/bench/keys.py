"""The cost of a signature, by the place of its key. `python -m tests.bench.keys`, part of `make bench`.

A file's key signs in the event loop. A remote one is called over real HTTP, at a local KMS that answers after 10 ms. A worker
should reach four fifths of its limit: as many calls as it has places in these 10 ms, or in the time of one call alone.
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.service.signing.bounds import SIGNER_CALLS
from issuer.service.signing.keyring import KeyringSigner
from tests.support import make
from tests.support.http_load import drive
from tests.support.keyrings import load_keyring
from tests.support.kms import ENVIRONMENT, file_of
from tests.support.processes import cpu_s
from tests.support.running import running, singles, write_folder

ANSWER_S = 0.010
CONNECTIONS, COUNT, TURNS = 64, 1500, 5
MESSAGE = b"m" * 1500


@contextlib.contextmanager
def slow_kms() -> Iterator[str]:
    """Run a KMS in another process; yield its URL. This process's environment has credentials for it."""
    command = [sys.executable, "-m", "tests.support.kms", str(ANSWER_S), make.KEY.private_bytes_raw().hex()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    os.environ.update(ENVIRONMENT)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        assert process.wait(10) == 0, "the KMS was asked for something that AWS would refuse"


async def bench_files(keyring: KeyringSigner) -> None:
    """Print the cost of a file's key beside the signature alone: both in turns, the fastest of each."""
    bare_us, own_us = [], []
    for _ in range(TURNS * 3):
        began = time.process_time()
        for _ in range(COUNT):
            jose.sign(make.KEY, MESSAGE)
        between = time.process_time()
        for _ in range(COUNT):
            await keyring.sign(keyring.active_kid, (MESSAGE,))
        bare_us.append((between - began) / COUNT * 1e6)
        own_us.append((time.process_time() - between) / COUNT * 1e6)
    print(f"  a file's key: {min(own_us):.1f} us CPU, {min(own_us) / min(bare_us):.3f} x the signature alone")


async def bench_callers(keyring: KeyringSigner) -> float:
    """Print the rate of signatures for many callers of one process. Return the seconds of a single call."""

    async def caller() -> None:
        for _ in range(COUNT // CONNECTIONS):
            await keyring.sign(keyring.active_kid, (MESSAGE,))

    alone = []
    for _ in range(100):
        began = time.perf_counter()
        await keyring.sign(keyring.active_kid, (MESSAGE,))
        alone.append(time.perf_counter() - began)
    alone_s = statistics.median(alone)
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))
    count, taken = COUNT // CONNECTIONS * CONNECTIONS, time.perf_counter() - began
    cpu_us = (time.process_time() - cpu) / count * 1e6
    print(f"  KMS, {CONNECTIONS} callers: {count / taken:.0f}/s, {cpu_us:.0f} us CPU{share(count / taken, alone_s)}")
    began = time.perf_counter()
    await keyring.sign(keyring.active_kid, (MESSAGE,) * 100)
    print(f"  KMS, a batch of 100 alone: {(time.perf_counter() - began) * 1000:.0f} ms")
    return alone_s


def bench_service(name: str, folder: Path, provider: LocalProvider, alone_s: float = 0.0) -> None:
    """Print the rate of signatures of the service on many connections, and its CPU for whole requests."""
    with running(folder, provider) as live:
        drive(live.settings.listen.port, singles(live, "ES256", 200), 8)  # warm
        made = singles(live, "ES256", COUNT)
        before = cpu_s(live.process.pid)
        run = drive(live.settings.listen.port, made, CONNECTIONS)
        cpu_us = (cpu_s(live.process.pid) - before) / COUNT * 1e6
    print(
        f"  {name}, POST /tokens on {CONNECTIONS} connections: {run.per_s:.0f}/s, p50 {run.quantile_ms(0.5):.0f} ms,"
        f" p99 {run.quantile_ms(0.99):.0f} ms, {cpu_us:.0f} us CPU{share(run.per_s, alone_s)}  {dict(run.statuses)}"
    )


def share(per_s: float, alone_s: float) -> str:
    """Return the share of the limit of the places, "" for a file's key."""
    if not alone_s:
        return ""
    shares = (
        f"{per_s * each / SIGNER_CALLS:.0%} of {SIGNER_CALLS} in {each * 1000:.1f} ms" for each in (ANSWER_S, alone_s)
    )
    return "; " + ", ".join(shares)


def main() -> None:
    print(f"keys, by their place; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider, slow_kms() as url:
        in_file, in_kms = Path(made) / "file", Path(made) / "kms"
        for folder in (in_file, in_kms):
            write_folder(folder, provider, es256=True)
        (old,) = (in_kms / "keys" / "active").iterdir()
        path = old.with_suffix(".yaml")
        path.touch(0o600)
        path.write_text(file_of(url), "utf-8")
        old.unlink()
        asyncio.run(bench_files(load_keyring(in_file / "keys")))
        alone_s = asyncio.run(bench_callers(load_keyring(in_kms / "keys")))
        bench_service("a file's key", in_file, provider)
        bench_service("KMS", in_kms, provider, alone_s)


if __name__ == "__main__":
    main()
