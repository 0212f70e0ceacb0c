"""Documents at an address of their own, which pages of every origin may read; or which come so slowly, or are so large."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What lies below has answers that never end.
STALLS = "/stalls"


@contextmanager
def answering(documents: Mapping[str, tuple[str, bytes]]) -> Iterator[str]:
    """Serve documents (media type and bytes) by path, problem documents as 404; yields the server's URL."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            media_type, body = documents.get(self.path.partition("?")[0], ("", b""))
            stalls = self.path.startswith(STALLS)
            good = stalls or media_type not in {"", "application/problem+json"}
            self.send_response(200 if good else 404)
            self.send_header("Content-Type", media_type or "text/plain")
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Length", str(len(body) + stalls))
            self.end_headers()
            self.wfile.write(body)
            if stalls:
                ended.wait(60)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()
