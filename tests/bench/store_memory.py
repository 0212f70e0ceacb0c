"""The memory of the store for the tokens of a day, by kind of key. `python -m tests.bench.store_memory`.

A real store and the real admission script. Some thousand tokens are admitted, each of another result, model and run,
which is the highest cost; the store then reports the size of each key (`MEMORY USAGE`, of all elements) and its growth. The
lives of the keys give the memory for 10^6 tokens a day.
"""

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from redis.asyncio import Redis

from issuer.formats.jose import segment
from issuer.io.redis_client import PREFIX
from issuer.issuance.ports import AdmissionRequest, Countable, Item, Use
from issuer.issuance.steps import Payer
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from tests.bench.floor import LIMITS

COUNT = int(os.environ.get("BENCH_TOKENS", "20000"))
IDENTITIES = 200
A_DAY = 1_000_000
# A sealed template of a GitHub job's token, without the run claims.
TEMPLATE_BYTES = 1300
# How long a key lives, in days: a use record to the end of its identity token (here an hour; a nonce's: a day), counts
# for the windows of the policy's defaults.
HOUR, DAY = 1 / 24, 1.0
LIVES = {"use": HOUR, "run": 30 * DAY, "twins": 7 * DAY}


def _hash(size: int, *of: object) -> bytes:
    return segment(hashlib.sha256(repr(of).encode()).digest())[:size]


def _calls(now_s: int) -> Iterator[AdmissionRequest]:
    template = os.urandom(TEMPLATE_BYTES)
    for number in range(COUNT):
        files = tuple(_hash(8, "file", number, each) for each in range(2))
        item = Item(
            _hash(16, "run", number), _hash(16, "twins", number), _hash(16, "values", number), _hash(8, "repo", number),
            _hash(8, "owner", number // 20), files,
        )  # fmt: skip
        digest = "sha256:" + hashlib.sha256(b"%d" % number).hexdigest()
        record = hashlib.sha256(b"use %d" % number).hexdigest()
        use = Use(record, 1, digest, now_s + 3600, "k" * 43, ("k" * 43,), now_s + 60, now_s + 3600)
        payer = Payer(f"framework-{number % IDENTITIES}", "ci")
        yield AdmissionRequest(payer, LIMITS, 1, use, template, countable=Countable((item,), _hash(8, number)))


async def measure(url: str) -> None:
    """Admit the tokens, and print the memory of each kind of key."""
    client, admission = Redis.from_url(url), RedisAdmission(url, leeway_s=0, durable_store=True)
    await admission.start()
    before = (await client.info("memory"))["used_memory"]
    calls = _calls((await client.time())[0])
    while some := list(islice(calls, 100)):
        await asyncio.gather(*map(admission.admit, some))
    grown = (await client.info("memory"))["used_memory"] - before
    sizes: dict[str, list[int]] = defaultdict(list)
    async for key in client.scan_iter(match=PREFIX + b"*", count=1000):
        sizes[key[len(PREFIX) :].partition(b":")[0].decode()].append(await client.memory_usage(key, samples=0) or 0)
    await admission.aclose()
    await client.aclose()
    _print(grown, sizes)


def _print(grown: int, sizes: dict[str, list[int]]) -> None:
    print(f"{COUNT} tokens of {IDENTITIES} identities: {grown / COUNT:.0f} bytes each, all in all")
    print(f"{'key':<12}{'keys':>8}{'bytes':>8}   of {A_DAY:.0e} tokens a day")
    for kind, found in sorted(sizes.items(), key=lambda each: -sum(each[1])):
        mean, life = sum(found) / len(found), LIVES.get(kind)
        at_once = f"{mean * A_DAY * life / 1e6:.0f} MB, each for {life * 24:g} h" if life else "bounded, by identity"
        print(f"{kind:<12}{len(found):>8}{mean:>8.0f}   {at_once}")


if __name__ == "__main__":
    with EmbeddedValkey() as url:
        asyncio.run(measure(url))
