"""A long stretch of good and bad traffic, and the growth of memory, descriptors and keys.

One in ten requests is good, one in ten reuses an identity; seven in ten have a new key or subject, the rest is junk; from
50,000 addresses. Signing is the generator's greatest cost.
"""

import itertools
import multiprocessing
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import redis

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.http_load import drive, request
from tests.support.processes import family, rss_mib
from tests.support.running import Running, numbered, running, write_folder
from tests.support.waiting import within

SAMPLES = 20
SOURCES = 50_000
PROCESSES = 2


@dataclass
class Sample:
    """What the service held after a number of requests."""

    requests: int
    rss_mib: int
    descriptors: int
    keys: int
    statuses: Counter[int]


def traffic(live: Running, process: int, count: int) -> Iterator[bytes]:
    """Yield requests; the numbers of two processes never meet."""
    provider, body = live.provider, msgspec.json.encode(numbered(0))
    other, good = msgspec.json.encode(numbered(1)), ""
    forged = provider.token(live.url, alg="ES256").split(".")
    for number in itertools.islice(itertools.count(process, PROCESSES), count):
        source = f"X-Forwarded-For: 10.{number % SOURCES // 250}.{number % 250}.1"
        match number // PROCESSES % 10:
            case 0:
                good = provider.token(live.url, alg="ES256")
                yield request("/tokens", good, body, source)
            case 1:
                yield request("/tokens", good, other, source)
            case 2 | 3 | 4 | 5 | 6:
                header = msgspec.json.encode({"alg": "ES256", "kid": f"{number}-{secrets.token_hex(8)}"})
                yield request("/tokens", ".".join((jose.base64url_encode(header), *forged[1:])), body, source)
            case 7 | 8:
                stranger: dict[str, Any] = {"repository_id": str(10**9 + number), "sub": f"repo:stranger/{number}"}
                yield request("/tokens", provider.token(live.url, alg="ES256", **stranger), body, source)
            case _:
                yield request("/tokens", f"{number}.b.c", b"{" * (number % 50), source)


def _work(live: Running, process: int, count: int, results: Any) -> None:
    results.put(drive(live.settings.listen.port, traffic(live, process, count), 16).statuses)


def stretch(live: Running, count: int) -> Counter[int]:
    """Send this many requests from processes that inherit the provider's keys; return the statuses."""
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    share = count // PROCESSES
    children = [context.Process(target=_work, args=(live, number, share, results)) for number in range(PROCESSES)]
    for child in children:
        child.start()
    found: Counter[int] = sum((results.get() for _ in children), Counter())
    for child in children:
        child.join()
    return found


def descriptors(pid: int) -> int:
    """Return the fewest open descriptors of the service in half a second: it is closing the generators' connections."""
    counts: list[int] = []

    def look() -> bool:
        counts.append(sum(len(os.listdir(f"/proc/{member}/fd")) for member in family(pid)))
        return False

    within(0.5, look)
    return min(counts)


def soak(folder: Path, total: int) -> list[Sample]:
    """Send `total` requests to one worker in `SAMPLES` stretches; return what it held after each."""
    samples: list[Sample] = []
    statuses: Counter[int] = Counter()
    with LocalProvider() as provider, EmbeddedValkey() as store:
        write_folder(folder, provider, es256=True)
        with (
            running(folder, provider, store_url=store, listen_trusted_proxies="127.0.0.1") as live,
            redis.Redis.from_url(store) as client,
        ):
            for _ in range(SAMPLES):
                statuses += stretch(live, total // SAMPLES)
                pid = live.process.pid
                held = descriptors(pid)
                sample = Sample(statuses.total(), rss_mib(pid), held, client.dbsize(), Counter(statuses))
                samples.append(sample)
                print(f"  {sample.requests:>9} requests  {sample.rss_mib:4d} MiB  {held:3d} descriptors  "
                      f"{sample.keys:7d} keys  {dict(sorted(statuses.items()))}", flush=True)  # fmt: skip
    return samples


def judge(samples: list[Sample]) -> list[str]:
    """Report what grew after the first tenth: until then tables and caches fill."""
    warm, last = samples[SAMPLES // 10 - 1], samples[-1]
    accepted, good = last.statuses[201], last.requests // 10
    found = []
    if max(sample.rss_mib for sample in samples) - warm.rss_mib >= 50:
        found.append(f"resident memory grew from {warm.rss_mib} MiB by 50 or more")
    if last.keys > good + 10:  # one for each, and a handful for the registered identity
        found.append(f"{last.keys} keys for {good} good identities")
    if last.descriptors > warm.descriptors + 5:
        found.append(f"descriptors grew from {warm.descriptors} to {last.descriptors}")
    # A shared machine can starve a call to the store for 0.8 s: undecided, without a repeat here.
    if not 0.9 * good <= accepted <= good:
        found.append(f"{accepted} accepted of {good} good requests")
    if strange := set(last.statuses) - {201, 401, 403, 409, 429, 503}:
        found.append(f"statuses that none of this causes: {strange}")
    return found
