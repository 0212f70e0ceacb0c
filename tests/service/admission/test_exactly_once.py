"""1,000 identity tokens, or nonces, each used by 32 requests at once at three services on one store: 1,000 tokens."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.http_load import request
from tests.support.reusable import KINDS, issuers, new_nonce, with_nonce
from tests.support.running import Running, numbered, running

MANY, AT_ONCE, SERVICES = 1000, 32, 3
Answer = tuple[int, str]  # the status, and the jti or the code


@contextmanager
def three_services(folder: Path, local: LocalProvider) -> Iterator[tuple[Running, ...]]:
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedValkey())
        first = stack.enter_context(running(folder, local, store_url=store))
        others = [stack.enter_context(running(folder, local, store_url=store, url=first.url)) for _ in range(2)]
        yield (first, *others)


async def ask(port: int, requests: Iterator[bytes]) -> list[Answer]:
    """Send requests over one connection; undecided ones are sent again, as a client would, up to 20 times."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers: list[Answer] = []
    for sent in requests:
        status, body = 0, {}
        for _ in range(20):
            writer.write(sent)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head[9:12])
            body = msgspec.json.decode(await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0])))
            if status != 503:
                break
        answers.append((status, body.get("jti") or body["code"]))
    writer.close()
    return answers


def ask_all(port: int, requests: Sequence[bytes]) -> list[Answer]:
    """Send requests, in the order in which they are, over as many connections as one use has requests here."""

    async def spread() -> list[list[Answer]]:
        connections = AT_ONCE // SERVICES + 1
        return await asyncio.gather(*(ask(port, iter(requests[at::connections])) for at in range(connections)))

    lanes = asyncio.run(spread())
    return [answer for turn in itertools.zip_longest(*lanes) for answer in turn if answer is not None]


def storm(services: Sequence[Running], requests: Sequence[bytes]) -> list[Answer]:
    """Send requests to the services in turn, from a process for each, and return the answers in their order."""
    shares = [(live.settings.listen.port, requests[at::SERVICES]) for at, live in enumerate(services)]
    with multiprocessing.get_context("spawn").Pool(SERVICES) as pool:
        pool.map(abs, range(SERVICES * 4))  # they have started
        answers = pool.starmap(ask_all, shares, chunksize=1)
    return [answer for turn in itertools.zip_longest(*answers) for answer in turn if answer is not None]


def assert_one_each(answers: Sequence[Answer], live: Running, spent: str) -> None:
    """Assert that of each 32 requests one got a token, and that the audit knows of no other token."""
    groups = [answers[at : at + AT_ONCE] for at in range(0, len(answers), AT_ONCE)]
    assert len(groups) == MANY
    for group in groups:
        assert [told for status, told in group if status == 409] == [spent] * (AT_ONCE - 1)
    tokens = {jti for group in groups for status, jti in group if status in {200, 201}}
    assert len(tokens) == MANY
    audited = (event for event in live.audit() if event.get("verdict") in {"issued", "repeated"})
    assert {jti for event in audited for jti in event["jti"]} == tokens


@pytest.mark.long
def test_a_thousand_identity_tokens_used_by_32_at_once_give_a_thousand_tokens(
    tmp_path: Path, provider: LocalProvider
) -> None:
    bodies = [msgspec.json.encode(numbered(number)) for number in range(AT_ONCE)]
    with three_services(tmp_path, provider) as services:
        identities = (services[0].token() for _ in range(MANY))
        requests = [request("/tokens", identity, body) for identity in identities for body in bodies]
        assert_one_each(storm(services, requests), services[0], "identity.replayed")


@pytest.mark.long
def test_a_thousand_nonces_used_by_32_at_once_give_a_thousand_tokens(tmp_path: Path, provider: LocalProvider) -> None:
    with issuers(provider) as known:
        known.write(tmp_path)
        with three_services(tmp_path, provider) as services:
            credentials = [known.credential(services[0], kind) for kind in KINDS]
            requests = [
                request("/tokens", credentials[use % len(credentials)], msgspec.json.encode(with_nonce(nonce, number)))
                for use, nonce in enumerate(new_nonce() for _ in range(MANY))
                for number in range(AT_ONCE)
            ]
            assert_one_each(storm(services, requests), services[0], "nonce.reused")
