"""The HTTP server around the application: its store, its signals, and one worker or several.

uvicorn uses httptools: with h11 it accepts Content-Length beside Transfer-Encoding, and serves the rest as a second
request. It believes X-Forwarded-For from listed proxies only. `http/protocol.py` sets the bounds that uvicorn lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Collection, Iterator, MutableMapping, Sequence
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
from issuer.service.http.request_limits import CountedEvent
from issuer.service.log.database.engines import home_of, settle_home
from issuer.service.log.sequencer.process import SequencerProcess
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.metrics.counts import Board, Counters
from issuer.service.process.bounds import KILL_S
from issuer.service.process.fair_queue import Progress
from issuer.service.process.fd_channel import Channel
from issuer.service.process.helper import Helper, PolicyUpdates
from issuer.service.process.metrics_listener import MetricsListener
from issuer.service.process.supervisor import STOPS, Beat, Demand, beating, supervise
from issuer.service.settings.bounds import BEAT_S, GRACE_S, KEEP_ALIVE_S
from issuer.service.settings.log_stream import configure_logging
from issuer.service.settings.model import EMBEDDED, Settings, changed, listed
from issuer.service.signing.inventory import Inventory, Part

# -- socket activation -------------------------------------------------------------------------------------------------

# systemd listens on the sockets and passes them to us: sd_listen_fds(3). They outlive a restart of the service, so
# callers wait in their queue and none is refused.

_FIRST = 3


def handed_over(environ: MutableMapping[str, str] = os.environ) -> list[socket.socket]:
    """Return the sockets that systemd passed to this process: none if they were for another process.

    Removes the variables, so that no child believes the sockets to be its own. Raises SetupError (`service.address`)
    for a descriptor that is not a listening TCP socket.
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
    detail = f"descriptor {descriptor} is not a listening TCP socket: set ListenStream=ADDRESS:PORT in the socket unit"
    return SetupError(Code.SERVICE_ADDRESS, detail)


# -- server ------------------------------------------------------------------------------------------------------------

_log = structlog.get_logger("issuer")


@contextlib.contextmanager
def store(settings: Settings, demands: list[Demand]) -> Iterator[str]:
    """Yield the URL of the store: the operator's, or the URL of an embedded Valkey that runs as long as this block.
    Add the demand that it runs to `demands`."""
    if settings.store.url != EMBEDDED:
        yield settings.store.url
        return
    embedded = EmbeddedValkey()
    with embedded as url:
        demands.append(embedded.demand_running)
        yield url


@contextlib.contextmanager
def sequencer(settings: Settings, store_url: str, demands: list[Demand]) -> Iterator[Path | None]:
    """Yield the socket of the log's sequencer, which runs as long as this block, or None without a log. Add the demand
    that it runs to `demands`.

    An embedded store forgets when it stops, so the sequencer does not keep its record there. Raises SetupError.
    """
    if not settings.log.origin:
        yield None
        return
    process = SequencerProcess(log_settings(settings, "" if settings.store.url == EMBEDDED else store_url))
    with process as socket:
        demands.append(process.demand_running)
        yield socket


