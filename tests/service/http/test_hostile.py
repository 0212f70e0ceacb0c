"""Hostile clients: bad requests by mutation, half requests, endless heads, closed connections."""

import contextlib
import random
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.limits.bounds import SOURCE_RATE
from issuer.service.http.bounds import HEAD_S
from issuer.service.http.messages import source_of
from tests.support.http_load import drive, request
from tests.support.mutated import bytes_mutated, mutated
from tests.support.running import BODY, Running, from_address, running
from tests.support.waiting import eventually

SEED = 20261121


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A separate service: refusals from here must not count against the others' address."""
    with running(tmp_path_factory.mktemp("attacked"), provider, listen_trusted_proxies="127.0.0.1") as live:
        yield live


def connect(live: Running, timeout_s: float = 60) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=timeout_s)


def raw(live: Running, sent: bytes) -> bytes:
    """Send bytes and return what came back until the service closed the connection, which it has to."""
    with connect(live) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            while data := connection.recv(65536):
                answer += data
        return answer


def head(live: Running, *lines: bytes, identity: str | None = None) -> bytes:
    authorization = f"Authorization: Bearer {identity or live.token()}".encode()
    first = (b"POST /tokens HTTP/1.1", b"Host: x", b"Connection: close", b"Content-Type: application/json")
    return b"\r\n".join((*first, authorization, *lines, b"", b""))


def bad_requests(live: Running, count: int) -> Iterator[tuple[str, str, dict[str, str], bytes]]:
    """Yield distinct requests, each with something wrong in its path, its headers, its token or its body."""
    dice = random.Random(SEED)
    good, identity = msgspec.json.encode(BODY), live.token()
    seen: set[object] = set()
    while len(seen) < count:
        path, body, bearer, media_type, method = "/tokens", good, identity, "application/json", "POST"
        match dice.randrange(6):
            case 0:
                body = bytes_mutated(dice, good)
            case 1 | 2:
                body = msgspec.json.encode(mutated(dice, BODY))
                path = dice.choice(["/tokens", "/tokens/batch", "/tokens/explain"])
            case 3:
                bearer = bytes_mutated(dice, identity.encode()).decode("latin-1")
            case 4:
                media_type = dice.choice(["", "text/json", "application/json;charset=x", "application/json," * 50])
                media_type += "x" * dice.randrange(9)
                method = dice.choice(["POST", "PUT", "GET", "PATCH"])
            case _:
                path += dice.choice(["%00", "/%2e%2e", "x", "//", "/batch/1", "%ff"]) + str(dice.randrange(999))
        headers = {"Content-Type": media_type, "Authorization": f"Bearer {bearer}"}
        if (key := (method, path, media_type, bearer, body)) in seen or not all(map(is_sendable, headers.values())):
            continue
        seen.add(key)
        yield method, path, headers, body


def is_sendable(value: str) -> bool:
    """Say whether a header can have this value; the parser refuses any other."""
    return not any(sign < " " or sign == "\x7f" for sign in value)


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.attack)])
def test_bad_requests_get_a_4xx_with_a_code_and_at_most_one_a_token(attacked: Running, count: int) -> None:
    issued = 0
    for method, path, headers, body in bad_requests(attacked, count):
        attacked.secrets.append(headers["Authorization"])
        sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        answer = attacked.http.request(method, path, headers=list(sent.items()), content=body)
        if answer.headers["content-type"] == "text/plain; charset=utf-8":
            assert (answer.status_code, answer.text) == (400, "Invalid HTTP request received.")
        elif answer.status_code == 201:  # a mutation can leave the request a good one
            issued += 1
        elif path == "/tokens/explain" and answer.status_code == 200:
            assert answer.json()["verdict"] in {"granted", "refused"}
        else:
            assert 400 <= answer.status_code < 500, (answer.status_code, answer.text, method, path, body[:200])
            assert answer.json()["code"], answer.text
            assert "raceback" not in answer.text
    assert issued <= 1, "there was one identity"
    assert "unforeseen" not in attacked.log_text()
    assert attacked.post(attacked.token()).status_code == 201


