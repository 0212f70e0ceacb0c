"""The real service as a child process, with a real provider, a real store and real HTTP."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for, write_policies
from issuer.limits.bounds import SOURCE_RATE
from issuer.service.settings.model import Settings, changed
from issuer.service.signing.keyring import generate
from tests.support.command import Forked, issuer, start_issuer
from tests.support.failures import logged
from tests.support.http_load import drive, request
from tests.support.no_tls import NO_TLS
from tests.support.waiting import eventually, log_says

Process = subprocess.Popen[bytes] | Forked

# Digits that appear nowhere else: they show where a metric's value was logged.
METRIC_VALUE = 0.62437518
BODY: dict[str, Any] = {
    "claims": {
        "model_repo": "acme/open-model",
        "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
        "benchmark_repo": "openai/gsm8k",
        "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
        "task_id": "gsm8k",
        "metrics": [{"metric_id": "accuracy", "value": METRIC_VALUE}],
        "framework": {"name": "inspect-ai", "version": "0.3.285", "command": "inspect eval gsm8k"},
    },
    "details": {"date": "2026-11-21T09:00:00Z", "notes": "no tools"},
}
WIDE_LIMITS = """limits:
  identity: {count: 1000000, per_s: 60, burst: 50000}
  integration: {count: 1000000, per_s: 60, burst: 50000}
  refusals: {count: 1000000, per_s: 60, burst: 50000}
"""

# Any other command starts another Python.
SERVE = ("-m", "issuer", "serve")

# A test tries a fault once, and four times more in `make attack`.
FIVE_TIMES = pytest.mark.parametrize(
    "round_number", [0, *(pytest.param(number, marks=pytest.mark.attack) for number in range(1, 5))]
)


def body(**claims: Any) -> dict[str, Any]:
    """Return a good body whose claims have changed values."""
    return {**BODY, "claims": {**BODY["claims"], **claims}}


def numbered(number: int) -> dict[str, Any]:
    """Return the good body of this number: no two are the same request."""
    return {**BODY, "details": {"notes": f"run {number}"}}


class ThreadClients:
    """An HTTP client for each thread. Threads that share one now and then read a connection that another has closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._local = threading.local()
        self._made: list[httpx.Client] = []

    @property
    def own(self) -> httpx.Client:
        if not hasattr(self._local, "client"):
            self._local.client = httpx.Client(base_url=self._url, timeout=60, verify=NO_TLS)
            self._made.append(self._local.client)
        client: httpx.Client = self._local.client
        return client

    def close(self) -> None:
        for client in self._made:
            client.close()


@dataclass
class Running:
    """A running service. `secrets` is every credential that was ever sent to it."""

    folder: Path
    settings: Settings
    provider: LocalProvider
    process: Process
    clients: ThreadClients
    secrets: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.settings.url

    @property
    def http(self) -> httpx.Client:
        return self.clients.own

    def token(self, **overrides: Any) -> str:
        """Return a fresh identity token of the registered identity, for this service."""
        return self.provider.token(self.url, **overrides)

    def post(self, identity: str | None, sent: Any = BODY, path: str = "/tokens", **headers: str) -> httpx.Response:
        """Post a body (bytes as they are, anything else as JSON)."""
        content = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
        given = {"Content-Type": "application/json", **headers}
        if identity is not None:
            self.secrets.append(identity)
            given["Authorization"] = f"Bearer {identity}"
        return self.http.post(path, content=content, headers=given)

    def log_text(self) -> str:
        """Return what the service has written to its log stream."""
        return (self.folder / "service.log").read_text("utf-8", "replace")

    def until_log_says(self, text: str, times: int = 1) -> str:
        """Wait until its log stream has a text this often, and return the whole log."""
        return log_says(self.folder / "service.log", text, times)

    def audit(self) -> list[dict[str, Any]]:
        """Return the audit events, oldest first. Of one that is being written a reader may see a part: it is left out,
        as is the mark behind a writer that was killed (io/append_file.py)."""
        whole, _, _ = self.settings.audit_file.read_bytes().rpartition(b"\n")
        return [msgspec.json.decode(line) for line in whole.splitlines() if line not in (b"", b"~")]

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


def write_folder(folder: Path, provider: LocalProvider, *, limits: str = WIDE_LIMITS, es256: bool = False) -> None:
    """Make keys and the sample policies for a service; a second service may use the same folder.

    `es256` lets the sample provider also sign with ES256, which costs the generator a tenth.
    """
    if (folder / "policies").exists():
        return
    write_policies(folder / "policies", provider.issuer)
    path = folder / "policies" / "inspect-ai.yaml"
    path.write_text(path.read_text("utf-8").partition("limits:")[0] + limits, "utf-8")
    generate(folder / "keys", "active")
    if es256:
        more = 'profile: "github-actions", algorithms: ["RS256", "ES256"],'
        rewrite(folder, 'profile: "github-actions",', more, "providers.yaml")


