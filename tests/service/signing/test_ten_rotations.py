"""Ten rotations of a real service under load: what every relying party sees, whatever key set it holds."""

from __future__ import annotations

import asyncio
import http.client
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.io.common_documents import FolderHome
from issuer.io.shared_memory import SharedPage
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.signing.active_keys import Hosts
from issuer.service.signing.bounds import HOST_S, LAST_TOKEN_S, PUBLISHED_S, ROTATED_S
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.keyring import generate
from issuer.service.signing.lifecycle import may_sign_from
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH
from issuer.verify.trust import parse_archive
from tests.support.clocked import Ahead
from tests.support.running import Running, listening, numbered, running, write_folder
from tests.support.waiting import eventually

WORKERS = 3
TTL_S = 3600


class Told(NamedTuple):
    """What was answered to one request: between these two moments of the driven clock, and of the machine's."""

    began: float
    ended: float
    sent: float
    status: int
    body: bytes


class Crowd:
    """Callers and relying parties, each request on a new connection, so that any worker may get it."""

    def __init__(self, live: Running, ahead: Ahead) -> None:
        self.live, self.ahead = live, ahead
        self.tokens, self.sets = list[Told](), list[Told]()
        self._numbers = count()
        self._ended = threading.Event()

    def ask(self, method: str, path: str, identity: str = "", sent: object = None) -> Told:
        connection = http.client.HTTPConnection("127.0.0.1", self.live.settings.listen.port, timeout=60)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {identity}"} if identity else {}
        began, real = self.ahead.exact(), time.monotonic()
        try:
            connection.request(method, path, msgspec.json.encode(sent), headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        return Told(began, self.ahead.exact(), real, answer.status, body)

    def issue(self, identity: str = "", number: int = 0) -> Told:
        """Get a token: a new one, unless that request was sent before."""
        told = self.ask("POST", "/tokens", identity or self.live.token(), numbered(number or next(self._numbers)))
        self.tokens.append(told)
        return told

    def keys(self) -> Told:
        """Fetch the key set."""
        told = self.ask("GET", JWKS_PATH)
        self.sets.append(told)
        return told

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Ask without an end until the block does."""
        with ThreadPoolExecutor(3) as pool:
            under_way = [pool.submit(self._keep, act) for act in (self.issue, self.issue, self.keys)]
            try:
                yield
            finally:
                self._ended.set()
            for each in under_way:
                each.result()

    def _keep(self, act: Callable[[], Told]) -> None:
        while not self._ended.is_set():
            act()

    def pass_time(self, seconds: int, at_least: int = 6) -> None:
        """Let so many seconds pass at once, and then so many tokens and key sets be fetched."""
        self.ahead.move(seconds)
        tokens, sets = len(self.tokens) + at_least, len(self.sets) + at_least
        eventually(lambda: len(self.tokens) >= tokens and len(self.sets) >= sets)


def answer(told: Told) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(told.body)
    return found


def rotate(crowd: Crowd, old: str) -> str:
    """Take a service through one rotation, by hand and too early; return its new key."""
    live, keys, data = crowd.live, crowd.live.settings.keys_folder, Path(crowd.live.settings.data)
    identity, number = live.token(), 1_000_000 + len(crowd.tokens)
    begun = crowd.issue(identity, number)
    new = generate(keys, "next").stem
    eventually(
        lambda: (life := KeyHistory(FolderHome(data)).read().get(new)) is not None and life.published is not None
    )
    due = may_sign_from(KeyHistory(FolderHome(data)).read(), new)
    crowd.pass_time(PUBLISHED_S // 3)
    (keys / "retiring").mkdir(mode=0o700, exist_ok=True)
    (keys / "active" / f"{old}.pem").rename(keys / "retiring" / f"{old}.pem")
    (keys / "next" / f"{new}.pem").rename(keys / "active" / f"{new}.pem")
    live.process.send_signal(signal.SIGHUP)
    crowd.pass_time(PUBLISHED_S // 3, at_least=60)
    assert {answer(told)["kid"] for told in crowd.tokens[-50:]} == {old}, "it waits where it lies"
    ready = answer(crowd.ask("GET", "/health/ready"))["keys"]
    assert ready == {"stale": False, "waiting": {new: due}}
    crowd.pass_time(PUBLISHED_S // 3 + 1)
    eventually(lambda: {answer(told)["kid"] for told in crowd.tokens[-50:]} == {new})
    again = crowd.issue(identity, number)
    assert (again.status, again.body) == (200, begun.body), "what the old key began it ends"
    return new


def put_away(crowd: Crowd, old: str) -> None:
    """Take a key out of the key set when its last token has expired."""
    archive = parse_archive(crowd.ask("GET", ARCHIVE_PATH).body)
    ends = archive[old].last_token_exp
    assert ends is not None
    crowd.pass_time(ends - int(crowd.ahead()) + 1)
    (crowd.live.settings.keys_folder / "retiring" / f"{old}.pem").unlink()
    eventually(lambda: all(old.encode() not in told.body for told in crowd.sets[-20:]))


def spans(sets: list[Told]) -> list[tuple[float, float, bytes]]:
    """Return from when until when each key set was served: what was not fetched in between stayed as it was."""
    in_order = sorted(sets)
    first = in_order[:1] + [after for before, after in pairwise(in_order) if after.body != before.body]
    ends = [told.ended for told in first[1:]] + [in_order[-1].ended + TTL_S]
    return [(told.began, end, told.body) for told, end in zip(first, ends, strict=True)]


def held(served: list[tuple[float, float, bytes]], told: Told) -> set[bytes]:
    """Return every key set that a relying party may hold at any moment of a token's life."""
    return {body for began, end, body in served if end >= told.began - PUBLISHED_S and began <= told.ended + TTL_S}


async def begin_rows(store: str) -> None:
    """Have a store know its hosts since long enough, by its own clock: of this one, the row has ended by now."""
    hosts = Hosts(store, SharedPage(), now=lambda: int(time.time()) - HOST_S - 1)
    hosts.publish(["a key"])
    await hosts.agree(ask=True)
    await hosts.aclose()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_rotations_under_load_fail_no_request_and_no_token(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    ahead = Ahead(tmp_path / "ahead")
    ahead.move(0)
    command = ("-m", "tests.support.clocked", str(WORKERS), str(tmp_path / "ahead"))
    with EmbeddedValkey() as store:
        asyncio.run(begin_rows(store))
        with running(tmp_path, provider, command=command, store_url=store) as live:
            eventually(lambda: listening(live) == WORKERS)
            crowd = Crowd(live, ahead)
            kids = [answer(crowd.issue())["kid"]]
            with crowd.busy():
                for _ in range(10):
                    kids.append(rotate(crowd, kids[-1]))
                    put_away(crowd, kids[-2])
            archive = parse_archive(crowd.ask("GET", ARCHIVE_PATH).body)

    assert [told.status for told in crowd.tokens].count(200) == 10, "the retries"
    assert {told.status for told in crowd.tokens} == {200, 201}
    assert {told.status for told in crowd.sets} == {200}
    assert_every_token_verifies(crowd)
    new = [told for told in crowd.tokens if told.status == 201]
    for old, kid in pairwise(kids):
        assert_workers_change_together(new, old, kid)
        assert archive[old].last_token_exp == archive[kid].active_from + LAST_TOKEN_S
    assert list(archive) == kids


def assert_every_token_verifies(crowd: Crowd) -> None:
    served, parsed = spans(crowd.sets), {told.body: jose.parse_key_set(told.body) for told in crowd.sets}
    assert len(parsed) > 20, "each rotation begins and ends with another one"
    for told in crowd.tokens:
        found = answer(told)
        signing_input, _, signature = found["verify_token"].rpartition(".")
        for body in held(served, told):
            key = parsed[body].get(found["kid"])
            assert key is not None
            assert key.verifies(jose.EDDSA, signing_input.encode(), jose.base64url_decode(signature))


def assert_workers_change_together(new: list[Told], old: str, kid: str) -> None:
    """Nobody begins a token with the old key a moment after the first one under the new key."""
    changed = min(told.sent for told in new if answer(told)["kid"] == kid)
    late = [told for told in new if answer(told)["kid"] == old and told.sent > changed + ROTATED_S]
    assert not late
