"""A server that shows a service's answers, with alterations."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import httpx

from tests.support.answering import Handler, serving
from tests.support.running import Running

# Returns the body to send, from the path and the service's body. It may take its time.
Alter = Callable[[str, bytes], bytes]


def lying(live: Running, alter: Alter) -> AbstractContextManager[str]:
    """Serve the altered answers. Yields the server's URL."""

    class Altered(Handler):
        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            kept = {name: value for name, value in self.headers.items() if name in {"Content-Type", "Authorization"}}
            found = httpx.request(self.command, f"{live.url}{self.path}", content=sent or None, headers=kept)
            names = [name for name in ("content-type", "content-security-policy") if name in found.headers]
            headers = {name: found.headers[name] for name in names}
            self.reply(found.status_code, alter(self.path, found.content), **headers)

    return serving(Altered)
