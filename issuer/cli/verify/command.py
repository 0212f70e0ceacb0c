"""`issuer verify`: verify a result file, or a folder of repositories.

Exit codes (contract section 6), the same in every output format; the first that applies counts: 2 usage, 6 local state,
3 a file is missing or malformed, 1 no (also: an entry without a token, unless --allow-unsigned; no token at all), 4
undecided (also: good when issued), 0 all good.
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
from issuer.relying.verifier import FOLDER, FileVerifier, path_in_repo
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
    """The values of the options of `issuer verify`, by option name."""

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


@click.command()
@click.argument("path", type=A_FILE, required=False)
@click.option("--repo", metavar="OWNER/NAME", help="The model repository that contains FILE.")
@click.option("--path", "in_repo", metavar="PATH", help="If FILE is a copy: its path in the repository.")
@judging_options
@click.option("--require-token/--allow-unsigned", default=True, show_default=True,
              help="Whether an entry without a token is a no. Either way, one entry must have a token.")  # fmt: skip
@click.option("--keep-receipts", type=A_FOLDER, metavar="DIR",
              help="Keep receipts of verified entries in DIR, and use them: the entries stay verified after their "
                   "tokens expire.")  # fmt: skip
@click.option("--receipt-key", type=A_FILE, metavar="FILE", help="Sign receipts with this key instead of DIR's key.")
@click.option("--benchmark", type=A_FILE, metavar="EVAL.YAML", help="The benchmark's definition, which you vouch for.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="For a DIR: the number of processes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document for a file, lines for a folder.")
@click.option("--format", "form", type=click.Choice(FORMS), help="Print a format of CI systems or spreadsheets.")
@click.option("--only-failed", is_flag=True, help="Leave verified entries out.")
@click.option("--quiet", is_flag=True, help="Print no answer. The exit code is the answer.")
@click.option(
    "--badge", type=A_FOLDER, metavar="DIR", help="For a FILE: draw a badge of each entry in DIR, as SVG and JSON."
)
@click.option("--to", type=A_FILE, metavar="FILE.parquet", help="For a DIR: also write a table with a row per entry.")
@click.option("--engine", metavar="URL", help="For a DIR: use a Dask cluster, dask://HOST:PORT or tls://HOST:PORT.")
@click.option("--engine-tls", type=A_FOLDER, metavar="DIR", help="For tls://: the cluster's ca.pem, cert.pem, key.pem.")
@click.option(
    "--open-pull-request/--on-main", default=None, help="The file's state on the Hub, for badges in --json and --badge."
)
@click.option("--registered/--not-registered", default=None, help="Whether the benchmark is registered on the Hub.")
@click.option("--schema", is_flag=True, help="Print only the JSON Schema of the reports.")
def verify(**given: Any) -> None:
    """Check every entry of a result FILE, or of DIR/OWNER/NAME/.eval_results/*.yaml on all cores.

    The checks cover signature, issuer, freshness and every field. You give the audience; the command never takes it
    from the issuer or the token. PATH is a FILE (with --repo) or a DIR.
    """
    sys.exit(answer(given, int(time.time())))


def answer(given: Mapping[str, Any], now: int) -> Exit:
    """Run `issuer verify` with option values by name, at `now` (Unix seconds), and return the exit code."""
    if given["schema"]:
        say_document(json_schema())
        return Exit.GOOD
    values = dict(given)
    path, repo = values.pop("path"), values.pop("repo")
    options = msgspec.convert(values, Options)
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
            _explain_layout(path)
    else:
        place = options.in_repo or path_in_repo(os.path.abspath(str(path)))
        summary = verify_file(path, str(repo), place, verifier, form, options.badge)
        if not options.quiet and options.in_repo is None and not place.startswith(f"{FOLDER}/"):
            rule = f"{printable(str(path))} is not in a folder {FOLDER}, and only results there count (check 6)"
            say(f"issuer: {rule}. For a copy, give its path in the repository: --path {FOLDER}/NAME.yaml", err=True)
    if not options.quiet:
        _warn_of_unsigned(summary, leave_out=not options.require_token)
    return exit_for_summary(summary, require_token=options.require_token)


def _warn_of_unsigned(summary: Summary, *, leave_out: bool) -> None:
    """Write to standard error if missing tokens make the answer a no."""
    unsigned = summary.verdicts["unverified"]
    if unsigned and not leave_out:
        entries = f"{unsigned:,} of {summary.entries:,} entries have no token that could be checked"
        say(f"issuer: {entries}, so the answer is no. --allow-unsigned leaves them out", err=True)
    elif summary.files and unsigned == summary.entries:
        say("issuer: no entry has a token that could be checked, so the answer is no", err=True)


def _form(options: Options) -> Form:
    if options.quiet:
        return quiet_form()
    form = form_of(options.form, as_json=options.as_json, unsigned_fails=options.require_token)
    return without_good(form) if options.only_failed else form


def _check_usage(path: Path | None, repo: str | None, options: Options, *, folder: bool) -> None:
    if path is None:
        raise click.UsageError("give a FILE with --repo OWNER/NAME, or a DIR of repositories")
    if not os.path.lexists(path) and (repo is None or options.form is None):  # the form reports it
        raise files.unreadable(path, "no such file or folder")
    if not folder and repo is None:
        raise click.UsageError("give --repo OWNER/NAME: a file does not name its repository")
    if repo is not None and not is_repo(repo):
        raise click.UsageError(f"--repo is OWNER/NAME, such as acme/open-model, not a URL; yours is {repo!r}")
    if not folder and options.jobs is not None:
        raise click.UsageError("--jobs is for a DIR")
    if folder and (repo, options.in_repo, options.benchmark) != (None, None, None):
        raise click.UsageError("--repo, --path and --benchmark are for one FILE; for a DIR, give --benchmarks")
    if options.benchmark is not None and options.benchmarks is not None:
        raise click.UsageError("give --benchmark or --benchmarks, not both")
    if options.badge is not None and (folder or options.form is not None):
        raise click.UsageError("--badge is for one FILE, and not for --format")
    hub_facts = (options.open_pull_request, options.registered) != (None, None)
    if hub_facts and not options.as_json and options.badge is None:
        raise click.UsageError("the Hub's state is for badges: give --json or --badge DIR")
    if sum((options.as_json, options.form is not None, options.quiet)) > 1:
        raise click.UsageError("give one of --json, --format and --quiet")
    _check_receipts(options)


def _check_table(options: Options, *, folder: bool) -> None:
    if options.to is not None and (not folder or options.to.suffix != ".parquet"):
        raise click.UsageError("--to is for a DIR, and writes Parquet: name it FILE.parquet")
    if options.engine is not None and (not folder or options.jobs is not None):
        raise click.UsageError("--engine is for a DIR, and uses the cluster's workers: leave --jobs out")
    if options.engine is not None and options.keep_receipts is not None:
        raise click.UsageError("--keep-receipts needs a key on each worker, so --engine refuses it: give --receipts")
    if options.engine_tls is not None and options.engine is None:
        raise click.UsageError("--engine-tls has the certificates of a cluster: give --engine tls://HOST:PORT")


def _absolute(options: Options) -> Options:
    """Make the folders absolute, because the cluster's workers have another working directory."""
    receipts, benchmarks = options.receipts, options.benchmarks
    return replace(options, receipts=receipts and receipts.absolute(), benchmarks=benchmarks and benchmarks.absolute())


def _check_receipts(options: Options) -> None:
    if options.keep_receipts is not None and options.receipts is not None:
        raise click.UsageError("give --keep-receipts DIR or --receipts DIR, not both")
    if options.receipt_key is not None and options.keep_receipts is None:
        raise click.UsageError("--receipt-key signs receipts: give their folder with --keep-receipts DIR")


def _explain_layout(root: Path) -> None:
    rule = f"{printable(str(root))} contains no OWNER/NAME/{FOLDER}/*.yaml"
    if (root / FOLDER).is_dir():
        rule += f". It is one repository: give a file of its {FOLDER}, and --repo OWNER/NAME"
    elif any(root.glob(f"*/{FOLDER}")):
        rule += ". It is the folder of one OWNER: give its parent folder"
    say(f"issuer: {rule}", err=True)


