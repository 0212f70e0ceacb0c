"""A stop is in force in every worker within two seconds, despite any other fault; no fault widens a permission."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from issuer.dev.provider import KEY_SET_PATH, LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.policies.bounds import IN_FORCE_S
from issuer.service.signing.keyring import generate
from tests.support.disk import fill, small_disk
from tests.support.http_load import request
from tests.support.no_tls import NO_TLS
from tests.support.running import BODY, Running, listening, rewrite, running, serve, write_folder
from tests.support.waiting import eventually, within

WORKERS = 2
ITEM = '  - {{what: "{}", reason: "a test", since: "2026-01-01T00:00:00Z"}}\n'
FAILING = (
    '\ntests:\n  - {name: "it is granted", expect: granted, provider: github-actions, identity: {repository_id: "1"}}\n'
)


def write_stops(live: Running, *whats: str) -> None:
    listed = "stops:\n" + "".join(ITEM.format(what) for what in whats) if whats else "stops: []\n"
    draft = live.folder / "policies" / "stops.draft"
    draft.write_text(f"version: 1\n{listed}")
    draft.rename(draft.with_suffix(".yaml"))


def status(live: Running) -> dict[str, Any]:
    """Ask on a new connection, so that any worker may answer."""
    found: dict[str, Any] = httpx.get(f"{live.http.base_url}/health/stops", timeout=60, verify=NO_TLS).json()
    return found


def everywhere(live: Running, count: int) -> bool:
    """Say whether each worker has so many stops in force."""
    now = status(live)
    return (now["count"], now["agreeing"], now["workers"]) == (count, WORKERS, WORKERS)


def codes(live: Running, requests: int = 12) -> set[str]:
    """Return the codes or statuses of the answers on this many connections, which the kernel spreads over the workers."""
    found = set()
    for _ in range(requests):
        headers = {"Authorization": f"Bearer {live.token()}"}
        answer = httpx.post(f"{live.http.base_url}/tokens", json=BODY, headers=headers, timeout=60, verify=NO_TLS)
        found.add(answer.json().get("code", str(answer.status_code)))
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("emergency"), provider, command=serve(WORKERS)) as live:
        eventually(lambda: listening(live) == WORKERS)
        yield live


@pytest.fixture
def live(shared: Running) -> Iterator[Running]:
    """The shared service, without stops before and after a test."""
    yield shared
    write_stops(shared)
    eventually(lambda: everywhere(shared, 0))


def test_a_stop_refuses_at_every_endpoint_also_a_body_that_is_awaited_and_is_lifted(live: Running) -> None:
    body = msgspec.json.encode(BODY)
    with socket.create_connection(("127.0.0.1", live.settings.listen.port), timeout=60) as connection:
        connection.sendall(request("/tokens", live.token(), body, "Expect: 100-continue")[: -len(body)])
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 "), "its body is awaited"
        write_stops(live, "provider:gitlab-ci", "identity:inspect-ai/nobody", "integration:inspect-ai")
        assert within(10, lambda: everywhere(live, 3))
        connection.sendall(body)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"integration.stopped" in answer
    for path, sent in (("/tokens", BODY), ("/tokens/explain", BODY), ("/tokens/batch", {"results": [BODY]})):
        answered = live.post(live.token(), sent, path)
        assert (answered.status_code, answered.json()["code"]) == (403, "integration.stopped")
        assert "a test" not in answered.text
    events = [event for event in live.audit() if event.get("code") == "integration.stopped"]
    assert {event["verdict"] for event in events} == {"refused"}
    assert live.http.get("/health/ready").json()["stops"] == status(live)
    write_stops(live, "provider:gitlab-ci", "identity:inspect-ai/nobody")
    eventually(lambda: everywhere(live, 2))
    assert live.post(live.token()).status_code == 201, "the others reach other callers"


def test_a_signal_stops_everything_and_another_lifts_it(live: Running) -> None:
    live.process.send_signal(signal.SIGUSR1)
    eventually(lambda: status(live)["everything"])
    assert codes(live) == {"integration.stopped"}
    live.process.send_signal(signal.SIGUSR2)
    eventually(lambda: not status(live)["everything"])
    assert codes(live) == {"201"}


def break_policies(live: Running) -> None:
    """A typo, a failing test and a file that cannot be read."""
    policies = live.folder / "policies"
    typo = policies / "lm-eval.yaml"
    typo.write_text(typo.read_text().replace("mode: active", "mode: actve"))
    failing = policies / "failing.yaml"
    text = (policies / "inspect-ai.yaml").read_text().partition("\ntests:")[0] + FAILING
    failing.write_text(text.replace("integration: inspect-ai", "integration: failing").replace("700000001", "5"))
    (policies / "unreadable.yaml").mkdir()


@pytest.mark.long
def test_a_stop_is_in_force_in_time_despite_every_other_fault(tmp_path: Path, provider: LocalProvider) -> None:
    """At the same time: a typo, a failing test, an unreadable file, an unfit key, a full disk; then no disk at all."""
    write_folder(tmp_path, provider)
    with (
        small_disk(tmp_path / "disk", "4m") as disk,
        EmbeddedValkey() as store,
        running(tmp_path, provider, command=serve(WORKERS), data=str(disk / "data"), store_url=store) as live,
    ):
        eventually(lambda: listening(live) == WORKERS)
        assert codes(live) == {"201"}
        retiring = generate(live.folder / "keys", "retiring")
        eventually(lambda: retiring.stem in live.http.get("/.well-known/jwks.json").text)
        break_policies(live)
        unfit = generate(live.folder / "keys", "next")
        unfit.write_bytes(b"no key")
        ballast = fill(disk / "ballast")
        eventually(lambda: live.http.get("/health/ready").status_code == 503)

        write_stops(live, "integration:inspect-ai")
        retiring.unlink()
        assert within(IN_FORCE_S, lambda: everywhere(live, 1))
        assert codes(live) <= {"integration.stopped", "dependency.audit"}
        eventually(lambda: retiring.stem not in live.http.get("/.well-known/jwks.json").text)

        (disk / "data").rename(disk / "elsewhere")
        (disk / "data").write_text("")  # not even a folder
        write_stops(live, "integration:inspect-ai", "everything")
        assert within(IN_FORCE_S, lambda: everywhere(live, 2))
        assert codes(live) <= {"integration.stopped", "dependency.audit"}

        ballast.unlink()
        (disk / "data").unlink()
        (disk / "elsewhere").rename(disk / "data")
        eventually(lambda: codes(live) == {"integration.stopped"})
        assert "background task ended" not in live.log_text()


def test_a_suspension_is_in_force_despite_a_disk_that_failed_and_a_broken_file(
    tmp_path: Path, provider: LocalProvider
) -> None:
    with running(tmp_path, provider) as live:
        before, data = live.post(live.token()).json()["policy"], Path(live.settings.data)
        data.rename(tmp_path / "away")
        data.write_text("")
        rewrite(tmp_path, "^  ttl_s: 3600$", "  ttl_s: 1800")
        live.process.send_signal(signal.SIGHUP)
        live.until_log_says('"policies refused"')
        data.unlink()
        (tmp_path / "away").rename(data)
        break_policies(live)
        rewrite(tmp_path, "^mode: active", "mode: suspended")
        live.process.send_signal(signal.SIGHUP)
        eventually(lambda: live.post(live.token()).json().get("code") == "integration.suspended")
        policies = live.http.get("/health/ready").json()["policies"]
        assert (policies["stale"], policies["narrowed"]) == (True, 1)
        suspended = [event for event in live.audit() if event.get("code") == "integration.suspended"]
        assert {event["policy"] for event in suspended} == {before}
        refused = [event["event"] for event in live.audit()].count("policies_refused")
        rewrite(tmp_path, "^mode: suspended", "mode: active")
        live.process.send_signal(signal.SIGHUP)
        eventually(lambda: [event["event"] for event in live.audit()].count("policies_refused") > refused)
        assert live.post(live.token()).json()["code"] == "integration.suspended", "a refused folder grants nothing"


def test_no_keys_of_a_stopped_provider_are_fetched(tmp_path: Path, provider: LocalProvider) -> None:
    write_folder(tmp_path, provider)
    (tmp_path / "policies" / "stops.yaml").write_text("version: 1\nstops:\n" + ITEM.format("provider:github-actions"))
    fetched = provider.requests[KEY_SET_PATH]
    with running(tmp_path, provider) as live:
        answer = live.post(live.token())
        assert (answer.status_code, answer.json()["code"]) == (403, "integration.stopped")
        assert provider.requests[KEY_SET_PATH] == fetched
        live.process.send_signal(signal.SIGUSR1)  # a single worker takes the signal itself
        eventually(lambda: live.http.get("/health/stops").json()["everything"])
        live.process.send_signal(signal.SIGUSR2)
        eventually(lambda: not live.http.get("/health/stops").json()["everything"])
