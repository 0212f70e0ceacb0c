"""Hostile forms at `POST /oauth/token`: changed forms, large details, and bodies that never end."""

import random
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote_plus, urlencode

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.http.bounds import MAX_OPEN_BODIES
from tests.support.exchanging import EXCHANGE, detail, form, post
from tests.support.mutated import bytes_mutated, mutated
from tests.support.running import BODY, Running, numbered, running

SEED = 20261128


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A separate service: refusals from here must not count against the others' address."""
    with running(tmp_path_factory.mktemp("forms"), provider) as live:
        yield live


def bad_forms(dice: random.Random, identity: str) -> Iterator[str]:
    """Yield forms with something wrong in a parameter, in its name, in the details or in the separators."""
    good = form(identity)
    while True:
        changed, name = dict(good), dice.choice(list(good))
        match dice.randrange(6):
            case 0:
                yield bytes_mutated(dice, urlencode(good).encode()).decode("latin-1")
            case 1 | 2:
                element = mutated(dice, {"type": "eval_result", **BODY})
                yield urlencode({**changed, "authorization_details": msgspec.json.encode([element])})
            case 3:
                other = dice.choice(["resource", "audience", "scope", "client_secret", name, name.upper()])
                yield urlencode(good) + "&" + urlencode({other: dice.choice(["x", "", "a" * 3000, EXCHANGE])})
            case 4:
                del changed[name]
                yield urlencode(changed) + dice.choice(["", "&", "&&=", "&%", f"&{name}", f";{name}=x", f"&{name}[]=x"])
            case _:
                text = bytes_mutated(dice, detail().encode()).decode("latin-1")
                yield urlencode({**changed, "authorization_details": text})


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.attack)])
def test_bad_forms_get_an_oauth_error_and_at_most_one_token(attacked: Running, count: int) -> None:
    identity, tokens = attacked.token(), set()
    attacked.secrets.append(identity)
    forms = bad_forms(random.Random(SEED), identity)
    for _ in range(count):
        sent = next(forms)
        answer = post(attacked, sent)
        told = answer.json()
        if answer.status_code == 200:  # a change can leave the form a good one
            tokens.add(told["access_token"])
        else:
            assert 400 <= answer.status_code < 500, (answer.text, sent[:300])
            assert told["error"] and told["code"] != "request.framing", (answer.text, sent[:300])  # noqa: PT018
            assert identity not in answer.text
    assert len(tokens) <= 1, "there was one identity"


def test_large_and_deep_details_are_refused_with_their_place(attacked: Running) -> None:
    bombs = {
        "[" * 90_000: "exchange.details",
        '[{"type":"eval_result","claims":' + "[" * 80_000: "exchange.details",
        '[{"type":"eval_result","claims":' + "[" * 400 + "]" * 400 + "}]": "request.malformed",
        '[{"type":"eval_result","claims":{"a":[' + "1," * 20_000 + "1]}}]": "claims.invalid",
        '[{"type":"eval_result","claims":{"a":"' + "x" * 70_000 + '"}}]': "request.too_large",
        "[" + '{"type":"eval_result"},' * 3000 + "{}]": "exchange.details",
        '[{"type":"eval_result",' + ",".join(f'"m{n}":1' for n in range(5000)) + "}]": "request.unknown_member",
    }
    for text, code in bombs.items():
        sent = {**form(attacked.token()), "authorization_details": "@"}
        answer = post(attacked, urlencode(sent).replace("%40", quote_plus(text, safe='[]{}",:')))
        fault = answer.json()["errors"][0]
        assert (fault["code"], fault["pointer"].split("/")[1]) == (code, "authorization_details")
    assert "unforeseen" not in attacked.log_text()


def unfinished(live: Running, sent: bytes) -> socket.socket:
    """Return a connection whose form the service reads, and of which it has got only a part."""
    connection = socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60)
    lines = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 90000\r\nExpect: 100-continue"
    connection.sendall(b"POST /oauth/token HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % lines)
    assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
    connection.sendall(sent)
    return connection


def test_forms_that_never_end_keep_no_other_form_and_no_token_request_out(attacked: Running) -> None:
    with ExitStack() as stack:
        # The first one sends enough to have the longest time: it ends before the others only to make room.
        sizes = [20_000, *range(1, MAX_OPEN_BODIES)]
        forms = [stack.enter_context(unfinished(attacked, b"a" * size)) for size in sizes]
        answer = post(attacked, form(attacked.token(), authorization_details=detail(numbered(5))))
        assert answer.status_code == 200
        assert select.select(forms, [], [], 60)[0] == forms[:1], "the oldest of the source with most forms makes room"
        refused = forms[0].recv(65536)
        assert refused.startswith(b"HTTP/1.1 408 ")
        assert b'"error":"temporarily_unavailable"' in refused
        assert attacked.post(attacked.token(), numbered(6)).status_code == 201
