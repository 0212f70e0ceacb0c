"""The HTTP server around the application: its store, its signals, and one worker or several.

uvicorn with httptools only: with h11 it accepts Content-Length beside Transfer-Encoding and serves the rest as a second
request. X-Forwarded-For is believed from listed proxies alone. `http/protocol.py` bounds what uvicorn does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import structlog
import uvicorn
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.io.shared_memory import SharedPage
from issuer.io.sockets import bind, in_bursts, listen_addresses
from issuer.issuance.ports import Log
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.app import Clock, Shared, build, load, prepare
from issuer.service.http.protocol import protocol_for
from issuer.service.log.database.engines import settle_home
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.metrics.counts import Board, Counts
from issuer.service.process.bounds import KILL_S
from issuer.service.process.fair_queue import Progress
from issuer.service.process.fd_channel import Line
from issuer.service.process.metrics_listener import MetricsListener, Shown
from issuer.service.process.policy_process import Following, PolicyKeeper
from issuer.service.process.supervisor import STOPS, Beat, beating, supervise
from issuer.service.settings.bounds import GRACE_S, KEEP_ALIVE_S
from issuer.service.settings.log_stream import configure_logging
from issuer.service.settings.model import EMBEDDED, Settings, changed, listed

# -- handed over -------------------------------------------------------------------------------------------------------

# Sockets that a supervisor listens on and hands over: systemd's protocol, sd_listen_fds(3).
#
# They outlive a service that is started again: callers wait in their queue, and none is refused.

_FIRST = 3


def handed_over(environ: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Take the sockets that were handed to this process; none where they were meant for another, or nobody listens.

    The variables are taken away, so that no child takes the sockets for its own. Raises SetupError
    (`service.address`) for what is no listening TCP socket.
    """
    meant_for, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    if meant_for != str(os.getpid()) or not count.isdecimal():
        return []
    return [_listening(descriptor) for descriptor in range(_FIRST, _FIRST + int(count))]


def _listening(descriptor: int) -> socket.socket:
    try:
        taken = socket.socket(fileno=descriptor)
    except OSError:
        raise _no_listener(descriptor) from None
    is_tcp = taken.family in (socket.AF_INET, socket.AF_INET6) and taken.type == socket.SOCK_STREAM
    if not is_tcp or not taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        taken.close()
        raise _no_listener(descriptor)
    taken.set_inheritable(False)
    return taken


def _no_listener(descriptor: int) -> SetupError:
    detail = f"descriptor {descriptor} is no listening TCP socket: in the socket unit, say ListenStream=ADDRESS:PORT"
    return SetupError(Code.SERVICE_ADDRESS, detail)


# -- server ------------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")


@contextlib.contextmanager
def store(settings: Settings) -> Iterator[str]:
    """Yield the URL of the store: the operator's, or that of an embedded Valkey that lives as long as this block."""
    if settings.store.url != EMBEDDED:
        yield settings.store.url
        return
    with EmbeddedValkey() as url:
        yield url


@contextlib.contextmanager
def sequencer(settings: Settings, store_url: str) -> Iterator[Path | None]:
    """Yield the socket of the log's sequencer, which lives as long as this block; None where there is no log.

    An embedded store is no record of the log: it forgets when it stops. Raises SetupError.
    """
    if not settings.log.origin:
        yield None
        return
    with SequencerProcess(log_settings(settings, "" if settings.store.url == EMBEDDED else store_url)) as socket:
        yield socket


def server(
    settings: Settings,
    log: Log | None = None,
    progress: Progress | None = None,
    shared: Shared | None = None,
    clock: Clock | None = None,
) -> uvicorn.Server:
    """Make the server of one worker, which notes its `progress`.

    Raises SetupError and InputError where it must not start.
    """
    shared = shared or Shared(SharedPage())
    counts = Counts(shared.row)
    config = uvicorn.Config(
        build(settings, log, progress, shared, clock),
        host=settings.listen.host,
        port=settings.listen.port,
        http=protocol_for(settings.url, counts.http_requests.add, counts.problem),
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # By default uvicorn would believe the header from loopback.
        proxy_headers=bool(settings.listen.trusted_proxies),
        forwarded_allow_ips=settings.listen.trusted_proxies,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)