# -- trust and receipts -----------------------------------------------------------------------------------------------


def _verifier(options: Options, now: int, *, folder: bool) -> FileVerifier:
    kept, key = options.keep_receipts, None
    if kept is not None:
        key = open_key(kept, options.receipt_key, listed=options.trust is not None)
    receipts_folder = kept or options.receipts
    trusted = trusted_by(options, now, receipts_folder)
    if kept is not None and key is not None:
        demand_listed(trusted.trust, key, kept, options.trust)
    receipts = None if receipts_folder is None else ReceiptFolder(receipts_folder)
    asked = {} if folder or options.offline else AskedLogs(trusted.trust, now)
    # Badges need the definitions. --benchmarks looks them up for every form, so that every form reports their faults.
    wants_badges = options.as_json or options.badge is not None or options.benchmarks is not None
    context = Context(
        now, witnessed=options.received_now, benchmarks=_benchmarks(options), receipts=receipts or {}, asked=asked,
        hub=HubFacts(options.open_pull_request, options.registered) if wants_badges else None,
    )  # fmt: skip
    # Finding the lines of entries takes as long as reading the file, so in a folder it is done only for a form.
    lines = not folder or options.form is not None
    return FileVerifier(trusted.trust, received_at(options, now), context, receipts, key, trusted.renew, lines)


