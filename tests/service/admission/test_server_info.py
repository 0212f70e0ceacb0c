"""What the log stream tells an operator first: where a worker listens, on which store and keys, and when the store goes."""

import asyncio
from typing import Any

import msgspec
import redis
import structlog

from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.admission.redis import RedisAdmission
from issuer.service.admission.store_watch import StoreWatch
from tests.support.running import Running


def test_a_worker_says_where_it_listens_and_every_line_has_its_pid(service: Running) -> None:
    assert service.post(service.token()).status_code == 201
    text = service.until_log_says('"decision"')
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in text[: text.rindex("\n")].splitlines()]
    listening = next(line for line in lines if line["event"] == "listening")
    loaded = next(line for line in lines if line["event"] == "keys loaded")
    assert (listening["url"], listening["address"]) == (service.url, f"127.0.0.1:{service.settings.listen.port}")
    assert (listening["integrations"], listening["store"].endswith("/s")) == (2, True), listening
    assert listening["keys"] == loaded["keys"]
    assert list(loaded["keys"].values()) == ["active"]
    assert {line["pid"] for line in lines} == {service.process.pid}


def test_a_store_that_fills_is_told_from_70_percent_of_its_bound_on() -> None:
    """A real store reports its own use, if it may."""

    async def look(url: str) -> list[object]:
        client, warnings = redis.Redis.from_url(url), list[object]()
        client.acl_setuser("shy", enabled=True, nopass=True, keys="*", commands=["+@all", "-info"])
        shy, admission = RedisAdmission(url.replace("unix://", "unix://shy:x@")), RedisAdmission(url)
        watch, blind = StoreWatch(admission), StoreWatch(shy)
        await blind.turn(False)
        warnings.append(blind.status["warnings"])
        await shy.aclose()
        for part in (0.0, 0.5, 0.75, 2.0, 0.5):
            client.config_set("maxmemory", int(client.info("memory")["used_memory"] / part) if part else 0)
            for _ in range(2):  # each change is logged once
                await watch.turn(False)
            warnings.append(watch.status["warnings"])
        store.close()
        await watch.turn(False)
        await admission.aclose()
        client.close()
        return warnings

    store = EmbeddedValkey()
    with store as url, structlog.testing.capture_logs() as logged:
        unknown, unbounded, half, most, full, again = asyncio.run(look(url))
    assert "does not report its memory" in str(unknown)
    assert "has no maxmemory" in str(unbounded)
    assert (half, again) == ((), ())
    assert "uses 7" in str(most)
    assert "% of its memory" in str(full)
    assert [line["event"] for line in logged] == [
        "store fills", "store lost", "store back", "store has room", "store lost",
    ]  # fmt: skip
