"""`issuer verify DIR`: reports as they come; progress on a terminal; a summary at the end."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from issuer.cli.terminal import Painted, is_watched, printable, say, say_whole
from issuer.cli.verify_forms import Form, joined
from issuer.codes import Code
from issuer.errors import SetupError
from issuer.relying.bulk import Engine, Listener, judge_folder, processes
from issuer.relying.verifier import Verifier
from issuer.verify.summary import Summary

_EVERY_S = 0.2
_BLANK = Painted("\r\x1b[K")  # takes the line away


def verify_folder(
    root: Path, verifier: Verifier, form: Form, *, engine: Engine | None = None, to: Path | None = None
) -> Summary:
    """Judge every result file below `root`, print the reports in this form, and return the counts. The table of them
    is put in place at `to` once it is whole: an interrupted run leaves what was there.

    Raises SetupError(`package.missing`) where what a table needs is not installed, OSError where it cannot be written.
    """
    judge: Callable[..., Summary] = judge_folder if to is None else partial(_table_judge(), to)
    progress = _Progress(shown=is_watched())
    progress.out(form.head)
    with interruptible() as stopped:
        listener = Listener(joined(form, progress.out), progress.tick, stopped)
        summary = judge(root, verifier, form.writer, listener, engine=engine)
    progress.out(form.foot(summary, verifier.trust, verifier.context.now))
    if to is not None and summary.interrupted:
        say(f"issuer: interrupted, so {printable(str(to))} is as it was", err=True)
    return summary


def _table_judge() -> Callable[..., Summary]:
    with extra_of("table", "a table"):
        from issuer.relying.table import judge_into
    return judge_into


def engine_of(root: Path, url: str | None, certificates: Path | None, jobs: int | None) -> Engine:
    """Return what judges a folder: the cluster at a URL, or the processes of this machine.

    Raises SetupError for a URL that cannot be used, or a package that is missing.
    """
    if url is None:
        return processes(jobs or 0)
    with extra_of("dask", "--engine"):
        from issuer.relying.dask_engine import dask_engine
    return dask_engine(url, certificates, root)


@contextlib.contextmanager
def extra_of(name: str, what: str) -> Iterator[None]:
    """Say what to install where `what` needs a package that is not there: the extra of this name."""
    try:
        yield
    except ModuleNotFoundError as error:
        detail = f"{what} needs {error.name}. In the checkout, run `pip install '.[{name}]'`"
        raise SetupError(Code.PACKAGE_MISSING, detail) from None


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Notice the first Ctrl-C; the second one ends this process at once, and its workers with it."""
    seen: list[int] = []

    def notice(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, notice)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


class _Progress:
    """The last line of a terminal: how many, how fast, how long still. On standard error, unless that is a file."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._began = self._drawn_at = time.monotonic()
        self._drawn = False

    def tick(self, fraction: float, summary: Summary) -> None:
        """Show how far it is, a few times a second."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < _EVERY_S:
            return
        self._drawn_at, spent = now, now - self._began
        rate, left = summary.entries / spent, _span(spent * (1 - fraction) / fraction)
        line = f"{summary.entries:,} entries, {rate:,.0f}/s, {fraction:.0%}, {left} left"
        say(_BLANK, line, err=True, end="")
        self._drawn = True

    def out(self, text: str) -> None:
        """Write to standard output; the line of progress is taken away before."""
        if self._drawn:
            say(_BLANK, err=True, end="")
            self._drawn = False
        say_whole(text)


def _span(seconds: float) -> str:
    whole = int(seconds) + 1
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"