def _benchmarks(options: Options) -> Mapping[tuple[str, str], Benchmark]:
    if options.benchmarks is not None:
        return BenchmarkFolder(options.benchmarks)
    if options.benchmark is not None:
        file = options.benchmark
        return OneBenchmark(read_benchmark(files.read(file, strict_yaml.MAX_BYTES), str(file)))
    return {}


def verify_file(
    file: Path, repo: str, place: str, verifier: FileVerifier, form: Form, badges: Path | None = None
) -> Summary:
    """Judge a file at `place` in the repository `repo`, print its reports in this form, and return the counts.

    Draws badges of its entries in the folder `badges`. Raises InputError for a file that is not a result file. A form
    that is one document also contains that finding.
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
            _show_receipts(reports, verifier)
        if badges is not None:
            _draw(reports, badges, file.stem)
    except InputError as error:
        if form.alone is None:
            out(form.writer.finding(error) + form.foot(Summary(), verifier.trust, now))
        raise
    # After any other exception the document has no foot, so that no reader mistakes it for "no findings".
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


def _show_receipts(reports: tuple[Report, ...], verifier: FileVerifier) -> None:
    """Print the paths of the entries' receipts to standard error."""
    if verifier.receipts is None or verifier.receipt_key is None:
        return
    for report in reports:
        if report.verdict == "verified" and report.token_digest in verifier.receipts:
            path = printable(str(verifier.receipts.path_of(report.token_digest)))
            say(f"the receipt of entry {report.pointer.removeprefix('/')}: {path}", err=True)


_EVERY_S = 0.2


def verify_folder(
    root: Path, verifier: FileVerifier, form: Form, *, engine: Engine | None = None, to: Path | None = None
) -> Summary:
    """Judge every result file below `root`, print the reports in this form, and return the counts.

    Writes a table of the reports to `to` when it is complete. An interrupted run leaves an existing table unchanged.
    Raises SetupError(`package.missing`) if a package for tables is not installed, and OSError if writing fails.
    """
    from issuer.relying.bulk import Listener, judge_folder  # imports multiprocessing, which one file does not need

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
    """Return the engine that judges a folder: the cluster at a URL, or the processes of this machine.

    Raises SetupError for an unusable URL or a missing package.
    """
    from issuer.relying.bulk import processes

    if url is None:
        return processes(jobs or 0)
    with extra_of("dask", "--engine"):
        from issuer.relying.dask_engine import dask_engine
    return dask_engine(url, certificates, root)


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed. A second Ctrl-C ends the process and its workers."""
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, record)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)


class _Progress:
    """The progress line on a terminal: number of entries, rate, and time left. It is on standard error."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._began = self._drawn_at = time.monotonic()
        self._drawn = False

    def tick(self, fraction: float, summary: Summary) -> None:
        """Draw the line, at most a few times a second."""
        now = time.monotonic()
        if not self._shown or now - self._drawn_at < _EVERY_S:
            return
        self._drawn_at, spent = now, now - self._began
        rate, left = summary.entries / spent, _span(spent * (1 - fraction) / fraction)
        line = f"{summary.entries:,} entries, {rate:,.0f}/s, {fraction:.0%}, {left} left"
        say(BLANK, line, err=True, end="")
        self._drawn = True

    def out(self, text: str) -> None:
        """Clear the progress line, and write to standard output."""
        if self._drawn:
            say(BLANK, err=True, end="")
            self._drawn = False
        say_whole(text)


def _span(seconds: float) -> str:
    whole = int(seconds) + 1
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"
