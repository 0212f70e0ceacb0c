"""`make bench`: the cost of the primitives and of verification, as CPU per operation and as ratios within one run.

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
import yaml

from issuer.dev.provider import LocalProvider
from issuer.formats import jcs, jose
from issuer.formats.strict_json import loads
from issuer.io import keyfile
from issuer.results.entry import read_entries
from issuer.verify import Context, verify_entries
from issuer.verify.report import Report
from issuer.verify.trust import Trust, TrustedIssuer
from tests.bench.adapters import bench_adapters
from tests.bench.bulk import bench_bulk, bench_logged
from tests.bench.interpreter import describe
from tests.bench.pat import bench_pats
from tests.support.running import BODY, Running, running

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


def bench_primitives() -> float:
    """Print the cost of signatures and of JSON alone; return that of an Ed25519 verification."""
    print("\nprimitives (CPU of one call)")
    key = keyfile.generate()
    message = os.urandom(1500)
    signature = key.sign(message)
    public = key.public_key()
    row("Ed25519 sign", cpu_us(lambda: key.sign(message)))
    row("Ed25519 verify", check := cpu_us(lambda: public.verify(signature, message)))
    claims = BODY["claims"]
    row("RFC 8785 by the rfc8785 package", cpu_us(lambda: rfc8785.dumps(claims)))
    row("RFC 8785 by issuer.formats.jcs", cpu_us(lambda: jcs.canonical(claims)))
    raw = msgspec.json.encode(BODY)
    row("strict_json.loads of a body", cpu_us(lambda: loads(raw, max_bytes=65536, max_depth=16)))
    return check


def bench_verify(live: Running, check: float) -> None:
    """Print the cost of judging a file beside its floor: one Ed25519 verification and one load by libyaml."""
    print("\nissuer.verify (one file of one entry)")
    entry = live.post(live.token()).json()["entry"].encode()
    keys = jose.parse_key_set(live.http.get("/.well-known/jwks.json").content)
    trust = Trust("https://huggingface.co", {live.url: TrustedIssuer(live.url, keys)})
    load = cpu_us(lambda: yaml.load(entry, yaml.CSafeLoader))
    row("floor: Ed25519 verify + yaml.CSafeLoader", check + load)
    now = int(time.time())

    def judged() -> tuple[Report, ...]:
        return verify_entries(
            read_entries(entry, "e"), "acme/open-model", ".eval_results/gsm8k.yaml", trust, now, Context(now)
        )

    assert judged()[0].verdict == "verified"
    row("read_entries + verify_entries", cpu_us(judged), check + load)


def main() -> None:
    """Run everything."""
    print(describe())
    check = bench_primitives()
    bench_pats(cpu_us, row)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalProvider() as provider,
        running(Path(folder), provider) as live,
    ):
        bench_verify(live, check)
    bench_bulk()
    bench_logged()
    bench_adapters()


if __name__ == "__main__":
    main()
