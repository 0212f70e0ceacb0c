"""The HTTP server around the application: its store, its signals, and one worker or several.

uvicorn with httptools only: with h11 it accepts Content-Length beside Transfer-Encoding and serves the rest as a second
request. X-Forwarded-For is believed from listed proxies alone. `http/protocol.py` bounds what uvicorn does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.issuance.ports import Log
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.app import Clock, Shared, build, load, prepare
from issuer.service.bounds import GRACE_S, KEEP_ALIVE_S, KILL_S, MAX_LOGGED_URL_CHARS
from issuer.service.handed_over import handed_over
from issuer.service.http.protocol import protocol_for
from issuer.service.line import Line
from issuer.service.log.engines import settle_home
from issuer.service.log.process import SequencerProcess
from issuer.service.log.setup import LogSettings, WitnessSettings
from issuer.service.log_stream import configure_logging
from issuer.service.metrics.board import Board
from issuer.service.metrics.counts import Counts
from issuer.service.metrics.listener import MetricsListener, Shown
from issuer.service.policy_keeper import Following, PolicyKeeper
from issuer.service.settings import EMBEDDED, Settings, changed, listed
from issuer.service.shared_page import SharedPage
from issuer.service.workers import STOPS, Beat, Progress, beating, bind, in_bursts, listen_addresses, supervise

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


def log_settings(settings: Settings, store_url: str) -> LogSettings:
    """Return what the log is made of, the defaults filled in. Raises SetupError."""
    if len(settings.url) > MAX_LOGGED_URL_CHARS:  # each token would use its identity token up, and then have no leaf
        detail = f"url has {len(settings.url)} characters: a leaf of the log has room for {MAX_LOGGED_URL_CHARS}"
        raise SetupError(Code.SETTINGS_INVALID, detail)
    return LogSettings(
        origin=settings.log.origin,
        database=settings.log_place,
        key_file=settings.log.key_file or str(settings.keys_folder / "log" / "log.pem"),
        records=settings.log.records,
        keys=settings.keys.folder,
        data=settings.data,
        store_url=store_url,
        passphrase=settings.passphrase(),
        witnesses=_witness_settings(settings),
    )


def _witness_settings(settings: Settings) -> WitnessSettings | None:
    """Return who cosigns the log; None where nobody needs to. Raises SetupError."""
    asked = (settings.log.witnesses == "sync", settings.log.witnesses_excluded, settings.log.witness_monitors)
    if not settings.log.witness_policy:
        if any(asked):
            detail = "log.witness_policy: the other settings of witnesses mean nothing without a policy that names them"
            raise SetupError(Code.SETTINGS_INVALID, detail)
        return None
    return WitnessSettings(
        settings.log.witness_policy,
        must_cosign=settings.log.witnesses == "sync",
        excluded=frozenset(listed(settings.log.witnesses_excluded)),
        monitors=dict(_monitor(each) for each in listed(settings.log.witness_monitors)),
        development=settings.development,
    )


def _monitor(text: str) -> tuple[str, str]:
    name, separator, url = text.partition("=")
    if not separator:
        raise SetupError(Code.SETTINGS_INVALID, "log.witness_monitors: write NAME=URL, separated by commas")
    return name, url


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
