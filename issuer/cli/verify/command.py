"""`issuer verify`: judge a result file, or a folder of repositories, and exit with the answer.

Exit codes (contract section 6), the same in every output format, the worst wins: 2 usage, 6 local state, 3 a file that
is missing or malformed, 1 no (also: an entry without a token, unless --allow-unsigned; no token at all), 4 could not
decide (also: good when it was issued), 0 all good.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from issuer.cli.exits import Exit, exit_for_summary, extra_of
from issuer.cli.options import A_FILE, A_FOLDER
from issuer.cli.terminal import BLANK, is_watched, printable, say, say_document, say_error, say_whole, to_json
from issuer.cli.verify.formats import FORMS, Form, FormName, form_of, joined, quiet_form, without_good
from issuer.cli.verify.options import Judging, demand_listed, judging_options, open_key, received_at, trusted_by
from issuer.errors import InputError
from issuer.formats import strict_yaml
from issuer.io import files
from issuer.relying.badge_image import shields, svg
from issuer.relying.folders import BenchmarkFolder, OneBenchmark, ReceiptFolder
from issuer.relying.logs.proof import AskedLogs
from issuer.relying.verifier import FOLDER, Verifier, path_in_repo
from issuer.results.benchmark import read_benchmark
from issuer.results.claims import is_repo
from issuer.verify import Context
from issuer.verify.report import Report, json_schema
from issuer.verify.summary import Summary, tally
from issuer.verify.tiers import HubFacts

if TYPE_CHECKING:
    from issuer.relying.bulk import Engine
    from issuer.results.benchmark import Benchmark


class Options(Judging, frozen=True):
    """What was asked for, by the names of the options."""

    in_repo: str | None
    keep_receipts: Path | None
    receipt_key: Path | None
    benchmark: Path | None
    require_token: bool
    jobs: int | None
    as_json: bool
    form: FormName | None
    quiet: bool
    only_failed: bool
    badge: Path | None
    to: Path | None
    engine: str | None
    engine_tls: Path | None
    open_pull_request: bool | None
    registered: bool | None

    @property
    def receipts_folder(self) -> Path | None:
        """Where receipts lie, to use or to keep."""
        return self.keep_receipts or self.receipts


@click.command()
@click.argument("path", type=A_FILE, required=False)
@click.option("--repo", metavar="OWNER/NAME", help="The model repository that the FILE sits in.")
@click.option("--path", "in_repo", metavar="PATH", help="Where a FILE that is a copy lies in the repository.")
@judging_options
@click.option("--require-token/--allow-unsigned", default=True, show_default=True,
              help="Whether an entry without a token is a no. One must have a token, either way.")  # fmt: skip
@click.option("--keep-receipts", type=A_FOLDER, metavar="DIR",
              help="Keep a receipt of what verifies, and use those of before: it stays verified when its token has "
                   "ended.")  # fmt: skip
@click.option("--receipt-key", type=A_FILE, metavar="FILE", help="Sign receipts with this key instead of DIR's own.")
@click.option("--benchmark", type=A_FILE, metavar="EVAL.YAML", help="The benchmark's definition; you vouch for it.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Of a folder: how many processes judge.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document for a file, lines for a folder.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Print what CI systems and spreadsheets read.")
@click.option("--only-failed", is_flag=True, help="Leave out what is verified.")
@click.option("--quiet", is_flag=True, help="Print no answer: the exit code is it.")
@click.option(
    "--badge", type=A_FOLDER, metavar="DIR", help="Of a FILE: draw a badge of each entry, SVG and JSON, in DIR."
)
@click.option("--to", type=A_FILE, metavar="FILE.parquet", help="Of a DIR: write a table, too, with a row an entry.")
@click.option("--engine", metavar="URL", help="Of a DIR: judge on a Dask cluster, dask://HOST:PORT or tls://HOST:PORT.")
@click.option("--engine-tls", type=A_FOLDER, metavar="DIR", help="For tls://: the cluster's ca.pem, cert.pem, key.pem.")
@click.option(
    "--open-pull-request/--on-main", default=None, help="What only the Hub knows, for the badges of --json and --badge."
)
@click.option("--registered/--not-registered", default=None, help="Whether the benchmark is registered on the Hub.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the reports, and nothing else.")
def verify(**asked: Any) -> None:
    """Check every entry of a result FILE, or of DIR/OWNER/NAME/.eval_results/*.yaml on all cores.

    Signature, issuer, freshness, every field. The audience is yours to say; it is never taken from the issuer or from
    the token. PATH is a FILE (with --repo) or a DIR.
    """
    sys.exit(answer(asked, int(time.time())))


def answer(asked: Mapping[str, Any], now: int) -> Exit:
    """Answer what was asked, by the names of the options, at `now` (Unix seconds); return the exit code."""
    if asked["schema"]:
        say_document(json_schema())
        return Exit.GOOD
    given = dict(asked)
    path, repo = given.pop("path"), given.pop("repo")
    options = msgspec.convert(given, Options)
    folder = path is not None and path.is_dir()
    _check_usage(path, repo, options, folder=folder)
    _check_table(options, folder=folder)
    if options.engine is not None:
        path, options = path.absolute(), _absolute(options)
    verifier = _verifier(options, now, folder=folder)
    form = _form(options)
    if folder:
        engine = engine_of(path, options.engine, options.engine_tls, options.jobs)
        summary = verify_folder(path, verifier, form, engine=engine, to=options.to)
        if not summary.files and not summary.interrupted:
            _tell_what_is_looked_for(path)
    else:
        place = options.in_repo or path_in_repo(os.path.abspath(str(path)))
        summary = verify_file(path, str(repo), place, verifier, form, options.badge)
        if not options.quiet and options.in_repo is None and not place.startswith(f"{FOLDER}/"):
            rule = f"{printable(str(path))} does not lie in a folder {FOLDER}, where results count (check 6)"
            say(f"issuer: {rule}. Of a copy, say where it lies: --path {FOLDER}/NAME.yaml", err=True)
    if not options.quiet:
        _tell_unsigned(summary, leave_out=not options.require_token)
    return exit_for_summary(summary, require_token=options.require_token)


def _tell_unsigned(summary: Summary, *, leave_out: bool) -> None:
    """Say on standard error why the answer is a no, where that is for tokens that are not there."""
    unsigned = summary.verdicts["unverified"]
    if unsigned and not leave_out:
        what = f"{unsigned:,} of {summary.entries:,} entries have no token that could be checked"
        say(f"issuer: {what}: that is a no. --allow-unsigned leaves them out", err=True)
    elif summary.files and unsigned == summary.entries:
        say("issuer: no entry has a token that could be checked: that is a no", err=True)


def _form(options: Options) -> Form:
    if options.quiet:
        return quiet_form()
    form = form_of(options.form, as_json=options.as_json, unsigned_fails=options.require_token)
    return without_good(form) if options.only_failed else form


def _check_usage(path: Path | None, repo: str | None, options: Options, *, folder: bool) -> None:
    if path is None:
        raise click.UsageError("give a FILE with --repo OWNER/NAME, or a DIR of repositories")
    if not os.path.lexists(path) and (repo is None or options.form is None):  # or else the form tells it
        raise files.unreadable(path, "no such file or folder")
    if not folder and repo is None:
        raise click.UsageError("give --repo OWNER/NAME: a file does not say which repository it sits in")
    if repo is not None and not is_repo(repo):
        raise click.UsageError(f"--repo is OWNER/NAME, as in acme/open-model, and no address; yours is {repo!r}")
    if not folder and options.jobs is not None:
        raise click.UsageError("--jobs is for a DIR")
    if folder and (repo, options.in_repo, options.benchmark) != (None, None, None):
        what = "--repo, --path and --benchmark are for one FILE; for a DIR, --benchmarks has many definitions"
        raise click.UsageError(what)
    if options.benchmark is not None and options.benchmarks is not None:
        raise click.UsageError("give --benchmark or --benchmarks, not both")
    if options.badge is not None and (folder or options.form is not None):
        raise click.UsageError("--badge is for one FILE, and not for --format")
    hub_says = (options.open_pull_request, options.registered) != (None, None)
    if hub_says and not options.as_json and options.badge is None:
        raise click.UsageError("what the Hub knows is for badges: give --json or --badge DIR")
    if sum((options.as_json, options.form is not None, options.quiet)) > 1:
        raise click.UsageError("give one of --json, --format and --quiet")
    _check_receipts(options)


def _check_table(options: Options, *, folder: bool) -> None:
    if options.to is not None and (not folder or options.to.suffix != ".parquet"):
        raise click.UsageError("--to is for a DIR, and writes Parquet: name it FILE.parquet")
    if options.engine is not None and (not folder or options.jobs is not None):
        raise click.UsageError("--engine is for a DIR, and not with --jobs: its workers are those of the cluster")
    if options.engine is not None and options.keep_receipts is not None:
        raise click.UsageError("--keep-receipts is not for --engine: its key leaves no machine. --receipts uses them")
    if options.engine_tls is not None and options.engine is None:
        raise click.UsageError("--engine-tls has the certificates of a cluster: give --engine tls://HOST:PORT")


def _absolute(options: Options) -> Options:
    """Name folders as workers must, which begin elsewhere."""
    receipts, benchmarks = options.receipts, options.benchmarks
    return replace(options, receipts=receipts and receipts.absolute(), benchmarks=benchmarks and benchmarks.absolute())


def _check_receipts(options: Options) -> None:
    if options.keep_receipts is not None and options.receipts is not None:
        raise click.UsageError("give --keep-receipts DIR or --receipts DIR, not both")
    if options.receipt_key is not None and options.keep_receipts is None:
        raise click.UsageError("--receipt-key signs receipts: say where they go with --keep-receipts DIR")


def _tell_what_is_looked_for(root: Path) -> None:
    rule = f"{printable(str(root))} holds no OWNER/NAME/{FOLDER}/*.yaml, which is what is looked for"
    if (root / FOLDER).is_dir():
        rule += f". It is one repository: give a file of its {FOLDER}, and --repo OWNER/NAME"
    elif any(root.glob(f"*/{FOLDER}")):
        rule += ". It is the folder of one OWNER: give the one above it"
    say(f"issuer: {rule}", err=True)