def server(
    settings: Settings,
    log: Log | None = None,
    progress: Progress | None = None,
    shared: Shared | None = None,
    clock: Clock | None = None,
) -> uvicorn.Server:
    """Make the server of one worker, which counts its `progress`. Raises SetupError and InputError."""
    shared = shared or Shared(SharedPage())
    counts = Counters(shared.row)
    early_close = CountedEvent("clients closed early")
    config = uvicorn.Config(
        build(settings, log, progress, shared, clock),
        host=settings.listen.host,
        port=settings.listen.port,
        http=protocol_for(settings.url, counts.http_requests.add, counts.problem, early_close.add),
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
    return _Server(config)


class _Server(uvicorn.Server):
    """A server that handles signals from before its coroutine exists. Between the two, `_stopped` would end the process
    with a warning about a coroutine that was never awaited."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        for number in STOPS:
            signal.signal(number, self.handle_exit)
        super().run(sockets)


def serve(
    settings: Settings,
    log: Log | None = None,
    workers: int = 1,
    clock: Clock | None = None,
    begin_anew: Collection[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, and finish the requests in flight. SIGHUP reloads the policies.

    One worker without a metrics port is this process. Otherwise this process supervises the workers and a helper, on
    one port and one store. If the store's or the log's process ends, so does the service: its service manager starts
    everything again. The parts of `data` in `begin_anew` may be missing although this issuer had them. Tests
    replace `clock`, which returns Unix seconds and decides when keys change.
    Raises SetupError and InputError.
    """
    configure_logging()
    for doubt in settings.doubts:
        _log.warning("setting doubted", detail=doubt)
    for number in STOPS:
        signal.signal(number, _stopped)  # until the server runs, which ignores further ones after its end
    if callable(signal.getsignal(signal.SIGHUP)):
        signal.signal(signal.SIGHUP, _hung_up)
    elif signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the files are watched: the start loads them anyway
    page = SharedPage()
    page.take_signals()
    settings.demand_guarded()
    settle_home(Path(settings.data), settings.log.origin, settings.log_place)
    found = _demand_data(settings, begin_anew)
    demands: list[Demand] = []
    with store(settings, demands) as store_url, sequencer(settings, store_url, demands) as socket:
        board = Board(workers)
        settings, shared = changed(settings, store_url=store_url), Shared(page, socket, row=board.rows[0])
        given = handed_over()
        if workers == 1:  # of several workers, the first to wake would take a whole burst
            given = in_bursts(given)
        addresses = [] if given else listen_addresses(settings.listen.host, settings.listen.port)
        if workers == 1 and not settings.metrics.port:
            with _demanding(demands):
                _run(settings, log, shared, clock, given or bind(addresses))
        else:
            prepare(settings)
            progress = Progress()
            helper = Helper(load(settings, progress.note), progress, _metrics(settings, board))

            def run(place: int, beat: Beat, receiver: Channel) -> None:
                helper.close()
                _demand_data(settings, had=found)  # the disk may be gone when a worker is restarted
                own = replace(shared, policies=PolicyUpdates(helper.state, receiver), row=board.rows[place])
                _run(settings, log, own, clock, given or bind(addresses), beat)

            settle()
            supervise(workers, run, KILL_S, helper=helper, demands=demands)


def _demand_data(settings: Settings, begin_anew: Collection[str] = (), had: Collection[Part] = ()) -> frozenset[Part]:
    """Return the parts of `data` that exist. Raises SetupError if one is missing that the service had, and InputError
    if another user may write there."""
    settings.demand_guarded()
    with contextlib.closing(home_of(Path(settings.data), settings.log.origin, settings.log_place)) as home:
        return Inventory(settings, home).demand(begin_anew, had=had)


def settle() -> None:
    """Prepare the loaded policies to be shared by all workers after the fork.

    The garbage collector writes to each object that it visits, so it must not visit these. Loading also leaves free
    memory between them, half their size: `malloc_trim` returns it to the system.
    """
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _metrics(settings: Settings, board: Board) -> MetricsListener | None:
    """Listen for scrapes; None without a metrics port. Raises SetupError."""
    room = settings.metrics
    if not room.port:
        return None
    return MetricsListener(room.host, room.port, listed(room.names), (board, settings.store.url, settings.audit_file))


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
    gc.freeze()  # a full collection that visits the loaded policies stops every request for 80 ms
    watched = contextlib.nullcontext() if beat is None else beating(beat, lambda: _progress(running, progress))
    # uvicorn would log the traceback of a refused start.
    logging.getLogger("uvicorn.error").addFilter(lambda _: progress.refusal is None)
    try:
        with watched:
            running.run(sockets)
    except SystemExit as end:
        if end.code:  # uvicorn's own
            raise progress.refusal or SetupError(Code.INTERNAL, "the server ended at its start") from None


@contextlib.contextmanager
def _demanding(demands: Sequence[Demand]) -> Iterator[None]:
    """Stop this process, as by SIGTERM, when one of the demands raises its SetupError, and raise the error."""
    over, errors = threading.Event(), list[SetupError]()

    def watch() -> None:
        while not over.wait(BEAT_S) and not errors:
            try:
                for demand in demands:
                    demand()
            except SetupError as error:
                errors.append(error)
                os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        if errors:
            raise errors[0]


def _progress(running: uvicorn.Server, progress: Progress) -> int:
    return progress.count + running.server_state.total_requests


def _hung_up(_number: int, _frame: object) -> None:
    """End as for SIGTERM. This replaces an earlier handler of SIGHUP, whose exception could hang the event loop."""
    signal.raise_signal(signal.SIGTERM)


def _stopped(_number: int, _frame: object) -> None:
    """End for a signal that came before the server ran; ignore further ones."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    raise SystemExit(0)
