"""A throw-away issuer in a temporary folder: a fresh key, the sample policies, and a local identity provider."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from issuer.dev.provider import LocalProvider
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.io import files, keyfile
from issuer.service.log.sequencer.setup import init, log_settings, read_seal
from issuer.service.settings.model import EMBEDDED, VARIABLES, Keys, Listen, Settings, Store, changed, values_of
from issuer.service.signing.keyring import generate
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH

# The sample policies: package data in an installed wheel, a top-level folder in a checkout.
SAMPLE_POLICIES = next(
    folder for folder in (Path(__file__).parent / "policies", Path(__file__).parents[2] / "policies") if folder.is_dir()
)
# The witness policy of a sandbox (c2sp.org/tlog-policy): its log, without witnesses.
LOG_POLICY = "log-policy.txt"
SAMPLE_RUN = Path(__file__).parent / "runs" / "gsm8k_mini_inspect_ai.json"
AUDIENCE = "https://huggingface.co"
# The trust of a sandbox's `POST /verify`: the sandbox itself.
TRUST = """version: 1
audience: "{audience}"
issuers:
  - issuer: "{url}"
    keys: {{url: "{url}{jwks}"}}
    archive: {{url: "{url}{archive}"}}
"""


class Sandbox(Struct, frozen=True):
    """The paths of a sandbox, and the settings that start its service."""

    folder: Path
    provider: LocalProvider
    settings: Settings


@contextlib.contextmanager
def sandbox(port: int = 0) -> Iterator[Sandbox]:
    """Make a sandbox, and remove it afterwards. `port` 0 means any free port."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_clean_up_on_signals())
        _sweep(Path(tempfile.gettempdir()))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX)))
        stack.enter_context(files.folder_locked(folder, wait_s=0))
        provider = stack.enter_context(LocalProvider())
        write_policies(folder / "policies", provider.issuer)
        generate(folder / "keys", "active")
        settings = settings_for(folder, port or free_port())
        trust = folder / "trust.yaml"
        settings = begin_log(settings, folder)
        files.create(
            trust, TRUST.format(url=settings.url, jwks=JWKS_PATH, archive=ARCHIVE_PATH, audience=AUDIENCE).encode()
        )
        yield Sandbox(folder, provider, changed(settings, trust=str(trust)))


_PREFIX = "issuer-sandbox-"
_NEW_S = 60  # a younger sandbox may not have its lock yet


def _sweep(place: Path) -> None:
    """Remove this user's killed sandboxes, which contain private keys. Their locks are free."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_S:
                with files.folder_locked(folder, wait_s=0):
                    shutil.rmtree(folder, ignore_errors=True)


def begin_log(settings: Settings, folder: Path) -> Settings:
    """Create a transparency log with a new origin and a policy file for it. Return the settings with the log."""
    settings = changed(
        settings,
        log_origin=f"{settings.url.removeprefix('http://')}/log/{secrets.token_hex(4)}",
        log_records=str(folder / "records"),
        log_witness_policy=str(folder / LOG_POLICY),
    )
    store_url = "" if settings.store.url == EMBEDDED else settings.store.url
    log = log_settings(settings, store_url)
    files.make_folder(Path(log.key_file).parent)
    keyfile.write(Path(log.key_file), keyfile.generate(), None)
    init(log)
    files.create(folder / LOG_POLICY, f"log {read_seal(log).verifier.to_text()}\nquorum none\n".encode())
    return settings


@contextlib.contextmanager
def _clean_up_on_signals() -> Iterator[None]:
    """Turn a signal into an exception, to remove keys, folders and children. Further signals are ignored meanwhile."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return

    def end(number: int, _frame: object) -> None:
        for stop in numbers:
            signal.signal(stop, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def settings_for(folder: Path, port: int) -> Settings:
    """Return the settings of a development service in a folder."""
    settings = Settings(
        url=f"http://127.0.0.1:{port}",
        policies=str(folder / "policies"),
        data=str(folder / "data"),
        keys=Keys(folder=str(folder / "keys")),
        store=Store(url=EMBEDDED, epoch_leeway_s=0),  # the only provider uses this machine's clock
        listen=Listen(port=port),
        development=True,
    )
    return changed(settings, ceilings_per_hour=3_600_000_000, ceilings_burst=50_000)  # limits here are very wide


def write_policies(folder: Path, provider_issuer: str) -> None:
    """Copy the sample policies, with the local provider in place of GitHub Actions."""
    files.make_folder(folder)
    for path in SAMPLE_POLICIES.glob("*.yaml"):
        if path.name != "providers.yaml":
            files.create(folder / path.name, files.read(path, MAX_BYTES), durable=False)
    providers = (
        "version: 1\nproviders:\n"
        f'  github-actions: {{profile: "github-actions", issuer: "{provider_issuer}"}}\n'
        '  gitlab-ci: {profile: "gitlab-ci"}\n'
    )
    files.create(folder / "providers.yaml", providers.encode(), durable=False)


_ports: dict[int, Iterator[int]] = {}  # by process: a fork takes other blocks


def free_port() -> int:
    """Return a free TCP port on loopback. No other process gets it from here while this one runs."""
    return next(_ports.setdefault(os.getpid(), _free_ports()))


def _free_ports() -> Iterator[int]:
    """Yield the free ports of blocks whose first port this process holds.

    They are below 32768: a port above may become that of an outgoing connection before the service listens.
    """
    while True:
        first = 10_000 + 64 * secrets.randbelow(355)
        with contextlib.suppress(OSError):  # another process holds the block
            socket.create_server(("127.0.0.1", first)).detach()  # held until the process ends
            yield from filter(_is_free, range(first + 1, first + 64))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def environment(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables, for a child process."""
    values = values_of(settings)
    return {variable: str(values[name]) for variable, name in VARIABLES.items()}