# -- trust and receipts -----------------------------------------------------------------------------------------------


def _verifier(options: Options, now: int, *, folder: bool) -> Verifier:
    kept, key = options.keep_receipts, None
    if kept is not None:
        key = open_key(kept, options.receipt_key, listed=options.trust is not None)
    trusted = trusted_by(options, now)
    if kept is not None and key is not None:
        demand_listed(trusted.trust, key, kept, options.trust)
    receipts = None if options.receipts_folder is None else ReceiptFolder(options.receipts_folder)
    asked = {} if folder or options.offline else AskedLogs(trusted.trust, now)
    # Badges look definitions up: what is wrong with one is told, and the answer the same, in every form.
    wants_badges = options.as_json or options.badge is not None or options.benchmarks is not None
    context = Context(
        now, witnessed=options.received_now, benchmarks=_benchmarks(options), receipts=receipts or {}, asked=asked,
        hub=HubFacts(options.open_pull_request, options.registered) if wants_badges else None,
    )  # fmt: skip
    # A folder's entries without a token are many, and to find the line of each takes as long as to read its file.
    lines = not folder or options.form is not None
    return Verifier(trusted.trust, received_at(options, now), context, receipts, key, trusted.renew, lines)


def _benchmarks(options: Options) -> Mapping[tuple[str, str], Benchmark]:
    if options.benchmarks is not None:
        return BenchmarkFolder(options.benchmarks)
    if options.benchmark is not None:
        file = options.benchmark
        return OneBenchmark(read_benchmark(files.read(file, strict_yaml.MAX_BYTES), str(file)))
    return {}


