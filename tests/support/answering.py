"""Small HTTP servers on loopback. `answering` serves documents to pages of every origin."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# An answer below this path never ends.
STALLS = "/stalls"


class Handler(BaseHTTPRequestHandler):
    """A request by GET or POST, which `answer` answers without a log line."""

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_GET  # noqa: N815

    def answer(self) -> None:
        raise NotImplementedError

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        """Send a whole answer; `_` in a header's name becomes `-`."""
        self.send_response(status)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(body)), **sent}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # the client may be gone
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 64


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server, with a thread for each connection, until the block ends. Yields its URL."""
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(documents: Mapping[str, tuple[str, bytes]]) -> Iterator[str]:
    """Serve documents (media type and bytes) by path, problem documents as 404. Yields the server's URL."""
    ended = threading.Event()

    class Documents(Handler):
        def answer(self) -> None:
            media_type, body = documents.get(self.path.partition("?")[0], ("", b""))
            stalls = self.path.startswith(STALLS)
            status = 200 if stalls or media_type not in {"", "application/problem+json"} else 404
            length = {"Content_Length": str(len(body) + stalls), "Access_Control_Allow_Origin": "*"}
            self.reply(status, body, Content_Type=media_type or "text/plain", **length)
            if stalls:
                ended.wait(60)

    with serving(Documents) as url:
        try:
            yield url
        finally:
            ended.set()
