"""The process of a witness: one uvicorn, until SIGTERM."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import structlog
import uvicorn

from issuer.service.bounds import GRACE_S, KEEP_ALIVE_S
from issuer.service.http.protocol import protocol_for
from issuer.service.log_stream import configure_logging
from issuer.service.workers import bind, listen_addresses
from issuer.witness.app import app
from issuer.witness.folder import open_witness

_log = structlog.get_logger("issuer")


def serve(folder: Path, logs: Path, host: str, port: int, trusted_proxies: str) -> None:
    """Witness the logs in a policy file until SIGTERM or SIGINT. Raises SetupError and InputError."""
    configure_logging()
    witness, cosigner = open_witness(folder, logs, lambda: int(time.time()))
    sockets = bind(listen_addresses(host, port))
    config = uvicorn.Config(
        app(witness),
        host=host,
        port=port,
        http=protocol_for(""),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=trusted_proxies,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)  # uvicorn takes these over while it runs, then raises them again
    _log.info("witnessing", vkey=cosigner.verifier.to_text(), host=host, port=port)
    uvicorn.Server(config).run(sockets)


def _stopped(_number: int, _frame: object) -> None:
    raise SystemExit(0)
