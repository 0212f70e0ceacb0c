"""Workers that serve nothing, under the real supervisor: `python -m tests.support.supervised FOLDER KIND...`.

Each writes `KIND PID` to FOLDER/said. `loyal` workers do nothing else, `failing` ones end at once with 1, `refused` ones
are refused their start, `deaf` ones ignore SIGTERM, `loading` ones have not begun to beat, and `busy` ones beat seldom,
but within their 3 s. For two kinds a thread beats, as for a real worker: `toiling` ones make progress in an endless
turn, `stuck` ones do not.
"""

import os
import signal
import sys
import time
from pathlib import Path

import structlog

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.service.process.fair_queue import Progress
from issuer.service.process.supervisor import Beat, beating, supervise

FOLDER, *KINDS = sys.argv[1:]


def work(kind: str, beat: Beat) -> None:
    if kind == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    with Path(FOLDER, "said").open("a") as said:
        said.write(f"{kind} {os.getpid()}\n")
    if kind == "failing":
        sys.exit(1)
    if kind == "refused":
        raise SetupError(Code.SETTINGS_INVALID, "no")
    if kind in {"toiling", "stuck"}:
        progress = Progress()
        with beating(beat, lambda: progress.count):
            progress.note()
            while True:
                time.sleep(0.01)  # a slow peer
                if kind == "toiling":
                    progress.note()
    while True:
        if kind != "loading":
            beat()
        time.sleep(1.0 if kind == "busy" else 0.5)  # a slow peer


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    supervise(len(KINDS), lambda place, beat, _channel: work(KINDS[place], beat), grace_s=1.0, silent_s=3)
