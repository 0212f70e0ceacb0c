"""A server that shows what a service shows, but for what it alters, and when."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.support.running import Running

# What it answers in place of what the service does: its path and its bytes. It may take its time.
Alter = Callable[[str, bytes], bytes]


@contextlib.contextmanager
def lying(live: Running, alter: Alter) -> Iterator[str]:
    """Serve that. Returns the URL of it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["content-length"])))

        def _answer(self, sent: bytes) -> None:
            kept = {name: value for name, value in self.headers.items() if name in {"Content-Type", "Authorization"}}
            answer = httpx.request(self.command, f"{live.url}{self.path}", content=sent or None, headers=kept)
            body = alter(self.path, answer.content)
            self.send_response(answer.status_code)
            for name in ("content-type", "content-security-policy"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked is gone
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