@pytest.mark.long
def test_a_connection_with_half_a_head_is_closed(attacked: Running) -> None:
    halves = [b"", b"POST /tok", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ", b"\r\n"]
    *connections, between = [connect(attacked, HEAD_S + 50) for _ in (*halves, "between two requests")]
    for connection, half in zip(connections, halves, strict=True):
        connection.sendall(half)
    between.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    while not between.recv(65536).endswith(b"}"):
        pass
    between.sendall(b"\r\n")  # this has stopped the server's own idle clock
    for connection in (*connections, between):
        assert connection.recv(1) == b""
        connection.close()


def refused_and_closed(live: Running, start: bytes) -> None:
    """Send a head without end until the connection is closed."""
    with connect(live) as connection:
        connection.sendall(start + b"a" * 200_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        with pytest.raises(ConnectionError):
            eventually(lambda: connection.sendall(b"a" * 100_000))


def test_an_endless_head_is_refused_and_closed(attacked: Running) -> None:
    starts = (b"GET / HTTP/1.1\r\nX: ", b"GET /", b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 9, b"GET / HTTP/1.1\r\nA")
    with ThreadPoolExecutor(len(starts)) as pool:  # each lingers
        list(pool.map(partial(refused_and_closed, attacked), starts))
    assert raw(attacked, head(attacked, b"X: " + b"a" * 70_000, b"Content-Length: 0")).startswith(b"HTTP/1.1 400 ")
    assert b"request.malformed" in raw(attacked, head(attacked, b"X: " + b"a" * 50_000, b"Content-Length: 0"))


def test_a_trailer_becomes_no_header_and_a_second_media_type_is_refused(attacked: Running) -> None:
    body = msgspec.json.encode(BODY)
    chunked = b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % (len(body), body, attacked.token().encode())
    assert raw(attacked, head(attacked, b"Transfer-Encoding: chunked") + chunked).startswith(b"HTTP/1.1 201 ")
    trailing = head(attacked, b"Transfer-Encoding: chunked").replace(b"Authorization:", b"X-Not:") + chunked
    assert b"identity.missing" in raw(attacked, trailing)
    second = head(attacked, b"Content-Type: text/plain", b"Content-Length: 2") + b"{}"
    assert b"request.media_type" in raw(attacked, second)
    assert attacked.post(None, Authorization=f"BEARER {attacked.token()}").status_code == 201, "in any case"


def test_a_client_that_hangs_up_keeps_its_identity_s_use(attacked: Running) -> None:
    body = msgspec.json.encode(BODY)
    lost = [attacked.token() for _ in range(20)]
    for number, identity in enumerate(lost):
        whole = head(attacked, b"Content-Length: %d" % len(body), identity=identity) + body
        with connect(attacked) as connection:
            connection.sendall(whole if number % 2 else whole[: -1 - number])
    assert {attacked.post(identity).status_code for identity in lost} <= {200, 201}  # 200: it was decided before
    other = {**BODY, "details": {"notes": "another"}}
    assert {attacked.post(identity, other).json()["code"] for identity in lost} == {"identity.replayed"}
    assert "unforeseen" not in attacked.log_text()


def test_the_source_of_an_ipv6_address_is_its_64_network() -> None:
    for address in ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"):
        assert source_of(address) == "2001:db8:1:2::/64"
    assert source_of("::ffff:192.0.2.1") == source_of("192.0.2.1") == "192.0.2.1"


def test_every_refusal_of_an_unknown_caller_is_charged_to_its_source(attacked: Running) -> None:
    here = from_address("192.0.2.99")
    plain = request("/tokens", "a.b.c", b"x", "X-Forwarded-For: 192.0.2.99").replace(b"application/json", b"text/plain")
    assert drive(attacked.settings.listen.port, [plain] * SOURCE_RATE.burst, 64).statuses == {415: SOURCE_RATE.burst}
    eventually(lambda: attacked.post("a.b.c", **here).json()["code"] == "rate.source")


def test_the_data_folder_is_its_owners_alone(attacked: Running) -> None:
    for path in (attacked.folder / "data", attacked.folder / "data" / "policies"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
