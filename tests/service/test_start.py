"""A service with unfit keys, policies, settings or store does not start, and says why."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.errors import IssuerError
from issuer.io import keyfile
from issuer.limits.rate import NO_CEILINGS
from issuer.policy.authoring.load import PolicySource
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.policies.watcher import Follower
from issuer.service.process.server import server
from issuer.service.settings.model import Settings, changed
from tests.support.command import issuer
from tests.support.disk import fill, small_disk
from tests.support.keyrings import load_keyring
from tests.support.policies import ISSUER_URL
from tests.support.running import Running, running, write_folder
from tests.support.skewed_clock import clock_ahead
from tests.support.stores import Store
from tests.support.waiting import eventually

Change = Callable[[Path], object]


def refused_start(settings: Settings, **more: str) -> str:
    """Start the service, which must give up. Return its output."""
    done = issuer("serve", env={**environment(settings), **more})
    assert done.returncode in {3, 6}
    assert "Traceback" not in done.stdout + done.stderr
    sentences = [line for line in done.stderr.splitlines() if not line.startswith(("{", "  "))]
    assert len(sentences) == 1
    return done.stdout + done.stderr


@pytest.fixture
def settings(tmp_path: Path, provider: LocalProvider) -> Settings:
    write_folder(tmp_path, provider)
    return settings_for(tmp_path, free_port())


def edit(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / "policies" / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    return change


def test_a_signal_before_the_event_loop_runs_ends_the_service_without_a_warning(settings: Settings) -> None:
    late = "import os, signal, uvloop; new = uvloop.new_event_loop; stop = lambda: os.kill(os.getpid(), signal.SIGTERM)"
    program = f"{late}; uvloop.new_event_loop = lambda: stop() or new(); from issuer.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "serve"], env=environment(settings), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("{")]) == (0, [])


def refusal(settings: Settings) -> str:
    """Build a service in this process, which must be refused. Return the error."""
    with pytest.raises(IssuerError) as refused:
        server(changed(settings, store_url="redis://127.0.0.1:1"))
    return str(refused.value)


def test_an_unfit_store_is_refused_without_its_password(settings: Settings) -> None:
    with EmbeddedValkey() as store, redis.Redis.from_url(store) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        evicting = refused_start(settings, ISSUER_STORE_URL=store)
        assert "state.unsafe" in evicting
        assert "noeviction" in evicting
        client.config_set("requirepass", "right")
        refused = refused_start(settings, ISSUER_STORE_URL=store.replace("unix://", "unix://:wrong@"))
        assert "it refuses the user name or password in its URL, or demands one" in refused
        assert "wrong" not in refused


def test_a_refusal_is_the_last_message_after_the_warnings(tmp_path: Path, settings: Settings) -> None:
    edit("inspect-ai.yaml", "mode: active", "mode: activ")(tmp_path)
    output = refused_start(settings, ISSUER_LISTEN_TRUSTED_PROXIES="10.0.0.0/8")
    assert "inspect-ai.yaml:5:" in output
    assert "setting doubted" in output
    assert "listen.trusted_proxies: 10.0.0.0/8 is a network of 16777216 addresses" in output


def test_unfit_settings_are_refused(tmp_path: Path, settings: Settings, provider: LocalProvider) -> None:
    named = tmp_path / "shared-secret"
    assert f"the store secret {named}: No such file" in refusal(changed(settings, store_secret_file=str(named)))
    assert not named.exists()
    assert "must be https" in refusal(changed(settings, development=False, url="https://issuer.example"))
    settings.audit_file.parent.mkdir(exist_ok=True)
    settings.audit_file.write_text("")
    settings.audit_file.chmod(0o644)
    assert "chmod 600" in refusal(settings)
    settings.audit_file.chmod(0o600)
    edit("providers.yaml", provider.issuer, settings.url)(tmp_path)
    refused = refusal(settings)
    assert "providers.yaml:3:" in refused
    assert "its own identity provider" in refused


def unguarded(name: str, mode: int) -> Change:
    return lambda folder: (folder / name).chmod(mode)


def linked_from_an_open_folder(folder: Path) -> None:
    """Replace a policy by a link into a folder where others may replace the file."""
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    policy = folder / "policies" / "inspect-ai.yaml"
    policy.rename(folder / "open" / policy.name)
    policy.symlink_to(folder / "open" / policy.name)


def open_benchmark(folder: Path) -> None:
    path = folder / "policies" / "benchmarks" / "openai" / "gsm8k" / "eval.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("name: x\ndescription: y\ntasks: []\n", "utf-8")
    path.chmod(0o646)


def test_an_unfit_folder_or_one_that_others_may_write_to_is_refused_with_the_place(
    tmp_path: Path, provider: LocalProvider
) -> None:
    faults: dict[Change, str] = {
        lambda folder: next(folder.glob("keys/active/*.pem")).chmod(0o644): "key.unsafe",
        lambda folder: keyfile.write(folder / "keys/active/second.pem", keyfile.generate()): "key.unusable",
        lambda folder: next(folder.glob("keys/active/*.pem")).unlink(): "issuer keys generate",
        edit("inspect-ai.yaml", "integration: inspect-ai", "integration: inspect-ai\nintegraton: x"): "inspect-ai.yaml:5:13: file.unknown_member",
        edit("inspect-ai.yaml", '"700000001"', "700000001"): "put it in double quotes",
        edit("lm-eval.yaml", "mode: active", "mode: activ"): "lm-eval.yaml:5:",
        unguarded("policies", 0o777): "chmod o-w",
        unguarded("policies", 0o1777): "chmod o-w",
        unguarded("policies/inspect-ai.yaml", 0o666): "inspect-ai.yaml: file.unsafe: it has mode 0666",
        unguarded("policies/providers.yaml", 0o646): "providers.yaml: file.unsafe: it has mode 0646",
        linked_from_an_open_folder: "open: file.unsafe: it has mode 0777",
        open_benchmark: "eval.yaml: file.unsafe",
        unguarded("keys", 0o777): "key.unsafe",
        unguarded("keys/active", 0o707): "it has mode 0707: others may write to it. Run `chmod",
    }  # fmt: skip
    for number, (change, expected) in enumerate(faults.items()):
        folder = tmp_path / str(number)
        write_folder(folder, provider)
        change(folder)
        assert expected in refusal(settings_for(folder, free_port()))


def test_folders_as_a_checkout_leaves_them_are_accepted(tmp_path: Path, provider: LocalProvider) -> None:
    for umask in (0o002, 0o022, 0o077):
        folder = tmp_path / oct(umask)
        before = os.umask(umask)
        try:
            (folder / "keys").mkdir(parents=True)
            write_folder(folder, provider)
        finally:
            os.umask(before)
        follower = Follower(PolicySource(folder / "policies", ISSUER_URL, True, NO_CEILINGS), folder / "kept")
        assert follower.state.policies.policies
        if (folder / "keys").stat().st_gid == os.geteuid():
            assert load_keyring(folder / "keys").active_kid


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (open_provider_secret, "settings.invalid", "chmod 600"),
        (full_disk, "machine.failed", "Free some space"),
        (full_disk_of_the_store, "state.unreachable", "free some space there"),
    ],
)
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


def red(live: Running, code: str, says: str) -> None:
    """Wait until readiness says why it is red. The process must live."""

    def is_red() -> bool:
        answer = live.http.get("/health/ready")
        return answer.status_code == 503 and answer.json()["code"] == code and says in answer.json()["detail"]

    eventually(is_red)
    assert live.http.get("/health/live").status_code == 200


def green(live: Running) -> None:
    eventually(lambda: live.http.get("/health/ready").status_code == 200)


@pytest.mark.long
@pytest.mark.needs_tool("cc")
def test_readiness_says_why_the_disk_or_the_store_cannot_be_used_until_it_can(
    tmp_path: Path, provider: LocalProvider
) -> None:
    """Of the store its role, its memory, then its clock."""
    with (
        small_disk(tmp_path / "disk", "4m") as disk,
        Store(tmp_path / "store") as store,
        running(tmp_path, provider, store_url=store.url, data=str(disk)) as live,
    ):
        green(live)
        fill(disk / "ballast")
        red(live, "dependency.audit", "Make room on the disk of `data`")
        (disk / "ballast").unlink()
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
