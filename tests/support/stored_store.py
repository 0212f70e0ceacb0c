"""The store of limits of one version of the issuer, key by key, and the outcomes of today's admission on it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio import Redis

from issuer.errors import IssuerError
from issuer.issuance.ports import AdmissionRequest, Admitted, Countable, Counted, Item, Use
from issuer.issuance.steps import Payer, StoreSecret
from issuer.limits.abuse import read_tally
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.token.verify_token import read_template
from tests.support import make

T = TypeVar("T")

_SECRET = StoreSecret(b"k" * 32)
_LIMITS = Limits(refusals=Rate(count=1, per_s=86_400, burst=1), quarantine_s=86_400)
_RECORD, _SAME, _OTHER = "a" * 64, "b" * 64, "c" * 64
_ITEM = Item(b"run0", b"twin", b"v" * 16, b"r" * 8, b"o" * 8, (b"f" * 8,))
_SEALED = _SECRET.seal(_RECORD, _SAME, make.template().to_bytes())


def _request(digest: str, candidate: bytes) -> AdmissionRequest:
    use = Use(_RECORD, 1, digest, make.NOW + 3600, make.KID, (make.KID,), make.NOW + 60, make.NOW + 7200)
    return AdmissionRequest(
        Payer("inspect-ai", "main"), _LIMITS, 1, use, candidate, countable=Countable((_ITEM,), b"c" * 8)
    )


_REFUSED = AdmissionRequest(Payer("inspect-ai", "probing"), _LIMITS, 1, refused=True)


def write_store(folder: Path) -> None:
    """Have a use, its counts and a quarantine kept, and write what the store then holds to `keys.json`."""

    async def work(client: Any, admission: RedisAdmission) -> dict[str, Any]:
        await admission.start()
        await admission.admit(_request(_SAME, _SEALED))
        for _ in range(2):
            await admission.count(_REFUSED)
        return {key.decode(): await _value(client, key) for key in sorted(await client.keys("{evi*"))}

    kept = asyncio.run(_with_store(make.NOW - 60, work))
    (folder / "keys.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "ascii")


def read_store(folder: Path) -> object:
    """Put the keys into a store, and return the outcomes of the same request, another one, and that of a quarantined
    identity."""
    kept = json.loads((folder / "keys.json").read_bytes())

    async def work(client: Any, admission: RedisAdmission) -> list[object]:
        for key, value in kept.items():
            await _put(client, key, value)
        await admission.start()
        asked = (_request(_SAME, b"another"), _request(_OTHER, b"another"), _REFUSED)
        return [await _outcome(admission, each) for each in asked]

    return asyncio.run(_with_store(make.NOW + 120, work))


async def _with_store(start_s: int, work: Callable[[Any, RedisAdmission], Awaitable[T]]) -> T:
    with EmbeddedValkey() as url:
        async with Redis.from_url(url) as client:
            admission = RedisAdmission(url, leeway_s=30, durable_store=True, now_us=lambda: start_s * 1_000_000)
            try:
                return await work(client, admission)
            finally:
                await admission.aclose()


async def _outcome(admission: RedisAdmission, asked: AdmissionRequest) -> object:
    try:
        found: Admitted | Counted = await (admission.admit(asked) if asked.use else admission.count(asked))
    except IssuerError as refused:
        return str(refused.code)
    if isinstance(found, Counted) or not found.repeat:
        return "new"
    raw = _SECRET.unseal(_RECORD, _SAME, found.template)
    return None if raw is None else (read_template(raw), read_tally(found.tally))


async def _value(client: Any, key: bytes) -> dict[str, Any]:
    if await client.type(key) == b"hash":
        return {"hash": {name.hex(): value.hex() for name, value in (await client.hgetall(key)).items()}}
    return {"string": (await client.get(key)).hex()}


async def _put(client: Any, key: str, value: dict[str, Any]) -> None:
    if "hash" in value:
        fields = {bytes.fromhex(name): bytes.fromhex(each) for name, each in value["hash"].items()}
        await client.hset(key, mapping=fields)
    else:
        await client.set(key, bytes.fromhex(value["string"]))