# -- one file ---------------------------------------------------------------------------------------------------------


def verify_file(
    file: Path, repo: str, place: str, verifier: Verifier, form: Form, badges: Path | None = None
) -> Summary:
    """Judge a file at `place` in the repository `repo`, print its reports in this form, and return the counts.

    The badges of its entries go to the folder `badges`. Raises InputError for a file that holds no results; a form that
    is one document says it, too.
    """
    now, out = verifier.context.now, joined(form, say_whole)
    if form.alone is None:
        say_whole(form.head)
    try:
        reports = verifier.verify(files.read(file, strict_yaml.MAX_BYTES), str(file), repo, place)
        if form.alone is None:
            out(form.writer.reports(str(file), reports))
        else:
            form.alone(reports, str(file), now)
            _tell_receipts(reports, verifier)
        if badges is not None:
            _draw(reports, badges, file.stem)
    except InputError as error:
        if form.alone is None:
            out(form.writer.finding(error) + form.foot(Summary(), verifier.trust, now))
        raise
    # Where anything else ends this, a document without its foot is one that nobody takes for "nothing found".
    if form.alone is None:
        say_whole(form.foot(Summary(), verifier.trust, now))
    faults = verifier.take_faults()
    for fault in faults:
        say_error(fault)
    summary = Summary()
    summary.add(1, Counter(map(tally, reports)).items(), [fault.code for fault in faults])
    return summary


