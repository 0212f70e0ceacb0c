"""A service whose keys, policies, settings or store are not fit does not start, and says why."""

from __future__ import annotations

import os
from collections.abc import Callable
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
    """Start the service, which must give up; return what it said."""
    done = issuer("serve", env={**environment(settings), **more})
    assert done.returncode in {3, 6}
    assert "Traceback" not in done.stdout + done.stderr
    sentences = [line for line in done.stderr.splitlines() if not line.startswith(("{", "  "))]
    assert len(sentences) == 1, "why, in one sentence"
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


def said(settings: Settings) -> str:
    """Put a service together, in this process, which must be refused; return how."""
    with pytest.raises(IssuerError) as refused:
        server(changed(settings, store_url="redis://127.0.0.1:1"))
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (open_key, "key.unsafe"),
        (second_active_key, "key.unusable"),
        (no_key, "issuer keys generate"),
        (edit("inspect-ai.yaml", "integration: inspect-ai", "integration: inspect-ai\nintegraton: x"), "inspect-ai.yaml:5:13: file.unknown_member"),
        (edit("inspect-ai.yaml", '"700000001"', "700000001"), "put it in double quotes"),
        (edit("lm-eval.yaml", "mode: active", "mode: activ"), "lm-eval.yaml:5:"),
    ],
)  # fmt: skip
def test_an_unfit_folder_is_refused_with_the_place(
    tmp_path: Path, settings: Settings, change: Callable[[Path], None], expected: str
) -> None:
    change(tmp_path)
    assert expected in said(settings)


def test_a_refusal_is_the_last_word_of_the_process(tmp_path: Path, settings: Settings) -> None:
    edit("inspect-ai.yaml", "mode: active", "mode: activ")(tmp_path)
    assert "inspect-ai.yaml:5:" in refused_start(settings)


def test_its_own_url_cannot_be_a_provider(tmp_path: Path, settings: Settings, provider: LocalProvider) -> None:
    edit("providers.yaml", provider.issuer, settings.url)(tmp_path)
    refused = said(settings)
    assert "providers.yaml:3:" in refused
    assert "its own identity provider" in refused


def test_a_provider_on_plain_http_is_for_development_only(settings: Settings) -> None:
    assert "must be https" in said(changed(settings, development=False, url="https://issuer.example"))


def test_a_store_that_evicts_is_refused(settings: Settings) -> None:
    with EmbeddedValkey() as store:
        with redis.Redis.from_url(store) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        refused = refused_start(settings, ISSUER_STORE_URL=store)
    assert "state.unsafe" in refused
    assert "noeviction" in refused


def test_a_store_whose_password_is_wrong_is_named_without_it(settings: Settings) -> None:
    with EmbeddedValkey() as store:
        with redis.Redis.from_url(store) as client:
            client.config_set("requirepass", "right")
        refused = refused_start(settings, ISSUER_STORE_URL=store.replace("unix://", "unix://:wrong@"))
    assert "it refuses the user name or password in its URL, or demands one" in refused
    assert "wrong" not in refused


def test_a_secret_that_is_named_is_not_made(tmp_path: Path, settings: Settings) -> None:
    named = tmp_path / "shared-secret"
    assert f"the store secret {named}: No such file" in said(changed(settings, store_secret_file=str(named)))
    assert not named.exists()


def test_a_missing_setting_is_named(settings: Settings) -> None:
    assert "settings.invalid" in refused_start(settings, ISSUER_PORT="many")


def test_readable_audit_is_refused(tmp_path: Path, settings: Settings) -> None:
    settings.audit_file.parent.mkdir()
    settings.audit_file.write_text("")
    settings.audit_file.chmod(0o644)
    assert "chmod 600" in said(settings)


def unguarded(name: str, mode: int) -> Callable[[Path], None]:
    return lambda folder: (folder / name).chmod(mode)


def linked_from_an_open_folder(folder: Path) -> None:
    """Replace a policy by a link to where anybody may put another one in its place."""
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


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (unguarded("policies", 0o777), "chmod o-w"),
        (unguarded("policies", 0o1777), "chmod o-w"),
        (unguarded("policies/inspect-ai.yaml", 0o666), "inspect-ai.yaml: file.unsafe: it has mode 0666"),
        (unguarded("policies/providers.yaml", 0o646), "providers.yaml: file.unsafe: it has mode 0646"),
        (linked_from_an_open_folder, "open: file.unsafe: it has mode 0777"),
        (open_benchmark, "eval.yaml: file.unsafe"),
        (unguarded("keys", 0o777), "key.unsafe"),
        (unguarded("keys/active", 0o707), "it has mode 0707: others may write to it. Run `chmod"),
    ],
)
def test_what_others_may_write_to_decides_nothing(
    tmp_path: Path, settings: Settings, change: Callable[[Path], None], expected: str
) -> None:
    change(tmp_path)
    assert expected in said(settings)


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_folders_as_a_checkout_leaves_them_are_taken(tmp_path: Path, provider: LocalProvider, umask: int) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "keys").mkdir()
        write_folder(tmp_path, provider)
    finally:
        os.umask(before)
    follower = Follower(PolicySource(tmp_path / "policies", ISSUER_URL, True), tmp_path / "kept")
    assert follower.state.policies.policies
    if (tmp_path / "keys").stat().st_gid == os.geteuid():
        assert load_keyring(tmp_path / "keys").active_kid


def test_wide_proxies_are_a_warning_in_the_log_stream(settings: Settings) -> None:
    log = refused_start(settings, ISSUER_STORE_URL="redis://127.0.0.1:1", ISSUER_LISTEN_TRUSTED_PROXIES="10.0.0.0/8")
    assert "setting doubted" in log
    assert "listen.trusted_proxies: 10.0.0.0/8 is a network of 16777216 addresses" in log
