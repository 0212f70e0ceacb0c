"""A service with unfit keys, policies, settings or store does not start, and says why."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment, free_port, settings_for
from issuer.errors import IssuerError
from issuer.io import keyfile
from issuer.policy.authoring.load import PolicySource
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.policies.watcher import Follower
from issuer.service.process.server import server
from issuer.service.settings.model import Settings, changed
from tests.support.command import issuer
from tests.support.keyrings import load_keyring
from tests.support.policies import ISSUER_URL
from tests.support.running import write_folder


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


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "policies" / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    return change


def open_key(folder: Path) -> None:
    next(folder.glob("keys/active/*.pem")).chmod(0o644)


def second_active_key(folder: Path) -> None:
    keyfile.write(folder / "keys" / "active" / "second.pem", keyfile.generate())


def no_key(folder: Path) -> None:
    next(folder.glob("keys/active/*.pem")).unlink()


def refusal(settings: Settings) -> str:
    """Build a service in this process, which must be refused. Return the error."""
    with pytest.raises(IssuerError) as refused:
        server(changed(settings, store_url="redis://127.0.0.1:1"))
    return str(refused.value)


def refusals(folder: Path, provider: LocalProvider, changes: Iterable[Callable[[Path], None]]) -> Iterator[str]:
    """Yield how the start is refused after each change of a fresh folder."""
    for number, change in enumerate(changes):
        fresh = folder / str(number)
        write_folder(fresh, provider)
        change(fresh)
        yield refusal(settings_for(fresh, free_port()))


def test_an_unfit_folder_is_refused_with_the_place(tmp_path: Path, provider: LocalProvider) -> None:
    faults = {
        open_key: "key.unsafe",
        second_active_key: "key.unusable",
        no_key: "issuer keys generate",
        edit("inspect-ai.yaml", "integration: inspect-ai", "integration: inspect-ai\nintegraton: x"): "inspect-ai.yaml:5:13: file.unknown_member",
        edit("inspect-ai.yaml", '"700000001"', "700000001"): "put it in double quotes",
        edit("lm-eval.yaml", "mode: active", "mode: activ"): "lm-eval.yaml:5:",
    }  # fmt: skip
    for expected, found in zip(faults.values(), refusals(tmp_path, provider, faults), strict=True):
        assert expected in found


def test_its_own_url_cannot_be_a_provider(tmp_path: Path, settings: Settings, provider: LocalProvider) -> None:
    edit("providers.yaml", provider.issuer, settings.url)(tmp_path)
    refused = refusal(settings)
    assert "providers.yaml:3:" in refused
    assert "its own identity provider" in refused


def test_a_provider_on_plain_http_is_for_development_only(settings: Settings) -> None:
    assert "must be https" in refusal(changed(settings, development=False, url="https://issuer.example"))


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


def test_a_configured_secret_file_is_not_created(tmp_path: Path, settings: Settings) -> None:
    named = tmp_path / "shared-secret"
    assert f"the store secret {named}: No such file" in refusal(changed(settings, store_secret_file=str(named)))
    assert not named.exists()


def test_an_audit_file_that_others_may_read_is_refused(settings: Settings) -> None:
    settings.audit_file.parent.mkdir()
    settings.audit_file.write_text("")
    settings.audit_file.chmod(0o644)
    assert "chmod 600" in refusal(settings)


def unguarded(name: str, mode: int) -> Callable[[Path], None]:
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


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path, provider: LocalProvider) -> None:
    faults = {
        unguarded("policies", 0o777): "chmod o-w",
        unguarded("policies", 0o1777): "chmod o-w",
        unguarded("policies/inspect-ai.yaml", 0o666): "inspect-ai.yaml: file.unsafe: it has mode 0666",
        unguarded("policies/providers.yaml", 0o646): "providers.yaml: file.unsafe: it has mode 0646",
        linked_from_an_open_folder: "open: file.unsafe: it has mode 0777",
        open_benchmark: "eval.yaml: file.unsafe",
        unguarded("keys", 0o777): "key.unsafe",
        unguarded("keys/active", 0o707): "it has mode 0707: others may write to it. Run `chmod",
    }
    for expected, found in zip(faults.values(), refusals(tmp_path, provider, faults), strict=True):
        assert expected in found


def test_folders_as_a_checkout_leaves_them_are_accepted(tmp_path: Path, provider: LocalProvider) -> None:
    for umask in (0o002, 0o022, 0o077):
        folder = tmp_path / oct(umask)
        before = os.umask(umask)
        try:
            (folder / "keys").mkdir(parents=True)
            write_folder(folder, provider)
        finally:
            os.umask(before)
        follower = Follower(PolicySource(folder / "policies", ISSUER_URL, True), folder / "kept")
        assert follower.state.policies.policies
        if (folder / "keys").stat().st_gid == os.geteuid():
            assert load_keyring(folder / "keys").active_kid
