"""The heads of requests, on a transport without a socket: what the worst of them cost, and HEAD beside every GET."""

import itertools
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from litestar import Litestar
from uvicorn.server import Server

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import begin_log, settings_for
from issuer.io.shared_memory import SharedPage
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.app import Shared
from issuer.service.http.bounds import MAX_FRAMING_BYTES, MAX_HEADER_LINES, MAX_LIST_BYTES, MAX_TARGET_BYTES
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.process.server import server
from issuer.service.settings.background import Background
from issuer.service.settings.model import Settings, changed
from tests.support.fake_transport import answer_to, begin_epoch
from tests.support.running import write_folder
from tests.support.sequencing import served_here


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Settings]:
    """The settings of a service with a log and pages, behind proxies in a wide network."""
    folder = tmp_path_factory.mktemp("heads")
    with EmbeddedValkey() as store:
        uvloop.run(begin_epoch(store))
        write_folder(folder, provider)
        yield begin_log(changed(settings_for(folder, 1), store_url=store, listen_trusted_proxies="127.0.0.0/8"), folder)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[tuple[Server, Litestar]]:
    """Run the application in this loop, without the work of its background."""
    async with AsyncExitStack() as stack:
        socket: Path = await stack.enter_async_context(served_here(log_settings(settings, "")))
        running = server(settings, shared=Shared(SharedPage(), socket))
        running.config.load()
        app = running.config.app
        assert isinstance(app, Litestar)
        await stack.enter_async_context(app.lifespan())
        yield running, app


@pytest.fixture(autouse=True)
def no_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Background, "watch", lambda *_: None)


# -- cost ---------------------------------------------------------------------------------------------------------------

# A plain head takes 0.15 to 0.3 ms, so MOST is some 2 ms; the worst takes 4 times. Without the bounds, Accept takes 200 times,
# and If-None-Match, Connection, many lines and a target of `%2f` 20 times.
MOST = 10
ROUNDS = 20
WHOLE = MAX_FRAMING_BYTES - 2_000
# The first line of the request that reads a header, if it is not `GET /`, and the lines that it needs.
POSTED = "POST /tokens HTTP/1.1", ("Content-Length: 0", "X-Forwarded-For: 198.51.100.{}")
READ_BY = {
    "Connection": ("GET / HTTP/1.1", ("Connection: upgrade", "Upgrade: websocket")),
    "Authorization": (POSTED[0], (*POSTED[1], "Content-Type: application/json")),
    "Content-Encoding": (POSTED[0], (*POSTED[1], "Content-Type: application/json")),
    "Content-Type": POSTED,
}
NAMES = (*READ_BY, "Accept", "Accept-Encoding", "Cookie", "Expect", "Forwarded", "Host", "If-None-Match", "Keep-Alive",
         "Origin", "Range", "Traceparent", "Upgrade", "X-Forwarded-For", "X-Forwarded-Proto")  # fmt: skip
UNITS = (",", ";", "=", '"', ":", "[", "-", "a", "a,", "a;", "a=b;", ";q=0.1", 'W/"a",', "keep-alive,", "1.2.3.4, ")
TARGETS = ("/{}", "/ui/{}", "/errors/{}", "/log/tile/0/{}", "/log/proof?{}", "/?{}", "/integrations/{}/requirements")
PARTS = ("a", "/", "a/", "../", "%2f", "x001/", "&", "iat=0&", "=")
PROXIES = ",".join(f"127.1.{number // 250}.{number % 250}" for number in range(WHOLE // 12))


def filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def head(*lines: str, first: str = "GET / HTTP/1.1") -> bytes:
    host = () if any(line.startswith("Host:") for line in lines) else ("Host: x",)
    return "\r\n".join((first, *host, *lines, "", "")).encode()


def worst_heads() -> Iterator[tuple[str, bytes]]:
    """Yield each shape with its head: as large as that part may be, and as large as a message may be."""
    for name in NAMES:
        first, more = READ_BY.get(name, ("GET / HTTP/1.1", ()))
        for size in (MAX_LIST_BYTES - 50, WHOLE):
            for unit in UNITS:
                yield f"{name}: {unit} in {size}", head(f"{name}: {filled(unit, size)}", *more, first=first)
        for count in (MAX_HEADER_LINES - 6, WHOLE // (len(name) + 5)):
            yield f"{count} lines of {name}", head(*[f"{name}:,"] * count, *more, first=first)
    for size in (MAX_LIST_BYTES - 50, WHOLE):
        yield f"proxies in {size}", head(f"X-Forwarded-For: {PROXIES[:size]}")
    for target, part, method in itertools.product(TARGETS, PARTS, ("GET", "POST")):
        for size in (MAX_TARGET_BYTES - 50, WHOLE):
            yield (
                f"{method} {target} of {part} in {size}",
                head(first=f"{method} {target.format(filled(part, size))} HTTP/1.1"),
            )
    yield "short lines", head(*["a:"] * (WHOLE // 4))
    trailers = b"0\r\n" + b"a:\r\n" * (WHOLE // 4) + b"\r\n"
    yield "trailers", head("Transfer-Encoding: chunked", first="POST / HTTP/1.1") + trailers


@pytest.mark.long
async def test_no_head_costs_much_more_than_a_plain_one_of_its_size(settings: Settings) -> None:
    """By CPU time. Whatever else happens only adds to it, so one round within the bound is enough."""
    async with serving(settings) as (running, _):

        async def spend(sent: bytes) -> int:
            began = time.thread_time_ns()
            await answer_to(running, sent)
            return time.thread_time_ns() - began

        async def is_dear(sent: bytes) -> bool:
            most = MOST * plain[min(plain, key=lambda size: abs(size - len(sent)))]
            for _ in range(ROUNDS):
                if await spend(sent) <= most:
                    return False
            return True

        plain = {
            size: min([await spend(head(f"X: {filled('a', size)}")) for _ in range(ROUNDS)])
            for size in (MAX_LIST_BYTES, MAX_TARGET_BYTES, WHOLE)
        }
        sources = itertools.count(1)  # one for each shape, which pays for its own refusals
        dear = [
            shape for shape, sent in worst_heads() if await is_dear(sent.replace(b"{}", b"%d" % (next(sources) % 250)))
        ]
    assert dear == []


# -- HEAD ---------------------------------------------------------------------------------------------------------------


async def test_every_get_route_answers_head_alike(settings: Settings) -> None:
    """RFC 9110 9.3.2: the same status and headers, with the length of the body, and no body."""
    async with serving(settings) as (running, app):
        routes = {route.path: set(route.methods) for route in app.routes}
        paths = sorted(path for path, methods in routes.items() if "GET" in methods)
        assert len(paths) > 20
        assert [path for path in paths if "HEAD" not in routes[path]] == []
        for path in paths:
            target = re.sub(r"\{[^}]*\}", "x", path)
            whole, alone = [
                await answer_to(running, f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                for method in ("GET", "HEAD")
            ]
            lines, end, body = whole.partition(b"\r\n\r\n")
            assert alone == lines + end, path
            assert b"\r\ncontent-length: %d\r\n" % len(body) in lines, path
