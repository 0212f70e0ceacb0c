"""An unreadable secret, a full disk, a wrong clock, a store of the wrong role: the start is refused, or readiness is red,
with a sentence that says what to do. The host's disk, clock and store are real."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from tests.support.command import issuer
from tests.support.disk import fill, small_disk
from tests.support.running import Running, running, write_folder
from tests.support.skewed_clock import clock_ahead
from tests.support.stores import Store
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

# A fault of the host, with the variables that it sets for the service.
Fault = Callable[[Path], contextlib.AbstractContextManager[dict[str, str]]]


@contextlib.contextmanager
def open_provider_secret(folder: Path) -> Iterator[dict[str, str]]:
    secret = folder / "asking"
    secret.write_text("hush\n")
    secret.chmod(0o604)
    asks = f'introspection: {{client_id: "x", client_secret_file: "{secret}", token_prefix: "acme_"}}'
    with (folder / "policies" / "providers.yaml").open("a") as file:
        file.write(f'  opaque: {{profile: oauth-introspection, issuer: "https://o.example", {asks}}}\n')
    yield {}


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[dict[str, str]]:
    with small_disk(folder / "disk", "1m") as disk:
        fill(disk / "ballast")
        yield {"ISSUER_DATA": str(disk)}


@contextlib.contextmanager
def replica(folder: Path) -> Iterator[dict[str, str]]:
    with Store(folder / "one") as master, Store(folder / "two") as store:
        store.is_replica_of(master)
        yield {"ISSUER_STORE_URL": store.url}


@contextlib.contextmanager
def full_store(folder: Path) -> Iterator[dict[str, str]]:
    with Store(folder / "store", "--maxmemory", "1") as store:
        yield {"ISSUER_STORE_URL": store.url}


@contextlib.contextmanager
def full_disk_of_the_store(folder: Path) -> Iterator[dict[str, str]]:
    with (
        small_disk(folder / "disk", "2m") as disk,
        Store(disk / "store", "--appendonly", "yes", "--appendfsync", "everysec") as store,
    ):
        fill(disk / "ballast")
        with store.client as client, contextlib.suppress(redis.RedisError):
            for number in range(64):
                client.set(f"ballast {number}", bytes(4096))
        yield {"ISSUER_STORE_URL": store.url}


def clock(seconds: int) -> Fault:
    @contextlib.contextmanager
    def off(folder: Path) -> Iterator[dict[str, str]]:
        with Store(folder / "store", env=clock_ahead(folder, seconds)) as store:
            yield {"ISSUER_STORE_URL": store.url}

    return off


# The code, and what the sentence or its next step says.
STARTS: dict[str, tuple[Fault, str, str]] = {
    "a provider's secret that others may read": (open_provider_secret, "settings.invalid", "chmod 600"),
    "a full disk": (full_disk, "machine.failed", "Free some space"),
    "a store that is a replica": (replica, "state.unsafe", "set `store.url` to its master"),
    "a store that is full": (full_store, "state.unreachable", "give it more `maxmemory`"),
    "a store whose disk is full": (full_disk_of_the_store, "state.unreachable", "free some space there"),
    "a store whose clock is ahead": (clock(61), "state.unsafe", "s ahead of this machine's: synchronize both clocks with NTP"),
    "a store whose clock is behind": (clock(-61), "state.unsafe", "s behind this machine's: synchronize both clocks with NTP"),
}  # fmt: skip


@pytest.mark.needs_tool("cc")
@pytest.mark.parametrize(("fault", "code", "says"), STARTS.values(), ids=STARTS)
def test_a_start_is_refused_with_what_to_do(
    tmp_path: Path, provider: LocalProvider, fault: Fault, code: str, says: str
) -> None:
    write_folder(tmp_path, provider)
    settings = settings_for(tmp_path, free_port())
    with fault(tmp_path) as more:
        done = issuer("serve", env={**environment(settings), **more})
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == 6, done
    assert sentences[0].startswith(f"issuer: {code}: "), sentences
    assert "  next: " in done.stderr
    assert says in "\n".join(sentences)
    assert "hush" not in done.stdout + done.stderr


# -- while it runs ------------------------------------------------------------------------------------------------------


def red(live: Running, code: str, says: str) -> None:
    """Wait until readiness says why it is red. The process must live."""

    def is_red() -> bool:
        answer = live.http.get("/health/ready")
        return answer.status_code == 503 and answer.json()["code"] == code and says in answer.json()["detail"]

    eventually(is_red)
    assert live.http.get("/health/live").status_code == 200


def green(live: Running) -> None:
    eventually(lambda: live.http.get("/health/ready").status_code == 200)


@pytest.mark.needs_tool("cc")
def test_readiness_says_why_the_store_cannot_be_used_until_it_can(tmp_path: Path, provider: LocalProvider) -> None:
    """Its role, its memory, then its clock."""
    with Store(tmp_path / "store") as store, running(tmp_path, provider, store_url=store.url) as live:
        green(live)
        with store.client as client:
            client.replicaof("127.0.0.1", "1")
            red(live, "dependency.state", "it is a read-only replica: set `store.url` to its master")
            client.replicaof("NO", "ONE")
            green(live)
            client.config_set("maxmemory", 1)
            red(live, "dependency.state", "it is full: give it more `maxmemory`")
            client.config_set("maxmemory", 0)
            green(live)
        for seconds, way in ((61, "ahead of"), (-61, "behind"), (20, "")):
            store.kill()
            store.env = clock_ahead(tmp_path, seconds)
            store.start()
            if way:
                red(live, "dependency.state", f"{way} this machine's: synchronize both clocks with NTP")
            else:
                green(live)
        lost = [line for line in live.log_text().splitlines() if '"store lost"' in line]
        assert any("synchronize both clocks with NTP" in line for line in lost)


def test_readiness_says_that_the_disk_is_full_until_it_is_not(tmp_path: Path, provider: LocalProvider) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk, running(tmp_path, provider, data=str(disk)) as live:
        green(live)
        fill(disk / "ballast")
        red(live, "dependency.audit", "Make room on the disk of `data`")
        (disk / "ballast").unlink()
        green(live)
