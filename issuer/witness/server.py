"""The server process of a witness: one uvicorn with two routes, bounded bodies, and a CPU budget for each source.

The service's HTTP protocol bounds heads, bodies and connections; in the standard library's server, a connection with
an incomplete head would occupy a thread. One thread reads the state for one request at a time: SQLite has one writer.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from litestar import Litestar, post
from litestar.exceptions import HTTPException, MethodNotAllowedException

from issuer.codes import Code
from issuer.errors import InputError, IssuerError, Place, Refused, SetupError, Undecided
from issuer.io import files, keyfile
from issuer.io.sockets import bind, listen_addresses
from issuer.limits.rate import Rate
from issuer.limits.sources import Sources
from issuer.service.http.messages import Answer, Http, answer, get_and_head, source_of
from issuer.service.http.protocol import protocol_for
from issuer.service.http.request_limits import Gate
from issuer.service.settings.bounds import GRACE_S, KEEP_ALIVE_S
from issuer.service.settings.log_stream import configure_logging
from issuer.tlog.checkpoint import ADD_CHECKPOINT_PATH, MAX_SUBMISSION_BYTES
from issuer.tlog.note import Cosigner
from issuer.tlog.witness_policy import parse_policy
from issuer.witness.state import NotKept, WitnessState, create
from issuer.witness.witness import TEXT_TYPE, Logs, Reply, Witness

# Milliseconds of CPU, at least 1 for each request. A source may send fifty requests a second, of which a log needs one
# to ten. All sources together get half a core.
SOURCE_MS = Rate(count=3000, per_s=60, burst=500)
ALL_MS = Rate(count=30_000, per_s=60, burst=1000)
# Requests in progress or waiting. Each waits about 10 ms for the disk.
MAX_PLACES = 32

_log = structlog.get_logger("issuer")


def app(witness: Witness) -> Litestar:
    """Return the application of one witness."""
    gate = Gate(MAX_PLACES, Sources(SOURCE_MS), Sources(ALL_MS, capacity=1))

    async def ask(request: Http, work: Callable[[], Reply]) -> Answer:
        reply = await gate.work(_source(request), work)
        if reply.status is not HTTPStatus.OK:
            level = _log.critical if reply.is_fork else _log.info
            level("not cosigned", status=int(reply.status), why=reply.body.decode().strip(), source=_source(request))
        return answer(reply.body, reply.media_type, reply.status, headers={"Cache-Control": "no-store"})

    @post(ADD_CHECKPOINT_PATH)
    async def add_checkpoint(request: Http) -> Answer:
        gate.demand(_source(request))
        raw = await gate.bodies.read(request, _source(request), MAX_SUBMISSION_BYTES)
        return await ask(request, partial(witness.add_checkpoint, raw))

    async def checkpoint(request: Http, origin_hash: str) -> Answer:
        gate.demand(_source(request))
        return await ask(request, partial(witness.checkpoint, origin_hash))

    return Litestar(
        [add_checkpoint, *get_and_head("/{origin_hash:str}/checkpoint", checkpoint)],
        exception_handlers=_HANDLERS,
        openapi_config=None,
        request_max_body_size=None,  # `Gate.read` bounds it
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


def _source(request: Http) -> str:
    return source_of(request.client.host if request.client else "")


def _not_routed(request: Http, error: HTTPException) -> Answer:
    allow = {"Allow": "POST" if request.scope["path"] == ADD_CHECKPOINT_PATH else "GET, HEAD"}
    headers = allow if isinstance(error, MethodNotAllowedException) else {}
    return _plain(error.status_code, HTTPStatus(error.status_code).phrase, **headers)


def _not_served(_: Http, error: IssuerError) -> Answer:
    """Answer a request that is too large, too slow, or above a limit."""
    retry_after_s = error.retry_after_s if isinstance(error, Refused | Undecided) else None
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return _plain(error.code.meaning.status, error.detail, **headers)


def _not_kept(_: Http, error: NotKept) -> Answer:
    """Answer 503: the checkpoint was not signed, and the log may send the same request again."""
    _log.error("state not kept", reason=str(error))
    return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "the witness cannot write its state", **{"Retry-After": "5"})


def _not_foreseen(_: Http, error: Exception) -> Answer:
    _log.error("request failed", exc_info=error)
    return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the witness failed")


def _plain(status: int, text: str, **headers: str) -> Answer:
    return answer(f"{text}\n".encode(), TEXT_TYPE, status, headers={"Cache-Control": "no-store", **headers})


_HANDLERS: dict[Any, Callable[[Http, Any], Any]] = {
    HTTPException: _not_routed, IssuerError: _not_served, NotKept: _not_kept, Exception: _not_foreseen,
}  # fmt: skip


KEY_FILE = "witness.pem"
STATE_FILE = "witness.sqlite"
_MAX_LOGS_FILE_BYTES = 1024 * 1024


def init(folder: Path, name: str) -> str:
    """Create a witness: its folder, key and empty state. Return its vkey, which never changes. Raises SetupError if a
    part of it exists: a witness that lost its state must not use its key again."""
    key = keyfile.generate()
    vkey = Cosigner(name, key).verifier.to_text()
    try:
        files.make_folder(folder)
        create(folder / STATE_FILE, name)
        keyfile.write(folder / KEY_FILE, key)
    except FileExistsError as error:
        detail = f"{error.filename} exists: a witness is created only once. Give another --dir for another witness"
        raise SetupError(Code.WITNESS_STATE, detail) from None
    return vkey


def open_witness(folder: Path, logs: Path, clock: Callable[[], int]) -> tuple[Witness, Cosigner]:
    """Open the witness in a folder for the logs in a policy file. Raises SetupError and InputError, also if another
    user may write to its state: an older state lets it sign a fork."""
    for own in (folder, folder / STATE_FILE):
        if own.exists():
            files.demand_guarded(own, group=False, own=True)
    files.demand_guarded(logs, group=True)
    witnessed = read_logs(logs)
    state = WitnessState(folder / STATE_FILE)
    cosigner = Cosigner(state.name, keyfile.read(folder / KEY_FILE))
    return Witness(cosigner, witnessed, state, clock), cosigner


def read_logs(path: Path) -> Logs:
    """Return by origin the keys in the `log` lines of a policy file (c2sp.org/tlog-policy); other lines are ignored. A
    log has several keys while one replaces the other. Raises InputError."""
    policy = parse_policy(files.read(path, _MAX_LOGS_FILE_BYTES), str(path))
    if not policy.logs:
        raise InputError(Code.LOG_POLICY, "has no log: add a line `log VKEY`", Place(str(path)))
    keys = [log.verifier for log in policy.logs]
    return {key.name: tuple(own for own in keys if own.name == key.name) for key in keys}


def serve(folder: Path, logs: Path, host: str, port: int, trusted_proxies: str) -> None:
    """Serve the witness for the logs in a policy file until SIGTERM or SIGINT. Raises SetupError and InputError."""
    configure_logging()
    witness, cosigner = open_witness(folder, logs, lambda: int(time.time()))
    sockets = bind(listen_addresses(host, port))
    config = uvicorn.Config(
        app(witness), host=host, port=port, http=protocol_for(""), loop="uvloop", ws="none", lifespan="off",
        log_config=None, access_log=False, proxy_headers=bool(trusted_proxies), forwarded_allow_ips=trusted_proxies,
        server_header=False, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn replaces these handlers while it runs, then raises the signal again.
        signal.signal(number, lambda *_: sys.exit(0))
    _log.info("witnessing", vkey=cosigner.verifier.to_text(), host=host, port=port)
    uvicorn.Server(config).run(sockets)