def serve(settings: Settings, log: Log | None = None, workers: int = 1, clock: Clock | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are finished first. SIGHUP reloads the policies.

    A single worker is this process; several, or one beside which metrics are scraped, are its children, on one port and
    one store. `clock` replaces, in tests, the Unix seconds that keys come and go by. Raises SetupError and InputError.
    """
    configure_logging()
    for doubt in settings.doubts:
        _log.warning("setting doubted", detail=doubt)
    for number in STOPS:
        signal.signal(number, _stopped)  # uvicorn takes these over while it runs, then raises them again
    if callable(signal.getsignal(signal.SIGHUP)):
        signal.signal(signal.SIGHUP, _hung_up)
    elif signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until `reload` takes it: before that, all is loaded anyway
    page = SharedPage()
    page.take_signals()
    settle_home(Path(settings.data), settings.log.origin, settings.log_place)
    with store(settings) as store_url, sequencer(settings, store_url) as socket:
        board = Board(workers)
        settings, shared = changed(settings, store_url=store_url), Shared(page, socket, row=board.rows[0])
        given = handed_over()
        if workers == 1:  # several share them: the first that wakes would take a whole burst
            given = in_bursts(given)
        addresses = [] if given else listen_addresses(settings.listen.host, settings.listen.port)
        if workers == 1 and not settings.metrics.port:
            _run(settings, log, shared, clock, given or bind(addresses))
        else:
            prepare(settings)
            progress = Progress()
            keeper = PolicyKeeper(load(settings, progress.note), progress)
            metrics = _metrics(settings, board, keeper)

            def run(place: int, beat: Beat, told: Line) -> None:
                if metrics is not None:
                    metrics.close()
                own = replace(shared, policies=Following(keeper.state, told), row=board.rows[place])
                _run(settings, log, own, clock, given or bind(addresses), beat)

            settle()
            supervise(workers, run, KILL_S, keeper=keeper, beside=[metrics] if metrics else [])


def settle() -> None:
    """Make what is loaded one copy for all workers. The collector would write to what it looks at; and what reading it
    took besides, half as much again, lies free between it: the C library, where it is glibc, gives that back."""
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _metrics(settings: Settings, board: Board, keeper: PolicyKeeper) -> MetricsListener | None:
    """Listen where metrics are scraped; None where nobody is to. Raises SetupError."""
    room = settings.metrics
    if not room.port:
        return None
    shown = Shown(board, settings.store.url, settings.audit_file, keeper)
    return MetricsListener(room.host, room.port, listed(room.names), shown)


def _run(
    settings: Settings,
    log: Log | None,
    shared: Shared,
    clock: Clock | None,
    sockets: list[socket.socket] | None = None,
    beat: Beat | None = None,
) -> None:
    progress = Progress()
    running = server(settings, log, progress, shared, clock)
    gc.freeze()  # what is loaded stays: a full collection that looks at all of it again stops every request for 80 ms
    watched = contextlib.nullcontext() if beat is None else beating(beat, lambda: _come_so_far(running, progress))
    # Of a refused start uvicorn would write the traceback.
    logging.getLogger("uvicorn.error").addFilter(lambda _: progress.refusal is None)
    try:
        with watched:
            running.run(sockets)
    except SystemExit as end:
        if end.code:  # uvicorn's own
            raise progress.refusal or SetupError(Code.INTERNAL, "the server ended at its start") from None


def _come_so_far(running: uvicorn.Server, progress: Progress) -> int:
    return progress.count + running.server_state.total_requests


def _hung_up(_number: int, _frame: object) -> None:
    """End as for SIGTERM where a hangup meant the end before we ran: an exception in the event loop may hang."""
    signal.raise_signal(signal.SIGTERM)


def _stopped(_number: int, _frame: object) -> None:
    """End for a signal that came before the server ran, or that it raised again; ignore further ones."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise SystemExit(0)