def begin_history(folder: Path) -> None:
    """Begin the history of a folder's keys, as `issuer init` does: keys without one show a past that is lost."""
    done = issuer("keys", "rotate", "--dir", folder / "keys", "--data", folder / "data")
    assert done.returncode == 0, done.stderr


def rewrite(folder: Path, pattern: str, new: str, name: str = "inspect-ai.yaml") -> None:
    """Replace the one match of a regular expression (multi-line) in a service's policy, atomically."""
    path = folder / "policies" / name
    text, count = re.subn(pattern, lambda _: new, path.read_text("utf-8"), flags=re.MULTILINE)
    assert count == 1, (pattern, count)
    draft = path.with_suffix(".draft")
    draft.write_text(text, "utf-8")
    draft.rename(path)


def register(folder: Path, count: int, name: str = "inspect-ai.yaml", first: int = 800_000_000) -> list[str]:
    """Register further identities, each with its own repository. Returns the `repository_id`s."""
    ids = [str(first + number) for number in range(count)]
    pins = '{{repository_id: "{}", repository_owner_id: "600000001"}}'
    rest = 'require: {ref: "refs/heads/main"}'
    added = (f"  - {{id: other-{each}, provider: github-actions, pins: {pins.format(each)}, {rest}}}\n" for each in ids)
    rewrite(folder, r"^identities:\n", "identities:\n" + "".join(added), name)
    return ids


@contextlib.contextmanager
def running(
    folder: Path,
    provider: LocalProvider,
    *,
    limits: str = WIDE_LIMITS,
    command: tuple[str, ...] = SERVE,
    port: int = 0,
    **changes: Any,
) -> Iterator[Running]:
    """Run `issuer serve` on loopback until the block ends."""
    write_folder(folder, provider, limits=limits)
    settings = changed(settings_for(folder, port or free_port()), **changes)
    process = start(settings, folder, command)
    try:
        clients = ThreadClients(f"http://{settings.listen.host}:{settings.listen.port}")
        with contextlib.closing(clients):
            until_live(clients.own, process, folder)
            yield Running(folder, settings, provider, process, clients)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def from_address(address: str) -> dict[str, str]:
    """Return the header by which a proxy names a request's source; `trusted_proxies` has to name this machine."""
    return {"X-Forwarded-For": address}


def bring_to_its_limit(service: Running, *lines: str) -> None:
    """Get this machine's address, or the one in a header line, refused as often as is allowed.

    Ten times a second it is then allowed one more. An earlier test may have used up some.
    """
    junk = request("/tokens", "nonsense", b"{}", *lines)
    statuses = drive(service.settings.listen.port, [junk] * SOURCE_RATE.burst, 64).statuses
    assert statuses.keys() <= {401, 429}
    assert statuses[401] > SOURCE_RATE.burst / 2


def start(settings: Settings, folder: Path, command: tuple[str, ...] = SERVE, **more: str) -> Process:
    """Start the child; its standard output and error go to `service.log`."""
    env = {**os.environ, **environment(settings), **more}
    logged(folder / "service.log")
    with (folder / "service.log").open("ab") as log:
        if command[: len(SERVE)] == SERVE:
            return start_issuer(command[2:], env, log)
        return subprocess.Popen([sys.executable, *command], env=env, stdout=log, stderr=log)


def until_live(http: httpx.Client, process: Process, folder: Path) -> None:
    """Wait until it answers."""

    def is_live() -> bool:
        assert process.poll() is None, f"the service did not start:\n{(folder / 'service.log').read_text()}"
        with contextlib.suppress(httpx.TransportError):
            return http.get("/health/live").status_code == 200
        return False

    eventually(is_live)


def serve(workers: int) -> tuple[str, ...]:
    """Return the command that serves with this number of workers."""
    return (*SERVE, "--workers", str(workers))


def listening(live: Running) -> int:
    """Count the sockets that listen on the service's port: one for each worker that is ready."""
    return listening_on(live.settings.listen.port)


def listening_on(port: int) -> int:
    """Count the sockets that listen on a port (proc(5), state 0A)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def singles(live: Running, algorithm: str, count: int, path: str = "/tokens") -> list[bytes]:
    """Return requests, each with its own identity and result."""
    return [request(path, live.token(alg=algorithm), msgspec.json.encode(numbered(number))) for number in range(count)]