def _draw(reports: tuple[Report, ...], folder: Path, stem: str) -> None:
    files.make_folder(folder, mode=0o777, follow=False)
    for report in reports:
        name = f"{stem}-{report.pointer.removeprefix('/')}"
        for kind, text in (("svg", svg(report)), ("json", to_json(shields(report)) + "\n")):
            files.replace(folder / f"{name}.{kind}", text.encode(), mode=None, durable=False, follow=False)


def _tell_receipts(reports: tuple[Report, ...], verifier: Verifier) -> None:
    """Say where the receipts lie with which these entries stay verified."""
    if verifier.receipts is None or verifier.receipt_key is None:
        return
    for report in reports:
        if report.verdict == "verified" and report.token_digest in verifier.receipts:
            path = printable(str(verifier.receipts.path_of(report.token_digest)))
            say(f"the receipt of entry {report.pointer.removeprefix('/')}: {path}", err=True)


# -- a folder ---------------------------------------------------------------------------------------------------------

_EVERY_S = 0.2


def verify_folder(
    root: Path, verifier: Verifier, form: Form, *, engine: Engine | None = None, to: Path | None = None
) -> Summary:
    """Judge every result file below `root`, print the reports in this form, and return the counts. The table of them
    is put in place at `to` once it is whole: an interrupted run leaves what was there.

    Raises SetupError(`package.missing`) where what a table needs is not installed, OSError where it cannot be written.
    """
    from issuer.relying.bulk import Listener, judge_folder  # processes, which one file does not need

    judge: Callable[..., Summary] = judge_folder
    if to is not None:
        with extra_of("table", "a table"):
            from issuer.relying.table import judge_into
        judge = partial(judge_into, to)
    progress = _Progress(shown=is_watched())
    progress.out(form.head)
    with interruptible() as stopped:
        listener = Listener(joined(form, progress.out), progress.tick, stopped)
        summary = judge(root, verifier, form.writer, listener, engine=engine)
    progress.out(form.foot(summary, verifier.trust, verifier.context.now))
    if to is not None and summary.interrupted:
        say(f"issuer: interrupted, so {printable(str(to))} is as it was", err=True)
    return summary


def engine_of(root: Path, url: str | None, certificates: Path | None, jobs: int | None) -> Engine:
    """Return what judges a folder: the cluster at a URL, or the processes of this machine.

    Raises SetupError for a URL that cannot be used, or a package that is missing.
    """
    from issuer.relying.bulk import processes

    if url is None:
        return processes(jobs or 0)
    with extra_of("dask", "--engine"):
        from issuer.relying.dask_engine import dask_engine
    return dask_engine(url, certificates, root)


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
        say(BLANK, line, err=True, end="")
        self._drawn = True

    def out(self, text: str) -> None:
        """Write to standard output; the line of progress is taken away before."""
        if self._drawn:
            say(BLANK, err=True, end="")
            self._drawn = False
        say_whole(text)


def _span(seconds: float) -> str:
    whole = int(seconds) + 1
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"
