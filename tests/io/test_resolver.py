"""Look-ups of host names that hang: in the resolver, and in a whole service that knows such a host."""

import asyncio
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import issuer.io.resolver
from issuer.dev.provider import DISCOVERY_PATH, KEY_SET_PATH, LocalProvider
from issuer.io.bounds import MAX_LOOKUPS
from issuer.io.resolver import NameTimeout, Resolver, resolver_of
from tests.support.http_load import drive, request
from tests.support.logged import Begun
from tests.support.reusable import issuers
from tests.support.running import BODY, SERVE, numbered
from tests.support.shared import ROOT
from tests.support.stores import Store
from tests.support.tls import certificate
from tests.support.waiting import until
from tests.support.witnessing import ScriptedWitness, cosigning

HERE = ("192.0.2.1",)


class Names:
    """A system's resolver that does not answer for a name with `silent` in it before `go_on` is set."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.go_on = threading.Event()
        self.resolver = Resolver("test", self)

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked[host] += 1
        if "silent" in host:
            self.go_on.wait()
        if "unknown" in host:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return HERE

    async def failure(self, host: str) -> type[OSError] | None:
        try:
            await self.resolver.find(host)
        except OSError as error:
            return type(error)
        return None


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.go_on.set()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep answers for ever, however slow the machine is."""
    monkeypatch.setattr(issuer.io.resolver, "LOOKUP_KEPT_S", 1e9)


async def test_a_look_up_that_hangs_is_one_and_delays_no_other_host(names: Names, kept: None) -> None:
    hanging = [asyncio.create_task(names.failure("silent.example")) for _ in range(MAX_LOOKUPS + 8)]
    await until(lambda: names.asked["silent.example"])
    assert await names.resolver.find("good.example") == HERE
    assert not any(task.done() for task in hanging), "they wait as long as a slow name server may take"
    assert {await task for task in hanging} == {NameTimeout}
    assert await names.failure("silent.example") is NameTimeout
    assert names.resolver.find_all(["silent.example", "good.example"])["good.example"] == HERE
    assert names.asked["silent.example"] == 1
    names.go_on.set()
    await until(lambda: names.resolver.find_all(["silent.example"])["silent.example"] == HERE)  # too late, and kept
    assert names.asked["silent.example"] == 1


async def test_a_failure_is_kept_for_a_moment(names: Names, kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        assert await names.failure("unknown.example") is socket.gaierror
    assert names.asked.total() == 1
    monkeypatch.setattr(issuer.io.resolver, "LOOKUP_KEPT_S", 0.0)
    assert await names.failure("unknown.example") is socket.gaierror
    assert names.asked.total() == 2
    monkeypatch.setattr(issuer.io.resolver, "MAX_NAMES", 2)
    for number in range(6):
        await names.resolver.find(f"{number}.example")
    assert len(names.resolver._known) <= 2


async def test_an_answer_that_comes_too_late_serves_the_next_try(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer.io.resolver, "LOOKUP_S", 0.01)
    monkeypatch.setattr(issuer.io.resolver, "LOOKUP_KEPT_S", 0.0)
    assert await names.failure("silent.example") is NameTimeout
    names.go_on.set()
    await until(lambda: names.resolver._known["silent.example"].answer.done())
    monkeypatch.undo()
    monkeypatch.setattr(issuer.io.resolver, "LOOKUP_KEPT_S", 0.0)
    assert await names.resolver.find("silent.example") == HERE
    assert names.asked.total() == 1


async def test_threads_are_few_and_an_address_needs_none(names: Names) -> None:
    silent = [f"silent{number}.example" for number in range(MAX_LOOKUPS)]
    hanging = [asyncio.create_task(names.failure(host)) for host in (*silent, "good.example")]
    await until(lambda: names.asked.total() == MAX_LOOKUPS)
    for address in ("192.0.2.7", "2001:db8::7"):
        assert await names.resolver.find(address) == (address,)
    assert names.asked.keys() == set(silent)
    names.go_on.set()
    await asyncio.gather(*hanging)
    assert await names.resolver.find("good.example") == HERE, "it has waited for its turn"


async def test_a_name_that_is_none_and_a_thread_that_is_not_given_are_failures(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(socket.gaierror, match="UnicodeError"):
        await Resolver("test").find(f"{'a' * 64}.example")

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await names.failure("good.example") is socket.gaierror


def test_a_forked_process_does_not_wait_for_its_parent_s_look_ups() -> None:
    own = resolver_of("test")
    pid = os.fork()
    if pid == 0:
        os._exit(resolver_of("test") is own)
    assert os.waitpid(pid, 0)[1] == 0


# -- a whole service ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes look-ups hang."""
    built = tmp_path_factory.mktemp("resolver") / "hanging.so"
    source = ROOT / "tests" / "support" / "hanging_resolver.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.mark.long
@pytest.mark.needs_tool("cc")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_silent_name_server_of_one_provider_and_one_witness_stops_nothing_else(
    tmp_path: Path, library: Path, workers: str
) -> None:
    """Provider and store have names, too. The service ends although the look-ups never do."""
    tls = certificate("keys.example", tmp_path)
    preloaded = {"LD_PRELOAD": str(library), "SSL_CERT_FILE": str(tmp_path / "cert.pem")}
    start = (
        f"import os, sys; os.execve(sys.executable, sys.orig_argv[:1] + sys.argv[1:], {{**os.environ, **{preloaded}}})"
    )
    asked = {"client_id": "us", "client_secret_file": str(tmp_path / "introspection.secret"), "token_prefix": "silent_"}
    silent = {"profile": "oauth-introspection", "issuer": "https://silent.example", "introspection": asked}
    with (
        LocalProvider(host="keys.example", tls=tls) as provider,
        issuers(provider) as known,
        Store(tmp_path / "store") as store,
        ScriptedWitness(cosigning) as good,
        ScriptedWitness(cosigning, name="scripted.example/silent") as mute,
    ):
        ghes = "/_services/token"  # the path of an issuer that is a GitHub Enterprise Server
        provider.issuer += ghes
        provider.answers[ghes + DISCOVERY_PATH] = lambda exchange: exchange.reply(200, provider.discovery())
        provider.answers[ghes + KEY_SET_PATH] = lambda exchange: exchange.reply(200, provider.key_set())
        log, at = Begun(tmp_path, store=store.url), store.url.replace("127.0.0.1", "store.example")
        log.trust(good, mute, quorum=1)
        log.policy.write_text(log.policy.read_text().replace(mute.url, "https://silent.example"))
        known.write(tmp_path, silent=(silent, {"client_id": "them", "sub": "them"}))
        command = ("-c", start, *SERVE, "--workers", workers)
        with log.witnessed(provider, command=command, store_url=at, log_witnesses="sync") as live:
            sent = [request("/tokens", f"silent_{number}", msgspec.json.encode(BODY)) for number in range(12)]
            assert drive(live.settings.listen.port, sent, len(sent)).statuses == {503: len(sent)}
            for number in range(4):
                assert live.post(live.token(), numbered(number)).status_code == 201
            live.process.terminate()
            assert live.process.wait(60) == 0
    assert "its name server does not answer (DNS)" in live.log_text()
