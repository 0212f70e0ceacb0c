"""The floor: a server with only the necessary work of an issuer for each request.

One check of a signature, one call of the admission script, one Ed25519 signature, over the HTTP server of the service,
under the same load: alone and warm they cost half as much as in a server with other work for the caches and the branch
predictors. `python -m tests.bench.floor PORT STORE KEYS`: a worker of it; several share a port.
"""

import os
import socket
import sys
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import uvicorn

from issuer.formats import jose
from issuer.io import keyfile
from issuer.issuance.ports import AdmissionRequest, Use
from issuer.issuance.steps import Payer
from issuer.limits.rate import Limits, Rate
from issuer.service.admission.redis import RedisAdmission
from issuer.service.http.protocol import BoundedProtocol

WIDE = Rate(count=1_000_000, per_s=1, burst=50_000)
LIMITS = Limits(identity=WIDE, integration=WIDE, refusals=WIDE)
ANSWER = b"x" * 4800


def admission(now: int) -> AdmissionRequest:
    """Return the call for a fresh identity."""
    use = Use(os.urandom(32).hex(), 1, "digest", now + 3600, "kid", ("kid",), now + 5, now + 600)
    return AdmissionRequest(Payer("integration", "identity"), LIMITS, 1, use, b"x" * 732)


class Floor:
    """The application. `POST /RS256` or `/ES256`, or any other path for the server alone."""

    def __init__(self, store: str, keys: jose.KeySet) -> None:
        self._state = RedisAdmission(store, leeway_s=0)
        self._keys = {name: key for key in keys.keys.values() for name in key.algorithms}
        self._private = keyfile.generate()
        self._message = os.urandom(1500)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        while (await receive())["more_body"]:
            pass
        if (algorithm := scope["path"][1:]) in self._keys:
            await self._work(algorithm, next(value for name, value in scope["headers"] if name == b"authorization"))
        head = [(b"content-length", str(len(ANSWER)).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": head})
        await send({"type": "http.response.body", "body": ANSWER})

    async def _work(self, algorithm: str, bearer: bytes) -> None:
        signing_input, _, signature = bearer.removeprefix(b"Bearer ").rpartition(b".")
        assert self._keys[algorithm].verifies(algorithm, signing_input, urlsafe_b64decode(signature + b"=="))
        await self._state.admit(admission(int(time.time())))
        self._private.sign(self._message)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        await self._state.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._state.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def main(port: int, store: str, keys: Path) -> None:
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        own.bind(("127.0.0.1", port))
        floor = Floor(store, jose.parse_key_set(keys.read_bytes()))
        config = uvicorn.Config(
            floor, http=BoundedProtocol, loop="uvloop", lifespan="on", access_log=False, log_config=None
        )
        uvicorn.Server(config).run([own])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
